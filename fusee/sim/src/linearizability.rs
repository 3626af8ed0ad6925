//! Is a history linearizable? The search of Wing and Gong with Lowe's memory.
//!
//! A history is the operations on one object (one key: linearizability is
//! local, so keys are checked one by one), each with the times of its call and
//! its return. It is linearizable if each operation can be given one moment
//! between its call and its return such that, done in that order one at a time,
//! all give the results that they gave. An operation whose client stopped, or
//! got no answer, may have happened at any later moment or not at all.
//!
//! ```
//! use fusee_sim::linearizability::{Register, RegisterOp::*, Call, check};
//!
//! let history = [
//!     Call::returned(0, 10, Write(1)),
//!     Call::returned(5, 20, Read(0)), // overlaps the write: may come before
//!     Call::returned(30, 40, Read(1)),
//! ];
//! assert!(check(&Register, 0, &history, 1000).is_ok());
//! ```

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;

/// What an object does when operations come one at a time.
pub trait Spec {
    /// What it remembers.
    type State: Clone + Eq + Hash + fmt::Debug;
    /// An operation together with the result that it gave. An operation that
    /// never returned has no result: every result is then right.
    type Op: fmt::Debug;

    /// Adds to `next` every state in which the operation may leave the object,
    /// none if it cannot have given its result there. Mostly one; more if what
    /// happens depends on when it happens.
    fn step(&self, state: &Self::State, op: &Self::Op, when: When, next: &mut Vec<Self::State>);
}

/// When an operation can have happened in the order that is being tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct When {
    /// When it was called.
    pub called: u64,
    /// Not before this: the latest call of those before it.
    pub from: u64,
    /// Not after this: the first return that is still due.
    pub to: u64,
    /// When it returned, the end of time if never.
    pub returned: u64,
}

/// An operation and the times of its call and return.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call<Op> {
    /// Before this it cannot have happened.
    pub called: u64,
    /// After this it cannot have happened; `None` if it never returned.
    pub returned: Option<u64>,
    /// What it was and what it gave.
    pub op: Op,
}

impl<Op> Call<Op> {
    /// An operation that returned.
    pub fn returned(called: u64, returned: u64, op: Op) -> Self {
        assert!(called <= returned, "a call comes before its return");
        Self { called, returned: Some(returned), op }
    }

    /// One that never did.
    pub fn pending(called: u64, op: Op) -> Self {
        Self { called, returned: None, op }
    }
}

/// Why a history does not pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// No order explains it. The longest that explains a part: numbers of
    /// operations in the history, and the state after them.
    NotLinearizable {
        /// The operations, in order.
        explained: Vec<usize>,
        /// The state after them, as text.
        state: String,
    },
    /// The search took more steps than it was given. That is no pass.
    GaveUp {
        /// So many.
        steps: u64,
    },
}

/// Most operations of one history.
pub const OPERATIONS_MAX: usize = 128;

/// Searches an order that explains `history`, in at most `steps_max` steps.
///
/// # Errors
///
/// If there is none, or none was found within `steps_max` steps.
pub fn check<S: Spec>(
    spec: &S,
    initial: S::State,
    history: &[Call<S::Op>],
    steps_max: u64,
) -> Result<(), Verdict> {
    assert!(history.len() <= OPERATIONS_MAX, "a history has at most {OPERATIONS_MAX} operations");
    let returned = history.iter().enumerate().filter(|(_, call)| call.returned.is_some());
    let search =
        Search { spec, history, required: returned.fold(0, |set, (number, _)| set | bit(number)) };
    search.run(initial, steps_max)
}

struct Search<'a, S: Spec> {
    spec: &'a S,
    history: &'a [Call<S::Op>],
    /// The operations that must be explained.
    required: u128,
}

/// A point of the search: operations done, in which order, and the state then.
struct Node<State> {
    done: u128,
    state: State,
    /// How it was reached: the operation, and the node before, by depth.
    depth: usize,
    op: usize,
}

impl<S: Spec> Search<'_, S> {
    fn run(&self, initial: S::State, steps_max: u64) -> Result<(), Verdict> {
        let mut seen = HashSet::new();
        let mut order: Vec<usize> = Vec::new();
        let mut best = (Vec::new(), initial.clone());
        let mut stack = vec![Node { done: 0, state: initial, depth: 0, op: usize::MAX }];
        let mut next = Vec::new();
        let mut steps = 0;
        while let Some(node) = stack.pop() {
            if node.depth > 0 {
                order.truncate(node.depth - 1);
                order.push(node.op);
            }
            if node.done & self.required == self.required {
                return Ok(());
            }
            if order.len() > best.0.len() {
                best = (order.clone(), node.state.clone());
            }
            // Nothing can happen after the first return that is still due.
            let due = self.undone(node.done).filter_map(|op| self.history[op].returned).min();
            let due = due.unwrap_or(u64::MAX);
            let from = self.done(node.done).map(|op| self.history[op].called).max().unwrap_or(0);
            let candidates = self.undone(node.done).filter(|&op| self.history[op].called <= due);
            // The last pushed is tried first: let that be the first to return.
            let mut candidates: Vec<usize> = candidates.collect();
            candidates.sort_by_key(|&op| {
                std::cmp::Reverse(self.history[op].returned.unwrap_or(u64::MAX))
            });
            for op in candidates {
                steps += 1;
                if steps > steps_max {
                    return Err(Verdict::GaveUp { steps: steps_max });
                }
                let call = &self.history[op];
                let when = When {
                    called: call.called,
                    from: from.max(call.called),
                    to: due,
                    returned: call.returned.unwrap_or(u64::MAX),
                };
                self.spec.step(&node.state, &call.op, when, &mut next);
                let done = node.done | bit(op);
                for state in next.drain(..) {
                    if seen.insert((done, state.clone())) {
                        stack.push(Node { done, state, depth: node.depth + 1, op });
                    }
                }
            }
        }
        let (explained, state) = best;
        Err(Verdict::NotLinearizable { explained, state: format!("{state:?}") })
    }

    fn undone(&self, done: u128) -> impl Iterator<Item = usize> + use<'_, S> {
        (0..self.history.len()).filter(move |&op| done & bit(op) == 0)
    }

    fn done(&self, done: u128) -> impl Iterator<Item = usize> + use<'_, S> {
        (0..self.history.len()).filter(move |&op| done & bit(op) != 0)
    }
}

const fn bit(number: usize) -> u128 {
    1 << number
}

impl Verdict {
    /// The verdict with the history it is about, for a person to read.
    pub fn explain<Op: fmt::Debug>(&self, history: &[Call<Op>]) -> String {
        use std::fmt::Write;
        let mut text = match self {
            Self::GaveUp { steps } => format!("no verdict after {steps} steps\n"),
            Self::NotLinearizable { explained, state } => {
                format!("no order explains it; {explained:?} leads to {state} and not further\n")
            }
        };
        for (number, call) in history.iter().enumerate() {
            let returned = call.returned.map_or("never".to_owned(), |at| at.to_string());
            writeln!(text, "{number:>4}: {:>10} to {returned:>10}  {:?}", call.called, call.op)
                .expect("a string takes everything");
        }
        text
    }
}

/// The simplest spec: a number that is read and written.
#[derive(Clone, Copy, Debug)]
pub struct Register;

/// An operation on a [`Register`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegisterOp {
    /// Gave this number.
    Read(u64),
    /// Stored this number.
    Write(u64),
}

impl Spec for Register {
    type State = u64;
    type Op = RegisterOp;

    fn step(&self, state: &u64, op: &RegisterOp, _when: When, next: &mut Vec<u64>) {
        match *op {
            RegisterOp::Read(value) if value != *state => {}
            RegisterOp::Read(value) | RegisterOp::Write(value) => next.push(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RegisterOp::{Read, Write};
    use super::*;
    use crate::Rng;

    fn at(called: u64, returned: u64, op: RegisterOp) -> Call<RegisterOp> {
        Call::returned(called, returned, op)
    }

    fn passes(history: &[Call<RegisterOp>]) -> bool {
        match check(&Register, 0, history, 1_000_000) {
            Ok(()) => true,
            Err(Verdict::NotLinearizable { .. }) => false,
            Err(Verdict::GaveUp { .. }) => panic!("the search is endless"),
        }
    }

    #[test]
    fn overlapping_operations_may_take_either_order() {
        assert!(passes(&[at(0, 10, Write(1)), at(5, 15, Read(0)), at(12, 20, Read(1))]));
        assert!(passes(&[at(0, 10, Write(1)), at(5, 15, Read(1)), at(16, 20, Read(1))]));
    }

    #[test]
    fn a_stale_read_is_refused() {
        assert!(!passes(&[at(0, 10, Write(1)), at(11, 15, Read(0))]));
    }

    #[test]
    fn a_read_that_goes_back_is_refused() {
        let write = at(0, 100, Write(1));
        assert!(!passes(&[write.clone(), at(5, 10, Read(1)), at(11, 15, Read(0))]));
        assert!(passes(&[write, at(5, 10, Read(0)), at(11, 15, Read(1))]));
    }

    #[test]
    fn a_value_that_nobody_wrote_is_refused() {
        assert!(!passes(&[at(0, 10, Write(1)), at(0, 10, Read(2))]));
    }

    #[test]
    fn an_operation_that_never_returned_may_or_may_not_have_happened() {
        let pending = Call::pending(0, Write(1));
        assert!(passes(&[pending.clone(), at(50, 60, Read(0))]));
        assert!(passes(&[pending.clone(), at(50, 60, Read(0)), at(70, 80, Read(1))]));
        assert!(!passes(&[pending, at(50, 60, Read(1)), at(70, 80, Read(0))]));
        assert!(!passes(&[at(0, 10, Read(1)), Call::pending(20, Write(1))]), "not before its call");
    }

    #[test]
    fn running_out_of_steps_is_no_pass() {
        let history: Vec<_> = (0..20).map(|n| at(0, 100, Write(n))).collect();
        assert_eq!(check(&Register, 0, &history, 10), Err(Verdict::GaveUp { steps: 10 }));
    }

    #[test]
    fn sixty_operations_of_five_clients_are_quick() {
        // Five clients at once all along, every read right, then one wrong.
        let mut rng = Rng::new(5);
        let (mut history, mut value) = (Vec::new(), 0);
        for round in 0..12 {
            for client in 0..5 {
                let moment = round * 100 + client * 10 + 20;
                let op = if rng.percent(50) { Write(moment) } else { Read(value) };
                if let Write(written) = op {
                    value = written;
                }
                history.push(at(moment - 20, moment + 30, op));
            }
        }
        assert_eq!(check(&Register, 0, &history, 100_000), Ok(()));
        history.push(at(2000, 2010, Read(value + 1)));
        assert!(matches!(
            check(&Register, 0, &history, 100_000),
            Err(Verdict::NotLinearizable { .. })
        ));
    }

    /// Tries every order of every choice of pending operations.
    fn by_force(history: &[Call<RegisterOp>], done: &mut Vec<usize>, state: u64) -> bool {
        if (0..history.len()).all(|op| done.contains(&op) || history[op].returned.is_none()) {
            return true;
        }
        (0..history.len()).any(|op| {
            let may_come_now = (0..history.len()).all(|other| {
                done.contains(&other)
                    || history[other].returned.is_none_or(|r| r >= history[op].called)
            });
            if done.contains(&op) || !may_come_now {
                return false;
            }
            let mut next = Vec::new();
            let when = When { called: 0, from: 0, to: 0, returned: 0 };
            Register.step(&state, &history[op].op, when, &mut next);
            next.into_iter().any(|state| {
                done.push(op);
                let passes = by_force(history, done, state);
                done.pop();
                passes
            })
        })
    }

    #[test]
    fn small_histories_get_the_verdict_that_trying_all_orders_gives() {
        let mut rng = Rng::new(11);
        let mut verdicts = [0; 2];
        for _ in 0..3000 {
            let history: Vec<_> = (0..rng.between(1, 6))
                .map(|_| {
                    let called = rng.below(30);
                    let value = rng.below(3);
                    let op = if rng.percent(50) { Read(value) } else { Write(value) };
                    if rng.percent(15) {
                        Call::pending(called, op)
                    } else {
                        at(called, called + rng.below(20), op)
                    }
                })
                .collect();
            let expected = by_force(&history, &mut Vec::new(), 0);
            assert_eq!(passes(&history), expected, "{history:?}");
            verdicts[usize::from(expected)] += 1;
        }
        assert!(verdicts.iter().all(|&count| count > 300), "{verdicts:?}");
    }

    #[test]
    fn exchanged_results_are_noticed() {
        // One client after another, each value once: any exchange is wrong.
        let mut history = Vec::new();
        for n in 0..8 {
            history.push(at(n * 20, n * 20 + 9, Write(n + 1)));
            history.push(at(n * 20 + 10, n * 20 + 19, Read(n + 1)));
        }
        assert!(passes(&history));
        for a in 0..8 {
            for b in 0..a {
                let mut mutant = history.clone();
                mutant[2 * a + 1].op = Read(b as u64 + 1);
                mutant[2 * b + 1].op = Read(a as u64 + 1);
                assert!(!passes(&mutant), "reads {a} and {b}");
            }
        }
    }
}
