//! Configuration.

use std::net::{IpAddr, Ipv4Addr};

/// What the server is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses to listen on.
    pub bind: Vec<IpAddr>,
    /// The port; 0 takes any.
    pub port: u16,
    /// Threads.
    pub workers: usize,
    /// Bytes of the embedded pool.
    pub memory_bytes: u64,
    /// Connections at a time.
    pub max_clients: usize,
    /// Seconds after which a silent connection is closed; 0 is never.
    pub timeout_s: u64,
    /// Replies that may wait for a client.
    pub output_limit_bytes: usize,
    /// The longest unfinished request.
    pub query_limit_bytes: usize,
    /// Seconds that connections have to end after SIGTERM.
    pub drain_s: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            bind: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            port: 6379,
            workers: 1,
            memory_bytes: 1 << 30,
            max_clients: 10_000,
            timeout_s: 0,
            output_limit_bytes: 64 << 20,
            query_limit_bytes: 1 << 30,
            drain_s: 10,
        }
    }
}
