//! Objects of anybody that are in use though nothing leads to them.
//!
//! A living client has such objects while it writes them, and for a moment after
//! it has replaced them; it is pinned in the first case and has freed them before
//! its counter passes in the second. So one that is found, and found again when
//! every client has passed two counters, is garbage: whoever was to free it has
//! died. That holds whatever made us look at it, so a record that is out of date
//! does no harm.

use crate::head::Head;
use crate::standing::Standing;
use crate::store::Store;
use crate::{Env, Error};
use fusee_fabric::Fabric;
use fusee_layout::{Address, BlockEntry, BlockState, Slot};

/// An object in use to which nothing leads.
#[derive(Clone, Debug)]
pub(crate) struct Unnamed {
    pub(crate) word: Slot,
    /// What it lists, if it is a root.
    pub(crate) chunks: Vec<Slot>,
}

impl<F: Fabric, E: Env> Store<F, E> {
    /// Of these words, those whose objects are in use though nothing leads to
    /// them. The caller is pinned. Some 4 round trips.
    pub(crate) async fn unnamed(&self, words: &[Slot]) -> Result<Vec<Unnamed>, Error> {
        let in_use = self.in_use(words).await?;
        let mut heads = self.read_heads(&in_use).await?;
        let mut unnamed = Vec::new();
        // Nothing ever leads to a transaction's record but intents, which are ended
        // before anybody asks.
        for head in &mut heads {
            if let Some(record) = head.take_if(|head| head.is_transaction()) {
                unnamed.push(Unnamed { word: record.word, chunks: Vec::new() });
            }
        }
        let (chunks, values): (Vec<Head>, Vec<Head>) =
            heads.into_iter().flatten().partition(Head::is_chunk);
        let asked: Vec<_> = chunks.iter().map(|head| (head.word, head.hash)).collect();
        for (head, listed) in chunks.iter().zip(self.listed(&asked).await?) {
            if !listed {
                unnamed.push(Unnamed { word: head.word, chunks: Vec::new() });
            }
        }
        let asked: Vec<_> = values.iter().map(|head| (head.new_word(), head.hash)).collect();
        for (head, standing) in values.iter().zip(self.standings(&asked).await?) {
            if standing == Standing::Nowhere {
                let chunks =
                    if head.chunked { self.chunks_listed_by(head.word).await? } else { Vec::new() };
                unnamed.push(Unnamed { word: head.word, chunks });
            }
        }
        Ok(unnamed)
    }

    /// Of these words, those whose memory is an object of their class and
    /// generation that is not freed. 1 round trip.
    async fn in_use(&self, words: &[Slot]) -> Result<Vec<Slot>, Error> {
        let mut batch = self.fabric.batch();
        let mut asked = Vec::new();
        for &word in words {
            let Some((entry, freed)) = self.accounts_of(word) else { continue };
            let entry = batch.read(self.primary(entry), 8);
            let map = batch.read(self.primary(Address::new(freed.get() & !7)), 8);
            asked.push((word, entry, map, (freed.get() % 8) as usize));
        }
        if batch.is_empty() {
            self.fabric.recycle(batch);
            return Ok(Vec::new());
        }
        let batch = self.fabric.run(batch).await;
        let mut in_use = Vec::new();
        for (word, entry, map, at) in asked {
            let entry = BlockEntry::from_word(batch.word(entry)?);
            let of_class =
                entry.is_some_and(|e| e.state != BlockState::Free && e.class == word.class());
            if of_class && batch.bytes(map)?[at] != word.generation() {
                in_use.push(word);
            }
        }
        self.fabric.recycle(batch);
        Ok(in_use)
    }

    /// Where the block table tells of an object's block, and the free map of the
    /// object.
    fn accounts_of(&self, word: Slot) -> Option<(Address, Address)> {
        let (region, number, block) = self.geometry.block_of(word.address())?;
        let layout = self.geometry.layout(word.class())?;
        let object = layout.number(block, word.address())?;
        Some((self.geometry.block_entry(region, number), block.plus(object.into())))
    }
}
