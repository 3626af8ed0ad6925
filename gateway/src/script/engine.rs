//! The Lua world of a worker, and a script's run in it.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use mlua::{Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table, Value, VmState};

use super::call::{Calls, may};
use super::functions::FunctionInfo;
use super::store::{Program, Script, Sha};
use super::{library, value};
use crate::acl::User;
use crate::command::multi::Queue;
use crate::keyspace::InTransaction;
use crate::reply::{Protocol, Reply};
use crate::session::{By, Place};
use crate::shared::Shared;

const PRELUDE: &str = include_str!("prelude.lua");
/// Instructions after which it is looked whether a script shall end.
const INSTRUCTIONS_PER_LOOK: u32 = 20_000;
/// Compiled scripts that a worker keeps.
const COMPILED_MAX: usize = 4096;
/// How long a script may keep a worker from serving others.
const AT_ONCE_MAX: Duration = Duration::from_millis(20);
/// How long a library may take to be loaded, as in Redis.
const LOAD_MAX: Duration = Duration::from_millis(500);
/// What ends a run that has to begin anew.
pub(super) const GIVEN_UP: &str = "the script is run again";
const KILLED: &str = "Script killed by user with SCRIPT KILL.";

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
    pub(crate) by: By<'a>,
    pub(crate) program: &'a Program,
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
    /// Killed: what it has written is forgotten.
    Killed(Reply),
    /// It has to begin anew once these keys, of this database, have been looked at.
    Keys(u8, Vec<Vec<u8>>),
    /// It has to begin anew once this command, of this database, has been run.
    Walk(u8, Queue),
    /// It has to begin anew where it keeps nobody else waiting.
    Slow,
}

/// How the part of a run that is Lua's ended.
pub(super) enum Ended {
    Reply(Reply),
    Killed(Reply),
    TooSlow,
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

/// A function that a library has registered.
struct Registered {
    info: FunctionInfo,
    callback: Function,
}

/// A Lua with what scripts find in it.
pub(super) struct World {
    lua: Lua,
    host: Table,
    make: Function,
    run: Function,
    load: Function,
    compiled: RefCell<HashMap<Sha, Function>>,
    libraries: RefCell<HashMap<Sha, Rc<[Registered]>>>,
    limits: Rc<Limits>,
}

/// When the run that is under way ends, whatever the script does.
struct Limits {
    shared: Arc<Shared>,
    clock: quanta::Clock,
    /// Does nobody wait for it any more?
    abandoned: Arc<AtomicBool>,
    /// Does it begin anew?
    given_up: Cell<bool>,
    /// When it is too slow for where it runs.
    until: Cell<Option<quanta::Instant>>,
    too_slow: Cell<bool>,
    killed: Cell<bool>,
    /// Does every instruction fail? Then no `pcall` keeps it alive.
    ending: Cell<bool>,
}

impl Limits {
    /// Why the run ends.
    fn reason(&self) -> Option<&'static str> {
        if self.until.get().is_some_and(|until| self.clock.now() > until) {
            self.too_slow.set(true);
        }
        if self.given_up.get() || self.too_slow.get() {
            return Some(GIVEN_UP);
        }
        if self.abandoned.load(Relaxed) {
            return Some(GIVEN_UP);
        }
        if self.shared.scripts.is_killed() {
            self.killed.set(true);
        }
        self.killed.get().then_some(KILLED)
    }
}

/// Looks now and then whether a run shall end.
fn watch(lua: &Lua, limits: &Rc<Limits>, instructions: u32) -> mlua::Result<()> {
    let triggers = HookTriggers::new().every_nth_instruction(instructions);
    let limits = limits.clone();
    lua.set_global_hook(triggers, move |lua, _| {
        let Some(reason) = limits.reason() else { return Ok(VmState::Continue) };
        if !limits.ending.replace(true) {
            watch(lua, &limits, 1)?;
        }
        Err(mlua::Error::runtime(reason))
    })
}

impl Engine {
    /// Compiles a text.
    ///
    /// # Errors
    ///
    /// What the compiler says.
    pub(crate) fn compile(&self, shared: &Arc<Shared>, script: &Script) -> Result<(), String> {
        let compiled = self.world(shared).and_then(|world| world.compile(script));
        compiled.map(|_| ()).map_err(|error| message_of(&error))
    }

    /// Loads a library and tells what it registers.
    ///
    /// # Errors
    ///
    /// What Redis says of a library that cannot be loaded.
    pub(crate) fn load(
        &self,
        shared: &Arc<Shared>,
        library: &Script,
    ) -> Result<Vec<FunctionInfo>, String> {
        let world = self.world(shared).map_err(|error| message_of(&error))?;
        let registered = world.library(library)?;
        Ok(registered.iter().map(|registered| registered.info.clone()).collect())
    }

    /// Forgets all compiled scripts.
    pub(crate) fn clear(&self) {
        if let Some(world) = self.world.get() {
            world.compiled.borrow_mut().clear();
        }
    }

    fn world(&self, shared: &Arc<Shared>) -> mlua::Result<&World> {
        if self.world.get().is_none() {
            let _ = self.world.set(World::new(shared.clone(), Arc::default())?);
        }
        self.world.get().ok_or_else(|| mlua::Error::runtime("there is no Lua"))
    }

    /// Runs a script until it ends or has to begin anew.
    pub(crate) fn run<K: InTransaction>(&self, run: &Run<'_, K>) -> Outcome {
        let shared = &run.place.shared;
        let calls = Calls::new(run);
        shared.scripts.begin();
        let result = self.world(shared).and_then(|world| {
            let function = world.function_of(run.program)?;
            let texts = |texts: &[&[u8]]| world.texts(texts.iter().copied());
            let limits = &world.limits;
            world.end_after(AT_ONCE_MAX);
            let raw = |lua: &Lua, words: &MultiValue| {
                let result = calls.at_once(lua, words);
                if result.is_err() {
                    limits.given_up.set(true);
                }
                result
            };
            let set_resp3 = |resp3| calls.set_resp3(resp3);
            let (keys, arguments) = (texts(run.keys)?, texts(run.arguments)?);
            world.run(&function, keys, arguments, run.by.user, &raw, &set_resp3)
        });
        shared.scripts.end();
        if let Some(outcome) = calls.needs() {
            return outcome;
        }
        match ended(result, run.program, run.protocol) {
            Ended::Reply(reply) => Outcome::Reply(reply),
            Ended::Killed(reply) => Outcome::Killed(reply),
            Ended::TooSlow => Outcome::Slow,
        }
    }
}

/// Whether a run was ended from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stopped {
    No,
    Killed,
    TooSlow,
}

/// How a script's function ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Done,
    Failed,
    Killed,
    TooSlow,
}

/// The reply that a result becomes.
pub(super) fn ended(
    result: mlua::Result<(Way, Value)>,
    program: &Program,
    protocol: Protocol,
) -> Ended {
    let mut reply = Reply::new(Vec::new(), protocol);
    match result {
        Ok((Way::TooSlow, _)) => return Ended::TooSlow,
        Ok((Way::Done, result)) => value::write(&result, &mut reply, 0),
        Ok((Way::Failed, failure)) => fail(&failure, program, &mut reply),
        Ok((Way::Killed, _)) => {
            reply.error_fmt(format_args!("ERR {KILLED}"));
            return Ended::Killed(reply);
        }
        Err(error) => {
            let text = format!("ERR {}", message_of(&error));
            reply.error_bytes(&value::one_line(text.as_bytes()));
        }
    }
    Ended::Reply(reply)
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
            ending: Cell::default(),
        });
        watch(&lua, &limits, INSTRUCTIONS_PER_LOOK)?;
        let host = library::host(&lua)?;
        let location = lua.create_function(|lua, ()| Ok(location(lua)))?;
        let prelude = lua.load(PRELUDE).set_name("=prelude");
        let (make, run, load) = prelude.call((location, host.clone()))?;
        let (compiled, libraries) = Default::default();
        Ok(Self { lua, host, make, run, load, compiled, libraries, limits })
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

    /// The functions of a library, or what Redis says of one that cannot be loaded.
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
        let texts: Vec<_> =
            texts.map(|text| self.lua.create_string(text)).collect::<mlua::Result<_>>()?;
        self.lua.create_sequence_from(texts)
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

fn fail(failure: &Value, program: &Program, reply: &mut Reply) {
    let mut text = Vec::new();
    let mut location = String::new();
    if let Value::Table(table) = failure {
        if let Ok(error) = table.raw_get::<mlua::LuaString>("err") {
            text.extend_from_slice(&error.as_bytes());
        }
        let source = table.raw_get::<Option<String>>("source").ok().flatten();
        let line = table.raw_get::<Option<i64>>("line").ok().flatten();
        if let (Some(source), Some(line)) = (source, line) {
            let name = String::from_utf8_lossy(program.name());
            location = format!(" script: {name}, on {source}:{line}.");
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
