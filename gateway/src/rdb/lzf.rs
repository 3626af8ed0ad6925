//! LZF, by which Redis compresses strings in RDB files. Only the way back.

/// The most that one byte can stand for, nearly: a reference of 3 bytes is 264.
const RATIO_MAX: usize = 88;

/// The `length` bytes that were compressed, if these are they.
pub(super) fn decompress(compressed: &[u8], length: usize) -> Option<Vec<u8>> {
    // A length that lies asks for no more memory than the truth could.
    if length > compressed.len().checked_mul(RATIO_MAX)? {
        return None;
    }
    let mut out = Vec::with_capacity(length);
    let mut rest = compressed.iter().copied();
    while let Some(control) = rest.next() {
        if control < 32 {
            // Bytes as they are, one more than it says.
            for _ in 0..=control {
                out.push(rest.next()?);
            }
        } else {
            // A reference to what was written before.
            let mut count = usize::from(control >> 5);
            if count == 7 {
                count += usize::from(rest.next()?);
            }
            let back = (usize::from(control & 0x1f) << 8 | usize::from(rest.next()?)) + 1;
            let start = out.len().checked_sub(back)?;
            // It may reach into what it writes.
            for at in start..start + count + 2 {
                out.push(out[at]);
            }
        }
        if out.len() > length {
            return None;
        }
    }
    (out.len() == length).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_reach_into_what_they_write() {
        assert_eq!(decompress(b"\x00a\x20\x00", 4).unwrap(), b"aaaa");
        assert_eq!(decompress(b"\x01ab\x40\x01", 6).unwrap(), b"ababab");
        assert_eq!(decompress(b"\x00a\xe0\x01\x00", 11).unwrap(), b"aaaaaaaaaaa");
    }

    #[test]
    fn what_is_cut_off_or_reaches_too_far_is_refused() {
        for (compressed, length) in [
            (&b"\x02ab"[..], 3),
            (b"\x00a\x20", 4),
            (b"\x00a\x20\x01", 4),
            (b"\x00a\x20\x00", 5),
            (b"\x00a\x20\x00", 3),
            (b"\x00a", 1 << 40),
        ] {
            assert_eq!(decompress(compressed, length), None, "{}", compressed.escape_ascii());
        }
    }
}
