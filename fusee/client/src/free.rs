//! Freeing objects: what is not needed any more is noted, and batches of notes
//! become WRITEs of the free map at all replicas, one byte per object.

use crate::chunk;
use crate::draft::Draft;
use crate::store::Store;
use crate::{Env, Error};
use fusee_fabric::{Batch, Fabric, Ticket};
use fusee_layout::{OPCODE_AT, Opcode, Slot, Unverified};

/// Frees that one batch writes.
const FREES_PER_BATCH: usize = 512;

/// An object that is not needed any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freed {
    pub(crate) word: Slot,
    /// Does it list chunks, which are to be freed with it?
    chunked: bool,
    /// The opcode to write back without the used bit, if its write has lost.
    lost: Option<Opcode>,
}

/// A free that has been posted: its WRITEs, and the object by its place.
struct PostedFree {
    first: Ticket,
    verbs: usize,
    /// Region and number of its block.
    block: (u32, u32),
    number: u32,
}

impl<F: Fabric, E: Env> Store<F, E> {
    /// Notes that an object is not needed any more. Its owner may be anyone.
    pub(crate) fn release(&self, word: Slot, chunked: bool) {
        let freed = Freed { word: word.alive(), chunked, lost: None };
        self.reclaimer.borrow_mut().freed.push_back(freed);
    }

    /// Notes that an own draft has lost, without its chunks: recovery shall not
    /// take it for a write that has to be finished.
    pub(crate) fn release_lost(&self, draft: &Draft) {
        let freed = Freed { word: draft.word, chunked: false, lost: Some(draft.opcode) };
        self.reclaimer.borrow_mut().freed.push_back(freed);
    }

    /// Writes all noted frees to the free maps. 1 round trip per batch.
    pub(crate) async fn flush_frees(&self) -> Result<(), Error> {
        loop {
            let many: Vec<Freed> = {
                let freed = &mut self.reclaimer.borrow_mut().freed;
                let many = freed.len().min(FREES_PER_BATCH);
                freed.drain(..many).collect()
            };
            if many.is_empty() {
                return Ok(());
            }
            let (mut roots, mut rest): (Vec<Freed>, Vec<Freed>) =
                many.into_iter().partition(|freed| freed.chunked);
            let written = async {
                rest.extend(self.chunks_of(&roots).await?);
                self.write_frees(&mut rest).await?;
                // The roots come last: who finds one that is not freed can still
                // free its chunks.
                self.write_frees(&mut roots).await
            };
            if let Err(error) = written.await {
                self.reclaimer.borrow_mut().freed.extend(rest.into_iter().chain(roots));
                return Err(error);
            }
        }
    }

    /// Writes frees to the free maps and takes those out of `many` that were
    /// written. 1 round trip per batch.
    async fn write_frees(&self, many: &mut Vec<Freed>) -> Result<(), Error> {
        let (mut kept, mut failed) = (Vec::new(), None);
        while !many.is_empty() {
            let some = many.len().min(FREES_PER_BATCH);
            let mut batch = self.fabric.batch();
            let mut posted = Vec::with_capacity(some);
            for freed in &many[..some] {
                posted.push(self.post_free(&mut batch, freed)?);
            }
            let batch = self.fabric.run(batch).await;
            let all_done = batch.writes_done().is_ok();
            let mut alloc = self.alloc.borrow_mut();
            let mut reclaimer = self.reclaimer.borrow_mut();
            for (freed, posted) in many.drain(..some).zip(posted) {
                if !all_done && let Err(down) = batch.all_done(posted.first, posted.verbs) {
                    // It stays noted, for when the node or its successor is there.
                    kept.push(freed);
                    failed = Some(down);
                    continue;
                }
                self.stats.freed.add(1);
                // Own objects need not be found in the free map first.
                if let Some(object) = alloc.object(posted.block, posted.number, freed.word.class())
                    && alloc.enter_grace(object, freed.word.generation())
                {
                    reclaimer.begin_grace(object);
                }
            }
            drop((alloc, reclaimer));
            self.fabric.recycle(batch);
        }
        *many = kept;
        failed.map_or(Ok(()), |down| Err(down.into()))
    }

    /// Frees the objects of these words, which are known to be in use, to be of
    /// their generation, and to be needed by nobody. 1 round trip per batch.
    pub(crate) async fn free_words(&self, words: &[Slot]) -> Result<(), Error> {
        let plain = |&word: &Slot| Freed { word: word.alive(), chunked: false, lost: None };
        self.write_frees(&mut words.iter().map(plain).collect()).await
    }

    /// The chunks that these roots list.
    async fn chunks_of(&self, roots: &[Freed]) -> Result<Vec<Freed>, Error> {
        let mut listed = Vec::new();
        for freed in roots {
            let mut batch = self.fabric.batch();
            let bytes = freed.word.class().bytes();
            let ticket = batch.read(self.primary(freed.word.address()), bytes);
            let batch = self.fabric.run(batch).await;
            let root = Unverified::new(batch.bytes(ticket)?).verify(freed.word);
            let root = root.ok_or(Error::Corrupt { what: "a root that was freed" })?;
            let (_, words) =
                chunk::parse(root.body).ok_or(Error::Corrupt { what: "a list of chunks" })?;
            let chunk = |word| Freed { word, chunked: false, lost: None };
            listed.extend(words.flatten().map(chunk));
            self.fabric.recycle(batch);
        }
        Ok(listed)
    }

    fn post_free(&self, batch: &mut Batch, freed: &Freed) -> Result<PostedFree, Error> {
        const CORRUPT: Error = Error::Corrupt { what: "the address of a freed object" };
        let word = freed.word;
        let (region, block, start) = self.geometry.block_of(word.address()).ok_or(CORRUPT)?;
        let layout = self.geometry.layout(word.class()).ok_or(CORRUPT)?;
        let number = layout.number(start, word.address()).ok_or(CORRUPT)?;
        let (mut first, mut verbs) = (None, 0);
        let mut post = |at, value| {
            let ticket = batch.write_byte(at, value);
            first.get_or_insert(ticket);
            verbs += 1;
        };
        let placement = &self.geometry.placement;
        if let Some(opcode) = freed.lost {
            for at in placement.locate_all(word.address()) {
                post(at.plus(OPCODE_AT as u64), opcode as u8);
            }
        }
        for at in placement.locate_all(start.plus(u64::from(number))) {
            post(at, word.generation());
        }
        let first = first.expect("there is a primary");
        Ok(PostedFree { first, verbs, block: (region, block), number })
    }
}
