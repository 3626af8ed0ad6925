//! MULTI, EXEC, WATCH, over sockets.

mod common;

use common::{Gateway, config};
use gateway::testing::MemoryKeyspace;

/// A gateway on keys of its own, and one on a store.
fn gateways() -> [Gateway; 2] {
    [Gateway::start(), Gateway::over_the_store(&config())]
}

/// Words sent by one client, and the bytes of the reply.
fn check(client: &mut common::Client, cases: &[(&str, &str)]) {
    for (words, expected) in cases {
        let reply = client.ask(words);
        assert_eq!(reply, format!("{expected}\\r\\n"), "{words}");
    }
}

#[test]
fn what_is_kept_runs_at_exec_in_its_order() {
    for gateway in gateways() {
        let mut client = gateway.client();
        check(
            &mut client,
            &[
                ("MULTI", "+OK"),
                ("SET a 1", "+QUEUED"),
                ("INCR a", "+QUEUED"),
                ("GET a", "+QUEUED"),
                ("MGET a b", "+QUEUED"),
                ("LPUSHX", "-ERR unknown command \\'LPUSHX\\', with args beginning with: "),
                ("DISCARD", "+OK"),
                ("GET a", "$-1"),
                ("MULTI", "+OK"),
                ("SET a 1", "+QUEUED"),
                ("INCR a", "+QUEUED"),
                ("APPEND a x", "+QUEUED"),
                ("INCR a", "+QUEUED"),
                ("SELECT 1", "+QUEUED"),
                ("EXISTS a", "+QUEUED"),
                ("PING", "+QUEUED"),
                (
                    "EXEC",
                    "*7\\r\\n+OK\\r\\n:2\\r\\n:2\\r\\n-ERR value is not an integer or out of range\\r\\n+OK\\r\\n:0\\r\\n+PONG",
                ),
                ("EXISTS a", ":0"),
                ("SELECT 0", "+OK"),
                ("GET a", "$2\\r\\n2x"),
                ("MULTI", "+OK"),
                ("EXEC", "*0"),
            ],
        );
    }
}

#[test]
fn what_was_refused_keeps_all_from_running() {
    for gateway in gateways() {
        let mut client = gateway.client();
        check(
            &mut client,
            &[
                ("EXEC", "-ERR EXEC without MULTI"),
                ("DISCARD", "-ERR DISCARD without MULTI"),
                ("MULTI", "+OK"),
                ("MULTI", "-ERR MULTI calls can not be nested"),
                ("WATCH a", "-ERR WATCH inside MULTI is not allowed"),
                ("SET a 1", "+QUEUED"),
                ("EXEC", "*1\\r\\n+OK"),
                ("MULTI", "+OK"),
                ("SET a 2", "+QUEUED"),
                ("SET a", "-ERR wrong number of arguments for \\'set\\' command"),
                ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
                ("GET a", "$1\\r\\n1"),
                ("MULTI", "+OK"),
                ("MONITOR", "-ERR Command not allowed inside a transaction"),
                ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
                ("MULTI", "+OK"),
                ("SET a 3", "+QUEUED"),
                ("RESET", "+RESET"),
                ("EXEC", "-ERR EXEC without MULTI"),
                ("GET a", "$1\\r\\n1"),
            ],
        );
    }
}

#[test]
fn a_watched_key_that_changes_keeps_all_from_running() {
    for gateway in gateways() {
        let mut client = gateway.client();
        let mut other = gateway.client();
        check(
            &mut client,
            &[
                ("SET a 1", "+OK"),
                ("WATCH a b", "+OK"),
                ("MULTI", "+OK"),
                ("SET c 1", "+QUEUED"),
                ("EXEC", "*1\\r\\n+OK"),
                ("WATCH a b", "+OK"),
            ],
        );
        check(&mut other, &[("SET b 1", "+OK")]);
        check(
            &mut client,
            &[
                ("MULTI", "+OK"),
                ("SET c 2", "+QUEUED"),
                ("EXEC", "*-1"),
                ("GET c", "$1\\r\\n1"),
                ("WATCH a", "+OK"),
                ("UNWATCH", "+OK"),
            ],
        );
        check(&mut other, &[("SET a 1", "+OK")]);
        check(
            &mut client,
            &[
                ("MULTI", "+OK"),
                ("SET c 2", "+QUEUED"),
                ("EXEC", "*1\\r\\n+OK"),
                ("WATCH a", "+OK"),
            ],
        );
        // The same value is a change, too.
        check(&mut other, &[("SET a 1", "+OK")]);
        check(&mut client, &[("MULTI", "+OK"), ("GET a", "+QUEUED"), ("EXEC", "*-1")]);
    }
}

#[test]
fn a_key_that_is_refused_keeps_the_others_from_being_written() {
    let gateway = Gateway::over_the_store(&config());
    let mut client = gateway.client();
    let long = "k".repeat(8 << 20);
    for words in [["MSET", "a", "1", &long, "2"], ["MSETNX", "a", "1", &long, "2"]] {
        let reply = client.call(&words);
        assert!(reply.starts_with(b"-ERR"), "{}", reply.escape_ascii());
        assert_eq!(client.ask("EXISTS a"), ":0\\r\\n");
    }
    // One that fails in the middle takes back what it has done, and no more.
    assert_eq!(client.ask("MULTI"), "+OK\\r\\n");
    assert_eq!(client.ask("SET b 1"), "+QUEUED\\r\\n");
    let _ = client.call(&["MSET", "a", "1", &long, "2"]);
    let reply = client.ask("EXEC");
    assert!(reply.starts_with("*2\\r\\n+OK\\r\\n-ERR"), "{reply}");
    assert_eq!(client.ask("MGET a b"), "*2\\r\\n$-1\\r\\n$1\\r\\n1\\r\\n");
}

#[test]
fn a_value_there_is_no_room_for_keeps_the_others_from_being_written() {
    let gateway = Gateway::with(&config(), MemoryKeyspace::with_capacity(1000));
    let mut client = gateway.client();
    let large = "v".repeat(2000);
    for command in ["MSET", "MSETNX"] {
        let reply = client.call(&[command, "a", "1", "b", &large]);
        assert!(reply.starts_with(b"-OOM"), "{}", reply.escape_ascii());
        assert_eq!(client.ask("EXISTS a b"), ":0\\r\\n");
    }
    // Of EXEC it takes back the one command, not what ran before.
    assert_eq!(client.ask("MULTI"), "+OK\\r\\n");
    assert_eq!(client.ask("SET c 1"), "+QUEUED\\r\\n");
    let _ = client.call(&["MSET", "a", "1", "b", &large]);
    let reply = client.ask("EXEC");
    assert!(reply.starts_with("*2\\r\\n+OK\\r\\n-OOM"), "{reply}");
    assert_eq!(client.ask("EXISTS a b c"), ":1\\r\\n");
}

#[test]
fn commands_of_several_keys_do_all_or_nothing() {
    for gateway in gateways() {
        let mut client = gateway.client();
        check(
            &mut client,
            &[
                ("MSET a 1 b 2 a 3", "+OK"),
                ("MGET a b", "*2\\r\\n$1\\r\\n3\\r\\n$1\\r\\n2"),
                ("MSETNX c 1 b 5", ":0"),
                ("EXISTS c", ":0"),
                ("MSETNX c 1 d 5 c 6", ":1"),
                ("MGET c d", "*2\\r\\n$1\\r\\n6\\r\\n$1\\r\\n5"),
                ("RENAME c e", "+OK"),
                ("RENAMENX d e", ":0"),
                ("RENAME c e", "-ERR no such key"),
                ("COPY e f", ":1"),
                ("MGET c e f", "*3\\r\\n$-1\\r\\n$1\\r\\n6\\r\\n$1\\r\\n6"),
                ("DEL a b c d e f", ":5"),
            ],
        );
    }
}
