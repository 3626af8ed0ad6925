//! Transactions over several keys (EXEC, EVAL, MSET): all of it or nothing, at one
//! moment, for whoever looks.
//!
//! A transaction runs on what it reads and keeps what it writes to itself. Then it
//! writes an intent for every key that it has looked at, also for those that stay
//! as they are: to check them only would leave a moment between the check and the
//! decision. It prepares all slots, each by a conditional write, decides, and ends
//! its intents (`intent.rs`). Whoever meets an intent can abort or end it, so a
//! client that dies leaves nothing that others wait for.
//!
//! One key needs none of that: it is a conditional write. Nor do keys that are only
//! read: if no slot has changed when all are read again, they were like this at one
//! moment in between.

use crate::draft::{Content, Draft};
use crate::intent::{Fate, Intent};
use crate::read::{entry, is_over};
use crate::round::{Again, Outcome};
use crate::seek::{Aim, Sought};
use crate::store::Store;
use crate::write::{Placed, Settled};
use crate::{Entry, Env, Error, Key, Kind};
use fusee_fabric::{Batch, Fabric};
use fusee_layout::{Address, KeyHash, Opcode, Slot};
use futures_util::future::join_all;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Times that a transaction runs again before it gives up. Each time another one
/// has got something done, or was about to.
const ATTEMPTS_MAX: u32 = 10_000;
/// The longest wait between two of them.
const BACK_OFF_US_MAX: u64 = 2000;
/// Slots that are tried for a key that is not there.
const PLACES_MAX: u32 = 100;
/// A transaction's record before its decision.
const OPEN: [u8; 8] = [0; 8];

/// A run of a transaction: what it has read, and what it is going to write. As long
/// as there is one, no memory that was freed is used again.
pub struct Transaction<F, E> {
    store: Rc<Store<F, E>>,
    members: RefCell<Vec<Member>>,
    /// Their numbers by the hash of the key; of keys with one hash the last.
    numbers: RefCell<HashMap<u64, usize>>,
    /// What had been written at some moments.
    marks: RefCell<Vec<Vec<Option<Option<Value>>>>>,
    /// Do its rounds go one after another, in an order that all keep?
    in_order: bool,
    /// The epoch in which it began.
    epoch: u64,
}

impl<F, E> Drop for Transaction<F, E> {
    fn drop(&mut self) {
        self.store.epochs.unpin(self.epoch);
    }
}

/// A key that the transaction has looked at.
struct Member {
    hash: KeyHash,
    database: u8,
    name: Vec<u8>,
    sought: Sought,
    /// What it was, unless it was absent.
    before: Option<Value>,
    /// What it becomes, unless it stays as it is.
    after: Option<Option<Value>>,
}

/// A value of a transaction's own.
#[derive(Clone, Debug)]
struct Value {
    value: Vec<u8>,
    kind: Kind,
    expires_at_ms: Option<u64>,
}

impl Value {
    fn entry(&self) -> Entry<'_> {
        Entry { value: &self.value, kind: self.kind, expires_at_ms: self.expires_at_ms }
    }
}

impl Member {
    fn key(&self) -> Key<'_> {
        Key { database: self.database, name: &self.name }
    }

    fn current(&self) -> Option<&Value> {
        self.after.as_ref().unwrap_or(&self.before).as_ref()
    }

    /// The live word that was found, though its time may have come.
    fn old(&self) -> Option<Slot> {
        self.sought.found.map(|found| found.word)
    }
}

/// What a transaction wrote for a key.
struct Written {
    draft: Draft,
    chunks: Option<Vec<u8>>,
    /// Where its round ended, if the intent is in the slot.
    at: Option<Address>,
}

impl<F: Fabric, E: Env> Store<F, E> {
    /// Runs a transaction until it is done as if nothing else had happened between
    /// its first read and its last write. `run` reads and writes by the
    /// [`Transaction`] alone, and again from the start when something had.
    ///
    /// The round trips of its reads, one after another, and: none for one key that
    /// was only read, 1 for several; for one key that is written those of
    /// [`Store::update`]; else 1 for all objects, those of the rounds (1 where r = 1,
    /// 3 where r >= 2, side by side), 1 (2) for the decision and 1 (2) for the slots.
    ///
    /// # Errors
    ///
    /// What `run` fails with: nothing is written then. [`Error::Full`] and
    /// [`Error::NodeDown`] as other writes; after a failed node all of it may be done,
    /// or nothing.
    pub async fn transact<R>(
        self: &Rc<Self>,
        mut run: impl AsyncFnMut(&Rc<Transaction<F, E>>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut hurried = false;
        for attempt in 0..ATTEMPTS_MAX {
            if attempt > 0 {
                let most = (1 << attempt.min(11)).min(BACK_OFF_US_MAX);
                self.env.sleep_us(self.env.random() % most + 1).await;
            }
            let transaction = Rc::new(self.transaction(attempt > 0));
            let result = run(&transaction).await?;
            let committed = transaction.commit().await;
            // Ends its hold on memory before anything is waited for.
            drop(transaction);
            match committed {
                Ok(true) => return Ok(result),
                Ok(false) => self.stats.transactions_retried.add(1),
                Err(Error::Full) if !hurried && self.hurry().await? => hurried = true,
                Err(error) => return Err(error),
            }
        }
        Err(Error::Conflict { attempts: ATTEMPTS_MAX })
    }

    fn transaction(self: &Rc<Self>, in_order: bool) -> Transaction<F, E> {
        let epoch = self.epochs.pin_until();
        let (members, numbers, marks) = Default::default();
        Transaction { store: self.clone(), members, numbers, marks, in_order, epoch }
    }
}

impl<F: Fabric, E: Env> Transaction<F, E> {
    /// Shows a key as it was at first sight and as the transaction has written it
    /// since. The round trips of a read, if it is the first of the key.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub async fn read<R>(
        &self,
        key: Key<'_>,
        each: impl FnOnce(Option<Entry<'_>>) -> R,
    ) -> Result<R, Error> {
        let number = self.member(key).await?;
        Ok(each(self.members.borrow()[number].current().map(Value::entry)))
    }

    /// Sets a key; an end in the past removes it.
    ///
    /// # Errors
    ///
    /// If key or value are too long, or the key cannot be read.
    pub async fn set(
        &self,
        key: Key<'_>,
        value: &[u8],
        kind: Kind,
        expires_at_ms: Option<u64>,
    ) -> Result<(), Error> {
        self.store.check_lengths(key, value.len())?;
        let number = self.member(key).await?;
        let over = expires_at_ms.is_some_and(|at| at <= self.store.env.now_ms());
        let content = Value { value: value.to_vec(), kind, expires_at_ms };
        self.members.borrow_mut()[number].after = Some((!over).then_some(content));
        Ok(())
    }

    /// Removes a key and tells whether it was there.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub async fn delete(&self, key: Key<'_>) -> Result<bool, Error> {
        let number = self.member(key).await?;
        let member = &mut self.members.borrow_mut()[number];
        let existed = member.current().is_some();
        if existed {
            member.after = Some(None);
        }
        Ok(existed)
    }

    /// The own counter, which does not pass the next as long as this runs.
    pub(crate) fn counter(&self) -> u64 {
        self.store.epochs.now()
    }

    /// The word in the slot of a key as the transaction has first seen it, none if it
    /// was absent.
    pub(crate) async fn word(&self, key: Key<'_>) -> Result<Option<Slot>, Error> {
        let number = self.member(key).await?;
        let member = &self.members.borrow()[number];
        Ok(member.before.as_ref().and(member.old()))
    }

    /// Looks at several keys at once, so that what follows finds them. The round
    /// trips of one read.
    ///
    /// # Errors
    ///
    /// If one of them cannot be read.
    pub async fn look_at(&self, keys: &[Key<'_>]) -> Result<(), Error> {
        let mut unknown: Vec<(KeyHash, Key<'_>)> = Vec::with_capacity(keys.len());
        let mut seen = HashSet::with_capacity(keys.len());
        for &key in keys {
            let hash = self.store.hash(key);
            if self.find(key, hash).is_none() && seen.insert((key.database, key.name)) {
                unknown.push((hash, key));
            }
        }
        let loaded = join_all(unknown.iter().map(|&(hash, key)| self.load(key, hash))).await;
        for member in loaded {
            self.add(member?);
        }
        Ok(())
    }

    fn find(&self, key: Key<'_>, hash: KeyHash) -> Option<usize> {
        let number = *self.numbers.borrow().get(&hash.word())?;
        let members = self.members.borrow();
        let is_it = |member: &Member| member.hash == hash && member.key() == key;
        if is_it(&members[number]) { Some(number) } else { members.iter().position(is_it) }
    }

    fn add(&self, member: Member) -> usize {
        let mut members = self.members.borrow_mut();
        self.numbers.borrow_mut().insert(member.hash.word(), members.len());
        members.push(member);
        members.len() - 1
    }

    async fn member(&self, key: Key<'_>) -> Result<usize, Error> {
        let hash = self.store.hash(key);
        if let Some(number) = self.find(key, hash) {
            return Ok(number);
        }
        let member = self.load(key, hash).await?;
        Ok(self.add(member))
    }

    /// Has it looked at all of these keys?
    pub fn knows(&self, keys: &[Key<'_>]) -> bool {
        keys.iter().all(|&key| self.find(key, self.store.hash(key)).is_some())
    }

    /// Marks what has been written so far, for [`Self::rewind`].
    pub fn mark(&self) -> usize {
        let written = self.members.borrow().iter().map(|member| member.after.clone()).collect();
        let mut marks = self.marks.borrow_mut();
        marks.push(written);
        marks.len() - 1
    }

    /// Forgets what was written since a mark, but not what was read.
    pub fn rewind(&self, mark: usize) {
        let written = self.marks.borrow_mut().drain(mark..).next().unwrap_or_default();
        let mut written = written.into_iter();
        for member in self.members.borrow_mut().iter_mut() {
            member.after = written.next().flatten();
        }
    }

    /// Takes all keys of a database, or of all, that it has looked at for removed.
    pub fn flush(&self, database: Option<u8>) {
        let mut members = self.members.borrow_mut();
        let of = members.iter_mut().filter(|m| database.is_none_or(|d| m.database == d));
        for member in of.filter(|member| member.current().is_some()) {
            member.after = Some(None);
        }
    }

    /// Visits the keys that it changes: what each was and becomes.
    pub fn changes(&self, mut each: impl FnMut(Key<'_>, Option<Entry<'_>>, Option<Entry<'_>>)) {
        for member in self.members.borrow().iter() {
            if let Some(after) = &member.after {
                let (before, after) = (member.before.as_ref(), after.as_ref());
                each(member.key(), before.map(Value::entry), after.map(Value::entry));
            }
        }
    }

    async fn load(&self, key: Key<'_>, hash: KeyHash) -> Result<Member, Error> {
        let store = &*self.store;
        store.check_lengths(key, 0)?;
        let mut sought = store.seek(key, hash, store.fabric.batch(), Aim::read(true)).await?;
        let over = |sought: &Sought| {
            sought.found.is_some_and(|found| is_over(&found.meta, store.env.now_ms()))
        };
        if over(&sought) {
            // Removed before it is taken for absent, as everywhere.
            store.fabric.recycle(sought.batch);
            store.remove_over(key, &mut Vec::new()).await?;
            sought = store.seek(key, hash, store.fabric.batch(), Aim::read(true)).await?;
        }
        let before = match &sought.found {
            Some(found) if !over(&sought) => {
                let body = found.body(&sought.batch)?;
                let chunked = found.meta.chunked;
                let value = if chunked { store.read_chunks(body).await? } else { body.to_vec() };
                let Entry { kind, expires_at_ms, .. } = entry(&found.meta, &[]);
                Some(Value { value, kind, expires_at_ms })
            }
            _ => None,
        };
        let Key { database, name } = key;
        Ok(Member { hash, database, name: name.to_vec(), sought, before, after: None })
    }

    /// Does what was written, unless another client came between: false then.
    async fn commit(&self) -> Result<bool, Error> {
        let store = &*self.store;
        let mut members = self.members.take();
        let written = members.iter().filter(|member| member.after.is_some()).count();
        let committed = match (members.as_slice(), written) {
            ([], _) | ([_], 0) => Ok(true),
            (_, 0) => store.still(&members).await,
            ([member], _) => store.commit_one(member).await,
            _ => {
                members.sort_by_key(|member| (member.hash.word(), member.database));
                store.commit_many(&members, self.in_order).await
            }
        };
        for member in members {
            store.fabric.recycle(member.sought.batch);
        }
        committed
    }
}

impl<F: Fabric, E: Env> Store<F, E> {
    /// Are the slots of all keys as they were? 1 round trip.
    async fn still(&self, members: &[Member]) -> Result<bool, Error> {
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
    async fn commit_one(&self, member: &Member) -> Result<bool, Error> {
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

    async fn commit_many(&self, members: &[Member], in_order: bool) -> Result<bool, Error> {
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
                    let cached = crate::cache::Cached { at, word: draft.word };
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
