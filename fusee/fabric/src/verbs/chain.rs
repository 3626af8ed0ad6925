//! Work requests: the verbs of a batch for one node as the device takes them,
//! linked into a list that is posted with one doorbell.

use super::ffi;
use crate::batch::{Posted, Verb};

/// Work requests and their scatter-gather lists, reused from post to post: the
/// device has copied them when posting returns.
pub(super) struct Chain {
    requests: Box<[ffi::SendRequest]>,
    stretches: Box<[ffi::ScatterGather]>,
}

/// The memory of a batch, to the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Local {
    /// Its address.
    pub(super) start: u64,
    /// Its key.
    pub(super) lkey: u32,
    /// The first of the words that verbs without a span have, in posted order: an
    /// atomic for what it finds, a WRITE of a byte for the byte.
    pub(super) extra: usize,
}

/// The memory of a node, to the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remote {
    /// The node's number.
    pub(super) node: u16,
    /// Its key.
    pub(super) rkey: u32,
    /// Its address.
    pub(super) base: u64,
    /// WRITEs up to this size carry their bytes in the work request.
    pub(super) inline_bytes: u32,
}

/// How far a batch was turned into work requests for a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cursor {
    /// Verbs of the batch, those for other nodes included.
    pub(super) verbs: usize,
    /// Words without a span that they have.
    pub(super) extra: usize,
}

/// A list completes when its last request has, so a list of large READs has to be
/// short next to the time within which something has to complete.
const BYTES_MAX: usize = 16 << 20;

impl Chain {
    /// With room for so many work requests.
    pub(super) fn new(requests: usize) -> Self {
        // SAFETY: numbers and addresses may be 0.
        let blank: ffi::SendRequest = unsafe { std::mem::zeroed() };
        let stretch = ffi::ScatterGather { addr: 0, length: 0, lkey: 0 };
        Self { requests: vec![blank; requests].into(), stretches: vec![stretch; requests].into() }
    }

    /// The first request of the list that was built last.
    pub(super) fn first(&mut self) -> *mut ffi::SendRequest {
        self.requests.as_mut_ptr()
    }

    /// Builds a list of at most `room` requests from the verbs for a node that
    /// `from` has not passed; moves `from` behind them. How many there are. All have
    /// the same `id`, and the last alone makes a completion.
    pub(super) fn build(
        &mut self,
        verbs: &[Posted],
        from: &mut Cursor,
        local: Local,
        remote: Remote,
        id: u64,
        room: usize,
    ) -> usize {
        let (mut count, mut bytes) = (0, 0);
        let room = room.min(self.requests.len());
        for posted in &verbs[from.verbs..] {
            let ours = posted.at.node == remote.node && posted.is_pending();
            if ours && (count == room || bytes >= BYTES_MAX) {
                break;
            }
            let word = local.extra + from.extra;
            from.verbs += 1;
            from.extra += usize::from(has_extra(posted));
            if ours {
                let (request, stretch) = (&mut self.requests[count], &mut self.stretches[count]);
                fill(request, stretch, posted, word, local, remote);
                request.wr_id = id;
                bytes += stretch.length as usize;
                count += 1;
            }
        }
        if let Some(last) = count.checked_sub(1) {
            self.requests[last].send_flags |= ffi::SEND_SIGNALED;
            self.link(count);
        }
        count
    }

    /// Sets the addresses of the list.
    fn link(&mut self, count: usize) {
        let stretches = self.stretches.as_mut_ptr();
        let requests = self.requests.as_mut_ptr();
        for number in 0..count {
            let request = requests.wrapping_add(number);
            let next =
                if number + 1 < count { request.wrapping_add(1) } else { std::ptr::null_mut() };
            // SAFETY: there are at least `count` requests.
            unsafe { (*request).next = next };
            // SAFETY: as above.
            unsafe { (*request).sg_list = stretches.wrapping_add(number) };
        }
    }
}

/// Has a verb a word beside the spans? Verbs that have failed keep theirs, so that
/// the places of the others do not change.
pub(super) fn has_extra(posted: &Posted) -> bool {
    !matches!(posted.verb, Verb::Read(_) | Verb::Write(_))
}

#[inline]
fn fill(
    request: &mut ffi::SendRequest,
    stretch: &mut ffi::ScatterGather,
    posted: &Posted,
    extra: usize,
    local: Local,
    remote: Remote,
) {
    let (word, bytes) = match posted.verb {
        Verb::Read(span) | Verb::Write(span) => (span.word, span.bytes() as u32),
        Verb::WriteByte(_) => (extra, 1),
        Verb::Cas { .. } | Verb::Faa(_) => (extra, 8),
    };
    *stretch =
        ffi::ScatterGather { addr: local.start + word as u64 * 8, length: bytes, lkey: local.lkey };
    // A length of 0 means 2 GiB to some devices.
    request.num_sge = i32::from(bytes > 0);
    request.remote_addr = remote.base + posted.at.offset;
    request.send_flags = if posted.fenced { ffi::SEND_FENCE } else { 0 };
    match posted.verb {
        Verb::Read(_) => {
            request.opcode = ffi::WR_RDMA_READ;
            request.rkey_or_compare_add = remote.rkey.into();
        }
        Verb::Write(_) | Verb::WriteByte(_) => {
            request.opcode = ffi::WR_RDMA_WRITE;
            request.rkey_or_compare_add = remote.rkey.into();
            if bytes <= remote.inline_bytes {
                request.send_flags |= ffi::SEND_INLINE;
            }
        }
        Verb::Cas { expected, new } => {
            request.opcode = ffi::WR_ATOMIC_CMP_AND_SWP;
            request.rkey_or_compare_add = expected;
            request.swap = new;
            request.atomic_rkey = remote.rkey;
        }
        Verb::Faa(add) => {
            request.opcode = ffi::WR_ATOMIC_FETCH_AND_ADD;
            request.rkey_or_compare_add = add;
            request.atomic_rkey = remote.rkey;
        }
    }
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
