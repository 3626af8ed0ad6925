//! What one key does: commands, their answers, and the spec that the
//! linearizability checker judges them by.

use crate::WallClock;
use crate::linearizability::{Spec, When};
use std::fmt;
use std::sync::Arc;

/// A value, short in print.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Bytes(pub Arc<[u8]>);

/// What a key holds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Held {
    /// Its value.
    pub value: Bytes,
    /// When it ends, in ms since the Unix epoch.
    pub expires_at_ms: Option<u64>,
}

/// An operation on a key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Command {
    /// GET, and when the key ends.
    Get,
    /// EXISTS.
    Exists,
    /// SET, with PXAT or without.
    Set(Held),
    /// SET NX.
    SetNx(Held),
    /// SET XX.
    SetXx(Held),
    /// SET GET.
    SetGet(Held),
    /// DEL.
    Delete,
    /// GETDEL.
    GetDelete,
    /// INCRBY.
    Increment(i64),
    /// APPEND.
    Append(Bytes),
    /// PEXPIREAT.
    ExpireAt(u64),
    /// PERSIST.
    Persist,
}

/// What an operation gives.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    /// Nothing to tell.
    Done,
    /// Whether it did something.
    Did(bool),
    /// What the key held.
    Held(Option<Held>),
    /// A number after INCRBY, a length after APPEND.
    Number(i64),
    /// The value is no number.
    NotANumber,
    /// The pool had no room: nothing was done.
    Refused,
}

/// What a command does to a key that it sees in some state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing.
    Keep,
    /// The key goes.
    Delete,
    /// The key holds this.
    Replace(Held),
}

impl Command {
    /// Decides the command for a key that holds `current`.
    pub fn decide(&self, current: Option<&Held>) -> (Effect, Answer) {
        use Effect::{Delete, Keep, Replace};
        match (self, current) {
            (Self::Get, _) => (Keep, Answer::Held(current.cloned())),
            (Self::Exists, _) => (Keep, Answer::Did(current.is_some())),
            (Self::Set(held), _) => (Replace(held.clone()), Answer::Done),
            (Self::SetNx(held), None) | (Self::SetXx(held), Some(_)) => {
                (Replace(held.clone()), Answer::Did(true))
            }
            (Self::SetNx(_), Some(_)) | (Self::SetXx(_), None) => (Keep, Answer::Did(false)),
            (Self::SetGet(held), _) => (Replace(held.clone()), Answer::Held(current.cloned())),
            (Self::Delete, None) => (Keep, Answer::Did(false)),
            (Self::Delete, Some(_)) => (Delete, Answer::Did(true)),
            (Self::GetDelete, None) => (Keep, Answer::Held(None)),
            (Self::GetDelete, Some(_)) => (Delete, Answer::Held(current.cloned())),
            (Self::Increment(by), _) => increment(current, *by),
            (Self::Append(more), _) => append(current, more),
            (Self::ExpireAt(_) | Self::Persist, None) => (Keep, Answer::Did(false)),
            (Self::ExpireAt(at_ms), Some(held)) => {
                let held = Held { expires_at_ms: Some(*at_ms), ..held.clone() };
                (Replace(held), Answer::Did(true))
            }
            (Self::Persist, Some(held)) if held.expires_at_ms.is_none() => {
                (Keep, Answer::Did(false))
            }
            (Self::Persist, Some(held)) => {
                (Replace(Held { expires_at_ms: None, ..held.clone() }), Answer::Did(true))
            }
        }
    }
}

fn increment(current: Option<&Held>, by: i64) -> (Effect, Answer) {
    let number = match current {
        None => Some(0),
        Some(held) => std::str::from_utf8(&held.value.0).ok().and_then(|text| text.parse().ok()),
    };
    let Some(number) = number.and_then(|number: i64| number.checked_add(by)) else {
        return (Effect::Keep, Answer::NotANumber);
    };
    let expires_at_ms = current.and_then(|held| held.expires_at_ms);
    let value = Bytes(number.to_string().into_bytes().into());
    (Effect::Replace(Held { value, expires_at_ms }), Answer::Number(number))
}

fn append(current: Option<&Held>, more: &Bytes) -> (Effect, Answer) {
    let mut value = current.map_or(Vec::new(), |held| held.value.0.to_vec());
    value.extend_from_slice(&more.0);
    let length = value.len() as i64;
    let expires_at_ms = current.and_then(|held| held.expires_at_ms);
    (Effect::Replace(Held { value: Bytes(value.into()), expires_at_ms }), Answer::Number(length))
}

/// A command with its answer; `None` if its client never got one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Who asked.
    pub client: u32,
    /// For what.
    pub command: Command,
    /// What came back.
    pub answer: Option<Answer>,
}

/// Whose clock tells that a key has ended, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expiry {
    /// The key ends for everybody at one moment of the order. A write that
    /// found it before its end and takes effect after it would bring it back.
    AtOnce,
    /// Each operation looks at the clock once, at any time between its call and
    /// its return, and judges by that; the key is gone for all only when
    /// somebody has written over it. Operations that are under way at its end
    /// may so differ about it; one that is called later finds it ended.
    AsJudged,
}

/// The spec of a key. History times are stamps of a [`Stamps`].
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// What the clients' clocks show.
    pub clock: WallClock,
    /// How keys end.
    pub expiry: Expiry,
}

impl Spec for KeySpec {
    type State = Option<Held>;
    type Op = Operation;

    fn step(&self, state: &Option<Held>, op: &Operation, when: When, next: &mut Vec<Option<Held>>) {
        if op.answer == Some(Answer::Refused) {
            next.push(state.clone());
            return;
        }
        let state = state.as_ref();
        let look = self.look(when);
        let kept = state.filter(|_| look.stays);
        let mut go = |current: Option<&Held>, kept: Option<&Held>| {
            let (effect, answer) = op.command.decide(current);
            if op.answer.as_ref().is_some_and(|given| *given != answer) {
                return;
            }
            match effect {
                Effect::Keep => next.push(kept.cloned()),
                Effect::Delete => next.push(None),
                Effect::Replace(held) => {
                    // A value that is over already removes the key, if that is
                    // not over itself.
                    if look.stays && look.may_be_over(&held) {
                        next.push(if current.is_none() { kept.cloned() } else { None });
                    }
                    next.push(Some(held));
                }
            }
        };
        if state.is_none_or(|held| look.may_be_there(held)) {
            go(state, state);
        }
        if state.is_some_and(|held| look.may_be_over(held)) {
            go(None, kept);
        }
    }
}

/// The look at the clock by which an operation judges whether a key has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// What the clock may have shown.
    from_ms: u64,
    to_ms: u64,
    /// Is a key that has ended still there for others?
    pub(crate) stays: bool,
}

impl Look {
    /// Within the millisecond of its end a key may be seen either way.
    pub(crate) fn may_be_there(&self, held: &Held) -> bool {
        held.expires_at_ms.is_none_or(|ends| self.from_ms <= ends)
    }

    pub(crate) fn may_be_over(&self, held: &Held) -> bool {
        held.expires_at_ms.is_some_and(|ends| self.to_ms >= ends)
    }
}

impl KeySpec {
    /// The look of an operation that happened then.
    pub(crate) fn look(&self, when: When) -> Look {
        let (from, to) = match self.expiry {
            Expiry::AtOnce => (when.from, when.to),
            Expiry::AsJudged => (when.called, when.returned),
        };
        let shown = |stamp| self.clock.at(Stamps::ns(stamp));
        let stays = self.expiry == Expiry::AsJudged;
        Look { from_ms: shown(from), to_ms: shown(to), stays }
    }
}

/// Times of calls and returns: virtual time, made unique so that of two events
/// at one moment the earlier stays the earlier.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stamps(u64);

impl Stamps {
    pub(crate) const PER_NS: u64 = 1000;

    /// The stamp of an event that happens now.
    pub fn next(&mut self, now_ns: u64) -> u64 {
        self.0 = (self.0 + 1).max(now_ns * Self::PER_NS);
        self.0
    }

    /// The virtual time of a stamp.
    pub const fn ns(stamp: u64) -> u64 {
        stamp / Self::PER_NS
    }
}

impl Bytes {
    /// From text.
    pub fn text(text: &str) -> Self {
        Self(text.as_bytes().into())
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 16;
        let shown = String::from_utf8_lossy(&self.0[..self.0.len().min(SHOWN)]);
        if self.0.len() <= SHOWN {
            write!(f, "{shown:?}")
        } else {
            write!(f, "{shown:?}...{}", self.0.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linearizability::{Call, check};

    const CLOCK: WallClock = WallClock { start_ms: 0, ns_per_ms: 100 };

    fn held(value: &str, expires_at_ms: Option<u64>) -> Held {
        Held { value: Bytes::text(value), expires_at_ms }
    }

    fn call(from_ns: u64, to_ns: u64, command: Command, answer: Answer) -> Call<Operation> {
        let op = Operation { client: 0, command, answer: Some(answer) };
        Call::returned(from_ns * Stamps::PER_NS, to_ns * Stamps::PER_NS, op)
    }

    fn passes_by(expiry: Expiry, history: &[Call<Operation>]) -> bool {
        check(&KeySpec { clock: CLOCK, expiry }, None, history, 10_000).is_ok()
    }

    /// The same verdict by either rule.
    fn passes(history: &[Call<Operation>]) -> bool {
        let passes = passes_by(Expiry::AtOnce, history);
        assert_eq!(passes_by(Expiry::AsJudged, history), passes);
        passes
    }

    #[test]
    fn only_one_of_two_set_nx_wins() {
        let nx = |value, won| call(0, 10, Command::SetNx(held(value, None)), Answer::Did(won));
        assert!(passes(&[nx("1", true), nx("2", false)]));
        assert!(!passes(&[nx("1", true), nx("2", true)]));
        assert!(!passes(&[nx("1", false), nx("2", false)]));
    }

    #[test]
    fn a_lost_increment_is_refused() {
        let increment = |number| call(0, 10, Command::Increment(1), Answer::Number(number));
        assert!(passes(&[increment(1), increment(2), increment(3)]));
        assert!(!passes(&[increment(1), increment(1)]));
    }

    #[test]
    fn of_two_deletes_one_finds_the_key() {
        let set = call(0, 5, Command::Set(held("1", None)), Answer::Done);
        let delete = |found| call(10, 20, Command::Delete, Answer::Did(found));
        assert!(passes(&[set.clone(), delete(true), delete(false)]));
        assert!(!passes(&[set.clone(), delete(true), delete(true)]));
        assert!(!passes(&[set, delete(false), delete(false)]));
    }

    #[test]
    fn a_key_is_there_before_its_end_and_never_after() {
        let set = call(0, 10, Command::Set(held("1", Some(5))), Answer::Done);
        let get = |from_ns, to_ns, found: bool| {
            let answer = found.then(|| held("1", Some(5)));
            call(from_ns, to_ns, Command::Get, Answer::Held(answer))
        };
        assert!(passes(&[set.clone(), get(20, 30, true), get(650, 700, false)]));
        assert!(!passes(&[set.clone(), get(20, 30, false)]), "ends at 500 ns");
        assert!(!passes(&[set.clone(), get(650, 700, true)]));
        assert!(passes(&[set.clone(), get(400, 650, true)]));
        assert!(passes(&[set.clone(), get(400, 650, false)]));
        assert!(!passes(&[set, get(400, 650, false), get(660, 700, true)]));
    }

    #[test]
    fn a_key_that_is_persisted_at_its_end_comes_back_only_where_each_judges_for_itself() {
        let set = call(0, 10, Command::Set(held("1", Some(5))), Answer::Done);
        let persist = call(400, 800, Command::Persist, Answer::Did(true));
        let get = |from_ns, held| call(from_ns, from_ns + 10, Command::Get, Answer::Held(held));
        let history = [set, persist, get(650, None), get(820, Some(held("1", None)))];
        assert!(!passes_by(Expiry::AtOnce, &history));
        assert!(passes_by(Expiry::AsJudged, &history));
    }

    #[test]
    fn an_expired_key_counts_as_absent_for_writers() {
        let set = call(0, 10, Command::Set(held("7", Some(5))), Answer::Done);
        let persist = |from_ns, did| call(from_ns, from_ns + 1, Command::Persist, Answer::Did(did));
        assert!(passes(&[set.clone(), persist(20, true), persist(700, false)]));
        assert!(passes(&[set.clone(), persist(700, false)]));
        assert!(!passes(&[set.clone(), persist(700, true)]));
        let increment = |number| call(700, 710, Command::Increment(1), Answer::Number(number));
        assert!(passes(&[set.clone(), increment(1)]));
        assert!(!passes(&[set, increment(8)]));
    }

    #[test]
    fn what_was_refused_changed_nothing() {
        let refused = call(0, 10, Command::Set(held("1", None)), Answer::Refused);
        let get = |held| call(20, 30, Command::Get, Answer::Held(held));
        assert!(passes(&[refused.clone(), get(None)]));
        assert!(!passes(&[refused, get(Some(held("1", None)))]));
    }
}
