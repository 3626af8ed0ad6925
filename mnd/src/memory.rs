//! A memory node's own memory, as its processor writes it: by verbs like everybody
//! else, since no other access is atomic to those of clients.

use fusee_fabric::{Batch, ShmEndpoint, ShmNode};
use fusee_layout::message::Effect;
use fusee_layout::{Address, DATABASES, Geometry, MEMBER_BYTES, Member, NodeAddress, Superblock};
use std::sync::Arc;

/// The memory of one node, and where in it the copies of a pool's tables are.
#[derive(Debug)]
pub struct NodeMemory {
    node: u16,
    geometry: Arc<Geometry>,
    endpoint: ShmEndpoint,
    batch: Batch,
}

/// More verbs than this are run in several batches.
const VERBS_PER_BATCH: usize = 256;
/// Blocks are zeroed from so many zeroes: they stay in the nearest cache.
const ZEROES_BYTES: u64 = 16 << 10;

impl NodeMemory {
    /// That of node `node`.
    pub fn new(node: u16, geometry: Arc<Geometry>, memory: Arc<ShmNode>) -> Self {
        let endpoint = ShmEndpoint::new(vec![memory]);
        Self { node, geometry, endpoint, batch: Batch::new() }
    }

    /// Makes new memory part of the pool. The superblock is all: zeroed headers,
    /// directory entries and blocks mean "as created", so that creating a large
    /// pool touches none of its memory.
    pub fn format(&mut self) {
        let superblock = Superblock { params: self.geometry.params };
        self.write(0, &superblock.write());
        self.run();
    }

    /// Could a decision of a memory node of this pool have had this effect?
    pub fn admits(&self, effect: &Effect) -> bool {
        let params = &self.geometry.params;
        match *effect {
            Effect::Entry { at, .. } => self.geometry.is_block_entry(at),
            Effect::Zero { block } => {
                self.geometry.block_of(block).is_some_and(|(_, _, start)| start == block)
            }
            Effect::Entries { count } => count <= params.clients_max,
            Effect::Expelled { .. } => true,
            Effect::Departed { index, .. } => index > 0 && index < params.clients_max,
        }
    }

    /// Does to the copies on this node what decisions come to. A node that is
    /// down misses it: it gets its memory from the others before it is used again.
    pub fn apply(&mut self, effects: &[Effect]) {
        for &effect in effects {
            match effect {
                Effect::Entry { at, entry } => {
                    let word = entry.word().to_le_bytes();
                    self.copy(at).into_iter().for_each(|offset| self.write(offset, &word));
                }
                Effect::Zero { block } => self.zero(block),
                Effect::Entries { count } => {
                    self.write(Geometry::MEMBERS_AT, &u64::from(count).to_le_bytes());
                }
                Effect::Expelled { count } => {
                    self.write(Geometry::EXPELLED_AT, &u64::from(count).to_le_bytes());
                }
                Effect::Departed { index, keys } => self.depart(index, keys),
            }
            if self.batch.len() >= VERBS_PER_BATCH {
                self.run();
            }
        }
        self.run();
    }

    /// The key counts of all who have left, with those of the client that leaves
    /// the entry of this index.
    pub fn departing_keys(&mut self, index: u32) -> [i64; DATABASES] {
        let tickets = [0, index].map(|index| {
            let at = NodeAddress { node: 0, offset: Geometry::member_at(index) };
            self.batch.read(at, MEMBER_BYTES)
        });
        self.endpoint.execute(&mut self.batch);
        let [all, leaver] =
            tickets.map(|t| self.batch.bytes(t).map(Member::parse).unwrap_or_default());
        self.batch.clear();
        std::array::from_fn(|database| all.keys[database].wrapping_add(leaver.keys[database]))
    }

    fn depart(&mut self, index: u32, keys: [i64; DATABASES]) {
        let mut all = [0; MEMBER_BYTES];
        Member { client: Member::DEPARTED, quiescent: 0, keys }.write(&mut all);
        self.write(Geometry::member_at(0), &all);
        self.write(Geometry::member_at(index), &[0; MEMBER_BYTES]);
    }

    fn zero(&mut self, block: Address) {
        let bytes = self.geometry.params.block_bytes;
        let piece = bytes.min(ZEROES_BYTES);
        let Some(start) = self.copy(block) else { return };
        let zeroes = self.batch.stage(piece as usize);
        self.batch.staged(zeroes).fill(0);
        for offset in (0..bytes).step_by(piece as usize) {
            self.batch.write(NodeAddress { node: 0, offset: start + offset }, zeroes);
        }
    }

    /// Where this node has its copy, if it has one.
    fn copy(&self, at: Address) -> Option<u64> {
        let mut places = self.geometry.placement.locate_all(at);
        places.find(|place| place.node == self.node).map(|place| place.offset)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let span = self.batch.stage(bytes.len());
        self.batch.staged(span).copy_from_slice(bytes);
        self.batch.write(NodeAddress { node: 0, offset }, span);
    }

    fn run(&mut self) {
        if !self.batch.is_empty() {
            self.endpoint.execute(&mut self.batch);
        }
        self.batch.clear();
    }
}
