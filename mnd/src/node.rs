//! A memory node: decides on requests and writes what it decided, by verbs like
//! everybody else, since no other access is atomic to them on every fabric.

use crate::{Answer, BlockStatistics, Blocks, Change, Members};
use fusee_fabric::{Batch, ControlFuture, ControlPlane, ShmEndpoint, Span};
use fusee_layout::message::{Refusal, Request, Response};
use fusee_layout::{Address, Geometry, MEMBER_BYTES, Member, NodeAddress};
use std::sync::{Arc, Mutex, MutexGuard};

/// The control plane of one memory node.
#[derive(Debug)]
pub struct MemoryNode {
    node: u16,
    geometry: Arc<Geometry>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    blocks: Blocks,
    /// On node 0.
    members: Option<Members>,
    endpoint: ShmEndpoint,
    batch: Batch,
}

/// What a node has to tell about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Statistics {
    /// Its blocks.
    pub blocks: BlockStatistics,
    /// Clients of the pool, as node 0 knows them.
    pub members: Option<u32>,
    /// Clients that have died and are not recovered, as node 0 knows them.
    pub expelled: Option<u32>,
}

impl ControlPlane for MemoryNode {
    fn call(&self, request: Request) -> ControlFuture<'_> {
        Box::pin(async move { Ok(self.handle(request)) })
    }
}

impl MemoryNode {
    /// Node `node` of a new pool; the endpoint reaches all nodes of it.
    pub fn new(node: u16, geometry: Arc<Geometry>, endpoint: ShmEndpoint) -> Self {
        let blocks = Blocks::new(geometry.clone(), node);
        let members = (node == 0).then(|| Members::new(geometry.params));
        let state = State { blocks, members, endpoint, batch: Batch::new() };
        Self { node, geometry, state: Mutex::new(state) }
    }

    /// Does what a client asks.
    fn handle(&self, request: Request) -> Response {
        let mut state = self.lock();
        let answer = state.decide(request);
        // Written under the lock, so that the table never goes back to what an
        // earlier request made of it.
        state.write(self.node, &self.geometry, &answer.changes);
        answer.response
    }

    /// What it has given and to how many.
    pub fn statistics(&self) -> Statistics {
        let state = self.lock();
        let members = state.members.as_ref().map(Members::present);
        let expelled = state.members.as_ref().map(Members::expelled);
        Statistics { blocks: state.blocks.statistics(), members, expelled }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no request makes a memory node panic")
    }
}

impl State {
    fn decide(&mut self, request: Request) -> Answer {
        match (request, &mut self.members) {
            (Request::Join { params }, Some(members)) => members.join(&params),
            (Request::Recover { client }, Some(members)) => members.recover(client),
            (Request::Join { .. }, None) => Answer::refused(Refusal::NotOwner),
            (Request::Expel { client }, Some(members)) => {
                let answer = members.expel(client);
                if answer.response == Response::Done {
                    self.blocks.handle(request);
                }
                answer
            }
            (Request::Leave { client }, Some(members)) => {
                let mut answer = members.leave(client);
                if answer.response == Response::Done {
                    answer.changes.extend(self.blocks.handle(request).changes);
                }
                answer
            }
            (_, _) => self.blocks.handle(request),
        }
    }

    /// Writes changes to every copy. A node that is down misses them: it gets
    /// its memory from the others before it is used again.
    fn write(&mut self, node: u16, geometry: &Geometry, changes: &[Change]) {
        for &change in changes {
            match change {
                Change::Entry { at, entry } => {
                    let span = stage(&mut self.batch, entry.word());
                    self.write_copies(geometry, at, span);
                }
                Change::Zero { block } => self.zero(geometry, block),
                Change::Entries { count } => {
                    let span = stage(&mut self.batch, count.into());
                    for node in 0..geometry.params.nodes {
                        self.batch.write(NodeAddress { node, offset: Geometry::MEMBERS_AT }, span);
                    }
                }
                Change::Expelled { count } => {
                    let span = stage(&mut self.batch, count.into());
                    for node in 0..geometry.params.nodes {
                        let offset = Geometry::EXPELLED_AT;
                        self.batch.write(NodeAddress { node, offset }, span);
                    }
                }
                Change::Departed { index } => self.fold(node, geometry, index),
            }
            if self.batch.len() >= VERBS_PER_BATCH {
                self.run();
            }
        }
        self.run();
    }

    fn zero(&mut self, geometry: &Geometry, block: Address) {
        let bytes = geometry.params.block_bytes;
        let piece = bytes.min(ZEROES_BYTES);
        let zeroes = self.batch.stage(piece as usize);
        self.batch.staged(zeroes).fill(0);
        for offset in (0..bytes).step_by(piece as usize) {
            self.write_copies(geometry, block.plus(offset), zeroes);
        }
    }

    /// Adds a leaver's key counts to those of all who have left, and empties its
    /// entry. Node 0's copy of the table is the one that counts: the others get
    /// what it gets.
    fn fold(&mut self, node: u16, geometry: &Geometry, index: u32) {
        self.run();
        let here = |index| NodeAddress { node, offset: Geometry::member_at(index) };
        let tickets = [0, index].map(|index| self.batch.read(here(index), MEMBER_BYTES));
        self.endpoint.execute(&mut self.batch);
        let [all, leaver] =
            tickets.map(|t| self.batch.bytes(t).map(Member::parse).unwrap_or_default());
        self.batch.clear();

        let mut all = Member { client: Member::DEPARTED, quiescent: 0, ..all };
        for (sum, more) in all.keys.iter_mut().zip(leaver.keys) {
            *sum = sum.wrapping_add(more);
        }
        let sums = self.batch.stage(MEMBER_BYTES);
        self.batch.staged(sums).fill(0);
        all.write(self.batch.staged(sums));
        let empty = self.batch.stage(MEMBER_BYTES);
        self.batch.staged(empty).fill(0);
        for node in 0..geometry.params.nodes {
            self.batch.write(NodeAddress { node, offset: Geometry::member_at(0) }, sums);
            self.batch.write(NodeAddress { node, offset: Geometry::member_at(index) }, empty);
        }
    }

    fn write_copies(&mut self, geometry: &Geometry, at: Address, span: Span) {
        for at in geometry.placement.locate_all(at) {
            self.batch.write(at, span);
        }
    }

    fn run(&mut self) {
        if !self.batch.is_empty() {
            self.endpoint.execute(&mut self.batch);
        }
        self.batch.clear();
    }
}

/// More verbs than this are run in several batches.
const VERBS_PER_BATCH: usize = 256;
/// Blocks are zeroed from so many zeroes: they stay in the nearest cache.
const ZEROES_BYTES: u64 = 16 << 10;

fn stage(batch: &mut Batch, word: u64) -> Span {
    let span = batch.stage(8);
    batch.staged(span).copy_from_slice(&word.to_le_bytes());
    span
}
