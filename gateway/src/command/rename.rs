//! Values under other names: RENAME, RENAMENX, COPY, MOVE; and MSETNX. All of them run
//! in a transaction.

use fusee::{Decision, Key, Kind};

use super::connection::{NO_DATABASE, database_of};
use super::table::Command;
use super::{Call, NOT_INTEGER, Owned, Run, SYNTAX, Write, integer, is};
use crate::keyspace::Keyspace;
use crate::notify::Change;
use crate::reply::Reply;
use crate::request::Arguments;

const NO_SUCH_KEY: &str = "ERR no such key";
const SAME: &str = "ERR source and destination objects are the same";

/// The key in another database that MOVE or COPY writes.
pub(crate) fn key_elsewhere<'a>(command: &Command, arguments: Arguments<'a>) -> Option<Key<'a>> {
    let (name, number) = match command.run {
        _ if !command.takes(arguments.len()) => return None,
        Run::Write(Write::Move) => (arguments.get(1), arguments.get(2)),
        Run::Write(Write::Copy) => {
            let mut options = arguments.from(3).skip_while(|option| !is(option, "db")).skip(1);
            (arguments.get(2), options.next()?)
        }
        _ => return None,
    };
    Some(Key { database: database_of(number)?, name })
}

/// What came of a write under a condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Put {
    Done,
    Refused,
    /// With the error already written.
    Failed,
}

impl<K: Keyspace> Call<'_, K> {
    /// Puts a copy under a key, if nothing is there or that may be replaced.
    async fn put(&mut self, key: Key<'_>, value: &Owned, may_replace: bool) -> Put {
        let (mut put, mut change) = (Put::Failed, None);
        let update = self.keyspace.update(key, |entry, buffer| {
            if entry.is_some() && !may_replace {
                put = Put::Refused;
                return Decision::Keep;
            }
            put = Put::Done;
            buffer.extend_from_slice(&value.value);
            let Owned { kind, expires_at_ms, .. } = *value;
            let decision = Decision::Replace { kind, expires_at_ms };
            change = Change::of(key, entry, decision);
            decision
        });
        match update.await {
            Ok(()) => {
                if put == Put::Done {
                    self.note(change);
                }
                put
            }
            Err(error) => {
                self.refuse(error);
                Put::Failed
            }
        }
    }

    /// What a key holds, to be put under another one; `None` once that has been answered.
    async fn source(&mut self, key: Key<'_>, absent: impl FnOnce(&mut Reply)) -> Option<Owned> {
        let source = self.read_all(&[key]).await?.remove(0);
        match &source {
            None => absent(self.reply),
            Some(source) if source.kind == Kind::Later => super::wrong_type(self.reply),
            Some(_) => return source,
        }
        None
    }

    /// The database that an argument names; `None` once that has been answered.
    fn database_named(&mut self, number: &[u8]) -> Option<u8> {
        let database = database_of(number);
        if integer(number).is_none() {
            self.reply.error(NOT_INTEGER);
        } else if database.is_none() {
            self.reply.error(NO_DATABASE);
        }
        database
    }
}

/// RENAME key name, RENAMENX key name
pub(super) async fn rename<K: Keyspace>(call: &mut Call<'_, K>, only_if_absent: bool) {
    let (from, to) = (call.key(1), call.key(2));
    let answer = |call: &mut Call<'_, K>, renamed: bool| match (only_if_absent, renamed) {
        (true, renamed) => call.reply.integer(i64::from(renamed)),
        (false, _) => call.reply.ok(),
    };
    let absent = |reply: &mut Reply| reply.error(NO_SUCH_KEY);
    let Some(source) = call.source(from, absent).await else { return };
    if from == to {
        return answer(call, false);
    }
    match call.put(to, &source, !only_if_absent).await {
        Put::Failed => return,
        Put::Refused => return answer(call, false),
        Put::Done => {}
    }
    match call.delete(from).await {
        Ok(_) => answer(call, true),
        Err(error) => call.refuse(error),
    }
}

/// COPY key name [DB database] [REPLACE]
pub(super) async fn copy<K: Keyspace>(call: &mut Call<'_, K>) {
    let mut database = call.database;
    let mut replace = false;
    let mut options = call.arguments.from(3);
    while let Some(option) = options.next() {
        if is(option, "replace") {
            replace = true;
        } else if is(option, "db") && options.len() > 0 {
            let named = call.database_named(options.next().unwrap_or_default());
            let Some(named) = named else { return };
            database = named;
        } else {
            return call.reply.error(SYNTAX);
        }
    }
    let (from, to) = (call.key(1), Key { database, name: call.arguments.get(2) });
    if from == to {
        return call.reply.error(SAME);
    }
    let Some(source) = call.source(from, |reply| reply.integer(0)).await else { return };
    match call.put(to, &source, replace).await {
        Put::Done => call.reply.integer(1),
        Put::Refused => call.reply.integer(0),
        Put::Failed => {}
    }
}

/// MOVE key database
pub(super) async fn move_to<K: Keyspace>(call: &mut Call<'_, K>) {
    let Some(database) = call.database_named(call.arguments.get(2)) else { return };
    let (from, to) = (call.key(1), Key { database, name: call.arguments.get(1) });
    if from == to {
        return call.reply.error(SAME);
    }
    let Some(source) = call.source(from, |reply| reply.integer(0)).await else { return };
    match call.put(to, &source, false).await {
        Put::Failed => return,
        Put::Refused => return call.reply.integer(0),
        Put::Done => {}
    }
    match call.delete(from).await {
        Ok(_) => call.reply.integer(1),
        Err(error) => call.refuse(error),
    }
}

/// MSETNX key value [key value ...]
pub(super) async fn msetnx<K: Keyspace>(call: &mut Call<'_, K>) {
    if call.arguments.len().is_multiple_of(2) {
        return super::connection::wrong_arity(call.command, call.reply);
    }
    let places = || (1..call.arguments.len()).step_by(2);
    let keys: Vec<Key<'_>> = places().map(|place| call.key(place)).collect();
    let values: Vec<&[u8]> = places().map(|place| call.arguments.get(place + 1)).collect();
    let Some(there) = call.read_all(&keys).await else { return };
    if there.iter().any(Option::is_some) {
        return call.reply.integer(0);
    }
    for (key, value) in keys.into_iter().zip(values) {
        if let Err(error) = call.set(key, value, None).await {
            return call.refuse(error);
        }
    }
    call.reply.integer(1);
}
