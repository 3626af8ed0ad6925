//! Another queue pair to a node in place of one that has ended, while the client's session
//! on the node lives.

use super::queue_pair::{QueuePair, Role};
use super::{NodeQueuePair, QueuePairAddress, VerbsError, VerbsFabric};
use tokio::time::Instant;

/// A worker's queue pair that has no peer yet.
#[derive(Debug)]
pub struct Replacement(QueuePair);

/// A worker's queue pair that is connected to its node's end.
#[derive(Debug)]
pub struct Connected {
    queue_pair: QueuePair,
    end: NodeQueuePair,
}

impl Replacement {
    /// What the node has to know. It destroys its end of the earlier queue pair before it
    /// makes another one: a verb that has failed may have been done, but is not done later,
    /// when its client has gone on.
    pub fn address(&self) -> QueuePairAddress {
        self.0.address()
    }

    /// Connects it to its node's end. May take a second, in which the system looks for the
    /// node's hardware address: not for the worker's thread.
    ///
    /// # Errors
    ///
    /// If the end makes no sense or cannot be reached.
    pub fn connect(self, end: NodeQueuePair) -> Result<Connected, VerbsError> {
        self.0.connect(&end.address)?;
        Ok(Connected { queue_pair: self.0, end })
    }
}

impl VerbsFabric {
    /// Makes what can take the place of the queue pair to a node.
    ///
    /// # Errors
    ///
    /// If the device or the system refuses.
    pub fn replacement(&self, node: u16) -> Result<Replacement, VerbsError> {
        let engine = self.engine.borrow();
        let requests = engine.requests_max(node) as u32;
        QueuePair::new(engine.queue(), &self.device, Role::Client, requests).map(Replacement)
    }

    /// Goes on with another queue pair to a node, where the earlier one has ended.
    ///
    /// # Errors
    ///
    /// If the node's end makes no sense.
    ///
    /// # Panics
    ///
    /// If the earlier one has not ended.
    pub fn replace(&self, node: u16, by: Connected) -> Result<(), VerbsError> {
        self.engine.borrow_mut().renew(node, by.queue_pair, &by.end, Instant::now())
    }
}
