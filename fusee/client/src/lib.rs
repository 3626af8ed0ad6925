//! The FUSEE client: linearizable operations on keys kept in remote memory.

mod entry;
mod env;
mod error;

pub use entry::{DATABASES, Decision, Entry, Key, Kind};
pub use env::Env;
pub use error::Error;
