//! One state of the model: the slots on every replica, the objects' commit
//! records, where each client stands, and the history that must be explained.

use std::hash::{Hash, Hasher};

use super::history::History;
use super::word::{OBJECTS, Word};

/// The candidate slots of the keys.
pub const SLOTS: usize = 2;
/// Replicas of a slot at most: the primary, then the backups.
pub const REPLICAS: usize = 4;
/// Clients at most.
pub const CLIENTS: usize = 5;
/// Addresses at most where memory is reused.
pub const ADDRESSES: usize = 6;

/// Where a client stands; the verbs that it may issue there are in `steps`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Pc {
    /// Not invoked.
    Idle,
    /// Phase 1, also when starting again.
    Read,
    /// Votes on the backups; the duplicate check rides along.
    Vote,
    /// Split votes: reads the primary.
    Split,
    /// Adopts the backups that voted otherwise.
    Adopt,
    /// Writes its commit record.
    Record,
    /// CAS of the primary.
    Commit,
    /// CAS of the primary to its own tombstone.
    Abandon,
    /// Brings the backups along after that.
    Follow,
    /// Polls the primary.
    Lost,
    /// The primary moved: reads the records.
    Judge,
    /// Helps: adopts the backups; for an insert, reads the other slot of the
    /// primary and of the first backup.
    HelpAdopt,
    /// Helps: writes the winner's record.
    HelpRecord,
    /// Helps: CAS of the primary.
    HelpCommit,
    /// Waits until the duplicate is gone or the round is over.
    HelpWait,
    /// Saw an abandonment: brings the backups along.
    HelpFollow,
    /// One replica: CAS of the slot.
    Swap,
    /// One replica, insert: reads the other slot behind the tentative mark.
    Look,
    /// One replica: aborts a tentative word of another client.
    Abort,
    /// One replica: the abort is only to make room; starts again after it.
    MakeRoom,
    /// One replica: CAS from the tentative to the live word.
    Publish,
    /// One replica: takes the tentative word back.
    Withdraw,
    /// Returned.
    Done,
    /// Used up its attempts; never returns.
    Spent,
    /// Stopped for good.
    Crashed,
}

impl Pc {
    /// Will never move again.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Spent | Self::Crashed)
    }
}

/// One client and its single operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Client {
    /// Where it stands.
    pub pc: Pc,
    /// Attempts begun before this one.
    pub attempt: u8,
    /// What phase 1 read in the primary; `NONE` before.
    pub held: [Word; SLOTS],
    /// The slot of the round.
    pub slot: u8,
    /// `old` is no live word of the key.
    pub insert: bool,
    /// The word that the round replaces.
    pub old: Word,
    /// The word that it offers.
    pub new: Word,
    /// The votes, or the lagging words that were met instead.
    pub votes: [Word; REPLICAS - 1],
    /// Backups of the current phase that are still to do.
    pub todo: u8,
    /// Backups that lag behind an abandonment.
    pub lagging: u8,
    /// An own CAS succeeded on some backup.
    pub voted: bool,
    /// The word that won the round, if known and another's.
    pub winner: Word,
    /// The duplicate check's READ of the first backup's other slot.
    pub check: Word,
    /// The primary's word that a loser or helper saw last.
    pub seen: Word,
    /// Evidence read before the primary, in mutations only.
    pub early: u8,
    /// 1 + the slot that made the last attempt give way, where an insert goes next.
    pub prefer: u8,
    /// Attempts in a row that failed although everybody else had ended.
    pub alone: u8,
}

impl Client {
    /// Between attempts: nothing is known.
    pub const BLANK: Self = Self {
        pc: Pc::Idle,
        attempt: 0,
        held: [Word::NONE; SLOTS],
        slot: 0,
        insert: false,
        old: Word::NONE,
        new: Word::NONE,
        votes: [Word::NONE; REPLICAS - 1],
        todo: 0,
        lagging: 0,
        voted: false,
        winner: Word::NONE,
        check: Word::NONE,
        seen: Word::NONE,
        early: 0,
        prefer: 0,
        alone: 0,
    };
}

/// What went wrong on the way here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fault {
    /// Nothing.
    None,
    /// No order of the operations explains the results and what was visible.
    NotLinearizable,
    /// An object was freed a second time.
    FreedTwice,
    /// A client alone starts again and again.
    Livelock,
}

/// An address of the pool, in scenarios that reuse memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cell {
    /// Generation of the object there now, or of the last one.
    pub generation: u8,
    /// The client that wrote it.
    pub writer: u8,
    /// An object lives there.
    pub used: bool,
    /// Clients whose operations were under way when it was freed.
    pub grace: u8,
}

/// A state. Everything is a byte or two, and hashed as one run of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct State {
    /// Slot words by replica, the primary first.
    pub memory: [[Word; SLOTS]; REPLICAS],
    /// The `old` in each object's log entry.
    pub records: [Word; OBJECTS],
    /// Objects ever allocated, as a mask.
    pub allocated: u16,
    /// Objects freed, as a mask.
    pub freed: u16,
    /// The clients.
    pub clients: [Client; CLIENTS],
    /// The pool, where memory is reused.
    pub cells: [Cell; ADDRESSES],
    /// What happened so far.
    pub history: History,
    /// Clients that may still crash.
    pub crashes_left: u8,
    /// The first thing that went wrong.
    pub fault: Fault,
    /// Which symmetries hold, see [`Symmetry`].
    pub symmetry: Symmetry,
}

/// Renamings that turn every behaviour of a scenario into another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Symmetry {
    /// The two slots are alike.
    pub slots: bool,
    /// Backups from this one on are alike: only the first is special, and only
    /// to inserts (their duplicate check reads it).
    pub first_backup: u8,
    /// The number of backups.
    pub backups: u8,
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        // One write of packed bytes: the checker spends most of its time here.
        let mut bytes = [0u8; 224];
        let mut at = 0;
        let mut put = |byte: u8| {
            bytes[at] = byte;
            at += 1;
        };
        let replicas = usize::from(self.symmetry.backups) + 1;
        self.memory[..replicas].iter().flatten().for_each(|w| put(w.0));
        self.records.iter().for_each(|w| put(w.0));
        self.allocated.to_le_bytes().into_iter().for_each(&mut put);
        self.freed.to_le_bytes().into_iter().for_each(&mut put);
        self.history.to_le_bytes().into_iter().for_each(&mut put);
        for cell in &self.cells {
            put(cell.generation << 4 | u8::from(cell.used));
            put(cell.writer);
            put(cell.grace);
        }
        put(self.crashes_left << 4 | self.fault as u8);
        for c in &self.clients {
            put(c.pc as u8);
            if c.pc == Pc::Idle || c.pc.is_over() {
                continue; // blank otherwise
            }
            put(c.attempt << 4 | c.slot << 3 | u8::from(c.insert) << 2 | u8::from(c.voted) << 1);
            put(c.todo << 4 | c.lagging);
            put(c.early << 5 | c.prefer << 3 | c.alone);
            c.held.iter().for_each(|w| put(w.0));
            c.votes[..replicas - 1].iter().for_each(|w| put(w.0));
            [c.old, c.new, c.winner, c.check, c.seen].iter().for_each(|w| put(w.0));
        }
        hasher.write(&bytes[..at]);
    }
}

impl State {
    /// The least of the states that are this one but for the names of slots
    /// and backups.
    pub fn representative(&self) -> Self {
        let mut least = self.sorted_backups();
        if self.symmetry.slots {
            least = least.min(self.swapped_slots().sorted_backups());
        }
        least
    }

    fn swapped_slots(mut self) -> Self {
        self.memory.iter_mut().for_each(|replica| replica.swap(0, 1));
        for client in &mut self.clients {
            client.held.swap(0, 1);
            if client.old != Word::NONE {
                client.slot ^= 1;
            }
            if client.prefer != 0 {
                client.prefer ^= 3;
            }
        }
        self
    }

    fn sorted_backups(mut self) -> Self {
        let backups = usize::from(self.symmetry.backups);
        for end in (usize::from(self.symmetry.first_backup) + 1..backups).rev() {
            for a in usize::from(self.symmetry.first_backup)..end {
                if self.column(a) > self.column(a + 1) {
                    self.swap_backups(a, a + 1);
                }
            }
        }
        self
    }

    fn column(&self, backup: usize) -> impl Ord + use<> {
        let clients =
            self.clients.map(|c| (c.votes[backup], c.todo >> backup & 1, c.lagging >> backup & 1));
        (self.memory[backup + 1], clients)
    }

    fn swap_backups(&mut self, a: usize, b: usize) {
        self.memory.swap(a + 1, b + 1);
        for client in &mut self.clients {
            client.votes.swap(a, b);
            for mask in [&mut client.todo, &mut client.lagging] {
                let differ = (*mask >> a ^ *mask >> b) & 1;
                *mask ^= differ << a | differ << b;
            }
        }
    }
}
