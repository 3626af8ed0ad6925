//! What can keep an operation from being done, named by what the caller does next.

use thiserror::Error;

/// Why an operation was not done. Unless the variant says otherwise nothing
/// was applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Error {
    /// No memory node has a block left: free memory or add a node. Redis calls
    /// this OOM. Reads and deletes go on.
    #[error("the pool is full: delete keys, or add memory nodes")]
    Full,
    /// Every slot that the key may use holds another key; the index is too
    /// small for the number of keys.
    #[error("the index is full: delete keys, or create the pool with a larger index share")]
    IndexFull,
    /// The key is longer than an object can hold.
    #[error("the key is longer than {limit} bytes")]
    KeyTooLong {
        /// The longest key in bytes.
        limit: usize,
    },
    /// The value is longer than 512 MiB, Redis's limit.
    #[error("the value is longer than {limit} bytes")]
    ValueTooLong {
        /// The longest value in bytes.
        limit: usize,
    },
    /// A memory node does not answer. A write may or may not have been applied.
    #[error("memory node {node} does not answer")]
    NodeDown {
        /// Its number in the pool.
        node: u16,
    },
    /// The operation met so many conflicts that it gave up. A write may have
    /// been applied.
    #[error("gave up after {attempts} conflicts")]
    Conflict {
        /// How often it was started.
        attempts: u32,
    },
    /// The only slot left for the key is held by an insert of a client that does
    /// not go on, and that only its recovery can finish. Nothing was applied.
    #[error(
        "the last slot for the key is held by a client that has stopped: try again when the \
         memory nodes have expelled it, or create the pool with a larger index share"
    )]
    Stalled,
    /// The pool that was joined is no more: its memory nodes were started anew, or are
    /// another pool's by now. Whoever wants the new one joins that.
    #[error(
        "the pool that this gateway was in is gone, with all that it held: see the gateway's log, \
         then start it again"
    )]
    Gone,
    /// What memory holds contradicts the layout; the pool needs repair.
    #[error("memory of the pool is not as it should be: {what}")]
    Corrupt {
        /// What was found.
        what: &'static str,
    },
}
