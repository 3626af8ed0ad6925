//! When the verbs of a batch take effect: in any order that a fabric may choose.
//!
//! What `fusee_fabric` promises, and nothing beyond it, is kept: a verb waits
//! for the WRITEs posted before it to the same node, and if it is fenced for
//! everything before it there. READs and WRITEs of more than a word may take
//! effect in several moments.

use crate::{Delays, Rng};
use fusee_fabric::{Posted, Verb};

/// How READs and WRITEs come apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tearing {
    /// How many in a hundred do.
    pub percent: u64,
    /// Do READs come apart within a 64-byte line? They do on Soft-RoCE.
    pub within_lines: bool,
}

impl Tearing {
    /// Everything is whole.
    pub const NONE: Self = Self { percent: 0, within_lines: false };
}

/// A moment at which a verb, or a part of it, takes effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Moment {
    /// Nanoseconds after the batch was posted.
    pub(crate) after_ns: u64,
    /// The verb's number in the batch.
    pub(crate) verb: usize,
    /// Which of its words; `None` for all that it is.
    pub(crate) words: Option<Vec<usize>>,
    /// Is it the verb's last moment?
    pub(crate) last: bool,
}

const LINE_BYTES: u64 = 64;
const PARTS_MAX: u64 = 4;

/// Draws the moments of a batch.
pub(crate) fn schedule(
    posted: &[Posted],
    delays: &Delays,
    tearing: Tearing,
    rng: &mut Rng,
) -> Vec<Moment> {
    let mut moments = Vec::with_capacity(posted.len() + 4);
    let mut ends: Vec<u64> = Vec::with_capacity(posted.len());
    for (number, verb) in posted.iter().enumerate() {
        let after = posted[..number]
            .iter()
            .zip(&ends)
            .filter(|(earlier, _)| earlier.at.node == verb.at.node && waits(verb, earlier))
            .map(|(_, &end)| end)
            .max()
            .unwrap_or(0);
        let first = moments.len();
        let mut end = 0;
        for words in parts(verb, tearing, rng) {
            // A WRITE's parts follow each other; a READ's come as they like.
            let from = if is_write(verb) { after.max(end) } else { after };
            let after_ns = from + delays.verb_ns(rng);
            end = end.max(after_ns);
            moments.push(Moment { after_ns, verb: number, words, last: false });
        }
        // Of parts that fall on one moment the executor runs the first first.
        let last = (first..moments.len()).max_by_key(|&at| (moments[at].after_ns, at));
        moments[last.expect("a verb has a moment")].last = true;
        ends.push(end);
    }
    moments
}

/// Must `verb` wait for one posted before it to the same node?
fn waits(verb: &Posted, earlier: &Posted) -> bool {
    is_write(earlier) || verb.fenced
}

fn is_write(verb: &Posted) -> bool {
    matches!(verb.verb, Verb::Write(_) | Verb::WriteByte(_))
}

/// Divides a verb into the parts that take effect at once.
fn parts(verb: &Posted, tearing: Tearing, rng: &mut Rng) -> Vec<Option<Vec<usize>>> {
    let (Verb::Read(span) | Verb::Write(span)) = verb.verb else {
        return vec![None];
    };
    let words = span.bytes() / 8;
    if words < 2 || !rng.percent(tearing.percent) {
        return vec![None];
    }
    let write = is_write(verb);
    let by_word = tearing.within_lines && !write;
    let granule = |word: usize| {
        let at = verb.at.offset + 8 * word as u64;
        if by_word { at / 8 } else { at / LINE_BYTES }
    };
    let count = rng.between(2, PARTS_MAX) as usize;
    let mut parts = vec![Vec::new(); count];
    let mut part = 0;
    for word in 0..words {
        if word == 0 || granule(word) != granule(word - 1) {
            part = if write {
                // NICs write in address order.
                rng.between(part as u64, count as u64 - 1) as usize
            } else {
                rng.below(count as u64) as usize
            };
        }
        parts[part].push(word);
    }
    parts.into_iter().filter(|words| !words.is_empty()).map(Some).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fusee_fabric::Batch;
    use fusee_layout::NodeAddress;

    const TORN: Tearing = Tearing { percent: 100, within_lines: true };

    fn at(node: u16, offset: u64) -> NodeAddress {
        NodeAddress { node, offset }
    }

    /// Over many seeds: was verb `b`, in any of its parts, ever before the end of `a`?
    fn overtakes(batch: &Batch, a: usize, b: usize) -> bool {
        (0..300).any(|seed| {
            let delays = Delays { slow_percent: 30, ..Delays::EVEN };
            let moments = schedule(batch.posted(), &delays, TORN, &mut Rng::new(seed));
            let end = moments.iter().filter(|m| m.verb == a).map(|m| m.after_ns).max();
            moments.iter().filter(|m| m.verb == b).any(|m| Some(m.after_ns) < end)
        })
    }

    #[test]
    fn nothing_overtakes_a_write_on_its_node_and_everything_elsewhere_may() {
        let mut batch = Batch::new();
        let span = batch.stage(256);
        batch.write(at(0, 0), span);
        batch.write(at(0, 512), span);
        batch.read(at(0, 0), 256);
        batch.cas(at(0, 1024), 0, 1);
        batch.write_byte(at(1, 3), 7);
        for later in 1..4 {
            assert!(!overtakes(&batch, 0, later), "verb {later}");
        }
        assert!(overtakes(&batch, 0, 4), "another node");
    }

    #[test]
    fn a_verb_overtakes_reads_and_atomics_unless_it_is_fenced() {
        let mut batch = Batch::new();
        batch.cas(at(0, 0), 0, 1);
        batch.read(at(0, 64), 64);
        batch.read(at(0, 128), 64);
        batch.fence();
        batch.read(at(0, 192), 64);
        batch.faa(at(0, 256), 1);
        assert!(overtakes(&batch, 0, 1));
        assert!(overtakes(&batch, 0, 2));
        assert!(overtakes(&batch, 1, 2));
        for earlier in 0..3 {
            assert!(!overtakes(&batch, earlier, 3), "verb {earlier}");
        }
        assert!(overtakes(&batch, 3, 4), "the fence holds back one verb alone");
    }

    #[test]
    fn parts_hold_each_word_once_and_a_write_goes_upwards() {
        let mut batch = Batch::new();
        let span = batch.stage(320);
        batch.write(at(0, 32), span);
        batch.read(at(1, 32), 320);
        let mut within_a_line = false;
        for seed in 0..100 {
            let mut moments = schedule(batch.posted(), &Delays::EVEN, TORN, &mut Rng::new(seed));
            moments.sort_by_key(|m| m.after_ns);
            for verb in 0..2 {
                let of = |m: &&Moment| m.verb == verb;
                let words: Vec<usize> =
                    moments.iter().filter(of).filter_map(|m| m.words.clone()).flatten().collect();
                let mut sorted = words.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..40).collect::<Vec<_>>());
                assert!(verb == 1 || words == sorted, "a WRITE went down");
                assert!(moments.iter().rfind(of).is_some_and(|m| m.last));
                assert_eq!(moments.iter().filter(of).filter(|m| m.last).count(), 1);
            }
            let first_line = |m: &&Moment| m.verb == 1 && m.words.iter().flatten().any(|&w| w < 4);
            within_a_line |= moments.iter().filter(first_line).count() > 1;
        }
        assert!(within_a_line);
    }
}
