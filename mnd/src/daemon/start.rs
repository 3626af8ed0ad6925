//! From a configuration to a memory node that serves, and back.

use super::config::{Config, ConfigError};
use super::copies::Copies;
use super::node::Parts;
use super::{DataPath, Ended, Node, Report, ShmPath, TcpPath, VerbsPath};
use crate::{Ledger, NodeMemory};
use fusee_control::{
    ControlError, Fabric, GatewayId, Introduction, Listener, Membership, PeerClient, PoolFile, Tls,
    TlsError, Token, serve,
};
use fusee_fabric::verbs::VerbsError;
use fusee_fabric::{Backing, Memory, ShmNode};
use fusee_layout::{Geometry, GeometryError, SizingError};
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Why a memory node does not serve, and what to do.
#[derive(Debug, Error)]
pub enum StartError {
    /// The configuration makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No pool is like that.
    #[error(transparent)]
    Sizing(#[from] SizingError),
    /// No pool is like that.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The system gives no memory.
    #[error("cannot map {bytes} bytes of memory: {source}; make memory in the pool file smaller")]
    Memory {
        /// So much.
        bytes: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The system has no memory there.
    #[error(
        "cannot take memory from NUMA node {node}: {source}; `numactl --hardware` shows which \
         there are; --numa-node may be left out"
    )]
    Numa {
        /// Which.
        node: u16,
        /// What the system said.
        source: io::Error,
    },
    /// Another memory node.
    #[error(transparent)]
    Peer(#[from] ControlError),
    /// The RDMA device.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// A socket.
    #[error("{0}")]
    Socket(String),
}

/// Serves a memory node until `stop`, then until its gateways have left or the
/// time for that is over. On the control plane's own thread.
///
/// # Errors
///
/// If it cannot begin, or its socket fails.
pub async fn run(
    config: &Config,
    report: Report,
    stop: impl Future<Output = ()>,
) -> Result<(), StartError> {
    let file = config.pool()?;
    let tls = file.tls(config.insecure)?;
    let number = config.node;
    let memory = map(&file, config)?;
    let address = &file.nodes[usize::from(number)];
    // Before others are waited for, so that a second process on the address is told.
    let listener = Listener::bind(address).await.map_err(StartError::Socket)?;
    // Before the pool is told of this process: one that cannot serve its memory is of no
    // pool, and may be started again.
    let (ended, mut ends) = mpsc::unbounded_channel();
    let path = serve_memory(&file, config, tls.as_ref(), memory.clone(), ended)?;
    let mut stop = std::pin::pin!(stop);
    let membership = tokio::select! {
        membership = enter(&file, number, tls.as_ref()) => membership?,
        () = &mut stop => return Ok(()),
    };
    let geometry = Arc::new(Geometry::new(membership.params)?);
    let own = || NodeMemory::new(number, geometry.clone(), memory.clone());
    let mut formatted = own();
    formatted.format();
    let peers = (0..file.nodes.len() as u16)
        .filter(|&node| node != number)
        .map(|node| PeerClient::new(&file, node, tls.as_ref()))
        .collect::<Result<_, _>>()?;
    let node = Node::new(Parts {
        description: file.description(number),
        membership,
        path,
        ledger: Ledger::new(number, geometry.clone(), formatted),
        copies: Copies::new(number, membership.pool, geometry.clone(), peers),
        memory: own(),
    });
    tracing::info!(node = number, %address, pool = file.name, "serving");
    let tell = async {
        let mut told = Told::default();
        loop {
            let awaited = node.awaited();
            if awaited.is_empty() {
                tracing::info!("all memory nodes are in the pool: gateways may come");
                break;
            }
            told.tell(&format!(
                "waiting for the memory nodes {awaited:?} of the pool; one that runs already is \
                 of an earlier life of the pool: start it again"
            ));
            tokio::time::sleep(PAUSE).await;
        }
        std::future::pending::<()>().await;
    };
    let ending = async {
        while let Some(session) = ends.recv().await {
            let node = node.clone();
            tokio::spawn(async move { node.end(session).await });
        }
        // A path that sees no gateway's death has nothing to tell.
        std::future::pending::<()>().await;
    };
    let drained = async {
        stop.await;
        drain(&node, Duration::from_secs(config.drain)).await;
    };
    tokio::select! {
        served = serve(listener, tls.as_ref(), node.clone(), std::future::pending()) => {
            served.map_err(StartError::Socket)
        }
        () = tell => Ok(()),
        () = report.keep(&node, memory.memory().bytes(), memory.memory().backing()) => Ok(()),
        () = ending => Ok(()),
        () = drained => Ok(()),
    }
}

/// Lets clients at the memory, in the pool's way.
fn serve_memory(
    file: &PoolFile,
    config: &Config,
    tls: Option<&Tls>,
    memory: Arc<ShmNode>,
    ended: Ended,
) -> Result<Arc<dyn DataPath>, StartError> {
    let address = &file.nodes[usize::from(config.node)];
    match file.fabric {
        Fabric::Tcp => {
            let path = TcpPath::serve(address, config.node, memory, config.threads(), tls);
            let path = path.map_err(|error| {
                StartError::Socket(format!(
                    "cannot listen for verbs at the host of {address}: {error}"
                ))
            })?;
            tracing::info!(address = path.address(), "executing verbs");
            Ok(path)
        }
        Fabric::Verbs => {
            let path = VerbsPath::serve(&config.device_choice(), memory)?;
            tracing::info!(device = %path.device(), "the device serves the memory");
            Ok(path)
        }
        Fabric::Shm => {
            let socket = ShmPath::socket_beside(address.path().expect("the pool file was checked"));
            let path = ShmPath::serve(socket.clone(), memory, ended).map_err(|error| {
                StartError::Socket(format!("cannot listen on {}: {error}", socket.display()))
            })?;
            Ok(path)
        }
    }
}

/// The node's memory, for other processes to map if they do.
fn map(file: &PoolFile, config: &Config) -> Result<Arc<ShmNode>, StartError> {
    let number = config.node;
    let bytes = file.params(0)?.node_bytes;
    let memory = usize::try_from(bytes)
        .map_err(io::Error::other)
        .and_then(|size| {
            let name = format!("fusee-{}-{number}", file.name);
            match file.fabric {
                Fabric::Shm => Memory::shared(size, &name),
                // Memory of one process gets huge pages more often.
                Fabric::Tcp | Fabric::Verbs => Memory::embedded(size, &name),
            }
        })
        .map_err(|source| StartError::Memory { bytes, source })?;
    if let Some(numa_node) = config.numa_node {
        memory
            .prefer_numa_node(numa_node)
            .map_err(|source| StartError::Numa { node: numa_node, source })?;
    }
    match memory.backing() {
        Backing::HugeTlb => tracing::info!(bytes, "the memory is on reserved huge pages"),
        backing => {
            let pages = bytes.div_ceil(2 << 20);
            tracing::warn!(
                bytes,
                ?backing,
                "no huge pages are reserved for the memory, which costs speed: \
                 `sysctl vm.nr_hugepages={pages}` more than are in use reserves them"
            );
        }
    }
    Ok(Arc::new(ShmNode::new(memory)))
}

const PAUSE: Duration = Duration::from_millis(200);

/// Node 0 begins the pool's life; the others ask it to be let in, until it is there.
async fn enter(file: &PoolFile, number: u16, tls: Option<&Tls>) -> Result<Membership, StartError> {
    if number == 0 {
        let random = *Token::random().bytes();
        let half = |half: &[u8]| half.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        let params = file.params(half(&random[..8]))?;
        return Ok(Membership { pool: Token::random(), params, incarnation: half(&random[8..]) });
    }
    let first = PeerClient::new(file, 0, tls)?;
    let process = GatewayId::random();
    let mut told = Told::default();
    loop {
        let description = file.description(0);
        let introduction = Introduction { description, from: number, process };
        match first.introduce(introduction).await {
            Ok(membership) => return Ok(membership),
            Err(error) if error.is_temporary() => {
                told.tell(&format!("waiting for memory node 0: {error}"));
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until nobody is at the memory any more.
async fn drain(node: &Node, limit: Duration) {
    node.refuse_gateways();
    let gone = async {
        while node.sessions() > 0 {
            tokio::time::sleep(PAUSE).await;
        }
    };
    if node.sessions() > 0 {
        tracing::info!(gateways = node.sessions(), "stopping: waiting for gateways to leave");
    }
    if tokio::time::timeout(limit, gone).await.is_err() {
        tracing::warn!(
            gateways = node.sessions(),
            "gateways did not leave in time: they lose this node's memory"
        );
    }
}

/// Says the same thing once in a while.
#[derive(Default)]
struct Told {
    last: Option<(String, Instant)>,
}

const TELL_INTERVAL: Duration = Duration::from_secs(10);

impl Told {
    fn tell(&mut self, text: &str) {
        let told = self
            .last
            .as_ref()
            .is_some_and(|(last, at)| last == text && at.elapsed() < TELL_INTERVAL);
        if !told {
            tracing::info!("{text}");
            self.last = Some((text.to_owned(), Instant::now()));
        }
    }
}
