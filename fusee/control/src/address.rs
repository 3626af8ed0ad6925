//! Where a memory node's control plane is: `unix:/path` or `host:port`.

use serde::Deserialize;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use thiserror::Error;

/// An address of a control plane.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Deserialize)]
#[serde(try_from = "String")]
pub enum Address {
    /// A Unix socket on this machine.
    Unix(PathBuf),
    /// A host's name or IP address, and a port.
    Tcp {
        /// The host, without brackets.
        host: String,
        /// The port.
        port: u16,
    },
}

/// What is no address.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{0:?} is no address of a memory node: write unix:/path/to/socket or host:port")]
pub struct AddressError(String);

impl Address {
    /// Does nobody else hear what is said there? Unix sockets and loopback.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp { host, .. } => {
                host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
            }
        }
    }

    /// The socket's path, if it is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Unix(path) => Some(path),
            Self::Tcp { .. } => None,
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            // A relative one would mean another socket in every working directory.
            return if path.starts_with('/') { Ok(Self::Unix(path.into())) } else { Err(wrong()) };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().ok().filter(|&port| port > 0).ok_or_else(wrong)?;
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let host = bracketed.unwrap_or(host);
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let is_host = if bracketed.is_some() {
            host.parse::<std::net::Ipv6Addr>().is_ok()
        } else {
            !host.is_empty() && host.chars().all(is_name)
        };
        if is_host { Ok(Self::Tcp { host: host.to_owned(), port }) } else { Err(wrong()) }
    }
}

impl TryFrom<String> for Address {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, AddressError> {
        text.parse()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_were_written() {
        for (text, local) in [
            ("unix:/run/fusee/0.sock", true),
            ("127.0.0.1:7000", true),
            ("[::1]:7000", true),
            ("localhost:7000", true),
            ("10.0.0.7:7000", false),
            ("[2001:db8::1]:7000", false),
            ("memory-0.example.org:7000", false),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(address.is_local(), local, "{text}");
        }
        assert_eq!("unix:///a".parse::<Address>().unwrap().to_string(), "unix:/a");
        for text in
            ["", "unix:a", "host", "host:", ":7000", "host:0", "host:70000", "a b:1", "::1:5"]
        {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
