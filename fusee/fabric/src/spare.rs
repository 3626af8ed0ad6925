//! Batches that have been used and may be again.

use crate::Batch;
use std::cell::RefCell;

/// Batches kept for reuse: as many as a worker has operations under way.
const SPARE_BATCHES_MAX: usize = 64;

/// A thread's spare batches.
#[derive(Debug, Default)]
pub(crate) struct SpareBatches(RefCell<Vec<Batch>>);

impl SpareBatches {
    /// An empty batch.
    #[inline]
    pub(crate) fn take(&self) -> Batch {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes a batch back.
    #[inline]
    pub(crate) fn give(&self, mut batch: Batch) {
        batch.clear();
        let mut spare = self.0.borrow_mut();
        if spare.len() < SPARE_BATCHES_MAX {
            spare.push(batch);
        }
    }
}
