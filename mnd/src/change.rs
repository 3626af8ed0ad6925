//! What a decision has to write.

use fusee_layout::message::{Refusal, Response};
use fusee_layout::{Address, BlockEntry};

/// A decision on a request: what to write, then what to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// To be written in this order, before the answer goes out.
    pub changes: Vec<Change>,
    /// The answer.
    pub response: Response,
}

/// One thing to write, to every copy of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
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
    /// A client's entry that is emptied, after its key counts were added to
    /// those of all who have left.
    Departed {
        /// Its place in the client table.
        index: u32,
    },
}

impl Answer {
    pub(crate) fn plain(response: Response) -> Self {
        Self { changes: Vec::new(), response }
    }

    pub(crate) fn refused(why: Refusal) -> Self {
        Self::plain(Response::Refused(why))
    }
}
