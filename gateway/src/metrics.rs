//! Metrics in Prometheus's text format.
//!
//! What is counted while serving lives in the workers' own arrays and is summed
//! here when somebody asks: a histogram of the `metrics` crate that is looked up
//! by name costs 270 ns a sample and keeps every sample until its upkeep runs.
//! What happens rarely goes through `metrics` and is rendered beside it.

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use crate::command::info::{cpu_seconds, resident_bytes};
use crate::command::table::COMMANDS;
use crate::phase::Phase;
use crate::reply::ErrorKind;
use crate::shared::{Shared, VERSION};
use crate::stats::{Counter, LATENCY_NS, ROUND_TRIPS_MAX, WorkerStats};

/// A metric with all its series.
#[derive(Clone, Debug)]
pub struct Family {
    /// With its unit at the end, `_total` for a counter.
    pub name: &'static str,
    /// What it means.
    pub help: &'static str,
    /// What it is.
    pub kind: Kind,
    /// By labels.
    pub series: Vec<Series>,
}

/// What a metric is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts values by size.
    Histogram,
}

/// One series of a metric.
#[derive(Clone, Debug)]
pub struct Series {
    /// Names and values. Never a key, an address of a client or an error's text.
    pub labels: Vec<(&'static str, String)>,
    /// The value now.
    pub value: Value,
}

/// The value of a series.
#[derive(Clone, Debug)]
pub enum Value {
    /// Of a counter or gauge.
    Number(f64),
    /// Of a histogram.
    Histogram {
        /// The upper ends of all buckets but the last, which is open.
        bounds: Vec<f64>,
        /// Values in each bucket alone, one more than `bounds`.
        counts: Vec<u64>,
        /// The sum of the values.
        sum: f64,
    },
}

/// What the `metrics` crate gathers in this process, here and in the store.
///
/// Histograms are drained when they are rendered, so an endpoint that nobody
/// asks would let them grow; whoever has a timer calls `run_upkeep`.
pub(crate) fn recorded() -> &'static PrometheusHandle {
    static RECORDED: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDED.get_or_init(|| {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("metrics are recorded elsewhere: some are missing here");
        }
        metrics::describe_counter!("gateway_accept_errors_total", ACCEPT_ERRORS);
        // A rate needs the 0 before the first error.
        metrics::counter!("gateway_accept_errors_total").increment(0);
        metrics::describe_counter!(
            "gateway_scrapes_total",
            "Times that these metrics were asked for."
        );
        crate::mesh::describe_metrics();
        handle
    })
}

const ACCEPT_ERRORS: &str = "Connections that the system did not hand over, as when files run out.";

/// Where further metrics come from when somebody asks: the store's.
pub type Source = Arc<dyn Fn() -> Vec<Family> + Send + Sync>;

/// What there is to tell beside what the gateway itself sees.
pub struct Beside {
    /// Further metrics.
    pub sources: Vec<Source>,
    /// Why the gateway cannot serve clients at the moment, if so.
    pub trouble: Arc<dyn Fn() -> Option<String> + Send + Sync>,
}

impl From<Vec<Source>> for Beside {
    fn from(sources: Vec<Source>) -> Self {
        Self { sources, trouble: Arc::new(|| None) }
    }
}

impl Family {
    /// A metric without labels.
    pub fn number(name: &'static str, help: &'static str, kind: Kind, value: f64) -> Self {
        let series = vec![Series { labels: Vec::new(), value: Value::Number(value) }];
        Self { name, help, kind, series }
    }
}

/// Everything that the gateway itself counts.
pub(crate) fn gateway(shared: &Shared) -> Vec<Family> {
    let workers = &shared.stats;
    let sum = |read: fn(&WorkerStats) -> &Counter| -> f64 {
        workers.iter().map(|worker| read(worker).get()).sum::<u64>() as f64
    };
    let counter = |name, help, read: fn(&WorkerStats) -> &Counter| {
        Family::number(name, help, Kind::Counter, sum(read))
    };
    let gauge = |name, help, read: fn(&WorkerStats) -> &Counter| {
        Family::number(name, help, Kind::Gauge, sum(read))
    };
    let [user, system] = cpu_seconds();
    let mut families = vec![
        Family {
            name: "gateway_build_info",
            help: "1, with the version as a label.",
            kind: Kind::Gauge,
            series: vec![Series {
                labels: vec![("version", VERSION.to_owned())],
                value: Value::Number(1.0),
            }],
        },
        Family::number(
            "gateway_uptime_seconds",
            "Time since the start.",
            Kind::Gauge,
            shared.uptime_s() as f64,
        ),
        Family::number(
            "gateway_workers",
            "Threads that serve clients.",
            Kind::Gauge,
            workers.len() as f64,
        ),
        Family::number(
            "gateway_cpu_seconds_total",
            "Processor time of the process.",
            Kind::Counter,
            user + system,
        ),
        Family::number(
            "gateway_resident_memory_bytes",
            "Memory of the process that is resident.",
            Kind::Gauge,
            resident_bytes() as f64,
        ),
        Family::number(
            "gateway_connections",
            "Clients connected now.",
            Kind::Gauge,
            shared.clients.count() as f64,
        ),
        Family::number(
            "gateway_connections_max",
            "Clients that may be connected at a time.",
            Kind::Gauge,
            shared.settings.max_clients() as f64,
        ),
        counter("gateway_connections_accepted_total", "Connections accepted.", |w| &w.connections),
        counter(
            "gateway_connections_rejected_total",
            "Connections turned away because there were too many.",
            |w| &w.connections_rejected,
        ),
        counter(
            "gateway_idle_connections_closed_total",
            "Connections closed after the idle timeout.",
            |w| &w.idle_closed,
        ),
        counter(
            "gateway_slow_readers_closed_total",
            "Connections closed because they did not read their replies.",
            |w| &w.slow_reader_closed,
        ),
        counter(
            "gateway_output_stalls_total",
            "Times that a client was not read from because its replies waited.",
            |w| &w.output_stalls,
        ),
        counter(
            "gateway_killed_total",
            "Connections closed by CLIENT KILL, or because they did not take their messages.",
            |w| &w.killed,
        ),
        counter(
            "gateway_protocol_errors_total",
            "Connections closed because what they sent was no request.",
            |w| &w.protocol_errors,
        ),
        counter("gateway_received_bytes_total", "Bytes read from clients.", |w| &w.bytes_in),
        counter("gateway_sent_bytes_total", "Bytes written to clients.", |w| &w.bytes_out),
        gauge(
            "gateway_input_buffer_bytes",
            "Room for requests that have not arrived whole.",
            |w| &w.input_bytes,
        ),
        gauge("gateway_output_buffer_bytes", "Replies that wait for their clients to read.", |w| {
            &w.output_bytes
        }),
        gauge(
            "gateway_message_buffer_bytes",
            "Published messages that wait for their subscribers.",
            |w| &w.message_bytes,
        ),
        worker_cpu(),
        counter("gateway_batches_total", "Batches of requests that were run together.", |w| {
            &w.batches
        }),
        counter("gateway_read_hits_total", "Keys that a reading command found.", |w| &w.hits),
        counter("gateway_read_misses_total", "Keys that a reading command did not find.", |w| {
            &w.misses
        }),
        errors(workers),
        slow(workers),
    ];
    families.extend(commands(workers));
    families
}

/// A worker is one thread, so the busiest one is what a gateway's limit shows in first.
fn worker_cpu() -> Family {
    let series = threads()
        .filter_map(|(name, cpu_ns)| {
            let worker = name.strip_prefix("worker-")?.to_owned();
            Some(Series {
                labels: vec![("worker", worker)],
                value: Value::Number(cpu_ns as f64 / 1e9),
            })
        })
        .collect();
    Family {
        name: "gateway_worker_cpu_seconds_total",
        help: "Processor time of each thread that serves clients.",
        kind: Kind::Counter,
        series,
    }
}

/// Names of this process's threads, and the processor time of each in nanoseconds; none
/// where there is no /proc.
fn threads() -> impl Iterator<Item = (String, u64)> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks.filter_map(|task| {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let schedstat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        let cpu_ns = schedstat.split(' ').next()?.parse().ok()?;
        Some((name.trim_end().to_owned(), cpu_ns))
    })
}

fn errors(workers: &[Arc<WorkerStats>]) -> Family {
    let series = ErrorKind::ALL.map(|kind| {
        let count: u64 = workers.iter().map(|worker| worker.errors[kind as usize].get()).sum();
        Series {
            labels: vec![("kind", kind.prefix().to_owned())],
            value: Value::Number(count as f64),
        }
    });
    Family {
        name: "gateway_error_replies_total",
        help: "Error replies by the word they begin with.",
        kind: Kind::Counter,
        series: series.into(),
    }
}

fn slow(workers: &[Arc<WorkerStats>]) -> Family {
    let series = Phase::ALL.map(|phase| {
        let count: u64 = workers.iter().map(|worker| worker.slow[phase as usize].get()).sum();
        Series {
            labels: vec![("phase", phase.name().to_owned())],
            value: Value::Number(count as f64),
        }
    });
    Family {
        name: "gateway_slow_commands_total",
        help: "Commands that took longer than slowlog-log-slower-than, by what took longest: \
               others of the pipeline before them (queue), the processor (run), memory nodes \
               (fabric), other clients in the way (conflict); and times that a client did not \
               read its replies for as long (reply).",
        kind: Kind::Counter,
        series: series.into(),
    }
}

/// The three metrics of each command that was called.
fn commands(workers: &[Arc<WorkerStats>]) -> [Family; 3] {
    let mut latency = Vec::new();
    let mut round_trips = Vec::new();
    let mut failed = Vec::new();
    for (id, command) in COMMANDS.iter().enumerate() {
        let of = || workers.iter().map(|worker| &worker.commands[id]);
        let labels = || vec![("command", command.name.to_owned())];
        let failures: u64 = of().map(|stats| stats.failed.get()).sum();
        let counts = sum_buckets(of().map(|stats| &stats.latency));
        if failures > 0 {
            failed.push(Series { labels: labels(), value: Value::Number(failures as f64) });
        }
        if counts.iter().all(|count| *count == 0) {
            continue;
        }
        let ns: u64 = of().map(|stats| stats.latency_ns.get()).sum();
        latency.push(Series {
            labels: labels(),
            value: Value::Histogram {
                bounds: LATENCY_NS.iter().map(|ns| *ns as f64 / 1e9).collect(),
                counts,
                sum: ns as f64 / 1e9,
            },
        });
        let trips: u64 = of().map(|stats| stats.round_trips_sum.get()).sum();
        round_trips.push(Series {
            labels: labels(),
            value: Value::Histogram {
                bounds: (0..=ROUND_TRIPS_MAX).map(|trips| trips as f64).collect(),
                counts: sum_buckets(of().map(|stats| &stats.round_trips)),
                sum: trips as f64,
            },
        });
    }
    [
        Family {
            name: "gateway_command_duration_seconds",
            help: "From the read of a batch of requests to its replies, for each command in it.",
            kind: Kind::Histogram,
            series: latency,
        },
        Family {
            name: "gateway_command_round_trips",
            help: "Round trips to memory that a command waited for; a pipeline of reads shares them.",
            kind: Kind::Histogram,
            series: round_trips,
        },
        Family {
            name: "gateway_failed_commands_total",
            help: "Commands that were answered by an error.",
            kind: Kind::Counter,
            series: failed,
        },
    ]
}

fn sum_buckets<'a, const N: usize>(arrays: impl Iterator<Item = &'a [Counter; N]>) -> Vec<u64> {
    let mut sums = vec![0; N];
    for array in arrays {
        for (sum, counter) in sums.iter_mut().zip(array) {
            *sum += counter.get();
        }
    }
    sums
}

/// Writes families in Prometheus's text format.
pub fn render(families: &[Family]) -> String {
    let mut text = String::new();
    for family in families.iter().filter(|family| !family.series.is_empty()) {
        let Family { name, help, kind, .. } = family;
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for series in &family.series {
            render_series(name, series, &mut text);
        }
    }
    text
}

fn render_series(name: &str, series: &Series, text: &mut String) {
    let mut labels = String::new();
    for (name, value) in &series.labels {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let comma = if labels.is_empty() { "" } else { "," };
        let _ = write!(labels, "{comma}{name}=\"{value}\"");
    }
    let braces = |labels: &str| {
        if labels.is_empty() { String::new() } else { format!("{{{labels}}}") }
    };
    match &series.value {
        Value::Number(value) => {
            let _ = writeln!(text, "{name}{} {value}", braces(&labels));
        }
        Value::Histogram { bounds, counts, sum } => {
            let comma = if labels.is_empty() { "" } else { "," };
            let mut count = 0;
            let ends = bounds.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
            for (end, bucket) in ends.zip(counts) {
                count += bucket;
                let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{end}\"}} {count}");
            }
            let labels = braces(&labels);
            let _ = write!(text, "{name}_sum{labels} {sum}\n{name}_count{labels} {count}\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_render_as_prometheus_reads_them() {
        let families = [
            Family::number("a_total", "Counts a.", Kind::Counter, 3.0),
            Family {
                name: "b_seconds",
                help: "Times b.",
                kind: Kind::Histogram,
                series: vec![Series {
                    labels: vec![("command", "g\"et".to_owned())],
                    value: Value::Histogram {
                        bounds: vec![0.001, 1.0],
                        counts: vec![1, 2, 3],
                        sum: 4.5,
                    },
                }],
            },
            Family { name: "none", help: "", kind: Kind::Gauge, series: Vec::new() },
        ];
        assert_eq!(
            render(&families),
            "# HELP a_total Counts a.\n# TYPE a_total counter\na_total 3\n\
             # HELP b_seconds Times b.\n# TYPE b_seconds histogram\n\
             b_seconds_bucket{command=\"g\\\"et\",le=\"0.001\"} 1\n\
             b_seconds_bucket{command=\"g\\\"et\",le=\"1\"} 3\n\
             b_seconds_bucket{command=\"g\\\"et\",le=\"+Inf\"} 6\n\
             b_seconds_sum{command=\"g\\\"et\"} 4.5\nb_seconds_count{command=\"g\\\"et\"} 6\n"
        );
    }
}
