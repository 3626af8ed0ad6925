//! What the history must explain: the end of an operation, and what readers see.

use super::Transactions;
use super::scenario::Op;
use super::state::{Client, Fault, Pc, State};
use crate::model::history::{Event, IMPOSSIBLE, Value};

impl Transactions {
    fn explain(&self, state: &mut State, event: Event) {
        let pending = self.pending(state);
        state.history = self.histories.after(state.history, pending, event);
        if state.history == IMPOSSIBLE {
            state.fail(Fault::NotSerializable);
        }
    }

    /// The keys' values have come to be others.
    pub(super) fn shows(&self, state: &mut State) {
        let values = [self.visible(state, 0), self.visible(state, 1)];
        self.explain(state, Event::Shows(values));
    }

    /// Number of a client's current operation among all.
    fn number(&self, state: &State, client: usize) -> usize {
        let before: usize = self.scenario.programs[..client].iter().map(|ops| ops.len()).sum();
        before + usize::from(state.clients[client].turn)
    }

    /// The operations that have been invoked and have not returned.
    fn pending(&self, state: &State) -> u8 {
        let invoked = |&client: &usize| {
            let c = &state.clients[client];
            !matches!(c.pc, Pc::Idle | Pc::Done)
                && !matches!(self.op(state, client), Op::Recover(_))
        };
        (0..self.clients()).filter(invoked).map(|i| 1 << self.number(state, i)).sum()
    }

    /// What the current operation writes.
    pub(super) fn own_value(&self, state: &State, client: usize) -> Value {
        2 + self.number(state, client) as Value
    }

    /// The operation returns.
    pub(super) fn finish_op(&self, state: &mut State, client: usize, result: u8) {
        if !matches!(self.op(state, client), Op::Recover(_)) {
            let number = self.number(state, client);
            self.explain(state, Event::Returned { client: number, result });
        }
        self.unpin(state, client);
        let c = &mut state.clients[client];
        let turn = c.turn + 1;
        let over = usize::from(turn) == self.scenario.programs[client].len();
        let pc = if over { Pc::Done } else { Pc::Idle };
        let turn = if over { c.turn } else { turn };
        *c = Client { pc, turn, attempt: 0, ..blank(c) };
        self.shows(state);
    }

    /// The operation starts again.
    pub(super) fn again(&self, state: &mut State, client: usize) {
        self.unpin(state, client);
        let op = self.op(state, client);
        let c = &mut state.clients[client];
        let attempt = c.attempt + 1;
        let spent = attempt == self.scenario.attempts;
        let pc = if spent { Pc::Spent } else { Pc::Read };
        *c = Client { pc, attempt, todo: op.footprint(), ..blank(c) };
    }
}

/// All of an attempt forgotten.
fn blank(c: &Client) -> Client {
    Client { turn: c.turn, attempt: c.attempt, written: c.written, ..Client::BLANK }
}
