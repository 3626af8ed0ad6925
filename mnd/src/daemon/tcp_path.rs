//! The data path on TCP: threads of this process execute the verbs that clients
//! send, and need nothing of the control plane's thread to do so.

use super::{DataPath, Revoking};
use fusee_control::{Address, Denied, MemoryRoute, Tls, Token};
use fusee_fabric::ShmNode;
use fusee_fabric::tcp::{TcpServer, TcpStatistics};
use std::io;
use std::net::TcpListener;
use std::sync::Arc;

/// Memory reached by TCP.
#[derive(Debug)]
pub struct TcpPath {
    server: Arc<TcpServer>,
    address: String,
}

impl TcpPath {
    /// Begins to execute verbs on node `number`, on so many threads, at a free port
    /// of the host that its control plane is on; inside of TLS if that is.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn serve(
        control: &Address,
        number: u16,
        node: Arc<ShmNode>,
        threads: usize,
        tls: Option<&Tls>,
    ) -> io::Result<Arc<Self>> {
        let (host, tls) = match control {
            Address::Unix(_) => ("127.0.0.1", None),
            Address::Tcp { host, .. } => (host.as_str(), tls.map(Tls::data_server)),
        };
        let server = TcpServer::start(TcpListener::bind((host, 0))?, number, node, threads, tls)?;
        let address = Address::Tcp { host: host.to_owned(), port: server.address().port() };
        Ok(Arc::new(Self { server: Arc::new(server), address: address.to_string() }))
    }

    /// Where verbs are executed.
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl DataPath for TcpPath {
    fn admit(&self, session: Token) -> Result<MemoryRoute, Denied> {
        self.server.admit(proof(&session));
        Ok(MemoryRoute::Tcp { address: self.address.clone() })
    }

    fn revoke(&self, session: Token) -> Revoking<'_> {
        let server = self.server.clone();
        // It waits for what is being executed, which may take a moment.
        let revoked = tokio::task::spawn_blocking(move || server.revoke(&proof(&session)));
        Box::pin(async move { revoked.await.expect("revoking does not panic") })
    }

    fn statistics(&self) -> Option<TcpStatistics> {
        Some(self.server.statistics())
    }
}

fn proof(session: &Token) -> fusee_fabric::tcp::Token {
    fusee_fabric::tcp::Token::new(*session.bytes())
}
