//! Sessions of gateways on a TCP pool: connections that break, gateways that stall or
//! are expelled, memory nodes that come back without their memory, certificates.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use fusee_control::{Attachment, GatewayId, PoolFile};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustix::process::{Signal, kill_process};
use tests::metrics;
use tests::pool::{Pool, PoolOptions, Process};
use tests::proxy::Proxy;
use tests::resp::{Client, Reply};
use tests::server::{Flavour, Options, Server, built};

const KEYS: usize = 60;

fn describe(nodes: u16, more: &str) -> Pool {
    let more = more.to_owned();
    Pool::describe(&PoolOptions {
        fabric: "tcp",
        nodes,
        on_ports: true,
        more,
        ..PoolOptions::default()
    })
}

/// A gateway with a pool file of its own.
fn gateway(file: &Path) -> Server {
    let gateway_flags = vec!["--pool".to_owned(), file.display().to_string()];
    let options = Options { workers: Some(2), metrics: true, gateway_flags, ..Options::default() };
    Server::start(Flavour::Gateway, &options)
}

/// A gateway that reaches memory node 0's control plane by a way that can be cut.
fn gateway_behind(pool: &Pool) -> (Server, Proxy) {
    let proxy = Proxy::to(pool.address(0).parse().unwrap());
    let file = pool.other_file(pool.address(0), &proxy.address().to_string());
    (gateway(&file), proxy)
}

fn fill(client: &mut Client, round: usize) {
    for key in 0..KEYS {
        let value = format!("{round}:{key}");
        assert_eq!(client.command(&["SET", &format!("key{key}"), &value]), Reply::ok());
    }
}

fn check(client: &mut Client, round: usize) {
    for key in 0..KEYS {
        let reply = client.command(&["GET", &format!("key{key}")]);
        assert_eq!(reply, Reply::bulk(format!("{round}:{key}")), "key{key}");
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn joins(gateway: &Server) -> f64 {
    let page = metrics::fetch(gateway.metrics_address().unwrap()).unwrap();
    metrics::sum(&page, "fusee_pool_joins_total", "").unwrap()
}

fn expelled(node: &Process) -> bool {
    node.log().contains("a client that did not leave is expelled")
}

#[test]
fn a_session_whose_connection_breaks_goes_on() {
    let pool = describe(2, "");
    let mut nodes = pool.start_nodes();
    let (gateway, proxy) = gateway_behind(&pool);
    let mut client = Client::connect(&gateway);
    for round in 0..3 {
        fill(&mut client, round);
        let before = nodes[0].log().matches("its session goes on").count();
        proxy.cut();
        // Commands need no control plane.
        check(&mut client, round);
        until("the session is taken up", || {
            nodes[0].log().matches("its session goes on").count() > before
        });
        // For a block of a class that the worker has none of, they do.
        let large = "v".repeat(3000 << round);
        until("a block is given", || client.command(&["SET", "large", &large]) == Reply::ok());
        check(&mut client, round);
    }
    // Longer than a session without a connection lasts.
    std::thread::sleep(Duration::from_secs(4));
    check(&mut client, 2);
    assert_eq!(joins(&gateway), 1.0);
    assert!(nodes.iter().all(|node| !expelled(node)), "{}", nodes[0].log());
    nodes[0].wait_for_line("its session goes on");
}

#[test]
fn a_gateway_that_was_cut_off_for_too_long_is_expelled_and_begins_anew() {
    let pool = describe(2, "");
    let mut nodes = pool.start_nodes();
    let other = gateway(&pool.file());
    let (cut_off, proxy) = gateway_behind(&pool);
    let (mut client, mut of_other) = (Client::connect(&cut_off), Client::connect(&other));
    fill(&mut client, 1);
    proxy.set_open(false);
    nodes[0].wait_for_line("a client that did not leave is expelled");
    // What it sends by its old connections is not executed any more.
    until("it is shut out", || {
        let replies = (0..KEYS).map(|key| client.command(&["SET", &format!("key{key}"), "late"]));
        replies.into_iter().all(|reply| match reply {
            Reply::Error(text) => {
                assert!(text.contains("does not answer"), "{text}");
                true
            }
            _ => false,
        })
    });
    fill(&mut of_other, 2);
    proxy.set_open(true);
    until("it is in the pool again", || client.command(&["GET", "key0"]) == Reply::bulk("2:0"));
    until("with all its workers", || {
        (0..8).all(|_| Client::connect(&cut_off).command(&["GET", "key1"]) == Reply::bulk("2:1"))
    });
    assert_eq!(joins(&cut_off), 2.0);
    check(&mut client, 2);
    fill(&mut client, 3);
    check(&mut of_other, 3);
}

#[test]
fn a_gateway_that_stalls_for_less_than_its_lease_is_not_expelled() {
    let pool = describe(1, "");
    let nodes = pool.start_nodes();
    let gateway = gateway(&pool.file());
    let mut client = Client::connect(&gateway);
    fill(&mut client, 1);
    kill_process(gateway.pid(), Signal::STOP).unwrap();
    std::thread::sleep(Duration::from_secs(7));
    kill_process(gateway.pid(), Signal::CONT).unwrap();
    // What was under way when it stalled is past its deadline, and may be told so.
    until("its memory node answers", || client.command(&["GET", "key0"]) == Reply::bulk("1:0"));
    check(&mut client, 1);
    fill(&mut client, 2);
    std::thread::sleep(Duration::from_secs(4));
    check(&mut client, 2);
    assert_eq!(joins(&gateway), 1.0);
    assert!(!expelled(&nodes[0]), "{}", nodes[0].log());
}

#[test]
fn a_gateway_that_stalls_for_longer_is_expelled_and_begins_anew() {
    let pool = describe(1, "");
    let mut nodes = pool.start_nodes();
    let gateway = gateway(&pool.file());
    let mut client = Client::connect(&gateway);
    fill(&mut client, 1);
    kill_process(gateway.pid(), Signal::STOP).unwrap();
    let begin = Instant::now();
    nodes[0].wait_for_line("a client that did not leave is expelled");
    let took = begin.elapsed();
    assert!((10..16).contains(&took.as_secs()), "{took:?}");
    kill_process(gateway.pid(), Signal::CONT).unwrap();
    until("it is in the pool again", || client.command(&["GET", "key0"]) == Reply::bulk("1:0"));
    check(&mut client, 1);
    assert_eq!(joins(&gateway), 2.0);
}

#[test]
fn a_killed_gateway_is_expelled_within_the_time_that_one_has_to_come_back() {
    let pool = describe(2, "");
    let mut nodes = pool.start_nodes();
    let mut gateway = gateway(&pool.file());
    fill(&mut Client::connect(&gateway), 1);
    let begin = Instant::now();
    gateway.kill();
    nodes[0].wait_for_line("a client that did not leave is expelled");
    assert!(begin.elapsed() < Duration::from_secs(6), "{:?}", begin.elapsed());
    until("nobody is left", || nodes[1].log().contains("a gateway has gone"));
}

#[test]
fn memory_nodes_that_lost_their_memory_are_never_taken_for_what_they_were() {
    let pool = describe(2, "");
    let mut nodes = pool.start_nodes();
    let gateway = gateway(&pool.file());
    let mut client = Client::connect(&gateway);
    fill(&mut client, 1);
    // A key is there, or there is an error.
    let mut never_empty = |until_error: &str| {
        until(until_error, || {
            let mut seen = false;
            for key in 0..KEYS {
                match client.command(&["GET", &format!("key{key}")]) {
                    Reply::Error(text) => seen |= text.contains(until_error),
                    reply => assert_eq!(reply, Reply::bulk(format!("1:{key}"))),
                }
            }
            seen
        });
    };
    nodes[1].signal(Signal::KILL);
    nodes[1].wait();
    never_empty("memory node 1 does not answer");
    let mut again = pool.start_node(1);
    assert_eq!(again.wait().code(), Some(1));
    assert!(again.log().contains("whose memory is gone"), "{}", again.log());
    never_empty("memory node 1 does not answer");
    nodes[0].signal(Signal::KILL);
    nodes[0].wait();
    nodes[0] = pool.start_node(0);
    never_empty("memory node 0 does not answer");
    nodes[1] = pool.start_node(1);
    nodes[0].wait_for_line("gateways may come");
    never_empty("the pool that this gateway was in is gone");
    let ready = metrics::status(gateway.metrics_address().unwrap(), "/readyz").unwrap();
    assert_eq!(ready, 503);
    // One that is started now knows the new pool alone.
    let fresh = self::gateway(&pool.file());
    let mut fresh = Client::connect(&fresh);
    assert_eq!(fresh.command(&["GET", "key0"]), Reply::Null);
    fill(&mut fresh, 2);
    never_empty("the pool that this gateway was in is gone");
}

/// Certificates of a new authority for 127.0.0.1, and the pool file's words for them.
fn certificates(folder: &Path, name: &str) -> String {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let certificate = certificate.signed_by(&key, &issuer).unwrap();
    let write = |what: &str, text: String| {
        let path = folder.join(format!("{name}-{what}.pem"));
        std::fs::write(&path, text).unwrap();
        path
    };
    let (ca, certificate) = (write("ca", issuer.pem()), write("certificate", certificate.pem()));
    let key = write("key", key.serialize_pem());
    format!("[tls]\nca = {ca:?}\ncertificate = {certificate:?}\nkey = {key:?}\n")
}

fn own_folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("fusee-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn verbs_and_control_plane_are_both_for_those_with_certificates_alone() {
    let folder = own_folder();
    let ours = certificates(&folder, "ours");
    let pool = describe(2, &ours);
    let mut nodes = pool.start_nodes();
    let gateways = [gateway(&pool.file()), gateway(&pool.file())];
    let mut clients = gateways.each_ref().map(Client::connect);
    fill(&mut clients[0], 1);
    check(&mut clients[1], 1);
    let large = "v".repeat(5 << 20);
    assert_eq!(clients[0].command(&["SET", "large", &large]), Reply::ok());
    assert_eq!(clients[1].command(&["GET", "large"]), Reply::bulk(large));

    // Whoever speaks in the clear is not answered, though it knew a token.
    nodes[0].wait_for_line("executing verbs");
    let log = nodes[0].log();
    let told = log.lines().find(|line| line.contains("executing verbs")).unwrap();
    let address = told.rsplit_once("address=").unwrap().1.trim_matches('"');
    let address: SocketAddr = address.parse().unwrap_or_else(|_| panic!("no address: {told}"));
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    std::io::Write::write_all(&mut stream, &[7; 64]).unwrap();
    let mut answer = Vec::new();
    let _ = std::io::Read::read_to_end(&mut stream, &mut answer);
    assert!(answer.len() < 16, "an alert at most, and no Welcome: {answer:?}");
    nodes[0].wait_for_line("there is no trust between the two");

    let theirs = certificates(&folder, "theirs");
    let mut stranger = pool.start_gateway_with(&pool.other_file(&ours, &theirs));
    assert_eq!(stranger.wait().code(), Some(1), "{}", stranger.log());
    assert!(stranger.log().contains("no trust between this process and"), "{}", stranger.log());
    let mut bare = pool.start_gateway_with(&pool.other_file(&ours, ""));
    until("without certificates nobody is let in", || {
        let log = bare.log();
        log.contains("no trust") || log.contains("does not answer")
    });
    assert!(!bare.log().contains("joined the pool"), "{}", bare.log());
    let torn = ours.replace("ours-key", "theirs-key");
    let mut torn = pool.start_gateway_with(&pool.other_file(&ours, &torn));
    assert_eq!(torn.wait().code(), Some(1), "{}", torn.log());
    assert!(torn.log().contains("TLS files cannot be used"), "{}", torn.log());
    let _ = bare.terminate();
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn memory_nodes_count_what_they_execute() {
    let pool = describe(1, "");
    let (_node, metrics_address) = pool.start_node_measured(0);
    let gateway = gateway(&pool.file());
    let mut client = Client::connect(&gateway);
    let page = || metrics::fetch(metrics_address).unwrap();
    let sum = |name: &str, label: &str| {
        let page = page();
        metrics::sum(&page, name, label).unwrap_or_else(|| panic!("no {name} in:\n{page}"))
    };
    until("its workers are connected", || sum("mnd_tcp_connections", "") == 2.0);
    let before = sum("mnd_tcp_bytes_total", "write");
    let value = "v".repeat(100_000);
    assert_eq!(client.command(&["SET", "key", &value]), Reply::ok());
    assert_eq!(client.command(&["GET", "key"]), Reply::bulk(value));
    until("bytes are counted", || sum("mnd_tcp_bytes_total", "write") > before + 100_000.0);
    assert!(sum("mnd_tcp_bytes_total", "read") > 100_000.0);
    for verb in ["read", "write", "cas"] {
        assert!(sum("mnd_tcp_verbs_total", verb) > 0.0, "{verb}");
    }
    assert!(sum("mnd_tcp_batches_total", "") > 0.0);
    assert_eq!(sum("mnd_tcp_verbs_out_of_range_total", ""), 0.0);
    drop((client, gateway));
    until("they are gone", || sum("mnd_tcp_connections", "") == 0.0);
}

fn doctor(file: &Path) -> (Output, String) {
    let mut command = Command::new(built("gateway"));
    let output = command.arg("doctor").arg("--pool").arg(file).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, text)
}

#[test]
fn the_doctor_finds_what_is_amiss_with_a_tcp_pool() {
    let folder = own_folder().join("doctor");
    std::fs::create_dir_all(&folder).unwrap();
    let ours = certificates(&folder, "ours");
    let pool = describe(2, &ours);
    let (output, text) = doctor(&pool.file());
    assert_eq!(output.status.code(), Some(1));
    for node in 0..2 {
        assert!(text.contains(&format!("mnd --pool {} --node {node}", pool.file().display())));
    }
    let mut nodes = pool.start_nodes();
    let (output, text) = doctor(&pool.file());
    assert_eq!(output.status.code(), Some(0), "{text}");
    for node in 0..2 {
        let verbs = text.lines().find(|line| line.contains(&format!("tcp {node}")));
        let verbs = verbs.unwrap_or_else(|| panic!("no verbs on node {node}: {text}"));
        for verb in ["ok", "READ 8 B", "WRITE 64 B", "CAS", "us"] {
            assert!(verbs.contains(verb), "{verbs}");
        }
    }
    assert!(text.contains("TLS on"), "{text}");
    // It leaves nothing behind.
    until("it has gone", || nodes[0].log().matches("a gateway has gone").count() >= 2);
    assert!(!expelled(&nodes[0]), "{}", nodes[0].log());

    let theirs = certificates(&folder, "theirs");
    for (from, to, said) in [
        ("64MiB", "65MiB", "give it this pool file and this release"),
        (ours.as_str(), theirs.as_str(), "openssl verify -CAfile CA CERTIFICATE"),
        ("\"tcp\"", "\"shm\"", "one host"),
    ] {
        let (output, text) = doctor(&pool.other_file(from, to));
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(said), "{said:?} is not in:\n{text}");
    }
    nodes[1].signal(Signal::KILL);
    nodes[1].wait();
    let (output, text) = doctor(&pool.file());
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("memory node 1 at") && text.contains("does not answer"), "{text}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn secrets_are_in_no_log_however_much_is_logged() {
    let pool = describe(1, "");
    let mut node = pool.start_node_loudly(0);
    node.wait_for_line("gateways may come");
    let gateway_flags = ["--pool", &pool.file().display().to_string(), "--log-level", "trace"];
    let gateway_flags = gateway_flags.map(str::to_owned).to_vec();
    let options = Options { workers: Some(1), gateway_flags, ..Options::default() };
    let gateway = Server::start(Flavour::Gateway, &options);
    let mut client = Client::connect(&gateway);
    assert_eq!(client.command(&["SET", "confidential-key", "confidential-value"]), Reply::ok());
    assert_eq!(client.command(&["GET", "confidential-key"]), Reply::bulk("confidential-value"));
    // A session of our own, so that its token is known here.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let token = runtime.block_on(async {
        let file = PoolFile::read(&pool.file()).unwrap();
        let (gateway, description) = (GatewayId::random(), file.description(0));
        let session = Attachment::begin(&file, None, gateway, description).await.unwrap();
        session.client.statistics().await.unwrap();
        *session.admission.token.bytes()
    });
    until("it is logged that it has gone", || node.log().contains("a gateway has gone"));
    let logs = node.log() + &gateway.log();
    assert!(logs.contains("TRACE") && logs.contains("a gateway has come"), "it was loud");
    let hex: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
    let listed = format!("{token:?}");
    let escaped = token[..4].escape_ascii().to_string();
    let value = u128::from_le_bytes(token);
    for shown in [
        hex.clone(),
        hex.to_uppercase(),
        hex[..16].to_owned(),
        listed.trim_matches(['[', ']']).to_owned(),
        value.to_string(),
        value.to_be().to_string(),
        escaped + &token[4..8].escape_ascii().to_string(),
        "confidential".to_owned(),
    ] {
        assert!(!logs.contains(&shown), "{shown} was logged");
    }
}
