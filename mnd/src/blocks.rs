//! Which blocks are whose: those of the regions whose primary copy is on this
//! node.
//!
//! A block is free and all zeroes, or owned by a client, or an orphan whose
//! owner has left. An orphan that is known to have room goes, with the objects
//! in it, to the next client in need of its class; the others only when nothing
//! else is left, or when somebody has seen that they are empty. Every request
//! costs O(log blocks), a leaving client so much for each of its blocks.

use crate::{Answer, Change};
use fusee_layout::message::{BlockStatistics, Refusal, Request, Response};
use fusee_layout::{Address, BlockEntry, BlockState, CLASSES_MAX, Class, Geometry, Member, Room};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

/// One block in so many is held back from all but deletes, which a full pool
/// must still be able to do: a delete writes a 64-byte record before it frees
/// anything, and a worker needs one block to write its records to.
const BLOCKS_PER_RESERVED: u32 = 64;
/// With so few blocks there are none to spare.
const BLOCKS_UNRESERVED: u32 = 4;

/// The blocks of a node, by number: regions in order, blocks in order.
#[derive(Debug)]
pub struct Blocks {
    geometry: Arc<Geometry>,
    /// Regions whose primary is here, in order.
    regions: Vec<u32>,
    entries: Vec<BlockEntry>,
    /// From here on no block was ever given.
    fresh: u32,
    returned: BinaryHeap<Reverse<u32>>,
    /// By class, those with the most promising room first, then by number.
    orphans: Vec<BTreeSet<(Reverse<Room>, u32)>>,
    owned: HashMap<u32, BTreeSet<u32>>,
    /// Clients that died and have not been recovered.
    expelled: HashSet<u32>,
    reserved: u32,
}

impl Blocks {
    /// The blocks of a node of a new pool: all free.
    pub fn new(geometry: Arc<Geometry>, node: u16) -> Self {
        let regions: Vec<u32> = geometry
            .data_regions()
            .filter(|&region| geometry.placement.region(region)[0].node == node)
            .collect();
        let blocks = regions.len() as u32 * geometry.blocks_per_region();
        let reserved =
            if blocks > BLOCKS_UNRESERVED { (blocks / BLOCKS_PER_RESERVED).max(1) } else { 0 };
        Self {
            geometry,
            regions,
            entries: vec![BlockEntry::default(); blocks as usize],
            fresh: 0,
            returned: BinaryHeap::new(),
            orphans: vec![BTreeSet::new(); CLASSES_MAX],
            owned: HashMap::new(),
            expelled: HashSet::new(),
            reserved,
        }
    }

    /// Decides on a request about blocks.
    pub fn handle(&mut self, request: Request) -> Answer {
        match request {
            Request::Allocate { client, class, reserve, fresh } => {
                self.allocate(client, class, reserve, fresh)
            }
            Request::Adopt { client, block } => self.adopt(client, block),
            Request::Offer { client, block, room } => self.offer(client, block, room),
            Request::Return { client, block } => self.take_back(client, block),
            Request::Leave { client } => self.orphan(client),
            Request::Expel { client } => {
                self.expelled.insert(client);
                Answer::plain(Response::Done)
            }
            Request::Join { .. } | Request::Recover { .. } => Answer::refused(Refusal::NotOwner),
        }
    }

    fn allocate(&mut self, client: u32, class: Class, reserve: bool, fresh: bool) -> Answer {
        if !self.may_own(client) {
            return Answer::refused(Refusal::NotOwner);
        }
        if self.geometry.layout(class).is_none() {
            // No block of this pool holds such objects, and none ever will.
            return Answer::refused(Refusal::Full);
        }
        let orphans = &mut self.orphans[class.index()];
        let offered = orphans.first().is_some_and(|&(Reverse(room), _)| room != Room::Unknown);
        if offered && !fresh {
            let (_, number) = orphans.pop_first().expect("it was just seen");
            return self.give(client, class, number, true);
        }
        if (reserve || self.free() > self.reserved)
            && let Some(number) = self.take_free()
        {
            return self.give(client, class, number, false);
        }
        match self.orphans[class.index()].pop_first() {
            Some((_, number)) => self.give(client, class, number, true),
            None => Answer::refused(Refusal::Full),
        }
    }

    fn adopt(&mut self, client: u32, block: Address) -> Answer {
        let orphan = self.number(block).filter(|&number| {
            let BlockEntry { state, class, room, .. } = self.entries[number as usize];
            state == BlockState::Orphan
                && self.may_own(client)
                && self.orphans[class.index()].remove(&(Reverse(room), number))
        });
        let Some(number) = orphan else { return Answer::refused(Refusal::NotOwner) };
        self.give(client, self.entries[number as usize].class, number, true)
    }

    fn may_own(&self, client: u32) -> bool {
        client != 0 && u64::from(client) != Member::DEPARTED && !self.expelled.contains(&client)
    }

    fn give(&mut self, client: u32, class: Class, number: u32, adopted: bool) -> Answer {
        self.owned.entry(client).or_default().insert(number);
        let last = self.entries[number as usize].turn;
        let turn = if adopted { last } else { last.wrapping_add(1) };
        let room = Room::Unknown;
        let entry = BlockEntry { state: BlockState::Owned, class, client, room, turn };
        let change = self.set(number, entry);
        let block = self.address(number);
        Answer { changes: vec![change], response: Response::Allocated { block, adopted } }
    }

    fn offer(&mut self, client: u32, block: Address, room: Room) -> Answer {
        let offered = self.number(block).filter(|&number| {
            let entry = self.entries[number as usize];
            entry.state != BlockState::Free && entry.client == client
        });
        let Some(number) = offered else { return Answer::refused(Refusal::NotOwner) };
        let entry = self.entries[number as usize];
        if entry.state == BlockState::Orphan {
            let orphans = &mut self.orphans[entry.class.index()];
            orphans.remove(&(Reverse(entry.room), number));
            orphans.insert((Reverse(room), number));
        }
        let change = self.set(number, BlockEntry { room, ..entry });
        Answer { changes: vec![change], response: Response::Done }
    }

    /// The free block with the lowest address. Returned ones are all below the
    /// fresh ones.
    fn take_free(&mut self) -> Option<u32> {
        if let Some(Reverse(number)) = self.returned.pop() {
            return Some(number);
        }
        let number = self.fresh;
        if number as usize == self.entries.len() {
            return None;
        }
        self.fresh += 1;
        Some(number)
    }

    fn take_back(&mut self, client: u32, block: Address) -> Answer {
        let owned = self.number(block).filter(|&number| {
            let entry = self.entries[number as usize];
            entry.state == BlockState::Owned && entry.client == client && self.may_own(client)
        });
        let Some(number) = owned else { return Answer::refused(Refusal::NotOwner) };
        if let Some(blocks) = self.owned.get_mut(&client) {
            blocks.remove(&number);
            if blocks.is_empty() {
                self.owned.remove(&client);
            }
        }
        self.returned.push(Reverse(number));
        // Zeroed while it still has its owner: who finds it free finds zeroes.
        let zero = Change::Zero { block };
        let turn = self.entries[number as usize].turn;
        let free = self.set(number, BlockEntry { turn, ..BlockEntry::default() });
        Answer { changes: vec![zero, free], response: Response::Done }
    }

    fn orphan(&mut self, client: u32) -> Answer {
        let mut changes = Vec::new();
        for number in self.owned.remove(&client).unwrap_or_default() {
            let entry = self.entries[number as usize];
            self.orphans[entry.class.index()].insert((Reverse(entry.room), number));
            changes.push(self.set(number, BlockEntry { state: BlockState::Orphan, ..entry }));
        }
        self.expelled.remove(&client);
        Answer { changes, response: Response::Done }
    }

    fn set(&mut self, number: u32, entry: BlockEntry) -> Change {
        self.entries[number as usize] = entry;
        let (region, block) = self.place(number);
        Change::Entry { at: self.geometry.block_entry(region, block), entry }
    }

    fn free(&self) -> u32 {
        self.entries.len() as u32 - self.fresh + self.returned.len() as u32
    }

    fn place(&self, number: u32) -> (u32, u32) {
        let per_region = self.geometry.blocks_per_region();
        (self.regions[(number / per_region) as usize], number % per_region)
    }

    fn address(&self, number: u32) -> Address {
        let (region, block) = self.place(number);
        self.geometry.block(region, block)
    }

    /// The number of the block that starts here; `None` if none of ours does.
    fn number(&self, block: Address) -> Option<u32> {
        let (region, number, start) = self.geometry.block_of(block)?;
        if start != block {
            return None;
        }
        let position = self.regions.binary_search(&region).ok()?;
        Some(position as u32 * self.geometry.blocks_per_region() + number)
    }

    /// How many blocks there are, by what they are.
    pub fn statistics(&self) -> BlockStatistics {
        let (free, orphans) = (self.free(), self.orphans.iter().map(|o| o.len() as u32).sum());
        BlockStatistics {
            free,
            owned: self.entries.len() as u32 - free - orphans,
            orphans,
            reserved: self.reserved.min(free),
            block_bytes: self.geometry.params.block_bytes,
        }
    }
}

#[cfg(test)]
#[path = "blocks_tests.rs"]
mod tests;
