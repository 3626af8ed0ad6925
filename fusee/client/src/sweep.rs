//! Expiry: owners look through their own blocks for objects whose time has come
//! and remove their keys, so that memory comes back without anybody reading.

use crate::store::Store;
use crate::{Decision, Env, Error, Key};
use fusee_fabric::Fabric;
use fusee_layout::{Slot, Unverified};
use std::cell::{Cell, RefCell};

/// Bytes that tell when an object ends.
const META_BYTES: usize = 40;

/// Where the sweep goes on.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    position: Cell<usize>,
    number: Cell<u32>,
    is_off: Cell<bool>,
}

/// Bytes of names that wait to be told; what ends while so many do is not told.
const EXPIRED_BYTES_MAX: usize = 16 << 20;

/// Keys that were removed because their time had come, for whoever wants to know.
#[derive(Debug, Default)]
pub(crate) struct Expired {
    is_wanted: Cell<bool>,
    bytes: Cell<usize>,
    keys: RefCell<Vec<(u8, Vec<u8>)>>,
}

impl<F: Fabric, E: Env> Store<F, E> {
    /// The databases and names of keys that this client has removed because their
    /// time had come, since the last call said that they are wanted. Of all clients
    /// of a pool one removes a key, so each end is told once.
    pub fn take_expired(&self, is_wanted: bool) -> Vec<(u8, Vec<u8>)> {
        self.expired.is_wanted.set(is_wanted);
        self.expired.bytes.set(0);
        self.expired.keys.take()
    }

    /// Whether this client looks for values that have ended before anybody asks for them,
    /// which it does at first. Tests of what is read then turn it off.
    pub fn sweep_in_background(&self, does: bool) {
        self.sweep.is_off.set(!does);
    }

    pub(crate) fn sweeps(&self) -> bool {
        !self.sweep.is_off.get()
    }

    /// Counts a key that was removed because its time had come.
    pub(crate) fn count_expired(&self, key: Key<'_>) {
        self.stats.expired.add(1);
        let bytes = self.expired.bytes.get() + key.name.len() + size_of::<(u8, Vec<u8>)>();
        if self.expired.is_wanted.get() && bytes <= EXPIRED_BYTES_MAX {
            self.expired.bytes.set(bytes);
            self.expired.keys.borrow_mut().push((key.database, key.name.to_vec()));
        }
    }

    /// Looks at up to `most` own objects that may end, removes the keys of those
    /// that have, and returns how many. 1 round trip, and a delete for each.
    pub(crate) async fn sweep(&self, most: usize) -> Result<usize, Error> {
        let most = if self.sweeps() { most } else { 0 };
        let visited = self.next_expiring(most);
        if visited.is_empty() {
            return Ok(0);
        }
        let mut batch = self.fabric.batch();
        for word in &visited {
            batch.read(self.primary(word.address()), META_BYTES);
        }
        let batch = self.fabric.run(batch).await;
        let now_ms = self.env.now_ms();
        let mut due = Vec::new();
        for (ticket, word) in batch.tickets().zip(visited) {
            match Unverified::new(batch.bytes(ticket)?).meta(word) {
                Some(meta) if meta.expires_at_ms.is_some_and(|at| at <= now_ms) => due.push(word),
                Some(meta) if meta.expires_at_ms.is_none() => self.forget_expiring(word),
                _ => {}
            }
        }
        self.fabric.recycle(batch);
        for &word in &due {
            match self.expire(word).await {
                // A removal needs an object itself: the next sweep tries again.
                Err(Error::Full) => break,
                other => other?,
            }
        }
        Ok(due.len())
    }

    fn next_expiring(&self, most: usize) -> Vec<Slot> {
        let alloc = self.alloc.borrow();
        let mut visited = Vec::new();
        let positions = alloc.positions();
        for _ in 0..=positions {
            let position = self.sweep.position.get();
            if let Some(block) = alloc.block_at(position) {
                for number in block.expiring_from(self.sweep.number.get()) {
                    if visited.len() == most {
                        self.sweep.number.set(number);
                        return visited;
                    }
                    let address = block.layout.object(block.address, number);
                    let class = block.layout.class;
                    visited.push(Slot::live(0, class, block.generation(number), address));
                }
            }
            self.sweep.number.set(0);
            self.sweep.position.set(if position >= positions { 0 } else { position + 1 });
        }
        visited
    }

    fn forget_expiring(&self, word: Slot) {
        self.alloc.borrow_mut().set_expiring(word.address(), false);
    }

    /// Removes the key of an object whose time has come, unless it has another
    /// value by now.
    pub(crate) async fn expire(&self, word: Slot) -> Result<(), Error> {
        let name;
        let database;
        {
            let mut batch = self.fabric.batch();
            let ticket = batch.read(self.primary(word.address()), word.class().bytes());
            let batch = self.fabric.run(batch).await;
            let Some(object) = Unverified::new(batch.bytes(ticket)?).verify(word) else {
                return Ok(());
            };
            name = object.key.to_vec();
            database = object.meta.database;
            self.fabric.recycle(batch);
        }
        let mut removed = false;
        let key = Key { database, name: &name };
        self.update_raw(key, &mut Vec::new(), |current, _, now_ms| {
            let over = current.is_some_and(|e| e.expires_at_ms.is_some_and(|at| at <= now_ms));
            removed = over;
            if over { Decision::Delete } else { Decision::Keep }
        })
        .await?;
        if removed {
            self.count_expired(key);
        }
        Ok(())
    }
}
