//! Inline requests: a line of words, with Redis's quotes and escapes.

use super::{ProtocolError, Span};

/// Splits `buffer[at..end]` into words. Escapes are resolved in place, which
/// can be done since no escape is shorter than what it stands for.
pub(super) fn split(
    buffer: &mut [u8],
    at: usize,
    end: usize,
    spans: &mut Vec<Span>,
) -> Result<(), ProtocolError> {
    // A NUL ends the line for Redis, which keeps it in a C string.
    let end = memchr::memchr(0, &buffer[at..end]).map_or(end, |found| at + found);
    let mut read = at;
    loop {
        while read < end && is_space(buffer[read]) {
            read += 1;
        }
        if read == end {
            return Ok(());
        }
        let start = read;
        let (next, written) = word(&mut buffer[..end], start)?;
        spans.push(Span::new(start, written));
        read = next;
    }
}

/// Resolves the word at `start` in place and tells where the next begins and
/// where this one now ends.
fn word(line: &mut [u8], start: usize) -> Result<(usize, usize), ProtocolError> {
    let mut read = start;
    let mut write = start;
    let mut quote = None;
    loop {
        let byte = line.get(read).copied();
        let following = line.get(read + 1).copied();
        let resolved = match (quote, byte) {
            (None, None | Some(b' ' | b'\n' | b'\r' | b'\t')) => return Ok((read, write)),
            (None, Some(mark @ (b'"' | b'\''))) => {
                quote = Some(mark);
                read += 1;
                continue;
            }
            (Some(_), None) => return Err(ProtocolError::InlineQuotes),
            (Some(mark), Some(byte)) if byte == mark => {
                if following.is_some_and(|next| !is_space(next)) {
                    return Err(ProtocolError::InlineQuotes);
                }
                return Ok((read + 1, write));
            }
            (Some(b'\''), Some(b'\\')) if following == Some(b'\'') => {
                read += 1;
                b'\''
            }
            (Some(b'"'), Some(b'\\')) if following.is_some() => {
                if let Some(value) = hexadecimal(&line[read + 1..]) {
                    read += 3;
                    value
                } else {
                    read += 1;
                    match line[read] {
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'b' => 8,
                        b'a' => 7,
                        other => other,
                    }
                }
            }
            (_, Some(byte)) => byte,
        };
        line[write] = resolved;
        write += 1;
        read += 1;
    }
}

/// The value of `xHH` at the head of `text`.
fn hexadecimal(text: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    match *text {
        [b'x', high, low, ..] => Some((digit(high)? * 16 + digit(low)?) as u8),
        _ => None,
    }
}

/// C's isspace.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}
