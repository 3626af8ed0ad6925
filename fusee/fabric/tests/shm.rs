//! What a fabric promises, asked of the one on shared memory, on several threads
//! where others could see it broken.
#![cfg(not(loom))]

mod common;

use common::{BYTES, at, nodes, shm as fabric, stage};
use fusee_fabric::{Batch, DirectReads, Fabric, NodeDown, ShmEndpoint, VerbKind};
use fusee_layout::NodeAddress;
use fusee_layout::message::{Request, Response};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

const ROUNDS: u64 = if cfg!(debug_assertions) { 20_000 } else { 100_000 };

/// Futures of this fabric are ready at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("shared memory never waits"),
    }
}

fn read(endpoint: &ShmEndpoint, from: NodeAddress) -> u64 {
    let mut batch = Batch::new();
    let ticket = batch.read(from, 8);
    endpoint.execute(&mut batch);
    batch.word(ticket).unwrap()
}

fn write(endpoint: &ShmEndpoint, to: NodeAddress, words: &[u64]) {
    let mut batch = Batch::new();
    let span = stage(&mut batch, words);
    let ticket = batch.write(to, span);
    endpoint.execute(&mut batch);
    batch.done(ticket).unwrap();
}

#[test]
fn verbs_of_a_batch_take_effect_in_posted_order() {
    let fabric = fabric(&nodes(2));
    let mut batch = fabric.batch();
    let one = stage(&mut batch, &[1, 2, 3]);
    let two = stage(&mut batch, &[7]);
    batch.write(at(0, 64), one);
    batch.write(at(0, 72), two);
    batch.write(at(1, 0), one);
    let seen = batch.read(at(0, 64), 24);
    let cas = batch.cas(at(0, 72), 7, 8);
    let missed = batch.cas(at(0, 72), 7, 9);
    let faa = batch.faa(at(0, 80), u64::MAX);
    let byte = batch.write_byte(at(0, 95), 0xff);
    batch.fence();
    let after = batch.read(at(0, 64), 32);
    let other = batch.read(at(1, 16), 8);
    let batch = now(fabric.run(batch));
    assert_eq!(batch.words(seen).unwrap(), [1, 7, 3]);
    assert_eq!((batch.word(cas), batch.word(missed), batch.word(faa)), (Ok(7), Ok(8), Ok(3)));
    assert_eq!(batch.done(byte), Ok(()));
    assert_eq!(batch.words(after).unwrap(), [1, 8, 2, 0xff << 56]);
    assert_eq!(batch.word(other), Ok(3));
}

#[test]
fn atomics_of_many_threads_lose_nothing() {
    let nodes = nodes(1);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let endpoint = ShmEndpoint::new(nodes.clone());
                let mut batch = Batch::new();
                for _ in 0..ROUNDS / 10 {
                    batch.clear();
                    batch.faa(at(0, 0), 3);
                    endpoint.execute(&mut batch);
                    loop {
                        let old = read(&endpoint, at(0, 8));
                        batch.clear();
                        let cas = batch.cas(at(0, 8), old, old + 1);
                        endpoint.execute(&mut batch);
                        if batch.word(cas) == Ok(old) {
                            break;
                        }
                    }
                }
            });
        }
    });
    let endpoint = ShmEndpoint::new(nodes);
    assert_eq!(read(&endpoint, at(0, 0)), 3 * 3 * (ROUNDS / 10));
    assert_eq!(read(&endpoint, at(0, 8)), 3 * (ROUNDS / 10));
}

/// Lets two threads do something at almost the same moment, again and again.
struct Gate {
    threads: usize,
    arrived: AtomicUsize,
}

impl Gate {
    fn new(threads: usize) -> Self {
        Self { threads, arrived: AtomicUsize::new(0) }
    }

    fn pass(&self) {
        let mine = self.arrived.fetch_add(1, Ordering::SeqCst) / self.threads;
        let mut spins = 0u32;
        while self.arrived.load(Ordering::SeqCst) < (mine + 1) * self.threads {
            std::hint::spin_loop();
            spins += 1;
            if spins.is_multiple_of(1000) {
                std::thread::yield_now();
            }
        }
    }
}

/// Two clients each store to a word of their own and then READ the other's;
/// returns how often neither saw the other.
fn both_missed(
    store_and_read: impl Fn(&ShmEndpoint, NodeAddress, NodeAddress) -> u64 + Sync,
) -> u64 {
    let nodes = nodes(1);
    let gate = Gate::new(2);
    let run = |mine: u64, other: u64| {
        let endpoint = ShmEndpoint::new(nodes.clone());
        let mut seen = Vec::new();
        for _ in 0..ROUNDS {
            gate.pass();
            seen.push(store_and_read(&endpoint, at(0, mine), at(0, other)));
            gate.pass();
            write(&endpoint, at(0, mine), &[0]);
        }
        seen
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| run(0, 4096));
        let second = run(4096, 0);
        let first = first.join().unwrap();
        first.iter().zip(&second).filter(|&(&a, &b)| a == 0 && b == 0).count() as u64
    })
}

#[test]
fn of_two_that_write_and_then_read_one_sees_the_other() {
    let missed = both_missed(|endpoint, mine, other| {
        let mut batch = Batch::new();
        let one = stage(&mut batch, &[1]);
        batch.write(mine, one);
        let ticket = batch.read(other, 8);
        endpoint.execute(&mut batch);
        batch.word(ticket).unwrap()
    });
    assert_eq!(missed, 0);
}

#[test]
fn of_two_that_write_in_one_batch_and_read_in_the_next_one_sees_the_other() {
    let missed = both_missed(|endpoint, mine, other| {
        let (mut first, mut second) = (Batch::new(), Batch::new());
        let one = stage(&mut first, &[1]);
        first.write(mine, one);
        let ticket = second.read(other, 8);
        endpoint.execute(&mut first);
        endpoint.execute(&mut second);
        second.word(ticket).unwrap()
    });
    assert_eq!(missed, 0);
}

#[test]
fn of_two_that_vote_and_then_read_behind_a_fence_one_sees_the_other() {
    let missed = both_missed(|endpoint, mine, other| {
        let mut batch = Batch::new();
        batch.cas(mine, 0, 1);
        batch.fence();
        let ticket = batch.read(other, 8);
        endpoint.execute(&mut batch);
        batch.word(ticket).unwrap()
    });
    assert_eq!(missed, 0);
}

#[test]
fn who_sees_a_slot_sees_the_object_that_was_written_before() {
    const OBJECT: u64 = 1024;
    for by_cas in [false, true] {
        let nodes = nodes(1);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let endpoint = ShmEndpoint::new(nodes.clone());
                for version in 1..=ROUNDS {
                    let mut batch = Batch::new();
                    let object = stage(&mut batch, &[version; 17]);
                    batch.write(at(0, OBJECT), object);
                    if by_cas {
                        batch.cas(at(0, 0), version - 1, version);
                    } else {
                        let slot = stage(&mut batch, &[version]);
                        batch.write(at(0, 0), slot);
                    }
                    endpoint.execute(&mut batch);
                }
                done.store(true, Ordering::SeqCst);
            });
            let endpoint = ShmEndpoint::new(nodes.clone());
            while !done.load(Ordering::SeqCst) {
                let version = read(&endpoint, at(0, 0));
                let mut batch = Batch::new();
                let ticket = batch.read(at(0, OBJECT), 17 * 8);
                endpoint.execute(&mut batch);
                let object = batch.words(ticket).unwrap();
                assert!(object.iter().all(|&word| word >= version), "{object:?} before {version}");
            }
            assert_eq!(read(&endpoint, at(0, 0)), ROUNDS);
        });
    }
}

#[test]
fn a_torn_read_is_torn_between_words_only() {
    let nodes = nodes(1);
    let done = AtomicBool::new(false);
    let whole = |n: u64| n << 32 | !n & 0xffff_ffff;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let endpoint = ShmEndpoint::new(nodes.clone());
            for n in 0..ROUNDS / 10 {
                write(&endpoint, at(0, 8), &[whole(n); 130]);
            }
            done.store(true, Ordering::SeqCst);
        });
        let endpoint = ShmEndpoint::new(nodes.clone());
        while !done.load(Ordering::SeqCst) {
            let mut batch = Batch::new();
            let ticket = batch.read(at(0, 8), 130 * 8);
            endpoint.execute(&mut batch);
            for &word in batch.words(ticket).unwrap() {
                assert!(word == 0 || word == whole(word >> 32), "{word:x}");
            }
        }
    });
}

#[test]
fn bytes_of_one_word_are_written_by_many_without_harm() {
    let nodes = nodes(1);
    std::thread::scope(|scope| {
        for byte in 0..4u64 {
            let nodes = nodes.clone();
            scope.spawn(move || {
                let endpoint = ShmEndpoint::new(nodes);
                let mut batch = Batch::new();
                for n in 0..ROUNDS / 10 {
                    batch.clear();
                    batch.write_byte(at(0, 8 + byte), n as u8);
                    let ticket = batch.read(at(0, 8), 8);
                    endpoint.execute(&mut batch);
                    let word = batch.word(ticket).unwrap();
                    assert_eq!((word >> (8 * byte)) as u8, n as u8, "nobody else writes this byte");
                    assert_eq!(word >> 32, 0);
                }
            });
        }
    });
}

#[test]
fn a_node_that_is_down_fails_its_own_verbs_alone() {
    let nodes = nodes(2);
    let fabric = fabric(&nodes);
    nodes[1].set_down(true);
    let mut batch = fabric.batch();
    let span = stage(&mut batch, &[5]);
    let up = batch.write(at(0, 0), span);
    let down = [
        batch.write(at(1, 0), span),
        batch.read(at(1, 0), 8),
        batch.cas(at(1, 0), 0, 1),
        batch.faa(at(1, 0), 1),
        batch.write_byte(at(1, 0), 1),
    ];
    let batch = now(fabric.run(batch));
    assert_eq!(batch.done(up), Ok(()));
    for ticket in down {
        assert_eq!(batch.done(ticket), Err(NodeDown { node: 1 }));
    }
    assert_eq!(now(fabric.call(1, Request::Leave { client: 1 })), Err(NodeDown { node: 1 }));
    assert_eq!(now(fabric.call(0, Request::Leave { client: 1 })), Ok(Response::Done));
    assert_eq!(fabric.counters().out_of_range(), 0);
    nodes[1].set_down(false);
    assert_eq!(read(&ShmEndpoint::new(nodes), at(1, 0)), 0, "nothing was done there");
}

#[test]
fn verbs_outside_of_the_memory_fail_and_are_counted() {
    let nodes = nodes(1);
    let fabric = fabric(&nodes);
    let mut batch = fabric.batch();
    let span = stage(&mut batch, &[1, 2]);
    let far = u64::MAX - 7;
    let tickets = [
        batch.read(at(0, BYTES), 8),
        batch.read(at(0, BYTES - 8), 16),
        batch.read(at(0, far), 64),
        batch.write(at(0, BYTES - 8), span),
        batch.write_byte(at(0, u64::MAX), 1),
        batch.cas(at(0, far), 0, 1),
        batch.faa(at(0, BYTES), 1),
        batch.read(at(7, 0), 8),
    ];
    let inside = batch.read(at(0, BYTES - 8), 8);
    let batch = now(fabric.run(batch));
    for ticket in tickets {
        assert!(batch.done(ticket).is_err());
    }
    assert_eq!(batch.word(inside), Ok(0), "a WRITE that does not fit writes nothing");
    assert_eq!(fabric.counters().out_of_range(), tickets.len() as u64);
    fabric.prefetch(at(0, far), 1 << 20);
    fabric.prefetch(at(9, 0), 8);
}

#[test]
fn batches_verbs_and_bytes_are_counted() {
    let fabric = fabric(&nodes(1));
    for _ in 0..3 {
        let mut batch = fabric.batch();
        assert!(batch.is_empty(), "a reused batch is empty");
        let span = stage(&mut batch, &[1; 3]);
        batch.write(at(0, 0), span);
        batch.write_byte(at(0, 9), 1);
        batch.read(at(0, 0), 128);
        batch.cas(at(0, 0), 1, 2);
        batch.faa(at(0, 0), 1);
        let batch = now(fabric.run(batch));
        fabric.recycle(batch);
    }
    let counters = fabric.counters();
    let kinds = [VerbKind::Read, VerbKind::Write, VerbKind::Cas, VerbKind::Faa];
    assert_eq!(counters.batches(), 3);
    assert_eq!(kinds.map(|kind| counters.verbs(kind)), [3, 6, 3, 3]);
    assert_eq!((counters.bytes_read(), counters.bytes_written()), (3 * 128, 3 * 25));
}

#[test]
fn direct_reads_see_what_was_written_and_count_as_one_batch() {
    let nodes = nodes(2);
    let fabric = fabric(&nodes);
    let endpoint = ShmEndpoint::new(nodes.clone());
    write(&endpoint, at(1, 64), &[7, 8, 9]);
    let direct = || fabric.direct().expect("memory is this machine's");
    let mut reads = direct();
    assert_eq!(reads.word(at(1, 72)), Some(8));
    let words = |bytes: &[u8]| bytes.iter().step_by(8).copied().collect::<Vec<_>>();
    assert_eq!(reads.bytes(at(1, 64), 24).map(words), Some(vec![7, 8, 9]));
    assert_eq!(reads.bytes(at(1, 80), 16).map(words), Some(vec![9, 0]), "nothing of before");
    assert_eq!(reads.bytes(at(0, 0), 1 << 10).map(|bytes| bytes.len()), Some(1 << 10));
    assert_eq!(fabric.counters().batches(), 0, "they are not over");
    drop(reads);
    drop(direct());
    let counters = fabric.counters();
    assert_eq!((counters.batches(), counters.verbs(VerbKind::Read)), (1, 4));
    assert_eq!(counters.bytes_read(), 8 + 24 + 16 + (1 << 10));

    nodes[1].set_down(true);
    let mut reads = direct();
    assert_eq!((reads.word(at(1, 64)), reads.bytes(at(1, 64), 8)), (None, None), "it is down");
    assert_eq!(reads.word(at(0, 0)), Some(0));
    assert_eq!(reads.word(at(0, BYTES)), None, "there is no such place");
    assert_eq!(reads.bytes(at(0, BYTES - 8), 16), None);
    assert_eq!(reads.bytes(at(0, u64::MAX - 7), 64), None);
    assert_eq!(reads.word(at(7, 0)), None, "there is no such node");
}

#[test]
fn some_direct_reads_are_timed() {
    let fabric = fabric(&nodes(2));
    for _ in 0..1000 {
        let mut reads = fabric.direct().expect("memory is this machine's");
        reads.word(at(1, 0));
        reads.bytes(at(1, 0), 128);
        reads.bytes(at(1, 128), 128);
    }
    let samples = |node| -> u64 {
        let times = fabric.counters().round_trips().times(node, VerbKind::Read);
        times.expect("there are two nodes").counts().iter().sum()
    };
    assert_eq!(samples(0), 0);
    assert!((20..200).contains(&samples(1)), "{} of 1000", samples(1));
}
