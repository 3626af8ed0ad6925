//! What fabrics promise, asked of verbs on a real device, by several clients where
//! they could see it broken. The same is asked of shared memory in the tests of
//! `fusee-fabric`.

use super::peer::{NODE_BYTES, Peers};
use super::{at, read, stage, write};
use fusee_fabric::verbs::{VerbsConfig, VerbsFabric};
use fusee_fabric::{Fabric, VerbKind};
use fusee_layout::NodeAddress;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

/// A check, by the name of what holds if it passes.
pub type Check = (&'static str, fn(&Peers));

/// All of them.
pub const CHECKS: &[Check] = &[
    ("verbs of a batch take effect in posted order", order),
    ("batches, verbs and bytes are counted", counters),
    ("verbs outside of the memory fail and are counted", out_of_range),
    ("more verbs than a queue holds are run one after the other", more_than_the_queue),
    ("large and small values come back byte for byte", sizes),
    ("many tasks share a worker's queue pairs, spinning or sleeping", many_tasks),
    ("a future that is dropped recalls nothing and harms nobody", dropped),
    ("atomics of many clients lose nothing", atomics),
    ("bytes of one word are written by many without harm", bytes_of_a_word),
    ("of two that write and then read one sees the other", write_then_read),
    ("of two that vote and then read behind a fence one sees the other", vote_then_read),
    ("who sees a slot sees the object that was written before", object_before_slot),
];

const ROUNDS: u64 = 2000;

/// A worker: a thread with a runtime and a fabric of its own.
pub(super) fn worker<T>(
    peers: &Peers,
    config: VerbsConfig,
    work: impl AsyncFnOnce(VerbsFabric) -> T,
) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made");
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let work = work(peers.fabric(config));
        let limit = Duration::from_secs(120);
        tokio::time::timeout(limit, work).await.expect("no check takes so long")
    })
}

fn order(peers: &Peers) {
    worker(peers, VerbsConfig::default(), async |fabric| {
        write(&fabric, at(0, 64), &[0; 8]).await;
        let other = peers.count() - 1;
        let mut batch = fabric.batch();
        let one = stage(&mut batch, &[1, 2, 3]);
        let two = stage(&mut batch, &[7]);
        batch.write(at(0, 64), one);
        batch.write(at(0, 72), two);
        batch.write(at(other, 4096), one);
        let seen = batch.read(at(0, 64), 24);
        let cas = batch.cas(at(0, 72), 7, 8);
        let missed = batch.cas(at(0, 72), 7, 9);
        let faa = batch.faa(at(0, 80), u64::MAX);
        let byte = batch.write_byte(at(0, 95), 0xff);
        let nothing = batch.read(at(0, 64), 0);
        batch.fence();
        let after = batch.read(at(0, 64), 32);
        let elsewhere = batch.read(at(other, 4112), 8);
        let batch = fabric.run(batch).await;
        assert_eq!(batch.words(seen).unwrap(), [1, 7, 3]);
        assert_eq!((batch.word(cas), batch.word(missed), batch.word(faa)), (Ok(7), Ok(8), Ok(3)));
        assert_eq!((batch.done(byte), batch.words(nothing)), (Ok(()), Ok(&[][..])));
        assert_eq!(batch.words(after).unwrap(), [1, 8, 2, 0xff << 56]);
        assert_eq!(batch.word(elsewhere), Ok(3));
        let batch = fabric.run(fabric.batch()).await;
        assert!(batch.is_empty(), "an empty batch is run too");
    });
}

fn counters(peers: &Peers) {
    worker(peers, VerbsConfig::default(), async |fabric| {
        for _ in 0..3 {
            let mut batch = fabric.batch();
            assert!(batch.is_empty(), "a reused batch is empty");
            let span = stage(&mut batch, &[1; 3]);
            batch.write(at(0, 0), span);
            batch.write_byte(at(0, 9), 1);
            batch.read(at(0, 0), 128);
            batch.cas(at(0, 0), 1, 2);
            batch.faa(at(0, 0), 1);
            let batch = fabric.run(batch).await;
            fabric.recycle(batch);
        }
        let counters = fabric.counters();
        let kinds = [VerbKind::Read, VerbKind::Write, VerbKind::Cas, VerbKind::Faa];
        assert_eq!(counters.batches(), 3);
        assert_eq!(kinds.map(|kind| counters.verbs(kind)), [3, 6, 3, 3]);
        assert_eq!((counters.bytes_read(), counters.bytes_written()), (3 * 128, 3 * 25));
    });
}

fn out_of_range(peers: &Peers) {
    worker(peers, VerbsConfig::default(), async |fabric| {
        write(&fabric, at(0, NODE_BYTES - 8), &[0]).await;
        let mut batch = fabric.batch();
        let span = stage(&mut batch, &[1, 2]);
        let far = u64::MAX - 7;
        let tickets = [
            batch.read(at(0, NODE_BYTES), 8),
            batch.read(at(0, NODE_BYTES - 8), 16),
            batch.read(at(0, far), 64),
            batch.read(at(0, 0), (8 << 20) + 8),
            batch.write(at(0, NODE_BYTES - 8), span),
            batch.write_byte(at(0, u64::MAX), 1),
            batch.cas(at(0, far), 0, 1),
            batch.faa(at(0, NODE_BYTES), 1),
            batch.read(at(77, 0), 8),
        ];
        let inside = batch.read(at(0, NODE_BYTES - 8), 8);
        let batch = fabric.run(batch).await;
        for ticket in tickets {
            assert!(batch.done(ticket).is_err());
        }
        assert_eq!(batch.word(inside), Ok(0), "a WRITE that does not fit writes nothing");
        assert_eq!(fabric.counters().out_of_range(), tickets.len() as u64);
    });
}

fn more_than_the_queue(peers: &Peers) {
    for work_requests in [1, 3, 64] {
        let config = VerbsConfig { work_requests, ..VerbsConfig::default() };
        worker(peers, config, async |fabric| {
            let words: Vec<u64> = (1..=500).collect();
            let other = peers.count() - 1;
            write(&fabric, at(0, 8192), &words).await;
            write(&fabric, at(other, 32768), &words).await;
            write(&fabric, at(0, 0), &[0]).await;
            let mut batch = fabric.batch();
            let tickets: Vec<_> = words
                .iter()
                .map(|&word| {
                    let near = batch.read(at(0, 8192 + 8 * (word - 1)), 8);
                    let faa = batch.faa(at(0, 0), 1);
                    (near, faa, batch.read(at(other, 32768 + 8 * (word - 1)), 8))
                })
                .collect();
            let batch = fabric.run(batch).await;
            for (&(near, faa, far), &word) in tickets.iter().zip(&words) {
                let found = (batch.word(near), batch.word(faa), batch.word(far));
                assert_eq!(found, (Ok(word), Ok(word - 1), Ok(word)));
            }
        });
    }
}

fn sizes(peers: &Peers) {
    worker(peers, VerbsConfig::default(), async |fabric| {
        for (round, bytes) in
            [8, 56, 64, 72, 1024, 4096, 4104, 1 << 16, 1 << 20, 8 << 20].into_iter().enumerate()
        {
            let words: Vec<u64> = (0..bytes / 8)
                .map(|n| (n ^ (round as u64) << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15))
                .collect();
            write(&fabric, at(0, 1 << 20), &words).await;
            let mut batch = fabric.batch();
            let ticket = batch.read(at(0, 1 << 20), bytes as usize);
            let batch = fabric.run(batch).await;
            assert!(batch.words(ticket).unwrap() == words, "{bytes} bytes");
            fabric.recycle(batch);
        }
        let mut batch = fabric.batch();
        let all: Vec<_> = (0..48).map(|n| batch.read(at(0, n << 20), 1 << 20)).collect();
        let batch = fabric.run(batch).await;
        assert!(all.iter().all(|&ticket| batch.done(ticket).is_ok()));
        assert_eq!(
            batch.words(all[1]).unwrap()[1],
            0x9e37_79b9_7f4a_7c15u64.wrapping_mul(1 ^ 9 << 56)
        );
    });
}

fn many_tasks(peers: &Peers) {
    for spin in [Duration::ZERO, Duration::from_micros(100), Duration::from_secs(1)] {
        let config = VerbsConfig { spin, work_requests: 16, ..VerbsConfig::default() };
        worker(peers, config, async |fabric| {
            write(&fabric, at(0, 0), &[0; 8]).await;
            let fabric = Rc::new(fabric);
            let tasks: Vec<_> = (0..64)
                .map(|number| {
                    let fabric = fabric.clone();
                    tokio::task::spawn_local(async move {
                        let mine = at(0, 4096 + number * 64);
                        for round in 0..20 {
                            let mut batch = fabric.batch();
                            batch.faa(at(0, 8 * (number % 4)), 1);
                            let span = stage(&mut batch, &[number << 32 | round]);
                            batch.write(mine, span);
                            let seen = batch.read(mine, 8);
                            let batch = fabric.run(batch).await;
                            assert_eq!(batch.word(seen), Ok(number << 32 | round));
                            fabric.recycle(batch);
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("no task panics");
            }
            let mut sum = 0;
            for number in 0..4 {
                sum += read(&fabric, at(0, 8 * number)).await;
            }
            assert_eq!(sum, 64 * 20);
        });
    }
}

/// Polls a future once and drops it.
async fn begin<T>(future: impl Future<Output = T>) {
    let mut future = pin!(future);
    poll_fn(|context| {
        let _ = future.as_mut().poll(context);
        Poll::Ready(())
    })
    .await;
}

fn dropped(peers: &Peers) {
    for spin in [Duration::ZERO, Duration::from_micros(100)] {
        let config = VerbsConfig { spin, ..VerbsConfig::default() };
        worker(peers, config, async |fabric| {
            write(&fabric, at(0, 0), &[0]).await;
            let fabric = Rc::new(fabric);
            // Somebody waits all the time, often led by a future that is then dropped.
            let waits = fabric.clone();
            let waiter = tokio::task::spawn_local(async move {
                for _ in 0..200 {
                    read(&waits, at(0, 0)).await;
                }
            });
            for _ in 0..200 {
                let mut batch = fabric.batch();
                batch.faa(at(0, 0), 1);
                batch.read(at(0, 0), 1 << 16);
                begin(fabric.run(batch)).await;
                tokio::task::yield_now().await;
            }
            waiter.await.expect("it does not panic");
            assert_eq!(read(&fabric, at(0, 0)).await, 200, "all were run");
            let mut batch = fabric.batch();
            batch.read(at(0, 0), 1 << 20);
            // And the fabric itself ends with a verb under way.
            begin(fabric.run(batch)).await;
        });
    }
}

fn atomics(peers: &Peers) {
    worker(peers, VerbsConfig::default(), async |fabric| {
        write(&fabric, at(0, 0), &[0; 2]).await;
    });
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                worker(peers, VerbsConfig::default(), async |fabric| {
                    for _ in 0..ROUNDS / 4 {
                        let mut batch = fabric.batch();
                        batch.faa(at(0, 0), 3);
                        fabric.recycle(fabric.run(batch).await);
                        loop {
                            let old = read(&fabric, at(0, 8)).await;
                            let mut batch = fabric.batch();
                            let cas = batch.cas(at(0, 8), old, old + 1);
                            let batch = fabric.run(batch).await;
                            if batch.word(cas) == Ok(old) {
                                break;
                            }
                        }
                    }
                });
            });
        }
    });
    worker(peers, VerbsConfig::default(), async |fabric| {
        assert_eq!(read(&fabric, at(0, 0)).await, 3 * 3 * (ROUNDS / 4));
        assert_eq!(read(&fabric, at(0, 8)).await, 3 * (ROUNDS / 4));
    });
}

fn bytes_of_a_word(peers: &Peers) {
    worker(peers, VerbsConfig::default(), async |fabric| {
        write(&fabric, at(0, 8), &[0]).await;
    });
    std::thread::scope(|scope| {
        for byte in 0..3u64 {
            scope.spawn(move || {
                worker(peers, VerbsConfig::default(), async |fabric| {
                    for n in 0..ROUNDS / 4 {
                        let mut batch = fabric.batch();
                        batch.write_byte(at(0, 8 + byte), n as u8);
                        let ticket = batch.read(at(0, 8), 8);
                        let batch = fabric.run(batch).await;
                        let word = batch.word(ticket).unwrap();
                        assert_eq!((word >> (8 * byte)) as u8, n as u8, "nobody else writes it");
                        assert_eq!(word >> 32, 0);
                        fabric.recycle(batch);
                    }
                });
            });
        }
    });
}

/// Lets two threads do something at almost the same moment, again and again.
struct Gate(AtomicUsize);

impl Gate {
    fn pass(&self) {
        let mine = self.0.fetch_add(1, Ordering::SeqCst) / 2;
        while self.0.load(Ordering::SeqCst) < (mine + 1) * 2 {
            std::thread::yield_now();
        }
    }
}

/// Two clients each store to a word of their own and then READ the other's; none of
/// the rounds may end with neither having seen the other.
fn one_sees_the_other(
    peers: &Peers,
    store_and_read: impl AsyncFn(&VerbsFabric, NodeAddress, NodeAddress) -> u64 + Sync,
) {
    worker(peers, VerbsConfig::default(), async |fabric| {
        write(&fabric, at(0, 0), &[0]).await;
        write(&fabric, at(0, 4096), &[0]).await;
    });
    let gate = Gate(AtomicUsize::new(0));
    let run = |mine: u64, other: u64| {
        worker(peers, VerbsConfig::default(), async |fabric| {
            let mut seen = Vec::new();
            for _ in 0..ROUNDS {
                gate.pass();
                seen.push(store_and_read(&fabric, at(0, mine), at(0, other)).await);
                gate.pass();
                write(&fabric, at(0, mine), &[0]).await;
            }
            seen
        })
    };
    let missed = std::thread::scope(|scope| {
        let first = scope.spawn(|| run(0, 4096));
        let second = run(4096, 0);
        let first = first.join().expect("it does not panic");
        first.iter().zip(&second).filter(|&(&a, &b)| a == 0 && b == 0).count()
    });
    assert_eq!(missed, 0);
}

fn write_then_read(peers: &Peers) {
    one_sees_the_other(peers, async |fabric, mine, other| {
        let mut batch = fabric.batch();
        let one = stage(&mut batch, &[1]);
        batch.write(mine, one);
        let ticket = batch.read(other, 8);
        let batch = fabric.run(batch).await;
        let seen = batch.word(ticket).unwrap();
        fabric.recycle(batch);
        seen
    });
}

fn vote_then_read(peers: &Peers) {
    one_sees_the_other(peers, async |fabric, mine, other| {
        let mut batch = fabric.batch();
        batch.cas(mine, 0, 1);
        batch.fence();
        let ticket = batch.read(other, 8);
        let batch = fabric.run(batch).await;
        let seen = batch.word(ticket).unwrap();
        fabric.recycle(batch);
        seen
    });
}

fn object_before_slot(peers: &Peers) {
    const OBJECT: u64 = 8192;
    for by_cas in [false, true] {
        worker(peers, VerbsConfig::default(), async |fabric| {
            write(&fabric, at(0, 0), &[0]).await;
            write(&fabric, at(0, OBJECT), &[0; 17]).await;
        });
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                worker(peers, VerbsConfig::default(), async |fabric| {
                    for version in 1..=ROUNDS {
                        let mut batch = fabric.batch();
                        let object = stage(&mut batch, &[version; 17]);
                        batch.write(at(0, OBJECT), object);
                        if by_cas {
                            batch.cas(at(0, 0), version - 1, version);
                        } else {
                            let slot = stage(&mut batch, &[version]);
                            batch.write(at(0, 0), slot);
                        }
                        fabric.recycle(fabric.run(batch).await);
                    }
                });
                done.store(true, Ordering::SeqCst);
            });
            worker(peers, VerbsConfig::default(), async |fabric| {
                while !done.load(Ordering::SeqCst) {
                    let version = read(&fabric, at(0, 0)).await;
                    let mut batch = fabric.batch();
                    let ticket = batch.read(at(0, OBJECT), 17 * 8);
                    let batch = fabric.run(batch).await;
                    let object = batch.words(ticket).unwrap();
                    assert!(object.iter().all(|&word| word >= version), "{object:?}, {version}");
                    fabric.recycle(batch);
                }
                assert_eq!(read(&fabric, at(0, 0)).await, ROUNDS);
            });
        });
    }
}
