//! TLS for clients: who gets in, and that nothing is lost on the way.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use common::{Gateway, config, encode};
use gateway::config::{ClientCertificates, Config, TlsFiles};
use gateway::testing::MemoryKeyspace;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// An authority with a certificate for this host and one for a client.
struct Authority {
    folder: PathBuf,
}

impl Authority {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("tls-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key).unwrap();
        std::fs::write(folder.join("ca.pem"), authority.pem()).unwrap();
        let issuer = Issuer::new(params, key);
        for name in ["server", "client"] {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            let certificate = params.signed_by(&key, &issuer).unwrap();
            std::fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
            std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn gateway(&self, clients: ClientCertificates) -> Gateway {
        let tls = TlsFiles {
            port: 0,
            certificate: self.path("server.pem"),
            key: self.path("server.key"),
            authority: Some(self.path("ca.pem")),
            clients,
        };
        let config = Config { tls: Some(tls), workers: 2, ..config() };
        Gateway::with(&config, MemoryKeyspace::default())
    }

    fn certificates(path: &Path) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_file_iter(path).unwrap().collect::<Result<_, _>>().unwrap()
    }

    /// A connection that trusts this authority, with the certificate of `shown`.
    fn connect(&self, gateway: &Gateway, shown: Option<&Self>) -> Tls {
        let mut roots = RootCertStore::empty();
        roots.add(Self::certificates(&self.path("ca.pem")).remove(0)).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match shown {
            None => builder.with_no_client_auth(),
            Some(other) => {
                let key = PrivateKeyDer::from_pem_file(other.path("client.key")).unwrap();
                let shown = Self::certificates(&other.path("client.pem"));
                builder.with_client_auth_cert(shown, key).unwrap()
            }
        };
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let stream = TcpStream::connect(gateway.server().tls_addresses()[0]).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        StreamOwned::new(connection, stream)
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

type Tls = StreamOwned<ClientConnection, TcpStream>;

fn ask(stream: &mut Tls, words: &str, reply: &str) -> std::io::Result<()> {
    let words: Vec<&str> = words.split(' ').collect();
    stream.write_all(&encode(&words))?;
    let mut got = vec![0; reply.len()];
    stream.read_exact(&mut got)?;
    assert_eq!(got.escape_ascii().to_string(), reply.as_bytes().escape_ascii().to_string());
    Ok(())
}

#[test]
fn pipelines_and_large_values_come_through_whole() {
    let authority = Authority::new("whole");
    let gateway = authority.gateway(ClientCertificates::No);
    let mut stream = authority.connect(&gateway, None);
    ask(&mut stream, "SET k v", "+OK\r\n").unwrap();
    // Larger than any buffer on the way, both ways.
    let value: Vec<u8> = (0..3 << 20).map(|at: usize| (at * 7 + at / 251) as u8).collect();
    stream.write_all(&encode(&[&b"SET"[..], b"large", &value])).unwrap();
    let mut frames = Vec::new();
    for _ in 0..1000 {
        frames.extend(encode(&["GET", "k"]));
    }
    frames.extend(encode(&["GET", "large"]));
    stream.write_all(&frames).unwrap();
    let wanted = [
        b"+OK\r\n".to_vec(),
        b"$1\r\nv\r\n".repeat(1000),
        format!("${}\r\n", value.len()).into_bytes(),
        value,
        b"\r\n".to_vec(),
    ]
    .concat();
    let mut got = vec![0; wanted.len()];
    stream.read_exact(&mut got).unwrap();
    assert!(got == wanted, "the replies came back changed");
    // The end of a connection is told.
    stream.write_all(&encode(&["QUIT"])).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"+OK\r\n");
}

#[test]
fn messages_arrive_unasked() {
    let authority = Authority::new("messages");
    let gateway = authority.gateway(ClientCertificates::No);
    let mut listener = authority.connect(&gateway, None);
    ask(&mut listener, "SUBSCRIBE c", "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n").unwrap();
    assert_eq!(gateway.client().ask("PUBLISH c hello"), ":1\\r\\n");
    let mut got = [0; 35];
    listener.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$5\r\nhello\r\n");
}

#[test]
fn a_client_shows_a_certificate_of_the_authority_or_is_sent_away() {
    let (authority, stranger) = (Authority::new("ours"), Authority::new("theirs"));
    let gateway = authority.gateway(ClientCertificates::Yes);
    ask(&mut authority.connect(&gateway, Some(&authority)), "PING", "+PONG\r\n").unwrap();
    for shown in [None, Some(&stranger)] {
        let refused = ask(&mut authority.connect(&gateway, shown), "PING", "+PONG\r\n");
        assert!(refused.is_err(), "let in with a wrong certificate");
    }
    let optional = authority.gateway(ClientCertificates::Optional);
    ask(&mut authority.connect(&optional, None), "PING", "+PONG\r\n").unwrap();
    assert!(ask(&mut authority.connect(&optional, Some(&stranger)), "PING", "+PONG\r\n").is_err());
    // Who does not trust the server's authority does not speak to it.
    assert!(ask(&mut stranger.connect(&optional, None), "PING", "+PONG\r\n").is_err());
    // All this is the business of one connection.
    ask(&mut authority.connect(&gateway, Some(&authority)), "PING", "+PONG\r\n").unwrap();
}

#[test]
fn what_is_no_tls_is_closed_and_others_go_on() {
    let authority = Authority::new("garbage");
    let gateway = authority.gateway(ClientCertificates::No);
    let address = gateway.server().tls_addresses()[0];
    for garbage in [&b"*1\r\n$4\r\nPING\r\n"[..], &[0x16, 3, 1, 0xff, 0xff], &[0; 4096]] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(garbage).unwrap();
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(!rest.starts_with(b"+PONG"), "served in clear");
    }
    ask(&mut authority.connect(&gateway, None), "PING", "+PONG\r\n").unwrap();
}

#[test]
fn files_that_are_wrong_are_named() {
    let authority = Authority::new("wrong");
    let start = |certificate: &str, key: &str, ca: Option<&str>| {
        let tls = TlsFiles {
            port: 0,
            certificate: authority.path(certificate),
            key: authority.path(key),
            authority: ca.map(|ca| authority.path(ca)),
            clients: ClientCertificates::Yes,
        };
        let config = Config { tls: Some(tls), ..config() };
        let keyspace = MemoryKeyspace::default();
        gateway::start(&config, Vec::new(), async move |_| Ok(keyspace.clone()))
            .map(|server| {
                server.stop();
                server.join();
            })
            .unwrap_err()
            .to_string()
    };
    for (error, part) in [
        (start("none.pem", "server.key", Some("ca.pem")), "none.pem"),
        (start("server.pem", "server.pem", Some("ca.pem")), "server.pem"),
        (start("server.pem", "client.key", Some("ca.pem")), "do not go together"),
        (start("server.pem", "server.key", Some("server.key")), "holds no certificate"),
        (start("server.pem", "server.key", None), "--tls-ca-cert-file"),
    ] {
        assert!(error.contains(part), "{part:?} in {error}");
    }
}
