//! One-sided verbs on the memory of a pool's memory nodes.
//!
//! A client collects what one phase of an operation posts in a [`Batch`] and
//! runs it on a [`Fabric`]: one doorbell per node, one round trip. What a fabric
//! promises:
//!
//! - CAS and FAA are atomic among all verbs on the same word.
//! - Verbs of one batch to one node take effect in posted order, except that
//!   a verb after a READ, CAS or FAA may overtake it unless it is *fenced*
//!   ([`Batch::fence`]). Verbs to different nodes have no order.
//! - Each aligned 8-byte word of a READ or WRITE is whole; more than a word may
//!   be torn.
//! - A batch completes when all its verbs have. A node that is down fails its
//!   own verbs alone.
//! - Dropping the future of [`Fabric::run`] recalls nothing: the batch belongs to
//!   the fabric until its verbs have completed.

mod batch;
mod control;
mod counters;
mod direct;
#[cfg(not(loom))]
mod execute;
#[cfg(not(loom))]
mod handover;
#[cfg(all(loom, test))]
mod loom_tests;
#[cfg(not(loom))]
mod memory;
mod prefetch;
#[cfg(not(loom))]
pub mod ring;
mod round_trip;
#[cfg(not(loom))]
mod shm;
#[cfg(not(loom))]
mod spare;
mod staging;
#[cfg(not(loom))]
pub mod tcp;
#[cfg(not(loom))]
pub mod verbs;
#[cfg(any(not(loom), test))]
mod word;

pub use batch::{Batch, Posted, Span, Ticket, Verb, VerbKind};
pub use control::{ControlFuture, ControlPlane};
pub use counters::{Counters, VERB_KINDS};
pub use direct::{DirectReads, NoDirectReads};
#[cfg(not(loom))]
pub use handover::{receive_memory, send_memory};
#[cfg(not(loom))]
pub use memory::{Backing, Memory};
pub use prefetch::prefetch_read;
pub use round_trip::{
    ROUND_TRIP_BUCKETS, ROUND_TRIP_NS, RoundTripTimes, RoundTrips, VerbKinds, round_trip_bucket,
};
#[cfg(not(loom))]
pub use shm::{ShmEndpoint, ShmFabric, ShmNode, ShmReads};

use fusee_layout::message::{Request, Response};
use std::sync::Arc;
use thiserror::Error;

/// A memory node does not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("memory node {node} does not answer")]
pub struct NodeDown {
    /// Its number in the pool.
    pub node: u16,
}

/// A client's way to the memory nodes. One per worker thread.
#[expect(async_fn_in_trait, reason = "a fabric serves one thread, so futures need not be Send")]
pub trait Fabric {
    /// An empty batch, reused from earlier ones where possible.
    fn batch(&self) -> Batch;

    /// Takes a batch back for reuse.
    fn recycle(&self, batch: Batch);

    /// Runs a batch; every verb of the batch that comes back has a result.
    /// One round trip.
    async fn run(&self, batch: Batch) -> Batch;

    /// Asks a memory node for what verbs cannot do.
    ///
    /// # Errors
    ///
    /// If the node does not answer; it may have done what was asked.
    async fn call(&self, node: u16, request: Request) -> Result<Response, NodeDown>;

    /// What has been run so far. Written by the fabric's thread alone, and read by any.
    fn counters(&self) -> &Arc<Counters>;

    /// Brings memory that the next batch will touch nearer, where that means
    /// anything (shared memory).
    fn prefetch(&self, at: fusee_layout::NodeAddress, bytes: usize);

    /// READs without a batch, of this kind of fabric.
    type Direct<'a>: DirectReads
    where
        Self: 'a;

    /// READs without a batch, where the memory is this machine's own.
    fn direct(&self) -> Option<Self::Direct<'_>>;
}
