//! The batches under way on a worker's queue pairs: posting, completions, failure.
//!
//! A batch that was launched is a *flight*. Its memory belongs to the device until
//! all its verbs have completed, or the queue pairs that they are on are destroyed;
//! only then does it leave here.

use super::chain::{Chain, Cursor, Local, has_extra, pieces_of};
use super::device::MESSAGE_BYTES;
use super::domain::{CompletionQueue, Domain};
use super::ffi;
use super::link::{Link, List, Waiting, node_of};
use super::queue_pair::QueuePair;
use super::{NodeQueuePair, VerbsError};
use crate::batch::{Posted, Verb};
use crate::{Batch, Counters, VERB_KINDS, VerbKinds};
use slab::Slab;
use std::sync::Arc;
use std::task::Waker;
use tokio::time::Instant;

/// A worker's queue pairs and what is under way on them.
pub(super) struct Engine {
    // Queue pairs end first: then no device touches the memory of flights any more.
    links: Vec<Link>,
    flights: Slab<Flight>,
    queue: Arc<CompletionQueue>,
    chain: Chain,
    completions: Box<[ffi::WorkCompletion]>,
    /// Work requests of a batch to each node, while it is launched.
    counts: Vec<usize>,
    /// Will the next completion make an event?
    armed: bool,
    counters: Arc<Counters>,
}

/// A batch under way.
struct Flight {
    batch: Batch,
    launched: Instant,
    local: Local,
    /// Lists that were posted, and waits for room.
    pending: u32,
    waker: Option<Waker>,
    /// Does nobody wait for it any more?
    abandoned: bool,
}

/// What came of a launch.
pub(super) enum Launched {
    /// All its verbs have results.
    Done(Batch),
    /// It is under way, under this number.
    Flying(usize),
}

/// Completions taken at a time.
const COMPLETIONS: usize = 32;

impl Engine {
    /// On these queue pairs, by node.
    pub(super) fn new(queue: Arc<CompletionQueue>, links: Vec<Link>, work_requests: usize) -> Self {
        // SAFETY: numbers may be 0.
        let blank: ffi::WorkCompletion = unsafe { std::mem::zeroed() };
        Self {
            counts: vec![0; links.len()],
            counters: Arc::new(Counters::new(links.len())),
            links,
            flights: Slab::new(),
            queue,
            chain: Chain::new(work_requests),
            completions: vec![blank; COMPLETIONS].into(),
            armed: false,
        }
    }

    pub(super) fn is_down(&self, node: u16) -> bool {
        self.links.get(usize::from(node)).is_none_or(Link::is_down)
    }

    pub(super) fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    pub(super) fn domain(&self) -> &Arc<Domain> {
        self.queue.domain()
    }

    /// Where all that is posted completes.
    pub(super) fn queue(&self) -> &Arc<CompletionQueue> {
        &self.queue
    }

    /// Work requests that the queue pair to a node has room for.
    pub(super) fn requests_max(&self, node: u16) -> usize {
        self.links[usize::from(node)].requests_max()
    }

    /// Goes on with another queue pair to a node, where the earlier one has ended.
    pub(super) fn renew(
        &mut self,
        node: u16,
        queue_pair: QueuePair,
        end: &NodeQueuePair,
        now: Instant,
    ) -> Result<(), VerbsError> {
        assert!(self.is_down(node), "the earlier queue pair has ended");
        let link = self.links[usize::from(node)].renewed(queue_pair, end)?;
        // What the earlier one has left in the completion queue leaves room for no more
        // than was counted on.
        self.poll(now);
        self.links[usize::from(node)] = link;
        Ok(())
    }

    /// Posts a batch.
    pub(super) fn launch(&mut self, mut batch: Batch, now: Instant) -> Launched {
        let extra = self.admit(&mut batch);
        if self.counts.iter().all(|&count| count == 0) {
            return Launched::Done(self.finish(batch, 0));
        }
        let local = match self.stage(&mut batch, extra) {
            Ok(local) => local,
            Err(error) => {
                tracing::error!("{error}");
                self.counts.fill(0);
                let (verbs, _) = batch.parts();
                let pending = verbs.iter_mut().filter(|posted| posted.is_pending());
                self.counters
                    .count_failed(pending.map(|posted| posted.finish(None)).count() as u64);
                return Launched::Done(self.finish(batch, 0));
            }
        };
        let flight =
            Flight { batch, launched: now, local, pending: 0, waker: None, abandoned: false };
        let flight = self.flights.insert(flight);
        for node in 0..self.links.len() {
            let left = std::mem::take(&mut self.counts[node]);
            if left > 0 {
                self.flights[flight].pending += 1;
                let waiting = Waiting { flight, cursor: Cursor::default(), left };
                self.links[node].waiting.push_back(waiting);
                self.post(node, now);
            }
        }
        if self.flights[flight].pending == 0 {
            return Launched::Done(self.land(flight));
        }
        Launched::Flying(flight)
    }

    /// Fails what cannot be posted, counts the rest by node; how many words the verbs
    /// need beside their spans.
    fn admit(&mut self, batch: &mut Batch) -> usize {
        let (mut extra, mut out_of_range, mut failed) = (0, 0, 0);
        let (verbs, _) = batch.parts();
        for posted in verbs {
            let (node, offset) = (usize::from(posted.at.node), posted.at.offset);
            let bytes = bytes_of(posted);
            extra += usize::from(has_extra(posted));
            match self.links.get(node) {
                Some(link) if link.is_down() => {
                    posted.finish(None);
                    failed += 1;
                }
                Some(link) if link.holds(offset, bytes) && bytes <= MESSAGE_BYTES.into() => {
                    self.counts[node] += pieces_of(posted);
                }
                _ => {
                    posted.finish(None);
                    out_of_range += 1;
                }
            }
        }
        self.counters.count_failed(failed);
        if out_of_range > 0 {
            // Said once: a damaged pool would fill the log, and the counter goes on.
            if self.counters.out_of_range() == 0 {
                tracing::error!("a verb outside of the pool's memory: words of it are damaged");
            }
            self.counters.count_out_of_range(out_of_range);
        }
        extra
    }

    /// Makes the batch's memory ready for the device.
    fn stage(&mut self, batch: &mut Batch, extra: usize) -> Result<Local, VerbsError> {
        let first = batch.stage(extra * 8).word;
        let (verbs, words) = batch.parts();
        let have_extra = verbs.iter().filter(|posted| has_extra(posted));
        for (posted, word) in have_extra.zip(&mut words[first..]) {
            if let Verb::WriteByte(value) = posted.verb {
                *word = value.into();
            }
        }
        let lkey = batch.staging().register(self.queue.domain())?;
        let start = batch.staging().words_mut().as_mut_ptr().expose_provenance() as u64;
        Ok(Local { start, lkey, extra: first })
    }

    /// Posts what waits for a node, as far as there is room.
    fn post(&mut self, node: usize, now: Instant) {
        let link = &mut self.links[node];
        while let Some(room) = link.room()
            && let Some(mut waiting) = link.waiting.front().copied()
        {
            let flight = &mut self.flights[waiting.flight];
            let from = waiting.cursor.verbs;
            let id = link.next_id();
            let Some(queue_pair) = &link.queue_pair else { return };
            let (local, remote) = (flight.local, link.remote);
            let verbs = flight.batch.posted();
            let built = self.chain.build(verbs, &mut waiting.cursor, local, remote, id, room);
            // SAFETY: build() has linked the list. What it names is memory of the
            // flight's batch, which stays in `flights` until the list has completed or
            // the queue pair is gone, and which nobody touches until then: only verbs
            // and outcomes are, which lie elsewhere.
            let posted = unsafe { queue_pair.post(self.chain.first()) };
            if let Err(error) = posted {
                self.fail_link(node, &format!("posting failed: {error}"));
                return;
            }
            waiting.left -= built.requests;
            let list = List {
                flight: waiting.flight,
                from,
                to: waiting.cursor.verbs,
                is_last: waiting.left == 0,
                built,
                id,
            };
            link.note_posted(list, now);
            if waiting.left == 0 {
                link.waiting.pop_front();
            } else {
                flight.pending += 1;
                link.waiting[0] = waiting;
            }
        }
    }

    /// Takes completions, as many as there are. Was there any?
    pub(super) fn poll(&mut self, now: Instant) -> bool {
        let mut any = false;
        loop {
            let taken = match self.queue.poll(&mut self.completions) {
                Ok(taken) => taken,
                Err(error) => {
                    self.fail_all(&error.to_string());
                    return true;
                }
            };
            any |= taken > 0;
            for number in 0..taken {
                let completion = self.completions[number];
                self.complete(completion, now);
            }
            if taken < COMPLETIONS {
                return any;
            }
        }
    }

    fn complete(&mut self, completion: ffi::WorkCompletion, now: Instant) {
        let node = node_of(completion.wr_id);
        let Some(link) = self.links.get_mut(node) else { return };
        if link.is_down() || !link.made(completion.wr_id) {
            // Of a queue pair that is gone, and with it what it was for.
            return;
        }
        if completion.status != ffi::WC_SUCCESS {
            let (status, vendor) = (completion.status, completion.vendor_err);
            let reason = format!("{} (vendor code {vendor:#x})", status_name(status));
            self.fail_link(node, &reason);
            return;
        }
        match link.note_completed(completion.wr_id, now) {
            Some(list) => {
                if list.is_last {
                    self.note_round_trip(node as u16, list.flight, now);
                }
                self.release(list.flight);
                if !self.links[node].waiting.is_empty() {
                    self.post(node, now);
                }
            }
            None => self.fail_link(node, "a completion out of order"),
        }
    }

    /// All verbs of a flight to a node are done.
    fn note_round_trip(&self, node: u16, number: usize, now: Instant) {
        let flight = &self.flights[number];
        let elapsed_ns = now.duration_since(flight.launched).as_nanos() as u64;
        let kinds = VerbKinds::of(flight.batch.posted(), node);
        self.counters.round_trips().note(node, kinds, elapsed_ns);
    }

    /// A list or a wait of a flight is over.
    fn release(&mut self, number: usize) {
        let flight = &mut self.flights[number];
        flight.pending -= 1;
        if flight.pending > 0 {
            return;
        }
        if flight.abandoned {
            // Nobody wants it: dropped here, now that the device is done with it.
            drop(self.land(number));
        } else if let Some(waker) = flight.waker.take() {
            waker.wake();
        }
    }

    /// Gives a flight's batch back when it is over; otherwise keeps whom to wake then.
    pub(super) fn take(&mut self, number: usize, waker: &Waker) -> Option<Batch> {
        let flight = &mut self.flights[number];
        if flight.pending == 0 {
            return Some(self.land(number));
        }
        match &mut flight.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        None
    }

    /// Nobody waits for a flight any more; its memory stays until it is over.
    pub(super) fn abandon(&mut self, number: usize) {
        let flight = &mut self.flights[number];
        flight.waker = None;
        flight.abandoned = true;
        if flight.pending == 0 {
            drop(self.land(number));
        }
    }

    /// Wakes somebody who waits, if anybody does.
    pub(super) fn wake_one(&self) {
        let waiting = self.flights.iter().find_map(|(_, flight)| flight.waker.as_ref());
        if let Some(waker) = waiting {
            waker.wake_by_ref();
        }
    }

    /// Asks for an event at the next completion. Completions that came before are to
    /// be polled for after this.
    pub(super) fn arm(&mut self) {
        if !self.armed {
            match self.queue.arm() {
                Ok(()) => self.armed = true,
                Err(error) => self.fail_all(&error.to_string()),
            }
        }
    }

    /// Takes the events off the channel.
    pub(super) fn take_events(&mut self) {
        while self.queue.take_event() {
            self.armed = false;
        }
    }

    /// Takes the asynchronous events, which tell of what no completion tells.
    pub(super) fn take_async_events(&mut self) {
        while let Some((element, kind)) = self.domain().async_event() {
            match kind {
                ffi::EVENT_CQ_ERR => self.fail_all("the completion queue has overrun"),
                ffi::EVENT_DEVICE_FATAL => self.fail_all("the device is lost"),
                ffi::EVENT_QP_FATAL | ffi::EVENT_QP_REQ_ERR | ffi::EVENT_QP_ACCESS_ERR => {
                    let of =
                        |link: &Link| link.queue_pair.as_ref().is_some_and(|q| q.is_at(element));
                    if let Some(node) = self.links.iter().position(of) {
                        self.fail_link(node, "the device says that it is in error");
                    }
                }
                ffi::EVENT_PORT_ERR => tracing::warn!("the RDMA port is down"),
                kind => tracing::debug!(kind, "an event of the RDMA device"),
            }
        }
    }

    /// Fails queue pairs on which nothing has completed for too long.
    pub(super) fn expire(&mut self, now: Instant) {
        for node in 0..self.links.len() {
            if self.links[node].is_silent(now) {
                self.fail_link(node, "nothing completes");
            }
        }
    }

    /// When [`Self::expire`] has something to do unless something completes.
    pub(super) fn expires_at(&self) -> Option<Instant> {
        self.links.iter().filter_map(Link::beat_ends).min()
    }

    fn fail_all(&mut self, reason: &str) {
        (0..self.links.len()).for_each(|node| self.fail_link(node, reason));
    }

    /// Ends a queue pair; what is under way and what waits on it has failed.
    fn fail_link(&mut self, node: usize, reason: &str) {
        let link = &mut self.links[node];
        let Some(queue_pair) = link.queue_pair.take() else { return };
        // When it is destroyed the device touches the memory of its verbs no more, and
        // that memory may leave.
        drop(queue_pair);
        tracing::error!(node, "the queue pair to a memory node has ended: {reason}");
        let posted = std::mem::take(&mut link.posted);
        let waiting = std::mem::take(&mut link.waiting);
        let posted = posted.into_iter().map(|list| (list.flight, list.from, list.to));
        let waiting = waiting.into_iter().map(|w| (w.flight, w.cursor.verbs, usize::MAX));
        for (number, from, to) in posted.chain(waiting) {
            let (verbs, _) = self.flights[number].batch.parts();
            let to = to.min(verbs.len());
            let is_lost =
                |posted: &&mut Posted| usize::from(posted.at.node) == node && posted.is_pending();
            let lost = verbs[from..to].iter_mut().filter(is_lost);
            self.counters.count_failed(lost.map(|posted| posted.finish(None)).count() as u64);
            self.release(number);
        }
    }

    /// A flight is over.
    fn land(&mut self, number: usize) -> Batch {
        let flight = self.flights.remove(number);
        debug_assert_eq!(flight.pending, 0, "the device is done with it");
        self.finish(flight.batch, flight.local.extra)
    }

    /// Stores the results of verbs that have not failed, and counts them.
    fn finish(&self, mut batch: Batch, extra: usize) -> Batch {
        let (mut verbs, mut read, mut written) = ([0; VERB_KINDS], 0, 0);
        let (posted, words) = batch.parts();
        let mut extra = words.get(extra..).unwrap_or_default().iter();
        for posted in posted {
            let word = if has_extra(posted) { extra.next().copied() } else { None };
            if !posted.is_pending() {
                continue;
            }
            match posted.verb {
                Verb::Read(span) => read += span.bytes() as u64,
                Verb::Write(span) => written += span.bytes() as u64,
                Verb::WriteByte(_) => written += 1,
                Verb::Cas { .. } | Verb::Faa(_) => {}
            }
            verbs[posted.verb.kind() as usize] += 1;
            posted.finish(Some(word.unwrap_or(0)));
        }
        self.counters.count(verbs, read, written);
        batch
    }
}

fn bytes_of(posted: &Posted) -> u64 {
    match posted.verb {
        Verb::Read(span) | Verb::Write(span) => span.bytes() as u64,
        Verb::WriteByte(_) => 1,
        Verb::Cas { .. } | Verb::Faa(_) => 8,
    }
}

/// `enum ibv_wc_status`, as far as it says something of reliable connections.
fn status_name(status: i32) -> String {
    match status {
        4 => "LOC_PROT_ERR: local memory is not registered as was said".into(),
        5 => "WR_FLUSH_ERR: the queue pair was in error".into(),
        8 => "LOC_ACCESS_ERR: local memory was refused".into(),
        9 => "REM_INV_REQ_ERR: the node takes no such request".into(),
        10 => {
            "REM_ACCESS_ERR: the node's memory is not registered any more, or not like this".into()
        }
        11 => "REM_OP_ERR: the node could not do it".into(),
        12 => "RETRY_EXC_ERR: the node does not answer".into(),
        13 => "RNR_RETRY_EXC_ERR: the node is never ready".into(),
        status => format!("completion status {status}"),
    }
}
