//! Runs the checker on a scenario and tells what it found.

use std::fmt::Write as _;

use super::policy::Part;
use super::scenario::Scenario;
use super::state::{Kind, Memory, Pc, State};
use super::{Step, Transactions};
use crate::model::run::{Report, Search, explore};

/// Checks every schedule of the scenario, of the whole protocol or without a part.
pub fn check(scenario: Scenario, without: Option<Part>, search: Search, threads: usize) -> Report {
    let model = Transactions::new(scenario, without);
    explore(model, None, search, threads, |path| trace(path, scenario))
}

fn trace(path: Vec<(State, Option<Step>)>, scenario: Scenario) -> String {
    let mut text = String::new();
    for (client, ops) in scenario.programs.iter().enumerate() {
        let _ = writeln!(text, "  client {client}: {ops:?}");
    }
    for (state, step) in &path {
        let _ = write!(text, "  {:?}", state.slots);
        for (number, memory) in state.objects.iter().enumerate() {
            if let Memory::InUse(Kind::Transaction { copies }) = memory {
                let _ = write!(text, " T{number}:{:?}", &copies[..scenario.copies]);
            }
        }
        for (client, c) in state.clients[..scenario.programs.len()].iter().enumerate() {
            let stopped = if c.stopped { " stopped" } else { "" };
            let _ = match c.pc {
                Pc::Finish | Pc::DecideBackup => {
                    write!(text, "  {client}:{:?} {:?}{stopped}", c.pc, c.decision)
                }
                pc => write!(text, "  {client}:{pc:?}{stopped}"),
            };
        }
        match step {
            Some(step) => {
                let _ = writeln!(text, "\n    {step:?}");
            }
            None => {
                let _ = writeln!(text, "\n  {:?}", state.fault);
            }
        }
    }
    text
}
