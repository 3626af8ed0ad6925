//! Checks the write protocol exhaustively: `model [--quick] [--scenario NAME]`.
//!
//! Prints each scenario, its number of states and its time; a violation is
//! printed as a schedule and makes the exit status 1.

#![expect(clippy::print_stdout, reason = "a report on standard output is what it is for")]

use std::process::ExitCode;
use std::time::Instant;

use fusee_sim::model::policy::Policy;
use fusee_sim::model::run::{Search, check};
use fusee_sim::model::scenario::{self, Scenario};
use fusee_sim::model::transaction;

#[expect(clippy::disallowed_methods, reason = "the time a check takes is wall-clock time")]
fn main() -> ExitCode {
    let mut quick = false;
    let mut name: Option<String> = None;
    let mut search = Search::Exhaustive;
    let mut threads = 2;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => quick = true,
            "--scenario" => name = arguments.next(),
            "--shortest" => search = Search::Shortest,
            "--threads" => threads = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(1),
            _ => {
                println!("model [--quick] [--scenario NAME] [--shortest] [--threads N]");
                return ExitCode::from(2);
            }
        }
    }
    let chosen = |s: &&Scenario| match &name {
        Some(name) => s.name.starts_with(name.as_str()),
        None => !quick || scenario::QUICK.iter().any(|q| q.name == s.name),
    };
    let mut failed = false;
    let mut total = 0;
    for scenario in scenario::QUICK.iter().chain(scenario::LONG).filter(chosen) {
        let begin = Instant::now();
        let report = check(*scenario, Policy::WHOLE, search, threads);
        let seconds = begin.elapsed().as_secs_f64();
        total += report.states;
        println!(
            "{:40} {:>12} states  depth {:>3}  {seconds:8.1} s",
            scenario.name, report.states, report.depth
        );
        for (property, trace) in report.violations {
            println!("VIOLATED: {property}\n{trace}");
            failed = true;
        }
    }
    let chosen = |s: &&transaction::scenario::Scenario| match &name {
        Some(name) => s.name.starts_with(name.as_str()),
        None => !quick || transaction::scenario::QUICK.iter().any(|q| q.name == s.name),
    };
    for scenario in transaction::scenario::QUICK.iter().filter(chosen) {
        let begin = Instant::now();
        let report = transaction::run::check(*scenario, None, search, threads);
        let seconds = begin.elapsed().as_secs_f64();
        total += report.states;
        println!(
            "{:40} {:>12} states  depth {:>3}  {seconds:8.1} s",
            scenario.name, report.states, report.depth
        );
        for (property, trace) in report.violations {
            println!("VIOLATED: {property}\n{trace}");
            failed = true;
        }
    }
    println!("{total} states in all");
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
