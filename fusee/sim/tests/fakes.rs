//! Clients that are simple enough to be right or wrong by inspection: the
//! simulator and the checker must tell them apart.

use fusee::{Decision, Entry, Error, Key, Kind, Setting};
use fusee_fabric::Fabric;
use fusee_layout::NodeAddress;
use fusee_layout::message::{Request, Response};
use fusee_sim::execution::Program;
use fusee_sim::history::{Census, Failure, Fault, Plan, Scenario, Stage, Subject, run_with};
use fusee_sim::keyspec::Answer;
use fusee_sim::{Control, Nodes, SimFabric};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// How a fake goes about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// One word per key, changed by CAS alone.
    Good,
    /// Updates READ and then WRITE.
    ReadThenWrite,
    /// A failed CAS counts as done.
    IgnoresLostCas,
    /// Reads are answered from what was seen last.
    CachesReads,
    /// A delete says 1 whatever it found.
    DeletesAlwaysFind,
    /// Values are WRITEn over the old ones, in two lines.
    InPlace,
    /// Two copies, both written, either read.
    ReadsAnyCopy,
    /// Takes the key's lock, which nobody takes from a stopped client.
    Locks,
}

struct Fake {
    fabric: SimFabric,
    way: Way,
    cache: RefCell<HashMap<u64, u64>>,
    values: Rc<Values>,
}

/// The values of one history: a word in memory names one twice over, in its
/// low half and in its high half; 0 names none.
#[derive(Default)]
struct Values(RefCell<Vec<Vec<u8>>>);

impl Values {
    fn pack(&self, value: &[u8]) -> u64 {
        let mut values = self.0.borrow_mut();
        let known = values.iter().position(|known| known == value);
        let number = known.unwrap_or_else(|| {
            values.push(value.to_vec());
            values.len() - 1
        });
        (number as u64 + 1) * ((1 << 32) + 1)
    }

    fn unpack(&self, word: u64) -> Option<Vec<u8>> {
        if word >> 32 != word & 0xffff_ffff {
            return Some(b"torn".to_vec());
        }
        let number = (word >> 32).checked_sub(1)?;
        Some(self.0.borrow()[number as usize].clone())
    }
}

impl Fake {
    fn place(&self, key: Key<'_>, copy: u16) -> NodeAddress {
        NodeAddress { node: copy, offset: 64 + 256 * u64::from(key.name[1] - b'0') }
    }

    async fn get(&self, key: Key<'_>) -> u64 {
        let copy = if self.way == Way::ReadsAnyCopy {
            u16::from(self.fabric.client() % 2 == 1)
        } else {
            0
        };
        let at = self.place(key, copy);
        if self.way == Way::CachesReads
            && let Some(&word) = self.cache.borrow().get(&at.offset)
        {
            return word;
        }
        let mut batch = self.fabric.batch();
        let read = if self.way == Way::InPlace { batch.read(at, 128) } else { batch.read(at, 8) };
        let batch = self.fabric.run(batch).await;
        let words = batch.words(read).expect("no node is down");
        if self.way == Way::InPlace {
            // The low half of the value in one line, the high half in the next.
            return words[0] | words[8];
        }
        self.cache.borrow_mut().insert(at.offset, words[0]);
        words[0]
    }

    async fn put(&self, key: Key<'_>, word: u64) {
        let mut batch = self.fabric.batch();
        let copies = if self.way == Way::ReadsAnyCopy { 2 } else { 1 };
        for copy in 0..copies {
            let in_place = self.way == Way::InPlace;
            let span = batch.stage(if in_place { 128 } else { 8 });
            batch.staged(span).fill(0);
            let low = if in_place { word & 0xffff_ffff } else { word };
            batch.staged(span)[..8].copy_from_slice(&low.to_le_bytes());
            if in_place {
                batch.staged(span)[64..72].copy_from_slice(&(word ^ low).to_le_bytes());
            }
            batch.write(self.place(key, copy), span);
        }
        self.cache.borrow_mut().insert(self.place(key, 0).offset, word);
        self.fabric.run(batch).await;
    }

    async fn cas(&self, at: NodeAddress, expected: u64, new: u64) -> u64 {
        let mut batch = self.fabric.batch();
        let cas = batch.cas(at, expected, new);
        self.cache.borrow_mut().insert(at.offset, new);
        self.fabric.run(batch).await.word(cas).expect("no node is down")
    }

    /// Replaces the key's word by what `next` makes of it; what it was.
    async fn replace(&self, key: Key<'_>, mut next: impl FnMut(u64) -> u64) -> u64 {
        let lock = NodeAddress { offset: self.place(key, 0).offset + 128, node: 0 };
        if self.way == Way::Locks {
            while self.cas(lock, 0, 1).await != 0 {}
        }
        let mut old = self.get(key).await;
        loop {
            let new = next(old);
            let by_write = matches!(
                self.way,
                Way::ReadThenWrite | Way::InPlace | Way::ReadsAnyCopy | Way::Locks
            );
            if new == old {
                break;
            }
            if by_write {
                self.put(key, new).await;
                break;
            }
            let found = self.cas(self.place(key, 0), old, new).await;
            if found == old || self.way == Way::IgnoresLostCas {
                break;
            }
            old = found;
        }
        if self.way == Way::Locks {
            self.cas(lock, 1, 0).await;
        }
        old
    }
}

impl Subject for Fake {
    async fn read(
        &self,
        keys: &[Key<'_>],
        mut each: impl FnMut(usize, Result<Option<Entry<'_>>, Error>),
    ) {
        for (at, &key) in keys.iter().enumerate() {
            let value = self.values.unpack(self.get(key).await);
            each(at, Ok(value.as_deref().map(entry)));
        }
    }

    async fn set(&self, key: Key<'_>, value: &[u8], _expires: Option<u64>) -> Result<(), Error> {
        self.replace(key, |_| self.values.pack(value)).await;
        Ok(())
    }

    async fn set_each(&self, sets: &[Setting<'_>], mut each: impl FnMut(usize, Result<(), Error>)) {
        for (at, set) in sets.iter().enumerate() {
            each(at, self.set(set.key, set.value, set.expires_at_ms).await);
        }
    }

    async fn delete(&self, key: Key<'_>) -> Result<bool, Error> {
        let found = self.replace(key, |_| 0).await != 0;
        Ok(found || self.way == Way::DeletesAlwaysFind)
    }

    async fn update(
        &self,
        key: Key<'_>,
        mut decide: impl FnMut(Option<Entry<'_>>, &mut Vec<u8>) -> Decision,
    ) -> Result<(), Error> {
        self.replace(key, |old| {
            let mut value = Vec::new();
            match decide(self.values.unpack(old).as_deref().map(entry), &mut value) {
                Decision::Keep => old,
                Decision::Delete => 0,
                Decision::Replace { .. } => self.values.pack(&value),
            }
        })
        .await;
        Ok(())
    }

    async fn exec(_: &Rc<Self>, _: &[Vec<u8>], _: &Program) -> Result<Vec<Answer>, Error> {
        unreachable!("no plan of a fake has transactions")
    }

    async fn scan(
        &self,
        _database: u8,
        _cursor: u64,
        _count: usize,
        _each: impl FnMut(&[u8], Entry<'_>),
    ) -> Option<Result<u64, Error>> {
        None
    }

    async fn len(&self, _database: u8) -> Option<Result<u64, Error>> {
        None
    }

    async fn maintain(&self) -> Result<(), Error> {
        Ok(())
    }

    fn batches(&self) -> u64 {
        self.fabric.counters().batches()
    }
}

fn entry(value: &[u8]) -> Entry<'_> {
    Entry { value, kind: Kind::String, expires_at_ms: None }
}

struct NoControl;

impl Control for NoControl {
    fn handle(&mut self, _nodes: &mut Nodes, _node: u16, _request: Request) -> Response {
        Response::Done
    }
}

fn stage(way: Way) -> impl FnOnce(&Plan) -> Stage<Fake> {
    let values = Rc::<Values>::default();
    move |_| Stage {
        nodes: Nodes::new(2, 4096),
        control: Box::new(NoControl),
        geometry: None,
        meddler: None,
        open: Box::new(move |fabric, _| {
            let fake = Fake { fabric, way, cache: RefCell::default(), values: values.clone() };
            Box::pin(async move { Ok(fake) })
        }),
        inspect: Box::new(|_, _| Ok(Census::default())),
    }
}

fn scenario() -> Scenario {
    // The fakes know no ends.
    Scenario { expiry: None, scans: false, ..Scenario::default() }
}

/// The first failure within so many seeds.
fn first_failure(way: Way, seeds: u64) -> Option<Failure> {
    (0..seeds).find_map(|seed| run_with(seed, &scenario(), stage(way)).err())
}

#[test]
fn a_word_changed_by_cas_passes_every_history() {
    assert_eq!(first_failure(Way::Good, 2000), None);
}

#[test]
fn every_wrong_way_is_found_out() {
    for way in [
        Way::ReadThenWrite,
        Way::IgnoresLostCas,
        Way::CachesReads,
        Way::DeletesAlwaysFind,
        Way::InPlace,
        Way::ReadsAnyCopy,
    ] {
        let failure = first_failure(way, 300).unwrap_or_else(|| panic!("{way:?} passes"));
        assert!(matches!(failure.fault, Fault::NotLinearizable(_)), "{way:?}: {failure}");
    }
}

#[test]
fn a_lock_that_a_stopped_client_holds_is_found_to_hang() {
    let failure = first_failure(Way::Locks, 1000).expect("somebody stops with the lock");
    assert!(matches!(failure.fault, Fault::Hang(_)), "{failure}");
    let alive = Scenario { stops_percent: 0, ..scenario() };
    for seed in 0..300 {
        run_with(seed, &alive, stage(Way::Locks)).expect("nobody stops");
    }
}

#[test]
fn a_seed_brings_its_history_back() {
    let trace = |seed| {
        let scenario = Scenario { trace: true, ..scenario() };
        run_with(seed, &scenario, stage(Way::ReadThenWrite)).map_err(|failure| failure.trace)
    };
    let seed = first_failure(Way::ReadThenWrite, 300).expect("it is wrong").seed;
    let first = trace(seed).expect_err("it fails again");
    assert!(first.len() > 20, "{first:?}");
    assert_eq!(trace(seed), Err(first));
}
