//! Work requests, field by field.

use super::*;
use crate::Batch;
use fusee_layout::NodeAddress;

const LOCAL: Local = Local { start: 0x1000, lkey: 7, extra: 100 };
const REMOTE: Remote = Remote { node: 1, rkey: 9, base: 0x10_0000, inline_bytes: 64 };

fn at(node: u16, offset: u64) -> NodeAddress {
    NodeAddress { node, offset }
}

const ROOM: Built = Built { requests: 16, bytes: usize::MAX };

/// The list as the device walks it.
fn list(chain: &mut Chain) -> Vec<(ffi::SendRequest, ffi::ScatterGather)> {
    let (mut next, mut list) = (chain.first(), Vec::new());
    while !next.is_null() {
        // SAFETY: the list was linked by build() and the chain is borrowed.
        let request = unsafe { *next };
        // SAFETY: as above.
        list.push((request, unsafe { *request.sg_list }));
        next = request.next;
    }
    list
}

#[test]
fn verbs_become_requests_of_their_node_in_order_and_the_last_is_signalled() {
    let mut batch = Batch::new();
    let small = batch.stage(64);
    let large = batch.stage(72);
    batch.write(at(1, 8), small);
    batch.read(at(0, 0), 8);
    batch.cas(at(1, 16), 3, 4);
    batch.cas(at(0, 16), 3, 4);
    batch.fence();
    batch.read(at(1, 24), 1000);
    batch.faa(at(1, 32), 5);
    batch.write(at(1, 40), large);
    batch.write_byte(at(1, 49), 6);
    let mut chain = Chain::new(16);
    let mut from = Cursor::default();
    let built = chain.build(batch.posted(), &mut from, LOCAL, REMOTE, 77, ROOM);
    assert_eq!(built, Built { requests: 6, bytes: 64 + 8 + 1000 + 8 + 72 + 1 });
    assert_eq!(from, Cursor { verbs: 8, extra: 4, bytes: 0 });
    let list = list(&mut chain);
    let told: Vec<_> = list
        .iter()
        .map(|(r, s)| (r.opcode, r.send_flags, r.remote_addr - REMOTE.base, s.addr, s.length))
        .collect();
    let extra = LOCAL.start + 8 * LOCAL.extra as u64;
    let (inline, signaled) = (ffi::SEND_INLINE, ffi::SEND_SIGNALED);
    assert_eq!(
        told,
        [
            (ffi::WR_RDMA_WRITE, inline, 8, LOCAL.start, 64),
            (ffi::WR_ATOMIC_CMP_AND_SWP, 0, 16, extra, 8),
            (ffi::WR_RDMA_READ, ffi::SEND_FENCE, 24, LOCAL.start + 64 + 72 + 8, 1000),
            (ffi::WR_ATOMIC_FETCH_AND_ADD, 0, 32, extra + 16, 8),
            (ffi::WR_RDMA_WRITE, 0, 40, LOCAL.start + 64, 72),
            (ffi::WR_RDMA_WRITE, inline | signaled, 49, extra + 24, 1),
        ]
    );
    assert!(list.iter().all(|(r, s)| (r.wr_id, r.num_sge, s.lkey) == (77, 1, 7)));
    let cas = &list[1].0;
    assert_eq!((cas.rkey_or_compare_add, cas.swap, cas.atomic_rkey), (3, 4, 9));
    assert_eq!((list[0].0.rkey_or_compare_add, list[2].0.rkey_or_compare_add), (9, 9));
    assert_eq!((list[3].0.rkey_or_compare_add, list[3].0.atomic_rkey), (5, 9));
}

#[test]
fn what_finds_no_room_comes_with_the_next_list() {
    let mut batch = Batch::new();
    for number in 0..5 {
        batch.faa(at(0, 0), 1);
        batch.faa(at(1, 8 * number), 1);
    }
    batch.fail(3);
    let mut chain = Chain::new(2);
    let mut from = Cursor::default();
    let mut offsets = Vec::new();
    let mut counts = Vec::new();
    while from.verbs < batch.len() {
        let built = chain.build(batch.posted(), &mut from, LOCAL, REMOTE, 0, ROOM);
        counts.push(built.requests);
        for (request, stretch) in list(&mut chain) {
            let word = (stretch.addr - LOCAL.start) / 8 - LOCAL.extra as u64;
            offsets.push((request.remote_addr - REMOTE.base, word));
        }
    }
    assert_eq!(counts, [2, 2]);
    assert_eq!(offsets, [(0, 1), (16, 5), (24, 7), (32, 9)], "a failed verb keeps its word");
}

#[test]
fn large_verbs_go_in_pieces_and_lists_end_when_they_have_their_bytes() {
    let mut batch = Batch::new();
    let large = 2 * PIECE_BYTES + 8;
    batch.cas(at(0, 0), 1, 2);
    let small = batch.stage(8);
    let span = batch.stage(large);
    batch.fence();
    batch.write(at(1, 64), span);
    batch.write(at(1, 8), small);
    batch.cas(at(1, 0), 1, 2);
    batch.read(at(1, 1 << 20), large);
    let pieces: usize = batch.posted().iter().filter(|p| p.at.node == 1).map(pieces_of).sum();
    let mut chain = Chain::new(16);
    let mut from = Cursor::default();
    let room = Built { requests: 4, bytes: PIECE_BYTES + 1 };
    let mut told = Vec::new();
    let mut lists = Vec::new();
    while from.verbs < batch.len() {
        let built = chain.build(batch.posted(), &mut from, LOCAL, REMOTE, 0, room);
        let list = list(&mut chain);
        assert_eq!(built.requests, list.len());
        assert_eq!(built.bytes, list.iter().map(|(_, s)| s.length as usize).sum::<usize>());
        let signaled = list.iter().map(|(r, _)| r.send_flags & ffi::SEND_SIGNALED != 0);
        assert!(signaled.rev().enumerate().all(|(n, signaled)| signaled == (n == 0)));
        lists.push(list.len());
        told.extend(list.iter().map(|(r, s)| {
            let fenced = r.send_flags & ffi::SEND_FENCE != 0;
            (r.opcode, fenced, r.remote_addr - REMOTE.base, s.addr - LOCAL.start, s.length)
        }));
    }
    let (piece, extra) = (PIECE_BYTES as u64, 8 * (LOCAL.extra as u64 + 1));
    let read_to = 8 + large as u64;
    assert_eq!(
        told,
        [
            (ffi::WR_RDMA_WRITE, true, 64, 8, piece as u32),
            (ffi::WR_RDMA_WRITE, false, 64 + piece, 8 + piece, piece as u32),
            (ffi::WR_RDMA_WRITE, false, 64 + 2 * piece, 8 + 2 * piece, 8),
            (ffi::WR_RDMA_WRITE, false, 8, 0, 8),
            (ffi::WR_ATOMIC_CMP_AND_SWP, false, 0, extra, 8),
            (ffi::WR_RDMA_READ, false, 1 << 20, read_to, piece as u32),
            (ffi::WR_RDMA_READ, false, (1 << 20) + piece, read_to + piece, piece as u32),
            (ffi::WR_RDMA_READ, false, (1 << 20) + 2 * piece, read_to + 2 * piece, 8),
        ]
    );
    assert_eq!(lists, [2, 4, 2], "by bytes, by requests, by bytes");
    assert_eq!(pieces, told.len());
}

#[test]
fn a_read_of_nothing_has_no_stretch() {
    let mut batch = Batch::new();
    batch.read(at(1, 0), 0);
    let mut chain = Chain::new(1);
    chain.build(batch.posted(), &mut Cursor::default(), LOCAL, REMOTE, 0, ROOM);
    assert_eq!(list(&mut chain)[0].0.num_sge, 0);
}
