//! Values and libraries of functions move to redis-server and back: what one dumps is for
//! the other to restore.

mod common;

use common::redis::Redis;
use common::{Client, Gateway};

/// Strings and hashes in every form that Redis has for them.
fn fill(client: &mut Client) -> Vec<String> {
    let numbers = [
        "0",
        "-1",
        "127",
        "-128",
        "128",
        "32767",
        "-32769",
        "2147483647",
        "-2147483649",
        "9223372036854775807",
        "12",
        "007",
    ];
    let mut keys = Vec::new();
    let mut set = |client: &mut Client, key: String, value: &[u8]| {
        assert_eq!(client.call(&[b"SET", key.as_bytes(), value]), b"+OK\r\n");
        keys.push(key);
    };
    for number in numbers {
        set(client, format!("n:{number}"), number.as_bytes());
    }
    for length in [0, 1, 20, 21, 63, 64, 300, 16_384, 70_000] {
        set(client, format!("x:{length}"), &vec![b'x'; length]);
        let mixed: Vec<u8> = (0..length).map(|at| (at * 31 + at / 7) as u8).collect();
        set(client, format!("m:{length}"), &mixed);
    }
    for fields in [1, 5, 128, 600] {
        let key = format!("h:{fields}");
        for field in 0..fields {
            let name = format!("field{field}");
            let value = match field % 4 {
                0 => numbers[field / 4 % numbers.len()].as_bytes().to_vec(),
                1 => vec![b'v'; field % 60],
                2 => format!("{}", field as i64 * 100_000 - 7_000_000).into_bytes(),
                _ => vec![0xff, 0, b'\r', b'\n'],
            };
            client.call(&[b"HSET", key.as_bytes(), name.as_bytes(), &value]);
        }
        keys.push(key);
    }
    client.call(&["HSET", "h:long", "f", &"y".repeat(5000), "g", ""]);
    keys.push("h:long".to_owned());
    keys
}

fn bulk(reply: &[u8]) -> &[u8] {
    let end = reply.windows(2).position(|window| window == b"\r\n").expect("a reply");
    assert_eq!(reply[0], b'$', "{}", reply.escape_ascii());
    &reply[end + 2..reply.len() - 2]
}

/// What is under a key, in an order that is the same everywhere.
fn content(client: &mut Client, key: &str) -> Vec<Vec<u8>> {
    if client.ask(&format!("TYPE {key}")).contains("string") {
        return vec![client.call(&["GET", key])];
    }
    let names = client.call(&["HKEYS", key]);
    let names = String::from_utf8(names).expect("the names are text");
    let mut names: Vec<&str> =
        names.lines().filter(|line| line.starts_with('f') || *line == "g").collect();
    names.sort_unstable();
    names
        .iter()
        .flat_map(|name| [name.as_bytes().to_vec(), client.call(&["HGET", key, name])])
        .collect()
}

fn moves(from: &mut Client, to: &mut Client, keys: &[String]) {
    for key in keys {
        let dumped = from.call(&["DUMP", key]);
        let restored = to.call(&[b"RESTORE", key.as_bytes(), b"0", bulk(&dumped)]);
        assert_eq!(restored, b"+OK\r\n", "{key}: {}", restored.escape_ascii());
        assert!(content(from, key) == content(to, key), "{key} came back changed");
        assert_eq!(from.call(&["DEL", key]), b":1\r\n");
    }
}

#[test]
fn values_move_to_redis_and_back() {
    let redis = Redis::start();
    let gateway = Gateway::start();
    let (mut theirs, mut ours) = (Client::connect(redis.address), gateway.client());
    let keys = fill(&mut theirs);
    moves(&mut theirs, &mut ours, &keys);
    moves(&mut ours, &mut theirs, &keys);
}

#[test]
fn restore_answers_as_redis_does() {
    let redis = Redis::start();
    let gateway = Gateway::start();
    let mut clients = [Client::connect(redis.address), gateway.client()];
    clients[0].ask("SET k hello");
    let dumped = clients[0].call(&["DUMP", "k"]);
    let payload = bulk(&dumped).to_vec();
    clients[0].ask("DEL k");
    let mut broken = payload.clone();
    broken[3] ^= 1;
    let requests: [(&[&str], &[u8]); 14] = [
        (&["0"], &payload),
        (&["0"], &payload),
        (&["-1"], &payload),
        (&["-1", "REPLACE"], &payload),
        (&["0", "REPLACE"], &broken),
        (&["0", "REPLACE"], b""),
        (&["0", "REPLACE"], &payload[..9]),
        (&["1000", "REPLACE", "ABSTTL"], &payload),
        (&["x", "REPLACE"], &payload),
        (&["100000", "replace", "idletime", "5", "freq"], &payload),
        (&["100000", "replace", "idletime", "-5"], &payload),
        (&["100000", "replace", "freq", "256"], &payload),
        (&["100000", "replace", "nosuch"], &payload),
        (&["100000", "replace", "idletime", "5"], &payload),
    ];
    for (words, payload) in requests {
        let mut request: Vec<&[u8]> = vec![b"RESTORE", b"k", words[0].as_bytes(), payload];
        request.extend(words[1..].iter().map(|word| word.as_bytes()));
        let replies = clients.each_mut().map(|client| {
            let told = client.call(&request);
            [told, client.call(&["GET", "k"])].map(|reply| reply.escape_ascii().to_string())
        });
        assert_eq!(replies[1], replies[0], "{words:?}");
    }
    for client in &mut clients {
        let left = client.ask("TTL k");
        assert!(left.starts_with(":100") || left.starts_with(":99"), "{left}");
        assert_eq!(client.ask("DUMP nosuch"), "$-1\\r\\n");
    }
}

fn library(name: &str, functions: &[&str]) -> String {
    let register = |function: &&str| {
        format!("redis.register_function('{function}', function(keys) return '{name}' end)\n")
    };
    format!("#!lua name={name}\n{}", functions.iter().map(register).collect::<String>())
}

#[test]
fn libraries_move_to_redis_and_back() {
    let redis = Redis::start();
    let gateway = Gateway::start();
    let (mut theirs, mut ours) = (Client::connect(redis.address), gateway.client());
    for name in ["small", "large"] {
        let names: Vec<String> = (0..name.len() * 30).map(|n| format!("{name}{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        theirs.call(&["FUNCTION", "LOAD", &library(name, &names)]);
    }
    let dumped = theirs.call(&["FUNCTION", "DUMP"]);
    assert_eq!(ours.call(&[&b"FUNCTION"[..], b"RESTORE", bulk(&dumped)]), b"+OK\r\n");
    assert_eq!(ours.ask("FCALL large7 0"), "$5\\r\\nlarge\\r\\n");
    let dumped = ours.call(&["FUNCTION", "DUMP"]);
    assert_eq!(theirs.call(&[&b"FUNCTION"[..], b"RESTORE", bulk(&dumped), b"FLUSH"]), b"+OK\r\n");
    assert_eq!(theirs.ask("FCALL small9 0"), "$5\\r\\nsmall\\r\\n");
}

#[test]
fn libraries_are_restored_beside_others_as_in_redis() {
    let redis = Redis::start();
    let gateway = Gateway::start();
    let mut clients = [Client::connect(redis.address), gateway.client()];
    clients[0].call(&["FUNCTION", "LOAD", &library("a", &["f"])]);
    let dumped = clients[0].call(&["FUNCTION", "DUMP"]);
    clients[0].ask("SET k v");
    let value = clients[0].call(&["DUMP", "k"]);
    let a = bulk(&dumped);
    let mut say = |request: &[&[u8]]| {
        let [theirs, ours] = clients.each_mut().map(|client| client.call(request));
        assert_eq!(ours.escape_ascii().to_string(), theirs.escape_ascii().to_string());
        ours
    };
    say(&[b"FUNCTION", b"FLUSH"]);
    say(&[b"FUNCTION", b"LOAD", library("b", &["f"]).as_bytes()]);
    for policy in [&b"append"[..], b"replace", b"nosuch"] {
        assert!(say(&[b"FUNCTION", b"RESTORE", a, policy]).starts_with(b"-ERR"));
    }
    assert_eq!(say(&[b"FUNCTION", b"RESTORE", a, b"flush"]), b"+OK\r\n");
    assert_eq!(say(&[b"FCALL", b"f", b"0"]), b"$1\r\na\r\n");
    assert!(say(&[b"FUNCTION", b"RESTORE", a]).starts_with(b"-ERR Library a"));
    assert_eq!(say(&[b"FUNCTION", b"RESTORE", a, b"REPLACE"]), b"+OK\r\n");
    for payload in [&a[..a.len() - 1], bulk(&value), b""] {
        assert!(say(&[b"FUNCTION", b"RESTORE", payload, b"FLUSH"]).starts_with(b"-ERR"));
    }
    say(&[b"FUNCTION", b"RESTORE", a, b"append", b"more"]);
    assert_eq!(say(&[b"FCALL", b"f", b"0"]), b"$1\r\na\r\n");
}
