//! Collections as the bytes of one value: what a small hash is in memory.
//!
//! ```text
//!  0          1                5
//! | format: 1 | items: u32, LE | item | item | ...
//! item: | length: LEB128, 1 to 5 bytes | bytes |
//! ```
//!
//! A hash has two items a field, name and value, in the order in which the fields
//! came; a list or a set has one an element. A value with no item is not stored:
//! its key is removed. Another first byte is another format, of which this
//! version knows none: a collection that is split over several keys will have one.

/// The first byte of what this file writes.
const FORMAT: u8 = 1;
const HEADER_BYTES: usize = 5;
/// Bytes of a u32 in groups of seven bits.
const LENGTH_BYTES_MAX: usize = 5;

/// The bytes are of another format, or of none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unreadable;

/// How many items a packed value says that it has.
pub(crate) fn count(value: &[u8]) -> Result<usize, Unreadable> {
    match value {
        [FORMAT, count @ ..] => {
            let count = count.first_chunk().ok_or(Unreadable)?;
            Ok(u32::from_le_bytes(*count) as usize)
        }
        _ => Err(Unreadable),
    }
}

/// Goes through the items of a packed value; one that is cut off is an error.
pub(crate) fn items(value: &[u8]) -> Result<Items<'_>, Unreadable> {
    let left = count(value)?;
    Ok(Items { rest: &value[HEADER_BYTES..], left })
}

/// An iterator over items.
#[derive(Clone, Debug)]
pub(crate) struct Items<'a> {
    rest: &'a [u8],
    left: usize,
}

impl<'a> Items<'a> {
    #[inline]
    fn take(&mut self) -> Option<&'a [u8]> {
        let mut length = 0_usize;
        for place in 0..LENGTH_BYTES_MAX {
            let (byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            length |= usize::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                let (item, rest) = self.rest.split_at_checked(length)?;
                self.rest = rest;
                return Some(item);
            }
        }
        None
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<&'a [u8], Unreadable>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let item = self.take().ok_or(Unreadable);
        if item.is_err() {
            self.left = 0;
        }
        Some(item)
    }
}

/// Fields with their values.
pub(crate) type Pairs<'a> = Vec<(&'a [u8], &'a [u8])>;

/// The fields of a hash with their values.
pub(crate) fn pairs(value: &[u8]) -> Result<Pairs<'_>, Unreadable> {
    let mut items = items(value)?;
    // A count that lies asks for no more than the bytes could hold.
    let mut pairs = Vec::with_capacity((items.left / 2).min(value.len()));
    while let Some(name) = items.next() {
        pairs.push((name?, items.next().ok_or(Unreadable)??));
    }
    Ok(pairs)
}

/// The value of a hash's field.
pub(crate) fn field<'a>(value: &'a [u8], name: &[u8]) -> Result<Option<&'a [u8]>, Unreadable> {
    let mut items = items(value)?;
    while let Some(found) = items.next() {
        let content = items.next().ok_or(Unreadable)?;
        if found? == name {
            return content.map(Some);
        }
    }
    Ok(None)
}

/// Writes a packed value of these items over what `out` holds.
pub(crate) fn pack<'a>(out: &mut Vec<u8>, items: impl Iterator<Item = &'a [u8]> + Clone) {
    let bytes: usize = items.clone().map(|item| item.len() + LENGTH_BYTES_MAX).sum();
    out.clear();
    out.reserve(HEADER_BYTES + bytes);
    out.extend_from_slice(&[FORMAT, 0, 0, 0, 0]);
    let mut count = 0_u32;
    for item in items {
        let mut length = item.len();
        while length > 0x7f {
            out.push(length as u8 | 0x80);
            length >>= 7;
        }
        out.push(length as u8);
        out.extend_from_slice(item);
        count += 1;
    }
    out[1..HEADER_BYTES].copy_from_slice(&count.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn items_come_back(given: Vec<Vec<u8>>, cut: prop::sample::Index) {
            let mut value = vec![7];
            pack(&mut value, given.iter().map(Vec::as_slice));
            prop_assert_eq!(count(&value), Ok(given.len()));
            let read: Vec<&[u8]> = items(&value).unwrap().collect::<Result<_, _>>().unwrap();
            prop_assert_eq!(&read, &given);
            prop_assert_eq!(pairs(&value).is_ok(), given.len() % 2 == 0);
            if !given.is_empty() {
                let cut = &value[..cut.index(value.len())];
                prop_assert!(items(cut).is_err() || items(cut).unwrap().any(|item| item.is_err()));
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(value: Vec<u8>, name: Vec<u8>) {
            let _ = (count(&value), pairs(&value), field(&value, &name));
        }
    }

    #[test]
    fn fields_are_found_and_lengths_take_as_many_bytes_as_they_need() {
        for length in [0, 1, 127, 128, 16_383, 16_384, 70_000] {
            let long = vec![b'x'; length];
            let mut value = Vec::new();
            pack(&mut value, [&b"a"[..], &long, b"b", b"2"].into_iter());
            assert_eq!(field(&value, b"a"), Ok(Some(&long[..])));
            assert_eq!(field(&value, b"b"), Ok(Some(&b"2"[..])));
            assert_eq!(field(&value, b"2"), Ok(None), "a value is not a field");
        }
        assert_eq!(count(b""), Err(Unreadable));
        assert_eq!(count(&[2, 0, 0, 0, 0]), Err(Unreadable), "a later format");
    }
}
