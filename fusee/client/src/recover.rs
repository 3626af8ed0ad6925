//! The recovery of a client that has died (paper, section 5.3).
//!
//! A memory node hands an expelled client to one living client, which goes through
//! the blocks that are still the dead one's, some objects per tick. For each object
//! in use it asks what the index says of it:
//!
//! - its word is in the primary: the write is done (c3). A delete's record is freed.
//! - its word has votes, but the primary does not hold it (c1, c2): the round is
//!   run to its end as the dead client would have run it, so helpers and rivals see
//!   nothing but a slow writer.
//! - it is a transaction's intent in the primary: the transaction is aborted, unless
//!   it was committed, and the slot moves on (`intent.rs`).
//! - nothing holds it: never offered (c0), lost, abandoned or replaced. It is freed.
//!
//! What the dead client had replaced and not freed yet, of whatever owner, its
//! objects name in their records; see `suspect.rs` for when such a one is garbage.
//! At last the blocks become orphans.
//!
//! Nothing of this is remembered anywhere: if the recoverer dies, another begins
//! anew and finds less to do.

use crate::block::room;
use crate::head::Head;
use crate::reclaim::{Counter, all_passed};
use crate::round::Round;
use crate::standing::Standing;
use crate::store::Store;
use crate::survey::OBJECTS_PER_STEP;
use crate::suspect::Unnamed;
use crate::{Env, Error};
use fusee_fabric::Fabric;
use fusee_layout::message::{Request, Response};
use fusee_layout::{Address, BlockLayout, BlockState, Geometry, NodeAddress, Room, Slot};
use std::rc::Rc;

/// Block tables that one step reads.
const TABLES_PER_STEP: u32 = 64;

/// Whom this client recovers.
#[derive(Debug, Default)]
pub(crate) struct Recoverer {
    current: Option<Recovery>,
    /// There may be more to do, though no memory node says so.
    again: bool,
}

/// How far one recovery is.
#[derive(Debug)]
struct Recovery {
    client: u32,
    /// Its blocks in the regions before this one are known.
    region: u32,
    blocks: Vec<DeadBlock>,
    position: usize,
    /// Objects that were not freed and that nothing led to when they were seen.
    suspects: Vec<Slot>,
    /// Those of them, with the turns of their blocks, that were looked at once more,
    /// and the clients' counters after that.
    watched: Vec<(Slot, u8)>,
    since: Option<Rc<[Counter]>>,
    /// A round could not be ended: somebody else has to do something first.
    stuck: bool,
}

#[derive(Debug)]
struct DeadBlock {
    address: Address,
    layout: BlockLayout,
    /// Objects up to this one were looked at; so many of them are in use, and so
    /// many were never used.
    number: u32,
    used: u32,
    unused: u32,
}

/// What comes after a step.
enum Next {
    Step,
    Done,
    /// Begin anew, after others' recoveries.
    Later,
}

impl<F: Fabric, E: Env> Store<F, E> {
    /// Does a step of a recovery, if there is one to be done; true if there is more.
    /// Some 10 round trips at most.
    pub(crate) async fn recover(&self) -> Result<bool, Error> {
        let (current, again) = {
            let mut recoverer = self.recovery.borrow_mut();
            (recoverer.current.take(), recoverer.again)
        };
        let mut recovery = match current {
            Some(recovery) => recovery,
            None if !again && !self.somebody_was_expelled().await? => return Ok(false),
            None => match self.fabric.call(0, Request::Recover { client: self.client }).await? {
                Response::Expelled { client } => self.recovery_of(client),
                _ => {
                    self.recovery.borrow_mut().again = false;
                    return Ok(false);
                }
            },
        };
        self.recovery.borrow_mut().again = true;
        if let Next::Step = self.recovery_step(&mut recovery).await? {
            self.recovery.borrow_mut().current = Some(recovery);
        }
        Ok(true)
    }

    fn recovery_of(&self, client: u32) -> Recovery {
        Recovery {
            client,
            region: self.geometry.data_regions().start,
            blocks: Vec::new(),
            position: 0,
            suspects: Vec::new(),
            watched: Vec::new(),
            since: None,
            stuck: false,
        }
    }

    /// Is there a client that died and that nobody recovers? 1 round trip.
    async fn somebody_was_expelled(&self) -> Result<bool, Error> {
        let mut batch = self.fabric.batch();
        let at = NodeAddress { node: 0, offset: Geometry::EXPELLED_AT };
        let read = batch.read(at, 8);
        let batch = self.fabric.run(batch).await;
        let count = batch.word(read)?;
        self.fabric.recycle(batch);
        Ok(count > 0)
    }

    async fn recovery_step(&self, recovery: &mut Recovery) -> Result<Next, Error> {
        if recovery.region < self.geometry.data_regions().end {
            self.find_blocks(recovery).await?;
            return Ok(Next::Step);
        }
        if recovery.position < recovery.blocks.len() {
            self.recover_objects(recovery).await?;
            return Ok(Next::Step);
        }
        if recovery.stuck {
            return Ok(Next::Later);
        }
        if let Some(since) = &recovery.since {
            if all_passed(since, &self.read_counters().await?) {
                self.free_suspects(recovery).await?;
            }
            return Ok(Next::Step);
        }
        if !recovery.suspects.is_empty() {
            self.watch_suspects(recovery).await?;
            return Ok(Next::Step);
        }
        for block in &recovery.blocks {
            let room = room(block.layout.objects, block.used, block.unused);
            if room != Room::Unknown {
                self.offer(recovery.client, block.address, room).await?;
            }
        }
        for node in (0..self.geometry.params.nodes).rev() {
            self.fabric.call(node, Request::Leave { client: recovery.client }).await?;
        }
        self.stats.recovered.add(1);
        Ok(Next::Done)
    }

    /// Looks for the dead client's blocks in some block tables. 1 round trip.
    async fn find_blocks(&self, recovery: &mut Recovery) -> Result<(), Error> {
        let regions = self.geometry.data_regions();
        let end = regions.end.min(recovery.region + TABLES_PER_STEP);
        for (address, entry) in self.read_tables(recovery.region..end).await? {
            if entry.state == BlockState::Owned && entry.client == recovery.client {
                let layout = self.geometry.layout(entry.class);
                let layout = *layout.ok_or(Error::Corrupt { what: "a block's class" })?;
                let (number, used, unused) = (0, 0, 0);
                recovery.blocks.push(DeadBlock { address, layout, number, used, unused });
            }
        }
        recovery.region = end;
        Ok(())
    }

    /// Looks at the next objects of the dead client.
    async fn recover_objects(&self, recovery: &mut Recovery) -> Result<(), Error> {
        let _pin = self.epochs.pin();
        let block = &mut recovery.blocks[recovery.position];
        let numbers = block.number..block.layout.objects.min(block.number + OBJECTS_PER_STEP);
        let objects = self.read_objects(block.address, &block.layout, numbers.clone()).await?;
        let in_use: Vec<Slot> = objects.in_use.iter().map(|object| object.word).collect();
        let heads = self.read_heads(&in_use).await?;
        let (mut garbage, mut roots) = (Vec::new(), Vec::new());
        let (mut chunks, mut writes): (Vec<Head>, Vec<Head>) = (Vec::new(), Vec::new());
        for (head, &word) in heads.into_iter().zip(&in_use) {
            match head {
                // c0: the object was not even written.
                None => garbage.push(word),
                Some(head) if head.is_chunk() => chunks.push(head),
                // Its intents need it until they are ended, wherever they are.
                Some(head) if head.is_transaction() => recovery.suspects.push(head.word),
                Some(head) => writes.push(head),
            }
        }
        let asked: Vec<_> = chunks.iter().map(|head| (head.word, head.hash)).collect();
        for (head, listed) in chunks.iter().zip(self.listed(&asked).await?) {
            if !listed {
                garbage.push(head.word);
            }
        }
        for (head, standing) in writes.iter().zip(self.end_rounds(&writes).await?) {
            match standing {
                Standing::Primary if !head.opcode.is_delete() => {}
                Standing::Primary | Standing::Nowhere if head.chunked => roots.push(head.word),
                Standing::Primary | Standing::Nowhere => garbage.push(head.word),
                _ => recovery.stuck = true,
            }
        }
        block.number = numbers.end;
        block.unused += objects.unused;
        block.used += (in_use.len() - garbage.len()) as u32;
        if block.number == block.layout.objects {
            recovery.position += 1;
        }
        // Read again: a helper may have committed one that had no record before.
        let words: Vec<Slot> = writes.iter().map(|head| head.word).collect();
        let mut replaced = self.read_replaced(&words).await?;
        replaced.extend(objects.replaced);
        self.free_words(&garbage).await?;
        self.suspect(recovery, &roots).await?;
        self.suspect(recovery, &replaced).await
    }

    /// Ends the rounds of these writes, as their owner would have; tells what the
    /// index says of them after that.
    async fn end_rounds(&self, writes: &[Head]) -> Result<Vec<Standing>, Error> {
        let ask = |head: &Head| (head.offered_word(), head.hash);
        let asked: Vec<_> = writes.iter().map(ask).collect();
        let mut standings = self.standings(&asked).await?;
        for (head, standing) in writes.iter().zip(&mut standings) {
            match *standing {
                Standing::Primary | Standing::Nowhere => continue,
                // Only its owner could have committed it, or taken it back.
                Standing::Tentative(at) => {
                    self.abort(at, head.word.tentative()).await?;
                }
                Standing::Abandoned(at) => self.abandon_backups(at, head.offered_word()).await?,
                Standing::Voted(at) => self.end_round(head, at).await?,
            }
            *standing = self.standings(&[ask(head)]).await?[0];
        }
        // Intents in the primary were ended by whoever asked. What stays of them is
        // another word.
        for (head, standing) in writes.iter().zip(&mut standings) {
            if head.opcode.is_intent() && *standing == Standing::Nowhere {
                *standing = self.standings(&[(head.word, head.hash)]).await?[0];
            } else if head.opcode.is_intent() {
                *standing = Standing::Voted(head.word.address());
            }
        }
        Ok(standings)
    }

    /// Runs the round of a word that has votes on the slot at `at` to its end.
    ///
    /// The primary is read before the votes: if one still stands after that, the
    /// primary has not left the word that the round is about, since a winner takes
    /// the votes of others away before it moves the primary.
    async fn end_round(&self, head: &Head, at: Address) -> Result<(), Error> {
        let mut place = self.place(head.hash);
        let mut batch = self.fabric.batch();
        let read = self.read_place(&mut batch, &place);
        let batch = self.fabric.run(batch).await;
        let view = self.view(&batch, &mut place, read).await;
        self.fabric.recycle(batch);
        let view = view?;
        let new = head.offered_word();
        let standing = self.standings(&[(new, head.hash)]).await?[0];
        if standing != Standing::Voted(at) {
            return Ok(());
        }
        let old = view.word(at).ok_or(Error::Corrupt { what: "the slot of a vote" })?;
        if head.opcode.is_delete() && !old.is_live() {
            return Err(Error::Corrupt { what: "a delete of nothing" });
        }
        let round = Round {
            key: head.key(),
            hash: head.hash,
            at,
            old,
            new,
            opcode: head.opcode,
            over: None,
            first: head.first,
            insert: if old.leads() { None } else { Some(&*view) },
            resumed: true,
        };
        self.write_round(&round).await.map(|_| ())
    }

    /// Notes those of these objects that are in use though nothing leads to them,
    /// and what they list.
    async fn suspect(&self, recovery: &mut Recovery, words: &[Slot]) -> Result<(), Error> {
        for found in self.unnamed(words).await? {
            let chunks = self.unnamed(&found.chunks).await?;
            // Chunks first: they are freed before their root.
            recovery.suspects.extend(chunks.iter().map(|chunk| chunk.word));
            recovery.suspects.push(found.word);
        }
        Ok(())
    }

    /// Looks at some suspects again. Few at a time, so that there is nothing but the
    /// clients' counters between this look and the next.
    async fn watch_suspects(&self, recovery: &mut Recovery) -> Result<(), Error> {
        let _pin = self.epochs.pin();
        let some = recovery.suspects.len().min(OBJECTS_PER_STEP as usize);
        let unnamed = self.unnamed(&recovery.suspects[..some]).await?;
        recovery.suspects.drain(..some);
        if !unnamed.is_empty() {
            recovery.watched = unnamed.iter().map(|found| (found.word, found.turn)).collect();
            recovery.since = Some(self.read_counters().await?.into());
        }
        Ok(())
    }

    /// Frees those of the suspects watched that are still what they were.
    async fn free_suspects(&self, recovery: &mut Recovery) -> Result<(), Error> {
        let _pin = self.epochs.pin();
        recovery.since = None;
        let watched = std::mem::take(&mut recovery.watched);
        let words: Vec<Slot> = watched.iter().map(|&(word, _)| word).collect();
        let mut unnamed = self.unnamed(&words).await?;
        unnamed.retain(|found| watched.contains(&(found.word, found.turn)));
        let count = unnamed.len() as u64;
        let (roots, rest): (Vec<_>, Vec<_>) =
            unnamed.into_iter().partition(|found| !found.chunks.is_empty());
        let words = |found: Vec<Unnamed>| found.iter().map(|f| f.word).collect::<Vec<_>>();
        self.free_words(&words(rest)).await?;
        self.free_words(&words(roots)).await?;
        self.stats.debts.add(count);
        Ok(())
    }
}

#[cfg(test)]
#[path = "recover_tests.rs"]
mod tests;
