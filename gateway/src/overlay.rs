//! A store's keys as a transaction sees them: as they were when it first looked at
//! each, with what it has written since.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use fusee::{Decision, Entry, Error, Key, Kind, Setting, Transaction, Watched};
use fusee_fabric::Fabric;

use crate::keyspace::{InTransaction, Keyspace, Usage};
use crate::store::{PoolStore, TokioEnv};

/// The keyspace of a transaction.
pub struct Overlay<F> {
    transaction: Rc<Transaction<F, TokioEnv>>,
    store: PoolStore<F>,
    /// All commands of a transaction run at one moment.
    now_ms: u64,
    /// What is done after the transaction.
    afterwards: RefCell<Vec<Box<dyn FnOnce()>>>,
    /// How much of that there was at some moments.
    marks: RefCell<Vec<usize>>,
}

impl<F: Fabric> Overlay<F> {
    /// What `transaction` sees of `store`.
    pub(crate) fn new(store: &PoolStore<F>, transaction: &Rc<Transaction<F, TokioEnv>>) -> Self {
        let (transaction, store) = (transaction.clone(), store.clone());
        let (now_ms, afterwards, marks) = (store.now_ms(), RefCell::default(), RefCell::default());
        Self { transaction, store, now_ms, afterwards, marks }
    }

    /// What is to be done once the transaction is.
    pub(crate) fn actions(&self) -> Vec<Box<dyn FnOnce()>> {
        self.afterwards.take()
    }
}

impl<F: Fabric> Keyspace for Overlay<F> {
    type Transaction = Self;

    async fn read(
        &self,
        keys: &[Key<'_>],
        mut each: impl FnMut(usize, Result<Option<Entry<'_>>, Error>) -> bool,
    ) {
        let failed = self.transaction.look_at(keys).await.err();
        for (number, key) in keys.iter().enumerate() {
            let goes_on = match failed {
                Some(error) => each(number, Err(error)),
                None => {
                    let read = self.transaction.read(*key, |entry| each(number, Ok(entry)));
                    read.await.unwrap_or(false)
                }
            };
            if !goes_on {
                break;
            }
        }
    }

    async fn set(
        &self,
        key: Key<'_>,
        value: &[u8],
        expires_at_ms: Option<u64>,
    ) -> Result<(), Error> {
        self.transaction.set(key, value, Kind::String, expires_at_ms).await
    }

    async fn set_each(&self, sets: &[Setting<'_>], mut each: impl FnMut(usize, Result<(), Error>)) {
        let keys: Vec<Key<'_>> = sets.iter().map(|set| set.key).collect();
        let looked = self.transaction.look_at(&keys).await;
        for (number, set) in sets.iter().enumerate() {
            let done = match looked {
                Ok(()) => self.set(set.key, set.value, set.expires_at_ms).await,
                Err(error) => Err(error),
            };
            each(number, done);
        }
    }

    async fn delete(&self, key: Key<'_>) -> Result<bool, Error> {
        self.transaction.delete(key).await
    }

    async fn update(
        &self,
        key: Key<'_>,
        mut decide: impl FnMut(Option<Entry<'_>>, &mut Vec<u8>) -> Decision,
    ) -> Result<(), Error> {
        let mut value = Vec::new();
        match self.transaction.read(key, |entry| decide(entry, &mut value)).await? {
            Decision::Keep => Ok(()),
            Decision::Delete => self.transaction.delete(key).await.map(|_| ()),
            Decision::Replace { kind, expires_at_ms } => {
                self.transaction.set(key, &value, kind, expires_at_ms).await
            }
        }
    }

    async fn scan(
        &self,
        database: u8,
        cursor: u64,
        count: usize,
        mut each: impl FnMut(&[u8], Entry<'_>),
    ) -> Result<u64, Error> {
        let mut changed: Vec<Vec<u8>> = Vec::new();
        self.transaction.changes(|key, _, after| {
            if key.database == database {
                changed.push(key.name.to_vec());
                // What is new comes first.
                if let Some(entry) = after.filter(|_| cursor == 0) {
                    each(key.name, entry);
                }
            }
        });
        let rest = |name: &[u8], entry: Entry<'_>| {
            if !changed.iter().any(|changed| changed == name) {
                each(name, entry);
            }
        };
        self.store.scan(database, cursor, count, rest).await
    }

    async fn len(&self, database: u8) -> Result<u64, Error> {
        let mut more = 0;
        self.transaction.changes(|key, before, after| {
            if key.database == database {
                more += i64::from(after.is_some()) - i64::from(before.is_some());
            }
        });
        Ok(self.store.len(database).await?.saturating_add_signed(more))
    }

    async fn flush(&self, database: Option<u8>) -> Result<(), Error> {
        // At once, since it is no single step anyway: what the transaction knows
        // of these keys it finds changed then, and runs again.
        self.store.flush(database).await?;
        self.transaction.flush(database);
        Ok(())
    }

    async fn transact<R>(
        &self,
        mut run: impl AsyncFnMut(&Self) -> Result<R, Error>,
    ) -> Result<R, Error> {
        run(self).await
    }

    async fn watch(&self, key: Key<'_>) -> Result<Watched, Error> {
        self.store.watch(key).await
    }

    async fn renew(&self, watched: &Watched) -> Result<(), Error> {
        self.store.renew(watched).await
    }

    fn prefetch(&self, _keys: &[Key<'_>]) {}

    async fn maintain(&self) -> Duration {
        self.store.maintain().await
    }

    fn take_expired(&self, is_wanted: bool) -> Vec<(u8, Vec<u8>)> {
        self.store.take_expired(is_wanted)
    }

    fn sweep(&self, does: bool) {
        self.store.sweep(does);
    }

    async fn leave(&self) {
        self.store.leave().await;
    }

    fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn scan_start(&self, random: u64) -> u64 {
        self.store.scan_start(random)
    }

    fn round_trips(&self) -> u64 {
        self.store.round_trips()
    }

    fn conflict_wait_us(&self) -> u64 {
        self.store.conflict_wait_us()
    }

    fn expired_keys(&self) -> u64 {
        self.store.expired_keys()
    }

    fn usage(&self) -> Usage {
        self.store.usage()
    }
}

impl<F: Fabric> InTransaction for Overlay<F> {
    fn knows(&self, keys: &[Key<'_>]) -> bool {
        self.transaction.knows(keys)
    }

    async fn look_at(&self, keys: &[Key<'_>]) -> Result<(), Error> {
        self.transaction.look_at(keys).await
    }

    fn mark(&self) -> usize {
        self.marks.borrow_mut().push(self.afterwards.borrow().len());
        self.transaction.mark()
    }

    fn rewind(&self, mark: usize) {
        self.transaction.rewind(mark);
        let count = self.marks.borrow_mut().drain(mark..).next().unwrap_or_default();
        self.afterwards.borrow_mut().truncate(count);
    }

    fn afterwards(&self, action: Box<dyn FnOnce()>) {
        self.afterwards.borrow_mut().push(action);
    }

    async fn is_unchanged(&self, watched: &Watched) -> Result<bool, Error> {
        self.transaction.is_unchanged(watched).await
    }
}
