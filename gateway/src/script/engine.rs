//! The Lua world of a worker, and a script's run in it.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use mlua::{Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table, Value, VmState};

use super::call::Calls;
use super::store::{Script, Sha};
use super::{library, value};
use crate::client::Client;
use crate::command::multi::Queue;
use crate::keyspace::Keyspace;
use crate::reply::{Protocol, Reply};
use crate::session::Place;
use crate::shared::Shared;

const PRELUDE: &str = include_str!("prelude.lua");
/// Instructions after which it is looked whether a script shall end.
const INSTRUCTIONS_PER_LOOK: u32 = 100_000;
/// Compiled scripts that a worker keeps.
const COMPILED_MAX: usize = 4096;
/// What ends a run that has to begin anew.
pub(super) const GIVEN_UP: &str = "the script is run again";
const KILLED: &str = "Script killed by user with SCRIPT KILL...";

/// What a script may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Permission {
    pub(crate) writes: bool,
    /// Commands that may need more memory, in a full pool.
    pub(crate) grows: bool,
}

/// A script and what it is run with.
pub(crate) struct Run<'a, K> {
    pub(crate) keyspace: &'a K,
    pub(crate) place: &'a Place,
    pub(crate) client: &'a Arc<Client>,
    pub(crate) script: &'a Script,
    pub(crate) keys: &'a [&'a [u8]],
    pub(crate) arguments: &'a [&'a [u8]],
    pub(crate) database: u8,
    pub(crate) permission: Permission,
    pub(crate) protocol: Protocol,
    /// Replies to commands that look at many keys, in the order of their calls.
    pub(crate) walks: &'a [Vec<u8>],
}

/// How a run ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// With this reply.
    Reply(Reply),
    /// It has to begin anew once these keys, of this database, have been looked at.
    Keys(u8, Vec<Vec<u8>>),
    /// It has to begin anew once this command, of this database, has been run.
    Walk(u8, Queue),
}

/// A worker's scripts.
#[derive(Default)]
pub(crate) struct Engine {
    world: OnceCell<World>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Engine")
    }
}

struct World {
    lua: Lua,
    host: Table,
    make: Function,
    run: Function,
    compiled: RefCell<HashMap<Sha, Function>>,
    /// Does the run that is under way end, whatever the script does?
    given_up: Rc<Cell<bool>>,
}

impl Engine {
    /// Compiles a text.
    ///
    /// # Errors
    ///
    /// What the compiler says.
    pub(crate) fn compile(&self, shared: &Arc<Shared>, script: &Script) -> Result<(), String> {
        self.function(shared, script).map(|_| ()).map_err(|error| message_of(&error))
    }

    /// Forgets all compiled scripts.
    pub(crate) fn clear(&self) {
        if let Some(world) = self.world.get() {
            world.compiled.borrow_mut().clear();
        }
    }

    fn world(&self, shared: &Arc<Shared>) -> mlua::Result<&World> {
        if self.world.get().is_none() {
            let _ = self.world.set(World::new(shared.clone())?);
        }
        self.world.get().ok_or_else(|| mlua::Error::runtime("there is no Lua"))
    }

    fn function(&self, shared: &Arc<Shared>, script: &Script) -> mlua::Result<Function> {
        let world = self.world(shared)?;
        if let Some(function) = world.compiled.borrow().get(&script.sha) {
            return Ok(function.clone());
        }
        let text = body_of(&script.text);
        let chunk = world.lua.load(text).set_name("@user_script").set_mode(mlua::chunk::ChunkMode::Text);
        let function: Function = world.make.call(chunk.into_function()?)?;
        let mut compiled = world.compiled.borrow_mut();
        if compiled.len() >= COMPILED_MAX {
            compiled.clear();
        }
        compiled.insert(script.sha, function.clone());
        Ok(function)
    }

    /// Runs a script until it ends or has to begin anew.
    pub(crate) fn run<K: Keyspace>(&self, run: &Run<'_, K>) -> Outcome {
        let shared = &run.place.shared;
        let calls = Calls::new(run);
        shared.scripts.begin();
        let result = self.world(shared).and_then(|world| {
            let function = self.function(shared, run.script)?;
            world.given_up.set(false);
            world.run(&calls, &function, run)
        });
        shared.scripts.end();
        if let Some(outcome) = calls.needs() {
            return outcome;
        }
        let mut reply = Reply::new(Vec::new(), run.protocol);
        match result {
            Ok((true, result)) => value::write(&result, &mut reply, 0),
            Ok((false, failure)) => fail(&failure, run.script, &mut reply),
            Err(error) => reply
                .error_bytes(&value::one_line(format!("ERR {}", message_of(&error)).as_bytes())),
        }
        Outcome::Reply(reply)
    }
}

impl World {
    fn new(shared: Arc<Shared>) -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::OS;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        let given_up = Rc::new(Cell::new(false));
        let gives_up = given_up.clone();
        let triggers = HookTriggers::new().every_nth_instruction(INSTRUCTIONS_PER_LOOK);
        lua.set_global_hook(triggers, move |_, _| {
            if gives_up.get() {
                return Err(mlua::Error::runtime(GIVEN_UP));
            }
            if shared.scripts.is_killed() {
                return Err(mlua::Error::runtime(KILLED));
            }
            Ok(VmState::Continue)
        })?;
        let host = library::host(&lua)?;
        let location = lua.create_function(|lua, ()| Ok(location(lua)))?;
        let prelude = lua.load(PRELUDE).set_name("=prelude");
        let (make, run): (Function, Function) = prelude.call((location, host.clone()))?;
        Ok(Self { lua, host, make, run, compiled: RefCell::default(), given_up })
    }

    /// Whether it ended well, and what it returned or failed with.
    fn run<K: Keyspace>(
        &self,
        calls: &Calls<'_, K>,
        function: &Function,
        run: &Run<'_, K>,
    ) -> mlua::Result<(bool, Value)> {
        let strings = |texts: &[&[u8]]| {
            self.lua.create_sequence_from(
                texts
                    .iter()
                    .map(|text| self.lua.create_string(text))
                    .collect::<mlua::Result<Vec<_>>>()?,
            )
        };
        let (keys, arguments) = (strings(run.keys)?, strings(run.arguments)?);
        self.lua.scope(|scope| {
            let raw = |lua: &Lua, words: MultiValue| {
                let result = calls.run(lua, &words);
                if result.is_err() {
                    self.given_up.set(true);
                }
                result
            };
            self.host.raw_set("raw", scope.create_function(raw)?)?;
            let setresp = |_: &Lua, version: i64| {
                calls.set_resp3(version == 3);
                Ok(())
            };
            self.host.raw_set("setresp", scope.create_function(setresp)?)?;
            let result = self.run.call((function.clone(), keys, arguments));
            self.host.raw_set("raw", Value::Nil)?;
            self.host.raw_set("setresp", Value::Nil)?;
            result
        })
    }
}

/// Where the script is that a failure comes from.
fn location(lua: &Lua) -> (Option<String>, Option<usize>) {
    for level in 1..16 {
        let found = lua.inspect_stack(level, |debug| {
            let source = debug.source().source.map(|source| source.into_owned());
            (source, debug.current_line())
        });
        match found {
            Some((Some(source), line)) if source == "@user_script" => return (Some(source), line),
            Some(_) => {}
            None => break,
        }
    }
    (None, None)
}

/// A script without the line that says what it is.
fn body_of(text: &[u8]) -> &[u8] {
    if !text.starts_with(b"#!") {
        return text;
    }
    // The line stays as an empty one, so that others keep their numbers.
    let end = text.iter().position(|&byte| byte == b'\n').unwrap_or(text.len());
    &text[end..]
}

fn fail(failure: &Value, script: &Script, reply: &mut Reply) {
    let mut text = Vec::new();
    let mut location = String::new();
    if let Value::Table(table) = failure {
        if let Ok(error) = table.raw_get::<mlua::LuaString>("err") {
            text.extend_from_slice(&error.as_bytes());
        }
        let source = table.raw_get::<Option<String>>("source").ok().flatten();
        let line = table.raw_get::<Option<i64>>("line").ok().flatten();
        if let (Some(source), Some(line)) = (source, line) {
            let sha = String::from_utf8_lossy(&script.sha);
            location = format!(" script: {sha}, on {source}:{line}.");
        }
    }
    text.extend_from_slice(location.as_bytes());
    reply.error_bytes(&value::one_line(&text));
}

/// What Lua says of a failure, without what mlua puts around it.
fn message_of(error: &mlua::Error) -> String {
    match error {
        mlua::Error::CallbackError { cause, .. } | mlua::Error::WithContext { cause, .. } => {
            message_of(cause)
        }
        mlua::Error::SyntaxError { message, .. }
        | mlua::Error::RuntimeError(message)
        | mlua::Error::MemoryError(message) => message.clone(),
        other => other.to_string(),
    }
}
