//! One call of a command: what it needs to run, and what it does to keys.

use fusee::{Decision, Entry, Error, Key, Kind};

use super::table::Command;
use super::{NOT_INTEGER, integer, refuse, replace, wrong_type};
use crate::keyspace::Keyspace;
use crate::notify::Change;
use crate::reply::Reply;
use crate::request::Arguments;

/// One write or walk: what it needs to run.
pub(crate) struct Call<'a, K> {
    pub(crate) keyspace: &'a K,
    pub(crate) command: &'static Command,
    pub(crate) arguments: Arguments<'a>,
    pub(crate) database: u8,
    pub(crate) reply: &'a mut Reply,
    /// What it has done to which keys, if anybody is told.
    pub(crate) changes: Option<Vec<Change>>,
}

impl<'a, K: Keyspace> Call<'a, K> {
    pub(crate) fn key(&self, index: usize) -> Key<'a> {
        Key { database: self.database, name: self.arguments.get(index) }
    }

    /// The argument at `index` as an integer, or an error reply.
    pub(crate) fn integer(&mut self, index: usize) -> Option<i64> {
        let value = integer(self.arguments.get(index));
        if value.is_none() {
            self.reply.error(NOT_INTEGER);
        }
        value
    }

    pub(crate) fn invalid_expire_time(&mut self) {
        let name = self.command.name;
        self.reply.error_fmt(format_args!("ERR invalid expire time in '{name}' command"));
    }

    /// A conditional write of `key`, whatever its value is. Each call of `decide` writes the whole
    /// reply; only that of the last one remains.
    pub(crate) async fn update(
        &mut self,
        key: Key<'_>,
        mut decide: impl FnMut(Option<Entry<'_>>, &mut Vec<u8>, &mut Reply) -> Decision,
    ) {
        let reply = &mut *self.reply;
        let mark = reply.mark();
        let is_told = self.changes.is_some();
        let mut change = None;
        let result = self
            .keyspace
            .update(key, |entry, value| {
                reply.rewind(mark);
                change = None;
                if entry.is_some_and(|entry| entry.kind == Kind::Later) {
                    wrong_type(reply);
                    return Decision::Keep;
                }
                let decision = decide(entry, value, reply);
                if is_told {
                    change = Change::of(key, entry, decision);
                }
                decision
            })
            .await;
        match result {
            Ok(()) => self.note(change),
            Err(error) => {
                self.reply.rewind(mark);
                refuse(self.reply, error);
            }
        }
    }

    /// Remembers what was done to a key, if anybody is told.
    pub(crate) fn note(&mut self, change: Option<Change>) {
        if let Some(changes) = &mut self.changes {
            changes.extend(change);
        }
    }

    /// Sets a string, whatever was there.
    pub(crate) async fn set(
        &mut self,
        key: Key<'_>,
        value: &[u8],
        expires_at_ms: Option<u64>,
    ) -> Result<(), Error> {
        if self.changes.is_none() {
            return self.keyspace.set(key, value, expires_at_ms).await;
        }
        // Whoever tells of it has to know what was there.
        let mut change = None;
        let update = self.keyspace.update(key, |entry, buffer| {
            buffer.extend_from_slice(value);
            let decision = replace(expires_at_ms);
            change = Change::of(key, entry, decision);
            decision
        });
        update.await?;
        self.note(change);
        Ok(())
    }

    /// Removes a key and tells whether it was there.
    pub(crate) async fn delete(&mut self, key: Key<'_>) -> Result<bool, Error> {
        let was_there = self.keyspace.delete(key).await?;
        if was_there && self.changes.is_some() {
            self.note(Some(Change::removal(key)));
        }
        Ok(was_there)
    }

    /// As [`Self::update`], if the value is of a kind or is not there.
    pub(crate) async fn update_as(
        &mut self,
        kind: Kind,
        key: Key<'_>,
        mut decide: impl FnMut(Option<Entry<'_>>, &mut Vec<u8>, &mut Reply) -> Decision,
    ) {
        self.update(key, |entry, value, reply| {
            if entry.is_some_and(|entry| entry.kind != kind) {
                wrong_type(reply);
                return Decision::Keep;
            }
            decide(entry, value, reply)
        })
        .await;
    }

    /// Copies of the entries of some keys, each as it was at a moment of its own;
    /// `None` after an error reply.
    pub(crate) async fn read_all(&mut self, keys: &[Key<'_>]) -> Option<Vec<Option<Owned>>> {
        let mut entries = Vec::with_capacity(keys.len());
        let mut failed = None;
        self.keyspace
            .read(keys, |_, entry| {
                match entry {
                    Ok(entry) => entries.push(entry.map(Owned::of)),
                    Err(error) => failed = Some(error),
                }
                failed.is_none()
            })
            .await;
        if let Some(error) = failed {
            self.refuse(error);
            return None;
        }
        Some(entries)
    }

    pub(crate) fn refuse(&mut self, error: Error) {
        refuse(self.reply, error);
    }
}

/// A copy of an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Owned {
    pub(crate) value: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) expires_at_ms: Option<u64>,
}

impl Owned {
    pub(crate) fn of(entry: Entry<'_>) -> Self {
        let Entry { value, kind, expires_at_ms } = entry;
        Self { value: value.to_vec(), kind, expires_at_ms }
    }
}
