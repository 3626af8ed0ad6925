//! What arrives on a socket: whole, in pieces, malformed, too much of it.

mod common;

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use common::{Gateway, config, encode};
use gateway::config::{Config, IoUring};
use gateway::testing::MemoryKeyspace;

#[test]
fn requests_arrive_byte_by_byte() {
    let gateway = Gateway::start();
    let mut client = gateway.client();
    let pipeline = [
        encode(&["SET", "k", "a\r\nb"]),
        b"GET k\r\n".to_vec(),
        encode(&["GET", "k"]),
        b"set \"q k\" '1'\n".to_vec(),
        encode(&["GET", "q k"]),
    ]
    .concat();
    for byte in pipeline {
        client.send(&[byte]);
    }
    let replies: Vec<_> = (0..5).map(|_| client.reply()).collect();
    let expected: [&[u8]; 5] =
        [b"+OK\r\n", b"$4\r\na\r\nb\r\n", b"$4\r\na\r\nb\r\n", b"+OK\r\n", b"$1\r\n1\r\n"];
    assert_eq!(replies, expected);
}

#[test]
fn an_error_in_a_pipeline_leaves_its_neighbours_alone() {
    let gateway = Gateway::start();
    let mut client = gateway.client();
    let mut pipeline = Vec::new();
    for words in [
        &["SET", "k", "1"][..],
        &["GET", "k"],
        &["GET"],
        &["GETRANGE", "k", "x", "1"],
        &["NOPE", "k"],
        &["AUTH", "user", "wrong"],
        &["INCRBY", "k", "x"],
        &["INCR", "k"],
        &["GET", "k"],
        &["STRLEN", "k"],
    ] {
        pipeline.extend(encode(words));
    }
    client.send(&pipeline);
    let replies: Vec<String> = (0..10).map(|_| client.reply().escape_ascii().to_string()).collect();
    let kinds: Vec<_> = replies.iter().map(|reply| &reply[..reply.len().min(6)]).collect();
    assert_eq!(
        kinds,
        [
            "+OK\\r\\", "$1\\r\\n", "-ERR w", "-ERR v", "-ERR u", "-WRONG", "-ERR v", ":2\\r\\n",
            "$1\\r\\n", ":1\\r\\n"
        ]
    );
}

#[test]
fn protocol_errors_are_answered_and_close() {
    let gateway = Gateway::start();
    for (sent, expected) in [
        (&b"*1\r\n*1\r\n*1\r\n"[..], "-ERR Protocol error: expected '$', got '*'\r\n"),
        (b"*2\r\n$3\r\nGET\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        (b"*9223372036854775807\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*3\r\n$9223372036854775807\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1\r\n$536870913\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        (b"get 'a\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
        (b"PING\r\n*x\r\nPING\r\n", "+PONG\r\n-ERR Protocol error: invalid multibulk length\r\n"),
    ] {
        let mut client = gateway.client();
        client.send(sent);
        assert_eq!(String::from_utf8_lossy(&client.rest()), expected, "{}", sent.escape_ascii());
    }
    let mut client = gateway.client();
    client.send(&[&b"x"[..], &vec![b'y'; 70_000]].concat());
    assert_eq!(client.rest(), b"-ERR Protocol error: too big inline request\r\n");
}

#[test]
fn nested_arrays_do_not_reach_the_stack() {
    let gateway = Gateway::start();
    let mut client = gateway.client();
    // The first one is refused; the rest may meet a closed socket.
    let _ = client.stream.write_all(&b"*1\r\n".repeat(100_000));
    assert!(client.rest().starts_with(b"-ERR Protocol error: expected '$', got '*'\r\n"));
    assert_eq!(gateway.client().ask("PING"), "+PONG\\r\\n");
}

#[test]
fn web_browsers_are_closed_on_silently() {
    let gateway = Gateway::start();
    for sent in [&b"POST / HTTP/1.1\r\n"[..], b"Host: localhost\r\n"] {
        let mut client = gateway.client();
        client.send(sent);
        assert_eq!(client.rest(), b"");
    }
}

#[test]
fn half_a_gigabyte_goes_in_and_out() {
    let gateway = Gateway::start();
    let mut client = gateway.client();
    let length = 512 << 20;
    let begin = Instant::now_for_test();
    client.send(format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${length}\r\n").as_bytes());
    let chunk = vec![b'x'; 1 << 20];
    for _ in 0..512 {
        client.send(&chunk);
    }
    client.send(b"\r\n");
    assert_eq!(client.reply(), b"+OK\r\n");
    client.send(b"GET big\r\n");
    let mut head = vec![0; "$536870912\r\n".len()];
    client.stream.read_exact(&mut head).expect("a header");
    assert_eq!(head, b"$536870912\r\n");
    let mut left = length + 2;
    let mut chunk = vec![0; 1 << 20];
    while left > 0 {
        let read = client.stream.read(&mut chunk).expect("more of the value");
        assert!(read > 0 && read <= left);
        assert!(left - read < 2 || chunk[..read].iter().all(|byte| *byte == b'x'));
        left -= read;
    }
    assert_eq!(client.ask("DEL big"), ":1\\r\\n");
    assert!(begin.elapsed() < Duration::from_secs(60), "quadratic");
}

#[test]
fn wide_requests_take_linear_time() {
    let gateway = Gateway::start();
    let mut client = gateway.client();
    let keys: Vec<String> = (0..200_000).map(|index| format!("key:{index}")).collect();
    let arguments: Vec<&str> =
        std::iter::once("EXISTS").chain(keys.iter().map(String::as_str)).collect();
    let request = encode(&arguments);
    let begin = Instant::now_for_test();
    for piece in request.chunks(4096) {
        client.send(piece);
    }
    assert_eq!(client.reply(), b":0\r\n");
    assert!(begin.elapsed() < Duration::from_secs(20), "quadratic");
}

#[test]
fn a_deep_pipeline_of_large_replies_does_not_lock_up() {
    let gateway = Gateway::start();
    let mut client = gateway.client();
    client.call(&["SET".as_bytes(), b"k", &vec![b'v'; 10_000]]);
    // As SDKs do: write everything, then read.
    client.send(&encode(&["GET", "k"]).repeat(5_000));
    for _ in 0..5_000 {
        assert_eq!(client.reply().len(), 10_000 + "$10000\r\n\r\n".len());
    }
}

#[test]
fn values_beyond_a_batch_are_sent_before_more_are_read() {
    let gateway = Gateway::start();
    let mut client = gateway.client();
    client.call(&["SET".as_bytes(), b"k", &vec![b'v'; 700_000]]);
    client.send(&b"GET k\r\nEXISTS k\r\nGETRANGE k x 1\r\nMGET k k\r\nGET none\r\n".repeat(20));
    let value = [&b"$700000\r\n"[..], &vec![b'v'; 700_000], b"\r\n"].concat();
    for _ in 0..20 {
        assert!(client.reply() == value);
        assert_eq!(client.reply(), b":1\r\n");
        assert_eq!(client.reply(), b"-ERR value is not an integer or out of range\r\n");
        assert!(client.reply() == [b"*2\r\n", &value[..], &value[..]].concat());
        assert_eq!(client.reply(), b"$-1\r\n");
    }
}

#[test]
fn the_keys_of_a_run_of_writes_are_announced_once() {
    let gateway = Gateway::start();
    let mut client = gateway.client();
    client.send(&b"SET a 1\r\nINCR b\r\nMSET c 1 d 2\r\nDEL e\r\nGET a\r\nSETNX f 1\r\n".repeat(5));
    for _ in 0..30 {
        client.reply();
    }
    assert_eq!(gateway.keyspace.prefetched(), 5 * 6);
}

#[test]
fn info_tells_how_sockets_are_served() {
    for (io_uring, api) in [(IoUring::Yes, "io_uring"), (IoUring::No, "epoll")] {
        let config = Config { io_uring, ..config() };
        let gateway = Gateway::with(&config, MemoryKeyspace::default());
        let info = gateway.client().ask("INFO server");
        assert!(info.contains(&format!("multiplexing_api:{api}\\r")), "{info}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "bounds the test itself")]
fn connections_that_are_left_when_the_server_stops_are_closed() {
    for io_uring in [IoUring::Yes, IoUring::No] {
        let config = Config { io_uring, drain_s: 0, output_limit_bytes: 1 << 20, ..config() };
        let gateway = Gateway::with(&config, MemoryKeyspace::default());
        let (mut idle, mut stalled) = (gateway.client(), gateway.client());
        assert_eq!(idle.ask("PING"), "+PONG\\r\\n");
        idle.call(&["SET".as_bytes(), b"k", &vec![b'v'; 1 << 20]]);
        // Nobody reads these replies: the last of them are still to be sent.
        stalled.send(&b"GET k\r\n".repeat(64));
        drop(gateway);
        let begin = Instant::now();
        idle.rest();
        let rest = stalled.rest();
        assert!(begin.elapsed() < Duration::from_secs(10), "they are left open");
        assert!(rest.len() < 64 << 20, "{} bytes", rest.len());
    }
}

#[test]
fn quit_closes_after_the_replies() {
    let gateway = Gateway::start();
    let mut client = gateway.client();
    client.send(b"SET k v\r\nGET k\r\nQUIT\r\nGET k\r\n");
    assert_eq!(client.rest(), b"+OK\r\n$1\r\nv\r\n+OK\r\n");
}

#[test]
fn one_client_too_many_is_told_so() {
    let config = Config { max_clients: 2, ..config() };
    let gateway = Gateway::with(&config, MemoryKeyspace::default());
    let mut first = gateway.client();
    let mut second = gateway.client();
    assert_eq!(first.ask("PING"), "+PONG\\r\\n");
    assert_eq!(second.ask("PING"), "+PONG\\r\\n");
    assert_eq!(gateway.client().rest(), b"-ERR max number of clients reached\r\n");
    assert_eq!(first.ask("QUIT"), "+OK\\r\\n");
    assert_eq!(first.rest(), b"");
    // The place is free once the server has seen the end.
    for _ in 0..100 {
        let mut third = gateway.client();
        third.send(b"PING\r\n");
        if third.reply() == b"+PONG\r\n" {
            return;
        }
        pause(Duration::from_millis(10));
    }
    panic!("the place stayed taken");
}

#[test]
fn silent_clients_are_closed_after_the_timeout() {
    let config = Config { timeout_s: 1, ..config() };
    let gateway = Gateway::with(&config, MemoryKeyspace::default());
    let mut client = gateway.client();
    assert_eq!(client.ask("PING"), "+PONG\\r\\n");
    assert_eq!(client.rest(), b"");
}

#[test]
fn stopping_answers_what_has_arrived() {
    let gateway = Gateway::start();
    let mut busy = gateway.client();
    let mut idle = gateway.client();
    assert_eq!(idle.ask("PING"), "+PONG\\r\\n");
    assert_eq!(busy.ask("PING"), "+PONG\\r\\n");
    busy.send(&encode(&["SET", "k", "v"]).repeat(100));
    let address = gateway.address;
    gateway.stop();
    assert_eq!(busy.rest(), b"+OK\r\n".repeat(100));
    assert_eq!(idle.rest(), b"");
    assert!(std::net::TcpStream::connect(address).is_err(), "nobody listens any more");
}

#[test]
fn several_workers_serve_the_same_keys() {
    let config = Config { workers: 3, ..config() };
    let gateway = Gateway::with(&config, MemoryKeyspace::default());
    let mut clients: Vec<_> = (0..12).map(|_| gateway.client()).collect();
    for client in &mut clients {
        client.ask("INCR n");
    }
    assert_eq!(clients[0].ask("GET n"), "$2\\r\\n12\\r\\n");
}

#[test]
fn a_taken_port_is_named() {
    let gateway = Gateway::start();
    let config = Config { port: gateway.address.port(), ..config() };
    let error = gateway::start(&config, Vec::new(), async |_| Ok(MemoryKeyspace::default()))
        .expect_err("the port is taken")
        .to_string();
    assert!(error.contains(&gateway.address.to_string()) && error.contains("--port"), "{error}");
}

#[test]
fn a_worker_without_a_store_stops_the_start() {
    let error = gateway::start(&config(), Vec::new(), async |worker| {
        Err::<MemoryKeyspace, _>(format!("no memory for {worker}"))
    })
    .expect_err("there is no store")
    .to_string();
    assert_eq!(error, "worker 0 has no store: no memory for 0");
}

#[expect(clippy::disallowed_methods, reason = "this thread has nothing else to do")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Tests may look at the clock: no protocol runs on it here.
trait NowForTest {
    fn now_for_test() -> Self;
}

impl NowForTest for Instant {
    #[expect(clippy::disallowed_methods, reason = "measures the test itself")]
    fn now_for_test() -> Self {
        Self::now()
    }
}
