//! `cjson`: JSON as lua-cjson writes and reads it.

use std::cell::Cell;
use std::rc::Rc;

use mlua::{Lua, Table, Value};

use super::given::{Failure, Given, add, type_of};
use super::value::print;

mod decode;

/// Arrays and objects within others that are written or read, whatever a script asks for.
const DEPTH_MAX: i64 = 1000;
/// Places without items in an array, whatever a script asks for: each is written.
const HOLES_MAX: usize = 1 << 20;
const INT_MAX: i64 = i32::MAX as i64;
/// Settings that have two values.
const SWITCH: &[&str] = &["off", "on"];

/// How JSON is written and read: a script may choose, and its choice ends with it.
#[derive(Debug)]
pub(super) struct Settings {
    /// Is an array with many holes an object? Else it is an error.
    sparse_convert: Cell<i64>,
    /// An array may have so many times more places than items; 0 is any number,
    sparse_ratio: Cell<i64>,
    /// and always so many places.
    sparse_safe: Cell<i64>,
    encode_depth_max: Cell<i64>,
    decode_depth_max: Cell<i64>,
    /// 0: NaN and infinity are errors; 1: they are written; 2: they are null.
    encode_invalid: Cell<i64>,
    /// Are numbers read that are none in JSON?
    decode_invalid: Cell<i64>,
    /// Digits of a number.
    precision: Cell<i64>,
    keep_buffer: Cell<i64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            sparse_convert: Cell::new(0),
            sparse_ratio: Cell::new(2),
            sparse_safe: Cell::new(10),
            encode_depth_max: Cell::new(DEPTH_MAX),
            decode_depth_max: Cell::new(DEPTH_MAX),
            encode_invalid: Cell::new(0),
            decode_invalid: Cell::new(1),
            precision: Cell::new(14),
            keep_buffer: Cell::new(1),
        }
    }
}

impl Settings {
    /// Forgets what a script has chosen.
    pub(super) fn reset(&self) {
        let Self {
            sparse_convert,
            sparse_ratio,
            sparse_safe,
            encode_depth_max,
            decode_depth_max,
            encode_invalid,
            decode_invalid,
            precision,
            keep_buffer,
        } = Self::default();
        self.sparse_convert.set(sparse_convert.get());
        self.sparse_ratio.set(sparse_ratio.get());
        self.sparse_safe.set(sparse_safe.get());
        self.encode_depth_max.set(encode_depth_max.get());
        self.decode_depth_max.set(decode_depth_max.get());
        self.encode_invalid.set(encode_invalid.get());
        self.decode_invalid.set(decode_invalid.get());
        self.precision.set(precision.get());
        self.keep_buffer.set(keep_buffer.get());
    }
}

/// The library's table.
pub(super) fn library(lua: &Lua, settings: &Rc<Settings>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("null", Value::NULL)?;
    table.raw_set("_NAME", "cjson")?;
    table.raw_set("_VERSION", "2.1.0")?;
    let one = |given: &Given<'_>| match given.len() {
        1 => Ok(()),
        _ => Err(given.wrong(1, "expected 1 argument")),
    };
    let chosen = settings.clone();
    add(lua, &table, "encode", move |given| {
        one(given)?;
        let mut text = Vec::new();
        encode(given.get(1), &chosen, &mut text, 0)?;
        Ok(mlua::BString::from(text))
    })?;
    let chosen = settings.clone();
    add(lua, &table, "decode", move |given| {
        one(given)?;
        let text = given.text(1)?;
        decode::decode(given.lua, &text.as_bytes(), &chosen)
    })?;
    let number = |name, setting: fn(&Settings) -> &Cell<i64>, least, most| {
        let chosen = settings.clone();
        add(lua, &table, name, move |given| {
            at_most(given, 1)?;
            integer(given, 1, setting(&chosen), least, most)
        })
    };
    number("encode_max_depth", |settings| &settings.encode_depth_max, 1, INT_MAX)?;
    number("decode_max_depth", |settings| &settings.decode_depth_max, 1, INT_MAX)?;
    number("encode_number_precision", |settings| &settings.precision, 1, 14)?;
    let choice = |name, setting: fn(&Settings) -> &Cell<i64>, options: &'static [&str]| {
        let chosen = settings.clone();
        add(lua, &table, name, move |given| {
            at_most(given, 1)?;
            option(given, setting(&chosen), options)
        })
    };
    choice("encode_keep_buffer", |settings| &settings.keep_buffer, SWITCH)?;
    choice("encode_invalid_numbers", |settings| &settings.encode_invalid, &["off", "on", "null"])?;
    choice("decode_invalid_numbers", |settings| &settings.decode_invalid, SWITCH)?;
    let chosen = settings.clone();
    add(lua, &table, "encode_sparse_array", move |given| {
        at_most(given, 3)?;
        let convert = option(given, &chosen.sparse_convert, SWITCH)?;
        let ratio = integer(given, 2, &chosen.sparse_ratio, 0, INT_MAX)?;
        let safe = integer(given, 3, &chosen.sparse_safe, 0, INT_MAX)?;
        Ok((convert, ratio, safe))
    })?;
    add(lua, &table, "new", |given| Ok(library(given.lua, &Rc::default())?))?;
    Ok(table)
}

fn at_most(given: &Given<'_>, count: usize) -> Result<(), Failure> {
    if given.len() > count {
        return Err(given.wrong(count + 1, "found too many arguments"));
    }
    Ok(())
}

/// Sets a number, if one is given, and tells what it is.
fn integer(
    given: &Given<'_>,
    place: usize,
    setting: &Cell<i64>,
    least: i64,
    most: i64,
) -> Result<i64, Failure> {
    if !given.get(place).is_nil() {
        let value = given.integer(place)?;
        if !(least..=most).contains(&value) {
            let why = format!("expected integer between {least} and {most}");
            return Err(given.wrong(1, &why));
        }
        setting.set(value);
    }
    Ok(setting.get())
}

/// Sets one of some options, if one is given, and tells which it is.
fn option(
    given: &Given<'_>,
    setting: &Cell<i64>,
    options: &'static [&str],
) -> Result<Value, Failure> {
    match given.get(1) {
        Value::Nil => {}
        Value::Boolean(value) => setting.set(i64::from(*value)),
        _ => {
            let text = given.text(1)?.to_string_lossy();
            let Some(found) = options.iter().position(|option| *option == text) else {
                return Err(given.wrong(1, &format!("invalid option '{text}'")));
            };
            setting.set(found as i64);
        }
    }
    Ok(match setting.get() {
        value @ 0..2 => Value::Boolean(value == 1),
        _ => Value::String(given.lua.create_string(options.last().unwrap_or(&""))?),
    })
}

fn encode(
    value: &Value,
    settings: &Settings,
    text: &mut Vec<u8>,
    depth: i64,
) -> Result<(), Failure> {
    match value {
        Value::Nil => text.extend_from_slice(b"null"),
        value if *value == Value::NULL => text.extend_from_slice(b"null"),
        Value::Boolean(true) => text.extend_from_slice(b"true"),
        Value::Boolean(false) => text.extend_from_slice(b"false"),
        Value::Integer(number) => encode_number(*number as f64, settings, text)?,
        Value::Number(number) => encode_number(*number, settings, text)?,
        Value::String(string) => quote(&string.as_bytes(), text),
        Value::Table(table) => {
            let depth = depth + 1;
            if depth > settings.encode_depth_max.get().min(DEPTH_MAX) {
                let message = format!("Cannot serialise, excessive nesting ({depth})");
                return Err(message.into());
            }
            match array_length(table, settings)? {
                Some(length) => encode_array(table, length, settings, text, depth)?,
                None => encode_object(table, settings, text, depth)?,
            }
        }
        other => return Err(unserialisable(type_of(other), "type not supported")),
    }
    Ok(())
}

fn unserialisable(kind: &str, why: &str) -> Failure {
    Failure::Text(format!("Cannot serialise {kind}: {why}"))
}

fn encode_number(number: f64, settings: &Settings, text: &mut Vec<u8>) -> Result<(), Failure> {
    match settings.encode_invalid.get() {
        0 if !number.is_finite() => {
            return Err(unserialisable("number", "must not be NaN or Inf"));
        }
        1 if number.is_nan() => text.extend_from_slice(b"nan"),
        2 if !number.is_finite() => text.extend_from_slice(b"null"),
        _ => {
            let digits = usize::try_from(settings.precision.get()).unwrap_or(1);
            text.extend_from_slice(print(number, digits).as_bytes());
        }
    }
    Ok(())
}

fn encode_array(
    table: &Table,
    length: usize,
    settings: &Settings,
    text: &mut Vec<u8>,
    depth: i64,
) -> Result<(), Failure> {
    text.push(b'[');
    for place in 1..=length {
        if place > 1 {
            text.push(b',');
        }
        encode(&table.raw_get(place)?, settings, text, depth)?;
    }
    text.push(b']');
    Ok(())
}

fn encode_object(
    table: &Table,
    settings: &Settings,
    text: &mut Vec<u8>,
    depth: i64,
) -> Result<(), Failure> {
    text.push(b'{');
    for (number, pair) in table.pairs::<Value, Value>().enumerate() {
        let (name, value) = pair?;
        if number > 0 {
            text.push(b',');
        }
        match &name {
            Value::String(name) => quote(&name.as_bytes(), text),
            Value::Integer(_) | Value::Number(_) => {
                text.push(b'"');
                encode(&name, settings, text, depth)?;
                text.push(b'"');
            }
            other => {
                let why = "table key must be a number or string";
                return Err(unserialisable(type_of(other), why));
            }
        }
        text.push(b':');
        encode(&value, settings, text, depth)?;
    }
    text.push(b'}');
    Ok(())
}

/// The length of a table that is an array; an empty one is an object.
fn array_length(table: &Table, settings: &Settings) -> Result<Option<usize>, Failure> {
    let (mut items, mut last) = (0_usize, 0_usize);
    for pair in table.pairs::<Value, Value>() {
        let place = match pair?.0 {
            Value::Integer(place) if place > 0 => place as usize,
            Value::Number(place) if place >= 1.0 && place.fract() == 0.0 => place as usize,
            _ => return Ok(None),
        };
        items += 1;
        last = last.max(place);
    }
    let setting = |setting: &Cell<i64>| usize::try_from(setting.get()).unwrap_or(0);
    let ratio = setting(&settings.sparse_ratio);
    let is_sparse =
        ratio > 0 && last > items.saturating_mul(ratio) && last > setting(&settings.sparse_safe);
    let is_sparse = is_sparse || last - items > HOLES_MAX;
    if is_sparse && settings.sparse_convert.get() == 0 {
        return Err(unserialisable("table", "excessively sparse array"));
    }
    Ok((items > 0 && !is_sparse).then_some(last))
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
