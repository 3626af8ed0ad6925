//! The gateways of a pool bring each other what is published.
//!
//! Each listens for the others and has a *link* to each of them, a connection that
//! carries its own messages there. Who they are they learn from the memory nodes,
//! which know all that have a session ([`Directory`]); the secret by which a gateway
//! lets others in goes the same way, so whoever may use the pool may publish in it,
//! and nobody else.
//!
//! A message is delivered at most once, as in Redis: what waits for a gateway that is
//! not reached, or does not keep up, is lost there and counted. Messages of one
//! connection arrive in their order.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fusee_control::{GatewayId, GatewayPeer, Token};
use tokio::sync::Semaphore;
use tracing::{debug, info};

use crate::channels::Way;
use crate::shared::Shared;

mod frame;
mod link;
mod receive;

use link::Link;

/// Connections that have not yet said who they are; more wait to be accepted.
const STRANGERS_MAX: usize = 64;
/// How often it is looked who the others are.
const MEET_INTERVAL: Duration = Duration::from_millis(500);

/// Tells others the address and the secret of this gateway, and learns theirs.
pub type Directory =
    Box<dyn Fn(String, Token) -> Pin<Box<dyn Future<Output = Vec<GatewayPeer>> + Send>> + Send>;

/// What it takes to be one of several gateways.
pub(crate) struct Others {
    pub(crate) listener: TcpListener,
    pub(crate) directory: Directory,
}

/// What is counted here, for who reads the metrics.
pub(crate) fn describe_metrics() {
    metrics::describe_gauge!("gateway_peers", "Other gateways that this one brings messages to.");
    metrics::describe_counter!(BROUGHT, "Messages that were brought to another gateway.");
    metrics::describe_counter!(LOST, "Messages that another gateway was not reached for.");
}

const BROUGHT: &str = "gateway_peer_messages_total";
const LOST: &str = "gateway_peer_messages_lost_total";

/// The address of this host by which it reaches `node`, and so do others it. Nothing is
/// sent.
///
/// # Errors
///
/// If there is no way there.
pub fn address_towards(node: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match node {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(node)?;
    Ok(socket.local_addr()?.ip())
}

/// The links to other gateways.
#[derive(Debug, Default)]
pub(crate) struct Mesh {
    links: Mutex<BTreeMap<GatewayId, Arc<Link>>>,
    /// How many there are, so that nobody looks for them in vain. Relaxed: it is
    /// written under the lock, and who sees it late published before.
    count: AtomicUsize,
}

impl Mesh {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<GatewayId, Arc<Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings a message to all other gateways.
    #[inline]
    pub(crate) fn forward(&self, way: Way, channel: &[u8], payload: &[u8]) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.forward_to_all(way, channel, payload);
        }
    }

    #[cold]
    fn forward_to_all(&self, way: Way, channel: &[u8], payload: &[u8]) {
        let frame: Arc<[u8]> = frame::encode(way, channel, payload).into();
        for link in self.lock().values() {
            link.put(frame.clone());
        }
    }

    /// Has a link to each of these, and to no others. Runs within a runtime.
    fn link(&self, others: Vec<GatewayPeer>) {
        let mut links = self.lock();
        links.retain(|gateway, link| {
            let stays = others.iter().any(|other| other.gateway == *gateway);
            if !stays {
                link.end();
                info!(%gateway, "no more messages to a gateway that has gone");
            }
            stays
        });
        for peer in others {
            links.entry(peer.gateway).or_insert_with(|| {
                info!(gateway = %peer.gateway, address = peer.address, "messages go to another gateway");
                let link = Arc::new(Link::default());
                tokio::spawn(link.clone().run(peer));
                link
            });
        }
        self.count.store(links.len(), Ordering::Relaxed);
        metrics::gauge!("gateway_peers").set(links.len() as f64);
    }
}

/// Meets the others and takes in what they bring, for as long as the process lives.
pub(crate) async fn run(others: Others, shared: Arc<Shared>) -> io::Result<()> {
    let Others { listener, directory } = others;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let address = listener.local_addr()?.to_string();
    let secret = Token::random();
    // A rate needs the 0 before the first message.
    metrics::counter!(BROUGHT).increment(0);
    metrics::counter!(LOST).increment(0);
    let meeting = async {
        loop {
            shared.mesh.link(directory(address.clone(), secret).await);
            tokio::time::sleep(MEET_INTERVAL).await;
        }
    };
    let listening = async {
        let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
        loop {
            let stranger = strangers.clone().acquire_owned().await.expect("nobody closes it");
            match listener.accept().await {
                Ok((stream, from)) => {
                    let shared = shared.clone();
                    tokio::spawn(async move {
                        let ended = receive::run(stream, secret, stranger, &shared).await;
                        if let Err(error) = ended {
                            debug!(%from, %error, "another gateway's connection has ended");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "another gateway was not let in");
                    tokio::time::sleep(MEET_INTERVAL).await;
                }
            }
        }
    };
    tokio::join!(meeting, listening).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_reached_by_the_address_that_leads_to_the_node() {
        let node = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
        assert_eq!(address_towards(node).unwrap(), node.ip());
    }
}
