//! The RACE index as a client sees it: where a key may be, and what is there.

use crate::Error;
use fusee_fabric::{Batch, Fabric, Ticket};
use fusee_layout::{
    Address, BucketHeader, COMBINED_BYTES, COMBINED_SLOTS, GROUP_BYTES, Geometry, KeyHash,
    NodeAddress, Slot, combined_slots,
};

/// Slots that may hold a key: two combined buckets.
pub(crate) const CANDIDATE_SLOTS: usize = 2 * COMBINED_SLOTS;

/// The directory: a subtable for each suffix of the key hash.
#[derive(Debug)]
pub(crate) struct Directory {
    entries: Vec<(Address, u8)>,
    initial_depth: u8,
}

impl Directory {
    /// The directory as the pool was created.
    pub(crate) fn initial(geometry: &Geometry) -> Self {
        let initial_depth = geometry.depth();
        let entries =
            (0..geometry.params.subtables).map(|n| (geometry.subtable(n), initial_depth)).collect();
        Self { entries, initial_depth }
    }

    /// Takes over what a memory node holds: a word per entry, 0 as created.
    pub(crate) fn update(&mut self, geometry: &Geometry, words: &[u64]) -> Result<(), Error> {
        const CORRUPT: Error = Error::Corrupt { what: "a directory entry" };
        for (number, &word) in words.iter().enumerate().filter(|&(_, &word)| word != 0) {
            let address = Address::new(word & ((1 << Address::BITS) - 1));
            let depth = (word >> Address::BITS) as u8;
            if depth > KeyHash::DEPTH_MAX || !geometry.placement.contains(address) {
                return Err(CORRUPT);
            }
            *self.entries.get_mut(number).ok_or(CORRUPT)? = (address, depth);
        }
        Ok(())
    }

    /// Where a key belongs.
    pub(crate) fn place(&self, geometry: &Geometry, hash: KeyHash) -> Place {
        let suffix = hash.suffix(self.initial_depth);
        let (subtable, local_depth) = self.entries[suffix as usize];
        let [first, second] = hash.buckets(geometry.params.groups).map(|(group, side)| {
            (subtable.plus(u64::from(group) * GROUP_BYTES as u64 + u64::from(side) * 64), side)
        });
        Place { hash, buckets: [first, second], local_depth, initial_depth: self.initial_depth }
    }

    /// The subtables in the order of their suffix, each once.
    pub(crate) fn subtable(&self, number: usize) -> Option<Address> {
        self.entries.get(number).map(|&(address, _)| address)
    }
}

/// Where a key may be: two combined buckets of one subtable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) hash: KeyHash,
    /// Start and side of each combined bucket.
    buckets: [(Address, u32); 2],
    local_depth: u8,
    initial_depth: u8,
}

/// The READs of a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaceRead([Ticket; 2]);

impl Place {
    /// READs both combined buckets of one replica; with `fenced`, behind what
    /// was posted before.
    pub(crate) fn read(
        &self,
        batch: &mut Batch,
        locate: impl Fn(Address) -> NodeAddress,
        fenced: bool,
    ) -> PlaceRead {
        PlaceRead(self.buckets.map(|(address, _)| {
            if fenced {
                batch.fence();
            }
            batch.read(locate(address), COMBINED_BYTES)
        }))
    }

    /// Brings both combined buckets of the primary nearer.
    pub(crate) fn prefetch(&self, fabric: &impl Fabric, locate: impl Fn(Address) -> NodeAddress) {
        for (address, _) in self.buckets {
            fabric.prefetch(locate(address), COMBINED_BYTES);
        }
    }

    /// Visits the slots that were READ, main buckets first.
    ///
    /// # Errors
    ///
    /// If the node is down, or the buckets are of another subtable
    /// ([`Stale`]) or no buckets at all.
    pub(crate) fn visit(
        &self,
        batch: &Batch,
        read: PlaceRead,
        mut each: impl FnMut(Address, Slot),
    ) -> Result<(), ReadError> {
        for (ticket, (address, side)) in read.0.into_iter().zip(self.buckets) {
            let words = batch.words(ticket).map_err(|e| Error::NodeDown { node: e.node })?;
            let suffix = self.hash.suffix(24);
            for header in [words[0], words[8]] {
                if !BucketHeader::agrees(header, self.local_depth, suffix, self.initial_depth) {
                    return Err(ReadError::Stale);
                }
            }
            for (offset, word) in combined_slots(words, side) {
                let slot = Slot::from_word(word).ok_or(Error::Corrupt { what: "a slot word" })?;
                each(address.plus(offset), slot);
            }
        }
        Ok(())
    }

    /// Do both combined buckets hold what they held?
    pub(crate) fn is_as(&self, view: &View, read: [&[u64]; 2]) -> bool {
        let words = read.into_iter().zip(self.buckets);
        let now = words.flat_map(|(words, (_, side))| combined_slots(words, side));
        now.map(|(_, word)| word).eq(view.iter().map(|(_, slot)| slot.word()))
    }

    /// Everything that was READ.
    pub(crate) fn view(&self, batch: &Batch, read: PlaceRead) -> Result<Box<View>, ReadError> {
        // Boxed, because it is handed through many a future.
        let slots = [(Address::default(), Slot::EMPTY); CANDIDATE_SLOTS];
        let mut view = Box::new(View { place: *self, slots });
        let mut number = 0;
        self.visit(batch, read, |address, slot| {
            view.slots[number] = (address, slot);
            number += 1;
        })?;
        Ok(view)
    }
}

/// Why buckets could not be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadError {
    /// They belong to another subtable: read the directory again.
    Stale,
    /// Anything else.
    Failed(Error),
}

impl From<Error> for ReadError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The slots that may hold a key, as they were at one READ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// Where the slots are.
    pub(crate) place: Place,
    slots: [(Address, Slot); CANDIDATE_SLOTS],
}

impl View {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Address, Slot)> + '_ {
        self.slots.iter().copied()
    }

    /// The words that may lead to the key.
    pub(crate) fn candidates(&self, fingerprint: u8) -> impl Iterator<Item = (Address, Slot)> + '_ {
        self.iter().filter(move |(_, s)| s.leads() && s.fingerprint() == fingerprint)
    }

    /// What a slot held.
    pub(crate) fn word(&self, at: Address) -> Option<Slot> {
        self.iter().find(|&(address, _)| address == at).map(|(_, slot)| slot)
    }

    /// The slot to insert into: the first vacant one of the emptier combined
    /// bucket, its main bucket first (RACE's choice keeps buckets level). All
    /// inserters of a key choose alike, so rivals mostly meet in one slot.
    ///
    /// If it is `avoid`, because an insert there is stuck, it is the next one, the
    /// same only if there is no other.
    pub(crate) fn vacancy(&self, avoid: Option<Address>) -> Option<(Address, Slot)> {
        let vacant = |half: &[(Address, Slot)]| half.iter().filter(|(_, s)| s.is_vacant()).count();
        let (first, second) = self.slots.split_at(COMBINED_SLOTS);
        let (emptier, other) =
            if vacant(first) >= vacant(second) { (first, second) } else { (second, first) };
        let mut vacancies = emptier.iter().chain(other).copied().filter(|(_, s)| s.is_vacant());
        let first = vacancies.next()?;
        let Some(avoid) = avoid else { return Some(first) };
        if first.0 == avoid {
            return Some(vacancies.next().unwrap_or(first));
        }
        vacancies.find(|&(at, _)| at == avoid);
        Some(vacancies.next().unwrap_or(first))
    }

    /// Inserts in progress (r = 1) whose owner may be dead.
    pub(crate) fn tentative(&self) -> impl Iterator<Item = (Address, Slot)> + '_ {
        self.iter().filter(|(_, s)| s.is_tentative())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fusee_layout::Class;

    #[test]
    fn an_insert_goes_round_a_slot_that_is_stuck() {
        let buckets = [(Address::default(), 0); 2];
        let hash = KeyHash::from_word(0);
        let place = Place { hash, buckets, local_depth: 0, initial_depth: 0 };
        let taken = Slot::live(1, Class::SMALLEST, 1, Address::new(64));
        let at = |number: usize| Address::new(8 * number as u64);
        let mut slots: [(Address, Slot); CANDIDATE_SLOTS] =
            std::array::from_fn(|number| (at(number), taken));
        for vacant in [3, 5, 20] {
            slots[vacant].1 = taken.tombstone();
        }
        let vacancy = |view: &View, avoid| view.vacancy(avoid).map(|(at, _)| at);
        let view = View { place, slots };
        assert_eq!(vacancy(&view, None), Some(at(3)));
        assert_eq!(vacancy(&view, Some(at(3))), Some(at(5)));
        assert_eq!(vacancy(&view, Some(at(5))), Some(at(20)));
        assert_eq!(vacancy(&view, Some(at(20))), Some(at(3)));
        slots[3].1 = taken;
        slots[5].1 = taken;
        let view = View { place, slots };
        assert_eq!(vacancy(&view, Some(at(20))), Some(at(20)), "there is no other");
        slots[20].1 = taken;
        assert_eq!(vacancy(&View { place, slots }, None), None);
    }
}
