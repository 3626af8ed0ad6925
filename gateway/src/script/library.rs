//! What scripts get from the host: its libraries, SHA-1, the log.

use std::rc::Rc;

use mlua::{Lua, Table, Variadic};

use super::raise::{calling, caught};
use super::store::sha_of;
use super::{json, pack, structs};
use crate::shared::REDIS_VERSION;

/// The table of what the prelude is given, except the commands.
pub(super) fn host(lua: &Lua, json: &Rc<json::Settings>) -> mlua::Result<Table> {
    let host = lua.create_table()?;
    host.raw_set("cjson", json::library(lua, json)?)?;
    host.raw_set("cmsgpack", pack::library(lua)?)?;
    host.raw_set("struct", structs::library(lua)?)?;
    host.raw_set("bit", bit(lua)?)?;
    host.raw_set("version", REDIS_VERSION)?;
    host.raw_set("version_number", version_number())?;
    let sha1hex = |lua: &Lua, text: mlua::LuaString| lua.create_string(sha_of(&text.as_bytes()));
    host.raw_set("sha1hex", lua.create_function(sha1hex)?)?;
    let log = |_: &Lua, (level, text): (i64, mlua::LuaString)| {
        let text = text.to_string_lossy();
        match level {
            3 => tracing::warn!("a script says: {text}"),
            2 => tracing::info!("a script says: {text}"),
            _ => tracing::debug!("a script says: {text}"),
        }
        Ok(())
    };
    host.raw_set("log", lua.create_function(log)?)?;
    host.raw_set("caught", lua.create_function(caught)?)?;
    host.raw_set("call", calling(lua, &host, "raw", true)?)?;
    host.raw_set("pcall", calling(lua, &host, "raw", false)?)?;
    host.raw_set("acl_check_cmd", calling(lua, &host, "may", true)?)?;
    Ok(host)
}

/// The version as 0x00MMmmpp.
fn version_number() -> u32 {
    let parts = REDIS_VERSION.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    parts.fold(0, |number, part| number << 8 | part)
}

/// A number as LuaBitOp takes it: modulo 2^32.
fn bits(number: f64) -> i32 {
    (number.round_ties_even().rem_euclid(4_294_967_296.0) as u64) as u32 as i32
}

/// LuaBitOp.
fn bit(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let fold = |name, start: i32, with: fn(i32, i32) -> i32| {
        let fold = move |_: &Lua, numbers: Variadic<f64>| {
            Ok(numbers.iter().map(|&number| bits(number)).fold(start, with))
        };
        table.raw_set(name, lua.create_function(fold)?)
    };
    fold("band", -1, |a, b| a & b)?;
    fold("bor", 0, |a, b| a | b)?;
    fold("bxor", 0, |a, b| a ^ b)?;
    let shift = |name, with: fn(u32, u32) -> i32| {
        let shift = move |_: &Lua, (number, by): (f64, f64)| {
            Ok(with(bits(number) as u32, bits(by) as u32 & 31))
        };
        table.raw_set(name, lua.create_function(shift)?)
    };
    shift("lshift", |a, by| (a << by) as i32)?;
    shift("rshift", |a, by| (a >> by) as i32)?;
    shift("arshift", |a, by| (a as i32) >> by)?;
    shift("rol", |a, by| a.rotate_left(by) as i32)?;
    shift("ror", |a, by| a.rotate_right(by) as i32)?;
    let single = |name, with: fn(i32) -> i32| {
        let single = move |_: &Lua, number: f64| Ok(with(bits(number)));
        table.raw_set(name, lua.create_function(single)?)
    };
    single("tobit", |a| a)?;
    single("bnot", |a| !a)?;
    single("bswap", i32::swap_bytes)?;
    let tohex = |_: &Lua, (number, digits): (f64, Option<f64>)| {
        let digits = digits.map_or(8, bits);
        let text = format!("{:08x}", bits(number));
        let text = text[8 - (digits.unsigned_abs() as usize).min(8)..].to_owned();
        Ok(if digits < 0 { text.to_uppercase() } else { text })
    };
    table.raw_set("tohex", lua.create_function(tohex)?)?;
    Ok(table)
}
