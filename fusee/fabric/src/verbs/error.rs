//! Why verbs cannot be used here, each with the remedy.

use std::io;
use thiserror::Error;

/// Why verbs cannot be used here.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum VerbsError {
    /// libibverbs cannot be loaded.
    #[error(
        "this machine has no libibverbs ({reason}): install rdma-core \
         (Debian: libibverbs1 and ibverbs-providers), or choose the fabric tcp or shm"
    )]
    NoLibrary {
        /// What the loader says.
        reason: String,
    },
    /// libibverbs lacks a function.
    #[error("libibverbs is too old, it has no {symbol}: install rdma-core 32 or later")]
    OldLibrary {
        /// The function, with its version.
        symbol: String,
    },
    /// The machine has no RDMA device.
    #[error(
        "this machine has no RDMA device: load the driver of its network card, or make a software \
         one with: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev IFACE"
    )]
    NoDevice,
    /// No device is as it was asked for or has to be.
    #[error("no RDMA device can be used: {}", .refused.join("; "))]
    NoneFits {
        /// Each device with what is wrong with it.
        refused: Vec<String>,
    },
    /// Memory cannot be registered.
    #[error(
        "{bytes} bytes of memory cannot be registered with {device}: {reason}. Registered memory is \
         locked, and {}: raise the limit (ulimit -l unlimited; systemd: LimitMEMLOCK=infinity; \
         docker: --ulimit memlock=-1) and see that so much memory is free", limit(*.locked_max)
    )]
    Register {
        /// How much.
        bytes: u64,
        /// With which device.
        device: String,
        /// What the system says.
        reason: String,
        /// How much this process may lock, if there is a limit.
        locked_max: Option<u64>,
    },
    /// Something was refused by the system or by the device.
    #[error("{device}: cannot {what}: {reason}{}", remedy(.reason))]
    Refused {
        /// By which device.
        device: String,
        /// What.
        what: &'static str,
        /// What the system says.
        reason: String,
    },
    /// A peer described its end in a way that makes no sense.
    #[error("the peer's end of a queue pair makes no sense: {0}")]
    Peer(&'static str),
}

impl VerbsError {
    /// What the last call of the system failed with.
    pub(crate) fn refused(device: &str, what: &'static str, error: &io::Error) -> Self {
        Self::Refused { device: device.into(), what, reason: error.to_string() }
    }
}

fn limit(locked_max: Option<u64>) -> String {
    match locked_max {
        Some(bytes) => format!("this process may lock {bytes} bytes in all"),
        None => "this process may lock as much as there is".into(),
    }
}

fn remedy(reason: &str) -> &'static str {
    if reason.starts_with("Permission denied") || reason.starts_with("Operation not permitted") {
        " (may this user open /dev/infiniband/uverbs*?)"
    } else if reason.starts_with("Cannot allocate memory") {
        " (raise the limit of locked memory: ulimit -l unlimited)"
    } else {
        ""
    }
}
