//! Devices, their ports and events, and memory that is registered with them.

use super::{CompletionQueue, Opaque, QueuePair, SendRequest, WorkCompletion};
use libc::{c_char, c_int, c_uint, c_void};
use std::mem::offset_of;

/// `struct ibv_device`.
pub(crate) type Device = Opaque;
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

/// `struct ibv_pd`.
pub(crate) type ProtectionDomain = Opaque;

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
    assert!(size_of::<AsyncEvent>() == 16);
};
