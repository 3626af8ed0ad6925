//! Lua scripts: EVAL, FCALL and their relatives.
//!
//! A script runs on the keyspace of a transaction and never waits: its commands find
//! their keys read before. When one touches a key that is not, or looks at many, the
//! run is given up, what it needs is fetched, and it runs again from the start, which
//! nobody notices since nothing it has written is seen before the transaction is
//! done. So a script keeps no lock, and one that is killed leaves nothing. One that
//! takes long is given up, too, and begins anew on a thread of its own.

mod call;
mod engine;
mod functions;
mod given;
mod json;
mod library;
mod limits;
mod pack;
mod raise;
pub(crate) mod slow;
mod store;
mod structs;
mod value;
mod world;

/// The stack of a thread that runs scripts: values 1,000 deep in each other, as JSON may have
/// them, take some kilobytes a level.
pub(crate) const STACK_BYTES: usize = 16 << 20;

pub(crate) use engine::{Engine, Outcome, Permission, Run};
pub(crate) use functions::{FunctionInfo, Functions, Library};
pub(crate) use store::{Program, ProgramKind, Running, Script, Scripts, parse_sha, sha_of};
