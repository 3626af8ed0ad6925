//! Reading a key that a transaction is about to change: what it is is what the
//! transaction has decided, and as long as that is nothing, what it was before.

use crate::intent::{Fate, Intent};
use crate::read::{is_of, is_over};
use crate::store::Store;
use crate::{Env, Error, Key, Kind};
use fusee_fabric::{Batch, Fabric, Ticket};
use fusee_layout::{Address, Opcode, Slot, Unverified};

/// Readings that found the slot moved on before this gives up.
const ATTEMPTS_MAX: u32 = 1000;

impl<F: Fabric, E: Env> Store<F, E> {
    /// Reads a key whose slot held an intent a moment ago; `value` takes its bytes.
    /// 3 round trips, mostly. The caller is pinned.
    pub(crate) async fn read_prepared(
        &self,
        key: Key<'_>,
        value: &mut Vec<u8>,
    ) -> Result<Option<(Kind, Option<u64>)>, Error> {
        for _ in 0..ATTEMPTS_MAX {
            let found = self.look_up(key).await?;
            let (batch, at, word, object) = match found {
                Seen::Absent => return Ok(None),
                Seen::Torn => continue,
                Seen::Word(batch, at, word, object) => (batch, at, word, object),
            };
            let decided = if word.is_prepared() {
                let intent = self.parse_intent(batch.bytes(object)?, at, word);
                let intent = intent.ok_or(Error::Corrupt { what: "an intent" })?;
                self.as_decided(batch, object, intent).await?
            } else {
                Decided::Value(batch, object, word)
            };
            let (batch, object, word) = match decided {
                Decided::Absent => return Ok(None),
                Decided::Moved => continue,
                Decided::Value(batch, object, word) => (batch, object, word),
            };
            let verified = Unverified::new(batch.bytes(object)?).verify(word);
            let Some(verified) = verified.filter(|object| is_of(object, key)) else {
                self.fabric.recycle(batch);
                continue;
            };
            let meta = verified.meta;
            if is_over(&meta, self.env.now_ms()) {
                // Removed before it is said to be absent, as everywhere.
                self.fabric.recycle(batch);
                return self.remove_over(key, value).await;
            }
            value.clear();
            if meta.chunked {
                value.extend_from_slice(&self.read_chunks(verified.body).await?);
            } else {
                value.extend_from_slice(verified.body);
            }
            self.fabric.recycle(batch);
            return Ok(Some((Kind::from_bits(meta.kind), meta.expires_at_ms)));
        }
        Err(Error::Conflict { attempts: ATTEMPTS_MAX })
    }

    /// The word in the slot of a key, with the object that it names. 2 round trips.
    async fn look_up(&self, key: Key<'_>) -> Result<Seen, Error> {
        let hash = self.hash(key);
        let mut place = self.place(hash);
        let mut batch = self.fabric.batch();
        let read = self.read_place(&mut batch, &place);
        batch = self.fabric.run(batch).await;
        let view = self.view(&batch, &mut place, read).await?;
        batch.clear();
        let candidates = || view.candidates(hash.fingerprint());
        for (_, word) in candidates() {
            batch.read(self.primary(word.address()), word.class().bytes());
        }
        if batch.is_empty() {
            self.fabric.recycle(batch);
            return Ok(Seen::Absent);
        }
        let batch = self.fabric.run(batch).await;
        let mut torn = false;
        for ((at, word), object) in candidates().zip(batch.tickets()) {
            match Unverified::new(batch.bytes(object)?).verify(word) {
                Some(verified) if is_of(&verified, key) => {
                    return Ok(Seen::Word(batch, at, word, object));
                }
                Some(_) => {}
                None => torn = true,
            }
        }
        self.fabric.recycle(batch);
        Ok(if torn { Seen::Torn } else { Seen::Absent })
    }

    /// What a key is while this intent is in its slot. `batch` holds the intent. 1
    /// round trip, seldom 2.
    async fn as_decided(
        &self,
        batch: Batch,
        object: Ticket,
        intent: Intent,
    ) -> Result<Decided, Error> {
        let mut more = self.fabric.batch();
        let first = self.post_fate(&mut more, intent.transaction);
        let old = intent
            .old
            .map(|old| (old, more.read(self.primary(old.address()), old.class().bytes())));
        let more = self.fabric.run(more).await;
        let fate = self.settled_fate(&more, first, intent.transaction).await?;
        if fate == Fate::Committed {
            self.fabric.recycle(more);
            return Ok(if intent.opcode == Opcode::Remove {
                self.fabric.recycle(batch);
                Decided::Absent
            } else {
                Decided::Value(batch, object, intent.word)
            });
        }
        self.fabric.recycle(batch);
        let Some((old, ticket)) = old else {
            self.fabric.recycle(more);
            return Ok(Decided::Absent);
        };
        if Unverified::new(more.bytes(ticket)?).verify(old).is_none() {
            self.fabric.recycle(more);
            return Ok(Decided::Moved);
        }
        Ok(Decided::Value(more, ticket, old))
    }
}

/// What a look at the index found.
enum Seen {
    Absent,
    Torn,
    Word(Batch, Address, Slot, Ticket),
}

/// What a key with an intent is.
enum Decided {
    Absent,
    /// The intent is over by now.
    Moved,
    Value(Batch, Ticket, Slot),
}
