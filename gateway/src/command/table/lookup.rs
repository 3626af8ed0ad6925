//! From a name to its command: one hash, one comparison.

use super::{COMMANDS, CommandId};

/// No command's name is longer.
const NAME_BYTES_MAX: usize = 16;
/// More than four times the commands, so that probes rarely collide.
const PLACES: usize = 1024;
const EMPTY: u8 = u8::MAX;

/// For each place a name's bits and its command. Built by the compiler.
static PLACED: [(u128, CommandId); PLACES] = place_all();

/// A name's bytes with the bit set that makes capitals small. Two names that
/// are alike then are the same name but for case, as long as the command's
/// consists of letters; `host:` is also found as `host\x1a`, which harms nobody.
#[inline]
const fn bits(name: &[u8]) -> u128 {
    let mut value = 0;
    let mut index = name.len();
    while index > 0 {
        index -= 1;
        value = value << 8 | (name[index] | 0x20) as u128;
    }
    value
}

#[inline]
const fn place(bits: u128) -> usize {
    let folded = (bits ^ (bits >> 64)) as u64;
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize
}
const _: () = assert!(PLACES == 1 << (64 - 54));

const fn place_all() -> [(u128, CommandId); PLACES] {
    assert!(COMMANDS.len() < EMPTY as usize && COMMANDS.len() * 4 < PLACES);
    let mut places = [(0, EMPTY); PLACES];
    let mut id = 0;
    while id < COMMANDS.len() {
        let name = COMMANDS[id].name.as_bytes();
        let mut index = 0;
        let mut whole = true;
        while index < name.len() {
            whole &= name[index] != b'|';
            index += 1;
        }
        if whole {
            assert!(name.len() <= NAME_BYTES_MAX);
            let bits = bits(name);
            let mut at = place(bits);
            while places[at].1 != EMPTY {
                at = (at + 1) % PLACES;
            }
            places[at] = (bits, id as CommandId);
        }
        id += 1;
    }
    places
}

#[inline]
pub(super) fn find(name: &[u8]) -> Option<CommandId> {
    let bits = match name.len() {
        0 | 17.. => return None,
        // A constant length unrolls; most names are GET and SET.
        3 => bits(&name[..3]),
        _ => bits(name),
    };
    let mut at = place(bits);
    loop {
        let (placed, id) = PLACED[at];
        if id == EMPTY {
            return None;
        }
        if placed == bits && COMMANDS[usize::from(id)].name.len() == name.len() {
            return Some(id);
        }
        at = (at + 1) % PLACES;
    }
}
