//! A draft: an object made ready to be written, not yet seen by anybody.

use crate::alloc::Allocated;
use crate::store::Store;
use crate::{Env, Error, Key, Kind};
use fusee_fabric::{Batch, Fabric, Span, Ticket};
use fusee_layout::{
    Class, KEY_BYTES_MAX, KeyHash, LogEntry, Meta, Opcode, RECORD_BYTES, Slot, VALUE_BYTES_MAX,
    commit_record, object_bytes, write_object,
};

/// What goes into an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content<'a> {
    pub(crate) opcode: Opcode,
    pub(crate) key: Key<'a>,
    /// The value, or its length and the words of its chunks.
    pub(crate) body: &'a [u8],
    pub(crate) kind: Kind,
    pub(crate) expires_at_ms: Option<u64>,
    pub(crate) chunked: bool,
    /// The word that the write is going to replace, as far as it is known, where
    /// there is no commit record that tells it later (r = 1).
    pub(crate) over: Option<Slot>,
    /// Of an intent: its transaction's record.
    pub(crate) transaction: Option<Slot>,
}

impl<'a> Content<'a> {
    /// What its object says besides key and value.
    fn meta(&self, generation: u8) -> Meta {
        Meta {
            generation,
            database: self.key.database,
            kind: self.kind as u8,
            expires_at_ms: self.expires_at_ms,
            chunked: self.chunked,
            transaction: self.transaction,
        }
    }

    /// Bytes of its object.
    fn object_bytes(&self) -> usize {
        self.meta(0).object_bytes(self.key.name.len(), self.body.len())
    }

    /// A delete's record: it stands for the key by the key's hash, so that any
    /// delete fits the smallest class.
    pub(crate) fn of_delete(opcode: Opcode, database: u8, hash: &'a [u8; 8]) -> Self {
        Self {
            opcode,
            key: Key { database, name: &[] },
            body: hash,
            kind: Kind::String,
            expires_at_ms: None,
            chunked: false,
            over: None,
            transaction: None,
        }
    }
}

/// An object that was allocated for a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draft {
    /// Its live word.
    pub(crate) word: Slot,
    pub(crate) opcode: Opcode,
    /// The word that it says it replaces (r = 1).
    pub(crate) over: Option<Slot>,
    /// Its first bytes, for the commit record.
    pub(crate) first: [u8; RECORD_BYTES],
}

impl Draft {
    /// The slot word that the write's round is about.
    pub(crate) fn offered_word(&self) -> Slot {
        if self.opcode.is_delete() {
            self.word.tombstone()
        } else if self.opcode.is_intent() {
            self.word.prepared()
        } else {
            self.word
        }
    }
}

impl<F: Fabric, E: Env> Store<F, E> {
    /// Checks a key's and a value's length.
    pub(crate) fn check_lengths(&self, key: Key<'_>, value: usize) -> Result<(), Error> {
        let limit = self.key_bytes_max();
        if key.name.len() > limit {
            return Err(Error::KeyTooLong { limit });
        }
        let limit = self.value_bytes_max(key.name.len());
        if value > limit {
            return Err(Error::ValueTooLong { limit });
        }
        Ok(())
    }

    /// The longest key in bytes: it has to fit into one object with room for a
    /// list of chunks.
    pub fn key_bytes_max(&self) -> usize {
        (self.geometry.class_max.bytes() / 2).min(KEY_BYTES_MAX)
    }

    /// The longest value in bytes under a key of this length.
    pub fn value_bytes_max(&self, key: usize) -> usize {
        let root = self.geometry.class_max.bytes() - object_bytes(key, 0, true);
        let chunks = (root / 8).saturating_sub(2);
        (chunks * self.geometry.chunk_value_bytes()).min(VALUE_BYTES_MAX)
    }

    /// Allocates an object and stages its content in `batch`, without posting
    /// it. May ask a memory node for a block. The operation is pinned, and stays
    /// so while it has an object that no slot leads to: recovery takes one that
    /// outlasts the grace period for garbage.
    pub(crate) async fn draft(
        &self,
        batch: &mut Batch,
        hash: KeyHash,
        content: &Content<'_>,
    ) -> Result<(Draft, Span), Error> {
        self.draft_from(batch, hash, content, content.opcode.is_delete()).await
    }

    /// As [`Self::draft`]; with `reserved` out of the pool's reserve, if need be.
    pub(crate) async fn draft_from(
        &self,
        batch: &mut Batch,
        hash: KeyHash,
        content: &Content<'_>,
        reserved: bool,
    ) -> Result<(Draft, Span), Error> {
        let bytes = content.object_bytes();
        let class = self.geometry.class_for(bytes).expect("lengths were checked");
        let allocated = self.allocate(class, reserved).await?;
        Ok(self.compose(batch, hash, content, &allocated))
    }

    /// As [`Self::draft`] where no memory node has to be asked; `None` where one
    /// has.
    pub(crate) fn draft_at_once(
        &self,
        batch: &mut Batch,
        hash: KeyHash,
        content: &Content<'_>,
    ) -> Option<(Draft, Span)> {
        let class = self.geometry.class_for(content.object_bytes())?;
        let allocated = self.allocate_own(class)?;
        Some(self.compose(batch, hash, content, &allocated))
    }

    fn compose(
        &self,
        batch: &mut Batch,
        hash: KeyHash,
        content: &Content<'_>,
        allocated: &Allocated,
    ) -> (Draft, Span) {
        if content.expires_at_ms.is_some() {
            self.alloc.borrow_mut().set_expiring(allocated.address, true);
        }
        let span = batch.stage(content.object_bytes());
        let staged = batch.staged(span);
        let log = LogEntry {
            committed_over: content.over.map(Slot::word),
            next: allocated.next,
            prev: allocated.prev,
            opcode: content.opcode,
            used: true,
        };
        let meta = content.meta(allocated.generation);
        write_object(staged, &log, &meta, content.key.name, content.body);
        let draft = Draft {
            word: allocated.slot(hash.fingerprint()),
            opcode: content.opcode,
            over: content.over,
            first: staged[..RECORD_BYTES].try_into().expect("an object is longer than its record"),
        };
        (draft, span)
    }

    /// Posts the WRITEs of a draft to all replicas, one after the other; returns
    /// the first.
    pub(crate) fn post_draft(&self, batch: &mut Batch, draft: &Draft, span: Span) -> Ticket {
        let mut places = self.geometry.placement.locate_all(draft.word.address());
        let first = batch.write(places.next().expect("there is a primary"), span);
        for at in places {
            batch.write(at, span);
        }
        first
    }

    /// Where r = 1 nothing but the object itself can tell recovery which object
    /// was replaced and is to be freed: it says so before the slot moves.
    pub(crate) fn intends(&self, over: Option<Slot>) -> Option<Slot> {
        over.filter(|_| self.replicas() == 1)
    }

    /// What a write of this key is most likely going to replace (r = 1).
    pub(crate) fn guess(&self, hash: KeyHash) -> Option<Slot> {
        if self.replicas() > 1 {
            return None;
        }
        self.cache.borrow().peek(hash).map(|cached| cached.word)
    }

    /// Posts what a written draft says it is going to replace, if that was not
    /// what it said.
    pub(crate) fn post_intent(&self, batch: &mut Batch, draft: &mut Draft, over: Slot) {
        if self.replicas() == 1 && draft.over != Some(over) {
            let span = batch.stage(RECORD_BYTES);
            batch.staged(span).copy_from_slice(&commit_record(draft.first, over.word()));
            batch.write(self.primary(draft.word.address()), span);
            draft.over = Some(over);
        }
    }

    /// An object of a class, from the own lists or a new block. A delete may
    /// use the pool's reserve.
    pub(crate) async fn allocate(&self, class: Class, delete: bool) -> Result<Allocated, Error> {
        // An orphan may have nothing that can be used before its grace is over.
        // It takes two objects, one of them to be the next.
        for fresh in [false, true, true] {
            if let Some(allocated) = self.allocate_own(class) {
                return Ok(allocated);
            }
            match self.acquire_block(class, false, fresh).await {
                Ok(()) => {}
                Err(Error::Full) if delete => self.acquire_block(class, true, fresh).await?,
                Err(error) => return Err(error),
            }
        }
        self.allocate_own(class).ok_or(Error::Full)
    }

    /// An object of a class from the own lists.
    fn allocate_own(&self, class: Class) -> Option<Allocated> {
        let allocated = self.alloc.borrow_mut().allocate(class)?;
        self.stats.allocated.add(1);
        // The next object of the class is known, and written next.
        self.fabric.prefetch(self.primary(allocated.next), class.bytes());
        Some(allocated)
    }
}
