//! What changes the history: the primary, and the end of an operation.

use super::history::{Event, IMPOSSIBLE, Op};
use super::policy::Departure;
use super::state::{Client, Fault, Pc, State};
use super::word::Word;
use super::{Protocol, cas};

impl Protocol {
    pub(super) fn explain(&self, state: &mut State, pending: u8, event: Event) {
        let history = self.histories.after(state.history, pending, event);
        if history == IMPOSSIBLE && state.fault == Fault::None {
            state.fault = Fault::NotLinearizable;
        }
        state.history = history;
    }

    pub(super) fn pending(&self, state: &State) -> u8 {
        let invoked = |&i: &usize| !matches!(state.clients[i].pc, Pc::Idle | Pc::Done);
        (0..self.scenario.ops.len()).filter(invoked).map(|i| 1 << i).sum()
    }

    /// A CAS on the primary; tells what it found.
    pub(super) fn cas_primary(&self, state: &mut State, slot: usize, old: Word, new: Word) -> Word {
        let before = self.visible(state);
        let found = cas(&mut state.memory[0][slot], old, new);
        let after = self.visible(state);
        if before != after {
            let pending = self.pending(state);
            self.explain(state, pending, Event::Shows(after));
        }
        found
    }

    pub(super) fn finish(&self, state: &mut State, client: usize, result: u8) {
        let pending = self.pending(state);
        self.explain(state, pending, Event::Returned { client, result });
        self.end(state, client, Pc::Done);
        let shows = Event::Shows(self.visible(state));
        self.explain(state, pending & !(1 << client), shows);
    }

    pub(super) fn end(&self, state: &mut State, client: usize, pc: Pc) {
        state.clients[client] = Client { pc, ..Client::BLANK };
        state.cells.iter_mut().for_each(|cell| cell.grace &= !(1 << client));
    }

    /// Our word was committed, by us or by a helper.
    pub(super) fn succeed(&self, state: &mut State, client: usize) {
        let Client { old, new, insert, .. } = state.clients[client];
        self.release_old(state, old);
        if self.write(client).deletes {
            self.release_own_tombstone(state, new);
        }
        let replaced = if insert { 0 } else { self.value_of(state, old) };
        let result = match self.op(client) {
            Op::Set | Op::SetNx | Op::Del => 1,
            Op::Modify | Op::GetDel | Op::Get => replaced,
        };
        self.finish(state, client, result);
    }

    /// Starts again with a new object; an insert then goes for `prefer`.
    pub(super) fn restart(&self, state: &mut State, client: usize, prefer: Option<usize>) {
        let Client { attempt, alone, .. } = state.clients[client];
        let others_over =
            (0..self.scenario.ops.len()).all(|i| i == client || state.clients[i].pc.is_over());
        // The attempt that saw the last other client end is not counted.
        let alone = if others_over { alone + 1 } else { 0 };
        if alone > 3 && state.fault == Fault::None {
            state.fault = Fault::Livelock;
        }
        if attempt + 1 == self.scenario.attempts {
            self.end(state, client, Pc::Spent);
            return;
        }
        let prefer = match prefer {
            Some(slot) if !self.lacks(Departure::InsertWhereTheDuplicateWas) => 1 + slot as u8,
            _ => 0,
        };
        state.clients[client] =
            Client { pc: Pc::Read, attempt: attempt + 1, prefer, alone, ..Client::BLANK };
    }
}
