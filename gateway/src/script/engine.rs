//! A worker's scripts, and a program's run at once or given up.

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;

use mlua::{Lua, MultiValue, Value};

use super::call::Calls;
use super::functions::FunctionInfo;
use super::limits::KILLED;
use super::store::{Program, Script};
use super::value;
use super::world::{Way, World, message_of};
use crate::command::multi::Queue;
use crate::keyspace::InTransaction;
use crate::reply::{Protocol, Reply};
use crate::session::{By, Place};
use crate::shared::Shared;
use crate::tally::Tally;

/// How long a script may keep a worker from serving others.
const AT_ONCE_MAX: Duration = Duration::from_millis(20);

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
    /// With this reply, after these commands.
    Reply(Reply, Tally),
    /// Killed: what it has written is forgotten.
    Killed(Reply),
    /// It has to begin anew once these keys have been looked at, each of a database.
    Keys(Vec<(u8, Vec<u8>)>),
    /// It has to begin anew once this command, of this database, has been run and has
    /// replied in this protocol.
    Walk(u8, Protocol, Queue),
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
        world.functions_in(library)
    }

    /// Forgets all compiled scripts.
    pub(crate) fn clear(&self) {
        if let Some(world) = self.world.get() {
            world.forget_scripts();
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
        shared.scripts.begin(run.program.kind());
        let result = self.world(shared).and_then(|world| {
            let function = world.function_of(run.program)?;
            let texts = |texts: &[&[u8]]| world.texts(texts.iter().copied());
            world.end_after(AT_ONCE_MAX);
            let raw = |lua: &Lua, words: &MultiValue| {
                let result = calls.at_once(lua, words);
                if result.is_err() {
                    world.give_up();
                }
                result
            };
            let set_resp3 = |resp3| calls.set_resp3(resp3);
            let (keys, arguments) = (texts(run.keys)?, texts(run.arguments)?);
            world.run(&function, keys, arguments, run.by.user, &raw, &set_resp3)
        });
        shared.scripts.end(run.program.kind());
        if let Some(outcome) = calls.needs() {
            return outcome;
        }
        match ended(result, run.program, (run.protocol, calls.is_resp3())) {
            Ended::Reply(reply) => calls.end(reply),
            Ended::Killed(reply) => Outcome::Killed(reply),
            Ended::TooSlow => Outcome::Slow,
        }
    }
}

/// The reply in a client's protocol that a result becomes, and whether the script has asked
/// for RESP3.
pub(super) fn ended(
    result: mlua::Result<(Way, Value)>,
    program: &Program,
    (protocol, resp3): (Protocol, bool),
) -> Ended {
    let mut reply = Reply::new(Vec::new(), protocol);
    match result {
        Ok((Way::TooSlow, _)) => return Ended::TooSlow,
        Ok((Way::Done, result)) => value::write(&result, resp3, &mut reply, 0),
        Ok((Way::Failed, failure)) => fail(&failure, program, &mut reply),
        Ok((Way::Killed, _)) => {
            reply.error_fmt(format_args!("ERR {KILLED}"));
            return Ended::Killed(reply);
        }
        Err(error) => {
            let text = format!("ERR {}", message_of(&error));
            reply.error(&text);
        }
    }
    Ended::Reply(reply)
}

fn fail(failure: &Value, program: &Program, reply: &mut Reply) {
    let Value::Table(table) = failure else {
        return reply.error("ERR the script failed without saying why");
    };
    let mut text = Vec::new();
    if let Ok(error) = table.raw_get::<mlua::LuaString>("err") {
        text.extend_from_slice(&error.as_bytes());
    }
    let source = table.raw_get::<Option<String>>("source").ok().flatten();
    let line = table.raw_get::<Option<i64>>("line").ok().flatten();
    if let (Some(source), Some(line)) = (source, line) {
        text.extend_from_slice(b" script: ");
        text.extend_from_slice(program.name());
        text.extend_from_slice(format!(", on {source}:{line}.").as_bytes());
    }
    value::write_error(table, &text, reply);
}
