//! Commands that EXEC or a script has run, until it is certain that they are not run again.

use std::collections::BTreeMap;

use crate::command::CommandId;
use crate::stats::{LATENCY_NS, WorkerStats};

/// What is counted of each command.
#[derive(Debug, Default)]
pub(crate) struct Tally(BTreeMap<CommandId, Counts>);

/// What is counted of one of them.
#[derive(Debug, Default)]
struct Counts {
    latency: [u32; LATENCY_NS.len() + 1],
    latency_ns: u64,
    failed: u64,
    rejected: u64,
}

impl Tally {
    /// Counts a call.
    pub(crate) fn call(&mut self, command: CommandId, elapsed_ns: u64, has_failed: bool) {
        let counts = self.0.entry(command).or_default();
        counts.latency[WorkerStats::latency_bucket(elapsed_ns)] += 1;
        counts.latency_ns += elapsed_ns;
        counts.failed += u64::from(has_failed);
    }

    /// Counts a call that was not run.
    pub(crate) fn rejected(&mut self, command: CommandId) {
        self.0.entry(command).or_default().rejected += 1;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds it to what the worker counts. Round trips are those of the transaction, so none
    /// are counted here.
    pub(crate) fn count(&self, stats: &WorkerStats) {
        for (&command, counts) in &self.0 {
            let stats = &stats.commands[usize::from(command)];
            for (sum, count) in stats.latency.iter().zip(counts.latency) {
                sum.add(u64::from(count));
            }
            stats.latency_ns.add(counts.latency_ns);
            stats.failed.add(counts.failed);
            stats.rejected.add(counts.rejected);
        }
    }
}
