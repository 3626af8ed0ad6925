//! Keyspace notifications: who listens learns what happens to keys, by channels that
//! are named after the key or the event.
//!
//! A command says what it did to which key ([`Change`]); what that is called, and
//! whether anybody asked for it, is decided here, after the write is done. So a write
//! that is not committed is not told of, and what is told is in the order of the
//! writes of one connection.

use fusee::{Decision, Entry, Key};

use crate::channels::Way;
use crate::command::Write;
use crate::shared::Shared;

mod classes;

pub(crate) use classes::{Class, Classes};

/// What a command did to a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    database: u8,
    name: Vec<u8>,
    was_there: bool,
    /// What is there now.
    now: Now,
    /// Whether it was to end when what was there would have ended.
    keeps_end: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Now {
    Absent,
    /// A value that does not end by itself.
    Lasting,
    /// A value that ends at some time.
    Ending,
}

impl Change {
    /// What a decision does to a key; `None` if that is nothing.
    pub(crate) fn of(key: Key<'_>, before: Option<Entry<'_>>, decision: Decision) -> Option<Self> {
        let now = match decision {
            Decision::Keep => return None,
            Decision::Delete if before.is_none() => return None,
            Decision::Delete => Now::Absent,
            Decision::Replace { expires_at_ms: None, .. } => Now::Lasting,
            Decision::Replace { expires_at_ms: Some(_), .. } => Now::Ending,
        };
        let (database, name) = (key.database, key.name.to_vec());
        Some(Self { database, name, was_there: before.is_some(), now, keeps_end: false })
    }

    /// That the key ends when it would have ended, because the command said so.
    pub(crate) fn keep_end(&mut self) {
        self.keeps_end = true;
    }

    /// That a key was removed.
    pub(crate) fn removal(key: Key<'_>) -> Self {
        let (database, name) = (key.database, key.name.to_vec());
        Self { database, name, was_there: true, now: Now::Absent, keeps_end: false }
    }
}

/// Tells who listens what a command has done.
#[cold]
pub(crate) fn tell(shared: &Shared, write: Write, changes: &[Change]) {
    let classes = shared.settings.notified();
    let replaces = matches!(
        write,
        Write::Rename | Write::RenameNx | Write::Copy | Write::Move | Write::Restore
    );
    let appears = |change: &Change| {
        // Redis removes what these replace, so what they write is new.
        if change.now != Now::Absent && (replaces || !change.was_there) {
            publish(shared, classes, Class::New, "new", change.database, &change.name);
        }
    };
    let happens = |change: &Change| {
        for (class, event) in events(write, change).into_iter().flatten() {
            publish(shared, classes, class, event, change.database, &change.name);
        }
    };
    match write {
        // What is told of the old name comes before what is told of the new one.
        Write::Rename | Write::RenameNx | Write::Move => {
            changes.iter().for_each(appears);
            changes.iter().rev().for_each(happens);
        }
        _ => changes.iter().for_each(|change| {
            appears(change);
            happens(change);
        }),
    }
}

/// Tells who listens that keys have ended.
pub(crate) fn tell_expired(shared: &Shared, keys: &[(u8, Vec<u8>)]) {
    let classes = shared.settings.notified();
    for (database, name) in keys {
        publish(shared, classes, Class::Expired, "expired", *database, name);
    }
}

/// What Redis calls what a command did to a key.
fn events(write: Write, change: &Change) -> [Option<(Class, &'static str)>; 2] {
    use Class::{Generic, Hash, String};
    let now = change.now;
    const REMOVED: Option<(Class, &str)> = Some((Generic, "del"));
    let is_there = now != Now::Absent;
    let event = match write {
        Write::HDel => Some((Hash, "hdel")),
        Write::Rename | Write::RenameNx if !is_there => Some((Generic, "rename_from")),
        Write::Move if !is_there => Some((Generic, "move_from")),
        _ if !is_there => None,
        Write::Set
        | Write::SetNx
        | Write::SetEx
        | Write::PSetEx
        | Write::GetSet
        | Write::MSet
        | Write::MSetNx
        | Write::BitOp => Some((String, "set")),
        Write::Append => Some((String, "append")),
        Write::SetRange => Some((String, "setrange")),
        Write::Incr | Write::Decr | Write::IncrBy | Write::DecrBy => Some((String, "incrby")),
        Write::IncrByFloat => Some((String, "incrbyfloat")),
        Write::SetBit | Write::BitField => Some((String, "setbit")),
        Write::HSet | Write::HMSet | Write::HSetNx => Some((Hash, "hset")),
        Write::HIncrBy => Some((Hash, "hincrby")),
        Write::HIncrByFloat => Some((Hash, "hincrbyfloat")),
        Write::Rename | Write::RenameNx => Some((Generic, "rename_to")),
        Write::Copy => Some((Generic, "copy_to")),
        Write::Move => Some((Generic, "move_to")),
        Write::Restore => Some((Generic, "restore")),
        Write::GetEx if now == Now::Lasting => Some((Generic, "persist")),
        Write::Persist => Some((Generic, "persist")),
        Write::GetEx | Write::Expire | Write::PExpire | Write::ExpireAt | Write::PExpireAt => {
            Some((Generic, "expire"))
        }
        Write::Del | Write::GetDel => None,
    };
    let more = match write {
        Write::Rename | Write::RenameNx | Write::Move => None,
        _ if !is_there => REMOVED,
        Write::Set if change.keeps_end => None,
        Write::Set | Write::SetEx | Write::PSetEx if now == Now::Ending => {
            Some((Generic, "expire"))
        }
        _ => None,
    };
    [event, more]
}

fn publish(
    shared: &Shared,
    classes: Classes,
    class: Class,
    event: &str,
    database: u8,
    name: &[u8],
) {
    if !classes.has(class) {
        return;
    }
    if classes.has(Class::Keyspace) {
        let channel = [format!("__keyspace@{database}__:").as_bytes(), name].concat();
        shared.publish(Way::Channel, &channel, event.as_bytes());
    }
    if classes.has(Class::Keyevent) {
        let channel = format!("__keyevent@{database}__:{event}");
        shared.publish(Way::Channel, channel.as_bytes(), name);
    }
}
