//! Mutual TLS: both ends show a certificate of the pool's authority.

use crate::Address;
use serde::Deserialize;
use std::path::{Path, PathBuf};
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

/// What a process shows and whom it trusts.
#[derive(Clone)]
pub struct Tls {
    authority: Certificate,
    identity: Identity,
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
    /// The data path on TCP has none, and others could listen.
    #[error(
        "{address} is not an address of this host alone, and fabric = \"tcp\" carries keys and \
         values unencrypted: use fabric = \"verbs\", or say --insecure if nobody else is on that \
         network"
    )]
    DataPath {
        /// Which.
        address: Address,
    },
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
    /// If one cannot be read.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let read = |path: &Path, what| {
            std::fs::read(path).map_err(|source| TlsError::Read { path: path.into(), what, source })
        };
        let authority = Certificate::from_pem(read(&files.ca, "authority")?);
        let certificate = read(&files.certificate, "certificate")?;
        let identity = Identity::from_pem(certificate, read(&files.key, "key")?);
        Ok(Self { authority, identity })
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
