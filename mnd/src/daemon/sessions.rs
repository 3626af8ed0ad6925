//! Who is at the node's memory: the sessions of gateway processes.

use fusee_control::{Admission, GatewayId, GatewayPeer, Token};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};
use tokio::sync::oneshot;

/// The sessions of one node.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    live: HashMap<Token, Session>,
    /// Gateways whose sessions have ended: none of them gets another one, so that what
    /// a gateway asked for before it was expelled does not let it in afterwards. It
    /// comes back under a new name.
    ended: VecDeque<GatewayId>,
}

/// Names of gateways are remembered so long that a message cannot be on its way: a
/// thousand gateways that come and go every second for a minute.
const ENDED_MAX: usize = 1 << 16;

/// A gateway's session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) gateway: GatewayId,
    /// The gateway's workers, as node 0 knows them.
    pub(super) clients: BTreeSet<u32>,
    admission: Admission,
    /// Counts the streams by which the gateway has held it.
    stream_number: u64,
    /// Where other gateways reach it, once it has told.
    peer: Option<GatewayPeer>,
    /// Dropped to end the stream that the gateway listens to.
    _stream: oneshot::Sender<()>,
}

/// One of the streams by which a session is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StreamId {
    pub(super) session: Token,
    number: u64,
}

impl Sessions {
    /// A session begins, unless the gateway has one here or has had one.
    pub(super) fn begin(
        &self,
        gateway: GatewayId,
        admission: Admission,
        stream: oneshot::Sender<()>,
    ) -> Option<StreamId> {
        let mut known = self.lock();
        let has_one = known.live.values().any(|session| session.gateway == gateway);
        if has_one || known.ended.contains(&gateway) {
            return None;
        }
        let session = admission.token;
        let clients = BTreeSet::new();
        let begun =
            Session { gateway, clients, admission, stream_number: 0, peer: None, _stream: stream };
        known.live.insert(session, begun);
        Some(StreamId { session, number: 0 })
    }

    /// A gateway takes its session up by another stream, which ends the one before;
    /// `None` if it has ended.
    pub(super) fn resume(
        &self,
        token: &Token,
        gateway: GatewayId,
        stream: oneshot::Sender<()>,
    ) -> Option<(StreamId, Admission)> {
        let mut known = self.lock();
        let session = known.live.get_mut(token).filter(|session| session.gateway == gateway)?;
        session.stream_number += 1;
        session._stream = stream;
        let stream = StreamId { session: *token, number: session.stream_number };
        Some((stream, session.admission.clone()))
    }

    /// Is this the stream by which its session is held?
    pub(super) fn is_held_by(&self, stream: &StreamId) -> bool {
        let known = self.lock();
        let session = known.live.get(&stream.session);
        session.is_some_and(|session| session.stream_number == stream.number)
    }

    /// Has a session clients? On node 0.
    pub(super) fn has_clients(&self, token: &Token) -> bool {
        self.lock().live.get(token).is_some_and(|session| !session.clients.is_empty())
    }

    /// A session ends; `None` if it has ended before.
    pub(super) fn end(&self, token: &Token) -> Option<Session> {
        let mut known = self.lock();
        let session = known.live.remove(token)?;
        known.note_end(session.gateway);
        Some(session)
    }

    /// A gateway's session ends, and it gets none if it has none yet.
    pub(super) fn end_of(&self, gateway: GatewayId) -> Option<Token> {
        let mut known = self.lock();
        known.note_end(gateway);
        let (&token, _) = known.live.iter().find(|(_, session)| session.gateway == gateway)?;
        known.live.remove(&token);
        Some(token)
    }

    pub(super) fn is_live(&self, token: &Token) -> bool {
        self.lock().live.contains_key(token)
    }

    /// A client of a session has joined; false if the session has ended.
    pub(super) fn joined(&self, token: &Token, client: u32) -> bool {
        self.lock().live.get_mut(token).is_some_and(|session| session.clients.insert(client))
    }

    /// A client of a session has left.
    pub(super) fn left(&self, token: &Token, client: u32) {
        if let Some(session) = self.lock().live.get_mut(token) {
            session.clients.remove(&client);
        }
    }

    /// Notes where a gateway is reached, and tells where the others are; `None` if
    /// its session has ended.
    pub(super) fn meet(
        &self,
        token: &Token,
        address: String,
        secret: Token,
    ) -> Option<Vec<GatewayPeer>> {
        let live = &mut self.lock().live;
        let own = live.get_mut(token)?;
        let gateway = own.gateway;
        own.peer = Some(GatewayPeer { gateway, address, secret });
        let others = live.values().filter(|session| session.gateway != gateway);
        Some(others.filter_map(|session| session.peer.clone()).collect())
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.lock().live.len()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().expect("nobody panics with it")
    }
}

impl Known {
    fn note_end(&mut self, gateway: GatewayId) {
        if self.ended.contains(&gateway) {
            return;
        }
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(gateway);
    }
}
