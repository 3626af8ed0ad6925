//! A Lua with what scripts find in it, and what was compiled there.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value};

use super::call::may;
use super::functions::FunctionInfo;
use super::json;
use super::library;
use super::limits::{INSTRUCTIONS_PER_LOOK, Limits, watch};
use super::store::{Program, ProgramKind, Script, Sha};
use crate::acl::User;
use crate::shared::Shared;

const PRELUDE: &str = include_str!("prelude.lua");
/// Compiled scripts that a worker keeps.
const COMPILED_MAX: usize = 4096;
/// How long a library may take to be loaded, as in Redis.
const LOAD_MAX: Duration = Duration::from_millis(500);

/// A function that a library has registered.
struct Registered {
    info: FunctionInfo,
    callback: Function,
}

/// A Lua with what scripts find in it.
pub(super) struct World {
    lua: Lua,
    host: Table,
    json: Rc<json::Settings>,
    make: Function,
    run: Function,
    load: Function,
    compiled: RefCell<HashMap<Sha, Function>>,
    libraries: RefCell<HashMap<Sha, Rc<[Registered]>>>,
    limits: Rc<Limits>,
}

/// How a script's function ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Done,
    Failed,
    Killed,
    TooSlow,
}

/// Whether a run was ended from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stopped {
    No,
    Killed,
    TooSlow,
}

impl Registered {
    fn from_table(table: &Table) -> mlua::Result<Self> {
        let text = |name: &str| {
            let text = table.raw_get::<Option<mlua::LuaString>>(name);
            text.map(|text| text.map(|text| text.as_bytes().to_vec()))
        };
        let flags = table.raw_get::<Table>("flags")?;
        let info = FunctionInfo {
            name: text("name")?.unwrap_or_default(),
            description: text("description")?,
            flags: flags.sequence_values::<String>().collect::<mlua::Result<_>>()?,
        };
        Ok(Self { info, callback: table.raw_get("callback")? })
    }
}

impl World {
    /// `abandoned` says that a run ends because nobody waits for it.
    pub(super) fn new(shared: Arc<Shared>, abandoned: Arc<AtomicBool>) -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::OS;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        let limits = Rc::new(Limits {
            shared,
            abandoned,
            clock: quanta::Clock::new(),
            given_up: Cell::default(),
            until: Cell::default(),
            too_slow: Cell::default(),
            killed: Cell::default(),
            kind: Cell::default(),
            ending: Cell::default(),
        });
        watch(&lua, &limits, INSTRUCTIONS_PER_LOOK)?;
        let json = Rc::default();
        let host = library::host(&lua, &json)?;
        let location = lua.create_function(|lua, ()| Ok(location(lua)))?;
        let prelude = lua.load(PRELUDE).set_name("=prelude");
        let (make, run, load) = prelude.call((location, host.clone()))?;
        let (compiled, libraries) = Default::default();
        Ok(Self { lua, host, json, make, run, load, compiled, libraries, limits })
    }

    /// Ends the next run if it takes so long.
    pub(super) fn end_after(&self, time: Duration) {
        self.limits.until.set(self.limits.clock.now().checked_add(time));
    }

    /// The function of a program, and whether it is a library's.
    pub(super) fn function_of(&self, program: &Program) -> mlua::Result<(Function, bool)> {
        match program {
            Program::Script(script) => Ok((self.compile(script)?, false)),
            Program::Function { library, name } => {
                let registered = self.library(library).map_err(mlua::Error::runtime)?;
                let named = registered.iter().find(|registered| registered.info.name == **name);
                let named = named.ok_or_else(|| mlua::Error::runtime("Function not found"))?;
                Ok((named.callback.clone(), true))
            }
        }
    }

    /// Forgets all compiled scripts.
    pub(super) fn forget_scripts(&self) {
        self.compiled.borrow_mut().clear();
    }

    /// Ends the run that is under way: it begins anew.
    pub(super) fn give_up(&self) {
        self.limits.given_up.set(true);
    }

    /// What a library registers, or what Redis says of one that cannot be loaded.
    pub(super) fn functions_in(&self, library: &Script) -> Result<Vec<FunctionInfo>, String> {
        let registered = self.library(library)?;
        Ok(registered.iter().map(|registered| registered.info.clone()).collect())
    }

    fn library(&self, library: &Script) -> Result<Rc<[Registered]>, String> {
        if let Some(registered) = self.libraries.borrow().get(&library.sha) {
            return Ok(registered.clone());
        }
        let chunk = self.lua.load(body_of(&library.text)).set_name("@user_function");
        let chunk = chunk.set_mode(mlua::chunk::ChunkMode::Text).into_function();
        let chunk =
            chunk.map_err(|error| format!("Error compiling function: {}", message_of(&error)))?;
        self.end_after(LOAD_MAX);
        let loaded = self.load.call::<Value>(chunk);
        let stopped = self.rest().map_err(|error| message_of(&error))?;
        let failed = |text: &str| format!("Error registering functions: {text}");
        if stopped != Stopped::No {
            return Err(failed("ERR FUNCTION LOAD timeout"));
        }
        let loaded = match loaded {
            Ok(Value::Table(loaded)) => loaded,
            Ok(Value::String(text)) => return Err(failed(&text.to_string_lossy())),
            Ok(_) => return Err(failed("ERR unknown error")),
            Err(error) => return Err(failed(&format!("ERR {}", message_of(&error)))),
        };
        let registered: Rc<[Registered]> = loaded
            .sequence_values::<Table>()
            .map(|table| Registered::from_table(&table?))
            .collect::<mlua::Result<Vec<_>>>()
            .map_err(|error| failed(&message_of(&error)))?
            .into();
        let mut libraries = self.libraries.borrow_mut();
        if libraries.len() >= COMPILED_MAX {
            libraries.clear();
        }
        libraries.insert(library.sha, registered.clone());
        Ok(registered)
    }

    /// The function of a script.
    pub(super) fn compile(&self, script: &Script) -> mlua::Result<Function> {
        if let Some(function) = self.compiled.borrow().get(&script.sha) {
            return Ok(function.clone());
        }
        let text = body_of(&script.text);
        let mode = mlua::chunk::ChunkMode::Text;
        let chunk = self.lua.load(text).set_name("@user_script").set_mode(mode);
        let function: Function = self.make.call(chunk.into_function()?)?;
        let mut compiled = self.compiled.borrow_mut();
        if compiled.len() >= COMPILED_MAX {
            compiled.clear();
        }
        compiled.insert(script.sha, function.clone());
        Ok(function)
    }

    /// A table of texts.
    pub(super) fn texts<'a>(&self, texts: impl Iterator<Item = &'a [u8]>) -> mlua::Result<Table> {
        let table = self.lua.create_table()?;
        for (place, text) in (1..).zip(texts) {
            table.raw_set(place, self.lua.create_string(text)?)?;
        }
        Ok(table)
    }

    pub(super) fn run(
        &self,
        (function, is_function): &(Function, bool),
        keys: Table,
        arguments: Table,
        user: &User,
        raw: &dyn Fn(&Lua, &MultiValue) -> mlua::Result<Value>,
        set_resp3: &dyn Fn(bool),
    ) -> mlua::Result<(Way, Value)> {
        self.json.reset();
        let kind = if *is_function { ProgramKind::Function } else { ProgramKind::Script };
        self.limits.kind.set(kind);
        let result = self.lua.scope(|scope| {
            let raw = |lua: &Lua, words: MultiValue| raw(lua, &words);
            self.host.raw_set("raw", scope.create_function(raw)?)?;
            let set_resp3 = |_: &Lua, version: i64| {
                set_resp3(version == 3);
                Ok(())
            };
            self.host.raw_set("setresp", scope.create_function(set_resp3)?)?;
            let may = |lua: &Lua, words: MultiValue| may(lua, user, &words);
            self.host.raw_set("may", scope.create_function(may)?)?;
            self.run.call::<(bool, Value)>((function.clone(), keys, arguments, *is_function))
        });
        self.host.raw_set("raw", Value::Nil)?;
        self.host.raw_set("setresp", Value::Nil)?;
        self.host.raw_set("may", Value::Nil)?;
        match self.rest()? {
            Stopped::TooSlow => return Ok((Way::TooSlow, Value::Nil)),
            // Nothing that the script does counts after that, nor what it returns.
            Stopped::Killed => return Ok((Way::Killed, Value::Nil)),
            Stopped::No => {}
        }
        let way = |done| if done { Way::Done } else { Way::Failed };
        result.map(|(done, value)| (way(done), value))
    }

    /// Gets ready for the next run; tells why the last one was ended.
    fn rest(&self) -> mlua::Result<Stopped> {
        let limits = &self.limits;
        let (too_slow, killed) = (limits.too_slow.take(), limits.killed.take());
        limits.given_up.set(false);
        limits.until.set(None);
        if limits.ending.take() {
            watch(&self.lua, limits, INSTRUCTIONS_PER_LOOK)?;
        }
        Ok(match (too_slow, killed) {
            (true, _) => Stopped::TooSlow,
            (false, true) => Stopped::Killed,
            (false, false) => Stopped::No,
        })
    }
}

/// The names of what users have written.
const SOURCES: [&str; 2] = ["@user_script", "@user_function"];

/// Where the script is that a failure comes from.
fn location(lua: &Lua) -> (Option<String>, Option<usize>) {
    for level in 1..16 {
        let found = lua.inspect_stack(level, |debug| {
            let source = debug.source().source.map(|source| source.into_owned());
            (source, debug.current_line())
        });
        match found {
            Some((Some(source), line)) if SOURCES.contains(&source.as_str()) => {
                return (Some(source), line);
            }
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

/// What Lua says of a failure, without what mlua puts around it.
pub(super) fn message_of(error: &mlua::Error) -> String {
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
