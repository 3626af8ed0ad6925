//! The protocol as the checker sees it: where it starts, its steps, and what
//! must hold.

use stateright::{Model, Property};

use super::scenario::Op;
use super::state::{
    CLIENTS, Client, Fault, KEYS, Kind, Loss, Memory, OBJECTS, Object, Pc, State, Word,
};
use super::{Step, Transactions};

impl Model for Transactions {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let scenario = &self.scenario;
        let mut state = State {
            slots: [Word::Empty; KEYS],
            replaced: 0,
            objects: [Memory::Gone; OBJECTS],
            clients: [Client::BLANK; CLIENTS],
            history: self.histories.start(scenario.live.map(u8::from)),
            stops_left: scenario.stops,
            loss: if scenario.loses_copy { Loss::Possible } else { Loss::Never },
            fault: Fault::None,
        };
        for key in (0..KEYS).filter(|&key| scenario.live[key]) {
            state.slots[key] = Word::Live(key as Object);
            state.objects[key] =
                Memory::InUse(Kind::Plain { key: key as u8, value: 1, blind: false });
        }
        vec![state]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if state.fault != Fault::None {
            return;
        }
        for client in 0..self.clients() {
            self.steps(state, client, steps);
            let c = &state.clients[client];
            let under_way = c.pc != Pc::Idle && !c.pc.is_over() && !c.stopped;
            if state.stops_left > 0 && under_way && self.is_mortal(client) {
                steps.push(Step::Stop(client));
            }
        }
        if state.loss == Loss::Possible {
            steps.push(Step::Lose);
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        let seen = |state: &State| [self.visible(state, 0), self.visible(state, 1)];
        let before = seen(state);
        self.step(&mut next, step);
        if before != seen(&next) {
            self.shows(&mut next);
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(SERIALIZABLE, |_, state: &State| {
                state.fault != Fault::NotSerializable
            }),
            Property::always(NO_WORD_TWICE, |_, state: &State| state.fault != Fault::WordCameBack),
            Property::always(FREED_ONCE, |_, state: &State| state.fault != Fault::FreedTwice),
            Property::always(READ_WHILE_THERE, |_, state: &State| {
                state.fault != Fault::ReadAfterFree
            }),
            Property::always(NOTHING_LEFT, |model: &Self, state: &State| {
                !model.is_at_rest(state) || (0..OBJECTS).all(|object| is_in_order(state, object))
            }),
            Property::always(FINISHED, |model: &Self, state: &State| {
                !model.is_at_rest(state) || state.slots.iter().all(|word| word.prepared().is_none())
            }),
        ]
    }
}

/// Some order of the operations explains the answers and what was visible.
pub(super) const SERIALIZABLE: &str = "strictly serializable";
/// Words of values are unique in time.
pub(super) const NO_WORD_TWICE: &str = "no word comes back";
/// The memory of an object is given back once.
pub(super) const FREED_ONCE: &str = "objects are freed once";
/// Nobody relies on memory that may have another use.
pub(super) const READ_WHILE_THERE: &str = "nothing is read after it was freed";
/// At rest an object is the value of a key, or free.
pub(super) const NOTHING_LEFT: &str = "no object is lost";
/// At rest no slot is prepared.
pub(super) const FINISHED: &str = "no transaction stays unfinished";

impl Transactions {
    /// May this one stop? Somebody recovers it.
    fn is_mortal(&self, client: usize) -> bool {
        let recovers = |op: &Op| *op == Op::Recover(client);
        self.scenario.programs.iter().any(|ops| ops.iter().any(recovers))
    }

    /// Everybody has ended, or stopped and been recovered.
    fn is_at_rest(&self, state: &State) -> bool {
        let idle = |client: usize| match self.op(state, client) {
            Op::Recover(dead) => !state.clients[dead].stopped,
            _ => false,
        };
        state.clients[..self.clients()]
            .iter()
            .enumerate()
            .all(|(client, c)| c.pc.is_over() || c.recovered || c.pc == Pc::Idle && idle(client))
    }
}

/// Is the value of a slot, and nothing else is in use?
fn is_in_order(state: &State, object: usize) -> bool {
    match state.objects[object] {
        Memory::InUse(_) => state.slots.contains(&Word::Live(object as Object)),
        Memory::Gone | Memory::Grace(..) => !state.slots.contains(&Word::Live(object as Object)),
    }
}
