//! Which sessions may have verbs executed, and the gates by which that ends.

use super::Token;
use super::frame::Verdict;
use std::collections::HashMap;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Links of one session: a gateway has one for each of its workers.
const LINKS_MAX: usize = 1024;

/// The sessions of a memory node, each with its connections by link.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<HashMap<Token, HashMap<u64, Arc<Gate>>>>);

impl Sessions {
    pub(crate) fn admit(&self, token: Token) {
        self.lock().entry(token).or_default();
    }

    /// Ends a session. When this returns, nothing of it is executed any more.
    pub(crate) fn revoke(&self, token: &Token) {
        // Nobody enters a session that is gone, so these are all.
        let gates = self.lock().remove(token).unwrap_or_default();
        gates.values().for_each(|gate| gate.close());
    }

    /// A connection's gate, if it is of a session. An earlier connection of the
    /// same link is closed, and executes nothing any more when this returns: what
    /// its client has given up must not happen behind its back.
    pub(crate) fn enter(&self, token: Token, link: u64, gate: &Arc<Gate>) -> Result<(), Verdict> {
        let mut sessions = self.lock();
        let links = sessions.get_mut(&token).ok_or(Verdict::NotAdmitted)?;
        if links.len() >= LINKS_MAX && !links.contains_key(&link) {
            return Err(Verdict::TooMany);
        }
        if let Some(earlier) = links.insert(link, gate.clone()) {
            earlier.close();
        }
        Ok(())
    }

    /// A connection has ended.
    pub(crate) fn leave(&self, token: &Token, link: u64, gate: &Arc<Gate>) {
        if let Some(links) = self.lock().get_mut(token)
            && links.get(&link).is_some_and(|present| Arc::ptr_eq(present, gate))
        {
            links.remove(&link);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Token, HashMap<u64, Arc<Gate>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a connection passes for each frame that it executes.
#[derive(Debug)]
pub(crate) struct Gate {
    is_open: Mutex<bool>,
    /// Another name of the socket: to end what waits for it.
    socket: TcpStream,
}

impl Gate {
    pub(crate) fn new(socket: TcpStream) -> Self {
        Self { is_open: Mutex::new(true), socket }
    }

    /// Does something unless the gate is closed, which then waits for it.
    #[inline]
    pub(crate) fn pass<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        is_open.then(work)
    }

    fn close(&self) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = false;
        // It may have ended by itself.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}
