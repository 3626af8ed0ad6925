//! The node's end: a [`NodeService`] behind a socket.

use crate::client::PROBE_INTERVAL;
use crate::proto::memory_node_server::{MemoryNode, MemoryNodeServer};
use crate::{
    Address, Admission, Attach, Denied, Expulsion, GatewayPeer, Introduction, Membership,
    Replication, Tls, Token, convert, proto,
};
use fusee_fabric::verbs::{NodeQueuePair, QueuePairAddress};
use fusee_layout::message::{Request, Response, Statistics};
use std::future::Future;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio_stream::Stream;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request as Call, Response as Reply, Status};

/// What a memory node does for others.
pub trait NodeService: Send + Sync + 'static {
    /// Kept while a session's stream is open; ready when the node ends the
    /// session, dropped when the client closes the stream or is silent for
    /// [`SILENCE_TIME_MAX`].
    type Hold: Future<Output = ()> + Send + 'static;

    /// A gateway wants to begin a session, or to take one up again.
    fn attach(
        &self,
        attach: Attach,
    ) -> impl Future<Output = Result<(Admission, Self::Hold), Denied>> + Send;

    /// A session's client asks for something.
    fn request(
        &self,
        session: Token,
        request: Request,
    ) -> impl Future<Output = Result<Response, Denied>> + Send;

    /// A session's worker wants a peer for its queue pair, in place of the one that it
    /// has by this link, which is to be destroyed first.
    fn open_queue_pair(
        &self,
        session: Token,
        link: u64,
        client: QueuePairAddress,
    ) -> impl Future<Output = Result<NodeQueuePair, Denied>> + Send;

    /// A session wants to know what the node has given.
    fn statistics(&self, session: Token)
    -> impl Future<Output = Result<Statistics, Denied>> + Send;

    /// A gateway tells where others reach it, and wants to know where they are.
    fn meet(
        &self,
        session: Token,
        address: String,
        secret: Token,
    ) -> impl Future<Output = Result<Vec<GatewayPeer>, Denied>> + Send;

    /// A memory node wants to be let into the pool.
    fn introduce(
        &self,
        introduction: Introduction,
    ) -> impl Future<Output = Result<Membership, Denied>> + Send;

    /// A gateway's session has ended on node 0.
    fn expel(&self, expulsion: Expulsion) -> impl Future<Output = Result<(), Denied>> + Send;

    /// Another node has decided something.
    fn replicate(
        &self,
        replication: Replication,
    ) -> impl Future<Output = Result<(), Denied>> + Send;
}

/// A socket on which a control plane is going to be served.
#[derive(Debug)]
pub enum Listener {
    /// On this machine.
    Unix(tokio::net::UnixListener),
    /// On the network.
    Tcp(tokio::net::TcpListener),
}

impl Listener {
    /// Listens on a node's address. A socket that a dead process left behind is
    /// replaced.
    ///
    /// # Errors
    ///
    /// If somebody listens there or the system does not let us; with what to do.
    pub async fn bind(address: &Address) -> Result<Self, String> {
        let listen = async {
            match address {
                Address::Unix(path) => listen_unix(path).map(Self::Unix),
                Address::Tcp { host, port } => {
                    tokio::net::TcpListener::bind((host.as_str(), *port)).await.map(Self::Tcp)
                }
            }
        };
        listen.await.map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => format!(
                "{address} is in use: does this memory node run already? Stop it, or give another \
                 address in the pool file"
            ),
            io::ErrorKind::NotFound => {
                format!("cannot listen on {address}: make its folder first, or give another one")
            }
            io::ErrorKind::AddrNotAvailable => format!(
                "cannot listen on {address}: it is not an address of this machine; does --node \
                 name the right one?"
            ),
            _ => format!("cannot listen on {address}: {error}"),
        })
    }
}

/// Listens on a Unix socket, for this user and group; one that a dead process left
/// behind is replaced.
///
/// # Errors
///
/// If somebody listens there or the system does not let us.
pub fn listen_unix(path: &Path) -> io::Result<tokio::net::UnixListener> {
    let is_stale = std::os::unix::net::UnixStream::connect(path)
        .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if is_stale {
        std::fs::remove_file(path)?;
    }
    let listener = tokio::net::UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}

/// Serves until `stop` is ready, then until the calls under way have ended.
///
/// # Errors
///
/// If the certificates cannot be used or the socket fails.
pub async fn serve<S: NodeService>(
    listener: Listener,
    tls: Option<&Tls>,
    service: S,
    stop: impl Future<Output = ()>,
) -> Result<(), String> {
    let mut server = Server::builder()
        .http2_keepalive_interval(Some(PROBE_INTERVAL))
        .http2_keepalive_timeout(Some(SILENCE_TIME_MAX - PROBE_INTERVAL));
    let service =
        MemoryNodeServer::new(Served(service)).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let served = match listener {
        Listener::Unix(listener) => {
            let incoming = UnixListenerStream::new(listener);
            server.serve_with_incoming_shutdown(service, incoming, stop).await
        }
        Listener::Tcp(listener) => {
            if let Some(tls) = tls {
                server = server
                    .tls_config(tls.server())
                    .map_err(|error| crate::TlsError::Content(error.to_string()).to_string())?;
            }
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            server.serve_with_incoming_shutdown(service, incoming, stop).await
        }
    };
    served.map_err(|error| format!("the control plane has failed: {error}"))
}

/// The system of a client that answers nothing for so long is taken for dead, and its
/// connection closed. A process that is merely held up, by a debugger, a pause of its
/// virtual machine or a processor with too much to do, comes back before; what waits for
/// a dead one meanwhile is memory that was freed, and no operation.
pub const SILENCE_TIME_MAX: Duration = Duration::from_secs(10);

/// A leaving client's blocks are the longest message: an entry takes some 20 bytes,
/// and a node with a million blocks stays below this.
const MESSAGE_BYTES_MAX: usize = 32 << 20;

/// Turns messages into calls of a service.
struct Served<S>(S);

#[tonic::async_trait]
impl<S: NodeService> MemoryNode for Served<S> {
    type AttachStream = SessionStream<S::Hold>;

    async fn attach(
        &self,
        call: Call<proto::AttachRequest>,
    ) -> Result<Reply<Self::AttachStream>, Status> {
        let (admission, hold) = self.0.attach(convert::attach(call.into_inner())?).await?;
        Ok(Reply::new(SessionStream { first: Some(admission.into()), hold: Box::pin(hold) }))
    }

    async fn call(&self, call: Call<proto::CallRequest>) -> Result<Reply<proto::Reply>, Status> {
        let (session, request) = convert::call(call.into_inner())?;
        Ok(Reply::new(self.0.request(session, request).await?.into()))
    }

    async fn open_queue_pair(
        &self,
        call: Call<proto::OpenQueuePairRequest>,
    ) -> Result<Reply<proto::OpenedQueuePair>, Status> {
        let (session, link, client) = convert::open_queue_pair(call.into_inner())?;
        Ok(Reply::new(self.0.open_queue_pair(session, link, client).await?.into()))
    }

    async fn statistics(
        &self,
        call: Call<proto::StatisticsRequest>,
    ) -> Result<Reply<proto::StatisticsReply>, Status> {
        let session = convert::token(&call.get_ref().token)?;
        Ok(Reply::new(self.0.statistics(session).await?.into()))
    }

    async fn meet(&self, call: Call<proto::MeetRequest>) -> Result<Reply<proto::Met>, Status> {
        let message = call.into_inner();
        let session = convert::token(&message.token)?;
        let secret = convert::token(&message.secret)?;
        let others = self.0.meet(session, message.address, secret).await?;
        Ok(Reply::new(proto::Met { others: others.into_iter().map(Into::into).collect() }))
    }

    async fn introduce(
        &self,
        call: Call<proto::IntroduceRequest>,
    ) -> Result<Reply<proto::Introduced>, Status> {
        let introduction = convert::introduction(call.into_inner())?;
        Ok(Reply::new(self.0.introduce(introduction).await?.into()))
    }

    async fn expel(&self, call: Call<proto::ExpelRequest>) -> Result<Reply<proto::Done>, Status> {
        self.0.expel(convert::expulsion(call.into_inner())?).await?;
        Ok(Reply::new(proto::Done {}))
    }

    async fn replicate(
        &self,
        call: Call<proto::ReplicateRequest>,
    ) -> Result<Reply<proto::Done>, Status> {
        self.0.replicate(convert::replication(call.into_inner())?).await?;
        Ok(Reply::new(proto::Done {}))
    }
}

/// Tells what was handed out, and stays open as long as the session.
struct SessionStream<H> {
    first: Option<proto::Attached>,
    hold: Pin<Box<H>>,
}

impl<H: Future<Output = ()>> Stream for SessionStream<H> {
    type Item = Result<proto::Attached, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => self.hold.as_mut().poll(context).map(|()| None),
        }
    }
}
