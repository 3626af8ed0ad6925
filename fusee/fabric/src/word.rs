//! Verbs on words that other threads and processes change at any time.
//!
//! Every access to shared memory is an atomic one of a whole aligned word, so
//! there is no data race and no mixed-size access, whatever others do; what a
//! verb brings may be torn between words, never within one. A byte is written by
//! replacing its word. Other processes count as threads of this program, which
//! is what the hardware makes them.
//!
//! Order. A [`Port`] executes verbs in posted order, across batches too, and
//! others see them so:
//! - Stores of a WRITE are relaxed behind a release fence, loads of a READ are
//!   relaxed before an acquire fence, atomics are acquire and release. Who READs
//!   or CASes a word that a verb stored therefore sees what every verb before
//!   that one stored: a WRITE of an object is seen by whoever sees the word that a
//!   later WRITE or CAS put into a slot. The release fence pairs with the acquire
//!   fence, or with the CAS, of the other port.
//! - A READ may not overtake an earlier store: of two clients that each store and
//!   then READ what the other stores, one sees the other (the duplicate check of
//!   an insert lives on it). Hence a sequentially consistent fence between a
//!   store and the next load; they pair with each other. On x86-64 a locked
//!   instruction is that fence, so there only WRITE before READ pays for one.
//!
//! On x86-64 the acquire and release fences are no instructions.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p fusee-fabric --release --target-dir
//! target/loom loom` runs every interleaving of the tests in `loom_tests`. Under
//! that flag only this file is compiled: mapped memory holds no loom atomics.

use crate::prefetch::{line_to_read, line_to_write};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, fence};
use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, fence};

/// Lines that a long copy asks for ahead of itself: a page of 4 KiB, at whose end
/// the processor's own prefetcher stops. 16 KiB from far memory take a fifth to a quarter less.
const LINES_AHEAD: usize = 64;

/// Is an atomic read-modify-write a full fence by itself?
const ATOMICS_FENCE: bool = cfg!(all(target_arch = "x86_64", not(loom)));

/// One thread's way to shared words.
#[derive(Debug, Default)]
pub(crate) struct Port {
    /// Has there been a store that a load could still overtake?
    unsettled: Cell<bool>,
}

impl Port {
    /// Copies words out.
    #[inline]
    pub(crate) fn read(&self, from: &[AtomicU64], to: &mut [u64]) {
        self.settle();
        let (lines, from_rest) = from.as_chunks::<8>();
        let (to, to_rest) = to.as_chunks_mut::<8>();
        // Most are short, and nothing is to be asked ahead.
        let ahead = lines.get(LINES_AHEAD..).unwrap_or_default();
        for (ahead, (line, to)) in ahead.iter().zip(lines.iter().zip(&mut *to)) {
            line_to_read(ahead);
            copy_out(line, to);
        }
        for (line, to) in lines[ahead.len()..].iter().zip(&mut to[ahead.len()..]) {
            copy_out(line, to);
        }
        for (from, to) in from_rest.iter().zip(to_rest) {
            *to = from.load(Relaxed);
        }
        fence(Acquire);
    }

    /// Copies words in.
    #[inline]
    pub(crate) fn write(&self, to: &[AtomicU64], from: &[u64]) {
        fence(Release);
        let (lines, to_rest) = to.as_chunks::<8>();
        let (from, from_rest) = from.as_chunks::<8>();
        let ahead = lines.get(LINES_AHEAD..).unwrap_or_default();
        for (ahead, (line, from)) in ahead.iter().zip(lines.iter().zip(from)) {
            line_to_write(ahead);
            copy_in(line, from);
        }
        for (line, from) in lines[ahead.len()..].iter().zip(&from[ahead.len()..]) {
            copy_in(line, from);
        }
        for (to, from) in to_rest.iter().zip(from_rest) {
            to.store(*from, Relaxed);
        }
        self.unsettled.set(true);
    }

    /// Replaces byte `number` of a word, and leaves the other seven to others.
    #[inline]
    pub(crate) fn write_byte(&self, to: &AtomicU64, number: u32, value: u8) {
        let shift = 8 * number;
        let mut seen = to.load(Relaxed);
        loop {
            let new = seen & !(0xff << shift) | u64::from(value) << shift;
            match to.compare_exchange_weak(seen, new, SeqCst, Relaxed) {
                Ok(_) => break,
                Err(found) => seen = found,
            }
        }
        self.unsettled.set(!ATOMICS_FENCE);
    }

    /// Compares and swaps; brings what the word was.
    #[inline]
    pub(crate) fn cas(&self, word: &AtomicU64, expected: u64, new: u64) -> u64 {
        self.settle_before_atomic();
        let was = match word.compare_exchange(expected, new, SeqCst, SeqCst) {
            Ok(was) | Err(was) => was,
        };
        self.unsettled.set(!ATOMICS_FENCE);
        was
    }

    /// Adds, wrapping; brings what the word was.
    #[inline]
    pub(crate) fn faa(&self, word: &AtomicU64, add: u64) -> u64 {
        self.settle_before_atomic();
        let was = word.fetch_add(add, SeqCst);
        self.unsettled.set(!ATOMICS_FENCE);
        was
    }

    /// Keeps the next load behind every store so far.
    #[inline]
    fn settle(&self) {
        if self.unsettled.replace(false) {
            fence(SeqCst);
        }
    }

    /// An atomic loads too, also when it then stores nothing.
    #[inline]
    fn settle_before_atomic(&self) {
        if !ATOMICS_FENCE {
            self.settle();
        }
    }
}

#[inline]
fn copy_out(line: &[AtomicU64; 8], to: &mut [u64; 8]) {
    for (from, to) in line.iter().zip(to) {
        *to = from.load(Relaxed);
    }
}

#[inline]
fn copy_in(line: &[AtomicU64; 8], from: &[u64; 8]) {
    for (to, from) in line.iter().zip(from) {
        to.store(*from, Relaxed);
    }
}
