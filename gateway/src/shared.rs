//! What all workers of a process see.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::client::Clients;
use crate::settings::Settings;
use crate::stats::WorkerStats;

/// The Redis version whose behaviour this is.
pub(crate) const REDIS_VERSION: &str = "7.2.4";
/// Our own version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// One for the whole process.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) clients: Clients,
    /// By worker.
    pub(crate) stats: Vec<Arc<WorkerStats>>,
    /// The counts at the last CONFIG RESETSTAT, from which INFO counts.
    pub(crate) baseline: Mutex<crate::command::info::Totals>,
    pub(crate) port: u16,
    /// 40 hexadecimal digits that name this run.
    pub(crate) run_id: String,
    started: Instant,
}

impl Shared {
    #[expect(clippy::disallowed_methods, reason = "the uptime is of this process, not of the pool")]
    pub(crate) fn new(settings: Settings, workers: usize, port: u16) -> Self {
        let started_ms = unix_ms();
        let seed = (started_ms << 22) ^ u64::from(std::process::id());
        let run_id = (0..5)
            .map(|part| {
                format!("{:08x}", rapidhash::v3::rapidhash_v3(&(seed + part).to_le_bytes()) as u32)
            })
            .collect();
        Self {
            settings,
            clients: Clients::default(),
            stats: (0..workers).map(|_| Arc::default()).collect(),
            baseline: Mutex::default(),
            port,
            run_id,
            started: Instant::now(),
        }
    }

    pub(crate) fn uptime_s(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    /// The counts since the last reset.
    pub(crate) fn totals(&self) -> crate::command::info::Totals {
        let baseline = self.baseline.lock().unwrap_or_else(PoisonError::into_inner);
        crate::command::info::Totals::sum(&self.stats).since(&baseline)
    }
}

/// The time of day, for what people read; expiry goes by the keyspace's clock.
#[expect(clippy::disallowed_methods, reason = "TIME, INFO and CLIENT LIST tell the time of day")]
pub(crate) fn unix_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_micros() as u64
}

pub(crate) fn unix_ms() -> u64 {
    unix_us() / 1000
}
