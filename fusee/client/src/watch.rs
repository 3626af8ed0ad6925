//! WATCH: has a key changed since a client looked at it?

use crate::epoch::GRACE;
use crate::read::is_over;
use crate::seek::Aim;
use crate::store::Store;
use crate::transaction::Transaction;
use crate::{Env, Error, Key};
use fusee_fabric::Fabric;
use fusee_layout::Slot;
use std::cell::Cell;

/// Own counters after which a slot word may come back: memory is used again after
/// [`GRACE`] of them at the earliest, and each use has the next generation.
const COUNTERS_MAX: u64 = GRACE * (Slot::GENERATION_MAX as u64 - 1);
/// Own counters after which a watched key has to be looked at again.
const COUNTERS_DUE: u64 = COUNTERS_MAX / 4;

/// A key as it was when a client began to watch it (Redis's WATCH).
///
/// The word in the key's slot tells whether it was written to, as long as no word
/// can have come back. That is certain for some time only, measured by the own
/// quiescent counter, so [`Store::renew`] has to be called now and then.
#[derive(Debug)]
pub struct Watched {
    database: u8,
    name: Vec<u8>,
    /// What the slot held; 0 if the key was absent.
    word: u64,
    /// The own counter when that was last known to be so.
    seen_at: Cell<u64>,
    /// Whose counter that is: no other store can tell what the word still proves.
    client: u32,
    changed: Cell<bool>,
}

impl Watched {
    /// A key as a keyspace other than a store's tells it: by a word that is another
    /// one whenever the key has changed.
    pub fn new(key: Key<'_>, word: u64) -> Self {
        let Key { database, name } = key;
        let (seen_at, changed) = (Cell::default(), Cell::default());
        Self { database, name: name.to_vec(), word, seen_at, client: 0, changed }
    }

    /// What told the key as it was.
    pub fn word(&self) -> u64 {
        self.word
    }

    /// The key.
    pub fn key(&self) -> Key<'_> {
        Key { database: self.database, name: &self.name }
    }

    /// The client that looked at it; 0 if none of a pool.
    pub fn client(&self) -> u32 {
        self.client
    }

    /// Is it known that the key has changed?
    pub fn has_changed(&self) -> bool {
        self.changed.get()
    }
}

impl<F: Fabric, E: Env> Store<F, E> {
    /// Begins to watch a key. The round trips of a read.
    ///
    /// # Errors
    ///
    /// If the key cannot be read.
    pub async fn watch(&self, key: Key<'_>) -> Result<Watched, Error> {
        let seen_at = Cell::new(self.epochs.now());
        let word = self.word_of(key).await?;
        Ok(Watched { seen_at, client: self.client, ..Watched::new(key, word) })
    }

    /// Looks again at a watched key if it is time to. None or 1 round trip.
    ///
    /// # Errors
    ///
    /// If the key cannot be read.
    pub async fn renew(&self, watched: &Watched) -> Result<(), Error> {
        let now = self.epochs.now();
        let is_due = watched.client != self.client || now >= watched.seen_at.get() + COUNTERS_DUE;
        if watched.changed.get() || !is_due {
            return Ok(());
        }
        if watched.client != self.client || now >= watched.seen_at.get() + COUNTERS_MAX {
            // Nobody has looked for too long: what the slot holds proves nothing.
            watched.changed.set(true);
            return Ok(());
        }
        if self.word_of(watched.key()).await? == watched.word {
            watched.seen_at.set(now);
        } else {
            watched.changed.set(true);
        }
        Ok(())
    }

    async fn word_of(&self, key: Key<'_>) -> Result<u64, Error> {
        let _pin = self.epochs.pin();
        self.check_lengths(key, 0)?;
        let batch = self.fabric.batch();
        let sought = self.seek(key, self.hash(key), batch, Aim::read(false)).await?;
        let now_ms = self.env.now_ms();
        let live = sought.found.filter(|found| !is_over(&found.meta, now_ms));
        self.fabric.recycle(sought.batch);
        Ok(live.map_or(0, |found| found.word.word()))
    }
}

impl<F: Fabric, E: Env> Transaction<F, E> {
    /// Is a watched key as it was? It then stays so until the transaction is done.
    ///
    /// # Errors
    ///
    /// If the key cannot be read.
    pub async fn is_unchanged(&self, watched: &Watched) -> Result<bool, Error> {
        let known = watched.seen_at.get() + COUNTERS_MAX;
        if watched.changed.get() || watched.client != self.client() || self.counter() >= known {
            return Ok(false);
        }
        let word = self.word(watched.key()).await?;
        Ok(word.map_or(0, Slot::word) == watched.word)
    }
}
