//! Commands: what each is (the table), how its arguments are read, and what it
//! does with the keyspace.
//!
//! There are four ways to run one. What only reads is gathered, so that a
//! pipeline of reads is one call of the keyspace. What writes runs one after
//! another in the connection's order. What concerns only the connection or the
//! server needs no keyspace at all, and what looks at many keys walks it.

use std::sync::Arc;

use fusee::{Decision, Error, Kind};

use crate::keyspace::{InTransaction, Keyspace};
use crate::notify;
use crate::reply::Reply;
use crate::request::Arguments;
use crate::shared::Shared;

use crate::channels::Way;
use bits::BitRead;
use eval::Eval;
use function::Function;
use hash::HashRead;
use multi::Multi;
use object::ObjectRead;

pub(crate) mod acl;
pub mod bits;
mod call;
pub(crate) mod client;
pub(crate) mod config;
pub(crate) mod connection;
pub(crate) mod debug;
pub(crate) mod docs;
pub(crate) mod dump;
pub mod eval;
pub(crate) mod expire;
pub(crate) mod float;
pub mod function;
pub(crate) mod glob;
pub(crate) mod guard;
pub mod hash;
pub(crate) mod info;
pub(crate) mod key;
pub(crate) mod lcs;
pub mod multi;
pub(crate) mod number;
pub mod object;
pub(crate) mod pubsub;
pub(crate) mod read;
pub(crate) mod rename;
pub(crate) mod server;
pub(crate) mod slowlog;
pub(crate) mod string;
pub mod table;

pub(crate) use crate::request::integer;
pub(crate) use call::{Call, Owned};
pub use table::{Command, CommandId};

pub(crate) const SYNTAX: &str = "ERR syntax error";
pub(crate) const NOT_INTEGER: &str = "ERR value is not an integer or out of range";
pub(crate) const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";

/// How a command is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Run {
    /// Only reads keys that it names: gathered with its neighbours.
    Read(Read),
    /// Changes keys that it names.
    Write(Write),
    /// Looks at keys that it does not name, or at all.
    Walk(Walk),
    /// Concerns the connection or the server.
    Local(Local),
    /// Keeps commands and runs them together.
    Multi(Multi),
    /// Runs a script.
    Eval(Eval),
    /// Calls a function, or is about them.
    Function(Function),
    /// Only holds subcommands; its name alone is not enough.
    Container,
    /// Redis closes the connection of whoever sends this: a web browser that
    /// was led here.
    CloseSilently,
}

/// Commands that only read the keys they name.
#[expect(missing_docs, reason = "each is the command of its name")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read {
    Dump,
    Get,
    GetRange,
    Strlen,
    MGet,
    Exists,
    Touch,
    Type,
    Ttl,
    PTtl,
    ExpireTime,
    PExpireTime,
    Hash(HashRead),
    Bits(BitRead),
    Object(ObjectRead),
}

/// Commands that change the keys they name.
#[expect(missing_docs, reason = "each is the command of its name")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Write {
    Set,
    SetNx,
    SetEx,
    PSetEx,
    GetSet,
    GetDel,
    GetEx,
    Del,
    Append,
    SetRange,
    MSet,
    Incr,
    Decr,
    IncrBy,
    DecrBy,
    IncrByFloat,
    Expire,
    PExpire,
    ExpireAt,
    PExpireAt,
    Persist,
    MSetNx,
    Rename,
    RenameNx,
    Copy,
    Move,
    SetBit,
    BitOp,
    BitField,
    HSet,
    HMSet,
    HSetNx,
    HDel,
    HIncrBy,
    HIncrByFloat,
    Restore,
}

/// Commands that look at keys they do not name.
#[expect(missing_docs, reason = "each is the command of its name")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Walk {
    Scan,
    Keys,
    RandomKey,
    DbSize,
    FlushDb,
    FlushAll,
    Info,
    Lcs,
    Debug,
}

/// Commands that concern the connection or the server.
#[expect(missing_docs, reason = "each is the command of its name")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Local {
    AclCat,
    AclDelUser,
    AclDryRun,
    AclGenPass,
    AclGetUser,
    AclHelp,
    AclList,
    AclLoad,
    AclLog,
    AclSave,
    AclSetUser,
    AclUsers,
    AclWhoAmI,
    Ping,
    Echo,
    Quit,
    Select,
    Auth,
    Hello,
    Reset,
    Time,
    ClientId,
    ClientGetName,
    ClientSetName,
    ClientSetInfo,
    ClientInfo,
    ClientList,
    ClientNoEvict,
    ClientNoTouch,
    ClientKill,
    ClientPause,
    ClientUnpause,
    ClientReply,
    ClientHelp,
    Command,
    CommandCount,
    CommandDocs,
    CommandInfo,
    CommandList,
    CommandGetKeys,
    CommandGetKeysAndFlags,
    CommandHelp,
    ConfigGet,
    ConfigSet,
    ConfigResetStat,
    ConfigRewrite,
    ConfigHelp,
    ObjectHelp,
    MemoryHelp,
    Monitor,
    SlowlogGet,
    SlowlogLen,
    SlowlogReset,
    SlowlogHelp,
    LatencyDoctor,
    LatencyHistogram,
    LatencyHistory,
    LatencyLatest,
    LatencyReset,
    LatencyHelp,
    Publish(Way),
    Subscribe(Way),
    Unsubscribe(Way),
    PubSubChannels(Way),
    PubSubNumSub(Way),
    PubSubNumPat,
    PubSubHelp,
    ScriptExists,
    ScriptFlush,
    ScriptHelp,
    ScriptKill,
    ScriptLoad,
    FunctionHelp,
}

/// Runs a command that writes; one that names several keys in a transaction.
pub(crate) async fn write<K: Keyspace>(write: Write, mut call: Call<'_, K>, shared: &Arc<Shared>) {
    if !names_several(write, call.arguments) {
        call.changes = shared.settings.notified().tell_something().then(Vec::new);
        write_alone(write, &mut call).await;
        if let Some(changes) = call.changes {
            notify::tell(shared, write, &changes);
        }
        return;
    }
    let Call { keyspace, command, arguments, database, reply, .. } = call;
    in_transaction(keyspace, reply, async |keyspace, reply| {
        let call = Call { keyspace, command, arguments, database, reply, changes: None };
        write_within(write, call, shared).await;
    })
    .await;
}

/// Runs a command that writes as part of a transaction.
pub(crate) async fn write_within<K: InTransaction>(
    write: Write,
    mut call: Call<'_, K>,
    shared: &Arc<Shared>,
) {
    let (keyspace, failures) = (call.keyspace, call.reply.failures());
    let mark = names_several(write, call.arguments).then(|| keyspace.mark());
    call.changes = shared.settings.notified().tell_something().then(Vec::new);
    write_alone(write, &mut call).await;
    if call.reply.failures() != failures
        && let Some(mark) = mark
    {
        // All of it or nothing, also where one key is refused.
        return keyspace.rewind(mark);
    }
    if let Some(changes) = call.changes.filter(|changes| !changes.is_empty()) {
        let shared = shared.clone();
        keyspace.afterwards(Box::new(move || notify::tell(&shared, write, &changes)));
    }
}

/// Whether a command touches more than one key.
fn names_several(write: Write, arguments: Arguments<'_>) -> bool {
    match write {
        Write::Rename | Write::RenameNx | Write::Copy | Write::Move => true,
        Write::BitOp | Write::MSetNx => true,
        Write::Del => arguments.len() > 2,
        Write::MSet => arguments.len() > 3,
        _ => false,
    }
}

/// Runs something that replies in a transaction: what it replied to in vain is taken
/// back.
pub(crate) async fn in_transaction<K: Keyspace>(
    keyspace: &K,
    reply: &mut Reply,
    mut run: impl AsyncFnMut(&K::Transaction, &mut Reply),
) {
    let mark = reply.mark();
    let done = keyspace
        .transact(async |keyspace| {
            reply.rewind(mark);
            run(keyspace, reply).await;
            Ok(())
        })
        .await;
    if let Err(error) = done {
        reply.rewind(mark);
        refuse(reply, error);
    }
}

async fn write_alone<K: Keyspace>(write: Write, call: &mut Call<'_, K>) {
    match write {
        Write::Set => string::set(call).await,
        Write::SetNx => string::setnx(call).await,
        Write::SetEx => string::setex(call, 1000).await,
        Write::PSetEx => string::setex(call, 1).await,
        Write::GetSet => string::getset(call).await,
        Write::GetDel => string::getdel(call).await,
        Write::GetEx => string::getex(call).await,
        Write::Append => string::append(call).await,
        Write::SetRange => string::setrange(call).await,
        Write::MSet => string::mset(call).await,
        Write::Del => key::del(call).await,
        Write::Incr => number::add(call, 1).await,
        Write::Decr => number::add(call, -1).await,
        Write::IncrBy => number::incrby(call).await,
        Write::DecrBy => number::decrby(call).await,
        Write::IncrByFloat => number::incrbyfloat(call).await,
        Write::Expire => expire::expire(call, 1000, true).await,
        Write::PExpire => expire::expire(call, 1, true).await,
        Write::ExpireAt => expire::expire(call, 1000, false).await,
        Write::PExpireAt => expire::expire(call, 1, false).await,
        Write::Persist => expire::persist(call).await,
        Write::MSetNx => rename::msetnx(call).await,
        Write::Rename => rename::rename(call, false).await,
        Write::RenameNx => rename::rename(call, true).await,
        Write::Copy => rename::copy(call).await,
        Write::Move => rename::move_to(call).await,
        Write::SetBit => bits::set(call).await,
        Write::BitOp => bits::op(call).await,
        Write::BitField => bits::field::bitfield(call).await,
        Write::HSet => hash::set(call, true).await,
        Write::HMSet => hash::set(call, false).await,
        Write::HSetNx => hash::setnx(call).await,
        Write::HDel => hash::del(call).await,
        Write::HIncrBy => hash::incrby(call).await,
        Write::HIncrByFloat => hash::incrbyfloat(call).await,
        Write::Restore => dump::restore(call).await,
    }
}

/// What is answered to a write in a full pool.
pub(crate) const FULL: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// The error reply for what the store could not do.
#[cold]
pub(crate) fn refuse(reply: &mut Reply, error: Error) {
    match error {
        Error::Full | Error::IndexFull => {
            reply.error(FULL);
        }
        Error::ValueTooLong { .. } => reply.error(TOO_LONG),
        Error::NodeDown { .. } => reply.error_fmt(format_args!(
            "ERR {error}; a write may or may not have been applied, read before trying again"
        )),
        Error::Stalled => reply.error_fmt(format_args!("TRYAGAIN {error}")),
        Error::Conflict { .. } => reply.error_fmt(format_args!(
            "ERR {error}; a write may have been applied, read before trying again"
        )),
        _ => reply.error_fmt(format_args!("ERR {error}")),
    }
}

/// What is answered to a command for another kind of value.
#[cold]
pub(crate) fn wrong_type(reply: &mut Reply) {
    reply.error("WRONGTYPE Operation against a key holding the wrong kind of value");
}

/// What is answered about a value that this version cannot read.
#[cold]
pub(crate) fn unreadable(reply: &mut Reply) {
    reply
        .error("ERR the value is of a format that this gateway does not know: run a later version");
}

/// Replaces a string.
pub(crate) fn replace(expires_at_ms: Option<u64>) -> Decision {
    Decision::Replace { kind: Kind::String, expires_at_ms }
}

/// As much of a client's words as Redis prints in an error: up to a NUL.
pub(crate) fn printed(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Whether a keyword was sent, in whatever case.
pub(crate) fn is(argument: &[u8], keyword: &str) -> bool {
    argument.eq_ignore_ascii_case(keyword.as_bytes())
}
