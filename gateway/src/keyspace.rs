//! What the commands need of a store. The real one is [`fusee::Store`]; tests
//! of commands use one in memory.

use std::time::Duration;

use fusee::{Decision, Entry, Error, Key, Setting, Watched};

/// A set of keys that several workers, and several gateways, share.
///
/// All operations are linearizable per key. One value serves one worker
/// thread; its futures run on that thread alone and may overlap.
#[expect(async_fn_in_trait, reason = "one thread per worker, so futures need not be Send")]
pub trait Keyspace {
    /// The keyspace as a transaction sees it.
    type Transaction: InTransaction;

    /// Reads many keys at once and hands each result over, in the order of
    /// `keys`, until `each` wants no more. One round trip when all are cached,
    /// two otherwise.
    async fn read(
        &self,
        keys: &[Key<'_>],
        each: impl FnMut(usize, Result<Option<Entry<'_>>, Error>) -> bool,
    );

    /// Sets a key, whatever it was; a value with an end in the past removes it.
    async fn set(
        &self,
        key: Key<'_>,
        value: &[u8],
        expires_at_ms: Option<u64>,
    ) -> Result<(), Error>;

    /// Sets keys one after another, each as [`Self::set`] does, and tells of each
    /// how it went, in order. Keys whose slots are cached share a round trip.
    async fn set_each(&self, sets: &[Setting<'_>], mut each: impl FnMut(usize, Result<(), Error>)) {
        for (number, set) in sets.iter().enumerate() {
            each(number, self.set(set.key, set.value, set.expires_at_ms).await);
        }
    }

    /// Removes a key and tells whether it was there.
    async fn delete(&self, key: Key<'_>) -> Result<bool, Error>;

    /// Reads, decides and writes as one atomic step. `decide` sees the current
    /// entry and an empty buffer, into which it writes the new value if it
    /// answers [`Decision::Replace`]. It is called again when another client
    /// came between, so it must set, not add to, whatever it hands out; the
    /// last call is the one that counts.
    async fn update(
        &self,
        key: Key<'_>,
        decide: impl FnMut(Option<Entry<'_>>, &mut Vec<u8>) -> Decision,
    ) -> Result<(), Error>;

    /// Visits some keys of a database and returns the cursor to go on with; 0
    /// begins and ends. A key that is there throughout is visited at least once.
    async fn scan(
        &self,
        database: u8,
        cursor: u64,
        count: usize,
        each: impl FnMut(&[u8], Entry<'_>),
    ) -> Result<u64, Error>;

    /// The number of keys in a database.
    async fn len(&self, database: u8) -> Result<u64, Error>;

    /// Removes every key of a database, or of all.
    async fn flush(&self, database: Option<u8>) -> Result<(), Error>;

    /// Runs a transaction: all that `run` reads and writes is as if it had happened
    /// at one moment, and nothing of it happens if it fails. It runs again when
    /// another client came between, so what it hands out it must set, not add to.
    async fn transact<R>(
        &self,
        run: impl AsyncFnMut(&Self::Transaction) -> Result<R, Error>,
    ) -> Result<R, Error>;

    /// Begins to watch a key.
    async fn watch(&self, key: Key<'_>) -> Result<Watched, Error>;

    /// Looks at a watched key if that is due: to be called all ten milliseconds or
    /// so as long as anybody watches it.
    async fn renew(&self, watched: &Watched) -> Result<(), Error>;

    /// Tells the store which keys the next operations are about to touch, so
    /// that it can bring their index entries into the processor's cache.
    fn prefetch(&self, keys: &[Key<'_>]);

    /// Does what is due in the background (reclamation, expiry, counters) and
    /// tells when to call again.
    async fn maintain(&self) -> Duration;

    /// The databases and names of keys that this worker has removed because their
    /// time had come, since the last call said that they are wanted.
    fn take_expired(&self, is_wanted: bool) -> Vec<(u8, Vec<u8>)>;

    /// Whether values that have ended are looked for in the background.
    fn sweep(&self, does: bool);

    /// Gives up what the worker holds of the pool; all operations have ended.
    async fn leave(&self);

    /// Milliseconds since the Unix epoch, as this keyspace counts them.
    fn now_ms(&self) -> u64;

    /// A cursor from which a scan may begin in the middle, chosen by `random`;
    /// whoever begins there must begin again at 0 to see every key.
    fn scan_start(&self, random: u64) -> u64;

    /// How many round trips to memory this worker has made so far. The
    /// difference over one poll of an operation is what that operation made.
    fn round_trips(&self) -> u64;

    /// Microseconds that this worker's operations were told to wait because others were in
    /// the way; differences as of [`Self::round_trips`].
    fn conflict_wait_us(&self) -> u64;

    /// How many keys whose time had come this worker has removed.
    fn expired_keys(&self) -> u64;

    /// How much memory there is and how much of it is taken, as far as known.
    fn usage(&self) -> Usage;
}

/// A keyspace as a transaction sees it: as it was at one moment, with what the
/// transaction has written since. A transaction within another is part of it.
#[expect(async_fn_in_trait, reason = "one thread per worker, so futures need not be Send")]
pub trait InTransaction: Keyspace {
    /// Whether what is done to these keys does not have to wait.
    fn knows(&self, keys: &[Key<'_>]) -> bool;

    /// Looks at keys that are about to be touched.
    async fn look_at(&self, keys: &[Key<'_>]) -> Result<(), Error>;

    /// Marks what has been written so far, for [`Self::rewind`].
    fn mark(&self) -> usize;

    /// Forgets what was written since.
    fn rewind(&self, mark: usize);

    /// Does something once the transaction is done, and not if it never is.
    fn afterwards(&self, action: Box<dyn FnOnce()>);

    /// Whether a watched key is as it was; it then stays so until the transaction
    /// is done.
    async fn is_unchanged(&self, watched: &Watched) -> Result<bool, Error>;
}

/// The pool's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Bytes that hold keys and values, with what surrounds them.
    pub used_bytes: u64,
    /// Bytes that there are; 0 when unknown.
    pub capacity_bytes: u64,
}
