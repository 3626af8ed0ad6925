//! Verbs on RDMA devices, through libibverbs.
//!
//! A memory node registers its memory with a device ([`VerbsNode`]), and each worker
//! of a client has a queue pair to each node ([`VerbsFabric`]). The two ends learn of
//! each other over the control plane: the client sends the [`QueuePairAddress`] of its
//! end, the node answers with a [`NodeQueuePair`].
//!
//! libibverbs is loaded when verbs are first asked for (`library.rs`), so that one
//! program runs everywhere and is built with a Rust toolchain alone. Its C ABI is
//! in `ffi/`.
//!
//! What is relied on, per queue pair: WRITE after WRITE and READ after WRITE keep
//! their order, a fenced verb waits for READs and atomics before it, and a completion
//! says that everything before it is done too. CAS and FAA are atomic among those of
//! the same device alone: words that they touch are never touched by the memory
//! node's processor. An aligned word is not torn on any device that is known.

mod chain;
mod device;
mod domain;
mod engine;
mod error;
mod fabric;
pub(crate) mod ffi;
mod library;
mod link;
mod node;
mod queue_pair;
mod replacement;

pub use device::{
    Device, DeviceChoice, DeviceDescription, DeviceLimits, GidDescription, PortDescription, devices,
};
pub use error::VerbsError;
pub use fabric::{VerbsConfig, VerbsConnecting, VerbsFabric};
pub use node::{ServedQueuePair, VerbsNode};
pub use queue_pair::{NodeQueuePair, QueuePairAddress};
pub use replacement::{Connected, Replacement};

pub(crate) use domain::{Domain, MemoryRegion};
