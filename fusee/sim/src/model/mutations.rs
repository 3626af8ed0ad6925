//! Each part of the protocol, taken away, is missed: the smallest scenario that
//! shows how.

use super::policy::{Departure, Policy};
use super::run::{Search, check};
use super::scenario::{DEL, MODIFY, OTHER, QUICK, SET, Scenario};

const LINEARIZABLE: &str = "linearizable";
const ONE_SLOT: &str = "at most one visible slot per key";
const EQUAL_REPLICAS: &str = "replicas are equal at rest";
const FREED_ONCE: &str = "objects are freed once";
const NEVER_BLOCKED: &str = "stopped clients block nobody";
const NO_LIVELOCK: &str = "nobody starts again for ever";

/// The scenario holds under `policy`.
#[track_caller]
fn holds(policy: Policy, scenario: Scenario) {
    let report = check(scenario, policy, Search::Shortest, 1);
    assert!(report.violations.is_empty(), "{:?}", report.violations);
    assert!(report.states > 20, "a scenario in which nothing happens shows nothing");
}

/// The scenario violates `property` without the departure, and holds with it.
#[track_caller]
fn breaks(without: Departure, property: &'static str, scenario: Scenario) {
    holds(Policy::WHOLE, scenario);
    breaks_under(Policy::without(without), property, scenario);
}

#[track_caller]
fn breaks_under(policy: Policy, property: &'static str, scenario: Scenario) {
    let report = check(scenario, policy, Search::For(property), 1);
    let violated: Vec<_> = report.violations.iter().map(|&(name, _)| name).collect();
    assert!(violated.contains(&property), "violated: {violated:?}");
}

const fn fresh(ops: &'static [(super::history::Op, u8)], replicas: usize) -> Scenario {
    Scenario::new("", ops, replicas)
}

const fn live(ops: &'static [(super::history::Op, u8)], replicas: usize) -> Scenario {
    fresh(ops, replicas).live()
}

#[test]
fn the_whole_protocol_holds_in_every_quick_scenario() {
    for scenario in QUICK {
        let report = check(*scenario, Policy::WHOLE, Search::Exhaustive, 2);
        let [] = &report.violations[..] else {
            panic!("{}: {:?}", scenario.name, report.violations);
        };
    }
}

// Departure 1: versioned slots. The grace period hides most of what they are
// for, so it is away on both sides.

#[test]
fn without_versioned_slots_a_recurring_word_parts_the_replicas() {
    let policy = Policy::without(Departure::GracePeriod);
    holds(policy, live(&[SET, SET, SET], 2).pool(6, 2).attempts(3));
    breaks_under(policy, EQUAL_REPLICAS, live(&[SET, SET, SET], 2).pool(6, 1).attempts(3));
}

#[test]
fn without_a_grace_period_generations_wrap_under_a_client() {
    let scenario = live(&[MODIFY, MODIFY, SET], 3).pool(6, 2).attempts(3);
    breaks(Departure::GracePeriod, EQUAL_REPLICAS, scenario);
}

#[test]
fn without_keeping_a_tombstones_object_its_word_recurs_under_a_client() {
    let scenario = fresh(&[MODIFY, SET, DEL], 3).deleted().pool(6, 2);
    breaks(Departure::TombstonesKeepTheirObjects, EQUAL_REPLICAS, scenario);
}

// Departure 2: helping.

#[test]
fn without_helping_a_crashed_winner_blocks_others() {
    breaks(Departure::Helping, NEVER_BLOCKED, live(&[DEL, DEL], 2));
}

#[test]
fn without_giving_way_a_helper_waits_for_a_dead_inserter() {
    breaks(Departure::HelperGivesWay, NEVER_BLOCKED, fresh(&[SET, SET, SET], 2));
}

#[test]
fn without_reading_the_primary_a_late_majority_adopts_a_later_round() {
    let scenario = live(&[SET, MODIFY], 4);
    breaks(Departure::PrimaryBeforeAdoption, EQUAL_REPLICAS, scenario);
}

// Departure 3: tombstones.

#[test]
fn without_tombstones_two_deletes_both_win() {
    breaks(Departure::Tombstones, FREED_ONCE, live(&[DEL, DEL], 2));
}

// Departure 4: who won.

#[test]
fn without_its_own_record_a_helped_delete_forgets_that_it_deleted() {
    breaks(Departure::OwnRecord, LINEARIZABLE, live(&[DEL, DEL], 3));
}

#[test]
fn without_its_own_record_a_write_outvoted_by_a_later_round_is_done_twice() {
    let scenario = live(&[SET, MODIFY, SET], 4);
    breaks(Departure::OwnRecordDespiteMajority, FREED_ONCE, scenario);
}

#[test]
fn without_a_record_before_the_commit_a_helped_delete_forgets_that_it_deleted() {
    breaks(Departure::RecordFirst, LINEARIZABLE, live(&[DEL, DEL], 3));
}

#[test]
fn without_reading_the_record_after_the_primary_a_helped_delete_is_forgotten() {
    breaks(Departure::RecordsAfterPrimary, LINEARIZABLE, live(&[DEL, DEL], 3));
}

#[test]
fn without_asking_which_round_a_winner_won_a_loser_joins_the_wrong_one() {
    breaks(Departure::WinnerOfMyRound, LINEARIZABLE, live(&[DEL, DEL, SET], 2));
}

#[test]
fn without_looking_what_it_lost_to_an_insert_is_lost() {
    breaks(Departure::InsertLoserLooks, LINEARIZABLE, fresh(&[SET, OTHER], 2));
}

#[test]
fn without_knowing_an_abandonment_an_insert_is_lost() {
    breaks(Departure::AbandonmentIsNoWin, LINEARIZABLE, fresh(&[SET, MODIFY, SET], 2));
}

// Departure 5: one slot per key.

#[test]
fn without_the_duplicate_check_a_key_becomes_visible_twice() {
    breaks(Departure::DuplicateCheck, ONE_SLOT, fresh(&[SET, SET], 2));
}

#[test]
fn without_a_fence_before_the_duplicate_check_a_key_becomes_visible_twice() {
    breaks(Departure::FencedCheck, ONE_SLOT, fresh(&[SET, SET], 2));
}

#[test]
fn without_minding_deletes_in_progress_a_key_becomes_visible_twice() {
    breaks(Departure::TombstonesInProgress, ONE_SLOT, fresh(&[SET, DEL, SET], 2));
}

#[test]
fn without_a_helpers_check_a_key_becomes_visible_twice() {
    breaks(Departure::HelperChecks, ONE_SLOT, fresh(&[SET, SET, SET], 2));
}

#[test]
fn without_repairing_lagging_backups_a_key_becomes_visible_twice() {
    breaks(Departure::LaggingBackups, ONE_SLOT, fresh(&[SET, SET], 2));
}

#[test]
fn without_backups_that_follow_an_abandonment_replicas_differ() {
    breaks(Departure::BackupsFollow, EQUAL_REPLICAS, fresh(&[SET, SET], 2));
}

#[test]
fn without_leaving_abandonment_to_the_owner_an_insert_is_taken_back_under_it() {
    breaks(Departure::OnlyOwnerAbandons, LINEARIZABLE, fresh(&[SET, MODIFY, SET], 2));
}

#[test]
fn without_going_where_the_duplicate_was_a_lone_insert_abandons_for_ever() {
    let scenario = fresh(&[SET, SET], 2).attempts(6).crashes(1);
    breaks(Departure::InsertWhereTheDuplicateWas, NO_LIVELOCK, scenario);
}

#[test]
fn without_a_tentative_mark_an_insert_is_visible_before_its_check() {
    breaks(Departure::TentativeMark, ONE_SLOT, fresh(&[SET, SET], 1));
}

// Departure 6: conditional writes.

#[test]
fn without_starting_again_two_deletes_that_lost_to_one_set_both_count() {
    breaks(Departure::DeleteAfterSet, LINEARIZABLE, live(&[DEL, DEL, SET], 2));
}

#[test]
fn without_starting_again_a_conditional_loser_answers_what_it_no_longer_replaces() {
    breaks(Departure::ConditionalLoser, LINEARIZABLE, live(&[MODIFY, MODIFY, SET], 2));
}

#[test]
fn without_asking_whether_the_winner_was_conditional_a_blind_loser_slips_before_its_read() {
    breaks(Departure::ConditionalWinner, LINEARIZABLE, live(&[SET, MODIFY], 2));
}
