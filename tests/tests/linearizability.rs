//! Concurrent connections to several workers: every key's history must be one
//! that a single Redis could have given.

mod histories;

use std::collections::HashSet;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use histories::{
    CLIENTS, Get, assert_all_linearizable, assert_linearizable, is_linearizable, record,
};
use tests::resp::{Client, Reply, push_command};
use tests::server::{Options, Server};

const ROUNDS: usize = 150;

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

#[test]
fn histories_of_eight_connections_on_three_keys_are_linearizable() {
    assert_all_linearizable(&[&server()], ROUNDS);
}

#[test]
fn histories_on_two_and_three_replicas_are_linearizable() {
    for replicas in [2, 3] {
        assert_all_linearizable(&[&replicated(replicas)], ROUNDS);
    }
}

#[test]
fn a_value_that_nobody_wrote_fails_the_check() {
    let server = server();
    let mut histories = record(&[&server], ROUNDS, 1_000_000);
    let history = histories.first_mut().expect("there are rounds");
    assert_linearizable(history, "as recorded");
    let read = history.iter_mut().find(|call| call.op.0 == Get).expect("a quarter of all is GET");
    read.op.1 = Some(Reply::bulk("nobody"));
    assert!(!is_linearizable(history));
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
