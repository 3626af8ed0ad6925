//! Keyspace notifications: who listens learns what happens to keys, in Redis's words.

mod common;

use common::{Client, Gateway, config};
use gateway::config::Config;
use gateway::testing::MemoryKeyspace;

fn address(gateway: &Gateway) -> std::net::SocketAddr {
    gateway.server().addresses()[0]
}

/// The next message as channel and payload.
fn message(listener: &mut Client) -> String {
    let text = String::from_utf8(listener.reply()).unwrap();
    let words: Vec<&str> = text.split("\r\n").collect();
    assert_eq!(words[2], "pmessage", "{text}");
    format!("{} {}", words[6], words[8])
}

fn listener(address: std::net::SocketAddr) -> Client {
    let mut listener = Client::connect(address);
    assert!(listener.ask("PSUBSCRIBE __key*").contains("psubscribe"));
    listener
}

/// What every command tells, up to a message that ends it.
fn told(address: std::net::SocketAddr, commands: &[&str]) -> Vec<(String, Vec<String>)> {
    let mut client = Client::connect(address);
    client.ask("FLUSHALL");
    assert!(client.ask("CONFIG SET notify-keyspace-events KEAn").contains("OK"));
    let mut listener = listener(address);
    let mut all = Vec::new();
    for words in commands {
        let reply = client.ask(words);
        assert!(client.ask("PUBLISH __key-end x").starts_with(':'));
        let mut messages = Vec::new();
        loop {
            let next = message(&mut listener);
            if next == "__key-end x" {
                break;
            }
            messages.push(next);
        }
        all.push((format!("{words}: {reply}"), messages));
    }
    client.call(&["CONFIG", "SET", "notify-keyspace-events", ""]);
    all
}

const COMMANDS: &[&str] = &[
    "SET a 1",
    "SET a 2",
    "SET a 3 NX",
    "SET a 3 XX",
    "SET a 3 EX 100",
    "SET a 3 KEEPTTL",
    "SET new 1 PX 100000 GET",
    "SETNX a 1",
    "SETNX b 1",
    "SETEX b 100 1",
    "PSETEX c 100000 1",
    "GETSET c 2",
    "GETSET nosuch 2",
    "GETDEL nosuch",
    "GETDEL nosuch",
    "GETEX c",
    "GETEX c EX 10",
    "GETEX c PERSIST",
    "APPEND a x",
    "APPEND d x",
    "SETRANGE d 1 y",
    "SETRANGE nosuch 0",
    "INCR n",
    "DECR n",
    "INCRBY n 3",
    "DECRBY n 3",
    "INCR a",
    "INCRBYFLOAT n 0.5",
    "MSET a 1 e 2",
    "MSET a 1",
    "MSETNX a 1 f 2",
    "MSETNX g 1 f 2",
    "EXPIRE a 100",
    "EXPIRE nosuch 100",
    "PEXPIRE a 100000 NX",
    "PERSIST a",
    "PERSIST a",
    "EXPIREAT g 1",
    "PEXPIREAT a 99999999999999",
    "RENAME a b",
    "RENAME b fresh",
    "RENAMENX fresh c",
    "RENAMENX fresh fresher",
    "COPY fresher c",
    "COPY fresher copied",
    "COPY fresher copied REPLACE",
    "MOVE copied 5",
    "MOVE copied 5",
    "SETBIT bits 3 1",
    "BITOP NOT bits2 bits",
    "BITOP AND bits2 nosuch",
    "BITFIELD bits SET u8 0 7",
    "BITFIELD bits GET u8 0",
    "HSET h f 1 g 2",
    "HMSET h f 1",
    "HSETNX h f 1",
    "HSETNX h i 1",
    "HINCRBY h f 1",
    "HINCRBYFLOAT h f 1.5",
    "HDEL h nosuch",
    "HDEL h f",
    "HDEL h g i",
    "DEL c d nosuch",
    "UNLINK e",
    "DEL e",
    "EVAL redis.call('set',KEYS[1],1)redis.call('del',KEYS[1]) 1 s",
    "GET n",
];

/// Each command tells what redis-server tells.
#[test]
fn commands_tell_what_they_tell_in_redis() {
    let redis = common::redis::Redis::start();
    let gateway = Gateway::start();
    let theirs = told(redis.address, COMMANDS);
    let ours = told(address(&gateway), COMMANDS);
    let differences: Vec<_> =
        ours.iter().zip(&theirs).filter(|(ours, theirs)| ours != theirs).collect();
    assert!(differences.is_empty(), "(ours, theirs): {differences:#?}");
}

#[test]
fn a_transaction_tells_once_it_is_done_and_only_then() {
    let gateway = Gateway::start();
    let mut client = gateway.client();
    client.ask("CONFIG SET notify-keyspace-events E$g");
    let mut listener = listener(address(&gateway));
    client.ask("MULTI");
    for words in ["SET a 1", "SET a x", "INCR a", "RENAME nosuch b", "DEL a"] {
        client.ask(words);
    }
    assert!(client.ask("EXEC").starts_with("*5"));
    // What a failed EXEC would have written is not told.
    client.ask("WATCH a");
    gateway.client().ask("SET a 2");
    client.ask("MULTI");
    client.ask("DEL a");
    assert!(client.ask("EXEC").starts_with("*-1"));
    client.ask("APPEND a 3");
    let wanted = ["set a", "set a", "del a", "set a", "append a"]
        .map(|event| format!("__keyevent@0__:{event}"));
    let got: Vec<String> = wanted.iter().map(|_| message(&mut listener)).collect();
    assert_eq!(got, wanted);
}

#[test]
fn a_pipeline_of_sets_tells_of_each_in_order() {
    let settings = Config { notify_keyspace_events: "KA".into(), ..config() };
    let gateway = Gateway::with(&settings, MemoryKeyspace::default());
    let mut client = gateway.client();
    assert!(client.ask("CONFIG GET notify-keyspace-events").contains("AK"));
    let mut listener = listener(address(&gateway));
    client.ask("SELECT 3");
    let frames: Vec<u8> =
        (0..50).flat_map(|n| common::encode(&["SET", &format!("k{n}"), "v"])).collect();
    client.send(&frames);
    for n in 0..50 {
        assert_eq!(client.reply(), b"+OK\r\n");
        assert_eq!(message(&mut listener), format!("__keyspace@3__:k{n} set"));
    }
    assert!(client.ask("CONFIG SET notify-keyspace-events KEy").contains("Invalid event class"));
}

#[test]
fn the_end_of_a_key_is_told_once() {
    let settings = Config { workers: 2, notify_keyspace_events: "Ex".into(), ..config() };
    let gateway = Gateway::over_the_store(&settings);
    let mut client = gateway.client();
    let mut listener = listener(address(&gateway));
    // Those are found by who looks for them, and by who asks for the key.
    for n in 0..20 {
        client.ask(&format!("SET unasked{n} v PX 30"));
        client.ask(&format!("SET asked{n} v PX 20"));
        common::redis::pause(std::time::Duration::from_millis(25));
        assert_eq!(client.ask(&format!("GET asked{n}")), "$-1\\r\\n");
    }
    let mut got: Vec<String> = (0..40).map(|_| message(&mut listener)).collect();
    got.sort();
    let mut wanted: Vec<String> = (0..20)
        .flat_map(|n| ["asked", "unasked"].map(|name| format!("__keyevent@0__:expired {name}{n}")))
        .collect();
    wanted.sort();
    assert_eq!(got, wanted);
    client.ask("PUBLISH __key-end x");
    assert_eq!(message(&mut listener), "__key-end x");
}
