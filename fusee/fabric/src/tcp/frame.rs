//! What goes over a connection, as little-endian words of 8 bytes.
//!
//! A connection begins with a hello of the client and a welcome of the memory
//! node, and then carries frames: a request is the verbs of one batch for this
//! node, its reply is what they brought. Replies come in the order of the
//! requests, verbs are executed in the order of the frames, one after the other,
//! so nothing here says what is fenced.
//!
//! ```text
//! hello:    | magic 8 | version 4 | node 2 | 0 2 | token 16 | link 8 |
//! welcome:  | magic 8 | verdict 4 | version 4 |
//! request:  | words 4 | number 4 | verb | verb | ...
//! verb:     | opcode 1 | byte 1 | 0 2 | words 4 | offset 8 | operands |
//!   READ      1          0             n                     none
//!   WRITE     2          0             n                     n words
//!   one byte  3          its value     0                     none
//!   CAS       4          0             0                     expected 8, new 8
//!   FAA       5          0             0                     what to add 8
//! reply:    | words 4 | number 4 | done: a bit per verb, in whole words | result | ...
//! result:   n words of a READ, the word that a CAS or FAA found, nothing of a
//!           WRITE or of a verb that is not done as the memory has no such place
//! ```
//!
//! The words of a frame count its head. Everything is bounded before it is
//! believed, and no bytes make a parser panic.

use super::Token;
use thiserror::Error;

/// "FUSEETCP".
const MAGIC: u64 = u64::from_le_bytes(*b"FUSEETCP");
/// Of this page.
pub(crate) const VERSION: u32 = 1;

/// The largest READ or WRITE: no block of a pool on TCP may be larger.
pub const VERB_BYTES_MAX: usize = 32 << 20;
/// Verbs of a frame; a batch of more goes in several frames.
pub(crate) const VERBS_MAX: usize = 4096;
/// A frame is closed before it or its reply has more, so that neither side
/// needs a large buffer for many small verbs; a larger verb has its own frame.
pub(crate) const FRAME_WORDS: usize = (1 << 20) / 8;
/// No frame has more: one largest verb with its head and its frame's.
pub(crate) const FRAME_WORDS_MAX: usize = VERB_BYTES_MAX / 8 + 4 + DONE_WORDS_MAX;
/// Words of the done bits of a reply.
const DONE_WORDS_MAX: usize = VERBS_MAX.div_ceil(64);
const _: () = assert!(FRAME_WORDS + DONE_WORDS_MAX < FRAME_WORDS_MAX);
const _: () = assert!(FRAME_WORDS_MAX < u32::MAX as usize);

const READ: u8 = 1;
const WRITE: u8 = 2;
const WRITE_BYTE: u8 = 3;
const CAS: u8 = 4;
const FAA: u8 = 5;

/// Bytes that are no frame of ours. The connection is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the bytes are no frame of this protocol: {0}")]
pub(crate) struct Malformed(pub(crate) &'static str);

/// How a connection begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    pub(crate) version: u32,
    /// Whom the client takes the other side for.
    pub(crate) node: u16,
    pub(crate) token: Token,
    /// The client's number of this connection and those that replace it.
    pub(crate) link: u64,
}

impl Hello {
    pub(crate) const WORDS: usize = 5;

    pub(crate) fn write(&self) -> [u64; Self::WORDS] {
        let [low, high] = self.token.words();
        let second = u64::from(self.version) | u64::from(self.node) << 32;
        [MAGIC, second, low, high, self.link]
    }

    pub(crate) fn parse(words: &[u64; Self::WORDS]) -> Result<Self, Malformed> {
        let [magic, second, low, high, link] = *words;
        if magic != MAGIC {
            return Err(Malformed("it begins with another magic number"));
        }
        if second >> 48 != 0 {
            return Err(Malformed("reserved bits are set"));
        }
        let node = (second >> 32) as u16;
        Ok(Self { version: second as u32, node, token: Token::from_words([low, high]), link })
    }
}

/// What the memory node makes of a hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Verdict {
    Welcome = 0,
    OtherVersion = 1,
    OtherNode = 2,
    NotAdmitted = 3,
    TooMany = 4,
    NodeDown = 5,
}

/// The answer to a hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Welcome {
    pub(crate) verdict: Verdict,
    pub(crate) version: u32,
}

impl Welcome {
    pub(crate) const WORDS: usize = 2;

    pub(crate) fn write(self) -> [u64; Self::WORDS] {
        [MAGIC, self.verdict as u64 | u64::from(self.version) << 32]
    }

    pub(crate) fn parse(words: &[u64; Self::WORDS]) -> Result<Self, Malformed> {
        let [magic, second] = *words;
        if magic != MAGIC {
            return Err(Malformed("it begins with another magic number"));
        }
        let verdict = match second as u32 {
            0 => Verdict::Welcome,
            1 => Verdict::OtherVersion,
            2 => Verdict::OtherNode,
            3 => Verdict::NotAdmitted,
            4 => Verdict::TooMany,
            5 => Verdict::NodeDown,
            _ => return Err(Malformed("no such verdict")),
        };
        Ok(Self { verdict, version: (second >> 32) as u32 })
    }
}

/// How many words the frame has that begins with this one.
pub(crate) fn frame_words(head: u64) -> Result<usize, Malformed> {
    let words = head as u32 as usize;
    if words == 0 || words > FRAME_WORDS_MAX {
        return Err(Malformed("a frame of no such length is allowed"));
    }
    Ok(words)
}

fn head(words: usize, number: u32) -> u64 {
    words as u64 | u64::from(number) << 32
}

/// A verb of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FrameVerb<'a> {
    Read { words: usize },
    Write(&'a [u64]),
    WriteByte(u8),
    Cas { expected: u64, new: u64 },
    Faa(u64),
}

impl FrameVerb<'_> {
    /// Words that it has in a request.
    pub(crate) fn words(&self) -> usize {
        2 + match self {
            Self::Read { .. } | Self::WriteByte(_) => 0,
            Self::Write(words) => words.len(),
            Self::Cas { .. } => 2,
            Self::Faa(_) => 1,
        }
    }

    /// Words that it has in a reply, if it is done.
    pub(crate) fn result_words(&self) -> usize {
        match self {
            Self::Read { words } => *words,
            Self::Write(_) | Self::WriteByte(_) => 0,
            Self::Cas { .. } | Self::Faa(_) => 1,
        }
    }
}

/// Appends a request to what is sent.
pub(crate) fn write_request<'a>(
    out: &mut Vec<u64>,
    number: u32,
    verbs: impl Iterator<Item = (u64, FrameVerb<'a>)>,
) {
    let start = out.len();
    out.push(0);
    for (offset, verb) in verbs {
        let (opcode, byte, words) = match verb {
            FrameVerb::Read { words } => (READ, 0, words),
            FrameVerb::Write(words) => (WRITE, 0, words.len()),
            FrameVerb::WriteByte(value) => (WRITE_BYTE, value, 0),
            FrameVerb::Cas { .. } => (CAS, 0, 0),
            FrameVerb::Faa(_) => (FAA, 0, 0),
        };
        out.push(u64::from(opcode) | u64::from(byte) << 8 | (words as u64) << 32);
        out.push(offset);
        match verb {
            FrameVerb::Read { .. } | FrameVerb::WriteByte(_) => {}
            FrameVerb::Write(words) => out.extend_from_slice(words),
            FrameVerb::Cas { expected, new } => out.extend_from_slice(&[expected, new]),
            FrameVerb::Faa(add) => out.push(add),
        }
    }
    out[start] = head(out.len() - start, number);
}

/// A request whose every verb is well-formed, and whose reply is a frame too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    number: u32,
    verbs: usize,
    body: &'a [u64],
}

impl<'a> Request<'a> {
    /// Parses a frame of as many words as its head says.
    pub(crate) fn parse(frame: &'a [u64]) -> Result<Self, Malformed> {
        let Some((head, body)) = frame.split_first() else {
            return Err(Malformed("a frame has a head"));
        };
        let (mut rest, mut verbs, mut reply) = (body, 0, 1usize);
        while !rest.is_empty() {
            let (_, verb, after) = split_verb(rest)?;
            rest = after;
            verbs += 1;
            reply += verb.result_words();
            if verbs > VERBS_MAX || reply + DONE_WORDS_MAX > FRAME_WORDS_MAX {
                return Err(Malformed("a request for too much"));
            }
        }
        Ok(Self { number: (head >> 32) as u32, verbs, body })
    }

    /// The verbs in posted order, each with its offset.
    pub(crate) fn verbs(&self) -> impl Iterator<Item = (u64, FrameVerb<'a>)> + use<'a> {
        let mut rest = self.body;
        std::iter::from_fn(move || {
            let (offset, verb, after) = split_verb(rest).ok()?;
            rest = after;
            Some((offset, verb))
        })
    }
}

fn split_verb(words: &[u64]) -> Result<(u64, FrameVerb<'_>, &[u64]), Malformed> {
    const CUT: Malformed = Malformed("a verb is cut short");
    let [first, offset, rest @ ..] = words else { return Err(CUT) };
    let (opcode, byte, count) = (*first as u8, (*first >> 8) as u8, (*first >> 32) as usize);
    if (*first >> 16) as u16 != 0
        || (byte != 0 && opcode != WRITE_BYTE)
        || (count != 0 && !matches!(opcode, READ | WRITE))
    {
        return Err(Malformed("reserved bits are set"));
    }
    if count > VERB_BYTES_MAX / 8 {
        return Err(Malformed("a verb for too much"));
    }
    if !offset.is_multiple_of(8) && opcode != WRITE_BYTE {
        return Err(Malformed("a verb on a part of a word"));
    }
    let (verb, rest) = match opcode {
        READ => (FrameVerb::Read { words: count }, rest),
        WRITE => {
            let (words, rest) = rest.split_at_checked(count).ok_or(CUT)?;
            (FrameVerb::Write(words), rest)
        }
        WRITE_BYTE => (FrameVerb::WriteByte(byte), rest),
        CAS => {
            let [expected, new, rest @ ..] = rest else { return Err(CUT) };
            (FrameVerb::Cas { expected: *expected, new: *new }, rest)
        }
        FAA => {
            let [add, rest @ ..] = rest else { return Err(CUT) };
            (FrameVerb::Faa(*add), rest)
        }
        _ => return Err(Malformed("no such verb")),
    };
    Ok((*offset, verb, rest))
}

/// A reply as it is being written behind what is sent.
pub(crate) struct Draft<'a> {
    out: &'a mut Vec<u64>,
    start: usize,
    number: u32,
    verb: usize,
}

impl<'a> Draft<'a> {
    /// Begins the reply to a request.
    pub(crate) fn new(out: &'a mut Vec<u64>, request: &Request<'_>) -> Self {
        let start = out.len();
        out.resize(start + 1 + request.verbs.div_ceil(64), 0);
        Self { out, start, number: request.number, verb: 0 }
    }

    /// Adds what came of the next verb: `perform` gets the words of a READ to
    /// fill, and tells what an atomic found, or nothing if the verb is not done.
    pub(crate) fn add(
        &mut self,
        verb: &FrameVerb<'_>,
        perform: impl FnOnce(&mut [u64]) -> Option<u64>,
    ) {
        let before = self.out.len();
        self.out.resize(before + verb.result_words(), 0);
        match (perform(&mut self.out[before..]), verb) {
            (None, _) => self.out.truncate(before),
            (Some(found), verb) => {
                if matches!(verb, FrameVerb::Cas { .. } | FrameVerb::Faa(_)) {
                    self.out[before] = found;
                }
                self.out[self.start + 1 + self.verb / 64] |= 1 << (self.verb % 64);
            }
        }
        self.verb += 1;
    }

    /// Ends it.
    pub(crate) fn finish(self) {
        self.out[self.start] = head(self.out.len() - self.start, self.number);
    }
}

/// A reply, verb by verb.
#[derive(Debug)]
pub(crate) struct Reply<'a> {
    done: &'a [u64],
    results: &'a [u64],
    verb: usize,
}

impl<'a> Reply<'a> {
    /// Parses a frame that should be the reply to request `number` of so many verbs.
    pub(crate) fn parse(frame: &'a [u64], number: u32, verbs: usize) -> Result<Self, Malformed> {
        let Some((head, body)) = frame.split_first() else {
            return Err(Malformed("a frame has a head"));
        };
        if (head >> 32) as u32 != number {
            return Err(Malformed("a reply to another request"));
        }
        let (done, results) =
            body.split_at_checked(verbs.div_ceil(64)).ok_or(Malformed("a reply is cut short"))?;
        Ok(Self { done, results, verb: 0 })
    }

    /// What came of the next verb, whose result has so many words; `None` if it
    /// was not done.
    pub(crate) fn next(&mut self, words: usize) -> Result<Option<&'a [u64]>, Malformed> {
        let bits = self.done.get(self.verb / 64).ok_or(Malformed("a reply is cut short"))?;
        let done = bits >> (self.verb % 64) & 1 != 0;
        self.verb += 1;
        if !done {
            return Ok(None);
        }
        let (result, rest) =
            self.results.split_at_checked(words).ok_or(Malformed("a reply is cut short"))?;
        self.results = rest;
        Ok(Some(result))
    }

    /// Checks that it says nothing more.
    pub(crate) fn finish(self) -> Result<(), Malformed> {
        let unused = self.done.last().is_some_and(|bits| {
            let used = self.verb.saturating_sub((self.done.len() - 1) * 64);
            bits.checked_shr(used as u32).unwrap_or(0) != 0
        });
        if unused || !self.results.is_empty() {
            return Err(Malformed("a reply says more than was asked"));
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
