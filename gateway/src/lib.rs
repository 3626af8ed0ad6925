//! The gateway: a server that speaks RESP to Redis clients and keeps no keys
//! itself. Everything here sees the store only through [`keyspace::Keyspace`].
//!
//! The way of a request: [`server`] starts a worker per core; a worker's
//! `connection` reads bytes from a socket; `session` finds requests in them
//! ([`request`]), runs their commands ([`command`]) and appends the replies
//! ([`reply`]).

#![forbid(unsafe_code)]

mod acl;
mod channels;
mod client;
pub mod command;
pub mod config;
mod connection;
mod control;
pub mod doctor;
pub mod embedded;
pub mod fabric_metrics;
mod inbox;
pub mod joined;
pub mod keyspace;
pub mod logging;
pub mod mesh;
pub mod metrics;
mod notify;
mod overlay;
mod packed;
pub mod phase;
mod pool;
mod rates;
mod rdb;
pub mod remote;
pub mod renewed;
pub mod reply;
pub mod request;
mod script;
pub mod server;
mod session;
mod settings;
mod shared;
mod slow;
mod socket;
pub mod stats;
pub mod store;
mod tally;
pub mod testing;
mod tls;
mod worker;

pub use server::{Server, StartError, start, start_among};
