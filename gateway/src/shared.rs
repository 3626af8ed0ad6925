//! What all workers of a process see.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::acl::Acl;
use crate::channels::{Channels, Way};
use crate::client::{Client, Clients};
use crate::inbox::Message;
use crate::mesh::Mesh;
use crate::script::{Functions, ProgramKind, Running, Scripts};
use crate::settings::Settings;
use crate::slow::Slow;
use crate::stats::WorkerStats;

/// The Redis version whose behaviour this is.
pub(crate) const REDIS_VERSION: &str = "7.2.4";
/// Our own version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Why every request is looked at one by one: bits of [`Shared::watch`].
const PAUSED: u8 = 1;
const MONITORED: u8 = 2;
const TIMED: u8 = 4;
const BUSY: u8 = 8;
/// Below this many microseconds every command is timed by itself.
const TIMED_US_MAX: i64 = 1000;
/// Codes of errors that are counted one by one: scripts make them up.
const CODES_MAX: usize = 128;
/// Lines that wait for a client of MONITOR; more end it.
const MONITOR_BYTES_MAX: usize = 64 << 20;

/// Which commands wait while clients are paused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pause {
    All,
    Writes,
}

/// One for the whole process.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) acl: Acl,
    pub(crate) clients: Clients,
    pub(crate) channels: Channels,
    /// The other gateways of the pool.
    pub(crate) mesh: Mesh,
    pub(crate) slow: Slow,
    pub(crate) scripts: Scripts,
    /// The libraries of the pool, as they were seen last.
    pub(crate) functions: RwLock<Arc<Functions>>,
    monitors: Mutex<Vec<Arc<Client>>>,
    paused: Mutex<Option<(Pause, u64)>>,
    /// Whether requests have to be looked at one by one, and why. Relaxed: who
    /// sees it late ran before.
    watch: AtomicU8,
    /// A command that takes longer is noted; as nanoseconds.
    long_ns: AtomicU64,
    /// By worker.
    pub(crate) stats: Vec<Arc<WorkerStats>>,
    /// The counts at the last CONFIG RESETSTAT, from which INFO counts.
    baseline: Mutex<crate::command::info::Totals>,
    /// Errors since then whose codes have no kind of their own, by code.
    codes: Mutex<BTreeMap<Box<[u8]>, u64>>,
    pub(crate) port: u16,
    /// 40 hexadecimal digits that name this run.
    pub(crate) run_id: String,
    started: Instant,
}

impl Shared {
    #[expect(clippy::disallowed_methods, reason = "the uptime is of this process, not of the pool")]
    pub(crate) fn new(settings: Settings, acl: Acl, workers: usize, port: u16) -> Self {
        let started_ms = unix_ms();
        let seed = (started_ms << 22) ^ u64::from(std::process::id());
        let run_id = (0..5)
            .map(|part| {
                format!("{:08x}", rapidhash::v3::rapidhash_v3(&(seed + part).to_le_bytes()) as u32)
            })
            .collect();
        let this = Self {
            settings,
            acl,
            clients: Clients::default(),
            channels: Channels::default(),
            mesh: Mesh::default(),
            slow: Slow::default(),
            scripts: Scripts::default(),
            functions: RwLock::default(),
            monitors: Mutex::default(),
            paused: Mutex::default(),
            watch: AtomicU8::new(0),
            long_ns: AtomicU64::new(u64::MAX),
            stats: (0..workers).map(|_| Arc::default()).collect(),
            baseline: Mutex::default(),
            codes: Mutex::default(),
            port,
            run_id,
            started: Instant::now(),
        };
        this.settings_changed();
        this
    }

    /// Hands a message to who listens, here and at other gateways, and tells how
    /// many did here.
    pub(crate) fn publish(&self, way: Way, channel: &[u8], payload: &[u8]) -> usize {
        let limit = self.settings.subscriber_bytes();
        let received = self.channels.publish(way, channel, payload, limit);
        self.mesh.forward(way, channel, payload);
        received
    }

    fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether requests have to be looked at one by one.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.watch.load(Ordering::Relaxed) != 0
    }

    /// Whether who comes from another machine is sent away: anybody who came
    /// could do anything.
    pub(crate) fn is_protected(&self) -> bool {
        self.settings.is_protected() && self.acl.default_user().takes_any_password
    }

    fn watch(&self, why: u8, does: bool) {
        if does {
            self.watch.fetch_or(why, Ordering::Relaxed);
        } else {
            self.watch.fetch_and(!why, Ordering::Relaxed);
        }
    }

    /// Puts into effect what depends on several settings.
    pub(crate) fn settings_changed(&self) {
        let slow_us = self.settings.slow_us();
        let slow_ns = u64::try_from(slow_us).map_or(u64::MAX, |us| us.saturating_mul(1000));
        let event_ns = match self.settings.latency_ms() {
            0 => u64::MAX,
            ms => ms.saturating_mul(1_000_000),
        };
        self.long_ns.store(slow_ns.min(event_ns), Ordering::Relaxed);
        self.watch(TIMED, (0..TIMED_US_MAX).contains(&slow_us));
    }

    /// Whether a command that took so long is noted.
    #[inline]
    pub(crate) fn is_long(&self, elapsed_ns: u64) -> bool {
        elapsed_ns >= self.long_ns.load(Ordering::Relaxed)
    }

    /// Lets commands wait until a moment, in milliseconds of the time of day.
    pub(crate) fn pause(&self, pause: Pause, until_ms: u64) {
        let mut paused = Self::lock(&self.paused);
        // What is paused already is not paused less, nor for less long.
        *paused = match *paused {
            Some((Pause::All, until)) if until > unix_ms() => {
                Some((Pause::All, until.max(until_ms)))
            }
            Some((_, until)) if until > unix_ms() => Some((pause, until.max(until_ms))),
            _ => Some((pause, until_ms)),
        };
        self.watch(PAUSED, true);
    }

    pub(crate) fn unpause(&self) {
        *Self::lock(&self.paused) = None;
        self.watch(PAUSED, false);
    }

    /// What has to wait now.
    pub(crate) fn paused(&self) -> Option<Pause> {
        if self.watch.load(Ordering::Relaxed) & PAUSED == 0 {
            return None;
        }
        let paused = *Self::lock(&self.paused);
        match paused {
            Some((pause, until_ms)) if until_ms > unix_ms() => Some(pause),
            _ => {
                self.unpause();
                None
            }
        }
    }

    /// Notes a program that runs for long, until the result is dropped. If there is a
    /// busy-reply-threshold, every request is looked at from now on.
    pub(crate) fn note_slow(&self, running: Running) -> NotedSlow<'_> {
        let running = Arc::new(running);
        self.scripts.change_slow(|slow| {
            slow.push(running.clone());
            self.watch(BUSY, self.settings.busy_ms() > 0);
        });
        NotedSlow { shared: self, running }
    }

    /// What has been running for busy-reply-threshold at this moment, if anything has.
    pub(crate) fn busy_with(&self, now: quanta::Instant) -> Option<ProgramKind> {
        if self.watch.load(Ordering::Relaxed) & BUSY == 0 {
            return None;
        }
        let threshold = Duration::from_millis(self.settings.busy_ms());
        let running = self.scripts.slow().filter(|_| !threshold.is_zero())?;
        let elapsed = now.saturating_duration_since(running.since);
        (elapsed >= threshold).then_some(running.kind)
    }

    pub(crate) fn monitor(&self, client: &Arc<Client>) {
        let mut monitors = Self::lock(&self.monitors);
        monitors.push(client.clone());
        self.watch(MONITORED, true);
    }

    pub(crate) fn monitor_no_more(&self, client: &Client) {
        let mut monitors = Self::lock(&self.monitors);
        monitors.retain(|other| other.id != client.id);
        self.watch(MONITORED, !monitors.is_empty());
    }

    /// Is there a client of MONITOR?
    pub(crate) fn is_monitored(&self) -> bool {
        self.watch.load(Ordering::Relaxed) & MONITORED != 0
    }

    /// Shows a command to all clients of MONITOR.
    pub(crate) fn show(&self, line: impl FnOnce() -> Vec<u8>) {
        if !self.is_monitored() {
            return;
        }
        let line: Arc<[u8]> = line().into();
        for client in &*Self::lock(&self.monitors) {
            client.inbox.put(Message::Line(line.clone()), MONITOR_BYTES_MAX);
        }
    }

    pub(crate) fn uptime_s(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    /// Counts errors by their codes.
    pub(crate) fn note_codes(&self, codes: &[Box<[u8]>]) {
        let mut known = Self::lock(&self.codes);
        for code in codes {
            if let Some(count) = known.get_mut(code) {
                *count += 1;
            } else if known.len() < CODES_MAX {
                known.insert(code.clone(), 1);
            }
        }
    }

    /// How often errors came with each code that has no kind of its own.
    pub(crate) fn codes(&self) -> BTreeMap<Box<[u8]>, u64> {
        Self::lock(&self.codes).clone()
    }

    /// Begins to count anew, for INFO.
    pub(crate) fn reset_counts(&self) {
        *Self::lock(&self.baseline) = crate::command::info::Totals::sum(&self.stats);
        Self::lock(&self.codes).clear();
    }

    /// The counts since the last reset.
    pub(crate) fn totals(&self) -> crate::command::info::Totals {
        crate::command::info::Totals::sum(&self.stats).since(&Self::lock(&self.baseline))
    }
}

/// That a program runs for long.
pub(crate) struct NotedSlow<'a> {
    shared: &'a Shared,
    running: Arc<Running>,
}

impl Drop for NotedSlow<'_> {
    fn drop(&mut self) {
        self.shared.scripts.change_slow(|slow| {
            slow.retain(|other| !Arc::ptr_eq(other, &self.running));
            if slow.is_empty() {
                self.shared.watch(BUSY, false);
            }
        });
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
