//! SNAPSHOT: one round on a slot with backups (r >= 2).
//!
//! "The write protocol" in ARCHITECTURE.md tells the whole of it, with the
//! departures from the paper's Algorithm 1. Cost, after the object was written
//! and the slot read: 3 round trips (vote, record, commit); rule 2 and 3 add
//! the READ of the primary and the adoption.

use crate::index::{PlaceRead, ReadError, View};
use crate::round::{Again, Outcome, Round};
use crate::rules::{BACKUPS_MAX, Ballot, Tally, Votes, ballot, is_duplicate, tally};
use crate::store::Store;
use crate::{Env, Error, Key};
use fusee_fabric::{Batch, Fabric};
use fusee_layout::{Address, RECORD_BYTES, Slot, Unverified, commit_record};

/// The first backup's buckets, read behind the own word there.
pub(crate) type Check = Option<Box<View>>;

/// Proof that this client is the last writer of its round: its word is in
/// every backup.
pub(crate) struct LastWriter(());

/// Proof that the winner's commit record is in memory, so that the primary may
/// move.
pub(crate) struct Recorded(());

impl<F: Fabric, E: Env> Store<F, E> {
    /// Tries to move a slot with backups from `old` to `new`. 3 round trips; 5
    /// by rules 2 and 3; a loser waits for the winner, and helps it.
    pub(crate) async fn write_round(&self, round: &Round<'_>) -> Result<Outcome, Error> {
        let (votes, check) = self.vote(round).await?;
        let (check, winner) = match tally(votes.words(), round.new) {
            Tally::Unanimous => {
                self.stats.rule1.add(1);
                (check, LastWriter(()))
            }
            Tally::Lost(winner) => return self.lose(round, &votes, Some(winner)).await,
            Tally::Leads(leader) => {
                if self.read_slot(round.at).await? != round.old {
                    return self.lose(round, &votes, None).await;
                }
                if leader != round.new {
                    return self.lose(round, &votes, Some(leader)).await;
                }
                let by_majority = votes.is_majority(leader);
                if by_majority { &self.stats.rule2 } else { &self.stats.rule3 }.add(1);
                let (adopted, winner) = self.adopt(round, &votes).await?;
                (check.or(adopted), winner)
            }
        };
        if let Some(view) = round.insert {
            let check =
                check.expect("an insert's word went to the first backup with a READ behind");
            let known = !round.resumed;
            let duplicate = self.duplicate(round.key, round.at, (view, &check), known);
            if let Some(at) = duplicate.await? {
                return self.abandon(round, at).await;
            }
        }
        let recorded = self.record(&winner, round).await?;
        self.commit(&recorded, round).await?;
        Ok(Outcome::Committed)
    }

    /// Phase 2: votes in all backups. Where a backup lags behind an abandonment
    /// it is repaired first, for a round trip more.
    async fn vote(&self, round: &Round<'_>) -> Result<(Votes, Check), Error> {
        let backups = self.replicas() - 1;
        let mut words = [Slot::EMPTY; BACKUPS_MAX];
        let mut from = [round.old; BACKUPS_MAX];
        let mut open = [true; BACKUPS_MAX];
        let mut check = None;
        while open[..backups].contains(&true) {
            let mut batch = self.fabric.batch();
            let mut tickets = [None; BACKUPS_MAX];
            let mut checking = None;
            for backup in (0..backups).filter(|&b| open[b]) {
                let at = self.geometry.placement.locate(round.at, backup + 1);
                if from[backup] != round.old {
                    batch.cas(at, from[backup].word(), round.old.word());
                    batch.fence();
                }
                tickets[backup] = Some(batch.cas(at, round.old.word(), round.new.word()));
                if backup == 0 {
                    checking = self.read_first_backup(&mut batch, round);
                }
            }
            let batch = self.fabric.run(batch).await;
            for backup in 0..backups {
                let Some(ticket) = tickets[backup] else { continue };
                let found = slot(batch.word(ticket)?)?;
                match ballot(found, round.old, round.new) {
                    Ballot::Lags(word) => from[backup] = word,
                    Ballot::Cast(word) => {
                        words[backup] = word;
                        open[backup] = false;
                        // A helper may have brought the own word there before.
                        if backup == 0 && word == round.new {
                            check = self.checked(&batch, round, checking)?;
                        }
                    }
                }
            }
            self.fabric.recycle(batch);
        }
        Ok((Votes::new(&words[..backups]), check))
    }

    /// For an insert: READs the key's buckets in the first backup, fenced behind
    /// the CAS that brings the own word there.
    fn read_first_backup(&self, batch: &mut Batch, round: &Round<'_>) -> Option<PlaceRead> {
        let place = round.insert?.place;
        Some(place.read(batch, |address| self.geometry.placement.locate(address, 1), true))
    }

    fn checked(
        &self,
        batch: &Batch,
        round: &Round<'_>,
        read: Option<PlaceRead>,
    ) -> Result<Check, Error> {
        match round.insert.zip(read).map(|(seen, read)| seen.place.view(batch, read)) {
            None => Ok(None),
            Some(Ok(view)) => Ok(Some(view)),
            Some(Err(ReadError::Failed(error))) => Err(error),
            Some(Err(ReadError::Stale)) => Err(Error::Corrupt { what: "a backup's bucket header" }),
        }
    }

    /// Brings the own word into every backup that voted otherwise. 1 round trip.
    async fn adopt(&self, round: &Round<'_>, votes: &Votes) -> Result<(Check, LastWriter), Error> {
        let mut batch = self.fabric.batch();
        self.post_adoption(&mut batch, round.at, votes, round.new);
        let checking = self.read_first_backup(&mut batch, round);
        let batch = self.fabric.run(batch).await;
        for ticket in batch.tickets() {
            batch.done(ticket)?;
        }
        let check = self.checked(&batch, round, checking)?;
        self.fabric.recycle(batch);
        Ok((check, LastWriter(())))
    }

    pub(crate) fn post_adoption(
        &self,
        batch: &mut Batch,
        at: Address,
        votes: &Votes,
        winner: Slot,
    ) {
        for (backup, &word) in votes.words().iter().enumerate().filter(|&(_, &w)| w != winner) {
            let at = self.geometry.placement.locate(at, backup + 1);
            batch.cas(at, word.word(), winner.word());
        }
    }

    /// The slot, other than the own, where the key is about to be or perhaps
    /// still is: `seen` is the first backup, `held` the primary. Free where no
    /// other word has the key's fingerprint; otherwise the objects have to be
    /// read, for a round trip more. With `known`, live words that the primary
    /// held were read before and are of other keys.
    pub(crate) async fn duplicate(
        &self,
        key: Key<'_>,
        own: Address,
        (held, seen): (&View, &View),
        known: bool,
    ) -> Result<Option<Address>, Error> {
        let fingerprint = self.hash(key).fingerprint();
        let mut live = Vec::new();
        for (at, word) in seen.iter().filter(|&(at, _)| at != own) {
            if word == Slot::EMPTY || word.fingerprint() != fingerprint {
                continue;
            }
            let before = held.word(at).unwrap_or(Slot::EMPTY);
            if !word.leads() && is_duplicate(word, before, false, true) {
                return Ok(Some(at));
            }
            if word.leads() && !(known && word == before) {
                live.push((at, word));
            }
        }
        self.first_of_key(key, &live).await
    }

    /// The first of these words whose object has the key; one that cannot be
    /// verified counts as such.
    pub(crate) async fn first_of_key(
        &self,
        key: Key<'_>,
        words: &[(Address, Slot)],
    ) -> Result<Option<Address>, Error> {
        if words.is_empty() {
            return Ok(None);
        }
        let mut batch = self.fabric.batch();
        let tickets: Vec<_> = words
            .iter()
            .map(|(_, word)| batch.read(self.primary(word.address()), word.class().bytes()))
            .collect();
        let batch = self.fabric.run(batch).await;
        let mut of_key = None;
        for (&(at, word), ticket) in words.iter().zip(tickets) {
            let other = Unverified::new(batch.bytes(ticket)?)
                .verify(word.alive())
                .is_some_and(|object| !crate::read::is_of(&object, key));
            if !other {
                of_key = Some(at);
                break;
            }
        }
        self.fabric.recycle(batch);
        Ok(of_key)
    }

    /// Phase 3: the old value is in the winner's log entry before the primary
    /// moves, so that whoever comes later can tell a finished write from one
    /// that it must finish. 1 round trip.
    async fn record(&self, _: &LastWriter, round: &Round<'_>) -> Result<Recorded, Error> {
        self.write_record(round.new, round.first, round.old).await
    }

    pub(crate) async fn write_record(
        &self,
        new: Slot,
        first: [u8; RECORD_BYTES],
        old: Slot,
    ) -> Result<Recorded, Error> {
        let mut batch = self.fabric.batch();
        let span = batch.stage(RECORD_BYTES);
        batch.staged(span).copy_from_slice(&commit_record(first, old.word()));
        for at in self.geometry.placement.locate_all(new.address()) {
            batch.write(at, span);
        }
        let batch = self.fabric.run(batch).await;
        for ticket in batch.tickets() {
            batch.done(ticket)?;
        }
        self.fabric.recycle(batch);
        Ok(Recorded(()))
    }

    /// Phase 4: moves the primary. Whatever it held, the write is committed:
    /// nobody moves it to anything but the recorded winner first. 1 round trip.
    async fn commit(&self, _: &Recorded, round: &Round<'_>) -> Result<(), Error> {
        let mut batch = self.fabric.batch();
        let cas = batch.cas(self.primary(round.at), round.old.word(), round.new.word());
        self.count_key(&mut batch, round);
        let batch = self.fabric.run(batch).await;
        batch.word(cas)?;
        self.fabric.recycle(batch);
        Ok(())
    }

    /// Takes an insert back: the key is about to be in another slot. Only the
    /// owner may, and only while the primary holds `old`. 2 round trips.
    async fn abandon(&self, round: &Round<'_>, join: Address) -> Result<Outcome, Error> {
        let tombstone = round.new.tombstone();
        let mut batch = self.fabric.batch();
        let cas = batch.cas(self.primary(round.at), round.old.word(), tombstone.word());
        let batch = self.fabric.run(batch).await;
        let found = batch.word(cas)?;
        self.fabric.recycle(batch);
        if found != round.old.word() {
            // A helper has committed the insert, after its own check.
            self.stats.helped.add(1);
            self.count_own_key(round);
            return Ok(Outcome::Committed);
        }
        self.stats.abandoned.add(1);
        self.abandon_backups(round.at, round.new).await?;
        Ok(Outcome::Again(Again { offered: true, join: Some(join), avoid: None, back_off: true }))
    }

    /// Brings the backups along after the insert of `word` was abandoned. 1
    /// round trip.
    pub(crate) async fn abandon_backups(&self, at: Address, word: Slot) -> Result<(), Error> {
        let mut batch = self.fabric.batch();
        for replica in 1..self.replicas() {
            let at = self.geometry.placement.locate(at, replica);
            batch.cas(at, word.word(), word.tombstone().word());
        }
        let batch = self.fabric.run(batch).await;
        for ticket in batch.tickets() {
            batch.done(ticket)?;
        }
        self.fabric.recycle(batch);
        Ok(())
    }

    /// The primary slot's word. 1 round trip.
    pub(crate) async fn read_slot(&self, at: Address) -> Result<Slot, Error> {
        let mut batch = self.fabric.batch();
        let ticket = batch.read(self.primary(at), 8);
        let batch = self.fabric.run(batch).await;
        let word = batch.word(ticket)?;
        self.fabric.recycle(batch);
        slot(word)
    }
}

/// A word that a CAS or READ of a slot brought.
pub(crate) fn slot(word: u64) -> Result<Slot, Error> {
    Slot::from_word(word).ok_or(Error::Corrupt { what: "a slot word" })
}
