//! A store on a pool within this process.
#![allow(dead_code, reason = "each test program uses its part")]

use fusee::{Env, Key, Store, StoreConfig};
use fusee_fabric::{Fabric, ShmFabric};
use fusee_layout::PoolParams;
use mnd::EmbeddedPool;
use std::cell::Cell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The system's clock plus what a test adds to it.
#[derive(Default)]
pub(crate) struct TestEnv {
    pub(crate) ahead_ms: Cell<u64>,
    seed: Cell<u64>,
}

impl Env for TestEnv {
    #[expect(clippy::disallowed_methods, reason = "these stores run in real time")]
    fn now_ms(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        now.as_millis() as u64 + self.ahead_ms.get()
    }

    async fn sleep_us(&self, us: u64) {
        tokio::time::sleep(Duration::from_micros(us)).await;
    }

    fn random(&self) -> u64 {
        let next =
            self.seed.get().wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.seed.set(next);
        next >> 33
    }
}

pub(crate) type TestStore = Store<ShmFabric, TestEnv>;

pub(crate) fn pool(memory: u64, nodes: u16, replicas: u8) -> EmbeddedPool {
    EmbeddedPool::create(PoolParams::for_memory(memory, nodes, replicas, 7).unwrap()).unwrap()
}

pub(crate) async fn store_with(pool: &EmbeddedPool, index_cache_entries: usize) -> TestStore {
    let config = StoreConfig { index_cache_entries };
    Store::join(pool.fabric(), TestEnv::default(), pool.geometry().clone(), config).await.unwrap()
}

pub(crate) async fn store(pool: &EmbeddedPool) -> TestStore {
    store_with(pool, 1 << 12).await
}

pub(crate) fn key(name: &[u8]) -> Key<'_> {
    Key { database: 0, name }
}

pub(crate) async fn get(store: &TestStore, name: &[u8]) -> Option<Vec<u8>> {
    let mut value = None;
    store.read(&[key(name)], |_, entry| value = entry.unwrap().map(|e| e.value.to_vec())).await;
    value
}

/// What an operation returns and how many round trips it took.
pub(crate) async fn count<T>(store: &TestStore, operation: impl Future<Output = T>) -> (T, u64) {
    let before = store.fabric().counters().batches();
    let result = operation.await;
    (result, store.fabric().counters().batches() - before)
}

/// Runs a test's future as a worker would.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}
