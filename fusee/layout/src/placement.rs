//! Where each region's copies are: consistent hashing with bounded loads.
//!
//! A region is hashed to a position on a ring of node points; its r copies lie
//! on the next r different nodes (paper, section 4.4), passing over a node that
//! already has its even share, so that no node fills up before the others. The
//! first copy is the primary.

use crate::{Address, NodeAddress, REPLICAS_MAX};

/// One copy of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Replica {
    /// The memory node that keeps it.
    pub node: u16,
    /// Where it starts in the node's memory.
    pub base: u64,
}

/// Points per node on the ring; enough that neighbours differ.
const POINTS: u64 = 64;

/// The places of all regions of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    region_shift: u32,
    replicas: usize,
    regions: Vec<[Replica; REPLICAS_MAX]>,
}

impl Placement {
    /// Places as many regions as fit on `nodes` nodes that have room for
    /// `regions_per_node` copies each, the first at `base`.
    pub fn new(
        nodes: u16,
        replicas: u8,
        region_bytes: u64,
        base: u64,
        regions_per_node: u64,
    ) -> Self {
        assert!(
            replicas >= 1 && usize::from(replicas) <= REPLICAS_MAX && u16::from(replicas) <= nodes
        );
        assert!(region_bytes.is_power_of_two());
        let replicas = usize::from(replicas);
        let mut ring: Vec<(u64, u16)> = (0..nodes)
            .flat_map(|node| {
                (0..POINTS).map(move |p| (mix(u64::from(node) << 32 | p << 16 | 1), node))
            })
            .collect();
        ring.sort_unstable();
        let mut load = vec![0u64; usize::from(nodes)];
        let mut regions = Vec::new();
        loop {
            let number = regions.len() as u64;
            // The even share of a node once this region is placed too.
            let share = ((number + 1) * replicas as u64).div_ceil(u64::from(nodes));
            let bound = share.min(regions_per_node);
            let from = ring.partition_point(|&(point, _)| point < mix(number << 1));
            let mut places = [Replica::default(); REPLICAS_MAX];
            let mut found: usize = 0;
            // A second lap takes nodes beyond their share where the first left too few.
            for bound in [bound, regions_per_node] {
                for at in 0..ring.len() {
                    if found == replicas {
                        break;
                    }
                    let node = ring[(from + at) % ring.len()].1;
                    let used = load[usize::from(node)];
                    if used < bound && places[..found].iter().all(|r| r.node != node) {
                        places[found] = Replica { node, base: base + used * region_bytes };
                        found += 1;
                    }
                }
            }
            if found < replicas {
                return Self { region_shift: region_bytes.trailing_zeros(), replicas, regions };
            }
            for place in &places[..replicas] {
                load[usize::from(place.node)] += 1;
            }
            regions.push(places);
        }
    }

    /// How many regions there are.
    pub fn regions(&self) -> u32 {
        self.regions.len() as u32
    }

    /// How many copies each has.
    pub fn replicas(&self) -> usize {
        self.replicas
    }

    /// The copies of a region, primary first.
    pub fn region(&self, region: u32) -> &[Replica] {
        &self.regions[region as usize][..self.replicas]
    }

    /// Is the address within a region?
    pub fn contains(&self, address: Address) -> bool {
        (address.get() >> self.region_shift) < self.regions.len() as u64
    }

    /// Where copy `replica` of an address is; 0 is the primary.
    #[inline]
    pub fn locate(&self, address: Address, replica: usize) -> NodeAddress {
        debug_assert!(replica < self.replicas);
        let place = self.regions[(address.get() >> self.region_shift) as usize][replica];
        let offset = address.get() & ((1 << self.region_shift) - 1);
        NodeAddress { node: place.node, offset: place.base + offset }
    }

    /// Where all copies of an address are, primary first.
    #[inline]
    pub fn locate_all(
        &self,
        address: Address,
    ) -> impl ExactSizeIterator<Item = NodeAddress> + use<> {
        let places = self.regions[(address.get() >> self.region_shift) as usize];
        let offset = address.get() & ((1 << self.region_shift) - 1);
        (0..self.replicas)
            .map(move |r| NodeAddress { node: places[r].node, offset: places[r].base + offset })
    }
}

/// SplitMix64's finalizer: a fixed bijection, since all clients must agree.
const fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn copies_are_on_different_nodes_and_no_place_is_used_twice(
            nodes in 1..8u16, replicas in 1..=4u8, per_node in 0..20u64,
        ) {
            prop_assume!(u16::from(replicas) <= nodes);
            let placement = Placement::new(nodes, replicas, 1 << 16, 4096, per_node);
            let mut used = HashSet::new();
            for region in 0..placement.regions() {
                let copies = placement.region(region);
                let on: HashSet<u16> = copies.iter().map(|r| r.node).collect();
                prop_assert_eq!(on.len(), usize::from(replicas));
                for copy in copies {
                    prop_assert!(copy.base < 4096 + per_node * (1 << 16));
                    prop_assert!(used.insert((copy.node, copy.base)));
                }
            }
            let most = u64::from(nodes) * per_node / u64::from(replicas);
            prop_assert!(u64::from(placement.regions()) + u64::from(replicas) > most, "nothing is wasted");
        }

        #[test]
        fn an_address_is_at_the_same_offset_in_every_copy(offset in 0..1u64 << 16, region in 0..8u64) {
            let placement = Placement::new(3, 2, 1 << 16, 4096, 8);
            let address = Address::new(region << 16 | offset);
            let all: Vec<_> = placement.locate_all(address).collect();
            for (replica, at) in all.iter().enumerate() {
                prop_assert_eq!(placement.locate(address, replica), *at);
                let copy = placement.region(region as u32)[replica];
                prop_assert_eq!(*at, NodeAddress { node: copy.node, offset: copy.base + offset });
            }
        }
    }
}
