//! The simulated fabric: what stops, what tears, what is counted.

use fusee_fabric::{Batch, Fabric, Verb, VerbKind};
use fusee_layout::NodeAddress;
use fusee_layout::message::{Request, Response};
use fusee_sim::{
    Control, Delays, Executor, Group, Meddler, Meddling, Nodes, Rng, Seen, Settings, SimPool,
    Tearing,
};
use std::collections::BTreeSet;

struct NoControl;

impl Control for NoControl {
    fn handle(&mut self, _nodes: &mut Nodes, _node: u16, _request: Request) -> Response {
        Response::Done
    }
}

const TEARING: Tearing = Tearing { percent: 100, within_lines: true };

fn pool(executor: &Executor, seed: u64, tearing: Tearing) -> SimPool {
    let delays = Delays { slow_percent: 20, ..Delays::EVEN };
    let settings = Settings { delays, tearing };
    let nodes = Nodes::new(3, 4096);
    SimPool::new(executor.sim(), nodes, Box::new(NoControl), settings, Rng::new(seed))
}

fn at(node: u16, offset: u64) -> NodeAddress {
    NodeAddress { node, offset }
}

fn run(executor: &Executor, pool: &SimPool, batch: Batch) -> Batch {
    let fabric = pool.fabric(0);
    executor.block_on(u64::MAX, async move { fabric.run(batch).await }).expect("it completes")
}

#[test]
fn verbs_do_what_they_say_and_are_counted() {
    let executor = Executor::new();
    let pool = pool(&executor, 1, Tearing::NONE);
    let mut batch = Batch::new();
    let span = batch.stage(16);
    batch.staged(span).copy_from_slice(&[1; 16]);
    batch.write(at(0, 8), span);
    batch.write_byte(at(0, 9), 2);
    let cas = batch.cas(at(0, 16), u64::from_le_bytes([1; 8]), 5);
    let faa = batch.faa(at(1, 0), 3);
    batch.fence();
    let read = batch.read(at(0, 0), 24);
    let fabric = pool.fabric(0);
    let (batch, fabric) = executor
        .block_on(u64::MAX, async move { (fabric.run(batch).await, fabric) })
        .expect("it completes");
    assert_eq!(batch.word(cas), Ok(u64::from_le_bytes([1; 8])));
    assert_eq!(batch.word(faa), Ok(0));
    let expected = [0, u64::from_le_bytes([1, 2, 1, 1, 1, 1, 1, 1]), 5];
    assert_eq!(batch.words(read), Ok(&expected[..]));
    assert_eq!(pool.nodes().word(at(1, 0)), 3);
    let counters = fabric.counters();
    assert_eq!(counters.batches(), 1);
    let verbs = [VerbKind::Read, VerbKind::Write, VerbKind::Cas, VerbKind::Faa];
    assert_eq!(verbs.map(|kind| counters.verbs(kind)), [1, 2, 1, 1]);
    assert_eq!((counters.bytes_read(), counters.bytes_written()), (24, 17));
}

#[test]
fn a_client_stops_between_any_two_verbs_and_its_batch_is_done_up_to_a_point_on_each_node() {
    let mut seen = BTreeSet::new();
    for seed in 0..400 {
        let executor = Executor::new();
        let pool = pool(&executor, seed, Tearing::NONE);
        let fabric = pool.fabric(0);
        let mut batch = Batch::new();
        for offset in 0..3 {
            let span = batch.stage(8);
            batch.staged(span)[0] = 1;
            for node in 0..2 {
                batch.write(at(node, offset * 8), span);
            }
        }
        pool.stop_after(0, 1 + seed % 6);
        executor.sim().spawn(Group(0), async move {
            fabric.run(batch).await;
            panic!("a stopped client goes on");
        });
        executor.run(u64::MAX, || false);
        assert!(pool.is_stopped(0));
        let done = |node| (0..3).map(|n| pool.nodes().word(at(node, n * 8))).collect::<Vec<_>>();
        let (first, second) = (done(0), done(1));
        for words in [&first, &second] {
            assert!(words.is_sorted_by(|a, b| a >= b), "one queue pair's order: {words:?}");
        }
        let sums = (first.iter().sum::<u64>(), second.iter().sum::<u64>());
        assert!(sums.0 + sums.1 > seed % 6, "what took effect before stays");
        seen.insert(sums);
    }
    let all: BTreeSet<(u64, u64)> = (0..4).flat_map(|a| (0..4).map(move |b| (a, b))).collect();
    let missing: Vec<_> = all.difference(&seen).collect();
    assert_eq!(missing, [&(0, 0)], "every point on each node, but not none at all");
}

#[test]
fn a_read_under_a_write_is_seen_torn_within_a_line() {
    let mut torn = 0;
    for seed in 0..200 {
        let executor = Executor::new();
        let pool = pool(&executor, seed, TEARING);
        let writer = pool.fabric(1);
        executor.sim().spawn(Group(1), async move {
            let mut batch = writer.batch();
            let span = batch.stage(64);
            batch.staged(span).fill(1);
            batch.write(at(0, 64), span);
            writer.run(batch).await;
        });
        let mut batch = Batch::new();
        let read = batch.read(at(0, 64), 64);
        let batch = run(&executor, &pool, batch);
        let words: BTreeSet<u64> = batch.words(read).unwrap().iter().copied().collect();
        torn += u32::from(words.len() == 2);
        if words.len() == 2 {
            assert_eq!(pool.torn_reads(), 1);
        }
    }
    assert!(torn > 20, "{torn} of 200");
}

#[test]
fn a_dead_node_fails_its_own_verbs_alone() {
    let executor = Executor::new();
    let pool = pool(&executor, 1, Tearing::NONE);
    pool.nodes_mut().take_down(1);
    let mut batch = Batch::new();
    let here = batch.cas(at(0, 0), 0, 1);
    let there = batch.cas(at(1, 0), 0, 1);
    let batch = run(&executor, &pool, batch);
    assert_eq!(batch.word(here), Ok(0));
    assert_eq!(batch.word(there).unwrap_err().node, 1);
    let fabric = pool.fabric(0);
    let call = async move { fabric.call(1, Request::Leave { client: 1 }).await };
    assert!(executor.block_on(u64::MAX, call).expect("it returns").is_err());
}

#[test]
fn a_dropped_batch_is_executed_all_the_same() {
    let executor = Executor::new();
    let pool = pool(&executor, 1, Tearing::NONE);
    let fabric = pool.fabric(0);
    let sim = executor.sim();
    executor.sim().spawn(Group(0), async move {
        let mut batch = fabric.batch();
        batch.faa(at(0, 0), 1);
        let mut run = Box::pin(fabric.run(batch));
        std::future::poll_fn(|context| {
            assert!(run.as_mut().poll(context).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        drop(run);
        sim.sleep(1).await;
    });
    executor.run(u64::MAX, || false);
    assert_eq!(pool.nodes().word(at(0, 0)), 1);
}

/// Turns every CAS to 1 into one to 2, hides the second word of what is READ,
/// and swallows FAAs.
struct Meddles;

impl Meddler for Meddles {
    fn execute(&mut self, verb: &Seen, word: u64) -> Meddling {
        match verb.verb {
            Verb::Cas { expected, new: 1 } => Meddling::Cas { expected, new: 2 },
            Verb::Faa(_) => Meddling::Pretend(word + 100),
            _ => Meddling::Execute,
        }
    }

    fn read(&mut self, _verb: &Seen, words: &mut [u64]) {
        words[1] = 0;
    }

    fn post(&mut self, _verb: &Seen, written: &mut [u64]) {
        written.fill(9);
    }
}

#[test]
fn a_meddler_changes_what_is_done_and_what_is_seen() {
    let executor = Executor::new();
    let pool = pool(&executor, 1, TEARING);
    pool.meddle(Box::new(Meddles));
    let mut batch = Batch::new();
    let span = batch.stage(16);
    batch.write(at(0, 8), span);
    let cas = batch.cas(at(0, 0), 0, 1);
    let faa = batch.faa(at(0, 64), 1);
    batch.fence();
    let read = batch.read(at(0, 0), 24);
    let batch = run(&executor, &pool, batch);
    assert_eq!(batch.word(cas), Ok(0));
    assert_eq!(batch.word(faa), Ok(100));
    assert_eq!(batch.words(read), Ok(&[2, 0, 9][..]));
    assert_eq!(pool.nodes().words(at(0, 0), 3), [2, 9, 9]);
    assert_eq!(pool.nodes().word(at(0, 64)), 0);
    assert_eq!(pool.moves().len(), 1);
}
