//! The node: answers what others ask over the control plane.
//!
//! Two locks, so that two nodes never wait for each other: what this node decides
//! is serialised by `decisions`, which is held while the others write their copies;
//! what others have decided needs only `foreign`.

use super::DataPath;
use super::copies::Copies;
use super::served::Served;
use super::sessions::{Sessions, StreamId};
use crate::{Ledger, NodeMemory};
use fusee_control::{
    Admission, Attach, Denied, Description, Expulsion, GatewayId, GatewayPeer, Introduction,
    Membership, NodeService, Replication, Token,
};
use fusee_fabric::tcp::TcpStatistics;
use fusee_fabric::verbs::{NodeQueuePair, QueuePairAddress};
use fusee_layout::message::{Request, Response, Statistics};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;

/// A memory node that is in a pool. Clones are the same node.
#[derive(Clone)]
pub struct Node(Arc<Shared>);

struct Shared {
    description: Description,
    membership: Membership,
    path: Arc<dyn DataPath>,
    sessions: Sessions,
    decisions: tokio::sync::Mutex<Decisions>,
    foreign: Mutex<Foreign>,
    /// On node 0: the processes of the other nodes.
    introduced: Mutex<HashMap<u16, GatewayId>>,
    stopping: AtomicBool,
}

struct Decisions {
    ledger: Ledger,
    copies: Copies,
    served: Served,
}

/// What other nodes decided.
struct Foreign {
    memory: NodeMemory,
    /// The last message of each node.
    sequences: HashMap<u16, u64>,
}

/// What a node is made of.
pub(super) struct Parts {
    pub(super) description: Description,
    pub(super) membership: Membership,
    pub(super) path: Arc<dyn DataPath>,
    pub(super) ledger: Ledger,
    pub(super) copies: Copies,
    pub(super) memory: NodeMemory,
}

/// How long node 0 tries to have another node expel a gateway.
const EXPEL_TRIES: u32 = 5;
const EXPEL_PAUSE: Duration = Duration::from_secs(1);

impl Node {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { description, membership, path, ledger, copies, memory } = parts;
        let foreign = Foreign { memory, sequences: HashMap::new() };
        Self(Arc::new(Shared {
            description,
            membership,
            path,
            sessions: Sessions::default(),
            decisions: tokio::sync::Mutex::new(Decisions {
                ledger,
                copies,
                served: Served::default(),
            }),
            foreign: Mutex::new(foreign),
            introduced: Mutex::default(),
            stopping: AtomicBool::new(false),
        }))
    }

    /// Memory nodes that node 0 waits for.
    pub fn awaited(&self) -> Vec<u16> {
        if self.number() != 0 {
            return Vec::new();
        }
        let introduced = self.0.introduced.lock().expect("nobody panics with it");
        (1..self.0.description.nodes).filter(|node| !introduced.contains_key(node)).collect()
    }

    /// Its number in the pool.
    pub fn number(&self) -> u16 {
        self.0.description.node
    }

    /// Is it about to end?
    pub fn is_stopping(&self) -> bool {
        self.0.stopping.load(Relaxed)
    }

    /// From now on no gateway may come.
    pub(super) fn refuse_gateways(&self) {
        // Relaxed: nothing else is told by it.
        self.0.stopping.store(true, Relaxed);
    }

    /// How many gateways are at the memory.
    pub fn sessions(&self) -> usize {
        self.0.sessions.count()
    }

    /// What the node has given, and the nodes that miss copies of it.
    pub async fn state(&self) -> (Statistics, Vec<u16>) {
        let decisions = self.0.decisions.lock().await;
        (decisions.ledger.statistics(), decisions.copies.lost())
    }

    /// What it was asked.
    pub async fn served(&self) -> Served {
        self.0.decisions.lock().await.served
    }

    /// What its data path has executed, if that is done by this process.
    pub fn executed(&self) -> Option<TcpStatistics> {
        self.0.path.statistics()
    }

    /// A session's stream has ended: so does the session, unless the gateway comes back in
    /// time or its data path tells when it ends.
    fn stream_closed(&self, stream: StreamId) {
        let sessions = &self.0.sessions;
        if !sessions.is_held_by(&stream) {
            return;
        }
        let Some(mut time_max) = self.0.path.stream_closed(&stream.session) else { return };
        if self.number() == 0 && !sessions.has_clients(&stream.session) {
            // It has left, and need not be waited for.
            time_max = Duration::ZERO;
        }
        let node = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(time_max).await;
            if node.0.sessions.is_held_by(&stream) {
                node.end(stream.session).await;
            }
        });
    }

    /// A session has ended: shuts it out, and on node 0 has all others do so too
    /// before its clients cease to be members.
    pub async fn end(&self, token: Token) {
        let Some(session) = self.0.sessions.end(&token) else { return };
        self.0.path.revoke(token).await;
        tracing::info!(gateway = %session.gateway, "a gateway has gone");
        if self.number() == 0 {
            self.expel_everywhere(session.gateway, session.clients.into_iter().collect()).await;
        }
    }

    async fn expel_everywhere(&self, gateway: GatewayId, clients: Vec<u32>) {
        let peers = self.0.decisions.lock().await.copies.clients();
        let expulsions = peers.into_iter().map(|peer| {
            let expulsion =
                Expulsion { pool: self.0.membership.pool, gateway, clients: clients.clone() };
            tokio::spawn(async move {
                for _ in 0..EXPEL_TRIES {
                    match peer.expel(expulsion.clone()).await {
                        Ok(()) => return,
                        Err(error) => tracing::warn!(%error, %gateway, "a gateway is not expelled"),
                    }
                    tokio::time::sleep(EXPEL_PAUSE).await;
                }
                tracing::error!(
                    node = peer.node(), %gateway,
                    "a memory node does not expel a gateway and is taken for lost"
                );
            })
        });
        // All are under way before one is waited for.
        for expulsion in expulsions.collect::<Vec<_>>() {
            let _ = expulsion.await;
        }
        for client in clients {
            tracing::info!(client, %gateway, "a client that did not leave is expelled");
            self.decide(Request::Expel { client }).await;
        }
    }

    /// Decides, and has it written everywhere. Not to be dropped half way.
    async fn decide(&self, request: Request) -> Response {
        let mut decisions = self.0.decisions.lock().await;
        decisions.handle(request).await
    }

    /// What a session's client asks, unless the session has ended before its turn.
    async fn decide_for(&self, session: Token, request: Request) -> Result<Response, Denied> {
        let mut decisions = self.0.decisions.lock().await;
        // Looked at under the lock: after an expulsion, nothing of the session is
        // decided any more.
        if !self.0.sessions.is_live(&session) {
            return Err(Denied::Unknown);
        }
        let response = decisions.handle(request).await;
        match (request, response) {
            (Request::Join { .. }, Response::Joined { client, .. })
                if !self.0.sessions.joined(&session, client) =>
            {
                decisions.handle(Request::Leave { client }).await;
                return Err(Denied::Unknown);
            }
            (Request::Leave { client }, Response::Done) => self.0.sessions.left(&session, client),
            _ => {}
        }
        Ok(response)
    }

    fn check_pool(&self, pool: &Token) -> Result<(), Denied> {
        if *pool == self.0.membership.pool { Ok(()) } else { Err(Denied::Unknown) }
    }
}

impl Decisions {
    async fn handle(&mut self, request: Request) -> Response {
        let (response, effects) = self.ledger.handle(request);
        self.served.count(&request, &response);
        // Under the lock, so that no copy goes back to what an earlier request
        // made of it.
        self.copies.write(&effects).await;
        response
    }
}

/// Runs what must not stop half way when the caller hangs up.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, Denied> {
    let failed = |_| Denied::NotReady("the memory node is stopping".to_owned());
    tokio::spawn(work).await.map_err(failed)
}

impl NodeService for Node {
    type Hold = Hold;

    async fn attach(&self, attach: Attach) -> Result<(Admission, Hold), Denied> {
        let Attach { description, gateway, session } = attach;
        if let Some(difference) = self.0.description.difference(&description) {
            return Err(Denied::Refused(format!("this gateway is of another pool: {difference}")));
        }
        let (sender, ended) = oneshot::channel();
        if let Some(token) = session {
            let resumed = self.0.sessions.resume(&token, gateway, sender).ok_or(Denied::Unknown)?;
            let (stream, admission) = resumed;
            tracing::info!(%gateway, "a gateway has come back, and its session goes on");
            return Ok((admission, Hold { node: self.clone(), stream, ended }));
        }
        if self.is_stopping() {
            return Err(Denied::NotReady("it is stopping".to_owned()));
        }
        let awaited = self.awaited();
        if !awaited.is_empty() {
            return Err(Denied::NotReady(format!("it waits for the memory nodes {awaited:?}")));
        }
        let token = Token::random();
        let path = self.0.path.admit(token)?;
        let Membership { params, incarnation, .. } = self.0.membership;
        let admission = Admission { token, params, incarnation, path };
        let Some(stream) = self.0.sessions.begin(gateway, admission.clone(), sender) else {
            self.0.path.revoke(token).await;
            // It has one, or one of the pool's nodes has ended it: no two under one name.
            return Err(Denied::Unknown);
        };
        tracing::info!(%gateway, "a gateway has come");
        Ok((admission, Hold { node: self.clone(), stream, ended }))
    }

    async fn request(&self, session: Token, request: Request) -> Result<Response, Denied> {
        let node = self.clone();
        to_the_end(async move { node.decide_for(session, request).await }).await?
    }

    async fn open_queue_pair(
        &self,
        session: Token,
        link: u64,
        client: QueuePairAddress,
    ) -> Result<NodeQueuePair, Denied> {
        if !self.0.sessions.is_live(&session) {
            return Err(Denied::Unknown);
        }
        let path = self.0.path.clone();
        let open = move || path.open_queue_pair(session, link, &client);
        let opened = tokio::task::spawn_blocking(open);
        opened.await.map_err(|_| Denied::Refused("it has failed at it".to_owned()))?
    }

    async fn statistics(&self, session: Token) -> Result<Statistics, Denied> {
        if !self.0.sessions.is_live(&session) {
            return Err(Denied::Unknown);
        }
        Ok(self.state().await.0)
    }

    async fn meet(
        &self,
        session: Token,
        address: String,
        secret: Token,
    ) -> Result<Vec<GatewayPeer>, Denied> {
        self.0.sessions.meet(&session, address, secret).ok_or(Denied::Unknown)
    }

    async fn introduce(&self, introduction: Introduction) -> Result<Membership, Denied> {
        let Introduction { description, from, process } = introduction;
        if let Some(difference) = self.0.description.difference(&description) {
            return Err(Denied::Refused(format!("that node is of another pool: {difference}")));
        }
        if from == 0 || from >= self.0.description.nodes {
            return Err(Denied::Refused(format!("this pool has no memory node {from}")));
        }
        let mut introduced = self.0.introduced.lock().expect("nobody panics with it");
        let known = *introduced.entry(from).or_insert(process);
        if known != process {
            return Err(Denied::Refused(format!(
                "memory node {from} was in this pool as another process, whose memory is gone: \
                 stop all memory nodes and gateways of the pool and start them again, empty"
            )));
        }
        tracing::info!(node = from, "a memory node is in the pool");
        Ok(self.0.membership)
    }

    async fn expel(&self, expulsion: Expulsion) -> Result<(), Denied> {
        self.check_pool(&expulsion.pool)?;
        let node = self.clone();
        to_the_end(async move {
            let gateway = expulsion.gateway;
            if let Some(token) = node.0.sessions.end_of(gateway) {
                node.0.path.revoke(token).await;
                tracing::info!(%gateway, "a gateway has gone");
            }
            for client in expulsion.clients {
                node.decide(Request::Expel { client }).await;
            }
        })
        .await
    }

    async fn replicate(&self, replication: Replication) -> Result<(), Denied> {
        let Replication { pool, from, sequence, effects } = replication;
        self.check_pool(&pool)?;
        let mut foreign = self.0.foreign.lock().expect("nobody panics with it");
        let last = foreign.sequences.get(&from).copied().unwrap_or(0);
        if sequence <= last {
            // Sent again after a connection broke.
            return Ok(());
        }
        if sequence != last + 1 {
            return Err(Denied::Refused(format!(
                "it has message {last} of memory node {from} and gets {sequence}"
            )));
        }
        if !effects.iter().all(|effect| foreign.memory.admits(effect)) {
            return Err(Denied::Malformed("an effect"));
        }
        foreign.memory.apply(&effects);
        foreign.sequences.insert(from, sequence);
        Ok(())
    }
}

/// A session's stream: ready when the session has ended here or is held by another one,
/// dropped when the gateway has closed it.
pub struct Hold {
    node: Node,
    stream: StreamId,
    ended: oneshot::Receiver<()>,
}

impl Future for Hold {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.ended).poll(context).map(|_| ())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.node.stream_closed(self.stream);
    }
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
