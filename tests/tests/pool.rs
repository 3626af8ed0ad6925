//! A pool of processes on one host: memory nodes and gateways come, go and die.

use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use tests::metrics;
use tests::pool::{Pool, PoolOptions};
use tests::resp::{Client, Reply};
use tests::server::Server;

fn shm(nodes: u16, replicas: u8, memory_mib: u64) -> Pool {
    Pool::describe(&PoolOptions { nodes, replicas, memory_mib, ..PoolOptions::default() })
}

fn set(client: &mut Client, key: &str, value: &str) {
    assert_eq!(client.command(&["SET", key, value]), Reply::ok(), "{key}");
}

/// Waits until something holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn metric(server: &Server, name: &str, label: &str) -> f64 {
    let address = server.metrics_address().expect("it serves metrics");
    let page = metrics::fetch(address).expect("it serves metrics");
    metrics::sum(&page, name, label).unwrap_or_else(|| panic!("no {name} in:\n{page}"))
}

fn gateways_share_keys(replicas: u8) {
    let pool = shm(2, replicas, 64);
    let _nodes = pool.start_nodes();
    let (one, other) = (pool.gateway(), pool.gateway());
    let (mut one, mut other) = (Client::connect(&one), Client::connect(&other));
    for (number, bytes) in [0, 1, 60, 1000, 5000, 70_000, 3 << 20].into_iter().enumerate() {
        let value = "v".repeat(bytes);
        set(&mut one, &format!("key{number}"), &value);
        assert_eq!(other.command(&["GET", &format!("key{number}")]), Reply::bulk(value));
    }
    for round in 0..100 {
        assert_eq!(one.command(&["INCR", "count"]).integer(), 2 * round + 1);
        assert_eq!(other.command(&["INCR", "count"]).integer(), 2 * round + 2);
    }
    assert_eq!(other.command(&["DEL", "key3"]).integer(), 1);
    assert_eq!(one.command(&["GET", "key3"]), Reply::Null);
    for client in [&mut one, &mut other] {
        until("both count all keys", || client.command(&["DBSIZE"]).integer() == 7);
    }
}

#[test]
fn gateways_share_keys_in_one_copy() {
    gateways_share_keys(1);
}

#[test]
fn gateways_share_keys_in_two_copies() {
    gateways_share_keys(2);
}

#[test]
fn processes_may_start_in_any_order() {
    let pool = shm(2, 2, 64);
    let mut gateway = pool.start_gateway_with(&pool.file());
    gateway.wait_for_line("waiting for the pool: memory node 0");
    let mut last = pool.start_node(1);
    last.wait_for_line("waiting for memory node 0");
    let mut first = pool.start_node(0);
    first.wait_for_line("gateways may come");
    gateway.wait_for_line("ready for Redis clients");
    assert!(gateway.terminate().success(), "{}", gateway.log());
    until("it has left", || first.log().contains("a gateway has gone"));
    assert!(!first.log().contains("expelled"), "{}", first.log());
    for node in [&mut first, &mut last] {
        assert!(node.terminate().success(), "{}", node.log());
    }
}

#[test]
fn a_gateway_that_waits_for_the_pool_can_be_stopped() {
    let pool = shm(2, 1, 64);
    let mut node = pool.start_node(0);
    node.wait_for_line("waiting for the memory nodes [1]");
    let mut gateway = pool.start_gateway_with(&pool.file());
    gateway.wait_for_line("is not ready: it waits for the memory nodes [1]");
    assert!(gateway.terminate().success());
}

#[test]
fn blocks_of_a_gateway_that_leaves_are_adopted_by_another() {
    let pool = shm(2, 1, 16);
    let _nodes = pool.start_nodes();
    let (mut leaver, other) = (pool.gateway(), pool.gateway());
    let mut client = Client::connect(&leaver);
    let value = "v".repeat(4000);
    for key in 0..500 {
        set(&mut client, &format!("old{key}"), &value);
    }
    for key in 0..250 {
        assert_eq!(client.command(&["DEL", &format!("old{}", 2 * key)]).integer(), 1);
    }
    drop(client);
    let orphans = || metric(&other, "fusee_block_bytes", "orphan");
    assert_eq!(orphans(), 0.0);
    let status = leaver.terminate().expect("it ends when asked to");
    assert!(status.success(), "{}", leaver.log_tail());
    until("its blocks are orphans", || orphans() > 0.0);
    let (most, mut client) = (orphans(), Client::connect(&other));
    // Until nothing else is left.
    let full = (0..20_000).find(|key| {
        client.command(&["SET", &format!("new{key}"), &value]).is_error("OOM command not allowed")
    });
    assert!(full.is_some(), "32 MiB do not hold 80 MB");
    for key in 0..250 {
        let old = client.command(&["GET", &format!("old{}", 2 * key + 1)]);
        assert_eq!(old, Reply::bulk(value.as_str()));
    }
    until("one was adopted", || orphans() < most);
}

#[test]
fn a_killed_gateway_is_seen_at_once_and_holds_nobody_up() {
    let pool = shm(2, 2, 64);
    let mut nodes = pool.start_nodes();
    let (killed, other) = (pool.gateway(), pool.gateway());
    let mut client = Client::connect(&killed);
    for key in 0..100 {
        set(&mut client, &format!("key{key}"), "of the dead");
    }
    until("both are members", || metric(&other, "fusee_clients", "") == 2.0);
    kill_process(killed.pid(), Signal::KILL).expect("it runs");
    nodes[0].wait_for_line("a client that did not leave is expelled");
    until("one is left", || metric(&other, "fusee_clients", "") == 1.0);
    assert!(nodes[1].log().contains("a gateway has gone"), "{}", nodes[1].log());
    let mut client = Client::connect(&other);
    for key in 0..100 {
        let name = format!("key{key}");
        assert_eq!(client.command(&["GET", &name]), Reply::bulk("of the dead"));
        set(&mut client, &name, "of the living");
    }
}

#[test]
fn one_sided_traffic_goes_on_while_memory_nodes_are_stopped() {
    let pool = shm(2, 2, 64);
    let nodes = pool.start_nodes();
    let gateway = pool.gateway();
    let mut client = Client::connect(&gateway);
    set(&mut client, "key", "value");
    nodes.iter().for_each(|node| node.signal(Signal::STOP));
    for round in 0..200 {
        let value = format!("value {round}");
        set(&mut client, "key", &value);
        assert_eq!(client.command(&["GET", "key"]), Reply::bulk(value));
    }
    nodes.iter().for_each(|node| node.signal(Signal::CONT));
    // Blocks of another class, for which the memory nodes are needed.
    set(&mut client, "large", &"v".repeat(9000));
    assert!(!nodes[0].log().contains("a gateway has gone"), "{}", nodes[0].log());
}

#[test]
fn a_full_pool_refuses_writes_and_takes_deletes() {
    let pool = shm(2, 1, 16);
    let _nodes = pool.start_nodes();
    let gateway = pool.gateway();
    let mut client = Client::connect(&gateway);
    let value = "v".repeat(100_000);
    let full = (0..1000).find(|key| match client.command(&["SET", &format!("key{key}"), &value]) {
        Reply::Error(text) => {
            assert!(text.starts_with("OOM command not allowed"), "{text}");
            true
        }
        _ => false,
    });
    let full = full.expect("32 MiB do not hold 100 MB");
    assert!(full > 100, "{full} values of 100 kB fill 32 MiB");
    for key in 0..50 {
        assert_eq!(client.command(&["DEL", &format!("key{key}")]).integer(), 1);
    }
    until("there is room again", || client.command(&["SET", "again", &value]) == Reply::ok());
}

#[test]
fn a_lost_memory_node_gives_errors_and_no_hang() {
    let pool = shm(2, 1, 64);
    let nodes = pool.start_nodes();
    let gateway = pool.gateway();
    let mut client = Client::connect(&gateway);
    for key in 0..50 {
        set(&mut client, &format!("key{key}"), "value");
    }
    nodes[1].signal(Signal::KILL);
    let begin = Instant::now();
    let mut failed = 0;
    until("some keys are out of reach", || {
        for key in 0..50 {
            match client.command(&["GET", &format!("key{key}")]) {
                Reply::Error(text) => {
                    assert!(text.contains("memory node 1 does not answer"), "{text}");
                    failed += 1;
                }
                reply => assert_eq!(reply, Reply::bulk("value")),
            }
        }
        failed > 0
    });
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
}

#[test]
fn who_takes_the_pool_for_another_one_is_told_the_difference() {
    let pool = shm(2, 2, 64);
    let nodes = pool.start_nodes();
    for (from, to, said) in [
        ("replicas = 2", "replicas = 1", "replicas = 1 and this memory node's says 2"),
        ("\"64MiB\"", "\"65MiB\"", "memory = 68157440 and this"),
        ("\"test\"", "\"accept\"", "name = accept"),
        ("replicas = 2", "replicas = 2\nseed = 5", "joined the pool"),
    ] {
        let mut gateway = pool.start_gateway_with(&pool.other_file(from, to));
        gateway.wait_for_line(said);
        if said != "joined the pool" {
            assert_eq!(gateway.wait().code(), Some(1), "{}", gateway.log());
        }
    }
    drop(nodes);
}

#[test]
fn a_memory_node_that_cannot_be_one_says_why() {
    let pool = shm(2, 2, 64);
    let mut nodes = pool.start_nodes();
    let mut twin = pool.start_node(1);
    assert_eq!(twin.wait().code(), Some(1));
    assert!(twin.log().contains("is in use: does this memory node run already?"), "{}", twin.log());

    nodes[1].signal(Signal::KILL);
    nodes[1].wait();
    let mut again = pool.start_node(1);
    assert_eq!(again.wait().code(), Some(1));
    assert!(again.log().contains("whose memory is gone: stop all"), "{}", again.log());

    let mut stranger = pool.start_node(7);
    assert_eq!(stranger.wait().code(), Some(2));
    assert!(stranger.log().contains("its file names nodes 0 to 1"), "{}", stranger.log());
    let mut other = pool.start_node_with(1, &pool.other_file("64MiB", "32MiB"));
    assert_eq!(other.wait().code(), Some(1));
    assert!(other.log().contains("give every process of a pool the same"), "{}", other.log());
}
