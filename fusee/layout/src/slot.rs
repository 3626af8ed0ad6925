//! The slot word: 8 bytes of the index that name one object.
//!
//! ```text
//!  63          56 55 54 53      48 47        42 41                  0
//! | fingerprint  |state| class    | generation | address / 64 bytes  |
//! ```

use crate::{Address, Class};
use std::fmt;

const FINGERPRINT_SHIFT: u32 = 56;
const STATE_SHIFT: u32 = 54;
const CLASS_SHIFT: u32 = 48;
const GENERATION_SHIFT: u32 = 42;
const ADDRESS_MASK: u64 = (1 << GENERATION_SHIFT) - 1;
const _: () = assert!(FINGERPRINT_SHIFT + 8 == u64::BITS);
const _: () = assert!(GENERATION_SHIFT + 6 == Address::BITS);

/// What a slot word says of its slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The object is the key's value.
    Live,
    /// An insert in progress where there is no backup to hide it (r = 1).
    /// Readers take it for empty, anybody may abort it.
    Tentative,
    /// A delete (or an abandoned insert) ended here. The word stays after its
    /// object is freed: readers take it for empty without following it.
    Tombstone,
    /// The object is what a transaction over several keys is about to do to the
    /// key: its value if the transaction is committed. Otherwise the key is as it
    /// was before, as the object's record tells.
    Prepared,
}

/// A slot word. 0 is an empty, fresh slot; any other word names an object.
///
/// The generation changes whenever the object's memory is used again, so no
/// word comes back while anybody who has seen it is at work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Slot(u64);

impl Slot {
    /// A slot that was never used.
    pub const EMPTY: Self = Self(0);
    /// Generations go from 1 to this and then from 1 again; 0 is never used.
    pub const GENERATION_MAX: u8 = 63;

    /// The live word of an object.
    pub const fn live(fingerprint: u8, class: Class, generation: u8, address: Address) -> Self {
        assert!(generation > 0 && generation <= Self::GENERATION_MAX, "generations are 1 to 63");
        assert!(address.get().is_multiple_of(64), "objects start on a 64-byte line");
        Self(
            ((fingerprint as u64) << FINGERPRINT_SHIFT)
                | ((class.number() as u64) << CLASS_SHIFT)
                | ((generation as u64) << GENERATION_SHIFT)
                | (address.get() >> 6),
        )
    }

    /// A word as it was found in memory; `None` if it is none of ours.
    pub const fn from_word(word: u64) -> Option<Self> {
        let slot = Self(word);
        if word == 0 {
            return Some(slot);
        }
        if slot.generation() == 0 || word & ADDRESS_MASK == 0 {
            return None;
        }
        Some(slot)
    }

    /// As it lies in memory.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The state, if the slot is not empty.
    pub const fn state(self) -> Option<State> {
        if self.0 == 0 {
            return None;
        }
        Some(match (self.0 >> STATE_SHIFT) & 3 {
            0 => State::Live,
            1 => State::Tentative,
            2 => State::Tombstone,
            _ => State::Prepared,
        })
    }

    /// Is this the word of a visible value?
    pub const fn is_live(self) -> bool {
        self.0 != 0 && (self.0 >> STATE_SHIFT) & 3 == 0
    }

    /// Is this the word of a transaction's intent?
    pub const fn is_prepared(self) -> bool {
        (self.0 >> STATE_SHIFT) & 3 == 3
    }

    /// Do readers have to follow it: is it live or prepared?
    pub const fn leads(self) -> bool {
        self.is_live() || self.is_prepared()
    }

    /// May an insert use the slot: was it never used, or does it hold a tombstone?
    pub const fn is_vacant(self) -> bool {
        self.0 == 0 || (self.0 >> STATE_SHIFT) & 3 == 2
    }

    /// Is this a tombstone?
    pub const fn is_tombstone(self) -> bool {
        (self.0 >> STATE_SHIFT) & 3 == 2
    }

    /// Is this an insert in progress?
    pub const fn is_tentative(self) -> bool {
        (self.0 >> STATE_SHIFT) & 3 == 1
    }

    const fn with_state(self, state: u64) -> Self {
        assert!(self.0 != 0, "an empty slot names no object");
        Self(self.0 & !(3 << STATE_SHIFT) | state << STATE_SHIFT)
    }

    /// The tombstone that names the same object.
    pub const fn tombstone(self) -> Self {
        self.with_state(2)
    }

    /// The tentative word that names the same object.
    pub const fn tentative(self) -> Self {
        self.with_state(1)
    }

    /// The prepared word that names the same object.
    pub const fn prepared(self) -> Self {
        self.with_state(3)
    }

    /// The live word that names the same object.
    pub const fn alive(self) -> Self {
        self.with_state(0)
    }

    /// 8 bits of the key's hash.
    pub const fn fingerprint(self) -> u8 {
        (self.0 >> FINGERPRINT_SHIFT) as u8
    }

    /// The object's size class.
    pub const fn class(self) -> Class {
        Class::new((self.0 >> CLASS_SHIFT) as u8 & 63)
    }

    /// The object's generation.
    pub const fn generation(self) -> u8 {
        (self.0 >> GENERATION_SHIFT) as u8 & 63
    }

    /// The object's address.
    pub const fn address(self) -> Address {
        Address::new((self.0 & ADDRESS_MASK) << 6)
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state() {
            None => f.write_str("Empty"),
            Some(state) => write!(
                f,
                "{state:?}({:?} generation {} class {} fingerprint {:02x})",
                self.address(),
                self.generation(),
                self.class().number(),
                self.fingerprint()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_field_keeps_its_edges() {
        for fingerprint in [0, 1, 0x80, 0xff] {
            for class in [0, 1, 31, 63] {
                for generation in [1, 2, 32, 63] {
                    for address in [64, 128, (1 << 47), (1 << 48) - 64] {
                        let class = Class::new(class);
                        let address = Address::new(address);
                        let live = Slot::live(fingerprint, class, generation, address);
                        for (word, state) in [
                            (live, State::Live),
                            (live.tentative(), State::Tentative),
                            (live.tombstone(), State::Tombstone),
                            (live.prepared(), State::Prepared),
                        ] {
                            assert_eq!(Slot::from_word(word.word()), Some(word));
                            assert_eq!(word.state(), Some(state));
                            assert_eq!(word.fingerprint(), fingerprint);
                            assert_eq!(word.class(), class);
                            assert_eq!(word.generation(), generation);
                            assert_eq!(word.address(), address);
                            assert_eq!(word.alive(), live);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn words_that_no_client_writes_are_refused() {
        let live = Slot::live(7, Class::new(1), 9, Address::new(4096));
        assert_eq!(Slot::from_word(live.word() & !(63 << 42)), None, "generation 0");
        assert_eq!(Slot::from_word(live.word() & !ADDRESS_MASK), None, "address 0");
        assert_eq!(Slot::from_word(0), Some(Slot::EMPTY));
        assert!(Slot::EMPTY.is_vacant() && !Slot::EMPTY.is_live());
    }

    proptest! {
        #[test]
        fn any_word_is_refused_or_kept_whole(word: u64) {
            if let Some(slot) = Slot::from_word(word) {
                prop_assert_eq!(slot.word(), word);
                if word != 0 {
                    let again =
                        Slot::live(slot.fingerprint(), slot.class(), slot.generation(), slot.address());
                    prop_assert_eq!(again, slot.alive());
                }
            }
        }
    }
}
