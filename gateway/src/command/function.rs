//! FCALL and FUNCTION.
//!
//! Libraries stand in the pool, under keys of no client's, so that every gateway has
//! the same: a call reads their version in its transaction, along with the keys that
//! it names, and reads the libraries where that is not the version that it knows.

use std::sync::{Arc, PoisonError};

use fusee::{Error, Key, SYSTEM_DATABASE};

use super::eval::{Caller, run_program, split_keys};
use super::{glob, is, refuse};
use crate::keyspace::InTransaction;
use crate::rdb::{Refused, libraries};
use crate::reply::Reply;
use crate::request::Arguments;
use crate::script::{FunctionInfo, Functions, Library, Program, Script};
use crate::session::Place;

/// Commands about functions.
#[expect(missing_docs, reason = "each is the command of its name")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Function {
    Call,
    CallRo,
    Load,
    Delete,
    Flush,
    List,
    Stats,
    Dump,
    Restore,
}

const VERSION: Key<'_> = Key { database: SYSTEM_DATABASE, name: b"functions:version" };
const LIBRARIES: Key<'_> = Key { database: SYSTEM_DATABASE, name: b"functions" };

/// Runs a command about functions on the keyspace of a transaction.
pub(crate) async fn function<K: InTransaction>(
    function: Function,
    keyspace: &K,
    caller: Caller<'_>,
    arguments: Arguments<'_>,
    reply: &mut Reply,
) {
    let place = caller.place;
    let done = match function {
        Function::Call => call(false, keyspace, caller, arguments, reply).await,
        Function::CallRo => call(true, keyspace, caller, arguments, reply).await,
        Function::Load => load(keyspace, place, arguments, reply).await,
        Function::Delete => delete(keyspace, place, arguments, reply).await,
        Function::Flush => flush(keyspace, place, arguments, reply).await,
        Function::List => list(keyspace, place, arguments, reply).await,
        Function::Stats => stats(keyspace, place, reply).await,
        Function::Dump => dump(keyspace, place, reply).await,
        Function::Restore => restore(keyspace, place, arguments, reply).await,
    };
    if let Err(error) = done {
        refuse(reply, error);
    }
}

/// FCALL function numkeys [key ...] [argument ...]
async fn call<K: InTransaction>(
    only_reads: bool,
    keyspace: &K,
    caller: Caller<'_>,
    arguments: Arguments<'_>,
    reply: &mut Reply,
) -> Result<(), Error> {
    let (place, database) = (caller.place, caller.database);
    let rest: Vec<&[u8]> = arguments.from(3).collect();
    let (keys, values) = match split_keys(arguments.get(2), &rest) {
        Ok(both) => both,
        Err(super::NOT_INTEGER) => {
            reply.error("ERR Bad number of keys provided");
            return Ok(());
        }
        Err(refusal) => {
            reply.error(refusal);
            return Ok(());
        }
    };
    let named = keys.iter().map(|name| Key { database, name });
    keyspace.look_at(&named.chain([VERSION]).collect::<Vec<_>>()).await?;
    let functions = current(keyspace, place).await?;
    let Some((library, function)) = functions.find(arguments.get(1)) else {
        reply.error("ERR Function not found");
        return Ok(());
    };
    let permission = function.permission();
    if only_reads && permission.writes {
        reply.error("ERR Can not execute a script with write flag using *_ro command.");
        return Ok(());
    }
    if place.is_full.get() && permission.writes && !permission.grows {
        reply.error(super::FULL);
        return Ok(());
    }
    let name = function.name.as_slice().into();
    let program = Program::Function { library: library.code.clone(), name };
    run_program(keyspace, caller, &program, (keys, values), permission, reply).await;
    Ok(())
}

/// FUNCTION LOAD [REPLACE] code
async fn load<K: InTransaction>(
    keyspace: &K,
    place: &Place,
    arguments: Arguments<'_>,
    reply: &mut Reply,
) -> Result<(), Error> {
    let mut replace = false;
    for option in arguments.from(2).take(arguments.len() - 3) {
        if !is(option, "replace") {
            let option = String::from_utf8_lossy(option);
            reply.error_fmt(format_args!("ERR Unknown option given: {option}"));
            return Ok(());
        }
        replace = true;
    }
    let mut functions = Functions::clone(&*current(keyspace, place).await?);
    let library = Library::new(arguments.get(arguments.len() - 1), |code| find(place, code));
    let name = library.as_ref().map(|library| library.name.clone()).unwrap_or_default();
    match library.and_then(|library| functions.add(library, replace)) {
        Ok(()) => {
            store(keyspace, place, &functions).await?;
            reply.bulk(&name);
        }
        Err(error) => {
            let error = error.replace(['\r', '\n'], " ");
            reply.error_fmt(format_args!("ERR {error}"));
        }
    }
    Ok(())
}

/// FUNCTION DELETE library
async fn delete<K: InTransaction>(
    keyspace: &K,
    place: &Place,
    arguments: Arguments<'_>,
    reply: &mut Reply,
) -> Result<(), Error> {
    let mut functions = Functions::clone(&*current(keyspace, place).await?);
    if functions.libraries.remove(arguments.get(2)).is_none() {
        reply.error("ERR Library not found");
        return Ok(());
    }
    store(keyspace, place, &functions).await?;
    reply.ok();
    Ok(())
}

/// FUNCTION FLUSH [ASYNC | SYNC]
async fn flush<K: InTransaction>(
    keyspace: &K,
    place: &Place,
    arguments: Arguments<'_>,
    reply: &mut Reply,
) -> Result<(), Error> {
    let mut mode = arguments.from(2);
    if mode.len() > 1 {
        let name = String::from_utf8_lossy(arguments.get(1));
        reply.error_fmt(format_args!(
            "ERR unknown subcommand or wrong number of arguments for '{name}'. Try FUNCTION HELP."
        ));
        return Ok(());
    }
    if mode.next().is_some_and(|mode| !is(mode, "async") && !is(mode, "sync")) {
        reply.error("ERR FUNCTION FLUSH only supports SYNC|ASYNC option");
        return Ok(());
    }
    store(keyspace, place, &Functions::default()).await?;
    reply.ok();
    Ok(())
}

/// FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]
async fn list<K: InTransaction>(
    keyspace: &K,
    place: &Place,
    arguments: Arguments<'_>,
    reply: &mut Reply,
) -> Result<(), Error> {
    let (mut pattern, mut with_code) = (None, false);
    let mut options = arguments.from(2);
    while let Some(option) = options.next() {
        if is(option, "withcode") && !with_code {
            with_code = true;
        } else if is(option, "libraryname") && pattern.is_none() {
            pattern = options.next().map(<[u8]>::to_ascii_lowercase);
            if pattern.is_none() {
                reply.error("ERR library name argument was not given");
                return Ok(());
            }
        } else {
            let option = String::from_utf8_lossy(option);
            reply.error_fmt(format_args!("ERR Unknown argument {option}"));
            return Ok(());
        }
    }
    let functions = current(keyspace, place).await?;
    let is_meant = |name: &[u8]| {
        pattern.as_deref().is_none_or(|pattern| glob::matches(pattern, &name.to_ascii_lowercase()))
    };
    let meant: Vec<_> =
        functions.libraries.values().filter(|library| is_meant(&library.name)).collect();
    reply.array(meant.len());
    for library in meant {
        reply.map(if with_code { 4 } else { 3 });
        reply.bulk(b"library_name");
        reply.bulk(&library.name);
        reply.bulk(b"engine");
        reply.bulk(b"LUA");
        reply.bulk(b"functions");
        reply.array(library.functions.len());
        library.functions.iter().for_each(|function| tell(function, reply));
        if with_code {
            reply.bulk(b"library_code");
            reply.bulk(&library.code.text);
        }
    }
    Ok(())
}

fn tell(function: &FunctionInfo, reply: &mut Reply) {
    reply.map(3);
    reply.bulk(b"name");
    reply.bulk(&function.name);
    reply.bulk(b"description");
    match &function.description {
        Some(description) => reply.bulk(description),
        None => reply.null(),
    }
    reply.bulk(b"flags");
    reply.set(function.flags.len());
    function.flags.iter().for_each(|flag| reply.simple(flag));
}

/// FUNCTION STATS: of the pool's libraries, and of what runs on this gateway.
async fn stats<K: InTransaction>(
    keyspace: &K,
    place: &Place,
    reply: &mut Reply,
) -> Result<(), Error> {
    let functions = current(keyspace, place).await?;
    reply.map(2);
    reply.bulk(b"running_script");
    match place.shared.scripts.slow() {
        None => reply.null(),
        Some(running) => {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(&running.name);
            reply.bulk(b"command");
            reply.array(running.command.len());
            running.command.iter().for_each(|word| reply.bulk(word));
            reply.bulk(b"duration_ms");
            let elapsed = place.clock.now().saturating_duration_since(running.since);
            reply.integer(elapsed.as_millis() as i64);
        }
    }
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(b"LUA");
    reply.map(2);
    reply.bulk(b"libraries_count");
    reply.integer(functions.libraries.len() as i64);
    reply.bulk(b"functions_count");
    let count = functions.libraries.values().map(|library| library.functions.len());
    reply.integer(count.sum::<usize>() as i64);
    Ok(())
}

/// FUNCTION DUMP
async fn dump<K: InTransaction>(
    keyspace: &K,
    place: &Place,
    reply: &mut Reply,
) -> Result<(), Error> {
    let functions = current(keyspace, place).await?;
    reply.bulk(&libraries::dump(functions.libraries.values().map(|library| &*library.code.text)));
    Ok(())
}

/// FUNCTION RESTORE payload [FLUSH | APPEND | REPLACE]
async fn restore<K: InTransaction>(
    keyspace: &K,
    place: &Place,
    arguments: Arguments<'_>,
    reply: &mut Reply,
) -> Result<(), Error> {
    let policy = arguments.from(3).next().unwrap_or(b"append");
    let (flushes, replaces) = (is(policy, "flush"), is(policy, "replace"));
    if arguments.len() > 4 {
        let name = String::from_utf8_lossy(arguments.get(1));
        reply.error_fmt(format_args!(
            "ERR unknown subcommand or wrong number of arguments for '{name}'. Try FUNCTION HELP."
        ));
        return Ok(());
    }
    if !flushes && !replaces && !is(policy, "append") {
        reply.error(
            "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
        );
        return Ok(());
    }
    let before = if flushes { Arc::default() } else { current(keyspace, place).await? };
    match restored(&before, replaces, arguments.get(2), |code| find(place, code)) {
        Ok(functions) => {
            store(keyspace, place, &functions).await?;
            reply.ok();
        }
        Err(error) => {
            let error = error.replace(['\r', '\n'], " ");
            reply.error_fmt(format_args!("ERR {error}"));
        }
    }
    Ok(())
}

/// The libraries of `before` and those of a payload, or what Redis says of it.
fn restored(
    before: &Functions,
    replaces: bool,
    payload: &[u8],
    find: impl Fn(&Script) -> Result<Vec<FunctionInfo>, String>,
) -> Result<Functions, String> {
    let codes = libraries::restore(payload).map_err(|refused| match refused {
        Refused::Trailer => "DUMP payload version or checksum are wrong",
        Refused::Type(_) => "given type is not a function",
        Refused::Format => "Failed loading library payload",
    })?;
    // They have to go with each other first.
    let mut new = Functions::default();
    for code in codes {
        new.add(Library::new(&code, &find)?, false)?;
    }
    let mut functions = before.clone();
    functions.join(new, replaces)?;
    Ok(functions)
}

/// The libraries, as this transaction sees them.
async fn current<K: InTransaction>(keyspace: &K, place: &Place) -> Result<Arc<Functions>, Error> {
    let version = read(keyspace, VERSION).await?;
    let version = version.first_chunk().map_or(0, |version| u64::from_le_bytes(*version));
    if version == 0 {
        return Ok(Arc::default());
    }
    let known = place.shared.functions.read().unwrap_or_else(PoisonError::into_inner).clone();
    if known.version == version {
        return Ok(known);
    }
    let bytes = read(keyspace, LIBRARIES).await?;
    let functions = Arc::new(Functions::parse(version, &bytes, |code| find(place, code)));
    let mut known = place.shared.functions.write().unwrap_or_else(PoisonError::into_inner);
    *known = functions.clone();
    Ok(functions)
}

fn find(place: &Place, code: &Script) -> Result<Vec<FunctionInfo>, String> {
    place.scripts.load(&place.shared, code)
}

async fn read<K: InTransaction>(keyspace: &K, key: Key<'_>) -> Result<Vec<u8>, Error> {
    let mut bytes = Ok(Vec::new());
    keyspace
        .read(&[key], |_, entry| {
            bytes = entry.map(|entry| entry.map_or(Vec::new(), |entry| entry.value.to_vec()));
            true
        })
        .await;
    bytes
}

/// Stores the libraries under a version that never was: by a version, a gateway may
/// know what a transaction had written that then was not committed.
async fn store<K: InTransaction>(
    keyspace: &K,
    place: &Place,
    functions: &Functions,
) -> Result<(), Error> {
    let version = place.random().max(1);
    keyspace.set(VERSION, &version.to_le_bytes(), None).await?;
    keyspace.set(LIBRARIES, &functions.to_bytes(), None).await
}
