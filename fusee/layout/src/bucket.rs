//! Buckets of the RACE index.
//!
//! ```text
//! group, 192 bytes:   | main 0 | overflow | main 1 |
//! combined bucket 0:  |<------128------->|
//! combined bucket 1:           |<------128------->|
//! bucket, 64 bytes:   | header | slot 0 | ... | slot 6 |
//! header:  63        40 39      32 31          8 7           0
//!         | reserved   | version  | suffix      | local depth |
//! ```
//!
//! A header of 0 belongs to a subtable that was never split, so a pool needs no
//! formatting and untouched memory stays untouched.
//!
//! A key may be in either of two combined buckets, which one batch READs.

/// Bytes of a bucket: one cache line.
pub const BUCKET_BYTES: usize = 64;
/// Slots of a bucket, after its header.
pub const SLOTS_PER_BUCKET: usize = 7;
/// Bytes of a group: two main buckets that share an overflow bucket.
pub const GROUP_BYTES: usize = 3 * BUCKET_BYTES;
/// Bytes of a combined bucket: a main bucket and the overflow bucket.
pub const COMBINED_BYTES: usize = 2 * BUCKET_BYTES;
/// Slots of a combined bucket.
pub const COMBINED_SLOTS: usize = 2 * SLOTS_PER_BUCKET;

const _: () = assert!(BUCKET_BYTES == 8 * (1 + SLOTS_PER_BUCKET));

/// What a bucket says about the subtable it belongs to; a client whose
/// directory disagrees reads the directory again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BucketHeader {
    /// How many low bits of the hash the subtable's keys share.
    pub local_depth: u8,
    /// Those bits.
    pub suffix: u32,
    /// Layout version of the bucket.
    pub version: u8,
}

impl BucketHeader {
    /// The layout version that this code reads and writes.
    pub const VERSION: u8 = 1;

    /// As it lies in memory.
    pub const fn word(self) -> u64 {
        assert!(self.suffix < 1 << 24, "a suffix has 24 bits");
        self.local_depth as u64 | (self.suffix as u64) << 8 | (self.version as u64) << 32
    }

    /// From memory; `None` if it is no header of this version.
    pub const fn from_word(word: u64) -> Option<Self> {
        let header = Self {
            local_depth: word as u8,
            suffix: (word >> 8) as u32 & 0xff_ffff,
            version: (word >> 32) as u8,
        };
        if word >> 40 != 0 || header.version != Self::VERSION || header.local_depth > 24 {
            return None;
        }
        Some(header)
    }

    /// Does a bucket whose header is `word` hold the keys that a directory entry
    /// of this depth and suffix sends there? `initial_depth` is that of the
    /// directory when the pool was created.
    pub const fn agrees(word: u64, local_depth: u8, suffix: u32, initial_depth: u8) -> bool {
        if word == 0 {
            return local_depth == initial_depth;
        }
        match Self::from_word(word) {
            Some(header) => header.local_depth == local_depth && header.covers(suffix),
            None => false,
        }
    }

    /// Does a key with this hash suffix (24 low bits) belong here?
    pub const fn covers(self, suffix: u32) -> bool {
        suffix & ((1 << self.local_depth) - 1) == self.suffix
    }
}

/// The slots of a combined bucket as (offset in bytes within it, word), main
/// bucket first. `side` tells which half is the main bucket: 0 the first half.
pub fn combined_slots(words: &[u64], side: u32) -> impl Iterator<Item = (u64, u64)> {
    assert!(words.len() == COMBINED_BYTES / 8, "a combined bucket is 128 bytes");
    let main = if side == 0 { 0 } else { 8 };
    (0..COMBINED_SLOTS).map(move |number| {
        let bucket = if number < SLOTS_PER_BUCKET { main } else { 8 - main };
        let at = bucket + 1 + number % SLOTS_PER_BUCKET;
        (8 * at as u64, words[at])
    })
}

/// The byte offset of a slot (0 to 6) within its bucket.
pub const fn slot_offset(slot: usize) -> usize {
    8 * (1 + slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_and_strangers_are_refused() {
        for (local_depth, suffix) in [(0, 0), (1, 1), (16, 0xffff), (24, 0xff_ffff)] {
            let header = BucketHeader { local_depth, suffix, version: BucketHeader::VERSION };
            assert_eq!(BucketHeader::from_word(header.word()), Some(header));
            assert!(header.covers(suffix));
        }
        assert_eq!(BucketHeader::from_word(0), None);
        assert_eq!(BucketHeader::from_word(1 << 40 | 1 << 32), None);
        assert_eq!(BucketHeader::from_word(25 | 1 << 32), None);
    }

    #[test]
    fn a_header_agrees_with_the_directory_entry_it_was_made_for() {
        let word = BucketHeader { local_depth: 3, suffix: 5, version: 1 }.word();
        assert!(BucketHeader::agrees(word, 3, 0b10_101, 2));
        assert!(!BucketHeader::agrees(word, 3, 0b10_100, 2), "another suffix");
        assert!(!BucketHeader::agrees(word, 2, 0b10_101, 2), "split since");
        assert!(BucketHeader::agrees(0, 2, 1, 2));
        assert!(!BucketHeader::agrees(0, 3, 1, 2));
        assert!(!BucketHeader::agrees(u64::MAX, 3, 5, 2), "damaged");
    }

    #[test]
    fn a_combined_bucket_lists_its_main_bucket_first_and_no_header() {
        let words: Vec<u64> = (0..16).collect();
        let side0: Vec<_> = combined_slots(&words, 0).map(|(at, w)| (at / 8, w)).collect();
        let side1: Vec<_> = combined_slots(&words, 1).map(|(at, w)| (at / 8, w)).collect();
        let order0: Vec<u64> = (1..8).chain(9..16).collect();
        let order1: Vec<u64> = (9..16).chain(1..8).collect();
        assert_eq!(side0, order0.iter().map(|&w| (w, w)).collect::<Vec<_>>());
        assert_eq!(side1, order1.iter().map(|&w| (w, w)).collect::<Vec<_>>());
    }
}
