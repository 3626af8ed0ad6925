//! Measures our gateway against redis-server in alternating windows.
#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tests::bench::{
    Comparison, Cores, Gateways, Generator, Keys, Sample, Workload, json, row, table_head,
};
use tests::process;
use tests::server::{Flavour, Options, Server};

/// A server that waits longer for its core does not have it to itself.
const DISTURBANCE_MAX: f64 = 0.05;

/// Operations per second of server CPU, GET and SET, against redis-server.
///
/// The servers share one core and take turns; the generator has another. The
/// number that counts is the ratio of operations per server-CPU-second between
/// neighbouring windows: it stays true when the generator is the slower side.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask bench", version)]
struct Arguments {
    /// Run only this row, as VERB:BYTES:PIPELINE; may be given several times.
    #[arg(long, value_name = "ROW", value_parser = Workload::parse)]
    only: Vec<Workload>,
    /// Windows per server and row.
    #[arg(long, default_value_t = 7)]
    windows: usize,
    /// Length of a window.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Distinct keys.
    #[arg(long, default_value_t = 1_000_000)]
    keys: usize,
    /// Connections to each server.
    #[arg(long, default_value_t = 50)]
    connections: usize,
    /// The server that sets the measure: redis, valkey or gateway.
    #[arg(long, default_value = "redis", value_parser = Flavour::parse)]
    baseline: Flavour,
    /// The server that is measured; `redis` shows how far equals spread.
    #[arg(long, default_value = "gateway", value_parser = Flavour::parse)]
    ours: Flavour,
    /// Pool of our gateway in MiB; four times what the keys take if it is not given, and
    /// at least 1024.
    #[arg(long)]
    memory_mib: Option<u64>,
    /// Instead of comparing with another server, compare pools with so many gateways
    /// each, as in 1,2: what the first costs sets the measure.
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', num_args = 1..)]
    gateways: Vec<usize>,
    /// How those gateways reach their memory: shm or tcp.
    #[arg(long, default_value = "shm", value_parser = ["shm", "tcp"])]
    fabric: String,
    /// A flag for our gateway; may be given several times.
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    gateway_flag: Vec<String>,
    /// Also write the results here.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(2),
        Err(message) => {
            eprintln!("bench: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Runs all rows; false if a gate was missed.
fn run(arguments: &Arguments) -> Result<bool, String> {
    if !arguments.gateways.is_empty() {
        return run_gateways(arguments);
    }
    for flavour in [arguments.baseline, arguments.ours] {
        if !flavour.is_installed() {
            return Err(format!("{} is not installed or not built", flavour.name()));
        }
    }
    if arguments.windows == 0 || arguments.keys == 0 || arguments.connections == 0 {
        return Err("windows, keys and connections are at least 1".into());
    }
    let window = Duration::try_from_secs_f64(arguments.seconds)
        .map_err(|error| format!("--seconds: {error}"))?;
    let rows = if arguments.only.is_empty() { Workload::all() } else { arguments.only.clone() };
    let cores = Cores::choose()?;
    let name = |flavour: Flavour| format!("{} {}", flavour.name(), flavour.version());
    let (baseline, ours) = (name(arguments.baseline), name(arguments.ours));
    println!(
        "{} keys, {} connections, one worker, {} windows of {} s a server in turns, {cores}\n",
        arguments.keys, arguments.connections, arguments.windows, arguments.seconds
    );
    println!("{}", table_head(&baseline, &ours));

    let keys = Keys::new(arguments.keys);
    let mut comparisons = Vec::new();
    let mut sizes: Vec<usize> = rows.iter().map(|row| row.value_bytes).collect();
    sizes.dedup();
    for value_bytes in sizes {
        let mut pair = Pair::start(arguments, &cores, &keys, value_bytes)?;
        for &workload in rows.iter().filter(|row| row.value_bytes == value_bytes) {
            let comparison = pair.compare(workload, arguments.windows, window)?;
            println!("{}", row(&comparison));
            comparisons.push(comparison);
        }
    }
    let disturbance = comparisons.iter().map(Comparison::disturbance).fold(0.0, f64::max);
    if disturbance > DISTURBANCE_MAX {
        println!(
            "\nOther programs ran on the servers' core: a server waited for it {:.0} % of a \
             window. Latencies mean little, and ratios spread more than they should.",
            disturbance * 100.0
        );
    }
    if let Some(file) = &arguments.json {
        std::fs::write(file, json(&baseline, &ours, &comparisons))
            .map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(comparisons.iter().all(Comparison::passes))
}

fn run_gateways(arguments: &Arguments) -> Result<bool, String> {
    let rows = if arguments.only.is_empty() {
        ["get:64:16", "set:64:16"].map(Workload::parse).into_iter().collect::<Result<_, _>>()?
    } else {
        arguments.only.clone()
    };
    let window = Duration::try_from_secs_f64(arguments.seconds)
        .map_err(|error| format!("--seconds: {error}"))?;
    let cores = Cores::choose()?;
    println!(
        "{} keys, {} connections, one worker a gateway, {} windows of {} s a pool in turns, {}, \
         {cores}\n",
        arguments.keys,
        arguments.connections,
        arguments.windows,
        arguments.seconds,
        arguments.fabric,
    );
    let keys = Keys::new(arguments.keys);
    Gateways {
        counts: &arguments.gateways,
        fabric: if arguments.fabric == "tcp" { "tcp" } else { "shm" },
        memory_mib: arguments.memory_mib(rows.iter().map(|row| row.value_bytes).max().unwrap_or(0)),
        connections: arguments.connections,
        windows: arguments.windows,
        window,
        flags: &arguments.gateway_flag,
    }
    .run(&rows, &keys, &cores)
}

impl Arguments {
    /// In a pool much larger than its keys their slots lie far apart, which costs cache misses
    /// that a pool in use does not have.
    fn memory_mib(&self, value_bytes: usize) -> u64 {
        let object_bytes = (value_bytes + OBJECT_OVERHEAD_BYTES) as u64;
        let enough = (4 * self.keys as u64 * object_bytes) >> 20;
        self.memory_mib.unwrap_or_else(|| enough.max(1024))
    }
}

/// Bytes of an object besides its value, its key among them.
const OBJECT_OVERHEAD_BYTES: usize = 64;

/// Both servers with all keys in place.
struct Pair<'a> {
    baseline: Side<'a>,
    ours: Side<'a>,
}

struct Side<'a> {
    generator: Generator<'a>,
    server: Server,
}

impl<'a> Pair<'a> {
    fn start(
        arguments: &Arguments,
        cores: &Cores,
        keys: &'a Keys,
        value_bytes: usize,
    ) -> Result<Self, String> {
        let start = |flavour: Flavour| -> Result<Side<'a>, String> {
            cores.server()?;
            let options = Options {
                // Redis's own limit would only add its eviction check.
                memory_mib: (flavour == Flavour::Gateway)
                    .then(|| arguments.memory_mib(value_bytes)),
                workers: Some(1),
                gateway_flags: arguments.gateway_flag.clone(),
                ..Options::default()
            };
            let server = Server::start(flavour, &options);
            cores.generator()?;
            let mut generator =
                Generator::connect(&[server.address()], arguments.connections, keys)
                    .map_err(|error| format!("{}: {error}", flavour.name()))?;
            generator.load(value_bytes).map_err(|error| format!("{}: {error}", flavour.name()))?;
            Ok(Side { generator, server })
        };
        Ok(Self { baseline: start(arguments.baseline)?, ours: start(arguments.ours)? })
    }

    fn compare(
        &mut self,
        workload: Workload,
        windows: usize,
        time: Duration,
    ) -> Result<Comparison, String> {
        let mut comparison = Comparison { workload, baseline: Vec::new(), ours: Vec::new() };
        // Sockets, caches and branch predictors get used to the row.
        for side in [&mut self.baseline, &mut self.ours] {
            side.sample(&workload, time.mul_f64(0.3))?;
        }
        for turn in 0..windows {
            // Who goes first changes, so that a drift of the machine favours nobody.
            if turn % 2 == 0 {
                comparison.baseline.push(self.baseline.sample(&workload, time)?);
                comparison.ours.push(self.ours.sample(&workload, time)?);
            } else {
                comparison.ours.push(self.ours.sample(&workload, time)?);
                comparison.baseline.push(self.baseline.sample(&workload, time)?);
            }
        }
        Ok(comparison)
    }
}

impl Side<'_> {
    fn sample(&mut self, workload: &Workload, time: Duration) -> Result<Sample, String> {
        let name = self.server.flavour().name();
        let failed = |error: String| format!("{name}, {}: {error}", workload.label());
        let share = |server: &Server| {
            process::share(server.pid()).map_err(|error| failed(error.to_string()))
        };
        let before = share(&self.server)?;
        let window = match self.generator.run(workload, time) {
            Ok(window) => window,
            Err(error) => return Err(format!("{}\n{}", failed(error), self.server.log_tail())),
        };
        let after = share(&self.server)?;
        Ok(Sample {
            window,
            server_cpu: Duration::from_nanos(after.cpu_ns - before.cpu_ns),
            server_waiting: Duration::from_nanos(after.waiting_ns - before.waiting_ns),
        })
    }
}
