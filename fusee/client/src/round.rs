//! A round: one writer's attempt to move one slot from `old` to `new`.

use crate::Key;
use crate::index::{Place, View};
use fusee_layout::{Address, Opcode, RECORD_BYTES, Slot};

/// What a writer brings to the slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round<'a> {
    pub(crate) key: Key<'a>,
    pub(crate) place: Place,
    /// The slot.
    pub(crate) at: Address,
    /// What the primary held.
    pub(crate) old: Slot,
    /// What it shall hold: the live word or, for a delete, the tombstone of an
    /// object that is written already.
    pub(crate) new: Slot,
    pub(crate) opcode: Opcode,
    /// The object's first bytes, for its commit record.
    pub(crate) first: [u8; RECORD_BYTES],
    /// For an insert: the key's buckets in the primary, read before.
    pub(crate) insert: Option<&'a View>,
}

/// How a round ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The write has happened; whoever replaced the word owns `old` no more.
    Committed,
    /// A blind SET that lost: done just before the winner.
    Overtaken,
    /// A blind DEL that lost to a delete: done just after it, removing nothing.
    Gone,
    /// Nothing has happened: start again.
    Again(Again),
}

/// How to start again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Again {
    /// The word has been seen by others, so another object has to be used.
    pub(crate) offered: bool,
    /// For an insert: the slot where the key was about to appear. The next
    /// attempt joins the round there, so that it helps instead of waiting.
    pub(crate) join: Option<Address>,
    /// For an insert: a slot in which another's insert is stuck; other vacant ones
    /// come first.
    pub(crate) avoid: Option<Address>,
    /// Wait a little before.
    pub(crate) back_off: bool,
}

impl Again {
    /// Start again without waiting.
    pub(crate) const fn at_once(offered: bool) -> Outcome {
        Outcome::Again(Self { offered, join: None, avoid: None, back_off: false })
    }
}
