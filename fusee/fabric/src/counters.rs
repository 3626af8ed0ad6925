//! What a fabric has run: counters that one thread writes and any may read.

use crate::{RoundTrips, VerbKind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How many kinds of verbs are told apart.
pub const VERB_KINDS: usize = 4;

/// Batches, verbs and bytes of one fabric since it was made.
///
/// The fabric's own thread is the only writer, so counting is a load and a
/// store; readers on other threads see values that are a moment old.
#[derive(Debug, Default)]
pub struct Counters {
    batches: AtomicU64,
    verbs: [AtomicU64; VERB_KINDS],
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    out_of_range: AtomicU64,
    failed: AtomicU64,
    round_trips: RoundTrips,
}

impl Counters {
    /// Of a fabric to so many memory nodes.
    pub fn new(nodes: usize) -> Self {
        Self { round_trips: RoundTrips::new(nodes), ..Self::default() }
    }

    /// Counts a batch. For fabrics, on their own thread.
    pub fn count(&self, verbs: [u64; VERB_KINDS], bytes_read: u64, bytes_written: u64) {
        add(&self.batches, 1);
        for (counter, more) in self.verbs.iter().zip(verbs) {
            add(counter, more);
        }
        add(&self.bytes_read, bytes_read);
        add(&self.bytes_written, bytes_written);
    }

    /// Counts verbs outside of a node's memory. For fabrics, on their own thread.
    pub fn count_out_of_range(&self, verbs: u64) {
        add(&self.out_of_range, verbs);
    }

    /// Counts verbs to nodes that do not answer. For fabrics, on their own thread.
    pub fn count_failed(&self, verbs: u64) {
        add(&self.failed, verbs);
    }

    /// Verbs that failed as their node does not answer.
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    /// How long nodes took to answer.
    pub fn round_trips(&self) -> &RoundTrips {
        &self.round_trips
    }

    /// Verbs that failed as no memory is where they went: words of a damaged
    /// pool led there.
    pub fn out_of_range(&self) -> u64 {
        self.out_of_range.load(Relaxed)
    }

    /// Batches, that is round trips.
    pub fn batches(&self) -> u64 {
        self.batches.load(Relaxed)
    }

    /// Verbs of a kind.
    pub fn verbs(&self, kind: VerbKind) -> u64 {
        self.verbs[kind as usize].load(Relaxed)
    }

    /// Bytes that READs brought.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Relaxed)
    }

    /// Bytes that WRITEs took.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Relaxed)
    }
}

fn add(counter: &AtomicU64, more: u64) {
    if more > 0 {
        counter.store(counter.load(Relaxed) + more, Relaxed);
    }
}
