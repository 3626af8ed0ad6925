//! SDKs with their defaults: each does what programs do with it, and each
//! reads back byte for byte what every other wrote.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

mod handshakes;

use tests::random::Random;
use tests::server::{Options, Server, scratch};

/// Values are slices of one random text, so two values of some bytes are never
/// the same unless they should be.
const CORPUS_BYTES: usize = 4 << 20;
const KEYS: usize = 10_000;
const VALUE_BYTES_MAX: usize = 1 << 20;
/// Redis's limit of a value, and ours.
const HUGE_BYTES: usize = 512 << 20;
/// Each writer takes its values from another place of the corpus, so that a
/// reader cannot mistake the values of an earlier writer for its own.
const SHIFT: usize = 1021;

/// Requests of the SDK written in this language, a batch of so many bytes each.
const BATCH_BYTES: usize = 4 << 20;

struct Files {
    corpus: Vec<u8>,
    corpus_path: PathBuf,
    plan: Vec<(String, usize, usize)>,
    plan_path: PathBuf,
}

impl Files {
    fn write(test: &str) -> Self {
        let folder = scratch("sdk");
        let mut random = Random::new(0xfa57);
        let corpus = random.bytes(CORPUS_BYTES);
        let corpus_path = folder.join(format!("{test}.corpus"));
        fs::write(&corpus_path, &corpus).unwrap();

        let plan: Vec<_> = (0..KEYS)
            .map(|number| {
                let size = size_of(number, &mut random);
                (format!("sdk:{number}"), random.below(1 << 20), size)
            })
            .collect();
        let plan_path = folder.join(format!("{test}.plan"));
        let mut file = fs::File::create(&plan_path).unwrap();
        let lines: String =
            plan.iter().map(|(key, offset, size)| format!("{key} {offset} {size}\n")).collect();
        file.write_all(lines.as_bytes()).unwrap();
        Self { corpus, corpus_path, plan, plan_path }
    }

    fn value(&self, offset: usize, size: usize, shift: usize) -> &[u8] {
        &self.corpus[offset + shift..offset + shift + size]
    }
}

/// Edges first, then half of the values below 32 bytes and some up to 1 MiB;
/// about 400 MB in all.
fn size_of(number: usize, random: &mut Random) -> usize {
    let edges = (0..=20).flat_map(|power| {
        let size = 1usize << power;
        [size.saturating_sub(1).max(1), size, (size + 1).min(VALUE_BYTES_MAX)]
    });
    edges.into_iter().nth(number).unwrap_or_else(|| {
        let exponent = 20.0 * random.unit().powi(2);
        (exponent.exp2() as usize).clamp(1, VALUE_BYTES_MAX)
    })
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sdk {
    RedisPy,
    NodeRedis,
    IoRedis,
    RedisRs,
    /// One of programs.py.
    Programs,
}

const SDKS: [Sdk; 4] = [Sdk::RedisPy, Sdk::NodeRedis, Sdk::IoRedis, Sdk::RedisRs];

impl Sdk {
    /// Runs its program of `tests/sdk`; the caller is the program of redis-rs.
    fn run(self, mode: &str, server: &Server, arguments: &[&str]) {
        let environment = |name: &str| {
            PathBuf::from(std::env::var_os(name).unwrap_or_else(|| {
                panic!("{name} is not set: cargo xtask suite sdk installs the SDKs and sets it")
            }))
        };
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("sdk");
        let (interpreter, script) = match self {
            Self::RedisPy => (environment("SUITE_PYTHON"), sources.join("python/sdk.py")),
            Self::Programs => (environment("SUITE_PYTHON"), sources.join("python/programs.py")),
            Self::NodeRedis => {
                (environment("SUITE_NODE"), environment("SUITE_NODE_FOLDER").join("node-redis.mjs"))
            }
            Self::IoRedis => {
                (environment("SUITE_NODE"), environment("SUITE_NODE_FOLDER").join("ioredis.mjs"))
            }
            Self::RedisRs => unreachable!("redis-rs runs in this process"),
        };
        let output = Command::new("timeout")
            .arg("300")
            .args([interpreter, script])
            .arg(mode)
            .arg(server.port().to_string())
            .args(arguments)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{self:?} {mode}: {}\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
    }

    fn transfer(self, mode: &str, server: &Server, files: &Files, shift: usize) {
        match (self, mode) {
            (Self::RedisRs, "write") => redis_rs_write(server, files, shift),
            (Self::RedisRs, _) => redis_rs_read(server, files, shift),
            _ => {
                let corpus = files.corpus_path.to_str().unwrap();
                let plan = files.plan_path.to_str().unwrap();
                self.run(mode, server, &[corpus, plan, &shift.to_string()]);
            }
        }
    }
}

/// A server whose connections are spread over two workers.
fn two_workers() -> Server {
    Server::under_test(&Options { memory_mib: Some(512), workers: Some(2), ..Options::default() })
}

fn redis_rs(server: &Server) -> redis::Connection {
    let client = redis::Client::open(format!("redis://{}/", server.address())).unwrap();
    client.get_connection().unwrap()
}

fn redis_rs_write(server: &Server, files: &Files, shift: usize) {
    let mut connection = redis_rs(server);
    let mut pipeline = redis::pipe();
    let mut bytes = 0;
    for (key, offset, size) in &files.plan {
        pipeline.set(key, files.value(*offset, *size, shift)).ignore();
        bytes += size;
        if bytes >= BATCH_BYTES {
            pipeline.exec(&mut connection).unwrap();
            pipeline.clear();
            bytes = 0;
        }
    }
    pipeline.exec(&mut connection).unwrap();
}

fn redis_rs_read(server: &Server, files: &Files, shift: usize) {
    let mut connection = redis_rs(server);
    for (key, offset, size) in &files.plan {
        let value: Vec<u8> = redis::cmd("GET").arg(key).query(&mut connection).unwrap();
        let same = value == files.value(*offset, *size, shift);
        assert!(same, "{key} of {size} bytes came back changed: {} bytes", value.len());
    }
}

#[test]
fn redis_py_works_with_its_defaults() {
    let server = two_workers();
    Sdk::RedisPy.run("basics", &server, &[]);
}

#[test]
fn redis_py_works_in_resp2() {
    Sdk::RedisPy.run("basics-resp2", &two_workers(), &[]);
}

#[test]
fn redis_py_works_with_asyncio() {
    Sdk::RedisPy.run("async", &two_workers(), &[]);
}

#[test]
fn redis_py_shares_a_pool_of_connections_between_threads() {
    Sdk::RedisPy.run("pool", &two_workers(), &[]);
}

#[test]
fn redis_py_runs_transactions_and_scripts() {
    Sdk::RedisPy.run("transactions", &two_workers(), &[]);
}

#[test]
fn redis_py_listens_in_both_protocols() {
    Sdk::RedisPy.run("listen", &two_workers(), &[]);
}

/// Both show a certificate, as the server asks for one.
#[test]
fn redis_py_and_redis_cli_speak_tls() {
    let folder = scratch("sdk-tls");
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    // OpenSSL takes a certificate whose issuer has its own name for a self-signed one.
    params.distinguished_name.push(rcgen::DnType::CommonName, "authority");
    fs::write(folder.join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = rcgen::Issuer::new(params, key);
    let key = rcgen::KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let shown = rcgen::CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    fs::write(folder.join("one.pem"), shown.pem()).unwrap();
    fs::write(folder.join("one.key"), key.serialize_pem()).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();

    let flags = [
        ("--tls-port", "0".to_owned()),
        ("--tls-cert-file", path("one.pem")),
        ("--tls-key-file", path("one.key")),
        ("--tls-ca-cert-file", path("ca.pem")),
    ];
    let gateway_flags =
        flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
    let options = Options { workers: Some(2), gateway_flags, ..Options::default() };
    let server = Server::start(tests::server::Flavour::Gateway, &options);
    let mut clear = redis_rs(&server);
    let told: Vec<String> =
        redis::cmd("CONFIG").arg(&["GET", "tls-port"]).query(&mut clear).unwrap();
    let port = &told[1];

    Sdk::RedisPy.run("tls", &server, &[port, folder.to_str().unwrap()]);
    let redis_cli = |certificate: &[&str]| {
        let output = Command::new("timeout")
            .args(["30", "redis-cli", "-h", "127.0.0.1", "-p", port, "--tls"])
            .args(["--cacert", &path("ca.pem")])
            .args(certificate)
            .args(["get", "py:a"])
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    assert_eq!(redis_cli(&["--cert", &path("one.pem"), "--key", &path("one.key")]), "text");
    assert_ne!(redis_cli(&[]), "text", "served without a certificate");
}

#[test]
fn small_programs_do_what_they_are_for() {
    for name in ["sessions", "limiter", "counter", "lock", "cache"] {
        Sdk::Programs.run(name, &two_workers(), &[]);
    }
}

#[test]
fn node_redis_works_with_its_defaults() {
    let server = two_workers();
    Sdk::NodeRedis.run("basics", &server, &[]);
}

#[test]
fn ioredis_works_with_its_defaults() {
    let server = two_workers();
    Sdk::IoRedis.run("basics", &server, &[]);
}

#[test]
fn redis_rs_works_with_its_defaults() {
    use redis::{Commands as _, cmd};

    let server = two_workers();
    let mut rs = redis_rs(&server);
    let rs = &mut rs;
    cmd("SET").arg("rs:a").arg(1).exec(rs).unwrap();
    assert_eq!(cmd("GET").arg("rs:a").query::<Option<i64>>(rs), Ok(Some(1)));
    assert_eq!(cmd("GET").arg("rs:none").query::<Option<String>>(rs), Ok(None));
    assert_eq!(cmd("INCR").arg("rs:a").query::<i64>(rs), Ok(2));
    assert_eq!(cmd("MSET").arg(&["rs:m1", "1", "rs:m2", "2"]).query::<String>(rs), Ok("OK".into()));
    let values: Vec<Option<String>> =
        cmd("MGET").arg(&["rs:m1", "rs:none", "rs:m2"]).query(rs).unwrap();
    assert_eq!(values, [Some("1".into()), None, Some("2".into())]);
    assert_eq!(cmd("EXPIRE").arg("rs:m1").arg(100).query::<bool>(rs), Ok(true));
    assert_eq!(cmd("TTL").arg("rs:m1").query::<i64>(rs), Ok(100));
    assert_eq!(cmd("DEL").arg(&["rs:m1", "rs:none"]).query::<i64>(rs), Ok(1));

    let mut pipeline = redis::pipe();
    for number in 0..1000 {
        pipeline.cmd("SET").arg(format!("rs:p:{number}")).arg(number).ignore();
        pipeline.cmd("GET").arg(format!("rs:p:{number}"));
    }
    assert_eq!(pipeline.query::<Vec<i64>>(rs).unwrap(), (0..1000).collect::<Vec<i64>>());
    let mut keys: Vec<String> = rs.scan_match("rs:p:*").unwrap().map(|key| key.unwrap()).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 1000);

    cmd("SET").arg("rs:a").arg("text").exec(rs).unwrap();
    let error = cmd("INCR").arg("rs:a").exec(rs).unwrap_err();
    assert!(error.to_string().contains("not an integer"), "{error}");
}

#[test]
fn fred_works_with_its_defaults() {
    let server = two_workers();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(fred_basics(server.port())).unwrap();
}

async fn fred_basics(port: u16) -> Result<(), fred::error::Error> {
    use fred::prelude::*;
    use fred::types::scan::Scanner as _;
    use futures_util::TryStreamExt as _;

    let config = Config::from_url(&format!("redis://127.0.0.1:{port}"))?;
    let client = Builder::from_config(config).build()?;
    client.init().await?;
    client.set::<(), _, _>("fr:a", 1, None, None, false).await?;
    assert_eq!(client.get::<Option<i64>, _>("fr:a").await?, Some(1));
    assert_eq!(client.get::<Option<String>, _>("fr:none").await?, None);
    assert_eq!(client.incr_by::<i64, _>("fr:a", 41).await?, 42);
    let old: Option<String> =
        client.set("fr:a", "new", Some(Expiration::EX(100)), Some(SetOptions::XX), true).await?;
    assert_eq!(old.as_deref(), Some("42"));
    assert_eq!(client.ttl::<i64, _>("fr:a").await?, 100);
    client.mset([("fr:m1", "1"), ("fr:m2", "2")].to_vec()).await?;
    let values: Vec<Option<String>> = client.mget(vec!["fr:m1", "fr:none", "fr:m2"]).await?;
    assert_eq!(values, [Some("1".into()), None, Some("2".into())]);
    assert_eq!(client.del::<i64, _>(vec!["fr:m1", "fr:none"]).await?, 1);
    client.hset::<(), _, _>("fr:h", [("a", "1"), ("b", "2")].to_vec()).await?;
    assert_eq!(client.hget::<Option<String>, _, _>("fr:h", "b").await?.as_deref(), Some("2"));

    let pipeline = client.pipeline();
    for number in 0..1000 {
        pipeline.set::<(), _, _>(format!("fr:p:{number}"), number, None, None, false).await?;
        pipeline.get::<(), _>(format!("fr:p:{number}")).await?;
    }
    let replies: Vec<String> = pipeline.all().await?;
    let values: Vec<String> = replies.into_iter().skip(1).step_by(2).collect();
    assert_eq!(values, (0..1000).map(|number| number.to_string()).collect::<Vec<_>>());
    let mut seen = std::collections::HashSet::new();
    let mut pages = client.scan("fr:p:*", Some(100), None);
    while let Some(mut page) = pages.try_next().await? {
        seen.extend(page.take_results().unwrap_or_default());
        page.next();
    }
    assert_eq!(seen.len(), 1000);

    client.set::<(), _, _>("fr:a", "text", None, None, false).await?;
    let error = client.incr::<i64, _>("fr:a").await.unwrap_err();
    assert!(error.to_string().contains("not an integer"), "{error}");
    client.quit().await
}

#[test]
fn each_sdk_reads_what_every_sdk_wrote() {
    let files = Files::write("pairs");
    let total: usize = files.plan.iter().map(|(_, _, size)| size).sum();
    assert!((300 << 20..600 << 20).contains(&total), "{total} bytes in all");
    let server = Server::under_test(&Options { workers: Some(2), ..Options::default() });
    for (turn, writer) in SDKS.into_iter().enumerate() {
        writer.transfer("write", &server, &files, turn * SHIFT);
        for reader in SDKS {
            reader.transfer("read", &server, &files, turn * SHIFT);
        }
    }
}

#[test]
fn a_value_of_512_mb_is_the_same_in_every_direction() {
    let files = Files::write("huge");
    let corpus = files.corpus_path.to_str().unwrap();
    let size = HUGE_BYTES.to_string();
    let server = Server::under_test(&Options { workers: Some(2), ..Options::default() });
    let same = |value: &[u8]| value.chunks(CORPUS_BYTES).all(|part| part == files.corpus);
    let read_by_rs = |writer: &str| {
        let value: Vec<u8> = redis::cmd("GET").arg("huge").query(&mut redis_rs(&server)).unwrap();
        assert_eq!(value.len(), HUGE_BYTES, "written by {writer}");
        assert!(same(&value), "written by {writer}");
    };

    Sdk::RedisPy.run("write-huge", &server, &[corpus, &size]);
    read_by_rs("redis-py");
    let deleted: i64 = redis::cmd("DEL").arg("huge").query(&mut redis_rs(&server)).unwrap();
    assert_eq!(deleted, 1);

    let path = scratch("sdk").join("huge.value");
    let mut file = fs::File::create(&path).unwrap();
    for _ in 0..HUGE_BYTES / CORPUS_BYTES {
        file.write_all(&files.corpus).unwrap();
    }
    drop(file);
    let output = Command::new("timeout")
        .args(["120", "redis-cli", "-p", &server.port().to_string(), "-x", "set", "huge"])
        .stdin(fs::File::open(&path).unwrap())
        .output()
        .unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "OK");
    Sdk::RedisPy.run("read-huge", &server, &[corpus, &size]);
    read_by_rs("redis-cli");
}
