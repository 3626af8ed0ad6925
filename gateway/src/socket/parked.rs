//! A task that waits for something that another one does.

use std::cell::RefCell;
use std::task::Waker;

/// Whom to wake, if anybody waits.
#[derive(Debug, Default)]
pub(super) struct Parked(RefCell<Option<Waker>>);

impl Parked {
    /// Notes whom to wake.
    #[inline]
    pub(super) fn park(&self, waker: &Waker) {
        let mut parked = self.0.borrow_mut();
        if !parked.as_ref().is_some_and(|parked| parked.will_wake(waker)) {
            *parked = Some(waker.clone());
        }
    }

    /// Wakes who waits.
    pub(super) fn wake(&self) {
        if let Some(waker) = &*self.0.borrow() {
            waker.wake_by_ref();
        }
    }
}
