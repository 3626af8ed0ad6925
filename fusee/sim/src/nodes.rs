//! The memory of the memory nodes.

use fusee_layout::NodeAddress;

/// Words by node.
#[derive(Clone, Debug)]
pub struct Nodes {
    memory: Vec<Vec<u64>>,
    down: Vec<bool>,
}

impl Nodes {
    /// Zeroed memory.
    pub fn new(nodes: u16, node_bytes: u64) -> Self {
        assert!(node_bytes.is_multiple_of(8));
        Self {
            memory: vec![vec![0; (node_bytes / 8) as usize]; usize::from(nodes)],
            down: vec![false; usize::from(nodes)],
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.memory.len()
    }

    /// Takes a node down: from now on its verbs fail.
    pub fn take_down(&mut self, node: u16) {
        self.down[usize::from(node)] = true;
    }

    /// Is a node down?
    pub fn is_down(&self, node: u16) -> bool {
        self.down[usize::from(node)]
    }

    /// Words from a place on.
    pub fn words(&self, at: NodeAddress, words: usize) -> &[u64] {
        let from = word_of(at);
        match self.memory[usize::from(at.node)].get(from..from + words) {
            Some(words) => words,
            None => panic!("{words} words at {at:?} are beyond the node's memory"),
        }
    }

    /// Words from a place on, to be changed.
    pub fn words_mut(&mut self, at: NodeAddress, words: usize) -> &mut [u64] {
        let from = word_of(at);
        match self.memory[usize::from(at.node)].get_mut(from..from + words) {
            Some(words) => words,
            None => panic!("{words} words at {at:?} are beyond the node's memory"),
        }
    }

    /// The word at a place.
    pub fn word(&self, at: NodeAddress) -> u64 {
        self.words(at, 1)[0]
    }

    /// Bytes from a place on, which is word-aligned.
    pub fn bytes(&self, at: NodeAddress, bytes: usize) -> Vec<u8> {
        let words = self.words(at, bytes.div_ceil(8));
        let mut all: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        all.truncate(bytes);
        all
    }

    /// Puts bytes, whole words of them, at a place.
    pub fn put_bytes(&mut self, at: NodeAddress, bytes: &[u8]) {
        assert!(bytes.len().is_multiple_of(8));
        let words = self.words_mut(at, bytes.len() / 8);
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("chunks are 8 bytes long"));
        }
    }

    /// Puts one byte anywhere.
    pub fn put_byte(&mut self, at: NodeAddress, value: u8) {
        let shift = 8 * (at.offset % 8);
        let aligned = NodeAddress { offset: at.offset & !7, ..at };
        let word = &mut self.words_mut(aligned, 1)[0];
        *word = *word & !(0xff << shift) | u64::from(value) << shift;
    }
}

fn word_of(at: NodeAddress) -> usize {
    assert!(at.offset.is_multiple_of(8), "{at:?} is not on a word");
    usize::try_from(at.offset / 8).expect("an offset fits the simulator's memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_changes_no_neighbour() {
        let mut nodes = Nodes::new(1, 64);
        nodes.words_mut(NodeAddress { node: 0, offset: 8 }, 1)[0] = u64::MAX;
        nodes.put_byte(NodeAddress { node: 0, offset: 10 }, 7);
        let bytes = nodes.bytes(NodeAddress { node: 0, offset: 0 }, 24);
        let mut expected = [0; 24];
        expected[8..16].fill(0xff);
        expected[10] = 7;
        assert_eq!(bytes, expected);
    }
}
