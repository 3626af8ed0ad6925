//! The embedded pool: memory nodes within this process.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use fusee::StoreConfig;
use fusee_fabric::ShmFabric;
use fusee_layout::{PoolParams, SizingError};
use mnd::{EmbeddedPool, PoolError};
use thiserror::Error;

use crate::config::Config;
use crate::metrics::Source;
use crate::store::{Pool, PoolStore};

/// Why there is no embedded pool.
#[derive(Debug, Error)]
pub enum EmbeddedError {
    /// The memory cannot be divided as asked.
    #[error("--memory, --memory-nodes and --replicas do not go together: {0}")]
    Sizing(#[from] SizingError),
    /// The system gives no memory.
    #[error(transparent)]
    Pool(#[from] PoolError),
}

/// A pool within this process.
#[derive(Clone)]
pub struct Embedded {
    memory: EmbeddedPool,
    pool: Pool,
}

impl Embedded {
    /// Makes the pool that the configuration describes, with a seed of its own:
    /// nobody can choose keys that all fall into one bucket.
    ///
    /// # Errors
    ///
    /// If the sizes are impossible or the system has no such memory.
    pub fn create(config: &Config) -> Result<Self, EmbeddedError> {
        let seed = random_seed();
        let params = PoolParams::for_memory(
            config.memory_bytes,
            config.memory_nodes,
            config.replicas,
            seed,
        )?;
        let memory = EmbeddedPool::create(params)?;
        let backing = memory.backings().next();
        tracing::info!(
            memory_bytes = config.memory_bytes,
            memory_nodes = config.memory_nodes,
            replicas = config.replicas,
            pages = ?backing,
            "embedded memory pool is ready"
        );
        let store = StoreConfig { index_cache_entries: config.index_cache };
        let nodes = memory.clone();
        let nodes = Arc::new(move || nodes.statistics().collect());
        let pool = Pool::new(memory.geometry().clone(), store, nodes);
        Ok(Self { memory, pool })
    }

    /// A store for the worker that calls it.
    ///
    /// # Errors
    ///
    /// With the reason, if the pool takes no more clients.
    pub async fn store(&self) -> Result<PoolStore<ShmFabric>, String> {
        self.pool.store(self.memory.fabric()).await
    }

    /// What /metrics tells of the pool.
    pub fn source(&self) -> Source {
        self.pool.source()
    }
}

/// From the system's generator, which the standard library keys its maps with.
fn random_seed() -> u64 {
    RandomState::new().hash_one(0u64)
}
