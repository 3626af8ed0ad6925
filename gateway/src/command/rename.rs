//! Values under other names: RENAME, RENAMENX, COPY; and MSETNX.
//!
//! Each step is atomic for its key. The steps are ordered so that no value that
//! a client was told of is lost: the new name is written before the old one is
//! removed, and the old one is removed only as long as it holds what was copied.
//! Between the two both names are there.

use fusee::{DATABASES, Decision, Key, Kind};

use super::{Call, NOT_INTEGER, Owned, SYNTAX, integer, is, refuse};
use crate::keyspace::Keyspace;

/// Times that a value may change while it is being renamed.
const ATTEMPTS_MAX: u32 = 64;
const NO_SUCH_KEY: &str = "ERR no such key";

/// What came of a write under a condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Put {
    Done,
    Refused,
    /// With the error already written.
    Failed,
}

impl<K: Keyspace> Call<'_, K> {
    /// Puts a copy under a key if nothing is there, or what `may_replace` accepts.
    async fn put(
        &mut self,
        key: Key<'_>,
        value: &Owned,
        may_replace: impl Fn(&Owned) -> bool,
    ) -> Put {
        let mut put = Put::Failed;
        let update = self.keyspace.update(key, |entry, buffer| {
            if entry.is_some_and(|entry| !may_replace(&Owned::of(entry))) {
                put = Put::Refused;
                return Decision::Keep;
            }
            put = Put::Done;
            buffer.extend_from_slice(&value.value);
            Decision::Replace { kind: value.kind, expires_at_ms: value.expires_at_ms }
        });
        match update.await {
            Ok(()) => put,
            Err(error) => {
                self.refuse(error);
                Put::Failed
            }
        }
    }

    /// Removes a key if it holds this value; whether it did. `None` after an
    /// error reply.
    async fn remove_if(&mut self, key: Key<'_>, value: &Owned) -> Option<bool> {
        let mut removed = false;
        let update = self.keyspace.update(key, |entry, _| {
            removed = entry.is_some_and(|entry| Owned::of(entry) == *value);
            if removed { Decision::Delete } else { Decision::Keep }
        });
        match update.await {
            Ok(()) => Some(removed),
            Err(error) => {
                self.refuse(error);
                None
            }
        }
    }

    async fn read_one(&mut self, key: Key<'_>) -> Option<Option<Owned>> {
        Some(self.read_all(&[key]).await?.remove(0))
    }
}

/// RENAME key name, RENAMENX key name
pub(super) async fn rename<K: Keyspace>(call: &mut Call<'_, K>, only_if_absent: bool) {
    let (from, to) = (call.key(1), call.key(2));
    let answer = |call: &mut Call<'_, K>, renamed: bool| match (only_if_absent, renamed) {
        (true, renamed) => call.reply.integer(i64::from(renamed)),
        (false, _) => call.reply.ok(),
    };
    let Some(source) = call.read_one(from).await else { return };
    let Some(mut source) = source else { return call.reply.error(NO_SUCH_KEY) };
    if from == to {
        return answer(call, false);
    }
    let mut written: Option<Owned> = None;
    for _ in 0..ATTEMPTS_MAX {
        if source.kind == Kind::Later {
            return super::wrong_type(call.reply);
        }
        let put = call
            .put(to, &source, |there| match &written {
                None => !only_if_absent,
                // What somebody else has put there meanwhile stays.
                Some(written) => there == written,
            })
            .await;
        match (put, &written) {
            (Put::Failed, _) => return,
            (Put::Refused, None) => return answer(call, false),
            // The name was taken and then set again by others: their writes came
            // after the renaming, and so did those of the old name.
            (Put::Refused, Some(_)) => return answer(call, true),
            (Put::Done, _) => {}
        }
        match call.remove_if(from, &source).await {
            None => return,
            Some(true) => return answer(call, true),
            Some(false) => {}
        }
        written = Some(source);
        let Some(next) = call.read_one(from).await else { return };
        match next {
            Some(next) => source = next,
            // Somebody has removed the old name: as it would be after RENAME.
            None => return answer(call, true),
        }
    }
    refuse(call.reply, fusee::Error::Conflict { attempts: ATTEMPTS_MAX });
}

/// COPY key name [DB database] [REPLACE]
pub(super) async fn copy<K: Keyspace>(call: &mut Call<'_, K>) {
    let mut database = call.database;
    let mut replace = false;
    let mut options = call.arguments.from(3);
    while let Some(option) = options.next() {
        if is(option, "replace") {
            replace = true;
        } else if is(option, "db") && options.len() > 0 {
            match options.next().and_then(integer) {
                None => return call.reply.error(NOT_INTEGER),
                Some(index) if (0..i64::from(DATABASES)).contains(&index) => {
                    database = index as u8;
                }
                Some(_) => return call.reply.error("ERR DB index is out of range"),
            }
        } else {
            return call.reply.error(SYNTAX);
        }
    }
    let (from, to) = (call.key(1), Key { database, name: call.arguments.get(2) });
    if from == to {
        return call.reply.error("ERR source and destination objects are the same");
    }
    let Some(source) = call.read_one(from).await else { return };
    let Some(source) = source else { return call.reply.integer(0) };
    if source.kind == Kind::Later {
        return super::wrong_type(call.reply);
    }
    match call.put(to, &source, |_| replace).await {
        Put::Done => call.reply.integer(1),
        Put::Refused => call.reply.integer(0),
        Put::Failed => {}
    }
}

/// MSETNX key value [key value ...]: all or none, but not at one moment. Whoever
/// finds a key taken on the way takes back what it has set.
pub(super) async fn msetnx<K: Keyspace>(call: &mut Call<'_, K>) {
    if call.arguments.len().is_multiple_of(2) {
        return super::connection::wrong_arity(call.command, call.reply);
    }
    let places = (1..call.arguments.len()).step_by(2);
    // Of a key that is named twice the last value counts.
    let mut pairs: Vec<(Key<'_>, Owned)> = Vec::new();
    for place in places {
        let value = call.arguments.get(place + 1).to_vec();
        let value = Owned { value, kind: Kind::String, expires_at_ms: None };
        pairs.push((call.key(place), value));
    }
    pairs.reverse();
    let mut seen = std::collections::HashSet::new();
    pairs.retain(|(key, _)| seen.insert(key.name));
    let keys: Vec<Key<'_>> = pairs.iter().map(|(key, _)| *key).collect();
    let Some(there) = call.read_all(&keys).await else { return };
    if there.iter().any(Option::is_some) {
        return call.reply.integer(0);
    }
    for (number, (key, value)) in pairs.iter().enumerate() {
        let put = call.put(*key, value, |_| false).await;
        if put == Put::Done {
            continue;
        }
        for (key, value) in &pairs[..number] {
            if call.remove_if(*key, value).await.is_none() {
                return;
            }
        }
        if put == Put::Refused {
            call.reply.integer(0);
        }
        return;
    }
    call.reply.integer(1);
}
