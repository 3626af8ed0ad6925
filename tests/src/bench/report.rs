//! From windows to medians, ratios and a verdict.

use std::time::Duration;

use super::generator::{Window, latencies};
use super::workload::Workload;

/// A side that is on its processor for this share of the time is saturated.
const SATURATED: f64 = 0.95;

/// A window together with what it cost the server.
#[derive(Debug)]
pub struct Sample {
    /// What the generator saw.
    pub window: Window,
    /// What the server's threads spent on a processor meanwhile.
    pub server_cpu: Duration,
    /// How long they could have run, had the processor been theirs.
    pub server_waiting: Duration,
}

impl Sample {
    fn per_cpu_second(&self) -> f64 {
        self.window.operations as f64 / self.server_cpu.as_secs_f64()
    }

    fn per_second(&self) -> f64 {
        self.window.operations as f64 / self.window.elapsed.as_secs_f64()
    }

    fn server_share(&self) -> f64 {
        self.server_cpu.as_secs_f64() / self.window.elapsed.as_secs_f64()
    }

    fn generator_share(&self) -> f64 {
        self.window.generator_cpu.as_secs_f64() / self.window.elapsed.as_secs_f64()
    }
}

/// One server's samples of one workload.
struct Side {
    per_cpu_second: f64,
    per_second: f64,
    p50_us: u64,
    p99_us: u64,
    server_share: f64,
    generator_share: f64,
}

impl Side {
    fn of(samples: &[Sample]) -> Self {
        let mut latency_us = latencies();
        for sample in samples {
            latency_us.add(&sample.window.latency_us).expect("the bounds are the same");
        }
        let of = |what: fn(&Sample) -> f64| median(samples.iter().map(what).collect());
        Self {
            per_cpu_second: of(Sample::per_cpu_second),
            per_second: of(Sample::per_second),
            p50_us: latency_us.value_at_quantile(0.5),
            p99_us: latency_us.value_at_quantile(0.99),
            server_share: of(Sample::server_share),
            generator_share: of(Sample::generator_share),
        }
    }

    fn saturated(&self) -> &'static str {
        match (self.server_share >= SATURATED, self.generator_share >= SATURATED) {
            (true, true) => "both",
            (true, false) => "server",
            (false, true) => "generator",
            (false, false) => "neither",
        }
    }
}

/// Windows of one workload on two servers, taken in turns.
#[derive(Debug)]
pub struct Comparison {
    /// What was asked.
    pub workload: Workload,
    /// The server that sets the measure.
    pub baseline: Vec<Sample>,
    /// The server that is measured; as many samples.
    pub ours: Vec<Sample>,
}

impl Comparison {
    /// Median, least and greatest ratio of operations per server-CPU-second
    /// between neighbouring windows.
    pub fn ratio(&self) -> (f64, f64, f64) {
        let ratios: Vec<f64> = std::iter::zip(&self.ours, &self.baseline)
            .map(|(ours, baseline)| ours.per_cpu_second() / baseline.per_cpu_second())
            .collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = ratios.iter().copied().fold(0.0, f64::max);
        (median(ratios), least, greatest)
    }

    /// The greatest share of a window for which a server waited for its core.
    pub fn disturbance(&self) -> f64 {
        let samples = self.baseline.iter().chain(&self.ours);
        let shares = samples.map(|sample| {
            sample.server_waiting.as_secs_f64() / sample.window.elapsed.as_secs_f64()
        });
        shares.fold(0.0, f64::max)
    }

    /// Whether the gate of this row, if it has one, is reached.
    pub fn passes(&self) -> bool {
        self.workload.gate().is_none_or(|gate| self.ratio().0 >= gate)
    }
}

/// The head of the table of [`row`]s.
pub fn table_head(baseline: &str, ours: &str) -> String {
    format!(
        "{:<13} {:>24} {:>24} {:>20}   {:>20} {:>20}   {:<20} {}\n\
         {:<13} {:>24} {:>24} {:>20}   {:>20} {:>20}   {:<20}",
        "workload",
        baseline,
        ours,
        "ratio",
        "p50/p99 us",
        "p50/p99 us",
        "saturated",
        "gate",
        "",
        "k/cpu-s (k/s)",
        "k/cpu-s (k/s)",
        "median (least-most)",
        baseline,
        ours,
        "baseline/ours",
    )
}

/// One line of the table.
pub fn row(comparison: &Comparison) -> String {
    let (baseline, ours) = (Side::of(&comparison.baseline), Side::of(&comparison.ours));
    let (middle, least, greatest) = comparison.ratio();
    let rate =
        |side: &Side| format!("{:.0} ({:.0})", side.per_cpu_second / 1e3, side.per_second / 1e3);
    let latency = |side: &Side| format!("{}/{}", side.p50_us, side.p99_us);
    let gate = comparison.workload.gate().map_or_else(String::new, |gate| {
        format!("{gate}x {}", if comparison.passes() { "reached" } else { "MISSED" })
    });
    format!(
        "{:<13} {:>24} {:>24} {:>20}   {:>20} {:>20}   {:<20} {}",
        comparison.workload.label(),
        rate(&baseline),
        rate(&ours),
        format!("{middle:.2} ({least:.2}-{greatest:.2})"),
        latency(&baseline),
        latency(&ours),
        format!("{}/{}", baseline.saturated(), ours.saturated()),
        gate,
    )
}

/// All results for programs. Names must need no escaping.
pub fn json(baseline: &str, ours: &str, comparisons: &[Comparison]) -> String {
    let side = |samples: &[Sample]| {
        let side = Side::of(samples);
        let windows: Vec<String> =
            samples.iter().map(|sample| format!("{:.0}", sample.per_cpu_second())).collect();
        format!(
            "{{\"per_cpu_second\": {:.0}, \"per_second\": {:.0}, \"p50_us\": {}, \"p99_us\": {}, \
             \"server_cpu_share\": {:.3}, \"generator_cpu_share\": {:.3}, \"windows\": [{}]}}",
            side.per_cpu_second,
            side.per_second,
            side.p50_us,
            side.p99_us,
            side.server_share,
            side.generator_share,
            windows.join(", "),
        )
    };
    let rows: Vec<String> = comparisons
        .iter()
        .map(|comparison| {
            let (middle, least, greatest) = comparison.ratio();
            let gate = comparison.workload.gate().map_or("null".into(), |gate| gate.to_string());
            format!(
                "    {{\"workload\": \"{}\", \"ratio\": {middle:.3}, \"ratio_least\": {least:.3}, \
                 \"ratio_greatest\": {greatest:.3}, \"gate\": {gate}, \"passes\": {},\n     \
                 \"baseline\": {},\n     \"ours\": {}}}",
                comparison.workload.label(),
                comparison.passes(),
                side(&comparison.baseline),
                side(&comparison.ours),
            )
        })
        .collect();
    format!(
        "{{\n  \"baseline\": \"{baseline}\",\n  \"ours\": \"{ours}\",\n  \"rows\": [\n{}\n  ]\n}}\n",
        rows.join(",\n")
    )
}

pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::Verb;
    use super::*;

    fn sample(operations: u64, server_ms: u64, generator_ms: u64) -> Sample {
        let mut latency_us = latencies();
        latency_us.record(100).unwrap();
        Sample {
            window: Window {
                operations,
                elapsed: Duration::from_secs(1),
                generator_cpu: Duration::from_millis(generator_ms),
                latency_us,
            },
            server_cpu: Duration::from_millis(server_ms),
            server_waiting: Duration::from_millis(server_ms / 10),
        }
    }

    fn comparison(ours: [u64; 3]) -> Comparison {
        Comparison {
            workload: Workload { verb: Verb::Get, value_bytes: 64, pipeline: 16 },
            baseline: vec![sample(100, 1000, 500), sample(200, 1000, 500), sample(100, 1000, 500)],
            ours: Vec::from(ours.map(|operations| sample(operations, 500, 990))),
        }
    }

    #[test]
    fn ratio_pairs_neighbouring_windows_by_cpu_second() {
        // 150 in half a CPU-second are 300 a CPU-second.
        assert_eq!(comparison([150, 200, 100]).ratio(), (2.0, 2.0, 3.0));
    }

    #[test]
    fn gate_is_missed_below_and_reached_at_its_ratio() {
        assert!(comparison([150, 200, 100]).passes());
        assert!(!comparison([99, 198, 99]).passes());
    }

    #[test]
    fn waiting_for_the_core_is_a_disturbance() {
        assert_eq!(comparison([150, 200, 100]).disturbance(), 0.1);
    }

    #[test]
    fn saturated_side_is_named() {
        let line = row(&comparison([150, 200, 100]));
        assert!(line.contains("server/generator"), "{line}");
        assert!(line.contains("2.00 (2.00-3.00)"), "{line}");
        assert!(line.contains("2x reached"), "{line}");
    }

    #[test]
    fn median_of_an_even_number_lies_between() {
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
