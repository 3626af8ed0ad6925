//! The index cache: key hash to slot address and slot word (paper, section 4.6).
//!
//! ```text
//! set, one line:  | entry 0 | entry 1 | entry 2 | entry 3 |
//! entry:          | slot word, 0 if unused | 63 invalid 59 58 accesses 54 53 tag 45 44 slot / 8 0 |
//! ```
//!
//! A lookup misses the processor's cache at most once and can be prefetched; the
//! sets lie on huge pages where there are any, or each would miss the TLB too. Keys
//! are told apart by the tag and the slot word's fingerprint besides the bits that
//! choose the set; a wrong match costs a round trip, never a wrong answer, since
//! every object carries its key.
//!
//! Each entry counts accesses and how many of them found the word out of date;
//! beyond a threshold the key is write-intensive and reading its cached object
//! along with the slot would mostly be waste, so the cache is bypassed until
//! the ratio has fallen. Counters are halved when full: old times fade.

use fusee_fabric::Memory;
use fusee_layout::{Address, KeyHash, Slot};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WAYS: usize = 4;
const SET_WORDS: usize = 2 * WAYS;
const _: () = assert!(SET_WORDS * 8 == 64);

/// One access in so many invalid, and the key is bypassed.
const BYPASS_RATIO: u64 = 4;
/// Fewer accesses than this say nothing about a key yet.
const ACCESSES_MIN: u64 = 4;

const SLOT_BITS: u32 = 45;
const TAG_SHIFT: u32 = SLOT_BITS;
const ACCESSES_SHIFT: u32 = 54;
const INVALID_SHIFT: u32 = 59;
/// Both counters have five bits.
const COUNT_MAX: u64 = 31;
const TAG_MAX: u64 = (1 << (ACCESSES_SHIFT - TAG_SHIFT)) - 1;
const _: () = assert!(SLOT_BITS + 3 == Address::BITS && INVALID_SHIFT + 5 == u64::BITS);

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

/// The second word of an entry in working form.
#[derive(Clone, Copy)]
struct Detail {
    at: Address,
    tag: u64,
    accesses: u64,
    invalid: u64,
}

impl Detail {
    fn from_word(word: u64) -> Self {
        Self {
            at: Address::new((word & ((1 << SLOT_BITS) - 1)) << 3),
            tag: (word >> TAG_SHIFT) & TAG_MAX,
            accesses: (word >> ACCESSES_SHIFT) & COUNT_MAX,
            invalid: word >> INVALID_SHIFT,
        }
    }

    fn word(self) -> u64 {
        self.at.get() >> 3
            | self.tag << TAG_SHIFT
            | self.accesses << ACCESSES_SHIFT
            | self.invalid << INVALID_SHIFT
    }
}

/// A bounded cache of slots, of one thread. It never grows.
pub(crate) struct IndexCache {
    /// Zeroes from the system; touched where it is used. The atomics are the type
    /// of such memory, not shared with anybody.
    memory: Option<Memory>,
    mask: u64,
    clock: usize,
}

impl IndexCache {
    /// A cache of about `entries` entries, 16 bytes each; none at all for 0, or
    /// where the system has no memory for it.
    pub(crate) fn new(entries: usize) -> Self {
        let sets = entries.div_ceil(WAYS).next_power_of_two();
        let memory = if entries == 0 { None } else { Memory::private(sets * 64).ok() };
        Self { memory, mask: sets as u64 - 1, clock: 0 }
    }

    /// The key's set and its tag.
    #[inline]
    fn set(&self, hash: KeyHash) -> Option<(&[AtomicU64], u64)> {
        // The index uses the low and high bits; mixing keeps sets independent of it.
        let mixed = hash.word().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let first = ((mixed >> 20) & self.mask) as usize * SET_WORDS;
        let set = &self.memory.as_ref()?.words()[first..first + SET_WORDS];
        Some((set, mixed & TAG_MAX))
    }

    /// The key's entry in its set: its number, word and detail.
    #[inline]
    fn find(set: &[AtomicU64], tag: u64, hash: KeyHash) -> Option<(usize, u64, Detail)> {
        (0..WAYS).find_map(|way| {
            let word = set[2 * way].load(Relaxed);
            let detail = Detail::from_word(set[2 * way + 1].load(Relaxed));
            let same = detail.tag == tag && word >> 56 == u64::from(hash.fingerprint());
            (word != 0 && same).then_some((way, word, detail))
        })
    }

    /// Brings the key's set into the processor's cache.
    #[inline]
    pub(crate) fn prefetch(&self, hash: KeyHash) {
        if let Some((set, _)) = self.set(hash) {
            fusee_fabric::prefetch_read(&set[0]);
        }
    }

    /// What is known of a key, without counting the access.
    #[inline]
    pub(crate) fn peek(&self, hash: KeyHash) -> Option<Cached> {
        let (set, tag) = self.set(hash)?;
        let (_, word, detail) = Self::find(set, tag, hash)?;
        Some(Cached { at: detail.at, word: Slot::from_word(word)? })
    }

    /// Looks a key up and counts the access.
    #[inline]
    pub(crate) fn get(&self, hash: KeyHash) -> Lookup {
        let Some((set, tag)) = self.set(hash) else { return Lookup::Miss };
        let Some((way, word, mut detail)) = Self::find(set, tag, hash) else {
            return Lookup::Miss;
        };
        let Some(word) = Slot::from_word(word) else { return Lookup::Miss };
        if detail.accesses == COUNT_MAX {
            detail.accesses /= 2;
            detail.invalid /= 2;
        }
        detail.accesses += 1;
        set[2 * way + 1].store(detail.word(), Relaxed);
        if detail.accesses >= ACCESSES_MIN && detail.invalid * BYPASS_RATIO > detail.accesses {
            return Lookup::Bypass;
        }
        Lookup::Hit(Cached { at: detail.at, word })
    }

    /// The cached word was out of date when it was used.
    pub(crate) fn invalid(&self, hash: KeyHash) {
        let Some((set, tag)) = self.set(hash) else { return };
        if let Some((way, _, mut detail)) = Self::find(set, tag, hash) {
            detail.invalid = (detail.invalid + 1).min(detail.accesses);
            set[2 * way + 1].store(detail.word(), Relaxed);
        }
    }

    /// Remembers where a key is now.
    pub(crate) fn put(&mut self, hash: KeyHash, cached: Cached) {
        self.clock += 1;
        let Some((set, tag)) = self.set(hash) else { return };
        let known = Self::find(set, tag, hash);
        let way = known.map_or_else(|| Self::victim(set, self.clock), |(way, ..)| way);
        let (accesses, invalid) = known.map_or((0, 0), |(_, _, d)| (d.accesses, d.invalid));
        let detail = Detail { at: cached.at, tag, accesses, invalid };
        set[2 * way].store(cached.word.word(), Relaxed);
        set[2 * way + 1].store(detail.word(), Relaxed);
    }

    /// The entry that goes for a new one: an unused one, or else the less accessed
    /// of two that the clock points at, so that one-time visitors do not push out
    /// what is read often; whoever is spared pays with an eighth of its accesses.
    fn victim(set: &[AtomicU64], clock: usize) -> usize {
        if let Some(way) = (0..WAYS).find(|way| set[2 * way].load(Relaxed) == 0) {
            return way;
        }
        let detail = |way: usize| Detail::from_word(set[2 * way + 1].load(Relaxed));
        let (a, b) = (clock % WAYS, (clock + 1) % WAYS);
        let (victim, spared) =
            if detail(a).accesses <= detail(b).accesses { (a, b) } else { (b, a) };
        let mut aged = detail(spared);
        aged.accesses -= aged.accesses.div_ceil(8);
        aged.invalid = aged.invalid.min(aged.accesses);
        set[2 * spared + 1].store(aged.word(), Relaxed);
        victim
    }

    /// Forgets a key.
    pub(crate) fn remove(&self, hash: KeyHash) {
        let Some((set, tag)) = self.set(hash) else { return };
        if let Some((way, ..)) = Self::find(set, tag, hash) {
            set[2 * way].store(0, Relaxed);
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
        let mut cache = IndexCache::new(40);
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
        let mut cache = IndexCache::new(40);
        cache.put(hash(1), cached(hash(1), 1));
        for _ in 0..20 {
            cache.get(hash(1));
            cache.invalid(hash(1));
        }
        assert_eq!(cache.get(hash(1)), Lookup::Bypass);
        let back = (0..1000).position(|_| matches!(cache.get(hash(1)), Lookup::Hit(_)));
        assert!(back.is_some_and(|n| n > 4));
    }

    #[test]
    fn it_stays_within_its_bound_and_keeps_what_is_used() {
        let mut cache = IndexCache::new(4 * 64);
        for number in 0..100_000 {
            cache.put(hash(number), cached(hash(number), 1));
            cache.put(hash(7), cached(hash(7), 1));
            assert!(matches!(cache.get(hash(7)), Lookup::Hit(_)));
        }
        assert_eq!(cache.memory.unwrap().words().len(), 64 * SET_WORDS);
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
