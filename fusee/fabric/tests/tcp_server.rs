//! A memory node's TCP side against clients that do not keep to the protocol,
//! spoken here byte by byte.
#![cfg(not(loom))]
#![expect(clippy::disallowed_methods, reason = "sockets live in real time")]

mod common;

use common::{TOKEN, at, nodes_of, run, servers, tcp};
use fusee_fabric::Fabric;
use fusee_fabric::tcp::{TcpServer, Token};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

const WELCOME: u8 = 0;
const OTHER_VERSION: u8 = 1;
const OTHER_NODE: u8 = 2;
const NOT_ADMITTED: u8 = 3;

fn hello(version: u32, node: u16, token: Token, link: u64) -> Vec<u8> {
    let mut bytes = b"FUSEETCP".to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.extend(u32::from(node).to_le_bytes());
    bytes.extend(token.bytes());
    bytes.extend(link.to_le_bytes());
    bytes
}

fn connect(server: &TcpServer) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Says hello, and returns what the node makes of it.
fn greet(stream: &mut TcpStream, hello: &[u8]) -> u8 {
    stream.write_all(hello).unwrap();
    let mut welcome = [0; 16];
    stream.read_exact(&mut welcome).unwrap();
    assert_eq!(&welcome[..8], b"FUSEETCP");
    assert_eq!(welcome[9..], [0, 0, 0, 1, 0, 0, 0]);
    welcome[8]
}

fn joined(server: &TcpServer, link: u64) -> TcpStream {
    let mut stream = connect(server);
    assert_eq!(greet(&mut stream, &hello(1, 0, TOKEN, link)), WELCOME);
    stream
}

fn frame(number: u32, body: &[u64]) -> Vec<u8> {
    let mut bytes = (body.len() as u32 + 1).to_le_bytes().to_vec();
    bytes.extend(number.to_le_bytes());
    bytes.extend(body.iter().flat_map(|word| word.to_le_bytes()));
    bytes
}

const fn faa(offset: u64) -> [u64; 3] {
    [5, offset, 1]
}

/// Has the node closed the connection without another word?
fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 64]) {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

fn counter(server: &[TcpServer]) -> u64 {
    run(async {
        let fabric = tcp(server).await;
        let mut batch = fabric.batch();
        let ticket = batch.read(at(0, 0), 8);
        fabric.run(batch).await.word(ticket).unwrap()
    })
}

fn server() -> Vec<TcpServer> {
    servers(&nodes_of(1, 4 << 20), 1)
}

#[test]
fn the_protocol_is_what_its_page_says() {
    let server = server();
    let mut stream = joined(&server[0], 1);
    let write = [2 | 2 << 32, 64, 11, 12];
    let one_byte = [3 | 0xff << 8, 71];
    let cas = [4, 72, 12, 13];
    let read = [1 | 2 << 32, 64];
    let outside = [1 | 1 << 32, 4 << 20];
    let body = [&write[..], &one_byte, &cas, &outside, &read, &faa(0)].concat();
    stream.write_all(&frame(9, &body)).unwrap();
    let mut reply = [0; 48];
    stream.read_exact(&mut reply).unwrap();
    let expected = frame(9, &[0b11_0111, 12, 11 | 0xff << 56, 13, 0]);
    assert_eq!(reply[..], expected);
    let statistics = server[0].statistics();
    assert_eq!((statistics.connections, statistics.batches), (1, 1));
    assert_eq!((statistics.verbs, statistics.out_of_range), ([1, 2, 1, 1], 1));
    assert_eq!((statistics.bytes_read, statistics.bytes_written), (16, 17));
}

#[test]
fn hellos_of_strangers_are_answered_with_the_reason_and_closed() {
    let server = server();
    for (hello, verdict) in [
        (hello(2, 0, TOKEN, 1), OTHER_VERSION),
        (hello(1, 3, TOKEN, 1), OTHER_NODE),
        (hello(1, 0, Token::new([6; 16]), 1), NOT_ADMITTED),
    ] {
        let mut stream = connect(&server[0]);
        assert_eq!(greet(&mut stream, &hello), verdict);
        assert!(is_closed(&mut stream));
    }
    for bytes in [b"GET / HTTP/1.1\r\nHost: memory\r\nAccept: */*\r\n\r\n".to_vec(), vec![0xff; 40]]
    {
        let mut stream = connect(&server[0]);
        stream.write_all(&bytes).unwrap();
        assert!(is_closed(&mut stream));
    }
    // Half a hello.
    let mut stream = connect(&server[0]);
    stream.write_all(&hello(1, 0, TOKEN, 1)[..39]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(is_closed(&mut stream));
    let statistics = server[0].statistics();
    assert_eq!((statistics.refused, statistics.malformed, statistics.batches), (3, 2, 0));
}

#[test]
fn who_says_nothing_is_closed() {
    let server = server();
    let begin = Instant::now();
    let mut silent = connect(&server[0]);
    let mut halting = connect(&server[0]);
    halting.write_all(b"FUSEETCP").unwrap();
    assert!(is_closed(&mut silent) && is_closed(&mut halting));
    assert!(begin.elapsed() >= Duration::from_secs(4));
    assert_eq!(server[0].statistics().refused, 2);
}

#[test]
fn a_frame_that_is_none_closes_its_connection_alone() {
    let server = server();
    let largest = (32u64 << 20) / 8;
    let frames = [
        // Lengths of nothing, and of more than a frame has.
        [0; 8].to_vec(),
        [&(largest as u32 + 80).to_le_bytes()[..], &[0; 4]].concat(),
        u64::MAX.to_le_bytes().to_vec(),
        // Verbs that are none, cut short, misaligned, or for too much.
        frame(0, &[9, 0]),
        frame(0, &[1]),
        frame(0, &[5, 0]),
        frame(0, &[1 << 16 | 1 | 1 << 32, 0]),
        frame(0, &[2 | 3 << 32, 0, 1, 2]),
        frame(0, &[2 | 0xffff_ffff << 32, 0]),
        frame(0, &[5, 4, 1]),
        frame(0, &[1 | (largest + 1) << 32, 0]),
        frame(0, &[1 | largest << 32, 0, 1 | largest << 32, 0]),
        frame(0, &[3, 0].repeat(4097)),
    ];
    let mut witness = joined(&server[0], 1000);
    for (number, bytes) in (0u64..).zip(&frames) {
        let mut stream = joined(&server[0], number);
        // What comes before it is done.
        stream.write_all(&frame(7, &faa(0))).unwrap();
        stream.read_exact(&mut [0; 24]).unwrap();
        stream.write_all(bytes).unwrap();
        assert!(is_closed(&mut stream), "frame {number}");
        witness.write_all(&frame(0, &faa(8))).unwrap();
        witness.read_exact(&mut [0; 24]).unwrap();
    }
    assert_eq!(server[0].statistics().malformed, frames.len() as u64);
    assert_eq!(counter(&server), frames.len() as u64);
}

#[test]
fn a_link_that_connects_again_executes_nothing_of_its_earlier_connection() {
    let server = server();
    let mut earlier = joined(&server[0], 7);
    let mut other = joined(&server[0], 8);
    // Half a frame has arrived when its client gives it up.
    let bytes = frame(0, &faa(0));
    earlier.write_all(&bytes[..20]).unwrap();
    let mut later = joined(&server[0], 7);
    let _ = earlier.write_all(&bytes[20..]);
    assert!(is_closed(&mut earlier));
    for stream in [&mut later, &mut other] {
        stream.write_all(&frame(0, &faa(8))).unwrap();
        stream.read_exact(&mut [0; 24]).unwrap();
    }
    assert_eq!(counter(&server), 0);
}

#[test]
fn who_does_not_read_is_not_executed_for() {
    let server = server();
    let mut stream = joined(&server[0], 1);
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    // A short request for 4 MiB, again and again, and no reply is read.
    let request = frame(0, &[1 | ((4 << 20) / 8) << 32, 0]).repeat(1000);
    while stream.write_all(&request).is_ok() {}
    // Sockets hold a few of the replies, and the server one or two.
    let executed = server[0].statistics().batches;
    assert!(executed > 0 && executed < 20, "{executed} replies of 4 MiB wait for a reader");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(server[0].statistics().batches, executed);
    assert_eq!(counter(&server), 0, "others are served meanwhile");
    // In the end it is given up.
    while server[0].statistics().stalled == 0 {
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_server_that_is_dropped_closes_its_connections() {
    let mut server = server();
    let mut stream = joined(&server[0], 1);
    let address = server[0].address();
    server.clear();
    assert!(is_closed(&mut stream));
    assert!(TcpStream::connect(address).is_err());
}
