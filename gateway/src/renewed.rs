//! A worker's store that is made anew when the pool has ended this process's sessions:
//! the worker then begins once more, as one that was just started, and its clients stay.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use fusee::{Decision, Entry, Error, Key, Setting, Watched};

use crate::joined::Joined;
use crate::keyspace::{Keyspace, Usage};
use crate::overlay::Overlay;
use crate::remote::RemoteFabric;
use crate::store::PoolStore;

/// The store of a worker, for as long as the pool lives.
///
/// Operations that are under way when it is made anew end on the store that they began
/// on, whose memory nodes do not answer it any more.
pub struct Renewed<M> {
    joined: Joined,
    /// Makes the way to the memory nodes.
    reach: M,
    store: RefCell<Rc<PoolStore<RemoteFabric>>>,
    /// By which of the process's times in the pool the store was made.
    stay: Cell<u64>,
    gone: Cell<bool>,
    /// What earlier stores had counted when they were replaced.
    round_trips_before: Cell<u64>,
    conflict_wait_us_before: Cell<u64>,
    expired_keys_before: Cell<u64>,
}

/// Between two looks whether a pool that is gone is still gone.
const GONE: Duration = Duration::from_secs(1);

impl<M: AsyncFn(&Joined) -> Result<RemoteFabric, String>> Renewed<M> {
    /// Makes the worker's first store.
    ///
    /// # Errors
    ///
    /// With the reason, if a memory node is not reached or the pool takes no more clients.
    pub async fn join(joined: Joined, reach: M) -> Result<Self, String> {
        let stay = joined.stay().unwrap_or_default();
        let store = joined.store(reach(&joined).await?).await?;
        Ok(Self {
            joined,
            reach,
            store: RefCell::new(Rc::new(store)),
            stay: Cell::new(stay),
            gone: Cell::new(false),
            round_trips_before: Cell::new(0),
            conflict_wait_us_before: Cell::new(0),
            expired_keys_before: Cell::new(0),
        })
    }

    async fn begin_anew(&self, stay: u64) {
        let made = async { self.joined.store((self.reach)(&self.joined).await?).await };
        match made.await {
            Ok(store) => {
                self.round_trips_before.set(self.round_trips());
                self.conflict_wait_us_before.set(self.conflict_wait_us());
                self.expired_keys_before.set(self.expired_keys());
                self.store.replace(Rc::new(store));
                self.stay.set(stay);
                tracing::info!("a worker is in the pool again");
            }
            Err(reason) => tracing::warn!("a worker is not in the pool yet: {reason}"),
        }
    }

    fn store(&self) -> Result<Rc<PoolStore<RemoteFabric>>, Error> {
        if self.gone.get() { Err(Error::Gone) } else { Ok(self.latest()) }
    }

    fn latest(&self) -> Rc<PoolStore<RemoteFabric>> {
        self.store.borrow().clone()
    }
}

impl<M: AsyncFn(&Joined) -> Result<RemoteFabric, String>> Keyspace for Renewed<M> {
    type Transaction = Overlay<RemoteFabric>;

    async fn read(
        &self,
        keys: &[Key<'_>],
        mut each: impl FnMut(usize, Result<Option<Entry<'_>>, Error>) -> bool,
    ) {
        match self.store() {
            Ok(store) => store.read(keys, each).await,
            Err(error) => {
                let _ = (0..keys.len()).all(|number| each(number, Err(error)));
            }
        }
    }

    async fn set(
        &self,
        key: Key<'_>,
        value: &[u8],
        expires_at_ms: Option<u64>,
    ) -> Result<(), Error> {
        self.store()?.set(key, value, expires_at_ms).await
    }

    async fn set_each(&self, sets: &[Setting<'_>], mut each: impl FnMut(usize, Result<(), Error>)) {
        match self.store() {
            Ok(store) => store.set_each(sets, each).await,
            Err(error) => (0..sets.len()).for_each(|number| each(number, Err(error))),
        }
    }

    async fn delete(&self, key: Key<'_>) -> Result<bool, Error> {
        self.store()?.delete(key).await
    }

    async fn update(
        &self,
        key: Key<'_>,
        decide: impl FnMut(Option<Entry<'_>>, &mut Vec<u8>) -> Decision,
    ) -> Result<(), Error> {
        self.store()?.update(key, decide).await
    }

    async fn scan(
        &self,
        database: u8,
        cursor: u64,
        count: usize,
        each: impl FnMut(&[u8], Entry<'_>),
    ) -> Result<u64, Error> {
        self.store()?.scan(database, cursor, count, each).await
    }

    async fn len(&self, database: u8) -> Result<u64, Error> {
        self.store()?.len(database).await
    }

    async fn flush(&self, database: Option<u8>) -> Result<(), Error> {
        self.store()?.flush(database).await
    }

    async fn transact<R>(
        &self,
        run: impl AsyncFnMut(&Overlay<RemoteFabric>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.store()?.transact(run).await
    }

    async fn watch(&self, key: Key<'_>) -> Result<Watched, Error> {
        self.store()?.watch(key).await
    }

    async fn renew(&self, watched: &Watched) -> Result<(), Error> {
        self.store()?.renew(watched).await
    }

    fn prefetch(&self, keys: &[Key<'_>]) {
        self.store.borrow().prefetch(keys);
    }

    async fn maintain(&self) -> Duration {
        match self.joined.stay() {
            None => {
                self.gone.set(true);
                return GONE;
            }
            Some(stay) if stay != self.stay.get() => self.begin_anew(stay).await,
            Some(_) => {}
        }
        self.latest().maintain().await
    }

    fn take_expired(&self, is_wanted: bool) -> Vec<(u8, Vec<u8>)> {
        self.store.borrow().take_expired(is_wanted)
    }

    fn sweep(&self, does: bool) {
        self.store.borrow().sweep(does);
    }

    async fn leave(&self) {
        self.latest().leave().await;
    }

    fn now_ms(&self) -> u64 {
        self.store.borrow().now_ms()
    }

    fn scan_start(&self, random: u64) -> u64 {
        self.store.borrow().scan_start(random)
    }

    fn round_trips(&self) -> u64 {
        self.round_trips_before.get() + self.store.borrow().round_trips()
    }

    fn conflict_wait_us(&self) -> u64 {
        self.conflict_wait_us_before.get() + self.store.borrow().conflict_wait_us()
    }

    fn expired_keys(&self) -> u64 {
        self.expired_keys_before.get() + self.store.borrow().expired_keys()
    }

    fn usage(&self) -> Usage {
        self.store.borrow().usage()
    }
}
