//! Every command, once: dispatch, COMMAND, COMMAND DOCS, INFO and the metrics
//! read this table.

use super::{Local, Read, Run, Walk, Write};

mod lookup;

/// Where a command stands in [`COMMANDS`].
pub type CommandId = u8;

/// What a command is.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// In lower case; a subcommand's as `container|name`.
    pub name: &'static str,
    /// How it is run.
    pub run: Run,
    /// How many arguments it takes, its name among them; -n is n or more.
    pub arity: i8,
    /// A sum of the constants below.
    pub flags: u16,
    /// The first key, the last (negative: from the end) and the step.
    pub keys: (i8, i8, i8),
    /// What it is about.
    pub group: Group,
    /// The first Redis version that had it.
    pub since: &'static str,
    /// What it does, in one sentence.
    pub summary: &'static str,
}

/// What a command is about, as COMMAND DOCS tells it.
#[expect(missing_docs, reason = "the names are Redis's")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    String,
    Generic,
    Connection,
    Server,
    Scripting,
}

macro_rules! flags {
    ($($constant:ident = $bit:literal, $name:literal;)*) => {
        $(const $constant: u16 = 1 << $bit;)*
        /// The flags' names as COMMAND gives them.
        const FLAGS: &[(u16, &str)] = &[$(($constant, $name)),*];
    };
}

flags! {
    WRITE = 0, "write";
    READONLY = 1, "readonly";
    DENYOOM = 2, "denyoom";
    ADMIN = 3, "admin";
    NOSCRIPT = 4, "noscript";
    LOADING = 5, "loading";
    STALE = 6, "stale";
    FAST = 7, "fast";
    NO_AUTH = 8, "no_auth";
    ALLOW_BUSY = 9, "allow_busy";
}
const NONE: u16 = 0;

use Run::{CloseSilently, Container};
#[expect(non_snake_case, reason = "short for the enum's own constructor in a table")]
const fn Read(read: Read) -> Run {
    Run::Read(read)
}
#[expect(non_snake_case, reason = "short for the enum's own constructor in a table")]
const fn Write(write: Write) -> Run {
    Run::Write(write)
}
#[expect(non_snake_case, reason = "short for the enum's own constructor in a table")]
const fn Walk(walk: Walk) -> Run {
    Run::Walk(walk)
}
#[expect(non_snake_case, reason = "short for the enum's own constructor in a table")]
const fn Local(local: Local) -> Run {
    Run::Local(local)
}

#[expect(clippy::too_many_arguments, reason = "a row of the table")]
const fn row(
    name: &'static str,
    run: Run,
    arity: i8,
    flags: u16,
    keys: (i8, i8, i8),
    group: Group,
    since: &'static str,
    summary: &'static str,
) -> Command {
    Command { name, run, arity, flags, keys, group, since, summary }
}

/// In the order of their names, a container right before its subcommands.
#[rustfmt::skip]
pub static COMMANDS: &[Command] = &[
    row("append", Write(Write::Append), 3, WRITE | DENYOOM | FAST, (1, 1, 1), Group::String, "2.0.0", "Appends to a string and returns its length."),
    row("auth", Local(Local::Auth), -2, NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY, (0, 0, 0), Group::Connection, "1.0.0", "Authenticates the connection."),
    row("client", Container, -2, NONE, (0, 0, 0), Group::Connection, "2.4.0", "Commands about client connections."),
    row("client|getname", Local(Local::ClientGetName), 2, NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Connection, "2.6.9", "Returns the name of the connection."),
    row("client|help", Local(Local::ClientHelp), 2, LOADING | STALE, (0, 0, 0), Group::Connection, "5.0.0", "Lists the subcommands."),
    row("client|id", Local(Local::ClientId), 2, NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Connection, "5.0.0", "Returns the number of the connection."),
    row("client|info", Local(Local::ClientInfo), 2, NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Connection, "6.2.0", "Describes the connection."),
    row("client|list", Local(Local::ClientList), -2, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Connection, "2.4.0", "Describes all connections."),
    row("client|no-evict", Local(Local::ClientNoEvict), 3, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Connection, "7.0.0", "Keeps the connection from being closed to save memory."),
    row("client|no-touch", Local(Local::ClientNoTouch), 3, NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Connection, "7.2.0", "Keeps commands of the connection from counting as use of a key."),
    row("client|setinfo", Local(Local::ClientSetInfo), 4, NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Connection, "7.2.0", "Notes the name or version of the client library."),
    row("client|setname", Local(Local::ClientSetName), 3, NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Connection, "2.6.9", "Names the connection."),
    row("command", Local(Local::Command), -1, LOADING | STALE, (0, 0, 0), Group::Server, "2.8.13", "Describes all commands."),
    row("command|count", Local(Local::CommandCount), 2, LOADING | STALE, (0, 0, 0), Group::Server, "2.8.13", "Returns the number of commands."),
    row("command|docs", Local(Local::CommandDocs), -2, LOADING | STALE, (0, 0, 0), Group::Server, "7.0.0", "Documents commands."),
    row("command|getkeys", Local(Local::CommandGetKeys), -3, LOADING | STALE, (0, 0, 0), Group::Server, "2.8.13", "Returns the keys that a command names."),
    row("command|help", Local(Local::CommandHelp), 2, LOADING | STALE, (0, 0, 0), Group::Server, "5.0.0", "Lists the subcommands."),
    row("command|info", Local(Local::CommandInfo), -2, LOADING | STALE, (0, 0, 0), Group::Server, "2.8.13", "Describes some commands."),
    row("command|list", Local(Local::CommandList), -2, LOADING | STALE, (0, 0, 0), Group::Server, "7.0.0", "Lists the names of commands."),
    row("config", Container, -2, NONE, (0, 0, 0), Group::Server, "2.0.0", "Commands about the configuration."),
    row("config|get", Local(Local::ConfigGet), -3, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Server, "2.0.0", "Returns settings by pattern."),
    row("config|help", Local(Local::ConfigHelp), 2, LOADING | STALE, (0, 0, 0), Group::Server, "5.0.0", "Lists the subcommands."),
    row("config|resetstat", Local(Local::ConfigResetStat), 2, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Server, "2.0.0", "Begins to count anew."),
    row("config|rewrite", Local(Local::ConfigRewrite), 2, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Server, "2.8.0", "Writes the configuration back to its file."),
    row("config|set", Local(Local::ConfigSet), -4, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Server, "2.0.0", "Changes settings."),
    row("dbsize", Walk(Walk::DbSize), 1, READONLY | FAST, (0, 0, 0), Group::Server, "1.0.0", "Returns the number of keys."),
    row("decr", Write(Write::Decr), 2, WRITE | DENYOOM | FAST, (1, 1, 1), Group::String, "1.0.0", "Subtracts one from an integer."),
    row("decrby", Write(Write::DecrBy), 3, WRITE | DENYOOM | FAST, (1, 1, 1), Group::String, "1.0.0", "Subtracts from an integer."),
    row("del", Write(Write::Del), -2, WRITE, (1, -1, 1), Group::Generic, "1.0.0", "Removes keys."),
    row("echo", Local(Local::Echo), 2, LOADING | STALE | FAST, (0, 0, 0), Group::Connection, "1.0.0", "Returns its argument."),
    row("exists", Read(Read::Exists), -2, READONLY | FAST, (1, -1, 1), Group::Generic, "1.0.0", "Counts those of its keys that are there."),
    row("expire", Write(Write::Expire), -3, WRITE | FAST, (1, 1, 1), Group::Generic, "1.0.0", "Ends a key after seconds."),
    row("expireat", Write(Write::ExpireAt), -3, WRITE | FAST, (1, 1, 1), Group::Generic, "1.2.0", "Ends a key at a Unix time in seconds."),
    row("expiretime", Read(Read::ExpireTime), 2, READONLY | FAST, (1, 1, 1), Group::Generic, "7.0.0", "Returns when a key ends as a Unix time in seconds."),
    row("flushall", Walk(Walk::FlushAll), -1, WRITE, (0, 0, 0), Group::Server, "1.0.0", "Removes all keys of all databases."),
    row("flushdb", Walk(Walk::FlushDb), -1, WRITE, (0, 0, 0), Group::Server, "1.0.0", "Removes all keys of the database."),
    row("function", Container, -2, NONE, (0, 0, 0), Group::Scripting, "7.0.0", "Commands about functions."),
    row("function|flush", Local(Local::FunctionFlush), -2, WRITE | NOSCRIPT, (0, 0, 0), Group::Scripting, "7.0.0", "Removes all functions, of which there are none."),
    row("get", Read(Read::Get), 2, READONLY | FAST, (1, 1, 1), Group::String, "1.0.0", "Returns a string."),
    row("getdel", Write(Write::GetDel), 2, WRITE | FAST, (1, 1, 1), Group::String, "6.2.0", "Returns a string and removes its key."),
    row("getex", Write(Write::GetEx), -2, WRITE | FAST, (1, 1, 1), Group::String, "6.2.0", "Returns a string and changes when its key ends."),
    row("getrange", Read(Read::GetRange), 4, READONLY, (1, 1, 1), Group::String, "2.4.0", "Returns part of a string."),
    row("getset", Write(Write::GetSet), 3, WRITE | DENYOOM | FAST, (1, 1, 1), Group::String, "1.0.0", "Sets a string and returns the old one."),
    row("hello", Local(Local::Hello), -1, NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY, (0, 0, 0), Group::Connection, "6.0.0", "Chooses the protocol and describes the server."),
    row("host:", CloseSilently, -1, LOADING | STALE, (0, 0, 0), Group::Server, "1.0.0", "Closes the connection of a web browser."),
    row("incr", Write(Write::Incr), 2, WRITE | DENYOOM | FAST, (1, 1, 1), Group::String, "1.0.0", "Adds one to an integer."),
    row("incrby", Write(Write::IncrBy), 3, WRITE | DENYOOM | FAST, (1, 1, 1), Group::String, "1.0.0", "Adds to an integer."),
    row("incrbyfloat", Write(Write::IncrByFloat), 3, WRITE | DENYOOM | FAST, (1, 1, 1), Group::String, "2.6.0", "Adds to a number with decimals."),
    row("info", Walk(Walk::Info), -1, LOADING | STALE, (0, 0, 0), Group::Server, "1.0.0", "Describes the server in numbers."),
    row("keys", Walk(Walk::Keys), 2, READONLY, (0, 0, 0), Group::Generic, "1.0.0", "Returns all keys that match a pattern."),
    row("mget", Read(Read::MGet), -2, READONLY | FAST, (1, -1, 1), Group::String, "1.0.0", "Returns several strings."),
    row("mset", Write(Write::MSet), -3, WRITE | DENYOOM, (1, -1, 2), Group::String, "1.0.1", "Sets several strings."),
    row("persist", Write(Write::Persist), 2, WRITE | FAST, (1, 1, 1), Group::Generic, "2.2.0", "Keeps a key from ending."),
    row("pexpire", Write(Write::PExpire), -3, WRITE | FAST, (1, 1, 1), Group::Generic, "2.6.0", "Ends a key after milliseconds."),
    row("pexpireat", Write(Write::PExpireAt), -3, WRITE | FAST, (1, 1, 1), Group::Generic, "2.6.0", "Ends a key at a Unix time in milliseconds."),
    row("pexpiretime", Read(Read::PExpireTime), 2, READONLY | FAST, (1, 1, 1), Group::Generic, "7.0.0", "Returns when a key ends as a Unix time in milliseconds."),
    row("ping", Local(Local::Ping), -1, FAST, (0, 0, 0), Group::Connection, "1.0.0", "Answers PONG, or what it was sent."),
    row("post", CloseSilently, -1, LOADING | STALE, (0, 0, 0), Group::Server, "1.0.0", "Closes the connection of a web browser."),
    row("psetex", Write(Write::PSetEx), 4, WRITE | DENYOOM, (1, 1, 1), Group::String, "2.6.0", "Sets a string that ends after milliseconds."),
    row("pttl", Read(Read::PTtl), 2, READONLY | FAST, (1, 1, 1), Group::Generic, "2.6.0", "Returns how many milliseconds a key has left."),
    row("quit", Local(Local::Quit), -1, NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY, (0, 0, 0), Group::Connection, "1.0.0", "Closes the connection after the replies."),
    row("randomkey", Walk(Walk::RandomKey), 1, READONLY, (0, 0, 0), Group::Generic, "1.0.0", "Returns some key."),
    row("reset", Local(Local::Reset), 1, NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY, (0, 0, 0), Group::Connection, "6.2.0", "Makes the connection as good as new."),
    row("scan", Walk(Walk::Scan), -2, READONLY, (0, 0, 0), Group::Generic, "2.8.0", "Returns some keys and where to go on."),
    row("select", Local(Local::Select), 2, LOADING | STALE | FAST, (0, 0, 0), Group::Connection, "1.0.0", "Chooses the database."),
    row("set", Write(Write::Set), -3, WRITE | DENYOOM, (1, 1, 1), Group::String, "1.0.0", "Sets a string."),
    row("setex", Write(Write::SetEx), 4, WRITE | DENYOOM, (1, 1, 1), Group::String, "2.0.0", "Sets a string that ends after seconds."),
    row("setnx", Write(Write::SetNx), 3, WRITE | DENYOOM | FAST, (1, 1, 1), Group::String, "1.0.0", "Sets a string whose key is not there."),
    row("setrange", Write(Write::SetRange), 4, WRITE | DENYOOM, (1, 1, 1), Group::String, "2.2.0", "Overwrites part of a string."),
    row("strlen", Read(Read::Strlen), 2, READONLY | FAST, (1, 1, 1), Group::String, "2.2.0", "Returns the length of a string."),
    row("substr", Read(Read::GetRange), 4, READONLY, (1, 1, 1), Group::String, "1.0.0", "Returns part of a string."),
    row("time", Local(Local::Time), 1, LOADING | STALE | FAST, (0, 0, 0), Group::Server, "2.6.0", "Returns the time of day."),
    row("touch", Read(Read::Touch), -2, READONLY | FAST, (1, -1, 1), Group::Generic, "3.2.1", "Counts those of its keys that are there."),
    row("ttl", Read(Read::Ttl), 2, READONLY | FAST, (1, 1, 1), Group::Generic, "1.0.0", "Returns how many seconds a key has left."),
    row("type", Read(Read::Type), 2, READONLY | FAST, (1, 1, 1), Group::Generic, "1.0.0", "Returns what kind of value a key has."),
    row("unlink", Write(Write::Del), -2, WRITE | FAST, (1, -1, 1), Group::Generic, "4.0.0", "Removes keys."),
];

/// The command of a name, in whatever case; not of subcommands.
#[inline]
pub fn find(name: &[u8]) -> Option<CommandId> {
    lookup::find(name)
}

/// The subcommand of a container.
pub fn find_subcommand(container: CommandId, name: &[u8]) -> Option<CommandId> {
    let subcommands = COMMANDS[usize::from(container)].subcommands();
    let found = subcommands.iter().position(|command| {
        let (_, own) = command.name.split_once('|').expect("a subcommand's name has two parts");
        name.eq_ignore_ascii_case(own.as_bytes())
    })?;
    Some(container + 1 + found as CommandId)
}

impl Command {
    /// Whether so many arguments are right.
    #[inline]
    pub fn takes(&self, arguments: usize) -> bool {
        let wanted = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { arguments >= wanted } else { arguments == wanted }
    }

    /// Where it stands in the table.
    pub fn id(&self) -> CommandId {
        let found = COMMANDS.iter().position(|command| command.name == self.name);
        found.expect("a command is in the table") as CommandId
    }

    /// The subcommands of a container.
    pub fn subcommands(&self) -> &'static [Command] {
        let start = usize::from(self.id()) + 1;
        let belongs = |command: &Command| {
            command.name.split_once('|').is_some_and(|(container, _)| container == self.name)
        };
        let count = COMMANDS[start..].iter().take_while(|command| belongs(command)).count();
        &COMMANDS[start..start + count]
    }

    /// Whether it is a subcommand of a container.
    pub fn is_subcommand(&self) -> bool {
        self.name.contains('|')
    }

    /// Whether it may change keys.
    pub fn is_write(&self) -> bool {
        self.flags & WRITE != 0
    }

    /// The flags' names as COMMAND gives them.
    pub fn flag_names(&self) -> impl Iterator<Item = &'static str> {
        FLAGS.iter().filter(|(flag, _)| self.flags & flag != 0).map(|(_, name)| *name)
    }

    /// The places of its keys among so many arguments.
    pub fn key_places(&self, arguments: usize) -> impl Iterator<Item = usize> + use<> {
        let (first, last, step) = self.keys;
        let last = if last < 0 {
            arguments.saturating_sub(usize::from(last.unsigned_abs()))
        } else {
            last as usize
        };
        let end = if first == 0 { 0 } else { last + 1 };
        (first as usize..end.min(arguments)).step_by(step.max(1) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_in_any_case() {
        for (index, command) in COMMANDS.iter().enumerate() {
            assert_eq!(usize::from(command.id()), index);
            match command.name.split_once('|') {
                None => {
                    for name in [command.name.to_owned(), command.name.to_uppercase()] {
                        assert_eq!(find(name.as_bytes()), Some(index as CommandId), "{name}");
                    }
                }
                Some((container, name)) => {
                    let container = find(container.as_bytes()).expect("its container");
                    let upper = name.to_uppercase();
                    assert_eq!(
                        find_subcommand(container, upper.as_bytes()),
                        Some(index as CommandId)
                    );
                }
            }
        }
        assert!(COMMANDS.is_sorted_by_key(|command| command.name));
    }

    #[test]
    fn other_names_are_not_found() {
        for name in [
            "",
            "ge",
            "gett",
            "g\u{5}t",
            "client|id",
            "get\0",
            "a name longer than any command's is",
        ] {
            assert_eq!(find(name.as_bytes()), None, "{name:?}");
        }
        let client = find(b"client").expect("a command");
        assert_eq!(find_subcommand(client, b"maint_notifications"), None);
    }

    #[test]
    fn keys_are_where_the_table_says() {
        let places = |name: &[u8], arguments| {
            let id = find(name).expect("a command");
            COMMANDS[usize::from(id)].key_places(arguments).collect::<Vec<_>>()
        };
        assert_eq!(places(b"get", 2), [1]);
        assert_eq!(places(b"mset", 5), [1, 3]);
        assert_eq!(places(b"mget", 4), [1, 2, 3]);
        assert_eq!(places(b"ping", 2), [0; 0]);
        assert_eq!(places(b"set", 5), [1]);
    }
}
