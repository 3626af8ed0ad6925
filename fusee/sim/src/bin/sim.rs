//! Plays seeded histories and judges them.
//!
//! `sim --histories N --seed S` plays N histories on two threads; `sim
//! --only-seed X --trace` brings one back, verb by verb.

use clap::Parser;
use fusee_sim::history::{Failure, Scenario, Summary, run_history};
use fusee_sim::keyspec::Expiry;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

#[derive(Parser, Debug)]
#[command(about = "Plays seeded histories of a small pool and judges them")]
struct Arguments {
    /// How many histories to play.
    #[arg(long, default_value_t = 2000)]
    histories: u64,
    /// The first one's seed; the others' follow it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Play the history of this seed alone.
    #[arg(long)]
    only_seed: Option<u64>,
    /// Print every verb with its virtual time.
    #[arg(long)]
    trace: bool,
    /// Threads; each history runs on one.
    #[arg(long, default_value_t = 2)]
    threads: u64,
    /// Play with so many copies only.
    #[arg(long)]
    replicas: Option<u64>,
    /// How many histories in a hundred have clients that stop.
    #[arg(long)]
    stops_percent: Option<u64>,
    /// Let no key expire.
    #[arg(long)]
    no_expiry: bool,
    /// Let keys end for everybody at once, not for each operation as it judges.
    #[arg(long)]
    strict_expiry: bool,
    /// Let clients run transactions.
    #[arg(long)]
    transactions: bool,
    /// Go on after a failure, and list the seeds that failed.
    #[arg(long)]
    go_on: bool,
}

/// What the threads share.
struct Progress {
    next: AtomicU64,
    played: AtomicU64,
    end: AtomicU64,
    outcome: Mutex<(Summary, Vec<Failure>)>,
}

#[expect(clippy::print_stdout, reason = "a command's output")]
#[expect(clippy::disallowed_methods, reason = "how long the run took is told to a person")]
fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // A panic of the code under test is caught and reported with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    let scenario =
        if arguments.transactions { Scenario::transactions() } else { Scenario::default() };
    let mut scenario = Scenario { trace: arguments.trace, ..scenario };
    if let Some(replicas) = arguments.replicas {
        scenario.replicas = replicas..=replicas;
    }
    if let Some(percent) = arguments.stops_percent {
        scenario.stops_percent = percent;
    }
    if arguments.no_expiry {
        scenario.expiry = None;
    } else if arguments.strict_expiry {
        scenario.expiry = Some(Expiry::AtOnce);
    }
    let (first, count) = match arguments.only_seed {
        Some(seed) => (seed, 1),
        None => (arguments.seed, arguments.histories),
    };
    let begun = Instant::now();
    let progress = Progress {
        next: AtomicU64::new(first),
        played: AtomicU64::new(0),
        end: AtomicU64::new(first + count),
        outcome: Mutex::default(),
    };
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads.min(count) {
            scope.spawn(|| work(&progress, &scenario, arguments.go_on));
        }
    });
    let (summary, failures) = progress.outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    for failure in &failures {
        println!("{failure}\n");
    }
    let played = progress.played.into_inner();
    println!("{played} histories in {:.1} s: {}", begun.elapsed().as_secs_f64(), report(&summary));
    let passed = played - failures.len() as u64;
    println!("{:.3} % passed", passed as f64 * 100.0 / played.max(1) as f64);
    if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        let seeds: Vec<u64> = failures.iter().map(|failure| failure.seed).collect();
        println!("failed: seeds {seeds:?}; see one with --only-seed SEED --trace");
        ExitCode::FAILURE
    }
}

fn work(progress: &Progress, scenario: &Scenario, go_on: bool) {
    loop {
        let seed = progress.next.fetch_add(1, Relaxed);
        if seed >= progress.end.load(Relaxed) {
            return;
        }
        let result = run_history(seed, scenario);
        let played = progress.played.fetch_add(1, Relaxed) + 1;
        let mut outcome = progress.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(summary) => outcome.0.add(&summary),
            Err(failure) => {
                if !go_on {
                    progress.end.store(0, Relaxed);
                }
                outcome.1.push(failure);
            }
        }
        if played.is_multiple_of(HISTORIES_PER_LINE) {
            eprintln!("{played} histories: {}", report(&outcome.0));
        }
    }
}

const HISTORIES_PER_LINE: u64 = 5000;

fn report(summary: &Summary) -> String {
    let Summary { operations, unanswered, refused, gave_up, torn_reads, batches, .. } = summary;
    let Summary { conflicts, census, stops, leaves, .. } = summary;
    format!(
        "{operations} operations ({unanswered} without answer, {gave_up} of them after too many \
         conflicts, {refused} refused for want of memory), {batches} round trips, {stops} clients \
         stopped, {leaves} left, {torn_reads} torn reads\n\
         rounds: {} by rule 1, {} by rule 2, {} by rule 3, {} lost; {} helped, {} by helpers, {} \
         abandoned, {} restarts, {} stale cached words, {} keys expired\n\
         recoveries: {} to the end, {} objects freed that stopped clients had owed\n\
         transactions over several keys: {} done, {} runs repeated, {} aborted by others\n\
         objects: {} reused or ready to be; at the end {} live ({} of them in orphans), {} free, \
         {} in grace, 0 leaked, in {} blocks",
        conflicts.rule1,
        conflicts.rule2,
        conflicts.rule3,
        conflicts.lost,
        conflicts.helped,
        conflicts.helps,
        conflicts.abandoned,
        conflicts.restarts,
        conflicts.stale,
        conflicts.expired,
        conflicts.recovered,
        conflicts.debts,
        conflicts.transactions,
        conflicts.retried,
        conflicts.broken,
        conflicts.reclaimed,
        census.live,
        census.orphaned,
        census.free,
        census.grace,
        census.blocks
    )
}
