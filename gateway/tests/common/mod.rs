//! A server on a free port and a client that sees every byte.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

pub mod redis;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use gateway::Server;
use gateway::config::{Config, IoUring};
use gateway::embedded::Embedded;
use gateway::testing::MemoryKeyspace;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server with a keyspace in memory; stopped when dropped.
pub struct Gateway {
    server: Option<Server>,
    pub keyspace: MemoryKeyspace,
    pub address: SocketAddr,
}

/// Sockets are io_uring's, which has to be there, or polled with `FUSEE_IO_URING=no`.
pub fn config() -> Config {
    let polled = std::env::var("FUSEE_IO_URING").is_ok_and(|answer| answer == "no");
    Config {
        port: 0,
        io_uring: if polled { IoUring::No } else { IoUring::Yes },
        workers: 1,
        memory_bytes: 256 << 20,
        metrics_port: None,
        drain_s: 2,
        ..Config::default()
    }
}

impl Gateway {
    pub fn start() -> Self {
        Self::with(&config(), MemoryKeyspace::default())
    }

    pub fn with(config: &Config, keyspace: MemoryKeyspace) -> Self {
        let clone = keyspace.clone();
        let server = gateway::start(config, Vec::new(), async move |_| Ok(clone.clone()))
            .expect("the server starts");
        let address = server.addresses()[0];
        Self { server: Some(server), keyspace, address }
    }

    /// The product: over an embedded pool of its own.
    pub fn over_the_store(config: &Config) -> Self {
        let embedded = Embedded::create(config).expect("there is memory");
        let server =
            gateway::start(config, vec![embedded.source()], async move |_| embedded.store().await)
                .expect("the server starts");
        let address = server.addresses()[0];
        Self { server: Some(server), keyspace: MemoryKeyspace::default(), address }
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs until it is dropped")
    }

    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
            server.join();
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.end();
    }
}

pub struct Client {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server accepts");
        stream.set_nodelay(true).expect("an open socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("an open socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("an open socket");
        Self { stream, buffer: Vec::new() }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    /// One reply, as its bytes.
    pub fn reply(&mut self) -> Vec<u8> {
        loop {
            if let Some(length) = reply_length(&self.buffer) {
                return self.buffer.drain(..length).collect();
            }
            let mut chunk = vec![0; 64 * 1024];
            let read = self.stream.read(&mut chunk).expect("a reply in time");
            assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&self.buffer));
            self.buffer.extend_from_slice(&chunk[..read]);
        }
    }

    /// Everything up to the end of the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.buffer);
        // A connection that is reset has ended as well.
        let _ = self.stream.read_to_end(&mut rest);
        rest
    }

    pub fn call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Vec<u8> {
        self.send(&encode(arguments));
        self.reply()
    }

    /// The reply to words with blanks between, escaped.
    pub fn ask(&mut self, words: &str) -> String {
        let words: Vec<&str> = words.split(' ').collect();
        self.call(&words).escape_ascii().to_string()
    }
}

pub fn encode<A: AsRef<[u8]>>(arguments: &[A]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        let argument = argument.as_ref();
        out.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// The length of the reply at the head of `bytes`, once it is whole.
fn reply_length(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|window| window == b"\r\n")? + 2;
    let count = || -> i64 {
        let text = std::str::from_utf8(&bytes[1..line - 2]).expect("a number");
        text.parse().expect("a number")
    };
    let items = match bytes[0] {
        b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => return Some(line),
        b'$' | b'=' | b'!' => {
            let end = line + usize::try_from(count()).map_or(0, |length| length + 2);
            return (bytes.len() >= end).then_some(end);
        }
        b'*' | b'~' | b'>' => count(),
        b'%' => count() * 2,
        other => panic!("no reply begins with {:?}", char::from(other)),
    };
    let mut end = line;
    for _ in 0..items {
        end += reply_length(bytes.get(end..)?)?;
    }
    Some(end)
}
