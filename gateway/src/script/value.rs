//! Replies as Lua sees them, and Lua's values as replies.

use mlua::{Lua, LuaString, Table, Value};

use crate::reply::Reply;

/// Tables within tables that become a reply.
const DEPTH_MAX: usize = 100;

/// Takes the first reply of these bytes as Lua sees it. What is not whole is nil:
/// it comes from our own writer.
pub(super) fn take(lua: &Lua, bytes: &mut &[u8], resp3: bool) -> mlua::Result<Value> {
    let Some((&kind, rest)) = bytes.split_first() else { return Ok(Value::Nil) };
    let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else {
        return Ok(Value::Nil);
    };
    let (line, mut rest) = (&rest[..end], &rest[end + 2..]);
    let number = || std::str::from_utf8(line).ok().and_then(|line| line.parse::<i64>().ok());
    let value = match kind {
        b'+' => one(lua, "ok", line)?,
        b'-' => error_table(lua, line, true)?,
        b':' => Value::Number(number().unwrap_or(0) as f64),
        b'$' | b'=' => match number().and_then(|length| usize::try_from(length).ok()) {
            None => nothing(resp3),
            Some(length) => {
                let (text, after) = rest.split_at(length.min(rest.len()));
                rest = after.get(2..).unwrap_or_default();
                if kind == b'=' {
                    verbatim(lua, text)?
                } else {
                    Value::String(lua.create_string(text)?)
                }
            }
        },
        b'*' | b'>' => match number().and_then(|length| usize::try_from(length).ok()) {
            None => nothing(resp3),
            Some(length) => Value::Table(items(lua, &mut rest, length, resp3)?),
        },
        b'~' => {
            let table = lua.create_table()?;
            let set = lua.create_table()?;
            for _ in 0..number().unwrap_or(0) {
                set.raw_set(take(lua, &mut rest, resp3)?, true)?;
            }
            table.raw_set("set", set)?;
            Value::Table(table)
        }
        b'%' => {
            let table = lua.create_table()?;
            let map = lua.create_table()?;
            for _ in 0..number().unwrap_or(0) {
                let name = take(lua, &mut rest, resp3)?;
                map.raw_set(name, take(lua, &mut rest, resp3)?)?;
            }
            table.raw_set("map", map)?;
            Value::Table(table)
        }
        b',' => {
            let text = std::str::from_utf8(line).unwrap_or_default();
            let table = lua.create_table()?;
            table.raw_set("double", text.parse::<f64>().unwrap_or(f64::NAN))?;
            Value::Table(table)
        }
        b'#' => Value::Boolean(line == b"t"),
        b'(' => one(lua, "big_number", line)?,
        // Attributes are not for scripts; what they are of follows.
        b'|' => {
            for _ in 0..2 * number().unwrap_or(0) {
                take(lua, &mut rest, resp3)?;
            }
            take(lua, &mut rest, resp3)?
        }
        _ => nothing(resp3),
    };
    *bytes = rest;
    Ok(value)
}

/// What stands for a null.
fn nothing(resp3: bool) -> Value {
    if resp3 { Value::Nil } else { Value::Boolean(false) }
}

/// A table with one field.
pub(super) fn one(lua: &Lua, name: &str, text: &[u8]) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    table.raw_set(name, lua.create_string(text)?)?;
    Ok(Value::Table(table))
}

/// What says of an error table that its error has been counted: Redis's name for it.
pub(super) const IS_COUNTED: &str = "ignore_error_stats_update";

/// A table that is an error.
pub(super) fn error_table(lua: &Lua, text: &[u8], is_counted: bool) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    table.raw_set("err", lua.create_string(text)?)?;
    if is_counted {
        table.raw_set(IS_COUNTED, true)?;
    }
    Ok(Value::Table(table))
}

fn verbatim(lua: &Lua, text: &[u8]) -> mlua::Result<Value> {
    let inner = lua.create_table()?;
    inner.raw_set("format", lua.create_string(text.get(..3).unwrap_or_default())?)?;
    inner.raw_set("string", lua.create_string(text.get(4..).unwrap_or_default())?)?;
    let table = lua.create_table()?;
    table.raw_set("verbatim_string", inner)?;
    Ok(Value::Table(table))
}

fn items(lua: &Lua, rest: &mut &[u8], length: usize, resp3: bool) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for number in 1..=length {
        table.raw_set(number, take(lua, rest, resp3)?)?;
    }
    Ok(table)
}

/// Writes a value as the reply that Redis makes of it, if the script has asked for RESP3
/// or not.
pub(super) fn write(value: &Value, resp3: bool, reply: &mut Reply, depth: usize) {
    if depth > DEPTH_MAX {
        return reply.error("ERR reached lua stack limit");
    }
    match value {
        Value::Integer(number) => reply.integer(*number),
        Value::Number(number) => reply.integer(*number as i64),
        Value::String(text) => reply.bulk(&text.as_bytes()),
        Value::Boolean(value) if resp3 => reply.boolean(*value),
        Value::Boolean(true) => reply.integer(1),
        Value::Table(table) => write_table(table, resp3, reply, depth),
        _ => reply.null(),
    }
}

fn text_of(table: &Table, name: &str) -> Option<LuaString> {
    match table.raw_get(name) {
        Ok(Value::String(text)) => Some(text),
        _ => None,
    }
}

fn write_table(table: &Table, resp3: bool, reply: &mut Reply, depth: usize) {
    if let Some(text) = text_of(table, "err") {
        return write_error(table, &text.as_bytes(), reply);
    }
    if let Some(text) = text_of(table, "ok") {
        return reply.simple_bytes(&one_line(&text.as_bytes()));
    }
    match table.raw_get("double") {
        Ok(Value::Number(number)) => return reply.double(number),
        Ok(Value::Integer(number)) => return reply.double(number as f64),
        _ => {}
    }
    if let Ok(Value::Table(map)) = table.raw_get("map") {
        reply.map(map.pairs::<Value, Value>().flatten().count());
        for (name, value) in map.pairs::<Value, Value>().flatten() {
            write(&name, resp3, reply, depth + 1);
            write(&value, resp3, reply, depth + 1);
        }
        return;
    }
    if let Ok(Value::Table(set)) = table.raw_get("set") {
        let members = || set.pairs::<Value, Value>().flatten();
        reply.set(members().count());
        members().for_each(|(member, _)| write(&member, resp3, reply, depth + 1));
        return;
    }
    if let Some(text) = text_of(table, "big_number") {
        return reply.big_number(&one_line(&text.as_bytes()));
    }
    if let Ok(Value::Table(inner)) = table.raw_get("verbatim_string") {
        if let Some(text) = text_of(&inner, "string") {
            return reply.verbatim(&text.as_bytes());
        }
        return reply.null();
    }
    // Lua lends the host some thousand values at a time, so items are counted first.
    let item = |place: usize| table.raw_get(place).ok().filter(|item| *item != Value::Nil);
    let count = (1..).take_while(|&place| item(place).is_some()).count();
    reply.array(count);
    for place in 1..=count {
        write(&item(place).unwrap_or(Value::Nil), resp3, reply, depth + 1);
    }
}

/// Writes an error that is in a table, perhaps with more to its text.
pub(super) fn write_error(table: &Table, text: &[u8], reply: &mut Reply) {
    if table.raw_get(IS_COUNTED).unwrap_or(false) {
        reply.known_error(&one_line(text));
    } else {
        reply.error_bytes(&one_line(text));
    }
}

/// A status or an error is one line.
fn one_line(text: &[u8]) -> Vec<u8> {
    text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }).collect()
}

/// A number as C's `%.*g` prints it.
pub(super) fn print(number: f64, digits: usize) -> String {
    if !number.is_finite() {
        let sign = if number.is_sign_negative() { "-" } else { "" };
        return format!("{sign}{}", if number.is_nan() { "nan" } else { "inf" });
    }
    if number == 0.0 {
        return if number.is_sign_negative() { "-0".into() } else { "0".into() };
    }
    let scientific = format!("{:.*e}", digits - 1, number);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| {
        let cut = if text.contains('.') { text.trim_end_matches('0') } else { text };
        cut.trim_end_matches('.').to_owned()
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
    trimmed(&format!("{number:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_as_in_c() {
        let cases = [
            (0.1, 17, "0.10000000000000001"),
            (1.0, 14, "1"),
            (1e15, 14, "1e+15"),
            (123_456.75, 14, "123456.75"),
            (0.0003, 14, "0.0003"),
            (1.5e-7, 14, "1.5e-07"),
            (-0.0, 14, "-0"),
            (f64::INFINITY, 14, "inf"),
            (9_007_199_254_740_993.0, 17, "9007199254740992"),
        ];
        for (number, digits, text) in cases {
            assert_eq!(print(number, digits), text);
        }
    }
}
