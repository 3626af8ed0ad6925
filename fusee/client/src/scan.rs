//! Walking the index: SCAN, DBSIZE, FLUSHDB.
//!
//! A cursor is a position in the index: the subtable's suffix with its bits
//! reversed above the group's number. A subtable that splits leaves its half of
//! the reversed order to the new one, so a cursor stays good when the index
//! grows, and any gateway can go on from it. A key that is never removed keeps
//! its slot, so a whole walk meets it.

use crate::index::CANDIDATE_SLOTS;
use crate::store::Store;
use crate::{Decision, Entry, Env, Error, Key, Kind};
use fusee_fabric::Fabric;
use fusee_layout::{
    Address, BUCKET_BYTES, GROUP_BYTES, KeyHash, Member, SLOTS_PER_BUCKET, Slot, Unverified,
    slot_offset,
};

const GROUP_BITS: u32 = 24;
/// Groups that one batch reads at most.
const GROUPS_PER_BATCH: usize = 64;
/// Groups that one call reads at most, so that a nearly empty index does not
/// hold up the worker: SCAN may return few keys, or none, with a cursor.
const GROUPS_PER_CALL: usize = 1 << 12;
/// Bytes of an object that are read first; longer keys cost another READ.
const FIRST_BYTES: usize = 256;
/// Keys removed between two pauses for other tasks of the worker.
const FLUSH_PAUSE: usize = 1024;

impl<F: Fabric, E: Env> Store<F, E> {
    /// Visits about `count` keys of a database from `cursor` on and returns the
    /// next cursor, 0 at the end. Of an entry only kind and expiry are told. 2
    /// round trips per some hundred keys.
    pub async fn scan(
        &self,
        database: u8,
        cursor: u64,
        count: usize,
        mut each: impl FnMut(&[u8], Entry<'_>),
    ) -> Result<u64, Error> {
        let now_ms = self.env.now_ms();
        self.walk(cursor, count, |key, entry| {
            let over = entry.expires_at_ms.is_some_and(|at| at <= now_ms);
            let visible = key.database == database && !over;
            if visible {
                each(key.name, entry);
            }
            visible
        })
        .await
    }

    /// A cursor somewhere in the index, chosen by `random`.
    pub fn scan_start(&self, random: u64) -> u64 {
        let reversed = random & ((1 << KeyHash::DEPTH_MAX) - 1);
        let group = (random >> 16) % u64::from(self.geometry.params.groups);
        let step = 1 << (KeyHash::DEPTH_MAX - self.geometry.depth());
        (reversed / step * step) << GROUP_BITS | group
    }

    /// The number of keys in a database, those included whose time has come
    /// but which nobody has met yet. 1 round trip.
    pub async fn len(&self, database: u8) -> Result<u64, Error> {
        let members = self.read_members(Member::USED_BYTES).await?;
        let number = usize::from(database);
        let others: i64 =
            members.iter().filter(|(i, _)| *i != self.index).map(|(_, m)| m.keys[number]).sum();
        Ok((others + self.keys[number].get()).max(0) as u64)
    }

    /// Removes every key of a database, or of all that clients can select, that is
    /// there when the walk comes by.
    pub async fn flush(&self, database: Option<u8>) -> Result<(), Error> {
        let mut cursor = 0;
        loop {
            let mut keys = Vec::new();
            cursor = self
                .walk(cursor, FLUSH_PAUSE, |key, _| {
                    let named = key.is_in(database);
                    if named {
                        keys.push((key.database, key.name.to_vec()));
                    }
                    named
                })
                .await?;
            for (database, name) in &keys {
                self.remove(Key { database: *database, name }).await?;
            }
            if cursor == 0 {
                return Ok(());
            }
            self.env.sleep_us(1).await;
        }
    }

    /// Removes a key even if its time has come.
    async fn remove(&self, key: Key<'_>) -> Result<(), Error> {
        self.update_raw(key, &mut Vec::new(), |current, _, _| match current {
            Some(_) => Decision::Delete,
            None => Decision::Keep,
        })
        .await
    }

    /// Visits live slots until `count` visits counted.
    async fn walk(
        &self,
        cursor: u64,
        count: usize,
        mut each: impl FnMut(Key<'_>, Entry<'_>) -> bool,
    ) -> Result<u64, Error> {
        let _pin = self.epochs.pin();
        let mut position = Some(cursor);
        let mut counted = 0;
        let mut groups = 0;
        while let Some(from) = position.filter(|_| counted < count && groups < GROUPS_PER_CALL) {
            // A group holds some ten keys: read about as many as are asked for.
            let most = ((count - counted) / 8 + 1).min(GROUPS_PER_BATCH);
            let mut batch = self.fabric.batch();
            let mut next = Some(from);
            let mut read = Vec::new();
            while let Some(at) = next.filter(|_| batch.len() < most) {
                match self.group_at(at) {
                    Some(group) => {
                        batch.read(self.primary(group), GROUP_BYTES);
                        read.push(group);
                        next = self.position_after(at);
                    }
                    None => next = self.position_after_subtable(at),
                }
            }
            groups += batch.len();
            let batch = self.fabric.run(batch).await;
            let mut live = Vec::with_capacity(CANDIDATE_SLOTS);
            let mut prepared = Vec::new();
            for (ticket, group) in batch.tickets().zip(read) {
                collect(batch.words(ticket)?, group, &mut live, &mut prepared)?;
            }
            self.fabric.recycle(batch);
            if !prepared.is_empty() {
                // Which keys are there these transactions have yet to decide.
                self.finish_all(&prepared).await?;
                continue;
            }
            position = next;
            counted += self.visit_objects(&live, &mut each).await?;
        }
        Ok(position.unwrap_or(0))
    }

    async fn visit_objects(
        &self,
        live: &[Slot],
        each: &mut impl FnMut(Key<'_>, Entry<'_>) -> bool,
    ) -> Result<usize, Error> {
        let mut counted = 0;
        let mut pending: Vec<Slot> = live.to_vec();
        let mut bytes = FIRST_BYTES;
        while !pending.is_empty() {
            let mut batch = self.fabric.batch();
            for word in &pending {
                batch.read(self.primary(word.address()), word.class().bytes().min(bytes));
            }
            let batch = self.fabric.run(batch).await;
            let mut longer = Vec::new();
            for (ticket, &word) in batch.tickets().zip(&pending) {
                let read = batch.bytes(ticket)?;
                // The word was live when its slot was read, so the object was
                // whole, and nothing is reused while this walk is pinned.
                let Some(prefix) = Unverified::new(read).prefix(word) else {
                    if read.len() < word.class().bytes() {
                        longer.push(word);
                    }
                    continue;
                };
                let key = Key { database: prefix.meta.database, name: prefix.key };
                let entry = Entry {
                    value: &[],
                    kind: Kind::from_bits(prefix.meta.kind),
                    expires_at_ms: prefix.meta.expires_at_ms,
                };
                counted += usize::from(each(key, entry));
            }
            self.fabric.recycle(batch);
            pending = longer;
            bytes = usize::MAX;
        }
        Ok(counted)
    }

    /// The group at a position; `None` if the subtable has none of that number.
    fn group_at(&self, position: u64) -> Option<Address> {
        let group = position & ((1 << GROUP_BITS) - 1);
        if group >= u64::from(self.geometry.params.groups) {
            return None;
        }
        let depth = self.geometry.depth();
        let suffix = suffix_of(position, depth);
        let subtable = self.directory.borrow().subtable(suffix as usize)?;
        Some(subtable.plus(group * GROUP_BYTES as u64))
    }

    fn position_after(&self, position: u64) -> Option<u64> {
        let group = position & ((1 << GROUP_BITS) - 1);
        if group + 1 < u64::from(self.geometry.params.groups) {
            return Some(position + 1);
        }
        self.position_after_subtable(position)
    }

    fn position_after_subtable(&self, position: u64) -> Option<u64> {
        let step = 1 << (KeyHash::DEPTH_MAX - self.geometry.depth());
        let reversed = (position >> GROUP_BITS) / step * step + step;
        (reversed < 1 << KeyHash::DEPTH_MAX).then_some(reversed << GROUP_BITS)
    }
}

/// The directory suffix of a position: reversed bits, highest first.
fn suffix_of(position: u64, depth: u8) -> u32 {
    let reversed = (position >> GROUP_BITS) as u32 & ((1 << KeyHash::DEPTH_MAX) - 1);
    let bits = reversed.reverse_bits() >> (32 - u32::from(KeyHash::DEPTH_MAX));
    bits & ((1 << depth) - 1)
}

/// The live words of a group, and the prepared ones with their slots.
fn collect(
    words: &[u64],
    group: Address,
    live: &mut Vec<Slot>,
    prepared: &mut Vec<(Address, Slot)>,
) -> Result<(), Error> {
    for (number, bucket) in words.chunks_exact(BUCKET_BYTES / 8).enumerate() {
        for slot in 0..SLOTS_PER_BUCKET {
            let word = crate::snapshot::slot(bucket[slot_offset(slot) / 8])?;
            if word.is_live() {
                live.push(word);
            } else if word.is_prepared() {
                let offset = number * BUCKET_BYTES + slot_offset(slot);
                prepared.push((group.plus(offset as u64), word));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_go_through_all_suffixes_once() {
        for depth in 0..=KeyHash::DEPTH_MAX {
            let step = 1u64 << (KeyHash::DEPTH_MAX - depth);
            let mut seen: Vec<u32> =
                (0..1u64 << depth).map(|n| suffix_of((n * step) << GROUP_BITS, depth)).collect();
            seen.sort_unstable();
            assert!(seen.iter().copied().eq(0..1 << depth));
        }
    }

    #[test]
    fn a_split_keeps_what_is_behind_a_cursor_behind_it() {
        // The children of a subtable lie where it lay, in its order.
        for depth in 1..8u8 {
            for n in 0..1u64 << depth {
                let at = |depth: u8, n: u64| n << (KeyHash::DEPTH_MAX - depth) << GROUP_BITS;
                let parent = suffix_of(at(depth, n), depth);
                for child in [2 * n, 2 * n + 1] {
                    let suffix = suffix_of(at(depth + 1, child), depth + 1);
                    assert_eq!(suffix & ((1 << depth) - 1), parent);
                }
            }
        }
    }
}
