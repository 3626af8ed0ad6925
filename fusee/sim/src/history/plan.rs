//! What a history is going to be like, drawn from its seed.

use crate::execution::Program;
use crate::keyspec::{Bytes, Command, Expiry, Held};
use crate::{Delays, Rng, Settings, Tearing, WallClock};
use fusee_layout::{BUCKET_BYTES, GROUP_BYTES, SLOTS_PER_BUCKET};
use std::ops::RangeInclusive;

/// The bounds within which a seed draws its history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// Copies of index and data.
    pub replicas: RangeInclusive<u64>,
    /// Clients.
    pub clients: RangeInclusive<u64>,
    /// Operations of a client.
    pub operations: RangeInclusive<u64>,
    /// Keys.
    pub keys: RangeInclusive<u64>,
    /// How many histories in a hundred have clients that stop.
    pub stops_percent: u64,
    /// How many clients in a hundred leave when they have done their tasks.
    pub leaves_percent: u64,
    /// How keys end; `None` if they do not.
    pub expiry: Option<Expiry>,
    /// Are some values so large that they are cut into chunks?
    pub large: bool,
    /// How many histories in a hundred are mostly of keys that come and go.
    pub churn_percent: u64,
    /// Do clients scan?
    pub scans: bool,
    /// How many tasks in a hundred are transactions.
    pub transactions_percent: u64,
    /// Keep a trace.
    pub trace: bool,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            replicas: 1..=4,
            clients: 3..=5,
            operations: 4..=12,
            keys: 1..=4,
            stops_percent: 50,
            leaves_percent: 10,
            expiry: Some(Expiry::AsJudged),
            large: true,
            churn_percent: 40,
            scans: true,
            transactions_percent: 0,
            trace: false,
        }
    }
}

impl Scenario {
    /// A few clients with transactions over a few keys. All keys are judged
    /// together, so there are not many operations.
    pub fn transactions() -> Self {
        Self {
            clients: 3..=4,
            operations: 3..=7,
            keys: 2..=3,
            churn_percent: 20,
            scans: false,
            transactions_percent: 50,
            ..Self::default()
        }
    }
}

/// One thing that a client does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Task {
    /// A command on a key.
    One(usize, Command),
    /// A read of several keys.
    Many(Vec<usize>),
    /// SETs one after another, as a pipeline brings them.
    Series(Vec<(usize, Held)>),
    /// A scan of everything.
    Scan,
    /// A transaction.
    Exec(Program),
}

/// A client's part of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientPlan {
    /// When it joins.
    pub joins_at_ns: u64,
    /// What it does, each after a pause.
    pub tasks: Vec<(u64, Task)>,
    /// It stops in this task, so many steps after its beginning.
    pub stop: Option<(usize, u64)>,
    /// It leaves when it has done everything.
    pub leaves: bool,
    /// All that it does takes so many times as long.
    pub slowness: u64,
    /// It is in the background this often.
    pub tick_ns: u64,
    /// Its own chance.
    pub rng: Rng,
}

/// A history to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Copies of index and data.
    pub replicas: u8,
    /// Memory nodes.
    pub nodes: u16,
    /// The keys' names.
    pub keys: Vec<Vec<u8>>,
    /// The clients.
    pub clients: Vec<ClientPlan>,
    /// Who has stopped is expelled so much later.
    pub expelled_after_ns: u64,
    /// Of those who recover others, these stop as well, so many steps after they
    /// have begun.
    pub recoverers_stop: Vec<u64>,
    /// How the fabric behaves.
    pub settings: Settings,
    /// The clients' wall clock.
    pub clock: WallClock,
    /// How keys end.
    pub expiry: Expiry,
    /// Size of a block.
    pub block_bytes: u64,
    /// How many regions of blocks there are.
    pub data_regions: u32,
    /// Bucket groups of the index.
    pub groups: u32,
    /// Slots, by number, that other keys have taken for good.
    pub taken: Vec<u64>,
    /// Seed of the key hash.
    pub hash_seed: u64,
    /// When every key that ends has ended.
    pub ended_at_ns: u64,
    /// The fabric's chance.
    pub rng: Rng,
}

impl Plan {
    /// The client that stays to the end whatever happens to the others.
    pub fn keeper(&self) -> u32 {
        let stays = self.clients.iter().position(|client| client.stop.is_none());
        stays.expect("not all clients stop") as u32
    }

    /// The plan of a seed.
    pub fn new(seed: u64, scenario: &Scenario) -> Self {
        let mut rng = Rng::new(seed);
        let range = |rng: &mut Rng, of: &RangeInclusive<u64>| rng.between(*of.start(), *of.end());
        let replicas = range(&mut rng, &scenario.replicas) as u8;
        let nodes = u16::from(replicas) + rng.below(2) as u16;
        let churn = rng.percent(scenario.churn_percent);
        let more_keys = if churn { 3 } else { 0 };
        let keys = range(&mut rng, &scenario.keys) + more_keys;
        let keys: Vec<Vec<u8>> = (0..keys).map(|n| format!("k{n}").into_bytes()).collect();
        let within_lines = rng.percent(70);
        let settings = Settings {
            delays: Delays::drawn(&mut rng),
            tearing: Tearing { percent: rng.pick(&[0, 20, 20, 60, 100]), within_lines },
        };
        let clock = WallClock {
            start_ms: 1_700_000_000_000,
            ns_per_ms: rng.pick(&[1_000_000, 20_000, 20_000, 5_000]),
        };
        let clients = range(&mut rng, &scenario.clients);
        let with_stops = rng.percent(scenario.stops_percent);
        let mut stops_left = if with_stops { rng.between(1, (clients - 1).min(2)) } else { 0 };
        let block_bytes = rng.pick(&[1024, 2048, 4096]);
        let style = Style::drawn(&mut rng, scenario, block_bytes, churn);
        let slow_percent = rng.pick(&[0, 0, 25]);
        let tick_ns = rng.pick(&[10_000, 30_000, 100_000, 1_000_000]);
        let think_ns = rng.pick(&[1, 2_000, 20_000]);
        let plans = (0..clients).map(|number| {
            let mut own = rng.fork();
            let count = range(&mut own, &scenario.operations) as usize;
            let tasks: Vec<(u64, Task)> = (0..count)
                .map(|at| {
                    let unique = (number + 1) * 1000 + at as u64;
                    (own.below(think_ns) + 1, style.task(unique, keys.len(), &clock, &mut own))
                })
                .collect();
            let stop = (stops_left > 0).then(|| {
                stops_left -= 1;
                (own.below(count as u64) as usize, own.between(1, own.clone().pick(&[4, 12, 40])))
            });
            let joins_at_ns = if own.percent(20) { own.below(200_000) } else { own.below(2_000) };
            let slowness = if own.percent(slow_percent) { own.between(3, 30) } else { 1 };
            let leaves = false;
            ClientPlan { joins_at_ns, tasks, stop, leaves, slowness, tick_ns, rng: own }
        });
        let mut clients: Vec<ClientPlan> = plans.collect();
        // Its own stream, so that all else is as without it.
        let mut ends = Rng::new(!seed);
        for client in clients.iter_mut().filter(|client| client.stop.is_none()).skip(1) {
            client.leaves = ends.percent(scenario.leaves_percent);
        }
        // The same.
        let mut apart = Rng::new(seed.rotate_left(32));
        for (number, client) in clients.iter_mut().enumerate() {
            for (at, (_, task)) in client.tasks.iter_mut().enumerate() {
                if apart.percent(scenario.transactions_percent) {
                    let unique = (number as u64 + 1) * 1000 + at as u64;
                    *task = Task::Exec(style.program(unique, keys.len(), &clock, &mut apart));
                }
            }
        }
        let recoverers = if with_stops { ends.pick(&[0, 0, 1, 2]) } else { 0 };
        let mut steps = || {
            let most = ends.pick(&[5, 30, 100, 300]);
            ends.between(1, most)
        };
        let recoverers_stop = (0..recoverers).map(|_| steps()).collect();
        let expelled_after_ns = ends.pick(&[0, 5_000, 50_000, 300_000]);
        let groups = rng.pick(&[2, 2, 3]);
        // Not with stops: who stops in an insert may block the last slot of a key
        // until a master expels it.
        let crowded = churn && clients.iter().all(|client: &ClientPlan| client.stop.is_none());
        let taken_percent = if crowded { rng.pick(&[0, 70, 85, 90]) } else { 0 };
        let slots = u64::from(groups) * (GROUP_BYTES / BUCKET_BYTES * SLOTS_PER_BUCKET) as u64;
        let taken = (0..slots).filter(|_| rng.percent(taken_percent)).collect();
        Self {
            expelled_after_ns,
            recoverers_stop,
            taken,
            replicas,
            nodes,
            keys,
            clients,
            settings,
            clock,
            expiry: scenario.expiry.unwrap_or(Expiry::AtOnce),
            block_bytes,
            data_regions: rng.pick(&[1, 2, 3, 4]),
            groups,
            hash_seed: rng.word(),
            ended_at_ns: (ends_within_ms(&clock) + 2) * clock.ns_per_ms,
            rng,
        }
    }
}

/// What the operations of a history are mostly like.
#[derive(Clone, Debug)]
struct Style {
    kinds: Vec<u8>,
    value_bytes: Vec<u64>,
    expiry_percent: u64,
    multi_percent: u64,
    scan_percent: u64,
}

const KINDS: u8 = 11;

/// Keys that end do so within so many ms of the beginning.
fn ends_within_ms(clock: &WallClock) -> u64 {
    (400_000 / clock.ns_per_ms).max(3)
}

impl Style {
    fn drawn(rng: &mut Rng, scenario: &Scenario, block_bytes: u64, churn: bool) -> Self {
        // A few kinds at a time, so that the same kinds meet; at times all.
        let kinds = if churn {
            // Keys come and go, so that they meet in each other's slots.
            vec![0, 1, 2, 2, 3, 6]
        } else if rng.percent(30) {
            (0..KINDS).collect()
        } else {
            let mut kinds: Vec<u8> =
                (0..rng.between(2, 4)).map(|_| rng.below(KINDS.into()) as u8).collect();
            kinds.push(0);
            kinds
        };
        let mut value_bytes = vec![4, 4, 4, 4, 90];
        if rng.percent(30) {
            value_bytes.extend([200, 500]);
        }
        if scenario.large && rng.percent(15) {
            value_bytes.extend([block_bytes - 100, block_bytes - 100]);
        }
        Self {
            kinds,
            value_bytes,
            expiry_percent: if scenario.expiry.is_some() { rng.pick(&[0, 0, 10, 50]) } else { 0 },
            multi_percent: rng.pick(&[0, 5, 20]),
            scan_percent: if scenario.scans { rng.pick(&[0, 0, 5]) } else { 0 },
        }
    }

    fn task(&self, unique: u64, keys: usize, clock: &WallClock, rng: &mut Rng) -> Task {
        if rng.percent(self.scan_percent) {
            return Task::Scan;
        }
        if rng.percent(self.multi_percent) {
            let count = rng.between(1, 2 * keys as u64);
            let some: Vec<usize> = (0..count).map(|_| rng.below(keys as u64) as usize).collect();
            if rng.percent(50) {
                return Task::Many(some);
            }
            let held = |at: usize, rng: &mut Rng| self.held(100 * unique + at as u64, clock, rng);
            let sets = some.into_iter().enumerate();
            return Task::Series(sets.map(|(at, key)| (key, held(at, rng))).collect());
        }
        Task::One(rng.below(keys as u64) as usize, self.command(unique, clock, rng))
    }

    fn program(&self, unique: u64, keys: usize, clock: &WallClock, rng: &mut Rng) -> Program {
        let from = rng.below(keys as u64) as usize;
        let to = (from + 1 + rng.below(keys as u64 - 1) as usize) % keys;
        let what = rng.below(5);
        let mut set = |at: u64| Command::Set(self.held(100 * unique + at, clock, rng));
        Program::Commands(match what {
            0 => return Program::Move { from, to },
            1 => vec![(from, Command::Increment(1)), (to, Command::Increment(1))],
            2 => (0..keys).map(|key| (key, Command::Get)).collect(),
            3 => vec![(from, set(0)), (to, set(1))],
            _ => {
                let count = rng.between(2, 4);
                let one = |at| {
                    let key = rng.below(keys as u64) as usize;
                    (key, self.command(100 * unique + at, clock, rng))
                };
                (0..count).map(one).collect()
            }
        })
    }

    /// A value that no other command sets.
    fn held(&self, unique: u64, clock: &WallClock, rng: &mut Rng) -> Held {
        let ends = |rng: &mut Rng| clock.start_ms + rng.below(ends_within_ms(clock));
        let expires_at_ms = rng.percent(self.expiry_percent).then(|| ends(rng));
        let bytes = rng.pick(&self.value_bytes) as usize;
        Held { value: Bytes::text(&format!("{unique:0bytes$}")), expires_at_ms }
    }

    fn command(&self, unique: u64, clock: &WallClock, rng: &mut Rng) -> Command {
        let kind = rng.pick(&self.kinds);
        let ends = |rng: &mut Rng| clock.start_ms + rng.below(ends_within_ms(clock));
        let held = self.held(unique, clock, rng);
        match kind {
            0 => Command::Get,
            1 => Command::Set(held),
            2 => Command::Delete,
            3 => Command::SetNx(held),
            4 => Command::SetXx(held),
            5 => Command::SetGet(held),
            6 => Command::GetDelete,
            7 => Command::Increment(1),
            8 => Command::Append(Bytes::text(&(unique % 10).to_string())),
            9 if self.expiry_percent > 0 => Command::ExpireAt(ends(rng)),
            10 if self.expiry_percent > 0 => Command::Persist,
            _ => Command::Set(held),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_plan_and_somebody_always_lives() {
        for seed in 0..300 {
            let scenario = Scenario { stops_percent: 100, ..Scenario::default() };
            let plan = Plan::new(seed, &scenario);
            assert_eq!(plan, Plan::new(seed, &scenario));
            assert!(plan.clients.iter().any(|client| client.stop.is_none()));
            assert!(plan.clients.iter().any(|client| client.stop.is_some()));
            assert!(
                (3..=5).contains(&plan.clients.len()) && plan.nodes >= u16::from(plan.replicas)
            );
        }
    }
}
