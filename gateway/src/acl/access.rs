//! What a command does with a key that it names.

use crate::command::Command;
use crate::command::is;
use crate::request::Arguments;

/// What a user must be allowed to do with a key; with neither, to know of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Access {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

const KNOWS: Access = Access { reads: false, writes: false };
const READS: Access = Access { reads: true, writes: false };
const WRITES: Access = Access { reads: false, writes: true };
const BOTH: Access = Access { reads: true, writes: true };

impl Access {
    /// What `command` does with the key at `place` of its arguments, by the flags
    /// that Redis has for it.
    pub(crate) fn of(command: &Command, arguments: Arguments<'_>, place: usize) -> Self {
        match command.name {
            "set" if !(3..arguments.len()).any(|at| is(arguments.get(at), "get")) => WRITES,
            "bitfield" if only_gets(arguments) => READS,
            _ => Self::usual(command, command.is_first_key(place)),
        }
    }

    /// What it does whatever its other arguments are, at the most.
    pub(crate) fn usual(command: &Command, is_first: bool) -> Self {
        match command.name {
            "exists" | "touch" | "type" | "strlen" | "hlen" | "hstrlen" | "hexists" | "watch"
            | "memory|usage" => KNOWS,
            name if name.starts_with("object|") => KNOWS,
            "copy" if is_first => READS,
            "copy" => WRITES,
            "rename" | "renamenx" if is_first => BOTH,
            "rename" | "renamenx" => WRITES,
            "bitop" if is_first => WRITES,
            "bitop" => READS,
            "set" | "getset" | "getdel" | "getex" | "incr" | "decr" | "incrby" | "decrby"
            | "incrbyfloat" | "hincrby" | "hincrbyfloat" | "setbit" | "bitfield" | "move" => BOTH,
            // Nobody knows what a script or a function will do.
            "eval" | "evalsha" | "fcall" => BOTH,
            _ if command.is_write() => WRITES,
            _ => READS,
        }
    }

    /// Whether who may do `self` may do `wanted`.
    pub(crate) fn covers(self, wanted: Self) -> bool {
        (self.reads || !wanted.reads) && (self.writes || !wanted.writes)
    }
}

/// Whether BITFIELD is asked for nothing but GET encoding offset.
fn only_gets(arguments: Arguments<'_>) -> bool {
    let mut words = arguments.from(2);
    while let Some(word) = words.next() {
        if !is(word, "get") || words.next().and(words.next()).is_none() {
            return false;
        }
    }
    true
}
