//! Work requests, field by field.

use super::*;
use crate::Batch;
use fusee_layout::NodeAddress;

const LOCAL: Local = Local { start: 0x1000, lkey: 7, extra: 100 };
const REMOTE: Remote = Remote { node: 1, rkey: 9, base: 0x10_0000, inline_bytes: 64 };

fn at(node: u16, offset: u64) -> NodeAddress {
    NodeAddress { node, offset }
}

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
    assert_eq!(chain.build(batch.posted(), &mut from, LOCAL, REMOTE, 77, 16), 6);
    assert_eq!(from, Cursor { verbs: 8, extra: 4 });
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
        counts.push(chain.build(batch.posted(), &mut from, LOCAL, REMOTE, 0, 2));
        for (request, stretch) in list(&mut chain) {
            let word = (stretch.addr - LOCAL.start) / 8 - LOCAL.extra as u64;
            offsets.push((request.remote_addr - REMOTE.base, word));
        }
    }
    assert_eq!(counts, [2, 2]);
    assert_eq!(offsets, [(0, 1), (16, 5), (24, 7), (32, 9)], "a failed verb keeps its word");
}

#[test]
fn a_list_of_large_reads_is_short() {
    let mut batch = Batch::new();
    for number in 0..4 {
        batch.read(at(1, number << 23), 8 << 20);
    }
    let mut chain = Chain::new(16);
    let mut from = Cursor::default();
    assert_eq!(chain.build(batch.posted(), &mut from, LOCAL, REMOTE, 0, 16), 2);
    assert_eq!(chain.build(batch.posted(), &mut from, LOCAL, REMOTE, 0, 16), 2);
    assert_eq!(chain.build(batch.posted(), &mut from, LOCAL, REMOTE, 0, 16), 0);
}

#[test]
fn a_read_of_nothing_has_no_stretch() {
    let mut batch = Batch::new();
    batch.read(at(1, 0), 0);
    let mut chain = Chain::new(1);
    chain.build(batch.posted(), &mut Cursor::default(), LOCAL, REMOTE, 0, 1);
    assert_eq!(list(&mut chain)[0].0.num_sge, 0);
}
