//! ACL LOG: what was refused, and to whom.

use std::collections::VecDeque;

/// An entry that is like one of the last so many milliseconds is counted there.
const ALIKE_MS: u64 = 60_000;

/// Why something was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    Command,
    Key,
    Channel,
    Auth,
}

impl Reason {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Key => "key",
            Self::Channel => "channel",
            Self::Auth => "auth",
        }
    }
}

/// Where a command stood that was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Context {
    TopLevel,
    /// It was kept by MULTI when it was still allowed.
    Multi,
    Script,
}

impl Context {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::TopLevel => "toplevel",
            Self::Multi => "multi",
            Self::Script => "lua",
        }
    }
}

/// What was refused.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) count: u64,
    pub(crate) reason: Reason,
    pub(crate) context: Context,
    /// The command, key or channel.
    pub(crate) object: Vec<u8>,
    pub(crate) user: Vec<u8>,
    /// The line of CLIENT LIST.
    pub(crate) client: Vec<u8>,
    pub(crate) created_ms: u64,
    pub(crate) updated_ms: u64,
}

/// The last refusals, newest first.
#[derive(Debug, Default)]
pub(crate) struct Log {
    entries: VecDeque<Entry>,
    last_id: u64,
}

impl Log {
    /// Notes a refusal and keeps `most` of them.
    pub(crate) fn note(
        &mut self,
        (reason, context): (Reason, Context),
        object: &[u8],
        user: &[u8],
        client: Vec<u8>,
        now_ms: u64,
        most: usize,
    ) {
        let alike = self.entries.iter().position(|entry| {
            (entry.reason, entry.context) == (reason, context)
                && entry.object == object
                && entry.user == user
                && now_ms.saturating_sub(entry.updated_ms) <= ALIKE_MS
        });
        match alike.and_then(|at| self.entries.remove(at)) {
            Some(mut entry) => {
                entry.count += 1;
                entry.client = client;
                entry.updated_ms = now_ms;
                self.entries.push_front(entry);
            }
            None => {
                self.entries.push_front(Entry {
                    id: self.last_id,
                    count: 1,
                    reason,
                    context,
                    object: object.to_vec(),
                    user: user.to_vec(),
                    client,
                    created_ms: now_ms,
                    updated_ms: now_ms,
                });
                self.last_id += 1;
            }
        }
        self.entries.truncate(most);
    }

    /// Newest first.
    pub(crate) fn entries(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter()
    }

    pub(crate) fn reset(&mut self) {
        self.entries.clear();
    }
}
