//! A worker's store on a pool, over whatever fabric leads there.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fusee::{Decision, Entry, Env, Error, Key, Setting, Stats, Store, StoreConfig, Watched};
use fusee_fabric::Fabric;
use fusee_layout::Geometry;
use fusee_layout::message::Statistics;

use crate::fabric_metrics;
use crate::keyspace::{Keyspace, Usage};
use crate::metrics::{Family, Kind, Series, Source, Value};
use crate::overlay::Overlay;

/// What the memory nodes have given, as far as this process knows.
pub type NodeStatistics = Arc<dyn Fn() -> Vec<Statistics> + Send + Sync>;

/// A pool as the stores of this process have it in common.
#[derive(Clone)]
pub struct Pool {
    geometry: Arc<Geometry>,
    config: StoreConfig,
    nodes: NodeStatistics,
    stats: Arc<Mutex<Stores>>,
}

/// What the stores of this process count.
#[derive(Default)]
struct Stores {
    live: Vec<Arc<Stats>>,
    /// Of stores that are no more: they count nothing, but have counted.
    former: Vec<Arc<Stats>>,
}

impl Pool {
    /// A pool of which nobody has a store yet.
    pub fn new(geometry: Arc<Geometry>, config: StoreConfig, nodes: NodeStatistics) -> Self {
        Self { geometry, config, nodes, stats: Arc::default() }
    }

    /// How it is laid out.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// A store for the worker that calls it.
    ///
    /// # Errors
    ///
    /// With the reason, if the pool takes no more clients.
    pub async fn store<F: Fabric>(&self, fabric: F) -> Result<PoolStore<F>, String> {
        let store = Store::join(fabric, TokioEnv::new(), self.geometry.clone(), self.config).await;
        let store = store.map_err(|error| error.to_string())?;
        let stats = store.stats().clone();
        self.stats.lock().expect("nobody panics with it").live.push(stats.clone());
        let told = Told { pool: self.clone(), stats, failure: Cell::new(None) };
        Ok(PoolStore { store: Rc::new(store), told: Rc::new(told) })
    }

    /// What /metrics tells of the pool.
    pub fn source(&self) -> Source {
        let this = self.clone();
        Arc::new(move || this.families())
    }

    fn families(&self) -> Vec<Family> {
        let (live, all) = {
            let stores = self.stats.lock().expect("nobody panics with it");
            (stores.live.clone(), [&stores.live[..], &stores.former[..]].concat())
        };
        let sum = |read: fn(&Stats) -> u64| all.iter().map(|s| read(s)).sum::<u64>() as f64;
        let now = |read: fn(&Stats) -> u64| live.iter().map(|s| read(s)).sum::<u64>() as f64;
        let labelled = |name, help, kind, label: &'static str, values: &[(&str, f64)]| Family {
            name,
            help,
            kind,
            series: values
                .iter()
                .map(|&(which, value)| Series {
                    labels: vec![(label, which.to_owned())],
                    value: Value::Number(value),
                })
                .collect(),
        };
        let counter = |name, help, value| Family::number(name, help, Kind::Counter, value);
        let gauge = |name, help, value| Family::number(name, help, Kind::Gauge, value);
        let (mut free, mut owned, mut orphans) = (0.0, 0.0, 0.0);
        let (mut clients, mut expelled) = (0, 0);
        for node in (self.nodes)() {
            clients += node.members.unwrap_or(0);
            expelled += node.expelled.unwrap_or(0);
            let bytes = |blocks: u32| f64::from(blocks) * node.blocks.block_bytes as f64;
            free += bytes(node.blocks.free);
            owned += bytes(node.blocks.owned);
            orphans += bytes(node.blocks.orphans);
        }
        let counters: Vec<_> = all.iter().map(|store| &*store.fabric).collect();
        let mut families = vec![
            labelled(
                "fusee_index_lookups_total",
                "Index lookups by path: hit in the index cache, stale there, bypassed, missing.",
                Kind::Counter,
                "path",
                &[
                    ("hit", sum(|s| s.index_hit.get())),
                    ("stale", sum(|s| s.index_stale.get())),
                    ("bypass", sum(|s| s.index_bypass.get())),
                    ("miss", sum(|s| s.index_miss.get())),
                ],
            ),
            labelled(
                "fusee_snapshot_rounds_total",
                "Rounds on a slot by outcome: won by rule 1, 2 or 3 of SNAPSHOT, lost, \
                 committed by another client, abandoned.",
                Kind::Counter,
                "outcome",
                &[
                    ("rule1", sum(|s| s.rule1.get())),
                    ("rule2", sum(|s| s.rule2.get())),
                    ("rule3", sum(|s| s.rule3.get())),
                    ("lost", sum(|s| s.lost.get())),
                    ("helped", sum(|s| s.helped.get())),
                    ("abandoned", sum(|s| s.abandoned.get())),
                ],
            ),
            counter(
                "fusee_snapshot_helps_total",
                "Writes of other clients that were committed for them.",
                sum(|s| s.helps.get()),
            ),
            counter(
                "fusee_operation_restarts_total",
                "Times that an operation started again after a conflict.",
                sum(|s| s.restarts.get()),
            ),
            counter(
                "fusee_conflict_wait_seconds_total",
                "Time that operations were told to wait because others were in the way.",
                sum(|s| s.conflict_wait_us.get()) / 1e6,
            ),
            labelled(
                "fusee_transactions_total",
                "Transactions over several keys: committed, run again after a conflict, \
                 aborted because they stood in another operation's way for long.",
                Kind::Counter,
                "outcome",
                &[
                    ("committed", sum(|s| s.transactions.get())),
                    ("retried", sum(|s| s.transactions_retried.get())),
                    ("broken", sum(|s| s.transactions_broken.get())),
                ],
            ),
            counter(
                "fusee_torn_reads_total",
                "Objects that did not verify and were read again.",
                sum(|s| s.torn.get()),
            ),
            labelled(
                "fusee_objects_total",
                "Objects by what happened to them.",
                Kind::Counter,
                "event",
                &[
                    ("allocated", sum(|s| s.allocated.get())),
                    ("freed", sum(|s| s.freed.get())),
                    ("reclaimed", sum(|s| s.reclaimed.get())),
                ],
            ),
            gauge(
                "fusee_object_bytes",
                "Bytes of objects in use, in whole size classes, one copy.",
                now(|s| s.bytes_in_use.get()),
            ),
            labelled(
                "fusee_block_bytes",
                "Bytes of blocks by state, one copy.",
                Kind::Gauge,
                "state",
                &[("free", free), ("owned", owned), ("orphan", orphans)],
            ),
            gauge("fusee_clients", "Workers of all gateways of the pool.", clients.into()),
            gauge(
                "fusee_clients_expelled",
                "Workers that have died and whose memory is not recovered.",
                expelled.into(),
            ),
            counter(
                "fusee_allocations_refused_total",
                "Blocks that no memory node had.",
                sum(|s| s.full.get()),
            ),
            counter(
                "fusee_clients_recovered_total",
                "Clients that died and whose memory this gateway has recovered.",
                sum(|s| s.recovered.get()),
            ),
            counter(
                "fusee_debts_freed_total",
                "Objects freed that clients had owed when they died.",
                sum(|s| s.debts.get()),
            ),
            counter(
                "fusee_keys_expired_total",
                "Keys removed because their time had come.",
                sum(|s| s.expired.get()),
            ),
        ];
        families.extend(fabric_metrics::fabrics(&counters));
        families.extend(fabric_metrics::memory(&live));
        families
    }
}

/// Time and chance of a worker.
pub struct TokioEnv {
    chance: RandomState,
    drawn: Cell<u64>,
}

impl TokioEnv {
    fn new() -> Self {
        Self { chance: RandomState::new(), drawn: Cell::new(0) }
    }
}

/// Shorter waits than the timer can tell are left to the other tasks.
const TIMER_US: u64 = 500;

impl Env for TokioEnv {
    #[expect(clippy::disallowed_methods, reason = "this is where the store gets its time from")]
    fn now_ms(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
    }

    async fn sleep_us(&self, us: u64) {
        if us < TIMER_US {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(Duration::from_micros(us)).await;
        }
    }

    fn random(&self) -> u64 {
        self.drawn.set(self.drawn.get() + 1);
        self.chance.hash_one(self.drawn.get())
    }
}

/// A worker's store.
pub struct PoolStore<F> {
    store: Rc<Store<F, TokioEnv>>,
    told: Rc<Told>,
}

/// What a store tells as long as it lives.
struct Told {
    pool: Pool,
    stats: Arc<Stats>,
    /// Why maintenance failed last, if it did.
    failure: Cell<Option<Error>>,
}

impl Drop for Told {
    fn drop(&mut self) {
        let mut stores = self.pool.stats.lock().expect("nobody panics with it");
        let own = stores.live.iter().position(|stats| Arc::ptr_eq(stats, &self.stats));
        let own = own.expect("a store's counters are known as long as it lives");
        let own = stores.live.swap_remove(own);
        stores.former.push(own);
    }
}

impl<F> Clone for PoolStore<F> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), told: self.told.clone() }
    }
}

/// The pool sees by itself that this process is gone; it only takes longer.
const LEAVE: Duration = Duration::from_secs(5);
/// After a failed step of maintenance.
const RETRY: Duration = Duration::from_millis(100);

impl<F: Fabric> Keyspace for PoolStore<F> {
    type Transaction = Overlay<F>;

    async fn read(
        &self,
        keys: &[Key<'_>],
        each: impl FnMut(usize, Result<Option<Entry<'_>>, Error>) -> bool,
    ) {
        self.store.read_while(keys, each).await;
    }

    async fn set(
        &self,
        key: Key<'_>,
        value: &[u8],
        expires_at_ms: Option<u64>,
    ) -> Result<(), Error> {
        self.store.set(key, value, expires_at_ms).await
    }

    async fn set_each(&self, sets: &[Setting<'_>], each: impl FnMut(usize, Result<(), Error>)) {
        self.store.set_each(sets, each).await;
    }

    async fn delete(&self, key: Key<'_>) -> Result<bool, Error> {
        self.store.delete(key).await
    }

    async fn update(
        &self,
        key: Key<'_>,
        decide: impl FnMut(Option<Entry<'_>>, &mut Vec<u8>) -> Decision,
    ) -> Result<(), Error> {
        self.store.update(key, decide).await
    }

    async fn scan(
        &self,
        database: u8,
        cursor: u64,
        count: usize,
        each: impl FnMut(&[u8], Entry<'_>),
    ) -> Result<u64, Error> {
        self.store.scan(database, cursor, count, each).await
    }

    async fn len(&self, database: u8) -> Result<u64, Error> {
        self.store.len(database).await
    }

    async fn flush(&self, database: Option<u8>) -> Result<(), Error> {
        self.store.flush(database).await
    }

    async fn transact<R>(
        &self,
        mut run: impl AsyncFnMut(&Overlay<F>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut actions = Vec::new();
        let result = self.store.transact(async |transaction| {
            let overlay = Overlay::new(self, transaction);
            let result = run(&overlay).await?;
            actions = overlay.actions();
            Ok(result)
        });
        let result = result.await?;
        actions.into_iter().for_each(|action| action());
        Ok(result)
    }

    async fn watch(&self, key: Key<'_>) -> Result<Watched, Error> {
        self.store.watch(key).await
    }

    async fn renew(&self, watched: &Watched) -> Result<(), Error> {
        self.store.renew(watched).await
    }

    fn prefetch(&self, keys: &[Key<'_>]) {
        self.store.prefetch(keys);
    }

    async fn maintain(&self) -> Duration {
        let pause = self.store.maintain().await;
        let error = pause.as_ref().err().copied();
        // The same every time while a node is down.
        if let Some(error) = error.filter(|_| self.told.failure.get() != error) {
            tracing::warn!(%error, "background maintenance failed; trying again");
        }
        self.told.failure.set(error);
        pause.unwrap_or(RETRY)
    }

    fn take_expired(&self, is_wanted: bool) -> Vec<(u8, Vec<u8>)> {
        self.store.take_expired(is_wanted)
    }

    fn sweep(&self, does: bool) {
        self.store.sweep_in_background(does);
    }

    async fn leave(&self) {
        match tokio::time::timeout(LEAVE, self.store.leave()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "left the pool without saying so"),
            Err(_) => tracing::warn!("left the pool without saying so: it does not answer"),
        }
    }

    fn now_ms(&self) -> u64 {
        self.store.env().now_ms()
    }

    fn scan_start(&self, random: u64) -> u64 {
        self.store.scan_start(random)
    }

    fn round_trips(&self) -> u64 {
        self.store.fabric().counters().batches()
    }

    fn conflict_wait_us(&self) -> u64 {
        self.store.stats().conflict_wait_us.get()
    }

    fn expired_keys(&self) -> u64 {
        self.store.stats().expired.get()
    }

    fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for node in (self.told.pool.nodes)() {
            let blocks = node.blocks;
            let used = u64::from(blocks.owned) + u64::from(blocks.orphans);
            usage.used_bytes += used * blocks.block_bytes;
            usage.capacity_bytes += (used + u64::from(blocks.free)) * blocks.block_bytes;
        }
        usage
    }
}
