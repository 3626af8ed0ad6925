//! From "so much memory on so many nodes" to the parameters of a pool.

use crate::{GROUP_BYTES, Geometry, GeometryError, KeyHash, POOL_VERSION, PoolParams};
use thiserror::Error;

/// What somebody who creates a pool knows, and what she may decide instead of us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizing {
    /// Memory of all nodes together, copies included.
    pub total_bytes: u64,
    /// How many memory nodes it is on.
    pub nodes: u16,
    /// How many copies of index and data.
    pub replicas: u8,
    /// Seed of the key hash, at random so that nobody can choose keys that collide.
    pub hash_seed: u64,
    /// Size of a region.
    pub region_bytes: Option<u64>,
    /// Size of a block.
    pub block_bytes: Option<u64>,
    /// Entries of the client table: one more than clients at a time.
    pub clients_max: Option<u32>,
}

/// Why memory cannot be made a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SizingError {
    /// Too little of it.
    #[error(
        "{total_bytes} bytes are too few for a pool on {nodes} memory nodes with {replicas} copies: \
         give it {least_bytes} or more"
    )]
    TooSmall {
        /// What there is.
        total_bytes: u64,
        /// On so many nodes.
        nodes: u16,
        /// In so many copies.
        replicas: u8,
        /// What would do.
        least_bytes: u64,
    },
    /// No amount of memory would do.
    #[error(transparent)]
    Impossible(#[from] GeometryError),
}

/// Most memory is lost to what does not fill a region, and to the block that
/// each region's table costs. Large regions have less of the latter and keep
/// the table of regions small.
const REGION_BYTES_MAX: u64 = 64 << 20;
const REGION_BYTES_MIN: u64 = 256 << 10;
/// Fewer regions, and the index could not come near its share.
const REGIONS_MIN: u64 = 30;
/// Fewer to a node, and what does not fill a region is too much of it.
const REGIONS_PER_NODE_MIN: u64 = 8;
/// The block table costs one of so many; large pools do with half of that.
const BLOCKS_PER_REGION: u64 = 32;
/// A worker has a block for each class that it uses, so blocks are many rather
/// than large. 1 MiB holds four objects of a quarter of that.
const BLOCK_BYTES_MAX: u64 = 1 << 20;
const BLOCK_BYTES_MIN: u64 = 16 << 10;
/// A worker is a client; its entry is read by every other one each millisecond.
const CLIENTS_MAX: u32 = 64;
/// One part of the memory is index, so that slots and 64-byte objects run out
/// together: of 64 parts, 8 hold 7 slots to 64 bytes, that is 0.87 slots for
/// each of 64 bytes, and 56 hold 0.95 objects (free map, block table), which
/// fills the slots to nine parts in ten.
const INDEX_SHARE: u64 = 8;
/// Subtables are a power of two and index regions are not: of so many to a
/// region, at most one place is lost.
const SUBTABLES_PER_REGION: u64 = 32;

impl Sizing {
    /// The parameters of the pool.
    ///
    /// # Errors
    ///
    /// If no pool can be like that.
    pub fn params(&self) -> Result<PoolParams, SizingError> {
        let Self { nodes, replicas, total_bytes, .. } = *self;
        PoolParams::check_replicas(nodes, replicas)?;
        self.fit().ok_or_else(|| SizingError::TooSmall {
            total_bytes,
            nodes,
            replicas,
            least_bytes: self.least_bytes(),
        })
    }

    fn fit(&self) -> Option<PoolParams> {
        if let Some(region_bytes) = self.region_bytes {
            // Any number of regions: whether it makes a pool, Geometry says.
            return self.with_regions(region_bytes, 1, 2);
        }
        let mut region_bytes = REGION_BYTES_MAX;
        while region_bytes >= REGION_BYTES_MIN {
            let fit = self.with_regions(region_bytes, REGIONS_PER_NODE_MIN, REGIONS_MIN);
            if fit.is_some() {
                return fit;
            }
            region_bytes /= 2;
        }
        None
    }

    /// The parameters with regions of this size, if there are enough of them.
    fn with_regions(&self, region_bytes: u64, per_node_min: u64, least: u64) -> Option<PoolParams> {
        let node_bytes = self.total_bytes / u64::from(self.nodes);
        let regions = |per_node: u64| per_node * u64::from(self.nodes) / u64::from(self.replicas);
        let index_regions = |per_node: u64| {
            (regions(per_node) + INDEX_SHARE / 2).checked_div(INDEX_SHARE).unwrap_or(0).max(1)
        };
        let most = node_bytes.checked_div(region_bytes)?;
        let subtables = (SUBTABLES_PER_REGION * index_regions(most)).next_power_of_two();
        let mut params = PoolParams {
            version: POOL_VERSION,
            nodes: self.nodes,
            replicas: self.replicas,
            node_bytes,
            region_bytes,
            block_bytes: self.block_bytes.unwrap_or_else(|| {
                (region_bytes / BLOCKS_PER_REGION).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX)
            }),
            clients_max: self.clients_max.unwrap_or(CLIENTS_MAX),
            index_regions: 0,
            subtables: subtables.min(1 << KeyHash::DEPTH_MAX) as u32,
            groups: 0,
            hash_seed: self.hash_seed,
        };
        let meta = Geometry::meta_bytes(&params);
        let per_node = node_bytes.saturating_sub(meta) / region_bytes;
        if per_node < per_node_min || regions(per_node) < least {
            return None;
        }
        // What would not fill a region is not asked of the system at all.
        params.node_bytes = meta + per_node * region_bytes;
        params.index_regions = index_regions(per_node) as u32;
        let per_region = u64::from(params.subtables.div_ceil(params.index_regions));
        let groups = region_bytes / (per_region * GROUP_BYTES as u64);
        params.groups = groups.min(KeyHash::GROUPS_MAX.into()) as u32;
        Some(params)
    }

    /// The smallest total of which a pool can be made.
    fn least_bytes(&self) -> u64 {
        let step = u64::from(self.nodes) * 4096;
        let fits = |steps: u64| Self { total_bytes: steps * step, ..*self }.fit().is_some();
        let mut enough = 1;
        while !fits(enough) && enough < 1 << 48 {
            enough *= 2;
        }
        let (mut few, mut enough) = (enough / 2, enough);
        while enough - few > 1 {
            let middle = few.midpoint(enough);
            if fits(middle) {
                enough = middle;
            } else {
                few = middle;
            }
        }
        enough * step
    }
}

impl PoolParams {
    /// The parameters for so much memory, by our own choice of everything else.
    ///
    /// # Errors
    ///
    /// If it is too little.
    pub fn for_memory(
        total_bytes: u64,
        nodes: u16,
        replicas: u8,
        hash_seed: u64,
    ) -> Result<Self, SizingError> {
        let (region_bytes, block_bytes, clients_max) = (None, None, None);
        Sizing { total_bytes, nodes, replicas, hash_seed, region_bytes, block_bytes, clients_max }
            .params()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn least(nodes: u16, replicas: u8) -> u64 {
        match PoolParams::for_memory(0, nodes, replicas, 1) {
            Err(SizingError::TooSmall { least_bytes, .. }) => least_bytes,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_hint_is_the_smallest_pool() {
        for nodes in 1..=8 {
            for replicas in 1..=nodes.min(4) as u8 {
                let least = least(nodes, replicas);
                assert!(PoolParams::for_memory(least, nodes, replicas, 1).is_ok());
                let fewer = least - 4096 * u64::from(nodes);
                let refused = PoolParams::for_memory(fewer, nodes, replicas, 1);
                assert!(
                    matches!(refused, Err(SizingError::TooSmall { least_bytes, .. }) if least_bytes == least)
                );
            }
        }
        assert!(least(1, 1) <= 8 << 20);
        let error = PoolParams::for_memory(1000, 1, 1, 1).unwrap_err().to_string();
        assert!(error.contains(&least(1, 1).to_string()), "{error}");
    }

    #[test]
    fn copies_without_nodes_are_impossible() {
        let refused = PoolParams::for_memory(1 << 30, 2, 3, 1);
        assert!(matches!(refused, Err(SizingError::Impossible(GeometryError::Replicas { .. }))));
        assert!(PoolParams::for_memory(1 << 30, 0, 0, 1).is_err());
    }

    #[test]
    fn small_pools_have_many_blocks_and_large_ones_large_regions() {
        let of = |bytes| Geometry::new(PoolParams::for_memory(bytes, 1, 1, 1).unwrap()).unwrap();
        let small = of(64 << 20);
        let blocks = small.data_regions().len() as u32 * small.blocks_per_region();
        assert!(blocks > 500, "{blocks}");
        assert_eq!(small.params.block_bytes, 64 << 10);
        assert_eq!(of(1 << 30).params.block_bytes, 1 << 20);
        assert_eq!(of(4 << 30).params.region_bytes, 64 << 20);
    }

    #[test]
    fn what_the_creator_decides_is_kept() {
        let sizing = Sizing {
            total_bytes: 1 << 30,
            nodes: 2,
            replicas: 2,
            hash_seed: 9,
            region_bytes: Some(16 << 20),
            block_bytes: Some(256 << 10),
            clients_max: Some(1000),
        };
        let params = sizing.params().unwrap();
        assert_eq!(params.region_bytes, 16 << 20);
        assert_eq!(params.block_bytes, 256 << 10);
        assert_eq!(params.clients_max, 1000);
        assert!(Geometry::new(params).is_ok());
        let refused = Sizing { region_bytes: Some(0), ..sizing }.params();
        assert!(refused.is_err());
    }

    proptest! {
        #[test]
        fn any_memory_makes_a_pool_of_which_an_eighth_is_index(
            nodes in 1..=8u16, replicas in 1..=4u8, scale in 0.0..1.0f64, seed: u64,
        ) {
            prop_assume!(u16::from(replicas) <= nodes);
            let least = least(nodes, replicas) as f64;
            let total = (least * ((1u64 << 40) as f64 / least).powf(scale)).ceil() as u64;
            let params = PoolParams::for_memory(total, nodes, replicas, seed).unwrap();
            let used = params.node_bytes * u64::from(nodes);
            prop_assert!(used <= total && used as f64 > total as f64 * 0.85, "{used} of {total}");
            let geometry = Geometry::new(params).unwrap();
            let index = geometry.subtable_bytes() * u64::from(params.subtables) * u64::from(replicas);
            let share = index as f64 / used as f64;
            prop_assert!((0.10..=0.15).contains(&share), "{share}: {params:?}");
            let blocks = geometry.data_regions().len() as u32 * geometry.blocks_per_region();
            prop_assert!(blocks > 300, "{blocks}");
        }
    }
}
