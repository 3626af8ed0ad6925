//! The FUSEE client: linearizable operations on keys kept in remote memory.
//!
//! [`Store`] is one worker's way to a pool. A GET is in `read.rs`, a SET in
//! `write.rs`, an INCR in `update.rs`; all find the key's slot through `index.rs`, and a write moves it
//! in a round: `snapshot.rs` where the slot has backups, `single.rs` where it
//! has none. Memory comes from `alloc.rs` and returns through `reclaim.rs`.
#![forbid(unsafe_code)]

mod adopt;
mod alloc;
mod block;
mod cache;
mod chunk;
mod commit;
mod draft;
mod entry;
mod env;
mod epoch;
mod error;
mod free;
mod head;
mod help;
mod index;
mod intent;
mod maintain;
mod patrol;
mod read;
mod reclaim;
mod recover;
mod round;
pub mod rules;
mod scan;
mod seek;
mod series;
mod single;
mod snapshot;
mod standing;
mod stats;
mod store;
mod survey;
mod suspect;
mod sweep;
#[cfg(test)]
mod testing;
mod transaction;
mod undecided;
mod update;
mod watch;
mod write;

pub use alloc::{BlockAudit, ObjectState};
pub use entry::{DATABASES, Decision, Entry, Key, Kind, SYSTEM_DATABASE};
pub use env::Env;
pub use error::Error;
pub use series::Setting;
pub use stats::{ByClass, Count, Stats};
pub use store::{JoinError, Store, StoreConfig};
pub use transaction::Transaction;
pub use watch::Watched;
