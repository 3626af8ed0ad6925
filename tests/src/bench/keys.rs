//! The keys of the benchmark, in an order that no cache can guess.

use crate::random::Random;

/// Digits of a key's number. `key:` comes before them.
pub(super) const DIGITS: usize = 12;
/// Bytes of a key.
pub(super) const KEY_BYTES: usize = 4 + DIGITS;

/// All keys in a shuffled order that is the same in every run.
#[derive(Debug)]
pub struct Keys {
    shuffled: Vec<[u8; DIGITS]>,
}

impl Keys {
    /// `count` distinct keys.
    pub fn new(count: usize) -> Self {
        let mut shuffled: Vec<[u8; DIGITS]> = (0..count).map(digits).collect();
        let mut random = Random::new(0x5eed);
        for last in (1..count).rev() {
            shuffled.swap(last, random.below(last + 1));
        }
        Self { shuffled }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.shuffled.len()
    }

    /// The digits of the key at `place` of the order, which wraps around.
    pub(super) fn at(&self, place: usize) -> &[u8; DIGITS] {
        &self.shuffled[place % self.shuffled.len()]
    }
}

fn digits(number: usize) -> [u8; DIGITS] {
    let mut out = [b'0'; DIGITS];
    let mut rest = number;
    for digit in out.iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).expect("a digit is below 10");
        rest /= 10;
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_key_comes_once_in_each_round() {
        let keys = Keys::new(1000);
        let seen: HashSet<_> = (0..1000).map(|place| *keys.at(place)).collect();
        assert_eq!(seen.len(), 1000);
        assert_eq!(keys.at(1000), keys.at(0));
    }

    #[test]
    fn the_order_is_shuffled_and_repeatable() {
        let (one, two) = (Keys::new(1000), Keys::new(1000));
        assert_eq!(one.shuffled, two.shuffled);
        let in_place = (0..1000).filter(|&n| *one.at(n) == digits(n)).count();
        assert!(in_place < 10, "{in_place} keys stand where they would unshuffled");
    }
}
