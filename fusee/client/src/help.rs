//! The loser of a round (r >= 2): it waits for the winner, finishes the winner's
//! write if that takes long, and then knows what to answer.

use crate::read::is_of;
use crate::round::{Again, Outcome, Round};
use crate::rules::{Evidence, Verdict, Votes, Winner, judge};
use crate::store::Store;
use crate::{Env, Error, Key};
use fusee_fabric::{Fabric, Ticket};
use fusee_layout::{Address, Opcode, RECORD_BYTES, Slot, Unverified};

/// READs of the primary, each a round trip, that the winner gets before a loser
/// helps. A winner needs two after the votes are known.
const POLLS_BEFORE_HELP: u32 = 4;
/// The same after having helped: the primary has moved then, unless the help
/// was forbidden.
const HELPS_MAX: u32 = 8;

/// What came of helping.
enum Help {
    /// The winner's word was brought to the primary, or somebody else was faster.
    Done,
    /// The winner is an insert whose key may be in this other slot as well: only
    /// its owner may decide.
    Forbidden(Address),
}

impl<F: Fabric, E: Env> Store<F, E> {
    /// Waits until the round is over, helping if need be, and tells what the
    /// loser answers. `winner` is unknown if the round was over before the
    /// votes were counted.
    pub(crate) async fn lose(
        &self,
        round: &Round<'_>,
        votes: &Votes,
        winner: Option<Slot>,
    ) -> Result<Outcome, Error> {
        self.stats.lost.add(1);
        let offered = votes.contain(round.new);
        let mut polls = 0;
        let mut helps = 0;
        let primary = loop {
            let primary = self.read_slot(round.at).await?;
            if primary != round.old {
                break primary;
            }
            polls += 1;
            let Some(winner) = winner.filter(|_| polls >= POLLS_BEFORE_HELP) else { continue };
            if helps == HELPS_MAX {
                return Ok(Outcome::Again(Again {
                    offered,
                    join: None,
                    avoid: Some(round.at),
                    back_off: true,
                }));
            }
            helps += 1;
            if let Help::Forbidden(join) = self.help(round, votes, winner).await? {
                // My word has lost in any case. Whoever is in the other slot may
                // need help there.
                let (join, avoid) = (Some(join), Some(round.at));
                return Ok(Outcome::Again(Again { offered, join, avoid, back_off: true }));
            }
        };
        self.after_defeat(round, offered, winner, primary).await
    }

    /// The round is over. Records count only when READ after the primary was
    /// seen to have moved: earlier they may just not be there yet. 1 round trip.
    async fn after_defeat(
        &self,
        round: &Round<'_>,
        offered: bool,
        winner: Option<Slot>,
        primary: Slot,
    ) -> Result<Outcome, Error> {
        self.remember(round.hash, round.at, primary.word());
        let insert = round.insert.is_some();
        let mut batch = self.fabric.batch();
        let own = offered.then(|| batch.read(self.primary(round.new.address()), RECORD_READ_BYTES));
        let theirs = winner.map(|word| {
            let bytes = if insert { word.class().bytes() } else { RECORD_READ_BYTES };
            (word, batch.read(self.primary(word.address()), bytes))
        });
        if batch.is_empty() {
            self.fabric.recycle(batch);
            return Ok(Again::at_once(offered));
        }
        let batch = self.fabric.run(batch).await;
        let read = |ticket: Ticket| batch.bytes(ticket).map(Unverified::new);
        let record = |ticket, word: Slot| -> Result<Option<Opcode>, Error> {
            let record = read(ticket)?.record(word);
            Ok(record.filter(|&(old, _)| old == round.old.word()).map(|(_, opcode)| opcode))
        };
        let own_recorded = match own {
            Some(ticket) => record(ticket, round.new)?.is_some(),
            None => false,
        };
        let winner = match theirs {
            Some((word, ticket)) => {
                let opcode = record(ticket, word)?;
                let object = read(ticket)?.verify(word);
                let same_key = object.is_some_and(|object| is_of(&object, round.key));
                let write = opcode.unwrap_or(Opcode::Update).into();
                Some(Winner { word, recorded: opcode.is_some(), write, same_key })
            }
            None => None,
        };
        let verdict =
            judge(round.opcode.into(), insert, &Evidence { primary, own_recorded, winner });
        self.fabric.recycle(batch);
        if let Some(Winner { word, .. }) = winner
            && insert
            && word.leads()
            && primary == word.tombstone()
        {
            self.abandon_backups(round.at, word).await?;
        }
        Ok(match verdict {
            Verdict::Committed => {
                self.stats.helped.add(1);
                self.count_own_key(round);
                Outcome::Committed
            }
            Verdict::JustBefore => Outcome::Overtaken,
            Verdict::JustAfter => Outcome::Gone,
            Verdict::Again => Again::at_once(offered),
        })
    }

    /// Finishes the winner's write as the winner would. 3 round trips, for an
    /// insert 4 or 5.
    async fn help(&self, round: &Round<'_>, votes: &Votes, winner: Slot) -> Result<Help, Error> {
        let insert = round.insert.is_some();
        if insert && !winner.leads() {
            // An abandonment reaches the backups after the primary, which has
            // moved by now.
            return Ok(Help::Done);
        }
        let mut batch = self.fabric.batch();
        self.post_adoption(&mut batch, round.at, votes, winner);
        let bytes = if insert { winner.class().bytes() } else { RECORD_READ_BYTES };
        let object = batch.read(self.primary(winner.address()), bytes);
        let batch = self.fabric.run(batch).await;
        for ticket in batch.tickets() {
            batch.done(ticket)?;
        }
        let bytes = batch.bytes(object)?;
        let first: [u8; RECORD_BYTES] =
            bytes[..RECORD_BYTES].try_into().expect("an object is longer than its record");
        if Unverified::new(bytes).generation() != Some(winner.generation()) {
            // Reused: the round has been over for long.
            self.fabric.recycle(batch);
            return Ok(Help::Done);
        }
        if insert {
            let Some(object) = Unverified::new(bytes).verify(winner) else {
                self.fabric.recycle(batch);
                return Ok(Help::Done);
            };
            let key = Key { database: object.meta.database, name: object.key };
            let duplicate = self.duplicate_of(key, round.at).await?;
            if let Some(at) = duplicate {
                self.fabric.recycle(batch);
                return Ok(Help::Forbidden(at));
            }
        }
        self.fabric.recycle(batch);
        self.write_record(winner, first, round.old).await?;
        let mut batch = self.fabric.batch();
        let cas = batch.cas(self.primary(round.at), round.old.word(), winner.word());
        let batch = self.fabric.run(batch).await;
        if batch.word(cas)? == round.old.word() {
            self.stats.helps.add(1);
        }
        self.fabric.recycle(batch);
        Ok(Help::Done)
    }

    /// The duplicate check that a helper makes for the winner's key. It has not
    /// seen the primary as the winner saw it, so it reads it together with the
    /// first backup: a tombstone that both hold is of a delete that has ended.
    async fn duplicate_of(&self, key: Key<'_>, own: Address) -> Result<Option<Address>, Error> {
        let mut place = self.place(self.hash(key));
        let mut batch = self.fabric.batch();
        let primary = self.read_place(&mut batch, &place);
        let batch = self.fabric.run(batch).await;
        let primary = self.view(&batch, &mut place, primary).await;
        self.fabric.recycle(batch);
        let primary = primary?;
        let mut batch = self.fabric.batch();
        let backup =
            place.read(&mut batch, |address| self.geometry.placement.locate(address, 1), false);
        let batch = self.fabric.run(batch).await;
        let backup = place.view(&batch, backup);
        self.fabric.recycle(batch);
        let Ok(backup) = backup else { return Ok(Some(own)) };
        self.duplicate(key, own, (&primary, &backup), false).await
    }
}

/// The log entry and header: enough for a commit record and its opcode.
const RECORD_READ_BYTES: usize = 32;
