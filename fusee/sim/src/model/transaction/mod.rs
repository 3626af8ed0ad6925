//! Transactions over several keys, checked exhaustively.
//!
//! A slot is one word here, and a round on it one CAS: that rounds are
//! linearizable is what the model of the write protocol shows. Each key has a
//! slot of its own, so an insert cannot meet a duplicate. What is left is what
//! transactions add: intents, decisions with their copies, who finishes what, and
//! who frees it. Every verb is a step; what a client computes between two verbs
//! belongs to the step before.
//!
//! A client that stops is one that is never scheduled again; its rounds that are
//! open may still be ended by others. Stopping as a step of its own is only
//! needed for recovery to begin. The copy of a decision that may be lost is the
//! primary, at any moment, of all transactions at once.
//!
//! Read `exec` first, then `decide`, `write` and `recover`.

mod checked;
mod decide;
mod exec;
mod objects;
mod outcome;
pub mod policy;
mod read;
mod recover;
pub mod run;
pub mod scenario;
pub mod state;
mod write;

#[cfg(test)]
mod mutations;

use super::history::Histories;
use policy::Part;
use scenario::{Op, Operations, Scenario};
use state::{Loss, Pc, State};

/// A verb of a client, or what befalls it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A client does what its phase does on this key.
    Key(usize, usize),
    /// A client reads this copy of a decision.
    Copy(usize, usize),
    /// A client does what its phase does.
    Go(usize),
    /// A client stops for good.
    Stop(usize),
    /// The round that a stopped client had begun on this key succeeds.
    Late(usize, usize),
    /// The primary copies of decisions are lost.
    Lose,
}

/// The protocol in one scenario.
pub struct Transactions {
    scenario: Scenario,
    without: Option<Part>,
    histories: Histories<Operations>,
}

impl Transactions {
    /// A model to hand to the checker; `without` names a part that is missing.
    pub fn new(scenario: Scenario, without: Option<Part>) -> Self {
        let ops = scenario.programs.iter().flat_map(|ops| ops.iter().copied()).collect();
        Self { scenario, without, histories: Histories::new(Operations(ops)) }
    }

    fn lacks(&self, part: Part) -> bool {
        self.without == Some(part)
    }

    fn clients(&self) -> usize {
        self.scenario.programs.len()
    }

    /// The operation that a client is at.
    fn op(&self, state: &State, client: usize) -> Op {
        self.scenario.programs[client][usize::from(state.clients[client].turn)]
    }

    /// The copies of decisions that there are.
    fn copies(&self, state: &State) -> std::ops::Range<usize> {
        usize::from(state.loss == Loss::Happened)..self.scenario.copies
    }

    fn steps(&self, state: &State, client: usize, steps: &mut Vec<Step>) {
        let c = &state.clients[client];
        if c.pc.is_over() {
            return;
        }
        let keys = keys(c.todo);
        if c.stopped {
            if matches!(c.pc, Pc::Write | Pc::Prepare | Pc::Finish) {
                steps.extend(keys.map(|key| Step::Late(client, key)));
            }
            return;
        }
        match c.pc {
            Pc::Idle => match self.op(state, client) {
                Op::Recover(dead) if !state.clients[dead].stopped => {}
                Op::Recover(_) => steps.push(Step::Go(client)),
                op => steps.extend(self::keys(op.footprint()).map(|key| Step::Key(client, key))),
            },
            Pc::Prepare if c.attempt > 0 => {
                // One after another, in the order of the keys.
                steps.extend(keys.take(1).map(|key| Step::Key(client, key)));
            }
            Pc::Look | Pc::LookAgain => {
                let unread = self.copies(state).filter(|&copy| c.seen[copy].is_none());
                steps.extend(unread.map(|copy| Step::Copy(client, copy)));
            }
            Pc::Spread | Pc::Decide | Pc::DecideBackup => steps.push(Step::Go(client)),
            Pc::Sweep if c.waits != 0 => {}
            _ => steps.extend(keys.map(|key| Step::Key(client, key))),
        }
    }

    fn step(&self, state: &mut State, step: Step) {
        match step {
            Step::Lose => self.lose(state),
            Step::Stop(client) => self.stop(state, client),
            Step::Late(client, key) => self.late(state, client, key),
            Step::Key(client, key) => match state.clients[client].pc {
                Pc::Idle | Pc::Read => self.read(state, client, key),
                Pc::Recheck => self.recheck(state, client, key),
                Pc::Write => self.write(state, client, key),
                Pc::Prepare => self.prepare(state, client, key),
                Pc::Validate => self.validate(state, client, key),
                Pc::Finish => self.finish(state, client, key),
                Pc::Resolve => self.resolve(state, client, key),
                Pc::Suspect => self.suspect(state, client, key),
                Pc::Sweep => self.sweep(state, client, key),
                pc => unreachable!("no key at {pc:?}"),
            },
            Step::Copy(client, copy) => self.look(state, client, copy),
            Step::Go(client) => match state.clients[client].pc {
                Pc::Idle => self.begin_recovery(state, client),
                Pc::Spread => self.spread(state, client),
                Pc::Decide => self.decide(state, client),
                Pc::DecideBackup => self.decide_backup(state, client),
                pc => unreachable!("no step at {pc:?}"),
            },
        }
    }
}

/// The keys of a mask.
fn keys(mask: u8) -> impl Iterator<Item = usize> {
    (0..state::KEYS).filter(move |key| mask >> key & 1 == 1)
}
