//! What is served beside Redis clients.

mod common;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use common::{Gateway, config};
use gateway::metrics::{Family, Kind, Source};
use gateway::testing::MemoryKeyspace;

fn get(gateway: &gateway::Server, request: &str) -> String {
    let address = gateway.metrics_address().expect("metrics are served");
    let mut stream = TcpStream::connect(address).expect("it accepts");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("it answers");
    reply
}

#[test]
fn metrics_tell_what_was_served() {
    let gateway = Gateway::start();
    let mut client = gateway.client();
    client.ask("SET k v");
    client.ask("GET k");
    client.ask("GET none");
    client.ask("INCRBY k x");
    let reply = get(gateway.server(), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{reply}");
    for line in [
        "gateway_connections 1",
        "gateway_command_duration_seconds_count{command=\"get\"} 2",
        "gateway_command_duration_seconds_bucket{command=\"get\",le=\"+Inf\"} 2",
        "gateway_failed_commands_total{command=\"incrby\"} 1",
        "gateway_error_replies_total{kind=\"ERR\"} 1",
        "gateway_read_hits_total 1",
        "gateway_read_misses_total 1",
        // The keyspace of these tests counts one for a read, two for a set.
        "gateway_command_round_trips_bucket{command=\"get\",le=\"1\"} 2",
        "gateway_command_round_trips_bucket{command=\"set\",le=\"1\"} 0",
        "gateway_command_round_trips_bucket{command=\"set\",le=\"2\"} 1",
    ] {
        assert!(reply.lines().any(|other| other == line), "{line} in {reply}");
    }
}

#[test]
fn a_pipeline_of_reads_is_one_round_trip() {
    let gateway = Gateway::start();
    let mut client = gateway.client();
    client.send(&b"GET k\r\nTTL k\r\nMGET a b c\r\nEXISTS k\r\n".repeat(4));
    for _ in 0..16 {
        client.reply();
    }
    let reply = get(gateway.server(), "GET /metrics HTTP/1.1\r\n\r\n");
    let line = "gateway_command_round_trips_sum{command=\"mget\"} ";
    let sum = reply.lines().find_map(|other| other.strip_prefix(line)).expect("it was called");
    // All four waited for one, unless the pipeline arrived in pieces.
    assert_eq!(sum, "4");
}

#[test]
fn liveness_and_readiness_are_told() {
    let gateway = Gateway::start();
    for path in ["/livez", "/readyz"] {
        let reply = get(gateway.server(), &format!("GET {path} HTTP/1.1\r\n\r\n"));
        assert!(reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.ends_with("ok\n"), "{reply}");
    }
    let reply = get(gateway.server(), "GET /other HTTP/1.1\r\n\r\n");
    assert!(reply.starts_with("HTTP/1.1 404 "), "{reply}");
    let reply = get(gateway.server(), "POST /metrics HTTP/1.1\r\n\r\n");
    assert!(reply.starts_with("HTTP/1.1 405 "), "{reply}");
    let reply = get(gateway.server(), "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(reply.ends_with("\r\n\r\n"), "{reply}");
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(9000));
    assert!(get(gateway.server(), &long).starts_with("HTTP/1.1 431 "));
}

#[test]
fn other_sources_are_shown_beside_the_gateways() {
    let source = || vec![Family::number("store_keys", "Keys.", Kind::Gauge, 7.0)];
    let server = gateway::start(&config(), vec![Arc::new(source) as Source], async |_| {
        Ok(MemoryKeyspace::default())
    })
    .expect("the server starts");
    let reply = get(&server, "GET /metrics HTTP/1.1\r\n\r\n");
    assert!(reply.contains("# TYPE store_keys gauge\nstore_keys 7\n"), "{reply}");
    server.stop();
    server.join();
}
