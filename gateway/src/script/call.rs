//! `redis.call`: a script's commands.

use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, Waker};

use fusee::Key;
use mlua::{Lua, MultiValue, Value};

use super::engine::{Outcome, Run};
use super::limits::GIVEN_UP;
use super::value::{one, print, take};
use crate::acl::{self, Denied, User};
use crate::command::multi::{Kept, Queue, run_kept};
use crate::command::table::{self, COMMANDS, Command};
use crate::command::{self, Local, Run as Ran, connection, guard, rename};
use crate::keyspace::InTransaction;
use crate::reply::{Protocol, Reply};
use crate::request::Arguments;
use crate::session::{By, State};
use crate::tally::Tally;

/// Digits of a number that becomes an argument.
const DIGITS: usize = 17;

/// A command as a script gives it, or the error that it gets.
pub(super) fn command_of(words: &MultiValue) -> Result<Queue, &'static str> {
    if words.is_empty() {
        return Err("ERR Please specify at least one argument for this redis lib call");
    }
    let mut arguments: Vec<Vec<u8>> = Vec::with_capacity(words.len());
    for word in words {
        arguments.push(match word {
            Value::String(text) => text.as_bytes().to_vec(),
            Value::Integer(number) => number.to_string().into_bytes(),
            Value::Number(number) => print(*number, DIGITS).into_bytes(),
            _ => return Err("ERR Lua redis lib command arguments must be strings or integers"),
        });
    }
    let mut queue = Queue::default();
    if !queue.push(arguments.iter().map(Vec::as_slice)) || queue.last().is_none() {
        return Err("ERR Lua redis lib command arguments are too large");
    }
    Ok(queue)
}

/// Whether a user may run a command, as a script asks.
pub(super) fn may(lua: &Lua, user: &User, words: &MultiValue) -> mlua::Result<Value> {
    const UNKNOWN: &str = "ERR Invalid command passed to redis.acl_check_cmd()";
    let queue = match command_of(words) {
        Ok(queue) => queue,
        Err(refusal) => return one(lua, "err", refusal.as_bytes()),
    };
    let Some(arguments) = queue.last().map(|kept| kept.arguments()) else {
        return one(lua, "err", UNKNOWN.as_bytes());
    };
    let command = table::find(arguments.get(0)).map(|id| guard::resolved(id, arguments));
    match command.filter(|command| command.takes(arguments.len())) {
        Some(command) => {
            Ok(Value::Boolean(command::acl::denied(command, arguments, user).is_none()))
        }
        None => one(lua, "err", UNKNOWN.as_bytes()),
    }
}

/// The commands of one run.
pub(super) struct Calls<'a, K> {
    run: &'a Run<'a, K>,
    database: Cell<u8>,
    resp3: Cell<bool>,
    /// Commands that looked at many keys.
    walks: Cell<usize>,
    /// What the run needs before it can go on: it begins anew then.
    needs: RefCell<Option<Outcome>>,
    /// What has run, and the errors that it answered.
    tally: RefCell<Tally>,
    errors: RefCell<Reply>,
}

impl<'a, K: InTransaction> Calls<'a, K> {
    pub(super) fn new(run: &'a Run<'a, K>) -> Self {
        Self {
            run,
            database: Cell::new(run.database),
            resp3: Cell::default(),
            walks: Cell::default(),
            needs: RefCell::default(),
            tally: RefCell::default(),
            errors: RefCell::default(),
        }
    }

    pub(super) fn is_resp3(&self) -> bool {
        self.resp3.get()
    }

    pub(super) fn set_resp3(&self, resp3: bool) {
        self.resp3.set(resp3);
    }

    /// The end of a run with its reply: errors count that its commands answered, also those
    /// that it kept to itself.
    pub(super) fn end(&self, mut reply: Reply) -> Outcome {
        reply.count_errors_of(&self.errors.take());
        Outcome::Reply(reply, self.tally.take())
    }

    fn protocol(&self) -> Protocol {
        if self.resp3.get() { Protocol::Resp3 } else { Protocol::Resp2 }
    }

    pub(super) fn needs(&self) -> Option<Outcome> {
        self.needs.borrow_mut().take()
    }

    /// Runs a command on the worker's own thread, which must not wait. An error of
    /// mlua's ends the run: it begins anew.
    pub(super) fn at_once(&self, lua: &Lua, words: &MultiValue) -> mlua::Result<Value> {
        let queue = match command_of(words) {
            Ok(queue) => queue,
            Err(refusal) => return one(lua, "err", refusal.as_bytes()),
        };
        let bytes = match self.poll(&queue) {
            Some(bytes) => bytes,
            None => return self.give_up(queue),
        };
        take(lua, &mut bytes.as_slice(), self.resp3.get())
    }

    /// The reply, unless it has to be waited for.
    fn poll(&self, queue: &Queue) -> Option<Vec<u8>> {
        let kept = queue.last()?;
        let (command, keys) = self.keys_of(kept);
        if let Some(Ran::Walk(_)) = command.map(|command| command.run) {
            let number = self.walks.replace(self.walks.get() + 1);
            let walked = self.run.walks.get(number).cloned();
            if let (Some(reply), Some(id)) = (&walked, table::find(kept.arguments().get(0))) {
                let id = guard::resolved_id(id, kept.arguments());
                self.tally.borrow_mut().call(id, 0, reply.starts_with(b"-"));
            }
            return walked;
        }
        if !self.run.keyspace.knows(&keys) {
            return None;
        }
        // What it needs is there, so it does not wait.
        let mut answer: std::pin::Pin<Box<dyn Future<Output = Vec<u8>> + '_>> =
            Box::pin(self.answer(queue));
        match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(bytes) => Some(bytes),
            Poll::Pending => None,
        }
    }

    fn keys_of<'b>(&self, kept: Kept<'b>) -> (Option<&'static Command>, Vec<Key<'b>>) {
        let arguments = kept.arguments();
        let database = self.database.get();
        let Some(id) = table::find(arguments.get(0)) else { return (None, Vec::new()) };
        let command = guard::resolved(id, arguments);
        let names = command.key_places(arguments.len()).map(|place| arguments.get(place));
        let here = names.map(|name| Key { database, name });
        (Some(command), here.chain(rename::key_elsewhere(command, arguments)).collect())
    }

    fn give_up(&self, queue: Queue) -> mlua::Result<Value> {
        let needs = {
            let (command, keys) = queue.last().map_or((None, Vec::new()), |k| self.keys_of(k));
            match command.map(|command| command.run) {
                Some(Ran::Walk(_)) => None,
                _ => Some(keys.iter().map(|key| (key.database, key.name.to_vec())).collect()),
            }
        };
        self.needs.borrow_mut().get_or_insert(match needs {
            Some(keys) => Outcome::Keys(keys),
            None => Outcome::Walk(self.database.get(), self.protocol(), queue),
        });
        Err(mlua::Error::runtime(GIVEN_UP))
    }

    /// Runs a command and returns its reply.
    pub(super) async fn answer(&self, queue: &Queue) -> Vec<u8> {
        let mut reply = Reply::new(Vec::new(), self.protocol());
        if let Some(kept) = queue.last() {
            self.run_command(kept, &mut reply).await;
        }
        self.errors.borrow_mut().count_errors_of(&reply);
        reply.into_bytes()
    }

    async fn run_command(&self, kept: Kept<'_>, reply: &mut Reply) {
        let arguments = kept.arguments();
        let Some(id) = table::find(arguments.get(0)) else {
            return reply.error("ERR Unknown Redis command called from script");
        };
        let id = guard::resolved_id(id, arguments);
        let command = &COMMANDS[usize::from(id)];
        let Run { keyspace, place, by, .. } = *self.run;
        guard::show_later(command, arguments, self.database.get(), place, keyspace);
        if let Some(refusal) = self.refusal(command, arguments) {
            self.tally.borrow_mut().rejected(id);
            return reply.error(refusal);
        }
        let begun = place.clock.raw();
        if let Ran::Local(local) = command.run {
            self.local(local, arguments, reply);
        } else {
            let mut database = self.database.get();
            run_kept(keyspace, place, by, kept, &mut database, reply).await;
        }
        let elapsed_ns = place.clock.delta_as_nanos(begun, place.clock.raw());
        self.tally.borrow_mut().call(id, elapsed_ns, reply.failures() > 0);
    }

    /// Why a command is not run.
    fn refusal(&self, command: &'static Command, arguments: Arguments<'_>) -> Option<&'static str> {
        if !command.takes(arguments.len()) || command.run == Ran::Container {
            return Some("ERR Wrong number of args calling Redis command from script");
        }
        let is_kept = command.is_kept_from_scripts();
        if (is_kept && !self.run.place.shared.settings.opens_scripts())
            || command.run == Ran::CloseSilently
        {
            return Some("ERR This Redis command is not allowed from script");
        }
        // A script may do what the user who runs it may.
        if let Some(denied) = command::acl::denied(command, arguments, self.run.by.user) {
            self.note_later(denied, command, arguments);
            return Some(command::acl::script_denial(denied));
        }
        let permission = self.run.permission;
        if command.is_write() && !permission.writes {
            return Some("ERR Write commands are not allowed from read-only scripts.");
        }
        if self.run.place.is_full.get() && command.may_grow() && !permission.grows {
            return Some(command::FULL);
        }
        None
    }

    /// Notes what the user may not do once it is certain that the script is not run
    /// again.
    fn note_later(&self, denied: Denied, command: &'static Command, arguments: Arguments<'_>) {
        let mut kept = Queue::default();
        kept.push(arguments.from(0));
        let (shared, by) = (self.run.place.shared.clone(), self.run.by);
        let (client, user) = (by.client.clone(), by.user.clone());
        self.run.keyspace.afterwards(Box::new(move || {
            if let Some(kept) = kept.last() {
                let (arguments, by) = (kept.arguments(), By { client: &client, user: &user });
                command::acl::note_denied(
                    denied,
                    acl::Context::Script,
                    command,
                    arguments,
                    by,
                    &shared,
                );
            }
        }));
    }

    fn local(&self, local: Local, arguments: Arguments<'_>, reply: &mut Reply) {
        let place = self.run.place;
        match local {
            Local::Select => match connection::database_of(arguments.get(1)) {
                Some(database) => {
                    self.database.set(database);
                    reply.ok();
                }
                None => reply.error(connection::NO_DATABASE),
            },
            Local::Publish(way) => {
                let (channel, payload) = (arguments.get(1), arguments.get(2));
                let shared = place.shared.clone();
                let receivers = shared.channels.receivers(way, channel);
                let (channel, payload) = (channel.to_vec(), payload.to_vec());
                // Sent once it is certain that the script is not run again.
                self.run.keyspace.afterwards(Box::new(move || {
                    shared.publish(way, &channel, &payload);
                }));
                reply.integer(receivers as i64);
            }
            local => {
                let By { client, user } = self.run.by;
                let version = place.shared.acl.version();
                let mut state = State::new(client.clone(), user.clone(), version);
                state.database = self.database.get();
                state.protocol = reply.protocol;
                connection::local(local, &mut state, place, arguments, reply);
            }
        }
    }
}
