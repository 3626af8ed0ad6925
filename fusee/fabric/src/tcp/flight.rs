//! A batch under way to several memory nodes. It belongs to the links that carry
//! its parts until the last reply, whoever else has forgotten it.

use super::frame::{
    FRAME_WORDS, FrameVerb, Malformed, Reply, VERB_BYTES_MAX, VERBS_MAX, write_request,
};
use crate::batch::{Posted, Verb};
use crate::execute::Tally;
use crate::spare::SpareBatches;
use crate::{Batch, Counters, VerbKinds};
use std::cell::RefCell;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::time::Instant;

/// What the batches of one fabric share.
#[derive(Debug, Default)]
pub(crate) struct Hangar {
    pub(crate) counters: Arc<Counters>,
    pub(crate) spare: SpareBatches,
}

impl Hangar {
    /// Of a fabric to so many nodes.
    pub(crate) fn new(nodes: usize) -> Self {
        Self { counters: Arc::new(Counters::new(nodes)), spare: SpareBatches::default() }
    }
}

/// A batch under way.
#[derive(Debug)]
pub(crate) struct Flight {
    hangar: Rc<Hangar>,
    launched: Instant,
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    batch: Batch,
    /// Parts under way; one more while parts are being made.
    left: usize,
    out_of_range: u64,
    /// Has nobody an interest in it any more?
    abandoned: bool,
    counted: bool,
    waker: Option<Waker>,
}

/// Verbs of a batch that go to one node in one frame: those of the range that
/// are for it.
#[derive(Debug)]
pub(crate) struct Part {
    flight: Rc<Flight>,
    node: u16,
    range: Range<usize>,
    verbs: usize,
}

impl Flight {
    /// Sends a batch off: each part goes to `post`. Verbs that no node could
    /// execute fail here.
    pub(crate) fn launch(
        batch: Batch,
        hangar: &Rc<Hangar>,
        nodes: usize,
        mut post: impl FnMut(Part),
    ) -> Landing {
        let state = State {
            batch,
            left: 1,
            out_of_range: 0,
            abandoned: false,
            counted: false,
            waker: None,
        };
        let (hangar, launched) = (hangar.clone(), Instant::now());
        let flight = Rc::new(Self { hangar, launched, state: RefCell::new(state) });
        let mut seen = Vec::new();
        let mut number = 0;
        while let Some(node) = flight.node_of(number) {
            if usize::from(node) >= nodes {
                flight.fail_out_of_range(number);
            } else if !seen.contains(&node) {
                seen.push(node);
                let mut next = number;
                while let Some(part) = flight.part(node, next) {
                    next = part.range.end;
                    post(part);
                }
            }
            number += 1;
        }
        flight.settle();
        Landing(flight)
    }

    fn node_of(&self, number: usize) -> Option<u16> {
        Some(self.state.borrow().batch.posted().get(number)?.at.node)
    }

    /// The next verbs for a node from `first` on, as many as one frame takes.
    fn part(self: &Rc<Self>, node: u16, first: usize) -> Option<Part> {
        let mut state = self.state.borrow_mut();
        let State { batch, left, out_of_range, .. } = &mut *state;
        let (posted, memory) = batch.parts();
        let (mut verbs, mut request, mut reply) = (0, 0, 0);
        let mut end = posted.len();
        for (number, posted) in posted.iter_mut().enumerate().skip(first) {
            if posted.at.node != node {
                continue;
            }
            let verb = frame_verb(posted, memory);
            if is_too_large(posted) {
                tracing::error!("a verb for more than {VERB_BYTES_MAX} bytes cannot go over TCP");
                posted.finish(None);
                *out_of_range += 1;
                continue;
            }
            (request, reply) = (request + verb.words(), reply + verb.result_words());
            if verbs > 0 && (request.max(reply) > FRAME_WORDS || verbs == VERBS_MAX) {
                end = number;
                break;
            }
            verbs += 1;
        }
        if verbs == 0 {
            return None;
        }
        *left += 1;
        Some(Part { flight: self.clone(), node, range: first..end, verbs })
    }

    fn fail_out_of_range(&self, number: usize) {
        let mut state = self.state.borrow_mut();
        state.batch.fail(number);
        state.out_of_range += 1;
    }

    /// One part less is under way.
    fn settle(&self) {
        let mut state = self.state.borrow_mut();
        state.left -= 1;
        if state.left > 0 {
            return;
        }
        if state.abandoned {
            state.count(&self.hangar.counters);
            self.hangar.spare.give(std::mem::take(&mut state.batch));
        } else if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }
}

impl State {
    /// Counts a batch that is over as shared memory does: what was done, and while its owner
    /// is polled, so that operations can tell which round trips were theirs.
    fn count(&mut self, counters: &Counters) {
        if std::mem::replace(&mut self.counted, true) {
            return;
        }
        let mut tally = Tally { out_of_range: self.out_of_range, ..Tally::default() };
        let mut done = 0;
        for posted in self.batch.posted().iter().filter(|posted| posted.is_done()) {
            match posted.verb {
                Verb::Read(span) => tally.bytes_read += span.bytes() as u64,
                Verb::Write(span) => tally.bytes_written += span.bytes() as u64,
                Verb::WriteByte(_) => tally.bytes_written += 1,
                Verb::Cas { .. } | Verb::Faa(_) => {}
            }
            tally.verbs[posted.verb.kind() as usize] += 1;
            done += 1;
        }
        tally.failed = (self.batch.len() as u64).saturating_sub(done + self.out_of_range);
        tally.add_to(counters);
    }
}

impl Part {
    /// Where it goes.
    pub(crate) fn node(&self) -> u16 {
        self.node
    }

    /// Appends the frame.
    pub(crate) fn write(&self, number: u32, out: &mut Vec<u64>) {
        let mut state = self.flight.state.borrow_mut();
        let (posted, memory) = state.batch.parts();
        let verbs = posted[self.range.clone()].iter().filter(|posted| self.has(posted));
        write_request(
            out,
            number,
            verbs.map(|posted| (posted.at.offset, frame_verb(posted, memory))),
        );
    }

    /// Takes what the reply says; if it is not one, the verbs fail.
    pub(crate) fn land(self, number: u32, frame: &[u64]) -> Result<(), Malformed> {
        let read = self.read(number, frame);
        match read {
            Ok(()) => self.flight.settle(),
            Err(_) => self.fail(),
        }
        read
    }

    fn read(&self, number: u32, frame: &[u64]) -> Result<(), Malformed> {
        let mut reply = Reply::parse(frame, number, self.verbs)?;
        let mut state = self.flight.state.borrow_mut();
        let State { batch, out_of_range, .. } = &mut *state;
        let (posted, memory) = batch.parts();
        let (mut missing, mut kinds) = (0, VerbKinds::default());
        for posted in posted[self.range.clone()].iter_mut().filter(|posted| self.has(posted)) {
            let words = frame_verb(posted, memory).result_words();
            let result = reply.next(words)?;
            if let (Verb::Read(span), Some(result)) = (posted.verb, result) {
                memory[span.word..span.word + span.words].copy_from_slice(result);
            }
            missing += u64::from(result.is_none());
            kinds.add(posted.verb.kind());
            posted.finish(result.map(|result| result.first().copied().unwrap_or(0)));
        }
        reply.finish()?;
        *out_of_range += missing;
        let elapsed_ns = self.flight.launched.elapsed().as_nanos() as u64;
        self.flight.hangar.counters.round_trips().note(self.node, kinds, elapsed_ns);
        Ok(())
    }

    /// The node does not answer.
    pub(crate) fn fail(self) {
        let mut state = self.flight.state.borrow_mut();
        let (posted, _) = state.batch.parts();
        for posted in posted[self.range.clone()].iter_mut().filter(|posted| self.has(posted)) {
            posted.finish(None);
        }
        drop(state);
        self.flight.settle();
    }

    fn has(&self, posted: &Posted) -> bool {
        posted.at.node == self.node && !is_too_large(posted)
    }
}

fn frame_verb<'a>(posted: &Posted, memory: &'a [u64]) -> FrameVerb<'a> {
    match posted.verb {
        Verb::Read(span) => FrameVerb::Read { words: span.words },
        Verb::Write(span) => FrameVerb::Write(&memory[span.word..span.word + span.words]),
        Verb::WriteByte(value) => FrameVerb::WriteByte(value),
        Verb::Cas { expected, new } => FrameVerb::Cas { expected, new },
        Verb::Faa(add) => FrameVerb::Faa(add),
    }
}

fn is_too_large(posted: &Posted) -> bool {
    match posted.verb {
        Verb::Read(span) | Verb::Write(span) => span.bytes() > VERB_BYTES_MAX,
        Verb::WriteByte(_) | Verb::Cas { .. } | Verb::Faa(_) => false,
    }
}

/// Waits for a batch to come back.
pub(crate) struct Landing(Rc<Flight>);

impl Future for Landing {
    type Output = Batch;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Batch> {
        let mut state = self.0.state.borrow_mut();
        if state.left == 0 {
            state.count(&self.0.hangar.counters);
            return Poll::Ready(std::mem::take(&mut state.batch));
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        let mut state = self.0.state.borrow_mut();
        state.abandoned = true;
        if state.left == 0 {
            state.count(&self.0.hangar.counters);
        }
    }
}
