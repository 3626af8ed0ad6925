//! Regions and blocks: the block allocation table and the free map.
//!
//! ```text
//! region:  | block table, 8 bytes per block | pad to 64 | block 0 | block 1 | ...
//! block:   | free map, 1 byte per object | pad to 64 | object 0 | object 1 | ...
//! table entry:  63      32 31  24 23  16 15    8 7     0
//!              | client id | turn | room | class | state |
//! ```
//!
//! A block begins a new turn each time it is given out of the free ones. It is
//! zeroed before, so generations begin at 1 again: of what somebody remembers of an
//! object across turns, its address and generation say nothing.
//!
//! The paper's free map is a bit per object, set by FAA; freeing twice then
//! carries into the neighbour's bit. Ours is a byte per object that holds the
//! generation being freed: idempotent, no atomic, and a stale free is seen.

use crate::{Address, Class};

/// A free-map byte that frees nothing: generations begin at 1.
pub const FREE_MAP_NONE: u8 = 0;

/// What a block is, in its entry of the block table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum BlockState {
    /// Belongs to nobody and holds zeroes.
    #[default]
    Free = 0,
    /// Belongs to a client, which alone allocates from it.
    Owned = 1,
    /// Its owner has left or died; the next client in need adopts it.
    Orphan = 2,
}

/// What an orphan has to give to its next owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[repr(u8)]
pub enum Room {
    /// Nothing that anybody knows of.
    #[default]
    Unknown = 0,
    /// Objects that were freed, perhaps a moment ago.
    Freed = 1,
    /// Objects that nobody ever used.
    Unused = 2,
}

/// An entry of the block table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockEntry {
    /// What the block is.
    pub state: BlockState,
    /// The class of its objects, unless it is free.
    pub class: Class,
    /// What it has to give as an orphan.
    pub room: Room,
    /// Who owns it, or owned it last.
    pub client: u32,
    /// How often it was given out while it was free, modulo 256.
    pub turn: u8,
}

impl BlockEntry {
    /// Bytes of an entry.
    pub const BYTES: usize = 8;

    /// As it lies in memory.
    pub const fn word(self) -> u64 {
        self.state as u64
            | (self.class.number() as u64) << 8
            | (self.room as u64) << 16
            | (self.turn as u64) << 24
            | (self.client as u64) << 32
    }

    /// From memory; `None` if it is no entry.
    pub const fn from_word(word: u64) -> Option<Self> {
        let state = match word as u8 {
            0 => BlockState::Free,
            1 => BlockState::Owned,
            2 => BlockState::Orphan,
            _ => return None,
        };
        let room = match (word >> 16) as u8 {
            0 => Room::Unknown,
            1 => Room::Freed,
            2 => Room::Unused,
            _ => return None,
        };
        let class = (word >> 8) as u8;
        if class >= 64 {
            return None;
        }
        Some(Self {
            state,
            class: Class::new(class),
            room,
            client: (word >> 32) as u32,
            turn: (word >> 24) as u8,
        })
    }
}

/// How a block of one class is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockLayout {
    /// The class of its objects.
    pub class: Class,
    /// How many it holds.
    pub objects: u32,
    /// Bytes before the first object: the free map, padded.
    pub free_map_bytes: u32,
}

impl BlockLayout {
    /// The division of a block of `block_bytes`; `None` if not one object fits.
    pub const fn new(block_bytes: u64, class: Class) -> Option<Self> {
        let size = class.bytes() as u64;
        let mut objects = block_bytes / (size + 1);
        while objects > 0 && objects.next_multiple_of(64) + objects * size > block_bytes {
            objects -= 1;
        }
        if objects == 0 {
            return None;
        }
        let free_map_bytes = objects.next_multiple_of(64) as u32;
        Some(Self { class, objects: objects as u32, free_map_bytes })
    }

    /// The address of an object of the block at `block`.
    pub const fn object(&self, block: Address, number: u32) -> Address {
        assert!(number < self.objects);
        block.plus(self.free_map_bytes as u64 + number as u64 * self.class.bytes() as u64)
    }

    /// The number of the object at `address` in the block at `block`; `None` if
    /// none starts there.
    pub const fn number(&self, block: Address, address: Address) -> Option<u32> {
        let Some(offset) = address.get().checked_sub(block.get() + self.free_map_bytes as u64)
        else {
            return None;
        };
        // Blocks are far shorter than 4 GiB, and short numbers are divided in half the time.
        let size = self.class.bytes() as u32;
        if offset > u32::MAX as u64 || !(offset as u32).is_multiple_of(size) {
            return None;
        }
        let number = offset as u32 / size;
        if number < self.objects { Some(number) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn entries_come_back_and_strangers_are_refused() {
        for state in [BlockState::Free, BlockState::Owned, BlockState::Orphan] {
            for (class, client, room, turn) in [
                (0, 0, Room::Unknown, 0),
                (63, u32::MAX, Room::Unused, u8::MAX),
                (17, 5, Room::Freed, 1),
            ] {
                let entry = BlockEntry { state, class: Class::new(class), room, client, turn };
                assert_eq!(BlockEntry::from_word(entry.word()), Some(entry));
            }
        }
        assert_eq!(BlockEntry::from_word(3), None);
        assert_eq!(BlockEntry::from_word(64 << 8), None);
        assert_eq!(BlockEntry::from_word(3 << 16), None);
        assert_eq!(BlockEntry::from_word(1 << 18), None);
        assert_eq!(BlockEntry::from_word(0), Some(BlockEntry::default()));
    }

    proptest! {
        #[test]
        fn objects_fill_the_block_and_are_found_again(
            block_bytes in (1u64..1 << 15).prop_map(|n| n * 64), class in 0..60u8, at: prop::sample::Index,
        ) {
            let class = Class::new(class);
            let block = Address::new(1 << 30);
            let size = class.bytes() as u64;
            let Some(layout) = BlockLayout::new(block_bytes, class) else {
                prop_assert!(size + 64 > block_bytes);
                return Ok(());
            };
            let number = at.index(layout.objects as usize) as u32;
            let address = layout.object(block, number);
            prop_assert_eq!(layout.number(block, address), Some(number));
            prop_assert_eq!(layout.number(block, address.plus(1)), None);
            prop_assert!(address.get() % 64 == 0);
            let end = layout.object(block, layout.objects - 1).get() + size;
            prop_assert!(end <= block.get() + block_bytes, "fits");
            let one_more = u64::from(layout.objects) + 1;
            prop_assert!(one_more.next_multiple_of(64) + one_more * size > block_bytes, "full");
            prop_assert_eq!(layout.number(block, Address::new(end)), None);
        }
    }
}
