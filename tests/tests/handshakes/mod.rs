//! What SDKs send on connect that cannot be had here: their sequences, word for word,
//! and what they die of if it is answered otherwise.

use tests::resp::{Client, Reply};
use tests::server::{Options, Server};

fn server() -> Server {
    Server::under_test(&Options { memory_mib: Some(512), workers: Some(2), ..Options::default() })
}

/// What HELLO tells under a name.
fn told<'a>(hello: &'a Reply, name: &str) -> &'a Reply {
    let Reply::Array(items) = hello else { panic!("HELLO got {hello:?}") };
    let at = items.iter().step_by(2).position(|item| item.text() == name);
    &items[2 * at.unwrap_or_else(|| panic!("HELLO tells no {name}: {items:?}")) + 1]
}

/// What every SDK with RESP3 reads of HELLO.
fn assert_hello(hello: &Reply) {
    assert_eq!(told(hello, "proto"), &Reply::Integer(3));
    assert_eq!(told(hello, "server").text(), "redis");
    assert_eq!(told(hello, "mode").text(), "standalone");
    assert_eq!(told(hello, "role").text(), "master");
    assert!(told(hello, "id").integer() > 0);
    let version = told(hello, "version").text();
    let major: u32 = version.split('.').next().unwrap().parse().unwrap();
    assert!(major >= 7, "{version}");
}

#[test]
fn jedis_connects() {
    let server = server();
    let mut client = Client::connect(&server);
    let replies = client.pipeline(&[
        &["HELLO", "3"],
        &["CLIENT", "SETINFO", "LIB-NAME", "jedis"],
        &["CLIENT", "SETINFO", "LIB-VER", "5.2.0"],
    ]);
    assert_hello(&replies[0]);
    assert_eq!(replies[1..], [Reply::ok(), Reply::ok()]);
    assert_eq!(client.command(&["SELECT", "2"]), Reply::ok());
    let info = client.command(&["CLIENT", "INFO"]).text();
    assert!(info.contains(" db=2 ") && info.contains("lib-name=jedis lib-ver=5.2.0"), "{info}");
}

#[test]
fn jedis_and_lettuce_connect_with_a_password() {
    let server = server();
    assert_eq!(
        Client::connect(&server).command(&["CONFIG", "SET", "requirepass", "secret"]),
        Reply::ok()
    );
    // Lettuce and Spring begin so, and fall back to RESP2 only at NOPROTO or an
    // unknown command.
    let mut client = Client::connect(&server);
    assert!(client.command(&["HELLO", "3"]).is_error("NOAUTH "));
    let hello = client.command(&["HELLO", "3", "AUTH", "default", "wrong"]);
    assert!(hello.is_error("WRONGPASS "), "{hello:?}");
    let hello = client.command(&["HELLO", "3", "AUTH", "default", "secret", "SETNAME", "spring"]);
    assert_hello(&hello);
    assert_eq!(client.command(&["CLIENT", "GETNAME"]), Reply::bulk("spring"));
    assert!(client.command(&["HELLO", "4"]).is_error("NOPROTO "));
}

#[test]
fn lettuce_connects() {
    let server = server();
    let mut client = Client::connect(&server);
    assert_hello(&client.command(&["HELLO", "3"]));
    let replies = client.pipeline(&[
        &["CLIENT", "SETINFO", "lib-name", "Lettuce"],
        &["CLIENT", "SETINFO", "lib-ver", "6.5.0.RELEASE/0f9a6a0"],
        &["PING"],
    ]);
    assert_eq!(replies, [Reply::ok(), Reply::ok(), Reply::Simple("PONG".into())]);
}

#[test]
fn go_redis_connects() {
    let server = server();
    let mut client = Client::connect(&server);
    assert_hello(&client.command(&["hello", "3"]));
    let replies = client.pipeline(&[
        &["select", "1"],
        &["client", "setname", "worker"],
        &["client", "maint_notifications"],
    ]);
    assert_eq!(replies[..2], [Reply::ok(), Reply::ok()]);
    assert!(replies[2].is_error("ERR unknown subcommand"), "{:?}", replies[2]);
    let replies = client.pipeline(&[
        &["client", "setinfo", "LIB-NAME", "go-redis(,go1.24.1)"],
        &["client", "setinfo", "LIB-VER", "9.7.3"],
    ]);
    assert_eq!(replies, [Reply::ok(), Reply::ok()]);
    // It reads times beside values.
    assert_eq!(client.command(&["set", "k", "v", "ex", "10"]), Reply::ok());
    assert_eq!(client.command(&["ttl", "k"]), Reply::Integer(10));
}

#[test]
fn stackexchange_redis_connects() {
    let server = server();
    let mut client = Client::connect(&server);
    let marker: Vec<u8> = (0..16).map(|byte| byte * 17).collect();
    assert_hello(&client.command(&["HELLO", "3"]));
    let replies = client.pipeline(&[
        &["CLIENT", "SETNAME", "host(SE.Redis-v2.8.24)"],
        &["CLIENT", "SETINFO", "lib-name", "SE.Redis"],
        &["CLIENT", "SETINFO", "lib-ver", "2.8.24"],
        &["CLIENT", "ID"],
        &["CONFIG", "GET", "timeout"],
        &["CONFIG", "GET", "replica-read-only"],
        &["CONFIG", "GET", "databases"],
        &["SENTINEL", "MASTERS"],
        &["INFO", "replication"],
        &["INFO", "server"],
        &["CLUSTER", "NODES"],
        &["GET", "__Booksleeve_TieBreak"],
    ]);
    assert_eq!(replies[..3], [Reply::ok(), Reply::ok(), Reply::ok()]);
    assert!(replies[3].integer() > 0);
    for (reply, name) in replies[4..7].iter().zip(["timeout", "replica-read-only", "databases"]) {
        assert_eq!(told(reply, name), &told(reply, name).clone());
    }
    assert_eq!(told(&replies[6], "databases").text(), "16");
    // It goes on after these errors, and takes the server for a single one.
    assert!(matches!(replies[7], Reply::Error(_)) && matches!(replies[10], Reply::Error(_)));
    assert!(replies[8].text().contains("role:master"), "{:?}", replies[8]);
    let server_info = replies[9].text();
    assert!(
        server_info.contains("redis_version:7.") && server_info.contains("redis_mode:standalone")
    );
    assert_eq!(replies[11], Reply::Null);
    assert_eq!(client.command(&[&b"ECHO"[..], &marker]), Reply::bulk(marker.clone()));
    // Another connection listens in RESP2.
    let mut listener = Client::connect(&server);
    let listens = listener.command(&["SUBSCRIBE", "__Booksleeve_MasterChanged"]);
    let wanted =
        [Reply::bulk("subscribe"), Reply::bulk("__Booksleeve_MasterChanged"), Reply::Integer(1)];
    assert_eq!(listens, Reply::Array(wanted.into()));
    let pong = listener.command(&["PING"]);
    assert_eq!(pong, Reply::Array(vec![Reply::bulk("pong"), Reply::bulk("")]));
}

#[test]
fn sidekiq_connects() {
    let server = server();
    let mut client = Client::connect(&server);
    let replies = client.pipeline(&[
        &["HELLO", "3"],
        &["SELECT", "0"],
        &["CLIENT", "SETINFO", "LIB-NAME", "redis-client(sidekiq)"],
        &["CLIENT", "SETINFO", "LIB-VER", "0.23.0"],
    ]);
    assert_hello(&replies[0]);
    assert!(replies[1..].iter().all(|reply| *reply == Reply::ok()));
}

#[test]
fn celery_pings_before_hello() {
    let server = server();
    let mut client = Client::connect(&server);
    assert_eq!(client.command(&["PING"]), Reply::Simple("PONG".into()));
    assert_hello(&client.command(&["HELLO", "3"]));
}
