//! A pool within one process: memory nodes on its own memory.

use crate::{Ledger, MemoryNode, NodeMemory, Statistics};
use fusee_fabric::{Backing, ControlPlane, Memory, ShmFabric, ShmNode};
use fusee_layout::{Geometry, GeometryError, PoolParams};
use std::sync::Arc;
use thiserror::Error;

/// All memory nodes of a pool. Clones are the same pool.
#[derive(Clone, Debug)]
pub struct EmbeddedPool {
    geometry: Arc<Geometry>,
    nodes: Vec<Arc<ShmNode>>,
    controls: Vec<Arc<MemoryNode>>,
}

/// Why there is no pool.
#[derive(Debug, Error)]
pub enum PoolError {
    /// No pool is like that.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The system gives no such memory.
    #[error("cannot map {bytes} bytes for memory node {node}: give the pool less memory")]
    Memory {
        /// For this node.
        node: u16,
        /// So much.
        bytes: u64,
        /// What the system said.
        source: std::io::Error,
    },
}

impl EmbeddedPool {
    /// A new and empty pool.
    ///
    /// # Errors
    ///
    /// If the parameters are impossible or the system gives no memory.
    pub fn create(params: PoolParams) -> Result<Self, PoolError> {
        let geometry = Arc::new(Geometry::new(params)?);
        let nodes = (0..params.nodes).map(|node| map(node, params.node_bytes));
        let nodes: Vec<_> = nodes.collect::<Result<_, _>>()?;
        let memory =
            |node: u16| NodeMemory::new(node, geometry.clone(), nodes[usize::from(node)].clone());
        let controls = (0..params.nodes)
            .map(|node| {
                let mut own = memory(node);
                own.format();
                let others = (0..params.nodes).filter(|&other| other != node).map(memory);
                let ledger = Ledger::new(node, geometry.clone(), own);
                Arc::new(MemoryNode::new(ledger, others.collect()))
            })
            .collect();
        Ok(Self { geometry, nodes, controls })
    }

    /// A way to the pool for one thread.
    pub fn fabric(&self) -> ShmFabric {
        ShmFabric::new(self.nodes.clone(), self.controls())
    }

    /// The memory nodes as a fabric reaches them, by number.
    pub fn nodes(&self) -> &[Arc<ShmNode>] {
        &self.nodes
    }

    /// Their control planes, by number.
    pub fn controls(&self) -> Vec<Arc<dyn ControlPlane>> {
        self.controls.iter().map(|control| control.clone() as Arc<dyn ControlPlane>).collect()
    }

    /// What follows from the pool's parameters.
    pub fn geometry(&self) -> &Arc<Geometry> {
        &self.geometry
    }

    /// Takes a memory node from the pool's clients, or gives it back as it was.
    pub fn set_down(&self, node: u16, down: bool) {
        self.nodes[usize::from(node)].set_down(down);
    }

    /// What pages the memory nodes lie on.
    pub fn backings(&self) -> impl Iterator<Item = Backing> {
        self.nodes.iter().map(|node| node.memory().backing())
    }

    /// What each memory node has given.
    pub fn statistics(&self) -> impl Iterator<Item = Statistics> {
        self.controls.iter().map(|control| control.statistics())
    }
}

fn map(node: u16, bytes: u64) -> Result<Arc<ShmNode>, PoolError> {
    let memory = usize::try_from(bytes)
        .map_err(std::io::Error::other)
        .and_then(|bytes| Memory::embedded(bytes, &format!("fusee-{node}")))
        .map_err(|source| PoolError::Memory { node, bytes, source })?;
    Ok(Arc::new(ShmNode::new(memory)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fusee_fabric::Fabric;
    use fusee_layout::message::{Refusal, Request, Response};
    use fusee_layout::{
        Address, BlockEntry, BlockState, Class, MEMBER_BYTES, Member, NodeAddress, Room, Superblock,
    };
    use std::collections::HashSet;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    /// Futures of this fabric are ready at once.
    fn now<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("shared memory never waits"),
        }
    }

    fn pool(nodes: u16, replicas: u8) -> EmbeddedPool {
        let total = u64::from(nodes) * (16 << 20);
        EmbeddedPool::create(PoolParams::for_memory(total, nodes, replicas, 3).unwrap()).unwrap()
    }

    fn ask(fabric: &ShmFabric, node: u16, request: Request) -> Response {
        now(fabric.call(node, request)).unwrap()
    }

    fn join(pool: &EmbeddedPool, fabric: &ShmFabric) -> (u32, u32) {
        match ask(fabric, 0, Request::Join { params: pool.geometry().params }) {
            Response::Joined { client, index } => (client, index),
            other => panic!("{other:?}"),
        }
    }

    fn read(fabric: &ShmFabric, at: NodeAddress, bytes: usize) -> Vec<u64> {
        let mut batch = fabric.batch();
        let ticket = batch.read(at, bytes);
        now(fabric.run(batch)).words(ticket).unwrap().to_vec()
    }

    fn write(fabric: &ShmFabric, at: NodeAddress, bytes: &[u8]) {
        let mut batch = fabric.batch();
        let span = batch.stage(bytes.len());
        batch.staged(span).copy_from_slice(bytes);
        let ticket = batch.write(at, span);
        now(fabric.run(batch)).done(ticket).unwrap();
    }

    fn entries(pool: &EmbeddedPool, fabric: &ShmFabric, block: Address) -> Vec<BlockEntry> {
        let geometry = pool.geometry();
        let (region, number, _) = geometry.block_of(block).unwrap();
        let at = geometry.placement.locate_all(geometry.block_entry(region, number));
        at.map(|at| BlockEntry::from_word(read(fabric, at, 8)[0]).unwrap()).collect()
    }

    #[test]
    fn every_node_of_a_new_pool_has_the_superblock_and_zeroes() {
        let pool = pool(3, 2);
        let fabric = pool.fabric();
        for node in 0..3 {
            let words = read(&fabric, NodeAddress { node, offset: 0 }, Superblock::BYTES);
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let found = Superblock::parse(bytes.as_slice().try_into().unwrap()).unwrap();
            assert_eq!(found.params, pool.geometry().params);
            let rest = read(&fabric, NodeAddress { node, offset: 4096 }, 1 << 20);
            assert!(rest.iter().all(|&word| word == 0));
        }
    }

    #[test]
    fn a_returned_block_is_zero_and_free_in_every_copy() {
        let pool = pool(3, 3);
        let fabric = pool.fabric();
        let (client, _) = join(&pool, &fabric);
        let class = Class::new(5);
        let request = Request::Allocate { client, class, reserve: false, fresh: false };
        let Response::Allocated { block, adopted: false } = ask(&fabric, 1, request) else {
            panic!("a new pool has blocks");
        };
        let (state, room) = (BlockState::Owned, Room::Unknown);
        let owned = BlockEntry { state, class, client, room, turn: 1 };
        assert_eq!(entries(&pool, &fabric, block), [owned; 3]);
        let bytes = pool.geometry().params.block_bytes;
        let places: Vec<_> = pool.geometry().placement.locate_all(block).collect();
        let next = pool.geometry().block_of(block.plus(bytes)).unwrap().2;
        for at in &places {
            write(&fabric, *at, &vec![0xab; bytes as usize]);
        }
        for at in pool.geometry().placement.locate_all(next) {
            write(&fabric, at, &[0xab; 64]);
        }
        assert_eq!(ask(&fabric, 1, Request::Return { client, block }), Response::Done);
        let free = BlockEntry { turn: 1, ..BlockEntry::default() };
        assert_eq!(entries(&pool, &fabric, block), [free; 3]);
        for at in &places {
            assert!(read(&fabric, *at, bytes as usize).iter().all(|&word| word == 0));
        }
        for at in pool.geometry().placement.locate_all(next) {
            assert_ne!(read(&fabric, at, 8)[0], 0, "the neighbour keeps its bytes");
        }
    }

    #[test]
    fn key_counts_of_those_who_left_are_kept_and_their_places_emptied() {
        let pool = pool(2, 2);
        let fabric = pool.fabric();
        for round in 1..=3i64 {
            let (client, index) = join(&pool, &fabric);
            let mut keys = [0; 16];
            (keys[0], keys[15]) = (10 * round, -1);
            let member = Member { client: client.into(), quiescent: 7, keys };
            let mut bytes = [0; MEMBER_BYTES];
            member.write(&mut bytes);
            for node in 0..2 {
                let at = NodeAddress { node, offset: Geometry::member_at(index) };
                write(&fabric, at, &bytes);
            }
            for node in [1, 0] {
                assert_eq!(ask(&fabric, node, Request::Leave { client }), Response::Done);
            }
            for node in 0..2 {
                let entry = |index| {
                    let at = NodeAddress { node, offset: Geometry::member_at(index) };
                    let words = read(&fabric, at, MEMBER_BYTES);
                    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                    Member::parse(&bytes)
                };
                assert_eq!(entry(index), Member::default());
                let count = NodeAddress { node, offset: Geometry::MEMBERS_AT };
                assert_eq!(read(&fabric, count, 8), [2]);
                let all = entry(0);
                assert_eq!(all.client, Member::DEPARTED);
                assert!(!all.is_present());
                assert_eq!(all.keys[0], 10 * (1..=round).sum::<i64>());
                assert_eq!(all.keys[15], -round);
            }
        }
        assert_eq!(pool.statistics().next().unwrap().members, Some(0));
    }

    #[test]
    fn only_node_0_lets_clients_in_and_a_node_that_is_down_does_nothing() {
        let pool = pool(2, 1);
        let fabric = pool.fabric();
        let request = Request::Join { params: pool.geometry().params };
        assert_eq!(ask(&fabric, 1, request), Response::Refused(Refusal::NotOwner));
        pool.set_down(0, true);
        assert_eq!(now(fabric.call(0, request)).unwrap_err().node, 0);
        assert!(now(fabric.call(2, request)).is_err(), "there is no such node");
        pool.set_down(0, false);
        assert_eq!(ask(&fabric, 0, request), Response::Joined { client: 1, index: 1 });
    }

    #[test]
    fn threads_never_share_a_block() {
        let pool = pool(2, 2);
        let rounds = 40;
        let blocks: Vec<Address> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4u8)
                .map(|thread| {
                    let pool = pool.clone();
                    scope.spawn(move || {
                        let fabric = pool.fabric();
                        let (client, _) = join(&pool, &fabric);
                        let mut mine: Vec<Address> = Vec::new();
                        for round in 0..rounds {
                            let class = Class::new(thread);
                            let request =
                                Request::Allocate { client, class, reserve: false, fresh: false };
                            let node = round % 2;
                            let Response::Allocated { block, .. } = ask(&fabric, node, request)
                            else {
                                continue;
                            };
                            let at = pool.geometry().placement.locate(block, 0);
                            assert_eq!(read(&fabric, at, 8)[0], 0, "still somebody's");
                            write(&fabric, at, &u64::from(client).to_le_bytes());
                            mine.push(block);
                            if round % 3 == 0 {
                                let block = mine.remove(mine.len() / 2);
                                let at = pool.geometry().placement.locate(block, 0);
                                assert_eq!(read(&fabric, at, 8)[0], client.into());
                                let node = at.node;
                                let back = ask(&fabric, node, Request::Return { client, block });
                                assert_eq!(back, Response::Done);
                            }
                        }
                        mine
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert!(blocks.len() > 50, "{}", blocks.len());
        assert_eq!(blocks.iter().collect::<HashSet<_>>().len(), blocks.len());
        let owned: u32 = pool.statistics().map(|s| s.blocks.owned).sum();
        assert_eq!(owned as usize, blocks.len());
    }
}
