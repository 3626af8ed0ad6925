//! The fabric on TCP, for machines without RDMA: the memory node's processor
//! executes the verbs that arrive on a connection.
//!
//! Each worker has one connection to each memory node. A batch is one frame to
//! each node that it touches (see `frame.rs`), any number of them are under way
//! at once, replies come in order, and frames of several batches leave in one
//! write. The promises are those of [`crate::Fabric`]; here verbs of one node even take
//! effect one after the other, fenced or not.
//!
//! A batch that has not come back within its deadline, a connection that breaks
//! and bytes that are no frame all end the connection: every verb under way on
//! it fails as [`crate::NodeDown`], verbs to other nodes complete, and the link connects
//! again in the background. Until it has, verbs to that node fail at once. A verb
//! that failed may have been executed; but none is once its link has connected
//! again, since the memory node closes a link's earlier connection, and waits for
//! what it executes, before it takes the new one. After [`TcpServer::revoke`]
//! nothing of a session is executed either.
//!
//! Who has the token of a session reads and writes all of the memory. Connections are
//! inside of TLS, with certificates on both ends, if both are told to
//! ([`TcpPeer::tls`], [`TcpServer::start`]); in the clear, they belong on a network of
//! their own, or on one host.

mod client;
mod connection;
mod flight;
mod frame;
mod link;
mod server;
mod session;
mod socket;
mod stream;

pub use client::{TcpFabric, TcpPeer};
pub use frame::VERB_BYTES_MAX;
pub use server::{TcpServer, TcpStatistics};
pub use socket::TlsPeer;

use std::fmt;

/// Proves to a memory node that a connection belongs to a session. Drawn at
/// random by the memory node; whoever has it has the memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; 16]);

impl Token {
    /// From 16 bytes that nobody can guess.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes, to be handed to the client of the session and to nobody else.
    pub const fn bytes(&self) -> [u8; 16] {
        self.0
    }

    fn words(&self) -> [u64; 2] {
        let value = u128::from_le_bytes(self.0);
        [value as u64, (value >> 64) as u64]
    }

    fn from_words([low, high]: [u64; 2]) -> Self {
        Self((u128::from(low) | u128::from(high) << 64).to_le_bytes())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Logs are read by people who may not have the memory.
        f.write_str("Token(..)")
    }
}
