//! The data path on RDMA: the device serves verbs, and this process only makes and
//! destroys queue pairs.

use super::{DataPath, Revoking};
use fusee_control::{Denied, MemoryRoute, Token};
use fusee_fabric::ShmNode;
use fusee_fabric::verbs::{
    Device, DeviceChoice, NodeQueuePair, QueuePairAddress, ServedQueuePair, VerbsError, VerbsNode,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// Memory reached by RDMA.
#[derive(Debug)]
pub struct VerbsPath {
    node: VerbsNode,
    sessions: Mutex<HashMap<Token, Arc<Links>>>,
}

/// The queue pairs of one session by link, one for each worker; `None` once it is revoked.
/// Whoever destroys some of them holds the lock for as long as that takes, so that whoever
/// has revoked the session knows that all are gone.
#[derive(Debug)]
struct Links(Mutex<Option<HashMap<u64, ServedQueuePair>>>);

/// Queue pairs of one session: a gateway has no more workers than a machine has
/// processors.
const QUEUE_PAIRS_MAX: usize = 1024;

impl VerbsPath {
    /// Registers a node's memory with a device, and watches the device on this runtime.
    ///
    /// # Errors
    ///
    /// If no device can be used, or the memory cannot be registered; with what to do.
    pub fn serve(choice: &DeviceChoice, node: Arc<ShmNode>) -> Result<Arc<Self>, VerbsError> {
        let device = Device::choose(choice)?;
        let path =
            Arc::new(Self { node: VerbsNode::new(&device, node)?, sessions: Mutex::default() });
        let watched = path.clone();
        tokio::spawn(async move {
            let lost = watched.node.watch().await;
            tracing::error!(
                device = %watched.node.device(), ?lost,
                "the RDMA device is lost, and with it the memory: start the pool anew"
            );
        });
        Ok(path)
    }

    /// The device that serves the memory.
    pub fn device(&self) -> &Device {
        self.node.device()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Token, Arc<Links>>> {
        self.sessions.lock().expect("nobody panics with it")
    }
}

impl Links {
    fn lock(&self) -> MutexGuard<'_, Option<HashMap<u64, ServedQueuePair>>> {
        self.0.lock().expect("nobody panics with it")
    }

    /// Destroys the queue pair of a link, if there is one.
    fn destroy(&self, link: u64) -> Result<(), Denied> {
        drop(self.lock().as_mut().ok_or(Denied::Unknown)?.remove(&link));
        Ok(())
    }

    fn insert(&self, link: u64, queue_pair: ServedQueuePair) -> Result<NodeQueuePair, Denied> {
        let mut links = self.lock();
        // Dropped if the session has ended meanwhile; its gateway was told nothing.
        let links = links.as_mut().ok_or(Denied::Unknown)?;
        if links.len() >= QUEUE_PAIRS_MAX {
            return Err(Denied::Refused(format!(
                "a gateway has {QUEUE_PAIRS_MAX} queue pairs at most: give it fewer workers"
            )));
        }
        let end = queue_pair.end();
        links.insert(link, queue_pair);
        Ok(end)
    }
}

impl DataPath for VerbsPath {
    fn admit(&self, session: Token) -> Result<MemoryRoute, Denied> {
        self.lock().insert(session, Arc::new(Links(Mutex::new(Some(HashMap::new())))));
        Ok(MemoryRoute::Verbs { device: self.node.device().to_string() })
    }

    fn open_queue_pair(
        &self,
        session: Token,
        link: u64,
        worker: &QueuePairAddress,
    ) -> Result<NodeQueuePair, Denied> {
        let links = self.lock().get(&session).cloned().ok_or(Denied::Unknown)?;
        // First: what the worker has given up must not take effect when it has gone on.
        links.destroy(link)?;
        // Without the lock: the system may look for the worker's hardware address.
        let queue_pair = self.node.accept(worker).map_err(|e| Denied::Refused(e.to_string()))?;
        links.insert(link, queue_pair)
    }

    fn revoke(&self, session: Token) -> Revoking<'_> {
        let links = self.lock().remove(&session);
        // Destroying waits for the device.
        let destroyed = tokio::task::spawn_blocking(move || {
            let queue_pairs = links.and_then(|links| links.lock().take());
            drop(queue_pairs);
        });
        Box::pin(async move { destroyed.await.expect("destroying does not panic") })
    }
}
