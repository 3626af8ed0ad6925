//! What a store counts. One thread writes, any thread may read.

use fusee_fabric::Counters;
use fusee_layout::{CLASSES_MAX, Class};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A counter with a single writer.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// One more.
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    /// Sets a gauge.
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// The value as of a moment ago.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A gauge for each size class.
#[derive(Debug)]
pub struct ByClass([Count; CLASSES_MAX]);

impl Default for ByClass {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Count::default()))
    }
}

impl ByClass {
    /// That of a class.
    pub fn of(&self, class: Class) -> &Count {
        &self.0[class.index()]
    }

    pub(crate) fn set_all(&self, values: impl Iterator<Item = u64>) {
        self.0.iter().zip(values).for_each(|(count, value)| count.set(value));
    }
}

/// What one store has done since it was made.
#[derive(Debug, Default)]
pub struct Stats {
    /// What its fabric has counted.
    pub fabric: Arc<Counters>,
    /// Index lookups that the cached slot word answered.
    pub index_hit: Count,
    /// Index lookups whose cached slot word was out of date.
    pub index_stale: Count,
    /// Index lookups that went by a cached word of a write-intensive key.
    pub index_bypass: Count,
    /// Index lookups without a cached word.
    pub index_miss: Count,
    /// Rounds won by all votes (SNAPSHOT's rule 1), or by a CAS where r = 1.
    pub rule1: Count,
    /// Rounds won by a majority (rule 2).
    pub rule2: Count,
    /// Rounds won by the smallest word (rule 3).
    pub rule3: Count,
    /// Rounds lost to another writer.
    pub lost: Count,
    /// Own writes that another client committed.
    pub helped: Count,
    /// Times that another client's write was committed for it.
    pub helps: Count,
    /// Inserts taken back because the key appeared in another slot.
    pub abandoned: Count,
    /// Times that an operation started again.
    pub restarts: Count,
    /// Microseconds that operations were told to wait because of others: back-off after a
    /// lost round, and for transactions that had not decided.
    pub conflict_wait_us: Count,
    /// Objects that did not verify and were read again.
    pub torn: Count,
    /// Objects allocated.
    pub allocated: Count,
    /// Objects freed, of any owner.
    pub freed: Count,
    /// Own objects that became reusable.
    pub reclaimed: Count,
    /// Own objects waiting for other clients to pass by.
    pub in_grace: Count,
    /// Objects that were freed and whose free map is not written yet.
    pub frees_pending: Count,
    /// Own blocks without objects that wait for other clients to pass by.
    pub blocks_retiring: Count,
    /// Own objects in use.
    pub objects_in_use: ByClass,
    /// Own blocks.
    pub blocks_by_class: ByClass,
    /// Blocks that the store owns.
    pub blocks: Count,
    /// Keys removed because their time had come.
    pub expired: Count,
    /// Clients that died and whose memory this one has recovered.
    pub recovered: Count,
    /// Objects freed that clients had owed when they died.
    pub debts: Count,
    /// Transactions over several keys that were committed.
    pub transactions: Count,
    /// Those that met another operation and ran again.
    pub transactions_retried: Count,
    /// Transactions of others that stood in the way for long and were aborted.
    pub transactions_broken: Count,
    /// Bytes of own objects that are in use, in whole size classes.
    pub bytes_in_use: Count,
    /// Allocations refused because the pool is full.
    pub full: Count,
}
