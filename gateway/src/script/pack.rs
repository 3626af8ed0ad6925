//! `cmsgpack`: MessagePack as lua-cmsgpack reads and writes it.

use mlua::{Lua, MultiValue, Table, Value};
use rmpv::Value as Packed;

/// Tables within tables; deeper ones are nil.
const DEPTH_MAX: usize = 16;

/// The library's table.
pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("_NAME", "cmsgpack")?;
    let pack = |_: &Lua, values: MultiValue| {
        if values.is_empty() {
            return Err(mlua::Error::runtime(
                "bad argument #0 to 'pack' (MessagePack pack needs input.)",
            ));
        }
        let mut bytes = Vec::new();
        for value in &values {
            let packed = packed(value, 0)?;
            rmpv::encode::write_value(&mut bytes, &packed).map_err(mlua::Error::external)?;
        }
        Ok(mlua::BString::from(bytes))
    };
    table.raw_set("pack", lua.create_function(pack)?)?;
    let unpack = |lua: &Lua, text: mlua::LuaString| {
        let bytes = text.as_bytes();
        let mut rest: &[u8] = &bytes;
        let mut values = MultiValue::new();
        while !rest.is_empty() {
            let value = rmpv::decode::read_value(&mut rest)
                .map_err(|_| mlua::Error::runtime("Missing bytes in input."))?;
            values.push_back(unpacked(lua, &value)?);
        }
        Ok(values)
    };
    table.raw_set("unpack", lua.create_function(unpack)?)?;
    Ok(table)
}

fn packed(value: &Value, depth: usize) -> mlua::Result<Packed> {
    Ok(match value {
        Value::Boolean(value) => Packed::Boolean(*value),
        Value::Integer(number) => Packed::from(*number),
        Value::Number(number) if number.fract() == 0.0 && number.abs() < 9e18 => {
            Packed::from(*number as i64)
        }
        Value::Number(number) if f64::from(*number as f32) == *number => {
            Packed::F32(*number as f32)
        }
        Value::Number(number) => Packed::F64(*number),
        Value::String(text) => match std::str::from_utf8(&text.as_bytes()) {
            Ok(text) => Packed::from(text),
            // A string of any bytes, as the library has no other kind.
            Err(_) => Packed::String(rmpv::Utf8String::from(
                String::from_utf8_lossy(&text.as_bytes()).into_owned(),
            )),
        },
        Value::Table(_) if depth == DEPTH_MAX => Packed::Nil,
        Value::Table(table) => {
            let pairs: Vec<(Value, Value)> = table.pairs().collect::<mlua::Result<_>>()?;
            let length = pairs.len();
            let is_array = pairs.iter().all(|(place, _)| match place {
                Value::Integer(place) => (1..=length as i64).contains(place),
                Value::Number(place) => {
                    place.fract() == 0.0 && (1.0..=length as f64).contains(place)
                }
                _ => false,
            });
            if is_array {
                let item = |place| packed(&table.raw_get(place)?, depth + 1);
                Packed::Array((1..=length).map(item).collect::<mlua::Result<_>>()?)
            } else {
                let pair = |(name, value): &(Value, Value)| {
                    Ok((packed(name, depth + 1)?, packed(value, depth + 1)?))
                };
                Packed::Map(pairs.iter().map(pair).collect::<mlua::Result<_>>()?)
            }
        }
        _ => Packed::Nil,
    })
}

fn unpacked(lua: &Lua, value: &Packed) -> mlua::Result<Value> {
    Ok(match value {
        Packed::Boolean(value) => Value::Boolean(*value),
        Packed::Integer(number) => Value::Number(number.as_f64().unwrap_or(0.0)),
        Packed::F32(number) => Value::Number(f64::from(*number)),
        Packed::F64(number) => Value::Number(*number),
        Packed::String(text) => Value::String(lua.create_string(text.as_bytes())?),
        Packed::Binary(bytes) => Value::String(lua.create_string(bytes)?),
        Packed::Array(items) => {
            let table = lua.create_table()?;
            for (place, item) in items.iter().enumerate() {
                table.raw_set(place + 1, unpacked(lua, item)?)?;
            }
            Value::Table(table)
        }
        Packed::Map(pairs) => {
            let table = lua.create_table()?;
            for (name, value) in pairs {
                table.raw_set(unpacked(lua, name)?, unpacked(lua, value)?)?;
            }
            Value::Table(table)
        }
        Packed::Nil | Packed::Ext(..) => Value::Nil,
    })
}
