//! A pool whose memory nodes are other processes: joins it, and keeps the sessions
//! by which this process may use it.
//!
//! All that has to do with the control plane runs on a thread of its own, which
//! lives as long as the process. Workers ask it for blocks now and then.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fusee::StoreConfig;
use fusee_control::{
    Attachment, ControlError, GatewayId, MemoryRoute, NodeClient, PoolFile, Tls, Token,
};
use fusee_fabric::tcp::{TcpFabric, TcpPeer};
use fusee_fabric::{ControlPlane, Fabric, ShmFabric, ShmNode, receive_memory};
use fusee_layout::message::Statistics;
use fusee_layout::{Geometry, NodeAddress, PoolParams, Superblock};
use tokio::io::AsyncReadExt as _;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::metrics::Source;
use crate::remote::RemoteFabric;
use crate::store::{Pool, PoolStore};

/// A pool that this process has joined. Clones are the same pool.
#[derive(Clone)]
pub struct Joined {
    pool: Pool,
    routes: Routes,
    controls: Vec<NodeClient>,
}

/// How the memory nodes are reached, by number.
#[derive(Clone)]
pub enum Routes {
    /// Their memory is mapped here.
    Shm(Vec<Arc<ShmNode>>),
    /// They execute verbs at these addresses.
    Tcp(Vec<TcpPeer>),
}

/// Between two looks at a memory node that is not there yet.
const PAUSE: Duration = Duration::from_millis(200);
/// How often the same reason for waiting is told.
const TELL_INTERVAL: Duration = Duration::from_secs(10);
/// How often the memory nodes are asked what they have given.
const STATISTICS_INTERVAL: Duration = Duration::from_secs(1);
/// A memory node on this host hands its memory over at once.
const HANDOVER_TIME_MAX: Duration = Duration::from_secs(5);

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
                match Sessions::begin(&file, tls.as_ref()).await {
                    Ok(sessions) => {
                        let joined = sessions.joined(config);
                        if joined.is_ok() && done.send(joined).is_ok() {
                            sessions.keep().await;
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
    pub fn routes(&self) -> &Routes {
        &self.routes
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
    pub async fn over_tcp(&self, peers: &[TcpPeer]) -> Result<RemoteFabric, String> {
        let fabric = TcpFabric::connect(peers.to_vec(), self.controls()).await;
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

    fn controls(&self) -> Vec<Arc<dyn ControlPlane>> {
        self.controls.iter().map(|c| Arc::new(c.clone()) as Arc<dyn ControlPlane>).collect()
    }

    /// How the pool is laid out.
    pub fn geometry(&self) -> &Geometry {
        self.pool.geometry()
    }

    /// What /metrics tells of the pool.
    pub fn source(&self) -> Source {
        self.pool.source()
    }
}

/// The sessions of this process, one on each memory node.
struct Sessions {
    geometry: Arc<Geometry>,
    nodes: Vec<Session>,
    statistics: Arc<Mutex<Vec<Statistics>>>,
}

struct Session {
    number: u16,
    attachment: Attachment,
    route: Route,
}

/// How one node's memory is reached.
enum Route {
    Shm {
        node: Arc<ShmNode>,
        /// The kernel closes it when this process, or the memory node's, has ended.
        memory: UnixStream,
    },
    Tcp(TcpPeer),
}

impl Sessions {
    async fn begin(file: &PoolFile, tls: Option<&Tls>) -> Result<Self, String> {
        let gateway = GatewayId::random();
        let mut attachments = Vec::new();
        for number in 0..file.nodes.len() as u16 {
            attachments.push(attach(file, number, tls, gateway).await?);
        }
        let first = &attachments[0].admission;
        if attachments.iter().any(|one| one.admission.incarnation != first.incarnation) {
            return Err("the memory nodes are of different lives of the pool, since some were \
                        started again: stop all of them, then start them again, empty"
                .to_owned());
        }
        let params = first.params;
        let geometry = Geometry::new(params).map_err(|error| error.to_string())?;
        let mut nodes = Vec::new();
        for (number, attachment) in (0..).zip(attachments) {
            let route = Route::find(number, &attachment).await?;
            nodes.push(Session { number, attachment, route });
        }
        tracing::info!(
            pool = file.name, memory_nodes = nodes.len(), replicas = params.replicas, %gateway,
            "joined the pool"
        );
        let statistics = Arc::new(Mutex::new(vec![Statistics::default(); nodes.len()]));
        Ok(Self { geometry: Arc::new(geometry), nodes, statistics })
    }

    fn joined(&self, config: StoreConfig) -> Result<Joined, String> {
        let statistics = self.statistics.clone();
        let known = Arc::new(move || statistics.lock().expect("nobody panics with it").clone());
        Ok(Joined {
            pool: Pool::new(self.geometry.clone(), config, known),
            routes: self.routes()?,
            controls: self.nodes.iter().map(|s| s.attachment.client.clone()).collect(),
        })
    }

    fn routes(&self) -> Result<Routes, String> {
        let (mut nodes, mut peers) = (Vec::new(), Vec::new());
        for session in &self.nodes {
            match &session.route {
                Route::Shm { node, .. } => nodes.push(node.clone()),
                Route::Tcp(peer) => peers.push(*peer),
            }
        }
        match (nodes.is_empty(), peers.is_empty()) {
            (false, true) => Ok(Routes::Shm(nodes)),
            (true, false) => Ok(Routes::Tcp(peers)),
            _ => Err("the memory nodes are not all reached in the same way: give every process \
                      of the pool the same pool file"
                .to_owned()),
        }
    }

    /// Keeps the sessions as long as the process lives.
    async fn keep(self) {
        for (position, session) in self.nodes.into_iter().enumerate() {
            let (client, known) = (session.attachment.client.clone(), self.statistics.clone());
            tokio::spawn(async move {
                loop {
                    if let Ok(statistics) = client.statistics().await {
                        known.lock().expect("nobody panics with it")[position] = statistics;
                    }
                    tokio::time::sleep(STATISTICS_INTERVAL).await;
                }
            });
            tokio::spawn(session.watch());
        }
        std::future::pending::<()>().await;
    }
}

impl Session {
    /// Takes the node from the workers when its process has ended: what is left of
    /// its memory here nobody else sees.
    async fn watch(mut self) {
        let Self { number, attachment, route } = &mut self;
        match route {
            Route::Shm { node, memory } => {
                let _ = closed(memory).await;
                node.set_down(true);
                tracing::error!(node = number, "a memory node has ended, and its memory is gone");
            }
            // Workers see it by their own connections.
            Route::Tcp(_) => {
                let reason = attachment.ended().await;
                tracing::error!(
                    node = number,
                    "the session on a memory node has ended, and keys there are out of reach until \
                     this gateway is started again: {reason}"
                );
            }
        }
    }
}

/// Waits until the other side is gone.
async fn closed(stream: &UnixStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    let mut stream = tokio::net::UnixStream::from_std(stream.try_clone()?)?;
    while stream.read(&mut [0]).await? > 0 {}
    Ok(())
}

/// Begins a session, as soon as the node is there.
async fn attach(
    file: &PoolFile,
    number: u16,
    tls: Option<&Tls>,
    gateway: GatewayId,
) -> Result<Attachment, String> {
    let mut told: Option<(ControlError, Instant)> = None;
    loop {
        let error = match Attachment::begin(file, tls, gateway, file.description(number)).await {
            Ok(attachment) => return Ok(attachment),
            Err(error) => error,
        };
        if !error.is_temporary() {
            return Err(error.to_string());
        }
        if told.as_ref().is_none_or(|(last, at)| *last != error || at.elapsed() > TELL_INTERVAL) {
            tracing::info!("waiting for the pool: {error}");
            told = Some((error, Instant::now()));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

impl Route {
    async fn find(number: u16, attachment: &Attachment) -> Result<Self, String> {
        let token = &attachment.admission.token;
        match &attachment.admission.path {
            MemoryRoute::Shm { socket } => {
                let (node, memory) = fetch(socket, token).map_err(|error| {
                    format!("memory node {number} hands no memory over: {error}")
                })?;
                Ok(Self::Shm { node: Arc::new(node), memory })
            }
            MemoryRoute::Tcp { address } => {
                let found = tokio::net::lookup_host(address.as_str()).await;
                let address = found.map_err(|error| error.to_string()).and_then(|mut found| {
                    found.next().ok_or_else(|| "it has no address".to_owned())
                });
                let address = address.map_err(|reason| {
                    format!("the host of memory node {number} is not found: {reason}")
                })?;
                let token = fusee_fabric::tcp::Token::new(*token.bytes());
                Ok(Self::Tcp(TcpPeer { address, token }))
            }
        }
    }
}

/// Fetches a node's memory, and the connection that keeps the session.
fn fetch(socket: &Path, token: &Token) -> io::Result<(ShmNode, UnixStream)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(HANDOVER_TIME_MAX))?;
    stream.write_all(token.bytes())?;
    let memory = receive_memory(&stream)?;
    Ok((ShmNode::new(memory), stream))
}

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
