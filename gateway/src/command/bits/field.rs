//! BITFIELD: integers of any width at any bit of a string.

use fusee::{Decision, Kind};

use super::{Arguments, BAD_OFFSET, Reply, SYNTAX, bit, grown, integer, is, replace};
use crate::command::{Call, NOT_INTEGER};
use crate::keyspace::Keyspace;
use crate::request::BULK_BYTES_MAX;

const BAD_TYPE: &str = "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.";

/// An integer's width and sign.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Width {
    bits: u32,
    signed: bool,
}

impl Width {
    fn parse(text: &[u8]) -> Option<Self> {
        let (signed, digits) = match text {
            [b'i', digits @ ..] => (true, digits),
            [b'u', digits @ ..] => (false, digits),
            _ => return None,
        };
        let bits = integer(digits).filter(|bits| (1..=64).contains(bits))? as u32;
        (signed || bits < 64).then_some(Self { bits, signed })
    }

    fn range(self) -> (i128, i128) {
        if self.signed {
            (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1)
        } else {
            (0, (1 << self.bits) - 1)
        }
    }

    fn read(self, value: &[u8], offset: usize) -> i128 {
        let bits = self.bits as usize;
        let number =
            (offset..offset + bits).fold(0_i128, |sum, at| sum << 1 | i128::from(bit(value, at)));
        if self.signed && number >> (self.bits - 1) == 1 {
            number - (1 << self.bits)
        } else {
            number
        }
    }

    /// Needs `offset + bits` to lie in `value`.
    fn write(self, value: &mut [u8], offset: usize, number: i128) {
        for place in 0..self.bits as usize {
            let (at, one) = (offset + place, number >> (self.bits as usize - 1 - place) & 1 == 1);
            let mask = 0x80 >> (at % 8);
            if one {
                value[at / 8] |= mask;
            } else {
                value[at / 8] &= !mask;
            }
        }
    }
}

/// What happens to a number that its width does not hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

impl Overflow {
    fn fit(self, width: Width, number: i128) -> Option<i128> {
        let (least, most) = width.range();
        if (least..=most).contains(&number) {
            return Some(number);
        }
        match self {
            Self::Fail => None,
            Self::Saturate => Some(number.clamp(least, most)),
            Self::Wrap => {
                let number = number & ((1 << width.bits) - 1);
                Some(if number > most { number - (1 << width.bits) } else { number })
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Get,
    Set(i64),
    Add(i64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Operation {
    change: Change,
    width: Width,
    offset: usize,
    overflow: Overflow,
}

/// Reads the operations of a BITFIELD.
fn parse(arguments: Arguments<'_>) -> Result<Vec<Operation>, &'static str> {
    let mut operations = Vec::new();
    let mut overflow = Overflow::Wrap;
    let mut words = arguments.from(2);
    while let Some(word) = words.next() {
        if is(word, "overflow") {
            let name = words.next().ok_or(SYNTAX)?;
            let known =
                [("wrap", Overflow::Wrap), ("sat", Overflow::Saturate), ("fail", Overflow::Fail)];
            let found = known.into_iter().find(|(known, _)| is(name, known));
            (_, overflow) = found.ok_or("ERR Invalid OVERFLOW type specified")?;
            continue;
        }
        let takes_value = ["set", "incrby"].iter().any(|name| is(word, name));
        if !takes_value && !is(word, "get") {
            return Err(SYNTAX);
        }
        if takes_value && words.len() < 3 {
            return Err(SYNTAX);
        }
        let (Some(width), Some(offset)) = (words.next(), words.next()) else { return Err(SYNTAX) };
        let width = Width::parse(width).ok_or(BAD_TYPE)?;
        let offset = self::offset(offset, width).ok_or(BAD_OFFSET)?;
        let mut change = Change::Get;
        if takes_value {
            let value = integer(words.next().ok_or(SYNTAX)?).ok_or(NOT_INTEGER)?;
            change = if is(word, "set") { Change::Set(value) } else { Change::Add(value) };
        }
        operations.push(Operation { change, width, offset, overflow });
    }
    Ok(operations)
}

/// `n` counts bits, `#n` integers of the width. The first bit lies within the
/// largest string.
fn offset(text: &[u8], width: Width) -> Option<usize> {
    let (digits, unit) = match text {
        [b'#', digits @ ..] => (digits, i64::from(width.bits)),
        digits => (digits, 1),
    };
    let offset = integer(digits)?.checked_mul(unit)?;
    (0..BULK_BYTES_MAX * 8).contains(&offset).then_some(offset as usize)
}

/// Reads the operations of a BITFIELD_RO.
pub(super) fn parse_reads(arguments: Arguments<'_>) -> Result<Vec<Operation>, &'static str> {
    let operations = parse(arguments)?;
    if operations.iter().any(|one| one.change != Change::Get) {
        return Err("ERR BITFIELD_RO only supports the GET subcommand");
    }
    Ok(operations)
}

/// BITFIELD_RO key [GET type offset ...]
pub(super) fn read(arguments: Arguments<'_>, value: &[u8], reply: &mut Reply) {
    let operations = match parse_reads(arguments) {
        Ok(operations) => operations,
        Err(error) => return reply.error(error),
    };
    reply.array(operations.len());
    for Operation { width, offset, .. } in operations {
        reply.integer(width.read(value, offset) as i64);
    }
}

/// BITFIELD key [GET type offset | [OVERFLOW how] SET type offset value |
/// [OVERFLOW how] INCRBY type offset increment ...]
pub(in crate::command) async fn bitfield<K: Keyspace>(call: &mut Call<'_, K>) {
    let operations = match parse(call.arguments) {
        Ok(operations) => operations,
        Err(error) => return call.reply.error(error),
    };
    let writes = operations.iter().filter(|one| one.change != Change::Get);
    let bytes = writes.map(|one| (one.offset + one.width.bits as usize).div_ceil(8)).max();
    if bytes.is_some_and(|bytes| bytes as i64 > BULK_BYTES_MAX) {
        return call.reply.error(BAD_OFFSET);
    }
    let key = call.key(1);
    call.update_as(Kind::String, key, |entry, buffer, reply| {
        grown(entry, bytes.unwrap_or(0), buffer);
        reply.array(operations.len());
        for Operation { change, width, offset, overflow } in &operations {
            let old = width.read(buffer, *offset);
            let new = match *change {
                Change::Get => {
                    reply.integer(old as i64);
                    continue;
                }
                // A number set is taken for an unsigned one if the field is.
                Change::Set(value) if !width.signed => {
                    overflow.fit(*width, i128::from(value as u64))
                }
                Change::Set(value) => overflow.fit(*width, i128::from(value)),
                Change::Add(by) => overflow.fit(*width, old + i128::from(by)),
            };
            let Some(new) = new else {
                reply.null();
                continue;
            };
            width.write(buffer, *offset, new);
            let answer = if matches!(change, Change::Set(_)) { old } else { new };
            reply.integer(answer as i64);
        }
        // The string grows even if no number fits, as in Redis.
        if bytes.is_none() {
            return Decision::Keep;
        }
        replace(entry.and_then(|entry| entry.expires_at_ms))
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_from_any_place() {
        for bits in 1..=64 {
            for signed in [true, false] {
                let width = Width { bits, signed };
                let (least, most) = width.range();
                for number in [least, most, 0, 1.min(most), least / 3, most / 3] {
                    for offset in [0, 1, 7, 8, 13] {
                        let mut value = vec![0xa5; 16];
                        width.write(&mut value, offset, number);
                        assert_eq!(width.read(&value, offset), number, "{width:?} at {offset}");
                    }
                }
                let fit = |how: Overflow, number| how.fit(width, number);
                assert_eq!(fit(Overflow::Wrap, most + 1), Some(least));
                assert_eq!(fit(Overflow::Wrap, least - 1), Some(most));
                assert_eq!(fit(Overflow::Saturate, most + 5), Some(most));
                assert_eq!(fit(Overflow::Fail, least - 1), None);
            }
        }
        assert_eq!(Width::parse(b"u64"), None);
        assert_eq!(Width::parse(b"i65"), None);
        assert_eq!(Width::parse(b"u0"), None);
    }
}
