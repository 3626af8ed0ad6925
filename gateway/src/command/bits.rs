//! Strings as arrays of bits, the first one the highest of the first byte.

use fusee::{Decision, Entry, Kind};

use super::{Call, NOT_INTEGER, SYNTAX, integer, is, replace};
use crate::keyspace::Keyspace;
use crate::reply::Reply;
use crate::request::{Arguments, BULK_BYTES_MAX};

pub(super) mod field;

/// Commands that read bits.
#[expect(missing_docs, reason = "each is the command of its name")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BitRead {
    Get,
    Count,
    Pos,
    Field,
}

const BAD_OFFSET: &str = "ERR bit offset is not an integer or out of range";

/// Answers a read; `value` is the string, or nothing without a key.
pub(super) fn answer(
    read: BitRead,
    arguments: Arguments<'_>,
    value: Option<&[u8]>,
    reply: &mut Reply,
) {
    let done = match read {
        BitRead::Get => get(arguments, value.unwrap_or_default()),
        BitRead::Count => count(arguments, value.unwrap_or_default()),
        BitRead::Pos => pos(arguments, value),
        BitRead::Field => return field::read(arguments, value.unwrap_or_default(), reply),
    };
    match done {
        Ok(number) => reply.integer(number),
        Err(error) => reply.error(error),
    }
}

/// What is wrong with arguments that Redis looks at before the key.
pub(super) fn fault(read: BitRead, arguments: Arguments<'_>) -> Option<&'static str> {
    match read {
        BitRead::Get if offset(arguments.get(2)).is_none() => Some(BAD_OFFSET),
        BitRead::Pos => wanted(arguments.get(2)).err(),
        BitRead::Field => field::parse_reads(arguments).err(),
        _ => None,
    }
}

/// The bit that is looked for.
fn wanted(text: &[u8]) -> Result<bool, &'static str> {
    match integer(text) {
        Some(bit @ (0 | 1)) => Ok(bit == 1),
        Some(_) => Err("ERR The bit argument must be 1 or 0."),
        None => Err(NOT_INTEGER),
    }
}

/// The place of a bit that may be read or written.
fn offset(text: &[u8]) -> Option<usize> {
    let offset = integer(text)?;
    (0..BULK_BYTES_MAX * 8).contains(&offset).then_some(offset as usize)
}

/// GETBIT key offset
fn get(arguments: Arguments<'_>, value: &[u8]) -> Result<i64, &'static str> {
    let offset = offset(arguments.get(2)).ok_or(BAD_OFFSET)?;
    Ok(i64::from(bit(value, offset)))
}

fn bit(value: &[u8], offset: usize) -> bool {
    value.get(offset / 8).is_some_and(|byte| byte >> (7 - offset % 8) & 1 == 1)
}

/// Bits from one to before another that a command looks at; `None` is no bit.
struct Range {
    bits: Option<(usize, usize)>,
    has_end: bool,
}

impl Range {
    /// Reads `[start [end [BYTE | BIT]]]` from an argument on.
    fn parse(
        arguments: Arguments<'_>,
        at: usize,
        length: usize,
        command: BitRead,
    ) -> Result<Self, &'static str> {
        let given = arguments.len() - at;
        let number = |place: usize, default: i64| {
            if given > place {
                integer(arguments.get(at + place)).ok_or(NOT_INTEGER)
            } else {
                Ok(default)
            }
        };
        let unit = match given {
            0..=2 => Ok(8),
            3 if is(arguments.get(at + 2), "bit") => Ok(1),
            3 if is(arguments.get(at + 2), "byte") => Ok(8),
            3 => Err(SYNTAX),
            _ => return Err(SYNTAX),
        };
        // Of several faults each command tells another one first.
        let start = number(0, 0)?;
        let (end, unit_bits) = match command {
            BitRead::Pos => {
                let unit = unit?;
                (number(1, -1)?, unit)
            }
            _ => (number(1, -1)?, unit?),
        };
        let units = (length * 8 / unit_bits) as i64;
        let has_end = given > 1;
        // BITCOUNT looks at the order before it counts from the end, BITPOS after.
        if command == BitRead::Count && start < 0 && end < 0 && start > end {
            return Ok(Self { bits: None, has_end });
        }
        let place = |position: i64| {
            if position < 0 { position.saturating_add(units).max(0) } else { position }
        };
        let (start, end) = (place(start), place(end).min(units - 1));
        let bits =
            (start <= end).then(|| (start as usize * unit_bits, (end as usize + 1) * unit_bits));
        Ok(Self { bits, has_end })
    }
}

/// BITCOUNT key [start end [BYTE | BIT]]
fn count(arguments: Arguments<'_>, value: &[u8]) -> Result<i64, &'static str> {
    if arguments.len() == 3 {
        return Err(SYNTAX);
    }
    let Some((start, end)) = Range::parse(arguments, 2, value.len(), BitRead::Count)?.bits else {
        return Ok(0);
    };
    Ok(ones(value, start, end))
}

/// Set bits from `start` to before `end`, both within the value.
fn ones(value: &[u8], start: usize, end: usize) -> i64 {
    let bytes = &value[start / 8..end.div_ceil(8)];
    let mut words = bytes.chunks_exact(8);
    let mut ones: u32 = 0;
    for word in &mut words {
        ones += u64::from_le_bytes(word.try_into().expect("chunks of 8 bytes are 8 bytes"))
            .count_ones();
    }
    ones += words.remainder().iter().map(|byte| byte.count_ones()).sum::<u32>();
    let before = (start / 8 * 8..start).filter(|at| bit(value, *at)).count();
    let after = (end..end.next_multiple_of(8)).filter(|at| bit(value, *at)).count();
    i64::from(ones) - before as i64 - after as i64
}

/// BITPOS key bit [start [end [BYTE | BIT]]]
fn pos(arguments: Arguments<'_>, value: Option<&[u8]>) -> Result<i64, &'static str> {
    let wanted = wanted(arguments.get(2))?;
    let range = Range::parse(arguments, 3, value.map_or(0, <[u8]>::len), BitRead::Pos)?;
    // A key that is not there is as many zeros as anybody wants.
    let Some(value) = value else { return Ok(if wanted { -1 } else { 0 }) };
    let Some((start, end)) = range.bits else { return Ok(-1) };
    match find(value, wanted, start, end) {
        Some(at) => Ok(at as i64),
        // Without an end the string goes on with zeros.
        None if !wanted && !range.has_end => Ok(value.len() as i64 * 8),
        None => Ok(-1),
    }
}

fn find(value: &[u8], wanted: bool, start: usize, end: usize) -> Option<usize> {
    let barren = if wanted { 0x00 } else { 0xff };
    let mut at = start;
    while at < end {
        if at.is_multiple_of(8) && value[at / 8] == barren {
            let more = value[at / 8..].iter().take_while(|byte| **byte == barren).count();
            at += 8 * more;
            continue;
        }
        if bit(value, at) == wanted {
            return Some(at);
        }
        at += 1;
    }
    None
}

/// Copies a string into `buffer`, with zeros up to `bytes`.
fn grown(entry: Option<Entry<'_>>, bytes: usize, buffer: &mut Vec<u8>) {
    let old = entry.map_or(&[][..], |entry| entry.value);
    buffer.reserve(old.len().max(bytes));
    buffer.extend_from_slice(old);
    if buffer.len() < bytes {
        buffer.resize(bytes, 0);
    }
}

/// SETBIT key offset bit
pub(super) async fn set<K: Keyspace>(call: &mut Call<'_, K>) {
    let Some(offset) = offset(call.arguments.get(2)) else { return call.reply.error(BAD_OFFSET) };
    let new = match call.arguments.get(3) {
        b"0" => false,
        b"1" => true,
        _ => return call.reply.error("ERR bit is not an integer or out of range"),
    };
    let key = call.key(1);
    call.update_as(Kind::String, key, |entry, buffer, reply| {
        let old = entry.map_or(&[][..], |entry| entry.value);
        let was = bit(old, offset);
        reply.integer(i64::from(was));
        if was == new && offset / 8 < old.len() {
            return Decision::Keep;
        }
        grown(entry, offset / 8 + 1, buffer);
        let mask = 0x80 >> (offset % 8);
        if new {
            buffer[offset / 8] |= mask;
        } else {
            buffer[offset / 8] &= !mask;
        }
        replace(entry.and_then(|entry| entry.expires_at_ms))
    })
    .await;
}

/// BITOP AND | OR | XOR | NOT destination key [key ...]
///
/// The keys are read as they are at one moment each; the destination is written
/// after that.
pub(super) async fn op<K: Keyspace>(call: &mut Call<'_, K>) {
    let name = call.arguments.get(1);
    type Operation = (&'static str, fn(u8, u8) -> u8);
    let operations: [Operation; 3] =
        [("and", |a, b| a & b), ("or", |a, b| a | b), ("xor", |a, b| a ^ b)];
    let operation = operations.into_iter().find(|(known, _)| is(name, known));
    if operation.is_none() && !is(name, "not") {
        return call.reply.error(SYNTAX);
    }
    if operation.is_none() && call.arguments.len() != 4 {
        return call.reply.error("ERR BITOP NOT must be called with a single source key.");
    }
    let keys: Vec<_> = (3..call.arguments.len()).map(|at| call.key(at)).collect();
    let Some(sources) = call.read_all(&keys).await else { return };
    if sources.iter().flatten().any(|source| source.kind != Kind::String) {
        return super::wrong_type(call.reply);
    }
    let values = || sources.iter().map(|source| source.as_ref().map_or(&[][..], |one| &one.value));
    let length = values().map(<[u8]>::len).max().unwrap_or(0);
    let mut result = vec![0; length];
    for (number, value) in values().enumerate() {
        for (at, byte) in result.iter_mut().enumerate() {
            let other = value.get(at).copied().unwrap_or(0);
            *byte = match operation {
                None => !other,
                Some(_) if number == 0 => other,
                Some((_, apply)) => apply(*byte, other),
            };
        }
    }
    let destination = call.key(2);
    let written = if result.is_empty() {
        call.delete(destination).await.map(|_| ())
    } else {
        call.set(destination, &result, None).await
    };
    match written {
        Ok(()) => call.reply.integer(length as i64),
        Err(error) => call.refuse(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counting_and_finding_agree_with_looking_at_every_bit() {
        let mut seed = 7_u64;
        for _ in 0..2_000 {
            let mut value = Vec::new();
            for _ in 0..seed % 40 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                // Long runs of one bit are what searches jump over.
                value.push([0, 0xff, 0xff, 0, (seed >> 40) as u8][(seed >> 33) as usize % 5]);
            }
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            let bits = value.len() * 8;
            let (a, b) = ((seed >> 20) as usize % (bits + 1), (seed >> 40) as usize % (bits + 1));
            let (start, end) = (a.min(b), a.max(b));
            let slow = (start..end).filter(|at| bit(&value, *at)).count();
            if start < end {
                assert_eq!(ones(&value, start, end), slow as i64, "{value:?} {start} {end}");
            }
            for wanted in [false, true] {
                let slow = (start..end).find(|at| bit(&value, *at) == wanted);
                let found = find(&value, wanted, start, end).filter(|at| *at < end);
                assert_eq!(found, slow, "{value:?} {start} {end}");
            }
        }
    }
}
