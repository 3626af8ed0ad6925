//! `cjson`: JSON as lua-cjson reads and writes it.

use mlua::{Lua, Table, Value};
use serde_json::Value as Json;

use super::value::print;

/// Arrays and objects within others.
const DEPTH_MAX: usize = 1000;
/// A table is an array with holes only up to so many more places than items.
const SPARSE_RATIO: usize = 2;
const SPARSE_SAFE: usize = 10;
/// Digits of a number.
const DIGITS: usize = 14;

/// The library's table.
pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("null", Value::NULL)?;
    table.raw_set("_NAME", "cjson")?;
    table.raw_set("_VERSION", "2.1.0")?;
    let encode = |_: &Lua, value: Value| {
        let mut text = Vec::new();
        encode(&value, &mut text, 0)?;
        Ok(mlua::BString::from(text))
    };
    table.raw_set("encode", lua.create_function(encode)?)?;
    let decode = |lua: &Lua, text: mlua::LuaString| {
        let json: Json = serde_json::from_slice(&text.as_bytes())
            .map_err(|error| mlua::Error::runtime(format!("Expected value: {error}")))?;
        decode(lua, &json)
    };
    table.raw_set("decode", lua.create_function(decode)?)?;
    // How it does what it does cannot be chosen.
    for name in [
        "encode_keep_buffer",
        "encode_max_depth",
        "decode_max_depth",
        "encode_invalid_numbers",
        "decode_invalid_numbers",
        "encode_sparse_array",
        "encode_number_precision",
    ] {
        table.raw_set(name, lua.create_function(|_: &Lua, value: Value| Ok(value))?)?;
    }
    Ok(table)
}

fn encode(value: &Value, text: &mut Vec<u8>, depth: usize) -> mlua::Result<()> {
    if depth > DEPTH_MAX {
        return Err(mlua::Error::runtime("Cannot serialise, excessive depth (1001)"));
    }
    match value {
        Value::Nil => text.extend_from_slice(b"null"),
        value if *value == Value::NULL => text.extend_from_slice(b"null"),
        Value::Boolean(true) => text.extend_from_slice(b"true"),
        Value::Boolean(false) => text.extend_from_slice(b"false"),
        Value::Integer(number) => text.extend_from_slice(print(*number as f64, DIGITS).as_bytes()),
        Value::Number(number) if !number.is_finite() => {
            return Err(mlua::Error::runtime(
                "Cannot serialise number: must not be NaN or Infinity",
            ));
        }
        Value::Number(number) => text.extend_from_slice(print(*number, DIGITS).as_bytes()),
        Value::String(string) => quote(&string.as_bytes(), text),
        Value::Table(table) => match array_length(table)? {
            Some(length) => {
                text.push(b'[');
                for place in 1..=length {
                    if place > 1 {
                        text.push(b',');
                    }
                    encode(&table.raw_get(place)?, text, depth + 1)?;
                }
                text.push(b']');
            }
            None => {
                text.push(b'{');
                for (number, pair) in table.pairs::<Value, Value>().enumerate() {
                    let (name, value) = pair?;
                    if number > 0 {
                        text.push(b',');
                    }
                    match &name {
                        Value::String(name) => quote(&name.as_bytes(), text),
                        Value::Integer(name) => quote(name.to_string().as_bytes(), text),
                        Value::Number(name) => quote(print(*name, DIGITS).as_bytes(), text),
                        _ => {
                            return Err(mlua::Error::runtime(
                                "Cannot serialise table: table key must be a number or string",
                            ));
                        }
                    }
                    text.push(b':');
                    encode(&value, text, depth + 1)?;
                }
                text.push(b'}');
            }
        },
        other => {
            let kind = other.type_name();
            let message = format!("Cannot serialise {kind}: type not supported");
            return Err(mlua::Error::runtime(message));
        }
    }
    Ok(())
}

/// The length of a table that is an array; an empty one is an object.
fn array_length(table: &Table) -> mlua::Result<Option<usize>> {
    let (mut items, mut last) = (0, 0);
    for pair in table.pairs::<Value, Value>() {
        let place = match pair?.0 {
            Value::Integer(place) if place > 0 => place as usize,
            Value::Number(place) if place > 0.0 && place.fract() == 0.0 => place as usize,
            _ => return Ok(None),
        };
        items += 1;
        last = last.max(place);
    }
    if last > SPARSE_SAFE && last > items * SPARSE_RATIO {
        return Err(mlua::Error::runtime("Cannot serialise table: excessively sparse array"));
    }
    Ok((items > 0).then_some(last))
}

fn quote(string: &[u8], text: &mut Vec<u8>) {
    text.push(b'"');
    for &byte in string {
        match byte {
            b'"' | b'\\' | b'/' => text.extend_from_slice(&[b'\\', byte]),
            0x08 => text.extend_from_slice(b"\\b"),
            0x0c => text.extend_from_slice(b"\\f"),
            b'\n' => text.extend_from_slice(b"\\n"),
            b'\r' => text.extend_from_slice(b"\\r"),
            b'\t' => text.extend_from_slice(b"\\t"),
            0..0x20 | 0x7f => text.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => text.push(byte),
        }
    }
    text.push(b'"');
}

fn decode(lua: &Lua, json: &Json) -> mlua::Result<Value> {
    Ok(match json {
        Json::Null => Value::NULL,
        Json::Bool(value) => Value::Boolean(*value),
        Json::Number(number) => Value::Number(number.as_f64().unwrap_or(f64::NAN)),
        Json::String(text) => Value::String(lua.create_string(text)?),
        Json::Array(items) => {
            let table = lua.create_table_with_capacity(items.len(), 0)?;
            for (place, item) in items.iter().enumerate() {
                table.raw_set(place + 1, decode(lua, item)?)?;
            }
            Value::Table(table)
        }
        Json::Object(fields) => {
            let table = lua.create_table_with_capacity(0, fields.len())?;
            for (name, field) in fields {
                table.raw_set(lua.create_string(name)?, decode(lua, field)?)?;
            }
            Value::Table(table)
        }
    })
}
