//! A memory node's end: its memory, registered, and a queue pair for each worker
//! of each client. The device serves verbs; the node's processor does nothing.

use super::domain::{CompletionQueue, Domain, MemoryRegion};
use super::queue_pair::{QueuePair, Role};
use super::{Device, NodeQueuePair, QueuePairAddress, VerbsError, ffi};
use crate::ShmNode;
use std::io;
use std::sync::Arc;

/// A memory node's memory as a device serves it.
#[derive(Debug)]
pub struct VerbsNode {
    device: Device,
    region: MemoryRegion,
    queue: Arc<CompletionQueue>,
    /// Outlives the region, which is of its memory: fields end in order.
    node: Arc<ShmNode>,
}

/// A node posts nothing; a queue pair needs a completion queue all the same.
const COMPLETIONS: u32 = 16;

impl VerbsNode {
    /// Registers a node's memory: all of it is committed and locked, which takes
    /// about a second for some GB.
    ///
    /// # Errors
    ///
    /// If the device or the system refuses; too low a limit of locked memory is the
    /// usual reason.
    pub fn new(device: &Device, node: Arc<ShmNode>) -> Result<Self, VerbsError> {
        let domain = Domain::new(device)?;
        let queue = CompletionQueue::new(&domain, COMPLETIONS.min(device.limits.completions))?;
        let words = node.memory().words();
        let access = ffi::ACCESS_LOCAL_WRITE
            | ffi::ACCESS_REMOTE_READ
            | ffi::ACCESS_REMOTE_WRITE
            | ffi::ACCESS_REMOTE_ATOMIC;
        let start = words.as_ptr().cast_mut().cast();
        // SAFETY: the node, which owns the memory, is kept until the region has
        // ended. Peers are to the memory what other processes are: all that is done
        // to it here is by atomics, any bits make a word.
        let region = unsafe { MemoryRegion::register(&domain, start, size_of_val(words), access) }?;
        Ok(Self { device: device.clone(), region, queue, node })
    }

    /// The device that serves it.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Makes the node's end for a client's queue pair. May take a second, in which
    /// the system looks for the client's hardware address: not for a thread that
    /// others wait for.
    ///
    /// # Errors
    ///
    /// If the client's end makes no sense or cannot be reached from here.
    pub fn accept(&self, client: &QueuePairAddress) -> Result<ServedQueuePair, VerbsError> {
        let queue_pair = QueuePair::new(&self.queue, &self.device, Role::Node, 1)?;
        queue_pair.connect(client)?;
        let words = self.node.memory().words();
        let end = NodeQueuePair {
            address: queue_pair.address(),
            rkey: self.region.rkey(),
            base: words.as_ptr().addr() as u64,
            bytes: size_of_val(words) as u64,
        };
        Ok(ServedQueuePair { _queue_pair: queue_pair, end })
    }

    /// Watches the device, and returns when it is lost. Its other events are logged.
    ///
    /// # Errors
    ///
    /// If the descriptor cannot be watched.
    pub async fn watch(&self) -> io::Result<()> {
        let events = self.queue.domain().watch()?;
        loop {
            let mut ready = events.readable().await?;
            while let Some((_, kind)) = self.queue.domain().async_event() {
                match kind {
                    ffi::EVENT_DEVICE_FATAL => return Ok(()),
                    ffi::EVENT_PORT_ERR => {
                        tracing::warn!(device = %self.device, "the port is down");
                    }
                    ffi::EVENT_PORT_ACTIVE => {
                        tracing::info!(device = %self.device, "the port is active");
                    }
                    ffi::EVENT_QP_REQ_ERR | ffi::EVENT_QP_ACCESS_ERR => {
                        tracing::warn!(
                            device = %self.device,
                            "a client's request was refused by the device, its queue pair has ended"
                        );
                    }
                    kind => tracing::debug!(device = %self.device, kind, "an event of the device"),
                }
            }
            ready.clear_ready();
        }
    }
}

/// A node's end of a client's queue pair. Dropped, it is destroyed, and nothing that
/// the client has posted or posts takes effect any more.
#[derive(Debug)]
pub struct ServedQueuePair {
    _queue_pair: QueuePair,
    end: NodeQueuePair,
}

impl ServedQueuePair {
    /// What the client has to know.
    pub fn end(&self) -> NodeQueuePair {
        self.end
    }
}
