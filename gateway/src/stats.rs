//! What a worker counts while it serves. Only the worker writes, so a count is
//! a load and a store; whoever reads sums over all workers.

use std::sync::atomic::{AtomicU64, Ordering};

use fusee_fabric::{ROUND_TRIP_NS, round_trip_bucket};

use crate::command::CommandId;
use crate::command::table::COMMANDS;
use crate::phase::Phase;
use crate::reply::ErrorKind;

/// The upper ends of the latency buckets in nanoseconds; a last one is open. As those of
/// round trips, so that the two can be laid side by side.
pub const LATENCY_NS: [u64; ROUND_TRIP_NS.len()] = ROUND_TRIP_NS;

/// Round trips up to this number are told apart; the last bucket is open.
pub const ROUND_TRIPS_MAX: usize = 8;

/// A number that one thread counts up and any thread may read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts `by` more. Only one thread may do so.
    // Relaxed: a count publishes nothing but itself.
    #[inline]
    pub fn add(&self, by: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }

    /// Puts another number in its place. Only one thread may do so.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The number now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What is counted of one command.
#[derive(Debug, Default)]
pub struct CommandStats {
    /// Calls by how long the client's batch took.
    pub latency: [Counter; LATENCY_NS.len() + 1],
    /// The sum of those times.
    pub latency_ns: Counter,
    /// Calls by how many round trips they waited for.
    pub round_trips: [Counter; ROUND_TRIPS_MAX + 2],
    /// The sum of those round trips.
    pub round_trips_sum: Counter,
    /// Calls that were answered by an error.
    pub failed: Counter,
    /// Calls that were not run: no password was given, the pool is full, ...
    pub rejected: Counter,
}

/// What is counted on one worker.
#[derive(Debug)]
pub struct WorkerStats {
    /// By [`CommandId`].
    pub commands: Box<[CommandStats]>,
    /// By [`ErrorKind`].
    pub errors: [Counter; ErrorKind::COUNT],
    /// Bytes read from clients.
    pub bytes_in: Counter,
    /// Bytes written to clients.
    pub bytes_out: Counter,
    /// Connections accepted.
    pub connections: Counter,
    /// Connections turned away because there were too many.
    pub connections_rejected: Counter,
    /// Connections that ended.
    pub connections_closed: Counter,
    /// Connections closed because nothing came for too long.
    pub idle_closed: Counter,
    /// Connections closed because they did not read their replies.
    pub slow_reader_closed: Counter,
    /// Connections closed by CLIENT KILL, or because they did not take their
    /// messages.
    pub killed: Counter,
    /// Connections closed because what they sent was no request.
    pub protocol_errors: Counter,
    /// Times that a connection was not read from because it did not read.
    pub output_stalls: Counter,
    /// When the worker last came round, in milliseconds since the Unix epoch.
    pub beat_ms: Counter,
    /// Batches of requests.
    pub batches: Counter,
    /// Requests.
    pub requests: Counter,
    /// Requests, bytes read and bytes written in a second, as of the last sweep.
    pub rates: [Counter; 3],
    /// Keys that ended while this worker looked at them, as of the last sweep.
    pub expired: Counter,
    /// Keys that a read found.
    pub hits: Counter,
    /// Keys that a read did not find.
    pub misses: Counter,
    /// Commands that took longer than slowlog-log-slower-than, by the [`Phase`] that took
    /// longest.
    pub slow: [Counter; Phase::COUNT],
    /// Bytes of buffers for requests that have not arrived whole, as of the last sweep.
    pub input_bytes: Counter,
    /// Bytes of replies that wait for their clients, likewise.
    pub output_bytes: Counter,
    /// Bytes of messages that wait for their subscribers, likewise.
    pub message_bytes: Counter,
}

impl Default for WorkerStats {
    fn default() -> Self {
        Self {
            commands: COMMANDS.iter().map(|_| CommandStats::default()).collect(),
            errors: Default::default(),
            bytes_in: Counter::default(),
            bytes_out: Counter::default(),
            connections: Counter::default(),
            connections_rejected: Counter::default(),
            connections_closed: Counter::default(),
            idle_closed: Counter::default(),
            slow_reader_closed: Counter::default(),
            killed: Counter::default(),
            protocol_errors: Counter::default(),
            output_stalls: Counter::default(),
            beat_ms: Counter::default(),
            batches: Counter::default(),
            requests: Counter::default(),
            rates: Default::default(),
            expired: Counter::default(),
            hits: Counter::default(),
            misses: Counter::default(),
            slow: Default::default(),
            input_bytes: Counter::default(),
            output_bytes: Counter::default(),
            message_bytes: Counter::default(),
        }
    }
}

impl WorkerStats {
    /// The bucket of a batch that took so long.
    #[inline]
    pub fn latency_bucket(elapsed_ns: u64) -> usize {
        round_trip_bucket(elapsed_ns)
    }

    /// Counts one call of a command.
    #[inline]
    pub fn call(&self, command: CommandId, bucket: usize, elapsed_ns: u64, round_trips: u32) {
        let stats = &self.commands[usize::from(command)];
        stats.latency[bucket].add(1);
        stats.latency_ns.add(elapsed_ns);
        stats.round_trips[(round_trips as usize).min(ROUND_TRIPS_MAX + 1)].add(1);
        stats.round_trips_sum.add(u64::from(round_trips));
    }
}
