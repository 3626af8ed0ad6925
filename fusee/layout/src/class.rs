//! Size classes of objects.
//!
//! 64, 128, 192, 256 bytes, then four per doubling: 320, 384, 448, 512, 640, ...
//! so that an object wastes less than a fifth of its memory (less than 64 bytes
//! below 256) and every object starts on a 64-byte line.

/// How many classes a slot word can name (6 bits).
pub const CLASSES_MAX: usize = 64;

const LINE: usize = 64;
/// Classes 0 to 3 are whole lines; from here on each doubling has four.
const LINEAR: usize = 4;

/// A size class.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Class(u8);

impl Class {
    /// The smallest class: one line. Delete records live here.
    pub const SMALLEST: Self = Self(0);

    /// From its number below [`CLASSES_MAX`].
    pub const fn new(number: u8) -> Self {
        assert!((number as usize) < CLASSES_MAX, "a class has 6 bits");
        Self(number)
    }

    /// Its number, below [`CLASSES_MAX`].
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Its number as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The size of its objects in bytes, a multiple of 64.
    pub const fn bytes(self) -> usize {
        let number = self.0 as usize;
        if number < LINEAR {
            (number + 1) * LINE
        } else {
            let doubling = (number - LINEAR) / 4;
            let quarter = (number - LINEAR) % 4;
            (LINE << doubling) * (5 + quarter)
        }
    }

    /// The smallest class that holds `bytes`, if any does.
    pub const fn for_bytes(bytes: usize) -> Option<Self> {
        if bytes <= LINEAR * LINE {
            let lines = bytes.div_ceil(LINE);
            return Some(Self(if lines == 0 { 0 } else { lines as u8 - 1 }));
        }
        // 256 << d < bytes <= 512 << d; a quarter of that span is 64 << d.
        let doubling = (usize::BITS - 1 - (bytes - 1).leading_zeros()) as usize - 8;
        let quarter = (bytes - (256 << doubling)).div_ceil(LINE << doubling) - 1;
        let number = LINEAR + doubling * 4 + quarter;
        if number < CLASSES_MAX { Some(Self(number as u8)) } else { None }
    }
}

const _: () =
    assert!(Class(3).bytes() == 256 && Class(4).bytes() == 320 && Class(7).bytes() == 512);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_class_that_holds_it() {
        let mut number = 0;
        for bytes in 0..=1 << 20 {
            if bytes > Class::new(number).bytes() {
                number += 1;
            }
            assert_eq!(Class::for_bytes(bytes), Some(Class::new(number)), "{bytes} bytes");
        }
    }

    #[test]
    fn sizes_beyond_the_largest_class_have_none() {
        let largest = Class::new(CLASSES_MAX as u8 - 1).bytes();
        assert_eq!(Class::for_bytes(largest), Some(Class::new(CLASSES_MAX as u8 - 1)));
        assert_eq!(Class::for_bytes(largest + 1), None);
        assert_eq!(Class::for_bytes(usize::MAX / 2), None);
    }
}
