//! The benchmark: our own lean load generator, windows that alternate between
//! two servers, and the ratios between them.
//!
//! redis-benchmark is itself the bottleneck at pipeline 1 and against anything
//! faster than Redis, so it cannot judge here.

mod cores;
mod gateways;
mod generator;
mod keys;
mod report;
mod workload;

pub use cores::Cores;
pub use gateways::Gateways;
pub use generator::{Generator, Window};
pub use keys::Keys;
pub use report::{Comparison, Sample, json, row, table_head};
pub use workload::{Verb, Workload};
