//! Starts gateways on one pool and ends them, most by `kill -9` amid their writes,
//! and watches that the pool's memory stays with its live data: at last every key is
//! deleted, and the memory of all who came and died has to be free again.
#![expect(clippy::print_stdout, reason = "the course of memory is what this program is for")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use tests::metrics;
use tests::pool::{Pool, PoolOptions};
use tests::random::Random;
use tests::resp::{Client, Reply, info_field, push_command};
use tests::server::{Options, Server};

/// Commands per round trip of a connection.
const BATCH: usize = 16;
/// What gateways left behind is adopted, freed and given back within this.
const SETTLE: Duration = Duration::from_secs(2);
/// Gateways between two looks at the memory.
const LOOK: usize = 10;
/// Orphans are looked at one after the other, some a tick of 10 ms each.
const EMPTY_TIME_MAX: Duration = Duration::from_secs(60);

/// Gateways that come and go; ends with an account of the memory.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask restarts", version)]
struct Arguments {
    /// Gateways that are started, one after the other.
    #[arg(long, default_value_t = 1000)]
    starts: usize,
    /// How they reach the memory: shm or tcp.
    #[arg(long, default_value = "shm", value_parser = fabric)]
    fabric: &'static str,
    /// Copies of every key.
    #[arg(long, default_value_t = 2)]
    replicas: u8,
    /// Memory of each of the memory nodes in MiB.
    #[arg(long, default_value_t = 256)]
    memory_mib: u64,
    /// Keys that are overwritten and deleted.
    #[arg(long, default_value_t = 2_000)]
    keys: usize,
    /// Greatest value.
    #[arg(long, default_value_t = 16 << 10)]
    value_bytes_max: usize,
    /// Used memory may exceed live data by this share of it: size classes, headers.
    #[arg(long, default_value_t = 35)]
    overhead_percent: u64,
    /// And by so much whatever the data: a block in part per class for each worker that
    /// lives, or has died since memory was looked at last. These are 12 workers, 33
    /// classes and 256 KiB.
    #[arg(long, default_value_t = 99)]
    overhead_mib: u64,
    /// What may be used when all keys are deleted: a block per class for the one worker
    /// that lives.
    #[arg(long, default_value_t = 10)]
    empty_mib: u64,
    /// Start of the sequence of keys, sizes and ends.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn fabric(name: &str) -> Result<&'static str, String> {
    ["shm", "tcp"]
        .into_iter()
        .find(|known| *known == name)
        .ok_or_else(|| format!("{name:?} is not a fabric for this; there are shm and tcp"))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let faults = restarts(&arguments);
    for fault in &faults {
        println!("FAILED: {fault}");
    }
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn restarts(arguments: &Arguments) -> Vec<String> {
    let pool = Pool::start(&PoolOptions {
        fabric: arguments.fabric,
        nodes: u16::from(arguments.replicas.max(2)),
        replicas: arguments.replicas,
        memory_mib: arguments.memory_mib,
        ..PoolOptions::default()
    });
    let options = Options { workers: Some(1), ..Options::default() };
    let resident_server = pool.gateway_with(&Options { metrics: true, ..options.clone() });
    let mut resident = Load::new(arguments, &resident_server);
    let mut random = Random::new(arguments.seed);
    let (mut faults, mut excess_max, mut slowest) = (Vec::new(), 0, Duration::ZERO);
    for start in 1..=arguments.starts {
        let begin = Instant::now();
        let mut gateway = pool.gateway_with(&options);
        slowest = slowest.max(begin.elapsed());
        let mut load = Load::new(arguments, &gateway);
        let until = Instant::now() + Duration::from_micros(random.below(30_000) as u64);
        while Instant::now() < until {
            load.batch(&mut random);
            resident.batch(&mut random);
        }
        if random.below(4) == 0 {
            let ended = gateway.terminate();
            if !ended.is_some_and(|status| status.success()) {
                faults.push(format!("gateway {start} did not leave in peace: {ended:?}"));
            }
        } else {
            load.send(&mut random);
            gateway.kill();
        }
        if start % LOOK == 0 || start == arguments.starts {
            std::thread::sleep(SETTLE);
            let account = resident.account();
            excess_max = excess_max.max(account.excess(arguments));
            println!(
                "{start:5} gateways  live {:4} MiB  used {:4} MiB, {:4} of them in orphans  \
                 slowest start {:4} ms",
                account.live >> 20,
                account.used >> 20,
                orphan_bytes(&resident_server) >> 20,
                slowest.as_millis()
            );
            faults.extend(account.fault(arguments, start));
        }
    }
    println!(
        "{} gateways on {}: used memory was {} MiB above live data and its {} % at most, \
         {} MiB are allowed",
        arguments.starts,
        arguments.fabric,
        excess_max >> 20,
        arguments.overhead_percent,
        arguments.overhead_mib
    );
    faults.extend(resident.empty(arguments));
    faults
}

/// What the pool's blocks without an owner take, one copy.
fn orphan_bytes(server: &Server) -> u64 {
    let address = server.metrics_address().expect("it was asked to serve metrics");
    let page = metrics::fetch(address).expect("it serves metrics");
    metrics::sum(&page, "fusee_block_bytes", "orphan").expect("it tells of blocks") as u64
}

/// The pool's memory, one copy.
struct Account {
    live: u64,
    used: u64,
}

impl Account {
    /// What is used beyond live data with their share of overhead.
    fn excess(&self, arguments: &Arguments) -> u64 {
        self.used.saturating_sub(self.live * (100 + arguments.overhead_percent) / 100)
    }

    fn fault(&self, arguments: &Arguments, start: usize) -> Option<String> {
        let Self { live, used } = self;
        if used < live {
            return Some(format!("{start}: used memory of {used} B is less than live {live} B"));
        }
        (self.excess(arguments) > arguments.overhead_mib << 20).then(|| {
            format!("{start}: {used} B are used for {live} B of live data, which is over the bound")
        })
    }
}

/// A connection that writes.
struct Load {
    client: Client,
    keys: usize,
    value_bytes_max: usize,
}

impl Load {
    fn new(arguments: &Arguments, server: &Server) -> Self {
        Self {
            client: Client::connect(server),
            keys: arguments.keys,
            value_bytes_max: arguments.value_bytes_max,
        }
    }

    /// Writes, and takes the replies.
    fn batch(&mut self, random: &mut Random) {
        self.send(random);
        for _ in 0..BATCH {
            let reply = self.client.receive().expect("the gateway answers");
            assert!(reply == Reply::ok() || matches!(reply, Reply::Integer(_)), "{reply:?}");
        }
    }

    /// SETs, and a DEL for every fifth.
    fn send(&mut self, random: &mut Random) {
        let mut frames = Vec::new();
        for _ in 0..BATCH {
            let key = format!("key:{}", random.below(self.keys));
            if random.below(6) == 0 {
                push_command(&mut frames, &["DEL", &key]);
            } else {
                let value = value(&key, 1 + random.below(self.value_bytes_max));
                push_command(&mut frames, &["SET", &key, &value]);
            }
        }
        self.client.send(&frames).expect("the gateway takes requests");
    }

    /// Reads everything: each value must be one that was written to its key.
    fn account(&mut self) -> Account {
        let mut live = 0;
        for number in 0..self.keys {
            let key = format!("key:{number}");
            match self.client.command(&["GET", &key]) {
                Reply::Null => {}
                Reply::Bulk(bytes) => {
                    assert_eq!(bytes, value(&key, bytes.len()).into_bytes(), "{key}");
                    live += (key.len() + bytes.len()) as u64;
                }
                other => panic!("{key}: {other:?}"),
            }
        }
        Account { live, used: self.used() }
    }

    fn used(&mut self) -> u64 {
        info_field(&mut self.client, "memory", "used_memory")
            .and_then(|text| text.parse().ok())
            .expect("INFO memory tells used_memory")
    }

    /// Deletes everything: whatever is still used after a while is lost.
    fn empty(&mut self, arguments: &Arguments) -> Option<String> {
        for number in 0..self.keys {
            let reply = self.client.command(&["DEL", &format!("key:{number}")]);
            assert!(matches!(reply, Reply::Integer(_)), "{reply:?}");
        }
        let begin = Instant::now();
        let mut used = self.used();
        while used > arguments.empty_mib << 20 && begin.elapsed() < EMPTY_TIME_MAX {
            std::thread::sleep(Duration::from_millis(500));
            used = self.used();
        }
        let took = begin.elapsed().as_secs_f64();
        println!("without keys: used {} KiB after {took:.1} s", used >> 10);
        (used > arguments.empty_mib << 20)
            .then(|| format!("{used} B are used though there is no key any more"))
    }
}

/// The value of so many bytes that a key may have.
fn value(key: &str, bytes: usize) -> String {
    let unit = format!("{key}:{bytes}|");
    let mut value = unit.repeat(bytes.div_ceil(unit.len()));
    value.truncate(bytes);
    value
}
