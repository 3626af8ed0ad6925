//! Runs the checker on a scenario and tells what it found.

use std::fmt::{Debug, Write as _};
use std::hash::Hash;

use stateright::{Checker, HasDiscoveries, Model};

use super::policy::Policy;
use super::scenario::Scenario;
use super::state::{Pc, State};
use super::{Protocol, Step};

/// How to go through the states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Search {
    /// Breadth first: finds the shortest counterexample.
    Shortest,
    /// Breadth first, until this property is violated.
    For(&'static str),
    /// Depth first, up to the names of slots and backups: eight bytes a state.
    Exhaustive,
}

/// What a run found.
#[derive(Debug)]
pub struct Report {
    /// States visited, up to symmetry if the search uses it.
    pub states: usize,
    /// Length of the longest path on which a state was first met.
    pub depth: usize,
    /// The properties that do not hold, and how that comes.
    pub violations: Vec<(&'static str, String)>,
}

/// Checks every schedule of the scenario.
pub fn check(scenario: Scenario, policy: Policy, search: Search, threads: usize) -> Report {
    let symmetry: Option<fn(&State) -> State> = Some(State::representative);
    let model = Protocol::new(scenario, policy);
    explore(model, symmetry, search, threads, |path| trace(path, scenario))
}

/// Turns a state into the one that stands for all that are like it.
pub type Symmetry<S> = fn(&S) -> S;

/// Checks every schedule of a model; `trace` tells of a path what happened on it.
pub fn explore<M>(
    model: M,
    symmetry: Option<Symmetry<M::State>>,
    search: Search,
    threads: usize,
    trace: impl Fn(Vec<(M::State, Option<M::Action>)>) -> String,
) -> Report
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + PartialEq + Hash + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let until = match search {
        Search::For(property) => HasDiscoveries::AnyOf([property].into()),
        Search::Shortest | Search::Exhaustive => HasDiscoveries::AnyFailures,
    };
    let checker = model.checker().finish_when(until).threads(threads);
    match (search, symmetry) {
        (Search::Shortest | Search::For(_), _) => report(&checker.spawn_bfs().join(), trace),
        (Search::Exhaustive, None) => report(&checker.spawn_dfs().join(), trace),
        (Search::Exhaustive, Some(symmetry)) => {
            report(&checker.symmetry_fn(symmetry).spawn_dfs().join(), trace)
        }
    }
}

fn report<M: Model>(
    checker: &impl Checker<M>,
    trace: impl Fn(Vec<(M::State, Option<M::Action>)>) -> String,
) -> Report
where
    M::State: Clone + Debug + PartialEq + Hash,
    M::Action: Clone + Debug + PartialEq,
{
    let violations = checker.discoveries().into_iter();
    Report {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        violations: violations.map(|(name, path)| (name, trace(path.into_vec()))).collect(),
    }
}

fn trace(path: Vec<(State, Option<Step>)>, scenario: Scenario) -> String {
    let mut text = String::new();
    for (i, (op, key)) in scenario.ops.iter().enumerate() {
        let _ = writeln!(text, "  client {i}: {op:?} of key {key}");
    }
    for (state, step) in &path {
        let _ = write!(text, "  {:?}", &state.memory[..scenario.replicas]);
        for (i, c) in state.clients[..scenario.ops.len()].iter().enumerate() {
            if c.pc == Pc::Idle || c.pc.is_over() {
                let _ = write!(text, "  {i}:{:?}", c.pc);
            } else {
                let _ = write!(text, "  {i}:{:?}({:?}>{:?} s{})", c.pc, c.old, c.new, c.slot);
            }
        }
        match step {
            Some(Step { client, verb }) => {
                let _ = writeln!(text, "\n    client {client} {verb:?}");
            }
            None => {
                let _ = writeln!(text, "\n  {:?}", state.fault);
            }
        }
    }
    text
}
