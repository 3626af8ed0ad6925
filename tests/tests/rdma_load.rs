//! What takes long on a real RDMA device: all that pools hold, and how long commands take.

use std::time::{Duration, Instant};

use tests::rig::{Machine, Options, Rig};

/// For a command of a second or so, on a host that is busy with other things.
const SHORT: Duration = Duration::from_mins(1);
/// For a suite of a minute.
const LONG: Duration = Duration::from_mins(15);

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
        eprintln!("{}in {:?}", outcome.output, begin.elapsed());
    }
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
            eprintln!("{replicas} replicas\n{said}");
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
        eprintln!("{replicas} replicas, p50 in us, the least of 3: {raw:?}");
        eprintln!("PING {ping}, GET {get}, insert {insert}, update {update}, DEL {delete}");
        eprintln!(
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

/// On one machine, with two memory nodes.
const POOL_OF_TWO: &str = "name = \"two\"\nfabric = \"verbs\"\nmemory = \"128MiB\"\nreplicas = 1\n\
                           nodes = [\"unix:/tmp/a0.sock\", \"unix:/tmp/b0.sock\"]\n";
