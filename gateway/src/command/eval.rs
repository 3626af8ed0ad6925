//! EVAL, EVALSHA and SCRIPT.

use std::ops::Range;

use fusee::Key;

use super::multi::run_kept;
use super::{NOT_INTEGER, integer, is, refuse};
use crate::keyspace::InTransaction;
use crate::reply::Reply;
use crate::request::Arguments;
use crate::script::{
    Outcome, Permission, Program, ProgramKind, Run, Script, parse_sha, sha_of, slow,
};
use crate::session::{By, Place};

/// Times that a script begins anew because it needs a key that nobody named.
const RUNS_MAX: usize = 10_000;
const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";

/// Commands that run a script.
#[expect(missing_docs, reason = "each is the command of its name")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Eval {
    Eval,
    EvalRo,
    EvalSha,
    EvalShaRo,
}

/// Who runs a program, and where.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) place: &'a Place,
    pub(crate) by: By<'a>,
    pub(crate) database: u8,
}

/// EVAL script numkeys [key ...] [argument ...], and its relatives, on the keyspace
/// of a transaction.
pub(crate) async fn eval<K: InTransaction>(
    eval: Eval,
    keyspace: &K,
    caller: Caller<'_>,
    arguments: Arguments<'_>,
    reply: &mut Reply,
) {
    let rest: Vec<&[u8]> = arguments.from(3).collect();
    let (keys, values) = match split_keys(arguments.get(2), &rest) {
        Ok(both) => both,
        Err(refusal) => return reply.error(refusal),
    };
    let Some(script) = script_of(eval, caller.place, arguments, reply) else { return };
    let Some(mut permission) = permission_of(&script.text, reply) else { return };
    permission.writes &= matches!(eval, Eval::Eval | Eval::EvalSha);
    let named = keys.iter().map(|name| Key { database: caller.database, name });
    if let Err(error) = keyspace.look_at(&named.collect::<Vec<_>>()).await {
        return refuse(reply, error);
    }
    let program = Program::Script(script);
    run_program(keyspace, caller, &program, (keys, values), permission, reply).await;
}

/// Keys, and arguments behind them.
pub(super) type Words<'a, 'b> = (&'b [&'a [u8]], &'b [&'a [u8]]);

/// The keys and the arguments behind them, or what Redis says of their number.
pub(super) fn split_keys<'a, 'b>(
    count: &[u8],
    rest: &'b [&'a [u8]],
) -> Result<Words<'a, 'b>, &'static str> {
    let count = integer(count).ok_or(NOT_INTEGER)?;
    if count > rest.len() as i64 {
        return Err("ERR Number of keys can't be greater than number of args");
    }
    let count = usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative")?;
    Ok(rest.split_at(count))
}

/// Runs a program with keys that have been looked at, and other arguments.
pub(super) async fn run_program<K: InTransaction>(
    keyspace: &K,
    Caller { place, by, database }: Caller<'_>,
    program: &Program,
    (keys, arguments): (&[&[u8]], &[&[u8]]),
    permission: Permission,
    reply: &mut Reply,
) {
    let mut walks = Vec::new();
    // Errors of what it has walked, which is not done again.
    let mut walked = Reply::default();
    for _ in 0..RUNS_MAX {
        let mut mark = keyspace.mark();
        let run = Run {
            keyspace,
            place,
            by,
            program,
            keys,
            arguments,
            database,
            permission,
            protocol: reply.protocol,
            walks: &walks,
        };
        let mut needs = place.scripts.run(&run);
        if matches!(needs, Outcome::Slow) {
            keyspace.rewind(mark);
            mark = keyspace.mark();
            needs = slow::run(&run).await;
        }
        if !matches!(needs, Outcome::Reply(..)) {
            keyspace.rewind(mark);
        }
        match needs {
            Outcome::Slow => {}
            Outcome::Killed(result) => return reply.append(result),
            Outcome::Reply(result, tally) => {
                if !tally.is_empty() {
                    let stats = place.stats.clone();
                    keyspace.afterwards(Box::new(move || tally.count(&stats)));
                }
                reply.count_errors_of(&walked);
                return reply.append(result);
            }
            Outcome::Keys(keys) => {
                let keys: Vec<Key<'_>> =
                    keys.iter().map(|&(database, ref name)| Key { database, name }).collect();
                if let Err(error) = keyspace.look_at(&keys).await {
                    return refuse(reply, error);
                }
            }
            Outcome::Walk(mut database, protocol, queue) => {
                let mut result = Reply::new(Vec::new(), protocol);
                if let Some(kept) = queue.last() {
                    let run = run_kept(keyspace, place, by, kept, &mut database, &mut result);
                    Box::pin(run).await;
                }
                walked.count_errors_of(&result);
                walks.push(result.into_bytes());
            }
        }
    }
    reply.error("ERR the script touches ever more keys that it does not name: give them as KEYS");
}

/// The places of the keys that are given to a script.
pub(super) fn key_places(arguments: Arguments<'_>) -> Range<usize> {
    const FIRST: usize = 3;
    let count = if arguments.len() > FIRST { integer(arguments.get(2)) } else { None };
    let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    FIRST..FIRST.saturating_add(count).min(arguments.len().max(FIRST))
}

fn script_of(
    eval: Eval,
    place: &Place,
    arguments: Arguments<'_>,
    reply: &mut Reply,
) -> Option<Script> {
    let text = arguments.get(1);
    if matches!(eval, Eval::EvalSha | Eval::EvalShaRo) {
        let script = parse_sha(text).and_then(|sha| place.shared.scripts.get(&sha));
        if script.is_none() {
            reply.error(NO_SCRIPT);
        }
        return script;
    }
    let sha = sha_of(text);
    if let Some(script) = place.shared.scripts.get(&sha) {
        return Some(script);
    }
    let script = Script { sha, text: text.into() };
    permission_of(text, reply)?;
    if let Err(message) = place.scripts.compile(&place.shared, &script) {
        tell_compiler(&message, reply);
        return None;
    }
    place.shared.scripts.put(&script);
    Some(script)
}

fn tell_compiler(message: &str, reply: &mut Reply) {
    let message = message.replace(['\r', '\n'], " ");
    reply.error_fmt(format_args!("ERR Error compiling script (new function): {message}"));
}

/// What the first line of a script says that it does; `None` after an error reply.
fn permission_of(text: &[u8], reply: &mut Reply) -> Option<Permission> {
    let mut permission = Permission { writes: true, grows: false };
    let Some(line) = text.strip_prefix(b"#!") else { return Some(permission) };
    let Some(end) = line.iter().position(|&byte| byte == b'\n') else {
        reply.error("ERR Invalid script shebang");
        return None;
    };
    let line = String::from_utf8_lossy(&line[..end]).into_owned();
    let mut words = line.split_whitespace();
    match words.next() {
        Some("lua") => {}
        engine => {
            let engine = engine.unwrap_or_default();
            reply.error_fmt(format_args!("ERR Unexpected engine in script shebang: {engine}"));
            return None;
        }
    }
    for word in words {
        let Some(flags) = word.strip_prefix("flags=") else {
            reply.error_fmt(format_args!("ERR Unknown lua shebang option: {word}"));
            return None;
        };
        for flag in flags.split(',').filter(|flag| !flag.is_empty()) {
            match flag {
                "no-writes" => permission.writes = false,
                "allow-oom" => permission.grows = true,
                "allow-stale" | "no-cluster" | "allow-cross-slot-keys" => {}
                _ => {
                    reply.error_fmt(format_args!("ERR Unexpected flag in script shebang: {flag}"));
                    return None;
                }
            }
        }
    }
    Some(permission)
}

/// SCRIPT LOAD text
pub(super) fn load(place: &Place, arguments: Arguments<'_>, reply: &mut Reply) {
    let text = arguments.get(2);
    let script = Script { sha: sha_of(text), text: text.into() };
    if permission_of(text, reply).is_none() {
        return;
    }
    match place.scripts.compile(&place.shared, &script) {
        Ok(()) => {
            place.shared.scripts.put(&script);
            reply.bulk(&script.sha);
        }
        Err(message) => tell_compiler(&message, reply),
    }
}

/// SCRIPT EXISTS sha [sha ...]
pub(super) fn exists(place: &Place, arguments: Arguments<'_>, reply: &mut Reply) {
    reply.array(arguments.len() - 2);
    for sha in arguments.from(2) {
        let known = parse_sha(sha).is_some_and(|sha| place.shared.scripts.get(&sha).is_some());
        reply.integer(i64::from(known));
    }
}

/// SCRIPT FLUSH [ASYNC | SYNC]
pub(super) fn flush(place: &Place, arguments: Arguments<'_>, reply: &mut Reply) {
    let mut mode = arguments.from(2);
    if mode.len() > 1 || mode.next().is_some_and(|mode| !is(mode, "async") && !is(mode, "sync")) {
        return reply.error("ERR SCRIPT FLUSH only support SYNC|ASYNC option");
    }
    place.shared.scripts.clear();
    place.scripts.clear();
    reply.ok();
}

/// SCRIPT KILL, and FUNCTION KILL
pub(super) fn kill(place: &Place, arguments: Arguments<'_>, reply: &mut Reply) {
    let is_function = is(arguments.get(0), "function");
    let kind = if is_function { ProgramKind::Function } else { ProgramKind::Script };
    let scripts = &place.shared.scripts;
    if scripts.kill(kind) {
        return reply.ok();
    }
    match scripts.slow() {
        // What runs is for the other command to end.
        Some(running) => reply.error(busy(running.kind)),
        None => reply.error("NOTBUSY No scripts in execution right now."),
    }
}

/// What is answered while a program of this kind keeps others from running.
pub(super) fn busy(kind: ProgramKind) -> &'static str {
    match kind {
        ProgramKind::Script => {
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
        }
        ProgramKind::Function => {
            "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN \
             NOSAVE."
        }
    }
}
