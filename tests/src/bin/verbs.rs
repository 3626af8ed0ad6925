//! The verbs fabric on a real RDMA device.
//!
//! `verbs devices` tells what there is; `verbs check` runs all checks, `verbs latency`
//! measures, against nodes of its own or those at `--node HOST:PORT` (given as often
//! as there are nodes), where `verbs serve HOST:PORT` runs.

use clap::{Parser, Subcommand};
use fusee_fabric::verbs::{Device, DeviceChoice, VerbsConfig, devices};
use std::net::{IpAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tests::verbs::peer::{Peer, Peers, Server};
use tests::verbs::{conformance, failures, latency};

#[derive(Parser)]
#[command(about = "Checks and measures the verbs fabric on an RDMA device.")]
struct Arguments {
    /// Name of the device; otherwise the first that can be used.
    #[arg(long, global = true)]
    device: Option<String>,
    /// The local address that peers reach it at; otherwise its first.
    #[arg(long, global = true)]
    address: Option<IpAddr>,
    /// A node where this program serves; otherwise two nodes in this process.
    #[arg(long, global = true)]
    node: Vec<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Tell what devices there are.
    Devices,
    /// Be a memory node.
    Serve {
        /// Where to listen.
        listen: String,
    },
    /// Run all checks.
    Check,
    /// READ from all nodes until one is down.
    UntilDown,
    /// Measure.
    Latency {
        /// How often.
        #[arg(long, default_value_t = 5000)]
        rounds: usize,
        /// Microseconds of polling before the worker sleeps.
        #[arg(long)]
        spin_us: Option<u64>,
        /// Milliseconds without a completion after which a node is down.
        #[arg(long)]
        deadline_ms: Option<u64>,
        /// Verbs of 64 KiB to 8 MiB.
        #[arg(long)]
        large: bool,
    },
}

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).without_time().init();
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "it is what the program is for")]
fn run(arguments: &Arguments) -> Result<(), String> {
    let choice = DeviceChoice { name: arguments.device.clone(), address: arguments.address };
    match &arguments.command {
        Command::Devices => {
            for device in devices().map_err(|e| e.to_string())? {
                println!("{device:#?}");
            }
            Ok(())
        }
        Command::Serve { listen } => {
            let device = Device::choose(&choice).map_err(|e| e.to_string())?;
            let listener = TcpListener::bind(listen).map_err(|e| format!("{listen}: {e}"))?;
            println!("serving by {device}");
            Server::new(&device)?.serve(&listener)
        }
        Command::Check => {
            let peers = peers(arguments, &choice)?;
            let mut failed = 0;
            let checks = conformance::CHECKS.iter().chain(failures::CHECKS);
            for (name, check) in checks {
                failed += u32::from(!passes(name, || check(&peers)));
            }
            if failed == 0 { Ok(()) } else { Err(format!("{failed} checks failed")) }
        }
        Command::UntilDown => {
            let peers = peers(arguments, &choice)?;
            let (node, took) = failures::until_down(&peers, || println!("all are up"));
            println!("node {node} is down after {} ms", took.as_millis());
            Ok(())
        }
        Command::Latency { rounds, spin_us, deadline_ms, large } => {
            let peers = peers(arguments, &choice)?;
            let mut config = VerbsConfig::default();
            if let Some(spin_us) = spin_us {
                config.spin = Duration::from_micros(*spin_us);
            }
            if let Some(deadline_ms) = deadline_ms {
                config.deadline = Duration::from_millis(*deadline_ms);
            }
            println!("{:<36} {:>8} {:>8} {:>8} {:>9}", "us", "min", "p50", "p99", "max");
            for (name, took) in latency::measure(&peers, config, *rounds, *large) {
                let latency::Latency { min, p50, p99, max } = took;
                println!("{name:<36} {min:>8.1} {p50:>8.1} {p99:>8.1} {max:>9.1}");
            }
            Ok(())
        }
    }
}

fn peers(arguments: &Arguments, choice: &DeviceChoice) -> Result<Peers, String> {
    let device = Device::choose(choice).map_err(|e| e.to_string())?;
    let nodes = if arguments.node.is_empty() {
        (0..2).map(|_| Server::new(&device).map(Peer::Here)).collect::<Result<_, _>>()?
    } else {
        arguments.node.iter().map(|node| Peer::there(node)).collect::<Result<_, _>>()?
    };
    Ok(Peers::new(device, nodes))
}

#[expect(clippy::print_stdout, reason = "it is what the program is for")]
fn passes(name: &str, check: impl FnOnce()) -> bool {
    let started = Instant::now();
    let passed = catch_unwind(AssertUnwindSafe(check)).is_ok();
    let told = if passed { "ok" } else { "FAILED" };
    println!("{told:<6} {name} ({} ms)", started.elapsed().as_millis());
    passed
}
