//! A store on shared memory does what it says, for every number of replicas.

mod common;

use common::{TestStore, get, key, pool, run, store};
use fusee::{BlockAudit, Decision, Error, Key, Kind, ObjectState, SYSTEM_DATABASE, Setting};
use fusee_fabric::Fabric;
use fusee_layout::{POOL_VERSION, PoolParams, Slot, Unverified};
use mnd::EmbeddedPool;
use std::collections::{HashMap, HashSet};

const SMALL: u64 = 64 << 20;

async fn incr(store: &TestStore, name: &[u8]) -> i64 {
    let mut result = 0;
    let add = |current: Option<fusee::Entry<'_>>, value: &mut Vec<u8>| {
        let now = current.map_or(0, |e| str::from_utf8(e.value).unwrap().parse::<i64>().unwrap());
        result = now + 1;
        value.extend_from_slice(result.to_string().as_bytes());
        Decision::Replace { kind: Kind::String, expires_at_ms: None }
    };
    store.update(key(name), add).await.unwrap();
    result
}

#[test]
fn a_key_is_what_was_set_last_until_it_is_deleted() {
    for replicas in 1..=4 {
        run(async {
            let pool = pool(SMALL, 4, replicas);
            let store = store(&pool).await;
            assert_eq!(get(&store, b"a").await, None);
            for value in [&b"1"[..], b"", b"a longer one", b"1"] {
                store.set(key(b"a"), value, None).await.unwrap();
                assert_eq!(get(&store, b"a").await.as_deref(), Some(value));
            }
            assert_eq!(store.len(0).await, Ok(1));
            assert_eq!(store.delete(key(b"a")).await, Ok(true));
            assert_eq!(store.delete(key(b"a")).await, Ok(false));
            assert_eq!(get(&store, b"a").await, None);
            assert_eq!(store.len(0).await, Ok(0));
            store.set(key(b"a"), b"again", None).await.unwrap();
            assert_eq!(get(&store, b"a").await.as_deref(), Some(&b"again"[..]));
        });
    }
}

#[test]
fn random_operations_agree_with_a_map() {
    for replicas in 1..=4 {
        run(async {
            let pool = pool(SMALL, 4, replicas);
            let stores = [store(&pool).await, store(&pool).await];
            let mut map: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
            let mut seed = 12345u64 + u64::from(replicas);
            let mut random = move |below: u64| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (seed >> 33) % below
            };
            for step in 0..40_000u64 {
                let store = &stores[random(2) as usize];
                let name = format!("key:{}", random(500)).into_bytes();
                match random(6) {
                    0 | 1 => {
                        let bytes = random(600) as usize;
                        let value = vec![step as u8; bytes];
                        store.set(key(&name), &value, None).await.unwrap();
                        map.insert(name, value);
                    }
                    2 => {
                        let existed = map.remove(&name).is_some();
                        assert_eq!(store.delete(key(&name)).await, Ok(existed), "step {step}");
                    }
                    3 => {
                        let mut seen = None;
                        store
                            .update(key(&name), |current, value| {
                                seen = current.map(|e| e.value.to_vec());
                                value.extend_from_slice(current.map_or(&b""[..], |e| e.value));
                                value.push(b'+');
                                Decision::Replace { kind: Kind::String, expires_at_ms: None }
                            })
                            .await
                            .unwrap();
                        assert_eq!(seen, map.get(&name).cloned(), "step {step}");
                        map.entry(name).or_default().push(b'+');
                    }
                    _ => {
                        assert_eq!(get(store, &name).await, map.get(&name).cloned(), "step {step}");
                    }
                }
                if step % 16 == 0 {
                    for store in &stores {
                        store.maintain().await.unwrap();
                    }
                }
            }
            assert_eq!(stores[0].len(0).await, Ok(map.len() as u64));
            let mut cursor = 0;
            let mut seen = Vec::new();
            loop {
                cursor = stores[1].scan(0, cursor, 10, |k, _| seen.push(k.to_vec())).await.unwrap();
                if cursor == 0 {
                    break;
                }
            }
            seen.sort();
            let mut expected: Vec<_> = map.keys().cloned().collect();
            expected.sort();
            assert_eq!(seen, expected);
            stores[0].flush(None).await.unwrap();
            assert_eq!(stores[1].len(0).await, Ok(0));
        });
    }
}

#[test]
fn many_keys_are_read_in_the_order_asked() {
    run(async {
        let pool = pool(SMALL, 1, 1);
        let store = store(&pool).await;
        let names: Vec<Vec<u8>> = (0..100).map(|n| format!("k{n}").into_bytes()).collect();
        for name in names.iter().step_by(2) {
            store.set(key(name), name, None).await.unwrap();
        }
        let keys: Vec<Key<'_>> = names.iter().map(|n| key(n)).collect();
        for _ in 0..2 {
            let mut next = 0;
            store
                .read(&keys, |number, entry| {
                    assert_eq!(number, next);
                    next += 1;
                    let value = entry.unwrap().map(|e| e.value.to_vec());
                    let expected = number.is_multiple_of(2).then(|| names[number].clone());
                    assert_eq!(value, expected);
                })
                .await;
            assert_eq!(next, 100);
        }
    });
}

#[test]
fn large_values_come_back_and_their_memory_too() {
    for replicas in [1, 2] {
        run(async {
            let pool = pool(256 << 20, 2, replicas);
            let store = store(&pool).await;
            let value: Vec<u8> = (0..20_000_000u32).map(|n| (n / 7) as u8).collect();
            for round in 0..40 {
                let value = &value[..value.len() - round];
                store.set(key(b"large"), value, None).await.unwrap();
                assert!(get(&store, b"large").await.as_deref() == Some(value));
                for _ in 0..10 {
                    store.maintain().await.unwrap();
                }
            }
            assert_eq!(store.delete(key(b"large")).await, Ok(true));
            for _ in 0..20 {
                store.maintain().await.unwrap();
            }
            assert_eq!(store.stats().bytes_in_use.get(), 0);
        });
    }
}

#[test]
fn a_full_pool_refuses_sets_and_serves_reads_and_deletes_and_recovers() {
    for replicas in [1, 2] {
        run(async {
            let pool = pool(SMALL, 2, replicas);
            let store = store(&pool).await;
            let value = [7; 3000];
            let mut names = Vec::new();
            let error = loop {
                let name = names.len().to_string().into_bytes();
                match store.set(key(&name), &value, None).await {
                    Ok(()) => names.push(name),
                    Err(error) => break error,
                }
            };
            assert_eq!(error, Error::Full);
            assert!(names.len() * 3000 * usize::from(replicas) > (SMALL / 2) as usize);
            assert_eq!(incr_fails(&store).await, Error::Full);
            assert_eq!(get(&store, &names[5]).await.as_deref(), Some(&value[..]));
            for name in &names {
                assert_eq!(store.delete(key(name)).await, Ok(true));
            }
            tokio::time::sleep(std::time::Duration::from_millis(120)).await;
            for name in &names {
                store.set(key(name), &value, None).await.unwrap();
            }
        });
    }
}

async fn incr_fails(store: &TestStore) -> Error {
    let large = vec![1; 3000];
    store
        .update(key(b"new"), |_, value| {
            value.extend_from_slice(&large);
            Decision::Replace { kind: Kind::String, expires_at_ms: None }
        })
        .await
        .unwrap_err()
}

#[test]
fn keys_end_when_their_time_comes_and_the_sweep_removes_them() {
    run(async {
        let pool = pool(SMALL, 1, 1);
        let store = store(&pool).await;
        let at = fusee::Env::now_ms(store.env()) + 10_000;
        for n in 0..200 {
            store
                .set(key(format!("k{n}").as_bytes()), b"v", Some(at + n % 2 * 100_000))
                .await
                .unwrap();
        }
        assert_eq!(get(&store, b"k0").await.as_deref(), Some(&b"v"[..]));
        store.env().ahead_ms.set(20_000);
        assert_eq!(get(&store, b"k0").await, None);
        assert_eq!(get(&store, b"k1").await.as_deref(), Some(&b"v"[..]));
        assert_eq!(store.delete(key(b"k0")).await, Ok(false), "it is over");
        for _ in 0..20 {
            store.maintain().await.unwrap();
        }
        assert_eq!(store.len(0).await, Ok(100));
        assert_eq!(store.stats().expired.get(), 100);
    });
}

#[test]
fn databases_do_not_see_each_other() {
    run(async {
        let pool = pool(SMALL, 1, 1);
        let store = store(&pool).await;
        for database in 0..16 {
            let key = Key { database, name: b"same" };
            store.set(key, &[database], None).await.unwrap();
        }
        assert_eq!(store.delete(Key { database: 3, name: b"same" }).await, Ok(true));
        for database in 0..16u8 {
            let mut value = None;
            let key = Key { database, name: b"same" };
            store.read(&[key], |_, e| value = e.unwrap().map(|e| e.value[0])).await;
            assert_eq!(value, (database != 3).then_some(database));
            assert_eq!(store.len(database).await, Ok(u64::from(database != 3)));
        }
        store.flush(Some(5)).await.unwrap();
        assert_eq!(store.len(5).await, Ok(0));
        assert_eq!(store.len(6).await, Ok(1));
    });
}

#[test]
fn increments_of_several_workers_are_not_lost() {
    for replicas in 1..=4 {
        let pool = pool(SMALL, 4, replicas);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    run(async {
                        let store = store(&pool).await;
                        for n in 0..4000 {
                            incr(&store, format!("counter{}", n % 3).as_bytes()).await;
                            if n % 8 == 0 {
                                store.maintain().await.unwrap();
                            }
                        }
                        store.leave().await.unwrap();
                    });
                });
            }
        });
        run(async {
            let store = store(&pool).await;
            let mut sum = 0;
            for n in 0..3 {
                let value = get(&store, format!("counter{n}").as_bytes()).await.unwrap();
                sum += String::from_utf8(value).unwrap().parse::<u64>().unwrap();
            }
            assert_eq!(sum, 12_000, "{replicas} replicas");
        });
    }
}

#[test]
fn lengths_beyond_the_limits_are_refused() {
    run(async {
        let pool = pool(SMALL, 1, 1);
        let store = store(&pool).await;
        let limit = store.key_bytes_max();
        let long = vec![b'k'; limit + 1];
        assert_eq!(store.set(key(&long), b"", None).await, Err(Error::KeyTooLong { limit }));
        store.set(key(&long[1..]), b"v", None).await.unwrap();
        assert_eq!(get(&store, &long[1..]).await.as_deref(), Some(&b"v"[..]));
        assert_eq!(get(&store, &long).await, None);
        assert_eq!(store.delete(key(&long)).await, Ok(false));
        let limit = store.value_bytes_max(1);
        let large = vec![0; limit + 1];
        let refused = store.set(key(b"k"), &large, None).await;
        assert_eq!(refused, Err(Error::ValueTooLong { limit }));
    });
}

/// A node that holds copies of some objects, but not of their slots, is down.
#[test]
fn what_is_acknowledged_is_in_every_replica_also_when_a_node_is_down() {
    for replicas in [1, 2] {
        run(writes_while_a_node_is_down(replicas, false));
        run(writes_while_a_node_is_down(replicas, true));
    }
}

async fn writes_while_a_node_is_down(replicas: u8, as_series: bool) {
    let pool = EmbeddedPool::create(PoolParams {
        version: POOL_VERSION,
        nodes: 4,
        replicas,
        node_bytes: 16 << 20,
        region_bytes: 1 << 20,
        block_bytes: 64 << 10,
        clients_max: 8,
        index_regions: 1,
        subtables: 1,
        groups: 500,
        hash_seed: 3,
    });
    let pool = pool.unwrap();
    let store = store(&pool).await;
    let names: Vec<Vec<u8>> = (0..400).map(|n| format!("key{n}").into_bytes()).collect();
    let after = [b'a'; 1000];
    for name in &names {
        store.set(key(name), b"before", None).await.unwrap();
    }
    let geometry = pool.geometry();
    let holds_index = |node: u16| {
        let subtables = (0..geometry.params.subtables).map(|n| geometry.subtable(n));
        subtables.flat_map(|at| geometry.placement.locate_all(at)).any(|at| at.node == node)
    };
    let down = (0..4).find(|&node| !holds_index(node)).expect("a node without slots");
    // The next objects are of a block that the node has a copy of.
    for number in 0.. {
        store.set(key(format!("warm{number}").as_bytes()), &after, None).await.unwrap();
        let began = |block: &BlockAudit| {
            let used = block.objects.iter().filter(|&&o| o != ObjectState::Free).count();
            let large = block.layout.class.bytes() > after.len();
            large
                && used == 1
                && geometry.placement.locate_all(block.address).any(|at| at.node == down)
        };
        if store.audit().iter().any(began) {
            break;
        }
    }
    pool.set_down(down, true);
    let setting = |name| Setting { key: key(name), value: &after, expires_at_ms: None };
    let mut results = Vec::new();
    if as_series {
        let series: Vec<Setting<'_>> = names.iter().map(|name| setting(name)).collect();
        store.set_each(&series, |_, result| results.push(result)).await;
    } else {
        for name in &names {
            results.push(store.set(key(name), &after, None).await);
        }
    }
    pool.set_down(down, false);
    let done = names.iter().zip(&results).filter(|(_, result)| result.is_ok());
    let done: HashSet<&[u8]> = done.map(|(name, _)| name.as_slice()).collect();
    let failed = Err(Error::NodeDown { node: down });
    assert!(results.iter().all(|&result| result == Ok(()) || result == failed));
    assert!(!done.is_empty());

    // Drafts that did not get into all replicas were given up for others.
    let mut whole = HashSet::new();
    for block in store.audit() {
        for (number, state) in (0..).zip(&block.objects) {
            let ObjectState::InUse(generation) = *state else { continue };
            let address = block.layout.object(block.address, number);
            let word = Slot::live(0, block.layout.class, generation, address);
            let mut batch = store.fabric().batch();
            for at in pool.geometry().placement.locate_all(address) {
                batch.read(at, word.class().bytes());
            }
            let batch = store.fabric().run(batch).await;
            let mut copies = batch.tickets().map(|ticket| {
                let object = Unverified::new(batch.bytes(ticket).unwrap()).verify(word);
                object.filter(|o| o.body == after).map(|o| o.key.to_vec())
            });
            let first = copies.next().unwrap();
            if copies.all(|copy| copy == first) {
                whole.extend(first);
            }
        }
    }
    for name in done {
        assert!(whole.contains(name), "{}", String::from_utf8_lossy(name));
    }
}

#[test]
fn keys_of_the_system_are_not_counted_and_stay_when_all_are_removed() {
    for replicas in [1, 2] {
        run(async {
            let pool = pool(SMALL, 2, replicas);
            let store = store(&pool).await;
            let system = Key { database: SYSTEM_DATABASE, name: b"a" };
            store.set(system, b"1", None).await.unwrap();
            store.set(system, b"2", None).await.unwrap();
            store.set(key(b"a"), b"3", None).await.unwrap();
            assert_eq!(store.len(0).await, Ok(1));
            store.flush(None).await.unwrap();
            assert_eq!(store.len(0).await, Ok(0));
            assert!(!store.delete(key(b"a")).await.unwrap());
            let mut seen = None;
            store
                .read(&[system], |_, entry| {
                    seen = entry.unwrap().map(|entry| entry.value.to_vec());
                })
                .await;
            assert_eq!(seen.as_deref(), Some(&b"2"[..]));
            assert_eq!(store.delete(system).await, Ok(true));
        });
    }
}
