//! Why a node does not do what it is asked, on both ends.

use crate::Address;
use std::error::Error as _;
use thiserror::Error;
use tonic::{Code, Status};

/// Why a service does not do what it is asked.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Denied {
    /// Not yet: whoever asks may ask again.
    #[error("{0}")]
    NotReady(String),
    /// Not like this, however often.
    #[error("{0}")]
    Refused(String),
    /// The session or the pool is not one that is known here.
    #[error("the session has ended, or is of another memory node")]
    Unknown,
    /// The message makes no sense.
    #[error("{0} makes no sense")]
    Malformed(&'static str),
}

/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ControlError {
    /// Nobody answers there, or not in time.
    #[error("memory node {node} at {address} does not answer: {reason}")]
    Unreachable {
        /// Its number.
        node: u16,
        /// Where it should be.
        address: Address,
        /// What the system says.
        reason: String,
    },
    /// It is there, and waits for others.
    #[error("memory node {node} at {address} is not ready: {reason}")]
    NotReady {
        /// Its number.
        node: u16,
        /// Where it is.
        address: Address,
        /// What it waits for.
        reason: String,
    },
    /// It does not know the session, or not any more.
    #[error(
        "memory node {node} at {address} has ended the session: it heard nothing of this process \
         for too long, or was itself started again"
    )]
    Ended {
        /// Its number.
        node: u16,
        /// Where it is.
        address: Address,
    },
    /// It will not, however often it is asked.
    #[error("memory node {node} at {address} refuses: {reason}")]
    Refused {
        /// Its number.
        node: u16,
        /// Where it is.
        address: Address,
        /// Why, and what to do.
        reason: String,
    },
    /// One of the two does not trust the other's certificate.
    #[error(
        "no trust between this process and memory node {node} at {address}: {reason}; check that \
         the pool file's certificates are of one authority, name the host, and have not ended"
    )]
    Untrusted {
        /// Its number.
        node: u16,
        /// Where it is.
        address: Address,
        /// What the TLS library says.
        reason: String,
    },
}

impl ControlError {
    /// Can it be otherwise if it is tried again later?
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::NotReady { .. })
    }

    pub(crate) fn from_status(node: u16, address: &Address, status: &Status) -> Self {
        let address = address.clone();
        let reason = describe(status);
        match status.code() {
            Code::FailedPrecondition | Code::InvalidArgument | Code::Unimplemented => {
                Self::Refused { node, address, reason }
            }
            Code::PermissionDenied => Self::Ended { node, address },
            Code::Unavailable if status.metadata().contains_key(NOT_READY) => {
                Self::NotReady { node, address, reason }
            }
            _ if is_about_trust(&reason) => Self::Untrusted { node, address, reason },
            _ => Self::Unreachable { node, address, reason },
        }
    }
}

/// Marks an answer of the service from the transport's own.
const NOT_READY: &str = "fusee-not-ready";

impl From<Denied> for Status {
    fn from(denied: Denied) -> Self {
        let text = denied.to_string();
        match denied {
            Denied::NotReady(_) => {
                let mut status = Self::unavailable(text);
                status.metadata_mut().insert(NOT_READY, "1".parse().expect("a digit is ASCII"));
                status
            }
            Denied::Refused(_) => Self::failed_precondition(text),
            Denied::Unknown => Self::permission_denied(text),
            Denied::Malformed(_) => Self::invalid_argument(text),
        }
    }
}

/// The last reason in the chain is the one that tells something: the system's or
/// the TLS library's.
fn describe(status: &Status) -> String {
    let mut reason = status.message().to_owned();
    let mut source = status.source();
    while let Some(error) = source {
        reason = error.to_string();
        source = error.source();
    }
    reason
}

fn is_about_trust(reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase();
    ["certificate", "fatal alert", "tls", "corrupt message"]
        .iter()
        .any(|word| reason.contains(word))
}
