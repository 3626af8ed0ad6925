//! The fabric on RDMA devices: a worker's queue pairs, and how its tasks wait for
//! completions.
//!
//! Of the tasks that wait, one *leads*: it polls the completion queue and wakes the
//! others when their batches are done. It does so from within its own task, handing
//! the thread to others between polls, since a round trip is over before an event would
//! have been delivered. After [`VerbsConfig::spin`] it asks the device for an event
//! and sleeps. When its own batch is done, or its future is dropped, another leads.
//! So whoever has polled the future of a run has to go on polling it when it is woken,
//! or drop it, as with any lock.

use super::domain::{CompletionQueue, Domain};
use super::engine::{Engine, Launched};
use super::link::Link;
use super::queue_pair::{QueuePair, Role};
use super::{Device, NodeQueuePair, QueuePairAddress, VerbsError};
use crate::{Batch, ControlPlane, Counters, Fabric, NodeDown};
use fusee_layout::NodeAddress;
use fusee_layout::message::{Request, Response};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, Sleep};

/// How a worker uses its queue pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VerbsConfig {
    /// Work requests under way on a queue pair, at most; more wait in the fabric.
    pub work_requests: u32,
    /// For how long completions are polled for before the worker sleeps until an
    /// event. 0 on machines without a core to spare.
    pub spin: Duration,
    /// If nothing completes on a queue pair for so long, the node is down. The device
    /// itself gives up earlier; this is for devices that do not.
    pub deadline: Duration,
}

impl Default for VerbsConfig {
    fn default() -> Self {
        Self {
            // A pipeline of 64 reads, two verbs each; 128 bytes of memory apiece.
            work_requests: 128,
            // Ten round trips of a busy network.
            spin: Duration::from_micros(100),
            // A device's timeout may last four times as long as it was set to
            // (InfiniBand, 9.7.6.1.3), and there are seven of 67 ms.
            deadline: Duration::from_secs(2),
        }
    }
}

/// Queue pairs of one worker that have no peers yet.
#[derive(Debug)]
pub struct VerbsConnecting {
    device: Device,
    config: VerbsConfig,
    queue: Arc<CompletionQueue>,
    queue_pairs: Vec<QueuePair>,
}

impl VerbsConnecting {
    /// One to each of so many nodes.
    ///
    /// # Errors
    ///
    /// If the device or the system refuses.
    pub fn new(device: &Device, nodes: u16, config: VerbsConfig) -> Result<Self, VerbsError> {
        let limits = device.limits;
        // Every request may end as an error of its own, and an overrun would lose
        // completions.
        let per_node = limits.completions / u32::from(nodes.max(1));
        let work_requests = config.work_requests.min(limits.work_requests).min(per_node).max(1);
        let config = VerbsConfig { work_requests, ..config };
        let domain = Domain::new(device)?;
        let queue = CompletionQueue::new(&domain, work_requests * u32::from(nodes.max(1)))?;
        let queue_pairs = (0..nodes)
            .map(|_| QueuePair::new(&queue, device, Role::Client, work_requests))
            .collect::<Result<_, _>>()?;
        Ok(Self { device: device.clone(), config, queue, queue_pairs })
    }

    /// What each node has to know, by node.
    pub fn addresses(&self) -> Vec<QueuePairAddress> {
        self.queue_pairs.iter().map(QueuePair::address).collect()
    }

    /// Connects each to its node's end. To be called on the worker's thread, within
    /// its runtime; may take a second, in which the system looks for hardware
    /// addresses.
    ///
    /// # Errors
    ///
    /// If an end makes no sense or cannot be reached, or memory cannot be registered.
    pub fn connect(
        self,
        ends: &[NodeQueuePair],
        controls: Vec<Arc<dyn ControlPlane>>,
    ) -> Result<VerbsFabric, VerbsError> {
        assert!(ends.len() == self.queue_pairs.len(), "each node has an end");
        assert!(ends.len() == controls.len(), "each node has a control plane");
        let room = self.config.work_requests as usize;
        let now = now();
        let links = (0..)
            .zip(self.queue_pairs)
            .zip(ends)
            .map(|((node, queue_pair), end)| {
                queue_pair.connect(&end.address)?;
                Link::new(queue_pair, node, end, 0, room, self.config.deadline)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let refused = |error: io::Error| {
            VerbsError::refused(&self.device.name, "watch for completions", &error)
        };
        let channel = self.queue.watch().map_err(refused)?;
        let events = self.queue.domain().watch().map_err(refused)?;
        let mut spare = spare_batches(self.queue.domain())?;
        let spare_bytes = spare.iter_mut().map(bytes_kept).sum();
        let engine = Engine::new(self.queue, links, room);
        Ok(VerbsFabric {
            device: self.device,
            channel,
            events,
            counters: engine.counters().clone(),
            engine: RefCell::new(engine),
            controls,
            spare: RefCell::new(spare),
            spare_bytes: Cell::new(spare_bytes),
            led: Cell::new(false),
            timer: RefCell::new(Box::pin(tokio::time::sleep_until(now))),
            spin: self.config.spin,
        })
    }
}

/// The fabric on RDMA devices. One per worker, on its thread.
pub struct VerbsFabric {
    pub(super) device: Device,
    channel: AsyncFd<Arc<CompletionQueue>>,
    events: AsyncFd<Arc<Domain>>,
    pub(super) engine: RefCell<Engine>,
    counters: Arc<Counters>,
    controls: Vec<Arc<dyn ControlPlane>>,
    spare: RefCell<Vec<Batch>>,
    spare_bytes: Cell<usize>,
    /// Does one of those that wait lead?
    led: Cell<bool>,
    timer: RefCell<Pin<Box<Sleep>>>,
    spin: Duration,
}

/// Registering costs a system call, so as many batches are kept as connections of a
/// worker can have under way, within a bound for their memory.
const SPARE_BATCHES_MAX: usize = 1024;
const SPARE_BYTES_MAX: usize = 32 << 20;
/// Made beforehand, so that a limit of locked memory that is too low is found when
/// the worker starts. Room for a pipeline of small reads.
const SPARE_BATCHES_FIRST: usize = 16;
const BATCH_BYTES_FIRST: usize = 16 << 10;

fn spare_batches(domain: &Arc<Domain>) -> Result<Vec<Batch>, VerbsError> {
    (0..SPARE_BATCHES_FIRST)
        .map(|_| {
            let mut batch = Batch::new();
            batch.stage(BATCH_BYTES_FIRST);
            batch.staging().register(domain)?;
            batch.clear();
            Ok(batch)
        })
        .collect()
}

impl VerbsFabric {
    /// Has the queue pair to a node ended?
    pub fn is_down(&self, node: u16) -> bool {
        self.engine.borrow().is_down(node)
    }

    /// Whoever led has gone; another one that waits is to lead.
    fn pass_lead(&self, engine: &Engine) {
        self.led.set(false);
        engine.wake_one();
    }
}

impl Fabric for VerbsFabric {
    fn batch(&self) -> Batch {
        let Some(mut batch) = self.spare.borrow_mut().pop() else { return Batch::new() };
        self.spare_bytes.set(self.spare_bytes.get() - bytes_kept(&mut batch));
        batch
    }

    fn recycle(&self, mut batch: Batch) {
        batch.clear();
        let bytes = self.spare_bytes.get() + bytes_kept(&mut batch);
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_BATCHES_MAX && bytes <= SPARE_BYTES_MAX {
            self.spare_bytes.set(bytes);
            spare.push(batch);
        }
    }

    async fn run(&self, batch: Batch) -> Batch {
        let started = now();
        let launched = self.engine.borrow_mut().launch(batch, started);
        match launched {
            Launched::Done(batch) => batch,
            Launched::Flying(flight) => {
                Run { fabric: self, flight: Some(flight), leads: false, busy_at: started }.await
            }
        }
    }

    async fn call(&self, node: u16, request: Request) -> Result<Response, NodeDown> {
        match self.controls.get(usize::from(node)) {
            Some(control) if !self.is_down(node) => control.call(request).await,
            _ => Err(NodeDown { node }),
        }
    }

    fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    fn prefetch(&self, _at: NodeAddress, _bytes: usize) {}

    type Direct<'a> = crate::NoDirectReads;

    fn direct(&self) -> Option<crate::NoDirectReads> {
        None
    }
}

fn bytes_kept(batch: &mut Batch) -> usize {
    size_of_val(batch.staging().words())
}

/// Waits for a flight.
struct Run<'f> {
    fabric: &'f VerbsFabric,
    /// `None` once it has been taken.
    flight: Option<usize>,
    leads: bool,
    /// When it began or something completed, as far as it has seen.
    busy_at: Instant,
}

impl Future for Run<'_> {
    type Output = Batch;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Batch> {
        let fabric = self.fabric;
        let flight = self.flight.expect("a future is not polled after its end");
        if !self.leads && !fabric.led.get() {
            fabric.led.set(true);
            self.leads = true;
        }
        let mut engine = fabric.engine.borrow_mut();
        let landed = loop {
            if let Some(batch) = engine.take(flight, context.waker()) {
                break batch;
            }
            if !self.leads {
                return Poll::Pending;
            }
            let now = now();
            if engine.poll(now) {
                self.busy_at = now;
                continue;
            }
            if now < self.busy_at + fabric.spin {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            // Between the last poll and the arming something may have completed.
            engine.arm();
            if engine.poll(now) {
                continue;
            }
            engine.expire(now);
            if let Some(batch) = engine.take(flight, context.waker()) {
                break batch;
            }
            ready!(fabric.sleep(&mut engine, context));
        };
        self.flight = None;
        if std::mem::take(&mut self.leads) || !fabric.led.get() {
            fabric.pass_lead(&engine);
        }
        Poll::Ready(landed)
    }
}

impl VerbsFabric {
    /// Waits for an event of the device, or for the end of its patience.
    fn sleep(&self, engine: &mut Engine, context: &mut Context<'_>) -> Poll<()> {
        let mut woken = false;
        // Errors mean that the runtime is ending.
        if let Poll::Ready(Ok(mut guard)) = self.channel.poll_read_ready(context) {
            engine.take_events();
            guard.clear_ready();
            woken = true;
        }
        if let Poll::Ready(Ok(mut guard)) = self.events.poll_read_ready(context) {
            engine.take_async_events();
            guard.clear_ready();
            woken = true;
        }
        if let Some(at) = engine.expires_at() {
            let mut timer = self.timer.borrow_mut();
            if timer.deadline() != at {
                timer.as_mut().reset(at);
            }
            woken |= timer.as_mut().poll(context).is_ready();
        }
        if woken { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let Some(flight) = self.flight else { return };
        let mut engine = self.fabric.engine.borrow_mut();
        engine.abandon(flight);
        if self.leads || !self.fabric.led.get() {
            self.fabric.pass_lead(&engine);
        }
    }
}

#[inline]
fn now() -> Instant {
    Instant::now()
}
