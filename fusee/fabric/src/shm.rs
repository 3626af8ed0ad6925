//! The fabric on shared memory: verbs are executed by the thread that posts
//! them.

use crate::batch::{Posted, Verb};
use crate::execute::{Access, Executor, Tally, approach};
use crate::spare::SpareBatches;
use crate::{Batch, ControlPlane, Counters, Fabric, Memory, NodeDown};
use fusee_layout::NodeAddress;
use fusee_layout::message::{Request, Response};
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
    counters: Counters,
}

impl ShmEndpoint {
    /// To these nodes, by number.
    pub fn new(nodes: Vec<Arc<ShmNode>>) -> Self {
        Self { nodes, executor: Executor::default(), counters: Counters::default() }
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
        tally.add_to(&self.counters);
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
        approach(&node.memory, posted.at.offset, words, matches!(posted.verb, Verb::Read(_)));
    }

    /// Executes a verb; `None` if there is no such memory, or none that answers.
    #[inline]
    fn perform(&self, posted: &Posted, memory: &mut [u64], tally: &mut Tally) -> Option<u64> {
        let node = self.nodes.get(usize::from(posted.at.node));
        if node.is_some_and(|node| node.is_down()) {
            return None;
        }
        let access = match posted.verb {
            Verb::Read(span) => Access::Read(&mut memory[span.word..span.word + span.words]),
            Verb::Write(span) => Access::Write(&memory[span.word..span.word + span.words]),
            Verb::WriteByte(value) => Access::WriteByte(value),
            Verb::Cas { expected, new } => Access::Cas { expected, new },
            Verb::Faa(add) => Access::Faa(add),
        };
        let offset = posted.at.offset;
        let done = node.and_then(|node| self.executor.perform(&node.memory, offset, access, tally));
        if done.is_none() {
            tally.out_of_range += 1;
        }
        done
    }
}

/// The fabric on shared memory. A batch is done when [`Fabric::run`] is called,
/// its future is ready at once.
pub struct ShmFabric {
    endpoint: ShmEndpoint,
    controls: Vec<Arc<dyn ControlPlane>>,
    spare: SpareBatches,
}

impl ShmFabric {
    /// To these nodes, by number, each with its control plane.
    pub fn new(nodes: Vec<Arc<ShmNode>>, controls: Vec<Arc<dyn ControlPlane>>) -> Self {
        assert!(nodes.len() == controls.len(), "each node has a control plane");
        Self { endpoint: ShmEndpoint::new(nodes), controls, spare: SpareBatches::default() }
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

    fn counters(&self) -> &Counters {
        self.endpoint.counters()
    }

    #[inline]
    fn prefetch(&self, at: NodeAddress, bytes: usize) {
        if let Some(node) = self.endpoint.nodes.get(usize::from(at.node)) {
            approach(&node.memory, at.offset, bytes.div_ceil(8), true);
        }
    }
}
