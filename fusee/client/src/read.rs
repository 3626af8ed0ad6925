//! Reading keys, many at a time.
//!
//! All keys of a call go through the same phases together, so a pipeline of
//! reads costs what one read costs: 1 round trip when every key's slot is
//! cached and current, 2 when some are not.

mod direct;

use direct::Looked;

use crate::cache::{Cached, Lookup};
use crate::index::{Place, PlaceRead, ReadError};
use crate::store::Store;
use crate::{Entry, Env, Error, Key, Kind};
use fusee_fabric::{Batch, Fabric, NodeDown, Ticket};
use fusee_layout::{Address, KeyHash, Meta, Object, Slot, Unverified};

/// Readings of one key that found nothing certain before it gives up: each
/// means that another client wrote in between.
const ATTEMPTS_MAX: u32 = 1000;

/// What a key waits for.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The cache is to be asked.
    Hashed,
    /// The cache was asked.
    Looked(Lookup),
    /// The cache was wrong.
    Unknown,
    /// Its cached slot and object are being read.
    Cached(Cached, Ticket, Ticket),
    /// Its buckets are being read.
    Buckets(Place, PlaceRead),
    /// The objects that may be its value are being read: so many of the
    /// scratch's candidates.
    Candidates { first: usize, count: usize },
    /// Its value is in a batch of the scratch.
    Found(Found),
    /// The directory was out of date.
    Stale,
    /// A transaction is about to change it.
    Prepared,
    /// It is not there.
    Absent,
    /// It could not be read.
    Failed(Error),
}

/// Where a verified object is.
#[derive(Clone, Copy, Debug)]
struct Found {
    batch: usize,
    object: Ticket,
    meta: Meta,
    body_at: usize,
    body_end: usize,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    hash: KeyHash,
    step: Step,
    attempts: u32,
}

impl Reading {
    /// Of a key for which the cache was asked.
    fn looked(hash: KeyHash, lookup: Lookup) -> Self {
        Self { hash, step: Step::Looked(lookup), attempts: 0 }
    }
}

/// What a call of [`Store::read`] works with, kept for the next.
#[derive(Default)]
pub(crate) struct Scratch {
    looked: Looked,
    readings: Vec<Reading>,
    candidates: Vec<(Address, Slot, Ticket)>,
    batches: Vec<Batch>,
}

impl<F: Fabric, E: Env> Store<F, E> {
    /// Reads many keys and hands each result over, in the order of `keys`.
    ///
    /// 1 round trip if all are cached, 2 if not; one more for values beyond the
    /// largest size class; a value whose time has come is removed first. A key that
    /// a transaction is about to change costs 3 to 4, and is not waited for.
    pub async fn read(
        &self,
        keys: &[Key<'_>],
        mut each: impl FnMut(usize, Result<Option<Entry<'_>>, Error>),
    ) {
        let all = |number, entry: Result<Option<Entry<'_>>, Error>| {
            each(number, entry);
            true
        };
        self.read_while(keys, all).await;
    }

    /// As [`Self::read`], until `each` says that it wants no more: large values
    /// that come after are not fetched.
    pub async fn read_while(
        &self,
        keys: &[Key<'_>],
        mut each: impl FnMut(usize, Result<Option<Entry<'_>>, Error>) -> bool,
    ) {
        if keys.is_empty() {
            return;
        }
        let _pin = self.epochs.pin();
        let mut scratch = self.scratch.borrow_mut().pop().unwrap_or_default();
        let mut done = 0;
        while let Some(handed) = self.hand_over_direct(keys, done, &mut scratch, &mut each) {
            done = handed;
            if done == keys.len() {
                break;
            }
            // Those about which something is known by now; else all.
            let count = match scratch.readings.len() {
                0 => keys.len() - done,
                count => count,
            };
            let next = &keys[done..done + count];
            let mut each =
                |number: usize, entry: Result<Option<Entry<'_>>, Error>| each(done + number, entry);
            if !self.hand_over_by_batches(next, &mut scratch, &mut each).await {
                break;
            }
            done += count;
            self.clear(&mut scratch);
        }
        scratch.looked.clear();
        self.clear(&mut scratch);
        self.scratch.borrow_mut().push(scratch);
    }

    /// Hands keys over as batches bring them. False if no more are wanted.
    async fn hand_over_by_batches(
        &self,
        keys: &[Key<'_>],
        scratch: &mut Scratch,
        each: &mut impl FnMut(usize, Result<Option<Entry<'_>>, Error>) -> bool,
    ) -> bool {
        let mut batch = self.fabric.batch();
        self.begin(keys, &mut scratch.readings, &mut batch);
        batch = self.fabric.run(batch).await;
        let current = self.hand_over_current(keys, &scratch.readings, &batch, each);
        let Some(first) = current.filter(|&first| first < keys.len()) else {
            scratch.batches.push(batch);
            return current.is_some();
        };
        // What was handed over is done with.
        scratch.readings.drain(..first);
        let keys = &keys[first..];
        while !batch.is_empty() {
            let mut next = self.fabric.batch();
            self.advance(keys, scratch, &batch, &mut next);
            scratch.batches.push(batch);
            if scratch.readings.iter().any(|r| matches!(r.step, Step::Stale)) {
                self.go_by_new_directory(scratch, &mut next).await;
            }
            batch = if next.is_empty() { next } else { self.fabric.run(next).await };
        }
        self.fabric.recycle(batch);
        let now_ms = self.env.now_ms();
        for (number, reading) in scratch.readings.iter().enumerate() {
            let key = keys[number];
            let number = first + number;
            let wants_more = match reading.step {
                Step::Found(found) if is_over(&found.meta, now_ms) => {
                    let mut value = Vec::new();
                    let left = self.remove_over(key, &mut value).await;
                    let entry = left.map(|left| {
                        let (kind, expires_at_ms) = left?;
                        Some(Entry { value: &value, kind, expires_at_ms })
                    });
                    each(number, entry)
                }
                Step::Prepared => {
                    let mut value = Vec::new();
                    let read = self.read_prepared(key, &mut value).await;
                    let entry = read.map(|read| {
                        let (kind, expires_at_ms) = read?;
                        Some(Entry { value: &value, kind, expires_at_ms })
                    });
                    each(number, entry)
                }
                Step::Found(found) => self.hand_over(number, scratch, found, each).await,
                Step::Failed(error) => each(number, Err(error)),
                _ => each(number, Ok(None)),
            };
            if !wants_more {
                return false;
            }
        }
        true
    }

    fn clear(&self, scratch: &mut Scratch) {
        scratch.readings.clear();
        scratch.candidates.clear();
        for batch in scratch.batches.drain(..) {
            self.fabric.recycle(batch);
        }
    }

    /// Hands over the first keys whose cached slots were current and whose values are
    /// whole, as nearly all are; returns how many, or nothing if no more are wanted.
    fn hand_over_current(
        &self,
        keys: &[Key<'_>],
        readings: &[Reading],
        ran: &Batch,
        each: &mut impl FnMut(usize, Result<Option<Entry<'_>>, Error>) -> bool,
    ) -> Option<usize> {
        let (mut now_ms, mut handed, mut wants_more) = (None, 0, true);
        for (&key, reading) in keys.iter().zip(readings) {
            let Step::Cached(cached, slot, object) = reading.step else { break };
            let Ok(word) = ran.word(slot) else { break };
            let Ok(Some(object)) = current(key, cached, ran, word, object) else { break };
            let over = |at: u64| at <= *now_ms.get_or_insert_with(|| self.env.now_ms());
            if object.meta.chunked || object.meta.expires_at_ms.is_some_and(over) {
                break;
            }
            wants_more = each(handed, Ok(Some(entry(&object.meta, object.body))));
            handed += 1;
            if !wants_more {
                break;
            }
        }
        self.stats.index_hit.add(handed as u64);
        wants_more.then_some(handed)
    }

    async fn hand_over(
        &self,
        number: usize,
        scratch: &Scratch,
        found: Found,
        each: &mut impl FnMut(usize, Result<Option<Entry<'_>>, Error>) -> bool,
    ) -> bool {
        let bytes = scratch.batches[found.batch].bytes(found.object);
        let body = match bytes {
            Ok(bytes) => &bytes[found.body_at..found.body_end],
            Err(down) => return each(number, Err(down.into())),
        };
        if !found.meta.chunked {
            return each(number, Ok(Some(entry(&found.meta, body))));
        }
        match self.read_chunks(body).await {
            Ok(value) => each(number, Ok(Some(entry(&found.meta, &value)))),
            Err(error) => each(number, Err(error)),
        }
    }

    /// Posts the first phase: cached slots with their objects, or buckets.
    fn begin(&self, keys: &[Key<'_>], readings: &mut Vec<Reading>, batch: &mut Batch) {
        let cache = self.cache.borrow();
        for key in &keys[readings.len()..] {
            let hash = self.hash(*key);
            cache.prefetch(hash);
            readings.push(Reading { hash, step: Step::Hashed, attempts: 0 });
        }
        for reading in readings {
            let lookup = match reading.step {
                Step::Looked(lookup) => lookup,
                Step::Unknown => {
                    reading.step = self.go_by_buckets(reading.hash, batch);
                    continue;
                }
                _ => cache.get(reading.hash),
            };
            reading.step = match lookup {
                Lookup::Hit(cached) => self.go_by_cached(cached, batch),
                Lookup::Bypass => {
                    self.stats.index_bypass.add(1);
                    self.go_by_buckets(reading.hash, batch)
                }
                Lookup::Miss => {
                    self.stats.index_miss.add(1);
                    self.go_by_buckets(reading.hash, batch)
                }
            };
        }
    }

    fn go_by_cached(&self, cached: Cached, batch: &mut Batch) -> Step {
        let slot = batch.read(self.primary(cached.at), 8);
        let bytes = cached.word.class().bytes();
        let object = batch.read(self.primary(cached.word.address()), bytes);
        Step::Cached(cached, slot, object)
    }

    fn go_by_buckets(&self, hash: KeyHash, batch: &mut Batch) -> Step {
        let place = self.place(hash);
        Step::Buckets(place, self.read_place(batch, &place))
    }

    /// Takes every key one phase further and posts what it needs next.
    fn advance(&self, keys: &[Key<'_>], scratch: &mut Scratch, ran: &Batch, batch: &mut Batch) {
        let Scratch { readings, candidates, batches, .. } = scratch;
        let this = batches.len();
        for (key, reading) in keys.iter().zip(readings) {
            reading.step = match reading.step {
                Step::Cached(cached, slot, object) => {
                    let read = (ran, slot, object);
                    match self.after_cached(*key, reading.hash, cached, read, this) {
                        Checked::Done(step) => step,
                        Checked::Guess(next) if reading.attempts == 0 => {
                            reading.attempts = 1;
                            self.go_by_cached(next, batch)
                        }
                        _ => self.go_by_buckets(reading.hash, batch),
                    }
                }
                Step::Buckets(place, read) => {
                    let first = candidates.len();
                    let visited = place.visit(ran, read, |at, word| {
                        if word.leads() && word.fingerprint() == reading.hash.fingerprint() {
                            let bytes = word.class().bytes();
                            let object = batch.read(self.primary(word.address()), bytes);
                            candidates.push((at, word, object));
                        }
                    });
                    let count = candidates.len() - first;
                    match visited {
                        Ok(()) if count == 0 => Step::Absent,
                        Ok(()) => Step::Candidates { first, count },
                        Err(ReadError::Failed(error)) => Step::Failed(error),
                        Err(ReadError::Stale) => {
                            candidates.truncate(first);
                            Step::Stale
                        }
                    }
                }
                Step::Candidates { first, count } => {
                    let found = &candidates[first..first + count];
                    match self.judge(*key, reading.hash, ran, found) {
                        Judged::Value(found) => Step::Found(Found { batch: this, ..found }),
                        Judged::Prepared => Step::Prepared,
                        Judged::Other => Step::Absent,
                        Judged::Failed(error) => Step::Failed(error),
                        Judged::Unsure if reading.attempts < ATTEMPTS_MAX => {
                            reading.attempts += 1;
                            self.stats.torn.add(1);
                            self.go_by_buckets(reading.hash, batch)
                        }
                        Judged::Unsure => {
                            Step::Failed(Error::Conflict { attempts: reading.attempts })
                        }
                    }
                }
                done => done,
            };
        }
    }

    /// The value, if the cached slot was current; otherwise what it holds now.
    fn after_cached(
        &self,
        key: Key<'_>,
        hash: KeyHash,
        cached: Cached,
        (ran, slot, object): (&Batch, Ticket, Ticket),
        this: usize,
    ) -> Checked {
        let read = ran.word(slot).and_then(|word| {
            let verified = current(key, cached, ran, word, object)?;
            Ok((word, verified))
        });
        let word = match read {
            Ok((_, Some(verified))) => {
                self.stats.index_hit.add(1);
                let found = Found { batch: this, ..found(&verified, object) };
                return Checked::Done(Step::Found(found));
            }
            Ok((word, None)) => word,
            Err(down) => return Checked::Done(Step::Failed(down.into())),
        };
        self.after_stale(hash, cached, word).map_or(Checked::Nothing, Checked::Guess)
    }

    /// What is to be tried next, most likely the key's next value, when a slot that holds
    /// `word` is not what was cached.
    fn after_stale(&self, hash: KeyHash, cached: Cached, word: u64) -> Option<Cached> {
        self.stats.index_stale.add(1);
        self.cache.borrow().invalid(hash);
        self.remember(hash, cached.at, word)
    }

    /// Which of the objects that were READ is the key's value.
    fn judge(
        &self,
        key: Key<'_>,
        hash: KeyHash,
        ran: &Batch,
        candidates: &[(Address, Slot, Ticket)],
    ) -> Judged {
        let mut unsure = false;
        for &(at, word, ticket) in candidates {
            let bytes = match ran.bytes(ticket) {
                Ok(bytes) => bytes,
                Err(down) => return Judged::Failed(down.into()),
            };
            match Unverified::new(bytes).verify(word) {
                Some(object) if is_of(&object, key) && word.is_prepared() => {
                    return Judged::Prepared;
                }
                Some(object) if is_of(&object, key) => {
                    self.cache.borrow_mut().put(hash, Cached { at, word });
                    return Judged::Value(found(&object, ticket));
                }
                Some(_) => {}
                None => unsure = true,
            }
        }
        if unsure { Judged::Unsure } else { Judged::Other }
    }

    async fn go_by_new_directory(&self, scratch: &mut Scratch, batch: &mut Batch) {
        let refreshed = self.refresh_directory().await;
        for reading in &mut scratch.readings {
            if matches!(reading.step, Step::Stale) {
                reading.attempts += 1;
                reading.step = match refreshed {
                    Ok(()) if reading.attempts < ATTEMPTS_MAX => {
                        self.go_by_buckets(reading.hash, batch)
                    }
                    Ok(()) => Step::Failed(Error::Corrupt { what: "a bucket header" }),
                    Err(error) => Step::Failed(error),
                };
            }
        }
    }
}

/// What a cached slot told.
enum Checked {
    Done(Step),
    Guess(Cached),
    Nothing,
}

enum Judged {
    Value(Found),
    Prepared,
    Other,
    Unsure,
    Failed(Error),
}

/// The key's object, if the slot, in which `word` was read, still holds what was cached.
#[inline]
fn current<'a>(
    key: Key<'_>,
    cached: Cached,
    ran: &'a Batch,
    word: u64,
    object: Ticket,
) -> Result<Option<Object<'a>>, NodeDown> {
    let bytes = ran.bytes(object)?;
    if word != cached.word.word() {
        return Ok(None);
    }
    Ok(Unverified::new(bytes).verify(cached.word).filter(|object| is_of(object, key)))
}

fn found(object: &Object<'_>, ticket: Ticket) -> Found {
    let body_end = object.body_at + object.body.len();
    Found { batch: 0, object: ticket, meta: object.meta, body_at: object.body_at, body_end }
}

/// Is the object the value of this key?
pub(crate) fn is_of(object: &Object<'_>, key: Key<'_>) -> bool {
    object.key == key.name && object.meta.database == key.database
}

/// Has the object's time come?
pub(crate) fn is_over(meta: &Meta, now_ms: u64) -> bool {
    meta.expires_at_ms.is_some_and(|at| at <= now_ms)
}

/// The entry of an object whose whole value is `value`.
pub(crate) fn entry<'a>(meta: &Meta, value: &'a [u8]) -> Entry<'a> {
    Entry { value, kind: Kind::from_bits(meta.kind), expires_at_ms: meta.expires_at_ms }
}
