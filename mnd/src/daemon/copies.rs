//! Copies of a node's decisions on the other nodes of the pool.

use fusee_control::{PeerClient, Replication, Token};
use fusee_layout::Geometry;
use fusee_layout::message::Effect;
use std::sync::Arc;
use tokio::task::JoinSet;

/// The other nodes, and what each has been told.
#[derive(Debug)]
pub(super) struct Copies {
    node: u16,
    pool: Token,
    geometry: Arc<Geometry>,
    peers: Vec<Peer>,
}

#[derive(Debug)]
struct Peer {
    client: PeerClient,
    /// The number of the last message.
    sequence: u64,
    /// It did not take a copy: it misses some for good.
    lost: bool,
}

/// An effect takes some 20 bytes, so a message stays far below what a node reads.
const EFFECTS_PER_MESSAGE: usize = 1 << 16;

impl Copies {
    pub(super) fn new(
        node: u16,
        pool: Token,
        geometry: Arc<Geometry>,
        clients: Vec<PeerClient>,
    ) -> Self {
        let peer = |client| Peer { client, sequence: 0, lost: false };
        Self { node, pool, geometry, peers: clients.into_iter().map(peer).collect() }
    }

    /// Has the other nodes write what was decided, each into the copies that it
    /// keeps, and waits for them. A node that does not is lost: it gets its memory
    /// from the others before it is used again.
    pub(super) async fn write(&mut self, effects: &[Effect]) {
        let mut calls = JoinSet::new();
        for (position, peer) in self.peers.iter_mut().enumerate() {
            if peer.lost {
                continue;
            }
            let node = peer.client.node();
            let its: Vec<Effect> = effects
                .iter()
                .filter(|effect| keeps(&self.geometry, node, effect))
                .copied()
                .collect();
            let messages: Vec<Replication> = its
                .chunks(EFFECTS_PER_MESSAGE)
                .map(|effects| {
                    peer.sequence += 1;
                    let (pool, sequence) = (self.pool, peer.sequence);
                    Replication { pool, from: self.node, sequence, effects: effects.to_vec() }
                })
                .collect();
            if messages.is_empty() {
                continue;
            }
            let client = peer.client.clone();
            calls.spawn(async move {
                for message in messages {
                    client.replicate(message).await.map_err(|error| (position, error))?;
                }
                Ok(())
            });
        }
        while let Some(done) = calls.join_next().await {
            if let Ok(Err((position, error))) = done {
                tracing::error!(
                    %error,
                    "a memory node did not take its copy and is taken for lost: it gets no more \
                     until the pool is started anew"
                );
                self.peers[position].lost = true;
            }
        }
    }

    /// Nodes that miss copies.
    pub(super) fn lost(&self) -> Vec<u16> {
        self.peers.iter().filter(|peer| peer.lost).map(|peer| peer.client.node()).collect()
    }

    /// To tell other nodes something else.
    pub(super) fn clients(&self) -> Vec<PeerClient> {
        self.peers.iter().map(|peer| peer.client.clone()).collect()
    }
}

/// Does a node keep a copy of what an effect is on?
fn keeps(geometry: &Geometry, node: u16, effect: &Effect) -> bool {
    match *effect {
        Effect::Entry { at, .. } | Effect::Zero { block: at } => {
            geometry.placement.locate_all(at).any(|place| place.node == node)
        }
        Effect::Entries { .. } | Effect::Expelled { .. } | Effect::Departed { .. } => true,
    }
}
