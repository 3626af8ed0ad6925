//! A round: one writer's attempt to move one slot from `old` to `new`.

use crate::index::View;
use crate::{Error, Key};
use fusee_layout::{Address, KeyHash, Opcode, RECORD_BYTES, Slot};

/// What a writer brings to the slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round<'a> {
    pub(crate) key: Key<'a>,
    pub(crate) hash: KeyHash,
    /// The slot.
    pub(crate) at: Address,
    /// What the primary held.
    pub(crate) old: Slot,
    /// What it shall hold: the live word or, for a delete, the tombstone of an
    /// object that is written already.
    pub(crate) new: Slot,
    pub(crate) opcode: Opcode,
    /// What the object says it replaces (r = 1).
    pub(crate) over: Option<Slot>,
    /// The object's first bytes, for its commit record.
    pub(crate) first: [u8; RECORD_BYTES],
    /// For an insert: the key's buckets in the primary, read before.
    pub(crate) insert: Option<&'a View>,
    /// Does recovery go on with it for a writer that has died? The view is then
    /// younger than the first vote.
    pub(crate) resumed: bool,
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

/// Times in a row that an insert meets another's that is stuck in the only slot
/// left, each some half a millisecond, before it gives up: whoever left that
/// behind is expelled and recovered in the meantime, or has to be.
const STALLS_MAX: u32 = 2000;

impl Again {
    /// How often in a row it has been like this, or the error that says so.
    pub(crate) fn stalls(self, before: u32) -> Result<u32, Error> {
        match self.avoid {
            Some(_) if before == STALLS_MAX => Err(Error::Stalled),
            Some(_) => Ok(before + 1),
            None => Ok(0),
        }
    }

    /// Start again without waiting.
    pub(crate) const fn at_once(offered: bool) -> Outcome {
        Outcome::Again(Self { offered, join: None, avoid: None, back_off: false })
    }
}
