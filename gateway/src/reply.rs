//! Replies in RESP2 and RESP3, appended to a buffer that is used again.
//!
//! redis-protocol encodes from a tree of frames into room that was sized by
//! walking the tree before; appending costs a quarter of that for a bulk string
//! of 64 bytes and for an integer (`benches/wire.rs` measures both), and a value
//! goes from the store into the buffer without a frame that owns it. So the
//! writer appends, and the tests decode everything that it writes with
//! redis-protocol.

use std::fmt::{self, Write as _};

/// Which of RESP's versions a connection speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protocol {
    /// What every connection begins with.
    #[default]
    Resp2,
    /// After `HELLO 3`.
    Resp3,
}

/// The codes with which error replies begin: the kinds that metrics tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum ErrorKind {
    /// Anything without a code of its own.
    Err,
    /// The value is of another type.
    WrongType,
    /// The pool is full.
    Oom,
    /// HELLO asked for an unknown version.
    NoProto,
    /// A wrong user name or password.
    WrongPass,
    /// A command before AUTH.
    NoAuth,
    /// A command, key or channel that is not for the user.
    NoPerm,
    /// A transaction that was not begun since one of its commands was refused.
    ExecAbort,
    /// A script that is not known by its name.
    NoScript,
    /// A script runs for long, and nothing else shall run meanwhile.
    Busy,
    /// Another code: a script may have made it up.
    Other,
}

impl ErrorKind {
    /// How many kinds there are.
    pub const COUNT: usize = 11;
    /// All of them.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Err,
        Self::WrongType,
        Self::Oom,
        Self::NoProto,
        Self::WrongPass,
        Self::NoAuth,
        Self::NoPerm,
        Self::ExecAbort,
        Self::NoScript,
        Self::Busy,
        Self::Other,
    ];

    /// As it stands in the reply.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Err => "ERR",
            Self::WrongType => "WRONGTYPE",
            Self::Oom => "OOM",
            Self::NoProto => "NOPROTO",
            Self::WrongPass => "WRONGPASS",
            Self::NoAuth => "NOAUTH",
            Self::NoPerm => "NOPERM",
            Self::ExecAbort => "EXECABORT",
            Self::NoScript => "NOSCRIPT",
            Self::Busy => "BUSY",
            Self::Other => "other",
        }
    }

    /// The kind of an error with this code.
    fn of(code: &[u8]) -> Self {
        let of_code = |kind: &Self| *kind != Self::Other && kind.prefix().as_bytes() == code;
        Self::ALL.into_iter().find(of_code).unwrap_or(Self::Other)
    }
}

/// The code of an error: what stands before the first blank, if that comes soon.
fn code_of(text: &[u8]) -> &[u8] {
    const CODE_BYTES_MAX: usize = 31;
    let begin = &text[..text.len().min(CODE_BYTES_MAX + 1)];
    begin.iter().position(|byte| *byte == b' ').map_or(b"ERR", |blank| &begin[..blank])
}

/// Errors that were written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Errors {
    /// By [`ErrorKind`].
    pub kinds: [u32; ErrorKind::COUNT],
    /// Replies that were errors. An error that a script has passed on was counted when it
    /// arose, so it is no error more, but the script has failed.
    pub failures: u32,
    /// How many of the kind [`ErrorKind::Other`] have their codes noted.
    named: usize,
}

/// A place in a [`Reply`], to which it can be taken back.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    bytes: usize,
    errors: Errors,
}

/// Codes that the replies of one batch note.
const CODES_MAX: usize = 128;

/// The replies of one batch of requests.
#[derive(Debug, Default)]
pub struct Reply {
    out: Vec<u8>,
    /// The version in which to write.
    pub protocol: Protocol,
    errors: Errors,
    /// The codes of errors of the kind [`ErrorKind::Other`].
    named: Vec<Box<[u8]>>,
}

impl Reply {
    /// Appends to `out`.
    pub fn new(out: Vec<u8>, protocol: Protocol) -> Self {
        Self { out, protocol, errors: Errors::default(), named: Vec::new() }
    }

    /// How many errors were written.
    pub fn errors(&self) -> &Errors {
        &self.errors
    }

    /// The codes of errors that have no kind of their own.
    pub fn other_codes(&self) -> &[Box<[u8]>] {
        &self.named
    }

    /// How many replies were errors.
    #[inline]
    pub fn failures(&self) -> u32 {
        self.errors.failures
    }

    /// Makes nothing of failures that came when there had been so many already.
    pub fn forget_failures(&mut self, before: u32) {
        self.errors.failures = before;
    }

    /// Where this reply is now.
    #[inline]
    pub fn mark(&self) -> Mark {
        Mark { bytes: self.out.len(), errors: self.errors }
    }

    /// Takes back what was written after `mark`, and forgets its errors.
    #[inline]
    pub fn rewind(&mut self, mark: Mark) {
        self.out.truncate(mark.bytes);
        self.errors = mark.errors;
        self.named.truncate(mark.errors.named);
    }

    /// What has been written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    /// Counts the errors of another reply. That it has failed is another matter.
    pub fn count_errors_of(&mut self, other: &Self) {
        for (errors, more) in self.errors.kinds.iter_mut().zip(other.errors.kinds) {
            *errors += more;
        }
        self.named.extend_from_slice(&other.named);
        self.errors.named = self.named.len();
    }

    /// Appends another reply, with its errors and failures.
    pub fn append(&mut self, other: Self) {
        self.count_errors_of(&other);
        self.errors.failures += other.errors.failures;
        self.raw(&other.out);
    }

    /// How many bytes have been written; a place for [`Self::truncate`].
    #[inline]
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Takes back what was written after `mark` bytes; its errors stay counted.
    #[inline]
    pub fn truncate(&mut self, mark: usize) {
        self.out.truncate(mark);
    }

    /// Whether the connection speaks RESP3.
    pub fn is_resp3(&self) -> bool {
        self.protocol == Protocol::Resp3
    }

    /// `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// A simple string; `text` has no line end in it.
    #[inline]
    pub fn simple(&mut self, text: &str) {
        self.out.push(b'+');
        self.out.extend_from_slice(text.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    /// A simple string of any bytes but line ends.
    pub(crate) fn simple_bytes(&mut self, text: &[u8]) {
        self.out.push(b'+');
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }

    /// An error: its prefix, a blank and the text. Line ends become blanks.
    #[cold]
    pub fn error(&mut self, text: &str) {
        self.error_bytes(text.as_bytes());
    }

    /// An error with a formatted text.
    #[cold]
    pub fn error_fmt(&mut self, text: fmt::Arguments<'_>) {
        let mut line = String::new();
        line.write_fmt(text).expect("a String takes all that is written");
        self.error_bytes(line.as_bytes());
    }

    /// An error that may quote any bytes of the client's.
    #[cold]
    pub fn error_bytes(&mut self, text: &[u8]) {
        let code = code_of(text);
        let kind = ErrorKind::of(code);
        self.errors.kinds[kind as usize] += 1;
        if kind == ErrorKind::Other && self.named.len() < CODES_MAX {
            self.named.push(code.into());
            self.errors.named = self.named.len();
        }
        self.known_error(text);
    }

    /// An error that was counted when it arose.
    #[cold]
    pub fn known_error(&mut self, text: &[u8]) {
        let end = text.iter().rposition(|byte| !b"\r\n".contains(byte)).map_or(0, |last| last + 1);
        self.errors.failures += 1;
        self.out.push(b'-');
        self.out.extend(
            text[..end].iter().map(|byte| if b"\r\n".contains(byte) { b' ' } else { *byte }),
        );
        self.out.extend_from_slice(b"\r\n");
    }

    /// An integer.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        self.header(b':', value);
    }

    /// A bulk string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.out.reserve(bytes.len() + 32);
        match bytes.len() {
            length @ 10..100 => {
                let (tens, ones) = (b'0' + (length / 10) as u8, b'0' + (length % 10) as u8);
                self.out.extend_from_slice(&[b'$', tens, ones, b'\r', b'\n']);
            }
            length => self.header(b'$', length as i64),
        }
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// A bulk string that holds a number.
    pub fn bulk_integer(&mut self, value: i64) {
        let mut digits = itoa::Buffer::new();
        self.bulk(digits.format(value).as_bytes());
    }

    /// The absence of a value.
    #[inline]
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// The absence of an array.
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// The header of an array of `count` replies.
    #[inline]
    pub fn array(&mut self, count: usize) {
        self.header(b'*', count as i64);
    }

    /// The header of `pairs` keys and values, flat in RESP2.
    pub fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', pairs as i64 * 2),
            Protocol::Resp3 => self.header(b'%', pairs as i64),
        }
    }

    /// The header of a set of `count` replies, an array in RESP2.
    pub fn set(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', count as i64),
            Protocol::Resp3 => self.header(b'~', count as i64),
        }
    }

    /// The header of a message that nobody asked for, an array in RESP2.
    pub fn push(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', count as i64),
            Protocol::Resp3 => self.header(b'>', count as i64),
        }
    }

    /// A double, a bulk string in RESP2.
    pub fn double(&mut self, value: f64) {
        let text = if value.is_infinite() {
            String::from(if value > 0.0 { "inf" } else { "-inf" })
        } else if value.is_nan() {
            String::from("nan")
        } else {
            format!("{value}")
        };
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.out.push(b',');
                self.out.extend_from_slice(text.as_bytes());
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// A boolean, 1 or 0 in RESP2.
    pub fn boolean(&mut self, value: bool) {
        match self.protocol {
            Protocol::Resp2 => self.integer(i64::from(value)),
            Protocol::Resp3 => {
                self.out.extend_from_slice(if value { b"#t\r\n" } else { b"#f\r\n" });
            }
        }
    }

    /// An integer of any length, as its digits; a bulk string in RESP2.
    pub fn big_number(&mut self, digits: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(digits),
            Protocol::Resp3 => {
                self.out.push(b'(');
                self.out.extend_from_slice(digits);
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Text for a person to read, a bulk string in RESP2.
    pub fn verbatim(&mut self, text: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => {
                self.header(b'=', text.len() as i64 + 4);
                self.out.extend_from_slice(b"txt:");
                self.out.extend_from_slice(text);
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Bytes that are a whole reply already.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    #[inline]
    fn header(&mut self, first: u8, value: i64) {
        let mut digits = itoa::Buffer::new();
        self.out.push(first);
        self.out.extend_from_slice(digits.format(value).as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests;
