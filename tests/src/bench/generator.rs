//! Many connections driven by one thread: each sends a batch, waits for all
//! its replies, and sends the next.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;

use super::keys::Keys;
use super::workload::{Frames, Verb, Workload};
use crate::process;

/// A server that is silent for so long has stopped serving.
const SILENCE_LIMIT: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
/// Requests per batch while the keys are written.
const LOAD_PIPELINE: usize = 64;

/// An empty histogram of microseconds. Only one with bounds saturates.
pub(super) fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds are in order")
}

/// Connections to one server, or to several of one keyspace.
pub struct Generator<'a> {
    keys: &'a Keys,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// Place in the order of keys at which the next batch begins.
    place: usize,
}

struct Connection {
    stream: TcpStream,
    requests: Vec<u8>,
    sent: usize,
    replies: Vec<u8>,
    received: usize,
    place: usize,
    begun: Instant,
    waits_to_send: bool,
}

/// What one run of load did.
#[derive(Debug)]
pub struct Window {
    /// Replies that came.
    pub operations: u64,
    /// From the first request to the last reply.
    pub elapsed: Duration,
    /// What the generator's thread spent on a processor meanwhile.
    pub generator_cpu: Duration,
    /// Microseconds from sending a batch to its last reply.
    pub latency_us: Histogram<u64>,
}

impl<'a> Generator<'a> {
    /// Opens `count` connections, dealt out to the addresses in turn.
    pub fn connect(addresses: &[SocketAddr], count: usize, keys: &'a Keys) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections = Vec::with_capacity(count);
        for (index, address) in addresses.iter().cycle().take(count).enumerate() {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let token = epoll::EventData::new_u64(index as u64);
            epoll::add(&epoll, &stream, token, epoll::EventFlags::IN)?;
            connections.push(Connection::new(stream));
        }
        Ok(Self { keys, epoll, connections, place: 0 })
    }

    /// Sets every key once.
    pub fn load(&mut self, value_bytes: usize) -> Result<Window, String> {
        let workload = Workload { verb: Verb::Set, value_bytes, pipeline: LOAD_PIPELINE };
        let batches = self.keys.count().div_ceil(LOAD_PIPELINE);
        self.place = 0;
        self.drive(&workload, |sent, _| sent < batches)
    }

    /// Drives `workload` for some time. All requests have had their replies
    /// when it returns.
    pub fn run(&mut self, workload: &Workload, time: Duration) -> Result<Window, String> {
        let end = Instant::now() + time;
        self.drive(workload, |_, now| now < end)
    }

    /// Sends batches while `goes_on(batches sent so far, now)` says so.
    fn drive(
        &mut self,
        workload: &Workload,
        goes_on: impl Fn(usize, Instant) -> bool,
    ) -> Result<Window, String> {
        let io_error = |error: io::Error| format!("the server's socket: {error}");
        let frames = Frames::new(workload);
        let mut latency_us = latencies();
        let mut events = Vec::with_capacity(self.connections.len());
        let (mut batches_sent, mut operations, mut open) = (0, 0, 0);
        let cpu_before = process::own_share().map_err(io_error)?;
        let begin = Instant::now();

        for index in 0..self.connections.len() {
            if goes_on(batches_sent, begin) {
                self.send_next(index, &frames, begin).map_err(io_error)?;
                batches_sent += 1;
                open += 1;
            }
        }
        while open > 0 {
            events.clear();
            epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&SILENCE_LIMIT))
                .map_err(|error| io_error(error.into()))?;
            if events.is_empty() {
                // An error among the replies makes a batch too short to end.
                for connection in &self.connections {
                    frames.check(self.keys, connection.place, connection.replies())?;
                }
                return Err(format!("no reply for {} s", SILENCE_LIMIT.tv_sec));
            }
            // One look at the clock per round; rounds are short.
            let now = Instant::now();
            for event in &events {
                let index = usize::try_from({ event.data }.u64()).expect("we gave an index");
                let connection = &mut self.connections[index];
                if connection.waits_to_send {
                    connection.send(&self.epoll, index).map_err(io_error)?;
                }
                if !connection.receive(&frames).map_err(io_error)? {
                    frames.check_begin(connection.replies())?;
                    continue;
                }
                frames.check(self.keys, connection.place, connection.replies())?;
                let waited = now.saturating_duration_since(connection.begun);
                let waited_us = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
                latency_us.saturating_record(waited_us.max(1));
                operations += workload.pipeline as u64;
                if goes_on(batches_sent, now) {
                    self.send_next(index, &frames, now).map_err(io_error)?;
                    batches_sent += 1;
                } else {
                    open -= 1;
                }
            }
        }
        let elapsed = begin.elapsed();
        let cpu_after = process::own_share().map_err(io_error)?;
        let generator_cpu = Duration::from_nanos(cpu_after.cpu_ns - cpu_before.cpu_ns);
        Ok(Window { operations, elapsed, generator_cpu, latency_us })
    }

    fn send_next(&mut self, index: usize, frames: &Frames, now: Instant) -> io::Result<()> {
        let connection = &mut self.connections[index];
        connection.place = self.place;
        connection.begun = now;
        connection.received = 0;
        connection.sent = 0;
        connection.replies.resize(frames.replies_bytes(), 0);
        frames.build(self.keys, self.place, &mut connection.requests);
        self.place = (self.place + frames.pipeline()) % self.keys.count();
        connection.send(&self.epoll, index)
    }
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            requests: Vec::new(),
            sent: 0,
            replies: Vec::new(),
            received: 0,
            place: 0,
            begun: Instant::now(),
            waits_to_send: false,
        }
    }

    /// Sends what is left of the batch; the rest waits for the socket.
    fn send(&mut self, epoll: &OwnedFd, index: usize) -> io::Result<()> {
        while self.sent < self.requests.len() {
            match self.stream.write(&self.requests[self.sent..]) {
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let waits = self.sent < self.requests.len();
        if waits != self.waits_to_send {
            self.waits_to_send = waits;
            let interest = if waits {
                epoll::EventFlags::IN | epoll::EventFlags::OUT
            } else {
                epoll::EventFlags::IN
            };
            epoll::modify(epoll, &self.stream, epoll::EventData::new_u64(index as u64), interest)?;
        }
        Ok(())
    }

    /// Takes what has come; true when that completes the batch.
    fn receive(&mut self, frames: &Frames) -> io::Result<bool> {
        let expected = frames.replies_bytes();
        if self.received == expected {
            return Ok(false);
        }
        match self.stream.read(&mut self.replies[self.received..expected]) {
            Ok(0) => return Err(io::Error::other("closed by the server")),
            Ok(bytes) => self.received += bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(self.received == expected)
    }

    fn replies(&self) -> &[u8] {
        &self.replies[..self.received]
    }
}
