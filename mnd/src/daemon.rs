//! A memory node as a process: its memory, and the control plane that lets others
//! at it.
//!
//! The processor serves the control plane alone; how clients reach the memory is
//! a [`DataPath`], which goes on while the control plane's thread does not.

mod config;
mod copies;
mod data_path;
mod node;
mod report;
mod served;
mod sessions;
mod shm_path;
mod start;
mod tcp_path;
mod verbs_path;

pub use config::{Config, ConfigError, LogFormat};
pub use data_path::{DataPath, Ended, RETURN_TIME_MAX, Revoking};
pub use node::Node;
pub use report::Report;
pub use served::Served;
pub use shm_path::ShmPath;
pub use start::{StartError, run};
pub use tcp_path::TcpPath;
pub use verbs_path::VerbsPath;
