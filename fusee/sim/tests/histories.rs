//! Two thousand seeded histories of real stores, each linearizable and with
//! every object accounted for. `sim` plays as many more as one likes.

use fusee_sim::history::{Conflicts, Scenario, Summary, run_history};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const HISTORIES: u64 = 2000;

/// Plays the histories from seed 1 on, on two threads; all must pass.
fn play(histories: u64, scenario: &Scenario) -> Summary {
    let next = AtomicU64::new(1);
    let play = || {
        let mut summary = Summary::default();
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed > histories {
                return summary;
            }
            match run_history(seed, scenario) {
                Ok(one) => summary.add(&one),
                Err(failure) => panic!("{failure}"),
            }
        }
    };
    let mut summary = Summary::default();
    std::thread::scope(|scope| {
        for thread in [scope.spawn(play), scope.spawn(play)] {
            summary.add(&thread.join().expect("histories pass"));
        }
    });
    summary
}

#[test]
fn two_thousand_histories_are_linearizable_and_leak_nothing() {
    let summary = play(HISTORIES, &Scenario::default());
    // The histories were worth playing: everything that can happen did.
    let Summary { operations, stops, leaves, torn_reads, conflicts, census, .. } = summary;
    assert!(operations > 20 * HISTORIES && stops > HISTORIES / 2 && torn_reads > 1000);
    assert!(leaves > HISTORIES / 8 && conflicts.recovered > HISTORIES / 2, "{conflicts:?}");
    for count in [
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
        conflicts.reclaimed,
        conflicts.debts,
        census.live,
        census.orphaned,
    ] {
        assert!(count > 10, "{conflicts:?} {census:?}");
    }
}

#[test]
fn a_thousand_histories_with_transactions_are_serializable_and_leak_nothing() {
    const HISTORIES: u64 = 1000;
    let summary = play(HISTORIES, &Scenario::transactions());
    let Summary { operations, stops, conflicts, census, .. } = summary;
    assert!(operations > 15 * HISTORIES && stops > HISTORIES / 2);
    assert!(conflicts.transactions > HISTORIES && conflicts.recovered > HISTORIES / 2);
    let Conflicts { retried, broken, debts, expired, .. } = conflicts;
    for count in [retried, broken, debts, expired, census.live] {
        assert!(count > 10, "{conflicts:?} {census:?}");
    }
}

/// Seeds that have failed, each for its reason.
#[test]
fn histories_that_failed_once_pass() {
    for (seed, why) in [
        (23, "recovery replaced an object that it had found live a moment before"),
        (130, "who left had not published its last key count"),
        (111_010, "chunks of a value that did not fit were freed without having been written"),
    ] {
        if let Err(failure) = run_history(seed, &Scenario::default()) {
            panic!("{why}: {failure}");
        }
    }
}
