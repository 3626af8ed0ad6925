//! What blocks of others hold, as their block tables, free maps and objects tell.

use crate::store::Store;
use crate::{Env, Error};
use fusee_fabric::Fabric;
use fusee_layout::{Address, BlockEntry, BlockLayout, BlockState, FREE_MAP_NONE, Slot, Unverified};
use std::ops::Range;

/// Objects that one step looks at, so that it takes the worker some 100 us.
pub(crate) const OBJECTS_PER_STEP: u32 = 128;
/// The part of an object that tells its record, its generation and its end.
const META_BYTES: usize = 40;
/// Small objects are read together with what is between those parts.
const TOGETHER_BYTES: usize = 256;

/// An object that is not freed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InUse {
    /// Its word, without fingerprint.
    pub(crate) word: Slot,
    pub(crate) expires_at_ms: Option<u64>,
}

/// Some objects of a block.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    pub(crate) in_use: Vec<InUse>,
    /// How many were never used.
    pub(crate) unused: u32,
    /// What those that are freed had replaced.
    pub(crate) replaced: Vec<Slot>,
}

impl<F: Fabric, E: Env> Store<F, E> {
    /// The blocks of some regions that are not free, with their entries. 1 round
    /// trip.
    pub(crate) async fn read_tables(
        &self,
        regions: Range<u32>,
    ) -> Result<Vec<(Address, BlockEntry)>, Error> {
        let mut batch = self.fabric.batch();
        let blocks = self.geometry.blocks_per_region();
        for region in regions.clone() {
            let table = self.primary(self.geometry.block_entry(region, 0));
            batch.read(table, blocks as usize * BlockEntry::BYTES);
        }
        let batch = self.fabric.run(batch).await;
        let mut entries = Vec::new();
        for (region, ticket) in regions.zip(batch.tickets()) {
            for (block, &word) in (0..blocks).zip(batch.words(ticket)?) {
                let entry = BlockEntry::from_word(word);
                let entry = entry.ok_or(Error::Corrupt { what: "a block table entry" })?;
                if entry.state != BlockState::Free {
                    entries.push((self.geometry.block(region, block), entry));
                }
            }
        }
        self.fabric.recycle(batch);
        Ok(entries)
    }

    /// Looks at the objects of a block whose numbers are in a range, which starts
    /// at a multiple of 8. 2 round trips: an object that the free map calls freed
    /// shall be seen as it was after that.
    pub(crate) async fn read_objects(
        &self,
        block: Address,
        layout: &BlockLayout,
        numbers: Range<u32>,
    ) -> Result<Objects, Error> {
        let mut batch = self.fabric.batch();
        let map_at = self.primary(block.plus(numbers.start.into()));
        let map = batch.read(map_at, numbers.len().next_multiple_of(8));
        let batch = self.fabric.run(batch).await;
        let map = batch.bytes(map)?.to_vec();
        self.fabric.recycle(batch);

        let size = layout.class.bytes();
        let together = size <= TOGETHER_BYTES;
        let mut batch = self.fabric.batch();
        if together {
            let first = layout.object(block, numbers.start);
            batch.read(self.primary(first), numbers.len() * size);
        } else {
            for number in numbers.clone() {
                batch.read(self.primary(layout.object(block, number)), META_BYTES);
            }
        }
        let batch = self.fabric.run(batch).await;
        let tickets: Vec<_> = batch.tickets().collect();
        let mut objects = Objects::default();
        for (at, number) in numbers.enumerate() {
            let bytes = if together {
                &batch.bytes(tickets[0])?[at * size..]
            } else {
                batch.bytes(tickets[at])?
            };
            let object = Unverified::new(&bytes[..META_BYTES]);
            let generation = object.generation().unwrap_or(FREE_MAP_NONE);
            if generation == FREE_MAP_NONE || generation > Slot::GENERATION_MAX {
                objects.unused += 1;
                continue;
            }
            let word = Slot::live(0, layout.class, generation, layout.object(block, number));
            if map[at] == generation {
                let old = object.record(word).and_then(|(old, _)| Slot::from_word(old));
                objects.replaced.extend(old.filter(|old| old.leads()).map(Slot::alive));
            } else {
                let expires_at_ms = object.meta(word).and_then(|meta| meta.expires_at_ms);
                objects.in_use.push(InUse { word, expires_at_ms });
            }
        }
        self.fabric.recycle(batch);
        Ok(objects)
    }
}
