//! Reliable connected queue pairs: what the two ends tell each other, and the
//! states through which each end goes.

use super::device::mtu_code;
use super::domain::{CompletionQueue, Domain};
use super::{Device, VerbsError, ffi};
use libc::{c_int, c_uint};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// One end of a queue pair, as the other end has to know it. Carried by the
/// control plane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuePairAddress {
    /// The queue pair's number on its device, 24 bits.
    pub qpn: u32,
    /// The number of its first packet, 24 bits.
    pub psn: u32,
    /// Its GID, all 0 on InfiniBand.
    pub gid: [u8; 16],
    /// Its address on InfiniBand; 0 on Ethernet.
    pub lid: u16,
    /// Bytes of a packet, at most; the smaller of both ends counts.
    pub mtu: u16,
    /// READs and atomics under way, at most; the smaller of both ends counts.
    pub reads_max: u8,
}

/// A memory node's end of a queue pair, with the memory behind it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NodeQueuePair {
    /// Its end.
    pub address: QueuePairAddress,
    /// The key to its memory. Whoever has it and a queue pair can do anything to
    /// the memory, so it goes only to clients that may, and never into a log.
    pub rkey: u32,
    /// Where its memory starts, in the node's own address space.
    pub base: u64,
    /// How much there is.
    pub bytes: u64,
}

impl std::fmt::Debug for NodeQueuePair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeQueuePair")
            .field("address", &self.address)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// How long a packet may go unanswered before it is sent again: 4.096 us times 2
/// to this, 67 ms. With [`RETRIES`], a dead machine is found after 0.45 to 0.5 s
/// on Soft-RoCE; 12 and 6 find it in 0.14 s, and sometimes find one that lives.
const TIMEOUT: u8 = 14;
/// How often a packet is sent again. Never 7: Soft-RoCE takes that for "for ever".
const RETRIES: u8 = 6;
/// One-sided verbs need no receives, so nobody is ever not ready; a bound all the
/// same.
const RNR_RETRIES: u8 = 6;
const RNR_TIMER: u8 = 12;
/// Routers on the way, at most.
const HOPS_MAX: u8 = 64;
/// Bytes that are asked to fit into a work request itself: a cache line saves the
/// device a READ of local memory, and most small WRITEs are a line or less.
const INLINE_BYTES: u32 = 64;
const PSN_MASK: u32 = 0xff_ffff;

const REMOTE_ACCESS: c_int =
    ffi::ACCESS_REMOTE_READ | ffi::ACCESS_REMOTE_WRITE | ffi::ACCESS_REMOTE_ATOMIC;

/// Who may use the memory of this end's protection domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// A client: nobody.
    Client,
    /// A memory node: the peer.
    Node,
}

/// One end of a queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    qp: NonNull<ffi::QueuePair>,
    post_send: PostSend,
    role: Role,
    device: Device,
    psn: u32,
    reads_max: u8,
    inline_bytes: u32,
    queue: Arc<CompletionQueue>,
}

type PostSend = unsafe extern "C" fn(
    *mut ffi::QueuePair,
    *mut ffi::SendRequest,
    *mut *mut ffi::SendRequest,
) -> c_int;

// SAFETY: libibverbs lets any thread use a queue pair.
unsafe impl Send for QueuePair {}
// SAFETY: as for Send.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// A new one, with room for so many work requests, that has no peer yet.
    pub(crate) fn new(
        queue: &Arc<CompletionQueue>,
        device: &Device,
        role: Role,
        work_requests: u32,
    ) -> Result<Self, VerbsError> {
        let domain = queue.domain();
        let (qp, inline_bytes) = create(domain, queue, work_requests)?;
        let psn = RandomState::new().hash_one(0) as u32 & PSN_MASK;
        let reads_max = match role {
            Role::Client => device.limits.reads_posted,
            Role::Node => device.limits.reads_served,
        };
        // SAFETY: the queue pair was made by libibverbs, and its context does not change.
        let context = unsafe { (*qp.as_ptr()).context };
        // SAFETY: the context is open, and its functions do not change.
        let post_send = unsafe { (*context).ops.post_send };
        let (device, queue) = (device.clone(), queue.clone());
        let made = Self { qp, post_send, role, device, psn, reads_max, inline_bytes, queue };
        made.initialise()?;
        Ok(made)
    }

    /// What the peer has to know.
    pub(crate) fn address(&self) -> QueuePairAddress {
        QueuePairAddress {
            // SAFETY: the number does not change.
            qpn: unsafe { (*self.qp.as_ptr()).qp_num },
            psn: self.psn,
            gid: self.device.gid,
            lid: self.device.lid,
            mtu: self.device.mtu,
            reads_max: self.reads_max,
        }
    }

    /// How many bytes fit into a work request itself.
    pub(crate) fn inline_bytes(&self) -> u32 {
        self.inline_bytes
    }

    /// Is it the one at this address? Asynchronous events name it so.
    pub(crate) fn is_at(&self, element: usize) -> bool {
        self.qp.addr().get() == element
    }

    /// Posts a list of work requests.
    ///
    /// # Safety
    ///
    /// The requests are linked into a list that ends, each with its scatter-gather
    /// list; the local memory that they name lives, and is used by nobody else, until
    /// their completions have arrived or the queue pair is gone.
    pub(crate) unsafe fn post(&self, first: *mut ffi::SendRequest) -> io::Result<()> {
        let mut bad = ptr::null_mut();
        // SAFETY: the caller's promise.
        let error = unsafe { (self.post_send)(self.qp.as_ptr(), first, &raw mut bad) };
        if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
    }

    /// RESET to INIT.
    fn initialise(&self) -> Result<(), VerbsError> {
        let mut attributes = blank();
        attributes.qp_state = ffi::QPS_INIT;
        attributes.port_num = self.device.port;
        attributes.qp_access_flags = match self.role {
            Role::Client => 0,
            Role::Node => REMOTE_ACCESS as c_uint,
        };
        let mask = ffi::QP_STATE | ffi::QP_PKEY_INDEX | ffi::QP_PORT | ffi::QP_ACCESS_FLAGS;
        self.modify(&mut attributes, mask, "initialise a queue pair")
    }

    /// INIT to ready to receive, and on to ready to send. On Ethernet the system
    /// looks for the peer's hardware address, which can take a second.
    pub(crate) fn connect(&self, peer: &QueuePairAddress) -> Result<(), VerbsError> {
        let path_mtu = self.check(peer)?;
        let reads_max = self.reads_max.min(peer.reads_max);

        let mut attributes = blank();
        attributes.qp_state = ffi::QPS_RTR;
        attributes.ah_attr = self.way(peer);
        attributes.path_mtu = path_mtu;
        attributes.dest_qp_num = peer.qpn;
        attributes.rq_psn = peer.psn;
        attributes.max_dest_rd_atomic = reads_max;
        attributes.min_rnr_timer = RNR_TIMER;
        let mask = ffi::QP_STATE
            | ffi::QP_AV
            | ffi::QP_PATH_MTU
            | ffi::QP_DEST_QPN
            | ffi::QP_RQ_PSN
            | ffi::QP_MAX_DEST_RD_ATOMIC
            | ffi::QP_MIN_RNR_TIMER;
        self.modify(&mut attributes, mask, "find the way to the peer of a queue pair")?;

        let mut attributes = blank();
        attributes.qp_state = ffi::QPS_RTS;
        attributes.timeout = TIMEOUT;
        attributes.retry_cnt = RETRIES;
        attributes.rnr_retry = RNR_RETRIES;
        attributes.sq_psn = self.psn;
        attributes.max_rd_atomic = reads_max;
        let mask = ffi::QP_STATE
            | ffi::QP_TIMEOUT
            | ffi::QP_RETRY_CNT
            | ffi::QP_RNR_RETRY
            | ffi::QP_SQ_PSN
            | ffi::QP_MAX_QP_RD_ATOMIC;
        self.modify(&mut attributes, mask, "connect a queue pair")
    }

    /// Checks what a peer says of itself; the MTU of the way to it.
    fn check(&self, peer: &QueuePairAddress) -> Result<c_int, VerbsError> {
        if peer.qpn > PSN_MASK || peer.psn > PSN_MASK {
            return Err(VerbsError::Peer("its numbers have more than 24 bits"));
        }
        if peer.reads_max == 0 {
            return Err(VerbsError::Peer("it allows no READs and atomics"));
        }
        if (peer.gid == [0; 16]) != (self.device.gid == [0; 16]) {
            return Err(VerbsError::Peer("one end is on Ethernet and the other on InfiniBand"));
        }
        mtu_code(peer.mtu.min(self.device.mtu)).ok_or(VerbsError::Peer("its MTU is too small"))
    }

    fn way(&self, peer: &QueuePairAddress) -> ffi::AddressHandle {
        let mut way = blank().ah_attr;
        way.port_num = self.device.port;
        if peer.gid == [0; 16] {
            way.dlid = peer.lid;
        } else {
            let (high, low) = peer.gid.split_at(8);
            way.dgid = [high, low]
                .map(|half| u64::from_ne_bytes(half.try_into().expect("it has 8 bytes")));
            way.is_global = 1;
            way.sgid_index = self.device.gid_index;
            way.hop_limit = HOPS_MAX;
        }
        way
    }

    fn modify(
        &self,
        attributes: &mut ffi::QueuePairAttributes,
        mask: c_int,
        what: &'static str,
    ) -> Result<(), VerbsError> {
        let domain = self.queue.domain();
        // SAFETY: the structure has the fields that the mask names.
        let error = unsafe { (domain.library().modify_qp)(self.qp.as_ptr(), attributes, mask) };
        domain.opened().check(error, what)
    }
}

impl Drop for QueuePair {
    /// Once this is over the device touches no memory on behalf of the queue pair
    /// any more.
    fn drop(&mut self) {
        let library = self.queue.domain().library();
        // SAFETY: it was made by libibverbs and is not used after this.
        let error = unsafe { (library.destroy_qp)(self.qp.as_ptr()) };
        // If it were still there, memory that is about to be given back could be
        // written by the device.
        assert_eq!(error, 0, "a queue pair can be destroyed");
    }
}

fn create(
    domain: &Domain,
    queue: &CompletionQueue,
    work_requests: u32,
) -> Result<(NonNull<ffi::QueuePair>, u32), VerbsError> {
    let mut failed = None;
    // Some devices refuse what they do not have instead of granting less.
    for inline_bytes in [INLINE_BYTES, 0] {
        let mut init = ffi::QueuePairInit {
            qp_context: ptr::null_mut(),
            send_cq: queue.cq(),
            recv_cq: queue.cq(),
            srq: ptr::null_mut(),
            cap: ffi::QueuePairCapacity {
                max_send_wr: work_requests,
                max_recv_wr: 1,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: inline_bytes,
            },
            qp_type: ffi::QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: domain and queue are there, and outlive the queue pair.
        let qp = unsafe { (domain.library().create_qp)(domain.pd(), &raw mut init) };
        match NonNull::new(qp) {
            Some(qp) => return Ok((qp, init.cap.max_inline_data)),
            None => failed = Some(io::Error::last_os_error()),
        }
    }
    let error = failed.expect("a device was asked");
    Err(VerbsError::refused(domain.opened().name(), "make a queue pair", &error))
}

fn blank() -> ffi::QueuePairAttributes {
    // SAFETY: numbers may be 0.
    unsafe { std::mem::zeroed() }
}

const _: () = assert!(RETRIES < 7, "Soft-RoCE takes 7 for ever");
