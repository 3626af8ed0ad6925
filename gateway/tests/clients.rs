//! What connections do to each other: messages, CLIENT KILL and PAUSE, MONITOR;
//! and what each may do before AUTH.

mod common;

use std::time::{Duration, Instant};

use common::{Client, Gateway, config, encode};
use gateway::config::Config;
use gateway::testing::MemoryKeyspace;

/// Several workers, so that most connections are on others.
fn gateway() -> Gateway {
    Gateway::with(&Config { workers: 3, ..config() }, MemoryKeyspace::default())
}

fn next(client: &mut Client) -> String {
    client.reply().escape_ascii().to_string()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "bounds the test itself")]
fn info_tells_what_has_ended_and_how_much_is_done_at_present() {
    let gateway = Gateway::over_the_store(&Config { workers: 2, ..config() });
    let mut client = gateway.client();
    let number = |info: &str, field: &str| -> f64 {
        let value = info.split(&format!("{field}:")).nth(1).expect("the field is there");
        value.split("\\r").next().expect("a line").parse().expect("a number")
    };
    assert_eq!(number(&client.ask("INFO stats"), "expired_keys"), 0.0);
    for key in 0..10 {
        assert_eq!(client.ask(&format!("SET {key} v PX 1")), "+OK\\r\\n");
    }
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let info = client.ask("INFO stats");
        let busy = number(&info, "instantaneous_ops_per_sec") > 1.0
            && number(&info, "instantaneous_input_kbps") > 0.0
            && number(&info, "instantaneous_output_kbps") > 1.0;
        if number(&info, "expired_keys") == 10.0 && busy {
            break;
        }
        assert!(Instant::now() < until, "{info}");
    }
    client.ask("CONFIG RESETSTAT");
    assert_eq!(number(&client.ask("INFO stats"), "expired_keys"), 0.0);
}

#[test]
fn messages_reach_all_who_listen_on_whatever_worker() {
    let gateway = gateway();
    let mut listeners: Vec<Client> = (0..12).map(|_| gateway.client()).collect();
    for (index, listener) in listeners.iter_mut().enumerate() {
        if index % 3 == 0 {
            assert_eq!(
                listener.ask("PSUBSCRIBE n*s"),
                "*3\\r\\n$10\\r\\npsubscribe\\r\\n$3\\r\\nn*s\\r\\n:1\\r\\n"
            );
        } else {
            assert_eq!(
                listener.ask("SUBSCRIBE news"),
                "*3\\r\\n$9\\r\\nsubscribe\\r\\n$4\\r\\nnews\\r\\n:1\\r\\n"
            );
        }
    }
    let mut speaker = gateway.client();
    for index in 0..100 {
        assert_eq!(speaker.ask(&format!("PUBLISH news {index:03}")), ":12\\r\\n");
    }
    for (number, listener) in listeners.iter_mut().enumerate() {
        for index in 0..100 {
            let expected = if number % 3 == 0 {
                format!(
                    "*4\\r\\n$8\\r\\npmessage\\r\\n$3\\r\\nn*s\\r\\n$4\\r\\nnews\\r\\n$3\\r\\n{index:03}\\r\\n"
                )
            } else {
                format!("*3\\r\\n$7\\r\\nmessage\\r\\n$4\\r\\nnews\\r\\n$3\\r\\n{index:03}\\r\\n")
            };
            assert_eq!(next(listener), expected);
        }
    }
    assert_eq!(
        speaker.ask("PUBSUB NUMSUB news none"),
        "*4\\r\\n$4\\r\\nnews\\r\\n:8\\r\\n$4\\r\\nnone\\r\\n:0\\r\\n"
    );
    assert_eq!(speaker.ask("PUBSUB NUMPAT"), ":1\\r\\n");
    drop(listeners);
    let begin = now();
    while speaker.ask("PUBLISH news x") != ":0\\r\\n" {
        assert!(begin.elapsed() < Duration::from_secs(10), "who is gone still listens");
    }
    assert_eq!(speaker.ask("PUBSUB CHANNELS"), "*0\\r\\n");
}

#[expect(clippy::disallowed_methods, reason = "waits for another thread")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn listeners_in_resp2_may_only_listen() {
    let gateway = gateway();
    let mut client = gateway.client();
    client.ask("SUBSCRIBE a");
    let refused = |name: &str| {
        format!(
            "-ERR Can\\'t execute \\'{name}\\': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
             RESET are allowed in this context\\r\\n"
        )
    };
    assert_eq!(client.ask("GET a"), refused("get"));
    assert_eq!(client.ask("CLIENT ID"), refused("client|id"));
    assert_eq!(client.ask("PING"), "*2\\r\\n$4\\r\\npong\\r\\n$0\\r\\n\\r\\n");
    assert_eq!(client.ask("PING hi"), "*2\\r\\n$4\\r\\npong\\r\\n$2\\r\\nhi\\r\\n");
    assert_eq!(
        client.ask("SSUBSCRIBE s"),
        "*3\\r\\n$10\\r\\nssubscribe\\r\\n$1\\r\\ns\\r\\n:1\\r\\n"
    );
    assert_eq!(
        client.ask("UNSUBSCRIBE"),
        "*3\\r\\n$11\\r\\nunsubscribe\\r\\n$1\\r\\na\\r\\n:0\\r\\n"
    );
    assert_eq!(client.ask("GET a"), refused("get"), "the shard channel is left");
    assert_eq!(
        client.ask("SUNSUBSCRIBE s"),
        "*3\\r\\n$12\\r\\nsunsubscribe\\r\\n$1\\r\\ns\\r\\n:0\\r\\n"
    );
    assert_eq!(client.ask("UNSUBSCRIBE"), "*3\\r\\n$11\\r\\nunsubscribe\\r\\n$-1\\r\\n:0\\r\\n");
    assert_eq!(client.ask("GET a"), "$-1\\r\\n");
    client.ask("SUBSCRIBE a");
    assert_eq!(client.ask("RESET"), "+RESET\\r\\n");
    assert_eq!(client.ask("PUBLISH a x"), ":0\\r\\n");
}

#[test]
fn messages_in_resp3_are_pushes_and_everything_is_allowed() {
    let gateway = gateway();
    let mut client = gateway.client();
    client.ask("HELLO 3");
    assert_eq!(client.ask("SUBSCRIBE a"), ">3\\r\\n$9\\r\\nsubscribe\\r\\n$1\\r\\na\\r\\n:1\\r\\n");
    assert_eq!(client.ask("SET k v"), "+OK\\r\\n");
    assert_eq!(client.ask("PUBLISH a own"), ":1\\r\\n", "the reply comes first");
    assert_eq!(next(&mut client), ">3\\r\\n$7\\r\\nmessage\\r\\n$1\\r\\na\\r\\n$3\\r\\nown\\r\\n");
    assert_eq!(client.ask("SPUBLISH a x"), ":0\\r\\n", "shard channels are others");
}

#[test]
fn who_does_not_take_messages_is_ended_and_nobody_else() {
    let gateway = gateway();
    let mut speaker = gateway.client();
    speaker.ask("CONFIG SET client-output-buffer-limit");
    assert_eq!(
        speaker.call(&["CONFIG", "SET", "client-output-buffer-limit", "pubsub 1mb 0 0"]),
        b"+OK\r\n"
    );
    let mut sleeper = gateway.client();
    sleeper.ask("SUBSCRIBE a");
    let mut awake = gateway.client();
    awake.ask("SUBSCRIBE a");
    let payload = "x".repeat(100_000);
    let mut received = String::new();
    // More than the sockets, the reply buffer of 64 MiB and the limit hold.
    for _ in 0..900 {
        received = speaker.ask(&format!("PUBLISH a {payload}"));
        assert!(next(&mut awake).ends_with("x\\r\\n"));
        if received == ":1\\r\\n" {
            break;
        }
    }
    assert_eq!(received, ":1\\r\\n", "the sleeper still listens");
    assert!(!sleeper.rest().is_empty());
}

#[test]
fn clients_are_killed_by_what_they_are() {
    let gateway = gateway();
    let mut me = gateway.client();
    let id = |client: &mut Client| client.ask("CLIENT ID").replace([':', '\\', 'r', 'n'], "");
    let mut others: Vec<Client> = (0..5).map(|_| gateway.client()).collect();
    let ids: Vec<String> = others.iter_mut().map(id).collect();
    let address = others[1].stream.local_addr().expect("an open socket");
    others[2].ask("SUBSCRIBE a");
    assert_eq!(me.ask(&format!("CLIENT KILL ID {}", ids[0])), ":1\\r\\n");
    assert_eq!(others[0].rest(), b"");
    assert_eq!(me.ask(&format!("CLIENT KILL ADDR {address} TYPE pubsub")), ":0\\r\\n");
    assert_eq!(me.ask(&format!("CLIENT KILL {address}")), "+OK\\r\\n");
    assert_eq!(others[1].rest(), b"");
    assert_eq!(me.ask("CLIENT KILL TYPE pubsub"), ":1\\r\\n");
    assert_eq!(others[2].rest(), b"");
    assert_eq!(me.ask("CLIENT KILL MAXAGE 1000"), ":0\\r\\n");
    assert_eq!(me.ask("CLIENT KILL USER default"), ":2\\r\\n", "SKIPME is yes by default");
    assert_eq!(others[3].rest(), b"");
    for (words, expected) in [
        ("CLIENT KILL 1.2.3.4:5", "-ERR No such client"),
        ("CLIENT KILL", "-ERR wrong number of arguments for \\'client|kill\\' command"),
        ("CLIENT KILL ID x", "-ERR client-id should be greater than 0"),
        ("CLIENT KILL ID 0 SKIPME yes", "-ERR client-id should be greater than 0"),
        ("CLIENT KILL TYPE x", "-ERR Unknown client type \\'x\\'"),
        ("CLIENT KILL USER x", "-ERR No such user \\'x\\'"),
        ("CLIENT KILL SKIPME maybe", "-ERR syntax error"),
        ("CLIENT KILL ID 1 ADDR", "-ERR syntax error"),
        // The reply arrives although the connection ends.
        ("CLIENT KILL SKIPME no", ":1"),
    ] {
        assert_eq!(me.ask(words), format!("{expected}\\r\\n"), "{words}");
    }
    assert_eq!(me.rest(), b"");
    assert_eq!(gateway.client().ask("PING"), "+PONG\\r\\n");
}

#[test]
fn replies_are_left_out_when_nobody_wants_them() {
    let gateway = gateway();
    let mut client = gateway.client();
    let pipeline = [
        &["CLIENT", "REPLY", "SKIP"][..],
        &["SET", "a", "1"],
        &["GET", "a"],
        &["CLIENT", "REPLY", "OFF"],
        &["GET", "a"],
        &["GET", "a"],
        &["NOSUCH"],
        &["INCR", "a"],
        &["CLIENT", "REPLY", "ON"],
        &["GET", "a"],
    ];
    client.send(&pipeline.iter().flat_map(|words| encode(words)).collect::<Vec<u8>>());
    assert_eq!(next(&mut client), "$1\\r\\n1\\r\\n");
    assert_eq!(next(&mut client), "+OK\\r\\n");
    assert_eq!(next(&mut client), "$1\\r\\n2\\r\\n");
}

#[test]
fn paused_clients_wait_with_what_is_paused() {
    let gateway = gateway();
    let (mut me, mut other) = (gateway.client(), gateway.client());
    assert_eq!(me.ask("CLIENT PAUSE 100000 WRITE"), "+OK\\r\\n");
    other
        .send(&[encode(&["GET", "a"]), encode(&["SET", "a", "1"]), encode(&["GET", "a"])].concat());
    assert_eq!(next(&mut other), "$-1\\r\\n", "reads go on");
    assert_eq!(me.ask("GET a"), "$-1\\r\\n");
    assert_eq!(me.ask("CLIENT UNPAUSE"), "+OK\\r\\n");
    assert_eq!(next(&mut other), "+OK\\r\\n");
    assert_eq!(next(&mut other), "$1\\r\\n1\\r\\n");
    let begin = now();
    assert_eq!(me.ask("CLIENT PAUSE 200"), "+OK\\r\\n");
    assert_eq!(other.ask("GET a"), "$1\\r\\n1\\r\\n");
    assert!(begin.elapsed() >= Duration::from_millis(190), "{:?}", begin.elapsed());
    assert_eq!(me.ask("CLIENT PAUSE 100000"), "+OK\\r\\n");
    other.send(&encode(&["GET", "a"]));
    let id = me.ask("CLIENT LIST").split("id=").count();
    assert_eq!(id, 3, "CLIENT goes on");
    assert_eq!(me.ask("CLIENT KILL SKIPME yes"), ":1\\r\\n");
    assert_eq!(other.rest(), b"", "who waits can be ended");
    assert_eq!(me.ask("CLIENT PAUSE -1"), "-ERR timeout is negative\\r\\n");
    assert_eq!(me.ask("CLIENT UNPAUSE"), "+OK\\r\\n");
    assert_eq!(me.ask("PING"), "+PONG\\r\\n");
}

#[test]
fn monitors_see_what_others_do_but_no_passwords() {
    let gateway = gateway();
    let (mut monitor, mut other) = (gateway.client(), gateway.client());
    assert_eq!(monitor.ask("MONITOR"), "+OK\\r\\n");
    other.ask("SELECT 3");
    other.ask("SET k v");
    other.ask("AUTH default secret");
    other.ask("CONFIG GET save");
    other.send(&[encode(&["GET", "k"]), encode(&["GET", "l"])].concat());
    let lines: Vec<String> = (0..5).map(|_| next(&mut monitor)).collect();
    let ends = [
        r#"[0 #] \"SELECT\" \"3\""#,
        r#"[3 #] \"SET\" \"k\" \"v\""#,
        r#"[3 #] \"AUTH\" \"(redacted)\" \"(redacted)\""#,
        r#"[3 #] \"GET\" \"k\""#,
        r#"[3 #] \"GET\" \"l\""#,
    ];
    let address = other.stream.local_addr().expect("an open socket").to_string();
    for (line, end) in lines.iter().zip(ends) {
        assert!(line.ends_with(&(end.replace('#', &address) + "\\r\\n")), "{line} is not {end}");
    }
    drop(monitor);
    (0..2).for_each(|_| drop(other.reply()));
    assert_eq!(other.ask("GET l"), "$-1\\r\\n");
}

#[test]
fn what_takes_long_is_noted() {
    let gateway = gateway();
    let mut client = gateway.client();
    client.ask("CONFIG SET slowlog-log-slower-than 0");
    client.ask("SLOWLOG RESET");
    client.ask("CLIENT SETNAME me");
    let long = "x".repeat(200);
    client.ask(&format!("SET k {long}"));
    client.send(&[encode(&["GET", "k"]), encode(&["GET", "l"]), encode(&["INCR", "n"])].concat());
    (0..3).for_each(|_| drop(client.reply()));
    client.ask("AUTH default secret");
    client.ask("CONFIG SET requirepass secret");
    client.ask("CONFIG SET requirepass ");
    client.ask("CONFIG SET slowlog-log-slower-than -1");
    let log = client.ask("SLOWLOG GET -1");
    for part in
        ["(72 more bytes)", "GET\\r\\n$1\\r\\nl", "INCR\\r\\n$1\\r\\nn", "127.0.0.1:", "$2\\r\\nme"]
    {
        assert!(log.contains(part), "{part} in {log}");
    }
    assert!(!log.contains("secret"), "{log}");
    assert_eq!(log.matches("INCR\\r").count(), 1, "each command once: {log}");
    assert_eq!(
        client.ask("SLOWLOG GET -2"),
        "-ERR count should be greater than or equal to -1\\r\\n"
    );
    assert_eq!(client.ask("SLOWLOG GET 0"), "*0\\r\\n");
    let phases = client.ask("INFO slowlog");
    for part in ["# Slowlog", "slow_1:usec=", "phase=", "queue=", "run=", "fabric=", "conflict="] {
        assert!(phases.contains(part), "{part} in {phases}");
    }
    assert!(!client.ask("INFO everything").contains("slow_1"), "only for who asks");
    let length = client.ask("SLOWLOG LEN");
    client.ask("GET k");
    assert_eq!(client.ask("SLOWLOG LEN"), length, "nothing is noted any more");
    assert_eq!(client.ask("LATENCY LATEST"), "*0\\r\\n");
    assert!(
        client
            .ask("LATENCY HISTOGRAM get")
            .starts_with("*2\\r\\n$3\\r\\nget\\r\\n*4\\r\\n$5\\r\\ncalls\\r\\n:3")
    );
}

#[test]
fn nothing_but_auth_is_done_before_auth() {
    let gateway = gateway();
    let mut owner = gateway.client();
    assert_eq!(owner.ask("CONFIG SET requirepass secret"), "+OK\\r\\n");
    assert_eq!(owner.ask("SET k v"), "+OK\\r\\n", "who was here before stays");
    let mut client = gateway.client();
    let no_auth = "-NOAUTH Authentication required.\\r\\n";
    for words in
        ["GET k", "PING", "SET k w", "CONFIG GET requirepass", "NOSUCH", "SUBSCRIBE a", "CLIENT ID"]
    {
        assert_eq!(client.ask(words), no_auth, "{words}");
    }
    assert!(client.ask("HELLO 3").starts_with("-NOAUTH HELLO must be called"));
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\\r\\n";
    assert_eq!(client.ask("AUTH wrong"), wrong);
    assert_eq!(client.ask("AUTH nobody secret"), wrong);
    assert_eq!(client.ask("HELLO 2 AUTH default wrong"), wrong);
    // A failure amid a pipeline: every reply arrives, and what comes after a
    // right AUTH runs.
    let long = "x".repeat(20_000);
    let pipeline = [
        encode(&["GET", "k"]),
        encode(&["AUTH", "wrong"]),
        encode(&["GET", "k"]),
        encode(&["AUTH", "secret"]),
        encode(&["SET", "long", &long]),
        encode(&["GET", "k"]),
    ];
    client.send(&pipeline.concat());
    for expected in [no_auth, wrong, no_auth, "+OK\\r\\n", "+OK\\r\\n", "$1\\r\\nv\\r\\n"] {
        assert_eq!(next(&mut client), expected);
    }
    assert_eq!(client.ask("RESET"), "+RESET\\r\\n");
    assert_eq!(client.ask("GET k"), no_auth);
    assert!(client.ask("HELLO 3 AUTH default secret").starts_with("%7"));
    assert_eq!(owner.ask("CONFIG SET requirepass none"), "+OK\\r\\n");
    assert_eq!(client.ask("GET k"), "$1\\r\\nv\\r\\n", "a change keeps who is there");
}

#[test]
fn requests_before_auth_are_small() {
    let gateway = gateway();
    gateway.client().ask("CONFIG SET requirepass secret");
    let mut client = gateway.client();
    client.send(b"*11\r\n");
    assert_eq!(next(&mut client), "-ERR Protocol error: unauthenticated multibulk length\\r\\n");
    assert_eq!(client.rest(), b"");
    let mut client = gateway.client();
    client.send(b"*2\r\n$3\r\nGET\r\n$16385\r\n");
    assert_eq!(next(&mut client), "-ERR Protocol error: unauthenticated bulk length\\r\\n");
    assert_eq!(client.rest(), b"");
    let mut client = gateway.client();
    client.ask("AUTH secret");
    assert_eq!(client.ask("MGET 1 2 3 4 5 6 7 8 9 10 11 12").matches("$-1").count(), 12);
}
