//! Intents: what a transaction over several keys leaves in their slots until all
//! of it is done, and how anybody ends one.
//!
//! A prepared word in a slot names an intent. What the key's value is, only the
//! decision of the intent's transaction tells: the intent's own once it is
//! committed, before that and after an abort what the intent has replaced. The
//! decision is a word in the transaction's record. It changes once, by a CAS on the
//! primary copy, and nobody acts on it before all copies hold it.
//!
//! No writer has a prepared word as the `old` of its round: it ends the intent
//! first. So those who do are the only ones who move a slot away from it, and as
//! long as they all move it to the same word they need no votes.

use crate::draft::{Content, Draft};
use crate::round::{Outcome, Round};
use crate::store::Store;
use crate::{DATABASES, Env, Error, Key, Kind};
use fusee_fabric::{Batch, Fabric};
use fusee_layout::{Address, DECISION_AT, KeyHash, NodeAddress, Opcode, Slot, Unverified};

/// READs of a decision that a transaction gets before whoever waits for it aborts
/// it: some milliseconds, a hundred times what it needs.
const POLLS: u32 = 9;
/// The first wait between two of them; each is twice the last.
const POLL_US: u64 = 20;

/// What became of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// Nothing yet.
    Open,
    /// All of its writes are done.
    Committed,
    /// None of them is.
    Aborted,
}

impl Fate {
    fn from_word(word: u64) -> Result<Self, Error> {
        match word {
            0 => Ok(Self::Open),
            1 => Ok(Self::Committed),
            2 => Ok(Self::Aborted),
            _ => Err(Error::Corrupt { what: "a transaction's decision" }),
        }
    }

    fn word(self) -> u64 {
        match self {
            Self::Open => 0,
            Self::Committed => 1,
            Self::Aborted => 2,
        }
    }
}

/// An intent as its object tells.
#[derive(Clone, Debug)]
pub(crate) struct Intent {
    pub(crate) at: Address,
    /// The word in the slot.
    pub(crate) word: Slot,
    pub(crate) opcode: Opcode,
    pub(crate) transaction: Slot,
    /// What it replaced: a live word, or nothing.
    pub(crate) old: Option<Slot>,
    pub(crate) hash: KeyHash,
    pub(crate) database: u8,
    pub(crate) name: Vec<u8>,
    /// Does its object list chunks of its own?
    pub(crate) owns_chunks: bool,
}

impl Intent {
    pub(crate) fn key(&self) -> Key<'_> {
        Key { database: self.database, name: &self.name }
    }

    /// The word that everybody ends it with, unless its key gets back what it had.
    pub(crate) fn last(&self, fate: Fate) -> Option<Slot> {
        match (fate, self.old) {
            (Fate::Committed, _) if self.opcode != Opcode::Remove => Some(self.word.alive()),
            (Fate::Committed, _) | (_, None) => Some(self.word.tombstone()),
            (_, Some(_)) => None,
        }
    }

    /// How many keys more there are once it is ended like this.
    fn added(&self, fate: Fate) -> i64 {
        match (fate, self.opcode, self.old) {
            (Fate::Committed, Opcode::Remove, Some(_)) => -1,
            (Fate::Committed, Opcode::Prepare | Opcode::Keep, None) => 1,
            _ => 0,
        }
    }
}

impl<F: Fabric, E: Env> Store<F, E> {
    /// READs what has been decided, and sees to it that all copies hold it. 1 round
    /// trip, 2 where that is not yet so.
    pub(crate) async fn fate(&self, transaction: Slot) -> Result<Fate, Error> {
        let mut batch = self.fabric.batch();
        let first = self.post_fate(&mut batch, transaction);
        let batch = self.fabric.run(batch).await;
        let fate = self.settled_fate(&batch, first, transaction).await;
        self.fabric.recycle(batch);
        fate
    }

    /// Posts the READs of a decision; returns the number of the first.
    pub(crate) fn post_fate(&self, batch: &mut Batch, transaction: Slot) -> usize {
        let first = batch.len();
        for at in self.decision_words(transaction) {
            batch.read(at, 8);
        }
        first
    }

    /// What these READs tell, once all copies hold it.
    pub(crate) async fn settled_fate(
        &self,
        batch: &Batch,
        first: usize,
        transaction: Slot,
    ) -> Result<Fate, Error> {
        let mut copies = batch.tickets().skip(first).take(self.replicas());
        let primary = copies.next().expect("there is a primary");
        let fate = Fate::from_word(batch.word(primary)?)?;
        let mut lacks = false;
        for copy in copies {
            lacks |= batch.word(copy)? != fate.word();
        }
        if lacks && fate != Fate::Open {
            self.spread(transaction, fate).await?;
        }
        Ok(fate)
    }

    fn decision_words(
        &self,
        transaction: Slot,
    ) -> impl ExactSizeIterator<Item = NodeAddress> + use<F, E> {
        self.geometry.placement.locate_all(transaction.address().plus(DECISION_AT))
    }

    /// Decides, unless that was done before, and tells what holds. 1 round trip;
    /// r >= 2: 2.
    pub(crate) async fn decide(&self, transaction: Slot, fate: Fate) -> Result<Fate, Error> {
        let at = self.decision_words(transaction).next().expect("there is a primary");
        let mut batch = self.fabric.batch();
        let cas = batch.cas(at, Fate::Open.word(), fate.word());
        let batch = self.fabric.run(batch).await;
        let before = Fate::from_word(batch.word(cas)?)?;
        self.fabric.recycle(batch);
        let fate = if before == Fate::Open { fate } else { before };
        self.spread(transaction, fate).await?;
        Ok(fate)
    }

    /// Brings a decision to the backups. 1 round trip; none if there are none.
    async fn spread(&self, transaction: Slot, fate: Fate) -> Result<(), Error> {
        let mut batch = self.fabric.batch();
        for at in self.decision_words(transaction).skip(1) {
            batch.cas(at, Fate::Open.word(), fate.word());
        }
        if !batch.is_empty() {
            batch = self.fabric.run(batch).await;
            for ticket in batch.tickets() {
                batch.done(ticket)?;
            }
        }
        self.fabric.recycle(batch);
        Ok(())
    }

    /// The intent that a prepared word names; `None` if it is none any more, so that
    /// the slot has moved on. The caller is pinned since before it read the slot. 1
    /// round trip.
    pub(crate) async fn intent(&self, at: Address, word: Slot) -> Result<Option<Intent>, Error> {
        let mut batch = self.fabric.batch();
        let read = batch.read(self.primary(word.address()), word.class().bytes());
        let batch = self.fabric.run(batch).await;
        let intent = self.parse_intent(batch.bytes(read)?, at, word);
        self.fabric.recycle(batch);
        Ok(intent)
    }

    /// As [`Self::intent`] of bytes that were READ.
    pub(crate) fn parse_intent(&self, bytes: &[u8], at: Address, word: Slot) -> Option<Intent> {
        let bytes = Unverified::new(bytes);
        let object = bytes.verify(word)?;
        let (old, opcode) = bytes.replaced(word)?;
        let key = Key { database: object.meta.database, name: object.key };
        Some(Intent {
            at,
            word,
            opcode,
            transaction: object.meta.transaction?,
            old: old.and_then(Slot::from_word).filter(|old| old.is_live()),
            hash: self.hash(key),
            database: key.database,
            name: key.name.to_vec(),
            owns_chunks: object.meta.chunked && opcode == Opcode::Prepare,
        })
    }

    /// Waits a little for the transaction of a prepared word, aborts it if it takes
    /// long, and moves the slot on as is decided. Afterwards the slot has to be read
    /// again. The caller is pinned since before it read the slot.
    pub(crate) async fn finish(&self, at: Address, word: Slot) -> Result<(), Error> {
        let Some(intent) = self.intent(at, word).await? else { return Ok(()) };
        let mut fate = self.fate(intent.transaction).await?;
        let mut polls = 0;
        while fate == Fate::Open && polls < POLLS {
            self.wait_for_others(POLL_US << polls).await;
            polls += 1;
            if self.read_slot(at).await? != word {
                return Ok(());
            }
            fate = self.fate(intent.transaction).await?;
        }
        if fate == Fate::Open {
            fate = self.decide(intent.transaction, Fate::Aborted).await?;
            self.stats.transactions_broken.add(1);
        }
        self.end_intents(std::slice::from_ref(&intent), fate).await
    }

    /// Moves slots on from intents of one decided transaction. 1 round trip (r >= 2:
    /// 2) for all; where keys get back what they had, those of a write for each.
    pub(crate) async fn end_intents(&self, intents: &[Intent], fate: Fate) -> Result<(), Error> {
        let moving = || intents.iter().filter_map(|i| Some((i, i.last(fate)?)));
        let mut batch = self.fabric.batch();
        for replica in 1..self.replicas() {
            for (intent, last) in moving() {
                let at = self.geometry.placement.locate(intent.at, replica);
                batch.cas(at, intent.word.word(), last.word());
            }
        }
        if !batch.is_empty() {
            batch = self.fabric.run(batch).await;
            for ticket in batch.tickets() {
                batch.done(ticket)?;
            }
            batch.clear();
        }
        for (intent, last) in moving() {
            batch.cas(self.primary(intent.at), intent.word.word(), last.word());
        }
        // Behind the last verb, so that DBSIZE agrees with what is acknowledged.
        let mut changed = [false; DATABASES as usize];
        for (intent, _) in moving().filter(|(intent, _)| intent.added(fate) != 0) {
            self.add_keys(intent.database, intent.added(fate));
            if let Some(changed) = changed.get_mut(usize::from(intent.database)) {
                *changed = true;
            }
        }
        for database in (0..DATABASES).filter(|&database| changed[usize::from(database)]) {
            self.post_key_count(&mut batch, database);
        }
        if !batch.is_empty() {
            batch = self.fabric.run(batch).await;
            for (ticket, (intent, _)) in batch.tickets().zip(moving()) {
                if batch.word(ticket)? != intent.word.word() {
                    // Somebody else was faster, and has counted.
                    self.add_keys(intent.database, -intent.added(fate));
                }
            }
        }
        self.fabric.recycle(batch);
        for intent in intents {
            if let (None, Some(old)) = (intent.last(fate), intent.old) {
                self.put_back(intent, old).await?;
            }
        }
        Ok(())
    }

    fn add_keys(&self, database: u8, more: i64) {
        if let Some(count) = self.keys.get(usize::from(database)) {
            count.set(count.get() + more);
        }
    }

    /// Gives a key back what it had before an aborted transaction: a copy, since no
    /// word ever comes back. Whoever wins that round frees the intent.
    async fn put_back(&self, intent: &Intent, old: Slot) -> Result<(), Error> {
        let mut batch = self.fabric.batch();
        let read = batch.read(self.primary(old.address()), old.class().bytes());
        batch = self.fabric.run(batch).await;
        let copied = {
            let Some(object) = Unverified::new(batch.bytes(read)?).verify(old) else {
                // It is freed only after the slot has moved on.
                self.fabric.recycle(batch);
                return Ok(());
            };
            let content = Content {
                opcode: Opcode::Update,
                key: intent.key(),
                body: object.body,
                kind: Kind::from_bits(object.meta.kind),
                expires_at_ms: object.meta.expires_at_ms,
                chunked: object.meta.chunked,
                over: self.intends(Some(intent.word)),
                transaction: None,
            };
            self.write_copy(intent.hash, &content).await
        };
        self.fabric.recycle(batch);
        let copy = copied?;
        let round = Round {
            key: intent.key(),
            hash: intent.hash,
            at: intent.at,
            old: intent.word,
            new: copy.word,
            opcode: copy.opcode,
            first: copy.first,
            over: copy.over,
            insert: None,
            resumed: false,
        };
        match self.run_round(&round).await {
            Ok(Outcome::Committed) => self.release(intent.word, intent.owns_chunks),
            Ok(_) => self.release_lost(&copy),
            Err(error) => {
                self.give_up(&error, &copy);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes an object out of the pool's reserve, if need be: a key must get back
    /// what it had in a full pool, too. 1 round trip.
    async fn write_copy(&self, hash: KeyHash, content: &Content<'_>) -> Result<Draft, Error> {
        let mut batch = self.fabric.batch();
        let (draft, span) = self.draft_from(&mut batch, hash, content, true).await?;
        self.post_draft(&mut batch, &draft, span);
        let batch = self.fabric.run(batch).await;
        let done = batch.tickets().try_for_each(|ticket| batch.done(ticket));
        self.fabric.recycle(batch);
        if let Err(down) = done {
            self.release_lost(&draft);
            return Err(down.into());
        }
        Ok(draft)
    }

    /// Ends the intents that these words of slots name. The caller is pinned since
    /// before it read them.
    pub(crate) async fn finish_all(&self, prepared: &[(Address, Slot)]) -> Result<(), Error> {
        for &(at, word) in prepared {
            self.finish(at, word).await?;
        }
        Ok(())
    }
}
