//! `struct`: numbers and strings in the bytes of a C structure, as the library of that name
//! writes and reads them.

use mlua::{Lua, MultiValue, Table, Value};

use super::given::{Failure, Given, add};

/// Bytes of an integer, at most.
const INTEGER_BYTES_MAX: usize = 32;
/// What `!` alone aligns to.
const ALIGNED_MAX: usize = 8;
/// Bytes that one call packs, at most: Redis's limit of a value.
const PACKED_BYTES_MAX: usize = 512 << 20;
/// Values that Lua takes from a function at once.
const VALUES_MAX: usize = 7900;

/// The library's table.
pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    add(lua, &table, "pack", |given| Ok(mlua::BString::from(pack(given)?)))?;
    add(lua, &table, "unpack", unpack)?;
    add(lua, &table, "size", size)?;
    Ok(table)
}

/// One item of a format: its letter, its bytes, and how many come before it so that it is
/// aligned.
struct Item {
    letter: u8,
    bytes: usize,
    padding: usize,
    is_big_endian: bool,
}

/// What is left of a format.
struct Format<'a> {
    rest: &'a [u8],
    is_big_endian: bool,
    alignment: usize,
}

impl<'a> Format<'a> {
    fn new(text: &'a [u8]) -> Self {
        // What follows a NUL is not seen, as in C.
        let rest = text.split(|byte| *byte == 0).next().unwrap_or_default();
        Self { rest, is_big_endian: false, alignment: 1 }
    }

    /// The next item, which comes behind so many bytes.
    fn next(&mut self, given: &Given<'_>, behind: usize) -> Result<Option<Item>, Failure> {
        while let Some((&letter, rest)) = self.rest.split_first() {
            self.rest = rest;
            let bytes = match letter {
                b'B' | b'b' | b'x' => 1,
                b'H' | b'h' => 2,
                b'L' | b'l' | b'T' | b'd' => 8,
                b'f' => 4,
                b'c' => self.number(1)?,
                b'i' | b'I' => self.integer_bytes()?,
                b's' => 0,
                b' ' => continue,
                b'>' | b'<' => {
                    self.is_big_endian = letter == b'>';
                    continue;
                }
                b'!' => {
                    let alignment = self.number(ALIGNED_MAX)?;
                    if !alignment.is_power_of_two() {
                        let text = format!("alignment {alignment} is not a power of 2");
                        return Err(text.into());
                    }
                    self.alignment = alignment;
                    continue;
                }
                other => {
                    let other = char::from(other);
                    return Err(given.wrong(1, &format!("invalid format option '{other}'")));
                }
            };
            let padding = match letter {
                b'c' | b's' => 0,
                // C takes its size for a power of two, too.
                _ => {
                    let to = bytes.min(self.alignment).max(1);
                    to.wrapping_sub(behind & (to - 1)) & (to - 1)
                }
            };
            let is_big_endian = self.is_big_endian;
            return Ok(Some(Item { letter, bytes, padding, is_big_endian }));
        }
        Ok(None)
    }

    fn integer_bytes(&mut self) -> Result<usize, Failure> {
        let bytes = self.number(4)?;
        if bytes > INTEGER_BYTES_MAX {
            return Err(Failure::Text(format!(
                "integral size {bytes} is larger than limit of {INTEGER_BYTES_MAX}"
            )));
        }
        Ok(bytes)
    }

    /// The number that stands next, or another if there is none.
    fn number(&mut self, otherwise: usize) -> Result<usize, Failure> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        if digits == 0 {
            return Ok(otherwise);
        }
        let number = std::str::from_utf8(number).ok().and_then(|text| text.parse::<i32>().ok());
        let number = number.and_then(|number| usize::try_from(number).ok());
        number.ok_or_else(|| "integral size overflow".into())
    }
}

/// struct.pack(format, value, ...)
fn pack(given: &Given<'_>) -> Result<Vec<u8>, Failure> {
    let text = given.text(1)?;
    let text = text.as_bytes();
    let mut format = Format::new(&text);
    let mut packed: Vec<u8> = Vec::new();
    let mut place = 2;
    while let Some(item) = format.next(given, packed.len())? {
        packed.resize(packed.len() + item.padding, 0);
        let mut append = |mut bytes: Vec<u8>| {
            // They were made in little-endian order.
            if item.is_big_endian {
                bytes.reverse();
            }
            packed.extend_from_slice(&bytes);
        };
        match item.letter {
            b'x' => packed.push(0),
            b'f' => append((given.number(place)? as f32).to_le_bytes().to_vec()),
            b'd' => append(given.number(place)?.to_le_bytes().to_vec()),
            b'c' | b's' => {
                let value = given.text(place)?;
                let value = value.as_bytes();
                let bytes = if item.bytes == 0 { value.len() } else { item.bytes };
                let Some(value) = value.get(..bytes) else {
                    return Err(given.wrong(place + 1, "string too short"));
                };
                if packed.len() + value.len() > PACKED_BYTES_MAX {
                    return Err("the packed string would be too long".into());
                }
                packed.extend_from_slice(value);
                packed.extend(std::iter::repeat_n(0, usize::from(item.letter == b's')));
            }
            _ => append(integer_to_bytes(given.number(place)?, item.bytes)),
        }
        place += usize::from(item.letter != b'x');
    }
    Ok(packed)
}

/// In little-endian order; what is above 64 bits is 0, as the library has it.
fn integer_to_bytes(number: f64, bytes: usize) -> Vec<u8> {
    let value = if number < 0.0 { (number as i64) as u64 } else { number as u64 };
    let value = value.to_le_bytes();
    (0..bytes).map(|place| value.get(place).copied().unwrap_or(0)).collect()
}

/// struct.unpack(format, data [, position]): the values, and the position behind them.
fn unpack(given: &Given<'_>) -> Result<MultiValue, Failure> {
    let (text, data) = (given.text(1)?, given.text(2)?);
    let (text, data) = (text.as_bytes(), data.as_bytes());
    let position = if given.get(3).is_nil() { 1 } else { given.integer(3)? };
    let position = usize::try_from(position).ok().and_then(|position| position.checked_sub(1));
    let Some(mut at) = position else {
        return Err(given.wrong(3, "offset must be 1 or greater"));
    };
    let short = || given.wrong(2, "data string too short");
    let mut format = Format::new(&text);
    let mut values: Vec<Value> = Vec::new();
    while let Some(item) = format.next(given, at)? {
        at = at.checked_add(item.padding).ok_or_else(short)?;
        let rest = data.get(at..).ok_or_else(short)?;
        let mut bytes = rest.get(..item.bytes).ok_or_else(short)?;
        if values.len() >= VALUES_MAX {
            return Err("too many results".into());
        }
        let value = match item.letter {
            b'x' => None,
            b'f' => Some(Value::Number(f32::from_le_bytes(ordered(bytes, &item)).into())),
            b'd' => Some(Value::Number(f64::from_le_bytes(ordered(bytes, &item)))),
            b'c' => {
                if item.bytes == 0 {
                    let length = match values.pop() {
                        Some(Value::Number(length)) => length,
                        _ => return Err("format 'c0' needs a previous size".into()),
                    };
                    bytes = rest.get(..length as usize).ok_or_else(short)?;
                }
                Some(Value::String(given.lua.create_string(bytes)?))
            }
            b's' => {
                let end = rest.iter().position(|byte| *byte == 0);
                let end = end.ok_or("unfinished string in data")?;
                bytes = &rest[..=end];
                Some(Value::String(given.lua.create_string(&rest[..end])?))
            }
            letter => Some(Value::Number(integer_of(bytes, letter, item.is_big_endian))),
        };
        values.extend(value);
        at += bytes.len();
    }
    values.push(Value::Number((at + 1) as f64));
    Ok(values.into_iter().collect())
}

/// The bytes of a number in little-endian order.
fn ordered<const N: usize>(bytes: &[u8], item: &Item) -> [u8; N] {
    let mut ordered = [0; N];
    for (place, byte) in bytes.iter().take(N).enumerate() {
        ordered[if item.is_big_endian { N - 1 - place } else { place }] = *byte;
    }
    ordered
}

/// Signed if its letter is a small one; of more than 64 bits the lowest count.
fn integer_of(bytes: &[u8], letter: u8, is_big_endian: bool) -> f64 {
    let next = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    let number =
        if is_big_endian { bytes.iter().fold(0, next) } else { bytes.iter().rev().fold(0, next) };
    if letter.is_ascii_uppercase() {
        return number as f64;
    }
    let unused = 64_usize.saturating_sub(8 * bytes.len()).min(63);
    ((number << unused) as i64 >> unused) as f64
}

/// struct.size(format)
fn size(given: &Given<'_>) -> Result<f64, Failure> {
    let text = given.text(1)?;
    let text = text.as_bytes();
    let mut format = Format::new(&text);
    let mut at = 0_usize;
    while let Some(item) = format.next(given, at)? {
        match (item.letter, item.bytes) {
            (b's', _) => return Err(given.wrong(1, "option 's' has no fixed size")),
            (b'c', 0) => return Err(given.wrong(1, "option 'c0' has no fixed size")),
            _ => at = at.saturating_add(item.padding).saturating_add(item.bytes),
        }
    }
    Ok(at as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lua() -> Lua {
        let lua = Lua::new();
        lua.globals().raw_set("struct", library(&lua).unwrap()).unwrap();
        lua
    }

    #[test]
    fn bytes_are_as_in_c() {
        let lua = lua();
        for (code, hex) in [
            ("'bBhH', -1, 255, -2, 513", "fffffeff0102"),
            ("'>hI3i', -2, 1, 1", "fffe00000100000001"),
            ("'<l', -1", "ffffffffffffffff"),
            ("'>L', 2^63", "8000000000000000"),
            ("'!4bi', 1, 2", "0100000002000000"),
            ("'!bd', 1, 0.5", "0100000000000000000000000000e03f"),
            ("'>f', 0.5", "3f000000"),
            ("'c2sx', 'abc', 'de'", "6162646500 00"),
            ("'I9', 1", "010000000000000000"),
            ("'c0', 'whole'", "77686f6c65"),
        ] {
            let check = format!(
                "return (struct.pack({code}):gsub('.', function(c) return \
                 string.format('%02x', c:byte()) end))"
            );
            let packed: String = lua.load(check).eval().unwrap();
            assert_eq!(packed, hex.replace(' ', ""), "{code}");
        }
    }

    #[test]
    fn values_come_back_with_the_position_behind_them() {
        let check = "
            local function both(format, ...)
                local packed = struct.pack(format, ...)
                local values = { struct.unpack(format, packed) }
                for place = 1, select('#', ...) do
                    assert(values[place] == select(place, ...), format)
                end
                assert(values[select('#', ...) + 1] == #packed + 1, format)
            end
            both('bhilBHILT', -1, -2, -3, -4, 1, 2, 3, 4, 5)
            both('>bhilBHILT', -1, -2, -3, -4, 1, 2, 3, 4, 5)
            both('!8bdhf', 7, 0.25, -3, 1.5)
            both('i3I5', -8388608, 2^39)
            both('sc3', 'text', 'abc')
            assert(struct.unpack('bc0', '\\3abcd') == 'abc')
            assert(select(2, struct.unpack('b', 'abc', 2)) == 3)
            assert(struct.size('!8bdh') == 18 and struct.size('i3 c5') == 8)";
        lua().load(check).exec().unwrap();
    }

    #[test]
    fn what_cannot_be_is_refused_as_by_the_library() {
        let lua = lua();
        for (code, refusal) in [
            ("struct.pack('q', 1)", "invalid format option 'q'"),
            ("struct.pack('!3', 1)", "alignment 3 is not a power of 2"),
            ("struct.pack('i33', 1)", "integral size 33 is larger than limit of 32"),
            ("struct.pack('i99999999999', 1)", "integral size overflow"),
            ("struct.pack('c9', 'short')", "bad argument #3 to 'pack' (string too short)"),
            ("struct.pack('i')", "bad argument #2 to 'pack' (number expected, got no value)"),
            ("struct.unpack('i', 'abc')", "bad argument #2 to 'unpack' (data string too short)"),
            ("struct.unpack('s', 'abc')", "unfinished string in data"),
            ("struct.unpack('c0', 'abc')", "format 'c0' needs a previous size"),
            ("struct.unpack('bc0', '\\9ab')", "data string too short"),
            ("struct.unpack('b', 'abc', 0)", "offset must be 1 or greater"),
            ("struct.unpack('b', 'abc', 99)", "data string too short"),
            ("struct.unpack('c2147483647', 'abc')", "data string too short"),
            ("struct.size('s')", "option 's' has no fixed size"),
            ("struct.size('c0')", "option 'c0' has no fixed size"),
        ] {
            let error = lua.load(code).exec().unwrap_err().to_string();
            assert!(error.contains(refusal), "{code}: {error}");
        }
    }
}
