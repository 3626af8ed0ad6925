//! The data path on one host: clients map the memory itself.
//!
//! A Unix socket hands the memory's file to who sends a session's token. The
//! client keeps the connection as long as it lives, so the kernel closes it when
//! no thread of the client can touch the memory any more, also after `kill -9`.
//! A process that is merely stopped keeps it, and its session.

use super::{DataPath, Ended, Revoking};
use fusee_control::{Denied, MemoryRoute, Token, listen_unix};
use fusee_fabric::{ShmNode, send_memory};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, Interest};
use tokio::net::{UnixListener, UnixStream};

/// Memory handed out over a Unix socket.
#[derive(Debug)]
pub struct ShmPath {
    socket: PathBuf,
    sessions: Mutex<HashMap<Token, Hold>>,
}

/// What keeps a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hold {
    /// Its stream: the memory was not fetched yet.
    Stream,
    /// The connection over which the memory was fetched.
    Connection,
}

/// A client sends its token at once.
const TOKEN_TIME_MAX: Duration = Duration::from_secs(5);
/// After the system refused a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl ShmPath {
    /// Begins to hand out a node's memory, on this runtime. Sessions that end are
    /// reported.
    ///
    /// # Errors
    ///
    /// If the socket cannot be made.
    pub fn serve(socket: PathBuf, node: Arc<ShmNode>, ended: Ended) -> io::Result<Arc<Self>> {
        let listener = listen_unix(&socket)?;
        let path = Arc::new(Self { socket, sessions: Mutex::default() });
        tokio::spawn(path.clone().accept(listener, node, ended));
        Ok(path)
    }

    /// Beside the control plane's socket.
    pub fn socket_beside(control: &Path) -> PathBuf {
        let mut name = control.as_os_str().to_owned();
        name.push(".memory");
        name.into()
    }

    async fn accept(self: Arc<Self>, listener: UnixListener, node: Arc<ShmNode>, ended: Ended) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (path, node, ended) = (self.clone(), node.clone(), ended.clone());
                    tokio::spawn(async move {
                        if let Some(session) = path.hand_over(stream, &node).await {
                            let _ = ended.send(session);
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a client could not connect to fetch the memory");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Serves one connection to its end; tells whose it was.
    async fn hand_over(&self, mut stream: UnixStream, node: &ShmNode) -> Option<Token> {
        let mut bytes = [0; Token::BYTES];
        let read = tokio::time::timeout(TOKEN_TIME_MAX, stream.read_exact(&mut bytes)).await;
        read.ok()?.ok()?;
        let session = Token::from_bytes(&bytes)?;
        // From here on the session ends with this connection.
        match self.lock().get_mut(&session) {
            Some(hold @ Hold::Stream) => *hold = Hold::Connection,
            // No session, or its memory was fetched before.
            _ => return None,
        }
        let sent = stream.async_io(Interest::WRITABLE, || send_memory(&stream, node.memory()));
        match sent.await {
            Ok(()) => while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {},
            Err(error) => tracing::warn!(%error, "the memory could not be handed over"),
        }
        Some(session)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Token, Hold>> {
        self.sessions.lock().expect("nobody panics with it")
    }
}

impl DataPath for ShmPath {
    fn admit(&self, session: Token) -> Result<MemoryRoute, Denied> {
        self.lock().insert(session, Hold::Stream);
        Ok(MemoryRoute::Shm { socket: self.socket.clone() })
    }

    fn stream_closed(&self, session: &Token) -> Option<Duration> {
        let mut sessions = self.lock();
        // Removed under the same lock under which a connection would take it over.
        let is_over =
            sessions.get(session) == Some(&Hold::Stream) && sessions.remove(session).is_some();
        is_over.then_some(Duration::ZERO)
    }

    /// Nobody can take mapped memory from a process that lives; but sessions end
    /// here only when there is no process.
    fn revoke(&self, session: Token) -> Revoking<'_> {
        self.lock().remove(&session);
        Box::pin(std::future::ready(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fusee_fabric::{Memory, receive_memory};
    use tokio::io::AsyncWriteExt as _;
    use tokio::sync::mpsc;

    async fn ask(path: &ShmPath, token: &Token) -> (UnixStream, io::Result<Memory>) {
        let mut stream = UnixStream::connect(&path.socket).await.unwrap();
        stream.write_all(token.bytes()).await.unwrap();
        let received = stream.async_io(Interest::READABLE, || receive_memory(&stream)).await;
        (stream, received)
    }

    #[tokio::test]
    async fn a_session_gets_the_memory_once_and_ends_with_its_connection() {
        let folder = std::env::temp_dir().join(format!("mnd-shm-path-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let memory = Arc::new(ShmNode::new(Memory::shared(1 << 20, "test").unwrap()));
        let (ended, mut ends) = mpsc::unbounded_channel();
        let path = ShmPath::serve(folder.join("memory"), memory.clone(), ended).unwrap();
        let [session, waiting] = [(); 2].map(|()| Token::random());
        path.admit(session).unwrap();
        path.admit(waiting).unwrap();
        let (stream, received) = ask(&path, &session).await;
        assert_eq!(received.unwrap().bytes(), memory.memory().bytes());
        for refused in [session, Token::random()] {
            assert!(ask(&path, &refused).await.1.is_err(), "no session, or not once more");
        }
        assert_eq!(path.stream_closed(&session), None, "the connection keeps it");
        assert_eq!(path.stream_closed(&waiting), Some(Duration::ZERO), "nothing keeps it");
        assert!(ask(&path, &waiting).await.1.is_err(), "it has ended");
        assert!(ends.try_recv().is_err());
        drop(stream);
        assert_eq!(ends.recv().await, Some(session));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
