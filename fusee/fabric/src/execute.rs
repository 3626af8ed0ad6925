//! The one executor of verbs on mapped memory: by the thread that posts them on
//! shared memory, by a thread of the memory node for those that arrive by TCP.

use crate::prefetch::{line_to_read, line_to_write};
use crate::word::Port;
use crate::{Counters, Memory, VERB_KINDS, VerbKind};
use std::sync::atomic::AtomicU64;

/// One thread's way to the words of any memory.
#[derive(Debug, Default)]
pub(crate) struct Executor {
    port: Port,
}

/// Each executes a verb and brings what an atomic found, or 0; `None` if the memory has no
/// such place.
impl Executor {
    #[inline]
    pub(crate) fn read(
        &self,
        target: &Memory,
        offset: u64,
        to: &mut [u64],
        tally: &mut Tally,
    ) -> Option<u64> {
        self.port.read(target.range(offset, to.len())?, to);
        tally.bytes_read += size_of_val(to) as u64;
        tally.count(VerbKind::Read);
        Some(0)
    }

    #[inline]
    pub(crate) fn write(
        &self,
        target: &Memory,
        offset: u64,
        from: &[u64],
        tally: &mut Tally,
    ) -> Option<u64> {
        self.port.write(target.range(offset, from.len())?, from);
        tally.bytes_written += size_of_val(from) as u64;
        tally.count(VerbKind::Write);
        Some(0)
    }

    #[inline]
    pub(crate) fn write_byte(
        &self,
        target: &Memory,
        offset: u64,
        value: u8,
        tally: &mut Tally,
    ) -> Option<u64> {
        self.port.write_byte(target.word(offset)?, (offset % 8) as u32, value);
        tally.bytes_written += 1;
        tally.count(VerbKind::Write);
        Some(0)
    }

    #[inline]
    pub(crate) fn cas(
        &self,
        target: &Memory,
        offset: u64,
        expected: u64,
        new: u64,
        tally: &mut Tally,
    ) -> Option<u64> {
        let found = self.port.cas(target.word(offset)?, expected, new);
        tally.count(VerbKind::Cas);
        Some(found)
    }

    #[inline]
    pub(crate) fn faa(
        &self,
        target: &Memory,
        offset: u64,
        add: u64,
        tally: &mut Tally,
    ) -> Option<u64> {
        let found = self.port.faa(target.word(offset)?, add);
        tally.count(VerbKind::Faa);
        Some(found)
    }
}

/// What one batch adds to the counters.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) verbs: [u64; VERB_KINDS],
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    pub(crate) out_of_range: u64,
    pub(crate) failed: u64,
}

impl Tally {
    #[inline]
    fn count(&mut self, kind: VerbKind) {
        self.verbs[kind as usize] += 1;
    }

    /// Counts a batch.
    #[inline]
    pub(crate) fn add_to(&self, counters: &Counters) {
        counters.count(self.verbs, self.bytes_read, self.bytes_written);
        if self.failed > 0 {
            counters.count_failed(self.failed);
        }
        if self.out_of_range > 0 {
            // Said once: a damaged pool would fill the log, and the counter goes on.
            if counters.out_of_range() == 0 {
                tracing::error!("a verb outside of the pool's memory: words of it are damaged");
            }
            counters.count_out_of_range(self.out_of_range);
        }
    }
}

/// Lines of a target that are asked for ahead. The processor's own prefetcher
/// has seen the pattern by then.
const LINES_AHEAD: usize = 4;
const WORDS_PER_LINE: usize = 8;

/// Asks for the first lines of a place, to read or to write them, so that the
/// cache misses of a batch overlap.
#[inline]
pub(crate) fn approach(memory: &Memory, offset: u64, words: usize, to_read: bool) {
    if to_read {
        ask_ahead(memory, offset, words, line_to_read);
    } else {
        ask_ahead(memory, offset, words, line_to_write);
    }
}

#[inline]
fn ask_ahead(memory: &Memory, offset: u64, words: usize, line: impl Fn(*const AtomicU64)) {
    // Wherever a damaged word leads: asking for a line that is not there does nothing.
    let start = memory.words().as_ptr().wrapping_byte_add(offset as usize);
    line(start);
    // The less there is to do for one place, the more of them the processor looks for at
    // once, and most are a single word.
    if words > 1 {
        // A line that the range only touches with its end is one more.
        let first = (offset / 8) as usize % WORDS_PER_LINE;
        let lines = (first + words).div_ceil(WORDS_PER_LINE).min(LINES_AHEAD);
        for number in 1..lines {
            line(start.wrapping_add(number * WORDS_PER_LINE));
        }
    }
}
