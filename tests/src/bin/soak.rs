//! Overwrites a fixed set of keys with values of random sizes and watches the
//! memory: used memory follows live data and does not creep.
#![expect(clippy::print_stdout, reason = "the course of memory is what this program is for")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use tests::metrics;
use tests::process;
use tests::random::Random;
use tests::resp::{Client, Reply, info_field, push_command};
use tests::server::{Flavour, Options, Server};

const CORPUS_BYTES: usize = 4 << 20;
/// Commands per round trip of a connection.
const BATCH: usize = 8;
/// Reclamation ends within this once writes have stopped.
const SETTLE: Duration = Duration::from_secs(3);

/// SETs of random sizes over a fixed key set, read back now and then; ends
/// with an account of the memory.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask soak", version)]
struct Arguments {
    /// How long to write.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The pool in MiB.
    #[arg(long, default_value_t = 1024)]
    memory_mib: u64,
    /// Keys that are overwritten.
    #[arg(long, default_value_t = 20_000)]
    keys: usize,
    /// Greatest value; sizes are spread evenly over the powers of two below.
    #[arg(long, default_value_t = 256 << 10)]
    value_bytes_max: usize,
    /// Connections, each with its own share of the keys.
    #[arg(long, default_value_t = 8)]
    connections: usize,
    /// Used memory may exceed live data by this share of it: size classes,
    /// headers, partly filled blocks.
    #[arg(long, default_value_t = 35)]
    overhead_percent: u64,
    /// And by so much whatever the data: the index, a block per class and worker.
    #[arg(long, default_value_t = 96)]
    overhead_mib: u64,
    /// Objects, in whole size classes, may exceed live data by this share of it.
    /// Ours alone.
    #[arg(long, default_value_t = 30)]
    object_overhead_percent: u64,
    /// Used memory may grow by this share of the pool in the second half.
    #[arg(long, default_value_t = 2)]
    growth_percent: u64,
    /// Start of the sequence of keys and sizes.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// gateway, redis or valkey.
    #[arg(long, default_value = "gateway", value_parser = Flavour::parse)]
    server: Flavour,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.connections == 0 || arguments.keys < arguments.connections {
        eprintln!("soak: there are at least one connection and one key for each");
        return ExitCode::FAILURE;
    }
    let faults = soak(&arguments);
    for fault in &faults {
        println!("FAILED: {fault}");
    }
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn soak(arguments: &Arguments) -> Vec<String> {
    let mut server = Server::start(
        arguments.server,
        &Options { memory_mib: Some(arguments.memory_mib), metrics: true, ..Options::default() },
    );
    let corpus = Random::new(arguments.seed).bytes(CORPUS_BYTES + arguments.value_bytes_max);
    let (over, sets) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut course = Vec::new();

    let live: u64 = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..arguments.connections)
            .map(|index| {
                let mut writer = Writer::new(arguments, index, &server, &corpus);
                let (over, sets) = (&over, &sets);
                scope.spawn(move || writer.run(over, sets))
            })
            .collect();
        course = watch(arguments, &server, &sets, || writers.iter().any(|w| w.is_finished()));
        over.store(true, Ordering::Relaxed);
        // A writer that found a fault has panicked and said why.
        writers.into_iter().map(|writer| writer.join().expect("a writer found a fault")).sum()
    });
    server.assert_running();
    std::thread::sleep(SETTLE);
    let used = used_memory(&mut Client::connect(&server));
    let bound = live * (100 + arguments.overhead_percent) / 100 + (arguments.overhead_mib << 20);
    let growth = growth(&course);
    let growth_bound = (arguments.memory_mib << 20) * arguments.growth_percent / 100;
    println!(
        "live {} MiB, used {} MiB ({:.2} of live, bound {} MiB), growth in the second half {} MiB, \
         {} SETs",
        live >> 20,
        used >> 20,
        used as f64 / live as f64,
        bound >> 20,
        growth >> 20,
        sets.load(Ordering::Relaxed),
    );
    let mut faults = Vec::new();
    if used < live {
        faults.push(format!("used memory of {used} B is less than the {live} B of live data"));
    }
    if used > bound {
        faults.push(format!("used memory of {used} B is over the bound of {bound} B"));
    }
    if growth > growth_bound {
        faults.push(format!("used memory grew by {growth} B in the second half"));
    }
    if let Some(address) = server.metrics_address() {
        let page = metrics::fetch(address).expect("it serves metrics");
        match metrics::sum(&page, "fusee_object_bytes", "") {
            Some(objects) => faults.extend(object_fault(arguments, live, objects as u64)),
            None => faults.push("there is no metric fusee_object_bytes".into()),
        }
    }
    faults
}

/// Objects hold the live data, rounded up to their classes, and nothing else.
fn object_fault(arguments: &Arguments, live: u64, objects: u64) -> Option<String> {
    let bound = live * (100 + arguments.object_overhead_percent) / 100;
    println!("objects {} MiB ({:.2} of live)", objects >> 20, objects as f64 / live as f64);
    (!(live..=bound).contains(&objects)).then(|| {
        format!("objects take {objects} B, live data are {live} B, and the bound is {bound} B")
    })
}

/// Samples used memory every second until the time is over.
fn watch(
    arguments: &Arguments,
    server: &Server,
    sets: &AtomicU64,
    a_writer_ended: impl Fn() -> bool,
) -> Vec<u64> {
    let mut client = Client::connect(server);
    let begin = Instant::now();
    let mut course = Vec::new();
    while begin.elapsed() < Duration::from_secs(arguments.seconds) && !a_writer_ended() {
        std::thread::sleep(Duration::from_secs(1));
        let used = used_memory(&mut client);
        course.push(used);
        if course.len() % 10 == 0 {
            println!(
                "{:5} s  used {:5} MiB  resident {:5} MiB  {:9} SETs",
                course.len(),
                used >> 20,
                process::resident_bytes(server.pid()).unwrap_or(0) >> 20,
                sets.load(Ordering::Relaxed),
            );
        }
    }
    course
}

/// How far the median of the last quarter lies above that of the third. Single
/// samples rise and fall by whole blocks.
fn growth(course: &[u64]) -> u64 {
    let quarter = course.len() / 4;
    let median = |samples: &[u64]| {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().unwrap_or(0)
    };
    median(&course[3 * quarter..]).saturating_sub(median(&course[2 * quarter..3 * quarter]))
}

fn used_memory(client: &mut Client) -> u64 {
    info_field(client, "memory", "used_memory")
        .and_then(|text| text.parse().ok())
        .expect("INFO memory tells used_memory")
}

/// One connection and the keys that only it writes.
struct Writer<'a> {
    client: Client,
    corpus: &'a [u8],
    random: Random,
    value_bytes_max: usize,
    keys: Vec<Key>,
}

struct Key {
    name: String,
    /// Where its value lies in the corpus, and how long it is.
    value: Option<(usize, usize)>,
}

impl<'a> Writer<'a> {
    fn new(arguments: &Arguments, index: usize, server: &Server, corpus: &'a [u8]) -> Self {
        let keys = (index..arguments.keys)
            .step_by(arguments.connections)
            .map(|number| Key { name: format!("soak:{number}"), value: None })
            .collect();
        Self {
            client: Client::connect(server),
            corpus,
            random: Random::new(arguments.seed + 1 + index as u64),
            value_bytes_max: arguments.value_bytes_max,
            keys,
        }
    }

    /// Writes until it is over, then verifies all keys; bytes of live data.
    fn run(&mut self, over: &AtomicBool, sets: &AtomicU64) -> u64 {
        while !over.load(Ordering::Relaxed) {
            self.write_batch();
            sets.fetch_add(BATCH as u64, Ordering::Relaxed);
            let chosen = self.random.below(self.keys.len());
            self.verify(chosen);
        }
        (0..self.keys.len()).for_each(|index| self.verify(index));
        let bytes = |key: &Key| key.value.map_or(0, |(_, size)| key.name.len() + size) as u64;
        self.keys.iter().map(bytes).sum()
    }

    fn write_batch(&mut self) {
        let mut requests = Vec::new();
        for _ in 0..BATCH {
            let size = self.size();
            let offset = self.random.below(CORPUS_BYTES);
            let chosen = self.random.below(self.keys.len());
            let key = &mut self.keys[chosen];
            key.value = Some((offset, size));
            let value = &self.corpus[offset..offset + size];
            push_command(&mut requests, &[b"SET", key.name.as_bytes(), value]);
        }
        self.client.send(&requests).expect("the server takes requests");
        for _ in 0..BATCH {
            assert_eq!(self.client.receive().expect("the server answers"), Reply::ok());
        }
    }

    fn verify(&mut self, index: usize) {
        let key = &self.keys[index];
        let expected = match key.value {
            Some((offset, size)) => Reply::bulk(&self.corpus[offset..offset + size]),
            None => Reply::Null,
        };
        let same = self.client.command(&["GET", &key.name]) == expected;
        assert!(same, "{} came back changed", key.name);
    }

    /// A size whose logarithm is spread evenly.
    fn size(&mut self) -> usize {
        let exponent = (self.value_bytes_max as f64).log2() * self.random.unit();
        (exponent.exp2() as usize).clamp(1, self.value_bytes_max)
    }
}
