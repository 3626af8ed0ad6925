//! The memory node's program: reads its configuration, serves the node on a thread
//! of its own, and stops it when told to.

#![forbid(unsafe_code)]

use clap::Parser as _;
use fusee_control::{Supervisor, http};
use mnd::daemon::{Config, LogFormat, Report};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::process::ExitCode;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::task::LocalSet;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let config = Config::parse();
    if let Err(reason) =
        log(&config).and_then(|()| config.pool().map(drop).map_err(|e| e.to_string()))
    {
        let _ = writeln!(io::stderr(), "error: {reason}");
        return ExitCode::from(2);
    }
    match run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            tracing::error!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn log(config: &Config) -> Result<(), String> {
    let filter = EnvFilter::try_new(&config.log_level).map_err(|error| {
        format!(
            "log-level {:?} is not understood: {error}; write error, warn, info, debug or trace",
            config.log_level
        )
    })?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match config.log_format {
        LogFormat::Text => lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).init(),
        LogFormat::Json => lines.json().init(),
    }
    Ok(())
}

async fn listen(address: SocketAddr) -> Result<TcpListener, String> {
    let listener = TcpListener::bind(address).await.map_err(|error| {
        format!(
            "cannot serve metrics on {address}: {error}; choose another port by --metrics-port, \
             or 0 for none"
        )
    })?;
    tracing::info!(%address, "serving /metrics, /livez and /readyz");
    Ok(listener)
}

fn run(config: Config) -> Result<(), String> {
    let runtime = || {
        Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("cannot start: {error}"))
    };
    let main = runtime()?;
    // Before anything is served, so that no signal finds nobody listening.
    let (mut terminate, mut interrupt) = {
        let _guard = main.enter();
        let listen = |kind| signal(kind).map_err(|error| format!("cannot hear signals: {error}"));
        (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?)
    };
    let metrics = match config.metrics_address() {
        Some(address) => Some(main.block_on(listen(address))?),
        None => None,
    };
    let report = Report::default();
    let (stop, mut stopped) = watch::channel(false);
    let (done, mut ended) = oneshot::channel();
    let control = runtime()?;
    let reported = report.clone();
    let body = move || {
        let stopped = async move {
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        let result = control.block_on(mnd::daemon::run(&config, reported, stopped));
        let _ = done.send(result.map_err(|error| error.to_string()));
    };
    let thread = std::thread::Builder::new().name("control".to_owned()).spawn(body);
    let thread = thread.map_err(|error| format!("cannot start: {error}"))?;
    let main_set = LocalSet::new();
    let supervisor = Supervisor::from_environment();
    let seen = report.clone();
    if let Some(listener) = metrics {
        main_set.spawn_local(http::serve(listener, move |path| report.page(path)));
    }
    let result = main_set.block_on(&main, async {
        let mut told = false;
        loop {
            let pause = tokio::time::sleep(supervisor.interval());
            tokio::select! {
                result = &mut ended => break result.unwrap_or(Err("the control plane panicked".to_owned())),
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                () = pause => {
                    seen.tell(&supervisor);
                    continue;
                }
            }
            if told {
                tracing::warn!("told twice to stop: leaving at once");
                std::process::exit(1);
            }
            told = true;
            supervisor.stopping();
            stop.send_replace(true);
        }
    });
    let _ = thread.join();
    if result.is_ok() {
        tracing::info!("stopped");
    }
    result
}
