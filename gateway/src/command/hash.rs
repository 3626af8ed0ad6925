//! Hashes: fields and values, packed into the value of one key.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use fusee::{Decision, Entry, Kind};
use rapidhash::fast::RapidHasher;

use super::float::LongDouble;
use super::read::REPLY_BYTES_MAX;
use super::{Call, NOT_INTEGER, SYNTAX, glob, integer, is, unreadable};
use crate::keyspace::Keyspace;
use crate::packed::{self, Pairs, Unreadable};
use crate::reply::Reply;
use crate::request::Arguments;

/// Commands that read a hash.
#[expect(missing_docs, reason = "each is the command of its name")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HashRead {
    Get,
    MGet,
    GetAll,
    Keys,
    Vals,
    Len,
    StrLen,
    Exists,
    RandField,
    Scan,
}

/// Hashes with at most so many fields are shown as a whole by HSCAN, as Redis
/// does with its compact ones; this is also its default for what is compact.
pub(super) const COMPACT_FIELDS_MAX: usize = 512;
/// Fields that are looked up by going through all; more get a map.
const SCANNED_FIELDS_MAX: usize = 8;

/// Answers a read; `value` is the packed hash, or nothing without a key.
pub(super) fn answer(
    read: HashRead,
    arguments: Arguments<'_>,
    value: Option<&[u8]>,
    random: u64,
    reply: &mut Reply,
) {
    let done = match read {
        HashRead::Get => get(arguments.get(2), value, reply),
        HashRead::MGet => mget(arguments, value, reply),
        HashRead::GetAll | HashRead::Keys | HashRead::Vals => list(read, value, reply),
        HashRead::Len => {
            value.map_or(Ok(0), packed::count).map(|items| reply.integer(items as i64 / 2))
        }
        HashRead::StrLen => find(value, arguments.get(2))
            .map(|found| reply.integer(found.map_or(0, |content| content.len() as i64))),
        HashRead::Exists => {
            find(value, arguments.get(2)).map(|found| reply.integer(i64::from(found.is_some())))
        }
        HashRead::RandField => randfield(arguments, value, random, reply),
        HashRead::Scan => scan(arguments, value, reply),
    };
    if done == Err(Unreadable) {
        unreadable(reply);
    }
}

fn find<'a>(value: Option<&'a [u8]>, name: &[u8]) -> Result<Option<&'a [u8]>, Unreadable> {
    value.map_or(Ok(None), |value| packed::field(value, name))
}

fn pairs(value: Option<&[u8]>) -> Result<Pairs<'_>, Unreadable> {
    value.map_or(Ok(Vec::new()), packed::pairs)
}

fn bulk_or_null(reply: &mut Reply, content: Option<&[u8]>) {
    match content {
        Some(content) => reply.bulk(content),
        None => reply.null(),
    }
}

/// HGET key field
fn get(name: &[u8], value: Option<&[u8]>, reply: &mut Reply) -> Result<(), Unreadable> {
    bulk_or_null(reply, find(value, name)?);
    Ok(())
}

/// HMGET key field [field ...]
fn mget(
    arguments: Arguments<'_>,
    value: Option<&[u8]>,
    reply: &mut Reply,
) -> Result<(), Unreadable> {
    let pairs = Hash::new(pairs(value)?, arguments.len() - 2);
    reply.array(arguments.len() - 2);
    for name in arguments.from(2) {
        bulk_or_null(reply, pairs.find(name).map(|at| pairs.pairs[at].1));
    }
    Ok(())
}

/// HGETALL key, HKEYS key, HVALS key
fn list(read: HashRead, value: Option<&[u8]>, reply: &mut Reply) -> Result<(), Unreadable> {
    let pairs = pairs(value)?;
    if read == HashRead::GetAll {
        reply.map(pairs.len());
    } else {
        reply.array(pairs.len());
    }
    for (name, content) in pairs {
        if read != HashRead::Vals {
            reply.bulk(name);
        }
        if read != HashRead::Keys {
            reply.bulk(content);
        }
    }
    Ok(())
}

/// HRANDFIELD key [count [WITHVALUES]]
fn randfield(
    arguments: Arguments<'_>,
    value: Option<&[u8]>,
    mut random: u64,
    reply: &mut Reply,
) -> Result<(), Unreadable> {
    let mut next = || {
        // Knuth's generator; its high bits are the better ones.
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize
    };
    if arguments.len() == 2 {
        let pairs = pairs(value)?;
        match pairs.len() {
            0 => reply.null(),
            length => reply.bulk(pairs[next() % length].0),
        }
        return Ok(());
    }
    let Some(count) = integer(arguments.get(2)) else {
        reply.error(NOT_INTEGER);
        return Ok(());
    };
    let with_values = arguments.len() == 4 && is(arguments.get(3), "withvalues");
    if arguments.len() > 3 && !with_values {
        reply.error(SYNTAX);
        return Ok(());
    }
    if count == i64::MIN || (with_values && count < -(i64::MAX / 2)) {
        reply.error("ERR value is out of range");
        return Ok(());
    }
    let mut pairs = pairs(value)?;
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    let mut write = |wanted: usize, pairs: &mut dyn Iterator<Item = (&[u8], &[u8])>| {
        let nested = with_values && reply.is_resp3();
        reply.array(if with_values && !nested { 2 * wanted } else { wanted });
        for (name, content) in pairs {
            if nested {
                reply.array(2);
            }
            reply.bulk(name);
            if with_values {
                reply.bulk(content);
            }
        }
    };
    if pairs.is_empty() {
        write(0, &mut std::iter::empty());
    } else if count < 0 {
        let longest = pairs.iter().map(|(name, content)| name.len() + content.len()).max();
        if wanted.saturating_mul(longest.unwrap_or(0) + 32) > REPLY_BYTES_MAX {
            reply.error("ERR the reply is larger than 2 GiB: ask for fewer fields");
            return Ok(());
        }
        let mut chosen = (0..wanted).map(|_| pairs[next() % pairs.len()]);
        write(wanted, &mut chosen);
    } else {
        let wanted = wanted.min(pairs.len());
        // The first part of a shuffle.
        for place in 0..wanted {
            let other = place + next() % (pairs.len() - place);
            pairs.swap(place, other);
        }
        write(wanted, &mut pairs[..wanted].iter().copied());
    }
    Ok(())
}

/// HSCAN key cursor [MATCH pattern] [COUNT count]
///
/// A cursor is where in the order of their hashes the fields go on that have not
/// been shown: a field that stays is shown once, whatever happens to others.
fn scan(
    arguments: Arguments<'_>,
    value: Option<&[u8]>,
    reply: &mut Reply,
) -> Result<(), Unreadable> {
    // Without a key nothing is asked of the options.
    if value.is_none() && super::key::is_cursor(arguments.get(2)) {
        reply.array(2);
        reply.bulk(b"0");
        reply.array(0);
        return Ok(());
    }
    let Some(options) = super::key::ScanOptions::parse(arguments, 2, false, reply) else {
        return Ok(());
    };
    let mut pairs = pairs(value)?;
    let mut next = 0;
    if pairs.len() > COMPACT_FIELDS_MAX {
        let hash = |name: &[u8]| rapidhash::v3::rapidhash_v3(name);
        let mut hashes: Vec<u64> = pairs
            .iter()
            .map(|(name, _)| hash(name))
            .filter(|hash| *hash >= options.cursor)
            .collect();
        if hashes.len() > options.count {
            let (_, end, _) = hashes.select_nth_unstable(options.count);
            // Fields of one hash belong together, and 0 is the end.
            next = (*end).max(options.cursor + 1);
        }
        pairs.retain(|(name, _)| {
            let hash = hash(name);
            hash >= options.cursor && (next == 0 || hash < next)
        });
    }
    pairs.retain(|(name, _)| options.pattern.is_none_or(|pattern| glob::matches(pattern, name)));
    let mut digits = itoa::Buffer::new();
    reply.array(2);
    reply.bulk(digits.format(next).as_bytes());
    reply.array(2 * pairs.len());
    for (name, content) in pairs {
        reply.bulk(name);
        reply.bulk(content);
    }
    Ok(())
}

/// A hash's fields, found fast where many are asked for.
struct Hash<'a> {
    pairs: Pairs<'a>,
    places: Option<HashMap<&'a [u8], usize, BuildHasherDefault<RapidHasher<'static>>>>,
}

impl<'a> Hash<'a> {
    fn new(pairs: Pairs<'a>, lookups: usize) -> Self {
        let places = (lookups > SCANNED_FIELDS_MAX)
            .then(|| pairs.iter().enumerate().map(|(at, (name, _))| (*name, at)).collect());
        Self { pairs, places }
    }

    fn find(&self, name: &[u8]) -> Option<usize> {
        match &self.places {
            Some(places) => places.get(name).copied(),
            None => self.pairs.iter().position(|(found, _)| *found == name),
        }
    }

    /// Sets a field and tells whether it is new.
    fn set(&mut self, name: &'a [u8], content: &'a [u8]) -> bool {
        if let Some(at) = self.find(name) {
            self.pairs[at].1 = content;
            return false;
        }
        if let Some(places) = &mut self.places {
            places.insert(name, self.pairs.len());
        }
        self.pairs.push((name, content));
        true
    }

    fn store(&self, entry: Option<Entry<'_>>, buffer: &mut Vec<u8>) -> Decision {
        packed::pack(buffer, self.pairs.iter().flat_map(|(name, content)| [*name, *content]));
        let expires_at_ms = entry.and_then(|entry| entry.expires_at_ms);
        Decision::Replace { kind: Kind::Hash, expires_at_ms }
    }
}

/// HSET key field value [field value ...], HMSET
pub(super) async fn set<K: Keyspace>(call: &mut Call<'_, K>, counts: bool) {
    let arguments = call.arguments;
    if !arguments.len().is_multiple_of(2) {
        return super::connection::wrong_arity(call.command, call.reply);
    }
    let key = call.key(1);
    call.update_as(Kind::Hash, key, |entry, buffer, reply| {
        let Ok(pairs) = pairs(entry.map(|entry| entry.value)) else {
            unreadable(reply);
            return Decision::Keep;
        };
        let mut hash = Hash::new(pairs, arguments.len() / 2 - 1);
        let mut added = 0;
        for place in (2..arguments.len()).step_by(2) {
            added += i64::from(hash.set(arguments.get(place), arguments.get(place + 1)));
        }
        if counts {
            reply.integer(added);
        } else {
            reply.ok();
        }
        hash.store(entry, buffer)
    })
    .await;
}

/// HSETNX key field value
pub(super) async fn setnx<K: Keyspace>(call: &mut Call<'_, K>) {
    let (name, content) = (call.arguments.get(2), call.arguments.get(3));
    let key = call.key(1);
    call.update_as(Kind::Hash, key, |entry, buffer, reply| {
        let Ok(pairs) = pairs(entry.map(|entry| entry.value)) else {
            unreadable(reply);
            return Decision::Keep;
        };
        let mut hash = Hash::new(pairs, 1);
        let is_new = hash.find(name).is_none() && hash.set(name, content);
        reply.integer(i64::from(is_new));
        if is_new { hash.store(entry, buffer) } else { Decision::Keep }
    })
    .await;
}

/// HDEL key field [field ...]
pub(super) async fn del<K: Keyspace>(call: &mut Call<'_, K>) {
    let arguments = call.arguments;
    let key = call.key(1);
    call.update_as(Kind::Hash, key, |entry, buffer, reply| {
        let Ok(pairs) = pairs(entry.map(|entry| entry.value)) else {
            unreadable(reply);
            return Decision::Keep;
        };
        let mut hash = Hash::new(pairs, arguments.len() - 2);
        let mut gone: Vec<usize> = arguments.from(2).filter_map(|name| hash.find(name)).collect();
        gone.sort_unstable();
        gone.dedup();
        reply.integer(gone.len() as i64);
        if gone.is_empty() {
            return Decision::Keep;
        }
        if gone.len() == hash.pairs.len() {
            return Decision::Delete;
        }
        let mut place = 0;
        hash.pairs.retain(|_| {
            place += 1;
            gone.binary_search(&(place - 1)).is_err()
        });
        hash.store(entry, buffer)
    })
    .await;
}

/// HINCRBY key field increment
pub(super) async fn incrby<K: Keyspace>(call: &mut Call<'_, K>) {
    let Some(by) = call.integer(3) else { return };
    increment(call, |old| {
        let old = integer(old.unwrap_or(b"0")).ok_or("ERR hash value is not an integer")?;
        let new = old.checked_add(by).ok_or("ERR increment or decrement would overflow")?;
        Ok((new.to_string(), Some(new)))
    })
    .await;
}

/// HINCRBYFLOAT key field increment
pub(super) async fn incrbyfloat<K: Keyspace>(call: &mut Call<'_, K>) {
    let Some(by) = LongDouble::parse(call.arguments.get(3)) else {
        return call.reply.error("ERR value is not a valid float");
    };
    if by.is_infinite() {
        return call.reply.error("ERR value is NaN or Infinity");
    }
    increment(call, |old| {
        let old = match old {
            Some(old) => LongDouble::parse(old).ok_or("ERR hash value is not a float")?,
            None => LongDouble::ZERO,
        };
        let new = old.add(by).to_decimal().ok_or("ERR increment would produce NaN or Infinity")?;
        Ok((new, None))
    })
    .await;
}

/// Puts another number into a field: its text, and what to answer if that is an
/// integer.
async fn increment<K: Keyspace>(
    call: &mut Call<'_, K>,
    add: impl Fn(Option<&[u8]>) -> Result<(String, Option<i64>), &'static str>,
) {
    let name = call.arguments.get(2);
    let key = call.key(1);
    call.update_as(Kind::Hash, key, |entry, buffer, reply| {
        let Ok(pairs) = pairs(entry.map(|entry| entry.value)) else {
            unreadable(reply);
            return Decision::Keep;
        };
        let mut hash = Hash::new(pairs, 1);
        match add(hash.find(name).map(|at| hash.pairs[at].1)) {
            Err(error) => {
                reply.error(error);
                Decision::Keep
            }
            Ok((text, integer)) => {
                match integer {
                    Some(integer) => reply.integer(integer),
                    None => reply.bulk(text.as_bytes()),
                }
                hash.set(name, text.as_bytes());
                hash.store(entry, buffer)
            }
        }
    })
    .await;
}
