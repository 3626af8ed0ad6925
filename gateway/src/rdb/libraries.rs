//! Libraries of functions as FUNCTION DUMP gives and FUNCTION RESTORE takes them:
//!
//! ```text
//! | 245 | code: string | 245 | code | ... | RDB version: u16, LE | CRC-64 of all before: u64, LE |
//! ```

use super::{Refused, Source, body_of, put_string, seal};

/// Marks a library, since Redis 7.0.
const LIBRARY: u8 = 245;

/// Writes the payload of libraries of these codes.
pub(crate) fn dump<'a>(codes: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for code in codes {
        out.push(LIBRARY);
        put_string(&mut out, code);
    }
    seal(out)
}

/// Reads the codes in a payload.
pub(crate) fn restore(payload: &[u8]) -> Result<Vec<Vec<u8>>, Refused> {
    let mut source = Source::new(body_of(payload)?);
    let mut codes = Vec::new();
    while let Some(kind) = source.byte() {
        if kind != LIBRARY {
            return Err(Refused::Type(kind));
        }
        codes.push(source.string().ok_or(Refused::Format)?);
    }
    Ok(codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_come_back_and_what_is_no_library_is_refused() {
        let codes: [&[u8]; 3] = [b"#!lua name=a\n", b"", &[b'x'; 20_000]];
        let payload = dump(codes.into_iter());
        assert_eq!(restore(&payload).unwrap(), codes);
        assert_eq!(restore(&dump([].into_iter())).unwrap(), Vec::<Vec<u8>>::new());
        for end in 0..payload.len() {
            assert_eq!(restore(&payload[..end]), Err(Refused::Trailer), "{end}");
        }
        assert_eq!(restore(&seal(vec![LIBRARY, 5, b'a'])), Err(Refused::Format));
        assert_eq!(restore(&seal(vec![0, 1, b'a'])), Err(Refused::Type(0)));
    }
}
