//! Objects out of blocks: the client's half of two-level allocation (paper,
//! section 4.4) and the order of its log lists (section 4.5).
//!
//! Per size class the next object to be handed out, the head, is chosen before
//! it is needed, so that the object before it can name it in its log entry.
//! That is why the last free object of a class is not handed out: it stays the
//! head until there is a next one. Objects come in address order from one block
//! until that is used up, then from the lowest that has any, so that high blocks
//! run empty and go back.

use crate::block::{Block, Tag};
use fusee_layout::{Address, BlockLayout, CLASSES_MAX, Class, Geometry, Slot};
use std::collections::BTreeSet;
use std::sync::Arc;

/// An object of an own block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ObjectRef {
    block: u32,
    number: u32,
}

/// An object handed out for writing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocated {
    pub(crate) address: Address,
    pub(crate) class: Class,
    pub(crate) generation: u8,
    /// What the log entry says of the list.
    pub(crate) next: Address,
    pub(crate) prev: Address,
}

impl Allocated {
    pub(crate) fn slot(&self, fingerprint: u8) -> Slot {
        Slot::live(fingerprint, self.class, self.generation, self.address)
    }
}

#[derive(Debug, Default)]
struct List {
    head: Option<ObjectRef>,
    prev: Address,
    /// Blocks with objects that may be handed out, by address.
    with_free: BTreeSet<(Address, u32)>,
    /// The one of them that is being used up.
    current: Option<(Address, u32)>,
    /// Objects in use and blocks, for whoever watches.
    in_use: u64,
    blocks: u64,
}

/// What an own object is, for audits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectState {
    /// May be handed out.
    Free,
    /// Written or being written under this generation.
    InUse(u8),
    /// Freed under this generation, not yet reusable.
    Grace(u8),
}

/// A block of the store with the state of each object, for audits.
#[derive(Clone, Debug)]
pub struct BlockAudit {
    /// Where it starts.
    pub address: Address,
    /// How it is divided.
    pub layout: BlockLayout,
    /// Its objects in address order.
    pub objects: Vec<ObjectState>,
}

/// All blocks and lists of one client.
#[derive(Debug)]
pub(crate) struct Allocator {
    geometry: Arc<Geometry>,
    blocks: Vec<Option<Block>>,
    vacant: Vec<u32>,
    /// Block by its ordinal in the pool; `NOT_OWN` for those of others.
    own: Vec<u32>,
    lists: Vec<List>,
}

const NOT_OWN: u32 = u32::MAX;

impl Allocator {
    pub(crate) fn new(geometry: Arc<Geometry>) -> Self {
        let ordinals = geometry.placement.regions() * geometry.blocks_per_region();
        Self {
            own: vec![NOT_OWN; ordinals as usize],
            blocks: Vec::new(),
            vacant: Vec::new(),
            lists: (0..CLASSES_MAX).map(|_| List::default()).collect(),
            geometry,
        }
    }

    /// Hands out an object; `None` if the class needs another block first.
    pub(crate) fn allocate(&mut self, class: Class) -> Option<Allocated> {
        let head = self.lists[class.index()].head?;
        let next = self.take_next(class)?;
        let list = &mut self.lists[class.index()];
        list.head = Some(next);
        let prev = list.prev;
        let block = self.blocks[head.block as usize].as_mut().expect("a list names own blocks");
        let generation = block.begin_use(head.number);
        let address = block.layout.object(block.address, head.number);
        let list = &mut self.lists[class.index()];
        list.prev = address;
        list.in_use += 1;
        Some(Allocated { address, class, generation, next: self.address(next), prev })
    }

    fn address(&self, object: ObjectRef) -> Address {
        let block = self.blocks[object.block as usize].as_ref().expect("refs name own blocks");
        block.layout.object(block.address, object.number)
    }

    fn take_next(&mut self, class: Class) -> Option<ObjectRef> {
        let list = &mut self.lists[class.index()];
        let (address, index) = match list.current {
            Some(current) => current,
            None => *list.current.insert(*list.with_free.first()?),
        };
        let block = self.blocks[index as usize].as_mut().expect("with_free names own blocks");
        let number = block.first_free().expect("with_free holds blocks with free objects");
        block.take(number);
        if block.free_count() == 0 {
            list.with_free.remove(&(address, index));
            list.current = None;
        }
        Some(ObjectRef { block: index, number })
    }

    /// Takes over a block. If the class's list begins anew with it, returns the
    /// new head, which has to be stored.
    pub(crate) fn add_block(&mut self, block: Block) -> Option<Address> {
        let class = block.layout.class;
        let (address, free) = (block.address, block.free_count());
        let used = block.with_tag(Tag::InUse).count() as u64;
        let ordinal = self.ordinal(address).expect("memory nodes give out blocks of the pool");
        assert!(self.own[ordinal] == NOT_OWN, "a block is given out once");
        let list = &mut self.lists[class.index()];
        list.in_use += used;
        list.blocks += 1;
        let index = match self.vacant.pop() {
            Some(index) => {
                self.blocks[index as usize] = Some(block);
                index
            }
            None => {
                self.blocks.push(Some(block));
                self.blocks.len() as u32 - 1
            }
        };
        self.own[ordinal] = index;
        if free > 0 {
            self.lists[class.index()].with_free.insert((address, index));
        }
        if self.lists[class.index()].head.is_some() {
            return None;
        }
        let head = self.take_next(class)?;
        self.lists[class.index()].head = Some(head);
        Some(self.address(head))
    }

    fn ordinal(&self, address: Address) -> Option<usize> {
        let (region, block, _) = self.geometry.block_of(address)?;
        Some((region * self.geometry.blocks_per_region() + block) as usize)
    }

    /// The own object at an address, if it is one.
    fn find(&self, address: Address) -> Option<ObjectRef> {
        let index = self.own[self.ordinal(address)?];
        let block = self.blocks.get(index as usize)?.as_ref()?;
        let number = block.layout.number(block.address, address)?;
        Some(ObjectRef { block: index, number })
    }

    /// The own object with this number in a block that is named by its region and its
    /// number there, if it is one and of this class.
    #[inline]
    pub(crate) fn object(
        &self,
        (region, block): (u32, u32),
        number: u32,
        class: Class,
    ) -> Option<ObjectRef> {
        let index = self.own[(region * self.geometry.blocks_per_region() + block) as usize];
        let block = self.blocks.get(index as usize)?.as_ref()?;
        (block.layout.class == class).then_some(ObjectRef { block: index, number })
    }

    fn block_mut(&mut self, object: ObjectRef) -> &mut Block {
        self.blocks[object.block as usize].as_mut().expect("blocks with objects in use stay own")
    }

    /// The object was freed under this generation: false if it was before.
    pub(crate) fn enter_grace(&mut self, object: ObjectRef, generation: u8) -> bool {
        let block = self.block_mut(object);
        let entered = block.enter_grace(object.number, generation);
        let class = block.layout.class;
        if entered {
            self.lists[class.index()].in_use -= 1;
        }
        entered
    }

    /// The object may be used again.
    pub(crate) fn leave_grace(&mut self, object: ObjectRef) {
        let block = self.block_mut(object);
        block.leave_grace(object.number);
        let (class, address) = (block.layout.class, block.address);
        // One with others that are free is among them already.
        if block.free_count() == 1 {
            self.lists[class.index()].with_free.insert((address, object.block));
        }
    }

    /// Notes whether an object in use will end some day.
    pub(crate) fn set_expiring(&mut self, address: Address, expiring: bool) {
        if let Some(object) = self.find(address) {
            self.block_mut(object).set_expiring(object.number, expiring);
        }
    }

    /// Bytes of objects in use.
    pub(crate) fn bytes_in_use(&self) -> u64 {
        let bytes = |class: u8| Class::new(class).bytes() as u64;
        (0..).zip(self.in_use()).map(|(class, objects)| objects * bytes(class)).sum()
    }

    /// Objects in use, by class.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = u64> + '_ {
        self.lists.iter().map(|list| list.in_use)
    }

    /// Own blocks, by class.
    pub(crate) fn blocks_by_class(&self) -> impl Iterator<Item = u64> + '_ {
        self.lists.iter().map(|list| list.blocks)
    }

    /// The objects of the own block at a position that were freed before it was.
    pub(crate) fn in_grace(&self, address: Address) -> Vec<ObjectRef> {
        let Some(&position) = self.ordinal(address).and_then(|ordinal| self.own.get(ordinal))
        else {
            return Vec::new();
        };
        let block = self.block_at(position as usize);
        let numbers = block.into_iter().flat_map(|block| block.with_tag(Tag::Grace));
        numbers.map(|number| ObjectRef { block: position, number }).collect()
    }

    /// How many blocks are own.
    pub(crate) fn block_count(&self) -> usize {
        self.blocks.len() - self.vacant.len()
    }

    /// An own block by position, which counts from 0; positions may be empty.
    pub(crate) fn block_at(&self, position: usize) -> Option<&Block> {
        self.blocks.get(position)?.as_ref()
    }

    /// How many positions there are.
    pub(crate) fn positions(&self) -> usize {
        self.blocks.len()
    }

    /// The object with this number in the block at a position.
    pub(crate) fn object_at(position: usize, number: u32) -> ObjectRef {
        ObjectRef { block: position as u32, number }
    }

    /// Gives up a block without objects, if the class can do without: with
    /// `all`, even the last one of the class.
    pub(crate) fn remove_empty(&mut self, all: bool) -> Option<Address> {
        for class in 0..CLASSES_MAX {
            if all && self.lists[class].with_free.len() == 1 {
                self.put_back_lone_head(class);
            }
            let list = &self.lists[class];
            let spare = list.with_free.len() > 1 || (all && list.head.is_none());
            if !spare {
                continue;
            }
            // From the top, because allocation goes from the bottom.
            let empty = list.with_free.iter().rev().copied().find(|&(_, index)| {
                self.blocks[index as usize].as_ref().is_some_and(Block::is_empty)
            });
            if let Some((address, index)) = empty {
                let list = &mut self.lists[class];
                list.with_free.remove(&(address, index));
                list.current = None;
                list.blocks -= 1;
                self.blocks[index as usize] = None;
                self.vacant.push(index);
                let ordinal = self.ordinal(address).expect("an own block is in the pool");
                self.own[ordinal] = NOT_OWN;
                return Some(address);
            }
        }
        None
    }

    /// Lets go of a head that alone keeps the class's only free block.
    fn put_back_lone_head(&mut self, class: usize) {
        let Some(head) = self.lists[class].head else { return };
        let block = self.blocks[head.block as usize].as_mut().expect("a list names own blocks");
        if block.free_count() + 1 == block.layout.objects {
            block.untake(head.number);
            let address = block.address;
            self.lists[class].head = None;
            self.lists[class].with_free.insert((address, head.block));
        }
    }

    /// Every own block with the state of its objects.
    pub(crate) fn audit(&self) -> Vec<BlockAudit> {
        self.blocks.iter().flatten().map(BlockAudit::of).collect()
    }
}

impl BlockAudit {
    pub(crate) fn of(block: &Block) -> Self {
        let state = |number| match block.tag(number) {
            Tag::Free => ObjectState::Free,
            Tag::InUse => ObjectState::InUse(block.generation(number)),
            Tag::Grace => ObjectState::Grace(block.generation(number)),
        };
        Self {
            address: block.address,
            layout: block.layout,
            objects: (0..block.layout.objects).map(state).collect(),
        }
    }
}
