//! Round trips per operation equal the table in DESIGN, on every fabric.

mod common;

use common::{Shm, Tcp, Way, count, get, key, pool, run, store_by};
use fusee::{Decision, Kind, Setting};
use std::cell::Cell;

#[test]
fn quiet_operations_on_shared_memory_cost_what_the_table_says() {
    quiet_operations::<Shm>();
}

#[test]
fn quiet_operations_on_tcp_cost_what_the_table_says() {
    quiet_operations::<Tcp>();
}

/// Index cache hit 1, miss 2; update 4 (cached) and 5; insert 4; with r = 1
/// there is no backup and no record: 2, 3, 3.
fn quiet_operations<W: Way>() {
    for (replicas, [update, update_uncached, insert]) in
        [(1, [2, 3, 3]), (2, [4, 5, 4]), (3, [4, 5, 4]), (4, [4, 5, 4])]
    {
        run(async {
            let way = W::to(&pool(64 << 20, 4, replicas));
            let store = store_by(&way, 1 << 12).await;
            let uncached = store_by(&way, 0).await;
            // The first object of a class takes a block; that is not the operation's cost.
            store.set(key(b"warm"), b"v", None).await.unwrap();
            uncached.set(key(b"warm"), b"v", None).await.unwrap();
            store.delete(key(b"warm")).await.unwrap();
            uncached.set(key(b"warm"), b"v", None).await.unwrap();
            uncached.delete(key(b"warm")).await.unwrap();

            assert_eq!(count(&store, store.set(key(b"a"), b"1", None)).await, (Ok(()), insert));
            assert_eq!(count(&store, get(&store, b"a")).await, (Some(b"1".to_vec()), 1), "hit");
            assert_eq!(count(&uncached, get(&uncached, b"a")).await.1, 2, "miss");
            assert_eq!(count(&store, get(&store, b"absent")).await, (None, 1), "no fingerprint");
            assert_eq!(count(&store, store.set(key(b"a"), b"2", None)).await, (Ok(()), update));
            let set = count(&uncached, uncached.set(key(b"a"), b"3", None)).await;
            assert_eq!(set, (Ok(()), update_uncached));
            get(&store, b"a").await;
            assert_eq!(count(&store, store.delete(key(b"a"))).await, (Ok(true), update));
            store.set(key(b"a"), b"4", None).await.unwrap();
            let delete = count(&uncached, uncached.delete(key(b"a"))).await;
            assert_eq!(delete, (Ok(true), update_uncached));

            // A conditional write: read, object, round.
            let round = if replicas == 1 { 1 } else { 3 };
            store.set(key(b"n"), b"1", None).await.unwrap();
            let incr = count(
                &store,
                store.update(key(b"n"), |_, value| {
                    value.push(b'2');
                    Decision::Replace { kind: Kind::String, expires_at_ms: None }
                }),
            );
            assert_eq!(incr.await, (Ok(()), 2 + round));
        });
    }
}

#[test]
fn a_pipeline_of_reads_costs_what_one_read_costs() {
    pipeline_of_reads::<Shm>();
    pipeline_of_reads::<Tcp>();
}

fn pipeline_of_reads<W: Way>() {
    run(async {
        let way = W::to(&pool(64 << 20, 1, 1));
        let store = store_by(&way, 1 << 12).await;
        let names: Vec<Vec<u8>> = (0..16).map(|n| format!("k{n}").into_bytes()).collect();
        for name in &names {
            store.set(key(name), b"v", None).await.unwrap();
        }
        let keys: Vec<_> = names.iter().map(|n| key(n)).collect();
        let read = store.read(&keys, |_, entry| assert!(entry.unwrap().is_some()));
        assert_eq!(count(&store, read).await.1, 1);
    });
}

#[test]
fn a_pipeline_of_reads_tells_of_each_key_in_turn_whatever_became_of_it() {
    // What comes after the changed key is read at once again.
    pipeline_of_any_keys::<Shm>(3);
    pipeline_of_any_keys::<Tcp>(2);
}

/// More keys than are looked up together; what the cache knows of some is no longer so.
fn pipeline_of_any_keys<W: Way>(with_one_changed: u64) {
    run(async {
        let way = W::to(&pool(64 << 20, 4, 2));
        let store = store_by(&way, 1 << 12).await;
        let other = store_by(&way, 1 << 12).await;
        let large = vec![b'l'; 2 << 20];
        let names: Vec<Vec<u8>> = (0..200).map(|n| format!("k{n}").into_bytes()).collect();
        for name in &names {
            store.set(key(name), name, None).await.unwrap();
        }
        for changed in [0, 1, 70, 130, 199] {
            other.set(key(&names[changed]), b"changed", None).await.unwrap();
        }
        for deleted in [2, 63, 64, 131] {
            other.delete(key(&names[deleted])).await.unwrap();
        }
        store.set(key(&names[100]), &large, None).await.unwrap();
        store.set(key(&names[101]), b"over", Some(1)).await.unwrap();
        let expected = |number: usize| match number {
            0 | 1 | 70 | 130 | 199 => Some(&b"changed"[..]),
            2 | 63 | 64 | 101 | 131 => None,
            100 => Some(&large[..]),
            _ => Some(&names[number][..]),
        };
        let keys: Vec<_> = names.iter().map(|name| key(name)).collect();
        for round in 0..2 {
            let next = Cell::new(0);
            let read = store.read(&keys, |number, entry| {
                assert_eq!(number, next.replace(number + 1), "in order");
                let entry = entry.unwrap().map(|entry| entry.value);
                assert!(entry == expected(number), "key {number} in round {round}");
            });
            read.await;
            assert_eq!(next.get(), keys.len());
        }
        for wanted in [1, 64, 65, 100, 150] {
            let seen = Cell::new(0);
            let read = store.read_while(&keys, |number, _| {
                seen.set(number + 1);
                number + 1 < wanted
            });
            read.await;
            assert_eq!(seen.get(), wanted, "no more than were wanted");
        }
        other.set(key(&names[10]), b"again", None).await.unwrap();
        let read = store.read(&keys[8..12], |_, entry| assert!(entry.unwrap().is_some()));
        assert_eq!(count(&store, read).await.1, with_one_changed);
        let read = store.read(&keys[8..12], |_, entry| assert!(entry.unwrap().is_some()));
        assert_eq!(count(&store, read).await.1, 1);
    });
}

/// r = 1: the objects and slots of all in one, then a CAS each; r >= 2: vote, record
/// and commit each. Whoever is not cached costs what it always does.
#[test]
fn a_series_of_sets_prepares_all_in_one_round_trip() {
    series_of_sets::<Shm>();
    series_of_sets::<Tcp>();
}

fn series_of_sets<W: Way>() {
    for (replicas, each) in [(1, 1), (2, 3), (3, 3)] {
        run(async {
            let way = W::to(&pool(64 << 20, 4, replicas));
            let store = store_by(&way, 1 << 12).await;
            let names: Vec<Vec<u8>> = (0..16).map(|n| format!("k{n}").into_bytes()).collect();
            let settings = |value: &'static [u8]| {
                let set = |name| Setting { key: key(name), value, expires_at_ms: None };
                names.iter().map(move |name| set(name)).collect::<Vec<_>>()
            };
            let done = Cell::new(0);
            let in_order = |number, result: Result<(), fusee::Error>| {
                assert_eq!((number, result), (done.get() % 16, Ok(())));
                done.set(done.get() + 1);
            };
            store.set_each(&settings(b"1"), in_order).await;
            let again = count(&store, store.set_each(&settings(b"2"), in_order)).await;
            assert_eq!(again.1, 1 + 16 * each);
            assert_eq!(done.get(), 32);
            for name in &names {
                assert_eq!(get(&store, name).await, Some(b"2".to_vec()));
            }
            // The second of one key finds that the slot has moved.
            let twice = [settings(b"3")[0], settings(b"4")[0]];
            store.set_each(&twice, |_, result| assert_eq!(result, Ok(()))).await;
            assert_eq!(get(&store, &names[0]).await, Some(b"4".to_vec()));
        });
    }
}
