//! Gateways and memory nodes on a real RDMA device, in virtual machines.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use tests::metrics;
use tests::rig::{Machine, Options, Rig, address};

/// For a command of a second or so, on a host that is busy with other things.
const SHORT: Duration = Duration::from_mins(1);
/// Control planes of the machines of a network.
const PORT: u16 = 7000;
/// Until a node is reached again that was not.
const RETURN: Duration = Duration::from_secs(20);
/// On one machine, with one memory node.
const POOL_OF_ONE: &str =
    "name = \"one\"\nfabric = \"verbs\"\nmemory = \"64MiB\"\nnodes = [\"unix:/tmp/0.sock\"]\n";

#[test]
fn what_is_amiss_with_rdma_is_told_with_its_remedy() {
    let machine = Rig::one(&Options::with_programs(&["gateway", "mnd"]));
    machine.put("/pool.toml", POOL_OF_ONE.as_bytes());
    let mnd = "mnd --pool /pool.toml --node 0 --metrics-port 0";
    let told = |command: &str| {
        let outcome = machine.run(command, SHORT);
        assert_ne!(outcome.status, 0, "{outcome}");
        format!("{outcome}")
    };
    let said = told(&format!("{mnd} --device rxe7"));
    assert!(said.contains("rxe0 is not the one that was asked for"), "{said}");
    let said = told(&format!("{mnd} --device-address 10.9.9.9"));
    assert!(said.contains("10.9.9.9; it has ") && said.contains("10.0.0.1"), "{said}");
    // Neither root's rights nor memory that may be locked. By its path, since the shell
    // prefers the setpriv of its own, which knows no users.
    let limited = "chmod 666 /dev/infiniband/*; rm -f /tmp/0.sock; ulimit -l 1024; \
                   /usr/bin/setpriv --reuid 1000 --regid 1000 --clear-groups";
    let said = told(&format!("{limited} {mnd}"));
    for part in ["registered with rxe0", "may lock 1048576 bytes", "ulimit -l unlimited"] {
        assert!(said.contains(part), "{said}");
    }
    let said = told("rdma link delete rxe0; gateway doctor --pool /pool.toml");
    assert!(said.contains("rdma link add"), "{said}");
    let said = told(mnd);
    assert!(said.contains("no RDMA device") && said.contains("rdma link add"), "{said}");
}

#[test]
fn a_gateway_that_lost_its_session_is_shut_out_of_the_memory_until_it_joins_anew() {
    let mut options = Options::with_programs(&["gateway", "mnd"]);
    options.programs.push("/usr/bin/redis-cli".into());
    let machine = Rig::one(&options);
    machine.put("/pool.toml", POOL_OF_ONE.as_bytes());
    let mut node = machine.start("mnd --pool /pool.toml --node 0 --metrics-port 0 2>&1");
    let serve = "gateway --pool /pool.toml --workers 1 --metrics-port 0 --port";
    let mut stopped = machine.start(&format!("echo $$ >/pid; exec {serve} 6379 2>&1"));
    stopped.wait_for("Ready", SHORT);
    let mut other = machine.start(&format!("{serve} 6380"));
    other.wait_for("Ready", SHORT);
    let asked = |command: &str| machine.run(&format!("redis-cli {command}"), SHORT).success();
    assert_eq!(asked("SET key before"), "OK\n");
    assert_eq!(asked("-p 6380 GET key"), "before\n");
    machine.run("kill -STOP $(cat /pid)", SHORT).success();
    node.wait_for("a client that did not leave is expelled", SHORT);
    assert_eq!(asked("-p 6380 SET key after"), "OK\n");
    // Asked for before it knows, and done by the queue pairs that it had, if at all.
    let late = machine.start("redis-cli SET key late 2>&1");
    machine.run("sleep 1; kill -CONT $(cat /pid)", SHORT).success();
    let said = late.wait(SHORT).expect("the gateway answers").output;
    stopped.wait_for("a worker is in the pool again", SHORT);
    let is_refused = said.contains("does not answer");
    assert!(is_refused || said == "OK\n", "{said}");
    let expected = if is_refused { "after\n" } else { "late\n" };
    assert_eq!(asked("-p 6380 GET key"), expected);
    assert_eq!(asked("GET key"), expected);
    assert_eq!(asked("SET key again"), "OK\n");
    assert_eq!(asked("-p 6380 GET key"), "again\n");
}

#[test]
fn a_killed_memory_node_is_an_error_within_two_seconds_and_hangs_nobody() {
    const KEYS: usize = 60;
    let mut options = Options::with_programs(&["gateway", "mnd"]);
    options.programs.push("/usr/bin/redis-cli".into());
    let rig = Rig::network(3, &options);
    let [gateway, first, second] = rig.machines() else { panic!("there are three") };
    put_pool_file(rig.machines(), &[1, 2]);
    let _nodes = [(0, first), (1, second)].map(|(number, machine)| {
        machine.start(&format!("mnd --pool /pool.toml --insecure --node {number}"))
    });
    let mut serving = gateway.start("gateway --pool /pool.toml --insecure --workers 1");
    serving.wait_for("Ready", SHORT);
    let looked = gateway.run("gateway doctor --pool /pool.toml --insecure", SHORT).success();
    assert!(looked.contains("READ 8 B"), "{looked}");

    let all = |command: &str, rest: &str| {
        let mut script = String::new();
        for key in 0..KEYS {
            writeln!(script, "{command} key:{key} {rest}").expect("a String takes all");
        }
        gateway.put("/script", script.as_bytes());
        let begin = Instant::now();
        let said = gateway.run("redis-cli </script", SHORT).success();
        (said.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect(), begin.elapsed())
    };
    let (set, _): (Vec<String>, _) = all("SET", "value");
    assert!(set.iter().all(|reply| reply == "OK"), "{set:?}");

    let page = metrics_page(gateway);
    let batches = metrics::sum(&page, "fusee_batches_total", "").unwrap();
    for (node, verb) in ["0", "1"].into_iter().flat_map(|node| [(node, "read"), (node, "write")]) {
        let labels = format!("verb=\"{verb}\",node=\"{node}\"");
        let of = |part| metrics::sum(&page, &format!("fusee_round_trip_seconds_{part}"), &labels);
        let (count, seconds) = (of("count").unwrap_or(0.0), of("sum").unwrap_or(0.0));
        assert!(count >= 1.0 && count <= batches, "{labels}: {count} of {batches} batches");
        // Not even a device of real hardware answers within 500 ns.
        let mean = seconds / count;
        assert!(mean > 0.5e-6 && mean < 1.0, "{labels}: {mean} s");
    }
    assert_eq!(verbs_failed(&page), 0.0, "{page}");

    second.kill();
    let (got, took): (Vec<String>, _) = all("GET", "");
    let values = got.iter().filter(|reply| *reply == "value").count();
    let errors = got.iter().filter(|reply| reply.contains("does not answer")).count();
    assert_eq!(values + errors, KEYS, "{got:?}");
    // How many depends on where the block is that has all the values.
    assert!(errors > 0, "none of {KEYS} keys was on a node that is gone");
    // The first one waits for the device's patience, the others know.
    assert!(took < Duration::from_secs(5), "{KEYS} GETs took {took:?}");
    let failed = verbs_failed(&metrics_page(gateway));
    assert!(failed >= errors as f64, "{failed} verbs failed, and {errors} GETs");
    let looked = gateway.run("gateway doctor --pool /pool.toml --insecure", SHORT);
    assert_eq!(looked.status, 1, "{looked}");
    assert!(looked.output.contains("mnd --pool /pool.toml --node 1"), "{looked}");
}

#[test]
fn a_cable_that_was_pulled_for_a_second_costs_errors_but_no_session() {
    let mut options = Options::with_programs(&["gateway", "mnd"]);
    options.programs.push("/usr/bin/redis-cli".into());
    let rig = Rig::network(2, &options);
    let [gateway, node] = rig.machines() else { panic!("there are two") };
    put_pool_file(rig.machines(), &[1]);
    let _node = node.start("mnd --pool /pool.toml --insecure --node 0");
    let mut serving = gateway.start("gateway --pool /pool.toml --insecure --workers 1 2>&1");
    serving.wait_for("Ready", SHORT);
    let asked = |command: &str| gateway.run(&format!("redis-cli {command}"), SHORT).success();
    assert_eq!(asked("SET key value"), "OK\n");
    let queue_pairs = || {
        let shown = node.run("rdma resource show qp", SHORT).success();
        shown.lines().filter(|line| line.contains("type RC")).count()
    };
    let opened = queue_pairs();

    for round in 0..2 {
        // Longer than the device's patience, much shorter than the session's.
        let mut pulled = node.start(
            "ip link set eth0 down; echo pulled; sleep 2; \
                                     ip link set eth0 up",
        );
        pulled.wait_for("pulled", SHORT);
        let said = asked("GET key");
        assert!(said.contains("does not answer"), "round {round}: {said}");
        pulled.wait(SHORT).expect("the cable is plugged in").success();
        let begin = Instant::now();
        while asked("GET key") != "value\n" {
            assert!(begin.elapsed() < RETURN, "round {round}: {}", asked("GET key"));
        }
        assert_eq!(asked(&format!("SET key:{round} {round}")), "OK\n");
        assert_eq!(asked(&format!("GET key:{round}")), format!("{round}\n"));
        assert_eq!(queue_pairs(), opened, "the node destroys what is replaced");
    }
    serving.wait_for("there is a queue pair to the memory node again", SHORT);
    let joins = metrics::sum(&metrics_page(gateway), "fusee_pool_joins_total", "");
    assert_eq!(joins, Some(1.0), "the session went on");
}

/// What a gateway tells on the port that is its default.
fn metrics_page(machine: &Machine) -> String {
    machine.run("wget -q -O - http://127.0.0.1:9379/metrics", SHORT).success()
}

fn verbs_failed(page: &str) -> f64 {
    metrics::sum(page, "fusee_verbs_failed_total", "reason=\"down\"").unwrap()
}

/// A pool on the machines of these numbers.
fn put_pool_file(machines: &[Machine], nodes: &[usize]) {
    let nodes: Vec<String> =
        nodes.iter().map(|&number| format!("\"{}:{PORT}\"", address(number))).collect();
    let text = format!(
        "name = \"rig\"\nfabric = \"verbs\"\nmemory = \"128MiB\"\nnodes = [{}]\n",
        nodes.join(", ")
    );
    for machine in machines {
        machine.put("/pool.toml", text.as_bytes());
    }
}
