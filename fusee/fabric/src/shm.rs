//! The fabric on shared memory: verbs are executed by the thread that posts
//! them.

use crate::batch::{Posted, Verb};
use crate::prefetch::{line_to_read, line_to_write};
use crate::word::Port;
use crate::{Batch, ControlPlane, Counters, Fabric, Memory, NodeDown, VERB_KINDS, VerbKind};
use fusee_layout::NodeAddress;
use fusee_layout::message::{Request, Response};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// A memory node as its clients reach it.
#[derive(Debug)]
pub struct ShmNode {
    memory: Memory,
    down: AtomicBool,
}

impl ShmNode {
    /// A node that is up.
    pub fn new(memory: Memory) -> Self {
        Self { memory, down: AtomicBool::new(false) }
    }

    /// Its memory.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Takes it from its clients, or gives it back. Verbs that have begun end.
    pub fn set_down(&self, down: bool) {
        // Relaxed: nothing else is told by it.
        self.down.store(down, Relaxed);
    }

    /// Is it taken from its clients?
    pub fn is_down(&self) -> bool {
        self.down.load(Relaxed)
    }
}

/// Verbs on the memory nodes, and no control plane: what a fabric is made of,
/// and what a memory node itself uses. One per thread.
#[derive(Debug)]
pub struct ShmEndpoint {
    nodes: Vec<Arc<ShmNode>>,
    port: Port,
    counters: Counters,
}

/// Lines of a target that are asked for ahead. The processor's own prefetcher
/// has seen the pattern by then.
const LINES_AHEAD: usize = 4;
const WORDS_PER_LINE: usize = 8;

impl ShmEndpoint {
    /// To these nodes, by number.
    pub fn new(nodes: Vec<Arc<ShmNode>>) -> Self {
        Self { nodes, port: Port::default(), counters: Counters::default() }
    }

    /// Runs a batch to its end. All targets are asked for before the first verb
    /// is executed, so that their cache misses overlap.
    pub fn execute(&self, batch: &mut Batch) {
        let (verbs, memory) = batch.parts();
        if verbs.len() > 1 {
            for posted in &*verbs {
                self.approach(posted);
            }
        }
        let mut tally = Tally::default();
        for posted in verbs {
            let outcome = self.perform(posted, memory, &mut tally);
            posted.finish(outcome);
        }
        self.counters.count(tally.verbs, tally.bytes_read, tally.bytes_written);
        if tally.out_of_range > 0 {
            // Said once: a damaged pool would fill the log, and the counter goes on.
            if self.counters.out_of_range() == 0 {
                tracing::error!("a verb outside of the pool's memory: words of it are damaged");
            }
            self.counters.count_out_of_range(tally.out_of_range);
        }
    }

    /// What has been run so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    fn is_down(&self, node: u16) -> bool {
        self.nodes.get(usize::from(node)).is_none_or(|node| node.is_down())
    }

    #[inline]
    fn approach(&self, posted: &Posted) {
        let Some(node) = self.nodes.get(usize::from(posted.at.node)) else { return };
        let words = match posted.verb {
            Verb::Read(span) | Verb::Write(span) => span.words,
            Verb::WriteByte(_) | Verb::Cas { .. } | Verb::Faa(_) => 1,
        };
        if matches!(posted.verb, Verb::Read(_)) {
            ask_ahead(&node.memory, posted.at.offset, words, line_to_read);
        } else {
            ask_ahead(&node.memory, posted.at.offset, words, line_to_write);
        }
    }

    /// Executes a verb; `None` if there is no such memory, or none that answers.
    #[inline]
    fn perform(&self, posted: &Posted, memory: &mut [u64], tally: &mut Tally) -> Option<u64> {
        let node = self.nodes.get(usize::from(posted.at.node));
        if node.is_some_and(|node| node.is_down()) {
            return None;
        }
        let done = node.and_then(|node| self.perform_on(&node.memory, posted, memory, tally));
        if done.is_none() {
            tally.out_of_range += 1;
        }
        done
    }

    #[inline]
    fn perform_on(
        &self,
        target: &Memory,
        posted: &Posted,
        memory: &mut [u64],
        tally: &mut Tally,
    ) -> Option<u64> {
        let offset = posted.at.offset;
        let (kind, found) = match posted.verb {
            Verb::Read(span) => {
                let from = target.range(offset, span.words)?;
                self.port.read(from, &mut memory[span.word..span.word + span.words]);
                tally.bytes_read += span.bytes() as u64;
                (VerbKind::Read, 0)
            }
            Verb::Write(span) => {
                let to = target.range(offset, span.words)?;
                self.port.write(to, &memory[span.word..span.word + span.words]);
                tally.bytes_written += span.bytes() as u64;
                (VerbKind::Write, 0)
            }
            Verb::WriteByte(value) => {
                self.port.write_byte(target.word(offset)?, (offset % 8) as u32, value);
                tally.bytes_written += 1;
                (VerbKind::Write, 0)
            }
            Verb::Cas { expected, new } => {
                (VerbKind::Cas, self.port.cas(target.word(offset)?, expected, new))
            }
            Verb::Faa(add) => (VerbKind::Faa, self.port.faa(target.word(offset)?, add)),
        };
        tally.verbs[kind as usize] += 1;
        Some(found)
    }
}

/// What one batch adds to the counters.
#[derive(Default)]
struct Tally {
    verbs: [u64; VERB_KINDS],
    bytes_read: u64,
    bytes_written: u64,
    out_of_range: u64,
}

#[inline]
fn ask_ahead(memory: &Memory, offset: u64, words: usize, line: impl Fn(*const AtomicU64)) {
    // A line that the range only touches with its end is one more.
    let first = (offset / 8) as usize % WORDS_PER_LINE;
    let lines = (first + words).div_ceil(WORDS_PER_LINE).min(LINES_AHEAD);
    for number in 0..lines as u64 {
        if let Some(word) = memory.word(offset.saturating_add(number * 64)) {
            line(word);
        }
    }
}

/// The fabric on shared memory. A batch is done when [`Fabric::run`] is called,
/// its future is ready at once.
pub struct ShmFabric {
    endpoint: ShmEndpoint,
    controls: Vec<Arc<dyn ControlPlane>>,
    spare: RefCell<Vec<Batch>>,
}

/// Batches kept for reuse: as many as a worker has operations under way.
const SPARE_BATCHES_MAX: usize = 64;

impl ShmFabric {
    /// To these nodes, by number, each with its control plane.
    pub fn new(nodes: Vec<Arc<ShmNode>>, controls: Vec<Arc<dyn ControlPlane>>) -> Self {
        assert!(nodes.len() == controls.len(), "each node has a control plane");
        Self { endpoint: ShmEndpoint::new(nodes), controls, spare: RefCell::default() }
    }
}

impl Fabric for ShmFabric {
    #[inline]
    fn batch(&self) -> Batch {
        self.spare.borrow_mut().pop().unwrap_or_default()
    }

    #[inline]
    fn recycle(&self, mut batch: Batch) {
        batch.clear();
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_BATCHES_MAX {
            spare.push(batch);
        }
    }

    #[inline]
    async fn run(&self, mut batch: Batch) -> Batch {
        self.endpoint.execute(&mut batch);
        batch
    }

    async fn call(&self, node: u16, request: Request) -> Result<Response, NodeDown> {
        match self.controls.get(usize::from(node)) {
            Some(control) if !self.endpoint.is_down(node) => control.call(request).await,
            _ => Err(NodeDown { node }),
        }
    }

    fn counters(&self) -> &Counters {
        self.endpoint.counters()
    }

    #[inline]
    fn prefetch(&self, at: NodeAddress, bytes: usize) {
        if let Some(node) = self.endpoint.nodes.get(usize::from(at.node)) {
            ask_ahead(&node.memory, at.offset, bytes.div_ceil(8), line_to_read);
        }
    }
}
