//! Objects: a log entry, a header, a key and a value, checked as a whole.
//!
//! ```text
//!  0            22           23      24           28           32
//! | log entry   | generation | kind  | key length | val. length |
//!  32                   [40]
//! | [expiry in abs. ms] | key | [transaction] | value | CRC-32C | padding to 8 bytes |
//!
//! kind:        7      6        5         4        3  0
//!            | zero | intent | chunked | expires | value kind |
//! key length: 31       24 23           0
//!            | database  | bytes        |
//! ```
//!
//! The checksum covers everything from the log entry's `next` to the end of the
//! value. An intent names the record of its transaction by that object's word. A
//! transaction's record has no key, and in the value's place the word of its
//! decision, which is outside of the checksum. A chunked object carries in the value's place the length of the whole
//! value (8 bytes) and the words of its chunks. A chunk has in its key's place
//! the hash of the key whose value it is part of, so that recovery finds who
//! lists it.

use crate::log::NEXT_AT;
use crate::{LOG_ENTRY_BYTES, LogEntry, Opcode, Slot};
use crc_fast::crc32_iscsi;

/// Where in a transaction's record the word of its decision is.
pub const DECISION_AT: u64 = HEADER_BYTES as u64;
/// Bytes of an object that are not key, value or expiry, before padding.
pub const OBJECT_OVERHEAD_BYTES: usize = HEADER_BYTES + CHECKSUM_BYTES;
/// Bytes of a chunk's key.
pub const CHUNK_KEY_BYTES: usize = 8;
/// Longest key that the 24-bit length can tell.
pub const KEY_BYTES_MAX: usize = (1 << 24) - 1;
/// Longest value: Redis's limit of 512 MiB.
pub const VALUE_BYTES_MAX: usize = 512 << 20;

const GENERATION_AT: usize = LOG_ENTRY_BYTES;
const KIND_AT: usize = 23;
const KEY_LENGTH_AT: usize = 24;
const VALUE_LENGTH_AT: usize = 28;
const HEADER_BYTES: usize = 32;
const EXPIRY_BYTES: usize = 8;
const TRANSACTION_BYTES: usize = 8;
const CHECKSUM_BYTES: usize = 4;
const _: () = assert!(GENERATION_AT + 1 == KIND_AT && KIND_AT + 1 == KEY_LENGTH_AT);
const _: () = assert!(VALUE_BYTES_MAX <= u32::MAX as usize);

const KIND_MASK: u8 = 0x0f;
const EXPIRES: u8 = 0x10;
const CHUNKED: u8 = 0x20;
const INTENT: u8 = 0x40;
const RESERVED: u8 = 0x80;

/// What an object says besides key and value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Meta {
    /// Equal to that of the slot word that names the object.
    pub generation: u8,
    /// The logical database of the key.
    pub database: u8,
    /// What the value is; below 16.
    pub kind: u8,
    /// When the key ends, in ms since the Unix epoch.
    pub expires_at_ms: Option<u64>,
    /// Does this object list the chunks of its value?
    pub chunked: bool,
    /// Of an intent: the word of its transaction's record.
    pub transaction: Option<Slot>,
}

impl Meta {
    /// Bytes of an object with such a key and such a value, or list of chunks.
    pub const fn object_bytes(&self, key: usize, body: usize) -> usize {
        let more = if self.transaction.is_some() { TRANSACTION_BYTES } else { 0 };
        object_bytes(key, body + more, self.expires_at_ms.is_some())
    }
}

/// Bytes that an object occupies with `body` bytes of key and value (or of key
/// and chunk words), a multiple of 8.
pub const fn object_bytes(key: usize, body: usize, expires: bool) -> usize {
    let bytes = OBJECT_OVERHEAD_BYTES + key + body + if expires { EXPIRY_BYTES } else { 0 };
    bytes.next_multiple_of(8)
}

/// Writes an object into `bytes`, which is exactly [`object_bytes`] long.
pub fn write_object(bytes: &mut [u8], log: &LogEntry, meta: &Meta, key: &[u8], body: &[u8]) {
    assert!(bytes.len() == meta.object_bytes(key.len(), body.len()));
    assert!(key.len() <= KEY_BYTES_MAX && body.len() <= VALUE_BYTES_MAX && meta.kind <= KIND_MASK);
    log.write(bytes);
    bytes[GENERATION_AT] = meta.generation;
    let mut kind = meta.kind;
    let mut at = HEADER_BYTES;
    if let Some(expires_at_ms) = meta.expires_at_ms {
        kind |= EXPIRES;
        bytes[at..at + EXPIRY_BYTES].copy_from_slice(&expires_at_ms.to_le_bytes());
        at += EXPIRY_BYTES;
    }
    if meta.chunked {
        kind |= CHUNKED;
    }
    if meta.transaction.is_some() {
        kind |= INTENT;
    }
    bytes[KIND_AT] = kind;
    let key_word = key.len() as u32 | u32::from(meta.database) << 24;
    bytes[KEY_LENGTH_AT..VALUE_LENGTH_AT].copy_from_slice(&key_word.to_le_bytes());
    let body_length = body.len() as u32;
    bytes[VALUE_LENGTH_AT..HEADER_BYTES].copy_from_slice(&body_length.to_le_bytes());
    bytes[at..at + key.len()].copy_from_slice(key);
    at += key.len();
    if let Some(transaction) = meta.transaction {
        let word = transaction.word().to_le_bytes();
        bytes[at..at + TRANSACTION_BYTES].copy_from_slice(&word);
        at += TRANSACTION_BYTES;
    }
    bytes[at..at + body.len()].copy_from_slice(body);
    at += body.len();
    let sum = crc32_iscsi(&bytes[NEXT_AT..at]);
    bytes[at..at + CHECKSUM_BYTES].copy_from_slice(&sum.to_le_bytes());
    bytes[at + CHECKSUM_BYTES..].fill(0);
}

/// Bytes of an object as they came from memory: perhaps torn, of another
/// generation or of another key. Only [`Unverified::verify`] makes an [`Object`].
#[derive(Clone, Copy, Debug)]
pub struct Unverified<'a>(&'a [u8]);

/// An object whose generation and checksum agree with the slot word that named it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Object<'a> {
    /// What it says besides key and value.
    pub meta: Meta,
    /// The key; for a chunk its hash, for a delete's record nothing.
    pub key: &'a [u8],
    /// The value, or its length and the words of its chunks.
    pub body: &'a [u8],
    /// Where in the object the body starts.
    pub body_at: usize,
}

/// The beginning of an object, up to the end of its key. It is only as good as
/// the knowledge that the object was live, and so whole, when it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix<'a> {
    /// What the object says besides key and value.
    pub meta: Meta,
    /// The key.
    pub key: &'a [u8],
}

/// Bytes of an object up to the end of a key of this length, at most.
pub const fn prefix_bytes(key: usize) -> usize {
    (HEADER_BYTES + EXPIRY_BYTES + key).next_multiple_of(8)
}

impl<'a> Unverified<'a> {
    /// Bytes as they came from memory, the log entry first.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Over which slot word the write of this object was committed, if it was
    /// and the bytes hold the object of `slot`. The first 32 bytes are enough.
    pub fn record(&self, slot: Slot) -> Option<(u64, Opcode)> {
        let (old, opcode) = self.replaced(slot)?;
        Some((old?, opcode))
    }

    /// What the object replaced, as far as it says so, and its opcode, if the bytes
    /// hold the object of `slot`.
    pub fn replaced(&self, slot: Slot) -> Option<(Option<u64>, Opcode)> {
        if self.0.len() < HEADER_BYTES || self.0[GENERATION_AT] != slot.generation() {
            return None;
        }
        let log = LogEntry::parse(self.0)?;
        Some((log.committed_over, log.opcode))
    }

    /// The generation byte, which is 0 in memory that was never used.
    pub fn generation(&self) -> Option<u8> {
        self.0.get(GENERATION_AT).copied()
    }

    /// What the header says, if the generation agrees. 40 bytes are enough.
    pub fn meta(self, slot: Slot) -> Option<Meta> {
        self.head(slot).map(|(meta, ..)| meta)
    }

    /// The beginning of the object, if the generation agrees and the key lies
    /// within the bytes.
    pub fn prefix(self, slot: Slot) -> Option<Prefix<'a>> {
        let (meta, key_at, key_end) = self.head(slot)?;
        Some(Prefix { meta, key: self.0.get(key_at..key_end)? })
    }

    /// What the header says, and where the key lies.
    #[inline]
    fn head(&self, slot: Slot) -> Option<(Meta, usize, usize)> {
        let bytes = self.0;
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        let kind = header[KIND_AT];
        if bytes.len() < OBJECT_OVERHEAD_BYTES
            || header[GENERATION_AT] != slot.generation()
            || kind & RESERVED != 0
        {
            return None;
        }
        let mut at = HEADER_BYTES;
        let mut expires_at_ms = None;
        if kind & EXPIRES != 0 {
            expires_at_ms = Some(crate::word(bytes.get(at..at + EXPIRY_BYTES)?, 0));
            at += EXPIRY_BYTES;
        }
        let key_word = u32_at(header, KEY_LENGTH_AT);
        let key_end = at + (key_word & 0xff_ffff) as usize;
        let transaction = if kind & INTENT != 0 {
            // Beyond the bytes, if they are the beginning of an object.
            let word = bytes.get(key_end..key_end.checked_add(TRANSACTION_BYTES)?);
            word.and_then(|word| Slot::from_word(crate::word(word, 0)))
        } else {
            None
        };
        let meta = Meta {
            generation: header[GENERATION_AT],
            database: (key_word >> 24) as u8,
            kind: kind & KIND_MASK,
            expires_at_ms,
            chunked: kind & CHUNKED != 0,
            transaction,
        };
        Some((meta, at, key_end))
    }

    /// The object, if it is whole and the one that `slot` names.
    #[inline]
    pub fn verify(self, slot: Slot) -> Option<Object<'a>> {
        let bytes = self.0;
        let (meta, key_at, key_end) = self.head(slot)?;
        let intent = bytes[KIND_AT] & INTENT != 0;
        if intent && meta.transaction.is_none() {
            return None;
        }
        let body_at = key_end + if intent { TRANSACTION_BYTES } else { 0 };
        let body_end = body_at.checked_add(u32_at(bytes, VALUE_LENGTH_AT) as usize)?;
        let stored = u32_at(bytes.get(body_end..body_end.checked_add(CHECKSUM_BYTES)?)?, 0);
        if crc32_iscsi(&bytes[NEXT_AT..body_end]) != stored {
            return None;
        }
        let (key, body) = (&bytes[key_at..key_end], &bytes[body_at..body_end]);
        Some(Object { meta, key, body, body_at })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("the range is 4 bytes long"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Address, Class, commit_record};
    use proptest::prelude::*;

    const LOG: LogEntry = LogEntry {
        committed_over: None,
        next: Address::new(128),
        prev: Address::new(64),
        opcode: Opcode::Set,
        used: true,
    };

    fn slot(generation: u8) -> Slot {
        Slot::live(0x5a, Class::new(9), generation, Address::new(1 << 20))
    }

    fn packed(meta: &Meta, key: &[u8], body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0xee; meta.object_bytes(key.len(), body.len())];
        write_object(&mut bytes, &LOG, meta, key, body);
        bytes
    }

    fn unpadded(meta: &Meta, key: &[u8], body: &[u8]) -> usize {
        let expires = if meta.expires_at_ms.is_some() { EXPIRY_BYTES } else { 0 };
        let transaction = if meta.transaction.is_some() { TRANSACTION_BYTES } else { 0 };
        OBJECT_OVERHEAD_BYTES + key.len() + body.len() + expires + transaction
    }

    fn meta() -> impl Strategy<Value = Meta> {
        let transaction = proptest::option::of(any::<u64>())
            .prop_map(|word| word.and_then(Slot::from_word).filter(|&word| word != Slot::EMPTY));
        (1..=63u8, 0..16u8, 0..16u8, any::<Option<u64>>(), any::<bool>(), transaction).prop_map(
            |(generation, database, kind, expires_at_ms, chunked, transaction)| Meta {
                generation,
                database,
                kind,
                expires_at_ms,
                chunked,
                transaction,
            },
        )
    }

    proptest! {
        #[test]
        fn objects_come_back(meta in meta(), key: Vec<u8>, body: Vec<u8>, slack in 0..70usize) {
            let mut bytes = packed(&meta, &key, &body);
            bytes.resize(bytes.len() + slack, 0x77);
            let object = Unverified::new(&bytes).verify(slot(meta.generation)).unwrap();
            let body_at = object.body_at;
            prop_assert_eq!(object, Object { meta, key: &key, body: &body, body_at });
            prop_assert_eq!(&bytes[body_at..body_at + body.len()], &body[..]);
            let prefix = &bytes[..prefix_bytes(key.len()).min(bytes.len())];
            let prefix = Unverified::new(prefix).prefix(slot(meta.generation)).unwrap();
            prop_assert_eq!(prefix.key, &key);
            prop_assert_eq!(Meta { transaction: meta.transaction, ..prefix.meta }, meta);
        }

        #[test]
        fn a_changed_byte_is_noticed(
            meta in meta(), key: Vec<u8>, body: Vec<u8>, at: prop::sample::Index, flip in 1..=255u8,
        ) {
            let mut bytes = packed(&meta, &key, &body);
            let end = unpadded(&meta, &key, &body);
            let at = NEXT_AT + at.index(end - NEXT_AT);
            bytes[at] ^= flip;
            prop_assert_eq!(Unverified::new(&bytes).verify(slot(meta.generation)), None);
        }

        #[test]
        fn cut_off_bytes_are_no_object(meta in meta(), key: Vec<u8>, body: Vec<u8>, cut: prop::sample::Index) {
            let bytes = packed(&meta, &key, &body);
            let cut = cut.index(unpadded(&meta, &key, &body));
            prop_assert_eq!(Unverified::new(&bytes[..cut]).verify(slot(meta.generation)), None);
        }

        #[test]
        fn any_bytes_are_refused_without_a_panic(bytes: Vec<u8>, generation in 1..=63u8) {
            prop_assert_eq!(Unverified::new(&bytes).verify(slot(generation)), None);
            let _ = Unverified::new(&bytes).record(slot(generation));
        }
    }

    #[test]
    fn committing_leaves_the_object_whole_and_is_seen_in_its_record() {
        let meta = Meta { generation: 5, database: 3, expires_at_ms: Some(9), ..Meta::default() };
        let mut bytes = packed(&meta, b"key", b"value");
        assert_eq!(Unverified::new(&bytes).record(slot(5)), None);
        let first = bytes[..16].try_into().unwrap();
        bytes[..16].copy_from_slice(&commit_record(first, 77));
        assert_eq!(Unverified::new(&bytes).record(slot(5)), Some((77, Opcode::Set)));
        assert_eq!(Unverified::new(&bytes).record(slot(6)), None, "another generation");
        assert_eq!(Unverified::new(&bytes).verify(slot(5)).unwrap().key, b"key");
    }

    #[test]
    fn a_counter_fits_one_line() {
        assert!(object_bytes(16, 8, false) <= Class::SMALLEST.bytes());
    }
}
