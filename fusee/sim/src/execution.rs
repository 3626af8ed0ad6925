//! What several keys do together: transactions, and the spec by which the checker
//! judges histories that have some.

use crate::keyspec::{Answer, Command, Effect, Held, KeySpec, Look, Operation};
use crate::linearizability::{Spec, When};

/// A transaction: what it does next follows from what its commands have answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Program {
    /// Commands on keys, as EXEC runs them.
    Commands(Vec<(usize, Command)>),
    /// Moves what a key holds to another, as RENAME does; nothing if that is nothing.
    Move {
        /// The key that is absent afterwards.
        from: usize,
        /// The key that holds it afterwards.
        to: usize,
    },
}

impl Program {
    /// The next command, after those with these answers.
    pub fn next(&self, answers: &[Answer]) -> Option<(usize, Command)> {
        match (self, answers) {
            (Self::Commands(commands), _) => commands.get(answers.len()).cloned(),
            (Self::Move { from, .. }, []) => Some((*from, Command::GetDelete)),
            (Self::Move { to, .. }, [Answer::Held(Some(held))]) => {
                Some((*to, Command::Set(held.clone())))
            }
            (Self::Move { .. }, _) => None,
        }
    }
}

/// A transaction with its answers; `None` if its client never got any.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Execution {
    /// Who asked.
    pub client: u32,
    /// For what.
    pub program: Program,
    /// What came back; [`Answer::Refused`] alone if nothing was done.
    pub answers: Option<Vec<Answer>>,
}

/// What happened to the keys of a history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Deed {
    /// An operation on one of them.
    One(usize, Operation),
    /// A transaction.
    Exec(Execution),
}

/// The spec of all keys of a history, of which each is judged by this one.
#[derive(Clone, Copy, Debug)]
pub struct KeysSpec(pub KeySpec);

impl Spec for KeysSpec {
    type State = Vec<Option<Held>>;
    type Op = Deed;

    fn step(&self, state: &Self::State, deed: &Deed, when: When, next: &mut Vec<Self::State>) {
        match deed {
            Deed::One(key, operation) => {
                let mut after = Vec::new();
                self.0.step(&state[*key], operation, when, &mut after);
                next.extend(after.into_iter().map(|held| {
                    let mut keys = state.clone();
                    keys[*key] = held;
                    keys
                }));
            }
            Deed::Exec(Execution { answers: Some(answers), .. })
                if *answers == [Answer::Refused] =>
            {
                next.push(state.clone());
            }
            Deed::Exec(execution) => {
                let keys = state.iter().cloned().map(Seen::Not).collect();
                Run { execution, look: self.0.look(when) }.go(keys, &mut Vec::new(), next);
            }
        }
    }
}

/// A run of a transaction that looks at the clock for each key when it first sees it,
/// and for each value that it sets.
struct Run<'a> {
    execution: &'a Execution,
    look: Look,
}

/// What a transaction knows of a key.
#[derive(Clone)]
enum Seen {
    /// Nothing; the key holds this.
    Not(Option<Held>),
    /// It takes it for the first, and leaves the second.
    As(Option<Held>, Option<Held>),
}

impl Run<'_> {
    /// Goes on after these answers, in every way in which it can have got its own.
    fn go(&self, keys: Vec<Seen>, answers: &mut Vec<Answer>, next: &mut Vec<Vec<Option<Held>>>) {
        let Execution { program, answers: given, .. } = self.execution;
        let Some((key, command)) = program.next(answers) else {
            if given.as_ref().is_none_or(|given| given == answers) {
                let left = |seen: &Seen| match seen {
                    Seen::Not(held) | Seen::As(_, held) => held.clone(),
                };
                next.push(keys.iter().map(left).collect());
            }
            return;
        };
        for (current, left) in self.sights(&keys[key]) {
            let (effect, answer) = command.decide(current.as_ref());
            if given.as_ref().is_some_and(|given| given.get(answers.len()) != Some(&answer)) {
                continue;
            }
            answers.push(answer);
            for seen in self.effects(effect, current, left) {
                let mut keys = keys.clone();
                keys[key] = seen;
                self.go(keys, answers, next);
            }
            answers.pop();
        }
    }

    /// As what a key can be seen, each with what it then holds for others.
    fn sights(&self, seen: &Seen) -> Vec<(Option<Held>, Option<Held>)> {
        let held = match seen {
            Seen::As(current, left) => return vec![(current.clone(), left.clone())],
            Seen::Not(None) => return vec![(None, None)],
            Seen::Not(Some(held)) => held,
        };
        let mut sights = Vec::new();
        if self.look.may_be_there(held) {
            sights.push((Some(held.clone()), Some(held.clone())));
        }
        if self.look.may_be_over(held) {
            sights.push((None, self.look.stays.then(|| held.clone())));
        }
        sights
    }

    fn effects(&self, effect: Effect, current: Option<Held>, left: Option<Held>) -> Vec<Seen> {
        match effect {
            Effect::Keep => vec![Seen::As(current, left)],
            Effect::Delete => vec![Seen::As(None, None)],
            Effect::Replace(held) => {
                let mut effects = Vec::new();
                if self.look.stays && self.look.may_be_over(&held) {
                    // A value that is over already removes the key.
                    let left = left.filter(|_| current.is_none());
                    effects.push(Seen::As(None, left));
                }
                effects.push(Seen::As(Some(held.clone()), Some(held)));
                effects
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WallClock;
    use crate::keyspec::{Bytes, Expiry, Stamps};
    use crate::linearizability::{Call, check};

    const CLOCK: WallClock = WallClock { start_ms: 0, ns_per_ms: 100 };

    fn held(value: &str) -> Option<Held> {
        Some(Held { value: Bytes::text(value), expires_at_ms: None })
    }

    fn call(from_ns: u64, to_ns: u64, deed: Deed) -> Call<Deed> {
        Call::returned(from_ns * Stamps::PER_NS, to_ns * Stamps::PER_NS, deed)
    }

    fn exec(from_ns: u64, to_ns: u64, program: Program, answers: Vec<Answer>) -> Call<Deed> {
        let execution = Execution { client: 0, program, answers: Some(answers) };
        call(from_ns, to_ns, Deed::Exec(execution))
    }

    fn get(from_ns: u64, to_ns: u64, key: usize, found: Option<Held>) -> Call<Deed> {
        let answer = Some(Answer::Held(found));
        let operation = Operation { client: 1, command: Command::Get, answer };
        call(from_ns, to_ns, Deed::One(key, operation))
    }

    fn passes_from(first: Option<Held>, expiry: Expiry, history: &[Call<Deed>]) -> bool {
        let spec = KeysSpec(KeySpec { clock: CLOCK, expiry });
        check(&spec, vec![first, None], history, 10_000).is_ok()
    }

    /// The same verdict by either rule of how keys end.
    fn passes(history: &[Call<Deed>]) -> bool {
        let passes = passes_from(held("1"), Expiry::AtOnce, history);
        assert_eq!(passes_from(held("1"), Expiry::AsJudged, history), passes);
        passes
    }

    fn ends_at(value: &str, ms: u64) -> Option<Held> {
        held(value).map(|held| Held { expires_at_ms: Some(ms), ..held })
    }

    #[test]
    fn a_transaction_sees_a_key_before_its_end_and_not_after_it() {
        // Ends at 500 ns.
        let first = ends_at("1", 5);
        let moves = |from_ns, to_ns, found: &Option<Held>| {
            let done = found.iter().map(|_| Answer::Done);
            let answers = std::iter::once(Answer::Held(found.clone())).chain(done).collect();
            exec(from_ns, to_ns, Program::Move { from: 0, to: 1 }, answers)
        };
        for expiry in [Expiry::AtOnce, Expiry::AsJudged] {
            let passes = |history: &[Call<Deed>]| passes_from(first.clone(), expiry, history);
            assert!(passes(&[moves(0, 100, &first), get(110, 120, 1, first.clone())]));
            assert!(!passes(&[moves(0, 100, &None)]));
            assert!(!passes(&[moves(700, 800, &first)]));
            assert!(passes(&[moves(700, 800, &None), get(810, 820, 1, None)]));
            // What it moves ends as it did before.
            assert!(passes(&[moves(0, 100, &first), get(650, 700, 1, None)]));
            assert!(!passes(&[moves(0, 100, &first), get(650, 700, 1, first.clone())]));
        }
    }

    #[test]
    fn a_transaction_judges_once_whether_a_key_has_ended() {
        let first = ends_at("1", 5);
        let twice = |one: &Option<Held>, other: &Option<Held>| {
            let commands = vec![(0, Command::Get), (0, Command::Get)];
            let answers = [one, other].map(|held| Answer::Held(held.clone())).to_vec();
            [exec(0, 1000, Program::Commands(commands), answers)]
        };
        for expiry in [Expiry::AtOnce, Expiry::AsJudged] {
            let passes = |history: &[Call<Deed>]| passes_from(first.clone(), expiry, history);
            assert!(passes(&twice(&first, &first)) && passes(&twice(&None, &None)));
            assert!(!passes(&twice(&first, &None)) && !passes(&twice(&None, &first)));
        }
    }

    #[test]
    fn a_value_that_has_ended_when_it_is_set_removes_the_key() {
        let Some(over) = ends_at("2", 5) else { unreachable!() };
        let commands = vec![(0, Command::Set(over)), (0, Command::Get)];
        let answers = vec![Answer::Done, Answer::Held(None)];
        let history = [exec(700, 800, Program::Commands(commands), answers)];
        assert!(passes_from(held("1"), Expiry::AsJudged, &history));
    }

    #[test]
    fn a_move_is_seen_in_both_keys_or_in_none() {
        let answers = vec![Answer::Held(held("1")), Answer::Done];
        let moved = exec(0, 100, Program::Move { from: 0, to: 1 }, answers);
        let seen = |a, b| [moved.clone(), get(10, 20, 0, a), get(30, 40, 1, b)];
        assert!(passes(&seen(held("1"), None)));
        assert!(passes(&seen(held("1"), held("1"))));
        assert!(passes(&seen(None, held("1"))));
        assert!(!passes(&seen(None, None)));
    }

    #[test]
    fn two_that_read_what_the_other_writes_have_an_order() {
        let crossing = |read: usize, found: Option<Held>| {
            let set = Held { value: Bytes::text("2"), expires_at_ms: None };
            let commands = vec![(read, Command::Get), (1 - read, Command::Set(set))];
            let answers = vec![Answer::Held(found), Answer::Done];
            exec(0, 100, Program::Commands(commands), answers)
        };
        assert!(passes(&[crossing(0, held("1")), crossing(1, held("2"))]));
        assert!(!passes(&[crossing(0, held("1")), crossing(1, None)]));
    }

    #[test]
    fn what_was_refused_changed_nothing() {
        let refused = exec(0, 10, Program::Move { from: 0, to: 1 }, vec![Answer::Refused]);
        assert!(passes(&[refused.clone(), get(20, 30, 0, held("1"))]));
        assert!(!passes(&[refused, get(20, 30, 1, held("1"))]));
    }
}
