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
    /// Verbs of the batch that are done with, those for other nodes included.
    pub(super) verbs: usize,
    /// Words without a span that they have.
    pub(super) extra: usize,
    /// Bytes of the verb behind them that pieces have been made of.
    pub(super) bytes: usize,
}

/// A list of work requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Built {
    /// How many.
    pub(super) requests: usize,
    /// What they carry and bring.
    pub(super) bytes: usize,
}

/// A READ or WRITE of more is posted in pieces, so that something completes whenever so
/// much has moved. A device tells nothing of a message before its end: one of 8 MiB is
/// on its way for seconds on a slow network, and nobody could tell that from silence. 64
/// packets of the usual RoCE MTU; 5 us of a network of 100 Gb/s.
pub(super) const PIECE_BYTES: usize = 64 << 10;

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

    /// Builds a list from the verbs for a node that `from` has not passed, and moves
    /// `from` behind them. It has at most `room.requests`, and begins none when it has
    /// `room.bytes`. All have the same `id`, and the last alone makes a completion.
    pub(super) fn build(
        &mut self,
        verbs: &[Posted],
        from: &mut Cursor,
        local: Local,
        remote: Remote,
        id: u64,
        room: Built,
    ) -> Built {
        let mut built = Built::default();
        let requests_max = room.requests.min(self.requests.len());
        while let Some(posted) = verbs.get(from.verbs) {
            let mut done = true;
            if posted.at.node == remote.node && posted.is_pending() {
                if built.requests == requests_max || built.bytes >= room.bytes {
                    break;
                }
                let request = &mut self.requests[built.requests];
                let stretch = &mut self.stretches[built.requests];
                let (word, bytes) = memory_of(posted, local.extra + from.extra);
                let piece = (bytes - from.bytes).min(PIECE_BYTES);
                *stretch = ffi::ScatterGather {
                    addr: local.start + (word * 8 + from.bytes) as u64,
                    length: piece as u32,
                    lkey: local.lkey,
                };
                // A length of 0 means 2 GiB to some devices.
                request.num_sge = i32::from(piece > 0);
                request.wr_id = id;
                request.remote_addr = remote.base + posted.at.offset + from.bytes as u64;
                // Those behind a fenced one wait with it.
                let fenced = posted.fenced && from.bytes == 0;
                request.send_flags = if fenced { ffi::SEND_FENCE } else { 0 };
                fill(request, posted, piece, remote);
                built.requests += 1;
                built.bytes += piece;
                from.bytes += piece;
                done = from.bytes == bytes;
            }
            if done {
                from.verbs += 1;
                from.extra += usize::from(has_extra(posted));
                from.bytes = 0;
            }
        }
        if let Some(last) = built.requests.checked_sub(1) {
            self.requests[last].send_flags |= ffi::SEND_SIGNALED;
            self.link(built.requests);
        }
        built
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

/// How many work requests it takes.
#[inline]
pub(super) fn pieces_of(posted: &Posted) -> usize {
    match posted.verb {
        Verb::Read(span) | Verb::Write(span) => span.bytes().div_ceil(PIECE_BYTES).max(1),
        Verb::WriteByte(_) | Verb::Cas { .. } | Verb::Faa(_) => 1,
    }
}

/// Where in the batch's memory a verb's bytes begin, and how many they are.
#[inline]
fn memory_of(posted: &Posted, extra: usize) -> (usize, usize) {
    match posted.verb {
        Verb::Read(span) | Verb::Write(span) => (span.word, span.bytes()),
        Verb::WriteByte(_) => (extra, 1),
        Verb::Cas { .. } | Verb::Faa(_) => (extra, 8),
    }
}

/// What depends on the verb.
#[inline]
fn fill(request: &mut ffi::SendRequest, posted: &Posted, bytes: usize, remote: Remote) {
    match posted.verb {
        Verb::Read(_) => {
            request.opcode = ffi::WR_RDMA_READ;
            request.rkey_or_compare_add = remote.rkey.into();
        }
        Verb::Write(_) | Verb::WriteByte(_) => {
            request.opcode = ffi::WR_RDMA_WRITE;
            request.rkey_or_compare_add = remote.rkey.into();
            if bytes <= remote.inline_bytes as usize {
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
