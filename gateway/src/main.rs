//! The gateway's program: reads its configuration, starts the server over a pool
//! of its own or one of memory node processes, and stops it when told to.

#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use fusee::StoreConfig;
use fusee_control::Supervisor;
use gateway::Server;
use gateway::config::{Config, ConfigError};
use gateway::embedded::Embedded;
use gateway::joined::{Joined, Routes};
use gateway::mesh;
use gateway::renewed::Renewed;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;
use tracing::{error, info, warn};

/// A signal so soon after the first one is the same one: supervisors tell a
/// process and its group.
const IMPATIENCE: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|word| word == "doctor") {
        return gateway::doctor::main(std::env::args_os().skip(1));
    }
    let mut config = match Config::from_arguments(std::env::args_os()) {
        Ok(config) => config,
        Err(ConfigError::Flags(error)) => error.exit(),
        Err(error) => return refuse(&error.to_string()),
    };
    if let Err(error) = gateway::logging::start(&config) {
        return refuse(&error);
    }
    match run(&mut config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            error!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn refuse(reason: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "error: {reason}");
    ExitCode::from(2)
}

/// Makes a pool or joins one, and starts the server over it.
async fn start(config: &mut Config) -> Result<Server, String> {
    let started = if let Some((file, tls)) = config.pool()? {
        config.memory_bytes = file.memory.0.saturating_mul(file.nodes.len() as u64);
        let store = StoreConfig { index_cache_entries: config.index_cache };
        let controls = file.nodes.clone();
        let joined = Joined::join(file, tls, store).await?;
        let beside = joined.beside();
        let directory = Some(joined.directory());
        let far = joined.routes().address_beyond_host(&controls);
        if let Some(node) = far.filter(|_| config.peer_address.is_none()) {
            if config.insecure {
                config.peer_address = Some(mesh::address_towards(node).map_err(|error| {
                    format!("no way to the memory node at {node}: {error}; give --peer-address")
                })?);
            } else {
                warn!(
                    "what is published at gateways of other hosts does not come here, nor the \
                     other way round: give --peer-address, and --insecure if nobody else is on \
                     that network"
                );
            }
        }
        match joined.routes() {
            Routes::Shm(nodes) => {
                gateway::start_among(config, beside, directory, async move |_worker| {
                    joined.store(joined.mapped(&nodes)).await
                })
            }
            Routes::Tcp(_) => {
                gateway::start_among(config, beside, directory, async move |_worker| {
                    Renewed::join(joined.clone(), Joined::over_tcp).await
                })
            }
            Routes::Verbs => {
                let device = joined.device(&config.device)?;
                gateway::start_among(config, beside, directory, async move |_worker| {
                    let device = device.clone();
                    let reach = async move |joined: &Joined| joined.over_verbs(&device).await;
                    Renewed::join(joined.clone(), reach).await
                })
            }
        }
    } else {
        let embedded = Embedded::create(config).map_err(|error| error.to_string())?;
        let source = embedded.source();
        gateway::start(config, vec![source], async move |_worker| embedded.store().await)
    };
    started.map_err(|error| error.to_string())
}

fn run(config: &mut Config) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    // Before there are clients, so that no signal finds nobody listening.
    let (mut terminate, mut interrupt) = {
        let _guard = runtime.enter();
        let listen = |kind| signal(kind).map_err(|error| format!("cannot hear signals: {error}"));
        (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?)
    };
    let supervisor = Supervisor::from_environment();
    supervisor.status("waiting for the pool");
    let server = runtime.block_on(async {
        tokio::select! {
            server = start(config) => server.map(Some),
            _ = terminate.recv() => Ok(None),
            _ = interrupt.recv() => Ok(None),
        }
    })?;
    let Some(server) = server else {
        info!("stopped before the pool was there");
        return Ok(());
    };
    announce(&server);
    supervisor.ready("serving");
    let is_live = server.liveness();
    let stop = server.stopper();
    let (done, mut ended) = tokio::sync::oneshot::channel();
    let waiter = std::thread::spawn(move || {
        server.join();
        let _ = done.send(());
    });
    runtime.block_on(async {
        let mut told_at: Option<Instant> = None;
        loop {
            let pause = tokio::time::sleep(supervisor.interval());
            tokio::select! {
                _ = &mut ended => break,
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                // Told also while connections end, which may take longer than its patience.
                () = pause => {
                    if is_live() {
                        supervisor.alive();
                    }
                    continue;
                }
            }
            let first = *told_at.get_or_insert_with(Instant::now);
            if first.elapsed() > IMPATIENCE {
                warn!("told twice to stop: leaving at once");
                std::process::exit(1);
            }
            supervisor.stopping();
            info!("stopping: no new connections; waiting for those that are busy");
            stop();
        }
    });
    waiter.join().map_err(|_| "a thread panicked".to_owned())?;
    info!("stopped");
    Ok(())
}

/// The one line on stdout: how to connect.
fn announce(server: &Server) {
    for address in server.addresses() {
        info!(%address, "ready for Redis clients");
    }
    for address in server.tls_addresses() {
        info!(%address, "ready for Redis clients that speak TLS");
    }
    if let Some(address) = server.metrics_address() {
        info!(%address, "serving /metrics, /livez and /readyz");
    }
    if let Some(address) = server.addresses().first() {
        let (ip, port) = (address.ip(), address.port());
        let host = if ip.is_unspecified() { "127.0.0.1".to_owned() } else { ip.to_string() };
        let mut out = std::io::stdout();
        // Nobody may be reading; the server serves all the same.
        let _ = writeln!(out, "Ready. Connect with: redis-cli -h {host} -p {port}");
        let _ = out.flush();
    }
}
