//! What is said, in this tree's types.

use crate::{GatewayId, Token};
use fusee_layout::message::Effect;
use fusee_layout::{POOL_VERSION, PoolParams};
use serde::Deserialize;
use std::fmt;
use std::path::PathBuf;

/// Version of the messages: raised by whoever changes what they mean.
pub const CONTROL_VERSION: u32 = 4;

/// How clients of a pool reach its memory. All of a pool in the same way: most
/// devices' atomics are atomic among themselves alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fabric {
    /// Shared memory: all processes on one host.
    Shm,
    /// TCP: the memory node's processor executes the verbs.
    Tcp,
    /// RDMA.
    Verbs,
}

impl Fabric {
    /// As the pool file has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::Verbs => "verbs",
        }
    }
}

impl fmt::Display for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What somebody takes a pool for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Description {
    /// [`CONTROL_VERSION`] of the program.
    pub control_version: u32,
    /// [`POOL_VERSION`] of the program.
    pub layout_version: u32,
    /// The pool's name.
    pub name: String,
    /// How its memory is reached.
    pub fabric: String,
    /// How many memory nodes it has.
    pub nodes: u16,
    /// How many copies of index and data.
    pub replicas: u8,
    /// Memory of each node.
    pub node_bytes: u64,
    /// Seed of the key hash, if the pool file fixes it.
    pub hash_seed: Option<u64>,
    /// The node that is meant.
    pub node: u16,
}

impl Description {
    /// Where `theirs` differs from this, said by the node that this one is of.
    pub fn difference(&self, theirs: &Self) -> Option<String> {
        let program = |what, theirs, ours| {
            Some(format!(
                "it speaks version {theirs} of the {what} and this memory node version {ours}: \
                 run the same release everywhere"
            ))
        };
        if theirs.control_version != self.control_version {
            return program("control protocol", theirs.control_version, self.control_version);
        }
        if theirs.layout_version != self.layout_version {
            return program("memory layout", theirs.layout_version, self.layout_version);
        }
        let seed = |seed: Option<u64>| seed.map_or("any".to_owned(), |seed| seed.to_string());
        let seeds_differ =
            matches!((self.hash_seed, theirs.hash_seed), (Some(a), Some(b)) if a != b);
        let differing = [
            ("name", theirs.name.clone(), self.name.clone()),
            ("fabric", theirs.fabric.clone(), self.fabric.clone()),
            ("number of nodes", theirs.nodes.to_string(), self.nodes.to_string()),
            ("replicas", theirs.replicas.to_string(), self.replicas.to_string()),
            ("memory", theirs.node_bytes.to_string(), self.node_bytes.to_string()),
            ("node", theirs.node.to_string(), self.node.to_string()),
        ]
        .into_iter()
        .find(|(_, theirs, ours)| theirs != ours)
        .or_else(|| seeds_differ.then(|| ("seed", seed(theirs.hash_seed), seed(self.hash_seed))));
        let (what, theirs, ours) = differing?;
        Some(format!(
            "its pool file says {what} = {theirs} and this memory node's says {ours}: \
             give every process of a pool the same pool file"
        ))
    }

    /// The versions of this program.
    pub fn versions() -> (u32, u32) {
        (CONTROL_VERSION, POOL_VERSION)
    }
}

/// What a gateway asks for a session by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attach {
    /// What it takes the pool for.
    pub description: Description,
    /// Its process.
    pub gateway: GatewayId,
    /// The session that it takes up again, if it has one.
    pub session: Option<Token>,
}

/// A gateway's session on one memory node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Admission {
    /// Stands for the session.
    pub token: Token,
    /// The pool's parameters, as the superblock has them.
    pub params: PoolParams,
    /// Names the pool's life: a pool begun anew has another.
    pub incarnation: u64,
    /// How to reach the memory.
    pub path: MemoryRoute,
}

/// How to reach a node's memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MemoryRoute {
    /// A Unix socket that hands over the memory's file to who sends the token.
    Shm {
        /// Its path.
        socket: PathBuf,
    },
    /// An address where verbs are executed; the first frame has the token.
    Tcp {
        /// `host:port`.
        address: String,
    },
    /// RDMA: each worker opens a queue pair.
    Verbs {
        /// The device that serves the memory, for people.
        device: String,
    },
}

/// A memory node asks node 0 to be let into the pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Introduction {
    /// What it takes the pool for; the node in it is node 0.
    pub description: Description,
    /// Its number.
    pub from: u16,
    /// Names its process: memory goes with it, so another one is another node.
    pub process: GatewayId,
}

/// What node 0 tells a memory node that it lets in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Membership {
    /// By which the pool's memory nodes know each other.
    pub pool: Token,
    /// The pool's parameters.
    pub params: PoolParams,
    /// Names the pool's life.
    pub incarnation: u64,
}

/// How a gateway is reached by others, for messages that go from one to the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GatewayPeer {
    /// Which.
    pub gateway: GatewayId,
    /// Where it listens.
    pub address: String,
    /// What it lets in by.
    pub secret: Token,
}

/// Node 0 tells that a gateway's session has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expulsion {
    /// The pool's secret.
    pub pool: Token,
    /// Whose.
    pub gateway: GatewayId,
    /// The clients that were its workers.
    pub clients: Vec<u32>,
}

/// What a node decided, for the copies on another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replication {
    /// The pool's secret.
    pub pool: Token,
    /// The node that decided.
    pub from: u16,
    /// Counts its messages to this node from 1.
    pub sequence: u64,
    /// To be done in this order.
    pub effects: Vec<Effect>,
}
