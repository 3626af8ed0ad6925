//! A full pool: writes get the OOM error, reads and deletes go on, and space
//! comes back.

use std::time::{Duration, Instant};

use tests::resp::{Client, Reply, push_command};
use tests::server::{Options, Server};

const POOL_MIB: u64 = 64;
const POOL: usize = (POOL_MIB as usize) << 20;
/// Deferred reclamation takes some grace periods; nobody should wait longer.
const SPACE_COMES_BACK: Duration = Duration::from_secs(5);
const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'";

fn server() -> Server {
    Server::under_test(&Options {
        memory_mib: Some(POOL_MIB),
        workers: Some(2),
        ..Options::default()
    })
}

fn value(number: usize, bytes: usize) -> Vec<u8> {
    let mut value = format!("{number}:").into_bytes();
    value.resize(bytes, b'x');
    value
}

/// Sets `fill:0`, `fill:1` and so on until the pool is full; how many fit.
fn fill(client: &mut Client, bytes: usize) -> usize {
    let most = 2 * POOL / bytes;
    for number in 0..most {
        let key = format!("fill:{number}");
        match client.command(&[b"SET".as_slice(), key.as_bytes(), &value(number, bytes)]) {
            Reply::Simple(_) => {}
            reply if reply.is_error(OOM) => return number,
            other => panic!("SET {key} got {other:?}"),
        }
    }
    panic!("a pool of {POOL_MIB} MiB took twice as much");
}

/// Deletes the keys of `numbers`, a batch at a time.
fn delete(client: &mut Client, numbers: impl Iterator<Item = usize>) {
    let keys: Vec<String> = numbers.map(|number| format!("fill:{number}")).collect();
    for batch in keys.chunks(100) {
        let mut requests = Vec::new();
        for key in batch {
            push_command(&mut requests, &["DEL", key]);
        }
        client.send(&requests).unwrap();
        for key in batch {
            assert_eq!(client.receive().unwrap(), Reply::Integer(1), "DEL {key}");
        }
    }
}

/// Sets one key as soon as there is space.
fn set_when_space(client: &mut Client, key: &str, value: &[u8]) {
    let begin = Instant::now();
    loop {
        match client.command(&[b"SET".as_slice(), key.as_bytes(), value]) {
            Reply::Simple(_) => return,
            reply if reply.is_error(OOM) => {
                assert!(begin.elapsed() < SPACE_COMES_BACK, "no space for {key} came back");
                std::thread::sleep(Duration::from_millis(10));
            }
            other => panic!("SET {key} got {other:?}"),
        }
    }
}

#[test]
fn a_full_pool_refuses_writes_and_serves_reads_and_deletes() {
    const BYTES: usize = 10_000;
    let mut server = server();
    let mut client = Client::connect(&server);
    assert_eq!(client.command(&["SET", "counter", "1"]), Reply::ok());
    let count = fill(&mut client, BYTES);
    let share = count * BYTES * 100 / POOL;
    assert!(share >= 50, "only {share} % of the pool took data");

    // Room for smaller objects may be left, so the value is of the same size.
    let more = value(0, BYTES);
    for request in [
        &[b"SET".as_slice(), b"more", &more][..],
        &[b"MSET", b"more", &more],
        &[b"SETNX", b"more", &more],
        &[b"APPEND", b"more", &more],
    ] {
        let reply = client.command(request);
        assert!(reply.is_error(OOM), "{} got {reply:?}", String::from_utf8_lossy(request[0]));
    }
    assert_eq!(client.command(&["EXISTS", "more"]), Reply::Integer(0));
    for number in 0..count {
        let reply = client.command(&["GET", &format!("fill:{number}")]);
        assert_eq!(reply, Reply::Bulk(value(number, BYTES)), "key {number} of {count}");
    }
    assert_eq!(client.command(&["GET", "counter"]), Reply::bulk("1"));
    assert_eq!(client.command(&["DBSIZE"]), Reply::Integer(count as i64 + 1));

    delete(&mut client, (0..count).filter(|number| number % 2 == 0));
    for number in (0..count).filter(|number| number % 2 == 0).take(count * 2 / 5) {
        set_when_space(&mut client, &format!("fill:{number}"), &value(number, BYTES));
    }
    for number in (1..count).step_by(2) {
        let reply = client.command(&["GET", &format!("fill:{number}")]);
        assert_eq!(reply, Reply::Bulk(value(number, BYTES)), "key {number} of {count}");
    }
    server.assert_running();
}

#[test]
fn overwriting_in_a_full_pool_leaves_the_old_or_the_new_value() {
    const BYTES: usize = 10_000;
    let server = server();
    let mut client = Client::connect(&server);
    let count = fill(&mut client, BYTES);
    for number in (0..count).step_by(7) {
        let key = format!("fill:{number}");
        let new = value(number + 1_000_000, BYTES);
        let expected = match client.command(&[b"SET".as_slice(), key.as_bytes(), &new]) {
            Reply::Simple(_) => new,
            reply if reply.is_error(OOM) => value(number, BYTES),
            other => panic!("SET {key} got {other:?}"),
        };
        assert_eq!(client.command(&["GET", &key]), Reply::Bulk(expected), "{key}");
    }
}

#[test]
fn space_of_one_size_serves_another_and_none_is_lost() {
    let server = server();
    let mut client = Client::connect(&server);
    let mut first: Vec<usize> = Vec::new();
    for round in 0..3 {
        for (index, bytes) in [10_000, 300, 100_000].into_iter().enumerate() {
            let mut best = 0;
            let begin = Instant::now();
            // What was deleted comes back within the grace.
            while begin.elapsed() < SPACE_COMES_BACK {
                let count = fill(&mut client, bytes);
                best = best.max(count);
                delete(&mut client, 0..count);
                if round > 0 && best * 100 >= first[index] * 95 {
                    break;
                }
                if round == 0 && best * bytes * 2 >= POOL {
                    break;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            assert_eq!(client.command(&["DBSIZE"]), Reply::Integer(0));
            if round == 0 {
                first.push(best);
            }
            assert!(
                best * 100 >= first[index] * 95,
                "round {round}: {best} values of {bytes} B fit, {} at first",
                first[index]
            );
        }
    }
}
