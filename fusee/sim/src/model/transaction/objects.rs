//! Objects and slots: writing, reading, freeing, moving.

use super::Transactions;
use super::state::{
    Action, CLIENTS, Decision, Fault, KEYS, Kind, Loss, Memory, OBJECTS_PER_CLIENT, Object, Pc,
    State, Word,
};
use crate::model::history::Value;

impl Transactions {
    /// Writes a new object.
    pub(super) fn write_object(&self, state: &mut State, client: usize, kind: Kind) -> Object {
        let written = &mut state.clients[client].written;
        assert!(usize::from(*written) < OBJECTS_PER_CLIENT, "there is room for so many objects");
        let object = KEYS + client * OBJECTS_PER_CLIENT + usize::from(*written);
        *written += 1;
        state.objects[object] = Memory::InUse(kind);
        object as Object
    }

    /// What an object is to a client that relies on it.
    pub(super) fn object(&self, state: &mut State, client: usize, object: Object) -> Option<Kind> {
        match state.objects[usize::from(object)] {
            Memory::InUse(kind) => Some(kind),
            Memory::Grace(kind, readers) if readers >> client & 1 == 1 => Some(kind),
            _ => {
                state.fail(Fault::ReadAfterFree);
                None
            }
        }
    }

    /// The value of a word that is no prepared one.
    pub(super) fn value(&self, state: &mut State, client: usize, word: Word) -> Value {
        let Some(object) = word.live() else { return 0 };
        match self.object(state, client, object) {
            Some(Kind::Plain { value, .. } | Kind::Intent { value, .. }) => value,
            _ => 0,
        }
    }

    pub(super) fn free(&self, state: &mut State, object: Object) {
        let running = self.running(state);
        let memory = &mut state.objects[usize::from(object)];
        if let Memory::InUse(kind) = *memory {
            *memory = if running == 0 { Memory::Gone } else { Memory::Grace(kind, running) };
        } else {
            state.fail(Fault::FreedTwice);
        }
    }

    /// Clients that may hold what they have read.
    pub(super) fn running(&self, state: &State) -> u8 {
        let running = |&i: &usize| {
            let c = &state.clients[i];
            c.pc != Pc::Idle && !c.pc.is_over() && !c.stopped
        };
        (0..self.clients()).filter(running).map(|i| 1 << i).sum()
    }

    /// The client holds nothing any more of what it has read.
    pub(super) fn unpin(&self, state: &mut State, client: usize) {
        for memory in &mut state.objects {
            if let Memory::Grace(kind, readers) = *memory {
                let left = readers & !(1 << client);
                *memory = if left == 0 { Memory::Gone } else { Memory::Grace(kind, left) };
            }
        }
        for c in &mut state.clients {
            c.waits &= !(1 << client);
        }
    }

    /// A round on a slot: true if it moved from `old` to `new`.
    pub(super) fn cas(&self, state: &mut State, key: usize, old: Word, new: Word) -> bool {
        if state.slots[key] != old {
            return false;
        }
        state.slots[key] = new;
        if new.live().is_some_and(|object| state.replaced >> object & 1 == 1) {
            state.fail(Fault::WordCameBack);
        }
        if let Some(object) = old.object().filter(|_| old.object() != new.object()) {
            state.replaced |= 1 << object;
        }
        for client in 0..CLIENTS {
            let c = &mut state.clients[client];
            let waits = c.pc == Pc::Write && c.todo >> key & 1 == 1 && c.winner == Word::Empty;
            if waits && c.held[key] == old {
                c.winner = new;
            }
        }
        true
    }

    /// What was decided, as everybody sees it that asks from now on.
    pub(super) fn decided(&self, state: &State, transaction: Object) -> Decision {
        let Some(Kind::Transaction { copies }) = state.peek(transaction) else {
            return Decision::Undecided;
        };
        let mut held = self.copies(state).map(|copy| copies[copy]);
        let first = held.next().expect("a copy is left");
        let all = held.all(|copy| copy == first);
        if first == Decision::Committed && !all { Decision::Undecided } else { first }
    }

    /// What a reader sees of a key.
    pub(super) fn visible(&self, state: &State, key: usize) -> Value {
        let seen = |object: Option<Object>| match object.and_then(|object| state.peek(object)) {
            Some(Kind::Plain { value, .. } | Kind::Intent { value, .. }) => value,
            _ => 0,
        };
        let word = state.slots[key];
        let Some(intent) = word.prepared() else { return seen(word.live()) };
        match state.peek(intent) {
            Some(Kind::Intent { value, action, old, of, .. }) => match self.decided(state, of) {
                Decision::Committed if action == Action::Absent => 0,
                Decision::Committed => value,
                _ => seen(old.live()),
            },
            _ => 0,
        }
    }

    /// The primary copies of decisions go.
    pub(super) fn lose(&self, state: &mut State) {
        state.loss = Loss::Happened;
        for client in 0..self.clients() {
            let c = &state.clients[client];
            let had_first = c.seen[0].is_some();
            if matches!(c.pc, Pc::Look | Pc::LookAgain) && !had_first && c.seen[1].is_some() {
                self.looked(state, client);
            }
        }
    }
}

impl State {
    /// An object, whoever asks.
    pub(super) fn peek(&self, object: Object) -> Option<Kind> {
        match self.objects[usize::from(object)] {
            Memory::InUse(kind) | Memory::Grace(kind, _) => Some(kind),
            Memory::Gone => None,
        }
    }

    /// The copies of a decision.
    pub(super) fn decision_mut(&mut self, transaction: Object) -> &mut [Decision; 2] {
        match &mut self.objects[usize::from(transaction)] {
            Memory::InUse(Kind::Transaction { copies })
            | Memory::Grace(Kind::Transaction { copies }, _) => copies,
            other => unreachable!("an intent is of a transaction, not of {other:?}"),
        }
    }

    pub(super) fn fail(&mut self, fault: Fault) {
        if self.fault == Fault::None {
            self.fault = fault;
        }
    }
}
