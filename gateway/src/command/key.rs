//! Commands about keys, whatever their values are.

use super::{Call, NOT_INTEGER, SYNTAX, Walk, debug, glob, info, integer, is, lcs};
use crate::keyspace::Keyspace;
use crate::reply::Reply;
use crate::request::Arguments;
use crate::session::Place;

/// Keys that one step of KEYS or RANDOMKEY asks the keyspace for.
const WALK_STEP: usize = 1000;
/// The largest COUNT that one SCAN passes on; more is more calls.
const SCAN_COUNT_MAX: i64 = 100_000;

/// DEL key [key ...], UNLINK key [key ...]
pub(super) async fn del<K: Keyspace>(call: &mut Call<'_, K>) {
    let mut removed = 0;
    for index in 1..call.arguments.len() {
        match call.delete(call.key(index)).await {
            Ok(was_there) => removed += i64::from(was_there),
            Err(error) => return call.refuse(error),
        }
    }
    call.reply.integer(removed);
}

/// Runs a command that looks at keys it does not name.
pub(crate) async fn walk<K: Keyspace>(walk: Walk, mut call: Call<'_, K>, place: &Place) {
    let call = &mut call;
    match walk {
        Walk::Scan => scan(call).await,
        Walk::Keys => keys(call).await,
        Walk::RandomKey => randomkey(call, place.random()).await,
        Walk::DbSize => match call.keyspace.len(call.database).await {
            Ok(keys) => call.reply.integer(keys as i64),
            Err(error) => call.refuse(error),
        },
        Walk::FlushDb => flush(call, Some(call.database)).await,
        Walk::FlushAll => flush(call, None).await,
        Walk::Info => info::info(call, place).await,
        Walk::Lcs => lcs::lcs(call).await,
        Walk::Debug => debug::debug(call, place).await,
    }
}

/// What was said after SCAN's and its relatives' cursor.
pub(super) struct ScanOptions<'a> {
    pub(super) cursor: u64,
    pub(super) count: usize,
    pub(super) pattern: Option<&'a [u8]>,
    kind: Option<&'a [u8]>,
}

impl<'a> ScanOptions<'a> {
    /// Reads the cursor at a place and the options behind it; `None` after an
    /// error reply.
    pub(super) fn parse(
        arguments: Arguments<'a>,
        at: usize,
        takes_type: bool,
        reply: &mut Reply,
    ) -> Option<Self> {
        let Some(cursor) = cursor(arguments.get(at)) else {
            reply.error("ERR invalid cursor");
            return None;
        };
        let mut options = Self { cursor, count: 10, pattern: None, kind: None };
        let mut words = arguments.from(at + 1);
        while let Some(option) = words.next() {
            let error = match words.next() {
                Some(value) if is(option, "count") => match integer(value) {
                    None => NOT_INTEGER,
                    Some(..1) => SYNTAX,
                    Some(value) => {
                        options.count = value.min(SCAN_COUNT_MAX) as usize;
                        continue;
                    }
                },
                Some(value) if is(option, "match") => {
                    options.pattern = Some(value);
                    continue;
                }
                Some(value) if takes_type && is(option, "type") => {
                    options.kind = Some(value);
                    continue;
                }
                _ => SYNTAX,
            };
            reply.error(error);
            return None;
        }
        Some(options)
    }
}

/// What HSCAN and its like answer to a key of another kind: a cursor that is none
/// is told first.
pub(super) fn refuse_scan(text: &[u8], reply: &mut Reply) {
    match cursor(text) {
        Some(_) => super::wrong_type(reply),
        None => reply.error("ERR invalid cursor"),
    }
}

/// Whether a cursor is one.
pub(super) fn is_cursor(text: &[u8]) -> bool {
    cursor(text).is_some()
}

/// SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]
async fn scan<K: Keyspace>(call: &mut Call<'_, K>) {
    let Some(options) = ScanOptions::parse(call.arguments, 1, true, call.reply) else { return };
    let ScanOptions { cursor, count, pattern, kind } = options;
    let mut names = Names::default();
    let next = call
        .keyspace
        .scan(call.database, cursor, count, |name, entry| {
            if pattern.is_none_or(|pattern| glob::matches(pattern, name))
                && kind.is_none_or(|kind| is(kind, super::read::kind_name(entry.kind)))
            {
                names.push(name);
            }
        })
        .await;
    match next {
        Ok(next) => {
            let mut digits = itoa::Buffer::new();
            call.reply.array(2);
            call.reply.bulk(digits.format(next).as_bytes());
            names.write(call.reply);
        }
        Err(error) => call.refuse(error),
    }
}

/// A cursor as strtoul reads it: a sign is taken, and nothing at all is 0.
fn cursor(text: &[u8]) -> Option<u64> {
    let digits = match text {
        [] => return Some(0),
        [b'+' | b'-', digits @ ..] => digits,
        digits => digits,
    };
    let value: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    digits[0].is_ascii_digit().then_some(())?;
    Some(if text[0] == b'-' { value.wrapping_neg() } else { value })
}

/// KEYS pattern
async fn keys<K: Keyspace>(call: &mut Call<'_, K>) {
    let pattern = call.arguments.get(1);
    let mut names = Names::default();
    let mut cursor = 0;
    loop {
        let each = |name: &[u8], _: fusee::Entry<'_>| {
            if glob::matches(pattern, name) {
                names.push(name);
            }
        };
        match call.keyspace.scan(call.database, cursor, WALK_STEP, each).await {
            Ok(0) => break,
            Ok(next) => cursor = next,
            Err(error) => return call.refuse(error),
        }
        // A walk over many keys lets other connections have their turn.
        tokio::task::yield_now().await;
    }
    names.write(call.reply);
}

/// RANDOMKEY: some key near a random place of the index.
async fn randomkey<K: Keyspace>(call: &mut Call<'_, K>, random: u64) {
    let mut cursor = call.keyspace.scan_start(random);
    let mut from_start = cursor == 0;
    let mut chosen = None;
    loop {
        let mut seen = 0;
        let each = |name: &[u8], _: fusee::Entry<'_>| {
            // Each of those seen is chosen alike often.
            seen += 1;
            if (random >> 16).is_multiple_of(seen) {
                chosen = Some(name.to_vec());
            }
        };
        match call.keyspace.scan(call.database, cursor, 16, each).await {
            Ok(next) => cursor = next,
            Err(error) => return call.refuse(error),
        }
        if chosen.is_some() || (cursor == 0 && from_start) {
            break;
        }
        from_start |= cursor == 0;
        tokio::task::yield_now().await;
    }
    match chosen {
        Some(name) => call.reply.bulk(&name),
        None => call.reply.null(),
    }
}

/// FLUSHDB [ASYNC | SYNC], FLUSHALL [ASYNC | SYNC]
async fn flush<K: Keyspace>(call: &mut Call<'_, K>, database: Option<u8>) {
    let known = match call.arguments.len() {
        1 => true,
        2 => ["async", "sync"].iter().any(|mode| is(call.arguments.get(1), mode)),
        _ => false,
    };
    if !known {
        return call.reply.error(SYNTAX);
    }
    match call.keyspace.flush(database).await {
        Ok(()) => call.reply.ok(),
        Err(error) => call.refuse(error),
    }
}

/// Names collected before their number is known.
#[derive(Default)]
struct Names {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Names {
    fn push(&mut self, name: &[u8]) {
        self.bytes.extend_from_slice(name);
        self.ends.push(self.bytes.len());
    }

    fn write(&self, reply: &mut Reply) {
        reply.array(self.ends.len());
        let mut start = 0;
        for end in &self.ends {
            reply.bulk(&self.bytes[start..*end]);
            start = *end;
        }
    }
}
