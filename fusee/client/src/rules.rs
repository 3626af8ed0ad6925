//! SNAPSHOT's decisions, without I/O (paper, Algorithm 2; ours where helping,
//! conditional writes and inserts ask for more).

use fusee_layout::{Opcode, REPLICAS_MAX, Slot};

/// Most backups a slot has.
pub(crate) const BACKUPS_MAX: usize = REPLICAS_MAX - 1;

/// What each backup held after the own CAS: the own word where it was won.
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

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = Slot> + '_ {
        self.words[..self.backups].iter().copied()
    }

    pub(crate) fn count(&self, word: Slot) -> usize {
        self.iter().filter(|&w| w == word).count()
    }

    /// The word of most backups, if it has more than half of them.
    fn majority(&self) -> Option<Slot> {
        self.iter().find(|&word| self.count(word) * 2 > self.backups)
    }

    /// The word that wins where no other rule decides (rule 3).
    fn smallest(&self) -> Slot {
        self.iter().min().expect("a round with votes has backups")
    }
}

/// What the votes say at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tally {
    /// Rule 1: all votes are mine, and I am the last writer.
    Unanimous,
    /// Another word has the majority.
    Lost(Slot),
    /// I have the majority, or nobody has. The primary must be read: if it has
    /// moved, some votes may be of a later round.
    ReadPrimary,
}

/// Evaluates the rules as far as the votes alone allow.
///
/// The paper lets a majority win without another READ. With helpers about, a
/// slow voter's majority may be made of votes for a round that others have
/// ended and of a word of the next; adopting that one would tear the replicas
/// apart for ever. Only r = 4 has a majority that is not unanimous.
pub(crate) fn tally(votes: &Votes, new: Slot) -> Tally {
    match votes.majority() {
        Some(word) if word != new => Tally::Lost(word),
        Some(_) if votes.count(new) == votes.iter().len() => Tally::Unanimous,
        _ => Tally::ReadPrimary,
    }
}

/// Who wins a round whose votes are complete while the primary holds `old`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Winner {
    /// I do, by this rule.
    Me(Rule),
    /// Another word does.
    Other(Slot),
}

/// The rule that decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// A majority of the votes.
    Majority,
    /// The smallest word.
    Smallest,
}

/// Rules 2 and 3, after the primary was seen at `old` behind all own votes.
pub(crate) fn decide(votes: &Votes, new: Slot) -> Winner {
    let (word, rule) = match votes.majority() {
        Some(word) => (word, Rule::Majority),
        None => (votes.smallest(), Rule::Smallest),
    };
    if word == new { Winner::Me(rule) } else { Winner::Other(word) }
}

/// What a loser knows when the primary has moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Defeat {
    /// What I wanted to do.
    pub(crate) mine: Opcode,
    /// What the winner of exactly my round did, if its commit record says so.
    pub(crate) winner: Option<Opcode>,
    /// Was it an insert?
    pub(crate) insert: bool,
    /// For an insert: is the primary at the winner's word, is that live, and is
    /// its key mine?
    pub(crate) winner_is_my_key: bool,
}

/// What a loser answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// A blind SET: done, and overwritten by the winner at once.
    Overtaken,
    /// A blind DEL: it removed the key just before the winner set it (true), or
    /// came just after a winner that removed it (false).
    Deleted(bool),
    /// Start again.
    Again,
}

/// A loser's answer. A conditional winner has read what it replaced, so nothing
/// may be put in between; a conditional loser has read what is gone.
pub(crate) fn judge(defeat: Defeat) -> Verdict {
    let Some(winner) = defeat.winner else { return Verdict::Again };
    if defeat.insert && !defeat.winner_is_my_key {
        return Verdict::Again;
    }
    match (defeat.mine, winner) {
        (Opcode::Set, Opcode::Set | Opcode::Delete) => Verdict::Overtaken,
        // Before the SET it would have removed something, but of two such DELs
        // only one.
        (Opcode::Delete, Opcode::Set) => Verdict::Again,
        (Opcode::Delete, Opcode::Delete | Opcode::Take) => Verdict::Deleted(false),
        _ => Verdict::Again,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fusee_layout::{Address, Class};

    fn word(number: u64) -> Slot {
        Slot::live(1, Class::SMALLEST, 1, Address::new(number * 64))
    }

    fn votes(numbers: &[u64]) -> Votes {
        Votes::new(&numbers.iter().map(|&n| word(n)).collect::<Vec<_>>())
    }

    #[test]
    fn all_votes_win_at_once_and_a_majority_only_after_a_look_at_the_primary() {
        assert_eq!(tally(&votes(&[3]), word(3)), Tally::Unanimous);
        assert_eq!(tally(&votes(&[3, 3, 3]), word(3)), Tally::Unanimous);
        assert_eq!(tally(&votes(&[3, 3, 2]), word(3)), Tally::ReadPrimary);
        assert_eq!(tally(&votes(&[3, 3, 2]), word(2)), Tally::Lost(word(3)));
        assert_eq!(tally(&votes(&[3, 2]), word(3)), Tally::ReadPrimary);
        assert_eq!(decide(&votes(&[3, 3, 2]), word(3)), Winner::Me(Rule::Majority));
        assert_eq!(decide(&votes(&[3, 2]), word(2)), Winner::Me(Rule::Smallest));
        assert_eq!(decide(&votes(&[3, 2]), word(3)), Winner::Other(word(2)));
        assert_eq!(decide(&votes(&[3, 2, 4]), word(4)), Winner::Other(word(2)));
    }

    #[test]
    fn exactly_one_voter_wins_whatever_the_votes() {
        for a in 1..4 {
            for b in 1..4 {
                for c in 1..4 {
                    let votes = votes(&[a, b, c]);
                    let winners = (1..4).filter(|&n| {
                        votes.count(word(n)) > 0
                            && match tally(&votes, word(n)) {
                                Tally::Unanimous => true,
                                Tally::Lost(_) => false,
                                Tally::ReadPrimary => {
                                    matches!(decide(&votes, word(n)), Winner::Me(_))
                                }
                            }
                    });
                    assert_eq!(winners.count(), 1, "{votes:?}");
                }
            }
        }
    }

    #[test]
    fn a_loser_answers_only_what_the_winner_allows() {
        use Opcode::{Delete, Set, Take, Update};
        let update = |mine, winner| {
            judge(Defeat { mine, winner: Some(winner), insert: false, winner_is_my_key: false })
        };
        assert_eq!(update(Set, Set), Verdict::Overtaken);
        assert_eq!(update(Set, Delete), Verdict::Overtaken);
        assert_eq!(update(Set, Update), Verdict::Again, "it read what SET would have changed");
        assert_eq!(update(Set, Take), Verdict::Again);
        assert_eq!(update(Delete, Set), Verdict::Again, "another DEL may have lost, too");
        assert_eq!(update(Delete, Update), Verdict::Again);
        assert_eq!(update(Delete, Delete), Verdict::Deleted(false));
        assert_eq!(update(Delete, Take), Verdict::Deleted(false));
        for winner in [Set, Update, Delete, Take] {
            assert_eq!(update(Update, winner), Verdict::Again);
            assert_eq!(update(Take, winner), Verdict::Again);
            let other_key =
                Defeat { mine: Set, winner: Some(winner), insert: true, winner_is_my_key: false };
            assert_eq!(judge(other_key), Verdict::Again);
        }
        let unknown = Defeat { mine: Set, winner: None, insert: false, winner_is_my_key: false };
        assert_eq!(judge(unknown), Verdict::Again);
    }
}
