//! The fabric on TCP inside of TLS: the same verbs, and nobody without a certificate
//! of the pool's authority on either end.
#![cfg(not(loom))]

mod common;

use common::{BYTES, TOKEN, at, controls, listen, nodes, run, stage};
use fusee_fabric::tcp::{TcpFabric, TcpPeer, TcpServer, TlsPeer};
use fusee_fabric::{Fabric, ShmNode};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut about = CertificateParams::default();
        about.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(about, KeyPair::generate().unwrap());
        Self(issuer.unwrap())
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        roots
    }

    /// A certificate for 127.0.0.1, with its key.
    fn identity(
        &self,
    ) -> (Vec<rustls::pki_types::CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = KeyPair::generate().unwrap();
        let about = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let certificate = about.signed_by(&key, &self.0).unwrap();
        (vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }

    fn server(&self) -> Arc<ServerConfig> {
        let provider = Arc::new(default_provider());
        let roots = Arc::new(self.roots());
        let clients =
            WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).build().unwrap();
        let (chain, key) = self.identity();
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_client_cert_verifier(clients);
        Arc::new(builder.with_single_cert(chain, key).unwrap())
    }

    /// A client that trusts `trusted` and shows a certificate of this one.
    fn client(&self, trusted: &Self, name: &str) -> TlsPeer {
        let (chain, key) = self.identity();
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(trusted.roots());
        let config = Arc::new(builder.with_client_auth_cert(chain, key).unwrap());
        TlsPeer { config, name: ServerName::try_from(name.to_owned()).unwrap() }
    }
}

fn start(node: &Arc<ShmNode>, authority: &Authority) -> TcpServer {
    let tls = Some(authority.server());
    let server = TcpServer::start(listen(), 0, node.clone(), 1, tls).unwrap();
    server.admit(TOKEN);
    server
}

async fn connect(server: &TcpServer, tls: Option<TlsPeer>) -> TcpFabric {
    let peer = TcpPeer { address: server.address(), token: TOKEN, tls };
    TcpFabric::connect_within(vec![peer], controls(1), Duration::from_secs(5)).await
}

#[test]
fn verbs_of_all_sizes_go_through_tls() {
    let nodes = nodes(1);
    let authority = Authority::new();
    let server = start(&nodes[0], &authority);
    run(async {
        let fabric = connect(&server, Some(authority.client(&authority, "127.0.0.1"))).await;
        assert!(fabric.is_up(0));
        for words in [1, 7, 1000, BYTES / 8] {
            let data: Vec<u64> = (0..words).map(|word| word * 3 + words).collect();
            let mut batch = fabric.batch();
            let span = stage(&mut batch, &data);
            let write = batch.write(at(0, 0), span);
            let read = batch.read(at(0, 0), words as usize * 8);
            let cas = batch.cas(at(0, 0), words, 5);
            let batch = fabric.run(batch).await;
            assert_eq!(batch.done(write), Ok(()));
            assert_eq!(batch.words(read).unwrap(), data);
            assert_eq!(batch.word(cas), Ok(words));
            fabric.recycle(batch);
        }
        // Many at once, for more than the buffers on the way hold.
        let fabric = std::rc::Rc::new(fabric);
        let tasks: Vec<_> = (0..200)
            .map(|_| {
                let fabric = fabric.clone();
                tokio::task::spawn_local(async move {
                    let mut batch = fabric.batch();
                    let add = batch.faa(at(0, 8), 1);
                    batch.read(at(0, 0), BYTES as usize);
                    fabric.run(batch).await.word(add).unwrap()
                })
            })
            .collect();
        let mut seen = Vec::new();
        for task in tasks {
            seen.push(task.await.unwrap());
        }
        seen.sort_unstable();
        assert!(seen.windows(2).all(|two| two[1] == two[0] + 1), "{seen:?}");
    });
}

#[test]
fn who_is_not_of_the_authority_is_not_let_in() {
    let nodes = nodes(1);
    let (ours, theirs) = (Authority::new(), Authority::new());
    let server = start(&nodes[0], &ours);
    run(async {
        for (stranger, why) in [
            (Some(theirs.client(&ours, "127.0.0.1")), "shows another authority's certificate"),
            (Some(ours.client(&theirs, "127.0.0.1")), "trusts another authority"),
            (Some(ours.client(&ours, "localhost")), "means another host"),
            (None, "speaks in the clear"),
        ] {
            assert!(!connect(&server, stranger).await.is_up(0), "{why}");
        }
    });
    assert!(server.statistics().refused + server.statistics().malformed > 0);
    assert_eq!(server.statistics().batches, 0);
}

#[test]
fn who_opens_a_connection_and_shakes_no_hand_is_closed() {
    let nodes = nodes(1);
    let authority = Authority::new();
    let server = start(&nodes[0], &authority);
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"\x16\x03\x01").unwrap();
    assert!(matches!(stream.read(&mut [0; 64]), Ok(0) | Err(_)));
    while server.statistics().connections > 0 {
        std::thread::yield_now();
    }
}
