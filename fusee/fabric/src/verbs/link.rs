//! A worker's queue pair to one node, with what is under way on it.

use super::chain::{Built, Cursor, Remote};
use super::queue_pair::QueuePair;
use super::{NodeQueuePair, VerbsError};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// A worker's queue pair to one node.
#[derive(Debug)]
pub(super) struct Link {
    /// `None` once it has failed.
    pub(super) queue_pair: Option<QueuePair>,
    pub(super) remote: Remote,
    bytes: u64,
    /// Upper half of its work requests' ids, so that late completions of an earlier
    /// queue pair to the node are known.
    tag: u32,
    sequence: u32,
    /// Work requests that the queue pair has room for.
    pub(super) room: usize,
    /// Lists that were posted and have not completed, in order.
    pub(super) posted: VecDeque<List>,
    /// Batches that wait for room, in order.
    pub(super) waiting: VecDeque<Waiting>,
    /// When the next beat without a completion is over.
    beat_at: Instant,
    /// Beats in a row that were.
    silent_beats: u32,
    beat: Duration,
}

/// A node is down after so many beats in which nothing completed. Not after one long
/// one: a worker that was itself stopped for a while, with its machine or alone, finds
/// one of them over, and gives its device time for what it still has to deliver.
const SILENT_BEATS_MAX: u32 = 4;
/// And after one more for each so many bytes that the next list is to move: Soft-RoCE on
/// a busy machine takes a second and more for an object of 8 MiB.
const BYTES_PER_BEAT: usize = 512 << 10;

/// Work requests of one batch that complete together.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    /// The batch's flight.
    pub(super) flight: usize,
    /// Its verbs: those from here on ...
    pub(super) from: usize,
    /// ... to here that are for the node.
    pub(super) to: usize,
    /// Its work requests.
    pub(super) built: Built,
    id: u64,
}

/// A batch of which verbs for the node were not posted yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// The batch's flight.
    pub(super) flight: usize,
    /// How far it was posted.
    pub(super) cursor: Cursor,
    /// How many of its verbs are left.
    pub(super) left: usize,
}

impl Link {
    /// Over a queue pair that is connected to the node's end.
    pub(super) fn new(
        queue_pair: QueuePair,
        node: u16,
        end: &NodeQueuePair,
        tag: u16,
        room: usize,
        deadline: Duration,
    ) -> Result<Self, VerbsError> {
        if !end.bytes.is_multiple_of(8) || end.base.checked_add(end.bytes).is_none() {
            return Err(VerbsError::Peer("its memory ends beyond the last address"));
        }
        let inline_bytes = queue_pair.inline_bytes();
        let remote = Remote { node, rkey: end.rkey, base: end.base, inline_bytes };
        Ok(Self {
            queue_pair: Some(queue_pair),
            remote,
            bytes: end.bytes,
            tag: u32::from(tag) << 16 | u32::from(node),
            sequence: 0,
            room,
            posted: VecDeque::new(),
            waiting: VecDeque::new(),
            beat_at: Instant::now(),
            silent_beats: 0,
            beat: deadline / SILENT_BEATS_MAX,
        })
    }

    pub(super) fn is_down(&self) -> bool {
        self.queue_pair.is_none()
    }

    /// Is there so much memory at `offset`?
    #[inline]
    pub(super) fn holds(&self, offset: u64, bytes: u64) -> bool {
        offset.checked_add(bytes).is_some_and(|end| end <= self.bytes)
    }

    /// The id of the next list.
    pub(super) fn next_id(&mut self) -> u64 {
        self.sequence = self.sequence.wrapping_add(1);
        u64::from(self.tag) << 32 | u64::from(self.sequence)
    }

    /// Is a completion of this queue pair, not of an earlier one?
    #[inline]
    pub(super) fn made(&self, id: u64) -> bool {
        (id >> 32) as u32 == self.tag
    }

    /// Notes that a list was posted.
    #[inline]
    pub(super) fn note_posted(&mut self, list: List, now: Instant) {
        if self.posted.is_empty() {
            self.hear(now);
        }
        self.room -= list.built.requests;
        self.posted.push_back(list);
    }

    /// Takes the list that has completed; `None` if it is not the next one, which
    /// the device has promised.
    #[inline]
    pub(super) fn note_completed(&mut self, id: u64, now: Instant) -> Option<List> {
        if self.posted.front()?.id != id {
            return None;
        }
        let list = self.posted.pop_front()?;
        self.room += list.built.requests;
        self.hear(now);
        Some(list)
    }

    fn hear(&mut self, now: Instant) {
        self.silent_beats = 0;
        self.beat_at = now + self.beat;
    }

    /// When the next beat is over, if something is under way.
    pub(super) fn beat_at(&self) -> Option<Instant> {
        (!self.posted.is_empty()).then_some(self.beat_at)
    }

    /// Has nothing completed for too long? To be asked when a beat is over.
    pub(super) fn is_silent(&mut self, now: Instant) -> bool {
        if self.beat_at().is_some_and(|at| now >= at) {
            self.silent_beats += 1;
            self.beat_at = now + self.beat;
        }
        let bytes = self.posted.front().map_or(0, |list| list.built.bytes);
        self.silent_beats >= SILENT_BEATS_MAX + (bytes / BYTES_PER_BEAT) as u32
    }
}

impl List {
    pub(super) fn new(flight: usize, from: usize, to: usize, built: Built, id: u64) -> Self {
        Self { flight, from, to, built, id }
    }
}

/// The node of a completion.
#[inline]
pub(super) fn node_of(id: u64) -> usize {
    (id >> 32) as u16 as usize
}
