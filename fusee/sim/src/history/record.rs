//! What happened in a history, as it happens, and the verdict on it.

use super::failure::{Census, Conflicts, Fault, Summary};
use super::plan::Plan;
use super::subject::Subject;
use crate::execution::{Deed, Execution, KeysSpec};
use crate::keyspec::{Answer, Command, KeySpec, Operation, Stamps};
use crate::linearizability::{Call, check};
use crate::{Ended, Sim, SimPool};
use fusee::{Error, Key};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::rc::Rc;

/// Steps of the checker for one key.
const CHECK_STEPS_MAX: u64 = 100_000_000;

/// What happened so far.
pub(super) struct Record<S> {
    pub(super) sim: Sim,
    pub(super) pool: SimPool,
    pub(super) keys: Vec<Vec<u8>>,
    pub(super) calls: RefCell<Vec<(usize, Call<Operation>)>>,
    pub(super) executions: RefCell<Vec<Call<Execution>>>,
    stamps: RefCell<Stamps>,
    pub(super) subjects: RefCell<Vec<Option<Rc<S>>>>,
    pub(super) ticks: Vec<Cell<u64>>,
    pub(super) gave_up: Cell<u64>,
    /// Background work is to end.
    pub(super) resting: Cell<bool>,
    pub(super) finished: RefCell<BTreeSet<u32>>,
    /// Clients whose background work goes on.
    pub(super) background: RefCell<BTreeSet<u32>>,
    /// Clients that have stopped and of whom the memory nodes know it.
    pub(super) expelled: RefCell<BTreeSet<u32>>,
    /// Clients that leave: the background has ended, or shall end.
    pub(super) leaving: RefCell<BTreeSet<u32>>,
    /// Clients that have left.
    pub(super) left: RefCell<BTreeSet<u32>>,
    /// Clients that are going to stop while they recover another.
    pub(super) doomed: RefCell<BTreeSet<u32>>,
    pub(super) fault: RefCell<Option<Fault>>,
}

impl<S: Subject> Record<S> {
    pub(super) fn new(sim: Sim, pool: SimPool, plan: &Plan) -> Self {
        let clients = plan.clients.len();
        Self {
            sim,
            pool,
            keys: plan.keys.clone(),
            calls: RefCell::default(),
            executions: RefCell::default(),
            stamps: RefCell::default(),
            subjects: RefCell::new((0..clients).map(|_| None).collect()),
            ticks: (0..clients).map(|_| Cell::new(0)).collect(),
            gave_up: Cell::new(0),
            resting: Cell::new(false),
            finished: RefCell::default(),
            background: RefCell::default(),
            expelled: RefCell::default(),
            leaving: RefCell::default(),
            left: RefCell::default(),
            doomed: RefCell::default(),
            fault: RefCell::default(),
        }
    }

    pub(super) fn key(&self, number: usize) -> Key<'_> {
        Key { database: 0, name: &self.keys[number] }
    }

    pub(super) fn stamp(&self) -> u64 {
        self.stamps.borrow_mut().next(self.sim.now_ns())
    }

    pub(super) fn fail(&self, fault: Fault) {
        self.fault.borrow_mut().get_or_insert(fault);
    }

    pub(super) fn no_fault(&self) -> Result<(), Fault> {
        self.fault.borrow_mut().take().map_or(Ok(()), Err)
    }

    /// The clients, those that stopped or left left out.
    pub(super) fn living(&self) -> Vec<Option<Rc<S>>> {
        let living = |(client, subject): (usize, &Option<Rc<S>>)| {
            subject.clone().filter(|_| !self.is_gone(client as u32))
        };
        self.subjects.borrow().iter().enumerate().map(living).collect()
    }

    /// Has the client stopped or left?
    pub(super) fn is_gone(&self, client: u32) -> bool {
        self.pool.is_stopped(client) || self.left.borrow().contains(&client)
    }

    pub(super) fn is_finished(&self, client: u32) -> bool {
        self.finished.borrow().contains(&client)
    }

    pub(super) fn begin(&self, client: u32, key: usize, command: &Command) -> usize {
        self.pool.note(client, || format!("begins {command:?} of key {key}"));
        let op = Operation { client, command: command.clone(), answer: None };
        let call = Call::pending(self.stamp(), op);
        self.calls.borrow_mut().push((key, call));
        self.calls.borrow().len() - 1
    }

    /// `None` is the answer of an operation that gave up without knowing.
    pub(super) fn end(&self, number: usize, answer: Option<Answer>) {
        let stamp = self.stamp();
        let (key, call) = &mut self.calls.borrow_mut()[number];
        self.pool.note(call.op.client, || {
            format!("ends {:?} of key {key}: {answer:?}", call.op.command)
        });
        call.returned = answer.is_some().then_some(stamp);
        call.op.answer = answer;
    }

    /// The answer that stands for an error, unless it is one that must not be.
    pub(super) fn excuse(
        &self,
        client: u32,
        what: &impl Debug,
        writes: bool,
        error: Error,
    ) -> Option<Answer> {
        match error {
            Error::Full | Error::IndexFull if writes => Some(Answer::Refused),
            Error::Stalled => {
                self.gave_up.set(self.gave_up.get() + 1);
                Some(Answer::Refused)
            }
            Error::Conflict { .. } => {
                self.gave_up.set(self.gave_up.get() + 1);
                None
            }
            _ => {
                self.fail(Fault::Error(format!("client {client}: {what:?}: {error}")));
                None
            }
        }
    }

    pub(super) fn unfinished(&self, ended: Ended) -> String {
        let pending = self.calls.borrow();
        let pending = pending
            .iter()
            .filter(|(_, call)| call.returned.is_none() && !self.pool.is_stopped(call.op.client));
        let pending: Vec<String> =
            pending.map(|(key, call)| format!("{:?} of key {key}", call.op)).collect();
        let executions = self.executions.borrow();
        let executions = executions.iter().map(|call| (call.returned, &call.op));
        let open = executions
            .filter(|(returned, op)| returned.is_none() && !self.pool.is_stopped(op.client));
        let pending: Vec<String> =
            pending.into_iter().chain(open.map(|(_, op)| format!("{op:?}"))).collect();
        format!("{ended:?} at {} ns with {pending:?}", self.sim.now_ns())
    }

    pub(super) fn judge(&self, plan: &Plan) -> Result<(), Fault> {
        let spec = KeySpec { clock: plan.clock, expiry: plan.expiry };
        if !self.executions.borrow().is_empty() {
            return self.judge_together(spec);
        }
        for key in 0..self.keys.len() {
            let calls = self.calls.borrow();
            let mut calls: Vec<Call<Operation>> =
                calls.iter().filter(|(of, _)| *of == key).map(|(_, call)| call.clone()).collect();
            calls.sort_by_key(|call| call.called);
            if let Err(verdict) = check(&spec, None, &calls, CHECK_STEPS_MAX) {
                let text = format!("key {key}: {}", verdict.explain(&calls));
                return Err(Fault::NotLinearizable(text));
            }
        }
        Ok(())
    }

    /// All keys at once, as transactions need it.
    fn judge_together(&self, spec: KeySpec) -> Result<(), Fault> {
        let one = |(key, call): &(usize, Call<Operation>)| Call {
            called: call.called,
            returned: call.returned,
            op: Deed::One(*key, call.op.clone()),
        };
        let several = |call: &Call<Execution>| Call {
            called: call.called,
            returned: call.returned,
            op: Deed::Exec(call.op.clone()),
        };
        let mut calls: Vec<Call<Deed>> = self.calls.borrow().iter().map(one).collect();
        calls.extend(self.executions.borrow().iter().map(several));
        calls.sort_by_key(|call| call.called);
        check(&KeysSpec(spec), vec![None; self.keys.len()], &calls, CHECK_STEPS_MAX)
            .map_err(|verdict| Fault::NotLinearizable(verdict.explain(&calls)))
    }

    pub(super) fn summary(&self, census: Census) -> Summary {
        let calls = self.calls.borrow();
        let count = |what: fn(&Operation) -> bool| {
            calls.iter().filter(|(_, call)| what(&call.op)).count() as u64
        };
        let subjects = self.subjects.borrow();
        let stopped = |client: &usize| self.pool.is_stopped(*client as u32);
        let mut conflicts = Conflicts::default();
        subjects.iter().flatten().for_each(|subject| conflicts.add(&subject.conflicts()));
        Summary {
            conflicts,
            gave_up: self.gave_up.get(),
            operations: (calls.len() + self.executions.borrow().len()) as u64,
            unanswered: count(|op| op.answer.is_none()),
            refused: count(|op| op.answer == Some(Answer::Refused)),
            stops: (0..subjects.len()).filter(stopped).count() as u64,
            leaves: self.left.borrow().len() as u64,
            torn_reads: self.pool.torn_reads(),
            batches: subjects.iter().flatten().map(|subject| subject.batches()).sum(),
            virtual_ns: self.sim.now_ns(),
            census,
        }
    }
}
