//! Blocks that change hands: from a memory node or from an earlier owner to this
//! client, and back.

use crate::block::{Block, Tag};
use crate::store::Store;
use crate::{Env, Error};
use fusee_fabric::Fabric;
use fusee_layout::message::{Request, Response};
use fusee_layout::{Address, BlockLayout, Class, Member, Room, Unverified};

const CORRUPT: Error = Error::Corrupt { what: "the address of a new block" };

impl<F: Fabric, E: Env> Store<F, E> {
    /// Takes over a block from a memory node, to allocate from it.
    pub(crate) async fn take_block(
        &self,
        address: Address,
        class: Class,
        adopted: bool,
    ) -> Result<(), Error> {
        let layout = self.layout_at(address, class)?;
        let block = if adopted {
            self.read_block(address, layout).await?
        } else {
            Block::fresh(address, layout)
        };
        self.own_block(block).await
    }

    /// Takes over an orphan: one without objects in use goes back to its memory
    /// node when nobody can hold an address in it any more.
    pub(crate) async fn take_orphan(&self, address: Address, class: Class) -> Result<(), Error> {
        let block = self.read_block(address, self.layout_at(address, class)?).await?;
        if block.with_tag(Tag::InUse).next().is_some() {
            return self.own_block(block).await;
        }
        self.reclaimer.borrow_mut().retire(block);
        Ok(())
    }

    fn layout_at(&self, address: Address, class: Class) -> Result<BlockLayout, Error> {
        if self.geometry.block_of(address).map(|(_, _, start)| start) != Some(address) {
            return Err(CORRUPT);
        }
        self.geometry.layout(class).copied().ok_or(CORRUPT)
    }

    /// Finds out what an earlier owner has left in a block. 1 round trip.
    async fn read_block(&self, address: Address, layout: BlockLayout) -> Result<Block, Error> {
        let mut batch = self.fabric.batch();
        let bytes = self.geometry.params.block_bytes as usize;
        let ticket = batch.read(self.primary(address), bytes);
        let batch = self.fabric.run(batch).await;
        let bytes = batch.bytes(ticket)?;
        let object = |number| (layout.object(address, number).get() - address.get()) as usize;
        let generations: Vec<u8> = (0..layout.objects)
            .map(|n| Unverified::new(&bytes[object(n)..]).generation().unwrap_or(0))
            .collect();
        let block = Block::adopted(address, layout, &generations, bytes);
        self.fabric.recycle(batch);
        Ok(block)
    }

    /// Begins to allocate from a block. 1 round trip if its class has none.
    async fn own_block(&self, block: Block) -> Result<(), Error> {
        let (address, class) = (block.address, block.layout.class);
        let head = {
            let mut alloc = self.alloc.borrow_mut();
            let head = alloc.add_block(block);
            let mut reclaimer = self.reclaimer.borrow_mut();
            // Whoever freed them did so perhaps a moment ago.
            alloc.in_grace(address).into_iter().for_each(|object| reclaimer.begin_grace(object));
            head
        };
        let Some(head) = head else { return Ok(()) };
        let mut batch = self.fabric.batch();
        let span = batch.stage(8);
        batch.staged(span).copy_from_slice(&head.get().to_le_bytes());
        for at in self.member_entries(self.index) {
            batch.write(at.plus(Member::head_at(class)), span);
        }
        let batch = self.fabric.run(batch).await;
        for ticket in batch.tickets() {
            batch.done(ticket)?;
        }
        self.fabric.recycle(batch);
        Ok(())
    }

    /// Gives blocks without objects back, with `all` even the last one of a class.
    /// 1 control request each.
    pub(crate) async fn return_blocks(&self, all: bool) -> Result<(), Error> {
        loop {
            let empty = self.alloc.borrow_mut().remove_empty(all);
            self.reclaimer.borrow_mut().retired.extend(empty);
            let retired = self.reclaimer.borrow_mut().retired.pop();
            let Some(block) = retired else { return Ok(()) };
            let node = self.primary(block).node;
            let request = Request::Return { client: self.client, block };
            match self.fabric.call(node, request).await {
                Ok(Response::Done) => {}
                Ok(_) => return Err(Error::Corrupt { what: "the answer to a block's return" }),
                Err(down) => {
                    self.reclaimer.borrow_mut().retired.push(block);
                    return Err(down.into());
                }
            }
        }
    }

    /// Tells the memory nodes which of the own blocks have room, so that whoever
    /// needs their class gets them once they are orphans. 1 control request each.
    pub(crate) async fn offer_blocks(&self) -> Result<(), Error> {
        let offers: Vec<(Address, Room)> = {
            let (alloc, reclaimer) = (self.alloc.borrow(), self.reclaimer.borrow());
            let own = (0..alloc.positions()).filter_map(|position| alloc.block_at(position));
            let offer = |block: &Block| (block.address, block.room());
            let offers = own.chain(reclaimer.retiring()).map(offer);
            offers.filter(|&(_, room)| room != Room::Unknown).collect()
        };
        for (block, room) in offers {
            self.offer(self.client, block, room).await?;
        }
        Ok(())
    }

    /// Tells what room a block has whose owner is, or was last, this client. False
    /// if it has another owner by now. 1 control request.
    pub(crate) async fn offer(
        &self,
        client: u32,
        block: Address,
        room: Room,
    ) -> Result<bool, Error> {
        let node = self.primary(block).node;
        let request = Request::Offer { client, block, room };
        Ok(self.fabric.call(node, request).await? == Response::Done)
    }
}
