//! The client's end: a memory node as gateways call it, and as other memory nodes do.

use crate::proto::memory_node_client::MemoryNodeClient;
use crate::{
    Address, Admission, Attach, ControlError, Denied, Description, Expulsion, GatewayId,
    GatewayPeer, Introduction, Membership, PoolFile, Replication, Tls, Token, convert, proto,
};
use fusee_fabric::verbs::{NodeQueuePair, QueuePairAddress};
use fusee_fabric::{ControlFuture, ControlPlane, NodeDown};
use fusee_layout::message::{Request, Response, Statistics};
use std::future::Future;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

/// A call takes no longer. A node that decides waits for the copies on others,
/// [`REPLICATE_TIME_MAX`] at most, and for those who asked before.
pub const CALL_TIME_MAX: Duration = Duration::from_secs(5);
/// A node that does not take a copy within this time is taken for lost.
pub const REPLICATE_TIME_MAX: Duration = Duration::from_secs(2);
/// A peer in the same data centre answers in a millisecond, or is away.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);
/// How often a connection without traffic is probed.
pub(crate) const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// How long a node may take to answer a probe. The connection is closed then, and another
/// one made: a session goes on over it.
const PROBE_TIME_MAX: Duration = Duration::from_secs(2);

/// A way to one memory node.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) node: u16,
    address: Address,
    client: MemoryNodeClient<Channel>,
}

impl Way {
    /// To node `node` of a pool. Connects when something is asked, and again
    /// after a connection broke; it needs a runtime to do so, this one.
    fn new(file: &PoolFile, node: u16, tls: Option<&Tls>) -> Result<Self, ControlError> {
        let address = file.nodes[usize::from(node)].clone();
        let channel = channel(&address, tls).map_err(|error| ControlError::Refused {
            node,
            address: address.clone(),
            reason: format!("the connection cannot be set up: {error}"),
        })?;
        Ok(Self { node, address, client: MemoryNodeClient::new(channel) })
    }

    async fn ask<T>(
        &self,
        time_max: Duration,
        call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, ControlError> {
        match tokio::time::timeout(time_max, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(ControlError::from_status(self.node, &self.address, &status)),
            Err(_) => Err(self.silent(time_max)),
        }
    }

    /// A session's stream, with what was handed out.
    async fn attach(
        &self,
        attach: Attach,
    ) -> Result<(Admission, Streaming<proto::Attached>), ControlError> {
        let mut client = self.client.clone();
        let mut stream =
            self.ask(CALL_TIME_MAX, client.attach(proto::AttachRequest::from(attach))).await?;
        let first = async {
            let first = stream.message().await?;
            first.map(tonic::Response::new).ok_or(Status::unavailable("it ended the session"))
        };
        let first = self.ask(CALL_TIME_MAX, first).await?;
        let admission = convert::admission(first).map_err(|denied| self.nonsense(&denied))?;
        Ok((admission, stream))
    }

    fn silent(&self, time_max: Duration) -> ControlError {
        ControlError::Unreachable {
            node: self.node,
            address: self.address.clone(),
            reason: format!("no answer within {} s", time_max.as_secs()),
        }
    }

    /// An answer that makes no sense.
    fn nonsense(&self, denied: &Denied) -> ControlError {
        ControlError::Refused {
            node: self.node,
            address: self.address.clone(),
            reason: format!("its answer is wrong: {denied}; run the same release everywhere"),
        }
    }
}

fn channel(address: &Address, tls: Option<&Tls>) -> Result<Channel, tonic::transport::Error> {
    let endpoint = match (address, tls) {
        (Address::Unix(_), _) => Endpoint::from_shared(address.to_string())?,
        (Address::Tcp { .. }, None) => Endpoint::from_shared(format!("http://{address}"))?,
        (Address::Tcp { host, .. }, Some(tls)) => {
            Endpoint::from_shared(format!("https://{address}"))?.tls_config(tls.client(host))?
        }
    };
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIME_MAX)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PROBE_INTERVAL)
        .keep_alive_timeout(PROBE_TIME_MAX)
        .keep_alive_while_idle(true);
    Ok(endpoint.connect_lazy())
}

/// A gateway's session on a memory node, as the gateway holds it.
#[derive(Debug)]
pub struct Attachment {
    /// What the node handed out.
    pub admission: Admission,
    /// To ask the node by.
    pub client: NodeClient,
    attach: Attach,
    stream: Streaming<proto::Attached>,
}

impl Attachment {
    /// Begins a session with a node, the one that the description names.
    ///
    /// # Errors
    ///
    /// If the node does not answer, is not ready, or takes no such client.
    pub async fn begin(
        file: &PoolFile,
        tls: Option<&Tls>,
        gateway: GatewayId,
        description: Description,
    ) -> Result<Self, ControlError> {
        let way = Way::new(file, description.node, tls)?;
        let mut attach = Attach { description, gateway, session: None };
        let (admission, stream) = way.attach(attach.clone()).await?;
        attach.session = Some(admission.token);
        let client = NodeClient { way, token: admission.token };
        Ok(Self { admission, client, attach, stream })
    }

    /// Takes the session up again after its stream has ended.
    ///
    /// # Errors
    ///
    /// If the node does not answer; [`ControlError::Ended`] if the session is over.
    pub async fn resume(&mut self) -> Result<(), ControlError> {
        (self.admission, self.stream) = self.client.way.attach(self.attach.clone()).await?;
        Ok(())
    }

    /// Waits until the stream has ended, and tells why. Whether the session has,
    /// [`Self::resume`] tells.
    pub async fn ended(&mut self) -> ControlError {
        let way = &self.client.way;
        loop {
            match self.stream.message().await {
                Ok(Some(_)) => {}
                Ok(None) => {
                    return ControlError::Ended { node: way.node, address: way.address.clone() };
                }
                Err(status) => return ControlError::from_status(way.node, &way.address, &status),
            }
        }
    }
}

/// A memory node as a gateway with a session calls it. Clones share a connection,
/// and may be used on any runtime while the one that made it runs.
#[derive(Clone, Debug)]
pub struct NodeClient {
    way: Way,
    token: Token,
}

impl NodeClient {
    /// What the node has given.
    ///
    /// # Errors
    ///
    /// If it does not answer, or the session has ended.
    pub async fn statistics(&self) -> Result<Statistics, ControlError> {
        let request = proto::StatisticsRequest { token: self.token.bytes().to_vec() };
        let mut client = self.way.client.clone();
        self.way.ask(CALL_TIME_MAX, client.statistics(request)).await.map(Into::into)
    }

    /// Tells where other gateways reach this one, and learns where they are.
    ///
    /// # Errors
    ///
    /// If it does not answer, or the session has ended.
    pub async fn meet(
        &self,
        address: &str,
        secret: Token,
    ) -> Result<Vec<GatewayPeer>, ControlError> {
        let request = proto::MeetRequest {
            token: self.token.bytes().to_vec(),
            address: address.to_owned(),
            secret: secret.bytes().to_vec(),
        };
        let mut client = self.way.client.clone();
        let met = self.way.ask(CALL_TIME_MAX, client.meet(request)).await?;
        let others: Result<Vec<_>, _> = met.others.into_iter().map(convert::peer).collect();
        others.map_err(|denied| self.way.nonsense(&denied))
    }

    /// Has the node make a peer for a worker's queue pair, in place of the one that it has
    /// made for this link before.
    ///
    /// # Errors
    ///
    /// If the node does not answer, the session has ended, or the node cannot reach the
    /// worker's device.
    pub async fn open_queue_pair(
        &self,
        link: u64,
        worker: QueuePairAddress,
    ) -> Result<NodeQueuePair, ControlError> {
        let token = self.token.bytes().to_vec();
        let request = proto::OpenQueuePairRequest { token, client: Some(worker.into()), link };
        let mut client = self.way.client.clone();
        let opened = self.way.ask(CALL_TIME_MAX, client.open_queue_pair(request)).await?;
        convert::opened(opened).map_err(|denied| self.way.nonsense(&denied))
    }

    /// Asks for what verbs cannot do.
    ///
    /// # Errors
    ///
    /// If it does not answer, or the session has ended; it may have done it.
    pub async fn request(&self, request: Request) -> Result<Response, ControlError> {
        let message = convert::call_request(self.token, request).ok_or_else(|| {
            self.way.nonsense(&Denied::Malformed("a request that only memory nodes make"))
        })?;
        let mut client = self.way.client.clone();
        let reply = self.way.ask(CALL_TIME_MAX, client.call(message)).await?;
        convert::response(&reply).map_err(|denied| self.way.nonsense(&denied))
    }
}

impl ControlPlane for NodeClient {
    fn call(&self, request: Request) -> ControlFuture<'_> {
        Box::pin(async move {
            self.request(request).await.map_err(|error| {
                tracing::warn!(%error, "a control request failed");
                NodeDown { node: self.way.node }
            })
        })
    }
}

/// A memory node as another one of its pool calls it.
#[derive(Clone, Debug)]
pub struct PeerClient {
    way: Way,
}

impl PeerClient {
    /// To node `node` of a pool. Connects when it is first used, on this runtime.
    ///
    /// # Errors
    ///
    /// If the address or the certificates cannot be used at all.
    pub fn new(file: &PoolFile, node: u16, tls: Option<&Tls>) -> Result<Self, ControlError> {
        Way::new(file, node, tls).map(|way| Self { way })
    }

    /// Its number.
    pub fn node(&self) -> u16 {
        self.way.node
    }

    /// Asks node 0 to be let into the pool.
    ///
    /// # Errors
    ///
    /// If it does not answer or refuses.
    pub async fn introduce(&self, introduction: Introduction) -> Result<Membership, ControlError> {
        let request = proto::IntroduceRequest {
            description: Some(introduction.description.into()),
            from: introduction.from.into(),
            process: introduction.process.bytes().to_vec(),
        };
        let mut client = self.way.client.clone();
        let answer = self.way.ask(CALL_TIME_MAX, client.introduce(request)).await?;
        convert::membership(answer).map_err(|denied| self.way.nonsense(&denied))
    }

    /// Tells that a gateway's session has ended; when it returns, the node lets
    /// nobody of that session at its memory any more.
    ///
    /// # Errors
    ///
    /// If it does not answer; it may have done it.
    pub async fn expel(&self, expulsion: Expulsion) -> Result<(), ControlError> {
        let request = proto::ExpelRequest {
            pool: expulsion.pool.bytes().to_vec(),
            gateway: expulsion.gateway.bytes().to_vec(),
            clients: expulsion.clients,
        };
        let mut client = self.way.client.clone();
        self.way.ask(CALL_TIME_MAX, client.expel(request)).await.map(|_| ())
    }

    /// Has decisions copied. Tried again while the connection alone is at fault:
    /// the sequence number keeps anything from being done twice.
    ///
    /// # Errors
    ///
    /// If the node does not answer in [`REPLICATE_TIME_MAX`] or refuses.
    pub async fn replicate(&self, replication: Replication) -> Result<(), ControlError> {
        let request = proto::ReplicateRequest::from(replication);
        let calls = async {
            loop {
                let mut client = self.way.client.clone();
                match client.replicate(request.clone()).await {
                    Err(status) if status.code() == Code::Unavailable => {
                        tokio::time::sleep(REPLICATE_PAUSE).await;
                    }
                    other => return other,
                }
            }
        };
        self.way.ask(REPLICATE_TIME_MAX, calls).await.map(|_| ())
    }
}

const REPLICATE_PAUSE: Duration = Duration::from_millis(100);
