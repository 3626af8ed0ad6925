//! What clients send: arrays of bulk strings, or inline lines, as ranges over
//! the read buffer.
//!
//! The parser is flat (requests do not nest), incremental (it keeps its place
//! between reads and never looks at a byte of a bulk twice) and bounded.
//! A general RESP decoder is none of these: it recurses on nested arrays and
//! starts over with every read.

use std::fmt;

mod inline;
mod line;

pub(crate) use line::integer;

use line::Line;

/// The most arguments that one request may have.
pub const ARGUMENTS_MAX: i64 = 1024 * 1024;
/// The longest argument in bytes (Redis's proto-max-bulk-len).
pub const BULK_BYTES_MAX: i64 = 512 * 1024 * 1024;
/// The longest inline request or header line in bytes.
pub const LINE_BYTES_MAX: usize = 64 * 1024;
/// The most arguments of a request before the client has authenticated.
pub const ARGUMENTS_MAX_UNAUTHENTICATED: i64 = 10;
/// The longest argument in bytes before the client has authenticated.
pub const BULK_BYTES_MAX_UNAUTHENTICATED: i64 = 16 * 1024;

/// Spans kept allocated between requests; more are given back.
const SPANS_KEPT: usize = 4096;

/// What this client may send.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    arguments: i64,
    bulk_bytes: i64,
    authenticated: bool,
}

impl Limits {
    /// The limits before and after AUTH.
    pub fn new(authenticated: bool) -> Self {
        if authenticated {
            Self { arguments: ARGUMENTS_MAX, bulk_bytes: BULK_BYTES_MAX, authenticated }
        } else {
            Self {
                arguments: ARGUMENTS_MAX_UNAUTHENTICATED,
                bulk_bytes: BULK_BYTES_MAX_UNAUTHENTICATED,
                authenticated,
            }
        }
    }
}

/// Why what arrived is no request. The connection is closed after saying so,
/// since nobody knows where the next request begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtocolError {
    /// The line after `*` does not end.
    ArrayHeaderTooLong,
    /// What follows `*` is no number, or too large a one.
    ArrayLength,
    /// Too many arguments for a client that has not authenticated.
    ArrayLengthUnauthenticated,
    /// The line after `$` does not end.
    BulkHeaderTooLong,
    /// An argument that begins with another byte than `$`.
    BulkExpected(u8),
    /// What follows `$` is no number, or too large a one.
    BulkLength,
    /// Too long an argument for a client that has not authenticated.
    BulkLengthUnauthenticated,
    /// An inline line that does not end.
    InlineTooLong,
    /// An inline line with a quote that is not closed.
    InlineQuotes,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        f.write_str(match self {
            Self::ArrayHeaderTooLong => "too big mbulk count string",
            Self::ArrayLength => "invalid multibulk length",
            Self::ArrayLengthUnauthenticated => "unauthenticated multibulk length",
            Self::BulkHeaderTooLong => "too big bulk count string",
            Self::BulkExpected(byte) => {
                return write!(f, "expected '$', got '{}'", char::from(*byte));
            }
            Self::BulkLength => "invalid bulk length",
            Self::BulkLengthUnauthenticated => "unauthenticated bulk length",
            Self::InlineTooLong => "too big inline request",
            Self::InlineQuotes => "unbalanced quotes in request",
        })
    }
}

/// One argument's place in the read buffer. The buffer is bounded below 4 GiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    fn new(start: usize, end: usize) -> Self {
        debug_assert!(start <= end && u32::try_from(end).is_ok());
        Self { start: start as u32, end: end as u32 }
    }
}

/// One complete request: its arguments among all spans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    first: u32,
    count: u32,
}

/// The arguments of one request.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    buffer: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Arguments<'a> {
    /// How many there are, the command's name among them; at least one.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// False: a request without arguments is none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The argument at `index`, 0 being the command's name.
    ///
    /// # Panics
    /// When there are not so many.
    #[inline]
    pub fn get(&self, index: usize) -> &'a [u8] {
        let span = self.spans[index];
        &self.buffer[span.start as usize..span.end as usize]
    }

    /// The request that the arguments from `index` on would be.
    pub(crate) fn skip(&self, index: usize) -> Self {
        Self { buffer: self.buffer, spans: &self.spans[index..] }
    }

    /// The arguments from `index` on.
    pub fn from(&self, index: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let Self { buffer, spans } = *self;
        spans[index..].iter().map(move |span| &buffer[span.start as usize..span.end as usize])
    }
}

/// What a call of [`Requests::next`] came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// A complete request.
    Frame(Frame),
    /// The buffer holds no further complete request.
    Incomplete,
}

/// The parser's place in a connection's read buffer.
#[derive(Debug, Default)]
pub struct Requests {
    spans: Vec<Span>,
    /// Where the unfinished request begins in the buffer.
    frame_start: usize,
    /// Its first span.
    frame_first: usize,
    /// The next byte to look at.
    position: usize,
    /// How far an unfinished line was searched for its end.
    searched: usize,
    /// How many arguments of an array are still to come.
    remaining: usize,
    /// The length of the argument at `position`, once its header was read.
    bulk: Option<usize>,
}

impl Requests {
    /// Parses on from where the last call stopped. `buffer` may have grown
    /// since, but what was in it must be there still, up to [`Self::compact`].
    ///
    /// # Errors
    /// What arrived is not a request; the parser must not be used again.
    #[inline]
    pub fn next(&mut self, buffer: &mut [u8], limits: Limits) -> Result<Next, ProtocolError> {
        loop {
            if self.remaining > 0 {
                return self.bulks(buffer, limits);
            }
            if let Some(frame) = self.whole(buffer, limits) {
                return Ok(Next::Frame(frame));
            }
            let Some(&first) = buffer.get(self.position) else { return Ok(Next::Incomplete) };
            if first != b'*' {
                match self.inline(buffer)? {
                    Some(Frame { count: 0, .. }) => {}
                    Some(frame) => return Ok(Next::Frame(frame)),
                    None => return Ok(Next::Incomplete),
                }
            } else if !self.array(buffer, limits)? {
                return Ok(Next::Incomplete);
            }
        }
    }

    /// Reads a request that has arrived whole and whose headers are of the commonest form,
    /// which tells no length that anybody may not send. Where there is none nothing has
    /// happened.
    #[inline]
    fn whole(&mut self, buffer: &[u8], limits: Limits) -> Option<Frame> {
        let (count, length, start) = line::beginning(buffer, self.position)?;
        if count == 0 || count as i64 > limits.arguments {
            return None;
        }
        let known = self.spans.len();
        let mut at = start + length;
        self.spans.push(Span::new(start, at));
        for _ in 1..count {
            let Some((length, start)) = line::short(buffer, at + 2, b'$') else {
                self.spans.truncate(known);
                return None;
            };
            at = start + length;
            self.spans.push(Span::new(start, at));
        }
        // The two bytes after an argument are skipped unseen, as Redis does.
        if buffer.len() < at + 2 {
            self.spans.truncate(known);
            return None;
        }
        self.position = at + 2;
        Some(self.finish())
    }

    /// Reads `*<count>\r\n`; false when it has not arrived whole.
    #[inline]
    fn array(&mut self, buffer: &[u8], limits: Limits) -> Result<bool, ProtocolError> {
        let count = match line::number(buffer, self.position + 1, self.searched) {
            Line::Number { value, next } => {
                self.position = next;
                value
            }
            Line::Incomplete => {
                self.searched = buffer.len();
                if buffer.len() - self.position > LINE_BYTES_MAX {
                    return Err(ProtocolError::ArrayHeaderTooLong);
                }
                return Ok(false);
            }
            Line::Malformed => return Err(ProtocolError::ArrayLength),
        };
        if count > ARGUMENTS_MAX {
            return Err(ProtocolError::ArrayLength);
        }
        if count > limits.arguments {
            return Err(ProtocolError::ArrayLengthUnauthenticated);
        }
        if count <= 0 {
            // Redis takes `*0` and `*-10` for nothing at all.
            self.frame_start = self.position;
        } else {
            self.remaining = count as usize;
        }
        Ok(true)
    }

    /// Reads the arguments that remain of an array.
    #[inline]
    fn bulks(&mut self, buffer: &[u8], limits: Limits) -> Result<Next, ProtocolError> {
        loop {
            let length = match self.bulk {
                Some(length) => length,
                None => match self.bulk_header(buffer, limits)? {
                    Some(length) => length,
                    None => return Ok(Next::Incomplete),
                },
            };
            let end = self.position + length;
            // The two bytes after an argument are skipped unseen, as Redis does.
            if buffer.len() < end + 2 {
                self.bulk = Some(length);
                return Ok(Next::Incomplete);
            }
            self.bulk = None;
            self.spans.push(Span::new(self.position, end));
            self.position = end + 2;
            self.remaining -= 1;
            if self.remaining == 0 {
                return Ok(Next::Frame(self.finish()));
            }
        }
    }

    #[inline]
    fn bulk_header(
        &mut self,
        buffer: &[u8],
        limits: Limits,
    ) -> Result<Option<usize>, ProtocolError> {
        let Some(&first) = buffer.get(self.position) else { return Ok(None) };
        if first == b'\r' && buffer.len() >= self.position + 2 {
            // An empty line, which ends where the number would be looked for.
            return Err(ProtocolError::BulkExpected(first));
        }
        let value = match line::number(buffer, self.position + 1, self.searched) {
            Line::Incomplete => {
                self.searched = buffer.len();
                if buffer.len() - self.position > LINE_BYTES_MAX {
                    return Err(ProtocolError::BulkHeaderTooLong);
                }
                return Ok(None);
            }
            _ if first != b'$' => return Err(ProtocolError::BulkExpected(first)),
            Line::Malformed => return Err(ProtocolError::BulkLength),
            Line::Number { value, next } => {
                self.position = next;
                value
            }
        };
        if !(0..=BULK_BYTES_MAX).contains(&value) {
            return Err(ProtocolError::BulkLength);
        }
        if value > limits.bulk_bytes {
            debug_assert!(!limits.authenticated);
            return Err(ProtocolError::BulkLengthUnauthenticated);
        }
        Ok(Some(value as usize))
    }

    fn inline(&mut self, buffer: &mut [u8]) -> Result<Option<Frame>, ProtocolError> {
        let from = self.searched.max(self.position);
        let end = memchr::memchr(b'\n', &buffer[from..]).map(|found| from + found);
        if end.unwrap_or(buffer.len()) - self.position > LINE_BYTES_MAX {
            return Err(ProtocolError::InlineTooLong);
        }
        let Some(end) = end else {
            self.searched = buffer.len();
            return Ok(None);
        };
        inline::split(buffer, self.position, end, &mut self.spans)?;
        self.position = end + 1;
        Ok(Some(self.finish()))
    }

    #[inline]
    fn finish(&mut self) -> Frame {
        let first = self.frame_first;
        self.frame_first = self.spans.len();
        self.frame_start = self.position;
        Frame { first: first as u32, count: (self.spans.len() - first) as u32 }
    }

    /// The arguments of a request that `next` gave, until `compact`.
    #[inline]
    pub fn arguments<'a>(&'a self, buffer: &'a [u8], frame: Frame) -> Arguments<'a> {
        let first = frame.first as usize;
        Arguments { buffer, spans: &self.spans[first..first + frame.count as usize] }
    }

    /// Drops the complete requests from the front of the buffer. The bytes of
    /// an unfinished one move at most once, since it then stands at the front.
    pub fn compact(&mut self, buffer: &mut Vec<u8>) {
        let start = self.frame_start;
        if start == 0 {
            return;
        }
        buffer.drain(..start);
        self.position -= start;
        self.searched = self.searched.saturating_sub(start);
        self.frame_start = 0;
        self.spans.drain(..self.frame_first);
        self.frame_first = 0;
        for span in &mut self.spans {
            span.start -= start as u32;
            span.end -= start as u32;
        }
        if self.spans.capacity() > SPANS_KEPT && self.spans.len() < SPANS_KEPT / 4 {
            self.spans.shrink_to(SPANS_KEPT);
        }
    }

    /// How many more bytes the announced argument needs, its line end
    /// included; 0 when nothing is known.
    pub fn wanted(&self, buffer: &[u8]) -> usize {
        self.bulk.map_or(0, |length| (self.position + length + 2).saturating_sub(buffer.len()))
    }

    /// Whether part of a request has arrived.
    pub fn is_unfinished(&self, buffer: &[u8]) -> bool {
        self.frame_start < buffer.len()
    }
}

#[cfg(test)]
mod tests;
