//! Commands that only read, gathered so that a pipeline of them is one call of
//! the keyspace.

use fusee::{Entry, Error, Key, Kind};

use super::table::Command;
use super::{NOT_INTEGER, Read, bits, dump, hash, integer, object, refuse, wrong_type};
use crate::reply::Reply;
use crate::request::{Arguments, BULK_BYTES_MAX, Frame, Requests};

/// Replies beyond which the commands that follow are read again later, once
/// these have been sent: what a pipeline asks for may be any multiple of 512 MB.
const REPLY_BYTES_PER_READ: usize = 1 << 20;
/// The largest reply of one command, so that an MGET of many large values does
/// not take all memory. Four of the largest values.
pub(super) const REPLY_BYTES_MAX: usize = 4 * BULK_BYTES_MAX as usize + (1 << 20);

/// One gathered command: how many keys it has among all that are gathered, and
/// where its arguments are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gathered {
    read: Read,
    keys: u32,
    frame: Frame,
}

/// Adds a command's keys to `keys`.
#[inline]
pub(crate) fn gather<'a>(
    read: Read,
    command: &Command,
    frame: Frame,
    arguments: Arguments<'a>,
    database: u8,
    keys: &mut Vec<Key<'a>>,
) -> Gathered {
    if matches!(read, Read::MGet | Read::Exists | Read::Touch) {
        keys.extend(arguments.from(1).map(|name| Key { database, name }));
        return Gathered { read, keys: arguments.len() as u32 - 1, frame };
    }
    keys.push(Key { database, name: arguments.get(command.keys.0 as usize) });
    Gathered { read, keys: 1, frame }
}

/// Where the arguments of gathered commands are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) requests: &'a Requests,
    pub(crate) input: &'a [u8],
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
    source: Source<'a>,
    reply: &'a mut Reply,
    now_ms: u64,
    random: u64,
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
        source: Source<'a>,
        reply: &'a mut Reply,
        random: u64,
        now_ms: impl FnOnce() -> u64,
    ) -> Self {
        let timed = gathered.iter().any(|one| matches!(one.read, Read::Ttl | Read::PTtl));
        let now_ms = if timed { now_ms() } else { 0 };
        let mark = reply.len();
        Self {
            gathered,
            source,
            reply,
            now_ms,
            random,
            lookups: Lookups::default(),
            answered: 0,
            found: 0,
            start: mark,
            mark,
            failed: None,
        }
    }

    /// Takes the next key's entry. Whether there is room for more replies.
    #[inline]
    pub(crate) fn take(&mut self, result: Result<Option<Entry<'_>>, Error>) -> bool {
        if let (
            Ok(Some(Entry { value, kind: Kind::String, .. })),
            [Gathered { read: Read::Get, .. }, later @ ..],
        ) = (result, self.gathered)
        {
            // What most clients ask for most of the time.
            self.reply.bulk(value);
            self.lookups.hits += 1;
            self.gathered = later;
            self.mark = self.reply.len();
        } else {
            self.take_any(result);
        }
        !self.is_full()
    }

    fn take_any(&mut self, result: Result<Option<Entry<'_>>, Error>) {
        let Some(&Gathered { read, keys, frame }) = self.gathered.first() else { return };
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
                Some(Entry { value, kind: Kind::String, .. }) => self.reply.bulk(value),
                Some(_) => wrong_type(self.reply),
                None => self.reply.null(),
            },
            Read::MGet => {
                if self.answered == 0 {
                    self.reply.array(keys as usize);
                }
                match entry {
                    Some(_) if self.failed.is_some() => {}
                    Some(Entry { value, kind: Kind::String, .. }) => {
                        if self.room() < value.len() {
                            self.reply.truncate(self.mark);
                            self.failed = Some(Failure::TooLarge);
                        } else {
                            self.reply.bulk(value);
                        }
                    }
                    Some(_) | None => self.reply.null(),
                }
            }
            Read::Exists | Read::Touch => self.found += i64::from(entry.is_some()),
            Read::Type => {
                self.reply.simple(entry.map_or("none", |entry| kind_name(entry.kind)));
            }
            Read::Ttl | Read::PTtl | Read::ExpireTime | Read::PExpireTime => {
                let end = entry.map(|entry| entry.expires_at_ms);
                self.reply.integer(time(read, end, self.now_ms));
            }
            // The error is written when the command is finished.
            _ if self.failed.is_some() => {}
            _ => {
                let arguments = self.source.requests.arguments(self.source.input, frame);
                self.single(read, arguments, entry);
            }
        }
        self.answered += 1;
        if self.answered == keys {
            self.finish(read);
        }
    }

    /// Answers a command that reads one key of one kind.
    fn single(&mut self, read: Read, arguments: Arguments<'_>, entry: Option<Entry<'_>>) {
        let reply = &mut *self.reply;
        let of_kind = |kind: Kind| match entry {
            Some(entry) if entry.kind != kind => Err(()),
            entry => Ok(entry.map(|entry| entry.value)),
        };
        match read {
            Read::Strlen => match of_kind(Kind::String) {
                Ok(value) => reply.integer(value.map_or(0, <[u8]>::len) as i64),
                Err(()) => wrong_type(reply),
            },
            Read::GetRange => {
                match (integer(arguments.get(2)), integer(arguments.get(3)), of_kind(Kind::String))
                {
                    (Some(start), Some(end), Ok(value)) => {
                        reply.bulk(value.map_or(&[], |value| slice(value, (start, end))));
                    }
                    (Some(_), Some(_), Err(())) => wrong_type(reply),
                    _ => reply.error(NOT_INTEGER),
                }
            }
            Read::Hash(read) => match of_kind(Kind::Hash) {
                Ok(value) => {
                    self.random = self.random.rotate_left(7) ^ 0x9e37_79b9;
                    hash::answer(read, arguments, value, self.random, reply);
                }
                Err(()) if read == hash::HashRead::Scan => {
                    super::key::refuse_scan(arguments.get(2), reply);
                }
                Err(()) => wrong_type(reply),
            },
            Read::Bits(read) => match of_kind(Kind::String) {
                Ok(value) => bits::answer(read, arguments, value, reply),
                Err(()) => match bits::fault(read, arguments) {
                    Some(error) => reply.error(error),
                    None => wrong_type(reply),
                },
            },
            Read::Dump => dump::dump(entry, reply),
            Read::Object(read) => object::answer(read, arguments, entry, reply),
            _ => unreachable!("it is answered where it is taken"),
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
    }

    /// Whether the commands that are left have to wait for the next read.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.answered == 0 && self.reply.len() - self.start > REPLY_BYTES_PER_READ
    }

    fn room(&self) -> usize {
        REPLY_BYTES_MAX.saturating_sub(self.reply.len() - self.mark)
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
        Kind::Hash => "hash",
        Kind::List => "list",
        Kind::Set => "set",
        Kind::Later => "unknown",
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
    use crate::request::{Limits, Next};

    #[test]
    fn a_failed_read_is_one_error_and_its_neighbours_stay() {
        let mut input = b"GETRANGE k x 1\nGETRANGE k 0 0\nHGET k f\n".to_vec();
        let mut requests = Requests::default();
        let mut frames = Vec::new();
        while let Ok(Next::Frame(frame)) = requests.next(&mut input, Limits::new(true)) {
            frames.push(frame);
        }
        let keys = |read, keys, at: usize| Gathered { read, keys, frame: frames[at] };
        let hash = Read::Hash(hash::HashRead::Get);
        let gathered = [
            keys(Read::Get, 1, 0),
            keys(Read::MGet, 3, 0),
            keys(Read::GetRange, 1, 0),
            keys(Read::GetRange, 1, 1),
            keys(Read::GetRange, 1, 1),
            keys(hash, 1, 2),
            keys(Read::Exists, 2, 0),
        ];
        let mut reply = Reply::default();
        let source = Source { requests: &requests, input: &input };
        let mut answers = Answers::new(&gathered, source, &mut reply, 1, || 0);
        let entry = Entry { value: b"v", kind: Kind::String, expires_at_ms: None };
        answers.take(Ok(Some(entry)));
        answers.take(Ok(Some(entry)));
        answers.take(Err(Error::NodeDown { node: 3 }));
        answers.take(Ok(Some(entry)));
        answers.take(Ok(Some(entry)));
        answers.take(Ok(Some(entry)));
        answers.take(Err(Error::NodeDown { node: 3 }));
        answers.take(Ok(Some(entry)));
        answers.take(Ok(None));
        answers.take(Ok(Some(entry)));
        let (lookups, left) = answers.end();
        assert_eq!((lookups.hits, lookups.misses, left), (7, 3, 0));
        let text = String::from_utf8(reply.into_bytes()).expect("text");
        let down = "-ERR memory node 3 does not answer; a write may or may not have been applied, \
                    read before trying again\r\n";
        assert_eq!(
            text,
            format!(
                "$1\r\nv\r\n{down}-ERR value is not an integer or out of range\r\n$1\r\nv\r\n{down}\
                 -WRONGTYPE Operation against a key holding the wrong kind of value\r\n:1\r\n"
            )
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
