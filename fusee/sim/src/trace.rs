//! What happened, verb by verb, for a person to read.

use crate::Seen;
use fusee_fabric::Verb;
use fusee_layout::{Address, BUCKET_BYTES, GROUP_BYTES, Geometry, MEMBER_BYTES, NodeAddress, Slot};

/// Lines of one history, with names for the places of its pool.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    lines: Option<Vec<String>>,
    geometry: Option<Geometry>,
}

impl Trace {
    /// Begins to keep lines.
    pub(crate) fn begin(&mut self, geometry: Option<Geometry>) {
        self.lines = Some(Vec::new());
        self.geometry = geometry;
    }

    pub(crate) fn is_on(&self) -> bool {
        self.lines.is_some()
    }

    pub(crate) fn push(&mut self, now_ns: u64, client: u32, what: &str) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{now_ns:>10} client {client}  {what}"));
        }
    }

    pub(crate) fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or_default()
    }

    /// A verb that took effect, whole or in part.
    pub(crate) fn verb(&self, seen: &Seen, how: &str, words: &[u64], found: u64) -> String {
        let place = self.place(seen.at);
        let what = match seen.verb {
            Verb::Read(_) | Verb::Write(_) => {
                let name = if matches!(seen.verb, Verb::Read(_)) { "READ" } else { "WRITE" };
                let slots = if self.holds_slots(seen.at) {
                    let live = words.iter().enumerate().filter(|(_, word)| **word != 0);
                    live.map(|(at, &word)| format!(" {at}:{}", slot_text(word))).collect()
                } else {
                    String::new()
                };
                format!("{name} {} bytes{slots}", words.len() * 8)
            }
            Verb::WriteByte(value) => format!("WRITE byte {value}"),
            Verb::Cas { expected, new } => {
                let outcome = if found == expected {
                    "done".to_owned()
                } else {
                    format!("failed, found {}", slot_text(found))
                };
                format!("CAS {} -> {}: {outcome}", slot_text(expected), slot_text(new))
            }
            Verb::Faa(add) => format!("FAA {add}, found {found}"),
        };
        let fenced = if seen.fenced { "fenced " } else { "" };
        format!("{place}  {fenced}{how}{what}")
    }

    /// Names a place as far as the pool's geometry is known.
    fn place(&self, at: NodeAddress) -> String {
        let NodeAddress { node, offset } = at;
        let unknown = || format!("node {node} {offset:#x}");
        let Some(geometry) = &self.geometry else {
            return unknown();
        };
        if offset < Geometry::meta_bytes(&geometry.params) {
            let entry = offset.saturating_sub(Geometry::member_at(0)) / MEMBER_BYTES as u64;
            return format!("node {node} member {entry}");
        }
        let Some((address, copy)) = address_of(geometry, at) else {
            return unknown();
        };
        let copy = if copy == 0 { "primary".to_owned() } else { format!("backup {}", copy - 1) };
        if let Some((region, block, start)) = geometry.block_of(address) {
            let within = address.get() - start.get();
            return format!("node {node} {copy} block {region}.{block}+{within:#x} {address:?}");
        }
        let in_group = address.get() % GROUP_BYTES as u64;
        let group = address.get() / GROUP_BYTES as u64;
        let bucket = in_group / BUCKET_BYTES as u64;
        let slot = in_group % BUCKET_BYTES as u64 / 8;
        match slot.checked_sub(1) {
            Some(slot) => format!("node {node} {copy} slot {group}.{bucket}.{slot}"),
            None => format!("node {node} {copy} bucket {group}.{bucket}"),
        }
    }

    /// Is the place in the index, so that its words are slots?
    fn holds_slots(&self, at: NodeAddress) -> bool {
        self.geometry.as_ref().is_some_and(|geometry| {
            address_of(geometry, at).is_some_and(|(address, _)| {
                address.get() / geometry.params.region_bytes
                    < u64::from(geometry.params.index_regions)
            })
        })
    }
}

/// A word as a slot, if it can be one.
fn slot_text(word: u64) -> String {
    match Slot::from_word(word) {
        Some(slot) => format!("{slot:?}"),
        None => format!("{word:#x}"),
    }
}

/// The pool address of a place, and which copy the place is.
pub fn address_of(geometry: &Geometry, at: NodeAddress) -> Option<(Address, usize)> {
    let bytes = geometry.params.region_bytes;
    (0..geometry.placement.regions()).find_map(|region| {
        geometry.placement.region(region).iter().enumerate().find_map(|(copy, replica)| {
            let within = at.offset.checked_sub(replica.base).filter(|&within| within < bytes)?;
            (replica.node == at.node)
                .then(|| (Address::new(u64::from(region) * bytes + within), copy))
        })
    })
}
