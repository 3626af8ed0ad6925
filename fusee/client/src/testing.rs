//! Stores for tests within the crate.

use crate::{Env, Store, StoreConfig};
use fusee_fabric::ShmFabric;
use fusee_layout::PoolParams;
use mnd::EmbeddedPool;
use std::time::Duration;

/// Time that stands still, but for those who sleep.
pub(crate) struct RealTime;

impl Env for RealTime {
    fn now_ms(&self) -> u64 {
        1
    }

    async fn sleep_us(&self, us: u64) {
        tokio::time::sleep(Duration::from_micros(us)).await;
    }

    fn random(&self) -> u64 {
        7
    }
}

pub(crate) type TestStore = Store<ShmFabric, RealTime>;

pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(test);
}

pub(crate) fn pool() -> EmbeddedPool {
    EmbeddedPool::create(PoolParams::for_memory(64 << 20, 2, 2, 7).unwrap()).unwrap()
}

pub(crate) async fn store(pool: &EmbeddedPool) -> TestStore {
    let config = StoreConfig { index_cache_entries: 16 };
    Store::join(pool.fabric(), RealTime, pool.geometry().clone(), config).await.unwrap()
}

/// Lets all of them do what is due, until what was freed can be used again.
pub(crate) async fn rest(stores: &[&TestStore]) {
    for _ in 0..20 {
        for store in stores {
            store.maintain().await.unwrap();
        }
    }
}
