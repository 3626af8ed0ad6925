//! Concurrent connections to several workers: every key's history must be one
//! that a single Redis could have given.

use std::collections::HashSet;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use fusee_sim::linearizability::{Call, OPERATIONS_MAX, Spec, When, check};
use tests::random::Random;
use tests::resp::{Client, Reply, push_command};
use tests::server::{Options, Server};

const CLIENTS: usize = 8;
const KEYS: usize = 3;
/// Per client and key in a round; all clients' together fit a history.
const OPERATIONS: usize = 12;
const ROUNDS: usize = 150;
/// The checker gives up after so many steps, and that is a failure.
const STEPS_MAX: u64 = 5_000_000;
const _: () = assert!(CLIENTS * OPERATIONS <= OPERATIONS_MAX);

fn server() -> Server {
    replicated(1)
}

/// A server that keeps so many copies of every key, each on a memory node.
fn replicated(replicas: u64) -> Server {
    let count = replicas.to_string();
    Server::under_test(&Options {
        memory_mib: Some(256 * replicas),
        workers: Some(4),
        gateway_flags: ["--replicas", &count, "--memory-nodes", &count].map(str::to_owned).to_vec(),
        ..Options::default()
    })
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Command {
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

use Command::*;

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
struct StringKey;

impl Spec for StringKey {
    type State = Option<String>;
    type Op = (Command, Reply);

    fn step(
        &self,
        state: &Option<String>,
        (command, given): &(Command, Reply),
        _when: When,
        next: &mut Vec<Option<String>>,
    ) {
        let (after, reply) = command.decide(state.as_ref());
        let both_errors = matches!((&reply, given), (Reply::Error(_), Reply::Error(_)));
        if reply == *given || both_errors {
            next.push(after);
        }
    }
}

type History = Vec<Call<(Command, Reply)>>;

fn assert_linearizable(history: &History, about: &str) {
    if let Err(verdict) = check(&StringKey, None, history, STEPS_MAX) {
        panic!("{about}: {}", verdict.explain(history));
    }
}

/// One client's part of a round: the same number of operations on each key, in
/// any order, some of them pipelined. A history per key.
fn part(
    client: &mut Client,
    seed: u64,
    round: usize,
    index: usize,
    begin: Instant,
) -> Vec<History> {
    let now = || u64::try_from(begin.elapsed().as_nanos()).expect("below 500 years");
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
        for &key in batch {
            unique += 1;
            let command = Command::any(&mut random, unique);
            command.frame(&format!("lin:{round}:{key}"), &mut frames);
            commands.push((key, command));
        }
        let called = now();
        client.send(&frames).unwrap();
        for (key, command) in commands {
            let reply = client.receive().unwrap();
            histories[key].push(Call::returned(called, now(), (command, reply)));
        }
    }
    histories
}

/// Histories of all rounds and keys from one run of all clients.
fn record(server: &Server, seed: u64) -> Vec<History> {
    let barrier = Barrier::new(CLIENTS);
    let begin = Instant::now();
    let parts: Vec<Vec<Vec<History>>> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|index| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let mut client = Client::connect(server);
                    (0..ROUNDS)
                        .map(|round| {
                            let seed = seed + (round * CLIENTS + index) as u64;
                            barrier.wait();
                            part(&mut client, seed, round, index, begin)
                        })
                        .collect()
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let all = |round: usize, key: usize| {
        parts.iter().flat_map(|client| client[round][key].iter().cloned()).collect()
    };
    (0..ROUNDS)
        .flat_map(|round| (0..KEYS).map(move |key| (round, key)))
        .map(|(r, k)| all(r, k))
        .collect()
}

#[test]
fn histories_of_eight_connections_on_three_keys_are_linearizable() {
    assert_all_linearizable(&server());
}

#[test]
fn histories_on_two_and_three_replicas_are_linearizable() {
    for replicas in [2, 3] {
        assert_all_linearizable(&replicated(replicas));
    }
}

fn assert_all_linearizable(server: &Server) {
    let histories = record(server, 1);
    assert_eq!(histories.len(), ROUNDS * KEYS);
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

#[test]
fn a_value_that_nobody_wrote_fails_the_check() {
    let server = server();
    let mut histories = record(&server, 1_000_000);
    let history = histories.first_mut().expect("there are rounds");
    assert_linearizable(history, "as recorded");
    let read = history.iter_mut().find(|call| call.op.0 == Get).expect("a quarter of all is GET");
    read.op.1 = Reply::bulk("nobody");
    assert!(check(&StringKey, None, history, STEPS_MAX).is_err());
}

/// Runs `work(client, index)` on all connections at once.
fn together<T: Send>(server: &Server, work: impl Fn(&mut Client, usize) -> T + Sync) -> Vec<T> {
    let barrier = Barrier::new(CLIENTS);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CLIENTS)
            .map(|index| {
                let (barrier, work) = (&barrier, &work);
                scope.spawn(move || {
                    let mut client = Client::connect(server);
                    barrier.wait();
                    work(&mut client, index)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn increments_of_all_connections_add_up_and_none_is_given_twice() {
    const EACH: usize = 5_000;
    let server = server();
    let given = together(&server, |client, _| {
        let mut numbers = Vec::new();
        for _ in 0..EACH / 10 {
            let mut frames = Vec::new();
            (0..10).for_each(|_| push_command(&mut frames, &["INCR", "counter"]));
            client.send(&frames).unwrap();
            numbers.extend((0..10).map(|_| client.receive().unwrap().integer()));
        }
        assert!(numbers.is_sorted(), "one connection saw the counter go back");
        numbers
    });
    let distinct: HashSet<i64> = given.into_iter().flatten().collect();
    assert_eq!(distinct.len(), CLIENTS * EACH);
    let total = (CLIENTS * EACH).to_string();
    assert_eq!(Client::connect(&server).command(&["GET", "counter"]), Reply::bulk(total));
}

#[test]
fn a_lock_by_set_nx_has_one_holder() {
    const LOCKS: usize = 500;
    let server = server();
    let won = together(&server, |client, index| {
        (0..LOCKS)
            .filter(|lock| {
                let name = format!("lock:{lock}");
                client.command(&["SET", &name, &index.to_string(), "NX"]) == Reply::ok()
            })
            .collect::<Vec<_>>()
    });
    let mut client = Client::connect(&server);
    for lock in 0..LOCKS {
        let holders: Vec<usize> = (0..CLIENTS).filter(|&i| won[i].contains(&lock)).collect();
        assert_eq!(holders.len(), 1, "lock {lock} is held by {holders:?}");
        let value = client.command(&["GET", &format!("lock:{lock}")]);
        assert_eq!(value, Reply::bulk(holders[0].to_string()));
    }
}

#[test]
fn a_token_is_taken_once_by_getdel() {
    const TOKENS: usize = 500;
    let server = server();
    let mut client = Client::connect(&server);
    for token in 0..TOKENS {
        assert_eq!(client.command(&["SET", &format!("token:{token}"), "t"]), Reply::ok());
    }
    let taken = together(&server, |client, _| {
        (0..TOKENS)
            .filter(|token| client.command(&["GETDEL", &format!("token:{token}")]) != Reply::Null)
            .count()
    });
    assert_eq!(taken.iter().sum::<usize>(), TOKENS);
    assert_eq!(client.command(&["DBSIZE"]), Reply::Integer(0));
}

#[test]
fn a_key_that_expires_is_gone_for_all_connections_at_once() {
    let server = server();
    let mut setter = Client::connect(&server);
    for round in 0..5 {
        let key = format!("expiring:{round}");
        assert_eq!(setter.command(&["SET", &key, "x", "PX", "100"]), Reply::ok());
        let seen = together(&server, |client, _| {
            let begin = Instant::now();
            let mut gone = None;
            while begin.elapsed() < Duration::from_millis(300) {
                match (client.command(&["GET", &key]), gone) {
                    (Reply::Null, None) => gone = Some(begin.elapsed()),
                    (Reply::Bulk(_), Some(_)) => panic!("{key} came back"),
                    _ => {}
                }
            }
            gone
        });
        assert!(seen.iter().all(|gone| gone.is_some()), "{key} outlived its end");
    }
}
