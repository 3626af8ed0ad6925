//! Commands that only read, gathered so that a pipeline of them is one call of
//! the keyspace.

use fusee::{Entry, Error, Key, Kind};

use super::{NOT_INTEGER, Read, integer, refuse};
use crate::reply::Reply;
use crate::request::{Arguments, BULK_BYTES_MAX};

/// Replies beyond which the commands that follow are read again later, once
/// these have been sent: what a pipeline asks for may be any multiple of 512 MB.
const REPLY_BYTES_PER_READ: usize = 1 << 20;
/// The largest reply of one command, so that an MGET of many large values does
/// not take all memory. Four of the largest values.
const REPLY_BYTES_MAX: usize = 4 * BULK_BYTES_MAX as usize + (1 << 20);

/// One gathered command: how many keys it has among all that are gathered, and
/// how their entries become its reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gathered {
    read: Read,
    /// 0 when the arguments were wrong and the reply is an error.
    keys: u32,
    range: (i64, i64),
}

/// Adds a command's keys to `keys`.
#[inline]
pub(crate) fn gather<'a>(
    read: Read,
    arguments: Arguments<'a>,
    database: u8,
    keys: &mut Vec<Key<'a>>,
) -> Gathered {
    let mut range = (0, 0);
    match read {
        Read::MGet | Read::Exists | Read::Touch => {
            keys.extend(arguments.from(1).map(|name| Key { database, name }));
            return Gathered { read, keys: arguments.len() as u32 - 1, range };
        }
        Read::GetRange => {
            match (integer(arguments.get(2)), integer(arguments.get(3))) {
                (Some(start), Some(end)) => range = (start, end),
                _ => return Gathered { read, keys: 0, range },
            };
        }
        _ => {}
    }
    keys.push(Key { database, name: arguments.get(1) });
    Gathered { read, keys: 1, range }
}

/// Keys that were there, and that were not, as INFO counts them.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Lookups {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

/// Turns the entries of gathered commands into their replies, in order.
pub(crate) struct Answers<'a> {
    gathered: &'a [Gathered],
    reply: &'a mut Reply,
    now_ms: u64,
    pub(crate) lookups: Lookups,
    /// Keys of the first of `gathered` that have been answered.
    answered: u32,
    /// How many of those were there.
    found: i64,
    /// Where the replies of this read begin, and that of that command.
    start: usize,
    mark: usize,
    /// What went wrong with that command.
    failed: Option<Failure>,
}

/// Why a command is answered by an error after all.
#[derive(Clone, Copy)]
enum Failure {
    Store(Error),
    TooLarge,
}

impl<'a> Answers<'a> {
    /// `now_ms` is asked only if a command tells how long a key has left.
    pub(crate) fn new(
        gathered: &'a [Gathered],
        reply: &'a mut Reply,
        now_ms: impl FnOnce() -> u64,
    ) -> Self {
        let timed = gathered.iter().any(|one| matches!(one.read, Read::Ttl | Read::PTtl));
        let now_ms = if timed { now_ms() } else { 0 };
        let mark = reply.len();
        let mut answers = Self {
            gathered,
            reply,
            now_ms,
            lookups: Lookups::default(),
            answered: 0,
            found: 0,
            start: mark,
            mark,
            failed: None,
        };
        answers.skip_malformed();
        answers
    }

    /// Takes the next key's entry.
    #[inline]
    pub(crate) fn take(&mut self, result: Result<Option<Entry<'_>>, Error>) {
        if self.is_full() {
            return;
        }
        let Some(&Gathered { read, keys, range }) = self.gathered.first() else { return };
        let entry = match result {
            Ok(entry) => entry,
            Err(error) => {
                self.failed = Some(Failure::Store(error));
                None
            }
        };
        match entry {
            Some(_) => self.lookups.hits += 1,
            None => self.lookups.misses += 1,
        }
        match read {
            Read::Get => match entry {
                Some(entry) => self.reply.bulk(entry.value),
                None => self.reply.null(),
            },
            Read::MGet => {
                if self.answered == 0 {
                    self.reply.array(keys as usize);
                }
                match entry {
                    Some(_) if self.failed.is_some() => {}
                    Some(entry) if self.room() < entry.value.len() => {
                        self.reply.truncate(self.mark);
                        self.failed = Some(Failure::TooLarge);
                    }
                    Some(entry) => self.reply.bulk(entry.value),
                    None => self.reply.null(),
                }
            }
            Read::Exists | Read::Touch => self.found += i64::from(entry.is_some()),
            Read::Strlen => {
                self.reply.integer(entry.map_or(0, |entry| entry.value.len() as i64));
            }
            Read::GetRange => {
                self.reply.bulk(entry.map_or(&[], |entry| slice(entry.value, range)));
            }
            Read::Type => {
                self.reply.simple(entry.map_or("none", |entry| kind_name(entry.kind)));
            }
            Read::Ttl | Read::PTtl | Read::ExpireTime | Read::PExpireTime => {
                let end = entry.map(|entry| entry.expires_at_ms);
                self.reply.integer(time(read, end, self.now_ms));
            }
        }
        self.answered += 1;
        if self.answered == keys {
            self.finish(read);
        }
    }

    #[inline]
    fn finish(&mut self, read: Read) {
        if matches!(read, Read::Exists | Read::Touch) {
            self.reply.integer(self.found);
            self.found = 0;
        }
        if let Some(failure) = self.failed.take() {
            self.reply.truncate(self.mark);
            match failure {
                Failure::Store(error) => refuse(self.reply, error),
                Failure::TooLarge => {
                    self.reply.error("ERR the reply is larger than 2 GiB: ask for fewer keys");
                }
            }
        }
        self.answered = 0;
        self.gathered = &self.gathered[1..];
        self.mark = self.reply.len();
        self.skip_malformed();
    }

    /// Whether the commands that are left have to wait for the next read.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.answered == 0 && self.reply.len() - self.start > REPLY_BYTES_PER_READ
    }

    fn room(&self) -> usize {
        REPLY_BYTES_MAX.saturating_sub(self.reply.len() - self.mark)
    }

    /// Answers commands whose arguments were wrong.
    #[inline]
    fn skip_malformed(&mut self) {
        while let Some(Gathered { keys: 0, .. }) = self.gathered.first() {
            self.reply.error(NOT_INTEGER);
            self.gathered = &self.gathered[1..];
            self.mark = self.reply.len();
        }
    }

    /// What was found, once all keys have been taken, and how many commands
    /// were left for the next read.
    pub(crate) fn end(self) -> (Lookups, usize) {
        debug_assert!(self.gathered.is_empty() || self.is_full(), "every key was answered");
        (self.lookups, self.gathered.len())
    }
}

/// What TYPE calls a kind.
pub(crate) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::String => "string",
    }
}

/// GETRANGE's bytes: negative positions count from the end.
fn slice(value: &[u8], (start, end): (i64, i64)) -> &[u8] {
    if start < 0 && end < 0 && start > end {
        return &[];
    }
    let length = value.len() as i64;
    let place = |position: i64| {
        if position < 0 { position.saturating_add(length).max(0) } else { position }
    };
    let start = place(start);
    let end = place(end).min(length - 1);
    if start > end { &[] } else { &value[start as usize..=end as usize] }
}

/// What TTL and its relatives answer for an end: -2 without a key, -1 without
/// an end. Seconds are rounded to the nearest.
fn time(read: Read, end: Option<Option<u64>>, now_ms: u64) -> i64 {
    let end = match end {
        None => return -2,
        Some(None) => return -1,
        Some(Some(end)) => end,
    };
    let left = end.saturating_sub(now_ms);
    (match read {
        Read::Ttl => (left + 500) / 1000,
        Read::PTtl => left,
        Read::ExpireTime => (end + 500) / 1000,
        _ => end,
    }) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_read_is_one_error_and_its_neighbours_stay() {
        let keys = |read, keys| Gathered { read, keys, range: (0, 0) };
        let gathered = [
            keys(Read::Get, 1),
            keys(Read::MGet, 3),
            keys(Read::GetRange, 0),
            keys(Read::Exists, 2),
        ];
        let mut reply = Reply::default();
        let mut answers = Answers::new(&gathered, &mut reply, || 0);
        let entry = Entry { value: b"v", kind: Kind::String, expires_at_ms: None };
        answers.take(Ok(Some(entry)));
        answers.take(Ok(Some(entry)));
        answers.take(Err(Error::NodeDown { node: 3 }));
        answers.take(Ok(Some(entry)));
        answers.take(Ok(None));
        answers.take(Ok(Some(entry)));
        let (lookups, left) = answers.end();
        assert_eq!((lookups.hits, lookups.misses, left), (4, 2, 0));
        let text = String::from_utf8(reply.into_bytes()).expect("text");
        assert_eq!(
            text,
            "$1\r\nv\r\n\
             -ERR memory node 3 does not answer; a write may or may not have been applied, \
             read before trying again\r\n\
             -ERR value is not an integer or out of range\r\n:1\r\n"
        );
    }

    #[test]
    fn ttl_rounds_to_the_nearest_second() {
        for (left, seconds) in [(1400, 1), (400, 0), (500, 1), (10_000, 10), (9_600, 10)] {
            assert_eq!(time(Read::Ttl, Some(Some(5_000 + left)), 5_000), seconds);
        }
        assert_eq!(time(Read::Ttl, None, 0), -2);
        assert_eq!(time(Read::PTtl, Some(None), 0), -1);
    }

    #[test]
    fn ranges_count_from_both_ends() {
        let value = b"Hello World";
        for (range, expected) in [
            ((0, 3), "Hell"),
            ((0, -1), "Hello World"),
            ((-4, -1), "orld"),
            ((5, 3), ""),
            ((5, 5000), " World"),
            ((-5000, 10_000), "Hello World"),
            ((-1, -5), ""),
            ((0, -100), "H"),
            ((i64::MIN, i64::MAX), "Hello World"),
            ((i64::MAX, i64::MIN), ""),
        ] {
            assert_eq!(slice(value, range), expected.as_bytes(), "{range:?}");
        }
        assert_eq!(slice(b"", (0, -1)), b"");
    }
}
