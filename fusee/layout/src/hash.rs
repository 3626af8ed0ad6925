//! Where a key belongs: subtable, two buckets and a fingerprint out of one hash.
//!
//! ```text
//!  63          56 55            36 35            16 15                0
//! | fingerprint  | second bucket  | first bucket   | directory suffix |
//! ```

use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline};

/// Hashes the keys of one pool: rapidhash v3 under the pool's seed, which is
/// part of the memory layout, with another seed for each database.
#[derive(Clone, Debug)]
pub struct KeyHasher {
    secrets: Vec<RapidSecrets>,
}

impl KeyHasher {
    /// For a pool of this seed.
    pub fn new(seed: u64) -> Self {
        let secrets = (0..=u8::MAX)
            .map(|database| {
                let step = u64::from(database).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                RapidSecrets::seed_cpp(seed.wrapping_add(step))
            })
            .collect();
        Self { secrets }
    }

    /// The hash of a key of a database.
    #[inline]
    pub fn hash(&self, database: u8, name: &[u8]) -> KeyHash {
        let secrets = &self.secrets[usize::from(database)];
        KeyHash(rapidhash_v3_inline::<true, false, false>(name, secrets))
    }
}

/// A key's 64-bit hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyHash(u64);

const BUCKET_BITS: u32 = 20;

impl KeyHash {
    /// Most buckets per subtable that the 20 bits of a bucket choice can tell apart.
    pub const GROUPS_MAX: u32 = 1 << (BUCKET_BITS - 1);
    /// Deepest directory that the suffix can index.
    pub const DEPTH_MAX: u8 = 16;

    /// From the hash itself.
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// The hash itself.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The 8 bits that go into the slot.
    pub const fn fingerprint(self) -> u8 {
        (self.0 >> 56) as u8
    }

    /// The low bits that choose a subtable in a directory of 2^depth entries.
    pub const fn suffix(self, depth: u8) -> u32 {
        (self.0 & ((1 << depth) - 1)) as u32
    }

    /// The two combined buckets, in different groups, as (group, side): side 0
    /// is main bucket 0 with the overflow bucket, side 1 main bucket 1 with it.
    pub const fn buckets(self, groups: u32) -> [(u32, u32); 2] {
        debug_assert!(groups >= 2 && groups <= Self::GROUPS_MAX);
        let mask = (1 << BUCKET_BITS) - 1;
        let sides = groups as u64 * 2;
        let first = (((self.0 >> 16) & mask) * sides) >> BUCKET_BITS;
        let mut second = (((self.0 >> 36) & mask) * sides) >> BUCKET_BITS;
        if first / 2 == second / 2 {
            second += 2;
            if second >= sides {
                second -= sides;
            }
        }
        [(first as u32 / 2, first as u32 % 2), (second as u32 / 2, second as u32 % 2)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HASH_OF_KEY: u64 = 1_735_282_387_877_436_293;

    #[test]
    fn the_hash_is_part_of_the_layout() {
        // Changing any of these makes every existing pool unreadable.
        let hasher = KeyHasher::new(1);
        assert_eq!(hasher.hash(0, b"key").word(), HASH_OF_KEY);
        assert_ne!(hasher.hash(1, b"key").word(), HASH_OF_KEY);
        assert_ne!(KeyHasher::new(2).hash(0, b"key").word(), HASH_OF_KEY);
    }

    proptest! {
        #[test]
        fn the_two_buckets_are_in_range_and_in_different_groups(
            word: u64, groups in 2..=KeyHash::GROUPS_MAX,
        ) {
            let [(g1, s1), (g2, s2)] = KeyHash::from_word(word).buckets(groups);
            prop_assert!(g1 < groups && g2 < groups && s1 < 2 && s2 < 2);
            prop_assert_ne!(g1, g2);
        }
    }
}
