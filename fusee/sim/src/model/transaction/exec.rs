//! A transaction that writes: intents for its whole footprint, the decision,
//! the end.

use super::policy::Part;
use super::scenario::{Op, answer};
use super::state::{Action, Decision, Kind, Pc, State, Word};
use super::{Transactions, keys};

impl Transactions {
    /// Writes the record and the intents, which no slot leads to yet.
    pub(super) fn begin_prepare(&self, state: &mut State, client: usize) {
        let op = self.op(state, client);
        let Op::Exec { writes, deletes, .. } = op else {
            unreachable!("only transactions prepare");
        };
        let copies = [Decision::Undecided; 2];
        let of = self.write_object(state, client, Kind::Transaction { copies });
        let covered = if self.lacks(Part::IntentsOfReads) { op.changes() } else { op.footprint() };
        for key in keys(covered) {
            let c = &state.clients[client];
            let (old, held) = (c.held[key], c.values[key]);
            let (value, action) = if deletes >> key & 1 == 1 {
                (0, Action::Absent)
            } else if writes >> key & 1 == 1 {
                (self.own_value(state, client), Action::Write)
            } else if held == 0 {
                (0, Action::Absent)
            } else {
                (held, Action::Write)
            };
            let intent = Kind::Intent { key: key as u8, value, action, old, of };
            let intent = self.write_object(state, client, intent);
            state.clients[client].intents[key] = Some(intent);
        }
        let c = &mut state.clients[client];
        c.own = Some(of);
        c.pc = Pc::Prepare;
        c.todo = covered;
    }

    /// A round: the intent's word in place of what was read.
    pub(super) fn prepare(&self, state: &mut State, client: usize, key: usize) {
        let c = &mut state.clients[client];
        c.todo &= !(1 << key);
        let (old, intent) = (c.held[key], c.intents[key].expect("it was written"));
        if self.cas(state, key, old, Word::Prepared(intent)) {
            state.clients[client].placed |= 1 << key;
        } else if state.clients[client].attempt > 0 {
            state.clients[client].todo = 0;
        }
        if state.clients[client].todo != 0 {
            return;
        }
        let unread = self.op(state, client).footprint() & !self.op(state, client).changes();
        let all = self.all_placed(state, client);
        let c = &mut state.clients[client];
        if all && unread != 0 && self.lacks(Part::IntentsOfReads) {
            c.pc = Pc::Validate;
            c.todo = unread;
            return;
        }
        c.pc = Pc::Decide;
        c.decision = if all { Decision::Committed } else { Decision::Aborted };
    }

    /// READ of a slot without an intent, before the decision: a mutation.
    pub(super) fn validate(&self, state: &mut State, client: usize, key: usize) {
        let unchanged = state.slots[key] == state.clients[client].held[key];
        let c = &mut state.clients[client];
        c.todo &= !(1 << key);
        if !unchanged || c.todo == 0 {
            c.todo = 0;
            c.pc = Pc::Decide;
            c.decision = if unchanged { Decision::Committed } else { Decision::Aborted };
        }
    }

    /// All intents are finished.
    pub(super) fn end_exec(&self, state: &mut State, client: usize) {
        if !self.lacks(Part::FinishBeforeFree) {
            self.free_replaced(state, client);
        }
        self.free_record(state, client);
        let c = &state.clients[client];
        if c.decision == Decision::Committed {
            let values = c.values;
            self.finish_op(state, client, answer(self.op(state, client), values));
        } else {
            self.again(state, client);
        }
    }
}
