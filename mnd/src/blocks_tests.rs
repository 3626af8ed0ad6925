//! Blocks against a naive model that scans everything on every request.

use super::*;
use fusee_layout::PoolParams;
use proptest::prelude::*;
use std::collections::HashMap;

fn geometry(blocks_per_region: u64, nodes: u16) -> Arc<Geometry> {
    let region_bytes = 1 << 16;
    let params = PoolParams {
        node_bytes: 6 * region_bytes + 8192,
        region_bytes,
        block_bytes: region_bytes / blocks_per_region,
        index_regions: 1,
        subtables: 1,
        groups: 10,
        clients_max: 4,
        ..PoolParams::for_memory(64 << 20, nodes, 1, 1).unwrap()
    };
    Arc::new(Geometry::new(params).unwrap())
}

/// Every block of the node in address order, with its entry.
struct Naive {
    blocks: Vec<(Address, BlockEntry)>,
    reserved: usize,
    expelled: Vec<u32>,
}

impl Naive {
    fn new(geometry: &Geometry, node: u16) -> Self {
        let mut blocks = Vec::new();
        for region in geometry.data_regions() {
            for block in 0..geometry.blocks_per_region() {
                if geometry.placement.region(region)[0].node == node {
                    blocks.push((geometry.block(region, block), BlockEntry::default()));
                }
            }
        }
        let reserved = if blocks.len() > 4 { (blocks.len() / 64).max(1) } else { 0 };
        Self { blocks, reserved, expelled: Vec::new() }
    }

    fn count(&self, state: BlockState) -> usize {
        self.blocks.iter().filter(|(_, entry)| entry.state == state).count()
    }

    fn handle(&mut self, request: Request) -> Response {
        match request {
            Request::Allocate { client, class, reserve, fresh } => {
                if self.expelled.contains(&client) {
                    return Response::Refused(Refusal::NotOwner);
                }
                let orphan = |room: Room| {
                    self.blocks.iter().position(|(_, e)| {
                        e.state == BlockState::Orphan && e.class == class && e.room == room
                    })
                };
                let offered = orphan(Room::Unused).or_else(|| orphan(Room::Freed));
                let may = reserve || self.count(BlockState::Free) > self.reserved;
                let free = self.blocks.iter().position(|(_, e)| e.state == BlockState::Free);
                let found = offered
                    .filter(|_| !fresh)
                    .or(free.filter(|_| may))
                    .or(offered)
                    .or_else(|| orphan(Room::Unknown));
                let Some(found) = found else {
                    return Response::Refused(Refusal::Full);
                };
                self.give(found, client, class)
            }
            Request::Adopt { client, block } => {
                let found = self
                    .blocks
                    .iter()
                    .position(|(at, e)| *at == block && e.state == BlockState::Orphan);
                match found.filter(|_| !self.expelled.contains(&client)) {
                    Some(found) => self.give(found, client, self.blocks[found].1.class),
                    None => Response::Refused(Refusal::NotOwner),
                }
            }
            Request::Offer { client, block, room } => {
                let found = self.blocks.iter_mut().find(|(at, entry)| {
                    *at == block && entry.state != BlockState::Free && entry.client == client
                });
                let Some((_, entry)) = found else {
                    return Response::Refused(Refusal::NotOwner);
                };
                entry.room = room;
                Response::Done
            }
            Request::Expel { client } => {
                self.expelled.push(client);
                Response::Done
            }
            Request::Return { client, block } => {
                let mine = self.blocks.iter_mut().find(|(at, entry)| {
                    *at == block
                        && entry.state == BlockState::Owned
                        && entry.client == client
                        && !self.expelled.contains(&client)
                });
                let Some((_, entry)) = mine else {
                    return Response::Refused(Refusal::NotOwner);
                };
                *entry = BlockEntry { turn: entry.turn, ..BlockEntry::default() };
                Response::Done
            }
            Request::Leave { client } => {
                for (_, entry) in &mut self.blocks {
                    if entry.state == BlockState::Owned && entry.client == client {
                        entry.state = BlockState::Orphan;
                    }
                }
                self.expelled.retain(|&expelled| expelled != client);
                Response::Done
            }
            Request::Join { .. } | Request::Recover { .. } => Response::Refused(Refusal::NotOwner),
        }
    }

    fn give(&mut self, number: usize, client: u32, class: Class) -> Response {
        let (block, entry) = &mut self.blocks[number];
        let adopted = entry.state == BlockState::Orphan;
        let turn = if adopted { entry.turn } else { entry.turn.wrapping_add(1) };
        let room = Room::Unknown;
        *entry = BlockEntry { state: BlockState::Owned, class, client, room, turn };
        Response::Allocated { block: *block, adopted }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Allocate { client: u32, class: u8, reserve: bool, fresh: bool },
    Adopt { client: u32, block: prop::sample::Index },
    Offer { block: prop::sample::Index, room: Room },
    Expel { client: u32 },
    Return { client: u32, block: prop::sample::Index },
    ReturnOwn { block: prop::sample::Index },
    Leave { client: u32 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1..5u32, 0..3u8, prop::bool::weighted(0.2), any::<bool>()).prop_map(
            |(client, class, reserve, fresh)| Step::Allocate { client, class, reserve, fresh }
        ),
        1 => (1..5u32, any::<prop::sample::Index>())
            .prop_map(|(client, block)| Step::Adopt { client, block }),
        2 => (any::<prop::sample::Index>(), prop::sample::select(vec![
            Room::Unknown, Room::Freed, Room::Unused,
        ])).prop_map(|(block, room)| Step::Offer { block, room }),
        1 => (1..5u32).prop_map(|client| Step::Expel { client }),
        1 => (1..5u32, any::<prop::sample::Index>())
            .prop_map(|(client, block)| Step::Return { client, block }),
        3 => any::<prop::sample::Index>().prop_map(|block| Step::ReturnOwn { block }),
        1 => (1..5u32).prop_map(|client| Step::Leave { client }),
    ];
    prop::collection::vec(step, 1..400)
}

proptest! {
    #[test]
    fn blocks_are_given_as_a_scan_of_all_would_give_them(
        steps in steps(), per_region in prop::sample::select(vec![2u64, 4, 16, 64]), nodes in 1..=3u16,
    ) {
        let geometry = geometry(per_region, nodes);
        let mut blocks = Blocks::new(geometry.clone(), 0);
        let mut naive = Naive::new(&geometry, 0);
        // What the host's memory comes to hold.
        let mut table: HashMap<Address, BlockEntry> = HashMap::new();
        for step in steps {
            let any = |index: &prop::sample::Index| {
                naive.blocks.get(index.index(naive.blocks.len().max(1))).copied()
                    .unwrap_or((Address::new(64), BlockEntry::default()))
            };
            let request = match &step {
                Step::Allocate { client, class, reserve, fresh } => Request::Allocate {
                    client: *client, class: Class::new(*class), reserve: *reserve, fresh: *fresh,
                },
                Step::Adopt { client, block } => Request::Adopt { client: *client, block: any(block).0 },
                Step::Offer { block, room } => {
                    let (block, entry) = any(block);
                    Request::Offer { client: entry.client, block, room: *room }
                }
                Step::Expel { client } => Request::Expel { client: *client },
                Step::Return { client, block } => Request::Return { client: *client, block: any(block).0 },
                Step::ReturnOwn { block } => {
                    let (block, entry) = any(block);
                    Request::Return { client: entry.client, block }
                }
                Step::Leave { client } => Request::Leave { client: *client },
            };
            let answer = blocks.handle(request);
            prop_assert_eq!(answer.response, naive.handle(request), "{:?}", request);
            let mut zeroed = None;
            for change in answer.changes {
                match change {
                    Change::Entry { at, entry } => {
                        if entry.state == BlockState::Free {
                            prop_assert_eq!(zeroed.take(), Some(at), "zeroed before it is free");
                        }
                        table.insert(at, entry);
                    }
                    Change::Zero { block } => {
                        let (region, number, start) = geometry.block_of(block).unwrap();
                        prop_assert_eq!(start, block);
                        zeroed = Some(geometry.block_entry(region, number));
                    }
                    Change::Departed { .. } | Change::Entries { .. } | Change::Expelled { .. } => prop_assert!(false, "blocks know no members"),
                }
            }
            for (block, entry) in &naive.blocks {
                let (region, number, _) = geometry.block_of(*block).unwrap();
                let at = geometry.block_entry(region, number);
                prop_assert_eq!(table.get(&at).copied().unwrap_or_default(), *entry);
            }
            let statistics = blocks.statistics();
            prop_assert_eq!(statistics.free as usize, naive.count(BlockState::Free));
            prop_assert_eq!(statistics.owned as usize, naive.count(BlockState::Owned));
            prop_assert_eq!(statistics.orphans as usize, naive.count(BlockState::Orphan));
        }
    }
}

fn allocate(blocks: &mut Blocks, client: u32, class: u8, reserve: bool) -> Response {
    let class = Class::new(class);
    blocks.handle(Request::Allocate { client, class, reserve, fresh: false }).response
}

#[test]
fn the_last_blocks_are_for_deletes() {
    let mut blocks = Blocks::new(geometry(64, 1), 0);
    let all = blocks.statistics();
    assert_eq!(all.reserved, (all.free / 64).max(1));
    let mut given = 0;
    while let Response::Allocated { .. } = allocate(&mut blocks, 1, 0, false) {
        given += 1;
    }
    assert_eq!(given, all.free - all.reserved);
    for _ in 0..all.reserved {
        assert!(matches!(allocate(&mut blocks, 1, 0, true), Response::Allocated { .. }));
    }
    assert_eq!(allocate(&mut blocks, 1, 0, true), Response::Refused(Refusal::Full));
    assert_eq!(blocks.statistics().reserved, 0);
}

#[test]
fn nobody_and_the_departed_own_nothing() {
    let mut blocks = Blocks::new(geometry(4, 1), 0);
    let refused = Response::Refused(Refusal::NotOwner);
    assert_eq!(allocate(&mut blocks, 0, 0, false), refused);
    assert_eq!(allocate(&mut blocks, u32::MAX, 0, false), refused);
    let too_large = allocate(&mut blocks, 1, 63, false);
    assert_eq!(too_large, Response::Refused(Refusal::Full));
    let Response::Allocated { block, .. } = allocate(&mut blocks, 1, 0, false) else {
        panic!("there are free blocks");
    };
    let inside = Request::Return { client: 1, block: block.plus(64) };
    assert_eq!(blocks.handle(inside).response, refused);
    let far = Request::Return { client: 1, block: Address::new((1 << 48) - 64) };
    assert_eq!(blocks.handle(far).response, refused);
}

#[test]
fn an_orphan_goes_out_when_it_has_room_or_nothing_else_is_left() {
    let mut blocks = Blocks::new(geometry(4, 1), 0);
    let given = |response| match response {
        Response::Allocated { block, adopted } => (block, adopted),
        other => panic!("{other:?}"),
    };
    let mut own: Vec<Address> =
        (0..3).map(|_| given(allocate(&mut blocks, 1, 0, false)).0).collect();
    let offer = |block, room| Request::Offer { client: 1, block, room };
    assert_eq!(blocks.handle(offer(own[1], Room::Freed)).response, Response::Done);
    assert_eq!(blocks.handle(Request::Leave { client: 1 }).response, Response::Done);
    assert_eq!(blocks.handle(offer(own[2], Room::Unused)).response, Response::Done);
    assert_eq!(given(allocate(&mut blocks, 2, 0, false)), (own[2], true), "the best room first");
    let class = Class::new(0);
    let fresh = Request::Allocate { client: 2, class, reserve: false, fresh: true };
    assert!(!given(blocks.handle(fresh).response).1, "a free one was asked for");
    assert_eq!(given(allocate(&mut blocks, 2, 0, false)), (own[1], true));
    assert!(!given(allocate(&mut blocks, 2, 0, false)).1, "the third may be full");
    let last = loop {
        match allocate(&mut blocks, 2, 0, false) {
            Response::Allocated { block, adopted: true } => break block,
            Response::Allocated { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(last, own.remove(0));
    let stranger = Request::Offer { client: 1, block: last, room: Room::Freed };
    assert_eq!(blocks.handle(stranger).response, Response::Refused(Refusal::NotOwner));
}
