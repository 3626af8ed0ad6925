//! Transactions over several keys (EXEC, EVAL, MSET): all of it or nothing, at one
//! moment, for whoever looks.
//!
//! A transaction runs on what it reads and keeps what it writes to itself. Then it
//! writes an intent for every key that it has looked at, also for those that stay
//! as they are: to check them only would leave a moment between the check and the
//! decision. It prepares all slots, each by a conditional write, decides
//! (`commit.rs`), and ends its intents (`intent.rs`). Whoever meets an intent can
//! abort or end it, so a client that dies leaves nothing that others wait for.

use crate::read::{entry, is_over};
use crate::seek::{Aim, Sought};
use crate::store::Store;
use crate::{Entry, Env, Error, Key, Kind};
use fusee_fabric::Fabric;
use fusee_layout::{KeyHash, Slot};
use futures_util::future::join_all;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Times that a transaction runs again before it gives up. Each time another one
/// has got something done, or was about to.
const ATTEMPTS_MAX: u32 = 10_000;
/// The longest wait between two of them.
const BACK_OFF_US_MAX: u64 = 2000;

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
pub(crate) struct Member {
    pub(crate) hash: KeyHash,
    pub(crate) database: u8,
    pub(crate) name: Vec<u8>,
    pub(crate) sought: Sought,
    /// What it was, unless it was absent.
    pub(crate) before: Option<Value>,
    /// What it becomes, unless it stays as it is.
    pub(crate) after: Option<Option<Value>>,
}

/// A value of a transaction's own.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) value: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) expires_at_ms: Option<u64>,
}

impl Value {
    fn entry(&self) -> Entry<'_> {
        Entry { value: &self.value, kind: self.kind, expires_at_ms: self.expires_at_ms }
    }
}

impl Member {
    pub(crate) fn key(&self) -> Key<'_> {
        Key { database: self.database, name: &self.name }
    }

    fn current(&self) -> Option<&Value> {
        self.after.as_ref().unwrap_or(&self.before).as_ref()
    }

    /// The live word that was found, though its time may have come.
    pub(crate) fn old(&self) -> Option<Slot> {
        self.sought.found.map(|found| found.word)
    }
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
                self.wait_for_others(self.env.random() % most + 1).await;
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

    /// Whose transaction it is.
    pub(crate) fn client(&self) -> u32 {
        self.store.client
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
        let of = members.iter_mut().filter(|member| member.key().is_in(database));
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
