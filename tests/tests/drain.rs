//! SIGTERM amid pipelined traffic.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use tests::resp::{Client, Reply, push_command};
use tests::server::{Flavour, Options, Server};

const CONNECTIONS: usize = 8;
const BATCH: usize = 32;
const VALUE: usize = 10_000;

/// Sends batches and reads replies until the connection ends, with `pause` after each piece,
/// and returns all that came.
fn traffic(mut stream: TcpStream, bytes_seen: &AtomicU64, pause: Duration) -> Vec<u8> {
    let mut batch = Vec::new();
    for _ in 0..BATCH {
        push_command(&mut batch, &["GET", "value"]);
    }
    let mut sender = stream.try_clone().unwrap();
    let mut received = Vec::new();
    std::thread::scope(|scope| {
        // Sending goes on while replies come, so that requests are under way
        // in both directions when the signal strikes.
        scope.spawn(move || while sender.write_all(&batch).is_ok() {});
        let mut piece = vec![0; 64 << 10];
        loop {
            match stream.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => {
                    received.extend_from_slice(&piece[..count]);
                    bytes_seen.fetch_add(count as u64, Ordering::Relaxed);
                    if !pause.is_zero() {
                        std::thread::sleep(pause);
                    }
                }
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => panic!("the connection neither serves nor ends: {error}"),
            }
        }
        // Ends the sender too if the server only closed its own direction.
        let _ = stream.shutdown(std::net::Shutdown::Both);
    });
    received
}

#[test]
fn sigterm_amid_pipelines_cuts_no_reply_and_exits_with_0() {
    let options = Options { memory_mib: Some(256), workers: Some(2), ..Options::default() };
    let mut server = Server::under_test(&options);
    let value = "v".repeat(VALUE);
    assert_eq!(Client::connect(&server).command(&["SET", "value", &value]), Reply::ok());

    let bytes_seen = AtomicU64::new(0);
    let streams: Vec<TcpStream> = (0..CONNECTIONS).map(|_| server.connect()).collect();
    let received: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let readers: Vec<_> = streams
            .into_iter()
            .map(|stream| scope.spawn(|| traffic(stream, &bytes_seen, Duration::ZERO)))
            .collect();
        while bytes_seen.load(Ordering::Relaxed) < 50 << 20 {
            std::thread::sleep(Duration::from_millis(1));
        }
        kill_process(server.pid(), Signal::TERM).unwrap();
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });

    let status = server.wait().expect("it ends by itself after SIGTERM");
    assert_eq!(status.code(), Some(0), "{status}\n{}", server.log_tail());
    let reply = format!("${VALUE}\r\n{value}\r\n").into_bytes();
    for (index, bytes) in received.iter().enumerate() {
        let mut replies = bytes.chunks_exact(reply.len());
        assert!(replies.all(|given| given == reply), "connection {index} got a wrong reply");
        // Redis itself exits without flushing, so only ours is held to this.
        if server.flavour() == Flavour::Gateway {
            let rest = bytes.len() % reply.len();
            assert_eq!(rest, 0, "connection {index} ends {rest} bytes into a reply");
        }
    }
}

/// Whose replies are always pending is not read from for ever, and gets them whole.
#[test]
fn sigterm_ends_also_who_sends_without_end_and_reads_slowly() {
    let options = Options { memory_mib: Some(256), workers: Some(1), ..Options::default() };
    let mut server = Server::under_test(&options);
    let value = "v".repeat(VALUE);
    assert_eq!(Client::connect(&server).command(&["SET", "value", &value]), Reply::ok());
    let bytes_seen = AtomicU64::new(0);
    let stream = server.connect();
    let slowly = Duration::from_millis(2);
    let (received, took) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| traffic(stream, &bytes_seen, slowly));
        while bytes_seen.load(Ordering::Relaxed) < 5 << 20 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let begin = std::time::Instant::now();
        kill_process(server.pid(), Signal::TERM).unwrap();
        (reader.join().unwrap(), begin.elapsed())
    });
    let status = server.wait().expect("it ends by itself after SIGTERM");
    assert_eq!(status.code(), Some(0), "{status}\n{}", server.log_tail());
    assert!(took < Duration::from_secs(6), "it was read from until the drain's end: {took:?}");
    let reply = format!("${VALUE}\r\n{value}\r\n").into_bytes();
    if server.flavour() == Flavour::Gateway {
        assert_eq!(received.len() % reply.len(), 0, "it ends within a reply");
    }
}

#[test]
fn sigterm_when_idle_closes_connections_at_once() {
    let options = Options { memory_mib: Some(256), ..Options::default() };
    let mut server = Server::under_test(&options);
    let mut idle = Client::connect(&server);
    assert_eq!(idle.command(&["PING"]), Reply::Simple("PONG".into()));
    let begin = std::time::Instant::now();
    let status = server.terminate().expect("it ends by itself after SIGTERM");
    assert_eq!(status.code(), Some(0), "{status}\n{}", server.log_tail());
    assert!(begin.elapsed() < Duration::from_secs(3), "it took {:?}", begin.elapsed());
    assert!(idle.is_closed());
}

#[test]
fn the_port_is_free_after_the_end() {
    let options = Options { memory_mib: Some(256), ..Options::default() };
    let mut server = Server::under_test(&options);
    let address = server.address();
    server.terminate().expect("it ends by itself after SIGTERM");
    let refused = TcpStream::connect(address).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}
