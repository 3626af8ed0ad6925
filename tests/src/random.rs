//! Repeatable randomness and contents for the suites.

/// Steele, Lea and Flood's SplitMix64: one seed gives one sequence for ever.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A sequence of its own for each seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next word.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        let wide = u128::from(self.word()) * limit as u128;
        usize::try_from(wide >> 64).expect("below a usize")
    }

    /// A number from 0 to 1.
    pub fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let words = std::iter::repeat_with(|| self.word().to_le_bytes());
        let mut bytes: Vec<u8> = words.take(count.div_ceil(8)).flatten().collect();
        bytes.truncate(count);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_another_differs() {
        assert_eq!(Random::new(1).bytes(100), Random::new(1).bytes(100));
        assert_ne!(Random::new(1).bytes(100), Random::new(2).bytes(100));
    }

    #[test]
    fn below_reaches_both_ends_only() {
        let mut random = Random::new(7);
        let drawn: Vec<usize> = (0..1000).map(|_| random.below(3)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&0), Some(&2)));
    }
}
