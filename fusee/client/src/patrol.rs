//! Orphans looked after: blocks that nobody owns keep the values that are in them,
//! but nobody sweeps them for values that have ended, and what is freed in them
//! comes back to nobody.
//!
//! So every client walks all block tables, slowly, and looks at the orphans: it
//! removes what has ended, tells the memory node which have room for more, and
//! takes those without objects in use, to give them back when their grace period
//! is over.

use crate::block::room;
use crate::store::Store;
use crate::survey::OBJECTS_PER_STEP;
use crate::{Env, Error};
use fusee_fabric::Fabric;
use fusee_layout::message::{Request, Response};
use fusee_layout::{Address, BlockEntry, BlockState, Class};

/// Block tables are read every so many ticks, each 10 to 100 ms; orphans in them
/// are looked at from tick to tick.
const TICKS_PER_TABLES: u32 = 8;
/// Block tables that one step reads.
const TABLES_PER_STEP: u32 = 16;

/// Where the walk is.
#[derive(Debug, Default)]
pub(crate) struct Patrol {
    ticks: u32,
    /// The next region, counted from the first that holds blocks.
    region: u32,
    /// Orphans to be looked at, the next one last.
    orphans: Vec<(Address, BlockEntry)>,
    /// Of that one, the objects before this one were looked at; so many of them
    /// are in use, and so many were never used.
    number: u32,
    used: u32,
    unused: u32,
}

impl<F: Fabric, E: Env> Store<F, E> {
    /// Takes the next step of the walk, if it is time. Some 4 round trips, and a
    /// delete for each value that has ended.
    pub(crate) async fn patrol(&self) -> Result<(), Error> {
        let mut patrol = {
            let mut patrol = self.patrol.borrow_mut();
            patrol.ticks += 1;
            if patrol.orphans.is_empty() && patrol.ticks < TICKS_PER_TABLES {
                return Ok(());
            }
            std::mem::take(&mut *patrol)
        };
        let step = self.patrol_step(&mut patrol).await;
        patrol.ticks = 0;
        if step.is_err() {
            // What was seen may be out of date when the node is back.
            patrol.orphans.clear();
            patrol.number = 0;
        }
        *self.patrol.borrow_mut() = patrol;
        step
    }

    async fn patrol_step(&self, patrol: &mut Patrol) -> Result<(), Error> {
        let Some(&(block, entry)) = patrol.orphans.last() else {
            let regions = self.geometry.data_regions();
            let first = regions.start + patrol.region;
            let end = regions.end.min(first + TABLES_PER_STEP);
            patrol.region = if end == regions.end { 0 } else { end - regions.start };
            let mut found = self.read_tables(first..end).await?;
            found.retain(|(_, entry)| entry.state == BlockState::Orphan);
            patrol.orphans = found;
            (patrol.number, patrol.used, patrol.unused) = (0, 0, 0);
            return Ok(());
        };
        let layout = self.geometry.layout(entry.class).copied();
        let layout = layout.ok_or(Error::Corrupt { what: "a block's class" })?;
        let numbers = patrol.number..layout.objects.min(patrol.number + OBJECTS_PER_STEP);
        let objects = {
            let _pin = self.epochs.pin();
            self.read_objects(block, &layout, numbers.clone()).await?
        };
        patrol.number = numbers.end;
        patrol.used += objects.in_use.len() as u32;
        patrol.unused += objects.unused;
        if patrol.number == layout.objects {
            patrol.orphans.pop();
            let (used, unused) = (patrol.used, patrol.unused);
            (patrol.number, patrol.used, patrol.unused) = (0, 0, 0);
            let room = room(layout.objects, used, unused);
            if used == 0 {
                self.adopt_orphan(block).await?;
            } else if room != entry.room {
                self.offer(entry.client, block, room).await?;
            }
        }
        let now_ms = self.env.now_ms();
        let sweeps = self.sweeps();
        let over = |at: Option<u64>| sweeps && at.is_some_and(|at| at <= now_ms);
        for object in objects.in_use.iter().filter(|object| over(object.expires_at_ms)) {
            match self.expire(object.word).await {
                // A removal needs an object itself: the next walk tries again.
                Err(Error::Full) => break,
                other => other?,
            }
        }
        Ok(())
    }

    /// Takes an orphan that seems to be empty, unless somebody was faster.
    async fn adopt_orphan(&self, block: Address) -> Result<(), Error> {
        let node = self.primary(block).node;
        let request = Request::Adopt { client: self.client, block };
        match self.fabric.call(node, request).await? {
            Response::Allocated { .. } => {
                // Since the walk saw it it may have gone back, and have become another
                // class's: looked at as what it was, it would seem empty.
                let class = self.class_of(block).await?;
                self.take_orphan(block, class).await
            }
            _ => Ok(()),
        }
    }

    /// The class of a block that is not free. 1 round trip.
    async fn class_of(&self, block: Address) -> Result<Class, Error> {
        const CORRUPT: Error = Error::Corrupt { what: "the table entry of an own block" };
        let (region, number, _) = self.geometry.block_of(block).ok_or(CORRUPT)?;
        let mut batch = self.fabric.batch();
        let read = batch.read(self.primary(self.geometry.block_entry(region, number)), 8);
        let batch = self.fabric.run(batch).await;
        let entry = BlockEntry::from_word(batch.word(read)?);
        self.fabric.recycle(batch);
        Ok(entry.filter(|entry| entry.client == self.client).ok_or(CORRUPT)?.class)
    }
}

#[cfg(test)]
#[path = "patrol_tests.rs"]
mod tests;
