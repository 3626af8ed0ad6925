//! The memory of a batch, which an RDMA device may use.
//!
//! A device takes only memory that is registered with it, which locks its pages
//! and costs a system call. So a batch's memory is registered in place when it is
//! first run, and stays so while the batch is reused: nothing is copied, and after
//! a moment nothing is registered either.

#[cfg(not(loom))]
use crate::verbs::{Domain, MemoryRegion, VerbsError, ffi};
#[cfg(not(loom))]
use std::sync::Arc;

/// Words that a batch's spans are of.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    /// Of the words, so it stands before them (fields end in order) and ends before
    /// they move.
    #[cfg(not(loom))]
    region: Option<MemoryRegion>,
    words: Vec<u64>,
}

/// As much is taken at first; then it doubles.
const WORDS_MIN: usize = 64;

impl Staging {
    #[inline]
    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    #[inline]
    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }

    /// Makes room for so many words; those that are there stay.
    #[cold]
    pub(crate) fn grow(&mut self, words: usize) {
        self.deregister();
        self.words.resize(words.next_power_of_two().max(WORDS_MIN), 0);
    }

    /// Gives the memory back if it is more than this.
    pub(crate) fn keep_at_most(&mut self, words: usize) {
        if self.words.len() > words {
            self.deregister();
            self.words = Vec::new();
        }
    }

    fn deregister(&mut self) {
        #[cfg(not(loom))]
        {
            self.region = None;
        }
    }

    /// Registers it with a device, unless it is; its key in work requests.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn register(&mut self, domain: &Arc<Domain>) -> Result<u32, VerbsError> {
        match &self.region {
            Some(region) if region.is_of(domain) => Ok(region.lkey()),
            _ => self.register_anew(domain),
        }
    }

    #[cfg(not(loom))]
    #[cold]
    fn register_anew(&mut self, domain: &Arc<Domain>) -> Result<u32, VerbsError> {
        self.region = None;
        let (start, bytes) = (self.words.as_mut_ptr().cast(), size_of_val(&*self.words));
        // SAFETY: the region ends before the words move or end (`deregister` and the
        // order of fields). Peers are allowed nothing, and work requests name it only
        // while the batch belongs to the fabric.
        let region =
            unsafe { MemoryRegion::register(domain, start, bytes, ffi::ACCESS_LOCAL_WRITE) }?;
        Ok(self.region.insert(region).lkey())
    }
}
