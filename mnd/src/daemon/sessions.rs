//! Who is at the node's memory: the sessions of gateway processes.

use fusee_control::{GatewayId, Token};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard};
use tokio::sync::oneshot;

/// The sessions of one node.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    live: Mutex<HashMap<Token, Session>>,
}

/// A gateway's session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) gateway: GatewayId,
    /// The gateway's workers, as node 0 knows them.
    pub(super) clients: BTreeSet<u32>,
    /// Dropped to end the stream that the gateway listens to.
    _stream: oneshot::Sender<()>,
}

impl Sessions {
    /// A session begins; false if the gateway has one here.
    pub(super) fn begin(
        &self,
        token: Token,
        gateway: GatewayId,
        stream: oneshot::Sender<()>,
    ) -> bool {
        let mut live = self.lock();
        if live.values().any(|session| session.gateway == gateway) {
            return false;
        }
        let clients = BTreeSet::new();
        live.insert(token, Session { gateway, clients, _stream: stream });
        true
    }

    /// A session ends; `None` if it has ended before.
    pub(super) fn end(&self, token: &Token) -> Option<Session> {
        self.lock().remove(token)
    }

    /// The session that a gateway has here.
    pub(super) fn of(&self, gateway: GatewayId) -> Option<Token> {
        let live = self.lock();
        live.iter().find(|(_, session)| session.gateway == gateway).map(|(token, _)| *token)
    }

    pub(super) fn is_live(&self, token: &Token) -> bool {
        self.lock().contains_key(token)
    }

    /// A client of a session has joined; false if the session has ended.
    pub(super) fn joined(&self, token: &Token, client: u32) -> bool {
        self.lock().get_mut(token).is_some_and(|session| session.clients.insert(client))
    }

    /// A client of a session has left.
    pub(super) fn left(&self, token: &Token, client: u32) {
        if let Some(session) = self.lock().get_mut(token) {
            session.clients.remove(&client);
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Token, Session>> {
        self.live.lock().expect("nobody panics with it")
    }
}
