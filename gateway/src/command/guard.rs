//! What can keep a request from running, and who else hears of it. None of this
//! is asked unless something is out of the ordinary: a client that has not
//! authenticated, that listens or wants no replies, clients that are paused, a
//! MONITOR, a full pool.

use std::io::Write as _;

use super::acl;
use super::eval;
use super::multi::Multi;
use super::table::{self, COMMANDS, Command};
use super::{CommandId, Local, Run};
use crate::keyspace::InTransaction;
use crate::phase::{Phase, Phases};
use crate::reply::Reply;
use crate::request::Arguments;
use crate::script::ProgramKind;
use crate::session::{Place, State};
use crate::shared::{Pause, unix_us};

/// A command, or its subcommand that the arguments name.
pub(crate) fn resolved(id: CommandId, arguments: Arguments<'_>) -> &'static Command {
    &COMMANDS[usize::from(resolved_id(id, arguments))]
}

/// Where [`resolved`] stands in the table.
pub(crate) fn resolved_id(id: CommandId, arguments: Arguments<'_>) -> CommandId {
    let command = &COMMANDS[usize::from(id)];
    let name = arguments.from(1).next();
    let found = name.filter(|_| command.has_subcommands());
    found.and_then(|name| table::find_subcommand(id, name)).unwrap_or(id)
}

/// Whether a command waits until clients are no longer paused.
pub(crate) fn has_to_wait(command: Option<&Command>, state: &State, place: &Place) -> bool {
    let Some(pause) = place.shared.paused() else { return false };
    let Some(command) = command else { return pause == Pause::All };
    // Whoever has paused clients can let them go on.
    let is_client = command.name.starts_with("client|");
    match pause {
        Pause::All => !is_client,
        Pause::Writes if state.queue.is_some() => {
            let writes = state.queue.as_ref().is_some_and(|queue| queue.writes);
            writes && command.run == Run::Multi(Multi::Exec)
        }
        Pause::Writes => command.is_write() || command.publishes(),
    }
}

/// Why a command is not run.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    NotAuthenticated,
    Listening(&'static str),
    Full,
    /// A script or a function has been running for busy-reply-threshold.
    Busy(ProgramKind),
    /// What to answer to a user who may not do this.
    Denied(String),
}

/// Whether the state of its client, or of the pool, keeps a command from running.
pub(crate) fn refusal(
    command: Option<&'static Command>,
    arguments: Arguments<'_>,
    state: &State,
    place: &Place,
) -> Option<Refusal> {
    let is_one_of = |commands: &[Local]| {
        command.is_some_and(|command| commands.iter().any(|one| command.run == Run::Local(*one)))
    };
    if !state.authenticated && command.is_none_or(|command| !command.needs_no_auth()) {
        return Some(Refusal::NotAuthenticated);
    }
    let command = command?;
    if !command.takes(arguments.len()) {
        return None;
    }
    if let Some(text) = acl::denial(command, arguments, state.by(), &place.shared) {
        return Some(Refusal::Denied(text));
    }
    if state.is_listening_in_resp2()
        && !command.name.ends_with("subscribe")
        && !is_one_of(&[Local::Ping, Local::Quit, Local::Reset])
    {
        return Some(Refusal::Listening(command.name));
    }
    if place.is_full.get() && command.may_grow() {
        return Some(Refusal::Full);
    }
    place
        .shared
        .busy_with(place.clock.now())
        .filter(|_| !command.runs_while_busy())
        .map(Refusal::Busy)
}

/// Tells why a command was not run. A transaction is not begun then, and is over if it was
/// its EXEC.
pub(crate) fn refuse(
    refusal: Refusal,
    command: Option<&Command>,
    state: &mut State,
    reply: &mut Reply,
) {
    let text = match refusal {
        Refusal::NotAuthenticated => "NOAUTH Authentication required.".to_owned(),
        Refusal::Listening(name) => format!(
            "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
             RESET are allowed in this context"
        ),
        Refusal::Denied(text) => text,
        Refusal::Full => super::FULL.to_owned(),
        Refusal::Busy(kind) => eval::busy(kind).to_owned(),
    };
    if command.is_some_and(|command| command.run == Run::Multi(Multi::Exec))
        && state.forget_transaction().is_some()
    {
        return reply.error_fmt(format_args!("EXECABORT Transaction discarded because of: {text}"));
    }
    if let Some(queue) = &mut state.queue {
        queue.is_broken = true;
    }
    reply.error(&text);
}

/// Shows a command to clients of MONITOR, before it runs.
pub(crate) fn show(
    command: Option<&Command>,
    arguments: Arguments<'_>,
    database: u8,
    by: &dyn std::fmt::Display,
    place: &Place,
) {
    // Who administers the server does not want passwords in a log.
    let Some(command) = command.filter(|command| !command.is_administrative()) else { return };
    if !command.takes(arguments.len()) {
        return;
    }
    place.shared.show(|| line_of(command, arguments, database, by));
}

/// What MONITOR shows of a command.
fn line_of(
    command: &Command,
    arguments: Arguments<'_>,
    database: u8,
    by: &dyn std::fmt::Display,
) -> Vec<u8> {
    let now_us = unix_us();
    let mut line = Vec::new();
    let _ = write!(line, "{}.{:06} [{database} {by}]", now_us / 1_000_000, now_us % 1_000_000,);
    let is_secret = secrets(command, arguments);
    for (index, argument) in arguments.from(0).enumerate() {
        line.extend_from_slice(b" \"");
        if is_secret(index) {
            line.extend_from_slice(b"(redacted)");
        } else {
            quote(argument, &mut line);
        }
        line.push(b'"');
    }
    line
}

/// Shows a script's command once it is certain that the script is not run again.
pub(crate) fn show_later<K: InTransaction>(
    command: &Command,
    arguments: Arguments<'_>,
    database: u8,
    place: &Place,
    keyspace: &K,
) {
    if place.shared.is_monitored() && !command.is_administrative() {
        let line = line_of(command, arguments, database, &"lua");
        let shared = place.shared.clone();
        keyspace.afterwards(Box::new(move || shared.show(|| line)));
    }
}

/// Which arguments are for nobody's eyes.
fn secrets<'a>(command: &Command, arguments: Arguments<'a>) -> impl Fn(usize) -> bool + use<'a> {
    let run = command.run;
    let auth = arguments.from(0).position(|word| super::is(word, "auth"));
    move |index| match run {
        Run::Local(Local::Auth) => index > 0,
        Run::Local(Local::Hello) => auth.is_some_and(|auth| index == auth + 1 || index == auth + 2),
        _ => false,
    }
}

/// Bytes as Redis's sdscatrepr writes them.
fn quote(text: &[u8], line: &mut Vec<u8>) {
    for byte in text {
        match byte {
            b'\\' | b'"' => line.extend_from_slice(&[b'\\', *byte]),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\t' => line.extend_from_slice(b"\\t"),
            0x07 => line.extend_from_slice(b"\\a"),
            0x08 => line.extend_from_slice(b"\\b"),
            b' '..=b'~' => line.push(*byte),
            _ => {
                let _ = write!(line, "\\x{byte:02x}");
            }
        }
    }
}

/// Notes a command that took long, for SLOWLOG and for LATENCY.
pub(crate) fn note(
    state: &State,
    place: &Place,
    arguments: Arguments<'_>,
    elapsed_ns: u64,
    phases: Phases,
) {
    let command = table::find(arguments.get(0)).map(|id| resolved(id, arguments));
    let settings = &place.shared.settings;
    let elapsed_us = elapsed_ns / 1000;
    let is_slow = u64::try_from(settings.slow_us()).is_ok_and(|limit| elapsed_us >= limit);
    let is_password = |argument| super::is(argument, "requirepass");
    let is_secret = command.is_some_and(Command::is_secret) || arguments.from(0).any(is_password);
    if is_slow {
        let phase = phases.slowest();
        place.stats.slow[phase as usize].add(1);
        let name = command.map_or("unknown", |command| command.name);
        place.shared.slow.tell(name, elapsed_us, &phases);
    }
    if is_slow && !is_secret {
        let most = settings.slow_entries_max();
        place.shared.slow.command(&state.client, arguments, elapsed_us, phases, most);
    }
    let limit_ms = settings.latency_ms();
    if limit_ms > 0 && elapsed_us / 1000 >= limit_ms {
        let is_fast = command.is_some_and(Command::is_fast);
        place
            .shared
            .slow
            .event(if is_fast { "fast-command" } else { "command" }, elapsed_us / 1000);
    }
}

/// Notes that a client took long to read its replies, of which those of `last` were the last.
pub(crate) fn note_reply(place: &Place, last: Option<CommandId>, elapsed_ns: u64) {
    let elapsed_us = elapsed_ns / 1000;
    let limit = u64::try_from(place.shared.settings.slow_us());
    if limit.is_ok_and(|limit| elapsed_us >= limit) {
        place.stats.slow[Phase::Reply as usize].add(1);
        let mut phases = Phases::default();
        phases.0[Phase::Reply as usize] = elapsed_us;
        let name = last.map_or("none", |id| COMMANDS[usize::from(id)].name);
        place.shared.slow.tell(name, elapsed_us, &phases);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_are_shown_on_one_line() {
        let mut line = Vec::new();
        quote(b"a \"b\"\\\n\r\t\x07\x08\x00\xff", &mut line);
        assert_eq!(line, br#"a \"b\"\\\n\r\t\a\b\x00\xff"#);
    }
}
