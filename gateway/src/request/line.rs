//! Numbers in header lines, by Redis's strict rules.

/// What follows the first byte of a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Line {
    Number {
        value: i64,
        /// Where the byte after the line is.
        next: usize,
    },
    Incomplete,
    Malformed,
}

/// Reads a number and the line's end at `at`. Bytes before `searched` are
/// known not to end the line.
#[inline]
pub(super) fn number(buffer: &[u8], at: usize, searched: usize) -> Line {
    // Nearly every header is one to nine digits without a leading zero.
    let mut value = 0_i64;
    let mut index = at;
    while let Some(digit) = buffer.get(index).map(|byte| byte.wrapping_sub(b'0')) {
        if digit > 9 {
            break;
        }
        value = value.wrapping_mul(10).wrapping_add(i64::from(digit));
        index += 1;
        if index - at > 9 {
            return number_any(buffer, at, searched);
        }
    }
    let digits = index - at;
    if digits == 0
        || (digits > 1 && buffer[at] == b'0')
        || buffer.get(index) != Some(&b'\r')
        || buffer.len() < index + 2
    {
        return number_any(buffer, at, searched);
    }
    Line::Number { value, next: index + 2 }
}

/// Reads a header of the commonest form: `first`, a number of one or two digits and the
/// line's end. Of any other header it knows nothing.
#[inline]
pub(super) fn short(buffer: &[u8], at: usize, first: u8) -> Option<(usize, usize)> {
    let &[kind, tens, ones, end, _] = buffer.get(at..)?.first_chunk::<5>()?;
    let (tens, digit) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
    if kind != first || tens > 9 {
        return None;
    }
    if ones == b'\r' {
        return Some((usize::from(tens), at + 4));
    }
    // No number has a leading zero.
    (tens > 0 && digit <= 9 && end == b'\r')
        .then(|| (usize::from(tens) * 10 + usize::from(digit), at + 5))
}

/// Reads the two headers that a request begins with, if both are of the commonest form: the
/// number of arguments, the length of the first and where that is.
#[inline]
pub(super) fn beginning(buffer: &[u8], at: usize) -> Option<(usize, usize, usize)> {
    const SHAPE: u64 = u64::from_le_bytes(*b"*\0\r\0$\0\r\0");
    const SHAPED: u64 = u64::from_le_bytes(*b"\xff\0\xff\0\xff\0\xff\0");
    let headers = u64::from_le_bytes(*buffer.get(at..)?.first_chunk()?);
    let digit = |at: u32| usize::from(((headers >> (8 * at)) as u8).wrapping_sub(b'0'));
    let (count, length) = (digit(1), digit(5));
    if headers & SHAPED == SHAPE && count <= 9 && length <= 9 {
        return Some((count, length, at + 8));
    }
    let (count, at) = short(buffer, at, b'*')?;
    let (length, start) = short(buffer, at, b'$')?;
    Some((count, length, start))
}

#[cold]
fn number_any(buffer: &[u8], at: usize, searched: usize) -> Line {
    let from = searched.saturating_sub(1).max(at).min(buffer.len());
    let Some(end) = memchr::memchr(b'\r', &buffer[from..]).map(|found| from + found) else {
        return Line::Incomplete;
    };
    // The byte after `\r` is skipped unseen, as Redis does, but must be there.
    if buffer.len() < end + 2 {
        return Line::Incomplete;
    }
    match integer(&buffer[at..end]) {
        Some(value) => Line::Number { value, next: end + 2 },
        None => Line::Malformed,
    }
}

/// A decimal integer as Redis's string2ll takes it: no plus sign, no blanks, no
/// leading zeros, nothing out of range.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut value = 0_u64;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // 19 digits fit a u64.
        value = value * 10 + u64::from(digit);
    }
    if negative { 0_i64.checked_sub_unsigned(value) } else { i64::try_from(value).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_strict() {
        for value in [0, 1, -1, 10, 42, -9, i64::MAX, i64::MIN, i64::MIN + 1] {
            assert_eq!(integer(value.to_string().as_bytes()), Some(value));
        }
        for text in [
            "",
            "-",
            "-0",
            "00",
            "01",
            "+1",
            " 1",
            "1 ",
            "1a",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999",
        ] {
            assert_eq!(integer(text.as_bytes()), None, "{text:?}");
        }
    }
}
