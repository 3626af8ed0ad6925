//! The sessions by which this process may use a pool, one on each memory node, and how
//! each node's memory is reached.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fusee_control::{
    Address, Attachment, ControlError, GatewayId, MemoryRoute, PoolFile, Tls, Token,
};
use fusee_fabric::tcp::{TcpPeer, TlsPeer};
use fusee_fabric::{ShmNode, receive_memory};
use fusee_layout::Geometry;
use fusee_layout::message::Statistics;
use tokio::io::AsyncReadExt as _;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{MIXED, Routes, Stay};

/// Between two looks at a memory node that is not there yet.
const PAUSE: Duration = Duration::from_millis(200);
/// How often the same reason for waiting is told.
const TELL_INTERVAL: Duration = Duration::from_secs(10);
/// How often the memory nodes are asked what they have given.
const STATISTICS_INTERVAL: Duration = Duration::from_secs(1);
/// A memory node on this host hands its memory over at once.
const HANDOVER_TIME_MAX: Duration = Duration::from_secs(5);

/// The sessions of this process, one on each memory node.
pub(super) struct Sessions {
    pub(super) geometry: Arc<Geometry>,
    incarnation: u64,
    nodes: Vec<Session>,
    pub(super) statistics: Arc<Mutex<Vec<Statistics>>>,
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
    Verbs,
}

impl Sessions {
    pub(super) async fn begin(file: &PoolFile, tls: Option<&Tls>) -> Result<Self, String> {
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

    pub(super) fn stay(&self, number: u64) -> Result<Stay, String> {
        let controls = self.nodes.iter().map(|s| s.attachment.client.clone()).collect();
        Ok(Stay { number, routes: self.routes()?, controls, gone: None })
    }

    fn routes(&self) -> Result<Routes, String> {
        let (mut nodes, mut peers, mut verbs) = (Vec::new(), Vec::new(), 0);
        for session in &self.nodes {
            match &session.route {
                Route::Shm { node, .. } => nodes.push(node.clone()),
                Route::Tcp(peer) => peers.push(peer.clone()),
                Route::Verbs => verbs += 1,
            }
        }
        match (nodes.len(), peers.len(), verbs) {
            (_, 0, 0) => Ok(Routes::Shm(nodes)),
            (0, _, 0) => Ok(Routes::Tcp(peers)),
            (0, 0, _) => Ok(Routes::Verbs),
            _ => Err(MIXED.to_owned()),
        }
    }

    /// Keeps the sessions as long as the process lives, and begins new ones when a memory
    /// node has ended one of them.
    pub(super) async fn keep(
        mut self,
        file: &PoolFile,
        tls: Option<&Tls>,
        stay: &watch::Sender<Stay>,
    ) {
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
            Route::Tcp(_) | Route::Verbs => loop {
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
            MemoryRoute::Verbs { device } => {
                tracing::info!(node = number, device, "the memory node is on RDMA");
                Ok(Self::Verbs)
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
