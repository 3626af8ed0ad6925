//! How clients reach a node's memory: the seam between the control plane, which
//! knows sessions, and the fabrics.

use fusee_control::{Denied, MemoryRoute, Token};
use std::future::Future;
use std::pin::Pin;
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

    /// The stream by which the session was begun is closed. Has the session ended
    /// with it? A path that itself sees the gateway's death says no, and reports
    /// the end through [`Ended`].
    fn stream_closed(&self, session: &Token) -> bool {
        let _ = session;
        true
    }

    /// Shuts a session out. Once the future is ready, nothing of the session
    /// reaches the memory any more, however late it was sent.
    fn revoke(&self, session: Token) -> Revoking<'_>;
}

/// A session that is being shut out.
pub type Revoking<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Where a data path reports sessions that have ended. Unbounded: there are no more
/// than sessions.
pub type Ended = UnboundedSender<Token>;
