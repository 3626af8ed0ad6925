//! The simulator: memory nodes, clients and their faults in virtual time, and
//! the judge of what they did.
#![forbid(unsafe_code)]

mod control;
mod delay;
mod direct;
mod env;
pub mod execution;
mod executor;
mod fabric;
pub mod history;
pub mod keyspec;
pub mod linearizability;
mod meddler;
pub mod model;
mod nodes;
mod pool;
mod rng;
mod schedule;
mod trace;

pub use control::MemoryNodes;
pub use delay::Delays;
pub use direct::SimReads;
pub use env::{SimEnv, WallClock};
pub use executor::{Ended, Executor, Group, Sim};
pub use fabric::SimFabric;
pub use meddler::{Meddler, Meddling, Seen};
pub use nodes::Nodes;
pub use pool::{Control, Move, Settings, SimPool};
pub use rng::Rng;
pub use schedule::Tearing;
pub use trace::address_of;
