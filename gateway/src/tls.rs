//! TLS for clients: which certificate is shown, and whose are asked for.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::config::{ClientCertificates, TlsFiles};

/// Reads certificates and keys.
///
/// # Errors
/// With the file that is wrong and what to do about it.
pub(crate) fn server_config(files: &TlsFiles) -> Result<Arc<ServerConfig>, String> {
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("no TLS: {error}"))?;
    let builder = match (files.clients, &files.authority) {
        (ClientCertificates::No, _) => builder.with_no_client_auth(),
        (_, None) => {
            return Err("tls-auth-clients needs the authority that signs clients' certificates: \
                        name its file by --tls-ca-cert-file"
                .to_owned());
        }
        (wanted, Some(path)) => {
            let mut authorities = RootCertStore::empty();
            for certificate in certificates(path)? {
                authorities.add(certificate).map_err(|error| wrong(path, &error))?;
            }
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider);
            let verifier = match wanted {
                ClientCertificates::Optional => verifier.allow_unauthenticated(),
                _ => verifier,
            };
            let verifier = verifier.build().map_err(|error| wrong(path, &error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| wrong(&files.key, &error))?;
    let shown = certificates(&files.certificate)?;
    let config = builder.with_single_cert(shown, key).map_err(|error| {
        let (certificate, key) = (files.certificate.display(), files.key.display());
        format!("{certificate} and {key} do not go together: {error}")
    })?;
    Ok(Arc::new(config))
}

fn certificates(path: &PathBuf) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    match certificates {
        Ok(certificates) if certificates.is_empty() => {
            Err(format!("{} holds no certificate: it has to be PEM", path.display()))
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(wrong(path, &error)),
    }
}

fn wrong(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("cannot use the TLS file {}: {error}; it has to be PEM", path.display())
}
