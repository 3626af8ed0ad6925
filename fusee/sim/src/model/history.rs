//! Linearizability, decided while the model runs.
//!
//! A history is the set of its configurations: what the keys may hold and
//! which pending operations may have taken effect, with which result. An
//! operation that returns keeps the configurations that explain its result.
//! An omniscient reader looks at both keys after every change of the primary and
//! after every return, and keeps those that explain what it saw. It stands for any number of
//! readers: one that finds a live word takes effect at that very READ, and one
//! that finds none in either slot does so at a moment when there was none,
//! for with at most one visible slot a key cannot move between the two READs
//! without being absent in between.
//!
//! Sets are interned, so that a state carries a number.

use std::collections::HashMap;
use std::sync::Mutex;

/// Number of an interned set of configurations.
pub type History = u32;

/// No configuration is left: the history is not linearizable.
pub const IMPOSSIBLE: History = 0;

/// What a key holds: 0 nothing, 1 the initial value, 2 + i what writer i wrote.
pub type Value = u8;

/// The sequential specification of a scenario's operations.
pub trait Sequential {
    /// How many operations there are.
    fn count(&self) -> usize;

    /// What the operation of this number makes of the keys' values, and answers.
    fn apply(&self, number: usize, held: [Value; 2]) -> ([Value; 2], u8);
}

/// The sequential specification of an operation, applied to one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// SET: blind.
    Set,
    /// DEL: blind, answers how many it deleted.
    Del,
    /// SETNX: answers whether it set.
    SetNx,
    /// Read, modify, write: answers what it read (INCR, GETSET, APPEND).
    Modify,
    /// GETDEL: answers what it read, and deletes it.
    GetDel,
    /// GET.
    Get,
}

impl Op {
    /// What it leaves and what it answers.
    fn apply(self, held: Value, own: Value) -> (Value, u8) {
        match self {
            Self::Set => (own, 1),
            Self::Del => (0, u8::from(held != 0)),
            Self::SetNx if held == 0 => (own, 1),
            Self::SetNx => (held, 0),
            Self::Modify => (own, held),
            Self::GetDel => (0, held),
            Self::Get => (held, held),
        }
    }
}

/// Each client does one of these, to one of the two keys.
impl Sequential for Vec<(Op, u8)> {
    fn count(&self) -> usize {
        self.len()
    }

    fn apply(&self, number: usize, held: [Value; 2]) -> ([Value; 2], u8) {
        let (op, key) = self[number];
        let mut left = held;
        let (value, answer) = op.apply(held[usize::from(key)], 2 + number as Value);
        left[usize::from(key)] = value;
        (left, answer)
    }
}

/// Something that the history must explain.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// An operation answered.
    Returned {
        /// Which.
        client: usize,
        /// With what.
        result: u8,
    },
    /// The primary came to show these values of the two keys.
    Shows([Value; 2]),
}

/// Two values, then [`ANSWER_BITS`] an operation: 0, or 1 + the result it took effect with.
type Configuration = u128;

const ANSWER_BITS: usize = 9;
const OPERATIONS_MAX: usize = (u128::BITS as usize - 8) / ANSWER_BITS;

/// All histories met so far.
pub struct Histories<S> {
    ops: S,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    sets: Vec<Vec<Configuration>>,
    numbers: HashMap<Vec<Configuration>, History>,
    steps: HashMap<(History, u8, Event), History>,
}

impl<S: Sequential> Histories<S> {
    /// For clients that run these operations.
    pub fn new(ops: S) -> Self {
        assert!(ops.count() <= OPERATIONS_MAX, "a configuration has room for all operations");
        let mut known = Known::default();
        known.number(vec![]);
        Self { ops, known: Mutex::new(known) }
    }

    /// The history in which nothing has happened and the keys hold `values`.
    pub fn start(&self, values: [Value; 2]) -> History {
        self.known.lock().expect("no holder panics").number(vec![with_values(0, values)])
    }

    /// The history after `event`, while the clients in the mask `pending` have
    /// been invoked and have not returned.
    pub fn after(&self, history: History, pending: u8, event: Event) -> History {
        let mut known = self.known.lock().expect("no holder panics");
        if let Some(&next) = known.steps.get(&(history, pending, event)) {
            return next;
        }
        let mut set = known.sets[history as usize].clone();
        self.close(&mut set, pending);
        let mut set: Vec<_> = match event {
            Event::Returned { client, result } => set
                .into_iter()
                .filter(|&c| taken(c, client) == Some(result))
                .map(|c| c & !(ANSWER_MASK << shift(client)))
                .collect(),
            Event::Shows(values) => set.into_iter().filter(|&c| held(c) == values).collect(),
        };
        set.sort_unstable();
        set.dedup();
        let next = known.number(set);
        known.steps.insert((history, pending, event), next);
        next
    }

    /// Lets pending operations take effect in every order.
    fn close(&self, set: &mut Vec<Configuration>, pending: u8) {
        let mut next = 0;
        while next < set.len() {
            let c = set[next];
            next += 1;
            for op in 0..self.ops.count() {
                if pending & 1 << op == 0 || taken(c, op).is_some() {
                    continue;
                }
                let (left, result) = self.ops.apply(op, held(c));
                let c = with_values(c, left) | (u128::from(result) + 1) << shift(op);
                if !set.contains(&c) {
                    set.push(c);
                }
            }
        }
    }
}

impl Known {
    fn number(&mut self, set: Vec<Configuration>) -> History {
        if let Some(&number) = self.numbers.get(&set) {
            return number;
        }
        let number = self.sets.len() as History;
        self.sets.push(set.clone());
        self.numbers.insert(set, number);
        number
    }
}

const ANSWER_MASK: u128 = (1 << ANSWER_BITS) - 1;

fn shift(op: usize) -> usize {
    8 + ANSWER_BITS * op
}

fn held(c: Configuration) -> [Value; 2] {
    [(c & 15) as Value, (c >> 4 & 15) as Value]
}

fn with_values(c: Configuration, [a, b]: [Value; 2]) -> Configuration {
    c & !255 | u128::from(a) | u128::from(b) << 4
}

fn taken(c: Configuration, op: usize) -> Option<u8> {
    let code = (c >> shift(op) & ANSWER_MASK) as u16;
    code.checked_sub(1).map(|answer| answer as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_of_a_value_that_was_overwritten_before_it_began_is_impossible() {
        let h = Histories::new(vec![(Op::Set, 0), (Op::Set, 0), (Op::Get, 0)]);
        let returned = |client, result| Event::Returned { client, result };
        let first = h.after(h.start([0, 0]), 0b001, returned(0, 1));
        let both = h.after(first, 0b010, returned(1, 1));
        assert_eq!(h.after(both, 0b100, returned(2, 2)), IMPOSSIBLE);
        assert_ne!(h.after(both, 0b100, returned(2, 3)), IMPOSSIBLE);
        let early = h.after(first, 0b110, returned(1, 1));
        assert_ne!(h.after(early, 0b100, returned(2, 2)), IMPOSSIBLE);
    }

    #[test]
    fn the_primary_shows_only_what_a_pending_operation_explains() {
        let h = Histories::new(vec![(Op::Set, 0), (Op::Del, 0)]);
        assert_eq!(h.after(h.start([0, 0]), 0b10, Event::Shows([2, 0])), IMPOSSIBLE);
        let set = h.after(h.start([0, 0]), 0b11, Event::Shows([2, 0]));
        let gone = h.after(set, 0b11, Event::Shows([0, 0]));
        assert_eq!(h.after(gone, 0b11, Event::Returned { client: 1, result: 0 }), IMPOSSIBLE);
        assert_ne!(h.after(gone, 0b11, Event::Returned { client: 1, result: 1 }), IMPOSSIBLE);
    }
}
