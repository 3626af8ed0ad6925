//! A client's entry in the client table of each memory node.
//!
//! ```text
//!  0            8           16                         144        256              768
//! | client id   | quiescent | keys of database 0 .. 15 | reserved | list heads     | reserved |
//! ```
//!
//! The client alone writes its entry while it is one. Its quiescent counter
//! tells that every operation which it began before an earlier value was
//! published has ended; the key counts are its share of DBSIZE and may be
//! negative; the list heads are the first object of each size class's log list
//! (paper, section 4.5).
//!
//! Entry 0 is no client's: it holds the key counts of all who have left, under
//! the id [`Member::DEPARTED`]. When a client leaves, memory node 0 adds the
//! client's counts to entry 0 and zeroes the client's entry, in this order and
//! in the table of each node. So DBSIZE is the sum over all entries whoever has
//! them (off by the leaver's share in the moment between the two writes), and
//! who waits for quiescence waits for the entries that are
//! [present](Member::is_present).

use crate::{CLASSES_MAX, Class, word};

/// Bytes of an entry.
pub const MEMBER_BYTES: usize = 1024;
/// Databases whose keys an entry counts.
pub const DATABASES: usize = 16;
const KEYS_AT: usize = 16;
const HEADS_AT: usize = 256;
const _: () = assert!(KEYS_AT + 8 * DATABASES <= HEADS_AT);
const _: () = assert!(HEADS_AT + 8 * CLASSES_MAX <= MEMBER_BYTES);

/// A client's entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Member {
    /// Its id, from 1; 0 in an entry that nobody has, [`Member::DEPARTED`] in
    /// the one of all who have left.
    pub client: u64,
    /// Its quiescent counter, from 1.
    pub quiescent: u64,
    /// Keys that it has added less keys that it has removed, by database.
    pub keys: [i64; DATABASES],
}

impl Member {
    /// The id in entry 0, once somebody has left. No client ever has it.
    pub const DEPARTED: u64 = u32::MAX as u64;

    /// Is this the entry of a client, whose operations may be under way?
    pub const fn is_present(&self) -> bool {
        self.client != 0 && self.client != Self::DEPARTED
    }

    /// The part that a tick publishes: id and counter.
    pub const TICK_BYTES: usize = KEYS_AT;
    /// Everything that is in use of an entry.
    pub const USED_BYTES: usize = KEYS_AT + 8 * DATABASES;

    /// Where in the entry the key count of a database is.
    pub const fn keys_at(database: u8) -> u64 {
        assert!((database as usize) < DATABASES);
        (KEYS_AT + 8 * database as usize) as u64
    }

    /// Where in the entry the list head of a class is.
    pub const fn head_at(class: Class) -> u64 {
        (HEADS_AT + 8 * class.index()) as u64
    }

    /// Packs it.
    pub fn write(&self, bytes: &mut [u8]) {
        bytes[..8].copy_from_slice(&self.client.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.quiescent.to_le_bytes());
        for (slot, keys) in bytes[KEYS_AT..Self::USED_BYTES].chunks_exact_mut(8).zip(self.keys) {
            slot.copy_from_slice(&keys.to_le_bytes());
        }
    }

    /// Parses it; any bytes are an entry.
    pub fn parse(bytes: &[u8]) -> Self {
        let mut keys = [0; DATABASES];
        for (number, keys) in keys.iter_mut().enumerate() {
            *keys = word(bytes, KEYS_AT + 8 * number).cast_signed();
        }
        Self { client: word(bytes, 0), quiescent: word(bytes, 8), keys }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back() {
        let mut keys = [0; DATABASES];
        keys[0] = i64::MAX;
        keys[15] = -1;
        let member = Member { client: 7, quiescent: u64::MAX, keys };
        let mut bytes = [0; MEMBER_BYTES];
        member.write(&mut bytes);
        assert_eq!(Member::parse(&bytes), member);
    }
}
