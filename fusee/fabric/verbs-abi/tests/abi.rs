//! Every size, offset and constant of our binding is what rdma-core's headers say.

#[allow(dead_code, reason = "the file is checked, not used")]
#[path = "../../src/verbs/ffi/mod.rs"]
mod ours;

use ibverbs_sys as theirs;
use std::mem::offset_of;

/// Fields of one of our structures, each with its name in C.
macro_rules! same_offsets {
    ($ours:ident, $theirs:ident: $($field:ident = $($c:ident).+),+ $(,)?) => {
        $(assert_eq!(
            offset_of!(ours::$ours, $field),
            offset_of!(theirs::$theirs, $($c).+),
            concat!(stringify!($theirs), ".", $(stringify!($c), " "),+),
        );)+
    };
}

macro_rules! same_size {
    ($($ours:ident = $theirs:ident),+ $(,)?) => {
        $(assert_eq!(
            (size_of::<ours::$ours>(), align_of::<ours::$ours>()),
            (size_of::<theirs::$theirs>(), align_of::<theirs::$theirs>()),
            stringify!($theirs),
        );)+
    };
}

#[test]
fn structures_have_the_same_size() {
    same_size!(
        ContextOps = ibv_context_ops,
        DeviceAttributes = ibv_device_attr,
        GidEntry = ibv_gid_entry,
        MemoryRegion = ibv_mr,
        CompletionChannel = ibv_comp_channel,
        QueuePairCapacity = ibv_qp_cap,
        QueuePairInit = ibv_qp_init_attr,
        AddressHandle = ibv_ah_attr,
        QueuePairAttributes = ibv_qp_attr,
        ScatterGather = ibv_sge,
        SendRequest = ibv_send_wr,
        WorkCompletion = ibv_wc,
        AsyncEvent = ibv_async_event,
    );
    // It has grown since, and the function that we call fills less of it.
    assert!(size_of::<ours::PortAttributes>() <= size_of::<theirs::ibv_port_attr>());
}

#[test]
fn fields_have_the_same_offset() {
    same_offsets!(ContextOps, ibv_context_ops:
        poll_cq = poll_cq, req_notify_cq = req_notify_cq, post_send = post_send);
    same_offsets!(Context, ibv_context: ops = ops, async_fd = async_fd);
    same_offsets!(DeviceAttributes, ibv_device_attr:
        max_qp_wr = max_qp_wr, max_cqe = max_cqe, max_qp_rd_atom = max_qp_rd_atom,
        max_qp_init_rd_atom = max_qp_init_rd_atom, atomic_cap = atomic_cap,
        phys_port_cnt = phys_port_cnt);
    same_offsets!(PortAttributes, ibv_port_attr:
        state = state, active_mtu = active_mtu, gid_tbl_len = gid_tbl_len,
        max_msg_sz = max_msg_sz, lid = lid, link_layer = link_layer);
    same_offsets!(GidEntry, ibv_gid_entry: gid = gid, gid_type = gid_type);
    same_offsets!(MemoryRegion, ibv_mr: lkey = lkey, rkey = rkey);
    same_offsets!(CompletionChannel, ibv_comp_channel: fd = fd);
    same_offsets!(CompletionQueue, ibv_cq: context = context);
    same_offsets!(QueuePair, ibv_qp: context = context, qp_num = qp_num);
    same_offsets!(QueuePairCapacity, ibv_qp_cap:
        max_send_wr = max_send_wr, max_recv_wr = max_recv_wr, max_send_sge = max_send_sge,
        max_recv_sge = max_recv_sge, max_inline_data = max_inline_data);
    same_offsets!(QueuePairInit, ibv_qp_init_attr:
        qp_context = qp_context, send_cq = send_cq, recv_cq = recv_cq, srq = srq, cap = cap,
        qp_type = qp_type, sq_sig_all = sq_sig_all);
    same_offsets!(AddressHandle, ibv_ah_attr:
        dgid = grh.dgid, flow_label = grh.flow_label, sgid_index = grh.sgid_index,
        hop_limit = grh.hop_limit, traffic_class = grh.traffic_class, dlid = dlid, sl = sl,
        src_path_bits = src_path_bits, static_rate = static_rate, is_global = is_global,
        port_num = port_num);
    same_offsets!(QueuePairAttributes, ibv_qp_attr:
        qp_state = qp_state, path_mtu = path_mtu, rq_psn = rq_psn, sq_psn = sq_psn,
        dest_qp_num = dest_qp_num, qp_access_flags = qp_access_flags, ah_attr = ah_attr,
        pkey_index = pkey_index, max_rd_atomic = max_rd_atomic,
        max_dest_rd_atomic = max_dest_rd_atomic, min_rnr_timer = min_rnr_timer,
        port_num = port_num, timeout = timeout, retry_cnt = retry_cnt, rnr_retry = rnr_retry);
    same_offsets!(ScatterGather, ibv_sge: addr = addr, length = length, lkey = lkey);
    same_offsets!(SendRequest, ibv_send_wr:
        wr_id = wr_id, next = next, sg_list = sg_list, num_sge = num_sge, opcode = opcode,
        send_flags = send_flags, remote_addr = wr.rdma.remote_addr,
        rkey_or_compare_add = wr.rdma.rkey, remote_addr = wr.atomic.remote_addr,
        rkey_or_compare_add = wr.atomic.compare_add, swap = wr.atomic.swap,
        atomic_rkey = wr.atomic.rkey);
    same_offsets!(AsyncEvent, ibv_async_event: element = element, event_type = event_type);
}

/// Its fields are private over there.
#[test]
fn a_work_completion_is_read_alike() {
    // SAFETY: numbers may be 0.
    let mut ours: ours::WorkCompletion = unsafe { std::mem::zeroed() };
    (ours.wr_id, ours.status, ours.vendor_err) = (u64::MAX / 3, 12, 0x89);
    // SAFETY: both have the same size and are numbers.
    let theirs: theirs::ibv_wc = unsafe { std::mem::transmute(ours) };
    assert_eq!(theirs.wr_id(), u64::MAX / 3);
    assert_eq!(theirs.error(), Some((theirs::ibv_wc_status::IBV_WC_RETRY_EXC_ERR, 0x89)));
}

/// Constants of enumerations that are modules, types or numbers over there.
macro_rules! same_constants {
    ($($ours:ident = $theirs:expr),+ $(,)?) => {
        $(assert_eq!(i64::from(ours::$ours), i64::from($theirs), stringify!($theirs));)+
    };
}

#[test]
fn constants_are_the_same() {
    use theirs::{
        ibv_access_flags as access, ibv_port_state as port, ibv_qp_attr_mask as mask,
        ibv_qp_state as state, ibv_send_flags as send, ibv_wr_opcode as opcode,
    };
    same_constants!(
        ATOMIC_NONE = theirs::IBV_ATOMIC_NONE,
        PORT_ACTIVE = port::IBV_PORT_ACTIVE,
        LINK_LAYER_ETHERNET = theirs::IBV_LINK_LAYER_ETHERNET,
        GID_TYPE_ROCE_V2 = theirs::IBV_GID_TYPE_ROCE_V2,
        ACCESS_LOCAL_WRITE = access::IBV_ACCESS_LOCAL_WRITE.0,
        ACCESS_REMOTE_WRITE = access::IBV_ACCESS_REMOTE_WRITE.0,
        ACCESS_REMOTE_READ = access::IBV_ACCESS_REMOTE_READ.0,
        ACCESS_REMOTE_ATOMIC = access::IBV_ACCESS_REMOTE_ATOMIC.0,
        QPT_RC = theirs::ibv_qp_type::IBV_QPT_RC,
        QPS_INIT = state::IBV_QPS_INIT,
        QPS_RTR = state::IBV_QPS_RTR,
        QPS_RTS = state::IBV_QPS_RTS,
        QP_STATE = mask::IBV_QP_STATE.0,
        QP_ACCESS_FLAGS = mask::IBV_QP_ACCESS_FLAGS.0,
        QP_PKEY_INDEX = mask::IBV_QP_PKEY_INDEX.0,
        QP_PORT = mask::IBV_QP_PORT.0,
        QP_AV = mask::IBV_QP_AV.0,
        QP_PATH_MTU = mask::IBV_QP_PATH_MTU.0,
        QP_TIMEOUT = mask::IBV_QP_TIMEOUT.0,
        QP_RETRY_CNT = mask::IBV_QP_RETRY_CNT.0,
        QP_RNR_RETRY = mask::IBV_QP_RNR_RETRY.0,
        QP_RQ_PSN = mask::IBV_QP_RQ_PSN.0,
        QP_MAX_QP_RD_ATOMIC = mask::IBV_QP_MAX_QP_RD_ATOMIC.0,
        QP_MIN_RNR_TIMER = mask::IBV_QP_MIN_RNR_TIMER.0,
        QP_SQ_PSN = mask::IBV_QP_SQ_PSN.0,
        QP_MAX_DEST_RD_ATOMIC = mask::IBV_QP_MAX_DEST_RD_ATOMIC.0,
        QP_DEST_QPN = mask::IBV_QP_DEST_QPN.0,
        WR_RDMA_WRITE = opcode::IBV_WR_RDMA_WRITE,
        WR_RDMA_READ = opcode::IBV_WR_RDMA_READ,
        WR_ATOMIC_CMP_AND_SWP = opcode::IBV_WR_ATOMIC_CMP_AND_SWP,
        WR_ATOMIC_FETCH_AND_ADD = opcode::IBV_WR_ATOMIC_FETCH_AND_ADD,
        SEND_FENCE = send::IBV_SEND_FENCE.0,
        SEND_SIGNALED = send::IBV_SEND_SIGNALED.0,
        SEND_INLINE = send::IBV_SEND_INLINE.0,
        WC_SUCCESS = theirs::ibv_wc_status::IBV_WC_SUCCESS,
        EVENT_CQ_ERR = theirs::IBV_EVENT_CQ_ERR,
        EVENT_QP_FATAL = theirs::IBV_EVENT_QP_FATAL,
        EVENT_QP_REQ_ERR = theirs::IBV_EVENT_QP_REQ_ERR,
        EVENT_QP_ACCESS_ERR = theirs::IBV_EVENT_QP_ACCESS_ERR,
        EVENT_DEVICE_FATAL = theirs::IBV_EVENT_DEVICE_FATAL,
        EVENT_PORT_ACTIVE = theirs::IBV_EVENT_PORT_ACTIVE,
        EVENT_PORT_ERR = theirs::IBV_EVENT_PORT_ERR,
    );
}

/// `enum ibv_mtu` is computed, and the names of completions are told, by number.
#[test]
fn numbers_in_the_code_are_the_same() {
    use theirs::ibv_wc_status as status;
    let mtus = [
        theirs::IBV_MTU_256,
        theirs::IBV_MTU_512,
        theirs::IBV_MTU_1024,
        theirs::IBV_MTU_2048,
        theirs::IBV_MTU_4096,
    ];
    assert_eq!(mtus, [1, 2, 3, 4, 5]);
    assert_eq!(status::IBV_WC_LOC_PROT_ERR, 4);
    assert_eq!(status::IBV_WC_WR_FLUSH_ERR, 5);
    assert_eq!(status::IBV_WC_LOC_ACCESS_ERR, 8);
    assert_eq!(status::IBV_WC_REM_INV_REQ_ERR, 9);
    assert_eq!(status::IBV_WC_REM_ACCESS_ERR, 10);
    assert_eq!(status::IBV_WC_REM_OP_ERR, 11);
    assert_eq!(status::IBV_WC_RETRY_EXC_ERR, 12);
    assert_eq!(status::IBV_WC_RNR_RETRY_EXC_ERR, 13);
}
