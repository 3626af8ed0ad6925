//! Work requests, and how they complete.

use super::Context;
use libc::{c_int, c_uint};
use std::mem::offset_of;

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScatterGather {
    /// Where.
    pub(crate) addr: u64,
    /// How many bytes.
    pub(crate) length: u32,
    /// Of which memory region.
    pub(crate) lkey: u32,
}

/// `struct ibv_send_wr`, with the member `atomic` of its union `wr`. RDMA READ
/// and WRITE use the member `rdma`, whose `rkey` lies where `compare_add` does.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SendRequest {
    /// Comes back with the completion.
    pub(crate) wr_id: u64,
    /// The next of the list.
    pub(crate) next: *mut SendRequest,
    /// The local memory.
    pub(crate) sg_list: *mut ScatterGather,
    /// In so many stretches.
    pub(crate) num_sge: c_int,
    /// `enum ibv_wr_opcode`.
    pub(crate) opcode: c_int,
    /// `enum ibv_send_flags`.
    pub(crate) send_flags: c_uint,
    imm_data: u32,
    /// The remote memory.
    pub(crate) remote_addr: u64,
    /// `wr.rdma.rkey`, or `wr.atomic.compare_add`.
    pub(crate) rkey_or_compare_add: u64,
    /// `wr.atomic.swap`.
    pub(crate) swap: u64,
    /// `wr.atomic.rkey`.
    pub(crate) atomic_rkey: u32,
    qp_type: [u32; 2],
    bind_mw: [u64; 6],
}

/// `IBV_WR_RDMA_WRITE`.
pub(crate) const WR_RDMA_WRITE: c_int = 0;
/// `IBV_WR_RDMA_READ`.
pub(crate) const WR_RDMA_READ: c_int = 4;
/// `IBV_WR_ATOMIC_CMP_AND_SWP`.
pub(crate) const WR_ATOMIC_CMP_AND_SWP: c_int = 5;
/// `IBV_WR_ATOMIC_FETCH_AND_ADD`.
pub(crate) const WR_ATOMIC_FETCH_AND_ADD: c_int = 6;

/// `enum ibv_send_flags`.
pub(crate) const SEND_FENCE: c_uint = 1;
/// As above.
pub(crate) const SEND_SIGNALED: c_uint = 1 << 1;
/// As above.
pub(crate) const SEND_INLINE: c_uint = 1 << 3;

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WorkCompletion {
    /// Of the work request.
    pub(crate) wr_id: u64,
    /// `enum ibv_wc_status`.
    pub(crate) status: c_int,
    opcode: c_int,
    /// The driver's own code of an error.
    pub(crate) vendor_err: u32,
    byte_len: u32,
    imm_data: u32,
    qp_num: u32,
    src_qp: u32,
    wc_flags: c_uint,
    pkey_index: u16,
    slid: u16,
    sl: u8,
    dlid_path_bits: u8,
}

/// `IBV_WC_SUCCESS`.
pub(crate) const WC_SUCCESS: c_int = 0;

/// `struct ibv_comp_channel`.
#[repr(C)]
pub(crate) struct CompletionChannel {
    context: *mut Context,
    /// Readable when there are completion events.
    pub(crate) fd: c_int,
    refcnt: c_int,
}

/// The beginning of `struct ibv_cq`.
#[repr(C)]
pub(crate) struct CompletionQueue {
    /// Of which it is.
    pub(crate) context: *mut Context,
}

const _: () = {
    assert!(offset_of!(CompletionChannel, fd) == 8);
    assert!(size_of::<SendRequest>() == 128);
    assert!(offset_of!(SendRequest, atomic_rkey) == 64);
    assert!(size_of::<WorkCompletion>() == 48);
};
