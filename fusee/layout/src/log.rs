//! The embedded log entry (paper, section 4.5): the first 22 bytes of every object.
//!
//! ```text
//!  0           8      9            15           21            22
//! | old value  | CRC  | next       | prev       | opcode, used |
//! ```
//!
//! The paper puts it behind the value, with the used bit last, so that an
//! in-order WRITE proves the object whole. We put it in front: its place then
//! follows from the slot word alone, so a helper commits for a winner whose
//! object it has not read; that an object is whole is proved by its checksum,
//! which covers everything from `next` on. `old` and its CRC stand outside the
//! checksum, because whoever commits the write fills them in afterwards.

use crate::{Address, word};
use crc::{CRC_8_SMBUS, Crc};

/// Bytes of a log entry.
pub const LOG_ENTRY_BYTES: usize = 22;
/// Bytes that a commit record WRITEs: the first two words of the object.
pub const RECORD_BYTES: usize = 16;

const CRC_AT: usize = 8;
/// Where the part that the checksum covers begins.
pub(crate) const NEXT_AT: usize = 9;
const PREV_AT: usize = 15;
/// Where the byte of opcode and used bit is; without the bit it is the opcode.
pub const OPCODE_AT: usize = 21;
const _: () = assert!(OPCODE_AT + 1 == LOG_ENTRY_BYTES);
const _: () = assert!(CRC_AT < RECORD_BYTES);

const USED: u8 = 0x80;
const CRC8: Crc<u8> = Crc::<u8>::new(&CRC_8_SMBUS);

/// What a write does, as recovery and losers of a round need to know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Opcode {
    /// SET: does not depend on what it replaces.
    Set = 1,
    /// A write that was decided by what it replaces (SET NX, INCR, ...).
    Update = 2,
    /// DEL of whatever is there.
    Delete = 3,
    /// A delete that was decided by what it removes (GETDEL, ...).
    Take = 4,
    /// Part of a value that is too large for one object.
    Chunk = 5,
    /// A transaction's record: its decision is in the value's place.
    Transaction = 6,
    /// A transaction's intent: the key gets this value.
    Prepare = 7,
    /// A transaction's intent: the key keeps its value, of which this is a copy.
    Keep = 8,
    /// A transaction's intent: the key is going to be absent.
    Remove = 9,
}

impl Opcode {
    const fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            1 => Self::Set,
            2 => Self::Update,
            3 => Self::Delete,
            4 => Self::Take,
            5 => Self::Chunk,
            6 => Self::Transaction,
            7 => Self::Prepare,
            8 => Self::Keep,
            9 => Self::Remove,
            _ => return None,
        })
    }

    /// Was the write decided without looking at what it replaces?
    pub const fn is_blind(self) -> bool {
        matches!(self, Self::Set | Self::Delete)
    }

    /// Is it one of several writes that are done together or not at all?
    pub const fn is_intent(self) -> bool {
        matches!(self, Self::Prepare | Self::Keep | Self::Remove)
    }

    /// Does the write remove the key?
    pub const fn is_delete(self) -> bool {
        matches!(self, Self::Delete | Self::Take)
    }
}

/// A log entry in working form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogEntry {
    /// The slot word that the write replaced, once it is committed.
    pub committed_over: Option<u64>,
    /// The object that the client will allocate next in this size class.
    pub next: Address,
    /// The object that it allocated before.
    pub prev: Address,
    /// What the write does.
    pub opcode: Opcode,
    /// Is the object in use? Reset when its write has lost.
    pub used: bool,
}

impl LogEntry {
    /// Packs it into the first 22 bytes of an object.
    pub fn write(&self, bytes: &mut [u8]) {
        let (old, crc) = match self.committed_over {
            Some(old) => (old, crc_of(old)),
            None => (0, 0),
        };
        bytes[..8].copy_from_slice(&old.to_le_bytes());
        bytes[CRC_AT] = crc;
        bytes[NEXT_AT..PREV_AT].copy_from_slice(&self.next.get().to_le_bytes()[..6]);
        bytes[PREV_AT..OPCODE_AT].copy_from_slice(&self.prev.get().to_le_bytes()[..6]);
        bytes[OPCODE_AT] = self.opcode as u8 | if self.used { USED } else { 0 };
    }

    /// Parses it; `None` if the opcode is none of ours.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let opcode = Opcode::from_bits(bytes[OPCODE_AT] & !USED)?;
        Some(Self {
            committed_over: committed_over(bytes),
            next: address(&bytes[NEXT_AT..PREV_AT]),
            prev: address(&bytes[PREV_AT..OPCODE_AT]),
            opcode,
            used: bytes[OPCODE_AT] & USED != 0,
        })
    }
}

/// The two first words of an object, turned into the record that its write
/// over `old` is committed.
pub fn commit_record(mut first: [u8; RECORD_BYTES], old: u64) -> [u8; RECORD_BYTES] {
    first[..8].copy_from_slice(&old.to_le_bytes());
    first[CRC_AT] = crc_of(old);
    first
}

/// The slot word over which the object that starts with `bytes` was committed,
/// if it was.
pub(crate) fn committed_over(bytes: &[u8]) -> Option<u64> {
    let old = word(bytes, 0);
    (bytes[CRC_AT] == crc_of(old)).then_some(old)
}

/// The complement, so that zeroes, as an object is written with, are no record
/// of an `old` of 0.
fn crc_of(old: u64) -> u8 {
    !CRC8.checksum(&old.to_le_bytes())
}

fn address(bytes: &[u8]) -> Address {
    let mut word = [0; 8];
    word[..6].copy_from_slice(bytes);
    Address::new(u64::from_le_bytes(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_entry_without_old_value_is_not_committed() {
        let entry = LogEntry {
            committed_over: None,
            next: Address::new(64),
            prev: Address::new(0),
            opcode: Opcode::Set,
            used: true,
        };
        let mut bytes = [0; LOG_ENTRY_BYTES];
        entry.write(&mut bytes);
        assert_eq!(LogEntry::parse(&bytes), Some(entry));
    }

    #[test]
    fn an_unknown_opcode_is_refused() {
        assert_eq!(LogEntry::parse(&[0; LOG_ENTRY_BYTES]), None);
        assert_eq!(LogEntry::parse(&[0xff; LOG_ENTRY_BYTES]), None);
    }

    proptest! {
        #[test]
        fn entries_come_back(
            committed_over: Option<u64>, next in 0..1u64 << 48, prev in 0..1u64 << 48,
            opcode in 1..=5u8, used: bool,
        ) {
            let entry = LogEntry {
                committed_over,
                next: Address::new(next),
                prev: Address::new(prev),
                opcode: Opcode::from_bits(opcode).unwrap(),
                used,
            };
            let mut bytes = [0xaa; 32];
            entry.write(&mut bytes);
            prop_assert_eq!(LogEntry::parse(&bytes), Some(entry));
            prop_assert_eq!(&bytes[LOG_ENTRY_BYTES..], &[0xaa; 10][..]);
        }

        #[test]
        fn a_record_changes_nothing_but_the_old_value(old: u64, next in 0..1u64 << 48) {
            let entry = LogEntry {
                committed_over: None, next: Address::new(next), prev: Address::new(7 << 6),
                opcode: Opcode::Take, used: true,
            };
            let mut bytes = [0; LOG_ENTRY_BYTES];
            entry.write(&mut bytes);
            let first = bytes[..RECORD_BYTES].try_into().unwrap();
            bytes[..RECORD_BYTES].copy_from_slice(&commit_record(first, old));
            let expected = LogEntry { committed_over: Some(old), ..entry };
            prop_assert_eq!(LogEntry::parse(&bytes), Some(expected));
        }
    }
}
