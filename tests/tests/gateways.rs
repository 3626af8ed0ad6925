//! Several gateways on one pool, on each fabric: together they answer like a single
//! Redis, also when one of them is killed in the middle of what it does.
//!
//! `SUITE_FABRICS` chooses the fabrics, `SUITE_LOAD_SECONDS` for how long two gateways are
//! under load.

mod histories;

use std::collections::HashSet;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use fusee_sim::linearizability::Call;
use histories::{
    CLIENTS, Get, History, KEYS, assert_all_linearizable, assert_linearizable, key, now, part,
};
use tests::pool::{Pool, PoolOptions, fabrics};
use tests::random::Random;
use tests::resp::{Client, Reply, push_command};
use tests::server::{Options, Server};

const ROUNDS: usize = 60;
const KILLS: usize = 12;

fn pool(fabric: &'static str, replicas: u8) -> Pool {
    let nodes = u16::from(replicas.max(2));
    Pool::start(&PoolOptions { fabric, nodes, replicas, memory_mib: 192, ..PoolOptions::default() })
}

fn gateway(pool: &Pool) -> Server {
    pool.gateway_with(&Options { workers: Some(2), ..Options::default() })
}

#[test]
fn histories_on_two_and_four_gateways_are_linearizable() {
    for fabric in fabrics() {
        for replicas in [1, 2] {
            let pool = pool(fabric, replicas);
            let mut gateways = Vec::new();
            for count in [2, 4] {
                while gateways.len() < count {
                    gateways.push(gateway(&pool));
                }
                let servers: Vec<&Server> = gateways.iter().collect();
                eprintln!("{fabric}, {replicas} replicas, {count} gateways");
                assert_all_linearizable(&servers, ROUNDS);
                // The next ones begin where these ended, so they begin anew.
                assert_eq!(Client::connect(servers[0]).command(&["FLUSHALL"]), Reply::ok());
            }
        }
    }
}

#[test]
fn histories_of_a_long_load_on_two_gateways_are_linearizable() {
    let seconds = std::env::var("SUITE_LOAD_SECONDS").ok();
    let seconds = seconds.map_or(3, |text| text.parse().expect("SUITE_LOAD_SECONDS is a number"));
    for fabric in fabrics() {
        for replicas in [1, 2] {
            let pool = pool(fabric, replicas);
            let gateways = [gateway(&pool), gateway(&pool)];
            let begin = Instant::now();
            let mut rounds = 0;
            while begin.elapsed() < Duration::from_secs(seconds) / 2 {
                assert_all_linearizable(&[&gateways[0], &gateways[1]], 10);
                assert_eq!(Client::connect(&gateways[0]).command(&["FLUSHALL"]), Reply::ok());
                rounds += 10;
            }
            eprintln!("{fabric}, {replicas} replicas: {rounds} rounds in {:?}", begin.elapsed());
        }
    }
}

#[test]
fn increments_by_all_gateways_add_up_and_none_is_given_twice() {
    const EACH: usize = 2_000;
    for fabric in fabrics() {
        let pool = pool(fabric, 2);
        let gateways = [gateway(&pool), gateway(&pool)];
        let barrier = Barrier::new(CLIENTS);
        let given: Vec<Vec<i64>> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|index| {
                    let (barrier, server) = (&barrier, &gateways[index % 2]);
                    scope.spawn(move || {
                        let mut client = Client::connect(server);
                        let mut frames = Vec::new();
                        (0..10).for_each(|_| push_command(&mut frames, &["INCR", "counter"]));
                        barrier.wait();
                        let mut numbers = Vec::new();
                        for _ in 0..EACH / 10 {
                            client.send(&frames).unwrap();
                            numbers.extend((0..10).map(|_| client.receive().unwrap().integer()));
                        }
                        assert!(numbers.is_sorted(), "one connection saw the counter go back");
                        numbers
                    })
                })
                .collect();
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        let distinct: HashSet<i64> = given.into_iter().flatten().collect();
        assert_eq!(distinct.len(), CLIENTS * EACH);
        let total = (CLIENTS * EACH).to_string();
        for gateway in &gateways {
            let seen = Client::connect(gateway).command(&["GET", "counter"]);
            assert_eq!(seen, Reply::bulk(total.clone()));
        }
    }
}

#[test]
fn messages_reach_listeners_of_other_gateways_also_after_one_was_killed() {
    for fabric in fabrics() {
        let pool = pool(fabric, 1);
        let (first, mut second) = (gateway(&pool), gateway(&pool));
        arrives(&first, &second);
        arrives(&second, &first);
        second.kill();
        let third = gateway(&pool);
        arrives(&first, &third);
        arrives(&third, &first);
    }
}

/// Publishes at one gateway until who listens at another has it: gateways meet twice
/// a second.
fn arrives(from: &Server, to: &Server) {
    let mut listener = Client::connect(to);
    assert!(matches!(listener.command(&["SUBSCRIBE", "news"]), Reply::Array(_)));
    let patience = Some(Duration::from_secs(20));
    listener.stream().set_read_timeout(patience).unwrap();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut publisher = Client::connect(from);
            // Until the other end is dropped.
            while stopped.recv_timeout(Duration::from_millis(20))
                == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                assert_eq!(publisher.command(&["PUBLISH", "news", "hello"]), Reply::Integer(0));
            }
        });
        let message = listener.receive();
        drop(stop);
        let words = ["message", "news", "hello"].map(Reply::bulk).into();
        assert_eq!(message.unwrap(), Reply::Array(words));
    });
}

#[test]
fn ends_of_keys_are_told_once_at_every_gateway() {
    for fabric in fabrics() {
        let pool = pool(fabric, 1);
        let gateway_flags = vec!["--notify-keyspace-events".to_owned(), "Ex".to_owned()];
        let options = Options { workers: Some(2), gateway_flags, ..Options::default() };
        let (first, second) = (pool.gateway_with(&options), pool.gateway_with(&options));
        arrives(&first, &second);
        arrives(&second, &first);
        let channel = "__keyevent@0__:expired";
        let mut listeners = [Client::connect(&first), Client::connect(&second)];
        for listener in &mut listeners {
            listener.stream().set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            assert!(matches!(listener.command(&["SUBSCRIBE", channel]), Reply::Array(_)));
        }
        let mut client = Client::connect(&first);
        let names: Vec<String> = (0..20).map(|number| format!("k{number:02}")).collect();
        for name in &names {
            assert_eq!(client.command(&["SET", name, "v", "PX", "100"]), Reply::ok());
        }
        for listener in &mut listeners {
            let mut told: Vec<Reply> = names.iter().map(|_| listener.receive().unwrap()).collect();
            told.sort_by_key(|message| format!("{message:?}"));
            let wanted =
                |name: &String| Reply::Array(["message", channel, name].map(Reply::bulk).into());
            assert_eq!(told, names.iter().map(wanted).collect::<Vec<_>>(), "{fabric}");
        }
    }
}

#[test]
fn histories_with_a_gateway_killed_amid_them_are_linearizable() {
    for fabric in fabrics() {
        for replicas in [1, 2] {
            let pool = pool(fabric, replicas);
            let survivor = gateway(&pool);
            let mut random = Random::new(7);
            let mut cut_short = 0;
            for round in 0..KILLS {
                let victim = gateway(&pool);
                let after = Duration::from_micros(random.below(4_000) as u64);
                let (histories, broken) = kill_amid(&survivor, victim, round, after);
                cut_short += usize::from(broken > 0);
                let heir = gateway(&pool);
                for (number, mut history) in histories.into_iter().enumerate() {
                    read_at_last(&[&survivor, &heir], round, number, &mut history);
                    let about =
                        format!("{fabric}, {replicas} replicas, kill {round}, key {number}");
                    assert_linearizable(&history, &about);
                }
            }
            assert!(cut_short * 3 > KILLS, "only {cut_short} of {KILLS} kills came in time");
        }
    }
}

/// A round in which half of the clients lose their gateway; histories by key, and
/// how many clients were cut short.
fn kill_amid(
    survivor: &Server,
    mut victim: Server,
    round: usize,
    after: Duration,
) -> (Vec<History>, usize) {
    let barrier = Barrier::new(CLIENTS + 1);
    let begin = Instant::now();
    let victim_pid = victim.pid();
    let parts: Vec<_> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|index| {
                let dies = index % 2 == 1;
                let mut client = Client::connect(if dies { &victim } else { survivor });
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    let seed = 5_000_000 + (round * CLIENTS + index) as u64;
                    let part = part(&mut client, seed, round, index, begin);
                    assert!(dies || part.broken.is_none(), "the survivor: {:?}", part.broken);
                    part
                })
            })
            .collect();
        barrier.wait();
        std::thread::sleep(after);
        // Ours and not yet waited for, so the id cannot belong to another.
        rustix::process::kill_process(victim_pid, rustix::process::Signal::KILL).unwrap();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    victim.kill();
    let broken = parts.iter().filter(|part| part.broken.is_some()).count();
    let all = |key: usize| parts.iter().flat_map(|part| part.histories[key].clone()).collect();
    ((0..KEYS).map(all).collect(), broken)
}

/// Adds what everybody sees in the end: all the same, and again the same.
fn read_at_last(servers: &[&Server], round: usize, number: usize, history: &mut History) {
    let begin = Instant::now();
    let last = history.iter().map(|call| call.returned.unwrap_or(call.called)).max().unwrap_or(0);
    for _ in 0..2 {
        for server in servers {
            let mut client = Client::connect(server);
            let called = last + 1 + now(begin);
            let reply = client.command(&["GET", &key(round, number)]);
            history.push(Call::returned(called, last + 1 + now(begin), (Get, Some(reply))));
        }
    }
}
