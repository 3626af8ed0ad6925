//! A write with one replica: there are no backups to hide an insert in, so a
//! tentative mark hides it.

use super::Protocol;
use super::policy::Departure;
use super::state::{Client, Pc, State};
use super::word::Word;
use fusee::rules::Word as _;

impl Protocol {
    /// CAS of the slot: the whole of an update, the mark of an insert.
    pub(super) fn swap(&self, state: &mut State, client: usize) {
        let c = state.clients[client];
        let tentative = c.insert && !self.lacks(Departure::TentativeMark);
        let new = match c.new.object() {
            Some(object) if tentative => Word::tentative(object),
            _ => c.new,
        };
        let found = self.cas_primary(state, usize::from(c.slot), c.old, new);
        if found != c.old {
            self.again(state, client);
        } else if c.insert {
            state.clients[client].pc = Pc::Look;
        } else {
            self.succeed(state, client);
        }
    }

    /// The duplicate check, fenced behind the mark.
    pub(super) fn look(&self, state: &mut State, client: usize) {
        let c = state.clients[client];
        let key = self.scenario.ops[client].1;
        let word = state.memory[0][1 - usize::from(c.slot)];
        let ours = self.is_of(state, word, key) && !self.lacks(Departure::DuplicateCheck);
        let next = &mut state.clients[client];
        next.held = Client::BLANK.held;
        if ours && word.is_tentative() {
            next.winner = word;
            next.pc = Pc::Abort;
        } else if ours && word.is_live() {
            next.pc = Pc::Withdraw;
        } else if self.lacks(Departure::TentativeMark) {
            self.succeed(state, client);
        } else {
            next.pc = Pc::Publish;
        }
    }

    /// CAS of a rival's mark to its tombstone. A rival that comes later than
    /// our mark sees it and gives way or aborts us.
    pub(super) fn abort(&self, state: &mut State, client: usize) {
        let c = state.clients[client];
        let key = self.scenario.ops[client].1;
        let slot = 1 - usize::from(c.slot);
        let found = self.cas_primary(state, slot, c.winner, c.winner.tombstone());
        let live = found.is_live() && self.is_of(state, found, key);
        let next = &mut state.clients[client];
        next.winner = Word::NONE;
        next.pc = if live { Pc::Withdraw } else { Pc::Publish };
    }

    /// The same when no slot is empty, whoever's mark it is.
    pub(super) fn make_room(&self, state: &mut State, client: usize) {
        let c = state.clients[client];
        self.cas_primary(state, usize::from(c.slot), c.old, c.old.tombstone());
        self.restart(state, client, None);
    }

    /// CAS of the own mark to the live word; it fails if the mark was aborted.
    pub(super) fn publish(&self, state: &mut State, client: usize) {
        let c = state.clients[client];
        let Some(object) = c.new.object() else { unreachable!("an insert has an object") };
        let mark = Word::tentative(object);
        if self.cas_primary(state, usize::from(c.slot), mark, c.new) == mark {
            self.succeed(state, client);
        } else {
            self.give_way(state, client);
        }
    }

    /// CAS of the own mark to its tombstone.
    pub(super) fn withdraw(&self, state: &mut State, client: usize) {
        let c = state.clients[client];
        let Some(object) = c.new.object() else { unreachable!("an insert has an object") };
        let tentative = !self.lacks(Departure::TentativeMark);
        let mark = if tentative { Word::tentative(object) } else { c.new };
        self.cas_primary(state, usize::from(c.slot), mark, c.new.tombstone());
        self.give_way(state, client);
    }

    /// Our tombstone has replaced `old`.
    fn give_way(&self, state: &mut State, client: usize) {
        let c = state.clients[client];
        self.release_old(state, c.old);
        self.release_own_tombstone(state, c.new);
        self.restart(state, client, Some(1 - usize::from(c.slot)));
    }
}
