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
use fusee_fabric::{Batch, ControlPlane, ShmEndpoint, ShmFabric, ShmNode, receive_memory};
use fusee_layout::message::Statistics;
use fusee_layout::{Geometry, NodeAddress, PoolParams, Superblock};
use tokio::io::AsyncReadExt as _;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::metrics::Source;
use crate::store::{Pool, PoolStore};

/// A pool that this process has joined. Clones are the same pool.
#[derive(Clone)]
pub struct Joined {
    pool: Pool,
    nodes: Vec<Arc<ShmNode>>,
    controls: Vec<NodeClient>,
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
                        if done.send(Ok(sessions.joined(config))).is_ok() {
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

    /// A store for the worker that calls it.
    ///
    /// # Errors
    ///
    /// With the reason, if the pool takes no more clients.
    pub async fn store(&self) -> Result<PoolStore<ShmFabric>, String> {
        self.pool.store(self.fabric().await?).await
    }

    /// A way to the memory nodes for the thread that calls it.
    ///
    /// # Errors
    ///
    /// With the reason, if there is none.
    pub async fn fabric(&self) -> Result<ShmFabric, String> {
        let controls = self.controls.iter().map(|c| Arc::new(c.clone()) as Arc<dyn ControlPlane>);
        Ok(ShmFabric::new(self.nodes.clone(), controls.collect()))
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
    node: Arc<ShmNode>,
    /// The kernel closes it when this process, or the memory node's, has ended.
    memory: UnixStream,
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
            let (node, memory) = reach(number, &attachment, &params)?;
            nodes.push(Session { number, attachment, node, memory });
        }
        tracing::info!(
            pool = file.name, memory_nodes = nodes.len(), replicas = params.replicas, %gateway,
            "joined the pool"
        );
        let statistics = Arc::new(Mutex::new(vec![Statistics::default(); nodes.len()]));
        Ok(Self { geometry: Arc::new(geometry), nodes, statistics })
    }

    fn joined(&self, config: StoreConfig) -> Joined {
        let statistics = self.statistics.clone();
        let known = Arc::new(move || statistics.lock().expect("nobody panics with it").clone());
        Joined {
            pool: Pool::new(self.geometry.clone(), config, known),
            nodes: self.nodes.iter().map(|session| session.node.clone()).collect(),
            controls: self.nodes.iter().map(|s| s.attachment.client.clone()).collect(),
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
    async fn watch(self) {
        let Self { number, attachment: _attachment, node, memory } = self;
        let ended = async {
            memory.set_nonblocking(true)?;
            let mut memory = tokio::net::UnixStream::from_std(memory)?;
            while memory.read(&mut [0]).await? > 0 {}
            io::Result::Ok(())
        };
        let _ = ended.await;
        node.set_down(true);
        tracing::error!(node = number, "a memory node has ended, and its memory is gone");
    }
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

/// Reaches a node's memory, and makes sure that it is the pool's.
fn reach(
    number: u16,
    attachment: &Attachment,
    params: &PoolParams,
) -> Result<(Arc<ShmNode>, UnixStream), String> {
    let MemoryRoute::Shm { socket } = &attachment.admission.path else {
        return Err(format!("memory node {number} is not on shared memory as the pool file says"));
    };
    let fetched = fetch(socket, &attachment.admission.token);
    let (node, stream) =
        fetched.map_err(|error| format!("memory node {number} hands no memory over: {error}"))?;
    let node = Arc::new(node);
    let found = superblock(&node).map_err(|reason| format!("memory node {number}: {reason}"))?;
    if found.params != *params || node.memory().bytes() < params.node_bytes {
        return Err(format!(
            "the memory of memory node {number} is another pool's: start all memory nodes again"
        ));
    }
    Ok((node, stream))
}

/// Fetches a node's memory, and the connection that keeps the session.
fn fetch(socket: &Path, token: &Token) -> io::Result<(ShmNode, UnixStream)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(HANDOVER_TIME_MAX))?;
    stream.write_all(token.bytes())?;
    let memory = receive_memory(&stream)?;
    Ok((ShmNode::new(memory), stream))
}

fn superblock(node: &Arc<ShmNode>) -> Result<Superblock, String> {
    let mut batch = Batch::new();
    let read = batch.read(NodeAddress { node: 0, offset: 0 }, Superblock::BYTES);
    ShmEndpoint::new(vec![node.clone()]).execute(&mut batch);
    let bytes = batch.bytes(read).map_err(|_| "its memory has no room for a pool".to_owned())?;
    let bytes = bytes.try_into().expect("a READ brings what was asked for");
    Superblock::parse(bytes).map_err(|error| error.to_string())
}
