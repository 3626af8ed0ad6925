//! Objects of anybody that are in use though nothing leads to them.
//!
//! A living client has such objects while it writes them, and for a moment after
//! it has replaced them; it is pinned in the first case and has freed them before
//! its counter passes in the second. So one that is found, and found again as soon
//! as every client has passed two counters, is garbage: whoever was to free it has
//! died. That holds whatever made us look at it, so a record that is out of date
//! does no harm.
//!
//! It must be the same object both times. Its generation tells that within a turn of
//! its block: it takes far longer for generations to come round than for the clients
//! to pass. The turn tells the rest: the block may have gone back in between and been
//! given out again, and another client may be writing an object of the same
//! generation, its first, at the same address.

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
    /// Of its block: in another one it is another object.
    pub(crate) turn: u8,
    /// What it lists, if it is a root.
    pub(crate) chunks: Vec<Slot>,
}

impl<F: Fabric, E: Env> Store<F, E> {
    /// Of these words, those whose objects are in use though nothing leads to
    /// them. The caller is pinned. Some 4 round trips.
    pub(crate) async fn unnamed(&self, words: &[Slot]) -> Result<Vec<Unnamed>, Error> {
        let in_use = self.in_use(words).await?;
        let words: Vec<Slot> = in_use.iter().map(|&(word, _)| word).collect();
        let heads = self.read_heads(&words).await?;
        let mut unnamed = Vec::new();
        let (mut chunks, mut values) = (Vec::new(), Vec::new());
        for (head, &(_, turn)) in heads.into_iter().zip(&in_use) {
            match head {
                None => {}
                // Nothing ever leads to a transaction's record but intents, which are
                // ended before anybody asks.
                Some(head) if head.is_transaction() => {
                    unnamed.push(Unnamed { word: head.word, turn, chunks: Vec::new() });
                }
                Some(head) if head.is_chunk() => chunks.push((head, turn)),
                Some(head) => values.push((head, turn)),
            }
        }
        let ask = |(head, _): &(Head, u8)| (head.word, head.hash);
        let asked: Vec<_> = chunks.iter().map(ask).collect();
        for ((head, turn), listed) in chunks.iter().zip(self.listed(&asked).await?) {
            if !listed {
                unnamed.push(Unnamed { word: head.word, turn: *turn, chunks: Vec::new() });
            }
        }
        let ask = |(head, _): &(Head, u8)| (head.new_word(), head.hash);
        let asked: Vec<_> = values.iter().map(ask).collect();
        for ((head, turn), standing) in values.iter().zip(self.standings(&asked).await?) {
            if standing == Standing::Nowhere {
                let chunks =
                    if head.chunked { self.chunks_listed_by(head.word).await? } else { Vec::new() };
                unnamed.push(Unnamed { word: head.word, turn: *turn, chunks });
            }
        }
        Ok(unnamed)
    }

    /// Of these words, those whose memory is an object of their class and
    /// generation that is not freed, each with the turn of its block. 1 round trip.
    async fn in_use(&self, words: &[Slot]) -> Result<Vec<(Slot, u8)>, Error> {
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
            let of_class = entry.filter(|e| e.state != BlockState::Free && e.class == word.class());
            if let Some(BlockEntry { turn, .. }) = of_class
                && batch.bytes(map)?[at] != word.generation()
            {
                in_use.push((word, turn));
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
