//! The file that describes a pool, the same for every process of it.
//!
//! ```toml
//! name = "sessions"
//! fabric = "shm"
//! replicas = 2
//! memory = "4GiB"      # of each memory node
//! nodes = ["unix:/run/fusee/0.sock", "unix:/run/fusee/1.sock"]
//! ```

use crate::{Address, Description, Fabric, Size, Tls, TlsError, TlsFiles};
use fusee_layout::{PoolParams, Sizing, SizingError};
use serde::Deserialize;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A pool: its memory nodes, and what is fixed when it is created.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolFile {
    /// Its name, so that nobody joins another one by mistake.
    pub name: String,
    /// How clients reach its memory.
    pub fabric: Fabric,
    /// Copies of every key, each on another node.
    #[serde(default = "one")]
    pub replicas: u8,
    /// Memory of each node.
    pub memory: Size,
    /// Where each node's control plane is, by number.
    pub nodes: Vec<Address>,
    /// Seed of the key hash; without it node 0 draws one.
    pub seed: Option<u64>,
    /// Worker threads of all gateways together, at a time.
    pub clients: Option<u32>,
    /// Certificates, wherever control planes are not on one host.
    pub tls: Option<TlsFiles>,
}

/// Why a file does not describe a pool.
#[derive(Debug, Error)]
pub enum PoolFileError {
    /// It cannot be read.
    #[error("cannot read the pool file {path}: {source}; check the path after --pool")]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is not what it should be.
    #[error("the pool file {path} is wrong: {source}")]
    Parse {
        /// Which.
        path: PathBuf,
        /// Where and why.
        source: Box<toml::de::Error>,
    },
    /// A value, or several together, make no sense.
    #[error("the pool file {path} is wrong: {reason}")]
    Value {
        /// Which.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
}

const NODES_MAX: usize = 256;

impl PoolFile {
    /// Reads a file. Paths of certificates in it are relative to its folder.
    ///
    /// # Errors
    ///
    /// If it does not describe a pool.
    pub fn read(path: &Path) -> Result<Self, PoolFileError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| PoolFileError::Read { path: path.into(), source })?;
        let mut file: Self = toml::from_str(&text)
            .map_err(|source| PoolFileError::Parse { path: path.into(), source: source.into() })?;
        if let (Some(tls), Some(folder)) = (&mut file.tls, path.parent()) {
            for path in [&mut tls.ca, &mut tls.certificate, &mut tls.key] {
                *path = folder.join(&*path);
            }
        }
        file.check().map_err(|reason| PoolFileError::Value { path: path.into(), reason })?;
        Ok(file)
    }

    fn check(&self) -> Result<(), String> {
        if self.nodes.is_empty() || self.nodes.len() > NODES_MAX {
            return Err(format!("nodes has to name 1 to {NODES_MAX} memory nodes"));
        }
        if self.nodes.iter().collect::<HashSet<_>>().len() < self.nodes.len() {
            return Err("two nodes have the same address".to_owned());
        }
        if self.fabric == Fabric::Shm
            && let Some(address) = self.nodes.iter().find(|address| address.path().is_none())
        {
            return Err(format!(
                "fabric = \"shm\" is for one host, so its nodes are unix:/path, not {address}"
            ));
        }
        self.params(0).map(|_| ()).map_err(|error| error.to_string())
    }

    /// The parameters of the pool, with this seed unless the file fixes one.
    ///
    /// # Errors
    ///
    /// If no pool is like that.
    pub fn params(&self, seed: u64) -> Result<PoolParams, SizingError> {
        let nodes = self.nodes.len() as u16;
        let total_bytes = self.memory.0.saturating_mul(nodes.into());
        Sizing {
            total_bytes,
            nodes,
            replicas: self.replicas,
            hash_seed: self.seed.unwrap_or(seed),
            region_bytes: None,
            block_bytes: None,
            // Entry 0 of the client table is no client's.
            clients_max: self.clients.map(|clients| clients.saturating_add(1)),
        }
        .params()
    }

    /// What whoever has this file takes the pool for, said to one of its nodes.
    pub fn description(&self, node: u16) -> Description {
        let (control_version, layout_version) = Description::versions();
        Description {
            control_version,
            layout_version,
            name: self.name.clone(),
            fabric: self.fabric.name().to_owned(),
            nodes: self.nodes.len() as u16,
            replicas: self.replicas,
            node_bytes: self.memory.0,
            hash_seed: self.seed,
            node,
        }
    }

    /// The certificates, if there are any.
    ///
    /// # Errors
    ///
    /// If they cannot be read, or there are none, one of the addresses needs them,
    /// and `insecure` does not say that it is all right.
    pub fn tls(&self, insecure: bool) -> Result<Option<Tls>, TlsError> {
        let far = self.nodes.iter().find(|address| !address.is_local());
        if let Some(files) = &self.tls {
            return Tls::load(files).map(Some);
        }
        match far {
            Some(address) if !insecure => Err(TlsError::Required { address: address.clone() }),
            _ => Ok(None),
        }
    }
}

fn one() -> u8 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<PoolFile, String> {
        let file: PoolFile = toml::from_str(text).map_err(|error| error.to_string())?;
        file.check().map(|()| file)
    }

    const GOOD: &str = "name = 'a'\nfabric = 'shm'\nmemory = '64MiB'\nreplicas = 2\n\
                        nodes = ['unix:/a', 'unix:/b']\n";

    #[test]
    fn a_pool_file_gives_the_parameters_of_its_pool() {
        let file = parse(GOOD).unwrap();
        let params = file.params(7).unwrap();
        assert_eq!((params.nodes, params.replicas, params.hash_seed), (2, 2, 7));
        let fixed = parse(&format!("{GOOD}seed = 3\nclients = 9")).unwrap().params(7).unwrap();
        assert_eq!((fixed.hash_seed, fixed.clients_max), (3, 10));
        assert_eq!(file.description(1).node, 1);
    }

    #[test]
    fn what_makes_no_pool_is_refused_with_the_reason() {
        for (from, to, reason) in [
            ("'unix:/b'", "'unix:/a'", "same address"),
            ("'unix:/b'", "'10.0.0.1:7'", "one host"),
            ("'unix:/b'", "'nowhere'", "host:port"),
            ("replicas = 2", "replicas = 3", "replicas"),
            ("64MiB", "64KiB", "too few"),
            ("'shm'", "'carrier-pigeon'", "shm"),
            ("name", "nmae", "nmae"),
        ] {
            let error = parse(&GOOD.replace(from, to)).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn other_hosts_need_certificates_or_a_word() {
        for fabric in ["verbs", "tcp"] {
            let far = GOOD.replace("shm", fabric).replace("unix:/b", "10.0.0.1:7");
            let file = parse(&far).unwrap();
            assert!(matches!(file.tls(false), Err(TlsError::Required { .. })));
            assert!(file.tls(true).unwrap().is_none());
        }
        assert!(parse(GOOD).unwrap().tls(false).unwrap().is_none());
    }
}
