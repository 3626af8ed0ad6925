//! DUMP and RESTORE: values on their way from and to other servers.

use fusee::{Decision, Entry};

use super::{Call, NOT_INTEGER, SYNTAX, integer, is, wrong_type};
use crate::keyspace::Keyspace;
use crate::rdb::{self, Refused};
use crate::reply::Reply;

/// DUMP key
pub(super) fn dump(entry: Option<Entry<'_>>, reply: &mut Reply) {
    let Some(entry) = entry else {
        return reply.null();
    };
    match rdb::dump(entry.kind, entry.value) {
        Some(payload) => reply.bulk(&payload),
        None => wrong_type(reply),
    }
}

/// What RESTORE is told beside the value.
#[derive(Default)]
struct Options {
    may_replace: bool,
    is_absolute: bool,
}

/// RESTORE key ttl payload [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]
pub(super) async fn restore<K: Keyspace>(call: &mut Call<'_, K>) {
    let Some(options) = options(call) else { return };
    let Some(ttl_ms) = call.integer(2) else { return };
    let payload = call.arguments.get(3);
    let mut value = Vec::new();
    let restored = rdb::restore(payload, &mut value);
    let now_ms = call.keyspace.now_ms();
    let end_ms = match (ttl_ms, options.is_absolute) {
        (0, _) => None,
        (ttl, true) => u64::try_from(ttl).ok(),
        (ttl, false) => u64::try_from(ttl).ok().and_then(|ttl| now_ms.checked_add(ttl)),
    };
    let key = call.key(1);
    call.update(key, |entry, buffer, reply| {
        if entry.is_some() && !options.may_replace {
            reply.error("BUSYKEY Target key name already exists.");
            return Decision::Keep;
        }
        if ttl_ms < 0 || (ttl_ms > 0 && end_ms.is_none()) {
            reply.error("ERR Invalid TTL value, must be >= 0");
            return Decision::Keep;
        }
        let kind = match restored {
            Ok(kind) => kind,
            Err(refused) => {
                refuse(refused, reply);
                return Decision::Keep;
            }
        };
        reply.ok();
        // What has ended is there for nobody; it takes the place of what was.
        if end_ms.is_some_and(|end| end <= now_ms) {
            return Decision::Delete;
        }
        buffer.extend_from_slice(&value);
        Decision::Replace { kind, expires_at_ms: end_ms }
    })
    .await;
}

/// Reads the options; `None` after an error reply.
fn options<K: Keyspace>(call: &mut Call<'_, K>) -> Option<Options> {
    let mut options = Options::default();
    let mut words = call.arguments.from(4);
    while let Some(word) = words.next() {
        if is(word, "replace") {
            options.may_replace = true;
        } else if is(word, "absttl") {
            options.is_absolute = true;
        } else if (is(word, "idletime") || is(word, "freq")) && words.len() >= 1 {
            // Nothing here goes by them, but they have to be right.
            let most = if is(word, "freq") { 255 } else { i64::MAX };
            let Some(number) = words.next().and_then(integer) else {
                call.reply.error(NOT_INTEGER);
                return None;
            };
            if !(0..=most).contains(&number) {
                call.reply.error(if most == 255 {
                    "ERR Invalid FREQ value, must be >= 0 and <= 255"
                } else {
                    "ERR Invalid IDLETIME value, must be >= 0"
                });
                return None;
            }
        } else {
            call.reply.error(SYNTAX);
            return None;
        }
    }
    Some(options)
}

fn refuse(refused: Refused, reply: &mut Reply) {
    match refused {
        Refused::Trailer => reply.error("ERR DUMP payload version or checksum are wrong"),
        Refused::Format => reply.error("ERR Bad data format"),
        Refused::Type(number) => reply.error_fmt(format_args!(
            "ERR Bad data format: values of RDB type {number} are not here yet, only strings and \
             hashes"
        )),
    }
}
