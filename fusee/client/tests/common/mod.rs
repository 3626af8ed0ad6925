//! A store on a pool within this process.
#![allow(dead_code, reason = "each test program uses its part")]

use fusee::{Env, Key, Store, StoreConfig};
use fusee_fabric::tcp::{TcpFabric, TcpPeer, TcpServer, Token};
use fusee_fabric::{Fabric, ShmFabric, ShmNode};
use fusee_layout::PoolParams;
use mnd::EmbeddedPool;
use std::cell::Cell;
use std::net::TcpListener;
use std::sync::Arc;
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

pub(crate) type TestStore<F = ShmFabric> = Store<F, TestEnv>;

pub(crate) fn pool(memory: u64, nodes: u16, replicas: u8) -> EmbeddedPool {
    EmbeddedPool::create(PoolParams::for_memory(memory, nodes, replicas, 7).unwrap()).unwrap()
}

/// A pool by one kind of fabric.
pub(crate) trait Way {
    type Fabric: Fabric;

    fn to(pool: &EmbeddedPool) -> Self;

    fn pool(&self) -> &EmbeddedPool;

    async fn fabric(&self) -> Self::Fabric;
}

/// Shared memory.
pub(crate) struct Shm(EmbeddedPool);

impl Way for Shm {
    type Fabric = ShmFabric;

    fn to(pool: &EmbeddedPool) -> Self {
        Self(pool.clone())
    }

    fn pool(&self) -> &EmbeddedPool {
        &self.0
    }

    async fn fabric(&self) -> ShmFabric {
        self.0.fabric()
    }
}

/// TCP, with a server for each memory node.
pub(crate) struct Tcp(EmbeddedPool, Vec<TcpServer>);

const TOKEN: Token = Token::new([1; 16]);

impl Way for Tcp {
    type Fabric = TcpFabric;

    fn to(pool: &EmbeddedPool) -> Self {
        let serve = |(number, node): (u16, &Arc<ShmNode>)| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let server = TcpServer::start(listener, number, node.clone(), 1, None).unwrap();
            server.admit(TOKEN);
            server
        };
        Self(pool.clone(), (0..).zip(pool.nodes()).map(serve).collect())
    }

    fn pool(&self) -> &EmbeddedPool {
        &self.0
    }

    async fn fabric(&self) -> TcpFabric {
        let peer =
            |server: &TcpServer| TcpPeer { address: server.address(), token: TOKEN, tls: None };
        let patient = Duration::from_secs(20);
        let peers = self.1.iter().map(peer).collect();
        TcpFabric::connect_within(peers, self.0.controls(), patient).await
    }
}

pub(crate) async fn store_by<W: Way>(way: &W, index_cache_entries: usize) -> TestStore<W::Fabric> {
    let config = StoreConfig { index_cache_entries };
    let geometry = way.pool().geometry().clone();
    Store::join(way.fabric().await, TestEnv::default(), geometry, config).await.unwrap()
}

pub(crate) async fn store_with(pool: &EmbeddedPool, index_cache_entries: usize) -> TestStore {
    store_by(&Shm::to(pool), index_cache_entries).await
}

pub(crate) async fn store(pool: &EmbeddedPool) -> TestStore {
    store_with(pool, 1 << 12).await
}

pub(crate) fn key(name: &[u8]) -> Key<'_> {
    Key { database: 0, name }
}

pub(crate) async fn get<F: Fabric>(store: &TestStore<F>, name: &[u8]) -> Option<Vec<u8>> {
    let mut value = None;
    store.read(&[key(name)], |_, entry| value = entry.unwrap().map(|e| e.value.to_vec())).await;
    value
}

/// What an operation returns and how many round trips it took.
pub(crate) async fn count<F: Fabric, T>(
    store: &TestStore<F>,
    operation: impl Future<Output = T>,
) -> (T, u64) {
    let before = store.fabric().counters().batches();
    let result = operation.await;
    (result, store.fabric().counters().batches() - before)
}

/// Runs a test's future as a worker would.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())
        .unwrap();
    runtime.block_on(future)
}
