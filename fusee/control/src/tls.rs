//! Mutual TLS: both ends show a certificate of the pool's authority.

use crate::Address;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde::Deserialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;
use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

/// Where the certificates are, in PEM.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The authority whose certificates are trusted.
    pub ca: PathBuf,
    /// This process's certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// What a process shows and whom it trusts, on the control plane and on data paths.
#[derive(Clone)]
pub struct Tls {
    authority: Certificate,
    identity: Identity,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

/// Why there is no TLS.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {path}, the pool's TLS {what}: {source}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// What it should be.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// What is in a file is not what it should be.
    #[error(
        "the pool's TLS files cannot be used: {0}; they have to be PEM, and the key the certificate's"
    )]
    Content(String),
    /// There is none, and others could listen.
    #[error(
        "{address} is not an address of this host alone, and without TLS whoever is on the way \
         reads and writes every key: put certificates under [tls] into the pool file, or say \
         --insecure if nobody else is on that network"
    )]
    Required {
        /// Which.
        address: Address,
    },
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// If one cannot be read, or they do not belong together.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let read = |path: &Path, what| {
            std::fs::read(path).map_err(|source| TlsError::Read { path: path.into(), what, source })
        };
        let authority = read(&files.ca, "authority")?;
        let certificate = read(&files.certificate, "certificate")?;
        let key = read(&files.key, "key")?;
        let (client, server) = configure(&authority, &certificate, &key)
            .map_err(|unusable| TlsError::Content(unusable.to_string()))?;
        Ok(Self {
            authority: Certificate::from_pem(authority),
            identity: Identity::from_pem(certificate, key),
            client: Arc::new(client),
            server: Arc::new(server),
        })
    }

    /// For a gateway's end of a data path.
    pub fn data_client(&self) -> Arc<ClientConfig> {
        self.client.clone()
    }

    /// For a memory node's end of a data path.
    pub fn data_server(&self) -> Arc<ServerConfig> {
        self.server.clone()
    }

    pub(crate) fn client(&self, host: &str) -> ClientTlsConfig {
        ClientTlsConfig::new()
            .ca_certificate(self.authority.clone())
            .identity(self.identity.clone())
            .domain_name(host)
    }

    pub(crate) fn server(&self) -> ServerTlsConfig {
        ServerTlsConfig::new()
            .client_ca_root(self.authority.clone())
            .identity(self.identity.clone())
    }
}

/// So that no other protocol's bytes are taken for verbs.
const DATA_PROTOCOL: &[u8] = b"fusee-verbs";

/// The two ends of a data path, from PEM.
fn configure(
    authority: &[u8],
    certificate: &[u8],
    key: &[u8],
) -> Result<(ClientConfig, ServerConfig), Unusable> {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(authority) {
        roots.add(root?)?;
    }
    let roots = Arc::new(roots);
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate).collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(key)?;
    let provider = Arc::new(default_provider());
    let mut client = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots.clone())
        .with_client_auth_cert(chain.clone(), key.clone_key())?;
    client.alpn_protocols = vec![DATA_PROTOCOL.to_vec()];
    let clients = WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).build()?;
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)?;
    server.alpn_protocols = vec![DATA_PROTOCOL.to_vec()];
    Ok((client, server))
}

/// Why files are none for TLS.
#[derive(Debug, Error)]
enum Unusable {
    #[error("{0}")]
    Pem(#[from] pem::Error),
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    #[error("there is no authority in its file: {0}")]
    NoAuthority(#[from] VerifierBuilderError),
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}
