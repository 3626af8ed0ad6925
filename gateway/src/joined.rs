//! A pool whose memory nodes are other processes: joins it, and keeps the sessions
//! by which this process may use it.
//!
//! All that has to do with the control plane runs on a thread of its own, which
//! lives as long as the process. Workers ask it for blocks now and then.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fusee::StoreConfig;
use fusee_control::{
    Address, Attachment, ControlError, GatewayId, GatewayPeer, MemoryRoute, NodeClient, PoolFile,
    Tls, Token,
};
use fusee_fabric::tcp::{TcpFabric, TcpPeer, TlsPeer};
use fusee_fabric::{ControlPlane, Fabric, ShmFabric, ShmNode, receive_memory};
use fusee_layout::message::Statistics;
use fusee_layout::{Geometry, NodeAddress, PoolParams, Superblock};
use tokio::io::AsyncReadExt as _;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::mesh::Directory;
use crate::metrics::{Beside, Family, Kind};
use crate::remote::RemoteFabric;
use crate::store::{Pool, PoolStore};

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
}

impl Routes {
    /// Where a memory node is that other hosts reach too, if there is one.
    pub fn address_beyond_host(&self) -> Option<SocketAddr> {
        match self {
            Self::Shm(_) => None,
            Self::Tcp(peers) => {
                peers.iter().map(|peer| peer.address).find(|address| !address.ip().is_loopback())
            }
        }
    }
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

/// The sessions of this process, one on each memory node.
struct Sessions {
    geometry: Arc<Geometry>,
    incarnation: u64,
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
        let (gateway, attachments) = loop {
            let gateway = GatewayId::random();
            match attach_all(file, tls, gateway).await {
                Ok(attachments) => break (gateway, attachments),
                // It took too long to have all: some have given up the ones that they gave.
                Err(ControlError::Ended { .. }) => tokio::time::sleep(PAUSE).await,
                Err(error) => return Err(error.to_string()),
            }
        };
        let first = &attachments[0].admission;
        if attachments.iter().any(|one| one.admission.incarnation != first.incarnation) {
            return Err("the memory nodes are of different lives of the pool, since some were \
                        started again: stop all of them, then start them again, empty"
                .to_owned());
        }
        let (params, incarnation) = (first.params, first.incarnation);
        let geometry = Geometry::new(params).map_err(|error| error.to_string())?;
        let mut nodes = Vec::new();
        for (number, attachment) in (0..).zip(attachments) {
            let route = Route::find(file, number, tls, &attachment).await?;
            nodes.push(Session { number, attachment, route });
        }
        tracing::info!(
            pool = file.name, memory_nodes = nodes.len(), replicas = params.replicas, %gateway,
            "joined the pool"
        );
        let statistics = Arc::new(Mutex::new(vec![Statistics::default(); nodes.len()]));
        Ok(Self { geometry: Arc::new(geometry), incarnation, nodes, statistics })
    }

    fn stay(&self, number: u64) -> Result<Stay, String> {
        let controls = self.nodes.iter().map(|s| s.attachment.client.clone()).collect();
        Ok(Stay { number, routes: self.routes()?, controls, gone: None })
    }

    fn routes(&self) -> Result<Routes, String> {
        let (mut nodes, mut peers) = (Vec::new(), Vec::new());
        for session in &self.nodes {
            match &session.route {
                Route::Shm { node, .. } => nodes.push(node.clone()),
                Route::Tcp(peer) => peers.push(peer.clone()),
            }
        }
        match (nodes.is_empty(), peers.is_empty()) {
            (false, true) => Ok(Routes::Shm(nodes)),
            (true, false) => Ok(Routes::Tcp(peers)),
            _ => Err(MIXED.to_owned()),
        }
    }

    /// Keeps the sessions as long as the process lives, and begins new ones when a memory
    /// node has ended one of them.
    async fn keep(mut self, file: &PoolFile, tls: Option<&Tls>, stay: &watch::Sender<Stay>) {
        let (incarnation, params) = (self.incarnation, self.geometry.params);
        let statistics = self.statistics.clone();
        loop {
            let mut watches = self.watch();
            let over = watches.join_next().await;
            let why =
                over.map(|over| over.map_or_else(|error| error.to_string(), |e| e.to_string()));
            tracing::error!(
                "this gateway joins the pool anew, as one that was just started: {}",
                why.unwrap_or_default()
            );
            let number = stay.borrow().number + 1;
            let begun = Self::begin(file, tls).await.and_then(|sessions| {
                if sessions.incarnation != incarnation || sessions.geometry.params != params {
                    return Err("the memory nodes were started anew, and what they held is gone: \
                                start this gateway again to serve the new pool, which is empty"
                        .to_owned());
                }
                Ok((sessions.stay(number)?, sessions))
            });
            match begun {
                Ok((new, sessions)) => {
                    self = Self { statistics: statistics.clone(), ..sessions };
                    stay.send_replace(new);
                }
                Err(reason) => {
                    tracing::error!("{reason}");
                    stay.send_modify(|stay| stay.gone = Some(reason));
                    std::future::pending::<()>().await;
                }
            }
        }
    }

    /// Tasks that keep the sessions, of which the first that ends tells which is over and
    /// why. Dropping them closes all.
    fn watch(&mut self) -> JoinSet<ControlError> {
        let mut tasks = JoinSet::new();
        for (position, session) in self.nodes.drain(..).enumerate() {
            let (client, known) = (session.attachment.client.clone(), self.statistics.clone());
            tasks.spawn(async move {
                loop {
                    if let Ok(statistics) = client.statistics().await {
                        known.lock().expect("nobody panics with it")[position] = statistics;
                    }
                    tokio::time::sleep(STATISTICS_INTERVAL).await;
                }
            });
            tasks.spawn(session.watch());
        }
        tasks
    }
}

impl Session {
    /// Keeps the session until the node has ended it.
    async fn watch(mut self) -> ControlError {
        let Self { number, attachment, route } = &mut self;
        match route {
            // What is left of its memory here nobody else sees.
            Route::Shm { node, memory } => {
                let _ = closed(memory).await;
                node.set_down(true);
                tracing::error!(node = number, "a memory node has ended, and its memory is gone");
                std::future::pending().await
            }
            // Workers see by their own connections whether it answers.
            Route::Tcp(_) => loop {
                let reason = attachment.ended().await;
                tracing::warn!(node = number, "a session's connection has broken: {reason}");
                let mut told = Told::default();
                loop {
                    match attachment.resume().await {
                        Ok(()) => break,
                        Err(over @ (ControlError::Ended { .. } | ControlError::Refused { .. })) => {
                            return over;
                        }
                        Err(error) => told.tell("taking up a session again", error),
                    }
                    tokio::time::sleep(PAUSE).await;
                }
                tracing::info!(node = number, "the session goes on");
            },
        }
    }
}

/// Tells the same reason for waiting once in a while.
#[derive(Default)]
struct Told(Option<(ControlError, Instant)>);

impl Told {
    fn tell(&mut self, what: &str, error: ControlError) {
        let is_new =
            |(last, at): &(ControlError, Instant)| *last != error || at.elapsed() > TELL_INTERVAL;
        if self.0.as_ref().is_none_or(is_new) {
            tracing::info!("{what}: {error}");
            self.0 = Some((error, Instant::now()));
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

/// Begins a session with each node, in their order.
async fn attach_all(
    file: &PoolFile,
    tls: Option<&Tls>,
    gateway: GatewayId,
) -> Result<Vec<Attachment>, ControlError> {
    let mut attachments = Vec::new();
    for number in 0..file.nodes.len() as u16 {
        attachments.push(attach(file, number, tls, gateway).await?);
    }
    Ok(attachments)
}

/// Begins a session, as soon as the node is there.
async fn attach(
    file: &PoolFile,
    number: u16,
    tls: Option<&Tls>,
    gateway: GatewayId,
) -> Result<Attachment, ControlError> {
    let mut told = Told::default();
    loop {
        let error = match Attachment::begin(file, tls, gateway, file.description(number)).await {
            Ok(attachment) => return Ok(attachment),
            Err(error) => error,
        };
        if !error.is_temporary() {
            return Err(error);
        }
        told.tell("waiting for the pool", error);
        tokio::time::sleep(PAUSE).await;
    }
}

impl Route {
    async fn find(
        file: &PoolFile,
        number: u16,
        tls: Option<&Tls>,
        attachment: &Attachment,
    ) -> Result<Self, String> {
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
                let tls = encryption(&file.nodes[usize::from(number)], tls)?;
                Ok(Self::Tcp(TcpPeer { address, token, tls }))
            }
        }
    }
}

/// By what verbs are encrypted on the way to a node: as its control plane is.
fn encryption(control: &Address, tls: Option<&Tls>) -> Result<Option<TlsPeer>, String> {
    let (Address::Tcp { host, .. }, Some(tls)) = (control, tls) else { return Ok(None) };
    let name = host.clone().try_into();
    let name = name.map_err(|_| format!("{host:?} is no name that a certificate can have"))?;
    Ok(Some(TlsPeer { config: tls.data_client(), name }))
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
