//! A memory node's side: threads that execute the verbs of its clients. They
//! share nothing with its control plane, and serve on when that stands still.

use super::Token;
use super::connection::{Place, serve};
use super::session::Sessions;
use crate::execute::Executor;
use crate::{Counters, ShmNode, VerbKind};
use rustls::ServerConfig;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

/// Connections of all sessions; each takes two files and some 200 KiB when busy.
const CONNECTIONS_MAX: u64 = 4096;
/// Connections on their way from the thread that accepts to the one that serves.
const ACCEPTED_MAX: usize = 64;
/// After the system refused a connection (out of files).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Executes verbs on a memory node's memory for those who have a session.
#[derive(Debug)]
pub struct TcpServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

/// What all threads of a server share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) number: u16,
    pub(crate) node: Arc<ShmNode>,
    pub(crate) sessions: Sessions,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// By thread.
    pub(crate) counters: Vec<Counters>,
    pub(crate) open: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) malformed: AtomicU64,
    pub(crate) stalled: AtomicU64,
}

/// What a server has done since it was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpStatistics {
    /// Connections that are open.
    pub connections: u64,
    /// Connections that were not let in.
    pub refused: u64,
    /// Connections closed for what they sent.
    pub malformed: u64,
    /// Connections closed as they did not read their replies.
    pub stalled: u64,
    /// Frames, that is batches or parts of them.
    pub batches: u64,
    /// READs, WRITEs, CASes and FAAs.
    pub verbs: [u64; crate::VERB_KINDS],
    /// Bytes that READs took away.
    pub bytes_read: u64,
    /// Bytes that WRITEs brought.
    pub bytes_written: u64,
    /// Verbs where the node has no memory.
    pub out_of_range: u64,
}

impl TcpServer {
    /// Serves memory node `number` on so many threads. With `tls`, nobody is served in
    /// the clear.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn start(
        listener: TcpListener,
        number: u16,
        node: Arc<ShmNode>,
        threads: usize,
        tls: Option<Arc<ServerConfig>>,
    ) -> io::Result<Self> {
        assert!(threads > 0, "somebody has to do it");
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            number,
            node,
            sessions: Sessions::default(),
            tls,
            counters: (0..threads).map(|_| Counters::default()).collect(),
            open: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            malformed: AtomicU64::new(0),
            stalled: AtomicU64::new(0),
        });
        let (stop, _) = watch::channel(false);
        let mut server = Self { shared, address, stop, threads: Vec::new() };
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..threads).map(|_| mpsc::channel(ACCEPTED_MAX)).unzip();
        let mut acceptor = Some((listener, senders));
        let (report, reports) = std::sync::mpsc::channel();
        for (index, receiver) in receivers.into_iter().enumerate() {
            let (shared, stopped) = (server.shared.clone(), server.stop.subscribe());
            let (acceptor, report) = (acceptor.take(), report.clone());
            let body = move || {
                let runtime =
                    Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
                let runtime = match runtime {
                    Ok(runtime) => runtime,
                    Err(error) => return drop(report.send(error)),
                };
                drop(report);
                runtime.block_on(run(index, shared, acceptor, receiver, stopped));
            };
            let thread = std::thread::Builder::new().name(format!("verbs-{index}")).spawn(body)?;
            server.threads.push(thread);
        }
        drop(report);
        // The channel ends when every thread has its runtime, or has told why not.
        reports.into_iter().next().map_or(Ok(server), Err)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets connections in that show this token.
    pub fn admit(&self, token: Token) {
        self.shared.sessions.admit(token);
    }

    /// Ends a session and its connections. When this returns, nothing of it is
    /// executed any more, whatever is still on its way.
    pub fn revoke(&self, token: &Token) {
        self.shared.sessions.revoke(token);
    }

    /// What it has done so far.
    pub fn statistics(&self) -> TcpStatistics {
        let shared = &self.shared;
        let mut sum = TcpStatistics {
            connections: shared.open.load(Relaxed),
            refused: shared.refused.load(Relaxed),
            malformed: shared.malformed.load(Relaxed),
            stalled: shared.stalled.load(Relaxed),
            ..TcpStatistics::default()
        };
        for counters in &shared.counters {
            sum.batches += counters.batches();
            for kind in [VerbKind::Read, VerbKind::Write, VerbKind::Cas, VerbKind::Faa] {
                sum.verbs[kind as usize] += counters.verbs(kind);
            }
            sum.bytes_read += counters.bytes_read();
            sum.bytes_written += counters.bytes_written();
            sum.out_of_range += counters.out_of_range();
        }
        sum
    }
}

impl Drop for TcpServer {
    /// Closes all connections and waits for the threads.
    fn drop(&mut self) {
        self.stop.send_replace(true);
        for thread in self.threads.drain(..) {
            // Its panic has been told where it happened.
            let _ = thread.join();
        }
    }
}

/// A connection that has been accepted.
pub(crate) struct Accepted {
    pub(crate) stream: TcpStream,
    pub(crate) open: Open,
}

/// Counts as a connection until it is dropped.
pub(crate) struct Open(Arc<Shared>);

impl Open {
    /// Unless there are too many.
    fn new(shared: &Arc<Shared>) -> Option<Self> {
        let this = Self(shared.clone());
        let is_one_of = shared.open.fetch_add(1, Relaxed) < CONNECTIONS_MAX;
        is_one_of.then_some(this)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}

/// One thread, until it is told to stop. The first one accepts for all.
async fn run(
    index: usize,
    shared: Arc<Shared>,
    acceptor: Option<(TcpListener, Vec<mpsc::Sender<Accepted>>)>,
    mut accepted: mpsc::Receiver<Accepted>,
    mut stop: watch::Receiver<bool>,
) {
    if let Some((listener, threads)) = acceptor {
        tokio::task::spawn_local(accept(listener, threads, shared.clone()));
    }
    let executor = Rc::new(Executor::default());
    loop {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            stream = accepted.recv() => {
                // The acceptor lives as long as the first thread.
                let Some(stream) = stream else { return };
                let (shared, executor) = (shared.clone(), executor.clone());
                tokio::task::spawn_local(serve(Place { index, shared, executor }, stream));
            }
        }
    }
}

/// Deals connections out to the threads in turn: each stands for a worker that
/// is as busy as the others.
async fn accept(listener: TcpListener, threads: Vec<mpsc::Sender<Accepted>>, shared: Arc<Shared>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "connections for verbs are not accepted");
            return;
        }
    };
    let mut turn = threads.iter().cycle();
    loop {
        let stream = match listener.accept().await.and_then(|(stream, _)| stream.into_std()) {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection for verbs was not accepted; raise the limit of open files if this repeats");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let thread = turn.next().expect("there is a thread");
        // A thread that does not come round gets no more; its clients try again.
        let refused = match Open::new(&shared) {
            Some(open) => {
                let sent = thread.try_send(Accepted { stream, open });
                sent.err().map(|refused| refused.into_inner().stream)
            }
            None => Some(stream),
        };
        if let Some(stream) = refused {
            tracing::warn!("there are too many connections for verbs: closing one");
            shared.refused.fetch_add(1, Relaxed);
            drop(stream);
        }
    }
}
