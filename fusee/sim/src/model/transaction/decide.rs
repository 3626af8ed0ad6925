//! Deciding a transaction, one's own or another's, and finishing its intents.

use super::policy::Part;
use super::scenario::Op;
use super::state::{Action, Client, Decision, Kind, Object, Pc, State, Word};
use super::{Transactions, keys};

impl Transactions {
    /// A writer has found a prepared word: its transaction is to be aborted.
    pub(super) fn meet(&self, state: &mut State, client: usize, key: usize, intent: Object) {
        let c = &mut state.clients[client];
        c.pc = Pc::Decide;
        c.key = key as u8;
        c.met = Some(intent);
        c.decision = Decision::Aborted;
        if self.lacks(Part::DecideBeforeFinish) {
            c.pc = Pc::Finish;
            c.todo = 1 << key;
        }
    }

    /// The transaction that a client wants decided.
    fn subject(&self, state: &mut State, client: usize) -> Option<Object> {
        let c = &state.clients[client];
        if c.met.is_some() {
            return self.met(state, client).map(|(_, of)| of);
        }
        Some(c.own.expect("it has a transaction"))
    }

    /// CAS of the decision: the moment at which it is made, with one copy.
    pub(super) fn decide(&self, state: &mut State, client: usize) {
        let copies = self.copies(state);
        let Some(found) = self.cas_copy(state, client, copies.start) else { return };
        let c = &mut state.clients[client];
        if found != Decision::Undecided {
            c.decision = found;
        }
        if copies.len() > 1 {
            c.pc = Pc::DecideBackup;
        } else {
            self.after_decision(state, client);
        }
    }

    /// CAS of the backup.
    pub(super) fn decide_backup(&self, state: &mut State, client: usize) {
        let decision = self.bring_along(state, client);
        state.clients[client].decision = decision;
        self.after_decision(state, client);
    }

    /// Takes the decision that the client knows of to the backup, which may have
    /// become the first copy, and have another by now.
    pub(super) fn bring_along(&self, state: &mut State, client: usize) -> Decision {
        let decision = state.clients[client].decision;
        match self.cas_copy(state, client, 1) {
            Some(found) if found != Decision::Undecided && !self.lacks(Part::BackupByCas) => found,
            _ => decision,
        }
    }

    /// CAS of a copy from undecided to what the client wants; what it found.
    fn cas_copy(&self, state: &mut State, client: usize, copy: usize) -> Option<Decision> {
        let subject = self.subject(state, client)?;
        self.object(state, client, subject)?;
        let wanted = state.clients[client].decision;
        let copies = state.decision_mut(subject);
        let found = copies[copy];
        if found == Decision::Undecided || copy == 1 && self.lacks(Part::BackupByCas) {
            copies[copy] = wanted;
        }
        Some(found)
    }

    fn after_decision(&self, state: &mut State, client: usize) {
        let c = &mut state.clients[client];
        c.pc = Pc::Finish;
        if c.met.is_some() {
            c.todo = 1 << c.key;
            return;
        }
        c.todo = c.placed;
        if self.lacks(Part::FinishBeforeFree) {
            self.free_replaced(state, client);
        }
        self.after_finish(state, client);
    }

    /// Puts the final word in place of a prepared one. All that finish an intent
    /// put the same word there, but for copies of an old value.
    pub(super) fn finish(&self, state: &mut State, client: usize, key: usize) {
        let c = &mut state.clients[client];
        c.todo &= !(1 << key);
        let decision = c.decision;
        let intent = c.met.or(c.intents[key]).expect("there is an intent to finish");
        let Some(Kind::Intent { old, action, .. }) = self.object(state, client, intent) else {
            return;
        };
        let prepared = Word::Prepared(intent);
        match (decision, action, old) {
            (Decision::Committed, Action::Write, _) => {
                self.cas(state, key, prepared, Word::Live(intent));
            }
            (Decision::Committed, Action::Absent, _) => {
                self.cas(state, key, prepared, Word::Tombstone(intent));
            }
            (_, _, Word::Live(_)) => {
                if self.put_back(state, client, key, intent, old) {
                    self.free(state, intent);
                }
            }
            (_, _, _) => {
                self.cas(state, key, prepared, Word::Tombstone(intent));
            }
        }
        self.after_finish(state, client);
    }

    /// A copy of the old value replaces the intent. The old word itself must not
    /// come back.
    pub(super) fn put_back(
        &self,
        state: &mut State,
        client: usize,
        key: usize,
        intent: Object,
        old: Word,
    ) -> bool {
        let value = self.value(state, client, old);
        if state.slots[key] != Word::Prepared(intent) {
            return false;
        }
        if self.lacks(Part::AbortCopies) {
            return self.cas(state, key, Word::Prepared(intent), old);
        }
        let copy =
            self.write_object(state, client, Kind::Plain { key: key as u8, value, blind: false });
        self.cas(state, key, Word::Prepared(intent), Word::Live(copy))
    }

    fn after_finish(&self, state: &mut State, client: usize) {
        let c = state.clients[client];
        if c.todo != 0 {
            return;
        }
        if let Op::Recover(_) = self.op(state, client) {
            self.after_recovering_finish(state, client);
        } else if c.met.is_some() {
            self.again(state, client);
        } else {
            self.end_exec(state, client);
        }
    }

    /// What a finished transaction leaves behind, but for the intents that are
    /// values now and those that copies have replaced.
    pub(super) fn free_replaced(&self, state: &mut State, client: usize) {
        let Client { decision, placed, intents, .. } = state.clients[client];
        for (key, intent) in intents.into_iter().enumerate() {
            let Some(intent) = intent else { continue };
            let Some(Kind::Intent { old, action, .. }) = self.object(state, client, intent) else {
                return;
            };
            let placed = placed >> key & 1 == 1;
            let committed = decision == Decision::Committed;
            let restored = self.lacks(Part::AbortCopies) && !committed;
            if let Some(old) = old.live().filter(|_| placed && !restored) {
                self.free(state, old);
            }
            let void = if committed { action == Action::Absent } else { old.live().is_none() };
            if void || !placed {
                self.free(state, intent);
            }
        }
    }

    /// Frees its own record, the last thing of a transaction.
    pub(super) fn free_record(&self, state: &mut State, client: usize) {
        let own = state.clients[client].own.expect("it has a transaction");
        self.free(state, own);
    }

    pub(super) fn all_placed(&self, state: &State, client: usize) -> bool {
        let c = &state.clients[client];
        keys(c.placed).count() == c.intents.iter().flatten().count()
    }
}
