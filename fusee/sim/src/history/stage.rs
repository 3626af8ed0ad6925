//! The stage on which the real store plays.

use super::audit::{Living, audit, slots, taken_word};
use super::failure::{Census, Conflicts, Failure, Summary};
use super::operate::held;
use super::plan::{Plan, Scenario};
use super::runner::{Stage, run_with};
use super::subject::Subject;
use crate::execution::Program;
use crate::keyspec::{Answer, Effect};
use crate::{MemoryNodes, Nodes, SimEnv, SimFabric, SimPool};
use fusee::{Decision, Entry, Error, Key, Kind, Setting, Store, StoreConfig};
use fusee_fabric::Fabric;
use fusee_layout::{
    Address, Geometry, KeyHasher, LogEntry, Meta, Opcode, POOL_VERSION, PoolParams, object_bytes,
    write_object,
};
use std::rc::Rc;
use std::sync::Arc;

/// A store in the simulator.
pub type SimStore = Store<SimFabric, SimEnv>;

/// Plays and judges the history of a seed with real stores.
///
/// # Errors
///
/// If anything went wrong: the failure has the seed that brings it back.
pub fn run_history(seed: u64, scenario: &Scenario) -> Result<Summary, Failure> {
    run_with(seed, scenario, stage)
}

/// A small pool as the plan wants it.
pub fn stage(plan: &Plan) -> Stage<SimStore> {
    let geometry = Arc::new(geometry(plan));
    let (control, mut nodes) = MemoryNodes::create(geometry.clone());
    take_slots(&geometry, &mut nodes, &plan.taken);
    let (inspected, opened) = (geometry.clone(), geometry.clone());
    Stage {
        nodes,
        control: Box::new(control),
        geometry: Some((*geometry).clone()),
        meddler: None,
        open: Box::new(move |fabric, env| {
            let geometry = opened.clone();
            let config = StoreConfig { index_cache_entries: CACHE_ENTRIES };
            Box::pin(async move {
                let joined = Store::join(fabric, env, geometry, config).await;
                joined.map_err(|error| error.to_string())
            })
        }),
        inspect: Box::new(move |pool, stores| inspect(&inspected, pool, stores)),
    }
}

const CACHE_ENTRIES: usize = 64;

fn inspect(
    geometry: &Geometry,
    pool: &SimPool,
    stores: &[Option<Rc<SimStore>>],
) -> Result<Census, String> {
    let living: Vec<Living> = stores
        .iter()
        .flatten()
        .map(|store| Living { client: store.client(), blocks: store.audit() })
        .collect();
    let census = audit(geometry, &pool.nodes(), &living)?;
    if census.grace > 0 {
        return Err(format!("{} objects wait, though nobody holds them up", census.grace));
    }
    Ok(census)
}

/// The pool of a plan: an index in which the keys meet, blocks of a few objects.
pub fn geometry(plan: &Plan) -> Geometry {
    let region_bytes = plan.block_bytes * BLOCKS_PER_REGION;
    let regions = u64::from(1 + plan.data_regions) * u64::from(plan.replicas);
    let mut params = PoolParams {
        version: POOL_VERSION,
        nodes: plan.nodes,
        replicas: plan.replicas,
        node_bytes: 0,
        region_bytes,
        block_bytes: plan.block_bytes,
        clients_max: CLIENTS_MAX,
        index_regions: 1,
        subtables: 1,
        groups: plan.groups,
        hash_seed: hash_seed(plan),
    };
    let per_node = regions.div_ceil(plan.nodes.into());
    params.node_bytes = Geometry::meta_bytes(&params) + per_node * region_bytes;
    Geometry::new(params).expect("plans are possible")
}

/// Gives some slots to a key of another database.
fn take_slots(geometry: &Geometry, nodes: &mut Nodes, taken: &[u64]) {
    let word = taken_word(geometry);
    let log = LogEntry {
        committed_over: Some(0),
        next: Address::default(),
        prev: Address::default(),
        opcode: Opcode::Set,
        used: true,
    };
    let meta = Meta { generation: 1, database: 15, ..Meta::default() };
    let mut object = vec![0; object_bytes(5, 0, false)];
    write_object(&mut object, &log, &meta, b"taken", &[]);
    for at in geometry.placement.locate_all(word.address()) {
        nodes.put_bytes(at, &object);
    }
    let all: Vec<_> = slots(geometry).collect();
    for &slot in taken {
        for at in geometry.placement.locate_all(all[slot as usize]) {
            nodes.words_mut(at, 1)[0] = word.word();
        }
    }
}

/// A seed under which no key has the fingerprint of the slots that are taken.
fn hash_seed(plan: &Plan) -> u64 {
    let apart = |&seed: &u64| {
        let hasher = KeyHasher::new(seed);
        plan.keys.iter().all(|key| hasher.hash(0, key).fingerprint() != 0)
    };
    (0..).map(|step| plan.hash_seed.wrapping_add(step)).find(apart).expect("most seeds are good")
}

const BLOCKS_PER_REGION: u64 = 16;
/// One more than there are, for the entry of all who have left.
const CLIENTS_MAX: u32 = 8;

impl Subject for SimStore {
    async fn read(
        &self,
        keys: &[Key<'_>],
        each: impl FnMut(usize, Result<Option<Entry<'_>>, Error>),
    ) {
        Store::read(self, keys, each).await;
    }

    async fn set(
        &self,
        key: Key<'_>,
        value: &[u8],
        expires_at_ms: Option<u64>,
    ) -> Result<(), Error> {
        Store::set(self, key, value, expires_at_ms).await
    }

    async fn set_each(&self, sets: &[Setting<'_>], each: impl FnMut(usize, Result<(), Error>)) {
        Store::set_each(self, sets, each).await;
    }

    async fn delete(&self, key: Key<'_>) -> Result<bool, Error> {
        Store::delete(self, key).await
    }

    async fn update(
        &self,
        key: Key<'_>,
        decide: impl FnMut(Option<Entry<'_>>, &mut Vec<u8>) -> Decision,
    ) -> Result<(), Error> {
        Store::update(self, key, decide).await
    }

    async fn exec(
        subject: &Rc<Self>,
        keys: &[Vec<u8>],
        program: &Program,
    ) -> Result<Vec<Answer>, Error> {
        subject
            .transact(async |transaction| {
                let mut answers = Vec::new();
                while let Some((key, command)) = program.next(&answers) {
                    let key = Key { database: 0, name: &keys[key] };
                    let current = transaction.read(key, |entry| entry.map(held)).await?;
                    let (effect, answer) = command.decide(current.as_ref());
                    match effect {
                        Effect::Keep => {}
                        Effect::Delete => {
                            transaction.delete(key).await?;
                        }
                        Effect::Replace(new) => {
                            let ends = new.expires_at_ms;
                            transaction.set(key, &new.value.0, Kind::String, ends).await?;
                        }
                    }
                    answers.push(answer);
                }
                Ok(answers)
            })
            .await
    }

    async fn scan(
        &self,
        database: u8,
        cursor: u64,
        count: usize,
        each: impl FnMut(&[u8], Entry<'_>),
    ) -> Option<Result<u64, Error>> {
        Some(Store::scan(self, database, cursor, count, each).await)
    }

    async fn len(&self, database: u8) -> Option<Result<u64, Error>> {
        Some(Store::len(self, database).await)
    }

    async fn maintain(&self) -> Result<(), Error> {
        Store::maintain(self).await.map(|_| ())
    }

    fn id(&self) -> Option<u32> {
        Some(self.client())
    }

    async fn leave(&self) -> Result<(), Error> {
        Store::leave(self).await
    }

    fn conflicts(&self) -> Conflicts {
        let stats = self.stats();
        Conflicts {
            rule1: stats.rule1.get(),
            rule2: stats.rule2.get(),
            rule3: stats.rule3.get(),
            lost: stats.lost.get(),
            helped: stats.helped.get(),
            helps: stats.helps.get(),
            abandoned: stats.abandoned.get(),
            restarts: stats.restarts.get(),
            stale: stats.index_stale.get(),
            reclaimed: stats.reclaimed.get(),
            expired: stats.expired.get(),
            recovered: stats.recovered.get(),
            debts: stats.debts.get(),
            transactions: stats.transactions.get(),
            retried: stats.transactions_retried.get(),
            broken: stats.transactions_broken.get(),
        }
    }

    fn batches(&self) -> u64 {
        self.fabric().counters().batches()
    }
}
