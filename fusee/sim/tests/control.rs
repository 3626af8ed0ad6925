//! The simulator's memory nodes do what the real ones do.

use fusee_fabric::Fabric;
use fusee_layout::message::{Request, Response};
use fusee_layout::{Address, Class, Geometry, NodeAddress, POOL_VERSION, PoolParams, Room};
use fusee_sim::{Control, MemoryNodes, Rng};
use mnd::EmbeddedPool;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("shared memory never waits"),
    }
}

fn params() -> PoolParams {
    PoolParams {
        version: POOL_VERSION,
        nodes: 3,
        replicas: 2,
        node_bytes: 256 << 10,
        region_bytes: 16 << 10,
        block_bytes: 1024,
        clients_max: 4,
        index_regions: 1,
        subtables: 1,
        groups: 2,
        hash_seed: 1,
    }
}

#[test]
fn memory_nodes_answer_and_write_as_those_on_shared_memory() {
    let geometry = Arc::new(Geometry::new(params()).unwrap());
    let real = EmbeddedPool::create(params()).unwrap();
    let fabric = real.fabric();
    let (mut simulated, mut nodes) = MemoryNodes::create(geometry.clone());
    let mut rng = Rng::new(7);
    let mut blocks: Vec<(u32, Address)> = Vec::new();
    let mut clients = vec![0];
    let (mut refused, mut recovered) = (0, 0);
    for _ in 0..600 {
        let client = rng.pick(&clients);
        let (owner, block) =
            if blocks.is_empty() { (client, Address::new(64)) } else { rng.pick(&blocks) };
        let other = PoolParams { hash_seed: 2, ..params() };
        let request = match rng.below(16) {
            12 => Request::Expel { client },
            13 => Request::Recover { client },
            14 => Request::Adopt { client, block },
            15 => Request::Offer { client: owner, block, room: Room::Freed },
            0 => Request::Join { params: if rng.percent(10) { other } else { params() } },
            1 => Request::Leave { client },
            2..=4 => Request::Return { client: owner, block },
            5 => Request::Return { client, block: block.plus(64 * rng.below(2)) },
            _ => {
                let class = Class::new(rng.below(5) as u8);
                Request::Allocate {
                    client,
                    class,
                    reserve: rng.percent(10),
                    fresh: rng.percent(50),
                }
            }
        };
        let node = rng.below(3) as u16;
        // What clients write into their blocks and entries, by verbs.
        for at in geometry.placement.locate_all(block) {
            let mut batch = fabric.batch();
            let span = batch.stage(8);
            batch.staged(span).copy_from_slice(&7u64.to_le_bytes());
            if blocks.iter().any(|&(_, of)| of == block) {
                batch.write(at, span);
                nodes.words_mut(at, 1)[0] = 7;
            }
            now(fabric.run(batch));
        }
        let answer = simulated.handle(&mut nodes, node, request);
        assert_eq!(now(fabric.call(node, request)), Ok(answer), "{request:?}");
        match answer {
            Response::Joined { client, .. } => clients.push(client),
            Response::Allocated { block, .. } => {
                blocks.retain(|&(_, of)| of != block);
                blocks.push((client, block));
            }
            Response::Expelled { .. } => recovered += 1,
            Response::Done if matches!(request, Request::Return { .. }) => {
                blocks.retain(|&(_, of)| of != block);
            }
            Response::Done => {}
            Response::Refused(_) => refused += 1,
        }
    }
    assert!(blocks.len() > 10 && clients.len() > 4 && refused > 10 && recovered > 0);
    for node in 0..3 {
        let at = NodeAddress { node, offset: 0 };
        let mut batch = fabric.batch();
        let read = batch.read(at, params().node_bytes as usize);
        let batch = now(fabric.run(batch));
        let words = batch.words(read).unwrap();
        let differs =
            (0..words.len()).find(|&word| words[word] != nodes.words(at, words.len())[word]);
        assert_eq!(differs, None, "word of node {node}");
    }
}
