//! The simulated fabric: a client's way to the memory nodes.

use crate::direct::SimReads;
use crate::meddler::Seen;
use crate::pool::Flight;
use crate::schedule::schedule;
use crate::{Settings, SimPool};
use fusee_fabric::{Batch, Counters, Fabric, NodeDown, Posted, VERB_KINDS, Verb};
use fusee_layout::NodeAddress;
use fusee_layout::message::{Request, Response};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// A client's way into a [`SimPool`].
#[derive(Debug)]
pub struct SimFabric {
    pool: SimPool,
    client: u32,
    counters: Arc<Counters>,
}

impl SimFabric {
    pub(crate) fn new(pool: SimPool, client: u32) -> Self {
        let nodes = pool.nodes().count();
        Self { pool, client, counters: Arc::new(Counters::new(nodes)) }
    }

    /// The simulator's number of the client.
    pub fn client(&self) -> u32 {
        self.client
    }

    pub(crate) fn pool(&self) -> &SimPool {
        &self.pool
    }

    pub(crate) fn count_direct(&self, verbs: [u64; VERB_KINDS], bytes: u64) {
        self.counters.count(verbs, bytes, 0);
    }

    fn count(&self, batch: &Batch) {
        let mut verbs = [0; VERB_KINDS];
        let (mut read, mut written) = (0, 0);
        for posted in batch.posted() {
            match posted.verb {
                Verb::Read(span) => read += span.bytes() as u64,
                Verb::Write(span) => written += span.bytes() as u64,
                Verb::WriteByte(_) => written += 1,
                Verb::Cas { .. } | Verb::Faa(_) => {}
            }
            verbs[posted.verb.kind() as usize] += 1;
        }
        self.counters.count(verbs, read, written);
    }

    /// Shows the batch to the meddler; returns its verbs as they shall be ordered.
    fn let_meddle(&self, batch: &mut Batch) -> Vec<Posted> {
        let mut ordered = batch.posted().to_vec();
        let mut meddler = self.pool.0.meddler.borrow_mut();
        let Some(meddler) = meddler.as_mut() else {
            return ordered;
        };
        for (number, ordered) in ordered.iter_mut().enumerate() {
            let posted = *ordered;
            let seen = Seen {
                client: self.client,
                at: posted.at,
                verb: posted.verb,
                fenced: posted.fenced,
                number,
            };
            match posted.verb {
                Verb::Write(span) => meddler.post(&seen, batch.span_mut(span)),
                _ => meddler.post(&seen, &mut []),
            }
            ordered.fenced &= meddler.keeps_fence(&seen);
        }
        ordered
    }
}

impl Fabric for SimFabric {
    fn batch(&self) -> Batch {
        Batch::new()
    }

    fn recycle(&self, _batch: Batch) {}

    async fn run(&self, mut batch: Batch) -> Batch {
        if batch.is_empty() {
            return batch;
        }
        self.count(&batch);
        let ordered = self.let_meddle(&mut batch);
        let shared = &self.pool.0;
        let Settings { delays, tearing } = shared.settings;
        let moments = schedule(&ordered, &delays, tearing, &mut shared.rng.borrow_mut());
        let mut left: Vec<(u16, u64)> = Vec::new();
        for moment in &moments {
            let node = batch.posted()[moment.verb].at.node;
            match left.iter_mut().find(|(of, _)| *of == node) {
                Some((_, count)) => *count += 1,
                None => left.push((node, 1)),
            }
        }
        let flight = Rc::new(RefCell::new(Flight {
            client: self.client,
            posted_ns: shared.sim.now_ns(),
            counters: self.counters.clone(),
            batch,
            moments_left: moments.len(),
            fates: Vec::new(),
            left,
            landed: false,
            waker: None,
        }));
        for moment in moments {
            let (pool, flight) = (self.pool.clone(), flight.clone());
            let after_ns = moment.after_ns * self.pool.slowness(self.client);
            shared.sim.schedule(after_ns, move || pool.moment(&flight, &moment));
        }
        std::future::poll_fn(|context| {
            let mut flight = flight.borrow_mut();
            if flight.landed {
                return Poll::Ready(std::mem::take(&mut flight.batch));
            }
            flight.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    async fn call(&self, node: u16, request: Request) -> Result<Response, NodeDown> {
        let shared = &self.pool.0;
        let answer = Rc::new(Cell::new(None));
        let (there_ns, back_ns) = {
            let mut rng = shared.rng.borrow_mut();
            let delays = &shared.settings.delays;
            let slowness = self.pool.slowness(self.client);
            (delays.verb_ns(&mut rng) * slowness, delays.completion_ns(&mut rng) * slowness)
        };
        let (pool, client, to) = (self.pool.clone(), self.client, answer.clone());
        shared.sim.schedule(there_ns, move || {
            let spared = || pool.0.rng.borrow_mut().percent(50);
            if !pool.step(client, spared) {
                return;
            }
            let mut nodes = pool.0.nodes.borrow_mut();
            let response = if nodes.is_down(node) {
                Err(NodeDown { node })
            } else {
                Ok(pool.0.control.borrow_mut().handle(&mut nodes, node, request))
            };
            match response {
                Ok(response) => pool.observe(client, node, request, response),
                Err(down) => pool.note(client, || format!("{request:?}: {down:?}")),
            }
            to.set(Some(response));
        });
        shared.sim.sleep(there_ns + back_ns).await;
        answer.take().expect("the request comes before the response")
    }

    fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    fn prefetch(&self, _at: NodeAddress, _bytes: usize) {}

    type Direct<'a> = SimReads<'a>;

    /// For half of those that ask, so that clients read in both ways. Meddlers see batches.
    fn direct(&self) -> Option<SimReads<'_>> {
        let shared = &self.pool.0;
        let chosen = shared.meddler.borrow().is_none() && shared.rng.borrow_mut().percent(50);
        (chosen && !self.pool.is_fenced(self.client)).then(|| SimReads::new(self))
    }
}
