//! A connection's socket, in the clear or inside of TLS.

use super::stream::Inbox;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

/// How a client shows a memory node who it is, and by what it knows the node.
#[derive(Clone)]
pub struct TlsPeer {
    /// The client's certificate, and the authority that it trusts.
    pub config: Arc<ClientConfig>,
    /// The host that the node's certificate has to name.
    pub name: ServerName<'static>,
}

impl fmt::Debug for TlsPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsPeer").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Both directions of it are used by futures of one task, which take turns.
pub(crate) enum Socket {
    Clear(TcpStream),
    Tls(Box<RefCell<TlsStream<TcpStream>>>),
}

impl Socket {
    /// The client's end; a TLS handshake takes two round trips.
    pub(crate) async fn connect(stream: TcpStream, tls: Option<&TlsPeer>) -> io::Result<Self> {
        // Without this, a request waits for the acknowledgement of the last one.
        stream.set_nodelay(true)?;
        let Some(TlsPeer { config, name }) = tls else { return Ok(Self::Clear(stream)) };
        let stream = TlsConnector::from(config.clone()).connect(name.clone(), stream).await?;
        Ok(Self::Tls(Box::new(RefCell::new(stream.into()))))
    }

    /// The memory node's end.
    pub(crate) async fn accept(
        stream: TcpStream,
        tls: Option<&Arc<ServerConfig>>,
    ) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let Some(config) = tls else { return Ok(Self::Clear(stream)) };
        let stream = TlsAcceptor::from(config.clone()).accept(stream).await?;
        Ok(Self::Tls(Box::new(RefCell::new(stream.into()))))
    }

    /// Receives what has arrived, once there is something; 0 bytes at the end.
    pub(crate) async fn receive(&self, inbox: &mut Inbox) -> io::Result<usize> {
        let bytes = match self {
            // A buffer only for who has sent something.
            Self::Clear(stream) => loop {
                stream.readable().await?;
                match stream.try_read(inbox.room()) {
                    Err(error) if is_temporary(&error) => {}
                    other => break other?,
                }
            },
            Self::Tls(stream) => {
                let receive = poll_fn(|context| {
                    let mut room = ReadBuf::new(inbox.room());
                    let mut stream = stream.borrow_mut();
                    ready!(Pin::new(&mut *stream).poll_read(context, &mut room))?;
                    Poll::Ready(io::Result::Ok(room.filled().len()))
                });
                receive.await?
            }
        };
        inbox.filled(bytes);
        Ok(bytes)
    }

    /// Sends some of these bytes; see [`Self::flush`].
    pub(crate) async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Clear(stream) => loop {
                match stream.try_write(bytes) {
                    Err(error) if is_temporary(&error) => stream.writable().await?,
                    other => return other,
                }
            },
            Self::Tls(stream) => {
                poll_fn(|context| Pin::new(&mut *stream.borrow_mut()).poll_write(context, bytes))
                    .await
            }
        }
    }

    /// Brings what was sent, and is encrypted by now, to the system.
    pub(crate) async fn flush(&self) -> io::Result<()> {
        match self {
            Self::Clear(_) => Ok(()),
            Self::Tls(stream) => {
                poll_fn(|context| Pin::new(&mut *stream.borrow_mut()).poll_flush(context)).await
            }
        }
    }
}

/// Has one end no trust in the other? Then what the TLS library says of it.
pub(crate) fn distrust(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
