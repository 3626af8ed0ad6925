//! Runs one history from its plan to its verdict.

use super::failure::{Census, Failure, Fault, Summary};
use super::plan::{ClientPlan, Plan, Scenario, Task};
use super::record::Record;
use super::subject::Subject;
use crate::{Control, Ended, Executor, Group, Meddler, Nodes, SimEnv, SimFabric, SimPool};
use fusee_layout::Geometry;
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

/// Virtual time within which a history must end.
const DEADLINE_NS: u64 = 5_000_000_000;
/// Rounds of background work of every client until what one does has reached
/// the others: an owner looks at four of its blocks in each.
const TICKS_TO_REST: u64 = 8;

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
    let gone = |client| pool.is_stopped(client) || record.is_finished(client);
    let ended =
        executor.run(DEADLINE_NS, || record.fault.borrow().is_some() || (0..clients).all(gone));
    record.no_fault()?;
    if ended != Ended::Done {
        return Err(Fault::Hang(record.unfinished(ended)));
    }
    // What ends has ended, everybody has seen it, and the last reads agree.
    executor.run(plan.ended_at_ns, || false);
    let reader = (0..clients).find(|&client| !pool.is_stopped(client)).expect("somebody lives");
    let last_look = last_look(record.clone(), reader, plan.keys.len());
    if executor.block_on(2 * DEADLINE_NS, last_look).is_none() {
        return Err(Fault::Hang("the last reads do not end".to_owned()));
    }
    // Then only the background goes on: what has ended is swept, what
    // is to be freed is noted, then found by its owners, then reusable; and at
    // last not even that.
    let mut ended = Ended::Done;
    for _ in ["swept", "noted", "found", "reusable"] {
        let ticks = record.ticks.iter().map(|ticks| ticks.get() + TICKS_TO_REST);
        let goal: Vec<u64> = ticks.collect();
        ended = executor.run(3 * DEADLINE_NS, || {
            let rested = |client: u32| {
                let ticks = record.ticks[client as usize].get();
                pool.is_stopped(client) || ticks >= goal[client as usize]
            };
            record.fault.borrow().is_some() || (0..clients).all(rested)
        });
    }
    record.resting.set(true);
    if ended != Ended::Done || executor.run(4 * DEADLINE_NS, || false) != Ended::Idle {
        return Err(Fault::Hang("background work does not end".to_owned()));
    }
    record.no_fault()
}

/// Does the count of keys agree with the index, if nobody stopped who owed it something?
fn count<S: Subject + 'static>(
    executor: &Executor,
    record: &Rc<Record<S>>,
    census: &Census,
) -> Result<(), Fault> {
    let living = record.living();
    let Some(subject) = living.iter().all(Option::is_some).then(|| living[0].clone()).flatten()
    else {
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
        }
    }
    record.pool.spare(number);
    record.finished.borrow_mut().insert(number);
}

async fn tick<S: Subject>(
    record: Rc<Record<S>>,
    number: u32,
    subject: Rc<S>,
    mut plan: ClientPlan,
) {
    loop {
        let tick_ns = plan.tick_ns * plan.slowness;
        let pause_ns = plan.rng.between(tick_ns / 2, tick_ns * 3 / 2);
        record.sim.sleep(pause_ns).await;
        if let Err(error) = subject.maintain().await {
            return record
                .fail(Fault::Error(format!("client {number} in the background: {error}")));
        }
        let ticks = &record.ticks[number as usize];
        ticks.set(ticks.get() + 1);
        if record.resting.get() {
            return;
        }
    }
}

/// What is left when all is over belongs to the history like everything before.
async fn last_look<S: Subject>(record: Rc<Record<S>>, reader: u32, keys: usize) {
    let subject = record.subjects.borrow()[reader as usize].clone();
    let subject = subject.expect("who lives has joined");
    let keys: Vec<usize> = (0..keys).collect();
    record.many(reader, &*subject, &keys).await;
    record.scan(reader, &*subject).await;
}
