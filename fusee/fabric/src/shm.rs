//! The fabric on shared memory: verbs are executed by the thread that posts
//! them.

mod direct;

pub use direct::ShmReads;

use crate::batch::{Posted, Verb};
use crate::execute::{Executor, Tally, approach};
use crate::spare::SpareBatches;
use crate::{Batch, ControlPlane, Counters, Fabric, Memory, NodeDown, VerbKinds};
use fusee_layout::NodeAddress;
use fusee_layout::message::{Request, Response};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

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
    executor: Executor,
    counters: Arc<Counters>,
    clock: quanta::Clock,
    sampler: Sampler,
}

/// Chooses the batches that are timed, one of [`Self::PERIOD`] by chance: a batch is done
/// in some 200 ns, of which two looks at the clock would take a fifth. By chance, so that
/// no pattern of batches keeps some of them from ever being chosen.
#[derive(Debug)]
struct Sampler(Cell<u64>);

impl Sampler {
    const PERIOD: u64 = 16;

    #[inline]
    fn chooses(&self) -> bool {
        // Knuth's linear congruential generator; its upper bits are the good ones.
        let next = self.0.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.0.set(next);
        next >> (u64::BITS - Self::PERIOD.ilog2()) == 0
    }
}

impl ShmEndpoint {
    /// To these nodes, by number.
    pub fn new(nodes: Vec<Arc<ShmNode>>) -> Self {
        Self {
            counters: Arc::new(Counters::new(nodes.len())),
            nodes,
            executor: Executor::default(),
            clock: quanta::Clock::new(),
            sampler: Sampler(Cell::new(0)),
        }
    }

    /// Runs a batch to its end. All targets are asked for before the first verb
    /// is executed, so that their cache misses overlap.
    #[inline]
    pub fn execute(&self, batch: &mut Batch) {
        if self.sampler.chooses() {
            self.execute_timed(batch);
        } else {
            self.execute_all(batch);
        }
    }

    /// Here the verbs to all nodes are done together, so that each node is told the time
    /// of the batch.
    #[inline(never)]
    fn execute_timed(&self, batch: &mut Batch) {
        let began = self.clock.raw();
        self.execute_all(batch);
        let elapsed_ns = self.clock.delta_as_nanos(began, self.clock.raw());
        for node in 0..self.nodes.len() as u16 {
            let kinds = VerbKinds::of(batch.posted(), node);
            self.counters.round_trips().note(node, kinds, elapsed_ns);
        }
    }

    fn execute_all(&self, batch: &mut Batch) {
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
        tally.add_to(&self.counters);
    }

    /// What has been run so far.
    pub fn counters(&self) -> &Arc<Counters> {
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
        approach(&node.memory, posted.at.offset, words, matches!(posted.verb, Verb::Read(_)));
    }

    /// Executes a verb; `None` if there is no such memory, or none that answers.
    #[inline]
    fn perform(&self, posted: &Posted, words: &mut [u64], tally: &mut Tally) -> Option<u64> {
        let done = match self.nodes.get(usize::from(posted.at.node)) {
            Some(node) if node.is_down() => {
                tally.failed += 1;
                return None;
            }
            Some(node) => self.perform_at(&node.memory, posted, words, tally),
            None => None,
        };
        if done.is_none() {
            tally.out_of_range += 1;
        }
        done
    }

    #[inline]
    fn perform_at(
        &self,
        target: &Memory,
        posted: &Posted,
        words: &mut [u64],
        tally: &mut Tally,
    ) -> Option<u64> {
        let (executor, offset) = (&self.executor, posted.at.offset);
        match posted.verb {
            Verb::Read(span) => executor.read(target, offset, &mut words[span.range()], tally),
            Verb::Write(span) => executor.write(target, offset, &words[span.range()], tally),
            Verb::WriteByte(value) => executor.write_byte(target, offset, value, tally),
            Verb::Cas { expected, new } => executor.cas(target, offset, expected, new, tally),
            Verb::Faa(add) => executor.faa(target, offset, add, tally),
        }
    }
}

/// The fabric on shared memory. A batch is done when [`Fabric::run`] is called,
/// its future is ready at once.
pub struct ShmFabric {
    endpoint: ShmEndpoint,
    controls: Vec<Arc<dyn ControlPlane>>,
    spare: SpareBatches,
    /// What direct READs bring, while nothing is read.
    words: Cell<Vec<u64>>,
}

impl ShmFabric {
    /// To these nodes, by number, each with its control plane.
    pub fn new(nodes: Vec<Arc<ShmNode>>, controls: Vec<Arc<dyn ControlPlane>>) -> Self {
        assert!(nodes.len() == controls.len(), "each node has a control plane");
        Self {
            endpoint: ShmEndpoint::new(nodes),
            controls,
            spare: SpareBatches::default(),
            words: Cell::default(),
        }
    }
}

impl Fabric for ShmFabric {
    #[inline]
    fn batch(&self) -> Batch {
        self.spare.take()
    }

    #[inline]
    fn recycle(&self, batch: Batch) {
        self.spare.give(batch);
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

    fn counters(&self) -> &Arc<Counters> {
        self.endpoint.counters()
    }

    type Direct<'a> = ShmReads<'a>;

    #[inline]
    fn direct(&self) -> Option<ShmReads<'_>> {
        Some(ShmReads::new(self))
    }

    #[inline]
    fn prefetch(&self, at: NodeAddress, bytes: usize) {
        if let Some(node) = self.endpoint.nodes.get(usize::from(at.node)) {
            approach(&node.memory, at.offset, bytes.div_ceil(8), true);
        }
    }
}
