//! The write protocol of ARCHITECTURE.md, checked exhaustively.
//!
//! Clients run one operation each on keys that share two candidate slots; every
//! verb of every client is a step, what a client computes between two verbs
//! belongs to the step before. Invocation joins the first verb and return the
//! last: an operation that is shorter has fewer excuses, so this loses nothing.
//! A GET, or an update, that finds its key in the first slot does not read the
//! second, for the same reason.
//!
//! A client that stops for good is one that is never scheduled again, so every
//! safety property holds under any number of stopped clients already. Only
//! progress needs more: [`Protocol::properties`] asks at every state whether
//! the others could go on if one stopped here.
//!
//! Read `writer` first, then `loser` and `single`.

pub mod history;
mod loser;
pub mod policy;
pub mod rules;
pub mod run;
pub mod scenario;
mod single;
pub mod state;
pub mod word;
mod writer;

#[cfg(test)]
mod mutations;

use stateright::{Model, Property};

use history::{Event, Histories, IMPOSSIBLE, Op, Value};
use policy::{Departure, Policy};
use rules::{Word as _, Write};
use scenario::Scenario;
use state::{CLIENTS, Cell, Client, Fault, Pc, SLOTS, State, Symmetry};
use word::{OBJECTS, Object, Word};

/// One verb of one client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Who.
    pub client: usize,
    /// What; where the client stands tells the rest.
    pub verb: Verb,
}

/// The verbs, by what they are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// READ of the primary's slot in phase 1.
    Read(usize),
    /// The same, after which the client will insert into this slot.
    ReadThenInsert(usize, usize),
    /// What the phase does on this backup.
    Backup(usize),
    /// READ of the first backup's other slot.
    Check,
    /// What the phase does on the primary (or on an object's log entry).
    Go,
    /// Evidence read too early, in a mutation.
    Early,
    /// Stops for good.
    Crash,
}

/// The protocol in one scenario under one policy.
pub struct Protocol {
    scenario: Scenario,
    policy: Policy,
    histories: Histories,
}

impl Protocol {
    /// A model to hand to the checker.
    pub fn new(scenario: Scenario, policy: Policy) -> Self {
        let histories = Histories::new(scenario.ops.to_vec());
        Self { scenario, policy, histories }
    }

    fn lacks(&self, departure: Departure) -> bool {
        self.policy.without == Some(departure)
    }

    fn backups(&self) -> usize {
        self.scenario.replicas - 1
    }

    fn all_backups(&self) -> u8 {
        (1 << self.backups()) - 1
    }

    fn op(&self, client: usize) -> Op {
        self.scenario.ops[client].0
    }

    fn write(&self, client: usize) -> Write {
        let (deletes, blind) = match self.op(client) {
            Op::Set => (false, true),
            Op::Del => (true, true),
            Op::GetDel => (true, false),
            Op::SetNx | Op::Modify | Op::Get => (false, false),
        };
        Write { deletes, blind }
    }

    /// The client that wrote `word`'s object; nobody for the initial one.
    fn writer(&self, state: &State, word: Word) -> Option<usize> {
        let object = word.object()?;
        if let Some(pool) = self.scenario.pool {
            let writer = state.cells[usize::from(object / pool.generations)].writer;
            return (writer != u8::MAX).then_some(usize::from(writer));
        }
        let index = object.checked_sub(1)? / self.scenario.attempts;
        Some(self.by_rank(usize::from(index)))
    }

    /// Words are ordered by their writers; a scenario may turn the order round.
    fn by_rank(&self, index: usize) -> usize {
        if self.scenario.descending { self.scenario.ops.len() - 1 - index } else { index }
    }

    fn key_of(&self, state: &State, word: Word) -> u8 {
        self.writer(state, word).map_or(0, |client| self.scenario.ops[client].1)
    }

    fn is_of(&self, state: &State, word: Word, key: u8) -> bool {
        word.object().is_some() && self.key_of(state, word) == key
    }

    fn has_fingerprint(&self, state: &State, word: Word, key: u8) -> bool {
        word.object().is_some()
            && (self.scenario.one_fingerprint || self.key_of(state, word) == key)
    }

    fn value_of(&self, state: &State, word: Word) -> Value {
        self.writer(state, word).map_or(1, |client| 2 + client as Value)
    }

    /// What readers of each key see.
    fn visible(&self, state: &State) -> [Value; 2] {
        let mut values = [0; 2];
        for word in state.memory[0] {
            if word.is_live() {
                values[usize::from(self.key_of(state, word))] = self.value_of(state, word);
            }
        }
        values
    }

    fn explain(&self, state: &mut State, pending: u8, event: Event) {
        let history = self.histories.after(state.history, pending, event);
        if history == IMPOSSIBLE && state.fault == Fault::None {
            state.fault = Fault::NotLinearizable;
        }
        state.history = history;
    }

    fn pending(&self, state: &State) -> u8 {
        let invoked = |&i: &usize| !matches!(state.clients[i].pc, Pc::Idle | Pc::Done);
        (0..self.scenario.ops.len()).filter(invoked).map(|i| 1 << i).sum()
    }

    /// A CAS on the primary; tells what it found.
    fn cas_primary(&self, state: &mut State, slot: usize, old: Word, new: Word) -> Word {
        let before = self.visible(state);
        let found = cas(&mut state.memory[0][slot], old, new);
        let after = self.visible(state);
        if before != after {
            let pending = self.pending(state);
            self.explain(state, pending, Event::Shows(after));
        }
        found
    }

    /// An object for a new attempt in a slot that holds `old`.
    fn allocate(&self, state: &mut State, client: usize, old: Word) -> Option<Object> {
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

    fn free(&self, state: &mut State, word: Word) {
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
    fn release_old(&self, state: &mut State, old: Word) {
        if old.is_live() || !self.lacks(Departure::TombstonesKeepTheirObjects) {
            self.free(state, old);
        }
    }

    /// A tombstone of our own object is in the slot.
    fn release_own_tombstone(&self, state: &mut State, word: Word) {
        if self.lacks(Departure::TombstonesKeepTheirObjects) {
            self.free(state, word);
        }
    }

    fn finish(&self, state: &mut State, client: usize, result: u8) {
        let pending = self.pending(state);
        self.explain(state, pending, Event::Returned { client, result });
        self.end(state, client, Pc::Done);
        let shows = Event::Shows(self.visible(state));
        self.explain(state, pending & !(1 << client), shows);
    }

    fn end(&self, state: &mut State, client: usize, pc: Pc) {
        state.clients[client] = Client { pc, ..Client::BLANK };
        state.cells.iter_mut().for_each(|cell| cell.grace &= !(1 << client));
    }

    /// Our word was committed, by us or by a helper.
    fn succeed(&self, state: &mut State, client: usize) {
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
    fn restart(&self, state: &mut State, client: usize, prefer: Option<usize>) {
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

    /// Everybody has ended in an orderly way.
    fn is_at_rest(&self, state: &State) -> bool {
        let mut clients = state.clients[..self.scenario.ops.len()].iter();
        clients.all(|c| matches!(c.pc, Pc::Done | Pc::Spent))
    }

    /// Cannot take a step before somebody else does.
    fn is_blocked(&self, state: &State, client: usize) -> bool {
        let mut verbs = Vec::new();
        // Elsewhere a client may only run out of memory, which is no wait for
        // a particular other client.
        if !matches!(state.clients[client].pc, Pc::Lost | Pc::HelpWait) {
            return false;
        }
        self.verbs(state, client, &mut verbs);
        verbs.is_empty()
    }

    fn verbs(&self, state: &State, client: usize, verbs: &mut Vec<Verb>) {
        let c = &state.clients[client];
        match c.pc {
            Pc::Idle | Pc::Read => self.verbs_of_read(state, client, verbs),
            Pc::Vote | Pc::Adopt | Pc::HelpAdopt | Pc::Follow | Pc::HelpFollow => {
                verbs
                    .extend((0..self.backups()).filter(|b| c.todo >> b & 1 == 1).map(Verb::Backup));
                if c.check == Word::DUE {
                    verbs.push(Verb::Check);
                }
                if c.seen == Word::DUE {
                    verbs.push(Verb::Go);
                }
            }
            Pc::Split if self.lacks(Departure::RecordsAfterPrimary) && c.early == 0 => {
                verbs.push(Verb::Early);
            }
            Pc::Lost | Pc::HelpWait => self.verbs_of_loser(state, client, verbs),
            pc if pc.is_over() => {}
            _ => verbs.push(Verb::Go),
        }
    }

    fn step(&self, state: &mut State, client: usize, verb: Verb) {
        match (state.clients[client].pc, verb) {
            (_, Verb::Crash) => self.end(state, client, Pc::Crashed),
            (Pc::Idle | Pc::Read, Verb::Read(slot)) => self.read(state, client, slot, None),
            (Pc::Idle | Pc::Read, Verb::ReadThenInsert(slot, target)) => {
                self.read(state, client, slot, Some(target));
            }
            (Pc::Vote, Verb::Backup(b)) => self.vote(state, client, b),
            (Pc::Adopt, Verb::Backup(b)) => self.adopt(state, client, b),
            (Pc::Follow, Verb::Backup(b)) => self.follow(state, client, b),
            (Pc::HelpAdopt, Verb::Backup(b)) => self.help_adopt(state, client, b),
            (Pc::HelpFollow, Verb::Backup(b)) => self.help_follow(state, client, b),
            (_, Verb::Check) => self.check(state, client),
            (Pc::Split, Verb::Early) => self.read_early(state, client),
            (Pc::Split, _) => self.split(state, client),
            (Pc::Record, _) => self.record(state, client),
            (Pc::Commit, _) => self.commit(state, client),
            (Pc::Abandon, _) => self.abandon(state, client),
            (Pc::Lost | Pc::HelpWait, _) => self.poll(state, client),
            (Pc::Judge, _) => self.judge(state, client),
            (Pc::HelpAdopt, _) => self.help_read(state, client),
            (Pc::HelpRecord, _) => self.help_record(state, client),
            (Pc::HelpCommit, _) => self.help_commit(state, client),
            (Pc::Swap, _) => self.swap(state, client),
            (Pc::Look, _) => self.look(state, client),
            (Pc::Abort, _) => self.abort(state, client),
            (Pc::MakeRoom, _) => self.make_room(state, client),
            (Pc::Publish, _) => self.publish(state, client),
            (Pc::Withdraw, _) => self.withdraw(state, client),
            (pc, verb) => unreachable!("no {verb:?} at {pc:?}"),
        }
    }
}

/// A compare-and-swap; tells what it found.
fn cas(word: &mut Word, old: Word, new: Word) -> Word {
    let found = *word;
    if found == old {
        *word = new;
    }
    found
}

impl Model for Protocol {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let scenario = &self.scenario;
        let mut state = State {
            memory: [[Word::FRESH; SLOTS]; state::REPLICAS],
            records: [Word::NONE; OBJECTS],
            allocated: 0,
            freed: 0,
            clients: [Client::BLANK; CLIENTS],
            cells: [Cell { generation: 0, writer: u8::MAX, used: false, grace: 0 };
                state::ADDRESSES],
            history: 0,
            crashes_left: scenario.crashes,
            fault: Fault::None,
            symmetry: Symmetry {
                slots: true,
                first_backup: u8::from(scenario.may_insert()),
                backups: self.backups() as u8,
            },
        };
        let first = match scenario.start {
            scenario::Start::Fresh => Word::FRESH,
            scenario::Start::Live => Word::live(0),
            scenario::Start::Deleted => Word::live(0).tombstone(),
        };
        state.memory[..scenario.replicas].iter_mut().for_each(|replica| replica[0] = first);
        state.allocated = u16::from(first != Word::FRESH);
        if let Some(pool) = scenario.pool {
            let held = first.is_live() || !self.lacks(Departure::TombstonesKeepTheirObjects);
            state.cells[0].used = held && first != Word::FRESH;
            if !state.cells[0].used {
                // As many objects later, the generation is about to come round.
                state.cells[0].generation = pool.generations - 1;
            }
        }
        state.history = self.histories.start([u8::from(first.is_live()), 0]);
        vec![state]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if state.fault != Fault::None {
            return;
        }
        let mut verbs = Vec::new();
        for client in 0..self.scenario.ops.len() {
            verbs.clear();
            self.verbs(state, client, &mut verbs);
            let pc = state.clients[client].pc;
            let touched = !matches!(pc, Pc::Idle | Pc::Read) && !pc.is_over();
            if state.crashes_left > 0 && touched {
                verbs.push(Verb::Crash);
            }
            steps.extend(verbs.iter().map(|&verb| Step { client, verb }));
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = *state;
        if step.verb == Verb::Crash {
            next.crashes_left -= 1;
        }
        self.step(&mut next, step.client, step.verb);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("linearizable", |_, state: &State| {
                state.fault != Fault::NotLinearizable
            }),
            Property::always("objects are freed once", |_, state: &State| {
                state.fault != Fault::FreedTwice
            }),
            Property::always("nobody starts again for ever", |_, state: &State| {
                state.fault != Fault::Livelock
            }),
            Property::always("at most one visible slot per key", |model: &Self, state: &State| {
                let [a, b] = state.memory[0];
                !(a.is_live() && b.is_live() && model.key_of(state, a) == model.key_of(state, b))
            }),
            Property::always("no visible object is freed", |_, state: &State| {
                state.memory[0]
                    .iter()
                    .filter(|word| word.is_live())
                    .filter_map(|word| word.object())
                    .all(|object| state.freed & 1 << object == 0)
            }),
            Property::always("replicas are equal at rest", |model: &Self, state: &State| {
                let mut replicas = state.memory[..model.scenario.replicas].iter();
                !model.is_at_rest(state) || replicas.all(|replica| *replica == state.memory[0])
            }),
            Property::always("no object is lost", |model: &Self, state: &State| {
                let objects = state.memory[0].iter().filter_map(|word| word.object());
                let named = objects.fold(0, |named, object| named | 1 << object);
                !model.is_at_rest(state) || state.allocated & !state.freed & !named == 0
            }),
            Property::always("one stopped client blocks nobody", |model: &Self, state: &State| {
                let clients = 0..model.scenario.ops.len();
                let blocked = clients.clone().filter(|&i| model.is_blocked(state, i)).count();
                let running = clients
                    .filter(|&i| {
                        let pc = state.clients[i].pc;
                        pc != Pc::Idle && !pc.is_over()
                    })
                    .count();
                blocked == 0 || running - blocked > 1
            }),
        ]
    }
}
