//! What a memory node has been asked by clients, and what its process has used.

use fusee_layout::message::{Request, Response};
use std::fmt::Write as _;
use std::fs;

/// Names of the requests, in the order in which they are counted.
const REQUESTS: [&str; 8] =
    ["join", "leave", "expel", "recover", "allocate", "adopt", "offer", "return"];

/// How many requests were done, and how many refused, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Served([[u64; 2]; REQUESTS.len()]);

impl Served {
    pub(super) fn count(&mut self, request: &Request, response: &Response) {
        let kind = match request {
            Request::Join { .. } => 0,
            Request::Leave { .. } => 1,
            Request::Expel { .. } => 2,
            Request::Recover { .. } => 3,
            Request::Allocate { .. } => 4,
            Request::Adopt { .. } => 5,
            Request::Offer { .. } => 6,
            Request::Return { .. } => 7,
        };
        self.0[kind][usize::from(matches!(response, Response::Refused(_)))] += 1;
    }

    /// Appends the metric.
    pub(super) fn push(&self, text: &mut String) {
        let name = "mnd_requests_total";
        let help = "What clients and other memory nodes asked of this one, by kind and outcome.";
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} counter\n");
        for (request, [done, refused]) in REQUESTS.iter().zip(self.0) {
            for (outcome, count) in [("done", done), ("refused", refused)] {
                let _ =
                    writeln!(text, "{name}{{request=\"{request}\",outcome=\"{outcome}\"}} {count}");
            }
        }
    }
}

/// Appends what the process has used so far; nothing where there is no /proc.
pub(super) fn push_process(text: &mut String, uptime_s: u64) {
    let mut number = |name: &str, kind: &str, help: &str, value: f64| {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
    };
    number("mnd_uptime_seconds", "gauge", "Time since the start.", uptime_s as f64);
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name may hold anything but the last parenthesis. Times are in hundredths.
    let ticks = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let ticks: f64 =
        ticks.split_whitespace().skip(11).take(2).filter_map(|one| one.parse::<f64>().ok()).sum();
    let help =
        "Processor time of the process; one-sided verbs of RDMA and shared memory take none.";
    number("mnd_cpu_seconds_total", "counter", help, ticks / 100.0);
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = statm.split(' ').nth(1).and_then(|one| one.parse().ok()).unwrap_or(0.0);
    let help = "Memory of the process that is resident, the pool's as far as it was used.";
    number("mnd_resident_memory_bytes", "gauge", help, pages * 4096.0);
}
