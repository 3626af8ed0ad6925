//! Checks the protocol of writes and that of transactions exhaustively: `model [--quick] [--scenario NAME]`.
//!
//! Prints each scenario, its number of states and its time; a violation is
//! printed as a schedule and makes the exit status 1.

#![expect(clippy::print_stdout, reason = "a report on standard output is what it is for")]

use std::process::ExitCode;
use std::time::Instant;

use fusee_sim::model::policy::Policy;
use fusee_sim::model::run::{Report, Search, check};
use fusee_sim::model::scenario;
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
    let chosen = |of: &str, is_quick: bool| match &name {
        Some(name) => of.starts_with(name.as_str()),
        None => is_quick || !quick,
    };
    let (mut failed, mut total) = (false, 0);
    let mut tell = |of: &str, check: &dyn Fn() -> Report| {
        let begin = Instant::now();
        let report = check();
        let seconds = begin.elapsed().as_secs_f64();
        total += report.states;
        println!(
            "{of:40} {:>12} states  depth {:>3}  {seconds:8.1} s",
            report.states, report.depth
        );
        for (property, trace) in report.violations {
            println!("VIOLATED: {property}\n{trace}");
            failed = true;
        }
    };
    let writes = scenario::QUICK.iter().map(|s| (true, s));
    for (is_quick, scenario) in writes.chain(scenario::LONG.iter().map(|s| (false, s))) {
        if chosen(scenario.name, is_quick) {
            tell(scenario.name, &|| check(*scenario, Policy::WHOLE, search, threads));
        }
    }
    let several = transaction::scenario::QUICK.iter().map(|s| (true, s));
    for (is_quick, scenario) in
        several.chain(transaction::scenario::LONG.iter().map(|s| (false, s)))
    {
        if chosen(scenario.name, is_quick) {
            tell(scenario.name, &|| transaction::run::check(*scenario, None, search, threads));
        }
    }
    println!("{total} states in all");
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
