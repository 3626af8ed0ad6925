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
        Self { blocks, reserved }
    }

    fn count(&self, state: BlockState) -> usize {
        self.blocks.iter().filter(|(_, entry)| entry.state == state).count()
    }

    fn handle(&mut self, request: Request) -> Response {
        match request {
            Request::Allocate { client, class, reserve } => {
                let free = self.count(BlockState::Free);
                let orphan = |(_, entry): &&mut (Address, BlockEntry)| {
                    entry.state == BlockState::Orphan && entry.class == class
                };
                let adopted = self
                    .blocks
                    .iter()
                    .any(|(_, e)| e.state == BlockState::Orphan && e.class == class);
                let found = if adopted {
                    self.blocks.iter_mut().find(orphan)
                } else if reserve || free > self.reserved {
                    self.blocks.iter_mut().find(|(_, entry)| entry.state == BlockState::Free)
                } else {
                    None
                };
                let Some((block, entry)) = found else {
                    return Response::Refused(Refusal::Full);
                };
                *entry = BlockEntry { state: BlockState::Owned, class, client };
                Response::Allocated { block: *block, adopted }
            }
            Request::Return { client, block } => {
                let mine = self.blocks.iter_mut().find(|(at, entry)| {
                    *at == block && entry.state == BlockState::Owned && entry.client == client
                });
                let Some((_, entry)) = mine else {
                    return Response::Refused(Refusal::NotOwner);
                };
                *entry = BlockEntry::default();
                Response::Done
            }
            Request::Leave { client } => {
                for (_, entry) in &mut self.blocks {
                    if entry.state == BlockState::Owned && entry.client == client {
                        entry.state = BlockState::Orphan;
                    }
                }
                Response::Done
            }
            Request::Join { .. } => Response::Refused(Refusal::NotOwner),
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Allocate { client: u32, class: u8, reserve: bool },
    Return { client: u32, block: prop::sample::Index },
    ReturnOwn { block: prop::sample::Index },
    Leave { client: u32 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1..5u32, 0..3u8, prop::bool::weighted(0.2))
            .prop_map(|(client, class, reserve)| Step::Allocate { client, class, reserve }),
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
                Step::Allocate { client, class, reserve } => Request::Allocate {
                    client: *client, class: Class::new(*class), reserve: *reserve,
                },
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
                    Change::Departed { .. } | Change::Entries { .. } => prop_assert!(false, "blocks know no members"),
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
    blocks.handle(Request::Allocate { client, class: Class::new(class), reserve }).response
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
