//! The memory node: it gives blocks and client ids, and is otherwise only
//! memory. Decisions are made by [`Blocks`] and [`Members`], which do no I/O;
//! a [`Ledger`] writes them into the node's memory, and whoever runs the ledger
//! into the copies on other nodes: [`MemoryNode`] within one process.
#![forbid(unsafe_code)]

mod blocks;
mod change;
pub mod daemon;
mod ledger;
mod members;
mod memory;
mod node;
mod pool;

pub use blocks::Blocks;
pub use change::{Answer, Change};
pub use fusee_layout::message::{BlockStatistics, Statistics};
pub use ledger::Ledger;
pub use members::Members;
pub use memory::NodeMemory;
pub use node::MemoryNode;
pub use pool::{EmbeddedPool, PoolError};
