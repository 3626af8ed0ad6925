//! `cmsgpack`: MessagePack as lua-cmsgpack writes and reads it. Strings are any bytes.

use mlua::{Lua, MultiValue, Table, Value};

use super::given::{Failure, Given, add};

/// Tables within tables; deeper ones are nil.
const DEPTH_MAX: usize = 16;
/// Tables within tables that are read: each is a step deeper on the stack.
const READ_DEPTH_MAX: usize = 200;

/// The library's table.
pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("_NAME", "cmsgpack")?;
    table.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    add(lua, &table, "pack", |given| {
        if given.len() == 0 {
            return Err(given.wrong(0, "MessagePack pack needs input."));
        }
        let mut bytes = Vec::new();
        for place in 1..=given.len() {
            pack(given.get(place), &mut bytes, 0)?;
        }
        Ok(mlua::BString::from(bytes))
    })?;
    add(lua, &table, "unpack", |given| unpack(given, 0, 0))?;
    add(lua, &table, "unpack_one", |given| unpack(given, 1, optional(given, 2)?))?;
    add(lua, &table, "unpack_limit", |given| {
        let limit = given.integer(2)?;
        unpack(given, limit, optional(given, 3)?)
    })?;
    Ok(table)
}

/// The number at a place, 0 if there is none.
fn optional(given: &Given<'_>, place: usize) -> Result<i64, Failure> {
    if given.get(place).is_nil() { Ok(0) } else { given.integer(place) }
}

fn pack(value: &Value, bytes: &mut Vec<u8>, depth: usize) -> Result<(), Failure> {
    match value {
        Value::Boolean(value) => bytes.push(if *value { 0xc3 } else { 0xc2 }),
        Value::Integer(number) => pack_integer(*number, bytes),
        // Exactly 2^63 is not an integer of 64 bits any more.
        Value::Number(number) if number.fract() == 0.0 && (-TWO_63..TWO_63).contains(number) => {
            pack_integer(*number as i64, bytes);
        }
        Value::Number(number) if f64::from(*number as f32) == *number => {
            bytes.push(0xca);
            bytes.extend_from_slice(&(*number as f32).to_be_bytes());
        }
        Value::Number(number) => {
            bytes.push(0xcb);
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        Value::String(text) => {
            let text = text.as_bytes();
            match text.len() {
                length @ 0..32 => bytes.push(0xa0 | length as u8),
                length @ 32..0x100 => bytes.extend_from_slice(&[0xd9, length as u8]),
                length => pack_length(length, (0xda, 0xdb), bytes),
            }
            bytes.extend_from_slice(&text);
        }
        Value::Table(table) if depth < DEPTH_MAX => pack_table(table, bytes, depth)?,
        _ => bytes.push(0xc0),
    }
    Ok(())
}

const TWO_63: f64 = 9_223_372_036_854_775_808.0;

fn pack_integer(number: i64, bytes: &mut Vec<u8>) {
    match number {
        0..0x80 => bytes.push(number as u8),
        0x80..0x100 => bytes.extend_from_slice(&[0xcc, number as u8]),
        0x100..0x1_0000 => {
            bytes.push(0xcd);
            bytes.extend_from_slice(&(number as u16).to_be_bytes());
        }
        0x1_0000..0x1_0000_0000 => {
            bytes.push(0xce);
            bytes.extend_from_slice(&(number as u32).to_be_bytes());
        }
        0x1_0000_0000.. => {
            bytes.push(0xcf);
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        -32..0 => bytes.push(number as u8),
        -0x80..-32 => bytes.extend_from_slice(&[0xd0, number as u8]),
        -0x8000..-0x80 => {
            bytes.push(0xd1);
            bytes.extend_from_slice(&(number as i16).to_be_bytes());
        }
        -0x8000_0000..-0x8000 => {
            bytes.push(0xd2);
            bytes.extend_from_slice(&(number as i32).to_be_bytes());
        }
        _ => {
            bytes.push(0xd3);
            bytes.extend_from_slice(&number.to_be_bytes());
        }
    }
}

/// A length of 16 or of 32 bits behind the byte that says which.
fn pack_length(length: usize, (short, long): (u8, u8), bytes: &mut Vec<u8>) {
    if let Ok(length) = u16::try_from(length) {
        bytes.push(short);
        bytes.extend_from_slice(&length.to_be_bytes());
    } else {
        bytes.push(long);
        bytes.extend_from_slice(&(length as u32).to_be_bytes());
    }
}

fn pack_table(table: &Table, bytes: &mut Vec<u8>, depth: usize) -> Result<(), Failure> {
    // Counted first: Lua lends the host some thousand values at a time, so they are not kept.
    let (mut length, mut last) = (0_usize, Some(0.0_f64));
    for pair in table.pairs::<Value, Value>() {
        let place = match pair?.0 {
            Value::Integer(place) => place as f64,
            Value::Number(place) => place,
            _ => 0.0,
        };
        length += 1;
        last = last.filter(|_| place >= 1.0 && place.fract() == 0.0).map(|last| place.max(last));
    }
    if last == Some(length as f64) {
        match length {
            0..16 => bytes.push(0x90 | length as u8),
            _ => pack_length(length, (0xdc, 0xdd), bytes),
        }
        for place in 1..=length {
            pack(&table.raw_get(place)?, bytes, depth + 1)?;
        }
        return Ok(());
    }
    match length {
        0..16 => bytes.push(0x80 | length as u8),
        _ => pack_length(length, (0xde, 0xdf), bytes),
    }
    for pair in table.pairs() {
        let (name, value): (Value, Value) = pair?;
        pack(&name, bytes, depth + 1)?;
        pack(&value, bytes, depth + 1)?;
    }
    Ok(())
}

/// Values from `offset` on, `limit` of them behind the offset of what follows, or all if
/// both are 0.
fn unpack(given: &Given<'_>, limit: i64, offset: i64) -> Result<MultiValue, Failure> {
    let text = given.text(1)?;
    let bytes = text.as_bytes();
    let length = bytes.len();
    let (Ok(most), Ok(begin)) = (usize::try_from(limit), usize::try_from(offset)) else {
        return Err(Failure::Text(format!(
            "Invalid request to unpack with offset of {offset} and limit of {length}."
        )));
    };
    let Some(mut rest) = bytes.get(begin..) else {
        return Err(Failure::Text(format!(
            "Start offset {offset} greater than input length {length}."
        )));
    };
    let takes_all = limit == 0 && offset == 0;
    let mut values = MultiValue::new();
    while !rest.is_empty() && (takes_all || values.len() < most) {
        if values.len() >= VALUES_MAX {
            return Err(
                "too many return values at once; use unpack_one or unpack_limit instead.".into()
            );
        }
        values.push_back(read(given.lua, &mut rest, 0)?);
    }
    if !takes_all {
        let next = if rest.is_empty() { -1.0 } else { (length - rest.len()) as f64 };
        values.push_front(Value::Number(next));
    }
    Ok(values)
}

/// Values that Lua takes from a function at once.
const VALUES_MAX: usize = 7900;

/// The bytes of a number.
fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Failure> {
    let (bytes, after) = rest.split_first_chunk::<N>().ok_or("Missing bytes in input.")?;
    *rest = after;
    Ok(*bytes)
}

/// The value at the beginning of `rest`.
fn read(lua: &Lua, rest: &mut &[u8], depth: usize) -> Result<Value, Failure> {
    let [kind] = take(rest)?;
    let number = match kind {
        0..0x80 => f64::from(kind),
        0xe0.. => f64::from(kind as i8),
        0xcc => f64::from(u8::from_be_bytes(take(rest)?)),
        0xcd => f64::from(u16::from_be_bytes(take(rest)?)),
        0xce => f64::from(u32::from_be_bytes(take(rest)?)),
        0xcf => u64::from_be_bytes(take(rest)?) as f64,
        0xd0 => f64::from(i8::from_be_bytes(take(rest)?)),
        0xd1 => f64::from(i16::from_be_bytes(take(rest)?)),
        0xd2 => f64::from(i32::from_be_bytes(take(rest)?)),
        0xd3 => i64::from_be_bytes(take(rest)?) as f64,
        0xca => f64::from(f32::from_be_bytes(take(rest)?)),
        0xcb => f64::from_be_bytes(take(rest)?),
        0xc0 => return Ok(Value::Nil),
        0xc2 | 0xc3 => return Ok(Value::Boolean(kind == 0xc3)),
        0xa0..0xc0 => return read_text(lua, rest, usize::from(kind & 0x1f)),
        0xd9 => {
            let [length] = take(rest)?;
            return read_text(lua, rest, length.into());
        }
        0xda => {
            let length = u16::from_be_bytes(take(rest)?);
            return read_text(lua, rest, length.into());
        }
        0xdb => {
            let length = u32::from_be_bytes(take(rest)?);
            return read_text(lua, rest, length as usize);
        }
        0x90..0xa0 => return read_array(lua, rest, (kind & 0xf).into(), depth),
        0xdc => {
            let length = u16::from_be_bytes(take(rest)?);
            return read_array(lua, rest, length.into(), depth);
        }
        0xdd => {
            let length = u32::from_be_bytes(take(rest)?);
            return read_array(lua, rest, length, depth);
        }
        0x80..0x90 => return read_map(lua, rest, (kind & 0xf).into(), depth),
        0xde => {
            let length = u16::from_be_bytes(take(rest)?);
            return read_map(lua, rest, length.into(), depth);
        }
        0xdf => {
            let length = u32::from_be_bytes(take(rest)?);
            return read_map(lua, rest, length, depth);
        }
        0xc1 | 0xc4..0xca | 0xd4..0xd9 => return Err("Bad data format in input.".into()),
    };
    Ok(Value::Number(number))
}

fn read_text(lua: &Lua, rest: &mut &[u8], length: usize) -> Result<Value, Failure> {
    let (text, after) = rest.split_at_checked(length).ok_or("Missing bytes in input.")?;
    *rest = after;
    Ok(Value::String(lua.create_string(text)?))
}

fn deeper(depth: usize) -> Result<usize, Failure> {
    if depth >= READ_DEPTH_MAX { Err("Bad data format in input.".into()) } else { Ok(depth + 1) }
}

fn read_array(lua: &Lua, rest: &mut &[u8], length: u32, depth: usize) -> Result<Value, Failure> {
    let depth = deeper(depth)?;
    let table = lua.create_table()?;
    for place in 1..=length {
        table.raw_set(place, read(lua, rest, depth)?)?;
    }
    Ok(Value::Table(table))
}

fn read_map(lua: &Lua, rest: &mut &[u8], length: u32, depth: usize) -> Result<Value, Failure> {
    let depth = deeper(depth)?;
    let table = lua.create_table()?;
    for _ in 0..length {
        let name = read(lua, rest, depth)?;
        let value = read(lua, rest, depth)?;
        match name {
            Value::Nil => return Err("table index is nil".into()),
            Value::Number(number) if number.is_nan() => return Err("table index is NaN".into()),
            name => table.raw_set(name, value)?,
        }
    }
    Ok(Value::Table(table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_is_unpacked() {
        let lua = Lua::new();
        lua.globals().raw_set("m", library(&lua).unwrap()).unwrap();
        let check = "
            for _, value in ipairs({ 0, 127, 128, 255, 256, 65535, 65536, 2^32 - 1, 2^32, 2^53,
                2^63, 2^64, -1, -32, -33, -128, -129, -32768, -32769, -2^31, -2^31 - 1, -2^63,
                0.5, 0.1, 1/0, '', ('x'):rep(31), ('x'):rep(32), ('\\255'):rep(256),
                ('x'):rep(65536), true, false }) do
                assert(m.unpack(m.pack(value)) == value, tostring(value))
            end
            assert(select('#', m.unpack(m.pack(1, nil, 3))) == 3)
            local a = m.unpack(m.pack({ 1, { x = 'y' }, {} }))
            assert(a[2].x == 'y' and #a == 3)
            local next, one = m.unpack_one(m.pack(7, 8))
            assert(next == 1 and one == 7)
            next, one = m.unpack_one(m.pack(7, 8), next)
            assert(next == -1 and one == 8)
            assert(m.unpack_limit(m.pack(1, 2, 3), 2) == 2)";
        lua.load(check).exec().unwrap();
        let pack = |code: &str| {
            let packed: mlua::LuaString =
                lua.load(format!("return m.pack({code})")).eval().unwrap();
            packed.as_bytes().to_vec()
        };
        for (code, bytes) in [
            ("-1099511627776", &[0xd3, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0][..]),
            ("0.1", &[0xcb, 0x3f, 0xb9, 0x99, 0x99, 0x99, 0x99, 0x99, 0x9a]),
            ("0.5", &[0xca, 0x3f, 0, 0, 0]),
            ("{}", &[0x90]),
            ("{a=1}", &[0x81, 0xa1, b'a', 1]),
            ("'\\255'", &[0xa1, 0xff]),
            ("nil", &[0xc0]),
        ] {
            assert_eq!(pack(code), bytes, "{code}");
        }
    }

    #[test]
    fn any_bytes_are_unpacked_or_refused() {
        let lua = Lua::new();
        for first in 0..=u8::MAX {
            for second in [0, 1, 0x7f, 0x92, 0xff] {
                for end in 0..8 {
                    let bytes = [first, second, 0xa1, b'x', 0xc0, 0xff, 1][..end.min(7)].to_vec();
                    let mut rest = &bytes[..];
                    let _ = read(&lua, &mut rest, 0);
                }
            }
        }
        // Depth and lengths that are not there end it.
        let deep = vec![0x91; 100_000];
        assert!(read(&lua, &mut &deep[..], 0).is_err());
        assert!(read(&lua, &mut &[0xdd, 0xff, 0xff, 0xff, 0xff][..], 0).is_err());
        // No table has a place for these.
        assert!(read(&lua, &mut &[0x81, 0xc0, 1][..], 0).is_err());
        assert!(read(&lua, &mut &[0x81, 0xca, 0x7f, 0xc0, 0, 0, 1][..], 0).is_err());
    }
}
