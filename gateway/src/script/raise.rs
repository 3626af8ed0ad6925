//! How failures of the host's functions reach scripts: as tables where Redis has tables,
//! and as texts else.
//!
//! redis.call is a function of the host, not of Lua, so that `return redis.call(...)` is
//! no tail call: Lua forgets the line of a function that ends so, and errors tell it. The
//! host cannot raise a table, so it raises [`Raised`], and whatever catches failures in
//! Lua (`pcall`, `xpcall`, `coroutine.resume`, what runs a script) asks [`caught`] for what
//! the script shall see.

use std::fmt;

use mlua::{Function, Lua, MultiValue, Table, Value};

use super::value::{IS_COUNTED, error_table};
use super::world::message_of;

/// An error table that was raised.
#[derive(Debug)]
struct Raised {
    text: Vec<u8>,
    is_counted: bool,
}

impl fmt::Display for Raised {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&String::from_utf8_lossy(&self.text))
    }
}

impl std::error::Error for Raised {}

/// A function that does what the host's function of this name does now, if that runs a
/// script. If it `raises`, an error table becomes a failure.
pub(super) fn calling(
    lua: &Lua,
    host: &Table,
    name: &'static str,
    raises: bool,
) -> mlua::Result<Function> {
    let host = host.clone();
    lua.create_function(move |_, words: MultiValue| {
        let Value::Function(function) = host.raw_get(name)? else {
            return Err(mlua::Error::external(Raised {
                text: b"ERR redis.call/pcall can only be called inside a script invocation".into(),
                is_counted: false,
            }));
        };
        let reply: Value = function.call(words)?;
        if raises
            && let Value::Table(table) = &reply
            && let Ok(Value::String(text)) = table.raw_get("err")
        {
            let is_counted = table.raw_get(IS_COUNTED).unwrap_or(false);
            return Err(mlua::Error::external(Raised {
                text: text.as_bytes().to_vec(),
                is_counted,
            }));
        }
        Ok(reply)
    })
}

/// What a script sees of a failure that it has caught.
pub(super) fn caught(lua: &Lua, failure: Value) -> mlua::Result<Value> {
    let Value::Error(error) = &failure else { return Ok(failure) };
    match error.downcast_ref::<Raised>() {
        Some(Raised { text, is_counted }) => error_table(lua, text, *is_counted),
        None => Ok(Value::String(lua.create_string(message_of(error))?)),
    }
}
