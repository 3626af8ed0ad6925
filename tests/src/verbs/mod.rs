//! The verbs fabric on a real RDMA device: does it keep what fabrics promise, and
//! what does each verb cost? See the program `verbs`.

pub mod conformance;
pub mod failures;
pub mod latency;
pub mod peer;

use fusee_fabric::verbs::VerbsFabric;
use fusee_fabric::{Batch, Fabric, Span};
use fusee_layout::NodeAddress;

/// A place on a node.
pub fn at(node: u16, offset: u64) -> NodeAddress {
    NodeAddress { node, offset }
}

/// A span with these words.
pub fn stage(batch: &mut Batch, words: &[u64]) -> Span {
    let span = batch.stage(words.len() * 8);
    for (to, word) in batch.staged(span).chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    span
}

/// READs a word.
pub async fn read(fabric: &VerbsFabric, from: NodeAddress) -> u64 {
    let mut batch = fabric.batch();
    let ticket = batch.read(from, 8);
    let batch = fabric.run(batch).await;
    let word = batch.word(ticket).expect("the node is up");
    fabric.recycle(batch);
    word
}

/// WRITEs words.
pub async fn write(fabric: &VerbsFabric, to: NodeAddress, words: &[u64]) {
    let mut batch = fabric.batch();
    let span = stage(&mut batch, words);
    let ticket = batch.write(to, span);
    let batch = fabric.run(batch).await;
    batch.done(ticket).expect("the node is up");
    fabric.recycle(batch);
}
