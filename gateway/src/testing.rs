//! A keyspace in this process's memory, for tests of what lies above the store.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fusee::{DATABASES, Decision, Entry, Error, Key, Kind, SYSTEM_DATABASE, Watched};

use crate::keyspace::{InTransaction, Keyspace, Usage};

/// Keys are kept in so many parts, which are what a scan's cursor counts.
const PARTS: usize = 1024;

thread_local! {
    /// What this thread's transaction does once it is done.
    static ACTIONS: RefCell<Vec<Box<dyn FnOnce()>>> = const { RefCell::new(Vec::new()) };
}

#[derive(Clone, Debug)]
struct Value {
    bytes: Vec<u8>,
    kind: Kind,
    expires_at_ms: Option<u64>,
    /// Another one after every change.
    version: u64,
}

type Part = HashMap<Vec<u8>, Value, BuildHasherDefault<rapidhash::fast::RapidHasher<'static>>>;

/// What there was at a moment.
#[derive(Debug)]
struct Mark {
    databases: Vec<Vec<Part>>,
    bytes: u64,
    actions: usize,
}

#[derive(Debug)]
struct Shared {
    databases: Mutex<Vec<Vec<Part>>>,
    /// Added to the time of day, so that tests can let time pass.
    ahead_ms: AtomicI64,
    round_trips: AtomicU64,
    versions: AtomicU64,
    /// Some moments of transactions.
    marks: Mutex<Vec<Mark>>,
    /// Keys that were announced.
    prefetched: AtomicU64,
    /// Writes fail as a full pool's do once values take so many bytes.
    bytes_max: usize,
    bytes: AtomicU64,
}

/// A keyspace whose clones share their keys.
#[derive(Clone, Debug)]
pub struct MemoryKeyspace(Arc<Shared>);

impl Default for MemoryKeyspace {
    fn default() -> Self {
        Self::with_capacity(usize::MAX)
    }
}

impl MemoryKeyspace {
    /// A keyspace that is full when its values take `bytes_max` bytes.
    pub fn with_capacity(bytes_max: usize) -> Self {
        let database = || (0..PARTS).map(|_| Part::default()).collect();
        Self(Arc::new(Shared {
            databases: Mutex::new((0..=SYSTEM_DATABASE).map(|_| database()).collect()),
            ahead_ms: AtomicI64::new(0),
            round_trips: AtomicU64::new(0),
            versions: AtomicU64::new(0),
            marks: Mutex::default(),
            prefetched: AtomicU64::new(0),
            bytes_max,
            bytes: AtomicU64::new(0),
        }))
    }

    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        self.0.ahead_ms.fetch_add(by.as_millis() as i64, Ordering::Relaxed);
    }

    /// How many keys have been announced.
    pub fn prefetched(&self) -> u64 {
        self.0.prefetched.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<Part>>> {
        self.0.databases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self, mark: usize) {
        self.0.marks.lock().unwrap_or_else(PoisonError::into_inner).truncate(mark);
    }

    fn next_version(&self) -> u64 {
        1 + self.0.versions.fetch_add(1, Ordering::Relaxed)
    }

    /// What a key is; 0 if it is absent.
    fn version(&self, key: Key<'_>) -> u64 {
        let now_ms = self.now_ms();
        let databases = self.lock();
        let value = databases[usize::from(key.database)][part_of(key.name)].get(key.name);
        value.filter(|value| live(value, now_ms).is_some()).map_or(0, |value| value.version)
    }

    fn count(&self, round_trips: u64) {
        self.0.round_trips.fetch_add(round_trips, Ordering::Relaxed);
    }

    /// Whether the values still fit after one of them changed its size.
    fn resize(&self, from: usize, to: usize) -> Result<(), Error> {
        let bytes = self.0.bytes.load(Ordering::Relaxed) as usize;
        if to > from && bytes + (to - from) > self.0.bytes_max {
            return Err(Error::Full);
        }
        self.0.bytes.store((bytes + to - from) as u64, Ordering::Relaxed);
        Ok(())
    }
}

fn part_of(name: &[u8]) -> usize {
    rapidhash::v3::rapidhash_v3(name) as usize % PARTS
}

fn live(value: &Value, now_ms: u64) -> Option<Entry<'_>> {
    let ended = value.expires_at_ms.is_some_and(|at| at <= now_ms);
    (!ended).then_some(Entry {
        value: &value.bytes,
        kind: value.kind,
        expires_at_ms: value.expires_at_ms,
    })
}

impl Keyspace for MemoryKeyspace {
    type Transaction = Self;

    async fn transact<R>(
        &self,
        mut run: impl AsyncFnMut(&Self) -> Result<R, Error>,
    ) -> Result<R, Error> {
        // The first run is thrown away, as another client's write would have it.
        let mark = self.mark();
        let thrown_away = run(self).await;
        self.rewind(mark);
        thrown_away?;
        let (mark, before) = (self.mark(), ACTIONS.with_borrow(Vec::len));
        let result = run(self).await;
        if result.is_err() {
            self.rewind(mark);
        }
        self.forget(mark);
        let actions = ACTIONS.with_borrow_mut(|all| all.split_off(before.min(all.len())));
        actions.into_iter().for_each(|action| action());
        result
    }

    async fn watch(&self, key: Key<'_>) -> Result<Watched, Error> {
        Ok(Watched::new(key, self.version(key)))
    }

    async fn renew(&self, _watched: &Watched) -> Result<(), Error> {
        Ok(())
    }

    async fn read(
        &self,
        keys: &[Key<'_>],
        mut each: impl FnMut(usize, Result<Option<Entry<'_>>, Error>) -> bool,
    ) {
        self.count(1);
        let now_ms = self.now_ms();
        let databases = self.lock();
        for (index, key) in keys.iter().enumerate() {
            let part = &databases[usize::from(key.database)][part_of(key.name)];
            let entry = part.get(key.name).and_then(|value| live(value, now_ms));
            if !each(index, Ok(entry)) {
                break;
            }
        }
    }

    async fn set(
        &self,
        key: Key<'_>,
        value: &[u8],
        expires_at_ms: Option<u64>,
    ) -> Result<(), Error> {
        self.count(2);
        let mut databases = self.lock();
        let part = &mut databases[usize::from(key.database)][part_of(key.name)];
        if let Some(place) = part.get_mut(key.name) {
            self.resize(place.bytes.len(), value.len())?;
            place.bytes.clear();
            place.bytes.extend_from_slice(value);
            place.kind = Kind::String;
            place.expires_at_ms = expires_at_ms;
            place.version = self.next_version();
        } else {
            self.resize(0, value.len())?;
            let version = self.next_version();
            let value = Value { bytes: value.to_vec(), kind: Kind::String, expires_at_ms, version };
            part.insert(key.name.to_vec(), value);
        }
        Ok(())
    }

    async fn delete(&self, key: Key<'_>) -> Result<bool, Error> {
        self.count(2);
        let now_ms = self.now_ms();
        let removed = self.lock()[usize::from(key.database)][part_of(key.name)].remove(key.name);
        if let Some(value) = &removed {
            self.resize(value.bytes.len(), 0)?;
        }
        Ok(removed.is_some_and(|value| live(&value, now_ms).is_some()))
    }

    async fn update(
        &self,
        key: Key<'_>,
        mut decide: impl FnMut(Option<Entry<'_>>, &mut Vec<u8>) -> Decision,
    ) -> Result<(), Error> {
        self.count(3);
        let now_ms = self.now_ms();
        let mut databases = self.lock();
        let part = &mut databases[usize::from(key.database)][part_of(key.name)];
        let current = part.get(key.name);
        let bytes = current.map_or(0, |value| value.bytes.len());
        let current = current.and_then(|value| live(value, now_ms));
        let mut buffer = Vec::new();
        // The first answer is thrown away, as another client's write would have
        // it, so that tests see whoever adds to what it hands out.
        decide(current, &mut buffer);
        buffer.clear();
        match decide(current, &mut buffer) {
            Decision::Keep => {}
            Decision::Delete => {
                self.resize(bytes, 0)?;
                part.remove(key.name);
            }
            Decision::Replace { kind, expires_at_ms } => {
                self.resize(bytes, buffer.len())?;
                let version = self.next_version();
                let value = Value { bytes: buffer, kind, expires_at_ms, version };
                part.insert(key.name.to_vec(), value);
            }
        }
        Ok(())
    }

    async fn scan(
        &self,
        database: u8,
        cursor: u64,
        count: usize,
        mut each: impl FnMut(&[u8], Entry<'_>),
    ) -> Result<u64, Error> {
        self.count(1);
        let now_ms = self.now_ms();
        let databases = self.lock();
        let parts = &databases[usize::from(database)];
        let mut seen = 0;
        for (index, part) in parts.iter().enumerate().skip(cursor as usize) {
            if seen >= count {
                return Ok(index as u64);
            }
            for (name, value) in part {
                if let Some(entry) = live(value, now_ms) {
                    each(name, entry);
                    seen += 1;
                }
            }
        }
        Ok(0)
    }

    fn scan_start(&self, random: u64) -> u64 {
        random % PARTS as u64
    }

    async fn len(&self, database: u8) -> Result<u64, Error> {
        let now_ms = self.now_ms();
        let databases = self.lock();
        let values = databases[usize::from(database)].iter().flat_map(Part::values);
        Ok(values.filter(|value| live(value, now_ms).is_some()).count() as u64)
    }

    async fn flush(&self, database: Option<u8>) -> Result<(), Error> {
        for (index, parts) in self.lock().iter_mut().take(usize::from(DATABASES)).enumerate() {
            if database.is_none_or(|database| usize::from(database) == index) {
                let bytes = parts.iter().flat_map(Part::values).map(|value| value.bytes.len());
                self.resize(bytes.sum(), 0)?;
                parts.iter_mut().for_each(Part::clear);
            }
        }
        Ok(())
    }

    fn prefetch(&self, keys: &[Key<'_>]) {
        self.0.prefetched.fetch_add(keys.len() as u64, Ordering::Relaxed);
    }

    async fn maintain(&self) -> Duration {
        Duration::from_millis(100)
    }

    // What has ended is only hidden here.
    fn take_expired(&self, _is_wanted: bool) -> Vec<(u8, Vec<u8>)> {
        Vec::new()
    }

    fn sweep(&self, _does: bool) {}

    fn expired_keys(&self) -> u64 {
        0
    }

    async fn leave(&self) {}

    fn conflict_wait_us(&self) -> u64 {
        0
    }

    #[expect(clippy::disallowed_methods, reason = "this keyspace is its own time authority")]
    fn now_ms(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (now.as_millis() as i64 + self.0.ahead_ms.load(Ordering::Relaxed)) as u64
    }

    fn round_trips(&self) -> u64 {
        self.0.round_trips.load(Ordering::Relaxed)
    }

    fn usage(&self) -> Usage {
        Usage { used_bytes: self.0.bytes.load(Ordering::Relaxed), capacity_bytes: 0 }
    }
}

impl InTransaction for MemoryKeyspace {
    fn knows(&self, _keys: &[Key<'_>]) -> bool {
        true
    }

    async fn look_at(&self, _keys: &[Key<'_>]) -> Result<(), Error> {
        Ok(())
    }

    /// Nothing comes between, so nothing has to be forgotten but what fails.
    fn mark(&self) -> usize {
        let mut marks = self.0.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let actions = ACTIONS.with_borrow(Vec::len);
        let bytes = self.0.bytes.load(Ordering::Relaxed);
        marks.push(Mark { databases: self.lock().clone(), bytes, actions });
        marks.len() - 1
    }

    fn rewind(&self, mark: usize) {
        let mut marks = self.0.marks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Mark { databases, bytes, actions }) = marks.drain(mark..).next() {
            *self.lock() = databases;
            self.0.bytes.store(bytes, Ordering::Relaxed);
            ACTIONS.with_borrow_mut(|all| all.truncate(actions));
        }
    }

    fn afterwards(&self, action: Box<dyn FnOnce()>) {
        ACTIONS.with_borrow_mut(|all| all.push(action));
    }

    async fn is_unchanged(&self, watched: &Watched) -> Result<bool, Error> {
        Ok(self.version(watched.key()) == watched.word())
    }
}
