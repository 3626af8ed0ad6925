//! Runs one history from its plan to its verdict.

use super::failure::{Census, Failure, Fault, Summary};
use super::plan::{ClientPlan, Plan, Scenario, Task};
use super::record::Record;
use super::subject::Subject;
use crate::{Control, Ended, Executor, Group, Meddler, Nodes, SimEnv, SimFabric, SimPool};
use fusee_layout::Geometry;
use fusee_layout::message::Request;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;

/// A subject on its way to being open.
pub type Opened<S> = Pin<Box<dyn Future<Output = Result<S, String>>>>;

/// What a plan is played on.
pub struct Stage<S> {
    /// The memory nodes, formatted.
    pub nodes: Nodes,
    /// What answers control requests.
    pub control: Box<dyn Control>,
    /// The pool's geometry, if it has one: it names places in traces.
    pub geometry: Option<Geometry>,
    /// Who changes, between clients and memory, what they do or see.
    pub meddler: Option<Box<dyn Meddler>>,
    /// Makes a client.
    pub open: Box<dyn Fn(SimFabric, SimEnv) -> Opened<S>>,
    /// Looks at the pool, and at the clients that live, once all is at rest.
    pub inspect: Box<Inspect<S>>,
}

/// What a stage's inspection is given: the pool, and each client unless it stopped.
pub type Inspect<S> = dyn Fn(&SimPool, &[Option<Rc<S>>]) -> Result<Census, String>;

/// How often the memory nodes look for clients that have stopped.
const EXPULSION_POLL_NS: u64 = 2_000;
/// Virtual time within which a history must end.
const DEADLINE_NS: u64 = 5_000_000_000;
/// Rounds of background work of every client until what one does has reached
/// the others: an owner looks at four of its blocks in each.
const TICKS_TO_REST: u64 = 8;
/// So many times that before recovery counts as hanging: a step of it looks at
/// some 100 objects, and a recoverer may stop itself.
const RESTS_TO_RECOVER: u64 = 200;
/// So many rounds until every orphan has been looked at, and those that are empty
/// have gone back: there are at most 64 blocks.
const TICKS_TO_PATROL: u64 = 120;

/// Plays the plan of a seed on the stage that `build` makes for it.
///
/// # Errors
///
/// If anything went wrong: the failure has the seed that brings it back.
pub fn run_with<S: Subject + 'static>(
    seed: u64,
    scenario: &Scenario,
    build: impl FnOnce(&Plan) -> Stage<S>,
) -> Result<Summary, Failure> {
    let plan = Plan::new(seed, scenario);
    let stage = build(&plan);
    let executor = Executor::new();
    let pool =
        SimPool::new(executor.sim(), stage.nodes, stage.control, plan.settings, plan.rng.clone());
    if let Some(meddler) = stage.meddler {
        pool.meddle(meddler);
    }
    if scenario.trace {
        pool.trace(stage.geometry.clone());
    }
    let record = Rc::new(Record::new(executor.sim(), pool.clone(), &plan));
    let played = catch_unwind(AssertUnwindSafe(|| {
        play(&executor, &record, &plan, &stage.open)?;
        let census = (stage.inspect)(&pool, &record.living()).map_err(Fault::Memory)?;
        count(&executor, &record, &census)?;
        record.judge(&plan)?;
        Ok(record.summary(census))
    }));
    let outcome = played.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(Fault::Panic(text.unwrap_or_default()))
    });
    outcome.map_err(|fault| Failure { seed, fault, trace: pool.trace_lines() })
}

fn play<S: Subject + 'static>(
    executor: &Executor,
    record: &Rc<Record<S>>,
    plan: &Plan,
    open: &dyn Fn(SimFabric, SimEnv) -> Opened<S>,
) -> Result<(), Fault> {
    let pool = record.pool.clone();
    for (number, client) in plan.clients.iter().enumerate() {
        let number = number as u32;
        let mut rng = client.rng.clone();
        let env = SimEnv::new(executor.sim(), plan.clock, rng.fork());
        let opened = open(pool.fabric(number), env);
        pool.slow_down(number, client.slowness);
        let task = live(record.clone(), number, client.clone(), opened);
        executor.sim().spawn(Group(number), task);
    }
    let clients = plan.clients.len() as u32;
    executor.sim().spawn(Group(u32::MAX), expel(record.clone(), plan.clone()));
    let gone = |client| pool.is_stopped(client) || record.is_finished(client);
    let ended =
        executor.run(DEADLINE_NS, || record.fault.borrow().is_some() || (0..clients).all(gone));
    record.no_fault()?;
    if ended != Ended::Done {
        return Err(Fault::Hang(record.unfinished(ended)));
    }
    // What ends has ended, everybody has seen it, and the last reads agree.
    executor.run(plan.ended_at_ns, || false);
    let reader = plan.keeper();
    let last_look = last_look(record.clone(), reader, plan.keys.len());
    if executor.block_on(2 * DEADLINE_NS, last_look).is_none() {
        return Err(Fault::Hang("the last reads do not end".to_owned()));
    }
    // Then only the background goes on: who has stopped is recovered, what has
    // ended is swept, what is to be freed is noted, then found by its owners, then
    // reusable; and at last not even that.
    let deadline_ns = 3 * DEADLINE_NS;
    let rest = |rounds: u64| {
        let ticks = record.ticks.iter().map(|ticks| ticks.get() + rounds);
        let goal: Vec<u64> = ticks.collect();
        executor.run(deadline_ns, || {
            let rested = |client: u32| {
                record.is_gone(client)
                    || record.ticks[client as usize].get() >= goal[client as usize]
            };
            record.fault.borrow().is_some() || (0..clients).all(rested)
        })
    };
    let mut rests = 0;
    let unrecovered = || {
        let stopped = (0..clients).filter(|&client| pool.is_stopped(client));
        let expelled = record.expelled.borrow();
        pool.is_recovering() || stopped.into_iter().any(|client| !expelled.contains(&client))
    };
    while unrecovered() && rests < RESTS_TO_RECOVER {
        rest(TICKS_TO_REST);
        record.no_fault()?;
        rests += 1;
    }
    if unrecovered() {
        return Err(Fault::Hang("the recovery of a client does not end".to_owned()));
    }
    let mut ended = Ended::Done;
    for _ in ["swept", "noted", "found", "reusable"] {
        ended = rest(TICKS_TO_REST);
    }
    if (0..clients).any(|client| record.is_gone(client)) {
        ended = rest(TICKS_TO_PATROL);
    }
    record.resting.set(true);
    if ended != Ended::Done || executor.run(4 * DEADLINE_NS, || false) != Ended::Idle {
        return Err(Fault::Hang("background work does not end".to_owned()));
    }
    record.no_fault()
}

/// Expels those who have stopped, as the memory nodes do, and lets some of those
/// who recover them stop as well.
async fn expel<S: Subject>(record: Rc<Record<S>>, plan: Plan) {
    let pool = &record.pool;
    let mut stops = plan.recoverers_stop.iter();
    while !record.resting.get() {
        record.sim.sleep(EXPULSION_POLL_NS).await;
        for client in pool.new_recoverers() {
            if client != plan.keeper()
                && let Some(&steps) = stops.next()
            {
                record.doomed.borrow_mut().insert(client);
                pool.stop_after(client, steps);
            }
        }
        for client in 0..plan.clients.len() as u32 {
            if !pool.is_stopped(client) || record.expelled.borrow().contains(&client) {
                continue;
            }
            record.sim.sleep(plan.expelled_after_ns).await;
            pool.fence(client);
            let id = record.subjects.borrow()[client as usize].as_ref().and_then(|s| s.id());
            for node in (0..plan.nodes).rev() {
                if let Some(client) = id {
                    pool.ask(node, Request::Expel { client });
                }
                record.sim.sleep(EXPULSION_POLL_NS).await;
            }
            record.expelled.borrow_mut().insert(client);
        }
    }
}

/// Does the count of keys agree with the index, if nobody stopped who owed it something?
fn count<S: Subject + 'static>(
    executor: &Executor,
    record: &Rc<Record<S>>,
    census: &Census,
) -> Result<(), Fault> {
    let living = record.living();
    let stopped = (0..living.len() as u32).any(|client| record.pool.is_stopped(client));
    let Some(subject) = living.iter().flatten().next().filter(|_| !stopped).cloned() else {
        return Ok(());
    };
    let len = executor.block_on(5 * DEADLINE_NS, async move { subject.len(0).await });
    match len {
        None => Err(Fault::Hang("counting keys does not end".to_owned())),
        Some(Some(Err(error))) => Err(Fault::Error(format!("counting keys: {error}"))),
        Some(Some(Ok(keys))) if keys != census.keys => Err(Fault::Memory(format!(
            "{} slots are live, and the clients count {keys} keys",
            census.keys
        ))),
        _ => Ok(()),
    }
}

/// A client's life.
async fn live<S: Subject + 'static>(
    record: Rc<Record<S>>,
    number: u32,
    plan: ClientPlan,
    opened: Opened<S>,
) {
    let sim = record.sim.clone();
    sim.sleep(plan.joins_at_ns).await;
    let subject = match opened.await {
        Ok(subject) => Rc::new(subject),
        Err(error) => return record.fail(Fault::Error(format!("client {number}: {error}"))),
    };
    record.subjects.borrow_mut()[number as usize] = Some(subject.clone());
    let background = tick(record.clone(), number, subject.clone(), plan.clone());
    record.background.borrow_mut().insert(number);
    sim.spawn(Group(number), background);
    for (at, (pause_ns, task)) in plan.tasks.iter().enumerate() {
        sim.sleep(*pause_ns).await;
        if let Some((_, steps)) = plan.stop.filter(|&(stop, _)| stop == at) {
            record.pool.stop_after(number, steps);
        }
        match task {
            Task::One(key, command) => record.one(number, &*subject, *key, command).await,
            Task::Many(keys) => record.many(number, &*subject, keys).await,
            Task::Series(sets) => record.series(number, &*subject, sets).await,
            Task::Scan => record.scan(number, &*subject).await,
            Task::Exec(program) => record.exec(number, &subject, program).await,
        }
    }
    if !record.doomed.borrow().contains(&number) {
        record.pool.spare(number);
    }
    if plan.leaves {
        record.leaving.borrow_mut().insert(number);
        while record.background.borrow().contains(&number) {
            sim.sleep(1000).await;
        }
        if let Err(error) = subject.leave().await {
            return record.fail(Fault::Error(format!("client {number} leaves: {error}")));
        }
        record.left.borrow_mut().insert(number);
    }
    record.finished.borrow_mut().insert(number);
}

async fn tick<S: Subject>(
    record: Rc<Record<S>>,
    number: u32,
    subject: Rc<S>,
    mut plan: ClientPlan,
) {
    while !record.resting.get() && !record.leaving.borrow().contains(&number) {
        let tick_ns = plan.tick_ns * plan.slowness;
        let pause_ns = plan.rng.between(tick_ns / 2, tick_ns * 3 / 2);
        record.sim.sleep(pause_ns).await;
        if let Err(error) = subject.maintain().await {
            return record
                .fail(Fault::Error(format!("client {number} in the background: {error}")));
        }
        let ticks = &record.ticks[number as usize];
        ticks.set(ticks.get() + 1);
    }
    record.background.borrow_mut().remove(&number);
}

/// What is left when all is over belongs to the history like everything before.
async fn last_look<S: Subject>(record: Rc<Record<S>>, reader: u32, keys: usize) {
    let subject = record.subjects.borrow()[reader as usize].clone();
    let subject = subject.expect("who lives has joined");
    let keys: Vec<usize> = (0..keys).collect();
    record.many(reader, &*subject, &keys).await;
    record.scan(reader, &*subject).await;
}
