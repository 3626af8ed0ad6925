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
mod json;
mod library;
mod limits;
mod pack;
pub(crate) mod slow;
mod store;
mod value;
mod world;

pub(crate) use engine::{Engine, Outcome, Permission, Run};
pub(crate) use functions::{FunctionInfo, Functions, Library};
pub(crate) use store::{Program, Script, Scripts, parse_sha, sha_of};
