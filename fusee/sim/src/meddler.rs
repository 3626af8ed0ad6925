//! Mutations of the protocol, made outside it.
//!
//! A test that wants to know whether the checks would notice a missing step
//! does not switch the step off in the client: it changes, on the way between
//! client and memory, what the client does or sees.

use fusee_fabric::Verb;
use fusee_layout::NodeAddress;

/// A verb as a meddler sees it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The simulator's number of the client that posted it.
    pub client: u32,
    /// Where.
    pub at: NodeAddress,
    /// What.
    pub verb: Verb,
    /// Was it fenced?
    pub fenced: bool,
    /// Its number in its batch.
    pub number: usize,
}

/// What becomes of a verb.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meddling {
    /// It is executed as it is.
    Execute,
    /// Nothing is executed; an atomic seems to have found this word.
    Pretend(u64),
    /// This CAS is executed in its place.
    Cas {
        /// What the word has to be.
        expected: u64,
        /// What it becomes.
        new: u64,
    },
}

/// Sits between the clients and the memory nodes.
pub trait Meddler {
    /// A verb is posted. `written` are the words that a WRITE carries, to be
    /// changed at will.
    fn post(&mut self, _verb: &Seen, _written: &mut [u64]) {}

    /// A fenced verb is posted; false takes its fence away.
    fn keeps_fence(&mut self, _verb: &Seen) -> bool {
        true
    }

    /// A verb that changes memory is about to take effect; `word` is what
    /// memory holds at its place (at the first word of a WRITE).
    fn execute(&mut self, _verb: &Seen, _word: u64) -> Meddling {
        Meddling::Execute
    }

    /// An atomic has found `word`; what the client is told instead.
    fn found(&mut self, _verb: &Seen, word: u64) -> u64 {
        word
    }

    /// A READ has brought `words`, which the client is about to see.
    fn read(&mut self, _verb: &Seen, _words: &mut [u64]) {}
}
