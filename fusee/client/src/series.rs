//! A series of SETs, as a pipeline or an MSET brings them.
//!
//! The objects of all are written and their slots read in one batch; then the slots
//! move one after another, so that whoever sees one SET of a series sees all before
//! it. A key whose slot is not cached, or not as it was cached, goes the way of a
//! single SET when its turn comes.

use crate::cache::{Cached, Lookup};
use crate::draft::{Content, Draft};
use crate::round::Round;
use crate::seek::of_key;
use crate::store::Store;
use crate::write::{Placed, Settled};
use crate::{Env, Error, Key, Kind};
use fusee_fabric::{Batch, Fabric, Ticket};
use fusee_layout::{KeyHash, Opcode, prefix_bytes};

/// SETs that one batch prepares: enough to hide a cache miss behind the others and
/// to share a round trip, few enough for what they touch to stay in the cache.
const MEMBERS_MAX: usize = 32;
/// Bytes of values after which a batch is full: it is copied once.
const VALUE_BYTES_MAX: usize = 256 << 10;

/// One SET of a series.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// The key.
    pub key: Key<'a>,
    /// What it becomes.
    pub value: &'a [u8],
    /// When it ends, in milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
}

impl<'a> Setting<'a> {
    /// What goes into its object, if one object holds it.
    pub(crate) fn content(&self) -> Content<'a> {
        Content {
            opcode: Opcode::Set,
            key: self.key,
            body: self.value,
            kind: Kind::String,
            expires_at_ms: self.expires_at_ms,
            chunked: false,
            over: None,
            transaction: None,
        }
    }
}

/// A SET on its way.
#[derive(Debug)]
pub(crate) struct Member {
    hash: KeyHash,
    draft: Option<Draft>,
    aim: Option<Aim>,
    read: Option<Read>,
}

/// What a member is going to replace, by the batch under way.
#[derive(Clone, Copy, Debug)]
struct Aim {
    cached: Cached,
    /// The WRITEs of the draft begin here, if they are in this batch.
    written: Option<Ticket>,
}

/// The READs that tell whether it is there still.
#[derive(Clone, Copy, Debug)]
struct Read {
    slot: Ticket,
    object: Ticket,
}

impl<F: Fabric, E: Env> Store<F, E> {
    /// Sets keys one after another and tells of each how it went, in order.
    ///
    /// Where the slots are cached, r = 1: 1 round trip for all and 1 each;
    /// r >= 2: 1 and 3 each. Others cost what [`Self::set`] costs.
    pub async fn set_each(
        &self,
        sets: &[Setting<'_>],
        mut each: impl FnMut(usize, Result<(), Error>),
    ) {
        let mut members = self.members.borrow_mut().pop().unwrap_or_default();
        let mut number = 0;
        for sets in sets.chunks(MEMBERS_MAX) {
            self.enter(sets, &mut members);
            let mut done = 0;
            // Kept while members have objects that no slot leads to.
            let mut pin = Some(self.epochs.pin());
            while done < sets.len() {
                if members[done..].iter().all(|member| member.draft.is_none()) {
                    drop(pin.replace(self.epochs.pin()));
                }
                let moved = self.advance_series(&sets[done..], &mut members[done..], |result| {
                    each(number, result);
                    number += 1;
                });
                let moved = moved.await;
                done += moved;
                if moved == 0 {
                    let Member { hash, draft, .. } = &mut members[done];
                    let (hash, draft) = (*hash, draft.take());
                    let mut set = self.try_set(hash, &sets[done], draft, self.epochs.pin()).await;
                    if set == Err(Error::Full) {
                        // Nobody passes while the others hold objects.
                        let others = members[done + 1..].iter_mut();
                        let drafts = others.filter_map(|member| member.draft.take());
                        drafts.for_each(|draft| self.release_lost(&draft));
                        drop(pin.take());
                        set = self
                            .set(sets[done].key, sets[done].value, sets[done].expires_at_ms)
                            .await;
                    }
                    each(number, set);
                    number += 1;
                    done += 1;
                }
            }
        }
        members.clear();
        self.members.borrow_mut().push(members);
    }

    fn enter(&self, sets: &[Setting<'_>], members: &mut Vec<Member>) {
        members.clear();
        let cache = self.cache.borrow();
        for set in sets {
            let hash = self.hash(set.key);
            members.push(Member { hash, draft: None, aim: None, read: None });
        }
        for member in members {
            cache.prefetch(member.hash);
        }
    }

    /// Does the first SETs whose slots are cached; returns how many. If none, the
    /// first cannot be done like this. The caller is pinned.
    async fn advance_series(
        &self,
        sets: &[Setting<'_>],
        members: &mut [Member],
        mut each: impl FnMut(Result<(), Error>),
    ) -> usize {
        let mut batch = self.fabric.batch();
        let posted = self.post_series(sets, members, &mut batch);
        if posted > 0 {
            batch = self.fabric.run(batch).await;
            for member in &mut members[..posted] {
                self.check_written(&batch, member);
            }
        }
        let mut done = 0;
        while done < posted {
            let Some(result) = self.move_slot(&sets[done], &mut members[done], &batch).await else {
                break;
            };
            each(result);
            done += 1;
        }
        self.fabric.recycle(batch);
        done
    }

    /// Posts the WRITEs and READs of the first members whose slots are cached. All
    /// WRITEs come before the first READ: on shared memory a READ has to wait for the
    /// WRITEs before it to reach the processor's cache.
    fn post_series(
        &self,
        sets: &[Setting<'_>],
        members: &mut [Member],
        batch: &mut Batch,
    ) -> usize {
        let now_ms = self.env.now_ms();
        let sought = self.aim(sets, members);
        let mut value_bytes = 0;
        let mut posted = 0;
        for (set, member) in sets.iter().zip(&mut members[..sought]) {
            member.read = None;
            let over = set.expires_at_ms.is_some_and(|at| at <= now_ms);
            if value_bytes > VALUE_BYTES_MAX
                || (over && member.draft.is_none())
                || !self.post_write(set, member, batch)
            {
                break;
            }
            value_bytes += set.value.len();
            posted += 1;
        }
        for (set, member) in sets.iter().zip(&mut members[..posted]) {
            member.read = member.aim.map(|Aim { cached, .. }| Read {
                slot: batch.read(self.primary(cached.at), 8),
                object: self.read_candidate(batch, set.key, cached.word, false),
            });
        }
        posted
    }

    /// Finds out what the first members whose slots are cached are going to replace, and
    /// asks for it; returns how many. The processor asks for a line only when it knows its
    /// page, and whatever follows waits for that; so nothing else is done between one and
    /// the next, and it looks for the pages of several members at once.
    fn aim(&self, sets: &[Setting<'_>], members: &mut [Member]) -> usize {
        let cache = self.cache.borrow();
        let mut sought = 0;
        for member in members.iter_mut().take(sets.len()) {
            let Lookup::Hit(cached) = cache.get(member.hash) else { break };
            member.aim = Some(Aim { cached, written: None });
            sought += 1;
        }
        for Aim { cached, .. } in members[..sought].iter().filter_map(|member| member.aim) {
            self.fabric.prefetch(self.primary(cached.at), 8);
        }
        for (set, member) in sets.iter().zip(&members[..sought]) {
            if let Some(Aim { cached, .. }) = member.aim {
                let object = self.primary(cached.word.address());
                self.fabric.prefetch(object, prefix_bytes(set.key.name.len()));
            }
        }
        sought
    }

    /// Posts the WRITEs of a member that has an aim. False if it has to wait for an
    /// object.
    fn post_write(&self, set: &Setting<'_>, member: &mut Member, batch: &mut Batch) -> bool {
        let Member { hash, draft, aim: Some(aim), .. } = member else { return false };
        if let Some(draft) = draft {
            self.post_intent(batch, draft, aim.cached.word);
            return true;
        }
        let content = Content { over: self.intends(Some(aim.cached.word)), ..set.content() };
        let Some((made, span)) = self.draft_at_once(batch, *hash, &content) else { return false };
        aim.written = Some(self.post_draft(batch, &made, span));
        *draft = Some(made);
        true
    }

    /// A draft that is not in all replicas cannot be used.
    fn check_written(&self, batch: &Batch, member: &mut Member) {
        let Some(Aim { written: Some(first), .. }) = member.aim else { return };
        if batch.all_done(first, self.replicas()).is_err()
            && let Some(draft) = member.draft.take()
        {
            self.release_lost(&draft);
        }
    }

    /// Runs the round of a member. `None` if it has to be done as a single SET.
    async fn move_slot(
        &self,
        set: &Setting<'_>,
        member: &mut Member,
        batch: &Batch,
    ) -> Option<Result<(), Error>> {
        let Member { hash, draft, aim, read } = member;
        let Aim { cached, .. } = aim.take()?;
        let Read { slot, object } = read.take()?;
        let mine = draft.as_ref()?;
        // A SET before it in the series may have been of the same key.
        if self.cache.borrow().peek(*hash) != Some(cached) {
            return None;
        }
        let word = batch.word(slot).ok()?;
        let found = if word == cached.word.word() {
            of_key(batch, object, cached.at, cached.word, set.key, false).ok()?
        } else {
            None
        };
        let Some(found) = found else {
            self.cache.borrow().invalid(*hash);
            self.remember(*hash, cached.at, word);
            return None;
        };
        self.stats.index_hit.add(1);
        let round = Round {
            key: set.key,
            hash: *hash,
            at: cached.at,
            old: cached.word,
            new: mine.word,
            opcode: mine.opcode,
            first: mine.first,
            over: mine.over,
            insert: None,
            resumed: false,
        };
        let outcome = match self.run_round(&round).await {
            Ok(outcome) => outcome,
            Err(error) => {
                self.give_up(&error, mine);
                return Some(Err(error));
            }
        };
        let placed = Placed { outcome, at: cached.at, replaced: Some(found.replaced()) };
        match self.settle(*hash, placed, mine) {
            Settled::Won => Some(Ok(())),
            // Another client's SET came between the READ and the round. "Just before
            // it" would be before the SETs that went ahead of this one in the series.
            Settled::Lost => {
                self.release_lost(mine);
                *draft = None;
                None
            }
            Settled::Again(again) => {
                if again.offered {
                    self.release_lost(mine);
                    *draft = None;
                }
                None
            }
        }
    }

    /// What becomes of the draft of a SET that has failed.
    pub(crate) fn give_up(&self, error: &Error, draft: &Draft) {
        // After a failed node it may be visible: its recovery frees it.
        if !matches!(error, Error::NodeDown { .. }) {
            self.release_lost(draft);
        }
    }
}
