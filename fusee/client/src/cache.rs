//! The index cache: key hash to slot address and slot word (paper, section 4.6).
//!
//! A set of three entries is one cache line, so a lookup misses at most once
//! and can be prefetched. Keys are told apart by 32 bits of hash besides those
//! that choose the set; a wrong match costs a round trip, never a wrong answer,
//! since every object carries its key.
//!
//! Each entry counts accesses and how many of them found the word out of date;
//! beyond a threshold the key is write-intensive and reading its cached object
//! along with the slot would mostly be waste, so the cache is bypassed until
//! the ratio has fallen. Counters are halved when full: old times fade.

use fusee_layout::{Address, KeyHash, Slot};

const WAYS: usize = 3;
/// Of 256: more invalid accesses than this and the key is bypassed.
const BYPASS_ABOVE: u16 = 64;
/// Fewer accesses than this say nothing about a key yet.
const ACCESSES_MIN: u8 = 4;

#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Set {
    words: [u64; WAYS],
    /// Slot addresses.
    slots: [u64; WAYS],
    tags: [u16; WAYS],
    accesses: [u8; WAYS],
    invalid: [u8; WAYS],
}
const _: () = assert!(size_of::<Set>() == 64);

/// What the cache knows of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cached {
    /// Where its slot is.
    pub(crate) at: Address,
    /// What the slot held.
    pub(crate) word: Slot,
}

/// What a lookup found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lookup {
    /// Use it.
    Hit(Cached),
    /// Known, but written to more than read.
    Bypass,
    /// Not known.
    Miss,
}

/// A bounded cache of slots. It never grows.
pub(crate) struct IndexCache {
    sets: Vec<Set>,
    mask: usize,
    clock: u8,
}

impl IndexCache {
    /// A cache of about `entries` entries, 21 bytes each; none at all for 0.
    pub(crate) fn new(entries: usize) -> Self {
        let sets = if entries == 0 { 0 } else { entries.div_ceil(WAYS).next_power_of_two() };
        Self { sets: vec![Set::default(); sets], mask: sets.wrapping_sub(1), clock: 0 }
    }

    fn position(&self, hash: KeyHash) -> Option<(usize, u16)> {
        if self.sets.is_empty() {
            return None;
        }
        // The index uses the low and high bits; mixing keeps sets independent of it.
        let mixed = hash.word().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Some(((mixed >> 16) as usize & self.mask, mixed as u16))
    }

    /// Brings the key's set into the processor's cache.
    #[inline]
    pub(crate) fn prefetch(&self, hash: KeyHash) {
        if let Some((set, _)) = self.position(hash) {
            fusee_fabric::prefetch_read(&self.sets[set]);
        }
    }

    /// What is known of a key, without counting the access.
    pub(crate) fn peek(&self, hash: KeyHash) -> Option<Cached> {
        let (set, tag) = self.position(hash)?;
        let set = &self.sets[set];
        let way = (0..WAYS)
            .find(|&w| set.tags[w] == tag && set.words[w] >> 56 == u64::from(hash.fingerprint()))?;
        let word = Slot::from_word(set.words[way]).filter(|word| word.is_live())?;
        Some(Cached { at: Address::new(set.slots[way]), word })
    }

    /// Looks a key up and counts the access.
    pub(crate) fn get(&mut self, hash: KeyHash) -> Lookup {
        let Some((set, tag)) = self.position(hash) else { return Lookup::Miss };
        let set = &mut self.sets[set];
        for way in 0..WAYS {
            let Some(word) = Slot::from_word(set.words[way]).filter(|w| w.is_live()) else {
                continue;
            };
            if set.tags[way] != tag || word.fingerprint() != hash.fingerprint() {
                continue;
            }
            if set.accesses[way] == u8::MAX {
                set.accesses[way] /= 2;
                set.invalid[way] /= 2;
            }
            set.accesses[way] += 1;
            let (accesses, invalid) = (u16::from(set.accesses[way]), u16::from(set.invalid[way]));
            if set.accesses[way] >= ACCESSES_MIN && invalid * 256 / accesses > BYPASS_ABOVE {
                return Lookup::Bypass;
            }
            return Lookup::Hit(Cached { at: Address::new(set.slots[way]), word });
        }
        Lookup::Miss
    }

    /// The cached word was out of date when it was used.
    pub(crate) fn invalid(&mut self, hash: KeyHash) {
        let Some((set, tag)) = self.position(hash) else { return };
        let set = &mut self.sets[set];
        for way in 0..WAYS {
            if set.tags[way] == tag && set.words[way] >> 56 == u64::from(hash.fingerprint()) {
                set.invalid[way] = set.invalid[way].saturating_add(1).min(set.accesses[way]);
            }
        }
    }

    /// Remembers where a key is now.
    pub(crate) fn put(&mut self, hash: KeyHash, cached: Cached) {
        let Some((set, tag)) = self.position(hash) else { return };
        self.clock = self.clock.wrapping_add(1);
        let clock = self.clock;
        let set = &mut self.sets[set];
        let own = (0..WAYS)
            .find(|&w| set.tags[w] == tag && set.words[w] >> 56 == u64::from(hash.fingerprint()));
        let way = own.unwrap_or_else(|| {
            let empty = (0..WAYS).find(|&w| set.words[w] == 0);
            let way = empty.unwrap_or_else(|| {
                // The least used of two chosen in turn: cheap, and one-time
                // visitors do not push out what is read often.
                let (a, b) = (usize::from(clock) % WAYS, (usize::from(clock) + 1) % WAYS);
                if set.accesses[a] <= set.accesses[b] { a } else { b }
            });
            for other in 0..WAYS {
                set.accesses[other] -= set.accesses[other] / 4;
            }
            set.accesses[way] = 0;
            set.invalid[way] = 0;
            way
        });
        set.tags[way] = tag;
        set.words[way] = cached.word.word();
        set.slots[way] = cached.at.get();
    }

    /// Forgets a key.
    pub(crate) fn remove(&mut self, hash: KeyHash) {
        let Some((set, tag)) = self.position(hash) else { return };
        let set = &mut self.sets[set];
        for way in 0..WAYS {
            if set.tags[way] == tag && set.words[way] >> 56 == u64::from(hash.fingerprint()) {
                set.words[way] = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fusee_layout::Class;

    fn hash(number: u64) -> KeyHash {
        KeyHash::from_word(number.wrapping_mul(0xdead_beef_1234_5679))
    }

    fn cached(hash: KeyHash, generation: u8) -> Cached {
        let word = Slot::live(hash.fingerprint(), Class::new(2), generation, Address::new(4096));
        Cached { at: Address::new(64), word }
    }

    #[test]
    fn what_was_put_is_found_until_removed() {
        let mut cache = IndexCache::new(30);
        assert_eq!(cache.get(hash(1)), Lookup::Miss);
        cache.put(hash(1), cached(hash(1), 1));
        assert_eq!(cache.get(hash(1)), Lookup::Hit(cached(hash(1), 1)));
        cache.put(hash(1), cached(hash(1), 2));
        assert_eq!(cache.get(hash(1)), Lookup::Hit(cached(hash(1), 2)));
        cache.remove(hash(1));
        assert_eq!(cache.get(hash(1)), Lookup::Miss);
    }

    #[test]
    fn a_written_key_is_bypassed_and_comes_back_when_it_is_read() {
        let mut cache = IndexCache::new(30);
        cache.put(hash(1), cached(hash(1), 1));
        for _ in 0..20 {
            cache.get(hash(1));
            cache.invalid(hash(1));
        }
        assert_eq!(cache.get(hash(1)), Lookup::Bypass);
        let back = (0..1000).position(|_| matches!(cache.get(hash(1)), Lookup::Hit(_)));
        assert!(back.is_some_and(|n| n > 10));
    }

    #[test]
    fn it_stays_within_its_bound_and_keeps_what_is_used() {
        let mut cache = IndexCache::new(3 * 64);
        for number in 0..100_000 {
            cache.put(hash(number), cached(hash(number), 1));
            cache.put(hash(7), cached(hash(7), 1));
            assert!(matches!(cache.get(hash(7)), Lookup::Hit(_)));
        }
        assert_eq!(cache.sets.len(), 64);
    }

    #[test]
    fn a_cache_of_no_entries_knows_nothing() {
        let mut cache = IndexCache::new(0);
        cache.put(hash(1), cached(hash(1), 1));
        cache.invalid(hash(1));
        cache.remove(hash(1));
        cache.prefetch(hash(1));
        assert_eq!(cache.get(hash(1)), Lookup::Miss);
    }
}
