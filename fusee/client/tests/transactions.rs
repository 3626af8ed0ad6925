//! Transactions over several keys, for every number of replicas.

mod common;

use common::{TestStore, get, key, pool, run, store};
use fusee::{Error, Kind, Transaction};
use fusee_fabric::ShmFabric;
use fusee_layout::PoolParams;
use mnd::EmbeddedPool;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const SMALL: u64 = 64 << 20;

type Running = Rc<Transaction<ShmFabric, common::TestEnv>>;

async fn number(transaction: &Running, name: &[u8]) -> Result<i64, Error> {
    let parse = |value: &[u8]| str::from_utf8(value).unwrap().parse().unwrap();
    transaction.read(key(name), |entry| entry.map_or(0, |e| parse(e.value))).await
}

async fn set(transaction: &Running, name: &[u8], value: &[u8]) {
    transaction.set(key(name), value, Kind::String, None).await.unwrap();
}

/// Ends what is on its way to reuse, and tells how many bytes of objects are in use.
async fn bytes_in_use(store: &TestStore) -> u64 {
    for _ in 0..50 {
        store.maintain().await.unwrap();
    }
    store.stats().bytes_in_use.get()
}

#[test]
fn what_is_written_together_is_there_together_and_nothing_else_stays() {
    for replicas in 1..=4 {
        run(async {
            let pool = pool(SMALL, 4, replicas);
            let store = Rc::new(store(&pool).await);
            store.set(key(b"old"), b"1", None).await.unwrap();
            store.set(key(b"kept"), &[7; 100_000], None).await.unwrap();
            let before = bytes_in_use(&store).await;
            let result = store.transact(async |t| {
                assert_eq!(number(t, b"old").await?, 1);
                assert_eq!(t.read(key(b"kept"), |e| e.unwrap().value.len()).await?, 100_000);
                assert!(t.read(key(b"absent"), |e| e.is_none()).await?);
                assert!(t.delete(key(b"old")).await?);
                assert!(!t.delete(key(b"old")).await?, "own writes are seen");
                set(t, b"new", b"2").await;
                set(t, b"large", &vec![9; 700_000]).await;
                assert_eq!(number(t, b"new").await?, 2);
                Ok(5)
            });
            assert_eq!(result.await, Ok(5));
            assert_eq!(get(&store, b"old").await, None);
            assert_eq!(get(&store, b"absent").await, None);
            assert_eq!(get(&store, b"new").await.as_deref(), Some(&b"2"[..]));
            assert_eq!(get(&store, b"kept").await, Some(vec![7; 100_000]));
            assert_eq!(get(&store, b"large").await, Some(vec![9; 700_000]));
            assert_eq!(store.len(0).await, Ok(3));
            assert_eq!(store.stats().transactions.get(), 1);
            let emptied = store.transact(async |t| {
                t.delete(key(b"large")).await?;
                t.delete(key(b"new")).await?;
                set(t, b"old", b"1").await;
                Ok(())
            });
            emptied.await.unwrap();
            // An intent is a little longer than what a plain write leaves.
            store.set(key(b"old"), b"1", None).await.unwrap();
            store.set(key(b"kept"), &[7; 100_000], None).await.unwrap();
            assert_eq!(bytes_in_use(&store).await, before, "{replicas} replicas");
        });
    }
}

#[test]
fn nothing_is_written_when_it_fails() {
    run(async {
        let pool = pool(SMALL, 2, 2);
        let store = Rc::new(store(&pool).await);
        let failed: Result<(), Error> = store
            .transact(async |t| {
                set(t, b"a", b"1").await;
                set(t, b"b", b"1").await;
                Err(Error::Full)
            })
            .await;
        assert_eq!(failed, Err(Error::Full));
        assert_eq!((get(&store, b"a").await, get(&store, b"b").await), (None, None));
    });
}

#[test]
fn a_large_value_for_which_the_index_has_no_slot_leaves_nothing() {
    run(async {
        let mut params = PoolParams::for_memory(SMALL, 1, 1, 7).unwrap();
        (params.groups, params.subtables) = (2, 1);
        let pool = EmbeddedPool::create(params).unwrap();
        let store = Rc::new(store(&pool).await);
        for number in 0..500 {
            let name = format!("taken{number}");
            let _ = store.set(key(name.as_bytes()), b"1", None).await;
        }
        let before = bytes_in_use(&store).await;
        let mut refused = 0;
        for number in 0..20 {
            let name = format!("large{number}");
            let write = async |t: &Running| {
                t.set(key(name.as_bytes()), &[1; 700_000], Kind::String, None).await
            };
            let alone = store.transact(write).await;
            let together = store.transact(async |t| {
                t.delete(key(b"taken1")).await?;
                write(t).await?;
                t.set(key(b"taken1"), b"1", Kind::String, None).await
            });
            for result in [alone, together.await] {
                if result.is_ok() {
                    store.delete(key(name.as_bytes())).await.unwrap();
                } else {
                    assert_eq!(result, Err(Error::IndexFull));
                    refused += 1;
                }
            }
        }
        assert!(refused > 0, "the index has room for all");
        assert_eq!(bytes_in_use(&store).await, before);
    });
}

#[test]
fn hundreds_of_new_keys_find_their_slots() {
    for replicas in [1, 2] {
        run(async {
            let pool = pool(SMALL, 2, replicas);
            let store = Rc::new(store(&pool).await);
            let names: Vec<String> = (0..800).map(|n| format!("key:{n}")).collect();
            let keys: Vec<_> = names.iter().map(|name| key(name.as_bytes())).collect();
            let all = store.transact(async |t| {
                t.look_at(&keys).await?;
                for name in &names {
                    set(t, name.as_bytes(), name.as_bytes()).await;
                }
                Ok(())
            });
            all.await.unwrap();
            assert_eq!(store.stats().transactions_retried.get(), 0);
            for name in &names {
                assert_eq!(get(&store, name.as_bytes()).await.as_deref(), Some(name.as_bytes()));
            }
        });
    }
}

#[test]
fn money_that_several_workers_move_is_always_all_there() {
    const ACCOUNTS: u64 = 6;
    const EACH: i64 = 100;
    for replicas in 1..=3 {
        let pool = pool(SMALL, 3, replicas);
        let name = |number: u64| format!("account:{number}");
        run(async {
            let store = store(&pool).await;
            for number in 0..ACCOUNTS {
                store.set(key(name(number).as_bytes()), b"100", None).await.unwrap();
            }
        });
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let movers: Vec<_> = (0..2u64)
                .map(|worker| {
                    let (pool, name) = (&pool, &name);
                    scope.spawn(move || {
                        run(async {
                            let store = Rc::new(store(pool).await);
                            for round in 0..1500u64 {
                                let from = (round * 7 + worker) % ACCOUNTS;
                                let to = (from + 1 + round % (ACCOUNTS - 1)) % ACCOUNTS;
                                let (from, to) = (name(from), name(to));
                                let moved = store.transact(async |t| {
                                    let left = number(t, from.as_bytes()).await? - 1;
                                    let more = number(t, to.as_bytes()).await? + 1;
                                    if left == 0 {
                                        t.delete(key(from.as_bytes())).await?;
                                    } else {
                                        set(t, from.as_bytes(), left.to_string().as_bytes()).await;
                                    }
                                    set(t, to.as_bytes(), more.to_string().as_bytes()).await;
                                    Ok(())
                                });
                                moved.await.unwrap();
                                if round % 8 == 0 {
                                    store.maintain().await.unwrap();
                                }
                            }
                            store.leave().await.unwrap();
                        });
                    })
                })
                .collect();
            let (pool, name, done) = (&pool, &name, &done);
            let watcher = scope.spawn(move || {
                run(async {
                    let store = Rc::new(store(pool).await);
                    let mut sums = HashSet::new();
                    while !done.load(Relaxed) {
                        let sum = store.transact(async |t| {
                            let mut sum = 0;
                            for account in 0..ACCOUNTS {
                                sum += number(t, name(account).as_bytes()).await?;
                            }
                            Ok(sum)
                        });
                        sums.insert(sum.await.unwrap());
                        store.maintain().await.unwrap();
                    }
                    store.leave().await.unwrap();
                    sums
                })
            });
            for mover in movers {
                mover.join().unwrap();
            }
            done.store(true, Relaxed);
            let expected = HashSet::from([ACCOUNTS as i64 * EACH]);
            assert_eq!(watcher.join().unwrap(), expected, "{replicas} replicas");
        });
    }
}

#[test]
fn a_watched_key_is_unchanged_until_somebody_writes_it() {
    run(async {
        let pool = pool(SMALL, 2, 2);
        let store = Rc::new(store(&pool).await);
        let other = common::store(&pool).await;
        store.set(key(b"a"), b"1", None).await.unwrap();
        let (a, b) = (store.watch(key(b"a")).await.unwrap(), store.watch(key(b"b")).await.unwrap());
        let unchanged =
            async |watched| store.transact(async |t| t.is_unchanged(watched).await).await.unwrap();
        for _ in 0..2000 {
            store.renew(&a).await.unwrap();
            store.renew(&b).await.unwrap();
            // Memory goes round, so that words could come back.
            other.set(key(b"c"), b"1", None).await.unwrap();
            other.maintain().await.unwrap();
            store.maintain().await.unwrap();
        }
        assert!(unchanged(&a).await && unchanged(&b).await);
        // The same value is a write, too.
        other.set(key(b"a"), b"1", None).await.unwrap();
        other.set(key(b"b"), b"1", None).await.unwrap();
        assert!(!unchanged(&a).await && !unchanged(&b).await);
        let late = store.watch(key(b"a")).await.unwrap();
        for _ in 0..500 {
            store.maintain().await.unwrap();
            other.maintain().await.unwrap();
        }
        assert!(!unchanged(&late).await, "nobody has looked at it for too long");
    });
}
