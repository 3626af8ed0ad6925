//! Control requests to a memory node: what cannot be done by one-sided verbs.

use crate::{Address, BlockEntry, Class, DATABASES, PoolParams, Room};
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
    /// node 0 last: by a client whose operations have ended, or for an expelled
    /// one by who has recovered its memory.
    Leave {
        /// Who leaves.
        client: u32,
    },
    /// A client has died, and none of its verbs can take effect any more: nobody
    /// waits for it from now on, and its memory is to be recovered. Asked by the
    /// memory nodes, of every node, node 0 last.
    Expel {
        /// Who has died.
        client: u32,
    },
    /// Is there an expelled client whose memory nobody recovers? Asked of node 0.
    /// Until that one has left, or the asker, it is the asker's to recover.
    Recover {
        /// Who asks.
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
        /// Shall it rather be a free block than an orphan? The last orphan had
        /// nothing that could be used at once.
        fresh: bool,
    },
    /// Take over this orphan, which holds no object in use.
    Adopt {
        /// Who will own it.
        client: u32,
        /// Where it starts.
        block: Address,
    },
    /// A block that is an orphan, or is about to become one, has room for more
    /// objects: whoever needs its class next shall have it.
    Offer {
        /// Who owns it or owned it last.
        client: u32,
        /// Where it starts.
        block: Address,
        /// What room.
        room: Room,
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
    /// Done; nothing to recover.
    Done,
    /// A client to be recovered.
    Expelled {
        /// Its id.
        client: u32,
    },
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

/// What a decision of a memory node writes, the same to every copy: each node
/// does it to its own memory. Nobody else writes these words, and nobody CASes
/// them, so a node's processor may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// An entry of a region's block table.
    Entry {
        /// Where it is.
        at: Address,
        /// What it becomes.
        entry: BlockEntry,
    },
    /// A block that becomes all zeroes.
    Zero {
        /// Where it starts.
        block: Address,
    },
    /// The count of entries of the client table that were ever given out.
    Entries {
        /// So many, entry 0 included.
        count: u32,
    },
    /// The count of expelled clients whose memory nobody recovers yet.
    Expelled {
        /// So many.
        count: u32,
    },
    /// A client's entry that is emptied, and the key counts of all who have left,
    /// its own among them.
    Departed {
        /// Its place in the client table.
        index: u32,
        /// By database.
        keys: [i64; DATABASES],
    },
}

/// What a memory node has to tell about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Its blocks.
    pub blocks: BlockStatistics,
    /// Clients of the pool, as node 0 knows them.
    pub members: Option<u32>,
    /// Clients that have died and are not recovered, as node 0 knows them.
    pub expelled: Option<u32>,
}

/// How many blocks there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockStatistics {
    /// That belong to nobody, the reserved ones among them.
    pub free: u32,
    /// That belong to clients.
    pub owned: u32,
    /// That wait to be adopted.
    pub orphans: u32,
    /// Of the free ones, those held back for deletes.
    pub reserved: u32,
    /// Bytes of a block.
    pub block_bytes: u64,
}
