//! A pool of memory node processes holds what is put into it, whatever way leads to
//! its memory: on each fabric the same bytes, and the same round trips.
//!
//! `SUITE_FABRICS` chooses the fabrics; the suite `rdma` runs this program with `verbs` in
//! a machine that has a device.

use std::collections::BTreeMap;
use std::time::Duration;

use tests::metrics;
use tests::pool::{Pool, PoolOptions, fabrics};
use tests::random::Random;
use tests::resp::{Client, Reply, push_command};
use tests::server::Server;

const KEYS: usize = 10_000;
const PATIENCE: Duration = Duration::from_mins(5);
/// Requests under way at a time.
const PIPELINE: usize = 50;
/// So that several chunks make one value now and then, and a few are far beyond a message
/// of any size.
const LARGE_BYTES: usize = 300_000;
const LARGE_EVERY: usize = 500;
const HUGE_BYTES: usize = 3_000_000;
const HUGE_EVERY: usize = 5_000;

fn pool(fabric: &'static str, replicas: u8) -> Pool {
    let nodes = u16::from(replicas.max(2));
    Pool::start(&PoolOptions { fabric, nodes, replicas, memory_mib: 192, ..PoolOptions::default() })
}

#[test]
fn ten_thousand_values_of_mixed_sizes_come_back_byte_for_byte_elsewhere() {
    for fabric in fabrics() {
        for replicas in [1, 2] {
            let pool = pool(fabric, replicas);
            let (writer, reader) = (pool.gateway(), pool.gateway());
            let (mut writer, mut reader) = (patient(&writer), patient(&reader));
            let about = format!("{fabric}, {replicas} replicas");
            for generation in 0..2 {
                store(&mut writer, generation, &about);
                compare(&mut reader, generation, |_| true, &about);
            }
            let deleted = |number: usize| number.is_multiple_of(3);
            delete(&mut reader, deleted, &about);
            compare(&mut writer, 1, |number| !deleted(number), &about);
            assert_eq!(writer.command(&["INCRBY", "counter", "40"]), Reply::Integer(40), "{about}");
            assert_eq!(reader.command(&["INCR", "counter"]), Reply::Integer(41), "{about}");
            assert_eq!(writer.command(&["GET", "counter"]), Reply::bulk("41"), "{about}");
        }
    }
}

/// Soft-RoCE moves some MB a second, in a machine that is emulated, on a host that does
/// other things as well.
fn patient(gateway: &Server) -> Client {
    let client = Client::connect(gateway);
    client.stream().set_read_timeout(Some(PATIENCE)).unwrap();
    client
}

fn name(number: usize) -> String {
    // Keys of many lengths as well.
    format!("key:{number}:{}", "k".repeat(number % 97))
}

/// The value that a key has in its `generation`: of any size, and unlike all others.
fn value(number: usize, generation: u64) -> Vec<u8> {
    let mut random = Random::new(number as u64 * 2 + generation);
    let bytes = match number % 10 {
        _ if number.is_multiple_of(HUGE_EVERY) => HUGE_BYTES + random.below(2_000_000),
        _ if number.is_multiple_of(LARGE_EVERY) => LARGE_BYTES + random.below(100_000),
        0..=4 => 1 + random.below(64),
        5..=7 => random.below(1024),
        8 => random.below(4096),
        _ => random.below(20_000),
    };
    random.bytes(bytes)
}

fn store(client: &mut Client, generation: u64, about: &str) {
    in_pipelines(client, 0..KEYS, |number, frames| {
        push_command(frames, &[b"SET", name(number).as_bytes(), &value(number, generation)]);
    })
    .for_each(|(number, reply)| assert_eq!(reply, Reply::ok(), "{about}, key {number}"));
}

fn compare(client: &mut Client, generation: u64, lives: impl Fn(usize) -> bool, about: &str) {
    in_pipelines(client, 0..KEYS, |number, frames| {
        push_command(frames, &["GET", &name(number)]);
    })
    .for_each(|(number, reply)| {
        let wanted =
            if lives(number) { Reply::bulk(value(number, generation)) } else { Reply::Null };
        // Not by assert_eq, which would print them.
        assert!(reply == wanted, "{about}, key {number} came back otherwise");
    });
}

fn delete(client: &mut Client, which: impl Fn(usize) -> bool, about: &str) {
    in_pipelines(client, (0..KEYS).filter(|&number| which(number)), |number, frames| {
        push_command(frames, &["DEL", &name(number)]);
    })
    .for_each(|(number, reply)| assert_eq!(reply, Reply::Integer(1), "{about}, key {number}"));
}

/// Sends a request for each number, some at a time; the replies with their numbers.
fn in_pipelines(
    client: &mut Client,
    numbers: impl Iterator<Item = usize>,
    push: impl Fn(usize, &mut Vec<u8>),
) -> impl Iterator<Item = (usize, Reply)> {
    let numbers: Vec<usize> = numbers.collect();
    numbers
        .chunks(PIPELINE)
        .flat_map(|chunk| {
            let mut frames = Vec::new();
            chunk.iter().for_each(|&number| push(number, &mut frames));
            client.send(&frames).unwrap();
            let mut reply = |number| match client.receive() {
                Ok(reply) => (number, reply),
                Err(error) => panic!("no reply about key {number}: {error}"),
            };
            chunk.iter().map(|&number| reply(number)).collect::<Vec<_>>()
        })
        .collect::<Vec<_>>()
        .into_iter()
}

#[test]
fn operations_take_the_same_round_trips_on_every_fabric() {
    for replicas in [1, 2] {
        let expected = round_trips("shm", replicas);
        eprintln!("{replicas} replicas: {expected:?}");
        for fabric in fabrics() {
            let found = round_trips(fabric, replicas);
            assert_eq!(found, expected, "{fabric} against shm, {replicas} replicas");
        }
    }
}

/// Round trips of each kind of operation, 100 of it, with nobody else there.
fn round_trips(fabric: &'static str, replicas: u8) -> BTreeMap<&'static str, f64> {
    const COUNT: usize = 100;
    let pool = pool(fabric, replicas);
    let gateway = pool.gateway();
    let address = gateway.metrics_address().expect("it was asked to");
    let mut client = Client::connect(&gateway);
    let sum = |command: &str| {
        let page = metrics::fetch(address).unwrap();
        let label = format!("command=\"{command}\"");
        metrics::sum(&page, "gateway_command_round_trips_sum", &label).unwrap_or(0.0)
    };
    let mut all = BTreeMap::new();
    let steps: [(&str, &str, &[&str]); 6] = [
        ("SET of a new key", "set", &["value"]),
        ("GET of a cached key", "get", &[]),
        ("SET of a cached key", "set", &["other"]),
        ("INCR of a new key", "incr", &[]),
        ("INCR of a cached key", "incr", &[]),
        ("DEL of a cached key", "del", &[]),
    ];
    for (step, command, rest) in steps {
        let before = sum(command);
        for number in 0..COUNT {
            let key = if command == "incr" { format!("n:{number}") } else { format!("k:{number}") };
            let mut words = vec![command, &key];
            words.extend_from_slice(rest);
            let reply = client.command(&words);
            assert!(!matches!(reply, Reply::Error(_)), "{words:?}: {reply:?}");
        }
        all.insert(step, (sum(command) - before) / COUNT as f64);
    }
    all
}
