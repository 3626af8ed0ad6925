//! A worker's way to the memory nodes over TCP.

use super::flight::{Flight, Hangar};
use super::link::Link;
use super::{TlsPeer, Token};
use crate::{Batch, ControlPlane, Counters, Fabric, NodeDown};
use fusee_layout::NodeAddress;
use fusee_layout::message::{Request, Response};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::task::JoinHandle;

/// A batch that takes longer finds its node down: hundreds of times a round trip
/// on a busy network, and less than a client of Redis waits.
const DEADLINE: Duration = Duration::from_secs(1);

/// Where a memory node executes verbs, and what proves that it may.
#[derive(Clone, Debug)]
pub struct TcpPeer {
    /// Where it listens.
    pub address: SocketAddr,
    /// What it gave to this session.
    pub token: Token,
    /// Without, the connection is in the clear.
    pub tls: Option<TlsPeer>,
}

/// The fabric on TCP: a connection to each memory node, served by tasks of the
/// runtime of the worker that made it.
pub struct TcpFabric {
    links: Vec<Rc<Link>>,
    tasks: Vec<JoinHandle<()>>,
    controls: Vec<Arc<dyn ControlPlane>>,
    hangar: Rc<Hangar>,
}

impl TcpFabric {
    /// To these nodes, by number, each with its control plane. Comes back when it
    /// has been tried to connect to each of them; those that were not reached are
    /// down and tried again in the background.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime for tasks of one thread.
    pub async fn connect(peers: Vec<TcpPeer>, controls: Vec<Arc<dyn ControlPlane>>) -> Self {
        Self::connect_within(peers, controls, DEADLINE).await
    }

    /// As [`TcpFabric::connect`], with another time after which a batch finds
    /// its node down.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime for tasks of one thread.
    pub async fn connect_within(
        peers: Vec<TcpPeer>,
        controls: Vec<Arc<dyn ControlPlane>>,
        deadline: Duration,
    ) -> Self {
        assert!(peers.len() == controls.len(), "each node has a control plane");
        // Of this process: a session's links are told apart by it.
        static LINKS: AtomicU64 = AtomicU64::new(0);
        let links: Vec<_> = (0..)
            .zip(peers)
            .map(|(node, peer)| {
                let number = LINKS.fetch_add(1, Relaxed);
                Rc::new(Link::new(node, peer, number, deadline))
            })
            .collect();
        let tasks = links.iter().map(|link| tokio::task::spawn_local(link.clone().run())).collect();
        let hangar = Rc::new(Hangar::new(links.len()));
        let fabric = Self { links, tasks, controls, hangar };
        for link in &fabric.links {
            link.attempted().await;
        }
        fabric
    }

    /// Is there a connection to the node?
    pub fn is_up(&self, node: u16) -> bool {
        self.links.get(usize::from(node)).is_some_and(|link| link.is_up())
    }
}

impl Fabric for TcpFabric {
    fn batch(&self) -> Batch {
        self.hangar.spare.take()
    }

    fn recycle(&self, batch: Batch) {
        self.hangar.spare.give(batch);
    }

    async fn run(&self, batch: Batch) -> Batch {
        let nodes = self.links.len();
        Flight::launch(batch, &self.hangar, nodes, |part| {
            self.links[usize::from(part.node())].post(part);
        })
        .await
    }

    async fn call(&self, node: u16, request: Request) -> Result<Response, NodeDown> {
        match self.controls.get(usize::from(node)) {
            Some(control) => control.call(request).await,
            None => Err(NodeDown { node }),
        }
    }

    fn counters(&self) -> &Arc<Counters> {
        &self.hangar.counters
    }

    fn prefetch(&self, _at: NodeAddress, _bytes: usize) {}

    type Direct<'a> = crate::NoDirectReads;

    fn direct(&self) -> Option<crate::NoDirectReads> {
        None
    }
}

impl Drop for TcpFabric {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
