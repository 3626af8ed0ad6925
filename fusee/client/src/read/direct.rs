//! Reading keys whose memory is this machine's own.
//!
//! A key whose slot is cached takes two READs, of the slot and of the object, and where a
//! READ is a load nothing is to be waited for between them. What there is to wait for are
//! misses of the processor's cache and of its TLB, which overlap when they are asked for
//! together: first the cache's sets of some keys, then their slots, then their objects.
//! Each time that a key is left to a batch counts as a batch more.
//! (To ask for those of later keys while earlier ones are handed over is slower: a
//! prefetch that misses the TLB holds up what comes after it.)

use super::{Reading, Scratch, Step, entry, is_of};
use crate::cache::{Cached, Lookup};
use crate::store::Store;
use crate::{Entry, Env, Error, Key};
use fusee_fabric::{DirectReads, Fabric};
use fusee_layout::{KeyHash, Unverified, prefix_bytes};

/// Keys that are looked up together: their lines fill half of the processor's first cache.
const KEYS_TOGETHER: usize = 64;

/// Keys that were looked up together: their hashes and what the cache knows of them.
#[derive(Default)]
pub(super) struct Looked {
    keys: Vec<(KeyHash, Lookup)>,
    /// So many of them are done with.
    done: usize,
}

impl Looked {
    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.done = 0;
    }

    /// Those that come next and are not cached, which then are done.
    fn uncached(&mut self) -> impl Iterator<Item = Reading> {
        let later = &self.keys[self.done..];
        let is_uncached = |(_, lookup): &&(KeyHash, Lookup)| !matches!(lookup, Lookup::Hit(_));
        let count = later.iter().take_while(is_uncached).count();
        self.done += count;
        later[..count].iter().map(|&(hash, lookup)| Reading::looked(hash, lookup))
    }
}

impl<F: Fabric, E: Env> Store<F, E> {
    /// Hands over keys from number `first` on whose cached slots are current and whose values
    /// are whole, as nearly all are, up to the first that is not so; returns its number, or
    /// nothing if no more are wanted. The scratch's readings say what is known of it, and of
    /// those after it that are not cached.
    pub(super) fn hand_over_direct(
        &self,
        keys: &[Key<'_>],
        first: usize,
        scratch: &mut Scratch,
        each: &mut impl FnMut(usize, Result<Option<Entry<'_>>, Error>) -> bool,
    ) -> Option<usize> {
        let Some(mut direct) = self.fabric.direct() else { return Some(first) };
        let Scratch { looked, readings, .. } = scratch;
        let (mut now_ms, mut next) = (None, first);
        let wants_more = loop {
            let Some(&key) = keys.get(next) else { break true };
            if looked.done == looked.keys.len() {
                self.look_together(&keys[next..keys.len().min(next + KEYS_TOGETHER)], looked);
            }
            let (hash, lookup) = looked.keys[looked.done];
            looked.done += 1;
            let over = |at: u64| at <= *now_ms.get_or_insert_with(|| self.env.now_ms());
            match self.read_direct(&mut direct, key, lookup, over) {
                Ok(entry) => {
                    let wants_more = each(next, Ok(Some(entry)));
                    next += 1;
                    if !wants_more {
                        break false;
                    }
                }
                Err(left) => {
                    readings.push(self.after_direct(hash, lookup, left));
                    readings.extend(looked.uncached());
                    break true;
                }
            }
        };
        self.stats.index_hit.add((next - first) as u64);
        wants_more.then_some(next)
    }

    /// Asks the cache for keys, and memory for what it names.
    #[inline]
    fn look_together(&self, keys: &[Key<'_>], looked: &mut Looked) {
        let cache = self.cache.borrow();
        looked.clear();
        looked.keys.extend(keys.iter().map(|&key| (self.hash(key), Lookup::Miss)));
        // In short loops of their own: the less there is between two misses, the more of
        // them the processor looks for at once.
        for (hash, _) in &looked.keys {
            cache.prefetch(*hash);
        }
        for (hash, lookup) in &mut looked.keys {
            *lookup = cache.get(*hash);
        }
        for (_, lookup) in &looked.keys {
            if let Lookup::Hit(Cached { at, .. }) = lookup {
                self.fabric.prefetch(self.primary(*at), 8);
            }
        }
        for (_, lookup) in &looked.keys {
            if let Lookup::Hit(Cached { word, .. }) = lookup {
                self.fabric.prefetch(self.primary(word.address()), word.class().bytes());
            }
        }
    }

    /// Brings what the next operations on these keys will touch into the
    /// processor's cache, where the memory is the machine's own.
    pub fn prefetch(&self, keys: &[Key<'_>]) {
        let cache = self.cache.borrow();
        for key in keys {
            cache.prefetch(self.hash(*key));
        }
        for key in keys {
            let hash = self.hash(*key);
            if let Some(cached) = cache.peek(hash) {
                self.fabric.prefetch(self.primary(cached.at), 8);
                let bytes = prefix_bytes(key.name.len());
                self.fabric.prefetch(self.primary(cached.word.address()), bytes);
            } else {
                self.place(hash).prefetch(&self.fabric, |address| self.primary(address));
            }
        }
    }

    /// READs a key's slot and object, or tells what is in the way.
    #[inline]
    fn read_direct<'a>(
        &self,
        direct: &'a mut F::Direct<'_>,
        key: Key<'_>,
        lookup: Lookup,
        over: impl FnOnce(u64) -> bool,
    ) -> Result<Entry<'a>, Left> {
        let Lookup::Hit(cached) = lookup else { return Err(Left::Batch) };
        let word = direct.word(self.primary(cached.at)).ok_or(Left::Batch)?;
        if word != cached.word.word() {
            return Err(Left::Stale(cached, word));
        }
        let at = self.primary(cached.word.address());
        let bytes = direct.bytes(at, cached.word.class().bytes()).ok_or(Left::Batch)?;
        let verified = Unverified::new(bytes).verify(cached.word);
        let Some(object) = verified.filter(|object| is_of(object, key)) else {
            return Err(Left::Stale(cached, word));
        };
        if object.meta.chunked || object.meta.expires_at_ms.is_some_and(over) {
            return Err(Left::Batch);
        }
        Ok(entry(&object.meta, object.body))
    }

    /// What a batch goes on with for a key that was not handed over.
    #[cold]
    fn after_direct(&self, hash: KeyHash, lookup: Lookup, left: Left) -> Reading {
        let Left::Stale(cached, word) = left else { return Reading::looked(hash, lookup) };
        match self.after_stale(hash, cached, word) {
            Some(next) => Reading { attempts: 1, ..Reading::looked(hash, Lookup::Hit(next)) },
            None => Reading { hash, step: Step::Unknown, attempts: 0 },
        }
    }
}

/// Why a key was not handed over.
enum Left {
    /// Its slot or its object is not what the cache says; the word is what the slot holds.
    Stale(Cached, u64),
    /// It is not cached, or takes more than two READs.
    Batch,
}
