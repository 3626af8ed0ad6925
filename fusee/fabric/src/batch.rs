//! A batch: the verbs of one phase, with the bytes that they carry and bring.

use crate::NodeDown;
use crate::staging::Staging;
use fusee_layout::NodeAddress;

/// The kinds of verbs, as counters tell them apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum VerbKind {
    /// READ of whole words.
    Read = 0,
    /// WRITE of whole words, or of one byte.
    Write = 1,
    /// Compare-and-swap of a word.
    Cas = 2,
    /// Fetch-and-add on a word.
    Faa = 3,
}

impl VerbKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Cas, Self::Faa];

    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Cas => "cas",
            Self::Faa => "faa",
        }
    }
}

/// A stretch of a batch's own memory, a multiple of 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    pub(crate) word: usize,
    pub(crate) words: usize,
}

/// Names a verb of the batch that it was posted to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket(u32);

/// What a verb does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// READ words into the batch's memory.
    Read(Span),
    /// WRITE words from the batch's memory.
    Write(Span),
    /// WRITE one byte, anywhere.
    WriteByte(u8),
    /// Replace a word if it is `expected`; brings what it was.
    Cas {
        /// What the word has to be.
        expected: u64,
        /// What it becomes.
        new: u64,
    },
    /// Add to a word, wrapping; brings what it was.
    Faa(u64),
}

/// A verb that was posted.
#[derive(Clone, Copy, Debug)]
pub struct Posted {
    /// Where.
    pub at: NodeAddress,
    /// What.
    pub verb: Verb,
    /// Does it wait for the READs and atomics before it on the same node?
    pub fenced: bool,
    outcome: Outcome,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Pending,
    Done(u64),
    Down,
}

/// The verbs of one phase. Build it, run it, ask it for results.
///
/// It goes from hand to hand (pool, operation, fabric and back), so it is one
/// pointer: moving its fields costs more than a cached READ.
#[derive(Debug, Default)]
pub struct Batch {
    parts: Box<Parts>,
}

#[derive(Debug, Default)]
struct Parts {
    verbs: Vec<Posted>,
    memory: Staging,
    used: usize,
    fence: bool,
}

/// A batch keeps at most this much memory when it is reused: enough for a
/// pipeline of small reads, little enough for one per connection.
const KEPT_WORDS: usize = (1 << 20) / 8;

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets verbs and results, keeps memory for reuse within a bound.
    pub fn clear(&mut self) {
        self.parts.verbs.clear();
        self.parts.used = 0;
        self.parts.fence = false;
        self.parts.memory.keep_at_most(KEPT_WORDS);
    }

    /// Has nothing been posted?
    pub fn is_empty(&self) -> bool {
        self.parts.verbs.is_empty()
    }

    /// How many verbs were posted.
    pub fn len(&self) -> usize {
        self.parts.verbs.len()
    }

    /// Memory for a WRITE's bytes, rounded up to whole words. Its content is
    /// whatever was there before.
    #[inline]
    pub fn stage(&mut self, bytes: usize) -> Span {
        let span = Span { word: self.parts.used, words: bytes.div_ceil(8) };
        self.parts.used += span.words;
        if self.parts.used > self.parts.memory.words().len() {
            self.parts.memory.grow(self.parts.used);
        }
        span
    }

    /// The bytes of a span, to fill.
    pub fn staged(&mut self, span: Span) -> &mut [u8] {
        as_bytes_mut(&mut self.parts.memory.words_mut()[span.range()])
    }

    /// The bytes of a span, as they are.
    pub fn peek(&self, span: Span) -> &[u8] {
        as_bytes(&self.parts.memory.words()[span.range()])
    }

    #[inline]
    fn post(&mut self, at: NodeAddress, verb: Verb) -> Ticket {
        let fenced = std::mem::take(&mut self.parts.fence);
        self.parts.verbs.push(Posted { at, verb, fenced, outcome: Outcome::Pending });
        Ticket(self.parts.verbs.len() as u32 - 1)
    }

    /// Makes the next verb wait for the READs and atomics posted before it to
    /// the same node.
    pub fn fence(&mut self) {
        self.parts.fence = true;
    }

    /// READs `bytes` (rounded up to whole words) from an 8-byte aligned place.
    #[inline]
    pub fn read(&mut self, at: NodeAddress, bytes: usize) -> Ticket {
        assert!(at.offset.is_multiple_of(8), "READs are of whole words");
        let span = self.stage(bytes);
        self.post(at, Verb::Read(span))
    }

    /// WRITEs a span to an 8-byte aligned place. One span may be written to
    /// several places.
    #[inline]
    pub fn write(&mut self, at: NodeAddress, from: Span) -> Ticket {
        assert!(at.offset.is_multiple_of(8), "WRITEs are of whole words");
        self.post(at, Verb::Write(from))
    }

    /// WRITEs one byte.
    pub fn write_byte(&mut self, at: NodeAddress, value: u8) -> Ticket {
        self.post(at, Verb::WriteByte(value))
    }

    /// Compares and swaps an aligned word; its result is what the word was.
    #[inline]
    pub fn cas(&mut self, at: NodeAddress, expected: u64, new: u64) -> Ticket {
        assert!(at.offset.is_multiple_of(8), "atomics are on aligned words");
        self.post(at, Verb::Cas { expected, new })
    }

    /// Adds to an aligned word, wrapping; its result is what the word was.
    pub fn faa(&mut self, at: NodeAddress, add: u64) -> Ticket {
        assert!(at.offset.is_multiple_of(8), "atomics are on aligned words");
        self.post(at, Verb::Faa(add))
    }

    /// The word that a CAS or FAA found, or the first that a READ brought.
    ///
    /// # Errors
    ///
    /// If the node is down: a write or an atomic may have been executed.
    #[inline]
    pub fn word(&self, ticket: Ticket) -> Result<u64, NodeDown> {
        let posted = self.completed(ticket)?;
        Ok(match (posted.verb, posted.outcome) {
            (Verb::Read(span), _) => self.parts.memory.words()[span.word],
            (_, Outcome::Done(word)) => word,
            _ => unreachable!("completed() lets only finished verbs pass"),
        })
    }

    /// The words that a READ brought.
    ///
    /// # Errors
    ///
    /// If the node is down.
    #[inline]
    pub fn words(&self, ticket: Ticket) -> Result<&[u64], NodeDown> {
        let Verb::Read(span) = self.completed(ticket)?.verb else {
            panic!("only READs bring bytes");
        };
        Ok(&self.parts.memory.words()[span.range()])
    }

    /// The bytes that a READ brought.
    ///
    /// # Errors
    ///
    /// If the node is down.
    #[inline]
    pub fn bytes(&self, ticket: Ticket) -> Result<&[u8], NodeDown> {
        self.words(ticket).map(as_bytes)
    }

    /// Tells whether the verb was done.
    ///
    /// # Errors
    ///
    /// If the node is down: a write or an atomic may have been executed.
    pub fn done(&self, ticket: Ticket) -> Result<(), NodeDown> {
        self.completed(ticket).map(|_| ())
    }

    /// Tells whether all WRITEs of the batch were done.
    ///
    /// # Errors
    ///
    /// If the node of one of them is down: each may have been executed.
    #[inline]
    pub fn writes_done(&self) -> Result<(), NodeDown> {
        let failed = self.parts.verbs.iter().find(|posted| {
            let is_write = matches!(posted.verb, Verb::Write(_) | Verb::WriteByte(_));
            is_write && posted.outcome == Outcome::Down
        });
        failed.map_or(Ok(()), |posted| Err(NodeDown { node: posted.at.node }))
    }

    /// Tells whether `count` verbs, posted one after the other from this one on,
    /// were done.
    ///
    /// # Errors
    ///
    /// If the node of one of them is down: each may have been executed.
    #[inline]
    pub fn all_done(&self, first: Ticket, count: usize) -> Result<(), NodeDown> {
        let after = first.0 + count as u32;
        (first.0..after).try_for_each(|number| self.done(Ticket(number)))
    }

    #[inline]
    fn completed(&self, ticket: Ticket) -> Result<&Posted, NodeDown> {
        let posted = &self.parts.verbs[ticket.0 as usize];
        match posted.outcome {
            Outcome::Done(_) => Ok(posted),
            Outcome::Down => Err(NodeDown { node: posted.at.node }),
            Outcome::Pending => panic!("the batch was not run"),
        }
    }

    /// All verbs, in posted order.
    pub fn tickets(&self) -> impl ExactSizeIterator<Item = Ticket> + use<> {
        (0..self.parts.verbs.len() as u32).map(Ticket)
    }

    /// The verbs in posted order. For fabrics.
    pub fn posted(&self) -> &[Posted] {
        &self.parts.verbs
    }

    /// Stores that verb `number` was done; `word` is what an atomic found. For
    /// fabrics.
    pub fn complete(&mut self, number: usize, word: u64) {
        self.parts.verbs[number].outcome = Outcome::Done(word);
    }

    /// Stores that the node of verb `number` is down. For fabrics.
    pub fn fail(&mut self, number: usize) {
        self.parts.verbs[number].outcome = Outcome::Down;
    }

    /// The verbs, with the memory that their spans are of.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn parts(&mut self) -> (&mut [Posted], &mut [u64]) {
        let parts = &mut *self.parts;
        (&mut parts.verbs, parts.memory.words_mut())
    }

    /// The memory that its spans are of.
    #[cfg(not(loom))]
    pub(crate) fn staging(&mut self) -> &mut Staging {
        &mut self.parts.memory
    }

    /// The words of a span. For fabrics.
    pub fn span(&self, span: Span) -> &[u64] {
        &self.parts.memory.words()[span.range()]
    }

    /// The words of a span, to be filled by a READ. For fabrics.
    pub fn span_mut(&mut self, span: Span) -> &mut [u64] {
        &mut self.parts.memory.words_mut()[span.range()]
    }
}

impl Posted {
    /// Has it no result yet?
    #[cfg(not(loom))]
    pub(crate) fn is_pending(&self) -> bool {
        self.outcome == Outcome::Pending
    }

    /// Stores what came of it: what an atomic found, or nothing if it failed.
    #[cfg(not(loom))]
    pub(crate) fn finish(&mut self, outcome: Option<u64>) {
        self.outcome = outcome.map_or(Outcome::Down, Outcome::Done);
    }

    #[cfg(not(loom))]
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.outcome, Outcome::Done(_))
    }
}

impl Span {
    /// How many bytes it has.
    pub fn bytes(self) -> usize {
        self.words * 8
    }

    #[inline]
    pub(crate) fn range(self) -> std::ops::Range<usize> {
        self.word..self.word + self.words
    }
}

pub(crate) fn as_bytes(words: &[u64]) -> &[u8] {
    // SAFETY: every byte of an initialised u64 is an initialised u8, alignment
    // only shrinks, and the borrow keeps the words from changing.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

pub(crate) fn as_bytes_mut(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: as for as_bytes, and any bytes make a u64; the borrow is unique.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size_of_val(words)) }
}

// Words are little-endian in memory, on the wire and in every layout.
const _: () = assert!(cfg!(target_endian = "little"));
