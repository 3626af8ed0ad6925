//! Do gateways add up? What an operation costs when several gateways share a pool,
//! against one gateway that has it to itself.
#![expect(clippy::print_stdout, reason = "the table is what this is for")]

use std::time::Duration;

use super::report::median;
use super::{Cores, Generator, Keys, Window, Workload};
use crate::pool::{Pool, PoolOptions};
use crate::process::{self, Share};
use crate::server::{Options, Server};

/// Operations per server-CPU-second of several gateways against one: below this
/// they do not add up.
const RATIO_MIN: f64 = 0.85;

/// Pools with different numbers of gateways.
#[derive(Clone, Copy, Debug)]
pub struct Gateways<'a> {
    /// Gateways of each pool; the first pool sets the measure.
    pub counts: &'a [usize],
    /// How they reach the memory.
    pub fabric: &'static str,
    /// Memory of each pool's only node.
    pub memory_mib: u64,
    /// Connections to each pool.
    pub connections: usize,
    /// Windows per pool and row.
    pub windows: usize,
    /// How long each is.
    pub window: Duration,
    /// Flags for the gateways.
    pub flags: &'a [String],
}

impl Gateways<'_> {
    /// Runs all rows and prints them; false if a gate was missed.
    ///
    /// # Errors
    /// If a server fails, or a number makes no sense.
    pub fn run(&self, rows: &[Workload], keys: &Keys, cores: &Cores) -> Result<bool, String> {
        if self.windows == 0 || self.counts.contains(&0) {
            return Err("windows and gateways are at least 1".into());
        }
        if self.connections < self.counts.iter().copied().max().unwrap_or(0) {
            return Err("there is a connection to each gateway at least".into());
        }
        println!(
            "{:<11} {:>8} {:>10} {:>8} {:>14} {:>10} {:>8}   {:<20} gate",
            "workload",
            "gateways",
            "k/cpu-s",
            "k/s",
            "gateways' cpu",
            "mnd's cpu",
            "p99 us",
            "ratio"
        );
        let mut all_pass = true;
        for &workload in rows {
            let mut sides = Vec::new();
            for &count in self.counts {
                sides.push(Side::start(self, count, keys, cores, workload.value_bytes)?);
            }
            // Sockets, caches and branch predictors get used to the row.
            for side in &mut sides {
                side.sample(&workload, self.window.mul_f64(0.3))?;
            }
            for turn in 0..self.windows {
                // Who goes first changes, so that a drift of the machine favours nobody.
                let first = turn % sides.len();
                let order = 0..sides.len();
                for index in order.map(|index| (first + index) % self.counts.len()) {
                    let sample = sides[index].sample(&workload, self.window)?;
                    sides[index].samples.push(sample);
                }
            }
            for side in &sides {
                all_pass &= side.print(&sides[0], &workload);
            }
        }
        Ok(all_pass)
    }
}

/// A pool with its gateways, all keys in place.
struct Side<'a> {
    // Dropped in this order.
    generator: Generator<'a>,
    gateways: Vec<Server>,
    pool: Pool,
    samples: Vec<Sample>,
}

struct Sample {
    window: Window,
    gateways_cpu: Duration,
    nodes_cpu: Duration,
}

impl Sample {
    fn per_cpu_second(&self) -> f64 {
        self.window.operations as f64 / (self.gateways_cpu + self.nodes_cpu).as_secs_f64()
    }

    fn per_second(&self) -> f64 {
        self.window.operations as f64 / self.window.elapsed.as_secs_f64()
    }

    fn share(&self, cpu: Duration) -> f64 {
        cpu.as_secs_f64() / self.window.elapsed.as_secs_f64()
    }
}

impl<'a> Side<'a> {
    fn start(
        setting: &Gateways<'_>,
        count: usize,
        keys: &'a Keys,
        cores: &Cores,
        value_bytes: usize,
    ) -> Result<Self, String> {
        cores.server()?;
        let memory_mib = setting.memory_mib;
        let pool = Pool::start(&PoolOptions {
            fabric: setting.fabric,
            nodes: 1,
            memory_mib,
            ..PoolOptions::default()
        });
        let options = Options {
            workers: Some(1),
            gateway_flags: setting.flags.to_vec(),
            ..Options::default()
        };
        let gateways: Vec<_> = (0..count).map(|_| pool.gateway_with(&options)).collect();
        cores.generator()?;
        let addresses: Vec<_> = gateways.iter().map(Server::address).collect();
        let failed = |error: &dyn std::fmt::Display| format!("{count} gateways: {error}");
        let mut generator = Generator::connect(&addresses, setting.connections, keys)
            .map_err(|error| failed(&error))?;
        generator.load(value_bytes).map_err(|error| failed(&error))?;
        Ok(Self { generator, gateways, pool, samples: Vec::new() })
    }

    fn sample(&mut self, workload: &Workload, time: Duration) -> Result<Sample, String> {
        let before = (self.gateways_share()?, self.nodes_share()?);
        let window = self.generator.run(workload, time).map_err(|error| {
            let logs: Vec<_> = self.gateways.iter().map(Server::log_tail).collect();
            format!("{}: {error}\n{}", workload.label(), logs.join("\n"))
        })?;
        let after = (self.gateways_share()?, self.nodes_share()?);
        let spent =
            |before: Share, after: Share| Duration::from_nanos(after.cpu_ns - before.cpu_ns);
        Ok(Sample {
            window,
            gateways_cpu: spent(before.0, after.0),
            nodes_cpu: spent(before.1, after.1),
        })
    }

    fn gateways_share(&self) -> Result<Share, String> {
        sum(self.gateways.iter().map(Server::pid))
    }

    fn nodes_share(&self) -> Result<Share, String> {
        sum(self.pool.pids())
    }

    /// Prints a line; false if it misses its gate.
    fn print(&self, measure: &Self, workload: &Workload) -> bool {
        let of = |what: &dyn Fn(&Sample) -> f64| median(self.samples.iter().map(what).collect());
        let ratios: Vec<f64> = std::iter::zip(&self.samples, &measure.samples)
            .map(|(ours, theirs)| ours.per_cpu_second() / theirs.per_cpu_second())
            .collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = ratios.iter().copied().fold(0.0, f64::max);
        let middle = median(ratios);
        let passes = middle >= RATIO_MIN;
        let p99 = of(&|sample| sample.window.latency_us.value_at_quantile(0.99) as f64);
        let (ratio, gate) = if std::ptr::eq(self, measure) {
            (String::new(), String::new())
        } else {
            let verdict = if passes { "reached" } else { "MISSED" };
            (format!("{middle:.2} ({least:.2}-{greatest:.2})"), format!("{RATIO_MIN}x {verdict}"))
        };
        println!(
            "{:<11} {:>8} {:>10.0} {:>8.0} {:>14.3} {:>10.3} {p99:>8.0}   {ratio:<20} {gate}",
            workload.label(),
            self.gateways.len(),
            of(&Sample::per_cpu_second) / 1e3,
            of(&Sample::per_second) / 1e3,
            of(&|sample| sample.share(sample.gateways_cpu)),
            of(&|sample| sample.share(sample.nodes_cpu)),
        );
        passes
    }
}

fn sum(pids: impl Iterator<Item = rustix::process::Pid>) -> Result<Share, String> {
    pids.map(process::share).try_fold(Share::default(), |sum, share| {
        let share = share.map_err(|error| error.to_string())?;
        Ok(Share {
            cpu_ns: sum.cpu_ns + share.cpu_ns,
            waiting_ns: sum.waiting_ns + share.waiting_ns,
        })
    })
}
