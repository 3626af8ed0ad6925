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
    pub(super) fn of(command: &Command, arguments: Arguments<'_>, place: usize) -> Self {
        let is_first = place == usize::from(command.keys.0.unsigned_abs());
        match command.name {
            "exists" | "touch" | "type" | "strlen" | "hlen" | "hstrlen" | "hexists"
            | "memory|usage" => KNOWS,
            name if name.starts_with("object|") => KNOWS,
            "copy" if is_first => READS,
            "copy" => WRITES,
            "rename" | "renamenx" => {
                if is_first {
                    BOTH
                } else {
                    WRITES
                }
            }
            "bitop" => {
                if is_first {
                    WRITES
                } else {
                    READS
                }
            }
            "set" if arguments.from(3).any(|option| is(option, "get")) => BOTH,
            "getset" | "getdel" | "getex" | "incr" | "decr" | "incrby" | "decrby"
            | "incrbyfloat" | "hincrby" | "hincrbyfloat" | "setbit" | "bitfield" => BOTH,
            "move" => BOTH,
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
