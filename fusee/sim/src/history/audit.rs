//! Is the pool's memory at rest as it should be?
//!
//! Every object is live (named by one slot, or by one live list of chunks),
//! free, or in grace; none is leaked and none is used twice; all copies agree.
//! Nothing is excused: who stopped has been recovered, and who left has left
//! everything in order.

use super::failure::Census;
use crate::Nodes;
use fusee::{BlockAudit, ObjectState};
use fusee_layout::{
    Address, BUCKET_BYTES, BlockEntry, BlockState, Class, FREE_MAP_NONE, GROUP_BYTES, Geometry,
    LOG_ENTRY_BYTES, SLOTS_PER_BUCKET, Slot, Unverified, slot_offset,
};
use std::collections::{BTreeMap, BTreeSet};

/// A client that did not stop, with the objects of its blocks.
#[derive(Clone, Debug)]
pub struct Living {
    /// Its id in the pool.
    pub client: u32,
    /// Its blocks.
    pub blocks: Vec<BlockAudit>,
}

/// Audits a pool at rest.
///
/// # Errors
///
/// What is wrong, for a person to read.
pub fn audit(geometry: &Geometry, nodes: &Nodes, living: &[Living]) -> Result<Census, String> {
    let mut audit = Audit {
        geometry,
        nodes,
        blocks: BTreeMap::new(),
        live: BTreeMap::new(),
        keys: BTreeSet::new(),
    };
    audit.blocks(living)?;
    let keys = audit.index()?;
    let mut census = Census {
        keys,
        live: audit.live.len() as u64,
        blocks: audit.blocks.len() as u64,
        ..Census::default()
    };
    for living in living {
        for block in &living.blocks {
            audit.objects(living.client, block, &mut census)?;
        }
    }
    audit.orphans(&mut census)?;
    Ok(census)
}

struct Audit<'a> {
    geometry: &'a Geometry,
    nodes: &'a Nodes,
    /// Blocks that belong to somebody, by start.
    blocks: BTreeMap<Address, BlockEntry>,
    /// Live objects, each with the live word that names it.
    live: BTreeMap<Address, Slot>,
    /// Keys that a live slot names.
    keys: BTreeSet<Name>,
}

/// A key's database and name.
type Name = (u8, Vec<u8>);

impl Audit<'_> {
    /// Block tables: all copies alike, and the living own what they say.
    fn blocks(&mut self, living: &[Living]) -> Result<(), String> {
        for region in self.geometry.data_regions() {
            for block in 0..self.geometry.blocks_per_region() {
                let at = self.geometry.block_entry(region, block);
                let word = self.alike(at, "block table entry")?;
                let entry = BlockEntry::from_word(word)
                    .ok_or_else(|| format!("{word:#x} in a block table is no entry"))?;
                let start = self.geometry.block(region, block);
                if entry.state == BlockState::Free {
                    self.zeroes(start)?;
                } else {
                    let of_the_living = living.iter().any(|living| living.client == entry.client);
                    if entry.state == BlockState::Owned && !of_the_living {
                        return Err(format!("the block {start:?} is of a client that is gone"));
                    }
                    self.blocks.insert(start, entry);
                }
            }
        }
        for living in living {
            let says: BTreeSet<Address> = living.blocks.iter().map(|block| block.address).collect();
            let owned = self.blocks.iter().filter(|(_, entry)| {
                entry.state == BlockState::Owned && entry.client == living.client
            });
            let owned: BTreeSet<Address> = owned.map(|(&start, _)| start).collect();
            if owned != says || says.len() != living.blocks.len() {
                let client = living.client;
                return Err(format!(
                    "client {client} owns {owned:?} and says that it owns {says:?}"
                ));
            }
        }
        Ok(())
    }

    fn zeroes(&self, block: Address) -> Result<(), String> {
        for at in self.geometry.placement.locate_all(block) {
            let words = self.nodes.words(at, (self.geometry.params.block_bytes / 8) as usize);
            if let Some(word) = words.iter().position(|&word| word != 0) {
                return Err(format!(
                    "the free block {block:?} is not zero at word {word} of {at:?}"
                ));
            }
        }
        Ok(())
    }

    /// A word that is the same in all copies.
    fn alike(&self, address: Address, what: &str) -> Result<u64, String> {
        let copies = self.copies(address);
        if copies.iter().any(|&copy| copy != copies[0]) {
            return Err(format!("copies of the {what} at {address:?} differ: {copies:x?}"));
        }
        Ok(copies[0])
    }

    fn copies(&self, address: Address) -> Vec<u64> {
        let places = self.geometry.placement.locate_all(address);
        places.map(|at| self.nodes.word(at)).collect()
    }

    /// Every slot; returns how many are live.
    fn index(&mut self) -> Result<u64, String> {
        let mut keys = 0;
        for address in slots(self.geometry) {
            let copies = self.copies(address);
            let mut words = Vec::new();
            for &word in &copies {
                let slot = Slot::from_word(word);
                words
                    .push(slot.ok_or_else(|| format!("{word:#x} at {address:?} is no slot word"))?);
            }
            let (primary, backups) = words.split_first().expect("there is a primary");
            for (number, backup) in backups.iter().enumerate() {
                if backup != primary {
                    return Err(format!(
                        "slot {address:?}: the primary is {primary:?}, backup {number} {backup:?}"
                    ));
                }
            }
            if primary.is_tentative() || primary.is_prepared() {
                return Err(format!("slot {address:?}: {primary:?}"));
            }
            if primary.is_live() && *primary != taken_word(self.geometry) {
                keys += 1;
                self.live_root(*primary)?;
            }
        }
        Ok(keys)
    }

    fn live_root(&mut self, word: Slot) -> Result<(), String> {
        let (key, chunks) = self.check_object(word)?;
        for chunk in chunks {
            self.check_object(chunk)?;
            self.name(chunk)?;
        }
        if let Some((_, name)) = self.keys.replace(key) {
            let name = String::from_utf8_lossy(&name).into_owned();
            return Err(format!("the key {name:?} is in two slots, {word:?} in one of them"));
        }
        self.name(word)
    }

    fn name(&mut self, word: Slot) -> Result<(), String> {
        match self.live.insert(word.address(), word) {
            None => Ok(()),
            Some(other) => Err(format!("one object is named by {word:?} and by {other:?}")),
        }
    }

    /// Checks all copies of an object; returns its key and the words of its chunks.
    fn check_object(&self, word: Slot) -> Result<(Name, Vec<Slot>), String> {
        let address = word.address();
        let wrong = |what: &str| Err(format!("{word:?} {what}"));
        let Some((_, _, start)) = self.geometry.block_of(address) else {
            return wrong("names no address of a block");
        };
        let Some(entry) = self.blocks.get(&start) else {
            return wrong("names an object of a free block");
        };
        let Some(layout) = self.geometry.layout(entry.class) else {
            return wrong("names an object of a block without layout");
        };
        if entry.class != word.class() {
            return wrong(&format!("names an object of a block of class {}", entry.class.number()));
        }
        let Some(number) = layout.number(start, address) else {
            return wrong("names an address where no object starts");
        };
        let map = self
            .nodes
            .bytes(self.geometry.placement.locate(start, 0), layout.free_map_bytes as usize);
        if map[number as usize] == word.generation() {
            return wrong("names an object that was freed");
        }
        let mut first = None;
        for at in self.geometry.placement.locate_all(address) {
            let bytes = self.nodes.bytes(at, word.class().bytes());
            let Some(object) = Unverified::new(&bytes).verify(word) else {
                return wrong(&format!("names an object that does not verify at {at:?}"));
            };
            if object.meta.chunked && object.body.len() < 8 {
                return wrong("has no list of chunks");
            }
            // The log entry differs where a stopped client wrote its record half.
            let rest = bytes[LOG_ENTRY_BYTES..LOG_ENTRY_BYTES + 8].to_vec();
            let seen = (object.meta, object.key.to_vec(), object.body.to_vec(), rest);
            if first.get_or_insert_with(|| seen.clone()) != &seen {
                return wrong("names an object whose copies differ");
            }
        }
        let (meta, name, body, _) = first.expect("there is a primary");
        let key = (meta.database, name);
        if !meta.chunked {
            return Ok((key, Vec::new()));
        }
        let words = body[8..].chunks_exact(8);
        let words = words.map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
        let chunks = words.map(|word| {
            Slot::from_word(word).ok_or_else(|| format!("{word:#x} is no chunk's word"))
        });
        Ok((key, chunks.collect::<Result<_, _>>()?))
    }

    /// Every object of a living client's block.
    fn objects(&self, client: u32, block: &BlockAudit, census: &mut Census) -> Result<(), String> {
        for (number, state) in block.objects.iter().enumerate() {
            let address = block.layout.object(block.address, number as u32);
            let live = self.live.get(&address);
            match (*state, live) {
                (ObjectState::Free, None) => census.free += 1,
                (ObjectState::Grace(_), None) => census.grace += 1,
                (ObjectState::InUse(generation), Some(word)) if word.generation() == generation => {
                }
                (state, Some(word)) => {
                    return Err(format!("{word:?} is {state:?} to its owner {client}: used twice"));
                }
                (state, None) => {
                    return Err(format!("{address:?} is {state:?} to its owner {client}: leaked"));
                }
            }
        }
        Ok(())
    }

    /// Every object of the orphans, by what memory alone tells of it.
    fn orphans(&self, census: &mut Census) -> Result<(), String> {
        let orphans = self.blocks.iter().filter(|(_, entry)| entry.state == BlockState::Orphan);
        for (&start, entry) in orphans {
            let layout = self.geometry.layout(entry.class).ok_or("an orphan without layout")?;
            let primary = |address| self.geometry.placement.locate(address, 0);
            let map = self.nodes.bytes(primary(start), layout.free_map_bytes as usize);
            let mut used = 0;
            for number in 0..layout.objects {
                let address = layout.object(start, number);
                let bytes = self.nodes.bytes(primary(address), 32);
                let generation = Unverified::new(&bytes).generation().unwrap_or(0);
                let free = generation == FREE_MAP_NONE || map[number as usize] == generation;
                match (free, self.live.get(&address)) {
                    (true, None) => census.free += 1,
                    (false, Some(word)) if word.generation() == generation => used += 1,
                    (_, Some(word)) => return Err(format!("{word:?} is free in an orphan")),
                    (false, None) => {
                        let owner = entry.client;
                        return Err(format!("{address:?} in an orphan of {owner}: leaked"));
                    }
                }
            }
            if used == 0 {
                return Err(format!("the orphan {start:?} is empty and did not go back"));
            }
            census.orphaned += used;
        }
        Ok(())
    }
}

/// The word of slots that are taken by a key of another database that nobody
/// asks for. Its object lies behind the first region's last block.
pub(super) fn taken_word(geometry: &Geometry) -> Slot {
    let region = geometry.data_regions().start;
    let last = geometry.block(region, geometry.blocks_per_region() - 1);
    let behind = last.plus(geometry.params.block_bytes);
    Slot::live(0, Class::SMALLEST, 1, behind)
}

/// The addresses of all slots.
pub(super) fn slots(geometry: &Geometry) -> impl Iterator<Item = Address> + '_ {
    let buckets = geometry.subtable_bytes() / BUCKET_BYTES as u64;
    const _: () = assert!(GROUP_BYTES.is_multiple_of(BUCKET_BYTES));
    (0..geometry.params.subtables).flat_map(move |subtable| {
        let start = geometry.subtable(subtable);
        (0..buckets).flat_map(move |bucket| {
            (0..SLOTS_PER_BUCKET).map(move |slot| {
                start.plus(bucket * BUCKET_BYTES as u64 + slot_offset(slot) as u64)
            })
        })
    })
}
