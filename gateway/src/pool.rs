//! Buffers that connections borrow while they have something to say, so that
//! the busy ones share a few that are warm in the cache and the idle ones hold
//! none.

use std::cell::RefCell;

/// What one read takes from a socket at most, unless a large argument is on its
/// way: a pipeline of 128 short commands.
pub(crate) const BUFFER_BYTES: usize = 16 * 1024;
/// Larger buffers are given back to the system.
const BUFFER_BYTES_KEPT: usize = 64 * 1024;
/// 8 MiB a worker at most.
const BUFFERS_KEPT: usize = 128;

/// Empty buffers of one worker.
#[derive(Debug, Default)]
pub(crate) struct BufferPool(RefCell<Vec<Vec<u8>>>);

impl BufferPool {
    /// A buffer with room.
    #[inline]
    pub(crate) fn take(&self) -> Vec<u8> {
        self.0.borrow_mut().pop().unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES))
    }

    /// Gives a buffer back, or to the system when it has grown.
    #[inline]
    pub(crate) fn give(&self, mut buffer: Vec<u8>) {
        let mut kept = self.0.borrow_mut();
        if (1..=BUFFER_BYTES_KEPT).contains(&buffer.capacity()) && kept.len() < BUFFERS_KEPT {
            buffer.clear();
            kept.push(buffer);
        }
    }
}
