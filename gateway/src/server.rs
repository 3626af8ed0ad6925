//! From a configuration to a running server and back.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use fusee_fabric::ring;
use rustls::ServerConfig;
use socket2::{Domain, Protocol, Socket, Type};
use thiserror::Error;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;

use crate::acl::Acl;
use crate::config::{Config, IoUring};
use crate::control;
use crate::keyspace::Keyspace;
use crate::mesh::{Directory, Others};
use crate::metrics::Beside;
use crate::notify::Classes;
use crate::script::STACK_BYTES;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::worker::{Door, Limits, Worker};

/// Connections that may wait to be accepted; the system's own limit applies too.
const BACKLOG: i32 = 4096;

/// Why the server did not start, and what to do.
#[derive(Debug, Error)]
pub enum StartError {
    /// Somebody else listens there.
    #[error(
        "{address} is in use: stop the server that listens there (`ss -ltnp 'sport = :{}'` names it) or choose another port by --port",
        address.port()
    )]
    InUse {
        /// Where.
        address: SocketAddr,
    },
    /// Somebody else serves there what should be our metrics.
    #[error(
        "{address} is in use: choose another port for metrics by --metrics-port, or 0 for none"
    )]
    MetricsInUse {
        /// Where.
        address: SocketAddr,
    },
    /// The system does not let us listen there.
    #[error(
        "cannot listen on {address}: {source}; choose an address of this machine by --bind and a port that you may use by --port"
    )]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The file of users is not one.
    #[error("{0}")]
    Users(String),
    /// There is no TLS by these files.
    #[error("{0}")]
    Tls(String),
    /// A thread could not be started.
    #[error("cannot start worker {worker}: {source}; ask for fewer by --workers")]
    Thread {
        /// Which.
        worker: usize,
        /// Why.
        source: io::Error,
    },
    /// Clients shall be served by io_uring, and the kernel does not let us.
    #[error(
        "io_uring is not to be had: {0}; use Linux 6.1 or newer outside of a sandbox that forbids it, or leave --io-uring at auto"
    )]
    IoUring(io::Error),
    /// A worker's keyspace could not be had.
    #[error("worker {worker} has no store: {reason}")]
    Store {
        /// Which.
        worker: usize,
        /// Why, and what to do.
        reason: String,
    },
}

/// A running server. Dropping it does not stop it; [`Server::stop`] does.
#[derive(Debug)]
pub struct Server {
    addresses: Vec<SocketAddr>,
    tls_addresses: Vec<SocketAddr>,
    metrics_address: Option<SocketAddr>,
    workers: Vec<JoinHandle<()>>,
    control: Option<JoinHandle<()>>,
    ended: watch::Sender<bool>,
    stop: Arc<watch::Sender<bool>>,
    shared: Arc<Shared>,
}

/// Starts listening and serving. `keyspace` makes each worker's keyspace, on
/// that worker's thread; `beside` is what metrics and probes tell besides.
///
/// # Errors
/// An address is taken, or a worker cannot run; then nothing is left running.
pub fn start<K, F>(
    config: &Config,
    beside: impl Into<Beside>,
    keyspace: F,
) -> Result<Server, StartError>
where
    K: Keyspace + 'static,
    F: AsyncFn(usize) -> Result<K, String> + Send + Sync + 'static,
{
    start_among(config, beside, None, keyspace)
}

/// As [`start`], among other gateways that `directory` tells of: what is published at
/// one reaches who listens at another.
///
/// # Errors
/// As [`start`].
pub fn start_among<K, F>(
    config: &Config,
    beside: impl Into<Beside>,
    directory: Option<Directory>,
    keyspace: F,
) -> Result<Server, StartError>
where
    K: Keyspace + 'static,
    F: AsyncFn(usize) -> Result<K, String> + Send + Sync + 'static,
{
    crate::metrics::recorded();
    let has_ring = may_use_ring(config.io_uring)?;
    let tls = match &config.tls {
        Some(files) => {
            Some((files.port, crate::tls::server_config(files).map_err(StartError::Tls)?))
        }
        None => None,
    };
    let mut doors: Vec<Vec<Door>> = (0..config.workers).map(|_| Vec::new()).collect();
    let addresses = listen(config, config.port, None, &mut doors)?;
    let tls_addresses = match tls {
        Some((port, tls)) => listen(config, port, Some(tls), &mut doors)?,
        None => Vec::new(),
    };
    let metrics_listener = listen_for_metrics(config)?;
    let others = match directory {
        Some(directory) => {
            let ip = config.peer_address.unwrap_or(Ipv4Addr::LOCALHOST.into());
            Some(Others { listener: bind(SocketAddr::new(ip, 0), false)?, directory })
        }
        None => None,
    };
    let metrics_address = metrics_listener.as_ref().and_then(|one| one.local_addr().ok());
    let settings = Settings::new(config.max_clients, config.timeout_s);
    settings.tell("requirepass", config.require_pass.clone());
    settings.tell("protected-mode", if config.protected_mode { "yes" } else { "no" }.to_owned());
    let port = addresses.first().map_or(config.port, SocketAddr::port);
    settings.tell("port", port.to_string());
    let classes = Classes::parse(&config.notify_keyspace_events).unwrap_or_default();
    let debug = if config.enable_debug_command { "yes" } else { "no" };
    settings.tell("enable-debug-command", debug.to_owned());
    settings.tell("notify-keyspace-events", classes.letters());
    settings.tell("tls-port", tls_addresses.first().map_or(0, SocketAddr::port).to_string());
    settings.tell("io-uring", if has_ring { "yes" } else { "no" }.to_owned());
    settings.tell("maxmemory", config.memory_bytes.to_string());
    let bind: Vec<String> = config.bind.iter().map(ToString::to_string).collect();
    settings.tell("bind", bind.join(" "));
    let file = config.acl_file.as_deref();
    settings.tell("aclfile", file.map_or(String::new(), |file| file.display().to_string()));
    let acl = Acl::new(&config.require_pass, file).map_err(StartError::Users)?;
    let shared = Arc::new(Shared::new(settings, acl, config.workers, port));
    let (stop, _) = watch::channel(false);
    let (ended, control_ended) = watch::channel(false);
    let mut server = Server {
        addresses,
        tls_addresses,
        metrics_address,
        workers: Vec::new(),
        control: None,
        ended,
        stop: Arc::new(stop),
        shared: shared.clone(),
    };
    let keyspace = Arc::new(keyspace);
    let (report, reports) = std::sync::mpsc::channel();
    for index in 0..config.workers {
        let doors = doors.remove(0);
        let (shared, keyspace, report) = (shared.clone(), keyspace.clone(), report.clone());
        let stopped = server.stop.subscribe();
        let limits = Limits {
            output_bytes: config.output_limit_bytes,
            query_bytes: config.query_limit_bytes,
        };
        let drain = Duration::from_secs(config.drain_s);
        let body = move || {
            let prepared = Builder::new_current_thread()
                .enable_all()
                .build_local(LocalOptions::default())
                .map_err(|error| error.to_string())
                .and_then(|runtime| {
                    // A store may need the runtime's driver when it is made.
                    let keyspace = runtime.block_on(keyspace(index))?;
                    Ok((runtime, keyspace))
                });
            let (runtime, keyspace) = match prepared {
                Ok(prepared) => prepared,
                Err(reason) => {
                    let _ = report.send(Err((index, reason)));
                    return;
                }
            };
            let worker = Worker::new(keyspace, shared, index, limits, has_ring);
            let _ = report.send(Ok(()));
            drop(report);
            if let Err(error) = runtime.block_on(worker.run(doors, stopped, drain)) {
                tracing::error!(worker = index, %error, "a worker ended");
            }
        };
        let thread = std::thread::Builder::new().name(format!("worker-{index}"));
        let thread = thread.stack_size(STACK_BYTES).spawn(body);
        match thread {
            Ok(thread) => server.workers.push(thread),
            Err(source) => {
                server.end();
                return Err(StartError::Thread { worker: index, source });
            }
        }
    }
    drop(report);
    for report in reports {
        if let Err((worker, reason)) = report {
            server.end();
            return Err(StartError::Store { worker, reason });
        }
    }
    let (stopping, beside) = (server.stop.subscribe(), beside.into());
    let body = move || {
        let runtime =
            Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
        match runtime {
            Ok(runtime) => runtime.block_on(control::run(
                metrics_listener,
                others,
                shared,
                beside,
                stopping,
                control_ended,
            )),
            Err(error) => tracing::error!(%error, "metrics are not served"),
        }
    };
    match std::thread::Builder::new().name("control".to_owned()).spawn(body) {
        Ok(thread) => server.control = Some(thread),
        Err(source) => {
            let worker = server.workers.len();
            server.end();
            return Err(StartError::Thread { worker, source });
        }
    }
    Ok(server)
}

impl Server {
    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where it listens for TLS.
    pub fn tls_addresses(&self) -> &[SocketAddr] {
        &self.tls_addresses
    }

    /// Where /metrics is.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Something to stop it by from elsewhere.
    pub fn stopper(&self) -> impl Fn() + Send + Sync + use<> {
        let stop = self.stop.clone();
        move || {
            stop.send_replace(true);
        }
    }

    /// Something to ask from elsewhere whether all workers come round.
    pub fn liveness(&self) -> impl Fn() -> bool + Send + use<> {
        let shared = self.shared.clone();
        move || control::stuck(&shared).is_none()
    }

    /// Begins to drain: no new connections, and each one ends once it has
    /// nothing left to do.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until all workers have ended.
    pub fn join(mut self) {
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                tracing::error!("a worker panicked");
            }
        }
        self.ended.send_replace(true);
        if let Some(control) = self.control.take()
            && control.join().is_err()
        {
            tracing::error!("the control thread panicked");
        }
    }

    fn end(self) {
        self.stop();
        self.join();
    }
}

/// Whether clients are to be served by io_uring.
fn may_use_ring(wanted: IoUring) -> Result<bool, StartError> {
    if wanted == IoUring::No {
        return Ok(false);
    }
    match ring::probe() {
        Ok(()) => Ok(true),
        Err(error) if wanted == IoUring::Yes => Err(StartError::IoUring(error)),
        Err(error) => {
            tracing::info!(%error, "no io_uring here: clients' sockets are polled");
            Ok(false)
        }
    }
}

/// Binds every address once for each worker; the system spreads connections.
fn listen(
    config: &Config,
    port: u16,
    tls: Option<Arc<ServerConfig>>,
    doors: &mut [Vec<Door>],
) -> Result<Vec<SocketAddr>, StartError> {
    let mut addresses = Vec::new();
    for ip in &config.bind {
        let mut address = SocketAddr::new(*ip, port);
        // With SO_REUSEPORT the system would let two servers share the port and
        // split the clients between them; so ask without it first.
        if port != 0 {
            bind(address, false)?;
        }
        for doors in &mut *doors {
            let listener = bind(address, true)?;
            address =
                listener.local_addr().map_err(|source| StartError::Listen { address, source })?;
            doors.push(Door { listener, tls: tls.clone() });
        }
        addresses.push(address);
    }
    Ok(addresses)
}

fn listen_for_metrics(config: &Config) -> Result<Option<TcpListener>, StartError> {
    match config.metrics_port {
        Some(0) => Ok(None),
        port => {
            let address = SocketAddr::new(config.metrics_bind, port.unwrap_or(0));
            match bind(address, false) {
                Err(StartError::InUse { address }) => Err(StartError::MetricsInUse { address }),
                other => other.map(Some),
            }
        }
    }
}

fn bind(address: SocketAddr, shared: bool) -> Result<TcpListener, StartError> {
    let listen = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(shared)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    listen().map_err(|source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => StartError::InUse { address },
        _ => StartError::Listen { address, source },
    })
}
