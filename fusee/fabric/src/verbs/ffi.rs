//! The part of libibverbs' C ABI that we use, as `<infiniband/verbs.h>` has it.
//!
//! The ABI is stable: structures grow at their ends only, and symbols carry
//! versions. Every size and offset is asserted here for a 64-bit machine, and
//! `cargo xtask suite verbs-abi` checks all of them, and the constants, against
//! the crate `ibverbs-sys`, which generates its own from rdma-core's headers.
//!
//! Structures that only libibverbs makes are declared as far as we read them;
//! they are never made or copied here.

use libc::{c_char, c_int, c_uint, c_void};
use std::mem::offset_of;

/// Something of which only the address is known.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Opaque {
    _private: [u8; 0],
}

/// `struct ibv_device`.
pub(crate) type Device = Opaque;
/// `struct ibv_pd`.
pub(crate) type ProtectionDomain = Opaque;

/// A function of `struct ibv_context_ops` that is not called through it.
type Unused = *const c_void;

/// `struct ibv_context_ops`.
#[repr(C)]
pub(crate) struct ContextOps {
    before_poll: [Unused; 11],
    /// Takes completions; how many, or less than 0.
    pub(crate) poll_cq:
        unsafe extern "C" fn(*mut CompletionQueue, c_int, *mut WorkCompletion) -> c_int,
    /// Asks for an event at the next completion.
    pub(crate) req_notify_cq: unsafe extern "C" fn(*mut CompletionQueue, c_int) -> c_int,
    before_post: [Unused; 12],
    /// Posts a list of work requests; 0 or an errno.
    pub(crate) post_send:
        unsafe extern "C" fn(*mut QueuePair, *mut SendRequest, *mut *mut SendRequest) -> c_int,
    after_post: [Unused; 6],
}

/// The beginning of `struct ibv_context`.
#[repr(C)]
pub(crate) struct Context {
    device: *mut Device,
    /// Functions of the device's driver.
    pub(crate) ops: ContextOps,
    cmd_fd: c_int,
    /// Readable when there are asynchronous events.
    pub(crate) async_fd: c_int,
}

/// `struct ibv_device_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DeviceAttributes {
    fw_ver: [c_char; 64],
    node_guid: u64,
    sys_image_guid: u64,
    max_mr_size: u64,
    page_size_cap: u64,
    vendor_id: u32,
    vendor_part_id: u32,
    hw_ver: u32,
    max_qp: c_int,
    /// Work requests of a queue, at most.
    pub(crate) max_qp_wr: c_int,
    device_cap_flags: c_uint,
    max_sge: c_int,
    max_sge_rd: c_int,
    max_cq: c_int,
    /// Entries of a completion queue, at most.
    pub(crate) max_cqe: c_int,
    max_mr: c_int,
    max_pd: c_int,
    /// READs and atomics under way to one of its queue pairs, at most.
    pub(crate) max_qp_rd_atom: c_int,
    max_ee_rd_atom: c_int,
    max_res_rd_atom: c_int,
    /// READs and atomics under way from one of its queue pairs, at most.
    pub(crate) max_qp_init_rd_atom: c_int,
    max_ee_init_rd_atom: c_int,
    /// [`ATOMIC_NONE`] or what is atomic.
    pub(crate) atomic_cap: c_int,
    max_ee: c_int,
    max_rdd: c_int,
    max_mw: c_int,
    max_raw_ipv6_qp: c_int,
    max_raw_ethy_qp: c_int,
    max_mcast_grp: c_int,
    max_mcast_qp_attach: c_int,
    max_total_mcast_qp_attach: c_int,
    max_ah: c_int,
    max_fmr: c_int,
    max_map_per_fmr: c_int,
    max_srq: c_int,
    max_srq_wr: c_int,
    max_srq_sge: c_int,
    max_pkeys: u16,
    local_ca_ack_delay: u8,
    /// Ports are numbered from 1 to this.
    pub(crate) phys_port_cnt: u8,
}

/// `enum ibv_atomic_cap`: the device has no atomics.
pub(crate) const ATOMIC_NONE: c_int = 0;

/// `struct ibv_port_attr`, as it was up to rdma-core 54. `ibv_query_port` fills it as
/// far as `flags`, whatever has been added since.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PortAttributes {
    /// `enum ibv_port_state`.
    pub(crate) state: c_int,
    max_mtu: c_int,
    /// `enum ibv_mtu`.
    pub(crate) active_mtu: c_int,
    /// Entries of its table of GIDs.
    pub(crate) gid_tbl_len: c_int,
    port_cap_flags: u32,
    /// Bytes of a message, at most.
    pub(crate) max_msg_sz: u32,
    bad_pkey_cntr: u32,
    qkey_viol_cntr: u32,
    pkey_tbl_len: u16,
    /// Its address on InfiniBand.
    pub(crate) lid: u16,
    sm_lid: u16,
    lmc: u8,
    max_vl_num: u8,
    sm_sl: u8,
    subnet_timeout: u8,
    init_type_reply: u8,
    active_width: u8,
    active_speed: u8,
    phys_state: u8,
    /// [`LINK_LAYER_ETHERNET`] or another.
    pub(crate) link_layer: u8,
    flags: u8,
    port_cap_flags2: u16,
}

/// `IBV_PORT_ACTIVE`.
pub(crate) const PORT_ACTIVE: c_int = 4;
/// `IBV_LINK_LAYER_ETHERNET`.
pub(crate) const LINK_LAYER_ETHERNET: u8 = 2;

/// `struct ibv_gid_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct GidEntry {
    /// The GID.
    pub(crate) gid: [u64; 2],
    gid_index: u32,
    port_num: u32,
    /// [`GID_TYPE_ROCE_V2`] or another.
    pub(crate) gid_type: u32,
    ndev_ifindex: u32,
}

/// `IBV_GID_TYPE_ROCE_V2`.
pub(crate) const GID_TYPE_ROCE_V2: u32 = 2;

/// `struct ibv_mr`.
#[repr(C)]
pub(crate) struct MemoryRegion {
    context: *mut Context,
    pd: *mut ProtectionDomain,
    addr: *mut c_void,
    length: usize,
    handle: u32,
    /// Names the region in one's own work requests.
    pub(crate) lkey: u32,
    /// Names the region in a peer's work requests.
    pub(crate) rkey: u32,
}

/// `enum ibv_access_flags`.
pub(crate) const ACCESS_LOCAL_WRITE: c_int = 1;
/// As above.
pub(crate) const ACCESS_REMOTE_WRITE: c_int = 1 << 1;
/// As above.
pub(crate) const ACCESS_REMOTE_READ: c_int = 1 << 2;
/// As above.
pub(crate) const ACCESS_REMOTE_ATOMIC: c_int = 1 << 3;

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

/// The beginning of `struct ibv_qp`.
#[repr(C)]
pub(crate) struct QueuePair {
    /// Of which it is.
    pub(crate) context: *mut Context,
    qp_context: *mut c_void,
    pd: *mut ProtectionDomain,
    send_cq: *mut CompletionQueue,
    recv_cq: *mut CompletionQueue,
    srq: *mut c_void,
    handle: u32,
    /// Its number on the device.
    pub(crate) qp_num: u32,
}

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct QueuePairCapacity {
    /// Work requests under way, at most.
    pub(crate) max_send_wr: u32,
    /// Receives under way, at most.
    pub(crate) max_recv_wr: u32,
    /// Stretches of memory in a work request, at most.
    pub(crate) max_send_sge: u32,
    /// As above, of a receive.
    pub(crate) max_recv_sge: u32,
    /// Bytes that may stand in the work request itself.
    pub(crate) max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
pub(crate) struct QueuePairInit {
    /// Of the application.
    pub(crate) qp_context: *mut c_void,
    /// Where work requests complete.
    pub(crate) send_cq: *mut CompletionQueue,
    /// Where receives complete.
    pub(crate) recv_cq: *mut CompletionQueue,
    /// None.
    pub(crate) srq: *mut c_void,
    /// Asked for, and then granted.
    pub(crate) cap: QueuePairCapacity,
    /// [`QPT_RC`].
    pub(crate) qp_type: c_int,
    /// Does every work request make a completion?
    pub(crate) sq_sig_all: c_int,
}

/// `IBV_QPT_RC`.
pub(crate) const QPT_RC: c_int = 2;

/// `struct ibv_ah_attr`, with its `struct ibv_global_route` in front.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AddressHandle {
    /// The peer's GID.
    pub(crate) dgid: [u64; 2],
    /// 0.
    pub(crate) flow_label: u32,
    /// One's own GID, by index.
    pub(crate) sgid_index: u8,
    /// Routers on the way, at most.
    pub(crate) hop_limit: u8,
    /// 0.
    pub(crate) traffic_class: u8,
    /// The peer's address on InfiniBand.
    pub(crate) dlid: u16,
    /// 0.
    pub(crate) sl: u8,
    /// 0.
    pub(crate) src_path_bits: u8,
    /// 0.
    pub(crate) static_rate: u8,
    /// Do GIDs count?
    pub(crate) is_global: u8,
    /// One's own port.
    pub(crate) port_num: u8,
}

/// `struct ibv_qp_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct QueuePairAttributes {
    /// `enum ibv_qp_state`.
    pub(crate) qp_state: c_int,
    cur_qp_state: c_int,
    /// `enum ibv_mtu`.
    pub(crate) path_mtu: c_int,
    path_mig_state: c_int,
    qkey: u32,
    /// Number of the peer's first packet.
    pub(crate) rq_psn: u32,
    /// Number of one's own first packet.
    pub(crate) sq_psn: u32,
    /// The peer's queue pair.
    pub(crate) dest_qp_num: u32,
    /// `enum ibv_access_flags` of what the peer may do.
    pub(crate) qp_access_flags: c_uint,
    cap: QueuePairCapacity,
    /// The way to the peer.
    pub(crate) ah_attr: AddressHandle,
    alt_ah_attr: AddressHandle,
    /// 0.
    pub(crate) pkey_index: u16,
    alt_pkey_index: u16,
    en_sqd_async_notify: u8,
    sq_draining: u8,
    /// READs and atomics of ours under way, at most.
    pub(crate) max_rd_atomic: u8,
    /// READs and atomics of the peer under way, at most.
    pub(crate) max_dest_rd_atomic: u8,
    /// Pause of a peer who finds no receive posted.
    pub(crate) min_rnr_timer: u8,
    /// One's own port.
    pub(crate) port_num: u8,
    /// Pause before a packet is sent again: 4.096 us times 2 to this.
    pub(crate) timeout: u8,
    /// How often it is.
    pub(crate) retry_cnt: u8,
    /// How often if the peer has no receive posted.
    pub(crate) rnr_retry: u8,
    alt_port_num: u8,
    alt_timeout: u8,
    rate_limit: u32,
}

/// `enum ibv_qp_state`.
pub(crate) const QPS_INIT: c_int = 1;
/// As above: ready to receive.
pub(crate) const QPS_RTR: c_int = 2;
/// As above: ready to send.
pub(crate) const QPS_RTS: c_int = 3;

/// `enum ibv_qp_attr_mask`.
pub(crate) const QP_STATE: c_int = 1;
/// As above.
pub(crate) const QP_ACCESS_FLAGS: c_int = 1 << 3;
/// As above.
pub(crate) const QP_PKEY_INDEX: c_int = 1 << 4;
/// As above.
pub(crate) const QP_PORT: c_int = 1 << 5;
/// As above: the address handle.
pub(crate) const QP_AV: c_int = 1 << 7;
/// As above.
pub(crate) const QP_PATH_MTU: c_int = 1 << 8;
/// As above.
pub(crate) const QP_TIMEOUT: c_int = 1 << 9;
/// As above.
pub(crate) const QP_RETRY_CNT: c_int = 1 << 10;
/// As above.
pub(crate) const QP_RNR_RETRY: c_int = 1 << 11;
/// As above.
pub(crate) const QP_RQ_PSN: c_int = 1 << 12;
/// As above.
pub(crate) const QP_MAX_QP_RD_ATOMIC: c_int = 1 << 13;
/// As above.
pub(crate) const QP_MIN_RNR_TIMER: c_int = 1 << 15;
/// As above.
pub(crate) const QP_SQ_PSN: c_int = 1 << 16;
/// As above.
pub(crate) const QP_MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
/// As above.
pub(crate) const QP_DEST_QPN: c_int = 1 << 20;

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

/// `struct ibv_async_event`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AsyncEvent {
    /// The address of what it is about, or the number of a port.
    pub(crate) element: *mut c_void,
    /// `enum ibv_event_type`.
    pub(crate) event_type: c_int,
}

/// `enum ibv_event_type`: a completion queue has overrun.
pub(crate) const EVENT_CQ_ERR: c_int = 0;
/// As above: a queue pair is in error.
pub(crate) const EVENT_QP_FATAL: c_int = 1;
/// As above: a queue pair got a request that makes no sense.
pub(crate) const EVENT_QP_REQ_ERR: c_int = 2;
/// As above: a queue pair got a request that its memory does not allow.
pub(crate) const EVENT_QP_ACCESS_ERR: c_int = 3;
/// As above: the device is lost.
pub(crate) const EVENT_DEVICE_FATAL: c_int = 8;
/// As above: a port has come up.
pub(crate) const EVENT_PORT_ACTIVE: c_int = 9;
/// As above: a port has gone down.
pub(crate) const EVENT_PORT_ERR: c_int = 10;

const _: () = {
    assert!(cfg!(target_pointer_width = "64"), "the layouts are of 64-bit machines");
    assert!(size_of::<ContextOps>() == 32 * 8);
    assert!(offset_of!(ContextOps, poll_cq) == 11 * 8);
    assert!(offset_of!(ContextOps, req_notify_cq) == 12 * 8);
    assert!(offset_of!(ContextOps, post_send) == 25 * 8);
    assert!(offset_of!(Context, ops) == 8 && offset_of!(Context, async_fd) == 268);
    assert!(size_of::<DeviceAttributes>() == 232);
    assert!(offset_of!(DeviceAttributes, atomic_cap) == 164);
    assert!(size_of::<PortAttributes>() == 52);
    assert!(offset_of!(PortAttributes, link_layer) == 46);
    assert!(size_of::<GidEntry>() == 32);
    assert!(size_of::<MemoryRegion>() == 48);
    assert!(offset_of!(MemoryRegion, rkey) == 40);
    assert!(offset_of!(CompletionChannel, fd) == 8);
    assert!(offset_of!(QueuePair, qp_num) == 52);
    assert!(size_of::<QueuePairInit>() == 64);
    assert!(size_of::<AddressHandle>() == 32);
    assert!(offset_of!(AddressHandle, dlid) == 24);
    assert!(size_of::<QueuePairAttributes>() == 144);
    assert!(offset_of!(QueuePairAttributes, rate_limit) == 136);
    assert!(size_of::<SendRequest>() == 128);
    assert!(offset_of!(SendRequest, atomic_rkey) == 64);
    assert!(size_of::<WorkCompletion>() == 48);
    assert!(size_of::<AsyncEvent>() == 16);
};
