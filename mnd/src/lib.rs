//! The memory node: it gives blocks and client ids, and is otherwise only
//! memory. Decisions are made by [`Blocks`] and [`Members`], which do no I/O;
//! [`MemoryNode`] carries them out by verbs.
#![forbid(unsafe_code)]

mod blocks;
mod change;
mod members;
mod node;
mod pool;

pub use blocks::{BlockStatistics, Blocks};
pub use change::{Answer, Change};
pub use members::Members;
pub use node::{MemoryNode, Statistics};
pub use pool::{EmbeddedPool, PoolError};
