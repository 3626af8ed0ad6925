//! SET and DEL: find the slot, write the object, run a round.

use crate::cache::Cached;
use crate::draft::{Content, Draft};
use crate::epoch::Pin;
use crate::read::is_over;
use crate::round::{Again, Outcome, Round};
use crate::seek::{Aim, FoundObject, Sought};
use crate::series::Setting;
use crate::store::Store;
use crate::{Decision, Env, Error, Key};
use fusee_fabric::{Batch, Fabric};
use fusee_layout::{Address, KeyHash, Slot};

/// Times that an operation starts again before it gives up. Each time another
/// client has got something done, so only a bug reaches this.
pub(crate) const ATTEMPTS_MAX: u32 = 10_000;
/// Longest wait between two attempts.
const BACK_OFF_US_MAX: u64 = 1000;

impl<F: Fabric, E: Env> Store<F, E> {
    /// Sets a key, whatever it was. A value whose time has come removes it.
    ///
    /// r >= 2: 4 round trips where the slot is cached, 5 where not, 4 for an
    /// insert (5 if a fingerprint matches); r = 1: 2, 3, 3 (4). Conflicts cost
    /// more.
    pub async fn set(
        &self,
        key: Key<'_>,
        value: &[u8],
        expires_at_ms: Option<u64>,
    ) -> Result<(), Error> {
        let (hash, setting) = (self.hash(key), Setting { key, value, expires_at_ms });
        match self.try_set(hash, &setting, None, self.epochs.pin()).await {
            Err(Error::Full) if self.hurry().await? => {
                self.try_set(hash, &setting, None, self.epochs.pin()).await
            }
            done => done,
        }
    }

    /// A SET whose object may have been written before. It is pinned as long as it
    /// has objects that no slot leads to, so a full pool is an error, not to be
    /// waited out here.
    pub(crate) async fn try_set(
        &self,
        hash: KeyHash,
        setting: &Setting<'_>,
        mut draft: Option<Draft>,
        pin: Pin<'_>,
    ) -> Result<(), Error> {
        let Setting { key, value, expires_at_ms } = *setting;
        if draft.is_none() {
            if expires_at_ms.is_some_and(|at| at <= self.env.now_ms()) {
                drop(pin);
                return self.delete(key).await.map(|_| ());
            }
            self.check_lengths(key, value.len())?;
        }
        let chunks = self.write_chunks(key, value, expires_at_ms.is_some()).await?;
        let content = Content {
            body: chunks.as_deref().unwrap_or(value),
            chunked: chunks.is_some(),
            ..setting.content()
        };
        let done = self.set_content(hash, &content, &mut draft, pin).await;
        if !matches!(done, Ok(Settled::Won) | Err(Error::NodeDown { .. })) {
            // What was not acknowledged as the value is not needed any more. (After
            // a failed node it may be visible: its recovery frees it.)
            if let Some(lost) = draft {
                self.release_lost(&lost);
            }
            self.drop_chunks(chunks.as_deref());
        }
        done.map(|_| ())
    }

    async fn set_content(
        &self,
        hash: KeyHash,
        content: &Content<'_>,
        draft: &mut Option<Draft>,
        mut pin: Pin<'_>,
    ) -> Result<Settled, Error> {
        let key = content.key;
        let mut last = None;
        let mut stalls = 0;
        for attempt in 0..ATTEMPTS_MAX {
            let mut batch = self.fabric.batch();
            if draft.is_none() {
                if attempt > 0 && !content.chunked {
                    pin = self.epochs.pin();
                }
                let over = self.guess(hash);
                let content = Content { over, ..*content };
                let (made, span) = self.draft(&mut batch, hash, &content).await?;
                self.post_draft(&mut batch, &made, span);
                *draft = Some(made);
            }
            let aim = Aim { whole: false, delete: None, draft: draft.as_mut() };
            let sought = self.seek(key, hash, batch, aim).await?;
            let mine = draft.expect("it was just made");
            let placed = self.place_draft(key, &sought, &mine, last).await;
            self.fabric.recycle(sought.batch);
            match self.settle(hash, placed?, &mine) {
                Settled::Again(again) => {
                    if again.offered {
                        self.release_lost(&mine);
                        *draft = None;
                    }
                    last = Some(again);
                    stalls = again.stalls(stalls)?;
                    self.back_off(attempt, again).await;
                }
                done => return Ok(done),
            }
        }
        drop(pin);
        Err(Error::Conflict { attempts: ATTEMPTS_MAX })
    }

    /// Removes a key and tells whether it was there.
    ///
    /// r >= 2: 4 round trips where the slot is cached, 5 where not; r = 1: 2 and
    /// 3. An absent key costs what a read of it costs.
    pub async fn delete(&self, key: Key<'_>) -> Result<bool, Error> {
        let hash = self.hash(key);
        let mut draft: Option<Draft> = None;
        let mut kept = None;
        for attempt in 0..ATTEMPTS_MAX {
            // As long as it has a record that no slot leads to, it stays pinned.
            let pin = kept.take().unwrap_or_else(|| self.epochs.pin());
            let batch = self.fabric.batch();
            let aim = Aim { whole: false, delete: Some(&mut draft), draft: None };
            let sought = match self.seek(key, hash, batch, aim).await {
                Err(Error::Full) => {
                    // Deletes before this one hold the pool's reserve, and what
                    // they have freed, until everybody has passed by.
                    drop(pin);
                    if !self.reclaim_now().await? {
                        return Err(Error::Full);
                    }
                    continue;
                }
                sought => sought?,
            };
            let Some(found) = sought.found else {
                self.fabric.recycle(sought.batch);
                if let Some(unused) = draft {
                    self.release_lost(&unused);
                }
                return Ok(false);
            };
            if is_over(&found.meta, self.env.now_ms()) {
                // A blind record would tell a SET that loses to it that its value
                // was there to be deleted, while this delete answers that nothing
                // was.
                drop(pin);
                self.fabric.recycle(sought.batch);
                if let Some(unused) = draft {
                    self.release_lost(&unused);
                }
                return self.delete_if_live(key).await;
            }
            let mine = draft.expect("a candidate was read along with a record's WRITE");
            let placed = self.place_on(key, &sought, &found, &mine).await;
            self.fabric.recycle(sought.batch);
            match self.settle(hash, placed?, &mine) {
                Settled::Won => return Ok(true),
                Settled::Lost => {
                    self.release_lost(&mine);
                    return Ok(false);
                }
                Settled::Again(again) => {
                    if again.offered {
                        self.release_lost(&mine);
                        draft = None;
                    }
                    kept = draft.map(|_| pin);
                    self.back_off(attempt, again).await;
                }
            }
        }
        Err(Error::Conflict { attempts: ATTEMPTS_MAX })
    }

    /// Removes a key by a conditional write.
    async fn delete_if_live(&self, key: Key<'_>) -> Result<bool, Error> {
        let mut existed = false;
        let deleted = self.update(key, |current, _| {
            existed = current.is_some();
            if existed { Decision::Delete } else { Decision::Keep }
        });
        deleted.await?;
        Ok(existed)
    }

    /// Runs the round of a written draft on the slot that was found, or on a
    /// vacant one.
    pub(crate) async fn place_draft(
        &self,
        key: Key<'_>,
        sought: &Sought,
        mine: &Draft,
        last: Option<Again>,
    ) -> Result<Placed, Error> {
        if let Some(found) = &sought.found {
            return self.place_on(key, sought, found, mine).await;
        }
        let view = sought.view.as_deref().expect("only buckets tell that a key is absent");
        let join = last.and_then(|again| again.join);
        let avoid = last.and_then(|again| again.avoid);
        let joined = join.and_then(|at| Some((at, view.word(at)?)));
        let vacancy = joined.filter(|(_, word)| word.is_vacant()).or_else(|| view.vacancy(avoid));
        let Some((at, old)) = vacancy else {
            let outcome = self.make_room(view).await?;
            return Ok(Placed { outcome, at: Address::default(), replaced: None });
        };
        if mine.word.tombstone() == old {
            // This object's tombstone stood here 63 uses ago: the word would
            // look like an abandonment.
            let outcome = Again::at_once(true);
            return Ok(Placed { outcome, at, replaced: None });
        }
        let outcome = self.run_round(&round_on(key, sought, at, old, mine)).await?;
        Ok(Placed { outcome, at, replaced: None })
    }

    async fn place_on(
        &self,
        key: Key<'_>,
        sought: &Sought,
        found: &FoundObject,
        mine: &Draft,
    ) -> Result<Placed, Error> {
        let round = round_on(key, sought, found.at, found.word, mine);
        let outcome = self.run_round(&round).await?;
        Ok(Placed { outcome, at: found.at, replaced: Some(found.replaced()) })
    }

    /// No slot is vacant: inserts in progress may be of dead owners (r = 1).
    async fn make_room(&self, view: &crate::index::View) -> Result<Outcome, Error> {
        let mut aborted = false;
        for (at, word) in view.tentative() {
            self.abort(at, word).await?;
            aborted = true;
        }
        if aborted { Ok(Again::at_once(false)) } else { Err(Error::IndexFull) }
    }

    pub(crate) async fn run_round(&self, round: &Round<'_>) -> Result<Outcome, Error> {
        if self.replicas() == 1 {
            self.single_round(round).await
        } else {
            self.write_round(round).await
        }
    }

    /// Draws the consequences of a round: what is free now, what is cached.
    pub(crate) fn settle(&self, hash: KeyHash, placed: Placed, mine: &Draft) -> Settled {
        match placed.outcome {
            Outcome::Committed => {
                if let Some(replaced) = placed.replaced {
                    self.release(replaced.word, replaced.chunked);
                }
                if mine.opcode.is_delete() {
                    self.cache.borrow().remove(hash);
                    self.release(mine.word, false);
                } else {
                    self.cache.borrow_mut().put(hash, Cached { at: placed.at, word: mine.word });
                }
                Settled::Won
            }
            Outcome::Overtaken => Settled::Lost,
            Outcome::Gone => Settled::Lost,
            Outcome::Again(again) => {
                self.stats.restarts.add(1);
                Settled::Again(again)
            }
        }
    }

    pub(crate) async fn back_off(&self, attempt: u32, again: Again) {
        if again.back_off || attempt > 4 {
            let most = (1 << attempt.min(10)).min(BACK_OFF_US_MAX);
            self.wait_for_others(self.env.random() % most + 1).await;
        }
    }

    /// Waits because another client was in the way, and counts that.
    pub(crate) async fn wait_for_others(&self, us: u64) {
        self.stats.conflict_wait_us.add(us);
        self.env.sleep_us(us).await;
    }

    /// Adds what a round changes about the number of keys to the own count, and
    /// posts the count behind the round's last verb, so that DBSIZE agrees with
    /// what has been acknowledged.
    pub(crate) fn count_key(&self, batch: &mut Batch, round: &Round<'_>) {
        if self.count_own_key(round) {
            self.post_key_count(batch, round.key.database);
        }
    }

    /// Adds what a round changes about the number of keys to the own count; the
    /// next tick publishes it. False if it changes nothing.
    pub(crate) fn count_own_key(&self, round: &Round<'_>) -> bool {
        let Some(count) = self.keys.get(usize::from(round.key.database)) else { return false };
        let change = key_change(round);
        count.set(count.get() + change);
        change != 0
    }

    /// The round was lost after all.
    pub(crate) fn uncount_key(&self, round: &Round<'_>) {
        if let Some(count) = self.keys.get(usize::from(round.key.database)) {
            count.set(count.get() - key_change(round));
        }
    }
}

fn key_change(round: &Round<'_>) -> i64 {
    if round.opcode.is_intent() {
        // It is counted when it is done.
        0
    } else if round.opcode.is_delete() {
        -1
    } else if round.insert.is_some() {
        1
    } else {
        0
    }
}

/// The word that a round replaces, to be freed by whoever wins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replaced {
    pub(crate) word: Slot,
    pub(crate) chunked: bool,
}

/// How a round on a slot ended.
pub(crate) struct Placed {
    pub(crate) outcome: Outcome,
    pub(crate) at: Address,
    /// What it replaced, if that was an object.
    pub(crate) replaced: Option<Replaced>,
}

pub(crate) enum Settled {
    /// The draft is, or was, the value.
    Won,
    /// The operation is done although the draft was never the value: a SET was
    /// replaced at once, a DEL found nothing.
    Lost,
    Again(Again),
}

fn round_on<'a>(
    key: Key<'a>,
    sought: &'a Sought,
    at: Address,
    old: Slot,
    mine: &Draft,
) -> Round<'a> {
    Round {
        key,
        hash: sought.hash,
        at,
        old,
        new: mine.offered_word(),
        opcode: mine.opcode,
        first: mine.first,
        over: mine.over,
        insert: if old.is_live() { None } else { sought.view.as_deref() },
        resumed: false,
    }
}
