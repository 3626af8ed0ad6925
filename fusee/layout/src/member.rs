//! A client's entry in the client table of each memory node.
//!
//! ```text
//!  0            8           16                         144        256              768
//! | client id   | quiescent | keys of database 0 .. 15 | reserved | list heads     | reserved |
//! ```
//!
//! The client alone writes its entry. Its quiescent counter tells that every
//! operation which it began before an earlier value was published has ended;
//! the key counts are its share of DBSIZE and may be negative; the list heads
//! are the first object of each size class's log list (paper, section 4.5).

use crate::{CLASSES_MAX, Class, word};

/// Bytes of an entry.
pub const MEMBER_BYTES: usize = 1024;
const DATABASES: usize = 16;
const KEYS_AT: usize = 16;
const HEADS_AT: usize = 256;
const _: () = assert!(KEYS_AT + 8 * DATABASES <= HEADS_AT);
const _: () = assert!(HEADS_AT + 8 * CLASSES_MAX <= MEMBER_BYTES);

/// A client's entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Member {
    /// Its id, from 1; 0 in an entry that nobody has.
    pub client: u64,
    /// Its quiescent counter, from 1.
    pub quiescent: u64,
    /// Keys that it has added less keys that it has removed, by database.
    pub keys: [i64; DATABASES],
}

impl Member {
    /// In place of an id: the entry sums up the key counts of clients that have
    /// left. Nobody waits for its counter.
    pub const DEPARTED: u64 = u64::MAX;
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
