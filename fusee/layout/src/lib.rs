//! What lies in the memory of the pool, as bytes: every word, record and table
//! that leaves a process, each with one packer and one parser.
//!
//! All integers are little-endian. See "Memory" in ARCHITECTURE.md for the
//! whole picture.
#![forbid(unsafe_code)]

mod address;
mod block;
mod bucket;
mod class;
mod hash;
mod log;
mod member;
pub mod message;
mod object;
mod placement;
mod pool;
mod sizing;
mod slot;

pub use address::{Address, NodeAddress};
pub use block::{BlockEntry, BlockLayout, BlockState, FREE_MAP_NONE, Room};
pub use bucket::{
    BUCKET_BYTES, BucketHeader, COMBINED_BYTES, COMBINED_SLOTS, GROUP_BYTES, SLOTS_PER_BUCKET,
    combined_slots, slot_offset,
};
pub use class::{CLASSES_MAX, Class};
pub use hash::{KeyHash, KeyHasher};
pub use log::{LOG_ENTRY_BYTES, LogEntry, OPCODE_AT, Opcode, RECORD_BYTES, commit_record};
pub use member::{DATABASES, MEMBER_BYTES, Member};
pub use object::{
    CHUNK_KEY_BYTES, DECISION_AT, KEY_BYTES_MAX, Meta, OBJECT_OVERHEAD_BYTES, Object, Prefix,
    Unverified, VALUE_BYTES_MAX, object_bytes, prefix_bytes, write_object,
};
pub use placement::{Placement, Replica};
pub use pool::{
    Geometry, GeometryError, POOL_VERSION, PoolParams, REPLICAS_MAX, SUPERBLOCK_BYTES, Superblock,
    SuperblockError,
};
pub use sizing::{Sizing, SizingError};
pub use slot::{Slot, State};

/// Reads a little-endian word at `at`; `bytes` must hold it.
pub(crate) fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("the range is 8 bytes long"))
}
