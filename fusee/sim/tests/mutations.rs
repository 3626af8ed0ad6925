//! Would the simulator notice if the protocol lacked a step? A meddler between
//! clients and memory takes each step away; histories must fail for it.
//!
//! What random schedules meet too rarely is left to the model, which meets
//! everything: deletes in progress in the duplicate check, lagging backups,
//! words that recur.

use fusee_fabric::Verb;
use fusee_layout::{COMBINED_BYTES, Geometry, Member, NodeAddress, RECORD_BYTES, Slot};
use fusee_sim::history::{Failure, Plan, Scenario, geometry, run_with, stage};
use fusee_sim::{Meddler, Meddling, Seen, address_of};
use std::collections::HashMap;

/// The first failure of real stores with this meddler within so many seeds.
fn first_failure<M: Meddler + 'static>(
    scenario: &Scenario,
    seeds: u64,
    meddler: impl Fn(Places) -> M,
) -> Option<Failure> {
    std::panic::set_hook(Box::new(|_| {}));
    (0..seeds).find_map(|seed| {
        let build = |plan: &Plan| {
            let mut stage = stage(plan);
            stage.meddler = Some(Box::new(meddler(Places::new(geometry(plan)))));
            stage
        };
        run_with(seed, scenario, build).err()
    })
}

#[track_caller]
fn is_noticed<M: Meddler + 'static>(
    scenario: &Scenario,
    seeds: u64,
    meddler: impl Fn(Places) -> M,
) {
    let failure = first_failure(scenario, seeds, meddler);
    assert!(failure.is_some(), "the missing step goes unnoticed");
}

fn with_backups() -> Scenario {
    Scenario { replicas: 2..=4, ..Scenario::default() }
}

/// Steps whose lack shows once in some hundred histories or a thousand.
const SEEDS_OF_RARE: u64 = 10_000;

/// Five clients set and delete four keys in an index without much room, so that
/// inserts of one key meet in different slots.
fn rivals() -> Scenario {
    Scenario {
        keys: 1..=1,
        clients: 5..=5,
        operations: 12..=16,
        churn_percent: 100,
        stops_percent: 0,
        expiry: None,
        large: false,
        scans: false,
        ..with_backups()
    }
}

/// Tells meddlers what a place is.
struct Places {
    geometry: Geometry,
    /// Who wrote an object first: its owner.
    owners: HashMap<u64, u32>,
}

impl Places {
    fn new(geometry: Geometry) -> Self {
        Self { geometry, owners: HashMap::new() }
    }

    /// Which copy of the index a place is in: 0 is the primary.
    fn index_copy(&self, at: NodeAddress) -> Option<usize> {
        let (address, copy) = address_of(&self.geometry, at)?;
        (address.get() < self.geometry.params.region_bytes).then_some(copy)
    }

    /// The object that starts at a place.
    fn object(&self, at: NodeAddress) -> Option<u64> {
        let (address, _) = address_of(&self.geometry, at)?;
        self.geometry.block_of(address)?;
        Some(address.get())
    }

    /// Notes who writes which object.
    fn note(&mut self, verb: &Seen, written: &[u64]) {
        if written.len() * 8 > RECORD_BYTES
            && let Some(object) = self.object(verb.at)
        {
            self.owners.insert(object, verb.client);
        }
    }

    fn is_own(&self, verb: &Seen, word: Slot) -> bool {
        self.owners.get(&word.address().get()) == Some(&verb.client)
    }

    fn is_bucket_read(verb: &Seen) -> bool {
        matches!(verb.verb, Verb::Read(span) if span.bytes() == COMBINED_BYTES)
    }
}

#[test]
fn the_meddling_itself_fails_nothing() {
    struct Nothing;
    impl Meddler for Nothing {}
    assert_eq!(first_failure(&Scenario::default(), 300, |_| Nothing), None);
}

/// DELETE writes 0 where it should write its tombstone.
struct DeletesWriteZero(Places);

impl DeletesWriteZero {
    fn zeroed(word: u64) -> u64 {
        let tombstone = Slot::from_word(word).is_some_and(|slot| slot.is_tombstone());
        if tombstone { 0 } else { word }
    }
}

impl Meddler for DeletesWriteZero {
    fn execute(&mut self, verb: &Seen, _word: u64) -> Meddling {
        match verb.verb {
            Verb::Cas { expected, new } if self.0.index_copy(verb.at).is_some() => {
                Meddling::Cas { expected: Self::zeroed(expected), new: Self::zeroed(new) }
            }
            _ => Meddling::Execute,
        }
    }

    /// A client that finds 0 where its tombstone should be takes that for it.
    fn found(&mut self, verb: &Seen, word: u64) -> u64 {
        match verb.verb {
            Verb::Cas { expected, .. } if word == Self::zeroed(expected) => expected,
            _ => word,
        }
    }
}

#[test]
fn a_delete_that_writes_zero_is_noticed() {
    is_noticed(&with_backups(), 3000, DeletesWriteZero);
}

/// The first backup never shows a rival.
struct NoDuplicateCheck(Places);

impl Meddler for NoDuplicateCheck {
    fn read(&mut self, verb: &Seen, words: &mut [u64]) {
        if Places::is_bucket_read(verb) && self.0.index_copy(verb.at) == Some(1) {
            words.fill(0);
        }
    }
}

#[test]
fn a_missing_duplicate_check_is_noticed() {
    is_noticed(&rivals(), 3000, NoDuplicateCheck);
}

/// The duplicate check's READ overtakes the vote that it should follow.
struct NoFence;

impl Meddler for NoFence {
    fn keeps_fence(&mut self, _verb: &Seen) -> bool {
        false
    }
}

#[test]
fn a_missing_fence_is_noticed_with_backups() {
    is_noticed(&rivals(), SEEDS_OF_RARE, |_| NoFence);
}

#[test]
fn a_missing_fence_is_noticed_without_backups() {
    let alone = Scenario { replicas: 1..=1, ..rivals() };
    is_noticed(&alone, SEEDS_OF_RARE, |_| NoFence);
}

/// A helper sees no rival of the insert that it helps.
struct HelpsUnchecked(Places);

impl Meddler for HelpsUnchecked {
    fn read(&mut self, verb: &Seen, words: &mut [u64]) {
        // The owner's check is fenced, the helper's is not.
        let check = Places::is_bucket_read(verb) && self.0.index_copy(verb.at) == Some(1);
        if check && !verb.fenced {
            words.fill(0);
        }
    }
}

#[test]
fn a_helper_that_does_not_check_is_noticed() {
    is_noticed(&rivals(), SEEDS_OF_RARE, HelpsUnchecked);
}

/// Nobody finds a commit record of his own.
struct HidesOwnRecord(Places);

impl Meddler for HidesOwnRecord {
    fn post(&mut self, verb: &Seen, written: &mut [u64]) {
        self.0.note(verb, written);
    }

    fn read(&mut self, verb: &Seen, words: &mut [u64]) {
        let own = self.0.object(verb.at).and_then(|object| self.0.owners.get(&object));
        if own == Some(&verb.client) && words.len() == 4 {
            words[0] = 0;
            words[1] &= !0xff;
        }
    }
}

#[test]
fn not_reading_the_own_record_is_noticed() {
    is_noticed(&with_backups(), 3000, HidesOwnRecord);
}

/// The primary moves without a commit record before it.
struct NoRecord(Places);

impl Meddler for NoRecord {
    fn execute(&mut self, verb: &Seen, _word: u64) -> Meddling {
        match verb.verb {
            Verb::Write(span)
                if span.bytes() == RECORD_BYTES && self.0.object(verb.at).is_some() =>
            {
                Meddling::Pretend(0)
            }
            _ => Meddling::Execute,
        }
    }
}

#[test]
fn a_missing_commit_record_is_noticed() {
    is_noticed(&with_backups(), 3000, NoRecord);
}

/// A loser never moves the primary for the winner.
struct NoHelp(Places);

impl Meddler for NoHelp {
    fn post(&mut self, verb: &Seen, written: &mut [u64]) {
        self.0.note(verb, written);
    }

    fn execute(&mut self, verb: &Seen, _word: u64) -> Meddling {
        let Verb::Cas { expected, new } = verb.verb else { return Meddling::Execute };
        let other = Slot::from_word(new).is_some_and(|new| !self.0.is_own(verb, new));
        if other && self.0.index_copy(verb.at) == Some(0) {
            return Meddling::Pretend(expected);
        }
        Meddling::Execute
    }
}

#[test]
fn a_stopped_winner_that_nobody_helps_is_noticed() {
    is_noticed(&with_backups(), 3000, NoHelp);
}

/// Everybody else's quiescent counter seems to run ahead: memory is used again
/// at once.
struct NoGrace(Places, u64);

impl Meddler for NoGrace {
    fn read(&mut self, verb: &Seen, words: &mut [u64]) {
        let members = Geometry::member_at(0)..Geometry::directory_at(&self.0.geometry.params);
        if members.contains(&verb.at.offset)
            && words.len() * 8 == Member::TICK_BYTES
            && words[0] > 0
        {
            self.1 += 10;
            words[1] = self.1;
        }
    }
}

#[test]
fn memory_reused_without_grace_is_noticed() {
    is_noticed(&Scenario::default(), 3000, |places| NoGrace(places, 0));
}

impl Places {
    /// The only words of objects that anybody CASes, or READs alone, are the
    /// decisions of transactions.
    fn is_decision(&self, at: NodeAddress) -> bool {
        let in_index = self.index_copy(at).is_some();
        let block =
            address_of(&self.geometry, at).and_then(|(address, _)| self.geometry.block_of(address));
        !in_index && block.is_some()
    }
}

/// Whoever decides a transaction believes to have been the first.
struct DecidesTwice(Places);

impl Meddler for DecidesTwice {
    fn execute(&mut self, verb: &Seen, _word: u64) -> Meddling {
        match verb.verb {
            Verb::Cas { expected, .. } if self.0.is_decision(verb.at) => {
                Meddling::Pretend(expected)
            }
            _ => Meddling::Execute,
        }
    }
}

#[test]
fn transactions_decided_twice_are_noticed() {
    is_noticed(&Scenario::transactions(), 3000, DecidesTwice);
}

/// A transaction counts as committed as soon as its intents can be seen.
struct CommitsEarly(Places);

impl Meddler for CommitsEarly {
    fn read(&mut self, verb: &Seen, words: &mut [u64]) {
        if words.len() == 1 && self.0.is_decision(verb.at) {
            words[0] = 1;
        }
    }
}

#[test]
fn intents_taken_for_values_before_the_decision_are_noticed() {
    is_noticed(&Scenario::transactions(), 3000, CommitsEarly);
}

/// Slots are not prepared: who writes an intent's word there is told that it was.
struct PreparesNothing(Places);

impl Meddler for PreparesNothing {
    fn execute(&mut self, verb: &Seen, _word: u64) -> Meddling {
        match verb.verb {
            Verb::Cas { expected, new }
                if self.0.index_copy(verb.at) == Some(0)
                    && Slot::from_word(new).is_some_and(|slot| slot.is_prepared()) =>
            {
                Meddling::Pretend(expected)
            }
            _ => Meddling::Execute,
        }
    }
}

#[test]
fn transactions_that_hold_no_slot_are_noticed() {
    is_noticed(&Scenario::transactions(), 300, PreparesNothing);
}
