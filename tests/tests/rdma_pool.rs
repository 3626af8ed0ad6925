//! Gateways and memory nodes on a real RDMA device, in virtual machines.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use tests::rig::{Machine, Options, Rig, address};

/// For a command of a second or so, on a host that is busy with other things.
const SHORT: Duration = Duration::from_mins(1);
/// For a suite of a minute.
const LONG: Duration = Duration::from_mins(15);
/// Control planes of the machines of a network.
const PORT: u16 = 7000;

/// How long two gateways are under load.
fn load_seconds() -> u64 {
    let given = std::env::var("SUITE_RDMA_SECONDS");
    given.map_or(20, |text| text.parse().expect("SUITE_RDMA_SECONDS is a number"))
}

#[test]
fn pools_on_an_rdma_device_hold_what_is_put_and_answer_like_one_redis() {
    let seconds = load_seconds();
    let lifetime = 2 * LONG + Duration::from_secs(seconds);
    let options = Options { memory_mib: 3072, lifetime, ..Options::default() };
    let machine = Rig::one(&options.and_suites(&["fabrics", "gateways"]));
    let suites = ["fabrics", "gateways histories_of_a_long_load"];
    for suite in suites {
        let command = format!(
            "SUITE_FABRICS=verbs SUITE_LOAD_SECONDS={seconds} {suite} --test-threads 1 --nocapture"
        );
        let begin = Instant::now();
        let outcome = machine.run(&command, LONG + Duration::from_secs(seconds));
        assert!(outcome.status == 0, "{outcome}");
        println!("{}in {:?}", outcome.output, begin.elapsed());
    }
}

#[test]
fn what_is_amiss_with_rdma_is_told_with_its_remedy() {
    let mut options = Options::with_programs(&["gateway", "mnd"]);
    // Busybox's has no users.
    options.programs.push("/usr/bin/setpriv".into());
    let machine = Rig::one(&options);
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
    // Neither root's rights nor memory that may be locked.
    let limited = "chmod 666 /dev/infiniband/*; ulimit -l 1024; cd /tmp; setpriv --reuid 1000 \
                   --regid 1000 --clear-groups";
    let said = told(&format!("{limited} {mnd}"));
    for part in ["67108864 bytes", "may lock 1048576 bytes", "ulimit -l unlimited"] {
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
fn commands_take_little_longer_than_their_verbs() {
    let mut options = Options::with_programs(&["gateway", "latency", "mnd"]);
    options.memory_mib = 2048;
    let machine = Rig::one(&options);
    for replicas in [1, 2] {
        let pool = POOL_OF_TWO.replace("replicas = 1", &format!("replicas = {replicas}"));
        machine.put("/pool.toml", pool.replace("0.sock", &format!("{replicas}.sock")).as_bytes());
        let nodes = [0, 1].map(|node| {
            machine.start(&format!("mnd --pool /pool.toml --node {node} --metrics-port 0"))
        });
        let serve = "gateway --pool /pool.toml --workers 1 --metrics-port 0";
        let mut gateway = machine.start(serve);
        gateway.wait_for("Ready", SHORT);
        let (mut raw, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            raw.push(Raw::measure(&machine));
            let said = machine.run("latency --port 6379 --value-bytes 256", SHORT).success();
            println!("{replicas} replicas\n{said}");
            ours.push(["PING", "GET", "insert", "update", "DEL"].map(|name| row(&said, name)));
        }
        let raw = Raw {
            read: least(raw.iter().map(|raw| raw.read)),
            write: least(raw.iter().map(|raw| raw.write)),
            cas: least(raw.iter().map(|raw| raw.cas)),
            read_word: least(raw.iter().map(|raw| raw.read_word)),
        };
        let [ping, get, insert, update, delete] =
            std::array::from_fn(|column| least(ours.iter().map(|row| row[column])));
        println!("{replicas} replicas, p50 in us, the least of 3: {raw:?}");
        println!("PING {ping}, GET {get}, insert {insert}, update {update}, DEL {delete}");
        println!(
            "GET is {:.2} of a READ and PING; update is {:.2} of its verbs and PING",
            get / (raw.read + ping),
            update / (raw.of_an_update(replicas) + ping)
        );
        assert!(get < RATIO_MAX * raw.read + ping, "GET takes {get} us, PING {ping}: {raw:?}");
        let verbs = raw.of_an_update(replicas);
        assert!(update < RATIO_MAX * verbs + ping, "SET takes {update} us, PING {ping}: {raw:?}");
        for job in nodes.into_iter().chain([gateway]) {
            job.kill();
            let _ = job.wait(SHORT);
        }
    }
}

/// How much longer than perftest's verbs a command's may take, on a host that does other
/// things as well.
const RATIO_MAX: f64 = 2.0;

/// What perftest measures, p50 in us.
#[derive(Debug)]
struct Raw {
    /// READ of an object with a value of 256 bytes.
    read: f64,
    write: f64,
    cas: f64,
    /// READ of a slot.
    read_word: f64,
}

impl Raw {
    fn measure(machine: &Machine) -> Self {
        let object = "-s 320";
        Self {
            read: perftest(machine, &format!("ib_read_lat {object}")),
            write: perftest(machine, &format!("ib_write_lat {object}")),
            cas: perftest(machine, "ib_atomic_lat -A CMP_AND_SWAP"),
            read_word: perftest(machine, "ib_read_lat -s 8"),
        }
    }

    /// The sum over the phases of a SET whose slot is cached: the object to each replica
    /// with the slot and the object that it replaces, then the backups' CAS and the record
    /// if there are any, then the primary's CAS.
    fn of_an_update(&self, replicas: usize) -> f64 {
        let copies = replicas as f64;
        let first = copies * self.write + self.read_word + self.read;
        let votes =
            if replicas > 1 { (copies - 1.0) * self.cas + copies * self.write } else { 0.0 };
        first + votes + self.cas
    }
}

/// The typical time that one of perftest's programs measures.
fn perftest(machine: &Machine, program: &str) -> f64 {
    let program = format!("{program} -d rxe0 -x 1 -F -n 1000");
    let server = machine.start(&program);
    let said = machine.run(&format!("sleep 1; {program} localhost"), SHORT).success();
    server.wait(SHORT).unwrap().success();
    let line = said.lines().skip_while(|line| !line.contains("t_typical")).nth(1);
    let word = line.and_then(|line| line.split_whitespace().nth(4));
    word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no number in {said}"))
}

/// The middle column of the line that begins with a name, as `latency` has it.
fn row(said: &str, name: &str) -> f64 {
    let mut rows = said.lines().filter_map(|line| line.strip_prefix(name));
    let row = rows.find(|rest| rest.starts_with("  ")).unwrap_or_else(|| panic!("{said}"));
    let word = row.split_whitespace().nth(1);
    word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no {name} in {said}"))
}

fn least(all: impl Iterator<Item = f64>) -> f64 {
    all.fold(f64::INFINITY, f64::min)
}

/// On one machine, with one memory node.
const POOL_OF_ONE: &str =
    "name = \"one\"\nfabric = \"verbs\"\nmemory = \"64MiB\"\nnodes = [\"unix:/tmp/0.sock\"]\n";
/// And with two.
const POOL_OF_TWO: &str = "name = \"two\"\nfabric = \"verbs\"\nmemory = \"128MiB\"\nreplicas = 1\n\
                           nodes = [\"unix:/tmp/a0.sock\", \"unix:/tmp/b0.sock\"]\n";

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

    second.kill();
    let (got, took): (Vec<String>, _) = all("GET", "");
    println!("{KEYS} GETs with a node killed took {took:?}");
    let values = got.iter().filter(|reply| *reply == "value").count();
    let errors = got.iter().filter(|reply| reply.contains("does not answer")).count();
    assert_eq!(values + errors, KEYS, "{got:?}");
    // How many depends on where the block is that has all the values.
    assert!(errors > 0, "none of {KEYS} keys was on a node that is gone");
    // The first one waits for the device's patience, the others know.
    assert!(took < Duration::from_secs(5), "{KEYS} GETs took {took:?}");
    let looked = gateway.run("gateway doctor --pool /pool.toml --insecure", SHORT);
    assert_eq!(looked.status, 1, "{looked}");
    assert!(looked.output.contains("mnd --pool /pool.toml --node 1"), "{looked}");
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
