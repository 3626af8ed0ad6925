//! READs at one moment of virtual time: of memory as other clients' WRITEs, that may be half
//! done, have left it.

use crate::SimFabric;
use fusee_fabric::{DirectReads, VERB_KINDS, VerbKind};
use fusee_layout::NodeAddress;

/// READs without a batch, at the moment at which they were begun.
#[derive(Debug)]
pub struct SimReads<'a> {
    fabric: &'a SimFabric,
    words: Vec<u8>,
    reads: u64,
    bytes: u64,
}

impl<'a> SimReads<'a> {
    pub(crate) fn new(fabric: &'a SimFabric) -> Self {
        Self { fabric, words: Vec::new(), reads: 0, bytes: 0 }
    }
}

impl DirectReads for SimReads<'_> {
    fn word(&mut self, at: NodeAddress) -> Option<u64> {
        let bytes = self.bytes(at, 8)?;
        Some(u64::from_le_bytes(bytes.try_into().expect("8 bytes were read")))
    }

    fn bytes(&mut self, at: NodeAddress, bytes: usize) -> Option<&[u8]> {
        let nodes = self.fabric.pool().nodes();
        if nodes.is_down(at.node) {
            return None;
        }
        self.words = nodes.bytes(at, bytes);
        self.reads += 1;
        self.bytes += bytes as u64;
        let fabric = self.fabric;
        fabric.pool().note(fabric.client(), || format!("READ {bytes} bytes at {at:?} at once"));
        Some(&self.words)
    }
}

impl Drop for SimReads<'_> {
    fn drop(&mut self) {
        if self.reads > 0 {
            let mut verbs = [0; VERB_KINDS];
            verbs[VerbKind::Read as usize] = self.reads;
            self.fabric.count_direct(verbs, self.bytes);
        }
    }
}
