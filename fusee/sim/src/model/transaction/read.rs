//! Reading: a slot, and where its word is prepared, the decision behind it.

use super::Transactions;
use super::policy::Part;
use super::scenario::{Op, answer};
use super::state::{Action, Client, Decision, Kind, Object, Pc, State};
use crate::model::history::Value;

impl Transactions {
    /// READ of a slot in the first phase.
    pub(super) fn read(&self, state: &mut State, client: usize, key: usize) {
        let op = self.op(state, client);
        let word = state.slots[key];
        let c = &mut state.clients[client];
        if c.pc == Pc::Idle {
            c.pc = Pc::Read;
            c.todo = op.footprint();
        }
        c.todo &= !(1 << key);
        c.held[key] = word;
        match word.prepared() {
            Some(intent) if op.changes() == 0 => self.ask(state, client, key, intent, Pc::Look),
            Some(intent) => self.meet(state, client, key, intent),
            None => {
                state.clients[client].values[key] = self.value(state, client, word);
                self.after_reads(state, client);
            }
        }
    }

    /// Next are the copies of the decision on an intent.
    pub(super) fn ask(
        &self,
        state: &mut State,
        client: usize,
        key: usize,
        intent: Object,
        then: Pc,
    ) {
        let c = &mut state.clients[client];
        c.pc = then;
        c.key = key as u8;
        c.met = Some(intent);
        c.seen = [None; 2];
    }

    /// READ of a copy of the decision.
    pub(super) fn look(&self, state: &mut State, client: usize, copy: usize) {
        let Some((_, of)) = self.met(state, client) else { return };
        let Some(Kind::Transaction { copies }) = self.object(state, client, of) else { return };
        state.clients[client].seen[copy] = Some(copies[copy]);
        let seen = state.clients[client].seen;
        if self.copies(state).all(|copy| seen[copy].is_some()) {
            self.looked(state, client);
        }
    }

    /// The intent that a client has met, and its transaction.
    pub(super) fn met(&self, state: &mut State, client: usize) -> Option<(Kind, Object)> {
        let intent = state.clients[client].met.expect("it has met an intent");
        match self.object(state, client, intent)? {
            kind @ Kind::Intent { of, .. } => Some((kind, of)),
            kind => unreachable!("a prepared word names {kind:?}"),
        }
    }

    /// All copies were read: the first one counts, if it says aborted or nothing.
    pub(super) fn looked(&self, state: &mut State, client: usize) {
        let seen = state.clients[client].seen;
        let first = seen[0].or(seen[1]).expect("a copy was read");
        let all = self.scenario.copies == 1 || seen[1] == Some(Decision::Committed);
        if first != Decision::Committed || all || self.lacks(Part::AllCopies) {
            self.conclude(state, client, first);
        } else if state.clients[client].pc == Pc::Look {
            let c = &mut state.clients[client];
            (c.pc, c.decision) = (Pc::Spread, first);
        } else {
            // Still not everywhere: it was not decided at the first look either.
            self.looked_again(state, client, Decision::Undecided);
        }
    }

    /// CAS of the backup: a commitment counts when all copies hold it.
    pub(super) fn spread(&self, state: &mut State, client: usize) {
        let decision = self.bring_along(state, client);
        self.conclude(state, client, decision);
    }

    fn conclude(&self, state: &mut State, client: usize, decision: Decision) {
        if state.clients[client].pc == Pc::LookAgain {
            self.looked_again(state, client, decision);
            return;
        }
        let key = usize::from(state.clients[client].key);
        let value = self.value_under(state, client, decision);
        let c = &mut state.clients[client];
        c.values[key] = value;
        c.outcomes[key] = decision;
        c.pc = Pc::Read;
        c.met = None;
        self.after_reads(state, client);
    }

    /// What the key of the intent holds under a decision.
    fn value_under(&self, state: &mut State, client: usize, decision: Decision) -> Value {
        let Some((Kind::Intent { value, action, old, .. }, _)) = self.met(state, client) else {
            return 0;
        };
        match decision {
            Decision::Committed if action == Action::Absent => 0,
            Decision::Committed => value,
            _ => self.value(state, client, old),
        }
    }

    /// All keys of the footprint have been read.
    fn after_reads(&self, state: &mut State, client: usize) {
        let op = self.op(state, client);
        let c = &mut state.clients[client];
        if c.todo != 0 {
            return;
        }
        match op {
            Op::Get(_) => {
                let values = c.values;
                self.finish_op(state, client, answer(op, values));
            }
            Op::Exec { .. } if op.changes() == 0 => {
                c.pc = Pc::Recheck;
                c.todo = op.footprint();
            }
            Op::Exec { .. } => self.begin_prepare(state, client),
            Op::Del(key) if c.values[usize::from(key)] == 0 => self.finish_op(state, client, 0),
            _ => {
                c.pc = Pc::Write;
                c.todo = op.footprint();
            }
        }
    }

    /// READ of a slot again: what has not moved was so all at one moment.
    pub(super) fn recheck(&self, state: &mut State, client: usize, key: usize) {
        let c = &mut state.clients[client];
        let word = state.slots[key];
        c.todo &= !(1 << key);
        if word != c.held[key] {
            self.again(state, client);
        } else if let Some(intent) = word.prepared()
            && !self.lacks(Part::DecisionsAgain)
        {
            self.ask(state, client, key, intent, Pc::LookAgain);
        } else {
            self.after_recheck(state, client);
        }
    }

    fn looked_again(&self, state: &mut State, client: usize, decision: Decision) {
        let c = &mut state.clients[client];
        let was = c.outcomes[usize::from(c.key)];
        let commits = |decision| decision == Decision::Committed;
        if commits(was) != commits(decision) {
            self.again(state, client);
            return;
        }
        *c = Client { pc: Pc::Recheck, met: None, ..*c };
        self.after_recheck(state, client);
    }

    fn after_recheck(&self, state: &mut State, client: usize) {
        let op = self.op(state, client);
        let c = &state.clients[client];
        if c.todo == 0 {
            let values = c.values;
            self.finish_op(state, client, answer(op, values));
        }
    }
}
