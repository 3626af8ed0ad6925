//! Configuration: flags, then environment. What is the same for all processes of a
//! pool is in the pool file.

use clap::{Parser, ValueEnum};
use fusee_control::{PoolFile, PoolFileError};
use fusee_fabric::verbs::DeviceChoice;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use thiserror::Error;

/// A memory node of a FUSEE pool: memory that gateways reach by one-sided verbs.
///
/// Start one for each address under `nodes` in the pool file, in any order, then
/// gateways with the same file: `gateway --pool FILE`. The memory lives as long as
/// this process. Every flag can also be given as the variable shown beside it.
#[derive(Parser, Clone, Debug)]
#[command(name = "mnd", version, max_term_width = 100)]
pub struct Config {
    /// The file that describes the pool, the same for all its processes.
    #[arg(long, env = "FUSEE_POOL", value_name = "FILE")]
    pub pool: PathBuf,
    /// Which of the pool file's nodes this is, from 0.
    #[arg(long, env = "FUSEE_NODE", value_name = "NUMBER")]
    pub node: u16,
    /// Take memory near the processors of this NUMA node, the network device's best.
    #[arg(long, env = "FUSEE_NUMA_NODE", value_name = "NUMBER")]
    pub numa_node: Option<u16>,
    /// Be without TLS on addresses that others could hear, control plane and verbs: only
    /// where nobody else is on that network.
    #[arg(long, env = "FUSEE_INSECURE")]
    pub insecure: bool,
    /// With fabric = "verbs", the RDMA device that serves the memory [default: the first
    /// that can be used]
    #[arg(long, env = "FUSEE_DEVICE", value_name = "NAME")]
    pub device: Option<String>,
    /// With fabric = "verbs", the device's address that gateways reach it at [default: its
    /// first]
    #[arg(long, env = "FUSEE_DEVICE_ADDRESS", value_name = "ADDRESS")]
    pub device_address: Option<IpAddr>,
    /// After SIGTERM, how long gateways may take to leave.
    #[arg(long, env = "FUSEE_DRAIN", value_name = "SECONDS", default_value_t = 10)]
    pub drain: u64,
    /// Address for /metrics, /livez and /readyz.
    #[arg(long, env = "FUSEE_METRICS_BIND", value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub metrics_bind: IpAddr,
    /// Port for /metrics, /livez and /readyz; 0 turns them off [default: 9380 + the node's
    /// number]
    #[arg(long, env = "FUSEE_METRICS_PORT", value_name = "PORT")]
    pub metrics_port: Option<u16>,
    /// With fabric = "tcp", how many threads execute what gateways send [default: one
    /// for each processor, 8 at most]
    #[arg(long, env = "FUSEE_THREADS", value_name = "COUNT")]
    pub threads: Option<NonZeroUsize>,
    /// How log lines look.
    #[arg(
        long,
        env = "FUSEE_LOG_FORMAT",
        value_enum,
        value_name = "FORMAT",
        default_value = "text"
    )]
    pub log_format: LogFormat,
    /// error, warn, info, debug or trace, or a filter such as mnd=debug.
    #[arg(long, env = "FUSEE_LOG_LEVEL", value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
}

/// How log lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs, one object a line.
    Json,
}

/// Why the configuration is not one, and what to do.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The pool file.
    #[error(transparent)]
    Pool(#[from] PoolFileError),
    /// A value, or several together, make no sense.
    #[error("{0}")]
    Value(String),
}

/// The metrics port of node 0, beside the gateway's.
const METRICS_PORT: u16 = 9380;

/// A thread executes some hundred thousand batches a second.
const THREADS_MAX: usize = 8;

impl Config {
    /// Where metrics are served, if they are.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        let port = self.metrics_port.unwrap_or(METRICS_PORT.saturating_add(self.node));
        (port > 0).then(|| SocketAddr::new(self.metrics_bind, port))
    }

    /// Threads that execute verbs.
    pub fn threads(&self) -> usize {
        let own = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.threads.map_or_else(|| own().min(THREADS_MAX), NonZeroUsize::get)
    }

    /// The RDMA device that is asked for.
    pub fn device_choice(&self) -> DeviceChoice {
        DeviceChoice { name: self.device.clone(), address: self.device_address }
    }

    /// Reads the pool file.
    ///
    /// # Errors
    ///
    /// If it does not describe a pool, or not one with this node.
    pub fn pool(&self) -> Result<PoolFile, ConfigError> {
        let file = PoolFile::read(&self.pool)?;
        let nodes = file.nodes.len();
        if usize::from(self.node) >= nodes {
            return Err(ConfigError::Value(format!(
                "--node {} is none of this pool's: its file names nodes 0 to {}",
                self.node,
                nodes - 1
            )));
        }
        Ok(file)
    }
}
