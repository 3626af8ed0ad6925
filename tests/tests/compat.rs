//! Faults that other servers of this protocol had, and their siblings. Each test
//! names the report that it comes from.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tests::resp::{Client, Reply, push_command};
use tests::server::{Options, Server};

fn server() -> Server {
    Server::under_test(&Options { memory_mib: Some(512), workers: Some(2), ..Options::default() })
}

fn assert_error(client: &mut Client, command: &[&str], begin: &str) {
    let reply = client.command(command);
    assert!(reply.is_error(begin), "{command:?} got {reply:?}");
}

/// redis 15640
#[test]
fn a_failing_auth_amid_a_pipeline_gets_its_reply_and_so_do_all() {
    let server = server();
    let mut client = Client::connect(&server);
    let replies = client.pipeline(&[
        &["SET", "k", "v"],
        &["AUTH", "nobody", "wrong"],
        &["GET", "k"],
        &["AUTH", "a", "b", "c"],
        &["PING"],
    ]);
    assert_eq!(replies[0], Reply::ok());
    assert!(replies[1].is_error("WRONGPASS "));
    assert_eq!(replies[2], Reply::bulk("v"));
    assert!(replies[3].is_error("ERR syntax error"));
    assert_eq!(replies[4], Reply::Simple("PONG".into()));

    assert_eq!(client.command(&["CONFIG", "SET", "requirepass", "secret"]), Reply::ok());
    let mut other = Client::connect(&server);
    let replies = other.pipeline(&[
        &["GET", "k"],
        &["AUTH", "wrong"],
        &["GET", "k"],
        &["AUTH", "secret"],
        &["GET", "k"],
    ]);
    assert!(replies[0].is_error("NOAUTH ") && replies[2].is_error("NOAUTH "));
    assert!(replies[1].is_error("WRONGPASS "));
    assert_eq!(replies[3..], [Reply::ok(), Reply::bulk("v")]);
}

/// redis 8906
#[test]
fn set_with_nx_and_get_returns_the_old_value_and_sets_only_what_is_not_there() {
    let server = server();
    let mut client = Client::connect(&server);
    assert_eq!(client.command(&["SET", "k", "1", "NX", "GET"]), Reply::Null);
    assert_eq!(client.command(&["SET", "k", "2", "NX", "GET"]), Reply::bulk("1"));
    assert_eq!(client.command(&["GET", "k"]), Reply::bulk("1"));
    assert_eq!(client.command(&["SET", "k", "3", "GET", "XX", "EX", "100"]), Reply::bulk("1"));
    assert_eq!(client.command(&["SET", "none", "3", "XX", "GET"]), Reply::Null);
    assert_eq!(client.command(&["EXISTS", "none"]), Reply::Integer(0));
    client.command(&["HSET", "h", "f", "v"]);
    assert_error(&mut client, &["SET", "h", "1", "NX", "GET"], "WRONGTYPE ");
    assert_eq!(client.command(&["TYPE", "h"]), Reply::Simple("hash".into()));
}

/// redis 15626
#[test]
fn a_px_that_overflows_is_refused_and_leaves_the_key_alone() {
    let server = server();
    let mut client = Client::connect(&server);
    client.command(&["SET", "k", "v", "EX", "1000"]);
    for option in ["PX", "EX", "EXAT"] {
        let command = ["SET", "k", "w", option, "9223372036854775807"];
        assert_error(&mut client, &command, "ERR invalid expire time in 'set' command");
        let command = ["GETEX", "k", option, "9223372036854775807"];
        assert_error(&mut client, &command, "ERR invalid expire time in 'getex' command");
    }
    assert_eq!(client.command(&["GET", "k"]), Reply::bulk("v"));
    assert!((990..=1000).contains(&client.command(&["TTL", "k"]).integer()));
}

/// redis 9825
#[test]
fn expire_and_setex_overflow_alike() {
    let server = server();
    let mut client = Client::connect(&server);
    client.command(&["SET", "k", "v"]);
    for seconds in ["9223372036854775807", "9223372036854776", "-9223372036854775808"] {
        assert_error(
            &mut client,
            &["EXPIRE", "k", seconds],
            "ERR invalid expire time in 'expire' command",
        );
        assert_error(
            &mut client,
            &["SETEX", "k", seconds, "w"],
            "ERR invalid expire time in 'setex' command",
        );
        assert_error(
            &mut client,
            &["EXPIREAT", "k", seconds],
            "ERR invalid expire time in 'expireat' command",
        );
    }
    let most = "9223372036854775807";
    assert_error(
        &mut client,
        &["PEXPIRE", "k", most],
        "ERR invalid expire time in 'pexpire' command",
    );
    assert_error(
        &mut client,
        &["PSETEX", "k", most, "w"],
        "ERR invalid expire time in 'psetex' command",
    );
    assert_eq!(client.command(&["GET", "k"]), Reply::bulk("v"));
    assert_eq!(client.command(&["TTL", "k"]), Reply::Integer(-1));
}

/// kvrocks 1278
#[test]
fn a_key_whose_time_is_over_is_gone_for_every_command() {
    let server = server();
    let mut client = Client::connect(&server);
    for (name, command) in [("s", vec!["SET", "s", "v"]), ("h", vec!["HSET", "h", "f", "v"])] {
        client.command(&command);
        assert_eq!(client.command(&["PEXPIRE", name, "30"]), Reply::Integer(1));
    }
    std::thread::sleep(Duration::from_millis(60));
    for name in ["s", "h"] {
        assert_eq!(client.command(&["TYPE", name]), Reply::Simple("none".into()));
        assert_eq!(client.command(&["EXISTS", name]), Reply::Integer(0));
        assert_eq!(client.command(&["TTL", name]), Reply::Integer(-2));
        assert_eq!(client.command(&["OBJECT", "ENCODING", name]), Reply::Null);
        assert_eq!(client.command(&["COPY", name, "c"]), Reply::Integer(0));
        assert_error(&mut client, &["RENAME", name, "c"], "ERR no such key");
        assert_eq!(client.command(&["PERSIST", name]), Reply::Integer(0));
    }
    assert_eq!(client.command(&["HGETALL", "h"]), Reply::Array(vec![]));
    assert_eq!(client.command(&["HSET", "s", "f", "v"]), Reply::Integer(1), "no string any more");
    assert_eq!(client.command(&["TTL", "s"]), Reply::Integer(-1));
    assert_eq!(client.command(&["KEYS", "*"]), Reply::Array(vec![Reply::bulk("s")]));
}

/// garnet 1389
#[test]
fn the_ttl_right_after_expire_is_what_was_said() {
    let server = server();
    let mut client = Client::connect(&server);
    for number in 0..50 {
        let key = format!("k{number}");
        client.command(&["SET", &key, "v"]);
        assert_eq!(client.command(&["EXPIRE", &key, "10"]), Reply::Integer(1));
        assert_eq!(client.command(&["TTL", &key]), Reply::Integer(10));
        assert_eq!(client.command(&["SET", &key, "v", "EX", "7"]), Reply::ok());
        assert_eq!(client.command(&["TTL", &key]), Reply::Integer(7));
    }
}

/// redis 9588
#[test]
fn what_comes_before_auth_is_small() {
    let server = server();
    let mut owner = Client::connect(&server);
    assert_eq!(owner.command(&["CONFIG", "SET", "requirepass", "secret"]), Reply::ok());
    for request in ["*11\r\n", "*1000000\r\n"] {
        let mut client = Client::connect(&server);
        client.send(request.as_bytes()).unwrap();
        let reply = client.receive().unwrap();
        assert!(
            reply.is_error("ERR Protocol error: unauthenticated multibulk length"),
            "{reply:?}"
        );
        assert!(client.is_closed());
    }
    let mut client = Client::connect(&server);
    client.send(b"*2\r\n$4\r\nAUTH\r\n$16385\r\n").unwrap();
    let reply = client.receive().unwrap();
    assert!(reply.is_error("ERR Protocol error: unauthenticated bulk length"), "{reply:?}");
    assert!(client.is_closed());
    // The same sizes are fine for who has authenticated, in the same pipeline.
    let long = "x".repeat(20_000);
    let mut client = Client::connect(&server);
    let replies = client.pipeline(&[&["AUTH", "secret"], &["SET", "k", &long], &["STRLEN", "k"]]);
    assert_eq!(replies, [Reply::ok(), Reply::ok(), Reply::Integer(20_000)]);
}

/// redis 5632
#[test]
fn a_nul_in_a_pattern_is_a_byte_like_any_other() {
    let server = server();
    let mut client = Client::connect(&server);
    for key in [&b"a\0b"[..], b"a\0c", b"a", b"ab"] {
        client.command(&[b"SET", key, b"v"]);
    }
    for (pattern, expected) in
        [(&b"a\0b"[..], 1), (b"a\0*", 2), (b"a?b", 1), (b"a[\0]c", 1), (b"*\0*", 2), (b"a\0", 0)]
    {
        let Reply::Array(keys) = client.command(&[b"KEYS", pattern]) else { panic!("an array") };
        assert_eq!(keys.len(), expected, "{}", pattern.escape_ascii());
        let (mut cursor, mut scanned) = ("0".to_owned(), 0);
        loop {
            let command = [&b"SCAN"[..], cursor.as_bytes(), b"MATCH", pattern, b"COUNT", b"1000"];
            let Reply::Array(found) = client.command(&command) else { panic!("an array") };
            let Reply::Array(keys) = &found[1] else { panic!("an array") };
            scanned += keys.len();
            cursor = found[0].text();
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(scanned, expected, "{}", pattern.escape_ascii());
    }
}

/// garnet 1947
#[test]
fn an_offset_beyond_the_longest_string_is_an_error_and_no_disconnect() {
    let server = server();
    let mut client = Client::connect(&server);
    let too_long = "ERR string exceeds maximum allowed size";
    let bad_offset = "ERR bit offset is not an integer or out of range";
    for offset in ["536870912", "4294967295", "9223372036854775807"] {
        assert_error(&mut client, &["SETRANGE", "k", offset, "v"], too_long);
    }
    assert_error(&mut client, &["SETRANGE", "k", "-1", "v"], "ERR offset is out of range");
    for offset in ["4294967296", "9223372036854775807", "-1"] {
        assert_error(&mut client, &["SETBIT", "k", offset, "1"], bad_offset);
        assert_error(&mut client, &["GETBIT", "k", offset], bad_offset);
        assert_error(&mut client, &["BITFIELD", "k", "SET", "u8", offset, "1"], bad_offset);
    }
    assert_error(&mut client, &["BITFIELD", "k", "SET", "u8", "#536870912", "1"], bad_offset);
    assert_eq!(client.command(&["EXISTS", "k"]), Reply::Integer(0));
}

/// kvrocks 808
#[test]
fn an_inline_command_may_end_with_a_line_feed_alone() {
    let server = server();
    let mut client = Client::connect(&server);
    client.send(b"SET k v\nGET k\r\nPING\n\nHSET h f 'a b'\nHGET h f\n").unwrap();
    let replies: Vec<Reply> = (0..5).map(|_| client.receive().unwrap()).collect();
    let pong = Reply::Simple("PONG".into());
    assert_eq!(
        replies,
        [Reply::ok(), Reply::bulk("v"), pong, Reply::Integer(1), Reply::bulk("a b")]
    );
}

/// dragonfly 6518
#[test]
fn replies_before_quit_arrive() {
    let server = server();
    let mut client = Client::connect(&server);
    let value = "v".repeat(1 << 20);
    client.command(&["SET", "big", &value]);
    let mut frames = Vec::new();
    for _ in 0..20 {
        push_command(&mut frames, &["GET", "big"]);
    }
    push_command(&mut frames, &["QUIT"]);
    push_command(&mut frames, &["PING"]);
    client.send(&frames).unwrap();
    for _ in 0..20 {
        assert_eq!(client.receive().unwrap(), Reply::bulk(value.clone()));
    }
    assert_eq!(client.receive().unwrap(), Reply::ok());
    assert!(client.is_closed());
    // Whoever listens may end as well.
    let mut client = Client::connect(&server);
    let replies = client.pipeline(&[&["SUBSCRIBE", "a"], &["QUIT"]]);
    assert_eq!(replies[1], Reply::ok());
    assert!(client.is_closed());
}

/// dragonfly 8193
#[test]
fn clients_are_killed_by_all_that_is_said_of_them() {
    let server = server();
    let mut me = Client::connect(&server);
    let mut others: Vec<Client> = (0..3).map(|_| Client::connect(&server)).collect();
    let ids: Vec<String> = others
        .iter_mut()
        .map(|other| other.command(&["CLIENT", "ID"]).integer().to_string())
        .collect();
    let own = me.command(&["CLIENT", "ID"]).integer().to_string();
    let kill = |me: &mut Client, filter: &[&str]| {
        me.command(&[&["CLIENT", "KILL"], filter].concat()).integer()
    };
    let address = me.stream().local_addr().unwrap().to_string();
    assert_eq!(kill(&mut me, &["ID", &ids[0], "ADDR", &address]), 0, "both must be true");
    assert_eq!(kill(&mut me, &["ID", &own]), 0, "SKIPME is yes");
    assert_eq!(kill(&mut me, &["ID", &ids[0]]), 1);
    assert!(others[0].is_closed());
    let local = server.address().to_string();
    assert_eq!(kill(&mut me, &["LADDR", &local, "ID", &ids[1]]), 1);
    assert!(others[1].is_closed());
    assert_eq!(kill(&mut me, &["TYPE", "pubsub"]), 0);
    assert_eq!(others[2].command(&["PING"]), Reply::Simple("PONG".into()));
    assert_eq!(kill(&mut me, &["TYPE", "normal", "SKIPME", "no"]), 2);
    assert!(others[2].is_closed() && me.is_closed());
}

/// dragonfly 1048
#[test]
fn a_hash_of_fifty_thousand_fields_works_as_one_of_five() {
    const FIELDS: usize = 50_000;
    let server = server();
    let mut client = Client::connect(&server);
    let mut command = vec!["HSET".to_owned(), "h".to_owned()];
    for number in 0..FIELDS {
        command.extend([format!("field:{number}"), format!("value:{number}")]);
    }
    let begin = Instant::now();
    assert_eq!(client.command(&command), Reply::Integer(FIELDS as i64));
    assert_eq!(client.command(&command), Reply::Integer(0), "all are there");
    assert!(begin.elapsed() < Duration::from_secs(10), "it took {:?}", begin.elapsed());
    assert_eq!(client.command(&["HLEN", "h"]), Reply::Integer(FIELDS as i64));
    for number in [0, 1, 777, FIELDS - 1] {
        let field = format!("field:{number}");
        assert_eq!(client.command(&["HGET", "h", &field]), Reply::bulk(format!("value:{number}")));
    }
    let Reply::Array(all) = client.command(&["HGETALL", "h"]) else { panic!("an array") };
    let all: HashMap<String, String> =
        all.chunks(2).map(|pair| (pair[0].text(), pair[1].text())).collect();
    assert_eq!(all.len(), FIELDS);
    assert!(all.iter().all(|(name, value)| name.replace("field", "value") == *value));
    let names: Vec<String> = (0..FIELDS).map(|number| format!("field:{number}")).collect();
    let command = [vec!["HDEL".to_owned(), "h".to_owned()], names].concat();
    assert_eq!(client.command(&command), Reply::Integer(FIELDS as i64));
    assert_eq!(client.command(&["EXISTS", "h"]), Reply::Integer(0));
}

/// dragonfly 8085: RESP3 has one null, for values and arrays alike.
#[test]
fn every_null_of_resp3_is_an_underscore() {
    let server = server();
    let mut client = Client::connect(&server);
    client.command(&["HELLO", "3"]);
    let is_underscore = |client: &mut Client, command: &[&str]| {
        let mut frame = Vec::new();
        push_command(&mut frame, command);
        push_command(&mut frame, &["ECHO", "end"]);
        client.send(&frame).unwrap();
        // A null of RESP2 would read as null as well: look at the bytes.
        let raw = client.receive_line().unwrap();
        assert_eq!(client.receive().unwrap(), Reply::bulk("end"), "{command:?}");
        raw == "_"
    };
    for command in [
        &["GET", "none"][..],
        &["SET", "none", "v", "XX"],
        &["SET", "none", "v", "XX", "GET"],
        &["GETDEL", "none"],
        &["RANDOMKEY"],
        &["HGET", "none", "f"],
        &["HRANDFIELD", "none"],
        &["OBJECT", "ENCODING", "none"],
        &["MEMORY", "USAGE", "none"],
        &["CLIENT", "GETNAME"],
    ] {
        assert!(is_underscore(&mut client, command), "{command:?}");
    }
    let nulls = client.command(&["COMMAND", "INFO", "nothing"]);
    assert_eq!(nulls, Reply::Array(vec![Reply::Null]));
}

/// pikiwidb 2735
#[test]
fn setnx_and_msetnx_on_another_type_are_0() {
    let server = server();
    let mut client = Client::connect(&server);
    client.command(&["HSET", "h", "f", "v"]);
    assert_eq!(client.command(&["SETNX", "h", "v"]), Reply::Integer(0));
    assert_eq!(client.command(&["MSETNX", "new", "1", "h", "v"]), Reply::Integer(0));
    assert_eq!(client.command(&["SET", "h", "v", "NX"]), Reply::Null);
    assert_eq!(client.command(&["EXISTS", "new"]), Reply::Integer(0));
    assert_eq!(client.command(&["HGET", "h", "f"]), Reply::bulk("v"));
    assert_eq!(client.command(&["MGET", "h"]), Reply::Array(vec![Reply::Null]));
    client.command(&["SET", "s", "v"]);
    assert_eq!(client.command(&["RENAMENX", "s", "h"]), Reply::Integer(0));
    assert_eq!(client.command(&["COPY", "s", "h"]), Reply::Integer(0));
    assert_eq!(client.command(&["SET", "h", "v"]), Reply::ok(), "SET replaces any type");
    assert_eq!(client.command(&["TYPE", "h"]), Reply::Simple("string".into()));
}
