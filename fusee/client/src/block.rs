//! A block that this client owns: which of its objects are free.

use fusee_layout::{Address, BlockLayout, FREE_MAP_NONE, Room, Slot};

/// What an own object is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Tag {
    /// May be allocated.
    Free = 0,
    /// Named by a slot, or by an operation under way.
    InUse = 1,
    /// Freed, but somebody may still hold its address.
    Grace = 2,
}

/// What a block of so many objects has to give, of which so many are in use and
/// so many were never used.
pub(crate) fn room(objects: u32, used: u32, unused: u32) -> Room {
    if unused > 0 {
        Room::Unused
    } else if (objects - used) * ROOM_SHARE >= objects {
        Room::Freed
    } else {
        Room::Unknown
    }
}

/// With one object in so many freed, a block is worth the READ of all of it.
const ROOM_SHARE: u32 = 8;
/// Objects that are looked at together.
const STRIDE: usize = 64;
const TAG_SHIFT: u32 = 6;
const GENERATION: u8 = (1 << TAG_SHIFT) - 1;

/// A block of this client.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) address: Address,
    pub(crate) layout: BlockLayout,
    /// Per object: tag and the generation of its last use, 0 if it had none.
    states: Box<[u8]>,
    /// A bit per object that may be handed out; the head of the class's list
    /// is free, but not in here.
    free: Box<[u64]>,
    free_count: u32,
    /// No word of `free` below this one has a bit.
    first_word: usize,
    /// A bit per object that was written with an expiry.
    expiring: Box<[u64]>,
    expiring_count: u32,
}

impl Block {
    /// A block of zeroes: nothing in it was ever used.
    pub(crate) fn fresh(address: Address, layout: BlockLayout) -> Self {
        let objects = layout.objects as usize;
        let mut free = vec![u64::MAX; objects.div_ceil(64)].into_boxed_slice();
        if !objects.is_multiple_of(64) {
            free[objects / 64] = (1 << (objects % 64)) - 1;
        }
        Self {
            address,
            layout,
            states: vec![0; objects].into_boxed_slice(),
            expiring: vec![0; free.len()].into_boxed_slice(),
            expiring_count: 0,
            free,
            free_count: layout.objects,
            first_word: 0,
        }
    }

    /// A block of an earlier owner: `generations` are the bytes in its objects,
    /// `free_map` what was freed. An object that is neither unused nor freed is
    /// in use; of one that was freed somebody may still hold the address.
    pub(crate) fn adopted(
        address: Address,
        layout: BlockLayout,
        generations: &[u8],
        free_map: &[u8],
    ) -> Self {
        let mut block = Self::fresh(address, layout);
        for number in 0..layout.objects {
            let at = number as usize;
            let generation = generations[at] & GENERATION;
            if generation == FREE_MAP_NONE {
                continue;
            }
            block.take(number);
            let tag = if free_map[at] == generation { Tag::Grace } else { Tag::InUse };
            block.states[at] = generation | (tag as u8) << TAG_SHIFT;
            // Whether it ends some day is found out when it is visited.
            block.set_expiring(number, tag == Tag::InUse);
        }
        block
    }

    /// The objects that are what `tag` says.
    pub(crate) fn with_tag(&self, tag: Tag) -> impl Iterator<Item = u32> + '_ {
        (0..self.layout.objects).filter(move |&number| self.tag(number) == tag)
    }

    /// What the block has to give to its next owner.
    pub(crate) fn room(&self) -> Room {
        let (mut unused, mut used) = (0, 0);
        for number in 0..self.layout.objects {
            unused += u32::from(self.generation(number) == FREE_MAP_NONE);
            used += u32::from(self.tag(number) == Tag::InUse);
        }
        room(self.layout.objects, used, unused)
    }

    pub(crate) fn tag(&self, number: u32) -> Tag {
        match self.states[number as usize] >> TAG_SHIFT {
            0 => Tag::Free,
            1 => Tag::InUse,
            _ => Tag::Grace,
        }
    }

    pub(crate) fn generation(&self, number: u32) -> u8 {
        self.states[number as usize] & GENERATION
    }

    pub(crate) fn free_count(&self) -> u32 {
        self.free_count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.free_count == self.layout.objects
    }

    /// The first object that may be handed out.
    pub(crate) fn first_free(&mut self) -> Option<u32> {
        let word =
            self.first_word + self.free[self.first_word..].iter().position(|&bits| bits != 0)?;
        self.first_word = word;
        Some(word as u32 * 64 + self.free[word].trailing_zeros())
    }

    /// Takes an object out of those that may be handed out.
    pub(crate) fn take(&mut self, number: u32) {
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        assert!(self.free[word] & bit != 0, "only a free object is taken");
        self.free[word] &= !bit;
        self.free_count -= 1;
    }

    /// Puts the head of a list back among those that may be handed out.
    pub(crate) fn untake(&mut self, number: u32) {
        assert!(self.tag(number) == Tag::Free);
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        assert!(self.free[word] & bit == 0, "a taken object is put back once");
        self.free[word] |= bit;
        self.free_count += 1;
        self.first_word = self.first_word.min(word);
    }

    /// Begins a new use of an object that was taken; returns its generation.
    pub(crate) fn begin_use(&mut self, number: u32) -> u8 {
        let state = &mut self.states[number as usize];
        assert!(*state >> TAG_SHIFT == Tag::Free as u8, "an object in use is not used again");
        let generation = match *state & GENERATION {
            Slot::GENERATION_MAX => 1,
            last => last + 1,
        };
        *state = generation | (Tag::InUse as u8) << TAG_SHIFT;
        generation
    }

    /// The object of this generation was freed; it enters its grace period.
    /// False if it is not in use under this generation: freed before.
    pub(crate) fn enter_grace(&mut self, number: u32, generation: u8) -> bool {
        let state = &mut self.states[number as usize];
        if *state != generation | (Tag::InUse as u8) << TAG_SHIFT {
            return false;
        }
        *state = generation | (Tag::Grace as u8) << TAG_SHIFT;
        self.set_expiring(number, false);
        true
    }

    /// The grace period of the object is over.
    pub(crate) fn leave_grace(&mut self, number: u32) {
        let state = &mut self.states[number as usize];
        assert!(*state >> TAG_SHIFT == Tag::Grace as u8, "grace ends once");
        *state &= GENERATION;
        self.untake(number);
    }

    /// Notes whether the object will end some day.
    pub(crate) fn set_expiring(&mut self, number: u32, expiring: bool) {
        let bit = 1 << (number % 64);
        let word = &mut self.expiring[number as usize / 64];
        match (*word & bit != 0, expiring) {
            (false, true) => self.expiring_count += 1,
            (true, false) => self.expiring_count -= 1,
            _ => return,
        }
        *word ^= bit;
    }

    /// The objects in use that the free map at `map` says are freed, with the
    /// generation.
    pub(crate) fn freed_in<'a>(&'a self, map: &'a [u8]) -> impl Iterator<Item = (u32, u8)> + 'a {
        const IN_USE: u8 = (Tag::InUse as u8) << TAG_SHIFT;
        let strides = self.states.chunks(STRIDE).zip(map.chunks(STRIDE)).enumerate();
        strides.flat_map(|(stride, (states, map))| {
            // Most strides have none: one look at all of it, without a branch.
            let hit = |(&state, &byte): (&u8, &u8)| state == byte | IN_USE;
            let any = states.iter().zip(map).fold(false, |any, pair| any | hit(pair));
            let some = if any { states.len() } else { 0 };
            states[..some]
                .iter()
                .zip(map)
                .enumerate()
                .filter(move |&(_, pair)| hit(pair))
                .map(move |(at, (_, &generation))| ((stride * STRIDE + at) as u32, generation))
        })
    }

    /// The objects in use that may end, from `number` on.
    pub(crate) fn expiring_from(&self, number: u32) -> impl Iterator<Item = u32> + '_ {
        let none = self.expiring_count == 0;
        let first = if none { self.expiring.len() } else { number as usize / 64 };
        self.expiring.iter().enumerate().skip(first).flat_map(move |(word, &bits)| {
            let mut bits = if word == first { bits & (u64::MAX << (number % 64)) } else { bits };
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros())?;
                bits &= bits - 1;
                Some(word as u32 * 64 + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fusee_layout::Class;

    fn block() -> Block {
        Block::fresh(Address::new(1 << 20), BlockLayout::new(8192, Class::SMALLEST).unwrap())
    }

    #[test]
    fn an_object_goes_from_free_to_use_to_grace_to_free_with_a_new_generation() {
        let mut block = block();
        let number = block.first_free().unwrap();
        block.take(number);
        assert_eq!(block.begin_use(number), 1);
        assert!(!block.enter_grace(number, 2), "another generation is not meant");
        assert!(block.enter_grace(number, 1));
        assert!(!block.enter_grace(number, 1), "freed once");
        block.leave_grace(number);
        assert!(block.is_empty());
        block.take(number);
        assert_eq!(block.begin_use(number), 2);
    }

    #[test]
    fn generations_go_round_without_zero() {
        let mut block = block();
        for use_number in 0..200u32 {
            block.take(0);
            let generation = block.begin_use(0);
            assert_eq!(u32::from(generation), use_number % 63 + 1);
            assert!(block.enter_grace(0, generation));
            block.leave_grace(0);
        }
    }

    #[test]
    fn what_others_freed_is_found_in_the_free_map() {
        let mut block = block();
        for number in 0..100 {
            block.take(number);
            block.begin_use(number);
        }
        assert!(block.enter_grace(7, 1));
        let mut map = vec![0; block.layout.free_map_bytes as usize];
        for number in [3, 7, 64, 99, 100] {
            map[number] = 1;
        }
        map[50] = 2;
        assert_eq!(block.freed_in(&map).collect::<Vec<_>>(), [(3, 1), (64, 1), (99, 1)]);
    }

    #[test]
    fn an_adopted_block_knows_what_is_in_use() {
        let fresh = block();
        let objects = fresh.layout.objects as usize;
        let mut generations = vec![0; objects];
        let mut free_map = vec![0; objects];
        (generations[0], free_map[0]) = (5, 5);
        (generations[1], free_map[1]) = (5, 4);
        (generations[2], free_map[2]) = (1, 0);
        let mut block = Block::adopted(fresh.address, fresh.layout, &generations, &free_map);
        assert_eq!(block.tag(0), Tag::Grace, "somebody may hold its address");
        assert_eq!(block.tag(1), Tag::InUse);
        assert_eq!(block.tag(2), Tag::InUse);
        assert_eq!(block.free_count() as usize, objects - 3);
        assert_eq!(block.room(), Room::Unused);
        block.leave_grace(0);
        assert_eq!(block.expiring_from(0).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(block.expiring_from(2).collect::<Vec<_>>(), [2]);
        block.take(0);
        assert_eq!(block.begin_use(0), 6, "generations go on");
    }
}
