//! What the whole-system tests share: servers to test, ways to talk to them,
//! and the load generator of the benchmark.

pub mod bench;
pub mod metrics;
pub mod pool;
pub mod process;
pub mod proxy;
pub mod random;
pub mod resp;
pub mod rig;
pub mod server;
pub mod tcl;
pub mod verbs;
