//! What concurrent clients did to a few keys, and whether a single Redis could have
//! answered so.
#![allow(dead_code, reason = "each test program uses its part")]

use std::sync::Barrier;
use std::time::Instant;

use fusee_sim::linearizability::{Call, OPERATIONS_MAX, Spec, When, check};
use tests::random::Random;
use tests::resp::{Client, Reply, push_command};
use tests::server::Server;

pub(crate) const CLIENTS: usize = 8;
pub(crate) const KEYS: usize = 3;
/// Per client and key in a round; all clients' together fit a history, with some
/// reads at the end.
pub(crate) const OPERATIONS: usize = 12;
/// The checker gives up after so many steps, and that is a failure.
const STEPS_MAX: u64 = 5_000_000;
const _: () = assert!(CLIENTS * OPERATIONS + 8 <= OPERATIONS_MAX);

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    Get,
    Set(String),
    SetIfAbsent(String),
    SetIfPresent(String),
    SetAndGet(String),
    Delete,
    GetAndDelete,
    Increment,
    Append(String),
}

pub(crate) use Command::*;

impl Command {
    /// Any of them. `unique` is a number that no other operation has.
    fn any(random: &mut Random, unique: usize) -> Self {
        let text = unique.to_string();
        match random.below(12) {
            0..=2 => Get,
            3 => Set(text),
            4 | 5 => SetIfAbsent(text),
            6 => SetIfPresent(text),
            7 => SetAndGet(text),
            8 => Delete,
            9 => GetAndDelete,
            10 => Increment,
            _ => Append((unique % 10).to_string()),
        }
    }

    fn frame(&self, key: &str, out: &mut Vec<u8>) {
        match self {
            Get => push_command(out, &["GET", key]),
            Set(value) => push_command(out, &["SET", key, value]),
            SetIfAbsent(value) => push_command(out, &["SETNX", key, value]),
            SetIfPresent(value) => push_command(out, &["SET", key, value, "XX"]),
            SetAndGet(value) => push_command(out, &["SET", key, value, "GET"]),
            Delete => push_command(out, &["DEL", key]),
            GetAndDelete => push_command(out, &["GETDEL", key]),
            Increment => push_command(out, &["INCR", key]),
            Append(value) => push_command(out, &["APPEND", key, value]),
        }
    }

    /// What a key that holds `old` holds afterwards, and the reply.
    fn decide(&self, old: Option<&String>) -> (Option<String>, Reply) {
        let kept = old.cloned();
        let shown = || old.map_or(Reply::Null, |value| Reply::bulk(value.as_bytes()));
        let number = |yes| Reply::Integer(i64::from(yes));
        match (self, old) {
            (Get, _) => (kept, shown()),
            (Set(new), _) => (Some(new.clone()), Reply::ok()),
            (SetIfAbsent(new), None) => (Some(new.clone()), number(true)),
            (SetIfAbsent(_), Some(_)) => (kept, number(false)),
            (SetIfPresent(new), Some(_)) => (Some(new.clone()), Reply::ok()),
            (SetIfPresent(_), None) => (None, Reply::Null),
            (SetAndGet(new), _) => (Some(new.clone()), shown()),
            (Delete, _) => (None, number(old.is_some())),
            (GetAndDelete, _) => (None, shown()),
            (Increment, _) => {
                // Redis takes a number only as it would print it: no leading 0.
                let number = |value: &String| {
                    value.parse::<i64>().ok().filter(|number| number.to_string() == *value)
                };
                let before = old.map_or(Some(0), number);
                match before.and_then(|before| before.checked_add(1)) {
                    Some(after) => (Some(after.to_string()), Reply::Integer(after)),
                    None => (kept, Reply::Error(String::new())),
                }
            }
            (Append(more), _) => {
                let new = kept.unwrap_or_default() + more;
                let length = new.len() as i64;
                (Some(new), Reply::Integer(length))
            }
        }
    }
}

/// A string key of Redis without expiry.
pub(crate) struct StringKey;

impl Spec for StringKey {
    type State = Option<String>;
    /// Without a reply where the server died before it gave one.
    type Op = (Command, Option<Reply>);

    fn step(
        &self,
        state: &Option<String>,
        (command, given): &Self::Op,
        _when: When,
        next: &mut Vec<Option<String>>,
    ) {
        let (after, reply) = command.decide(state.as_ref());
        let possible = match (&reply, given) {
            (_, None) | (Reply::Error(_), Some(Reply::Error(_))) => true,
            (reply, Some(given)) => reply == given,
        };
        if possible {
            next.push(after);
        }
    }
}

pub(crate) type History = Vec<Call<(Command, Option<Reply>)>>;

pub(crate) fn is_linearizable(history: &History) -> bool {
    check(&StringKey, None, history, STEPS_MAX).is_ok()
}

pub(crate) fn assert_linearizable(history: &History, about: &str) {
    if let Err(verdict) = check(&StringKey, None, history, STEPS_MAX) {
        panic!("{about}: {}", verdict.explain(history));
    }
}

pub(crate) fn key(round: usize, key: usize) -> String {
    format!("lin:{round}:{key}")
}

/// What one client did in a round, by key, and why it ended early if it did.
pub(crate) struct Part {
    pub(crate) histories: Vec<History>,
    pub(crate) broken: Option<std::io::Error>,
}

/// One client's part of a round: the same number of operations on each key, in
/// any order, some of them pipelined. What has no reply when the server dies may
/// have happened, then or later.
pub(crate) fn part(
    client: &mut Client,
    seed: u64,
    round: usize,
    index: usize,
    begin: Instant,
) -> Part {
    let mut random = Random::new(seed);
    let mut todo: Vec<usize> = (0..KEYS * OPERATIONS).map(|number| number % KEYS).collect();
    for last in (1..todo.len()).rev() {
        todo.swap(last, random.below(last + 1));
    }
    let mut histories = vec![History::new(); KEYS];
    let mut unique = (index + 1) * 1000;
    let mut rest = &todo[..];
    while !rest.is_empty() {
        let count = (1 + random.below(4)).min(rest.len());
        let (batch, later) = rest.split_at(count);
        rest = later;
        let mut frames = Vec::new();
        let mut commands = Vec::new();
        for &number in batch {
            unique += 1;
            let command = Command::any(&mut random, unique);
            command.frame(&key(round, number), &mut frames);
            commands.push((number, command));
        }
        let called = now(begin);
        let mut broken = client.send(&frames).err();
        for (number, command) in commands {
            let reply = match broken {
                None => client.receive().map_err(|error| broken = Some(error)).ok(),
                Some(_) => None,
            };
            histories[number].push(match reply {
                Some(reply) => Call::returned(called, now(begin), (command, Some(reply))),
                None => Call::pending(called, (command, None)),
            });
        }
        if broken.is_some() {
            return Part { histories, broken };
        }
    }
    Part { histories, broken: None }
}

/// Nanoseconds since the test began.
pub(crate) fn now(begin: Instant) -> u64 {
    u64::try_from(begin.elapsed().as_nanos()).expect("below 500 years")
}

/// Histories of all keys of so many rounds, the clients dealt out to the servers.
pub(crate) fn record(servers: &[&Server], rounds: usize, seed: u64) -> Vec<History> {
    let barrier = Barrier::new(CLIENTS);
    let begin = Instant::now();
    let parts: Vec<Vec<Part>> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|index| {
                let (barrier, server) = (&barrier, servers[index % servers.len()]);
                scope.spawn(move || {
                    let mut client = Client::connect(server);
                    (0..rounds)
                        .map(|round| {
                            let seed = seed + (round * CLIENTS + index) as u64;
                            barrier.wait();
                            let part = part(&mut client, seed, round, index, begin);
                            assert!(part.broken.is_none(), "{:?}", part.broken);
                            part
                        })
                        .collect()
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let all = |round: usize, key: usize| {
        parts.iter().flat_map(|client| client[round].histories[key].iter().cloned()).collect()
    };
    (0..rounds)
        .flat_map(|round| (0..KEYS).map(move |key| (round, key)))
        .map(|(r, k)| all(r, k))
        .collect()
}

/// Records and judges.
pub(crate) fn assert_all_linearizable(servers: &[&Server], rounds: usize) {
    let histories = record(servers, rounds, 1);
    assert_eq!(histories.len(), rounds * KEYS);
    for (number, history) in histories.iter().enumerate() {
        assert_eq!(history.len(), CLIENTS * OPERATIONS);
        assert_linearizable(history, &format!("round {}, key {}", number / KEYS, number % KEYS));
    }
    // Without overlap nothing was tested.
    let overlaps = |history: &History| {
        history.iter().any(|one| {
            let ends = one.returned.unwrap_or(u64::MAX);
            history.iter().any(|two| one.called < two.called && two.called < ends)
        })
    };
    let overlapping = histories.iter().filter(|history| overlaps(history)).count();
    assert!(overlapping * 2 > histories.len(), "only {overlapping} histories overlap");
}
