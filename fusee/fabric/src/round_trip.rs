//! How long memory nodes take to answer: one histogram for each node and kind of verb.

use crate::batch::{Posted, Verb};
use crate::{VERB_KINDS, VerbKind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The upper ends of the buckets in nanoseconds; a last one is open. From what a
/// memory access takes to what a client takes for an outage.
pub const ROUND_TRIP_NS: [u64; 20] = [
    1_000,
    1_500,
    2_000,
    3_000,
    4_000,
    5_000,
    7_500,
    10_000,
    15_000,
    20_000,
    30_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    5_000_000,
    25_000_000,
    100_000_000,
    1_000_000_000,
];

/// Buckets of a histogram, the open one among them.
pub const ROUND_TRIP_BUCKETS: usize = ROUND_TRIP_NS.len() + 1;

/// The bucket of a time.
#[inline]
pub fn round_trip_bucket(elapsed_ns: u64) -> usize {
    ROUND_TRIP_NS.partition_point(|end| *end < elapsed_ns)
}

/// The kinds of verbs that a batch has for one node.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct VerbKinds(u8);

impl VerbKinds {
    /// Adds a kind.
    #[inline]
    pub fn add(&mut self, kind: VerbKind) {
        self.0 |= 1 << kind as u8;
    }

    /// Has it this kind?
    #[inline]
    pub fn has(self, kind: VerbKind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }

    /// Those of the verbs that went to a node.
    pub fn of(posted: &[Posted], node: u16) -> Self {
        let mut kinds = Self::default();
        posted.iter().filter(|one| one.at.node == node).for_each(|one| kinds.add(one.verb.kind()));
        kinds
    }
}

impl Verb {
    /// Its kind.
    #[inline]
    pub fn kind(&self) -> VerbKind {
        match self {
            Self::Read(_) => VerbKind::Read,
            Self::Write(_) | Self::WriteByte(_) => VerbKind::Write,
            Self::Cas { .. } => VerbKind::Cas,
            Self::Faa(_) => VerbKind::Faa,
        }
    }
}

/// Times from the posting of a batch to the completion of its verbs on a node: one
/// sample for each kind of verb among them, since they complete together. As all
/// counters, written by one thread and read by any.
#[derive(Debug, Default)]
pub struct RoundTrips {
    nodes: Box<[[RoundTripTimes; VERB_KINDS]]>,
}

/// The histogram of one node and kind.
#[derive(Debug, Default)]
pub struct RoundTripTimes {
    counts: [AtomicU64; ROUND_TRIP_BUCKETS],
    sum_ns: AtomicU64,
}

impl RoundTrips {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { nodes: (0..nodes).map(|_| Default::default()).collect() }
    }

    /// Notes that verbs of these kinds were done by a node. For fabrics, on their own
    /// thread.
    pub fn note(&self, node: u16, kinds: VerbKinds, elapsed_ns: u64) {
        let Some(times) = self.nodes.get(usize::from(node)) else { return };
        let bucket = round_trip_bucket(elapsed_ns);
        for kind in VerbKind::ALL.into_iter().filter(|&kind| kinds.has(kind)) {
            let times = &times[kind as usize];
            let add = |counter: &AtomicU64, more| {
                counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
            };
            add(&times.counts[bucket], 1);
            add(&times.sum_ns, elapsed_ns);
        }
    }

    /// How many nodes are told apart.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The times of a node and a kind of verb.
    pub fn times(&self, node: usize, kind: VerbKind) -> Option<&RoundTripTimes> {
        Some(&self.nodes.get(node)?[kind as usize])
    }
}

impl RoundTripTimes {
    /// How many took as long, by bucket.
    pub fn counts(&self) -> [u64; ROUND_TRIP_BUCKETS] {
        std::array::from_fn(|bucket| self.counts[bucket].load(Relaxed))
    }

    /// All times together.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_falls_into_the_bucket_that_ends_with_it() {
        for (elapsed_ns, bucket) in
            [(0, 0), (1_000, 0), (1_001, 1), (1_000_000_000, 19), (u64::MAX, 20)]
        {
            assert_eq!(round_trip_bucket(elapsed_ns), bucket, "{elapsed_ns} ns");
        }
        assert!(ROUND_TRIP_NS.is_sorted());
    }

    #[test]
    fn a_sample_counts_for_each_kind_that_was_posted_and_for_no_other() {
        let round_trips = RoundTrips::new(2);
        let mut kinds = VerbKinds::default();
        kinds.add(VerbKind::Write);
        kinds.add(VerbKind::Cas);
        round_trips.note(1, kinds, 1_700);
        round_trips.note(7, kinds, 1_700);
        let count = |node, kind| {
            let times = round_trips.times(node, kind).expect("there are two nodes");
            (times.counts().iter().sum::<u64>(), times.counts()[2], times.sum_ns())
        };
        assert_eq!(count(1, VerbKind::Write), (1, 1, 1_700));
        assert_eq!(count(1, VerbKind::Cas), (1, 1, 1_700));
        assert_eq!(count(1, VerbKind::Read), (0, 0, 0));
        assert_eq!(count(0, VerbKind::Write), (0, 0, 0));
    }
}
