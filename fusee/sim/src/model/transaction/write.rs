//! A write of one key, as transactions meet it.

use super::Transactions;
use super::policy::Part;
use super::scenario::{Op, answer};
use super::state::{Action, Kind, State, Word};

impl Transactions {
    /// The round of a plain write.
    pub(super) fn write(&self, state: &mut State, client: usize, key: usize) {
        let op = self.op(state, client);
        if self.put(state, client, key) {
            if let Some(old) = state.clients[client].held[key].live() {
                self.free(state, old);
            }
            if let Word::Tombstone(record) = state.slots[key] {
                self.free(state, record);
            }
            let values = state.clients[client].values;
            self.finish_op(state, client, answer(op, values));
            return;
        }
        match op {
            // Replaced at once.
            Op::Set(_) if self.lost_to_blind(state, client, key) => {
                self.finish_op(state, client, 1);
            }
            // Of two deletes that lost to a delete none finds anything.
            Op::Del(_) if self.lost_to_delete(state, client) => self.finish_op(state, client, 0),
            _ => self.again(state, client),
        }
    }

    /// Its word replaces the one that was read; nothing is freed yet.
    pub(super) fn put(&self, state: &mut State, client: usize, key: usize) -> bool {
        let op = self.op(state, client);
        let old = state.clients[client].held[key];
        if state.slots[key] != old {
            return false;
        }
        let deletes = matches!(op, Op::Del(_));
        let value = if deletes { 0 } else { self.own_value(state, client) };
        let blind = matches!(op, Op::Set(_) | Op::Del(_));
        let object = self.write_object(state, client, Kind::Plain { key: key as u8, value, blind });
        let new = if deletes { Word::Tombstone(object) } else { Word::Live(object) };
        self.cas(state, key, old, new)
    }

    fn lost_to_blind(&self, state: &mut State, client: usize, key: usize) -> bool {
        let winner = state.clients[client].winner;
        // An insert's winner must still be the key's value.
        if state.clients[client].held[key].live().is_none()
            && (winner.live().is_none() || state.slots[key] != winner)
        {
            return false;
        }
        let Some(object) = winner.object() else { return false };
        match state.peek(object) {
            Some(Kind::Plain { blind, .. }) => blind,
            Some(Kind::Intent { action, .. }) => {
                self.lacks(Part::AgainAfterPrepared) && action == Action::Write
            }
            _ => false,
        }
    }

    fn lost_to_delete(&self, state: &State, client: usize) -> bool {
        matches!(state.clients[client].winner, Word::Tombstone(_))
    }
}
