//! Tasks in virtual time: one thread, one heap of events, no real clock.
//!
//! Time moves only when nothing can run; it then jumps to the next event.
//! Events of one moment happen in the order in which they were made, so a seed
//! gives one history.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// Owns the tasks and the events; dropping it drops them all.
#[derive(Debug)]
pub struct Executor {
    sim: Sim,
}

/// A handle to the executor, for tasks and for what they call.
#[derive(Clone)]
pub struct Sim(Rc<Inner>);

/// Tasks that can be stopped together: those of one client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Group(pub u32);

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// What was waited for has come.
    Done,
    /// Nothing can happen any more.
    Idle,
    /// Virtual time has reached the deadline.
    Deadline,
}

struct Inner {
    now_ns: Cell<u64>,
    made: Cell<u64>,
    events: RefCell<BinaryHeap<Event>>,
    tasks: RefCell<Vec<Option<Task>>>,
    stopped: RefCell<Vec<Group>>,
    ready: Arc<Ready>,
}

struct Event {
    at_ns: u64,
    number: u64,
    action: Box<dyn FnOnce()>,
}

struct Task {
    group: Group,
    waker: Waker,
    future: Pin<Box<dyn Future<Output = ()>>>,
}

/// A mutex for the waker's sake alone: wakers must be Send. Nobody contends.
#[derive(Default)]
struct Ready(Mutex<VecDeque<usize>>);

struct TaskWaker {
    task: usize,
    ready: Arc<Ready>,
}

impl Executor {
    /// With no tasks, at virtual time 0.
    #[expect(clippy::new_without_default, reason = "an executor is made where its run begins")]
    pub fn new() -> Self {
        Self {
            sim: Sim(Rc::new(Inner {
                now_ns: Cell::new(0),
                made: Cell::new(0),
                events: RefCell::default(),
                tasks: RefCell::default(),
                stopped: RefCell::default(),
                ready: Arc::default(),
            })),
        }
    }

    /// A handle to it.
    pub fn sim(&self) -> Sim {
        self.sim.clone()
    }

    /// Lets things happen until `done` says so, which is asked after each event.
    pub fn run(&self, deadline_ns: u64, mut done: impl FnMut() -> bool) -> Ended {
        let inner = &self.sim.0;
        loop {
            inner.drop_stopped();
            while let Some(task) = inner.ready.pop() {
                inner.poll(task);
                inner.drop_stopped();
            }
            if done() {
                return Ended::Done;
            }
            let next = inner.events.borrow().peek().map(|event| event.at_ns);
            match next {
                None => return Ended::Idle,
                Some(at_ns) if at_ns > deadline_ns => return Ended::Deadline,
                Some(at_ns) => inner.now_ns.set(at_ns),
            }
            let event = inner.events.borrow_mut().pop().expect("it was just seen");
            (event.action)();
        }
    }

    /// Runs one future and returns what it gave; `None` if it does not end in time.
    pub fn block_on<T: 'static>(
        &self,
        deadline_ns: u64,
        future: impl Future<Output = T> + 'static,
    ) -> Option<T> {
        let result = Rc::new(RefCell::new(None));
        let to = result.clone();
        self.sim.spawn(Group(u32::MAX), async move { *to.borrow_mut() = Some(future.await) });
        self.run(deadline_ns, || result.borrow().is_some());
        result.take()
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // Tasks and events hold handles to what holds them; cut the cycles. What
        // is dropped here may drop wakers, not make events.
        let tasks = std::mem::take(&mut *self.sim.0.tasks.borrow_mut());
        drop(tasks);
        let events = std::mem::take(&mut *self.sim.0.events.borrow_mut());
        drop(events);
    }
}

impl Sim {
    /// Virtual time in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.0.now_ns.get()
    }

    /// Starts a task.
    pub fn spawn(&self, group: Group, future: impl Future<Output = ()> + 'static) {
        let mut tasks = self.0.tasks.borrow_mut();
        let task = tasks.len();
        let waker = Waker::from(Arc::new(TaskWaker { task, ready: self.0.ready.clone() }));
        tasks.push(Some(Task { group, waker, future: Box::pin(future) }));
        self.0.ready.push(task);
    }

    /// Lets something happen `after_ns` from now.
    pub fn schedule(&self, after_ns: u64, action: impl FnOnce() + 'static) {
        let number = self.0.made.get();
        self.0.made.set(number + 1);
        let at_ns = self.now_ns() + after_ns;
        self.0.events.borrow_mut().push(Event { at_ns, number, action: Box::new(action) });
    }

    /// Waits.
    pub async fn sleep(&self, ns: u64) {
        let rung = Rc::new(Cell::new(false));
        let waker: Rc<Cell<Option<Waker>>> = Rc::default();
        let (ring, wake) = (rung.clone(), waker.clone());
        self.schedule(ns, move || {
            ring.set(true);
            if let Some(waker) = wake.take() {
                waker.wake();
            }
        });
        std::future::poll_fn(|context| {
            if rung.get() {
                return Poll::Ready(());
            }
            waker.set(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    /// Stops the tasks of a group for ever, as if their machine had died. They
    /// are dropped before anything else runs.
    pub fn stop(&self, group: Group) {
        self.0.stopped.borrow_mut().push(group);
    }
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sim").field("now_ns", &self.now_ns()).finish_non_exhaustive()
    }
}

impl Inner {
    fn poll(&self, number: usize) {
        // The task is taken out while it runs: it may spawn others.
        let Some(mut task) = self.tasks.borrow_mut()[number].take() else {
            return;
        };
        let waker = task.waker.clone();
        if task.future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            self.tasks.borrow_mut()[number] = Some(task);
        }
    }

    fn drop_stopped(&self) {
        let groups = std::mem::take(&mut *self.stopped.borrow_mut());
        if groups.is_empty() {
            return;
        }
        let dropped: Vec<Option<Task>> = self
            .tasks
            .borrow_mut()
            .iter_mut()
            .filter(|task| task.as_ref().is_some_and(|task| groups.contains(&task.group)))
            .map(Option::take)
            .collect();
        drop(dropped);
    }
}

impl Ready {
    fn push(&self, task: usize) {
        self.0.lock().expect("no holder panics").push_back(task);
    }

    fn pop(&self) -> Option<usize> {
        self.0.lock().expect("no holder panics").pop_front()
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.ready.push(self.task);
    }
}

impl Ord for Event {
    /// The heap's greatest is the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at_ns, other.number).cmp(&(self.at_ns, self.number))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Event {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_run_in_the_order_of_their_virtual_times() {
        let executor = Executor::new();
        let log = Rc::new(RefCell::new(Vec::new()));
        for (name, ns) in [("late", 50), ("early", 10), ("between", 20)] {
            let (sim, log) = (executor.sim(), log.clone());
            executor.sim().spawn(Group(0), async move {
                sim.sleep(ns).await;
                sim.sleep(ns).await;
                log.borrow_mut().push((name, sim.now_ns()));
            });
        }
        assert_eq!(executor.run(u64::MAX, || false), Ended::Idle);
        assert_eq!(*log.borrow(), [("early", 20), ("between", 40), ("late", 100)]);
    }

    #[test]
    fn a_stopped_group_never_runs_again_and_others_go_on() {
        let executor = Executor::new();
        let ran = Rc::new(RefCell::new(Vec::new()));
        for group in [1, 2] {
            let (sim, ran) = (executor.sim(), ran.clone());
            executor.sim().spawn(Group(group), async move {
                for _ in 0..3 {
                    sim.sleep(10).await;
                    ran.borrow_mut().push(group);
                    if group == 1 && sim.now_ns() == 20 {
                        sim.stop(Group(1));
                    }
                }
            });
        }
        executor.run(u64::MAX, || false);
        assert_eq!(*ran.borrow(), [1, 2, 1, 2, 2]);
    }

    #[test]
    fn a_run_ends_at_its_deadline_and_can_go_on() {
        let executor = Executor::new();
        let sim = executor.sim();
        let woken = Rc::new(Cell::new(0));
        let count = woken.clone();
        executor.sim().spawn(Group(0), async move {
            loop {
                sim.sleep(10).await;
                count.set(count.get() + 1);
            }
        });
        assert_eq!(executor.run(35, || false), Ended::Deadline);
        assert_eq!(woken.get(), 3);
        assert_eq!(executor.run(1000, || woken.get() == 5), Ended::Done);
    }

    #[test]
    fn dropping_the_executor_drops_tasks_that_hold_it() {
        let held = Rc::new(());
        let executor = Executor::new();
        let (sim, hold) = (executor.sim(), held.clone());
        executor.sim().spawn(Group(0), async move {
            sim.sleep(10).await;
            drop(hold);
        });
        let hold = held.clone();
        executor.sim().schedule(10, move || drop(hold));
        executor.run(5, || false);
        drop(executor);
        assert_eq!(Rc::strong_count(&held), 1);
    }
}
