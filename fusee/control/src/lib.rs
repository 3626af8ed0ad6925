//! The control plane of a pool whose memory nodes are processes: what gateways
//! and memory nodes say to each other besides one-sided verbs.
//!
//! A [`PoolFile`] tells where the nodes are. A gateway calls them through
//! [`NodeClient`]s, a node serves a [`NodeService`] by [`serve`]. Messages are in
//! `proto/control.proto`, turned into this tree's types and checked in `convert.rs`:
//! whatever bytes come, nothing panics.
//!
//! A [`Token`] stands for a session or for a pool. Tokens never reach a log: they
//! have no `Display`, and their `Debug` says nothing.
#![forbid(unsafe_code)]

mod address;
mod client;
mod convert;
mod error;
pub mod http;
mod messages;
mod pool_file;
mod server;
mod size;
mod supervisor;
mod tls;
mod token;

pub use address::{Address, AddressError};
pub use client::{Attachment, CALL_TIME_MAX, NodeClient, PeerClient, REPLICATE_TIME_MAX};
pub use error::{ControlError, Denied};
pub use messages::{
    Admission, Attach, CONTROL_VERSION, Description, Expulsion, Fabric, GatewayPeer, Introduction,
    Membership, MemoryRoute, Replication,
};
pub use pool_file::{PoolFile, PoolFileError};
pub use server::{Listener, NodeService, SILENCE_TIME_MAX, listen_unix, serve};
pub use size::Size;
pub use supervisor::Supervisor;
pub use tls::{Tls, TlsError, TlsFiles};
pub use token::{GatewayId, Token};

/// The messages as they go over the wire.
mod proto {
    #![expect(unreachable_pub, unused_qualifications, reason = "generated")]
    #![expect(clippy::all, reason = "generated")]
    tonic::include_proto!("fusee.control.v1");
}
