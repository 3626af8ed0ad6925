//! Histories: a small pool, a few clients that do a few operations on a few
//! keys under one seed, and the verdict on what came of it.

mod audit;
mod failure;
mod operate;
mod plan;
mod record;
mod runner;
mod stage;
mod subject;

pub use audit::{Living, audit};
pub use failure::{Census, Conflicts, Failure, Fault, Summary};
pub use plan::{ClientPlan, Plan, Scenario, Task};
pub use runner::{Inspect, Opened, Stage, run_with};
pub use stage::{SimStore, geometry, run_history, stage};
pub use subject::Subject;
