//! COMMAND: the table, told.

use super::table::{self, COMMANDS, Command, Group};
use super::{Run, SYNTAX, glob, is};
use crate::acl::Access;
use crate::reply::Reply;
use crate::request::Arguments;

/// The categories that there are, also those of commands that are not here.
#[rustfmt::skip]
pub(crate) const CATEGORIES: [&str; 21] = [
    "keyspace", "read", "write", "set", "sortedset", "list", "hash", "string", "bitmap",
    "hyperloglog", "geo", "stream", "pubsub", "admin", "fast", "slow", "blocking", "dangerous",
    "connection", "transaction", "scripting",
];

fn whole() -> impl Iterator<Item = &'static Command> + Clone {
    let hidden = |command: &&Command| command.run != Run::CloseSilently;
    COMMANDS.iter().filter(|command| !command.is_subcommand()).filter(hidden)
}

/// The command that `get` or `client|id` names.
pub(crate) fn named(name: &[u8]) -> Option<&'static Command> {
    let mut parts = name.splitn(2, |byte| *byte == b'|');
    let mut id = table::find(parts.next()?)?;
    if let Some(subcommand) = parts.next() {
        id = table::find_subcommand(id, subcommand)?;
    }
    Some(&COMMANDS[usize::from(id)])
}

/// COMMAND
pub(super) fn all(reply: &mut Reply) {
    reply.array(whole().count());
    whole().for_each(|command| describe(command, reply));
}

/// COMMAND COUNT
pub(super) fn count(reply: &mut Reply) {
    reply.integer(whole().count() as i64);
}

/// COMMAND INFO [name ...]
pub(super) fn info(arguments: Arguments<'_>, reply: &mut Reply) {
    if arguments.len() == 2 {
        return all(reply);
    }
    reply.array(arguments.len() - 2);
    for name in arguments.from(2) {
        match named(name) {
            Some(command) => describe(command, reply),
            None => reply.null_array(),
        }
    }
}

/// COMMAND LIST [FILTERBY MODULE name | ACLCAT category | PATTERN pattern]
pub(super) fn list(arguments: Arguments<'_>, reply: &mut Reply) {
    let everything = || {
        let hidden = |command: &&Command| command.run != Run::CloseSilently;
        COMMANDS.iter().filter(hidden)
    };
    let names: Vec<&str> = match arguments.len() {
        2 => everything().map(|command| command.name).collect(),
        5 if is(arguments.get(2), "filterby") => {
            let (by, value) = (arguments.get(3), arguments.get(4));
            let chosen: Box<dyn Fn(&Command) -> bool> = if is(by, "module") {
                Box::new(|_| false)
            } else if is(by, "aclcat") {
                Box::new(|command| categories(command).any(|category| is(value, &category[1..])))
            } else if is(by, "pattern") {
                Box::new(|command| {
                    glob::matches(&value.to_ascii_lowercase(), command.name.as_bytes())
                })
            } else {
                return reply.error(SYNTAX);
            };
            everything().filter(|command| chosen(command)).map(|command| command.name).collect()
        }
        _ => return reply.error(SYNTAX),
    };
    reply.array(names.len());
    names.iter().for_each(|name| reply.bulk(name.as_bytes()));
}

/// COMMAND DOCS [name ...]
pub(super) fn docs(arguments: Arguments<'_>, reply: &mut Reply) {
    let commands: Vec<&Command> = if arguments.len() == 2 {
        whole().collect()
    } else {
        arguments.from(2).filter_map(named).collect()
    };
    reply.map(commands.len());
    for command in commands {
        document(command, reply);
    }
}

fn document(command: &Command, reply: &mut Reply) {
    let subcommands = command.subcommands();
    reply.bulk(command.name.as_bytes());
    reply.map(3 + usize::from(!subcommands.is_empty()));
    reply.bulk(b"summary");
    reply.bulk(command.summary.as_bytes());
    reply.bulk(b"since");
    reply.bulk(command.since.as_bytes());
    reply.bulk(b"group");
    reply.bulk(group_name(command.group).as_bytes());
    if !subcommands.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(subcommands.len());
        subcommands.iter().for_each(|command| document(command, reply));
    }
}

/// COMMAND GETKEYS name [argument ...]
pub(super) fn getkeys(arguments: Arguments<'_>, reply: &mut Reply) {
    let (_, places) = match keys_of(arguments) {
        Ok(found) => found,
        Err(error) => return reply.error(error),
    };
    reply.array(places.len());
    places.into_iter().for_each(|place| reply.bulk(arguments.get(place)));
}

/// COMMAND GETKEYSANDFLAGS name [argument ...]
pub(super) fn getkeysandflags(arguments: Arguments<'_>, reply: &mut Reply) {
    let (command, places) = match keys_of(arguments) {
        Ok(found) => found,
        Err(error) => return reply.error(error),
    };
    reply.array(places.len());
    for place in places {
        reply.array(2);
        reply.bulk(arguments.get(place));
        let access = Access::of(command, arguments.skip(2), place - 2);
        let flags = key_flags(command, command.is_first_key(place - 2), access);
        reply.set(flags.len());
        flags.iter().for_each(|flag| reply.simple(flag));
    }
}

/// The command that stands from the third argument on, and the places of its
/// keys.
fn keys_of(arguments: Arguments<'_>) -> Result<(&'static Command, Vec<usize>), &'static str> {
    const UNKNOWN: &str = "ERR Invalid command specified";
    let id = table::find(arguments.get(2)).ok_or(UNKNOWN)?;
    let mut command = &COMMANDS[usize::from(id)];
    if !command.subcommands().is_empty() && arguments.len() > 3 {
        let id = table::find_subcommand(id, arguments.get(3)).ok_or(UNKNOWN)?;
        command = &COMMANDS[usize::from(id)];
    }
    if command.keys.0 == 0 && !command.counts_keys() {
        return Err("ERR The command has no key arguments");
    }
    if !command.takes(arguments.len() - 2) {
        return Err("ERR Invalid number of arguments specified for command");
    }
    let places = command.keys_among(arguments.skip(2));
    Ok((command, places.map(|place| place + 2).collect()))
}

/// What a command does with a key that it uses so, in Redis's words.
fn key_flags(command: &Command, is_first: bool, access: Access) -> &'static [&'static str] {
    match command.name {
        _ if !access.writes && !access.reads => &["RO"],
        _ if !access.writes => &["RO", "access"],
        "rename" | "renamenx" if is_first => &["RW", "access", "delete"],
        "setnx" | "msetnx" | "renamenx" => &["OW", "insert"],
        "setex" | "psetex" | "mset" | "restore" | "rename" | "copy" | "bitop" => &["OW", "update"],
        "set" if !access.reads => &["OW", "update"],
        "del" | "unlink" => &["RM", "delete"],
        "append" | "hsetnx" => &["RW", "insert"],
        "hdel" => &["RW", "delete"],
        "getdel" => &["RW", "access", "delete"],
        _ if access.reads => &["RW", "access", "update"],
        _ => &["RW", "update"],
    }
}

/// A command as COMMAND INFO tells it, in Redis 7's ten fields.
fn describe(command: &Command, reply: &mut Reply) {
    let (first, last, step) = command.keys;
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.integer(command.arity.into());
    reply.set(command.flag_names().count());
    command.flag_names().for_each(|flag| reply.simple(flag));
    reply.integer(first.into());
    reply.integer(last.into());
    reply.integer(step.into());
    reply.set(categories(command).count());
    categories(command).for_each(|category| reply.simple(category));
    reply.array(0);
    key_specs(command, reply);
    reply.array(command.subcommands().len());
    command.subcommands().iter().for_each(|command| describe(command, reply));
}

/// Where the keys are, in the words of Redis 7.
fn key_specs(command: &Command, reply: &mut Reply) {
    let (first, last, step) = command.keys;
    if first == 0 {
        return reply.array(0);
    }
    reply.array(1);
    reply.map(3);
    reply.bulk(b"flags");
    let flags = key_flags(command, true, Access::usual(command, true));
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.simple(flag));
    reply.bulk(b"begin_search");
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(b"index");
    reply.bulk(b"spec");
    reply.map(1);
    reply.bulk(b"index");
    reply.integer(first.into());
    reply.bulk(b"find_keys");
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(b"range");
    reply.bulk(b"spec");
    reply.map(3);
    reply.bulk(b"lastkey");
    // Relative to the first when it is counted from there.
    reply.integer(i64::from(if last < 0 { last } else { last - first }));
    reply.bulk(b"keystep");
    reply.integer(step.into());
    reply.bulk(b"limit");
    reply.integer(0);
}

/// The categories of a command for ACL, each with its @.
pub(crate) fn categories(command: &Command) -> impl Iterator<Item = &'static str> + use<> {
    let flags: Vec<&str> = command.flag_names().collect();
    let has = |flag| flags.contains(&flag);
    if command.run == Run::Container {
        // What it holds has categories of its own.
        return Vec::from(["@slow"]).into_iter();
    }
    let keyspace = command.group == Group::Generic
        || ["dbsize", "flushall", "flushdb"].contains(&command.name);
    let dangerous =
        has("admin") || ["keys", "flushall", "flushdb", "info", "restore"].contains(&command.name);
    let connection = command.group == Group::Connection || command.name.starts_with("command");
    [
        (keyspace, "@keyspace"),
        (has("readonly") && command.group != Group::Scripting, "@read"),
        (has("write"), "@write"),
        (command.group == Group::String, "@string"),
        (command.group == Group::Hash, "@hash"),
        (command.group == Group::Bitmap, "@bitmap"),
        (has("pubsub"), "@pubsub"),
        (connection, "@connection"),
        (command.group == Group::Transactions, "@transaction"),
        (command.group == Group::Scripting, "@scripting"),
        (has("admin"), "@admin"),
        (dangerous, "@dangerous"),
        (has("fast"), "@fast"),
        (!has("fast"), "@slow"),
    ]
    .into_iter()
    .filter(|(is, _)| *is)
    .map(|(_, name)| name)
    .collect::<Vec<_>>()
    .into_iter()
}

fn group_name(group: Group) -> &'static str {
    match group {
        Group::String => "string",
        Group::Generic => "generic",
        Group::Hash => "hash",
        Group::Bitmap => "bitmap",
        Group::Connection => "connection",
        Group::Server => "server",
        Group::Scripting => "scripting",
        Group::PubSub => "pubsub",
        Group::Transactions => "transactions",
    }
}
