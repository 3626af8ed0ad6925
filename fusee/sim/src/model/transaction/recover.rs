//! Recovery of a client that has stopped.

use super::Transactions;
use super::policy::Part;
use super::scenario::Op;
use super::state::{
    Decision, KEYS, Kind, Memory, OBJECTS, OBJECTS_PER_CLIENT, Object, Pc, State, Word,
};

const ALL_KEYS: u8 = (1 << KEYS) - 1;

impl Transactions {
    /// A client has stopped, is fenced and expelled: nobody waits for it any more.
    /// (As long as it is not, it might as well be slow.)
    pub(super) fn stop(&self, state: &mut State, client: usize) {
        state.stops_left -= 1;
        state.clients[client].stopped = true;
        self.unpin(state, client);
    }

    pub(super) fn begin_recovery(&self, state: &mut State, client: usize) {
        let c = &mut state.clients[client];
        c.pc = Pc::Resolve;
        c.todo = ALL_KEYS;
    }

    fn dead(&self, state: &State, client: usize) -> usize {
        let Op::Recover(dead) = self.op(state, client) else { unreachable!("it recovers") };
        dead
    }

    /// A round that the dead client had begun is ended by others.
    pub(super) fn late(&self, state: &mut State, dead: usize, key: usize) {
        let c = &mut state.clients[dead];
        c.todo &= !(1 << key);
        match c.pc {
            Pc::Prepare => {
                let (old, intent) = (c.held[key], c.intents[key].expect("it was written"));
                self.cas(state, key, old, Word::Prepared(intent));
            }
            Pc::Write => {
                self.put(state, dead, key);
            }
            _ => {
                let intent = c.met.or(c.intents[key]).expect("there is an intent to finish");
                let decision = c.decision;
                if state.slots[key] != Word::Prepared(intent) {
                    return;
                }
                let Some(Kind::Intent { old, .. }) = state.peek(intent) else { return };
                // Any other finish is the same word whoever puts it there.
                if decision == Decision::Aborted && old.live().is_some() {
                    self.put_back(state, dead, key, intent, old);
                }
            }
        }
    }

    /// The dead client's round on a key is over, and so are its intents there.
    pub(super) fn resolve(&self, state: &mut State, client: usize, key: usize) {
        let dead = self.dead(state, client);
        state.clients[dead].todo &= !(1 << key);
        if let Some(intent) = state.slots[key].prepared()
            && state.clients[dead].intents[key] == Some(intent)
        {
            self.interrupt(state, client, key, intent);
            return;
        }
        self.next(state, client, key);
    }

    /// READ of a slot: what is nowhere is suspect.
    pub(super) fn suspect(&self, state: &mut State, client: usize, key: usize) {
        if self.comes_across(state, client, key) {
            return;
        }
        let unled = self.unled(state, client, key);
        let others = self.running(state) & !(1 << client);
        let c = &mut state.clients[client];
        c.suspects |= unled;
        c.waits = if self.lacks(Part::RecoveryWaits) { 0 } else { c.waits | others };
        self.next(state, client, key);
    }

    /// READ of a slot: a suspect that is still nowhere is garbage.
    pub(super) fn sweep(&self, state: &mut State, client: usize, key: usize) {
        if self.comes_across(state, client, key) {
            return;
        }
        let garbage = self.unled(state, client, key) & state.clients[client].suspects;
        for object in (0..OBJECTS).filter(|object| garbage >> object & 1 == 1) {
            self.free(state, object as Object);
        }
        self.next(state, client, key);
    }

    fn interrupt(&self, state: &mut State, client: usize, key: usize, intent: Object) {
        let c = &mut state.clients[client];
        (c.interrupted, c.placed) = (c.pc, c.todo);
        self.meet(state, client, key, intent);
    }

    /// A prepared word may stand in front of what the slot held before.
    fn comes_across(&self, state: &mut State, client: usize, key: usize) -> bool {
        match state.slots[key].prepared() {
            Some(intent) if !self.lacks(Part::RecoveryFinishes) => {
                self.interrupt(state, client, key, intent);
                true
            }
            _ => false,
        }
    }

    /// Goes on with the same key, which it looks at again.
    pub(super) fn after_recovering_finish(&self, state: &mut State, client: usize) {
        self.unpin(state, client);
        let c = &mut state.clients[client];
        c.met = None;
        (c.pc, c.todo) = (c.interrupted, c.placed);
    }

    /// The dead client's objects, and those that have been replaced (by it, for all
    /// that one knows), that are in use and to which the key's slot leads nobody.
    fn unled(&self, state: &State, client: usize, key: usize) -> u64 {
        let dead = self.dead(state, client);
        let own = KEYS + dead * OBJECTS_PER_CLIENT..KEYS + (dead + 1) * OBJECTS_PER_CLIENT;
        let owed = |object: usize| own.contains(&object) || state.replaced >> object & 1 == 1;
        let led = match state.slots[key] {
            Word::Live(object) | Word::Prepared(object) => Some(usize::from(object)),
            Word::Empty | Word::Tombstone(_) => None,
        };
        let unled = |&object: &usize| match state.objects[object] {
            Memory::InUse(Kind::Transaction { .. }) => own.contains(&object),
            Memory::InUse(Kind::Plain { key: of, .. } | Kind::Intent { key: of, .. }) => {
                usize::from(of) == key && led != Some(object) && owed(object)
            }
            Memory::Grace(..) | Memory::Gone => false,
        };
        (0..OBJECTS).filter(unled).map(|object| 1 << object).sum()
    }

    /// The next key, or the next phase.
    fn next(&self, state: &mut State, client: usize, key: usize) {
        let c = &mut state.clients[client];
        c.todo &= !(1 << key);
        if c.todo != 0 {
            return;
        }
        c.todo = ALL_KEYS;
        c.pc = match c.pc {
            Pc::Resolve => Pc::Suspect,
            Pc::Suspect => Pc::Sweep,
            _ => {
                let dead = self.dead(state, client);
                state.clients[dead].recovered = true;
                self.finish_op(state, client, 1);
                return;
            }
        };
    }
}
