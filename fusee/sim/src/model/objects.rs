//! The objects that words name: who wrote them, what readers see of them, and
//! their memory.

use super::Protocol;
use super::history::Value;
use super::policy::Departure;
use super::state::{Cell, Fault, Pc, State};
use super::word::{Object, Word};
use fusee::rules::Word as _;

impl Protocol {
    /// The client that wrote `word`'s object; nobody for the initial one.
    pub(super) fn writer(&self, state: &State, word: Word) -> Option<usize> {
        let object = word.object()?;
        if let Some(pool) = self.scenario.pool {
            let writer = state.cells[usize::from(object / pool.generations)].writer;
            return (writer != u8::MAX).then_some(usize::from(writer));
        }
        let index = object.checked_sub(1)? / self.scenario.attempts;
        Some(self.by_rank(usize::from(index)))
    }

    /// Words are ordered by their writers; a scenario may turn the order round.
    pub(super) fn by_rank(&self, index: usize) -> usize {
        if self.scenario.descending { self.scenario.ops.len() - 1 - index } else { index }
    }

    pub(super) fn key_of(&self, state: &State, word: Word) -> u8 {
        self.writer(state, word).map_or(0, |client| self.scenario.ops[client].1)
    }

    pub(super) fn is_of(&self, state: &State, word: Word, key: u8) -> bool {
        word.object().is_some() && self.key_of(state, word) == key
    }

    pub(super) fn has_fingerprint(&self, state: &State, word: Word, key: u8) -> bool {
        word.object().is_some()
            && (self.scenario.one_fingerprint || self.key_of(state, word) == key)
    }

    pub(super) fn value_of(&self, state: &State, word: Word) -> Value {
        self.writer(state, word).map_or(1, |client| 2 + client as Value)
    }

    /// What readers of each key see.
    pub(super) fn visible(&self, state: &State) -> [Value; 2] {
        let mut values = [0; 2];
        for word in state.memory[0] {
            if word.is_live() {
                values[usize::from(self.key_of(state, word))] = self.value_of(state, word);
            }
        }
        values
    }

    /// An object for a new attempt in a slot that holds `old`.
    pub(super) fn allocate(&self, state: &mut State, client: usize, old: Word) -> Option<Object> {
        let Some(pool) = self.scenario.pool else {
            let rank = self.by_rank(client) as u8;
            let object = 1 + rank * self.scenario.attempts + state.clients[client].attempt;
            state.allocated |= 1 << object;
            return Some(object);
        };
        for (address, cell) in state.cells[..pool.addresses].iter_mut().enumerate() {
            let generation = (cell.generation + 1) % pool.generations;
            let object = address as u8 * pool.generations + generation;
            // Implied where tombstones keep their objects.
            let recurs = Word::live(object).tombstone() == old;
            if cell.used || cell.grace != 0 || recurs {
                continue;
            }
            *cell = Cell { generation, writer: client as u8, used: true, grace: 0 };
            state.allocated |= 1 << object;
            state.freed &= !(1 << object);
            state.records[usize::from(object)] = Word::NONE;
            return Some(object);
        }
        None
    }

    pub(super) fn free(&self, state: &mut State, word: Word) {
        let Some(object) = word.object() else { return };
        if state.freed & 1 << object != 0 && state.fault == Fault::None {
            state.fault = Fault::FreedTwice;
        }
        state.freed |= 1 << object;
        if let Some(pool) = self.scenario.pool {
            let under_way = |&i: &usize| {
                let pc = state.clients[i].pc;
                pc != Pc::Idle && !pc.is_over()
            };
            let grace = (0..self.scenario.ops.len()).filter(under_way).map(|i| 1 << i).sum();
            let cell = &mut state.cells[usize::from(object / pool.generations)];
            cell.used = false;
            cell.grace = if self.lacks(Departure::GracePeriod) { 0 } else { grace };
        }
    }

    /// The owner of the winning word frees what it replaced. A tombstone's
    /// object is kept until then too: its word must not recur while a client
    /// that read it in the slot is still under way.
    pub(super) fn release_old(&self, state: &mut State, old: Word) {
        if old.is_live() || !self.lacks(Departure::TombstonesKeepTheirObjects) {
            self.free(state, old);
        }
    }

    /// A tombstone of our own object is in the slot.
    pub(super) fn release_own_tombstone(&self, state: &mut State, word: Word) {
        if self.lacks(Departure::TombstonesKeepTheirObjects) {
            self.free(state, word);
        }
    }
}
