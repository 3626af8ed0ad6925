//! How a transaction that has run is done.
//!
//! One key is a conditional write. Keys that are only read were like this at one
//! moment if no slot has changed when all are read again. Several keys, one of which
//! is written, get intents: see "Several keys" in ARCHITECTURE.md.

use crate::cache::Cached;
use crate::draft::{Content, Draft};
use crate::intent::{Fate, Intent};
use crate::round::{Again, Outcome};
use crate::seek::Aim;
use crate::store::Store;
use crate::transaction::Member;
use crate::write::{Placed, Settled};
use crate::{Env, Error, Key, Kind};
use fusee_fabric::{Batch, Fabric};
use fusee_layout::{Address, KeyHash, Opcode, Slot};
use futures_util::future::join_all;

/// Slots that are tried for a key that is not there.
const PLACES_MAX: u32 = 100;
/// A transaction's record before its decision.
const OPEN: [u8; 8] = [0; 8];

/// What a transaction wrote for a key.
struct Written {
    draft: Draft,
    chunks: Option<Vec<u8>>,
    /// Where its round ended, if the intent is in the slot.
    at: Option<Address>,
}

impl<F: Fabric, E: Env> Store<F, E> {
    /// Are the slots of all keys as they were? 1 round trip.
    pub(crate) async fn still(&self, members: &[Member]) -> Result<bool, Error> {
        let mut batch = self.fabric.batch();
        for member in members {
            match (&member.sought.found, &member.sought.view) {
                (Some(found), _) => {
                    batch.read(self.primary(found.at), 8);
                }
                (None, view) => {
                    let place = view.as_deref().expect("only buckets tell of absence").place;
                    self.read_place(&mut batch, &place);
                }
            }
        }
        let batch = self.fabric.run(batch).await;
        let mut tickets = batch.tickets();
        let mut same = true;
        for member in members {
            let mut next = || tickets.next().expect("each member has posted its READs");
            same &= match (&member.sought.found, &member.sought.view) {
                (Some(found), _) => batch.word(next())? == found.word.word(),
                (None, view) => {
                    let view = view.as_deref().expect("only buckets tell of absence");
                    view.place.is_as(view, [batch.words(next())?, batch.words(next())?])
                }
            };
        }
        self.fabric.recycle(batch);
        Ok(same)
    }

    /// A transaction of one key is a conditional write of it.
    pub(crate) async fn commit_one(&self, member: &Member) -> Result<bool, Error> {
        let Some(after) = &member.after else { return Ok(true) };
        if after.is_none() && member.old().is_none() {
            return Ok(true);
        }
        let mut batch = self.fabric.batch();
        let opcode = if after.is_some() { Opcode::Update } else { Opcode::Take };
        let written = self.write_member(&mut batch, member, opcode, None).await;
        let batch = self.fabric.run(batch).await;
        let done = batch.writes_done();
        self.fabric.recycle(batch);
        let written = written?;
        if let Err(down) = done {
            self.take_back(&written);
            return Err(down.into());
        }
        match self.place_draft(member.key(), &member.sought, &written.draft, None).await {
            Ok(placed) => match self.settle(member.hash, placed, &written.draft) {
                Settled::Won => Ok(true),
                Settled::Lost | Settled::Again(_) => {
                    self.take_back(&written);
                    Ok(false)
                }
            },
            Err(error) => {
                // After a failed node it may be visible: its recovery frees it.
                if !matches!(error, Error::NodeDown { .. }) {
                    self.take_back(&written);
                }
                Err(error)
            }
        }
    }

    /// Writes intents of all keys, decides, and ends them.
    pub(crate) async fn commit_many(
        &self,
        members: &[Member],
        in_order: bool,
    ) -> Result<bool, Error> {
        let mut batch = self.fabric.batch();
        let (record, mut written, error) = self.write_intents(&mut batch, members).await;
        // In any case: what is freed under a generation has to be in memory.
        let batch = self.fabric.run(batch).await;
        let done = batch.writes_done();
        self.fabric.recycle(batch);
        let failed = error.or_else(|| done.err().map(Error::from));
        let Some(record) = record.filter(|_| failed.is_none()) else {
            written.iter().for_each(|written| self.take_back(written));
            record.inspect(|record| self.release_lost(record));
            return Err(failed.unwrap_or(Error::Full));
        };
        let prepared = self.prepare(members, &mut written, in_order).await;
        let wanted = if prepared == Ok(true) { Fate::Committed } else { Fate::Aborted };
        let fate = self.decide(record.word, wanted).await?;
        let intents: Vec<Intent> = members
            .iter()
            .zip(&written)
            .filter_map(|(member, written)| {
                Some(Intent {
                    at: written.at?,
                    word: written.draft.word.prepared(),
                    opcode: written.draft.opcode,
                    transaction: record.word,
                    old: member.old(),
                    hash: member.hash,
                    database: member.database,
                    name: member.name.clone(),
                    owns_chunks: written.chunks.is_some(),
                })
            })
            .collect();
        self.end_intents(&intents, fate).await?;
        if let Err(Error::NodeDown { node }) = prepared {
            // A round that has failed may still be seen: what it needs is not freed.
            return Err(Error::NodeDown { node });
        }
        for (member, written) in members.iter().zip(&written) {
            self.settle_member(member, written, fate);
        }
        self.release(record.word, false);
        if fate == Fate::Committed {
            self.stats.transactions.add(1);
        }
        prepared.map(|_| fate == Fate::Committed)
    }

    /// Composes and posts the record and all intents; what was composed, and why it
    /// is not all.
    async fn write_intents(
        &self,
        batch: &mut Batch,
        members: &[Member],
    ) -> (Option<Draft>, Vec<Written>, Option<Error>) {
        let mut written = Vec::with_capacity(members.len());
        let content = Content {
            opcode: Opcode::Transaction,
            key: Key { database: 0, name: &[] },
            body: &OPEN,
            kind: Kind::String,
            expires_at_ms: None,
            chunked: false,
            over: None,
            transaction: None,
        };
        // What only deletes is done in a full pool, too.
        let deletes = members.iter().all(|member| !matches!(member.after, Some(Some(_))));
        let record = match self.draft_from(batch, KeyHash::from_word(0), &content, deletes).await {
            Ok((record, span)) => {
                self.post_draft(batch, &record, span);
                record
            }
            Err(error) => return (None, written, Some(error)),
        };
        for member in members {
            let opcode = match (&member.after, &member.before) {
                (Some(Some(_)), _) => Opcode::Prepare,
                (None, Some(_)) => Opcode::Keep,
                (Some(None) | None, _) => Opcode::Remove,
            };
            let transaction = Some((record.word, deletes));
            match self.write_member(batch, member, opcode, transaction).await {
                Ok(one) => written.push(one),
                Err(error) => return (Some(record), written, Some(error)),
            }
        }
        (Some(record), written, None)
    }

    /// Composes and posts what a member's slot is going to name. Chunks of large
    /// values are written on the way.
    async fn write_member(
        &self,
        batch: &mut Batch,
        member: &Member,
        opcode: Opcode,
        transaction: Option<(Slot, bool)>,
    ) -> Result<Written, Error> {
        let key = member.key();
        let hash = member.hash.word().to_le_bytes();
        let over = self.intends(member.old());
        let plain = Content {
            opcode,
            key,
            body: &[],
            kind: Kind::String,
            expires_at_ms: None,
            chunked: false,
            over,
            transaction: transaction.map(|(record, _)| record),
        };
        let mut chunks = None;
        let content = match (opcode, &member.after, &member.before, &member.sought.found) {
            (Opcode::Keep, _, Some(before), Some(found)) => Content {
                body: found.body(&member.sought.batch)?,
                kind: before.kind,
                expires_at_ms: before.expires_at_ms,
                chunked: found.meta.chunked,
                ..plain
            },
            (_, Some(Some(after)), ..) => {
                let expires = after.expires_at_ms.is_some();
                chunks = self.write_chunks(key, &after.value, expires).await?;
                Content {
                    body: chunks.as_deref().unwrap_or(&after.value),
                    kind: after.kind,
                    expires_at_ms: after.expires_at_ms,
                    chunked: chunks.is_some(),
                    ..plain
                }
            }
            (Opcode::Take, ..) => {
                Content { over, ..Content::of_delete(opcode, key.database, &hash) }
            }
            _ => plain,
        };
        let reserved = transaction.map_or(opcode.is_delete(), |(_, deletes)| deletes);
        let drafted = self.draft_from(batch, member.hash, &content, reserved).await;
        let (draft, span) = match drafted {
            Ok(drafted) => drafted,
            Err(error) => {
                self.drop_chunks(chunks.as_deref());
                return Err(error);
            }
        };
        self.post_draft(batch, &draft, span);
        Ok(Written { draft, chunks, at: None })
    }

    /// Brings all intents into their slots; false if one of these has changed.
    async fn prepare(
        &self,
        members: &[Member],
        written: &mut [Written],
        in_order: bool,
    ) -> Result<bool, Error> {
        let place = |number: usize| {
            let member: &Member = &members[number];
            let draft = written[number].draft;
            async move { self.place_draft(member.key(), &member.sought, &draft, None).await }
        };
        let mut placed: Vec<Result<Placed, Error>> = Vec::with_capacity(members.len());
        if in_order {
            for number in 0..members.len() {
                let one = place(number).await;
                // A slot that others wanted too is seen to below.
                let goes_on = match &one {
                    Ok(placed) => placed.outcome == Outcome::Committed || lost_slot(placed),
                    Err(_) => false,
                };
                placed.push(one);
                if !goes_on {
                    break;
                }
            }
        } else {
            placed = join_all((0..members.len()).map(place)).await;
        }
        let mut all = placed.len() == members.len();
        let mut failed = None;
        for ((placed, written), member) in placed.into_iter().zip(written).zip(members) {
            let placed = match placed {
                Ok(placed) => self.place_again(member, written, placed).await,
                failed => failed,
            };
            match placed {
                Ok(Placed { outcome: Outcome::Committed, at, .. }) => written.at = Some(at),
                Ok(_) => all = false,
                // A node that is down outweighs the rest: it leaves more behind.
                Err(_) if matches!(failed, Some(Error::NodeDown { .. })) => {}
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(all), Err)
    }

    /// Looks for another slot for the intent of an absent key whose slot went to
    /// another key, perhaps of the same transaction.
    async fn place_again(
        &self,
        member: &Member,
        written: &Written,
        mut placed: Placed,
    ) -> Result<Placed, Error> {
        let mut attempts = 0;
        while member.sought.found.is_none() && lost_slot(&placed) && attempts < PLACES_MAX {
            attempts += 1;
            let batch = self.fabric.batch();
            let sought = self.seek(member.key(), member.hash, batch, Aim::read(false)).await?;
            if sought.found.is_none() {
                let draft = &written.draft;
                placed = self.place_draft(member.key(), &sought, draft, None).await?;
            } else {
                attempts = PLACES_MAX;
            }
            self.fabric.recycle(sought.batch);
        }
        Ok(placed)
    }

    /// What is free and what is cached once a member's intent is ended.
    fn settle_member(&self, member: &Member, written: &Written, fate: Fate) {
        let Written { draft, at, .. } = written;
        let Some(at) = *at else { return self.take_back(written) };
        let chunked = member.sought.found.is_some_and(|found| found.meta.chunked);
        match (fate, draft.opcode, member.old()) {
            (Fate::Committed, opcode, old) => {
                if let Some(old) = old {
                    self.release(old, chunked && opcode != Opcode::Keep);
                }
                if opcode == Opcode::Remove {
                    self.cache.borrow().remove(member.hash);
                    self.release(draft.word, false);
                } else {
                    let cached = Cached { at, word: draft.word };
                    self.cache.borrow_mut().put(member.hash, cached);
                }
            }
            // Its copy has its chunks now. Who has put it back has freed the intent.
            (_, _, Some(old)) => self.release(old, false),
            (_, _, None) => self.take_back(written),
        }
    }

    /// Frees what was written for nothing.
    fn take_back(&self, written: &Written) {
        self.release_lost(&written.draft);
        self.drop_chunks(written.chunks.as_deref());
    }
}

/// Did the round end before anybody could see its word?
fn lost_slot(placed: &Placed) -> bool {
    matches!(placed.outcome, Outcome::Again(Again { offered: false, .. }))
}
