//! Who is connected: what CLIENT LIST tells, and the count that bounds it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::command::CommandId;
use crate::command::table::COMMANDS;

/// One connection as others see it. The numbers are written by its worker and
/// read by whoever asks; each stands for itself, hence Relaxed everywhere.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: u64,
    pub(crate) address: SocketAddr,
    pub(crate) local_address: SocketAddr,
    connected_at_ms: u64,
    last_active_ms: AtomicU64,
    last_command: AtomicU8,
    database: AtomicU8,
    protocol: AtomicU8,
    names: Mutex<Names>,
}

/// What a client says of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub(crate) name: Vec<u8>,
    pub(crate) library: Vec<u8>,
    pub(crate) library_version: Vec<u8>,
}

impl Client {
    /// Notes a batch; `command` is its last.
    pub(crate) fn active(&self, now_ms: u64, command: Option<CommandId>) {
        self.last_active_ms.store(now_ms, Ordering::Relaxed);
        if let Some(command) = command {
            self.last_command.store(command, Ordering::Relaxed);
        }
    }

    pub(crate) fn last_active_ms(&self) -> u64 {
        self.last_active_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn speaks(&self, database: u8, protocol: u8) {
        self.database.store(database, Ordering::Relaxed);
        self.protocol.store(protocol, Ordering::Relaxed);
    }

    pub(crate) fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line of CLIENT LIST. Fields that we do not have are as for a client
    /// that uses none of it.
    pub(crate) fn describe(&self, now_ms: u64, out: &mut Vec<u8>) {
        let names = self.names().clone();
        let seconds_since = |then: u64| now_ms.saturating_sub(then) / 1000;
        let command = self.last_command.load(Ordering::Relaxed);
        let command = COMMANDS.get(usize::from(command)).map_or("NULL", |command| command.name);
        out.extend_from_slice(
            format!("id={} addr={} laddr={} fd=0 name=", self.id, self.address, self.local_address)
                .as_bytes(),
        );
        out.extend_from_slice(&names.name);
        out.extend_from_slice(
            format!(
                " age={} idle={} flags=N db={} sub=0 psub=0 ssub=0 multi=-1 qbuf=0 qbuf-free=0 \
                 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r cmd={} \
                 user=default redir=-1 resp={} lib-name=",
                seconds_since(self.connected_at_ms),
                seconds_since(self.last_active_ms()),
                self.database.load(Ordering::Relaxed),
                command,
                self.protocol.load(Ordering::Relaxed),
            )
            .as_bytes(),
        );
        out.extend_from_slice(&names.library);
        out.extend_from_slice(b" lib-ver=");
        out.extend_from_slice(&names.library_version);
        out.push(b'\n');
    }
}

/// All connections of this process.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    connected: Mutex<BTreeMap<u64, Arc<Client>>>,
    count: AtomicUsize,
    last_id: AtomicU64,
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Client>>> {
        self.connected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection in, unless there are `limit` already.
    pub(crate) fn connect(
        &self,
        address: SocketAddr,
        local_address: SocketAddr,
        now_ms: u64,
        limit: usize,
    ) -> Option<Arc<Client>> {
        let mut connected = self.lock();
        if connected.len() >= limit {
            return None;
        }
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let client = Arc::new(Client {
            id,
            address,
            local_address,
            connected_at_ms: now_ms,
            last_active_ms: AtomicU64::new(now_ms),
            last_command: AtomicU8::new(u8::MAX),
            database: AtomicU8::new(0),
            protocol: AtomicU8::new(2),
            names: Mutex::default(),
        });
        connected.insert(id, client.clone());
        self.count.store(connected.len(), Ordering::Relaxed);
        Some(client)
    }

    pub(crate) fn disconnect(&self, id: u64) {
        let mut connected = self.lock();
        connected.remove(&id);
        self.count.store(connected.len(), Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// All of them, by number.
    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        self.lock().values().cloned().collect()
    }
}
