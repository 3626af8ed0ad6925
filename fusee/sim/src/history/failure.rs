//! What comes of a history.

use std::fmt;

/// What a history that passed was like.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Operations on keys, those of scans and of several keys counted by key.
    pub operations: u64,
    /// Operations that had no answer: their clients stopped, or met too many
    /// conflicts.
    pub unanswered: u64,
    /// Writes that were refused for want of memory.
    pub refused: u64,
    /// Clients that stopped.
    pub stops: u64,
    /// Clients that left.
    pub leaves: u64,
    /// READs whose parts were of different moments.
    pub torn_reads: u64,
    /// Round trips of all clients.
    pub batches: u64,
    /// Virtual time that it took.
    pub virtual_ns: u64,
    /// Operations that gave up after too many conflicts.
    pub gave_up: u64,
    /// How writers met.
    pub conflicts: Conflicts,
    /// What memory held in the end.
    pub census: Census,
}

/// How the writers of a history met, summed over all clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Conflicts {
    /// Rounds won by all votes, or by one CAS.
    pub rule1: u64,
    /// Rounds won by a majority.
    pub rule2: u64,
    /// Rounds won by the smallest word.
    pub rule3: u64,
    /// Rounds lost.
    pub lost: u64,
    /// Writes that another client committed.
    pub helped: u64,
    /// Writes committed for others.
    pub helps: u64,
    /// Inserts taken back.
    pub abandoned: u64,
    /// Operations that started again.
    pub restarts: u64,
    /// Cached words found out of date.
    pub stale: u64,
    /// Objects of which memory had another use since.
    pub reclaimed: u64,
    /// Keys removed because they had ended.
    pub expired: u64,
    /// Clients that had stopped and were recovered.
    pub recovered: u64,
    /// Objects freed that clients had owed when they stopped.
    pub debts: u64,
    /// Transactions that wrote several keys.
    pub transactions: u64,
    /// Runs of transactions that had to be done again.
    pub retried: u64,
    /// Transactions of others that were aborted.
    pub broken: u64,
}

/// What an audit found in good order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Census {
    /// Live slots.
    pub keys: u64,
    /// Objects that are named by live slots or their lists of chunks.
    pub live: u64,
    /// Objects of blocks in use that are free.
    pub free: u64,
    /// Those that wait for others to pass by.
    pub grace: u64,
    /// Objects of orphans that are live.
    pub orphaned: u64,
    /// Blocks that belong to somebody or are orphans.
    pub blocks: u64,
}

/// A history that did not pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The seed that brings it back.
    pub seed: u64,
    /// What was found.
    pub fault: Fault,
    /// What happened, verb by verb, if that was asked for.
    pub trace: Vec<String>,
}

/// What was found wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// No order explains what a key's clients saw, or none was found in time.
    NotLinearizable(String),
    /// Clients that did not stop did not finish.
    Hang(String),
    /// Code under test panicked.
    Panic(String),
    /// An operation gave an error that it must not give.
    Error(String),
    /// Memory at rest is not as it should be.
    Memory(String),
}

impl Summary {
    /// Adds another history's.
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.unanswered += other.unanswered;
        self.refused += other.refused;
        self.stops += other.stops;
        self.leaves += other.leaves;
        self.torn_reads += other.torn_reads;
        self.batches += other.batches;
        self.virtual_ns += other.virtual_ns;
        self.gave_up += other.gave_up;
        self.conflicts.add(&other.conflicts);
        self.census.keys += other.census.keys;
        self.census.live += other.census.live;
        self.census.free += other.census.free;
        self.census.grace += other.census.grace;
        self.census.orphaned += other.census.orphaned;
        self.census.blocks += other.census.blocks;
    }
}

impl Conflicts {
    /// Adds another's.
    pub fn add(&mut self, other: &Self) {
        self.rule1 += other.rule1;
        self.rule2 += other.rule2;
        self.rule3 += other.rule3;
        self.lost += other.lost;
        self.helped += other.helped;
        self.helps += other.helps;
        self.abandoned += other.abandoned;
        self.restarts += other.restarts;
        self.stale += other.stale;
        self.reclaimed += other.reclaimed;
        self.expired += other.expired;
        self.recovered += other.recovered;
        self.debts += other.debts;
        self.transactions += other.transactions;
        self.retried += other.retried;
        self.broken += other.broken;
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, text) = match self {
            Self::NotLinearizable(text) => ("not linearizable", text),
            Self::Hang(text) => ("hangs", text),
            Self::Panic(text) => ("panics", text),
            Self::Error(text) => ("fails", text),
            Self::Memory(text) => ("memory", text),
        };
        write!(f, "{what}: {text}")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(f, "{line}")?;
        }
        write!(f, "seed {}: {}", self.seed, self.fault)
    }
}

impl std::error::Error for Failure {}
