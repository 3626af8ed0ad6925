//! What the store costs without sockets: one store, one thread, an embedded pool.
//!
//! `storebench [KEYS] [VALUE_BYTES] [REPLICAS] [ROUNDS]` prints nanoseconds per operation for GETs one
//! at a time and 16 together, and for SETs, over keys in a fixed random order.

use fusee::{Env, Key, Store, StoreConfig};
use fusee_layout::PoolParams;
use mnd::EmbeddedPool;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

struct BenchEnv;

impl Env for BenchEnv {
    fn now_ms(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
    }

    async fn sleep_us(&self, _: u64) {
        std::thread::yield_now();
    }

    fn random(&self) -> u64 {
        4
    }
}

#[expect(clippy::print_stdout, reason = "it is what the program is for")]
fn main() {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<usize>());
    let mut next = |default| arguments.next().map_or(default, |a| a.expect("a number"));
    let (keys, value_bytes, replicas, rounds) = (next(1_000_000), next(64), next(1), next(5));
    let bytes = (keys * (value_bytes + 200) * 2 * replicas).max(256 << 20) as u64;
    let params = PoolParams::for_memory(bytes, replicas as u16, replicas as u8, 7);
    let pool = EmbeddedPool::create(params.expect("it is large enough")).expect("memory");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let config = StoreConfig { index_cache_entries: keys };
        let store = Store::join(pool.fabric(), BenchEnv, pool.geometry().clone(), config);
        let store = store.await.expect("the pool is empty");
        let names: Vec<String> = (0..keys).map(|n| format!("key:{n:012}")).collect();
        let value = vec![b'v'; value_bytes];
        let order: Vec<usize> = (0..keys).map(|n| (n * 7_368_787) % keys).collect();
        let key = |n: usize| Key { database: 0, name: names[n].as_bytes() };
        for &n in &order {
            store.set(key(n), &value, None).await.expect("there is room");
        }
        for _ in 0..rounds {
            let one = time(async {
                for &n in &order {
                    store.read(&[key(n)], |_, e| assert!(e.expect("it is there").is_some())).await;
                }
            });
            let one = one.await;
            let many = time(async {
                for some in order.chunks(16) {
                    let mut keys = [key(0); 16];
                    for (to, &n) in keys.iter_mut().zip(some) {
                        *to = key(n);
                    }
                    store.read(&keys, |_, e| assert!(e.expect("it is there").is_some())).await;
                }
            });
            let many = many.await;
            let set = time(async {
                for (count, some) in order.chunks(16).enumerate() {
                    let mut keys = [key(0); 16];
                    for (to, &n) in keys.iter_mut().zip(some) {
                        *to = key(n);
                    }
                    store.prefetch(&keys);
                    for key in keys {
                        store.set(key, &value, None).await.expect("there is room");
                    }
                    if count % 64 == 0 {
                        store.maintain().await.expect("nothing is down");
                    }
                }
            });
            let set = set.await;
            let per = |time: Duration| time.as_nanos() as f64 / keys as f64;
            println!(
                "ns per operation: GET {:.0}, GET of 16 {:.0}, SET {:.0}",
                per(one),
                per(many),
                per(set)
            );
        }
    });
}

async fn time(work: impl Future<Output = ()>) -> Duration {
    let start = Instant::now();
    work.await;
    start.elapsed()
}
