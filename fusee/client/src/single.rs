//! A round without backups (r = 1): the primary alone decides.
//!
//! An update is one CAS. An insert is hidden from readers by a tentative mark
//! until its duplicate check is done: that is what the backups do elsewhere.

use crate::index::{ReadError, View};
use crate::round::{Again, Outcome, Round};
use crate::snapshot::slot;
use crate::store::Store;
use crate::{Env, Error};
use fusee_fabric::{Batch, Fabric};
use fusee_layout::{Address, RECORD_BYTES, Slot, commit_record};

impl<F: Fabric, E: Env> Store<F, E> {
    /// Tries to move a slot without backups from `old` to `new`. 1 round trip
    /// for an update or delete, 2 for an insert.
    pub(crate) async fn single_round(&self, round: &Round<'_>) -> Result<Outcome, Error> {
        if let Some(seen) = round.insert {
            return self.single_insert(round, seen).await;
        }
        let mut batch = self.fabric.batch();
        let unsaid = round.over != Some(round.old);
        if unsaid {
            batch = self.write_intent(round, batch).await?;
        }
        let cas = batch.cas(self.primary(round.at), round.old.word(), round.new.word());
        self.count_key(&mut batch, round);
        let batch = self.fabric.run(batch).await;
        let found = batch.word(cas)?;
        self.fabric.recycle(batch);
        if found == round.old.word() {
            self.stats.rule1.add(1);
            return Ok(Outcome::Committed);
        }
        self.uncount_key(round);
        self.stats.lost.add(1);
        self.remember(round.hash, round.at, found);
        // What the object says now is known here alone.
        Ok(Again::at_once(unsaid))
    }

    /// The object says what it is going to replace before the slot moves, so that
    /// recovery can free that. On the slot's own node the two keep their order in
    /// one batch; on another it costs a round trip. Few come here: the word was
    /// mostly known when the object was written, or when candidates were read.
    async fn write_intent(&self, round: &Round<'_>, mut batch: Batch) -> Result<Batch, Error> {
        let object = self.primary(round.new.address());
        let span = batch.stage(RECORD_BYTES);
        batch.staged(span).copy_from_slice(&commit_record(round.first, round.old.word()));
        let written = batch.write(object, span);
        if object.node != self.primary(round.at).node {
            batch = self.fabric.run(batch).await;
            batch.done(written)?;
            batch.clear();
        }
        Ok(batch)
    }

    async fn single_insert(&self, round: &Round<'_>, seen: &View) -> Result<Outcome, Error> {
        let tentative = round.new.tentative();
        let at = self.primary(round.at);
        let mut batch = self.fabric.batch();
        let cas = batch.cas(at, round.old.word(), tentative.word());
        let check = seen.place.read(&mut batch, |address| self.primary(address), true);
        let batch = self.fabric.run(batch).await;
        let found = batch.word(cas)?;
        let check = seen.place.view(&batch, check);
        self.fabric.recycle(batch);
        if found != round.old.word() {
            self.stats.lost.add(1);
            return Ok(Again::at_once(false));
        }
        let view = match check {
            Ok(view) => view,
            Err(ReadError::Failed(error)) => return Err(error),
            Err(ReadError::Stale) => return Err(Error::Corrupt { what: "a bucket header" }),
        };
        let fingerprint = round.hash.fingerprint();
        let rivals = view.iter().filter(|&(at, word)| {
            at != round.at && word != Slot::EMPTY && word.fingerprint() == fingerprint
        });
        let mut live = Vec::new();
        for (rival, word) in rivals {
            // A word that was live when the primary was read is of another key.
            let before = seen.word(rival) == Some(word);
            if word.leads() && !before {
                live.push((rival, word));
            } else if word.is_tentative()
                && let Some(word) = self.abort(rival, word).await?
            {
                live.push((rival, word));
            }
        }
        if self.first_of_key(round.key, &live).await?.is_some() {
            return self.single_abandon(round).await;
        }
        let mut batch = self.fabric.batch();
        let cas = batch.cas(at, tentative.word(), round.new.word());
        self.count_key(&mut batch, round);
        let batch = self.fabric.run(batch).await;
        let found = batch.word(cas)?;
        self.fabric.recycle(batch);
        if found == tentative.word() {
            self.stats.rule1.add(1);
            return Ok(Outcome::Committed);
        }
        self.uncount_key(round);
        self.stats.lost.add(1);
        Ok(Outcome::Again(Again { offered: true, join: None, avoid: None, back_off: true }))
    }

    /// Aborts an insert in progress, of whatever key: its owner starts again.
    /// The word that it became, if it was committed meanwhile. 1 round trip.
    pub(crate) async fn abort(&self, at: Address, word: Slot) -> Result<Option<Slot>, Error> {
        let mut batch = self.fabric.batch();
        let cas = batch.cas(self.primary(at), word.word(), word.tombstone().word());
        let batch = self.fabric.run(batch).await;
        let found = slot(batch.word(cas)?)?;
        self.fabric.recycle(batch);
        Ok(found.leads().then_some(found))
    }

    /// Takes the own insert back: the key is in another slot. 1 round trip.
    async fn single_abandon(&self, round: &Round<'_>) -> Result<Outcome, Error> {
        self.stats.abandoned.add(1);
        self.abort(round.at, round.new.tentative()).await?;
        Ok(Outcome::Again(Again { offered: true, join: None, avoid: None, back_off: false }))
    }
}
