//! Control requests to a memory node: what cannot be done by one-sided verbs.

use crate::{Address, Class, PoolParams};
use thiserror::Error;

/// What a client asks of a memory node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Become a client. Asked of node 0.
    Join {
        /// What the client takes the pool for.
        params: PoolParams,
    },
    /// Stop being a client; its blocks become orphans. Asked of every node,
    /// node 0 last.
    Leave {
        /// Who leaves.
        client: u32,
    },
    /// ALLOC: a block for objects of a class, from one of the node's primary
    /// regions.
    Allocate {
        /// Who will own it.
        client: u32,
        /// What it will hold.
        class: Class,
        /// Is it for deletes, which a full pool must still be able to do? They
        /// get the blocks that are held back from everybody else.
        reserve: bool,
    },
    /// A block that holds no object any more goes back.
    Return {
        /// Who owned it.
        client: u32,
        /// Where it starts.
        block: Address,
    },
}

/// A memory node's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Response {
    /// The client has joined under this id, from 1; its entry in the client
    /// table is the one of this index.
    Joined {
        /// Its id: never given twice in a pool's life.
        client: u32,
        /// Its place in the client table.
        index: u32,
    },
    /// Done.
    Done,
    /// A block.
    Allocated {
        /// Where it starts.
        block: Address,
        /// Does it still hold objects of an earlier owner?
        adopted: bool,
    },
    /// Not done.
    Refused(Refusal),
}

/// Why a memory node does not do what it is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Refusal {
    /// No block is left here; another node may have one.
    #[error("no block is left on this memory node")]
    Full,
    /// Every place in the client table is taken.
    #[error("the pool has its most clients: stop some, or create it with a larger client table")]
    TooManyClients,
    /// The client takes the pool for another one.
    #[error("the client's pool parameters are not those of this pool")]
    OtherParameters,
    /// The client is not one, or not the owner of what it names.
    #[error("the client does not own what it names")]
    NotOwner,
}
