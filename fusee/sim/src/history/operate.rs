//! How a client does what its plan says, and what is noted of it.

use super::failure::Fault;
use super::record::Record;
use super::subject::Subject;
use crate::execution::{Execution, Program};
use crate::keyspec::{Answer, Bytes, Command, Effect, Held, Operation};
use crate::linearizability::Call;
use fusee::{Decision, Entry, Key, Kind, Setting};
use std::collections::BTreeSet;
use std::rc::Rc;

impl<S: Subject> Record<S> {
    pub(super) async fn one(&self, client: u32, subject: &S, key: usize, command: &Command) {
        let number = self.begin(client, key, command);
        let name = self.key(key);
        let result = match command {
            Command::Get => {
                let mut answer = Ok(Answer::Held(None));
                subject
                    .read(&[name], |_, entry| {
                        answer = entry.map(|entry| Answer::Held(entry.map(held)));
                    })
                    .await;
                answer
            }
            Command::Set(new) => {
                let set = subject.set(name, &new.value.0, new.expires_at_ms).await;
                set.map(|()| Answer::Done)
            }
            Command::Delete => subject.delete(name).await.map(Answer::Did),
            _ => {
                let mut answer = None;
                let update = subject.update(name, |entry, value| {
                    let (effect, given) = command.decide(entry.map(held).as_ref());
                    answer = Some(given);
                    decision(effect, value)
                });
                update.await.map(|()| answer.expect("an update decides"))
            }
        };
        match result {
            Ok(answer) => self.end(number, Some(answer)),
            Err(error) => {
                let writes = *command != Command::Get;
                self.end(number, self.excuse(client, command, writes, error));
            }
        }
    }

    pub(super) async fn many(&self, client: u32, subject: &S, keys: &[usize]) {
        let numbers: Vec<usize> =
            keys.iter().map(|&key| self.begin(client, key, &Command::Get)).collect();
        let names: Vec<Key<'_>> = keys.iter().map(|&key| self.key(key)).collect();
        let mut answers = vec![None; keys.len()];
        subject
            .read(&names, |at, entry| match entry {
                Ok(entry) => answers[at] = Some(Answer::Held(entry.map(held))),
                Err(error) => answers[at] = self.excuse(client, &Command::Get, false, error),
            })
            .await;
        for (number, answer) in numbers.into_iter().zip(answers) {
            self.end(number, answer);
        }
    }

    /// Each SET begins when the one before it has been answered.
    pub(super) async fn series(&self, client: u32, subject: &S, sets: &[(usize, Held)]) {
        let settings: Vec<Setting<'_>> = sets
            .iter()
            .map(|(key, held)| Setting {
                key: self.key(*key),
                value: &held.value.0,
                expires_at_ms: held.expires_at_ms,
            })
            .collect();
        let begin = |at: usize| {
            let (key, held) = &sets[at];
            let command = Command::Set(held.clone());
            (self.begin(client, *key, &command), command)
        };
        let mut current = begin(0);
        let set = subject.set_each(&settings, |at, result| {
            let (number, command) = &current;
            match result {
                Ok(()) => self.end(*number, Some(Answer::Done)),
                Err(error) => self.end(*number, self.excuse(client, command, true, error)),
            }
            if at + 1 < sets.len() {
                current = begin(at + 1);
            }
        });
        set.await;
    }

    pub(super) async fn exec(&self, client: u32, subject: &Rc<S>, program: &Program) {
        let number = {
            let op = Execution { client, program: program.clone(), answers: None };
            let mut executions = self.executions.borrow_mut();
            executions.push(Call::pending(self.stamp(), op));
            executions.len() - 1
        };
        self.pool.note(client, || format!("begins {program:?}"));
        let answers = match S::exec(subject, &self.keys, program).await {
            Ok(answers) => Some(answers),
            Err(error) => self.excuse(client, program, true, error).map(|refused| vec![refused]),
        };
        let stamp = self.stamp();
        let call = &mut self.executions.borrow_mut()[number];
        self.pool.note(client, || format!("ends {program:?}: {answers:?}"));
        call.returned = answers.is_some().then_some(stamp);
        call.op.answers = answers;
    }

    /// A key that was visited was there at some moment of the call that visited
    /// it; one that was not was absent at some moment of the whole scan.
    pub(super) async fn scan(&self, client: u32, subject: &S) {
        let begun = self.stamp();
        let mut visited = BTreeSet::new();
        let mut cursor = 0;
        loop {
            let mut found = Vec::new();
            let called = self.stamp();
            let scan = subject.scan(0, cursor, 3, |name, _| {
                found.push(name.to_vec());
            });
            match scan.await {
                None => return,
                Some(Ok(next)) => cursor = next,
                Some(Err(error)) => {
                    return self.fail(Fault::Error(format!("client {client}: scan: {error}")));
                }
            }
            for name in found {
                let Some(key) = self.keys.iter().position(|key| *key == name) else {
                    return self.fail(Fault::Error(format!("a scan found a key {name:?}")));
                };
                visited.insert(key);
                self.saw(client, called, key, true);
            }
            if cursor == 0 {
                break;
            }
        }
        for key in (0..self.keys.len()).filter(|key| !visited.contains(key)) {
            self.saw(client, begun, key, false);
        }
    }

    fn saw(&self, client: u32, called: u64, key: usize, there: bool) {
        let op = Operation { client, command: Command::Exists, answer: Some(Answer::Did(there)) };
        let call = Call::returned(called, self.stamp(), op);
        self.calls.borrow_mut().push((key, call));
    }
}

pub(super) fn held(entry: Entry<'_>) -> Held {
    Held { value: Bytes(entry.value.into()), expires_at_ms: entry.expires_at_ms }
}

fn decision(effect: Effect, value: &mut Vec<u8>) -> Decision {
    match effect {
        Effect::Keep => Decision::Keep,
        Effect::Delete => Decision::Delete,
        Effect::Replace(held) => {
            value.extend_from_slice(&held.value.0);
            Decision::Replace { kind: Kind::String, expires_at_ms: held.expires_at_ms }
        }
    }
}
