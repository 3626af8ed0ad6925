//! The write protocol of ARCHITECTURE.md, checked exhaustively.
//!
//! Clients run one operation each on keys that share two candidate slots; every
//! verb of every client is a step, what a client computes between two verbs
//! belongs to the step before. Invocation joins the first verb and return the
//! last: an operation that is shorter has fewer excuses, so this loses nothing.
//! A GET, or an update, that finds its key in the first slot does not read the
//! second, for the same reason.
//!
//! A client that stops for good is one that is never scheduled again, so every
//! safety property holds under any number of stopped clients already. Progress
//! under stopped clients: nobody ever waits for a step of another (a property),
//! and a client that is alone with what a crashed one left behind does not start
//! again for ever (scenarios with a crash).
//!
//! What the model leaves out: memory-node failure and the master, torn or cached
//! objects, expiry, more than two slots and keys, more attempts than a scenario
//! grants (a client that has used them up never returns). A commit record is one
//! word, though it is written to all replicas of its object: only one is read.
//! Visited states are kept as 64-bit fingerprints, so a run of n states misses
//! one with a probability of about n^2 / 2^65.
//!
//! Read `writer` first, then `loser` and `single`. Transactions over several keys
//! have a model of their own, in `transaction`.

mod checked;
pub mod history;
mod loser;
mod objects;
mod outcome;
pub mod policy;
pub mod run;
pub mod scenario;
mod single;
pub mod state;
pub mod transaction;
pub mod word;
mod writer;

#[cfg(test)]
mod mutations;

use fusee::rules::Write;
use history::{Histories, Op};
use policy::{Departure, Policy};
use scenario::Scenario;
use state::{Pc, State};
use word::Word;

/// One verb of one client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Who.
    pub client: usize,
    /// What; where the client stands tells the rest.
    pub verb: Verb,
}

/// The verbs, by what they are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// READ of the primary's slot in phase 1.
    Read(usize),
    /// The same, after which the client will insert into this slot.
    ReadThenInsert(usize, usize),
    /// What the phase does on this backup.
    Backup(usize),
    /// READ of the first backup's other slot.
    Check,
    /// What the phase does on the primary (or on an object's log entry).
    Go,
    /// Evidence read too early, in a mutation.
    Early,
    /// Stops for good.
    Crash,
}

/// The protocol in one scenario under one policy.
pub struct Protocol {
    scenario: Scenario,
    policy: Policy,
    histories: Histories<Vec<(Op, u8)>>,
}

impl Protocol {
    /// A model to hand to the checker.
    pub fn new(scenario: Scenario, policy: Policy) -> Self {
        let histories = Histories::new(scenario.ops.to_vec());
        Self { scenario, policy, histories }
    }

    fn lacks(&self, departure: Departure) -> bool {
        self.policy.without == Some(departure)
    }

    fn backups(&self) -> usize {
        self.scenario.replicas - 1
    }

    fn all_backups(&self) -> u8 {
        (1 << self.backups()) - 1
    }

    fn op(&self, client: usize) -> Op {
        self.scenario.ops[client].0
    }

    fn write(&self, client: usize) -> Write {
        let (deletes, blind) = match self.op(client) {
            Op::Set => (false, true),
            Op::Del => (true, true),
            Op::GetDel => (true, false),
            Op::SetNx | Op::Modify | Op::Get => (false, false),
        };
        Write { deletes, blind }
    }

    fn verbs(&self, state: &State, client: usize, verbs: &mut Vec<Verb>) {
        let c = &state.clients[client];
        match c.pc {
            Pc::Idle | Pc::Read => self.verbs_of_read(state, client, verbs),
            Pc::Vote | Pc::Adopt | Pc::HelpAdopt | Pc::Follow | Pc::HelpFollow => {
                verbs
                    .extend((0..self.backups()).filter(|b| c.todo >> b & 1 == 1).map(Verb::Backup));
                if c.check == Word::DUE {
                    verbs.push(Verb::Check);
                }
                if c.seen == Word::DUE {
                    verbs.push(Verb::Go);
                }
            }
            Pc::Split if self.lacks(Departure::RecordsAfterPrimary) && c.early == 0 => {
                verbs.push(Verb::Early);
            }
            Pc::Lost | Pc::HelpWait => self.verbs_of_loser(state, client, verbs),
            pc if pc.is_over() => {}
            _ => verbs.push(Verb::Go),
        }
    }

    fn step(&self, state: &mut State, client: usize, verb: Verb) {
        match (state.clients[client].pc, verb) {
            (_, Verb::Crash) => self.end(state, client, Pc::Crashed),
            (Pc::Idle | Pc::Read, Verb::Read(slot)) => self.read(state, client, slot, None),
            (Pc::Idle | Pc::Read, Verb::ReadThenInsert(slot, target)) => {
                self.read(state, client, slot, Some(target));
            }
            (Pc::Vote, Verb::Backup(b)) => self.vote(state, client, b),
            (Pc::Adopt, Verb::Backup(b)) => self.adopt(state, client, b),
            (Pc::Follow, Verb::Backup(b)) => self.follow(state, client, b),
            (Pc::HelpAdopt, Verb::Backup(b)) => self.help_adopt(state, client, b),
            (Pc::HelpFollow, Verb::Backup(b)) => self.help_follow(state, client, b),
            (_, Verb::Check) => self.check(state, client),
            (Pc::Split, Verb::Early) => self.read_early(state, client),
            (Pc::Split, _) => self.split(state, client),
            (Pc::Record, _) => self.record(state, client),
            (Pc::Commit, _) => self.commit(state, client),
            (Pc::Abandon, _) => self.abandon(state, client),
            (Pc::Lost | Pc::HelpWait, _) => self.poll(state, client),
            (Pc::Judge, _) => self.judge(state, client),
            (Pc::HelpAdopt, _) => self.help_read(state, client),
            (Pc::HelpRecord, _) => self.help_record(state, client),
            (Pc::HelpCommit, _) => self.help_commit(state, client),
            (Pc::Swap, _) => self.swap(state, client),
            (Pc::Look, _) => self.look(state, client),
            (Pc::Abort, _) => self.abort(state, client),
            (Pc::MakeRoom, _) => self.make_room(state, client),
            (Pc::Publish, _) => self.publish(state, client),
            (Pc::Withdraw, _) => self.withdraw(state, client),
            (pc, verb) => unreachable!("no {verb:?} at {pc:?}"),
        }
    }
}

/// A compare-and-swap; tells what it found.
fn cas(word: &mut Word, old: Word, new: Word) -> Word {
    let found = *word;
    if found == old {
        *word = new;
    }
    found
}
