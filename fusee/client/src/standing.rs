//! What the index says of objects: recovery's questions.
//!
//! A word is in the index from its first vote until the primary leaves it: in a
//! backup from the vote until a writer of the next round votes there, which comes
//! after the word was in the primary. So who READs the backups first and the
//! primary after that, and finds the word in neither, knows that its time is
//! over, or, if nobody is left who could offer it, that it never comes.

use crate::index::{PlaceRead, ReadError};
use crate::store::Store;
use crate::{Env, Error};
use fusee_fabric::{Batch, Fabric};
use fusee_layout::{Address, KeyHash, Slot, Unverified};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

/// Readings of a directory that is changing before this gives up.
const ATTEMPTS_MAX: u32 = 8;

/// Where a word is in the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// In the primary: the write is done.
    Primary,
    /// In backups of this slot, but not in the primary: its round is open.
    Voted(Address),
    /// In this slot as an insert in progress (r = 1).
    Tentative(Address),
    /// In backups of this slot, whose primary tells that the insert was abandoned.
    Abandoned(Address),
    /// Nowhere.
    Nowhere,
}

impl<F: Fabric, E: Env> Store<F, E> {
    /// Where these words are, each looked for in the buckets of its hash. Intents
    /// that are met there are ended first: they may lead to what they have replaced.
    /// 1 round trip where r = 1, else 2. The caller is pinned.
    pub(crate) async fn standings(
        &self,
        words: &[(Slot, KeyHash)],
    ) -> Result<Vec<Standing>, Error> {
        for _ in 0..ATTEMPTS_MAX {
            let mut prepared = Vec::new();
            let standings = self.look_for(words, &mut prepared).await?;
            if prepared.is_empty() {
                return Ok(standings);
            }
            self.finish_all(&prepared).await?;
        }
        Err(Error::Conflict { attempts: ATTEMPTS_MAX })
    }

    async fn look_for(
        &self,
        words: &[(Slot, KeyHash)],
        prepared: &mut Vec<(Address, Slot)>,
    ) -> Result<Vec<Standing>, Error> {
        let hashes = words.iter().map(|&(_, hash)| hash);
        let mut voted = vec![None; words.len()];
        let see = |number: usize, at, word| {
            if word == words[number].0 {
                voted[number] = Some(at);
            }
        };
        self.visit_copies(hashes.clone(), 1..self.replicas(), see).await?;
        let mut standings: Vec<Standing> =
            voted.iter().map(|at| at.map_or(Standing::Nowhere, Standing::Voted)).collect();
        let see = |number: usize, at, seen: Slot| {
            let (word, hash) = words[number];
            if seen.is_prepared() && seen.fingerprint() == hash.fingerprint() {
                prepared.push((at, seen));
            }
            if seen == word {
                standings[number] = Standing::Primary;
            } else if word.is_tombstone() {
                // A delete replaces what is there: nobody abandons it.
            } else if seen == word.tentative() {
                standings[number] = Standing::Tentative(at);
            } else if seen == word.tombstone() && voted[number] == Some(at) {
                standings[number] = Standing::Abandoned(at);
            }
        };
        self.visit_copies(hashes, 0..1, see).await?;
        Ok(standings)
    }

    /// Which of these chunks, each with the hash of its value's key, are listed by
    /// a root that is in the index. The round trips of [`Self::standings`] and one
    /// for the roots.
    pub(crate) async fn listed(&self, chunks: &[(Slot, KeyHash)]) -> Result<Vec<bool>, Error> {
        if chunks.is_empty() {
            return Ok(Vec::new());
        }
        // Ends intents: one may lead to a root that it has replaced.
        self.standings(chunks).await?;
        let mut roots: Vec<HashSet<Slot>> = vec![HashSet::new(); chunks.len()];
        let see = |number: usize, _, seen: Slot| {
            let hash = chunks[number].1;
            let names = seen != Slot::EMPTY && !seen.is_tombstone();
            if names && seen.fingerprint() == hash.fingerprint() {
                roots[number].insert(seen.alive());
            }
        };
        self.visit_copies_in_order(chunks.iter().map(|&(_, hash)| hash), see).await?;
        let mut lists: HashMap<Slot, Vec<Slot>> = HashMap::new();
        for &root in roots.iter().flatten() {
            if let Entry::Vacant(entry) = lists.entry(root) {
                entry.insert(self.chunks_listed_by(root).await?);
            }
        }
        let chunks = chunks.iter().zip(&roots);
        Ok(chunks
            .map(|((chunk, _), roots)| roots.iter().any(|r| lists[r].contains(chunk)))
            .collect())
    }

    /// The chunks that a root lists; none, if the object is no whole root. 1 round
    /// trip.
    pub(crate) async fn chunks_listed_by(&self, root: Slot) -> Result<Vec<Slot>, Error> {
        let mut batch = self.fabric.batch();
        let read = batch.read(self.primary(root.address()), root.class().bytes());
        let batch = self.fabric.run(batch).await;
        let object = Unverified::new(batch.bytes(read)?).verify(root);
        let body = object.filter(|object| object.meta.chunked).map(|object| object.body);
        let listed = body.and_then(crate::chunk::parse);
        let listed = listed.map(|(_, words)| words.flatten().collect()).unwrap_or_default();
        self.fabric.recycle(batch);
        Ok(listed)
    }

    async fn visit_copies_in_order(
        &self,
        hashes: impl Iterator<Item = KeyHash> + Clone,
        mut each: impl FnMut(usize, Address, Slot),
    ) -> Result<(), Error> {
        self.visit_copies(hashes.clone(), 1..self.replicas(), &mut each).await?;
        self.visit_copies(hashes, 0..1, each).await
    }

    /// Visits the slots of some copies of the buckets of each hash. 1 round trip.
    async fn visit_copies(
        &self,
        hashes: impl Iterator<Item = KeyHash> + Clone,
        copies: std::ops::Range<usize>,
        mut each: impl FnMut(usize, Address, Slot),
    ) -> Result<(), Error> {
        if copies.is_empty() {
            return Ok(());
        }
        for _ in 0..ATTEMPTS_MAX {
            let mut batch = self.fabric.batch();
            let mut reads = Vec::new();
            for (number, hash) in hashes.clone().enumerate() {
                let place = self.place(hash);
                for copy in copies.clone() {
                    let locate = |address| self.geometry.placement.locate(address, copy);
                    reads.push((number, place, place.read(&mut batch, locate, false)));
                }
            }
            if batch.is_empty() {
                self.fabric.recycle(batch);
                return Ok(());
            }
            let batch = self.fabric.run(batch).await;
            let visited = visit(&batch, &reads, &mut each);
            self.fabric.recycle(batch);
            match visited {
                Ok(()) => return Ok(()),
                Err(ReadError::Failed(error)) => return Err(error),
                Err(ReadError::Stale) => self.refresh_directory().await?,
            }
        }
        Err(Error::Corrupt { what: "buckets that no directory entry leads to" })
    }
}

fn visit(
    batch: &Batch,
    reads: &[(usize, crate::index::Place, PlaceRead)],
    each: &mut impl FnMut(usize, Address, Slot),
) -> Result<(), ReadError> {
    for &(number, place, read) in reads {
        place.visit(batch, read, |at, word| each(number, at, word))?;
    }
    Ok(())
}
