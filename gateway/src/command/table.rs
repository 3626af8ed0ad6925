//! Every command, once: dispatch, COMMAND, COMMAND DOCS, INFO and the metrics
//! read this table.

use super::bits::BitRead;
use super::eval::Eval;
use super::function::Function;
use super::hash::HashRead;
use super::multi::Multi;
use super::object::ObjectRead;
use super::{Local, Read, Run, Walk, Write};
use crate::channels::Way::{Channel, Pattern, Shard};

mod keys;
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
    Hash,
    Bitmap,
    Connection,
    Server,
    Scripting,
    PubSub,
    Transactions,
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
    PUBSUB = 10, "pubsub";
    NO_MULTI = 11, "no_multi";
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

#[expect(non_snake_case, reason = "short for the enum's own constructor in a table")]
const fn Multi(multi: Multi) -> Run {
    Run::Multi(multi)
}
#[expect(non_snake_case, reason = "short for the enum's own constructor in a table")]
const fn Eval(eval: Eval) -> Run {
    Run::Eval(eval)
}
#[expect(non_snake_case, reason = "short for the enum's own constructor in a table")]
const fn Function(function: Function) -> Run {
    Run::Function(function)
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

#[expect(non_snake_case, reason = "short for the enum's own constructor in a table")]
const fn Hash(read: HashRead) -> Run {
    Run::Read(Read::Hash(read))
}
#[expect(non_snake_case, reason = "short for the enum's own constructor in a table")]
const fn Bits(read: BitRead) -> Run {
    Run::Read(Read::Bits(read))
}
#[expect(non_snake_case, reason = "short for the enum's own constructor in a table")]
const fn Object(read: ObjectRead) -> Run {
    Run::Read(Read::Object(read))
}

/// In the order of their names, a container right before its subcommands.
#[rustfmt::skip]
pub static COMMANDS: &[Command] = &[
    row("acl", Container, -2, NONE, (0, 0, 0), Group::Server, "6.0.0", "Commands about users."),
    row("acl|cat", Local(Local::AclCat), -2, NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Server, "6.0.0", "Lists categories, or the commands of one."),
    row("acl|deluser", Local(Local::AclDelUser), -3, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Server, "6.0.0", "Removes users."),
    row("acl|dryrun", Local(Local::AclDryRun), -4, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Server, "7.0.0", "Tells whether a user may run a command."),
    row("acl|genpass", Local(Local::AclGenPass), -2, NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Server, "6.0.0", "Draws a password."),
    row("acl|getuser", Local(Local::AclGetUser), 3, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Server, "6.0.0", "Describes a user."),
    row("acl|help", Local(Local::AclHelp), 2, LOADING | STALE, (0, 0, 0), Group::Server, "6.0.0", "Lists the subcommands."),
    row("acl|list", Local(Local::AclList), 2, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Server, "6.0.0", "Describes all users."),
    row("acl|load", Local(Local::AclLoad), 2, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Server, "6.0.0", "Takes all users from the file."),
    row("acl|log", Local(Local::AclLog), -2, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Server, "6.0.0", "Tells what was refused."),
    row("acl|save", Local(Local::AclSave), 2, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Server, "6.0.0", "Writes all users to the file."),
    row("acl|setuser", Local(Local::AclSetUser), -3, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Server, "6.0.0", "Makes or changes a user."),
    row("acl|users", Local(Local::AclUsers), 2, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Server, "6.0.0", "Lists the names of all users."),
    row("acl|whoami", Local(Local::AclWhoAmI), 2, NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Server, "6.0.0", "Returns the name of the user."),
    row("append", Write(Write::Append), 3, WRITE | DENYOOM | FAST, (1, 1, 1), Group::String, "2.0.0", "Appends to a string and returns its length."),
    row("auth", Local(Local::Auth), -2, NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY, (0, 0, 0), Group::Connection, "1.0.0", "Authenticates the connection."),
    row("bitcount", Bits(BitRead::Count), -2, READONLY, (1, 1, 1), Group::Bitmap, "2.6.0", "Counts the bits that are 1."),
    row("bitfield", Write(Write::BitField), -2, WRITE | DENYOOM, (1, 1, 1), Group::Bitmap, "3.2.0", "Reads and writes integers of any width."),
    row("bitfield_ro", Bits(BitRead::Field), -2, READONLY | FAST, (1, 1, 1), Group::Bitmap, "6.0.0", "Reads integers of any width."),
    row("bitop", Write(Write::BitOp), -4, WRITE | DENYOOM, (2, -1, 1), Group::Bitmap, "2.6.0", "Combines strings bit by bit."),
    row("bitpos", Bits(BitRead::Pos), -3, READONLY, (1, 1, 1), Group::Bitmap, "2.8.7", "Finds the first bit that is 1 or 0."),
    row("client", Container, -2, NONE, (0, 0, 0), Group::Connection, "2.4.0", "Commands about client connections."),
    row("client|getname", Local(Local::ClientGetName), 2, NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Connection, "2.6.9", "Returns the name of the connection."),
    row("client|help", Local(Local::ClientHelp), 2, LOADING | STALE, (0, 0, 0), Group::Connection, "5.0.0", "Lists the subcommands."),
    row("client|id", Local(Local::ClientId), 2, NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Connection, "5.0.0", "Returns the number of the connection."),
    row("client|info", Local(Local::ClientInfo), 2, NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Connection, "6.2.0", "Describes the connection."),
    row("client|kill", Local(Local::ClientKill), -3, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Connection, "2.4.0", "Closes connections."),
    row("client|list", Local(Local::ClientList), -2, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Connection, "2.4.0", "Describes all connections."),
    row("client|no-evict", Local(Local::ClientNoEvict), 3, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Connection, "7.0.0", "Keeps the connection from being closed to save memory."),
    row("client|no-touch", Local(Local::ClientNoTouch), 3, NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Connection, "7.2.0", "Keeps commands of the connection from counting as use of a key."),
    row("client|pause", Local(Local::ClientPause), -3, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Connection, "3.0.0", "Lets commands of all clients wait."),
    row("client|reply", Local(Local::ClientReply), 3, NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Connection, "3.2.0", "Chooses whether the connection gets replies."),
    row("client|setinfo", Local(Local::ClientSetInfo), 4, NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Connection, "7.2.0", "Notes the name or version of the client library."),
    row("client|setname", Local(Local::ClientSetName), 3, NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Connection, "2.6.9", "Names the connection."),
    row("client|unpause", Local(Local::ClientUnpause), 2, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Connection, "6.2.0", "Lets paused clients go on."),
    row("command", Local(Local::Command), -1, LOADING | STALE, (0, 0, 0), Group::Server, "2.8.13", "Describes all commands."),
    row("command|count", Local(Local::CommandCount), 2, LOADING | STALE, (0, 0, 0), Group::Server, "2.8.13", "Returns the number of commands."),
    row("command|docs", Local(Local::CommandDocs), -2, LOADING | STALE, (0, 0, 0), Group::Server, "7.0.0", "Documents commands."),
    row("command|getkeys", Local(Local::CommandGetKeys), -3, LOADING | STALE, (0, 0, 0), Group::Server, "2.8.13", "Returns the keys that a command names."),
    row("command|getkeysandflags", Local(Local::CommandGetKeysAndFlags), -3, LOADING | STALE, (0, 0, 0), Group::Server, "7.0.0", "Returns the keys that a command names and what it does with them."),
    row("command|help", Local(Local::CommandHelp), 2, LOADING | STALE, (0, 0, 0), Group::Server, "5.0.0", "Lists the subcommands."),
    row("command|info", Local(Local::CommandInfo), -2, LOADING | STALE, (0, 0, 0), Group::Server, "2.8.13", "Describes some commands."),
    row("command|list", Local(Local::CommandList), -2, LOADING | STALE, (0, 0, 0), Group::Server, "7.0.0", "Lists the names of commands."),
    row("config", Container, -2, NONE, (0, 0, 0), Group::Server, "2.0.0", "Commands about the configuration."),
    row("config|get", Local(Local::ConfigGet), -3, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Server, "2.0.0", "Returns settings by pattern."),
    row("config|help", Local(Local::ConfigHelp), 2, LOADING | STALE, (0, 0, 0), Group::Server, "5.0.0", "Lists the subcommands."),
    row("config|resetstat", Local(Local::ConfigResetStat), 2, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Server, "2.0.0", "Begins to count anew."),
    row("config|rewrite", Local(Local::ConfigRewrite), 2, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Server, "2.8.0", "Writes the configuration back to its file."),
    row("config|set", Local(Local::ConfigSet), -4, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Server, "2.0.0", "Changes settings."),
    row("copy", Write(Write::Copy), -3, WRITE | DENYOOM, (1, 2, 1), Group::Generic, "6.2.0", "Copies a value to another key."),
    row("dbsize", Walk(Walk::DbSize), 1, READONLY | FAST, (0, 0, 0), Group::Server, "1.0.0", "Returns the number of keys."),
    row("debug", Walk(Walk::Debug), -2, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Server, "1.0.0", "Tests the server, where that is allowed."),
    row("decr", Write(Write::Decr), 2, WRITE | DENYOOM | FAST, (1, 1, 1), Group::String, "1.0.0", "Subtracts one from an integer."),
    row("decrby", Write(Write::DecrBy), 3, WRITE | DENYOOM | FAST, (1, 1, 1), Group::String, "1.0.0", "Subtracts from an integer."),
    row("del", Write(Write::Del), -2, WRITE, (1, -1, 1), Group::Generic, "1.0.0", "Removes keys."),
    row("discard", Multi(Multi::Discard), 1, NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY, (0, 0, 0), Group::Transactions, "2.0.0", "Forgets the commands since MULTI."),
    row("dump", Read(Read::Dump), 2, READONLY, (1, 1, 1), Group::Generic, "2.6.0", "Returns a value in the form that RESTORE takes."),
    row("echo", Local(Local::Echo), 2, LOADING | STALE | FAST, (0, 0, 0), Group::Connection, "1.0.0", "Returns its argument."),
    row("eval", Eval(Eval::Eval), -3, NOSCRIPT | STALE, (0, 0, 0), Group::Scripting, "2.6.0", "Runs a script."),
    row("eval_ro", Eval(Eval::EvalRo), -3, NOSCRIPT | STALE | READONLY, (0, 0, 0), Group::Scripting, "7.0.0", "Runs a script that only reads."),
    row("evalsha", Eval(Eval::EvalSha), -3, NOSCRIPT | STALE, (0, 0, 0), Group::Scripting, "2.6.0", "Runs a script by its SHA-1."),
    row("evalsha_ro", Eval(Eval::EvalShaRo), -3, NOSCRIPT | STALE | READONLY, (0, 0, 0), Group::Scripting, "7.0.0", "Runs a script that only reads by its SHA-1."),
    row("exec", Multi(Multi::Exec), 1, NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Transactions, "1.2.0", "Runs the commands since MULTI at one moment."),
    row("exists", Read(Read::Exists), -2, READONLY | FAST, (1, -1, 1), Group::Generic, "1.0.0", "Counts those of its keys that are there."),
    row("expire", Write(Write::Expire), -3, WRITE | FAST, (1, 1, 1), Group::Generic, "1.0.0", "Ends a key after seconds."),
    row("expireat", Write(Write::ExpireAt), -3, WRITE | FAST, (1, 1, 1), Group::Generic, "1.2.0", "Ends a key at a Unix time in seconds."),
    row("expiretime", Read(Read::ExpireTime), 2, READONLY | FAST, (1, 1, 1), Group::Generic, "7.0.0", "Returns when a key ends as a Unix time in seconds."),
    row("fcall", Function(Function::Call), -3, NOSCRIPT | STALE, (0, 0, 0), Group::Scripting, "7.0.0", "Calls a function."),
    row("fcall_ro", Function(Function::CallRo), -3, NOSCRIPT | STALE | READONLY, (0, 0, 0), Group::Scripting, "7.0.0", "Calls a function that only reads."),
    row("flushall", Walk(Walk::FlushAll), -1, WRITE, (0, 0, 0), Group::Server, "1.0.0", "Removes all keys of all databases."),
    row("flushdb", Walk(Walk::FlushDb), -1, WRITE, (0, 0, 0), Group::Server, "1.0.0", "Removes all keys of the database."),
    row("function", Container, -2, NONE, (0, 0, 0), Group::Scripting, "7.0.0", "Commands about functions."),
    row("function|delete", Function(Function::Delete), 3, WRITE | NOSCRIPT, (0, 0, 0), Group::Scripting, "7.0.0", "Removes a library."),
    row("function|dump", Function(Function::Dump), 2, NOSCRIPT, (0, 0, 0), Group::Scripting, "7.0.0", "Returns all libraries in the form that FUNCTION RESTORE takes."),
    row("function|flush", Function(Function::Flush), -2, WRITE | NOSCRIPT, (0, 0, 0), Group::Scripting, "7.0.0", "Removes all libraries."),
    row("function|help", Local(Local::FunctionHelp), 2, LOADING | STALE, (0, 0, 0), Group::Scripting, "7.0.0", "Lists the subcommands."),
    row("function|kill", Local(Local::ScriptKill), 2, NOSCRIPT | ALLOW_BUSY, (0, 0, 0), Group::Scripting, "7.0.0", "Ends the scripts and functions that run."),
    row("function|list", Function(Function::List), -2, NOSCRIPT, (0, 0, 0), Group::Scripting, "7.0.0", "Describes libraries and their functions."),
    row("function|load", Function(Function::Load), -3, WRITE | DENYOOM | NOSCRIPT, (0, 0, 0), Group::Scripting, "7.0.0", "Adds a library."),
    row("function|restore", Function(Function::Restore), -3, WRITE | DENYOOM | NOSCRIPT, (0, 0, 0), Group::Scripting, "7.0.0", "Adds the libraries that FUNCTION DUMP returned."),
    row("function|stats", Function(Function::Stats), 2, NOSCRIPT | ALLOW_BUSY, (0, 0, 0), Group::Scripting, "7.0.0", "Tells what runs, and counts libraries and functions."),
    row("get", Read(Read::Get), 2, READONLY | FAST, (1, 1, 1), Group::String, "1.0.0", "Returns a string."),
    row("getbit", Bits(BitRead::Get), 3, READONLY | FAST, (1, 1, 1), Group::Bitmap, "2.2.0", "Returns a bit."),
    row("getdel", Write(Write::GetDel), 2, WRITE | FAST, (1, 1, 1), Group::String, "6.2.0", "Returns a string and removes its key."),
    row("getex", Write(Write::GetEx), -2, WRITE | FAST, (1, 1, 1), Group::String, "6.2.0", "Returns a string and changes when its key ends."),
    row("getrange", Read(Read::GetRange), 4, READONLY, (1, 1, 1), Group::String, "2.4.0", "Returns part of a string."),
    row("getset", Write(Write::GetSet), 3, WRITE | DENYOOM | FAST, (1, 1, 1), Group::String, "1.0.0", "Sets a string and returns the old one."),
    row("hdel", Write(Write::HDel), -3, WRITE | FAST, (1, 1, 1), Group::Hash, "2.0.0", "Removes fields."),
    row("hello", Local(Local::Hello), -1, NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY, (0, 0, 0), Group::Connection, "6.0.0", "Chooses the protocol and describes the server."),
    row("hexists", Hash(HashRead::Exists), 3, READONLY | FAST, (1, 1, 1), Group::Hash, "2.0.0", "Tells whether a field is there."),
    row("hget", Hash(HashRead::Get), 3, READONLY | FAST, (1, 1, 1), Group::Hash, "2.0.0", "Returns a field's value."),
    row("hgetall", Hash(HashRead::GetAll), 2, READONLY, (1, 1, 1), Group::Hash, "2.0.0", "Returns all fields with their values."),
    row("hincrby", Write(Write::HIncrBy), 4, WRITE | DENYOOM | FAST, (1, 1, 1), Group::Hash, "2.0.0", "Adds to a field's integer."),
    row("hincrbyfloat", Write(Write::HIncrByFloat), 4, WRITE | DENYOOM | FAST, (1, 1, 1), Group::Hash, "2.6.0", "Adds to a field's number with decimals."),
    row("hkeys", Hash(HashRead::Keys), 2, READONLY, (1, 1, 1), Group::Hash, "2.0.0", "Returns all fields."),
    row("hlen", Hash(HashRead::Len), 2, READONLY | FAST, (1, 1, 1), Group::Hash, "2.0.0", "Counts the fields."),
    row("hmget", Hash(HashRead::MGet), -3, READONLY | FAST, (1, 1, 1), Group::Hash, "2.0.0", "Returns the values of several fields."),
    row("hmset", Write(Write::HMSet), -4, WRITE | DENYOOM | FAST, (1, 1, 1), Group::Hash, "2.0.0", "Sets fields."),
    row("host:", CloseSilently, -1, LOADING | STALE, (0, 0, 0), Group::Server, "1.0.0", "Closes the connection of a web browser."),
    row("hrandfield", Hash(HashRead::RandField), -2, READONLY, (1, 1, 1), Group::Hash, "6.2.0", "Returns some fields."),
    row("hscan", Hash(HashRead::Scan), -3, READONLY, (1, 1, 1), Group::Hash, "2.8.0", "Returns some fields and where to go on."),
    row("hset", Write(Write::HSet), -4, WRITE | DENYOOM | FAST, (1, 1, 1), Group::Hash, "2.0.0", "Sets fields and counts the new ones."),
    row("hsetnx", Write(Write::HSetNx), 4, WRITE | DENYOOM | FAST, (1, 1, 1), Group::Hash, "2.0.0", "Sets a field that is not there."),
    row("hstrlen", Hash(HashRead::StrLen), 3, READONLY | FAST, (1, 1, 1), Group::Hash, "3.2.0", "Returns the length of a field's value."),
    row("hvals", Hash(HashRead::Vals), 2, READONLY, (1, 1, 1), Group::Hash, "2.0.0", "Returns the values of all fields."),
    row("incr", Write(Write::Incr), 2, WRITE | DENYOOM | FAST, (1, 1, 1), Group::String, "1.0.0", "Adds one to an integer."),
    row("incrby", Write(Write::IncrBy), 3, WRITE | DENYOOM | FAST, (1, 1, 1), Group::String, "1.0.0", "Adds to an integer."),
    row("incrbyfloat", Write(Write::IncrByFloat), 3, WRITE | DENYOOM | FAST, (1, 1, 1), Group::String, "2.6.0", "Adds to a number with decimals."),
    row("info", Walk(Walk::Info), -1, LOADING | STALE, (0, 0, 0), Group::Server, "1.0.0", "Describes the server in numbers."),
    row("keys", Walk(Walk::Keys), 2, READONLY, (0, 0, 0), Group::Generic, "1.0.0", "Returns all keys that match a pattern."),
    row("latency", Container, -2, NONE, (0, 0, 0), Group::Server, "2.8.13", "Commands about times."),
    row("latency|doctor", Local(Local::LatencyDoctor), 2, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Server, "2.8.13", "Explains what took long."),
    row("latency|help", Local(Local::LatencyHelp), 2, LOADING | STALE, (0, 0, 0), Group::Server, "2.8.13", "Lists the subcommands."),
    row("latency|histogram", Local(Local::LatencyHistogram), -2, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Server, "7.0.0", "Returns how the times of commands are spread."),
    row("latency|history", Local(Local::LatencyHistory), 3, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Server, "2.8.13", "Returns the times of an event."),
    row("latency|latest", Local(Local::LatencyLatest), 2, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Server, "2.8.13", "Returns the last time of every event."),
    row("latency|reset", Local(Local::LatencyReset), -2, ADMIN | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::Server, "2.8.13", "Forgets events."),
    row("lcs", Walk(Walk::Lcs), -3, READONLY, (1, 2, 1), Group::String, "7.0.0", "Returns what two strings have in common."),
    row("memory", Container, -2, NONE, (0, 0, 0), Group::Server, "4.0.0", "Commands about memory."),
    row("memory|help", Local(Local::MemoryHelp), 2, LOADING | STALE, (0, 0, 0), Group::Server, "4.0.0", "Lists the subcommands."),
    row("memory|usage", Object(ObjectRead::MemoryUsage), -3, READONLY, (2, 2, 1), Group::Server, "4.0.0", "Returns how many bytes a value takes."),
    row("mget", Read(Read::MGet), -2, READONLY | FAST, (1, -1, 1), Group::String, "1.0.0", "Returns several strings."),
    row("monitor", Local(Local::Monitor), 1, ADMIN | NOSCRIPT | LOADING | STALE | NO_MULTI, (0, 0, 0), Group::Server, "1.0.0", "Shows the commands of all clients as they run."),
    row("move", Write(Write::Move), 3, WRITE | FAST, (1, 1, 1), Group::Generic, "1.0.0", "Moves a key to another database."),
    row("mset", Write(Write::MSet), -3, WRITE | DENYOOM, (1, -1, 2), Group::String, "1.0.1", "Sets several strings."),
    row("msetnx", Write(Write::MSetNx), -3, WRITE | DENYOOM, (1, -1, 2), Group::String, "1.0.1", "Sets several strings if none of their keys is there."),
    row("multi", Multi(Multi::Multi), 1, NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY, (0, 0, 0), Group::Transactions, "1.2.0", "Keeps the commands that follow until EXEC."),
    row("object", Container, -2, NONE, (0, 0, 0), Group::Generic, "2.2.3", "Commands about how values are kept."),
    row("object|encoding", Object(ObjectRead::Encoding), 3, READONLY, (2, 2, 1), Group::Generic, "2.2.3", "Returns how a value is encoded."),
    row("object|freq", Object(ObjectRead::Freq), 3, READONLY, (2, 2, 1), Group::Generic, "4.0.0", "Returns how often a value is used."),
    row("object|help", Local(Local::ObjectHelp), 2, LOADING | STALE, (0, 0, 0), Group::Generic, "6.2.0", "Lists the subcommands."),
    row("object|idletime", Object(ObjectRead::IdleTime), 3, READONLY, (2, 2, 1), Group::Generic, "2.2.3", "Returns how long a value was not used."),
    row("object|refcount", Object(ObjectRead::RefCount), 3, READONLY, (2, 2, 1), Group::Generic, "2.2.3", "Returns how many share a value."),
    row("persist", Write(Write::Persist), 2, WRITE | FAST, (1, 1, 1), Group::Generic, "2.2.0", "Keeps a key from ending."),
    row("pexpire", Write(Write::PExpire), -3, WRITE | FAST, (1, 1, 1), Group::Generic, "2.6.0", "Ends a key after milliseconds."),
    row("pexpireat", Write(Write::PExpireAt), -3, WRITE | FAST, (1, 1, 1), Group::Generic, "2.6.0", "Ends a key at a Unix time in milliseconds."),
    row("pexpiretime", Read(Read::PExpireTime), 2, READONLY | FAST, (1, 1, 1), Group::Generic, "7.0.0", "Returns when a key ends as a Unix time in milliseconds."),
    row("ping", Local(Local::Ping), -1, FAST, (0, 0, 0), Group::Connection, "1.0.0", "Answers PONG, or what it was sent."),
    row("post", CloseSilently, -1, LOADING | STALE, (0, 0, 0), Group::Server, "1.0.0", "Closes the connection of a web browser."),
    row("psetex", Write(Write::PSetEx), 4, WRITE | DENYOOM, (1, 1, 1), Group::String, "2.6.0", "Sets a string that ends after milliseconds."),
    row("psubscribe", Local(Local::Subscribe(Pattern)), -2, PUBSUB | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::PubSub, "2.0.0", "Listens to all channels that patterns match."),
    row("pttl", Read(Read::PTtl), 2, READONLY | FAST, (1, 1, 1), Group::Generic, "2.6.0", "Returns how many milliseconds a key has left."),
    row("publish", Local(Local::Publish(Channel)), 3, PUBSUB | LOADING | STALE | FAST, (0, 0, 0), Group::PubSub, "2.0.0", "Sends a message to a channel."),
    row("pubsub", Container, -2, NONE, (0, 0, 0), Group::PubSub, "2.8.0", "Commands about channels."),
    row("pubsub|channels", Local(Local::PubSubChannels(Channel)), -2, PUBSUB | LOADING | STALE, (0, 0, 0), Group::PubSub, "2.8.0", "Lists channels that somebody listens to."),
    row("pubsub|help", Local(Local::PubSubHelp), 2, LOADING | STALE, (0, 0, 0), Group::PubSub, "6.2.0", "Lists the subcommands."),
    row("pubsub|numpat", Local(Local::PubSubNumPat), 2, PUBSUB | LOADING | STALE, (0, 0, 0), Group::PubSub, "2.8.0", "Counts the patterns that somebody listens to."),
    row("pubsub|numsub", Local(Local::PubSubNumSub(Channel)), -2, PUBSUB | LOADING | STALE, (0, 0, 0), Group::PubSub, "2.8.0", "Counts the listeners of channels."),
    row("pubsub|shardchannels", Local(Local::PubSubChannels(Shard)), -2, PUBSUB | LOADING | STALE, (0, 0, 0), Group::PubSub, "7.0.0", "Lists shard channels that somebody listens to."),
    row("pubsub|shardnumsub", Local(Local::PubSubNumSub(Shard)), -2, PUBSUB | LOADING | STALE, (0, 0, 0), Group::PubSub, "7.0.0", "Counts the listeners of shard channels."),
    row("punsubscribe", Local(Local::Unsubscribe(Pattern)), -1, PUBSUB | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::PubSub, "2.0.0", "Listens no more to what patterns match."),
    row("quit", Local(Local::Quit), -1, NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY, (0, 0, 0), Group::Connection, "1.0.0", "Closes the connection after the replies."),
    row("randomkey", Walk(Walk::RandomKey), 1, READONLY, (0, 0, 0), Group::Generic, "1.0.0", "Returns some key."),
    row("rename", Write(Write::Rename), 3, WRITE, (1, 2, 1), Group::Generic, "1.0.0", "Gives a value another name."),
    row("renamenx", Write(Write::RenameNx), 3, WRITE | FAST, (1, 2, 1), Group::Generic, "1.0.0", "Gives a value another name that is not taken."),
    row("reset", Local(Local::Reset), 1, NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY, (0, 0, 0), Group::Connection, "6.2.0", "Makes the connection as good as new."),
    row("restore", Write(Write::Restore), -4, WRITE | DENYOOM, (1, 1, 1), Group::Generic, "2.6.0", "Makes a value of what DUMP returned."),
    row("scan", Walk(Walk::Scan), -2, READONLY, (0, 0, 0), Group::Generic, "2.8.0", "Returns some keys and where to go on."),
    row("script", Container, -2, NONE, (0, 0, 0), Group::Scripting, "2.6.0", "Commands about scripts."),
    row("script|exists", Local(Local::ScriptExists), -3, NOSCRIPT, (0, 0, 0), Group::Scripting, "2.6.0", "Tells which scripts are known."),
    row("script|flush", Local(Local::ScriptFlush), -2, NOSCRIPT, (0, 0, 0), Group::Scripting, "2.6.0", "Forgets all scripts."),
    row("script|help", Local(Local::ScriptHelp), 2, LOADING | STALE, (0, 0, 0), Group::Scripting, "5.0.0", "Lists the subcommands."),
    row("script|kill", Local(Local::ScriptKill), 2, NOSCRIPT | ALLOW_BUSY, (0, 0, 0), Group::Scripting, "2.6.0", "Ends the scripts that run."),
    row("script|load", Local(Local::ScriptLoad), 3, NOSCRIPT | STALE, (0, 0, 0), Group::Scripting, "2.6.0", "Keeps a script and returns its SHA-1."),
    row("select", Local(Local::Select), 2, LOADING | STALE | FAST, (0, 0, 0), Group::Connection, "1.0.0", "Chooses the database."),
    row("set", Write(Write::Set), -3, WRITE | DENYOOM, (1, 1, 1), Group::String, "1.0.0", "Sets a string."),
    row("setbit", Write(Write::SetBit), 4, WRITE | DENYOOM, (1, 1, 1), Group::Bitmap, "2.2.0", "Sets a bit and returns the old one."),
    row("setex", Write(Write::SetEx), 4, WRITE | DENYOOM, (1, 1, 1), Group::String, "2.0.0", "Sets a string that ends after seconds."),
    row("setnx", Write(Write::SetNx), 3, WRITE | DENYOOM | FAST, (1, 1, 1), Group::String, "1.0.0", "Sets a string whose key is not there."),
    row("setrange", Write(Write::SetRange), 4, WRITE | DENYOOM, (1, 1, 1), Group::String, "2.2.0", "Overwrites part of a string."),
    row("slowlog", Container, -2, NONE, (0, 0, 0), Group::Server, "2.2.12", "Commands about what took long."),
    row("slowlog|get", Local(Local::SlowlogGet), -2, ADMIN | LOADING | STALE, (0, 0, 0), Group::Server, "2.2.12", "Returns commands that took long."),
    row("slowlog|help", Local(Local::SlowlogHelp), 2, LOADING | STALE, (0, 0, 0), Group::Server, "6.2.0", "Lists the subcommands."),
    row("slowlog|len", Local(Local::SlowlogLen), 2, ADMIN | LOADING | STALE, (0, 0, 0), Group::Server, "2.2.12", "Counts commands that took long."),
    row("slowlog|reset", Local(Local::SlowlogReset), 2, ADMIN | LOADING | STALE, (0, 0, 0), Group::Server, "2.2.12", "Forgets what took long."),
    row("spublish", Local(Local::Publish(Shard)), 3, PUBSUB | LOADING | STALE | FAST, (0, 0, 0), Group::PubSub, "7.0.0", "Sends a message to a shard channel."),
    row("ssubscribe", Local(Local::Subscribe(Shard)), -2, PUBSUB | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::PubSub, "7.0.0", "Listens to shard channels."),
    row("strlen", Read(Read::Strlen), 2, READONLY | FAST, (1, 1, 1), Group::String, "2.2.0", "Returns the length of a string."),
    row("subscribe", Local(Local::Subscribe(Channel)), -2, PUBSUB | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::PubSub, "2.0.0", "Listens to channels."),
    row("substr", Read(Read::GetRange), 4, READONLY, (1, 1, 1), Group::String, "1.0.0", "Returns part of a string."),
    row("sunsubscribe", Local(Local::Unsubscribe(Shard)), -1, PUBSUB | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::PubSub, "7.0.0", "Listens no more to shard channels."),
    row("time", Local(Local::Time), 1, LOADING | STALE | FAST, (0, 0, 0), Group::Server, "2.6.0", "Returns the time of day."),
    row("touch", Read(Read::Touch), -2, READONLY | FAST, (1, -1, 1), Group::Generic, "3.2.1", "Counts those of its keys that are there."),
    row("ttl", Read(Read::Ttl), 2, READONLY | FAST, (1, 1, 1), Group::Generic, "1.0.0", "Returns how many seconds a key has left."),
    row("type", Read(Read::Type), 2, READONLY | FAST, (1, 1, 1), Group::Generic, "1.0.0", "Returns what kind of value a key has."),
    row("unlink", Write(Write::Del), -2, WRITE | FAST, (1, -1, 1), Group::Generic, "4.0.0", "Removes keys."),
    row("unsubscribe", Local(Local::Unsubscribe(Channel)), -1, PUBSUB | NOSCRIPT | LOADING | STALE, (0, 0, 0), Group::PubSub, "2.0.0", "Listens no more to channels."),
    row("unwatch", Multi(Multi::Unwatch), 1, NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY, (0, 0, 0), Group::Transactions, "2.2.0", "Watches no key any more."),
    row("watch", Multi(Multi::Watch), -2, NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY, (1, -1, 1), Group::Transactions, "2.2.0", "Keeps EXEC from running if a key changes until then."),
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

    /// Whether its first argument names a command of its own.
    pub fn has_subcommands(&self) -> bool {
        self.run == Container || self.run == Run::Local(Local::Command)
    }

    /// Whether it may be run before the client has authenticated.
    pub fn needs_no_auth(&self) -> bool {
        self.flags & NO_AUTH != 0
    }

    /// Whether it is run while a script keeps others from running.
    pub fn runs_while_busy(&self) -> bool {
        self.flags & ALLOW_BUSY != 0
    }

    /// Whether it may need more memory.
    pub fn may_grow(&self) -> bool {
        self.flags & DENYOOM != 0
    }

    /// Whether it is for who runs the server.
    pub fn is_administrative(&self) -> bool {
        self.flags & ADMIN != 0
    }

    /// Whether it takes constant time, or nearly so.
    pub fn is_fast(&self) -> bool {
        self.flags & FAST != 0
    }

    /// Whether it speaks to other clients.
    pub fn publishes(&self) -> bool {
        matches!(self.run, Run::Local(Local::Publish(_)))
    }

    /// Whether its reply is sent to who wants none: what tells of a subscription
    /// is a message, and CLIENT REPLY speaks for itself.
    pub fn speaks_always(&self) -> bool {
        use Local::{ClientReply, Subscribe, Unsubscribe};
        matches!(self.run, Run::Local(ClientReply | Subscribe(_) | Unsubscribe(_)))
    }

    /// Whether its arguments may hold a password.
    pub fn is_secret(&self) -> bool {
        matches!(self.run, Run::Local(Local::Auth | Local::Hello | Local::AclSetUser))
    }

    /// Whether scripts may not run it.
    pub fn is_kept_from_scripts(&self) -> bool {
        self.flags & NOSCRIPT != 0
    }

    /// Whether MULTI keeps it from running later.
    pub fn is_not_queued(&self) -> bool {
        self.flags & NO_MULTI != 0
    }

    /// Whether it may change keys.
    pub fn is_write(&self) -> bool {
        self.flags & WRITE != 0
    }

    /// The flags' names as COMMAND gives them.
    pub fn flag_names(&self) -> impl Iterator<Item = &'static str> {
        FLAGS.iter().filter(|(flag, _)| self.flags & flag != 0).map(|(_, name)| *name)
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
}
