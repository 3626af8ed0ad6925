//! What several keys do together: transactions, and the spec by which the checker
//! judges histories that have some.

use crate::keyspec::{Answer, Command, Effect, Held, Operation};
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

    /// Runs it on keys that hold this.
    fn run(&self, keys: &mut [Option<Held>]) -> Vec<Answer> {
        let mut answers = Vec::new();
        while let Some((key, command)) = self.next(&answers) {
            let (effect, answer) = command.decide(keys[key].as_ref());
            match effect {
                Effect::Keep => {}
                Effect::Delete => keys[key] = None,
                Effect::Replace(held) => keys[key] = Some(held),
            }
            answers.push(answer);
        }
        answers
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

/// The spec of all keys of a history. None of them ends.
#[derive(Clone, Copy, Debug)]
pub struct KeysSpec;

impl Spec for KeysSpec {
    type State = Vec<Option<Held>>;
    type Op = Deed;

    fn step(&self, state: &Self::State, deed: &Deed, _when: When, next: &mut Vec<Self::State>) {
        let mut keys = state.clone();
        let (given, answers) = match deed {
            Deed::One(key, operation) => {
                let program = Program::Commands(vec![(*key, operation.command.clone())]);
                (operation.answer.clone().map(|answer| vec![answer]), program.run(&mut keys))
            }
            Deed::Exec(execution) => (execution.answers.clone(), execution.program.run(&mut keys)),
        };
        match given {
            Some(given) if given == [Answer::Refused] => next.push(state.clone()),
            Some(given) if given != answers => {}
            _ => next.push(keys),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspec::Bytes;
    use crate::linearizability::{Call, check};

    fn held(value: &str) -> Option<Held> {
        Some(Held { value: Bytes::text(value), expires_at_ms: None })
    }

    fn exec(from: u64, to: u64, program: Program, answers: Vec<Answer>) -> Call<Deed> {
        Call::returned(
            from,
            to,
            Deed::Exec(Execution { client: 0, program, answers: Some(answers) }),
        )
    }

    fn get(from: u64, to: u64, key: usize, found: Option<Held>) -> Call<Deed> {
        let answer = Some(Answer::Held(found));
        let operation = Operation { client: 1, command: Command::Get, answer };
        Call::returned(from, to, Deed::One(key, operation))
    }

    fn passes(history: &[Call<Deed>]) -> bool {
        check(&KeysSpec, vec![held("1"), None], history, 10_000).is_ok()
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
