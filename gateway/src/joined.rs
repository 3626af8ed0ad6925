//! A pool whose memory nodes are other processes: joins it, and keeps the sessions
//! by which this process may use it.
//!
//! All that has to do with the control plane runs on a thread of its own, which
//! lives as long as the process. Workers ask it for blocks now and then.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;

use fusee::StoreConfig;
use fusee_control::{Address, GatewayPeer, NodeClient, PoolFile, Tls};
use fusee_fabric::tcp::{TcpFabric, TcpPeer};
use fusee_fabric::verbs::{Device, DeviceChoice};
use fusee_fabric::{ControlPlane, Fabric, ShmFabric, ShmNode};
use fusee_layout::{Geometry, NodeAddress, PoolParams, Superblock};
use tokio::sync::{oneshot, watch};

use crate::mesh::Directory;
use crate::metrics::{Beside, Family, Kind};
use crate::remote::RemoteFabric;
use crate::store::{Pool, PoolStore};

mod queue_pairs;
mod sessions;

use sessions::Sessions;

/// A pool that this process has joined. Clones are the same pool.
#[derive(Clone)]
pub struct Joined {
    pool: Pool,
    stay: watch::Receiver<Stay>,
}

/// A time that this process is in the pool under one name: from when all memory nodes
/// have given it a session until one of them has ended it.
#[derive(Clone)]
struct Stay {
    /// Counts them.
    number: u64,
    routes: Routes,
    controls: Vec<NodeClient>,
    /// Why there will not be another one.
    gone: Option<String>,
}

/// How the memory nodes are reached, by number.
#[derive(Clone)]
pub enum Routes {
    /// Their memory is mapped here.
    Shm(Vec<Arc<ShmNode>>),
    /// They execute verbs at these addresses.
    Tcp(Vec<TcpPeer>),
    /// RDMA devices serve it, to queue pairs that each worker opens.
    Verbs,
}

impl Routes {
    /// Where a memory node is that other hosts reach too, if there is one; `controls` is
    /// where their control planes are.
    pub fn address_beyond_host(&self, controls: &[Address]) -> Option<SocketAddr> {
        match self {
            Self::Shm(_) => None,
            Self::Tcp(peers) => {
                peers.iter().map(|peer| peer.address).find(|address| !address.ip().is_loopback())
            }
            Self::Verbs => controls.iter().find_map(|control| {
                let Address::Tcp { host, port } = control else { return None };
                let mut found = (host.as_str(), *port).to_socket_addrs().ok()?;
                found.find(|address| !address.ip().is_loopback())
            }),
        }
    }
}

impl Joined {
    /// Joins a pool, and waits for memory nodes that are not there yet.
    ///
    /// # Errors
    ///
    /// With what to do, if a memory node does not take this process or its memory
    /// cannot be reached.
    pub async fn join(
        file: PoolFile,
        tls: Option<Tls>,
        config: StoreConfig,
    ) -> Result<Self, String> {
        let (done, joined) = oneshot::channel();
        let body = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => {
                    let _ = done.send(Err(format!("cannot start: {error}")));
                    return;
                }
            };
            runtime.block_on(async {
                let begun = async {
                    let sessions = Sessions::begin(&file, tls.as_ref()).await?;
                    let (stay, stays) = watch::channel(sessions.stay(1)?);
                    let known = sessions.statistics.clone();
                    let known =
                        Arc::new(move || known.lock().expect("nobody panics with it").clone());
                    let pool = Pool::new(sessions.geometry.clone(), config, known);
                    Ok((sessions, stay, Self { pool, stay: stays }))
                };
                match begun.await {
                    Ok((sessions, stay, joined)) => {
                        if done.send(Ok(joined)).is_ok() {
                            sessions.keep(&file, tls.as_ref(), &stay).await;
                        }
                    }
                    Err(reason) => {
                        let _ = done.send(Err(reason));
                    }
                }
            });
        };
        std::thread::Builder::new()
            .name("pool".to_owned())
            .spawn(body)
            .map_err(|error| format!("cannot start: {error}"))?;
        joined.await.unwrap_or_else(|_| Err("the pool's thread panicked".to_owned()))
    }

    /// How its memory nodes are reached.
    pub fn routes(&self) -> Routes {
        self.stay.borrow().routes.clone()
    }

    /// Which of its times in the pool this is; `None` if the pool is gone.
    pub fn stay(&self) -> Option<u64> {
        let stay = self.stay.borrow();
        stay.gone.is_none().then_some(stay.number)
    }

    /// A way to mapped memory, for the thread that calls it.
    pub fn mapped(&self, nodes: &[Arc<ShmNode>]) -> ShmFabric {
        ShmFabric::new(nodes.to_vec(), self.controls())
    }

    /// A way to memory over TCP, for the thread that calls it, in a runtime for tasks
    /// of that thread.
    ///
    /// # Errors
    ///
    /// With the reason, if a memory node is not reached.
    pub async fn over_tcp(&self) -> Result<RemoteFabric, String> {
        let Routes::Tcp(peers) = self.routes() else { return Err(MIXED.to_owned()) };
        let fabric = TcpFabric::connect(peers.clone(), self.controls()).await;
        for (node, peer) in (0..).zip(peers) {
            if !fabric.is_up(node) {
                return Err(format!(
                    "memory node {node} does not execute verbs at {}, the address that it told: \
                     look for the reason in the lines above, and let connections from here to \
                     that host through",
                    peer.address
                ));
            }
        }
        Ok(RemoteFabric::Tcp(fabric))
    }

    /// The device by which this machine reaches memory on RDMA.
    ///
    /// # Errors
    ///
    /// With what to do, if none fits.
    pub fn device(&self, choice: &DeviceChoice) -> Result<Device, String> {
        let device = Device::choose(choice).map_err(|error| error.to_string())?;
        tracing::info!(%device, "reaching the memory by RDMA");
        Ok(device)
    }

    /// A way to memory on RDMA, for the thread that calls it, in a runtime for tasks of
    /// that thread: its queue pairs, which the memory nodes connect to ends of their own.
    ///
    /// # Errors
    ///
    /// With what to do, if memory cannot be registered here or a memory node does not
    /// take a queue pair.
    pub async fn over_verbs(&self, device: &Device) -> Result<RemoteFabric, String> {
        let clients = self.stay.borrow().controls.clone();
        let fabric = queue_pairs::open(device, clients, self.controls()).await?;
        Ok(RemoteFabric::Verbs(fabric))
    }

    /// A store for the worker that calls it.
    ///
    /// # Errors
    ///
    /// With the reason, if the memory is not the pool's or the pool takes no more
    /// clients.
    pub async fn store<F: Fabric>(&self, fabric: F) -> Result<PoolStore<F>, String> {
        check_memory(&fabric, &self.geometry().params).await?;
        self.pool.store(fabric).await
    }

    /// How gateways of the pool find each other: each memory node knows those that
    /// have a session there, so that any of them will do.
    pub fn directory(&self) -> Directory {
        let stay = self.stay.clone();
        Box::new(move |address, secret| {
            let controls = stay.borrow().controls.clone();
            Box::pin(async move {
                let mut found: Vec<GatewayPeer> = Vec::new();
                for control in controls {
                    // One that is down is told of elsewhere.
                    for peer in control.meet(&address, secret).await.unwrap_or_default() {
                        if found.iter().all(|known| known.gateway != peer.gateway) {
                            found.push(peer);
                        }
                    }
                }
                found
            })
        })
    }

    fn controls(&self) -> Vec<Arc<dyn ControlPlane>> {
        let stay = self.stay.borrow();
        stay.controls.iter().map(|c| Arc::new(c.clone()) as Arc<dyn ControlPlane>).collect()
    }

    /// How the pool is laid out.
    pub fn geometry(&self) -> &Geometry {
        self.pool.geometry()
    }

    /// What /metrics and /readyz tell of the pool.
    pub fn beside(&self) -> Beside {
        let (stay, told) = (self.stay.clone(), self.stay.clone());
        let joins = move || {
            vec![Family::number(
                "fusee_pool_joins_total",
                "Times that this gateway has joined the pool: once, and again whenever its memory \
                 nodes had ended its sessions.",
                Kind::Counter,
                stay.borrow().number as f64,
            )]
        };
        let sources = vec![self.pool.source(), Arc::new(joins)];
        Beside { sources, trouble: Arc::new(move || told.borrow().gone.clone()) }
    }
}

const MIXED: &str = "the memory nodes are not all reached in the same way: give every process of \
                     the pool the same pool file";

/// Makes sure that what is reached is the pool's memory.
async fn check_memory<F: Fabric>(fabric: &F, params: &PoolParams) -> Result<(), String> {
    let mut batch = fabric.batch();
    let place = |node| NodeAddress { node, offset: 0 };
    let reads: Vec<_> = (0..params.nodes)
        .map(|node| {
            let last = NodeAddress { node, offset: params.node_bytes - 8 };
            (node, batch.read(place(node), Superblock::BYTES), batch.read(last, 8))
        })
        .collect();
    let batch = fabric.run(batch).await;
    for (node, superblock, last) in reads {
        let bytes = batch.bytes(superblock).map_err(|error| error.to_string())?;
        let bytes = bytes.try_into().expect("a READ brings what was asked for");
        let found = Superblock::parse(bytes)
            .map_err(|error| format!("the memory of memory node {node}: {error}"))?;
        if found.params != *params || batch.done(last).is_err() {
            return Err(format!(
                "the memory of memory node {node} is another pool's: start all memory nodes again"
            ));
        }
    }
    fabric.recycle(batch);
    Ok(())
}
