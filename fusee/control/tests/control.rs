//! A node and its clients over real sockets: sessions, versions, certificates.

use fusee_control::{
    Admission, Attach, Attachment, ControlError, Denied, Description, Expulsion, Fabric, GatewayId,
    GatewayPeer, Introduction, Listener, Membership, MemoryRoute, NodeService, PeerClient,
    PoolFile, Replication, Tls, TlsFiles, Token, serve,
};
use fusee_fabric::verbs::{NodeQueuePair, QueuePairAddress};
use fusee_fabric::{ControlPlane, NodeDown};
use fusee_layout::message::{Refusal, Request, Response, Statistics};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;

/// What holds the one session open; `None` once it has ended.
type Held = Arc<Mutex<Option<oneshot::Sender<()>>>>;

/// A node that knows one session, and takes up no other.
struct Fake {
    description: Description,
    token: Token,
    held: Held,
}

struct Hold(oneshot::Receiver<()>, Held);

impl Future for Hold {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(context).map(|_| ())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.1.lock().unwrap().take();
    }
}

impl NodeService for Fake {
    type Hold = Hold;

    async fn attach(&self, attach: Attach) -> Result<(Admission, Hold), Denied> {
        if let Some(difference) = self.description.difference(&attach.description) {
            return Err(Denied::Refused(difference));
        }
        if attach.session.is_some_and(|session| session != self.token) {
            return Err(Denied::Unknown);
        }
        let (sender, receiver) = oneshot::channel();
        *self.held.lock().unwrap() = Some(sender);
        let admission = Admission {
            token: self.token,
            params: file(Path::new("/nowhere"), None).params(1).unwrap(),
            incarnation: 7,
            path: MemoryRoute::Shm { socket: "/memory".into() },
        };
        Ok((admission, Hold(receiver, self.held.clone())))
    }

    async fn request(&self, session: Token, request: Request) -> Result<Response, Denied> {
        match request {
            _ if session != self.token => Err(Denied::Unknown),
            Request::Leave { .. } => std::future::pending().await,
            _ => Ok(Response::Refused(Refusal::Full)),
        }
    }

    async fn open_queue_pair(
        &self,
        session: Token,
        link: u64,
        worker: QueuePairAddress,
    ) -> Result<NodeQueuePair, Denied> {
        if session != self.token {
            return Err(Denied::Unknown);
        }
        let address = QueuePairAddress { qpn: worker.qpn + 1, ..worker };
        Ok(NodeQueuePair { address, rkey: 2, base: link, bytes: 4 })
    }

    async fn statistics(&self, _: Token) -> Result<Statistics, Denied> {
        Ok(Statistics { expelled: Some(3), ..Statistics::default() })
    }

    async fn meet(
        &self,
        session: Token,
        address: String,
        secret: Token,
    ) -> Result<Vec<GatewayPeer>, Denied> {
        if session != self.token {
            return Err(Denied::Unknown);
        }
        // One that is like who asks.
        let gateway = GatewayId::from_bytes(&[7; 16]).unwrap();
        Ok(vec![GatewayPeer { gateway, address, secret }])
    }

    async fn introduce(&self, _: Introduction) -> Result<Membership, Denied> {
        Err(Denied::NotReady("it is not in the mood".to_owned()))
    }

    async fn expel(&self, _: Expulsion) -> Result<(), Denied> {
        Ok(())
    }

    async fn replicate(&self, replication: Replication) -> Result<(), Denied> {
        if replication.pool == self.token { Ok(()) } else { Err(Denied::Unknown) }
    }
}

fn file(folder: &Path, port: Option<u16>) -> PoolFile {
    let (fabric, address) = match port {
        Some(port) => (Fabric::Tcp, format!("127.0.0.1:{port}")),
        None => (Fabric::Shm, format!("unix:{}/0.sock", folder.display())),
    };
    PoolFile {
        name: "test".to_owned(),
        fabric,
        replicas: 1,
        memory: "64MiB".parse().unwrap(),
        nodes: vec![address.parse().unwrap()],
        seed: None,
        clients: None,
        tls: None,
    }
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("fusee-control-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

async fn start(file: &PoolFile, tls: Option<Tls>) -> (Token, Held) {
    let listener = Listener::bind(&file.nodes[0]).await.unwrap();
    let (token, held) = (Token::random(), Held::default());
    let fake = Fake { description: file.description(0), token, held: held.clone() };
    tokio::spawn(async move {
        serve(listener, tls.as_ref(), fake, std::future::pending()).await.unwrap();
    });
    (token, held)
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(30), test).await.expect("in time");
    });
}

async fn begin(file: &PoolFile, tls: Option<&Tls>) -> Result<Attachment, ControlError> {
    Attachment::begin(file, tls, GatewayId::random(), file.description(0)).await
}

#[test]
fn a_worker_gets_a_peer_for_its_queue_pair() {
    run(async {
        let folder = folder("queue-pair");
        let file = file(&folder, None);
        start(&file, None).await;
        let attachment = begin(&file, None).await.unwrap();
        let worker = QueuePairAddress {
            qpn: 17,
            psn: 0xff_ffff,
            gid: std::array::from_fn(|number| number as u8),
            lid: 9,
            mtu: 4096,
            reads_max: 16,
        };
        let end = attachment.client.open_queue_pair(3, worker).await.unwrap();
        assert_eq!(end.address, QueuePairAddress { qpn: 18, ..worker });
        assert_eq!((end.rkey, end.base, end.bytes), (2, 3, 4));
        assert!(!format!("{end:?}").contains("rkey"), "keys go into no log");
    });
}

#[test]
fn a_session_ends_with_its_stream_on_either_side() {
    run(async {
        let folder = folder("session");
        let file = file(&folder, None);
        let (token, held) = start(&file, None).await;
        let mut attachment = begin(&file, None).await.unwrap();
        assert_eq!(attachment.admission.token, token);
        assert_eq!(attachment.admission.incarnation, 7);
        let client = attachment.client.clone();
        let full = Request::Recover { client: 1 };
        assert_eq!(client.call(full).await, Ok(Response::Refused(Refusal::Full)));
        assert_eq!(client.statistics().await.unwrap().expelled, Some(3));
        let secret = Token::random();
        let others = client.meet("127.0.0.1:4", secret).await.unwrap();
        let gateway = GatewayId::from_bytes(&[7; 16]).unwrap();
        let address = "127.0.0.1:4".to_owned();
        assert_eq!(others, [GatewayPeer { gateway, address, secret }]);
        let expel = client.call(Request::Expel { client: 1 }).await;
        assert_eq!(expel, Err(NodeDown { node: 0 }), "memory nodes alone expel");

        drop(held.lock().unwrap().take());
        assert!(matches!(attachment.ended().await, ControlError::Ended { node: 0, .. }));
        attachment.resume().await.unwrap();
        assert!(held.lock().unwrap().is_some(), "taken up");
        assert_eq!(attachment.admission.token, token);
        drop(attachment);
        while held.lock().unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        std::fs::remove_dir_all(folder).unwrap();
    });
}

#[test]
fn a_session_of_a_node_that_was_started_again_is_over() {
    run(async {
        let folder = folder("again");
        let first = file(&folder, None);
        start(&first, None).await;
        let mut attachment = begin(&first, None).await.unwrap();
        // Another node at the address, with a session of its own.
        std::fs::remove_file(first.nodes[0].path().unwrap()).unwrap();
        start(&first, None).await;
        // The connection is to the first one still: a new one is as after it has broken.
        let mut other = begin(&first, None).await.unwrap();
        std::mem::swap(&mut attachment.client, &mut other.client);
        let over = attachment.resume().await.unwrap_err();
        assert!(matches!(over, ControlError::Ended { node: 0, .. }), "{over}");
        assert!(!over.is_temporary());
        std::fs::remove_dir_all(folder).unwrap();
    });
}

#[test]
fn a_node_that_does_not_answer_in_time_is_down() {
    run(async {
        let folder = folder("silent");
        let file = file(&folder, None);
        start(&file, None).await;
        let attachment = begin(&file, None).await.unwrap();
        let silent = attachment.client.request(Request::Leave { client: 1 }).await;
        let error = silent.unwrap_err();
        assert!(error.is_temporary() && error.to_string().contains("no answer within"), "{error}");
        std::fs::remove_dir_all(folder).unwrap();
    });
}

#[test]
fn nobody_there_and_not_ready_are_told_apart_from_a_refusal() {
    run(async {
        let folder = folder("refusal");
        let file = file(&folder, None);
        let nobody = begin(&file, None).await.unwrap_err();
        assert!(matches!(nobody, ControlError::Unreachable { .. }), "{nobody}");
        start(&file, None).await;
        let introduction = Introduction {
            description: file.description(0),
            from: 0,
            process: GatewayId::random(),
        };
        let peer = PeerClient::new(&file, 0, None).unwrap();
        let waiting = peer.introduce(introduction).await.unwrap_err();
        assert!(matches!(waiting, ControlError::NotReady { .. }), "{waiting}");
        assert!(waiting.to_string().contains("not in the mood"), "{waiting}");
        let pool = Token::random();
        let stranger = Replication { pool, from: 1, sequence: 1, effects: Vec::new() };
        let refused = peer.replicate(stranger).await.unwrap_err();
        assert!(!refused.is_temporary(), "{refused}");

        type Change = fn(&mut Description);
        let changes: [(Change, &str); 4] = [
            (|d| d.control_version += 1, "of the control protocol and this memory node version"),
            (|d| d.layout_version += 1, "of the memory layout and this memory node version"),
            (|d| d.replicas = 2, "replicas = 2 and this memory node's says 1"),
            (|d| d.fabric = "verbs".to_owned(), "fabric = verbs"),
        ];
        for (change, said) in changes {
            let mut description = file.description(0);
            change(&mut description);
            let gateway = GatewayId::random();
            let refused = Attachment::begin(&file, None, gateway, description).await.unwrap_err();
            assert!(matches!(refused, ControlError::Refused { .. }), "{refused}");
            assert!(refused.to_string().contains(said), "{refused}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    });
}

/// Certificates of a new authority, in files.
fn certificates(folder: &Path, name: &str, host: &str) -> Tls {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new([host.to_owned()]).unwrap();
    let certificate = certificate.signed_by(&key, &issuer).unwrap();
    let write = |what: &str, text: String| {
        let path = folder.join(format!("{name}-{what}.pem"));
        std::fs::write(&path, text).unwrap();
        path
    };
    Tls::load(&TlsFiles {
        ca: write("ca", issuer.pem()),
        certificate: write("certificate", certificate.pem()),
        key: write("key", key.serialize_pem()),
    })
    .unwrap()
}

#[test]
fn files_that_are_no_certificates_are_refused_with_the_reason() {
    let folder = folder("files");
    certificates(&folder, "one", "127.0.0.1");
    certificates(&folder, "two", "127.0.0.1");
    std::fs::write(folder.join("empty.pem"), "").unwrap();
    let load = |ca: &str, certificate: &str, key: &str| {
        let [ca, certificate, key] = [ca, certificate, key].map(|name| folder.join(name));
        Tls::load(&TlsFiles { ca, certificate, key }).unwrap_err().to_string()
    };
    for (ca, certificate, key, said) in [
        ("one-ca.pem", "one-certificate.pem", "two-key.pem", "cannot be used"),
        ("empty.pem", "one-certificate.pem", "one-key.pem", "no authority"),
        ("one-ca.pem", "one-key.pem", "one-key.pem", "cannot be used"),
        ("one-ca.pem", "one-certificate.pem", "empty.pem", "cannot be used"),
        ("one-ca.pem", "one-certificate.pem", "none.pem", "cannot read"),
    ] {
        let error = load(ca, certificate, key);
        assert!(error.contains(said), "{error}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn only_certificates_of_the_pools_authority_are_let_in() {
    run(async {
        let folder = folder("tls");
        let port = {
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            free.local_addr().unwrap().port()
        };
        let file = file(&folder, Some(port));
        let ours = certificates(&folder, "ours", "127.0.0.1");
        start(&file, Some(ours.clone())).await;
        begin(&file, Some(&ours)).await.unwrap();

        let theirs = certificates(&folder, "theirs", "127.0.0.1");
        let stranger = begin(&file, Some(&theirs)).await.unwrap_err();
        assert!(matches!(stranger, ControlError::Untrusted { .. }), "{stranger}");
        assert!(stranger.to_string().contains("of one authority"), "{stranger}");
        // Trusts the server, and shows what the server does not trust.
        let half = Tls::load(&TlsFiles {
            ca: folder.join("ours-ca.pem"),
            certificate: folder.join("theirs-certificate.pem"),
            key: folder.join("theirs-key.pem"),
        });
        assert!(begin(&file, Some(&half.unwrap())).await.is_err(), "not let in");
        assert!(begin(&file, None).await.is_err(), "no certificate, no session");
        std::fs::remove_dir_all(folder).unwrap();
    });
}
