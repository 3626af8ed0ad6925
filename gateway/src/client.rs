//! Who is connected: what CLIENT LIST tells, and the count that bounds it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::channels::Way;
use crate::command::CommandId;
use crate::command::table::COMMANDS;
use crate::inbox::Inbox;

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
    is_monitor: AtomicBool,
    /// Bytes of requests that have arrived, and room for more.
    input: [AtomicUsize; 2],
    /// What it listens to, by [`Way`].
    subscriptions: [AtomicUsize; 3],
    names: Mutex<Names>,
    pub(crate) inbox: Inbox,
}

/// The classes of clients that CLIENT LIST and CLIENT KILL tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClientType {
    Normal,
    Subscriber,
    /// Of which there are none here.
    Replica,
}

impl ClientType {
    pub(crate) fn parse(name: &[u8]) -> Option<Self> {
        let known = [
            ("normal", Self::Normal),
            ("pubsub", Self::Subscriber),
            ("master", Self::Replica),
            ("replica", Self::Replica),
            ("slave", Self::Replica),
        ];
        let found =
            known.into_iter().find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()));
        found.map(|(_, found)| found)
    }
}

/// What a client says of itself, and who it has proved to be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub(crate) user: Vec<u8>,
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

    /// Notes what is about to run, for CLIENT LIST within it.
    pub(crate) fn runs(&self, command: CommandId) {
        self.last_command.store(command, Ordering::Relaxed);
    }

    /// Notes how much input there is, and the room that it has.
    pub(crate) fn holds(&self, bytes: usize, capacity: usize) {
        self.input[0].store(bytes, Ordering::Relaxed);
        self.input[1].store(capacity, Ordering::Relaxed);
    }

    /// The room for input that it takes up.
    pub(crate) fn input_bytes(&self) -> usize {
        self.input[1].load(Ordering::Relaxed)
    }

    pub(crate) fn listens(&self, way: Way, count: usize) {
        self.subscriptions[way as usize].store(count, Ordering::Relaxed);
    }

    pub(crate) fn monitors(&self, does: bool) {
        self.is_monitor.store(does, Ordering::Relaxed);
    }

    pub(crate) fn kind(&self) -> ClientType {
        let listens = self.subscriptions.iter().any(|count| count.load(Ordering::Relaxed) > 0);
        if listens { ClientType::Subscriber } else { ClientType::Normal }
    }

    pub(crate) fn age_s(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.connected_at_ms) / 1000
    }

    fn flags(&self) -> &'static str {
        match self.kind() {
            _ if self.is_monitor.load(Ordering::Relaxed) => "O",
            ClientType::Subscriber => "P",
            _ => "N",
        }
    }

    pub(crate) fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line of CLIENT LIST. Fields that we do not have are as for a client
    /// that uses none of it.
    pub(crate) fn describe(&self, now_ms: u64, out: &mut Vec<u8>) {
        let names = self.names().clone();
        let seconds_since = |then: u64| now_ms.saturating_sub(then) / 1000;
        let listens = |way: Way| self.subscriptions[way as usize].load(Ordering::Relaxed);
        let [input, capacity] = [0, 1].map(|which| self.input[which].load(Ordering::Relaxed));
        let waiting = self.inbox.bytes();
        let command = self.last_command.load(Ordering::Relaxed);
        let command = COMMANDS.get(usize::from(command)).map_or("NULL", |command| command.name);
        out.extend_from_slice(
            format!("id={} addr={} laddr={} fd=0 name=", self.id, self.address, self.local_address)
                .as_bytes(),
        );
        out.extend_from_slice(&names.name);
        out.extend_from_slice(
            format!(
                " age={} idle={} flags={} db={} sub={} psub={} ssub={} multi=-1 qbuf={} qbuf-free={} \
                 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem={} tot-mem={} events=r cmd={} \
                 user=",
                self.age_s(now_ms),
                seconds_since(self.last_active_ms()),
                self.flags(),
                self.database.load(Ordering::Relaxed),
                listens(Way::Channel),
                listens(Way::Pattern),
                listens(Way::Shard),
                input,
                capacity.saturating_sub(input),
                waiting,
                waiting + capacity,
                command,
            )
            .as_bytes(),
        );
        out.extend_from_slice(&names.user);
        let protocol = self.protocol.load(Ordering::Relaxed);
        out.extend_from_slice(format!(" redir=-1 resp={protocol} lib-name=").as_bytes());
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
            is_monitor: AtomicBool::new(false),
            input: Default::default(),
            subscriptions: Default::default(),
            names: Mutex::default(),
            inbox: Inbox::default(),
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
