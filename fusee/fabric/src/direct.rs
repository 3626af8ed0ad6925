//! READs that are done where they are asked for.

use fusee_layout::NodeAddress;

/// READs without a [`Batch`](crate::Batch): done in the order in which they are asked for,
/// words whole and longer ones torn, as those of a batch. All of them together count as one
/// batch, since nothing is waited for between them.
///
/// A place that cannot be read so is `None` and is left to a batch, which says why.
pub trait DirectReads {
    /// READs a word.
    fn word(&mut self, at: NodeAddress) -> Option<u64>;

    /// READs so many bytes, whole words of them.
    fn bytes(&mut self, at: NodeAddress, bytes: usize) -> Option<&[u8]>;
}

/// Those of a fabric to memory elsewhere: there are none.
#[derive(Debug)]
pub enum NoDirectReads {}

impl DirectReads for NoDirectReads {
    fn word(&mut self, _at: NodeAddress) -> Option<u64> {
        match *self {}
    }

    fn bytes(&mut self, _at: NodeAddress, _bytes: usize) -> Option<&[u8]> {
        match *self {}
    }
}
