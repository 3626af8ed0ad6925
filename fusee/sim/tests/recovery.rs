//! A client stops at each step of an operation, and of its background work after
//! that, and is recovered: the key has the old value or the new one, and not one
//! object is lost.

use fusee::{Decision, Key, Kind, Store, StoreConfig};
use fusee_fabric::Verb;
use fusee_layout::message::{Refusal, Request, Response};
use fusee_layout::{COMBINED_BYTES, Geometry, NodeAddress, POOL_VERSION, PoolParams, Slot};
use fusee_sim::history::{
    Failure, Fault, Living, Plan, Scenario, SimStore, audit, geometry, run_with, stage,
};
use fusee_sim::{
    Control, Delays, Executor, Group, Meddler, Meddling, MemoryNodes, Nodes, Rng, Seen, Settings,
    SimEnv, SimPool, Tearing, WallClock, address_of,
};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

const KEY: Key<'_> = Key { database: 0, name: b"key" };
/// What transactions touch besides.
const OTHER: Key<'_> = Key { database: 0, name: b"other" };
const DEADLINE_NS: u64 = 1_000_000_000;
/// Each with other tearing, and with another time between stop and expulsion.
const SEEDS: u64 = 3;
/// Enough for all that a client owes to be done.
const TICKS: usize = 8;
const TICKS_TO_REST: usize = 120;
/// The client that stops, and the one that stays.
const STOPS: u32 = 1;
const STAYS: u32 = 0;

/// What is there before, and what the client does to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Story {
    before: [Option<usize>; 2],
    cached: bool,
    act: Act,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    Set(usize),
    Delete,
    Append,
    /// Deletes by a conditional write.
    Take,
    /// Sets both keys in a transaction.
    SetBoth(usize),
    /// Moves the key's value to the other one.
    Move,
    /// Reads the key and sets the other one.
    SetBySight(usize),
    DeleteBoth,
}

const SMALL: usize = 4;
/// Cut into three chunks.
const LARGE: usize = 2500;

const fn story(before: Option<usize>, cached: bool, act: Act) -> Story {
    Story { before: [before, None], cached, act }
}

const STORIES: [Story; 14] = [
    story(None, false, Act::Set(SMALL)),
    story(None, false, Act::Append),
    story(None, false, Act::Set(LARGE)),
    story(Some(SMALL), true, Act::Set(SMALL)),
    story(Some(SMALL), false, Act::Set(SMALL)),
    story(Some(SMALL), true, Act::Append),
    story(Some(SMALL), true, Act::Delete),
    story(Some(SMALL), false, Act::Delete),
    story(Some(SMALL), false, Act::Take),
    story(Some(SMALL), true, Act::Set(LARGE)),
    story(Some(LARGE), true, Act::Set(SMALL)),
    story(Some(LARGE), true, Act::Set(LARGE)),
    story(Some(LARGE), false, Act::Delete),
    story(Some(LARGE), true, Act::Append),
];

/// As EXEC brings them.
const TRANSACTIONS: [Story; 11] = {
    const fn both(key: usize, other: usize, cached: bool, act: Act) -> Story {
        Story { before: [Some(key), Some(other)], cached, act }
    }
    [
        story(None, false, Act::SetBoth(SMALL)),
        story(None, false, Act::SetBoth(LARGE)),
        story(Some(SMALL), true, Act::SetBoth(SMALL)),
        both(SMALL, SMALL, true, Act::SetBoth(SMALL)),
        both(LARGE, SMALL, false, Act::SetBoth(LARGE)),
        story(Some(SMALL), false, Act::Move),
        both(LARGE, LARGE, true, Act::Move),
        both(SMALL, SMALL, true, Act::SetBySight(SMALL)),
        story(Some(LARGE), false, Act::SetBySight(LARGE)),
        story(None, false, Act::SetBySight(SMALL)),
        both(SMALL, LARGE, true, Act::DeleteBoth),
    ]
};

/// What the two keys hold.
type Values = [Option<Vec<u8>>; 2];

/// What the keys hold if the client's write is not done, and if it is.
fn values(story: Story) -> (Values, Values) {
    let before = story.before.map(|bytes| bytes.map(|bytes| vec![b'o'; bytes]));
    let [key, other] = before.clone();
    let new = |bytes| Some(vec![b'n'; bytes]);
    let after = match story.act {
        Act::Set(bytes) => [new(bytes), other],
        Act::Delete | Act::Take => [None, other],
        Act::Append => [Some([key.as_deref().unwrap_or_default(), b"+"].concat()), other],
        Act::SetBoth(bytes) => [new(bytes), new(bytes)],
        Act::Move => [None, key],
        Act::SetBySight(bytes) => [key, new(bytes)],
        Act::DeleteBoth => [None, None],
    };
    (before, after)
}

async fn act(store: &Rc<SimStore>, story: Story) {
    match story.act {
        Act::Set(bytes) => store.set(KEY, &vec![b'n'; bytes], None).await.unwrap(),
        Act::Delete => assert!(store.delete(KEY).await.unwrap()),
        Act::Take => store.update(KEY, |_, _| Decision::Delete).await.unwrap(),
        Act::Append => {
            let append = |entry: Option<fusee::Entry<'_>>, value: &mut Vec<u8>| {
                value.extend_from_slice(entry.map_or(&[], |entry| entry.value));
                value.push(b'+');
                Decision::Replace { kind: Kind::String, expires_at_ms: None }
            };
            store.update(KEY, append).await.unwrap();
        }
        Act::SetBoth(_) | Act::Move | Act::SetBySight(_) | Act::DeleteBoth => {
            let done = store.transact(async |transaction| {
                let [key, other] = values(story).1;
                for (at, value, reads) in
                    [(KEY, key, matches!(story.act, Act::SetBySight(_))), (OTHER, other, false)]
                {
                    match value {
                        _ if reads => transaction.read(at, |_| ()).await?,
                        Some(value) => transaction.set(at, &value, Kind::String, None).await?,
                        None => assert!(transaction.delete(at).await?),
                    }
                }
                Ok(())
            });
            done.await.unwrap();
        }
    }
}

/// What the keys hold.
async fn look(store: &SimStore) -> Values {
    let mut values = [None, None];
    let each = |at: usize, entry: Result<Option<fusee::Entry<'_>>, fusee::Error>| {
        values[at] = entry.unwrap().map(|entry| entry.value.to_vec());
    };
    store.read(&[KEY, OTHER], each).await;
    values
}

fn pool_of(replicas: u8) -> Arc<Geometry> {
    let params = PoolParams {
        version: POOL_VERSION,
        nodes: u16::from(replicas) + 1,
        replicas,
        node_bytes: 1 << 20,
        region_bytes: 64 << 10,
        block_bytes: 4 << 10,
        clients_max: 8,
        index_regions: 1,
        subtables: 1,
        groups: 4,
        hash_seed: 3,
    };
    Arc::new(Geometry::new(params).unwrap())
}

/// Plays a story in which the client stops after so many steps, and checks how it
/// ends. False if the client was through with everything before that.
fn stops_after(steps: u64, story: Story, replicas: u8, seed: u64) -> bool {
    let geometry = pool_of(replicas);
    let (control, nodes) = MemoryNodes::create(geometry.clone());
    let executor = Executor::new();
    let tearing = Tearing { percent: 40, within_lines: seed % 2 == 1 };
    let settings = Settings { delays: Delays::EVEN, tearing };
    let pool = SimPool::new(executor.sim(), nodes, Box::new(control), settings, Rng::new(seed));
    let clock = WallClock { start_ms: 1, ns_per_ms: 1_000_000 };
    let env = |client| SimEnv::new(executor.sim(), clock, Rng::new(seed + u64::from(client)));
    let config = StoreConfig { index_cache_entries: 16 };
    let through = Rc::new(Cell::new(false));

    let stays = Store::join(pool.fabric(STAYS), env(STAYS), geometry.clone(), config);
    let stays = executor.block_on(DEADLINE_NS, stays).unwrap().unwrap();
    let stays = Rc::new(stays);
    let joined = Store::join(pool.fabric(STOPS), env(STOPS), geometry.clone(), config);
    let stops = Rc::new(executor.block_on(DEADLINE_NS, joined).unwrap().unwrap());
    let (sets, reads) = (stays.clone(), stops.clone());
    let before = async move {
        for (key, bytes) in [KEY, OTHER].into_iter().zip(story.before) {
            if let Some(bytes) = bytes {
                sets.set(key, &vec![b'o'; bytes], None).await.unwrap();
            }
        }
        if story.cached {
            assert!(look(&reads).await[0].is_some());
        }
    };
    executor.block_on(DEADLINE_NS, before).unwrap();

    pool.stop_after(STOPS, steps);
    let (acts, done) = (stops.clone(), through.clone());
    executor.sim().spawn(Group(STOPS), async move {
        act(&acts, story).await;
        for _ in 0..TICKS {
            acts.maintain().await.unwrap();
        }
        done.set(true);
    });
    let ended = || through.get() || pool.is_stopped(STOPS);
    executor.run(DEADLINE_NS, ended);
    // What was under way goes on for a while.
    let sim = executor.sim();
    executor.block_on(DEADLINE_NS, async move { sim.sleep(seed % 3 * 1500).await });
    if seed % 2 == 1 {
        // Somebody comes before the recovery does, and ends what is in his way.
        let meets = stays.clone();
        let meets = async move { meets.update(KEY, |_, _| Decision::Keep).await.unwrap() };
        executor.block_on(DEADLINE_NS, meets).expect("nobody waits for the dead");
    }
    pool.fence(STOPS);
    for node in (0..geometry.params.nodes).rev() {
        let done = pool.ask(node, Request::Expel { client: stops.client() });
        assert_eq!(done, Response::Done);
    }

    let (maintains, sim, waits) = (stays.clone(), executor.sim(), pool.clone());
    let recovers = async move {
        let mut ticks = 0;
        while waits.is_recovering() {
            maintains.maintain().await.unwrap();
            sim.sleep(1000).await;
            ticks += 1;
            assert!(ticks < 1000, "the recovery does not end");
        }
        for _ in 0..TICKS_TO_REST {
            maintains.maintain().await.unwrap();
            sim.sleep(1000).await;
        }
        look(&maintains).await
    };
    let found = executor.block_on(10 * DEADLINE_NS, recovers).expect("it ends");
    let (old, new) = values(story);
    let what = format!("{story:?}, {replicas} replicas, seed {seed}, stopped after {steps}");
    let stopped = pool.is_stopped(STOPS);
    let lengths = || found.each_ref().map(|value| value.as_ref().map(Vec::len));
    assert!(found == new || (stopped && found == old), "{what}: {:?}", lengths());
    let living = [Living { client: stays.client(), blocks: stays.audit() }];
    let census = audit(&geometry, &pool.nodes(), &living);
    let census = census.unwrap_or_else(|fault| panic!("{what}: {fault}"));
    assert_eq!(census.grace, 0, "{what}");
    stopped
}

/// Every step of every story, under some seeds.
fn every_step(stories: &[Story], replicas: u8) {
    let mut steps = 0;
    for &story in stories {
        for seed in 0..SEEDS {
            steps += (1..).take_while(|&step| stops_after(step, story, replicas, seed)).count();
        }
    }
    assert!(steps > 500, "{steps}");
}

#[test]
fn without_backups_nothing_is_lost_wherever_a_client_stops() {
    every_step(&STORIES, 1);
}

#[test]
fn with_one_backup_nothing_is_lost_wherever_a_client_stops() {
    every_step(&STORIES, 2);
}

#[test]
fn with_two_backups_nothing_is_lost_wherever_a_client_stops() {
    every_step(&STORIES, 3);
}

#[test]
fn with_three_backups_nothing_is_lost_wherever_a_client_stops() {
    every_step(&STORIES, 4);
}

#[test]
fn without_backups_a_transaction_is_done_or_not_wherever_its_client_stops() {
    every_step(&TRANSACTIONS, 1);
}

#[test]
fn with_one_backup_a_transaction_is_done_or_not_wherever_its_client_stops() {
    every_step(&TRANSACTIONS, 2);
}

#[test]
fn with_two_backups_a_transaction_is_done_or_not_wherever_its_client_stops() {
    every_step(&TRANSACTIONS, 3);
}

#[test]
fn with_three_backups_a_transaction_is_done_or_not_wherever_its_client_stops() {
    every_step(&TRANSACTIONS, 4);
}

// Would anybody notice if recovery lacked a part?

fn with_stops() -> Scenario {
    Scenario { stops_percent: 100, ..Scenario::default() }
}

/// The first failure within so many seeds, with what `change` makes of the stage.
#[track_caller]
fn is_noticed(
    scenario: &Scenario,
    seeds: u64,
    change: impl Fn(&Plan, &mut fusee_sim::history::Stage<SimStore>),
    expected: impl Fn(&Fault) -> bool,
) {
    std::panic::set_hook(Box::new(|_| {}));
    let failure: Option<Failure> = (0..seeds).find_map(|seed| {
        let build = |plan: &Plan| {
            let mut stage = stage(plan);
            change(plan, &mut stage);
            stage
        };
        run_with(seed, scenario, build).err()
    });
    let _ = std::panic::take_hook();
    let failure = failure.expect("the missing part goes unnoticed");
    assert!(expected(&failure.fault), "{failure}");
}

fn of_memory(fault: &Fault) -> bool {
    matches!(fault, Fault::Memory(_))
}

/// Recovery does not end before everything is in order.
fn hangs(fault: &Fault) -> bool {
    matches!(fault, Fault::Hang(_))
}

/// Changes what is asked of the memory nodes, or what they say.
struct Between {
    nodes: Box<dyn Control>,
    ask: fn(&mut Answers, u16, Request) -> Answer,
    answers: Answers,
}

/// What was answered before.
#[derive(Default)]
struct Answers {
    recoverers: HashMap<u32, u32>,
}

enum Answer {
    /// The nodes' own.
    Theirs,
    /// None, though they have done it, and this after it.
    Silently(Request),
    /// This one, unless the nodes give a client to be recovered to the first who asks.
    OnlyToTheFirst(u32),
}

impl Control for Between {
    fn handle(&mut self, nodes: &mut Nodes, node: u16, request: Request) -> Response {
        let theirs = self.nodes.handle(nodes, node, request);
        match (self.ask)(&mut self.answers, node, request) {
            Answer::Theirs => theirs,
            Answer::Silently(next) => {
                self.nodes.handle(nodes, node, next);
                Response::Refused(Refusal::NotOwner)
            }
            Answer::OnlyToTheFirst(asker) => {
                let Response::Expelled { client } = theirs else { return theirs };
                let first = *self.answers.recoverers.entry(client).or_insert(asker);
                if first == asker { theirs } else { Response::Refused(Refusal::NotOwner) }
            }
        }
    }
}

fn between(
    stage: &mut fusee_sim::history::Stage<SimStore>,
    ask: fn(&mut Answers, u16, Request) -> Answer,
) {
    let nodes = std::mem::replace(&mut stage.control, Box::new(Nobody));
    stage.control = Box::new(Between { nodes, ask, answers: Answers::default() });
}

struct Nobody;

impl Control for Nobody {
    fn handle(&mut self, _: &mut Nodes, _: u16, _: Request) -> Response {
        Response::Refused(Refusal::NotOwner)
    }
}

#[test]
fn orphans_that_nobody_has_recovered_are_noticed() {
    let at_once = |_: &mut Answers, _, request| match request {
        Request::Expel { client } => Answer::Silently(Request::Leave { client }),
        _ => Answer::Theirs,
    };
    is_noticed(&with_stops(), 500, |_, stage| between(stage, at_once), of_memory);
}

#[test]
fn a_recovery_that_dies_with_its_recoverer_is_noticed() {
    let once = |_: &mut Answers, _, request| match request {
        Request::Recover { client } => Answer::OnlyToTheFirst(client),
        _ => Answer::Theirs,
    };
    is_noticed(&with_stops(), 500, |_, stage| between(stage, once), hangs);
}

/// Where a verb goes.
struct Places(Geometry);

impl Places {
    fn index_copy(&self, at: NodeAddress) -> Option<usize> {
        let (address, copy) = address_of(&self.0, at)?;
        (address.get() < self.0.params.region_bytes).then_some(copy)
    }

    fn is_object(&self, at: NodeAddress) -> bool {
        address_of(&self.0, at).is_some_and(|(address, _)| self.0.block_of(address).is_some())
    }
}

fn meddled<M: Meddler + 'static>(
    scenario: &Scenario,
    seeds: u64,
    expected: impl Fn(&Fault) -> bool,
    meddler: impl Fn(Places) -> M,
) {
    let change = |plan: &Plan, stage: &mut fusee_sim::history::Stage<SimStore>| {
        stage.meddler = Some(Box::new(meddler(Places(geometry(plan)))));
    };
    is_noticed(scenario, seeds, change, expected);
}

/// Nobody sees votes when he asks for them.
struct NoVotes(Places);

impl Meddler for NoVotes {
    fn read(&mut self, verb: &Seen, words: &mut [u64]) {
        let buckets = matches!(verb.verb, Verb::Read(span) if span.bytes() == COMBINED_BYTES);
        if buckets && !verb.fenced && self.0.index_copy(verb.at).is_some_and(|copy| copy > 0) {
            words.fill(0);
        }
    }
}

#[test]
fn rounds_that_recovery_leaves_open_are_noticed() {
    let backups = Scenario { replicas: 2..=4, ..with_stops() };
    meddled(&backups, 2000, of_memory, NoVotes);
}

/// Nobody reads what an object has replaced. (A loser that does not see the winner's
/// record starts again, which is as good.)
struct NoRecords(Places, Rc<RefCell<HashMap<NodeAddress, u32>>>);

impl Meddler for NoRecords {
    fn post(&mut self, verb: &Seen, written: &mut [u64]) {
        if written.len() > 2 && self.0.is_object(verb.at) {
            self.1.borrow_mut().insert(verb.at, verb.client);
        }
    }

    fn read(&mut self, verb: &Seen, words: &mut [u64]) {
        let others = self.1.borrow().get(&verb.at).is_some_and(|&owner| owner != verb.client);
        if others && words.len() == 4 {
            words[0] = 0;
            words[1] &= !0xff;
        }
    }
}

#[test]
fn debts_that_recovery_does_not_look_for_are_noticed() {
    meddled(&with_stops(), 2000, of_memory, |places| NoRecords(places, Rc::default()));
}

/// Nobody but its owner aborts an insert in progress.
struct NoAborts(Places);

impl Meddler for NoAborts {
    fn execute(&mut self, verb: &Seen, _word: u64) -> Meddling {
        let Verb::Cas { expected, new } = verb.verb else { return Meddling::Execute };
        let (old, new) = (Slot::from_word(expected), Slot::from_word(new));
        let aborts = old.is_some_and(Slot::is_tentative) && new.is_some_and(Slot::is_tombstone);
        if aborts && self.0.index_copy(verb.at) == Some(0) {
            return Meddling::Pretend(expected);
        }
        Meddling::Execute
    }
}

#[test]
fn inserts_that_recovery_leaves_in_progress_are_noticed() {
    let alone = Scenario { replicas: 1..=1, churn_percent: 100, ..with_stops() };
    // Found by whoever looks first: an insert that waits for it, or the audit.
    meddled(&alone, 2000, |fault| hangs(fault) || of_memory(fault), NoAborts);
}
