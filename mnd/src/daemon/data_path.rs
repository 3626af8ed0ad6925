//! How clients reach a node's memory: the seam between the control plane, which
//! knows sessions, and the fabrics.

use fusee_control::{Denied, MemoryRoute, Token};
use fusee_fabric::tcp::TcpStatistics;
use fusee_fabric::verbs::{NodeQueuePair, QueuePairAddress};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// One way to a node's memory, of the pool's only kind.
///
/// Its threads are its own: what clients do to the memory needs nothing of the
/// control plane's thread. Methods are called on that thread and do not wait.
pub trait DataPath: Send + Sync + 'static {
    /// Lets a new session at the memory, and says what its gateway has to know.
    ///
    /// # Errors
    ///
    /// If the path takes no more.
    fn admit(&self, session: Token) -> Result<MemoryRoute, Denied>;

    /// Makes a peer for a queue pair of a session's worker, once the one that was made
    /// for the same link before is destroyed. Called on a thread that may wait.
    ///
    /// # Errors
    ///
    /// If the path is not of queue pairs, the session has ended, or the worker's device
    /// cannot be reached.
    fn open_queue_pair(
        &self,
        session: Token,
        link: u64,
        worker: &QueuePairAddress,
    ) -> Result<NodeQueuePair, Denied> {
        let _ = (session, link, worker);
        Err(Denied::Refused("this pool's memory is not reached by verbs".to_owned()))
    }

    /// The stream by which the session is held has ended. How long may the gateway take
    /// to come back? A path that itself sees the gateway's death says nothing, and
    /// reports the end through [`Ended`].
    fn stream_closed(&self, session: &Token) -> Option<Duration> {
        let _ = session;
        Some(RETURN_TIME_MAX)
    }

    /// Shuts a session out. Once the future is ready, nothing of the session
    /// reaches the memory any more, however late it was sent.
    fn revoke(&self, session: Token) -> Revoking<'_>;

    /// What a path that executes verbs by this process has executed.
    fn statistics(&self) -> Option<TcpStatistics> {
        None
    }
}

/// A gateway whose connection was closed connects again within this time, also if it
/// tries a moment too early and once more: its attempts take 2 s at most. One that has
/// ended does not come, and is expelled.
pub const RETURN_TIME_MAX: Duration = Duration::from_secs(3);

/// A session that is being shut out.
pub type Revoking<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Where a data path reports sessions that have ended. Unbounded: there are no more
/// than sessions.
pub type Ended = UnboundedSender<Token>;
