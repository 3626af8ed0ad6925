//! READs of shared memory without a batch.

use super::{ShmEndpoint, ShmFabric, ShmNode};
use crate::batch::as_bytes;
use crate::execute::Tally;
use crate::{DirectReads, VerbKind, VerbKinds};
use fusee_layout::NodeAddress;

/// Words that are kept for the next READs; the memory of longer ones is given back.
const WORDS_KEPT: usize = 8 << 10;

/// READs that load where they are asked for.
pub struct ShmReads<'a> {
    fabric: &'a ShmFabric,
    words: Vec<u64>,
    tally: Tally,
    /// Is the next longer READ to be timed?
    timed: bool,
}

impl<'a> ShmReads<'a> {
    #[inline]
    pub(super) fn new(fabric: &'a ShmFabric) -> Self {
        let timed = fabric.endpoint.sampler.chooses();
        Self { fabric, words: fabric.words.take(), tally: Tally::default(), timed }
    }
}

impl ShmReads<'_> {
    #[cold]
    fn grow(&mut self, count: usize) {
        self.words.resize(count, 0);
    }
}

impl DirectReads for ShmReads<'_> {
    #[inline]
    fn word(&mut self, at: NodeAddress) -> Option<u64> {
        let mut word = [0];
        let endpoint = &self.fabric.endpoint;
        let memory = answering(endpoint, at.node)?.memory();
        endpoint.executor.read(memory, at.offset, &mut word, &mut self.tally)?;
        Some(word[0])
    }

    #[inline]
    fn bytes(&mut self, at: NodeAddress, bytes: usize) -> Option<&[u8]> {
        let count = bytes / 8;
        if self.words.len() < count {
            self.grow(count);
        }
        let words = &mut self.words[..count];
        let endpoint = &self.fabric.endpoint;
        let memory = answering(endpoint, at.node)?.memory();
        if std::mem::take(&mut self.timed) {
            let began = endpoint.clock.raw();
            endpoint.executor.read(memory, at.offset, words, &mut self.tally)?;
            endpoint.note_read(at.node, began);
        } else {
            endpoint.executor.read(memory, at.offset, words, &mut self.tally)?;
        }
        Some(as_bytes(words))
    }
}

impl Drop for ShmReads<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.tally.verbs[VerbKind::Read as usize] > 0 {
            self.tally.add_to(self.fabric.endpoint.counters());
        }
        if self.words.len() <= WORDS_KEPT {
            self.fabric.words.set(std::mem::take(&mut self.words));
        }
    }
}

#[inline]
fn answering(endpoint: &ShmEndpoint, node: u16) -> Option<&ShmNode> {
    endpoint.nodes.get(usize::from(node)).filter(|node| !node.is_down()).map(|node| &**node)
}

impl ShmEndpoint {
    #[inline(never)]
    fn note_read(&self, node: u16, began: u64) {
        let elapsed_ns = self.clock.delta_as_nanos(began, self.clock.raw());
        let mut kinds = VerbKinds::default();
        kinds.add(VerbKind::Read);
        self.counters.round_trips().note(node, kinds, elapsed_ns);
    }
}
