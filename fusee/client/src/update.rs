//! Conditional writes: read, decide, replace or start again.

use crate::draft::{Content, Draft};
use crate::read::entry;
use crate::seek::{Aim, Sought};
use crate::store::Store;
use crate::write::{ATTEMPTS_MAX, Settled};
use crate::{Decision, Entry, Env, Error, Key, Kind};
use fusee_fabric::Fabric;
use fusee_layout::{KeyHash, Opcode};

impl<F: Fabric, E: Env> Store<F, E> {
    /// Reads, decides and writes as one atomic step; the last call of `decide`
    /// is the one that counts.
    ///
    /// The round trips of a read, 1 for the object, and those of the round: 1 for
    /// r = 1 (2 for an insert), 3 for r >= 2.
    ///
    /// Whoever finds that a value's time has come removes it before it says that
    /// the key is absent. Otherwise a write that read the value while it was
    /// live, and lets it live on (PERSIST), could still commit after that.
    pub async fn update(
        &self,
        key: Key<'_>,
        mut decide: impl FnMut(Option<Entry<'_>>, &mut Vec<u8>) -> Decision,
    ) -> Result<(), Error> {
        let mut value = Vec::new();
        let (mut kept, mut removes) = (false, false);
        let updated = self.update_raw(key, &mut value, |current, value, now_ms| {
            let over = current.is_some_and(|e| is_over_at(&e, now_ms));
            let decision = decide(current.filter(|_| !over), value);
            kept = decision == Decision::Keep;
            removes = kept && over;
            if removes { Decision::Delete } else { decision }
        });
        match updated.await {
            Ok(()) if removes => self.count_expired(key),
            // A pool too full for a removal: the answer holds until memory comes back.
            Err(Error::Full) if kept => {}
            updated => return updated,
        }
        Ok(())
    }

    /// The entry of a key whose value was found to be over: none, once that
    /// value is removed; the new one, if there is one by now. `value` holds it.
    pub(crate) async fn remove_over(
        &self,
        key: Key<'_>,
        value: &mut Vec<u8>,
    ) -> Result<Option<(Kind, Option<u64>)>, Error> {
        let mut found = None;
        let removed = self.update(key, |current, _| {
            found = current.map(|e| (e.kind, e.expires_at_ms));
            value.clear();
            value.extend_from_slice(current.map_or(&[], |e| e.value));
            Decision::Keep
        });
        removed.await?;
        Ok(found)
    }

    /// As [`Self::update`], but `decide` sees an entry whose time has come, too.
    pub(crate) async fn update_raw(
        &self,
        key: Key<'_>,
        value: &mut Vec<u8>,
        mut decide: impl FnMut(Option<Entry<'_>>, &mut Vec<u8>, u64) -> Decision,
    ) -> Result<(), Error> {
        self.check_lengths(key, 0)?;
        let hash = self.hash(key);
        let mut last = None;
        let mut stalls = 0;
        let mut hurried = false;
        for attempt in 0..ATTEMPTS_MAX {
            let pin = self.epochs.pin();
            let batch = self.fabric.batch();
            let aim = Aim::read(true);
            let before_ms = self.env.now_ms();
            let sought = self.seek(key, hash, batch, aim).await?;
            // What was found is live if it ends after it was read. Whether the
            // new value has ended is asked of the time before: in between
            // others may have acted on what was read.
            let now_ms = self.env.now_ms();
            value.clear();
            let whole = self.value_of(&sought).await?;
            let current = match (&sought.found, &whole) {
                (None, _) => None,
                (Some(found), Some(whole)) => Some(entry(&found.meta, whole)),
                (Some(found), None) => Some(entry(&found.meta, found.body(&sought.batch)?)),
            };
            let mut decision = decide(current, value, now_ms);
            if let Decision::Replace { expires_at_ms: Some(at), .. } = decision
                && at <= before_ms
            {
                decision = Decision::Delete;
            }
            let (opcode, kind, expires_at_ms) = match decision {
                Decision::Keep => {
                    self.fabric.recycle(sought.batch);
                    return Ok(());
                }
                Decision::Delete if sought.found.is_none() => {
                    self.fabric.recycle(sought.batch);
                    return Ok(());
                }
                Decision::Delete => (Opcode::Take, Kind::String, None),
                Decision::Replace { kind, expires_at_ms } => (Opcode::Update, kind, expires_at_ms),
            };
            let mut chunks = None;
            let word = hash.word().to_le_bytes();
            let content = if opcode.is_delete() {
                Content::of_delete(opcode, key.database, &word)
            } else {
                self.check_lengths(key, value.len())?;
                let written = self.write_chunks(key, value, expires_at_ms.is_some()).await;
                if written == Err(Error::Full) && !hurried {
                    // Nobody passes while this operation holds addresses.
                    drop(pin);
                    self.fabric.recycle(sought.batch);
                    if !self.hurry().await? {
                        return Err(Error::Full);
                    }
                    hurried = true;
                    continue;
                }
                chunks = written?;
                let body = chunks.as_deref().unwrap_or(value);
                let chunked = chunks.is_some();
                Content {
                    opcode,
                    key,
                    body,
                    kind,
                    expires_at_ms,
                    chunked,
                    over: None,
                    transaction: None,
                }
            };
            let over = self.intends(sought.found.as_ref().map(|found| found.word));
            let content = Content { over, ..content };
            let mine = match self.write_draft(hash, &content).await {
                Ok(mine) => mine,
                Err(error) => {
                    drop(pin);
                    self.fabric.recycle(sought.batch);
                    self.drop_chunks(chunks.as_deref());
                    if error == Error::Full && !hurried && self.hurry().await? {
                        hurried = true;
                        continue;
                    }
                    return Err(error);
                }
            };
            let placed = self.place_draft(key, &sought, &mine, last).await;
            self.fabric.recycle(sought.batch);
            let settled = match placed {
                Ok(placed) => self.settle(hash, placed, &mine),
                Err(Error::NodeDown { node }) => return Err(Error::NodeDown { node }),
                Err(error) => {
                    self.release_lost(&mine);
                    self.drop_chunks(chunks.as_deref());
                    return Err(error);
                }
            };
            match settled {
                Settled::Won => return Ok(()),
                Settled::Lost => unreachable!("a conditional write that lost starts again"),
                Settled::Again(again) => {
                    // The value belongs to what was read: the next attempt
                    // writes another one.
                    self.release_lost(&mine);
                    self.drop_chunks(chunks.as_deref());
                    last = Some(again);
                    stalls = again.stalls(stalls)?;
                    self.back_off(attempt, again).await;
                }
            }
        }
        Err(Error::Conflict { attempts: ATTEMPTS_MAX })
    }

    /// Writes an object. 1 round trip.
    async fn write_draft(&self, hash: KeyHash, content: &Content<'_>) -> Result<Draft, Error> {
        let mut batch = self.fabric.batch();
        let (draft, span) = match self.draft(&mut batch, hash, content).await {
            Ok(made) => made,
            Err(error) => {
                self.fabric.recycle(batch);
                return Err(error);
            }
        };
        self.post_draft(&mut batch, &draft, span);
        let batch = self.fabric.run(batch).await;
        for ticket in batch.tickets() {
            batch.done(ticket)?;
        }
        self.fabric.recycle(batch);
        Ok(draft)
    }

    /// The whole value of what was found, if it is in chunks.
    async fn value_of(&self, sought: &Sought) -> Result<Option<Vec<u8>>, Error> {
        match &sought.found {
            Some(found) if found.meta.chunked => {
                self.read_chunks(found.body(&sought.batch)?).await.map(Some)
            }
            _ => Ok(None),
        }
    }
}

fn is_over_at(entry: &Entry<'_>, now_ms: u64) -> bool {
    entry.expires_at_ms.is_some_and(|at| at <= now_ms)
}
