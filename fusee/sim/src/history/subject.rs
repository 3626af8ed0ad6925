//! What is put to the test: anything with the operations of a store.

use super::failure::Conflicts;
use crate::execution::Program;
use crate::keyspec::Answer;
use fusee::{Decision, Entry, Error, Key, Setting};
use std::rc::Rc;

/// A client of keys, as the simulator drives it. Each method is the store's.
#[expect(async_fn_in_trait, reason = "the simulator has one thread, so futures need not be Send")]
pub trait Subject {
    /// Reads several keys.
    async fn read(
        &self,
        keys: &[Key<'_>],
        each: impl FnMut(usize, Result<Option<Entry<'_>>, Error>),
    );

    /// Sets a key, whatever it was.
    async fn set(
        &self,
        key: Key<'_>,
        value: &[u8],
        expires_at_ms: Option<u64>,
    ) -> Result<(), Error>;

    /// Sets keys one after another.
    async fn set_each(&self, sets: &[Setting<'_>], each: impl FnMut(usize, Result<(), Error>));

    /// Removes a key and tells whether it was there.
    async fn delete(&self, key: Key<'_>) -> Result<bool, Error>;

    /// Reads, decides and writes as one step.
    async fn update(
        &self,
        key: Key<'_>,
        decide: impl FnMut(Option<Entry<'_>>, &mut Vec<u8>) -> Decision,
    ) -> Result<(), Error>;

    /// Runs a transaction over these keys.
    async fn exec(
        subject: &Rc<Self>,
        keys: &[Vec<u8>],
        program: &Program,
    ) -> Result<Vec<Answer>, Error>;

    /// Visits some keys of a database; `None` if it cannot.
    async fn scan(
        &self,
        database: u8,
        cursor: u64,
        count: usize,
        each: impl FnMut(&[u8], Entry<'_>),
    ) -> Option<Result<u64, Error>>;

    /// The number of keys in a database; `None` if it cannot tell.
    async fn len(&self, database: u8) -> Option<Result<u64, Error>>;

    /// Does what is due in the background.
    async fn maintain(&self) -> Result<(), Error>;

    /// Its id in the pool, if it has one: it is expelled when it has stopped.
    fn id(&self) -> Option<u32> {
        None
    }

    /// Leaves the pool; all that it did has ended.
    async fn leave(&self) -> Result<(), Error> {
        Ok(())
    }

    /// How it met others so far.
    fn conflicts(&self) -> Conflicts {
        Conflicts::default()
    }

    /// Round trips so far.
    fn batches(&self) -> u64;
}
