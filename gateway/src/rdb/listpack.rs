//! Redis's compact collections: listpack, and ziplist before Redis 7. Only the way
//! back, to items as strings.
//!
//! ```text
//! listpack: | bytes: u32 | items: u16 | item | ... | 0xff |     item: | form, length | bytes | its length backwards |
//! ziplist:  | bytes: u32 | last: u32 | items: u16 | item | ... | 0xff |   item: | length of the one before | form, length | bytes |
//! ```

const END: u8 = 0xff;
const LISTPACK_HEADER_BYTES: usize = 6;
const ZIPLIST_HEADER_BYTES: usize = 10;

/// The items of a listpack.
pub(super) fn items(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut rest = body(bytes, LISTPACK_HEADER_BYTES)?;
    let mut items = Vec::new();
    while !rest.is_empty() {
        let before = rest.len();
        items.push(listpack_item(&mut rest)?);
        let back_bytes = match before - rest.len() {
            0..=127 => 1,
            128..=16_382 => 2,
            16_383..=2_097_150 => 3,
            2_097_151..=268_435_454 => 4,
            _ => 5,
        };
        take(&mut rest, back_bytes)?;
    }
    Some(items)
}

fn listpack_item(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let form = take(rest, 1)?[0];
    let text = |rest: &mut &[u8], length: usize| Some(take(rest, length)?.to_vec());
    match form {
        0..=0x7f => number(form.into()),
        0x80..=0xbf => text(rest, usize::from(form & 0x3f)),
        0xc0..=0xdf => {
            let raw = i64::from(form & 0x1f) << 8 | i64::from(take(rest, 1)?[0]);
            // 13 bits with a sign.
            number(if raw >= 1 << 12 { raw - (1 << 13) } else { raw })
        }
        0xe0..=0xef => {
            let length = usize::from(form & 0x0f) << 8 | usize::from(take(rest, 1)?[0]);
            text(rest, length)
        }
        0xf0 => {
            let length = u32::from_le_bytes(take(rest, 4)?.try_into().ok()?);
            text(rest, length as usize)
        }
        0xf1 => number(integer(take(rest, 2)?)),
        0xf2 => number(integer(take(rest, 3)?)),
        0xf3 => number(integer(take(rest, 4)?)),
        0xf4 => number(integer(take(rest, 8)?)),
        _ => None,
    }
}

/// The items of a ziplist.
pub(super) fn ziplist_items(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut rest = body(bytes, ZIPLIST_HEADER_BYTES)?;
    let mut items = Vec::new();
    while !rest.is_empty() {
        if take(&mut rest, 1)?[0] == 0xfe {
            take(&mut rest, 4)?;
        }
        items.push(ziplist_item(&mut rest)?);
    }
    Some(items)
}

fn ziplist_item(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let form = take(rest, 1)?[0];
    let text = |rest: &mut &[u8], length: usize| Some(take(rest, length)?.to_vec());
    match form {
        0..=0x3f => text(rest, usize::from(form)),
        0x40..=0x7f => {
            let length = usize::from(form & 0x3f) << 8 | usize::from(take(rest, 1)?[0]);
            text(rest, length)
        }
        0x80 => {
            let length = u32::from_be_bytes(take(rest, 4)?.try_into().ok()?);
            text(rest, length as usize)
        }
        0xc0 => number(integer(take(rest, 2)?)),
        0xd0 => number(integer(take(rest, 4)?)),
        0xe0 => number(integer(take(rest, 8)?)),
        0xf0 => number(integer(take(rest, 3)?)),
        0xfe => number(integer(take(rest, 1)?)),
        0xf1..=0xfd => number(i64::from(form & 0x0f) - 1),
        _ => None,
    }
}

/// What lies between the header, whose first word is how long all is, and the end.
fn body(bytes: &[u8], header_bytes: usize) -> Option<&[u8]> {
    let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    match bytes.get(header_bytes..)?.split_last()? {
        (&END, body) if length == bytes.len() => Some(body),
        _ => None,
    }
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

/// A number of 1 to 8 bytes, little end first, with its sign.
fn integer(bytes: &[u8]) -> i64 {
    let mut wide = [0; 8];
    wide[8 - bytes.len()..].copy_from_slice(bytes);
    i64::from_le_bytes(wide) >> (64 - 8 * bytes.len())
}

fn number(value: i64) -> Option<Vec<u8>> {
    Some(value.to_string().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_width_keep_their_sign() {
        assert_eq!(integer(&[0xff]), -1);
        assert_eq!(integer(&[0, 0x80]), i64::from(i16::MIN));
        assert_eq!(integer(&[0xff, 0xff, 0x7f]), (1 << 23) - 1);
        assert_eq!(integer(&[0, 0, 0, 0x80]), i64::from(i32::MIN));
        assert_eq!(integer(&i64::MIN.to_le_bytes()), i64::MIN);
    }

    #[test]
    fn a_ziplist_of_redis_6_is_read() {
        // f -> 1, g -> "hello", h -> 300 and -5.
        let body =
            b"\0\x01f\x03\xf2\x02\x01g\x03\x05hello\x07\x01h\x03\xc0\x2c\x01\x04\x01i\x03\xfe\xfb";
        let length = (ZIPLIST_HEADER_BYTES + body.len() + 1) as u32;
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend_from_slice(&[0; 6]);
        bytes.extend_from_slice(body);
        bytes.push(END);
        let items = ziplist_items(&bytes).unwrap();
        let wanted: [&[u8]; 8] = [b"f", b"1", b"g", b"hello", b"h", b"300", b"i", b"-5"];
        assert_eq!(items, wanted);
        for cut in 0..bytes.len() {
            assert_eq!(ziplist_items(&bytes[..cut]), None);
        }
    }
}
