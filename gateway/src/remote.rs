//! A fabric to memory on other machines: one type for every kind of it, so that
//! the gateway has two stacks, this one and shared memory.

use fusee_fabric::tcp::TcpFabric;
use fusee_fabric::verbs::VerbsFabric;
use fusee_fabric::{Batch, Counters, Fabric, NodeDown};
use fusee_layout::NodeAddress;
use fusee_layout::message::{Request, Response};
use std::rc::Rc;
use std::sync::Arc;

/// A way to memory nodes that takes time.
pub enum RemoteFabric {
    /// The memory nodes' processors execute the verbs.
    Tcp(TcpFabric),
    /// The memory nodes' RDMA devices do.
    Verbs(Rc<VerbsFabric>),
}

impl Fabric for RemoteFabric {
    fn batch(&self) -> Batch {
        match self {
            Self::Tcp(fabric) => fabric.batch(),
            Self::Verbs(fabric) => fabric.batch(),
        }
    }

    fn recycle(&self, batch: Batch) {
        match self {
            Self::Tcp(fabric) => fabric.recycle(batch),
            Self::Verbs(fabric) => fabric.recycle(batch),
        }
    }

    async fn run(&self, batch: Batch) -> Batch {
        match self {
            Self::Tcp(fabric) => fabric.run(batch).await,
            Self::Verbs(fabric) => fabric.run(batch).await,
        }
    }

    async fn call(&self, node: u16, request: Request) -> Result<Response, NodeDown> {
        match self {
            Self::Tcp(fabric) => fabric.call(node, request).await,
            Self::Verbs(fabric) => fabric.call(node, request).await,
        }
    }

    fn counters(&self) -> &Arc<Counters> {
        match self {
            Self::Tcp(fabric) => fabric.counters(),
            Self::Verbs(fabric) => fabric.counters(),
        }
    }

    fn prefetch(&self, at: NodeAddress, bytes: usize) {
        match self {
            Self::Tcp(fabric) => fabric.prefetch(at, bytes),
            Self::Verbs(fabric) => fabric.prefetch(at, bytes),
        }
    }

    type Direct<'a> = fusee_fabric::NoDirectReads;

    fn direct(&self) -> Option<fusee_fabric::NoDirectReads> {
        None
    }
}
