//! The choices of the write protocol as functions without I/O: how a vote is
//! read, who won a round, what a duplicate is, what a loser may answer (paper,
//! Algorithm 2; ours where helping, conditional writes and inserts ask for more).
//!
//! They are over any slot word, so that the exhaustive model of the protocol
//! decides by the very code that the client runs.

use fusee_layout::{Opcode, REPLICAS_MAX, Slot};

/// Most backups a slot has.
pub(crate) const BACKUPS_MAX: usize = REPLICAS_MAX - 1;

/// What the rules need to know of a slot word.
pub trait Word: Copy + Ord {
    /// Names an object that readers follow.
    fn is_live(self) -> bool;
    /// The tombstone that names the same object.
    fn tombstone(self) -> Self;
}

/// What a write does to its key, as the opcode of its log entry says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    /// Leaves the key absent.
    pub deletes: bool,
    /// Does not depend on what it replaces.
    pub blind: bool,
}

impl Word for Slot {
    fn is_live(self) -> bool {
        self.leads()
    }

    fn tombstone(self) -> Self {
        Slot::tombstone(self)
    }
}

impl From<Opcode> for Write {
    fn from(opcode: Opcode) -> Self {
        Self { deletes: opcode.is_delete(), blind: opcode.is_blind() }
    }
}

/// What each backup held after the own CAS: the own word where that was won.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Votes {
    words: [Slot; BACKUPS_MAX],
    backups: usize,
}

impl Votes {
    pub(crate) fn new(words: &[Slot]) -> Self {
        let mut votes = Self { words: [Slot::EMPTY; BACKUPS_MAX], backups: words.len() };
        votes.words[..words.len()].copy_from_slice(words);
        votes
    }

    pub(crate) fn words(&self) -> &[Slot] {
        &self.words[..self.backups]
    }

    pub(crate) fn contain(&self, word: Slot) -> bool {
        self.words().contains(&word)
    }

    /// Did `word` win by rule 2, not by rule 3?
    pub(crate) fn is_majority(&self, word: Slot) -> bool {
        self.words().iter().filter(|&&vote| vote == word).count() * 2 > self.backups
    }
}

/// What a CAS `old -> new` on a backup amounts to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ballot<W> {
    /// A vote for this word.
    Cast(W),
    /// The backup lags behind the abandonment of this word: move it to `old`,
    /// then vote again.
    Lags(W),
}

/// Reads the word that a vote found, `old` itself when it succeeded.
pub fn ballot<W: Word>(found: W, old: W, new: W) -> Ballot<W> {
    if found == old {
        Ballot::Cast(new)
    } else if found.is_live() && found.tombstone() == old {
        Ballot::Lags(found)
    } else {
        Ballot::Cast(found)
    }
}

/// Algorithm 2 up to the point where it has to read the primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tally<W> {
    /// Rule 1: every backup holds our word.
    Unanimous,
    /// A majority holds this word of another.
    Lost(W),
    /// Rules 2 and 3: this word wins if the primary still holds `old`, read
    /// after the last vote. If it does not, a helper may have closed the round
    /// and the votes may belong to later ones.
    Leads(W),
}

/// Counts the votes on all backups.
///
/// The paper adopts at once by rule 2 (a majority is ours, not all). With
/// helpers that is a mistake: when our last vote was slow, the backup that
/// "voted otherwise" may already hold the word of a later round.
pub fn tally<W: Word>(votes: &[W], new: W) -> Tally<W> {
    let count = |word: W| votes.iter().filter(|&&vote| vote == word).count();
    if count(new) == votes.len() {
        return Tally::Unanimous;
    }
    match votes.iter().copied().find(|&word| 2 * count(word) > votes.len()) {
        Some(word) if word == new => Tally::Leads(word),
        Some(word) => Tally::Lost(word),
        // Rule 3: the smallest.
        None => Tally::Leads(*votes.iter().min().expect("a round has a backup at least")),
    }
}

/// Whether another slot of an insert's key, as the first backup shows it,
/// forbids the commit. `held` is what the primary held there before.
///
/// A tombstone that the primary did not hold may be a delete that has not
/// reached it: two values would be visible for a moment.
pub fn is_duplicate<W: Word>(seen: W, held: W, same_key: bool, same_fingerprint: bool) -> bool {
    if seen.is_live() { same_key } else { same_fingerprint && seen != held }
}

/// What a loser knows of its round after the primary has left `old`. Records
/// must have been read after the primary: whoever moves it writes the record
/// first, so an absent record then says that the word can never win.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<W> {
    /// The primary's word.
    pub primary: W,
    /// Our own log entry carries `old`.
    pub own_recorded: bool,
    /// The word that won the vote, if we know one.
    pub winner: Option<Winner<W>>,
}

/// The winner as its object describes it.
#[derive(Clone, Copy, Debug)]
pub struct Winner<W> {
    /// Its slot word.
    pub word: W,
    /// Its log entry carries our `old`: it won exactly our round.
    pub recorded: bool,
    /// What it did.
    pub write: Write,
    /// It writes our key.
    pub same_key: bool,
}

/// What a loser does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// A helper has committed our word.
    Committed,
    /// A SET that took effect just before the winner.
    JustBefore,
    /// A delete that took effect just after the winner, which deleted too.
    JustAfter,
    /// Did not take effect and never will; start again with a new object.
    Again,
}

/// Judges a lost round. `insert` says that `old` was no live word of our key.
pub fn judge<W: Word>(me: Write, insert: bool, seen: &Evidence<W>) -> Verdict {
    if seen.own_recorded {
        return Verdict::Committed;
    }
    let Some(winner) = seen.winner else { return Verdict::Again };
    // The record of an abandoned insert may exist too: only the primary tells
    // that an insert became visible, and a tombstone there that it did not.
    let inserted = winner.word.is_live() && seen.primary == winner.word && winner.same_key;
    let won = winner.recorded && (!insert || inserted);
    if !won || !me.blind {
        return Verdict::Again;
    }
    match (me.deletes, winner.write) {
        (true, Write { deletes: true, .. }) => Verdict::JustAfter,
        // Of several deletes that lost to one SET, only one could answer that
        // it deleted what the SET replaced.
        (true, Write { deletes: false, .. }) => Verdict::Again,
        // What a conditional winner read must stay true.
        (false, Write { blind: false, .. }) => Verdict::Again,
        (false, Write { blind: true, .. }) => Verdict::JustBefore,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    struct Toy(u8);
    impl Word for Toy {
        fn is_live(self) -> bool {
            self.0 % 2 == 1
        }
        fn tombstone(self) -> Self {
            Self(self.0 + 1)
        }
    }

    #[test]
    fn majority_is_more_than_half_of_the_backups() {
        let (a, b, c) = (Toy(1), Toy(3), Toy(5));
        assert_eq!(tally(&[a], a), Tally::Unanimous);
        assert_eq!(tally(&[a], b), Tally::Lost(a));
        assert_eq!(tally(&[a, b], b), Tally::Leads(a));
        assert_eq!(tally(&[b, a, a], a), Tally::Leads(a));
        assert_eq!(tally(&[b, a, a], b), Tally::Lost(a));
        assert_eq!(tally(&[c, a, b], c), Tally::Leads(a));
    }

    #[test]
    fn a_live_word_whose_tombstone_is_old_lags() {
        assert_eq!(ballot(Toy(1), Toy(2), Toy(5)), Ballot::Lags(Toy(1)));
        assert_eq!(ballot(Toy(2), Toy(2), Toy(5)), Ballot::Cast(Toy(5)));
        assert_eq!(ballot(Toy(3), Toy(2), Toy(5)), Ballot::Cast(Toy(3)));
    }

    #[test]
    fn blind_delete_is_zero_after_a_delete_and_starts_again_after_a_set() {
        let me = Write { deletes: true, blind: true };
        let after = |deletes, blind| {
            let winner = Winner {
                word: Toy(1),
                recorded: true,
                write: Write { deletes, blind },
                same_key: true,
            };
            let seen = Evidence { primary: Toy(1), own_recorded: false, winner: Some(winner) };
            judge(me, false, &seen)
        };
        assert_eq!(after(true, true), Verdict::JustAfter);
        assert_eq!(after(true, false), Verdict::JustAfter);
        assert_eq!(after(false, true), Verdict::Again);
        assert_eq!(after(false, false), Verdict::Again);
    }
}
