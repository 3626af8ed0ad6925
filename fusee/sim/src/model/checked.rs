//! The protocol as the checker sees it: where it starts, its steps, and what
//! must hold.

use stateright::{Model, Property};

use super::policy::Departure;
use super::scenario::Start;
use super::state::{ADDRESSES, CLIENTS, Cell, Client, Fault, Pc, REPLICAS, SLOTS, State, Symmetry};
use super::word::{OBJECTS, Word};
use super::{Protocol, Step, Verb};
use fusee::rules::Word as _;

impl Model for Protocol {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let scenario = &self.scenario;
        let mut state = State {
            memory: [[Word::FRESH; SLOTS]; REPLICAS],
            records: [Word::NONE; OBJECTS],
            allocated: 0,
            freed: 0,
            clients: [Client::BLANK; CLIENTS],
            cells: [Cell { generation: 0, writer: u8::MAX, used: false, grace: 0 }; ADDRESSES],
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
            Start::Fresh => Word::FRESH,
            Start::Live => Word::live(0),
            Start::Deleted => Word::live(0).tombstone(),
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
            // Whoever else has stopped, and be it everybody.
            Property::always("stopped clients block nobody", |model: &Self, state: &State| {
                (0..model.scenario.ops.len()).all(|i| !model.is_blocked(state, i))
            }),
        ]
    }
}

impl Protocol {
    /// Everybody has ended in an orderly way.
    fn is_at_rest(&self, state: &State) -> bool {
        let mut clients = state.clients[..self.scenario.ops.len()].iter();
        clients.all(|c| matches!(c.pc, Pc::Done | Pc::Spent))
    }

    /// Waits for others: it cannot take a step before somebody else does.
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
}
