//! Bytes that no well-behaved client sends: a clear error or a bounded wait,
//! never a crash, a hang or unbounded memory.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use tests::process;
use tests::resp::{Client, Reply, push_command};
use tests::server::{Flavour, Options, Server};

/// What a hundred hostile connections may cost the server. The pool is apart:
/// it is touched before the first look.
const GROWTH_MAX: u64 = 96 << 20;
/// And one that does not read its replies: 64 MiB of them wait, in a buffer
/// that grows by doubling.
const SLOW_READER_MAX: u64 = 160 << 20;

fn server() -> Server {
    Server::under_test(&Options { memory_mib: Some(512), workers: Some(2), ..Options::default() })
}

fn is_end(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset)
}

/// It runs, serves a newcomer, and has not grown without bound.
fn assert_well(server: &mut Server, resident_before: u64) {
    assert_well_within(server, resident_before, GROWTH_MAX);
}

fn assert_well_within(server: &mut Server, resident_before: u64, growth_max: u64) {
    server.assert_running();
    assert!(server.answers_ping().unwrap(), "no PONG for a new connection");
    let resident = process::resident_bytes(server.pid()).unwrap();
    let growth = resident.saturating_sub(resident_before);
    assert!(growth < growth_max, "grew by {} MiB", growth >> 20);
}

fn assert_protocol_error(server: &Server, request: &[u8], about: &str) {
    let shown = String::from_utf8_lossy(&request[..request.len().min(60)]).into_owned();
    let mut client = Client::connect(server);
    // The server may close while the rest of a long request is on its way.
    let _ = client.send(request);
    let reply = client.receive().unwrap_or_else(|error| panic!("{shown:?}: {error}"));
    assert!(reply.is_error(&format!("ERR Protocol error: {about}")), "{shown:?} got {reply:?}");
    assert!(client.is_closed(), "{shown:?} left the connection open");
}

#[test]
fn malformed_frames_get_a_protocol_error_and_are_closed() {
    let mut server = server();
    let before = process::resident_bytes(server.pid()).unwrap();
    let long = vec![b'1'; 70 << 10];
    let cases: [(Vec<u8>, &str); 17] = [
        (b"*x\r\n".into(), "invalid multibulk length"),
        (b"*1x\r\n".into(), "invalid multibulk length"),
        (b"* 1\r\n".into(), "invalid multibulk length"),
        (b"*9223372036854775807\r\n".into(), "invalid multibulk length"),
        (b"*99999999999999999999999\r\n".into(), "invalid multibulk length"),
        (b"*4294967297\r\n".into(), "invalid multibulk length"),
        (b"*1\r\n:1\r\n".into(), "expected '$', got ':'"),
        (b"*1\r\n*1\r\n$4\r\nPING\r\n".into(), "expected '$', got '*'"),
        (b"*1\r\n$x\r\n".into(), "invalid bulk length"),
        (b"*1\r\n$-1\r\n".into(), "invalid bulk length"),
        (b"*1\r\n$\r\n".into(), "invalid bulk length"),
        (b"*1\r\n$536870913\r\n".into(), "invalid bulk length"),
        (b"*1\r\n$9223372036854775807\r\n".into(), "invalid bulk length"),
        (b"SET \"a b\r\n".into(), "unbalanced quotes in request"),
        ([b"*".as_slice(), &long].concat(), "too big mbulk count string"),
        ([b"*1\r\n$".as_slice(), &long].concat(), "too big bulk count string"),
        (long.clone(), "too big inline request"),
    ];
    for (request, about) in &cases {
        assert_protocol_error(&server, request, about);
    }
    assert_well(&mut server, before);
}

#[test]
fn replies_before_a_protocol_error_arrive() {
    let mut server = server();
    let mut client = Client::connect(&server);
    client.send(b"*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n*1\r\n$-1\r\n").unwrap();
    assert_eq!(client.receive().unwrap(), Reply::Simple("PONG".into()));
    assert_eq!(client.receive().unwrap(), Reply::bulk("hi"));
    assert!(client.receive().unwrap().is_error("ERR Protocol error: invalid bulk length"));
    assert!(client.is_closed());
    server.assert_running();
}

#[test]
fn arrays_nested_ten_thousand_deep_are_refused() {
    let mut server = server();
    let before = process::resident_bytes(server.pid()).unwrap();
    assert_protocol_error(&server, &b"*1\r\n".repeat(10_000), "expected '$', got '*'");
    assert_protocol_error(&server, &b"*1048576\r\n".repeat(10_000), "expected '$', got '*'");
    assert_well(&mut server, before);
}

#[test]
fn empty_requests_are_passed_over() {
    let server = server();
    let mut client = Client::connect(&server);
    client.send(b"*-10\r\n*0\r\n\r\n\n   \r\nPING\n").unwrap();
    assert_eq!(client.receive().unwrap(), Reply::Simple("PONG".into()));
}

#[test]
fn inline_commands_take_quotes_and_escapes() {
    let server = server();
    let mut client = Client::connect(&server);
    client.send(b"SET k \"a\\x41\\n b\"\nGET k\r\nSET 'q r' x\r\nGET 'q r'\n").unwrap();
    assert_eq!(client.receive().unwrap(), Reply::ok());
    assert_eq!(client.receive().unwrap(), Reply::bulk("aA\n b"));
    assert_eq!(client.receive().unwrap(), Reply::ok());
    assert_eq!(client.receive().unwrap(), Reply::bulk("x"));
}

#[test]
fn http_requests_are_closed_without_a_word() {
    let mut server = server();
    for request in ["POST / HTTP/1.1\r\n\r\n", "GET x\r\nHost: example.org\r\n\r\n"] {
        let mut client = Client::connect(&server);
        client.send(request.as_bytes()).unwrap();
        match client.receive() {
            // To the server this began as a GET of one key.
            Ok(reply) => assert_eq!(reply, Reply::Null, "{request:?}"),
            Err(error) => assert!(is_end(&error), "{request:?}: {error}"),
        }
        assert!(client.is_closed(), "{request:?} left the connection open");
    }
    server.assert_running();
}

#[test]
fn a_frame_sent_byte_by_byte_is_answered() {
    let server = server();
    let mut client = Client::connect(&server);
    let mut frame = Vec::new();
    push_command(&mut frame, &["SET", "slow", "a value\r\n$3\r\n"]);
    push_command(&mut frame, &["GET", "slow"]);
    for byte in frame {
        client.send(&[byte]).unwrap();
    }
    assert_eq!(client.receive().unwrap(), Reply::ok());
    assert_eq!(client.receive().unwrap(), Reply::bulk("a value\r\n$3\r\n"));
}

#[test]
fn every_cut_of_a_pipeline_gives_the_same_replies() {
    let server = server();
    let mut frame = Vec::new();
    push_command(&mut frame, &["SET", "cut", "123456789"]);
    push_command(&mut frame, &["INCR", "cut"]);
    push_command(&mut frame, &["NOSUCH"]);
    let mut client = Client::connect(&server);
    for cut in 1..frame.len() {
        client.send(&frame[..cut]).unwrap();
        // Long enough for the server to see the first part alone, mostly.
        std::thread::sleep(Duration::from_micros(300));
        client.send(&frame[cut..]).unwrap();
        assert_eq!(client.receive().unwrap(), Reply::ok(), "cut at {cut}");
        assert_eq!(client.receive().unwrap(), Reply::Integer(123_456_790), "cut at {cut}");
        assert!(client.receive().unwrap().is_error("ERR unknown command"), "cut at {cut}");
    }
}

#[test]
fn half_frames_of_five_hundred_connections_hold_up_nobody() {
    let mut server = server();
    let before = process::resident_bytes(server.pid()).unwrap();
    let halves = [b"*2\r\n$3\r\nGET\r\n$100\r\nabc".as_slice(), b"*2\r\n$3", b"*", b"PIN"];
    let mut clients: Vec<_> = (0..500).map(|_| server.connect()).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        client.write_all(halves[index % halves.len()]).unwrap();
    }
    let mut other = Client::connect(&server);
    let begin = Instant::now();
    for _ in 0..100 {
        assert_eq!(other.command(&["PING"]), Reply::Simple("PONG".into()));
    }
    assert!(begin.elapsed() < Duration::from_secs(5), "100 PINGs took {:?}", begin.elapsed());
    for client in &clients {
        client.shutdown(Shutdown::Both).unwrap();
    }
    assert_well(&mut server, before);
}

#[test]
fn announced_sizes_cost_nothing_until_bytes_come() {
    let mut server = server();
    let before = process::resident_bytes(server.pid()).unwrap();
    let mut clients: Vec<_> = (0..100).map(|_| server.connect()).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        let request: &[u8] = match index % 3 {
            0 => b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\nabc",
            1 => b"*1048576\r\n$4\r\nMGET\r\n",
            _ => b"*2\r\n$536870912\r\n",
        };
        client.write_all(request).unwrap();
    }
    std::thread::sleep(Duration::from_millis(200));
    assert_well(&mut server, before);
}

#[test]
fn a_reader_that_does_not_read_stalls_itself_alone() {
    const VALUE: usize = 1 << 20;
    const REQUESTS: usize = 400;
    let mut server = server();
    let mut other = Client::connect(&server);
    let value = vec![b'v'; VALUE];
    assert_eq!(other.command(&[b"SET", b"big".as_slice(), &value]), Reply::ok());
    assert_eq!(other.command(&["GET", "big"]), Reply::bulk(value.clone()));
    let before = process::resident_bytes(server.pid()).unwrap();

    let mut slow = server.connect();
    slow.set_nonblocking(true).unwrap();
    let mut requests = Vec::new();
    for _ in 0..REQUESTS {
        push_command(&mut requests, &["GET", "big"]);
    }
    slow.write_all(&requests).expect("the socket buffers take 10 kB");
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(2) {
        let asked = Instant::now();
        assert_eq!(other.command(&["PING"]), Reply::Simple("PONG".into()));
        assert!(asked.elapsed() < Duration::from_secs(1), "waited {:?}", asked.elapsed());
    }
    // Redis buffers all replies of an ordinary client unless told otherwise.
    if server.flavour() == Flavour::Gateway {
        assert_well_within(&mut server, before, SLOW_READER_MAX);
    }

    // Either the replies come complete once they are read, or it was cut off.
    slow.set_nonblocking(false).unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let reply = format!("${VALUE}\r\n").into_bytes();
    let mut head = vec![0; reply.len()];
    let mut body = vec![0; VALUE + 2];
    for count in 0..REQUESTS {
        match slow.read_exact(&mut head) {
            Ok(()) => {
                slow.read_exact(&mut body).unwrap_or_else(|e| panic!("reply {count}: {e}"));
                assert_eq!(head, reply, "reply {count}");
                assert_eq!(body[..VALUE], value, "reply {count}");
            }
            Err(error) => {
                assert!(is_end(&error), "reply {count}: {error}");
                break;
            }
        }
    }
    server.assert_running();
}

#[test]
fn ten_thousand_requests_in_one_write_are_answered_in_order() {
    let server = server();
    let mut client = Client::connect(&server);
    let mut requests = Vec::new();
    for number in 0..10_000 {
        if number % 100 == 99 {
            push_command(&mut requests, &["NOSUCH", "a"]);
        } else {
            push_command(&mut requests, &["ECHO", &number.to_string()]);
        }
    }
    let mut sender = client.stream().try_clone().unwrap();
    let thread = std::thread::spawn(move || sender.write_all(&requests));
    for number in 0..10_000 {
        let reply = client.receive().unwrap();
        if number % 100 == 99 {
            let text = "ERR unknown command 'NOSUCH', with args beginning with: 'a'";
            assert!(reply.is_error(text), "{reply:?}");
        } else {
            assert_eq!(reply, Reply::bulk(number.to_string()));
        }
    }
    thread.join().unwrap().unwrap();
}

#[test]
fn a_frame_of_two_hundred_thousand_arguments_is_one_command() {
    const PAIRS: usize = 100_000;
    let server = server();
    let mut client = Client::connect(&server);
    let mut arguments = vec![String::from("MSET")];
    for number in 0..PAIRS {
        arguments.extend([format!("many:{number}"), format!("{number}")]);
    }
    let begin = Instant::now();
    assert_eq!(client.command(&arguments), Reply::ok());
    assert!(begin.elapsed() < Duration::from_secs(10), "it took {:?}", begin.elapsed());
    let keys: Vec<String> = std::iter::once(String::from("MGET"))
        .chain((0..PAIRS).map(|number| format!("many:{number}")))
        .collect();
    let Reply::Array(values) = client.command(&keys) else { panic!("MGET answers an array") };
    for (number, value) in values.into_iter().enumerate() {
        assert_eq!(value, Reply::bulk(number.to_string()));
    }
}

#[test]
fn quit_flushes_earlier_replies_and_closes() {
    let server = server();
    let mut client = Client::connect(&server);
    let mut requests = Vec::new();
    for number in 0..100 {
        push_command(&mut requests, &["ECHO", &number.to_string()]);
    }
    push_command(&mut requests, &["QUIT"]);
    push_command(&mut requests, &["ECHO", "late"]);
    client.send(&requests).unwrap();
    for number in 0..100 {
        assert_eq!(client.receive().unwrap(), Reply::bulk(number.to_string()));
    }
    assert_eq!(client.receive().unwrap(), Reply::ok());
    assert!(client.is_closed());
}

#[test]
fn wrong_arguments_leave_the_connection_open() {
    let server = server();
    let mut client = Client::connect(&server);
    for (request, error) in [
        (&["GET"][..], "ERR wrong number of arguments for 'get' command"),
        (&["GET", "a", "b"], "ERR wrong number of arguments for 'get' command"),
        (&["SET", "a", "b", "EX"], "ERR syntax error"),
        (&["SET", "a", "b", "EX", "0"], "ERR invalid expire time in 'set' command"),
        (&["INCRBY", "a", "x"], "ERR value is not an integer or out of range"),
        (&["SELECT", "16"], "ERR DB index is out of range"),
        (&["", "a"], "ERR unknown command ''"),
    ] {
        let reply = client.command(request);
        assert!(reply.is_error(error), "{request:?} got {reply:?}");
    }
    assert_eq!(client.command(&["PING"]), Reply::Simple("PONG".into()));
}
