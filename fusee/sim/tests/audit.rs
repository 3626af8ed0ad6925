//! The audit of memory at rest notices what is wrong with it.

use fusee_layout::{Address, Geometry, NodeAddress, Slot};
use fusee_sim::Nodes;
use fusee_sim::history::{Fault, Plan, Scenario, geometry, run_with, stage};

/// Plays histories, damages their memory before the audit, and expects each
/// damage that could be done to be noticed.
fn is_noticed(replicas: u64, damage: fn(&Geometry, &mut Nodes) -> bool) {
    let scenario =
        Scenario { replicas: replicas..=replicas, stops_percent: 0, ..Scenario::default() };
    let mut noticed = 0;
    for seed in 0..40 {
        let done = std::rc::Rc::new(std::cell::Cell::new(false));
        let build = |plan: &Plan| {
            let mut stage = stage(plan);
            let geometry = geometry(plan);
            let (inspect, done) = (stage.inspect, done.clone());
            stage.inspect = Box::new(move |pool, stores| {
                done.set(damage(&geometry, &mut pool.nodes_mut()));
                inspect(pool, stores)
            });
            stage
        };
        let played = run_with(seed, &scenario, build);
        let memory = matches!(&played, Err(failure) if matches!(failure.fault, Fault::Memory(_)));
        assert_eq!(memory, done.get(), "seed {seed}: {played:?}");
        noticed += u32::from(memory);
    }
    assert!(noticed > 5, "only {noticed} histories could be damaged");
}

/// The live slots of the primary, taken ones left out.
fn live(geometry: &Geometry, nodes: &Nodes) -> Vec<(Address, Slot)> {
    let words = geometry.subtable_bytes() / 8;
    (0..words)
        .map(|word| Address::new(word * 8))
        .filter_map(|at| {
            let word = nodes.word(geometry.placement.locate(at, 0));
            let slot = Slot::from_word(word).filter(|slot| slot.is_live())?;
            geometry.block_of(slot.address()).map(|_| (at, slot))
        })
        .collect()
}

fn put_everywhere(geometry: &Geometry, nodes: &mut Nodes, at: Address, word: u64) {
    for at in geometry.placement.locate_all(at) {
        nodes.words_mut(at, 1)[0] = word;
    }
}

#[test]
fn a_backup_that_differs_is_noticed() {
    is_noticed(2, |geometry, nodes| {
        let Some(&(at, _)) = live(geometry, nodes).first() else { return false };
        nodes.words_mut(geometry.placement.locate(at, 1), 1)[0] = 0;
        true
    });
}

#[test]
fn an_object_that_no_slot_names_is_noticed() {
    is_noticed(1, |geometry, nodes| {
        let Some(&(at, slot)) = live(geometry, nodes).first() else { return false };
        put_everywhere(geometry, nodes, at, slot.tombstone().word());
        true
    });
}

#[test]
fn an_object_that_two_slots_name_is_noticed() {
    is_noticed(2, |geometry, nodes| {
        let Some(&(_, slot)) = live(geometry, nodes).first() else { return false };
        let vacant = (1..8)
            .map(|number| Address::new(number * 8))
            .find(|&at| nodes.word(geometry.placement.locate(at, 0)) == 0);
        let Some(vacant) = vacant else { return false };
        put_everywhere(geometry, nodes, vacant, slot.word());
        true
    });
}

#[test]
fn a_live_object_of_which_a_copy_is_damaged_is_noticed() {
    is_noticed(3, |geometry, nodes| {
        let Some(&(_, slot)) = live(geometry, nodes).last() else { return false };
        nodes.words_mut(geometry.placement.locate(slot.address().plus(24), 2), 1)[0] ^= 1 << 40;
        true
    });
}

#[test]
fn a_live_object_that_the_free_map_calls_free_is_noticed() {
    is_noticed(1, |geometry, nodes| {
        let Some(&(_, slot)) = live(geometry, nodes).first() else { return false };
        let (_, _, block) = geometry.block_of(slot.address()).expect("objects are in blocks");
        let layout = geometry.layout(slot.class()).expect("the class is in use");
        let number = layout.number(block, slot.address()).expect("an object starts there");
        let at = geometry.placement.locate(block.plus(number.into()), 0);
        nodes.put_byte(at, slot.generation());
        true
    });
}

#[test]
fn a_free_block_that_is_not_zero_is_noticed() {
    is_noticed(1, |geometry, nodes| {
        let region = geometry.data_regions().start;
        for block in 0..geometry.blocks_per_region() {
            let entry = geometry.placement.locate(geometry.block_entry(region, block), 0);
            if nodes.word(entry) == 0 {
                let NodeAddress { node, offset } =
                    geometry.placement.locate(geometry.block(region, block), 0);
                nodes.put_byte(NodeAddress { node, offset: offset + 77 }, 1);
                return true;
            }
        }
        false
    });
}
