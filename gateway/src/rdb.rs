//! Values as DUMP gives and RESTORE takes them, which is how an RDB file of Redis
//! has them:
//!
//! ```text
//! | type: 1 | value | RDB version: u16, LE | CRC-64 of all before: u64, LE |
//! string:   | length or encoding | bytes |        hash: | fields | string | string | ...
//! ```
//!
//! Strings and hashes are written in the forms that every Redis since 2.4 reads, and
//! read in all forms that Redis up to 7.2 writes.

use crc::{CRC_64_REDIS, Crc};
use fusee::Kind;

pub(crate) mod libraries;
mod listpack;
mod lzf;

use crate::packed;
use crate::request::BULK_BYTES_MAX;

/// Redis 5's; what is written here has not changed since.
const VERSION_WRITTEN: u16 = 9;
/// Redis 7.2's.
const VERSION_MAX: u16 = 11;
const TRAILER_BYTES: usize = 10;
const CHECKSUM: Crc<u64> = Crc::<u64>::new(&CRC_64_REDIS);

/// The types of values that are known here.
const STRING: u8 = 0;
const HASH: u8 = 4;
const HASH_ZIPLIST: u8 = 13;
const HASH_LISTPACK: u8 = 16;

/// Why a payload is not restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// It is not whole, or of a Redis that is newer.
    Trailer,
    /// Its bytes are no value.
    Format,
    /// A value of another kind than strings and hashes, by its type.
    Type(u8),
}

/// Writes a value's payload; `None` if it is of no kind that Redis has, or cannot
/// be read.
pub(crate) fn dump(kind: Kind, value: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(value.len() + 32);
    match kind {
        Kind::String => {
            out.push(STRING);
            put_string(&mut out, value);
        }
        Kind::Hash => {
            let pairs = packed::pairs(value).ok()?;
            out.push(HASH);
            put_length(&mut out, pairs.len());
            for (name, content) in pairs {
                put_string(&mut out, name);
                put_string(&mut out, content);
            }
        }
        Kind::List | Kind::Set | Kind::Later => return None,
    }
    Some(seal(out))
}

/// Reads a payload and writes the value into `value`, which is empty.
pub(crate) fn restore(payload: &[u8], value: &mut Vec<u8>) -> Result<Kind, Refused> {
    read(Source::new(body_of(payload)?), value)
}

/// Puts the trailer behind a body.
fn seal(mut body: Vec<u8>) -> Vec<u8> {
    body.extend_from_slice(&VERSION_WRITTEN.to_le_bytes());
    let checksum = CHECKSUM.checksum(&body);
    body.extend_from_slice(&checksum.to_le_bytes());
    body
}

/// What stands before the trailer, if that is right.
fn body_of(payload: &[u8]) -> Result<&[u8], Refused> {
    let body = payload.len().checked_sub(TRAILER_BYTES).ok_or(Refused::Trailer)?;
    let (body, trailer) = payload.split_at(body);
    let version = u16::from_le_bytes([trailer[0], trailer[1]]);
    let checksum = trailer[2..].try_into().map(u64::from_le_bytes).expect("10 bytes less 2 are 8");
    // Redis takes 0 for a checksum that was not computed.
    let covered = &payload[..body.len() + 2];
    if version > VERSION_MAX || (checksum != 0 && checksum != CHECKSUM.checksum(covered)) {
        return Err(Refused::Trailer);
    }
    Ok(body)
}

fn read(mut source: Source<'_>, value: &mut Vec<u8>) -> Result<Kind, Refused> {
    let kind = match source.byte().ok_or(Refused::Format)? {
        STRING => {
            *value = source.string().ok_or(Refused::Format)?;
            Kind::String
        }
        HASH => {
            let fields = source.length().ok_or(Refused::Format)?;
            // Grows with what is there: the count may lie.
            let mut items = Vec::new();
            for _ in 0..2 * fields {
                items.push(source.string().ok_or(Refused::Format)?);
            }
            pack_hash(&items, value)?;
            Kind::Hash
        }
        form @ (HASH_ZIPLIST | HASH_LISTPACK) => {
            let packed = source.string().ok_or(Refused::Format)?;
            let items = if form == HASH_LISTPACK {
                listpack::items(&packed)
            } else {
                listpack::ziplist_items(&packed)
            };
            pack_hash(&items.ok_or(Refused::Format)?, value)?;
            Kind::Hash
        }
        other => return Err(Refused::Type(other)),
    };
    if source.rest.is_empty() { Ok(kind) } else { Err(Refused::Format) }
}

/// Packs names and values in turn; each name may be there once.
fn pack_hash(items: &[Vec<u8>], value: &mut Vec<u8>) -> Result<(), Refused> {
    let mut names: Vec<&[u8]> = items.iter().step_by(2).map(Vec::as_slice).collect();
    names.sort_unstable();
    let is_unique = names.windows(2).all(|pair| pair[0] != pair[1]);
    if items.is_empty() || !items.len().is_multiple_of(2) || !is_unique {
        return Err(Refused::Format);
    }
    packed::pack(value, items.iter().map(Vec::as_slice));
    Ok(())
}

fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    put_length(out, text.len());
    out.extend_from_slice(text);
}

/// 6, 14, 32 or 64 bits, told apart by the first byte's highest two.
fn put_length(out: &mut Vec<u8>, length: usize) {
    match length {
        0..0x40 => out.push(length as u8),
        0x40..0x4000 => out.extend_from_slice(&(length as u16 | 0x4000).to_be_bytes()),
        0x4000..0x1_0000_0000 => {
            out.push(0x80);
            out.extend_from_slice(&(length as u32).to_be_bytes());
        }
        _ => {
            out.push(0x81);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
}

/// What is left to be read.
struct Source<'a> {
    rest: &'a [u8],
    /// What compressed strings may have together, which ask for more than was sent.
    room: usize,
}

/// A length, or how a string is encoded that has none.
enum Length {
    Of(usize),
    Encoding(u8),
}

impl<'a> Source<'a> {
    fn new(rest: &'a [u8]) -> Self {
        Self { rest, room: BULK_BYTES_MAX as usize }
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn length_or_encoding(&mut self) -> Option<Length> {
        let first = self.byte()?;
        Some(match first >> 6 {
            0 => Length::Of(usize::from(first)),
            1 => Length::Of(usize::from(first & 0x3f) << 8 | usize::from(self.byte()?)),
            2 => match first {
                0x80 => Length::Of(u32::from_be_bytes(self.array()?) as usize),
                0x81 => Length::Of(usize::try_from(u64::from_be_bytes(self.array()?)).ok()?),
                _ => return None,
            },
            _ => Length::Encoding(first & 0x3f),
        })
    }

    fn length(&mut self) -> Option<usize> {
        match self.length_or_encoding()? {
            // No count that bytes could hold overflows when it is doubled.
            Length::Of(length) if length <= isize::MAX as usize / 2 => Some(length),
            _ => None,
        }
    }

    /// A string: as it is, as an integer, or compressed.
    fn string(&mut self) -> Option<Vec<u8>> {
        let number = |number: i64| Some(number.to_string().into_bytes());
        match self.length_or_encoding()? {
            Length::Of(length) => Some(self.bytes(length)?.to_vec()),
            Length::Encoding(0) => number(i8::from_le_bytes(self.array()?).into()),
            Length::Encoding(1) => number(i16::from_le_bytes(self.array()?).into()),
            Length::Encoding(2) => number(i32::from_le_bytes(self.array()?).into()),
            Length::Encoding(3) => {
                let (compressed, length) = (self.length()?, self.length()?);
                self.room = self.room.checked_sub(length)?;
                lzf::decompress(self.bytes(compressed)?, length)
            }
            Length::Encoding(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn restored(payload: &[u8]) -> Result<(Kind, Vec<u8>), Refused> {
        let mut value = Vec::new();
        restore(payload, &mut value).map(|kind| (kind, value))
    }

    /// A body with a trailer that is right.
    fn sealed(body: &[u8]) -> Vec<u8> {
        let mut payload = [body, &11_u16.to_le_bytes()].concat();
        let checksum = CHECKSUM.checksum(&payload);
        payload.extend_from_slice(&checksum.to_le_bytes());
        payload
    }

    #[test]
    fn strings_are_read_in_each_of_their_forms() {
        let long = [b'x'; 100];
        for (body, value) in [
            (&b"\0\x05hello"[..], &b"hello"[..]),
            (b"\0\xc0\x0a", b"10"),
            (b"\0\xc1\x18\xfc", b"-1000"),
            (b"\0\xc2\0\0\0\x80", b"-2147483648"),
            (b"\0\xc3\x06\x40\x64\x01xx\xe0\x59\0", &long),
        ] {
            assert_eq!(restored(&sealed(body)), Ok((Kind::String, value.to_vec())));
        }
    }

    #[test]
    fn a_payload_that_is_newer_or_not_whole_is_refused() {
        let whole = dump(Kind::String, b"hello").unwrap();
        for at in 0..whole.len() {
            let mut broken = whole.clone();
            broken[at] ^= 0x20;
            assert_eq!(restored(&broken), Err(Refused::Trailer));
            assert!(restored(&whole[..at]).is_err());
        }
        let mut newer = [&b"\0\x05hello"[..], &12_u16.to_le_bytes()].concat();
        newer.extend_from_slice(&CHECKSUM.checksum(&newer).to_le_bytes());
        assert_eq!(restored(&newer), Err(Refused::Trailer));
    }

    #[test]
    fn every_length_has_its_form() {
        for length in [0, 1, 63, 64, 16_383, 16_384, 70_000] {
            let value = vec![b'v'; length];
            let payload = dump(Kind::String, &value).unwrap();
            assert_eq!(restored(&payload), Ok((Kind::String, value)));
        }
    }

    #[test]
    fn a_hash_that_names_a_field_twice_is_refused() {
        for (body, refused) in [
            (&b"\x04\x02\x01a\x011\x01a\x012"[..], Refused::Format),
            (b"\x04\0", Refused::Format),
            (b"\x04\x01\x01a", Refused::Format),
            (b"\x04\x01\x01a\x011x", Refused::Format),
            (b"\x02\x01\x01a", Refused::Type(2)),
            (b"", Refused::Format),
        ] {
            assert_eq!(restored(&sealed(body)), Err(refused), "{}", body.escape_ascii());
        }
    }

    #[test]
    fn what_unfolds_to_more_than_a_value_may_have_is_refused() {
        let mut body = vec![HASH, 2];
        for name in [b'f', b'g'] {
            // A hundred bytes as eleven.
            body.extend_from_slice(&[1, name]);
            body.extend_from_slice(b"\xc3\x06\x40\x64\x01xx\xe0\x59\0");
        }
        for (room, result) in [(200, Ok(Kind::Hash)), (199, Err(Refused::Format))] {
            assert_eq!(read(Source { rest: &body, room }, &mut Vec::new()), result);
        }
    }

    proptest! {
        #[test]
        fn values_come_back(value: Vec<u8>, pairs: std::collections::HashMap<Vec<u8>, Vec<u8>>) {
            let payload = dump(Kind::String, &value).unwrap();
            prop_assert_eq!(restored(&payload), Ok((Kind::String, value)));
            if !pairs.is_empty() {
                let mut hash = Vec::new();
                let items: Vec<&[u8]> =
                    pairs.iter().flat_map(|(name, content)| [&name[..], content]).collect();
                packed::pack(&mut hash, items.into_iter());
                let payload = dump(Kind::Hash, &hash).unwrap();
                prop_assert_eq!(restored(&payload), Ok((Kind::Hash, hash)));
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(mut body: Vec<u8>, kind in 0..20_u8) {
            let _ = restored(&body);
            body.insert(0, kind);
            let _ = restored(&sealed(&body));
            body.splice(1..1, (body.len() as u32).to_be_bytes());
            body.insert(1, 0x80);
            let _ = restored(&sealed(&body));
        }
    }
}
