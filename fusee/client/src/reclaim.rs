//! Reclaiming memory that was freed (`free.rs`), off the critical path.
//!
//! The block's owner, often the client that has freed the object, finds its byte
//! in the free map, lets the grace period pass (see `epoch.rs`) and hands the
//! object out again. Blocks without objects go back to their memory node
//! (`adopt.rs`).
//!
//! What an operation frees is in the free maps before this client publishes the
//! counter that says that the operation has ended. So an object that is in use,
//! that no slot leads to and that is still not freed after a grace period is one
//! that somebody owed when he died: `recover.rs` goes by that.

use crate::alloc::{Allocator, ObjectRef};
use crate::block::Block;
use crate::epoch::GRACE;
use crate::free::Freed;
use crate::store::Store;
use crate::{Env, Error};
use fusee_fabric::Fabric;
use fusee_layout::{Address, Geometry, Member, NodeAddress, Slot};
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

/// A tick reads some free maps, and one more for so many objects that were
/// allocated since the last one: others free about as many as this client does.
const MAPS_PER_TICK: u64 = 4;
const MAPS_PER_TICK_MAX: u64 = 16;
const ALLOCATIONS_PER_MAP: u64 = 256;
/// Rounds of waiting for grace before a full pool is called full, and their
/// length: together some six ticks of clients at rest, of which grace takes three.
const HURRY_ROUNDS: u32 = 30;
const HURRY_US: u64 = 2000;
/// After one hurried reclamation in vain others answer at once for so long.
const HURRY_PAUSE_MS: u64 = 100;

/// A client's quiescent counter, as it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Counter {
    index: u32,
    client: u64,
    value: u64,
}

/// Own objects that wait for all clients to pass by.
#[derive(Debug)]
struct Waiting {
    objects: Vec<ObjectRef>,
    since: Rc<[Counter]>,
}

/// An own block without objects in use, of which somebody may hold addresses. It
/// is not allocated from any more.
#[derive(Debug)]
pub(crate) struct Retiring {
    pub(crate) block: Block,
    since: Option<Rc<[Counter]>>,
}

/// What is between use and reuse.
#[derive(Debug, Default)]
pub(crate) struct Reclaimer {
    pub(crate) freed: VecDeque<Freed>,
    /// Own objects whose grace period has not begun yet.
    unstamped: Vec<ObjectRef>,
    waiting: VecDeque<Waiting>,
    retiring: Vec<Retiring>,
    /// Own blocks of which nobody holds anything: to be given back.
    pub(crate) retired: Vec<Address>,
    /// Entries of the client table that are known to be in use.
    members: u32,
    /// Where the next free map is read.
    position: usize,
    /// Was no other client there at the last tick?
    alone: bool,
    /// Free maps to be read until each was read after another client was there.
    unread: usize,
    hurried_at_ms: u64,
    /// Objects allocated up to the last tick.
    allocated: u64,
}

impl Reclaimer {
    /// Is there anything to do for which a tick should come soon?
    pub(crate) fn is_busy(&self) -> bool {
        !self.freed.is_empty() || self.awaits_grace()
    }

    fn awaits_grace(&self) -> bool {
        !self.unstamped.is_empty() || !self.waiting.is_empty() || !self.retiring.is_empty()
    }

    /// An own object was freed: its grace period begins with the next counters.
    pub(crate) fn begin_grace(&mut self, object: ObjectRef) {
        self.unstamped.push(object);
    }

    /// An own block goes back when its grace period is over.
    pub(crate) fn retire(&mut self, block: Block) {
        self.retiring.push(Retiring { block, since: None });
    }

    /// Own blocks that are on their way back.
    pub(crate) fn retiring(&self) -> impl Iterator<Item = &Block> + '_ {
        self.retiring.iter().map(|retiring| &retiring.block)
    }

    fn in_grace(&self) -> usize {
        self.unstamped.len() + self.waiting.iter().map(|w| w.objects.len()).sum::<usize>()
    }

    /// Words that were freed but whose free map is not written yet, for audits.
    pub(crate) fn pending(&self) -> impl Iterator<Item = Slot> + '_ {
        self.freed.iter().map(|freed| freed.word)
    }
}

impl<F: Fabric, E: Env> Store<F, E> {
    /// One step of everything that is due: frees, the quiescent counter, grace
    /// periods, free maps, empty blocks. A handful of round trips.
    pub(crate) async fn reclaim(&self) -> Result<(), Error> {
        // A node that is down keeps frees waiting, not the rest.
        let ticked = self.tick().await;
        let allocated = self.stats.allocated.get();
        let before = std::mem::replace(&mut self.reclaimer.borrow_mut().allocated, allocated);
        let maps = MAPS_PER_TICK + (allocated - before) / ALLOCATIONS_PER_MAP;
        let maps = self.maps_to_read(maps.min(MAPS_PER_TICK_MAX) as usize);
        self.read_free_maps(maps).await?;
        self.return_blocks(false).await?;
        self.tell();
        ticked
    }

    /// Says how much memory is in which state.
    fn tell(&self) {
        let (reclaimer, alloc) = (self.reclaimer.borrow(), self.alloc.borrow());
        self.stats.in_grace.set(reclaimer.in_grace() as u64);
        self.stats.frees_pending.set(reclaimer.freed.len() as u64);
        self.stats.blocks_retiring.set(reclaimer.retiring.len() as u64);
        self.stats.blocks.set(alloc.block_count() as u64);
        self.stats.bytes_in_use.set(alloc.bytes_in_use());
        self.stats.objects_in_use.set_all(alloc.in_use());
        self.stats.blocks_by_class.set_all(alloc.blocks_by_class());
    }

    /// How many of so many free maps are worth reading: nobody but other clients
    /// writes what is not known.
    fn maps_to_read(&self, most: usize) -> usize {
        let positions = self.alloc.borrow().positions();
        let reclaimer = &mut *self.reclaimer.borrow_mut();
        if !reclaimer.alone {
            reclaimer.unread = positions;
        }
        let maps = most.min(reclaimer.unread);
        reclaimer.unread -= maps;
        maps
    }

    /// Writes the noted frees, advances the own counter, if operations let it, and
    /// ends grace periods. One at a time: a counter must not go back, and what is
    /// freed while counters are being read must not get them as its stamp.
    async fn tick(&self) -> Result<(), Error> {
        // Asked before the frees are written: an operation that ends in between
        // has freed what is written next time only.
        let next = self.epochs.next();
        let flushed = self.flush_frees().await;
        if let Some(next) = next {
            self.publish(next).await?;
            self.epochs.enter(next);
        }
        let mut alone = false;
        if self.reclaimer.borrow().awaits_grace() {
            let counters: Rc<[Counter]> = self.read_counters().await?.into();
            alone = counters.len() == 1;
            self.end_grace(&counters);
        }
        self.reclaimer.borrow_mut().alone = alone;
        flushed
    }

    /// Publishes the quiescent counter and the key counts. 1 round trip.
    pub(crate) async fn publish(&self, quiescent: u64) -> Result<(), fusee_fabric::NodeDown> {
        let mut batch = self.fabric.batch();
        let span = batch.stage(Member::USED_BYTES);
        let keys = std::array::from_fn(|database| self.keys[database].get());
        let member = Member { client: self.client.into(), quiescent, keys };
        member.write(batch.staged(span));
        for at in self.member_entries(self.index) {
            batch.write(at, span);
        }
        let batch = self.fabric.run(batch).await;
        let done = batch.tickets().try_for_each(|ticket| batch.done(ticket));
        self.fabric.recycle(batch);
        done
    }

    /// Posts the own key count of a database.
    pub(crate) fn post_key_count(&self, batch: &mut fusee_fabric::Batch, database: u8) {
        let span = batch.stage(8);
        let count = self.keys[usize::from(database)].get();
        batch.staged(span).copy_from_slice(&count.to_le_bytes());
        for at in self.member_entries(self.index) {
            batch.write(at.plus(Member::keys_at(database)), span);
        }
    }

    /// The copies of an entry of the client table: as many as of anything else.
    pub(crate) fn member_entries(
        &self,
        index: u32,
    ) -> impl Iterator<Item = NodeAddress> + use<F, E> {
        let offset = Geometry::member_at(index);
        (0..self.replicas() as u16).map(move |node| NodeAddress { node, offset })
    }

    /// All clients' entries, as many bytes of each. 1 round trip, 2 when clients
    /// have joined.
    pub(crate) async fn read_members(&self, bytes: usize) -> Result<Vec<(u32, Member)>, Error> {
        loop {
            let known = self.reclaimer.borrow().members;
            let mut batch = self.fabric.batch();
            let node = 0;
            let count = batch.read(NodeAddress { node, offset: Geometry::MEMBERS_AT }, 8);
            for index in 0..known {
                let offset = Geometry::member_at(index);
                batch.read(NodeAddress { node, offset }, bytes);
            }
            let batch = self.fabric.run(batch).await;
            let members = batch.word(count)?.min(self.geometry.params.clients_max.into()) as u32;
            if members > known {
                self.fabric.recycle(batch);
                self.reclaimer.borrow_mut().members = members;
                continue;
            }
            let mut all = Vec::with_capacity(known as usize);
            let mut entry = [0; Member::USED_BYTES];
            for (index, ticket) in (0..known).zip(batch.tickets().skip(1)) {
                let read = batch.bytes(ticket)?;
                entry[..read.len()].copy_from_slice(read);
                all.push((index, Member::parse(&entry)));
            }
            self.fabric.recycle(batch);
            return Ok(all);
        }
    }

    pub(crate) async fn read_counters(&self) -> Result<Vec<Counter>, Error> {
        let members = self.read_members(Member::TICK_BYTES).await?;
        Ok(members
            .into_iter()
            .filter(|(_, m)| m.is_present())
            .map(|(index, m)| Counter { index, client: m.client, value: m.quiescent })
            .collect())
    }

    /// Makes objects reusable whose time has come; what was freed before
    /// `counters` were read begins its grace period with them.
    fn end_grace(&self, counters: &Rc<[Counter]>) {
        let mut reclaimer = self.reclaimer.borrow_mut();
        let mut alloc = self.alloc.borrow_mut();
        while let Some(first) = reclaimer.waiting.front()
            && all_passed(&first.since, counters)
        {
            let first = reclaimer.waiting.pop_front().expect("it was just seen");
            self.stats.reclaimed.add(first.objects.len() as u64);
            for object in first.objects {
                alloc.leave_grace(object);
            }
        }
        let Reclaimer { retiring, retired, .. } = &mut *reclaimer;
        retiring.retain_mut(|retiring| {
            let since = retiring.since.get_or_insert_with(|| counters.clone());
            let passed = all_passed(since, counters);
            if passed {
                retired.push(retiring.block.address);
            }
            !passed
        });
        if !reclaimer.unstamped.is_empty() {
            let objects = std::mem::take(&mut reclaimer.unstamped);
            reclaimer.waiting.push_back(Waiting { objects, since: counters.clone() });
        }
    }

    /// Reads the free maps of some own blocks and notes what others have freed.
    /// 1 round trip.
    async fn read_free_maps(&self, most: usize) -> Result<(), Error> {
        let maps: Vec<(usize, Address, usize)> = {
            let alloc = self.alloc.borrow();
            let positions = alloc.positions();
            let reclaimer = &mut *self.reclaimer.borrow_mut();
            let first = reclaimer.position;
            let some = (0..positions)
                .map(|n| (first + n) % positions)
                .filter_map(|position| Some((position, alloc.block_at(position)?)))
                .filter(|(_, block)| !block.is_empty())
                .take(most)
                .map(|(position, block)| {
                    (position, block.address, block.layout.free_map_bytes as usize)
                })
                .collect::<Vec<_>>();
            reclaimer.position = some.last().map_or(0, |&(position, ..)| position + 1);
            some
        };
        if maps.is_empty() {
            return Ok(());
        }
        let mut batch = self.fabric.batch();
        for &(_, block, bytes) in &maps {
            batch.read(self.primary(block), bytes);
        }
        let batch = self.fabric.run(batch).await;
        for (ticket, (position, block, _)) in batch.tickets().zip(maps) {
            let map = batch.bytes(ticket)?;
            let mut alloc = self.alloc.borrow_mut();
            // The block may have gone back, and the position to another one.
            let Some(own) = alloc.block_at(position).filter(|own| own.address == block) else {
                continue;
            };
            let freed: Vec<(u32, u8)> = own.freed_in(map).collect();
            let mut reclaimer = self.reclaimer.borrow_mut();
            for (number, generation) in freed {
                let object = Allocator::object_at(position, number);
                if alloc.enter_grace(object, generation) {
                    reclaimer.unstamped.push(object);
                }
            }
        }
        self.fabric.recycle(batch);
        Ok(())
    }

    /// The pool is full: reclaims what can be, unless that was tried in vain a
    /// moment ago. True if there may be memory now.
    pub(crate) async fn hurry(&self) -> Result<bool, Error> {
        let now_ms = self.env.now_ms();
        if now_ms < self.reclaimer.borrow().hurried_at_ms + HURRY_PAUSE_MS {
            return Ok(false);
        }
        let some = self.reclaim_now().await?;
        if !some {
            self.reclaimer.borrow_mut().hurried_at_ms = self.env.now_ms();
        }
        Ok(some)
    }

    /// Reclaims until some memory has come back, waiting some milliseconds for
    /// other clients. No operation of the caller may be pinned. False if none
    /// has come.
    pub(crate) async fn reclaim_now(&self) -> Result<bool, Error> {
        // Maintenance that begins again and again must not keep this out.
        self.hurrying.set(self.hurrying.get() + 1);
        let _hurrying = Hurrying(&self.hurrying);
        while self.maintaining.get() {
            self.env.sleep_us(HURRY_US).await;
        }
        let _alone = self.alone();
        let before = self.stats.reclaimed.get();
        self.flush_frees().await?;
        self.read_free_maps(usize::MAX).await?;
        for _ in 0..HURRY_ROUNDS {
            self.tick().await?;
            if !self.reclaimer.borrow().awaits_grace() || self.stats.reclaimed.get() > before {
                break;
            }
            self.env.sleep_us(HURRY_US).await;
        }
        self.return_blocks(true).await?;
        Ok(self.stats.reclaimed.get() > before)
    }
}

/// Marks that somebody waits for memory.
struct Hurrying<'a>(&'a Cell<u32>);

impl Drop for Hurrying<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Marks the store as being maintained.
pub(crate) struct Alone<'a>(&'a Cell<bool>);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl<F, E> Store<F, E> {
    /// Keeps others from maintaining the store at the same time.
    pub(crate) fn alone(&self) -> Alone<'_> {
        assert!(!self.maintaining.replace(true), "reclamation is done by one task at a time");
        Alone(&self.maintaining)
    }
}

/// Has every client that was there passed enough counters, or gone?
pub(crate) fn all_passed(since: &[Counter], now: &[Counter]) -> bool {
    since.iter().all(|then| {
        match now.iter().find(|c| c.index == then.index) {
            Some(c) if c.client == then.client => c.value >= then.value + GRACE,
            // Gone, or another client has its place.
            _ => true,
        }
    })
}
