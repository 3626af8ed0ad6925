//! Quiescent counters: when nobody can still hold what was freed.
//!
//! Each operation pins the epoch in which it begins. The epoch advances from e
//! to e + 1 only when no operation pinned at e - 1 is left, and e + 1 is
//! published (WRITTEN to the client table) before operations pin it. So
//! whoever reads `v` after unlinking an object knows: operations that may hold
//! the object pinned at most `v`; once the client publishes `v + 2`, all of
//! those have ended. Memory freed at that moment is reusable after every live
//! client has passed two counters.

use std::cell::Cell;

/// Counters to pass before memory is used again.
pub(crate) const GRACE: u64 = 2;

/// One client's epochs.
#[derive(Debug)]
pub(crate) struct Epochs {
    now: Cell<u64>,
    /// Operations under way that pinned an even, an odd epoch.
    pinned: [Cell<u32>; 2],
}

impl Epochs {
    pub(crate) fn new() -> Self {
        Self { now: Cell::new(1), pinned: Default::default() }
    }

    /// Marks the beginning of an operation; its end is the guard's.
    pub(crate) fn pin(&self) -> Pin<'_> {
        let count = &self.pinned[(self.now.get() % 2) as usize];
        count.set(count.get() + 1);
        Pin(count)
    }

    /// As [`Self::pin`] for one that outlives a borrow: its end is [`Self::unpin`]
    /// of what is returned.
    pub(crate) fn pin_until(&self) -> u64 {
        let epoch = self.now.get();
        std::mem::forget(self.pin());
        epoch
    }

    /// Ends an operation that began in this epoch.
    pub(crate) fn unpin(&self, epoch: u64) {
        drop(Pin(&self.pinned[(epoch % 2) as usize]));
    }

    pub(crate) fn now(&self) -> u64 {
        self.now.get()
    }

    /// The epoch to publish next, if operations of the last one have ended.
    pub(crate) fn next(&self) -> Option<u64> {
        let last = self.now.get() - 1;
        (self.pinned[(last % 2) as usize].get() == 0).then(|| self.now.get() + 1)
    }

    /// `next` has been published: operations pin it from now on.
    pub(crate) fn enter(&self, next: u64) {
        assert!(self.next() == Some(next), "epochs advance one by one, behind their operations");
        self.now.set(next);
    }
}

/// An operation under way.
pub(crate) struct Pin<'a>(&'a Cell<u32>);

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_holds_the_counter_within_one_of_its_epoch() {
        let epochs = Epochs::new();
        let operation = epochs.pin();
        assert_eq!(epochs.next(), Some(2), "it pinned 1, so 2 may come");
        epochs.enter(2);
        assert_eq!(epochs.next(), None, "but not 3");
        let later = epochs.pin();
        drop(operation);
        assert_eq!(epochs.next(), Some(3));
        epochs.enter(3);
        assert_eq!(epochs.next(), None);
        drop(later);
        assert_eq!(epochs.next(), Some(4));
    }
}
