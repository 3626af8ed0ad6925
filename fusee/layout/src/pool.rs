//! The pool's parameters, fixed when it is created, and what follows from them.
//!
//! ```text
//! memory node:  | superblock | client table | directory | region | region | ...
//!               0            4096                       meta, a multiple of 4096
//! superblock:   | magic | parameters, 64 bytes | CRC-32C |
//! ```

use crate::{
    Address, BlockEntry, BlockLayout, CHUNK_KEY_BYTES, CLASSES_MAX, Class, GROUP_BYTES, KeyHash,
    MEMBER_BYTES, OBJECT_OVERHEAD_BYTES, Placement,
};
use crc_fast::crc32_iscsi;
use thiserror::Error;

/// Version of everything in this crate: raised by whoever changes a format.
pub const POOL_VERSION: u32 = 4;
/// Most copies of index and data.
pub const REPLICAS_MAX: usize = 4;
/// Bytes before the client table.
pub const SUPERBLOCK_BYTES: usize = 4096;

const MAGIC: u64 = u64::from_le_bytes(*b"FUSEEmem");
const PARAMS_BYTES: usize = 64;
/// Fewer objects than this to a block, and the block is more waste than use.
const OBJECTS_PER_BLOCK_MIN: u32 = 4;

/// What is fixed when a pool is created. A client that disagrees is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolParams {
    /// [`POOL_VERSION`].
    pub version: u32,
    /// How many memory nodes there are.
    pub nodes: u16,
    /// How many copies of index and data, 1 to [`REPLICAS_MAX`].
    pub replicas: u8,
    /// Memory of each node in bytes.
    pub node_bytes: u64,
    /// Size of a region, a power of two.
    pub region_bytes: u64,
    /// Size of a block, a power of two below the region's.
    pub block_bytes: u64,
    /// Entries of the client table: one more than clients at a time.
    pub clients_max: u32,
    /// Regions that hold the index: the first ones.
    pub index_regions: u32,
    /// Subtables, a power of two.
    pub subtables: u32,
    /// Bucket groups of a subtable.
    pub groups: u32,
    /// Seed of the key hash.
    pub hash_seed: u64,
}

impl PoolParams {
    pub(crate) fn check_replicas(nodes: u16, replicas: u8) -> Result<(), GeometryError> {
        if replicas == 0 || usize::from(replicas) > REPLICAS_MAX || u16::from(replicas) > nodes {
            return Err(GeometryError::Replicas { replicas, nodes });
        }
        Ok(())
    }

    fn write(&self, bytes: &mut [u8]) {
        let words = [
            u64::from(self.version) | u64::from(self.nodes) << 32 | u64::from(self.replicas) << 48,
            self.node_bytes,
            self.region_bytes,
            self.block_bytes,
            u64::from(self.clients_max) | u64::from(self.index_regions) << 32,
            u64::from(self.subtables) | u64::from(self.groups) << 32,
            self.hash_seed,
            0,
        ];
        for (to, word) in bytes[..PARAMS_BYTES].chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
    }

    fn parse(bytes: &[u8]) -> Self {
        let word = |number: usize| crate::word(bytes, number * 8);
        Self {
            version: word(0) as u32,
            nodes: (word(0) >> 32) as u16,
            replicas: (word(0) >> 48) as u8,
            node_bytes: word(1),
            region_bytes: word(2),
            block_bytes: word(3),
            clients_max: word(4) as u32,
            index_regions: (word(4) >> 32) as u32,
            subtables: word(5) as u32,
            groups: (word(5) >> 32) as u32,
            hash_seed: word(6),
        }
    }
}

/// The first bytes of each memory node: what pool it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// The pool's parameters.
    pub params: PoolParams,
}

/// Why a memory node's first bytes are not those of a pool that we can use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SuperblockError {
    /// No superblock was ever written.
    #[error("the memory holds no pool: create one")]
    NotAPool,
    /// Another version of this software made it.
    #[error("the pool has layout version {found}, this program reads version {POOL_VERSION}")]
    OtherVersion {
        /// Its version.
        found: u32,
    },
    /// The bytes contradict their checksum.
    #[error("the superblock is damaged: create the pool anew")]
    Damaged,
}

impl Superblock {
    /// Bytes that are in use.
    pub const BYTES: usize = 8 + PARAMS_BYTES + 8;

    /// Packs it.
    pub fn write(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        self.params.write(&mut bytes[8..]);
        let sum = u64::from(crc32_iscsi(&bytes[..8 + PARAMS_BYTES]));
        bytes[8 + PARAMS_BYTES..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Parses it.
    ///
    /// # Errors
    ///
    /// If the bytes are not a superblock of this version.
    pub fn parse(bytes: &[u8; Self::BYTES]) -> Result<Self, SuperblockError> {
        if crate::word(bytes, 0) != MAGIC {
            return Err(SuperblockError::NotAPool);
        }
        let params = PoolParams::parse(&bytes[8..]);
        if params.version != POOL_VERSION {
            return Err(SuperblockError::OtherVersion { found: params.version });
        }
        let sum = u64::from(crc32_iscsi(&bytes[..8 + PARAMS_BYTES]));
        if crate::word(bytes, 8 + PARAMS_BYTES) != sum {
            return Err(SuperblockError::Damaged);
        }
        Ok(Self { params })
    }
}

/// Why no pool can have such parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum GeometryError {
    /// There are not so many nodes, or no replica at all.
    #[error(
        "{replicas} replicas need as many memory nodes, and 1 to {REPLICAS_MAX} are possible; there are {nodes}"
    )]
    Replicas {
        /// Asked for.
        replicas: u8,
        /// There are.
        nodes: u16,
    },
    /// A size is no power of two, or out of its range.
    #[error("{what} must be a power of two within its range, not {value}")]
    Size {
        /// Which.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// The index and one block do not fit.
    #[error(
        "the memory is too small: {regions} regions of {region_bytes} bytes fit, and the index alone needs {index_regions}"
    )]
    TooSmall {
        /// Regions that fit.
        regions: u32,
        /// Bytes of each.
        region_bytes: u64,
        /// Regions of the index.
        index_regions: u32,
    },
}

/// Everything that follows from a pool's parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// The parameters.
    pub params: PoolParams,
    /// Where the regions are.
    pub placement: Placement,
    /// The largest class of which a block holds enough objects.
    pub class_max: Class,
    /// The class of the chunks of large values: the one that wastes least.
    pub chunk_class: Class,
    blocks_per_region: u32,
    block_table_bytes: u64,
    layouts: Vec<Option<BlockLayout>>,
}

impl Geometry {
    /// What follows from `params`.
    ///
    /// # Errors
    ///
    /// If no pool can be like that.
    pub fn new(params: PoolParams) -> Result<Self, GeometryError> {
        let PoolParams { nodes, replicas, region_bytes, block_bytes, subtables, groups, .. } =
            params;
        PoolParams::check_replicas(nodes, replicas)?;
        for (what, value, least, most) in [
            ("region size", region_bytes, 4096, 1 << 40),
            ("block size", block_bytes, 1024, region_bytes / 2),
            ("number of subtables", subtables.into(), 1, 1 << KeyHash::DEPTH_MAX),
        ] {
            if !value.is_power_of_two() || value < least || value > most {
                return Err(GeometryError::Size { what, value });
            }
        }
        if !(2..=KeyHash::GROUPS_MAX).contains(&groups) {
            return Err(GeometryError::Size { what: "groups of a subtable", value: groups.into() });
        }
        let meta = Self::meta_bytes(&params);
        let regions_per_node = params.node_bytes.saturating_sub(meta) / region_bytes;
        let placement = Placement::new(nodes, replicas, region_bytes, meta, regions_per_node);
        let per_region = u64::from(subtables.div_ceil(params.index_regions.max(1)));
        let index_fits = params.index_regions > 0
            && per_region * (u64::from(groups) * GROUP_BYTES as u64) <= region_bytes;
        if !index_fits || placement.regions() <= params.index_regions {
            return Err(GeometryError::TooSmall {
                regions: placement.regions(),
                region_bytes,
                index_regions: params.index_regions,
            });
        }
        let (blocks_per_region, block_table_bytes) = divide_region(region_bytes, block_bytes);
        let layouts: Vec<Option<BlockLayout>> = (0..CLASSES_MAX as u8)
            .map(|class| BlockLayout::new(block_bytes, Class::new(class)))
            .collect();
        let usable: Vec<BlockLayout> = layouts
            .iter()
            .flatten()
            .filter(|l| l.objects >= OBJECTS_PER_BLOCK_MIN)
            .copied()
            .collect();
        let class_max = usable.last().map_or(Class::SMALLEST, |l| l.class);
        let used = |l: &BlockLayout| u64::from(l.objects) * l.class.bytes() as u64;
        // Of the larger half of the classes, so that chunks stay few.
        let chunk_class = usable[usable.len() / 2..]
            .iter()
            .max_by_key(|l| (used(l) * 50 / block_bytes, l.class))
            .map_or(class_max, |l| l.class);
        Ok(Self {
            params,
            placement,
            class_max,
            chunk_class,
            blocks_per_region,
            block_table_bytes,
            layouts,
        })
    }

    /// Bytes of a node before its first region.
    pub fn meta_bytes(params: &PoolParams) -> u64 {
        let bytes = Self::directory_at(params) + u64::from(params.subtables) * 8;
        bytes.next_multiple_of(4096)
    }

    /// Where a node counts the entries of its client table that were ever given
    /// out, entry 0 included: 8 bytes. Entries beyond are unused, and so are all
    /// while it is 0.
    pub const MEMBERS_AT: u64 = SUPERBLOCK_BYTES as u64 / 2;

    /// Where a node counts the clients that were expelled and whose memory nobody
    /// recovers yet: 8 bytes.
    pub const EXPELLED_AT: u64 = Self::MEMBERS_AT + 8;

    /// Where a node's copy of the client table has the entry of this index.
    pub fn member_at(index: u32) -> u64 {
        SUPERBLOCK_BYTES as u64 + u64::from(index) * MEMBER_BYTES as u64
    }

    /// Where a node's copy of the directory starts: 8 bytes per subtable. An
    /// entry of 0 stands for the subtable of its own number.
    pub fn directory_at(params: &PoolParams) -> u64 {
        Self::member_at(params.clients_max)
    }

    /// Bits of the key hash that choose a subtable.
    pub fn depth(&self) -> u8 {
        self.params.subtables.trailing_zeros() as u8
    }

    /// Where a subtable starts.
    pub fn subtable(&self, number: u32) -> Address {
        let region = u64::from(number % self.params.index_regions);
        let position = u64::from(number / self.params.index_regions);
        Address::new(region * self.params.region_bytes + position * self.subtable_bytes())
    }

    /// Bytes of a subtable.
    pub fn subtable_bytes(&self) -> u64 {
        u64::from(self.params.groups) * GROUP_BYTES as u64
    }

    /// The regions that hold blocks.
    pub fn data_regions(&self) -> std::ops::Range<u32> {
        self.params.index_regions..self.placement.regions()
    }

    /// Blocks of a region.
    pub fn blocks_per_region(&self) -> u32 {
        self.blocks_per_region
    }

    /// Where a region's block table has the entry of a block.
    pub fn block_entry(&self, region: u32, block: u32) -> Address {
        assert!(block < self.blocks_per_region);
        let at = u64::from(block) * BlockEntry::BYTES as u64;
        Address::new(u64::from(region) * self.params.region_bytes + at)
    }

    /// Is there an entry of a block table?
    pub fn is_block_entry(&self, at: Address) -> bool {
        let region = at.get() >> self.params.region_bytes.trailing_zeros();
        let offset = at.get() & (self.params.region_bytes - 1);
        u32::try_from(region).is_ok_and(|region| self.data_regions().contains(&region))
            && offset.is_multiple_of(BlockEntry::BYTES as u64)
            && offset / (BlockEntry::BYTES as u64) < u64::from(self.blocks_per_region)
    }

    /// Where a block starts.
    pub fn block(&self, region: u32, block: u32) -> Address {
        assert!(block < self.blocks_per_region);
        let at = self.block_table_bytes + u64::from(block) * self.params.block_bytes;
        Address::new(u64::from(region) * self.params.region_bytes + at)
    }

    /// The region, number and start of the block that an address lies in;
    /// `None` if it lies in none.
    pub fn block_of(&self, address: Address) -> Option<(u32, u32, Address)> {
        // Both sizes are powers of two, and this is on the way of every free.
        let region =
            u32::try_from(address.get() >> self.params.region_bytes.trailing_zeros()).ok()?;
        if !self.data_regions().contains(&region) {
            return None;
        }
        let offset = address.get() & (self.params.region_bytes - 1);
        let block =
            offset.checked_sub(self.block_table_bytes)? >> self.params.block_bytes.trailing_zeros();
        let block = u32::try_from(block).ok().filter(|&b| b < self.blocks_per_region)?;
        Some((region, block, self.block(region, block)))
    }

    /// How a block of a class is divided; `None` beyond [`Self::class_max`].
    pub fn layout(&self, class: Class) -> Option<&BlockLayout> {
        if class > self.class_max { None } else { self.layouts[class.index()].as_ref() }
    }

    /// The class for an object of so many bytes, if one object can hold it.
    pub fn class_for(&self, bytes: usize) -> Option<Class> {
        Class::for_bytes(bytes).filter(|&class| class <= self.class_max)
    }

    /// Bytes of a value that one chunk carries.
    pub fn chunk_value_bytes(&self) -> usize {
        (self.chunk_class.bytes() - OBJECT_OVERHEAD_BYTES - CHUNK_KEY_BYTES) & !7
    }
}

/// Blocks of a region and bytes of the table before them.
fn divide_region(region_bytes: u64, block_bytes: u64) -> (u32, u64) {
    let mut blocks = region_bytes / block_bytes;
    loop {
        let table = (blocks * BlockEntry::BYTES as u64).next_multiple_of(64);
        if table + blocks * block_bytes <= region_bytes {
            return (blocks as u32, table);
        }
        blocks -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn params() -> PoolParams {
        PoolParams {
            version: POOL_VERSION,
            nodes: 3,
            replicas: 2,
            node_bytes: 64 << 20,
            region_bytes: 4 << 20,
            block_bytes: 64 << 10,
            clients_max: 16,
            index_regions: 3,
            subtables: 16,
            groups: 1000,
            hash_seed: 9,
        }
    }

    #[test]
    fn a_superblock_comes_back_and_a_damaged_one_is_refused() {
        let block = Superblock { params: params() };
        let bytes = block.write();
        assert_eq!(Superblock::parse(&bytes), Ok(block));
        for at in 0..Superblock::BYTES {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert!(Superblock::parse(&damaged).is_err(), "byte {at}");
        }
        assert_eq!(Superblock::parse(&[0; Superblock::BYTES]), Err(SuperblockError::NotAPool));
        let other = Superblock { params: PoolParams { version: 99, ..params() } };
        let error = Superblock::parse(&other.write());
        assert_eq!(error, Err(SuperblockError::OtherVersion { found: 99 }));
    }

    #[test]
    fn blocks_and_subtables_do_not_overlap_and_are_found_again() {
        let geometry = Geometry::new(params()).unwrap();
        let mut spans = Vec::new();
        for number in 0..16 {
            let at = geometry.subtable(number).get();
            spans.push((at, at + geometry.subtable_bytes()));
        }
        for region in geometry.data_regions() {
            let table = geometry.block_entry(region, 0).get();
            spans.push((table, table + u64::from(geometry.blocks_per_region()) * 8));
            for block in 0..geometry.blocks_per_region() {
                let at = geometry.block(region, block);
                spans.push((at.get(), at.get() + geometry.params.block_bytes));
                let inside = at.plus(geometry.params.block_bytes - 64);
                assert_eq!(geometry.block_of(inside), Some((region, block, at)));
            }
        }
        spans.sort_unstable();
        assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        assert_eq!(geometry.block_of(Address::new(64)), None, "the index holds no blocks");
        assert!(geometry.chunk_class <= geometry.class_max);
    }

    #[test]
    fn impossible_pools_are_refused() {
        let refused = |change: fn(&mut PoolParams)| {
            let mut p = params();
            change(&mut p);
            Geometry::new(p).unwrap_err()
        };
        assert!(matches!(refused(|p| p.replicas = 0), GeometryError::Replicas { .. }));
        assert!(matches!(refused(|p| p.replicas = 4), GeometryError::Replicas { .. }));
        assert!(matches!(refused(|p| p.region_bytes = 5 << 20), GeometryError::Size { .. }));
        assert!(matches!(refused(|p| p.block_bytes = 4 << 20), GeometryError::Size { .. }));
        assert!(matches!(refused(|p| p.subtables = 3), GeometryError::Size { .. }));
        assert!(matches!(refused(|p| p.groups = 1), GeometryError::Size { .. }));
        assert!(matches!(refused(|p| p.node_bytes = 1 << 20), GeometryError::TooSmall { .. }));
        assert!(matches!(refused(|p| p.groups = 100_000), GeometryError::TooSmall { .. }));
    }

    proptest! {
        #[test]
        fn an_address_is_in_a_block_or_in_none_without_a_panic(address in 0..1u64 << 48) {
            let geometry = Geometry::new(params()).unwrap();
            if let Some((region, block, at)) = geometry.block_of(Address::new(address)) {
                prop_assert_eq!(geometry.block(region, block), at);
                prop_assert!(at.get() <= address && address < at.get() + geometry.params.block_bytes);
            }
        }
    }
}
