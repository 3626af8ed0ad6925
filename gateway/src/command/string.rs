//! Writes of strings: SET and its relatives.

use fusee::{Decision, Entry, Key, Kind, Setting};

use super::{Call, SYNTAX, TOO_LONG, integer, is, replace};
use crate::keyspace::Keyspace;
use crate::notify::Change;
use crate::reply::Reply;
use crate::request::{Arguments, BULK_BYTES_MAX};

/// When a key shall end, as the client said it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expiry<'a> {
    /// EX, PX: a time from now; EXAT, PXAT: a time since the epoch.
    Given {
        text: &'a [u8],
        unit_ms: i64,
        relative: bool,
    },
    Keep,
    Persist,
}

/// What was said after SET's value or GETEX's key.
#[derive(Clone, Copy, Default, Debug)]
struct Options<'a> {
    only_if_absent: bool,
    only_if_present: bool,
    get: bool,
    expiry: Option<Expiry<'a>>,
}

/// Which options a command takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taker {
    Set,
    GetEx,
}

impl<'a> Options<'a> {
    /// Redis's rules: what excludes what, and a repeated option counts again.
    fn parse(mut arguments: impl Iterator<Item = &'a [u8]>, taker: Taker) -> Option<Self> {
        let mut options = Self::default();
        let set = taker == Taker::Set;
        while let Some(argument) = arguments.next() {
            let units =
                [("ex", 1000, true), ("px", 1, true), ("exat", 1000, false), ("pxat", 1, false)];
            if set && is(argument, "nx") && !options.only_if_present {
                options.only_if_absent = true;
            } else if set && is(argument, "xx") && !options.only_if_absent {
                options.only_if_present = true;
            } else if set && is(argument, "get") {
                options.get = true;
            } else if set && is(argument, "keepttl") {
                options.expiry(Expiry::Keep)?;
            } else if !set && is(argument, "persist") {
                options.expiry(Expiry::Persist)?;
            } else {
                let (_, unit_ms, relative) =
                    units.into_iter().find(|(name, ..)| is(argument, name))?;
                options.expiry(Expiry::Given { text: arguments.next()?, unit_ms, relative })?;
            }
        }
        Some(options)
    }

    fn expiry(&mut self, expiry: Expiry<'a>) -> Option<()> {
        let agrees = match (self.expiry, expiry) {
            (None, _) => true,
            (
                Some(Expiry::Given { unit_ms: old, relative: before, .. }),
                Expiry::Given { unit_ms, relative, .. },
            ) => old == unit_ms && before == relative,
            (Some(old), new) => old == new,
        };
        self.expiry = Some(expiry);
        agrees.then_some(())
    }
}

/// Why a time was not taken.
enum BadTime {
    NotInteger,
    OutOfRange,
}

/// The absolute end that SET, GETEX and SETEX take: later than the epoch.
fn end_ms(text: &[u8], unit_ms: i64, relative: bool, now_ms: u64) -> Result<u64, BadTime> {
    let value = integer(text).ok_or(BadTime::NotInteger)?;
    let base = if relative { now_ms as i64 } else { 0 };
    match value.checked_mul(unit_ms).and_then(|ms| ms.checked_add(base)) {
        Some(end) if value > 0 && end > 0 => Ok(end as u64),
        _ => Err(BadTime::OutOfRange),
    }
}

impl<K: Keyspace> Call<'_, K> {
    /// The end that was given, or `None` after an error reply.
    fn end_ms(&mut self, text: &[u8], unit_ms: i64, relative: bool) -> Option<u64> {
        match end_ms(text, unit_ms, relative, self.keyspace.now_ms()) {
            Ok(end) => return Some(end),
            Err(BadTime::NotInteger) => self.reply.error(super::NOT_INTEGER),
            Err(BadTime::OutOfRange) => self.invalid_expire_time(),
        }
        None
    }

    /// Sets without looking at what was there.
    async fn put_at(&mut self, key: usize, value: usize, expires_at_ms: Option<u64>) -> bool {
        let (key, value) = (self.key(key), self.arguments.get(value));
        match self.set(key, value, expires_at_ms).await {
            Ok(()) => true,
            Err(error) => {
                self.refuse(error);
                false
            }
        }
    }
}

/// A SET that does not depend on what was there, for a series of them; `None` for
/// any other, and for what has to be answered by an error.
pub(crate) fn setting<'a>(
    arguments: Arguments<'a>,
    database: u8,
    now_ms: impl FnOnce() -> u64,
) -> Option<Setting<'a>> {
    let mut expires_at_ms = None;
    if arguments.len() > 3 {
        let options = Options::parse(arguments.from(3), Taker::Set)?;
        let Some(Expiry::Given { text, unit_ms, relative }) = options.expiry else { return None };
        if options.only_if_absent || options.only_if_present || options.get {
            return None;
        }
        expires_at_ms = Some(end_ms(text, unit_ms, relative, now_ms()).ok()?);
    }
    let key = Key { database, name: arguments.get(1) };
    Some(Setting { key, value: arguments.get(2), expires_at_ms })
}

fn bulk_or_null(reply: &mut Reply, entry: Option<Entry<'_>>) {
    match entry {
        Some(entry) => reply.bulk(entry.value),
        None => reply.null(),
    }
}

/// SET key value [NX | XX] [GET] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]
pub(super) async fn set<K: Keyspace>(call: &mut Call<'_, K>) {
    if call.arguments.len() == 3 {
        if call.put_at(1, 2, None).await {
            call.reply.ok();
        }
        return;
    }
    let Some(options) = Options::parse(call.arguments.from(3), Taker::Set) else {
        return call.reply.error(SYNTAX);
    };
    let mut expires_at_ms = None;
    if let Some(Expiry::Given { text, unit_ms, relative }) = options.expiry {
        let Some(end) = call.end_ms(text, unit_ms, relative) else { return };
        expires_at_ms = Some(end);
    }
    let keep = options.expiry == Some(Expiry::Keep);
    if !(options.only_if_absent || options.only_if_present || options.get || keep) {
        if call.put_at(1, 2, expires_at_ms).await {
            call.reply.ok();
        }
        return;
    }
    let new = call.arguments.get(2);
    call.update(call.key(1), |entry, value, reply| {
        if options.get && entry.is_some_and(|entry| entry.kind != Kind::String) {
            super::wrong_type(reply);
            return Decision::Keep;
        }
        let refused =
            if entry.is_some() { options.only_if_absent } else { options.only_if_present };
        if options.get {
            bulk_or_null(reply, entry);
        } else if refused {
            reply.null();
        } else {
            reply.ok();
        }
        if refused {
            return Decision::Keep;
        }
        value.extend_from_slice(new);
        replace(if keep { entry.and_then(|entry| entry.expires_at_ms) } else { expires_at_ms })
    })
    .await;
    if keep {
        call.changes.iter_mut().flatten().for_each(Change::keep_end);
    }
}

/// SETNX key value
pub(super) async fn setnx<K: Keyspace>(call: &mut Call<'_, K>) {
    let new = call.arguments.get(2);
    call.update(call.key(1), |entry, value, reply| {
        reply.integer(i64::from(entry.is_none()));
        if entry.is_some() {
            return Decision::Keep;
        }
        value.extend_from_slice(new);
        replace(None)
    })
    .await;
}

/// SETEX key seconds value, PSETEX key milliseconds value
pub(super) async fn setex<K: Keyspace>(call: &mut Call<'_, K>, unit_ms: i64) {
    let Some(end) = call.end_ms(call.arguments.get(2), unit_ms, true) else { return };
    if call.put_at(1, 3, Some(end)).await {
        call.reply.ok();
    }
}

/// GETSET key value
pub(super) async fn getset<K: Keyspace>(call: &mut Call<'_, K>) {
    let new = call.arguments.get(2);
    call.update_as(Kind::String, call.key(1), |entry, value, reply| {
        bulk_or_null(reply, entry);
        value.extend_from_slice(new);
        replace(None)
    })
    .await;
}

/// GETDEL key
pub(super) async fn getdel<K: Keyspace>(call: &mut Call<'_, K>) {
    call.update_as(Kind::String, call.key(1), |entry, _, reply| {
        bulk_or_null(reply, entry);
        if entry.is_some() { Decision::Delete } else { Decision::Keep }
    })
    .await;
}

/// GETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST]
pub(super) async fn getex<K: Keyspace>(call: &mut Call<'_, K>) {
    let Some(options) = Options::parse(call.arguments.from(2), Taker::GetEx) else {
        return call.reply.error(SYNTAX);
    };
    let now_ms = call.keyspace.now_ms();
    let name = call.command.name;
    call.update_as(Kind::String, call.key(1), |entry, value, reply| {
        // A key that is not there is null even when the time is wrong.
        let Some(entry) = entry else {
            reply.null();
            return Decision::Keep;
        };
        let expires_at_ms = match options.expiry {
            Some(Expiry::Given { text, unit_ms, relative }) => {
                match end_ms(text, unit_ms, relative, now_ms) {
                    Ok(end) => Some(end),
                    Err(BadTime::NotInteger) => {
                        reply.error(super::NOT_INTEGER);
                        return Decision::Keep;
                    }
                    Err(BadTime::OutOfRange) => {
                        reply
                            .error_fmt(format_args!("ERR invalid expire time in '{name}' command"));
                        return Decision::Keep;
                    }
                }
            }
            Some(Expiry::Persist) => None,
            Some(Expiry::Keep) | None => entry.expires_at_ms,
        };
        reply.bulk(entry.value);
        if expires_at_ms == entry.expires_at_ms {
            return Decision::Keep;
        }
        if expires_at_ms.is_some_and(|end| end <= now_ms) {
            return Decision::Delete;
        }
        value.extend_from_slice(entry.value);
        Decision::Replace { kind: entry.kind, expires_at_ms }
    })
    .await;
}

/// APPEND key value
pub(super) async fn append<K: Keyspace>(call: &mut Call<'_, K>) {
    let tail = call.arguments.get(2);
    call.update_as(Kind::String, call.key(1), |entry, value, reply| {
        let head = entry.map_or(&[][..], |entry| entry.value);
        let length = head.len() + tail.len();
        if length as i64 > BULK_BYTES_MAX {
            reply.error(TOO_LONG);
            return Decision::Keep;
        }
        reply.integer(length as i64);
        value.reserve(length);
        value.extend_from_slice(head);
        value.extend_from_slice(tail);
        replace(entry.and_then(|entry| entry.expires_at_ms))
    })
    .await;
}

/// SETRANGE key offset value
pub(super) async fn setrange<K: Keyspace>(call: &mut Call<'_, K>) {
    let Some(offset) = call.integer(2) else { return };
    if offset < 0 {
        return call.reply.error("ERR offset is out of range");
    }
    let patch = call.arguments.get(3);
    call.update_as(Kind::String, call.key(1), |entry, value, reply| {
        let old = entry.map_or(&[][..], |entry| entry.value);
        if patch.is_empty() {
            reply.integer(old.len() as i64);
            return Decision::Keep;
        }
        let Some(end) = offset.checked_add(patch.len() as i64).filter(|end| *end <= BULK_BYTES_MAX)
        else {
            reply.error(TOO_LONG);
            return Decision::Keep;
        };
        let (offset, end) = (offset as usize, end as usize);
        value.reserve(end.max(old.len()));
        value.extend_from_slice(old);
        if value.len() < end {
            value.resize(end, 0);
        }
        value[offset..end].copy_from_slice(patch);
        reply.integer(value.len() as i64);
        replace(entry.and_then(|entry| entry.expires_at_ms))
    })
    .await;
}

/// MSET key value [key value ...]
pub(super) async fn mset<K: Keyspace>(call: &mut Call<'_, K>) {
    if call.arguments.len().is_multiple_of(2) {
        return call.reply.error("ERR wrong number of arguments for 'mset' command");
    }
    let sets: Vec<Setting<'_>> = (1..call.arguments.len())
        .step_by(2)
        .map(|at| Setting {
            key: call.key(at),
            value: call.arguments.get(at + 1),
            expires_at_ms: None,
        })
        .collect();
    let mut failed = None;
    if call.changes.is_some() {
        for set in &sets {
            failed = failed.or(call.set(set.key, set.value, None).await.err());
        }
    } else {
        let set = call.keyspace.set_each(&sets, |_, done| failed = failed.or(done.err()));
        set.await;
    }
    match failed {
        None => call.reply.ok(),
        Some(error) => call.refuse(error),
    }
}
