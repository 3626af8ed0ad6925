//! Addresses: of the pool as a whole, and of one memory node's memory.

use std::fmt;

/// An address in the pool's memory: 48 bits, region number above offset.
///
/// Each region is kept by r memory nodes; [`crate::Placement`] turns an address into
/// the places where its copies are. 0 is in the index and never an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Address(u64);

impl Address {
    /// How many bits an address has.
    pub const BITS: u32 = 48;

    /// From a number below 2^48.
    pub const fn new(value: u64) -> Self {
        assert!(value >> Self::BITS == 0, "an address has 48 bits");
        Self(value)
    }

    /// As a number below 2^48.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The address `bytes` further on.
    pub const fn plus(self, bytes: u64) -> Self {
        Self::new(self.0 + bytes)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#014x}", self.0)
    }
}

/// A place in one memory node's memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeAddress {
    /// The node's number in the pool.
    pub node: u16,
    /// Bytes from the start of what the node gives to the pool.
    pub offset: u64,
}

impl NodeAddress {
    /// The place `bytes` further on, on the same node.
    pub const fn plus(self, bytes: u64) -> Self {
        Self { node: self.node, offset: self.offset + bytes }
    }
}
