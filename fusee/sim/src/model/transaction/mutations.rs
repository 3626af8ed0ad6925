//! Each part of the protocol, taken away, is missed: the smallest scenario that
//! shows how.

use super::checked::{FREED_ONCE, NO_WORD_TWICE, READ_WHILE_THERE, SERIALIZABLE};
use super::policy::Part;
use super::run::check;
use super::scenario::{
    A_TO_B, B_TO_A, BOTH, DEL_A, GET_A, GET_B, MODIFY_A, MOVE, Op, QUICK, SET_A, SNAPSHOT, Scenario,
};
use crate::model::run::Search;

/// The scenario violates `property` without the part, and holds with it.
#[track_caller]
fn breaks(without: Part, property: &'static str, scenario: Scenario) {
    let whole = check(scenario, None, Search::Shortest, 1);
    assert!(whole.violations.is_empty(), "{:?}", whole.violations);
    assert!(whole.states > 100, "a scenario in which nothing happens shows nothing");
    let report = check(scenario, Some(without), Search::For(property), 1);
    let violated: Vec<_> = report.violations.iter().map(|&(name, _)| name).collect();
    assert!(violated.contains(&property), "violated: {violated:?}");
}

const fn of(programs: &'static [&'static [Op]]) -> Scenario {
    Scenario::new("", programs)
}

#[test]
fn transactions_hold_in_every_quick_scenario() {
    for scenario in QUICK {
        let report = check(*scenario, None, Search::Exhaustive, 2);
        let [] = &report.violations[..] else {
            panic!("{}: {:?}", scenario.name, report.violations);
        };
    }
}

#[test]
fn a_commitment_that_a_lost_copy_alone_held_is_taken_back() {
    breaks(Part::AllCopies, SERIALIZABLE, of(&[&[BOTH], &[GET_A, GET_B]]).copies());
}

#[test]
fn a_decision_written_over_another_after_the_loss_of_a_copy_makes_two() {
    breaks(Part::BackupByCas, SERIALIZABLE, of(&[&[BOTH], &[BOTH]]).copies());
}

#[test]
fn reads_validated_before_the_decision_are_out_of_date_at_it() {
    breaks(Part::IntentsOfReads, SERIALIZABLE, of(&[&[A_TO_B], &[SET_A], &[GET_A, GET_B]]));
}

#[test]
fn an_abortion_that_restores_the_old_word_brings_it_back() {
    breaks(Part::AbortCopies, NO_WORD_TWICE, of(&[&[A_TO_B], &[B_TO_A]]));
}

#[test]
fn a_set_answered_just_before_an_intent_is_lost_when_that_aborts() {
    breaks(Part::AgainAfterPrepared, SERIALIZABLE, of(&[&[A_TO_B], &[SET_A], &[MODIFY_A]]));
}

#[test]
fn old_values_freed_before_the_end_are_missing_to_those_who_put_them_back() {
    let scenario = of(&[&[A_TO_B], &[SET_A], &[GET_A]]);
    breaks(Part::FinishBeforeFree, READ_WHILE_THERE, scenario);
}

#[test]
fn words_that_stand_still_while_they_are_decided_tear_a_snapshot() {
    breaks(Part::DecisionsAgain, SERIALIZABLE, of(&[&[BOTH], &[SNAPSHOT]]));
}

#[test]
fn an_old_value_put_back_without_a_decision_loses_half_a_transaction() {
    breaks(Part::DecideBeforeFinish, SERIALIZABLE, of(&[&[BOTH], &[SET_A]]));
}

#[test]
fn two_who_take_an_undecided_move_for_aborted_free_twice() {
    breaks(Part::DecideBeforeFinish, FREED_ONCE, of(&[&[MOVE], &[DEL_A]]));
}

#[test]
fn recovery_that_overlooks_a_dead_ones_intent_frees_what_it_replaced() {
    let programs: &[&[Op]] = &[&[SET_A], &[BOTH], &[Op::Recover(0), Op::Recover(1)]];
    breaks(Part::RecoveryFinishes, SERIALIZABLE, of(programs).stops(2));
}

#[test]
fn recovery_without_grace_frees_intents_on_their_way() {
    let programs: &[&[Op]] = &[&[SET_A], &[Op::Recover(0)], &[BOTH]];
    breaks(Part::RecoveryWaits, FREED_ONCE, of(programs).stops(1));
}
