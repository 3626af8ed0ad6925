//! Where a key is, for a writer: its slot, what is in it, or where it may go.

use crate::cache::{Cached, Lookup};
use crate::draft::{Content, Draft};
use crate::index::View;
use crate::read::is_of;
use crate::store::Store;
use crate::write::Replaced;
use crate::{Env, Error, Key};
use fusee_fabric::{Batch, Fabric, Ticket};
use fusee_layout::{Address, KeyHash, Meta, Opcode, Slot, Unverified, prefix_bytes};

/// Readings that found an object torn before a write gives up.
const ATTEMPTS_MAX: u32 = 1000;

/// What a writer knows of its key.
pub(crate) struct Sought {
    /// Holds the bytes of what was found.
    pub(crate) batch: Batch,
    pub(crate) hash: KeyHash,
    /// The buckets, unless the cached slot was current.
    pub(crate) view: Option<Box<View>>,
    pub(crate) found: Option<FoundObject>,
}

/// The live word of the key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundObject {
    pub(crate) at: Address,
    pub(crate) word: Slot,
    pub(crate) meta: Meta,
    object: Ticket,
    /// Of the whole object, if it was asked for.
    body_at: usize,
    body_end: usize,
}

impl FoundObject {
    pub(crate) fn replaced(&self) -> Replaced {
        Replaced { word: self.word, chunked: self.meta.chunked }
    }

    /// The value, or its length and chunk words; if the whole object was read.
    pub(crate) fn body<'a>(&self, batch: &'a Batch) -> Result<&'a [u8], Error> {
        Ok(&batch.bytes(self.object)?[self.body_at..self.body_end])
    }
}

/// What a writer wants to know, and has to say along the way.
pub(crate) struct Aim<'a> {
    /// Shall the whole object be read, not just the key?
    pub(crate) whole: bool,
    /// For a delete: its record, to be written as soon as the key seems to be
    /// there, along with a READ that is due anyway.
    pub(crate) delete: Option<&'a mut Option<Draft>>,
    /// For a SET: its draft, which is written or in the batch already.
    pub(crate) draft: Option<&'a mut Draft>,
}

impl Aim<'_> {
    /// The key alone, or the whole of what is there.
    pub(crate) const fn read(whole: bool) -> Self {
        Self { whole, delete: None, draft: None }
    }
}

impl<F: Fabric, E: Env> Store<F, E> {
    /// Finds the key's slot; runs `batch` along with the first READs. 1 round
    /// trip where the cached slot is current or no fingerprint matches, else 2
    /// (3 where the cached slot is out of date). A transaction that is about to
    /// change the key is ended first.
    pub(crate) async fn seek(
        &self,
        key: Key<'_>,
        hash: KeyHash,
        mut batch: Batch,
        mut aim: Aim<'_>,
    ) -> Result<Sought, Error> {
        let lookup = self.cache.borrow().get(hash);
        if let Lookup::Hit(cached) = lookup {
            self.post_delete(&mut batch, key, hash, &mut aim, Some(cached.word)).await?;
            let mut guess = Some(cached);
            for first in [true, false] {
                let Some(cached) = guess else { break };
                self.post_aim(&mut batch, &mut aim, cached.word);
                let slot = batch.read(self.primary(cached.at), 8);
                let object = self.read_candidate(&mut batch, key, cached.word, aim.whole);
                batch = self.fabric.run(batch).await;
                batch.writes_done()?;
                let word = batch.word(slot)?;
                if word == cached.word.word()
                    && let Some(found) =
                        of_key(&batch, object, cached.at, cached.word, key, aim.whole)?
                {
                    let count = if first { &self.stats.index_hit } else { &self.stats.index_stale };
                    count.add(1);
                    return Ok(Sought { batch, hash, view: None, found: Some(found) });
                }
                if first {
                    self.cache.borrow().invalid(hash);
                }
                // Whatever the slot holds now is most likely the key's next value.
                guess = self.remember(hash, cached.at, word);
                batch.clear();
            }
            self.stats.index_stale.add(1);
        } else {
            let bypass = matches!(lookup, Lookup::Bypass);
            let count = if bypass { &self.stats.index_bypass } else { &self.stats.index_miss };
            count.add(1);
        }
        for _ in 0..ATTEMPTS_MAX {
            let mut place = self.place(hash);
            let read = self.read_place(&mut batch, &place);
            batch = self.fabric.run(batch).await;
            batch.writes_done()?;
            let view = self.view(&batch, &mut place, read).await?;
            let fingerprint = hash.fingerprint();
            if view.candidates(fingerprint).next().is_none() {
                return Ok(Sought { batch, hash, view: Some(view), found: None });
            }
            batch.clear();
            let only = {
                let mut candidates = view.candidates(fingerprint);
                let first = candidates.next().map(|(_, word)| word);
                first.filter(|_| candidates.next().is_none())
            };
            self.post_delete(&mut batch, key, hash, &mut aim, only).await?;
            if let Some(word) = only {
                self.post_aim(&mut batch, &mut aim, word);
            }
            let first = batch.len();
            for (_, word) in view.candidates(fingerprint) {
                self.read_candidate(&mut batch, key, word, aim.whole);
            }
            batch = self.fabric.run(batch).await;
            batch.writes_done()?;
            let mut torn = false;
            let mut found = None;
            for ((at, word), object) in
                view.candidates(fingerprint).zip(batch.tickets().skip(first))
            {
                match of_key(&batch, object, at, word, key, aim.whole)? {
                    Some(of_key) => found = Some(of_key),
                    None if aim.whole => {
                        torn |= Unverified::new(batch.bytes(object)?).verify(word).is_none();
                    }
                    None => {}
                }
            }
            if let Some(found) = found.filter(|found| found.word.is_prepared()) {
                // A write goes on from what the key is, not from what it may become.
                self.finish(found.at, found.word).await?;
                batch.clear();
                continue;
            }
            if found.is_some() || !torn {
                if let Some(found) = &found {
                    self.cache.borrow_mut().put(hash, Cached { at: found.at, word: found.word });
                }
                return Ok(Sought { batch, hash, view: Some(view), found });
            }
            self.stats.torn.add(1);
            batch.clear();
        }
        Err(Error::Conflict { attempts: ATTEMPTS_MAX })
    }

    /// READs a candidate: its beginning up to the key, or all of it.
    pub(crate) fn read_candidate(
        &self,
        batch: &mut Batch,
        key: Key<'_>,
        word: Slot,
        whole: bool,
    ) -> Ticket {
        let bytes = word.class().bytes();
        let bytes = if whole { bytes } else { bytes.min(prefix_bytes(key.name.len())) };
        batch.read(self.primary(word.address()), bytes)
    }

    /// Writes a delete's record along, if the aim is one and it was not yet.
    async fn post_delete(
        &self,
        batch: &mut Batch,
        key: Key<'_>,
        hash: KeyHash,
        aim: &mut Aim<'_>,
        over: Option<Slot>,
    ) -> Result<(), Error> {
        let Some(draft) = aim.delete.as_deref_mut() else { return Ok(()) };
        if draft.is_none() {
            let word = hash.word().to_le_bytes();
            let content = Content::of_delete(Opcode::Delete, key.database, &word);
            let content = Content { over: self.intends(over), ..content };
            let (made, span) = self.draft(batch, hash, &content).await?;
            self.post_draft(batch, &made, span);
            *draft = Some(made);
        }
        Ok(())
    }

    /// Lets what is written for the aim say that it is going to replace `over`.
    fn post_aim(&self, batch: &mut Batch, aim: &mut Aim<'_>, over: Slot) {
        let record = aim.delete.as_deref_mut().and_then(Option::as_mut);
        if let Some(draft) = record.or(aim.draft.as_deref_mut()) {
            self.post_intent(batch, draft, over);
        }
    }
}

impl<F, E> Store<F, E> {
    /// Notes what a slot held that was the key's, if that may be its value: whoever
    /// uses it looks at the object's key.
    pub(crate) fn remember(&self, hash: KeyHash, at: Address, word: u64) -> Option<Cached> {
        let word = Slot::from_word(word)?;
        if !word.is_live() || word.fingerprint() != hash.fingerprint() {
            return None;
        }
        let cached = Cached { at, word };
        self.cache.borrow_mut().put(hash, cached);
        Some(cached)
    }
}

/// The object that a candidate's READ brought, if it has the key. Without
/// `whole` its checksum is not looked at: the word was live when the slot was
/// read, so its object was whole, and nothing that is freed after that is
/// used again before this operation ends.
pub(crate) fn of_key(
    batch: &Batch,
    object: Ticket,
    at: Address,
    word: Slot,
    key: Key<'_>,
    whole: bool,
) -> Result<Option<FoundObject>, Error> {
    let bytes = Unverified::new(batch.bytes(object)?);
    if whole {
        return Ok(bytes.verify(word).filter(|o| is_of(o, key)).map(|o| FoundObject {
            at,
            word,
            meta: o.meta,
            object,
            body_at: o.body_at,
            body_end: o.body_at + o.body.len(),
        }));
    }
    let prefix = bytes.prefix(word);
    let of_key = prefix.filter(|p| p.key == key.name && p.meta.database == key.database);
    Ok(of_key.map(|p| FoundObject { at, word, meta: p.meta, object, body_at: 0, body_end: 0 }))
}
