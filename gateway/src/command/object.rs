//! OBJECT and MEMORY: how a value is kept.

use fusee::{Entry, Kind};
use fusee_layout::object_bytes;

use super::{NOT_INTEGER, SYNTAX, hash, integer, is, unreadable};
use crate::packed;
use crate::reply::Reply;
use crate::request::Arguments;

/// What is asked of a value.
#[expect(missing_docs, reason = "each is the subcommand of its name")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectRead {
    Encoding,
    Freq,
    IdleTime,
    RefCount,
    MemoryUsage,
}

/// A slot word of the index.
const SLOT_BYTES: usize = 8;
/// The longest string that Redis keeps beside its header.
const EMBEDDED_BYTES_MAX: usize = 44;
/// Redis's hash-max-listpack-value.
const COMPACT_VALUE_BYTES_MAX: usize = 64;

/// Answers about the entry of a key.
pub(super) fn answer(
    read: ObjectRead,
    arguments: Arguments<'_>,
    entry: Option<Entry<'_>>,
    reply: &mut Reply,
) {
    if read == ObjectRead::MemoryUsage && !takes_samples(arguments, reply) {
        return;
    }
    let Some(entry) = entry else {
        return reply.null();
    };
    match read {
        ObjectRead::Encoding => match encoding(entry.kind, entry.value) {
            Ok(name) => reply.bulk(name.as_bytes()),
            Err(packed::Unreadable) => unreadable(reply),
        },
        ObjectRead::RefCount => reply.integer(1),
        ObjectRead::Freq => reply.error(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note \
             that when switching between policies at runtime LRU and LFU data will take some time to \
             adjust.",
        ),
        ObjectRead::IdleTime => {
            reply.error("ERR idle time is not tracked: gateways do not note who reads a key");
        }
        ObjectRead::MemoryUsage => {
            let expires = entry.expires_at_ms.is_some();
            let bytes = object_bytes(arguments.get(2).len(), entry.value.len(), expires);
            reply.integer((bytes + SLOT_BYTES) as i64);
        }
    }
}

/// MEMORY USAGE key [SAMPLES count]: nothing is estimated, so the count only has
/// to be one.
fn takes_samples(arguments: Arguments<'_>, reply: &mut Reply) -> bool {
    let error = match arguments.len() {
        3 => return true,
        5 if is(arguments.get(3), "samples") => match integer(arguments.get(4)) {
            Some(0..) => return true,
            Some(_) => SYNTAX,
            None => NOT_INTEGER,
        },
        _ => SYNTAX,
    };
    reply.error(error);
    false
}

/// The name of the encoding that Redis would have chosen by its default limits:
/// what programs look at is whether a value is of the compact kind.
pub(super) fn encoding(kind: Kind, value: &[u8]) -> Result<&'static str, packed::Unreadable> {
    let compact = |names: [&'static str; 2]| {
        let mut items = packed::items(value)?;
        let is_long =
            |item: Result<&[u8], _>| item.map(|item| item.len() > COMPACT_VALUE_BYTES_MAX);
        let many = packed::count(value)? > 2 * hash::COMPACT_FIELDS_MAX;
        let any = items.try_fold(many, |any, item| is_long(item).map(|long| any || long))?;
        Ok(names[usize::from(any)])
    };
    match kind {
        Kind::String if integer(value).is_some() => Ok("int"),
        Kind::String if value.len() <= EMBEDDED_BYTES_MAX => Ok("embstr"),
        Kind::String => Ok("raw"),
        Kind::Hash | Kind::Set => compact(["listpack", "hashtable"]),
        Kind::List => compact(["listpack", "quicklist"]),
        Kind::Later => Err(packed::Unreadable),
    }
}
