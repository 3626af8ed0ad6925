//! Queue pairs: what they are made with, and the states that connect them.

use super::{CompletionQueue, Context, ProtectionDomain};
use libc::{c_int, c_uint, c_void};
use std::mem::offset_of;

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

const _: () = {
    assert!(offset_of!(QueuePair, qp_num) == 52);
    assert!(size_of::<QueuePairInit>() == 64);
    assert!(size_of::<AddressHandle>() == 32);
    assert!(offset_of!(AddressHandle, dlid) == 24);
    assert!(size_of::<QueuePairAttributes>() == 144);
    assert!(offset_of!(QueuePairAttributes, rate_limit) == 136);
};
