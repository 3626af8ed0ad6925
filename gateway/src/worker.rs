//! One worker: a thread with its own runtime, listeners and keyspace. Nothing
//! on the way from a request to its reply is shared with another worker.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tracing::{debug, error, info, warn};

use crate::connection::{self, End, Link};
use crate::keyspace::Keyspace;
use crate::notify::{self, Class};
use crate::pool::BufferPool;
use crate::rates::Rates;
use crate::session::Place;
use crate::shared::{Shared, unix_ms};
use crate::socket::{Driver, Outbox, Socket};

/// How often connections are looked over for silence and for stalled replies.
const SWEEP: Duration = Duration::from_millis(250);
/// Redis closes a client that stays above its soft limit for this long.
const STALLED_MS_MAX: u64 = 60_000;
/// How long to wait after the system refused a connection (out of files).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A step of maintenance, with the pause behind it, takes a few milliseconds.
const REST: Duration = Duration::from_secs(1);
const PROTECTED: &[u8] = b"-DENIED Redis is running in protected mode because protected mode is \
    enabled and no password is set for the default user. In this mode connections are only \
    accepted from the loopback interface. Choose a password by --requirepass or CONFIG SET \
    requirepass, or turn protected mode off by --protected-mode no or CONFIG SET protected-mode \
    no from this machine.\r\n";
const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";

/// Where clients come in.
pub(crate) struct Door {
    pub(crate) listener: std::net::TcpListener,
    /// What clients of this door are shown, if it is one of TLS.
    pub(crate) tls: Option<Arc<ServerConfig>>,
}

/// Tells a client that is sent away why. Who speaks TLS would not understand.
fn say(stream: &TcpStream, why: &[u8], tls: Option<&Arc<ServerConfig>>) {
    if tls.is_none() {
        // The socket's buffer is empty, so this fits or the client is gone.
        let _ = stream.try_write(why);
    }
}

/// What the tasks of one worker share.
pub(crate) struct Worker<K> {
    pub(crate) keyspace: K,
    pub(crate) place: Place,
    pub(crate) buffers: BufferPool,
    pub(crate) outbox: Outbox,
    /// Sends and receives, unless the kernel shall only tell which sockets are ready.
    driver: RefCell<Option<Rc<Driver>>>,
    wants_driver: bool,
    pub(crate) limits: Limits,
    links: RefCell<HashMap<u64, Rc<Link>>>,
    /// The time of day at the last sweep, near enough for idle times.
    pub(crate) coarse_ms: Cell<u64>,
    /// No connection is left, and the keyspace is about to be given up.
    leaving: Cell<bool>,
}

/// What one connection may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Replies that wait for the client; with more, it is not read from.
    pub(crate) output_bytes: usize,
    /// An unfinished request; with more, it is closed.
    pub(crate) query_bytes: usize,
}

impl<K: Keyspace + 'static> Worker<K> {
    /// `wants_driver`: whether io_uring is to be used.
    pub(crate) fn new(
        keyspace: K,
        shared: Arc<Shared>,
        index: usize,
        limits: Limits,
        wants_driver: bool,
    ) -> Rc<Self> {
        let stats = shared.stats[index].clone();
        stats.beat_ms.set(unix_ms());
        let seed = unix_ms() ^ ((index as u64 + 1) << 48);
        Rc::new(Self {
            keyspace,
            place: Place::new(shared, stats, seed),
            buffers: BufferPool::default(),
            outbox: Outbox::default(),
            driver: RefCell::default(),
            wants_driver,
            limits,
            links: RefCell::default(),
            coarse_ms: Cell::new(unix_ms()),
            leaving: Cell::new(false),
        })
    }

    /// Serves until told to stop, then until the last connection has ended or
    /// `drain` is over.
    pub(crate) async fn run(
        self: Rc<Self>,
        doors: Vec<Door>,
        mut stop: watch::Receiver<bool>,
        drain: Duration,
    ) -> std::io::Result<()> {
        self.begin_to_drive();
        let mut tasks = vec![
            tokio::task::spawn_local(self.clone().send()),
            tokio::task::spawn_local(self.clone().maintain()),
            tokio::task::spawn_local(self.clone().sweep()),
        ];
        for Door { listener, tls } in doors {
            let listener = TcpListener::from_std(listener)?;
            tasks.push(tokio::task::spawn_local(self.clone().accept(listener, tls)));
        }
        // The sender lives as long as the server; when it is gone, so are we.
        let _ = stop.wait_for(|stop| *stop).await;
        // Dropping the acceptors closes their listeners.
        tasks.drain(3..).for_each(|task| task.abort());
        let links: Vec<_> = self.links.borrow().values().cloned().collect();
        links.iter().for_each(|link| link.ask(End::Drain));
        let ended = async {
            while !self.links.borrow().is_empty() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let drained = tokio::time::timeout(drain, ended).await.is_ok();
        if !drained {
            let left = self.links.borrow().len();
            warn!(connections = left, "closing connections that did not end in time");
        }
        self.leaving.set(true);
        let maintenance = tasks.swap_remove(1);
        let rested = tokio::time::timeout(REST, maintenance).await.is_ok();
        // With operations under way, it is left to the pool to clear up.
        if drained && rested {
            self.keyspace.leave().await;
        }
        // Connections that are left end with the runtime; the kernel lets go of them here.
        if let Some(driver) = &*self.driver.borrow() {
            driver.end();
        }
        Ok(())
    }

    fn begin_to_drive(&self) {
        if !self.wants_driver {
            return;
        }
        match self.outbox.driver() {
            Ok(driver) => *self.driver.borrow_mut() = Some(driver),
            Err(error) => warn!(%error, "no io_uring for a worker; its sockets are polled"),
        }
    }

    /// Sends for ever what connections have to say.
    async fn send(self: Rc<Self>) {
        let Self { outbox, buffers, place, .. } = &*self;
        let driver = self.driver.borrow().clone();
        let Some(driver) = driver else {
            return outbox.run(buffers, &place.stats).await;
        };
        let Err(error) = outbox.drive(&driver, buffers, &place.stats).await;
        error!(%error, "io_uring failed: its connections are closed, new ones are polled");
        *self.driver.borrow_mut() = None;
        self.links.borrow().values().for_each(|link| link.ask(End::Now));
        driver.end();
        outbox.run(buffers, &place.stats).await;
    }

    async fn accept(self: Rc<Self>, listener: TcpListener, tls: Option<Arc<ServerConfig>>) {
        loop {
            match listener.accept().await {
                Ok((stream, address)) => self.admit(stream, address, tls.as_ref()),
                Err(error) => {
                    metrics::counter!("gateway_accept_errors_total").increment(1);
                    warn!(%error, "a connection was not accepted; raise the limit of open files if this repeats");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn admit(
        self: &Rc<Self>,
        stream: TcpStream,
        address: std::net::SocketAddr,
        tls: Option<&Arc<ServerConfig>>,
    ) {
        let shared = &self.place.shared;
        let stats = &self.place.stats;
        // Without this, a reply waits for the client's delayed acknowledgement.
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%error, "the connection ended before it began");
            return;
        }
        let Ok(local) = stream.local_addr() else { return };
        if shared.is_protected() && !address.ip().to_canonical().is_loopback() {
            stats.connections_rejected.add(1);
            say(&stream, PROTECTED, tls);
            return;
        }
        let limit = shared.settings.max_clients();
        let Some(client) = shared.clients.connect(address, local, unix_ms(), limit) else {
            stats.connections_rejected.add(1);
            say(&stream, TOO_MANY, tls);
            return;
        };
        let id = client.id;
        let tls = match tls.map(|config| ServerConnection::new(config.clone())).transpose() {
            Ok(tls) => tls,
            Err(error) => {
                warn!(%error, "no TLS for a connection: look at its certificate");
                shared.clients.disconnect(id);
                return;
            }
        };
        let socket = match Socket::new(stream, tls, self.driver.borrow().as_ref()) {
            Ok(socket) => socket,
            Err(error) => {
                debug!(%error, "the connection ended before it began");
                shared.clients.disconnect(id);
                return;
            }
        };
        stats.connections.add(1);
        let link = Rc::new(Link::new(client, socket));
        self.links.borrow_mut().insert(id, link.clone());
        tokio::task::spawn_local(connection::serve(self.clone(), link));
    }

    /// Forgets a connection that has ended.
    pub(crate) fn forget(&self, link: &Link) {
        self.links.borrow_mut().remove(&link.client.id);
        self.place.shared.clients.disconnect(link.client.id);
        self.place.stats.connections_closed.add(1);
    }

    /// Closes connections that are silent or do not read.
    async fn sweep(self: Rc<Self>) {
        let mut ticks = tokio::time::interval(SWEEP);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut rates = Rates::default();
        loop {
            ticks.tick().await;
            let now_ms = unix_ms();
            self.coarse_ms.set(now_ms);
            let stats = &self.place.stats;
            stats.beat_ms.set(now_ms);
            let done = [stats.requests.get(), stats.bytes_in.get(), stats.bytes_out.get()];
            for (rate, now) in stats.rates.iter().zip(rates.look(now_ms, done)) {
                rate.set(now);
            }
            stats.expired.set(self.keyspace.expired_keys());
            let limit = self.place.shared.settings.max_memory();
            if limit > 0 || self.place.is_full.get() {
                let usage = self.keyspace.usage();
                let is_limited = limit > 0 && limit < usage.capacity_bytes;
                self.place.is_full.set(is_limited && usage.used_bytes > limit);
            }
            let timeout_s = self.place.shared.settings.timeout_s();
            let subscribers = self.place.shared.settings.subscriber_limit();
            let (mut input, mut output, mut messages) = (0, 0, 0);
            for link in self.links.borrow().values() {
                input += link.client.input_bytes();
                output += link.output_bytes();
                messages += link.client.inbox.bytes();
                let id = link.client.id;
                if link.stalled_ms(now_ms) > STALLED_MS_MAX {
                    info!(client = id, "closing a connection that does not read its replies");
                    self.place.stats.slow_reader_closed.add(1);
                    link.ask(End::Now);
                } else if link.is_burdened(now_ms, subscribers) {
                    info!(client = id, "closing a subscriber that does not take its messages");
                    link.client.inbox.kill();
                } else if timeout_s > 0 && link.is_idle(now_ms, timeout_s * 1000) {
                    debug!(client = id, "closing an idle connection");
                    self.place.stats.idle_closed.add(1);
                    link.ask(End::Now);
                }
            }
            self.place.stats.input_bytes.set(input as u64);
            self.place.stats.output_bytes.set(output as u64);
            self.place.stats.message_bytes.set(messages as u64);
        }
    }

    /// Looks at the keys that clients watch.
    async fn renew(&self) {
        let watches = &self.place.watches;
        if watches.borrow().is_empty() {
            return;
        }
        watches.borrow_mut().retain(|watched| watched.strong_count() > 0);
        let all: Vec<_> = watches.borrow().iter().filter_map(Weak::upgrade).collect();
        for watched in all {
            if let Err(error) = self.keyspace.renew(&watched).await {
                debug!(%error, "a watched key was not read; trying again");
            }
        }
    }

    /// Tells who listens which keys have ended.
    fn tell_expired(&self) {
        let shared = &self.place.shared;
        let classes = shared.settings.notified();
        let is_wanted = classes.tell_something() && classes.has(Class::Expired);
        let keys = self.keyspace.take_expired(is_wanted);
        if !keys.is_empty() {
            notify::tell_expired(shared, &keys);
        }
    }

    async fn maintain(self: Rc<Self>) {
        while !self.leaving.get() {
            self.keyspace.sweep(self.place.shared.settings.sweeps());
            let pause = self.keyspace.maintain().await;
            self.renew().await;
            self.tell_expired();
            tokio::time::sleep(pause.max(Duration::from_micros(100))).await;
        }
    }
}
