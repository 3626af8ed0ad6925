//! The part of libibverbs' C ABI that we use, as `<infiniband/verbs.h>` has it.
//!
//! The ABI is stable: structures grow at their ends only, and symbols carry
//! versions. Every size and offset is asserted for a 64-bit machine, and
//! `cargo xtask suite verbs-abi` checks all of them, and the constants, against
//! the crate `ibverbs-sys`, which generates its own from rdma-core's headers.
//!
//! Structures that only libibverbs makes are declared as far as we read them;
//! they are never made or copied here.

mod device;
mod queue_pair;
mod work;

pub(crate) use device::*;
pub(crate) use queue_pair::*;
pub(crate) use work::*;

const _: () = assert!(cfg!(target_pointer_width = "64"), "the layouts are of 64-bit machines");

/// Something of which only the address is known.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Opaque {
    _private: [u8; 0],
}
