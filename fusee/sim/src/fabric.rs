//! The simulated fabric: every verb at its own virtual time, every client one
//! step away from its end.

use crate::executor::Group;
use crate::meddler::{Meddler, Meddling, Seen};
use crate::schedule::{Moment, schedule};
use crate::trace::{Trace, slot_text};
use crate::{Delays, Nodes, Rng, Sim, Tearing};
use fusee_fabric::{Batch, Counters, Fabric, NodeDown, Posted, Verb};
use fusee_layout::message::{Request, Response};
use fusee_layout::{Geometry, NodeAddress};
use std::cell::{Cell, Ref, RefCell, RefMut};
use std::rc::Rc;
use std::task::{Poll, Waker};

/// What a memory node does with control requests.
pub trait Control {
    /// Answers one, changing the nodes' memory as it needs.
    fn handle(&mut self, nodes: &mut Nodes, node: u16, request: Request) -> Response;
}

/// How the fabric of one history behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How long things take.
    pub delays: Delays,
    /// How READs and WRITEs come apart.
    pub tearing: Tearing,
}

/// A CAS that took place: who moved which word from what to what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// The simulator's number of the client.
    pub client: u32,
    /// The word's place.
    pub at: NodeAddress,
    /// What it was.
    pub old: u64,
    /// What it became.
    pub new: u64,
}

/// The memory nodes and what goes on between them and the clients.
#[derive(Clone)]
pub struct SimPool(Rc<Shared>);

struct Shared {
    sim: Sim,
    settings: Settings,
    nodes: RefCell<Nodes>,
    control: RefCell<Box<dyn Control>>,
    meddler: RefCell<Option<Box<dyn Meddler>>>,
    rng: RefCell<Rng>,
    clients: RefCell<Vec<Client>>,
    trace: RefCell<Trace>,
    torn_reads: Cell<u64>,
    moves: RefCell<Vec<Move>>,
}

/// A client's life. Its steps are the moments at which its verbs take effect.
#[derive(Clone, Copy, Default, Debug)]
struct Client {
    steps: u64,
    stop_at: Option<u64>,
    stopped: bool,
    /// So many times slower than usual, 0 and 1 for not at all.
    slowness: u64,
}

/// A client's way into a [`SimPool`].
#[derive(Debug)]
pub struct SimFabric {
    pool: SimPool,
    client: u32,
    counters: Counters,
}

/// A batch on its way. It belongs to the fabric: the events hold it.
struct Flight {
    client: u32,
    batch: Batch,
    moments_left: usize,
    /// Of a stopped client: how many more of its moments each node sees.
    fates: Vec<(u16, u64)>,
    /// Moments left by node, from which a fate is drawn.
    left: Vec<(u16, u64)>,
    landed: bool,
    waker: Option<Waker>,
}

impl SimPool {
    /// Memory nodes under these settings, with a stream of chance of their own.
    pub fn new(
        sim: Sim,
        nodes: Nodes,
        control: Box<dyn Control>,
        settings: Settings,
        rng: Rng,
    ) -> Self {
        Self(Rc::new(Shared {
            sim,
            settings,
            nodes: RefCell::new(nodes),
            control: RefCell::new(control),
            meddler: RefCell::default(),
            rng: RefCell::new(rng),
            clients: RefCell::default(),
            trace: RefCell::default(),
            torn_reads: Cell::new(0),
            moves: RefCell::default(),
        }))
    }

    /// The way of client number `client`, whose tasks are of [`Group`] `client`.
    pub fn fabric(&self, client: u32) -> SimFabric {
        let mut clients = self.0.clients.borrow_mut();
        if clients.len() <= client as usize {
            clients.resize(client as usize + 1, Client::default());
        }
        SimFabric { pool: self.clone(), client, counters: Counters::default() }
    }

    /// Lets a client stop for ever when so many more of its verbs, or parts of
    /// torn ones, have taken effect. Those then under way to a node take effect
    /// up to some point, drawn for each node.
    pub fn stop_after(&self, client: u32, steps: u64) {
        let client = &mut self.0.clients.borrow_mut()[client as usize];
        client.stop_at = Some(client.steps + steps.max(1));
    }

    /// Lets all that a client does take so many times as long.
    pub fn slow_down(&self, client: u32, times: u64) {
        self.0.clients.borrow_mut()[client as usize].slowness = times;
    }

    fn slowness(&self, client: u32) -> u64 {
        self.0.clients.borrow()[client as usize].slowness.max(1)
    }

    /// Takes back what [`Self::stop_after`] said.
    pub fn spare(&self, client: u32) {
        self.0.clients.borrow_mut()[client as usize].stop_at = None;
    }

    /// Has the client stopped?
    pub fn is_stopped(&self, client: u32) -> bool {
        self.0.clients.borrow()[client as usize].stopped
    }

    /// Puts a meddler between clients and memory.
    pub fn meddle(&self, meddler: Box<dyn Meddler>) {
        *self.0.meddler.borrow_mut() = Some(meddler);
    }

    /// Begins to keep a trace; `geometry` lets it name places.
    pub fn trace(&self, geometry: Option<Geometry>) {
        self.0.trace.borrow_mut().begin(geometry);
    }

    /// Adds a line to the trace, if one is kept.
    pub fn note(&self, client: u32, what: impl FnOnce() -> String) {
        let mut trace = self.0.trace.borrow_mut();
        if trace.is_on() {
            trace.push(self.0.sim.now_ns(), client, &what());
        }
    }

    /// The trace so far.
    pub fn trace_lines(&self) -> Vec<String> {
        self.0.trace.borrow().lines().to_vec()
    }

    /// The nodes' memory as it is now.
    pub fn nodes(&self) -> Ref<'_, Nodes> {
        self.0.nodes.borrow()
    }

    /// The nodes' memory, to be changed by other means than verbs.
    pub fn nodes_mut(&self) -> RefMut<'_, Nodes> {
        self.0.nodes.borrow_mut()
    }

    /// READs whose parts are of different moments of memory, so far.
    pub fn torn_reads(&self) -> u64 {
        self.0.torn_reads.get()
    }

    /// Every CAS that took place, in order.
    pub fn moves(&self) -> Ref<'_, [Move]> {
        Ref::map(self.0.moves.borrow(), Vec::as_slice)
    }

    /// Counts a step of a client; false if it takes no effect.
    fn step(&self, client: u32, spared: impl FnOnce() -> bool) -> bool {
        let stops = {
            let state = &mut self.0.clients.borrow_mut()[client as usize];
            if state.stopped {
                return spared();
            }
            state.steps += 1;
            state.stopped = state.stop_at == Some(state.steps);
            state.stopped
        };
        if stops {
            self.0.sim.stop(Group(client));
        }
        true
    }

    fn moment(&self, flight: &Rc<RefCell<Flight>>, moment: &Moment) {
        let client = flight.borrow().client;
        let node = flight.borrow().batch.posted()[moment.verb].at.node;
        let spared = || flight.borrow_mut().spared(node, &mut self.0.rng.borrow_mut());
        if !self.step(client, spared) {
            return;
        }
        self.take_effect(&mut flight.borrow_mut(), moment);
        if self.is_stopped(client) {
            self.note(client, || "stopped here, or was before".to_owned());
            return;
        }
        let mut under_way = flight.borrow_mut();
        under_way.landed_one(node);
        if under_way.moments_left == 0 {
            let after_ns = self.0.settings.delays.completion_ns(&mut self.0.rng.borrow_mut());
            let flight = flight.clone();
            let after_ns = after_ns * self.slowness(client);
            self.0.sim.schedule(after_ns, move || {
                let mut flight = flight.borrow_mut();
                flight.landed = true;
                if let Some(waker) = flight.waker.take() {
                    waker.wake();
                }
            });
        }
    }

    fn take_effect(&self, flight: &mut Flight, moment: &Moment) {
        let posted = flight.batch.posted()[moment.verb];
        let number = moment.verb;
        let seen = Seen {
            client: flight.client,
            at: posted.at,
            verb: posted.verb,
            fenced: posted.fenced,
            number,
        };
        let mut nodes = self.0.nodes.borrow_mut();
        if nodes.is_down(posted.at.node) {
            flight.batch.fail(number);
            return;
        }
        let mut meddler = self.0.meddler.borrow_mut();
        let aligned = NodeAddress { offset: posted.at.offset & !7, ..posted.at };
        let mut verb = posted.verb;
        if let (Some(meddler), false) = (meddler.as_mut(), matches!(verb, Verb::Read(_))) {
            match meddler.execute(&seen, nodes.word(aligned)) {
                Meddling::Execute => {}
                Meddling::Cas { expected, new } => verb = Verb::Cas { expected, new },
                Meddling::Pretend(word) => {
                    self.note_verb(&seen, "pretended:", &[], word);
                    flight.batch.complete(number, word);
                    return;
                }
            }
        }
        let mut found = 0;
        match verb {
            Verb::Read(span) => {
                let memory = nodes.words(posted.at, span.bytes() / 8);
                let words = flight.batch.span_mut(span);
                match &moment.words {
                    None => words.copy_from_slice(memory),
                    Some(part) => part.iter().for_each(|&word| words[word] = memory[word]),
                }
                if moment.last {
                    if words != memory {
                        self.0.torn_reads.set(self.0.torn_reads.get() + 1);
                    }
                    if let Some(meddler) = meddler.as_mut() {
                        meddler.read(&seen, words);
                    }
                }
            }
            Verb::Write(span) => {
                let words = flight.batch.span(span);
                let memory = nodes.words_mut(posted.at, words.len());
                match &moment.words {
                    None => memory.copy_from_slice(words),
                    Some(part) => part.iter().for_each(|&word| memory[word] = words[word]),
                }
            }
            Verb::WriteByte(value) => nodes.put_byte(posted.at, value),
            Verb::Cas { expected, new } => {
                let word = &mut nodes.words_mut(posted.at, 1)[0];
                found = *word;
                if found == expected {
                    *word = new;
                    let (client, at) = (flight.client, posted.at);
                    self.0.moves.borrow_mut().push(Move { client, at, old: found, new });
                }
            }
            Verb::Faa(add) => {
                let word = &mut nodes.words_mut(posted.at, 1)[0];
                found = *word;
                *word = found.wrapping_add(add);
            }
        }
        if let (Some(meddler), Verb::Cas { .. } | Verb::Faa(_)) = (meddler.as_mut(), posted.verb) {
            found = meddler.found(&seen, found);
        }
        let words = match posted.verb {
            Verb::Read(span) | Verb::Write(span) => flight.batch.span(span),
            _ => &[],
        };
        let part = if moment.words.is_none() { "" } else { "in part:" };
        self.note_verb(&seen, part, words, found);
        if moment.last {
            flight.batch.complete(number, found);
        }
    }

    fn note_verb(&self, seen: &Seen, how: &str, words: &[u64], found: u64) {
        self.note_in_trace(|trace| {
            let place = trace.place(seen.at);
            let what = match seen.verb {
                Verb::Read(_) | Verb::Write(_) => {
                    let name = if matches!(seen.verb, Verb::Read(_)) { "READ" } else { "WRITE" };
                    let slots = if trace.holds_slots(seen.at) {
                        let live = words.iter().enumerate().filter(|(_, word)| **word != 0);
                        live.map(|(at, &word)| format!(" {at}:{}", slot_text(word))).collect()
                    } else {
                        String::new()
                    };
                    format!("{name} {} bytes{slots}", words.len() * 8)
                }
                Verb::WriteByte(value) => format!("WRITE byte {value}"),
                Verb::Cas { expected, new } => {
                    let outcome = if found == expected {
                        "done".to_owned()
                    } else {
                        format!("failed, found {}", slot_text(found))
                    };
                    format!("CAS {} -> {}: {outcome}", slot_text(expected), slot_text(new))
                }
                Verb::Faa(add) => format!("FAA {add}, found {found}"),
            };
            let fenced = if seen.fenced { "fenced " } else { "" };
            (seen.client, format!("{place}  {fenced}{how}{what}"))
        });
    }

    fn note_in_trace(&self, line: impl FnOnce(&Trace) -> (u32, String)) {
        let mut trace = self.0.trace.borrow_mut();
        if trace.is_on() {
            let (client, line) = line(&trace);
            trace.push(self.0.sim.now_ns(), client, &line);
        }
    }
}

impl std::fmt::Debug for SimPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimPool").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}

impl Flight {
    fn landed_one(&mut self, node: u16) {
        self.moments_left -= 1;
        let left = self.left.iter_mut().find(|(of, _)| *of == node);
        left.expect("every verb's node was counted").1 -= 1;
    }

    /// Does the next moment of a dead client's batch still take effect? Those
    /// of one node do up to some point, since a queue pair keeps its order.
    fn spared(&mut self, node: u16, rng: &mut Rng) -> bool {
        let at = self.fates.iter().position(|(of, _)| *of == node).unwrap_or_else(|| {
            let left = self.left.iter().find(|(of, _)| *of == node).map_or(0, |(_, left)| *left);
            let fate = if rng.percent(40) { 0 } else { rng.between(0, left) };
            self.fates.push((node, fate));
            self.fates.len() - 1
        });
        let fate = &mut self.fates[at].1;
        let spared = *fate > 0;
        *fate = fate.saturating_sub(1);
        spared
    }
}

impl SimFabric {
    /// The simulator's number of the client.
    pub fn client(&self) -> u32 {
        self.client
    }

    fn count(&self, batch: &Batch) {
        let mut verbs = [0; fusee_fabric::VERB_KINDS];
        let (mut read, mut written) = (0, 0);
        for posted in batch.posted() {
            use fusee_fabric::VerbKind::{Cas, Faa, Read, Write};
            let kind = match posted.verb {
                Verb::Read(span) => {
                    read += span.bytes() as u64;
                    Read
                }
                Verb::Write(span) => {
                    written += span.bytes() as u64;
                    Write
                }
                Verb::WriteByte(_) => {
                    written += 1;
                    Write
                }
                Verb::Cas { .. } => Cas,
                Verb::Faa(_) => Faa,
            };
            verbs[kind as usize] += 1;
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
        for number in 0..batch.len() {
            let posted = batch.posted()[number];
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
            ordered[number].fenced &= meddler.keeps_fence(&seen);
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
            pool.note(client, || format!("node {node}  {request:?}: {response:?}"));
            to.set(Some(response));
        });
        shared.sim.sleep(there_ns + back_ns).await;
        answer.take().expect("the request comes before the response")
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn prefetch(&self, _at: NodeAddress, _bytes: usize) {}
}
