//! A worker's queue pair to one node, with what is under way on it.

use super::chain::{Cursor, Remote};
use super::queue_pair::QueuePair;
use super::{NodeQueuePair, VerbsError};
use std::collections::VecDeque;
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
    /// When something completed last, or was posted on an idle queue pair.
    pub(super) progress_at: Instant,
}

/// Work requests of one batch that complete together.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    /// The batch's flight.
    pub(super) flight: usize,
    /// Its verbs: those from here on ...
    pub(super) from: usize,
    /// ... to here that are for the node.
    pub(super) to: usize,
    /// How many work requests.
    pub(super) requests: usize,
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
        now: Instant,
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
            progress_at: now,
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
            self.progress_at = now;
        }
        self.room -= list.requests;
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
        self.room += list.requests;
        self.progress_at = now;
        Some(list)
    }
}

impl List {
    pub(super) fn new(flight: usize, from: usize, to: usize, requests: usize, id: u64) -> Self {
        Self { flight, from, to, requests, id }
    }
}

/// The node of a completion.
#[inline]
pub(super) fn node_of(id: u64) -> usize {
    (id >> 32) as u16 as usize
}
