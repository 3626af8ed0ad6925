//! A worker's queue pair to one node, with what is under way on it.

use super::chain::{Built, Cursor, PIECE_BYTES, Remote};
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
    requests_max: usize,
    /// What is on the queue pair.
    under_way: Built,
    /// Lists that were posted and have not completed, in order.
    pub(super) posted: VecDeque<List>,
    /// Batches that wait for room, in order.
    pub(super) waiting: VecDeque<Waiting>,
    pulse: Pulse,
}

/// Bytes under way on a queue pair, at most, but for the end of the last piece: as much
/// as a network of 100 Gb/s carries in 10 us. More is of no use, and what a switch or a
/// receiver has no room for is lost, which costs the device's timeout each time.
const WINDOW_BYTES: usize = 128 << 10;
/// A list of large verbs: one completes while the next is under way.
const LIST_BYTES: usize = PIECE_BYTES;

/// Work requests of one batch that complete together.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    /// The batch's flight.
    pub(super) flight: usize,
    /// Its verbs: those from here on ...
    pub(super) from: usize,
    /// ... to here that are for the node.
    pub(super) to: usize,
    /// Does nothing of the batch for the node come behind it?
    pub(super) is_last: bool,
    pub(super) built: Built,
    pub(super) id: u64,
}

/// A batch of which verbs for the node were not posted yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// The batch's flight.
    pub(super) flight: usize,
    /// How far it was posted.
    pub(super) cursor: Cursor,
    /// How many work requests it still takes.
    pub(super) left: usize,
}

impl Link {
    /// Over a queue pair that is connected to the node's end.
    pub(super) fn new(
        queue_pair: QueuePair,
        node: u16,
        end: &NodeQueuePair,
        tag: u16,
        requests_max: usize,
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
            requests_max,
            under_way: Built::default(),
            posted: VecDeque::new(),
            waiting: VecDeque::new(),
            pulse: Pulse::new(deadline),
        })
    }

    /// What is in its place when another queue pair is connected to the node.
    pub(super) fn renewed(
        &self,
        queue_pair: QueuePair,
        end: &NodeQueuePair,
    ) -> Result<Self, VerbsError> {
        let tag = (self.tag >> 16) as u16;
        let deadline = self.pulse.beat * SILENT_BEATS_MAX;
        let node = self.remote.node;
        Self::new(queue_pair, node, end, tag.wrapping_add(1), self.requests_max, deadline)
    }

    pub(super) fn is_down(&self) -> bool {
        self.queue_pair.is_none()
    }

    /// Work requests that the queue pair has room for.
    pub(super) fn requests_max(&self) -> usize {
        self.requests_max
    }

    /// Is there so much memory at `offset`?
    #[inline]
    pub(super) fn holds(&self, offset: u64, bytes: u64) -> bool {
        offset.checked_add(bytes).is_some_and(|end| end <= self.bytes)
    }

    /// How large the next list may be; `None` if it has to wait.
    #[inline]
    pub(super) fn room(&self) -> Option<Built> {
        let requests = self.requests_max - self.under_way.requests;
        let bytes = WINDOW_BYTES.saturating_sub(self.under_way.bytes).min(LIST_BYTES);
        (requests > 0 && bytes > 0).then_some(Built { requests, bytes })
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
            self.pulse.restart(now);
        }
        self.under_way.requests += list.built.requests;
        self.under_way.bytes += list.built.bytes;
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
        self.under_way.requests -= list.built.requests;
        self.under_way.bytes -= list.built.bytes;
        self.pulse.restart(now);
        Some(list)
    }

    /// When to ask whether it is silent, if something is under way.
    pub(super) fn beat_ends(&self) -> Option<Instant> {
        (!self.posted.is_empty()).then_some(self.pulse.beat_ends)
    }

    /// Has nothing completed for too long? To be asked after completions were polled for.
    pub(super) fn is_silent(&mut self, now: Instant) -> bool {
        !self.posted.is_empty() && self.pulse.is_silent(now)
    }
}

/// Tells a node that is silent from a worker that was: a node is down after several beats
/// in which nothing completed, not after one long one. A worker that was stopped for a
/// while, alone or with its machine, finds one beat over, and then gives its device time
/// for what came meanwhile.
#[derive(Debug)]
struct Pulse {
    beat: Duration,
    beat_ends: Instant,
    /// In a row.
    silent_beats: u32,
}

const SILENT_BEATS_MAX: u32 = 4;

impl Pulse {
    fn new(deadline: Duration) -> Self {
        let beat = deadline / SILENT_BEATS_MAX;
        Self { beat, beat_ends: Instant::now() + beat, silent_beats: 0 }
    }

    #[inline]
    fn restart(&mut self, now: Instant) {
        self.silent_beats = 0;
        self.beat_ends = now + self.beat;
    }

    fn is_silent(&mut self, now: Instant) -> bool {
        if now >= self.beat_ends {
            self.silent_beats += 1;
            self.beat_ends = now + self.beat;
        }
        self.silent_beats >= SILENT_BEATS_MAX
    }
}

/// The node of a completion.
#[inline]
pub(super) fn node_of(id: u64) -> usize {
    (id >> 32) as u16 as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_silent_after_its_deadline_but_not_because_its_worker_was_stopped() {
        let deadline = Duration::from_secs(2);
        let mut pulse = Pulse::new(deadline);
        let begin = Instant::now();
        pulse.restart(begin);
        let mut now = begin;
        while !pulse.is_silent(now) {
            assert!(now <= begin + deadline);
            now = pulse.beat_ends;
        }
        assert_eq!(now, begin + deadline);

        pulse.restart(now);
        now += Duration::from_mins(1);
        assert!(!pulse.is_silent(now), "the worker was away");
        pulse.restart(now);
        for _ in 0..10 {
            now += deadline;
            assert!(!pulse.is_silent(now));
            pulse.restart(now);
        }
    }
}
