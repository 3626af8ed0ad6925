//! The memory nodes, and what becomes of verbs on their way to them: every one
//! at its own virtual time, every client one step away from its end.

use crate::executor::Group;
use crate::meddler::{Meddler, Meddling, Seen};
use crate::schedule::Moment;
use crate::trace::Trace;
use crate::{Delays, Nodes, Rng, Sim, SimFabric, Tearing};
use fusee_fabric::{Batch, Counters, Verb, VerbKinds};
use fusee_layout::message::{Request, Response};
use fusee_layout::{Geometry, NodeAddress};
use std::cell::{Cell, Ref, RefCell, RefMut};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

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
pub struct SimPool(pub(crate) Rc<Shared>);

pub(crate) struct Shared {
    pub(crate) sim: Sim,
    pub(crate) settings: Settings,
    pub(crate) nodes: RefCell<Nodes>,
    pub(crate) control: RefCell<Box<dyn Control>>,
    pub(crate) meddler: RefCell<Option<Box<dyn Meddler>>>,
    pub(crate) rng: RefCell<Rng>,
    clients: RefCell<Vec<Client>>,
    trace: RefCell<Trace>,
    torn_reads: Cell<u64>,
    moves: RefCell<Vec<Move>>,
    /// Clients by their id in the pool that were expelled and not recovered yet.
    unrecovered: RefCell<BTreeSet<u32>>,
    /// Clients by the simulator's number that were given one to recover.
    recoverers: RefCell<Vec<u32>>,
}

/// A client's life. Its steps are the moments at which its verbs take effect.
#[derive(Clone, Copy, Default, Debug)]
struct Client {
    steps: u64,
    stop_at: Option<u64>,
    stopped: bool,
    /// None of its verbs takes effect any more.
    fenced: bool,
    /// So many times slower than usual, 0 and 1 for not at all.
    slowness: u64,
}

/// A batch on its way. It belongs to the fabric: the events hold it.
pub(crate) struct Flight {
    pub(crate) client: u32,
    pub(crate) posted_ns: u64,
    pub(crate) counters: Arc<Counters>,
    pub(crate) batch: Batch,
    pub(crate) moments_left: usize,
    /// Of a stopped client: how many more of its moments each node sees.
    pub(crate) fates: Vec<(u16, u64)>,
    /// Moments left by node, from which a fate is drawn.
    pub(crate) left: Vec<(u16, u64)>,
    pub(crate) landed: bool,
    pub(crate) waker: Option<Waker>,
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
            unrecovered: RefCell::default(),
            recoverers: RefCell::default(),
        }))
    }

    /// The way of client number `client`, whose tasks are of [`Group`] `client`.
    pub fn fabric(&self, client: u32) -> SimFabric {
        let mut clients = self.0.clients.borrow_mut();
        if clients.len() <= client as usize {
            clients.resize(client as usize + 1, Client::default());
        }
        SimFabric::new(self.clone(), client)
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

    pub(crate) fn slowness(&self, client: u32) -> u64 {
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

    /// Lets no verb or request of a stopped client take effect from now on, as
    /// memory nodes do before they act on its death.
    pub fn fence(&self, client: u32) {
        self.0.clients.borrow_mut()[client as usize].fenced = true;
    }

    /// Do its verbs take no effect any more?
    pub(crate) fn is_fenced(&self, client: u32) -> bool {
        self.0.clients.borrow()[client as usize].fenced
    }

    /// Asks a memory node something in the name of the memory nodes.
    pub fn ask(&self, node: u16, request: Request) -> Response {
        let mut nodes = self.0.nodes.borrow_mut();
        let response = self.0.control.borrow_mut().handle(&mut nodes, node, request);
        self.observe(u32::MAX, node, request, response);
        response
    }

    /// Notes who is to be recovered, and by whom.
    pub(crate) fn observe(&self, client: u32, node: u16, request: Request, response: Response) {
        self.note(client, || format!("node {node}  {request:?}: {response:?}"));
        match (request, response) {
            (Request::Expel { client }, Response::Done) if node == 0 => {
                self.0.unrecovered.borrow_mut().insert(client);
            }
            (Request::Leave { client }, Response::Done) if node == 0 => {
                self.0.unrecovered.borrow_mut().remove(&client);
            }
            (_, Response::Expelled { .. }) => self.0.recoverers.borrow_mut().push(client),
            _ => {}
        }
    }

    /// Is there a client that was expelled and is not recovered?
    pub fn is_recovering(&self) -> bool {
        !self.0.unrecovered.borrow().is_empty()
    }

    /// Clients that were given one to recover since this was last asked.
    pub fn new_recoverers(&self) -> Vec<u32> {
        std::mem::take(&mut *self.0.recoverers.borrow_mut())
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
    pub(crate) fn step(&self, client: u32, spared: impl FnOnce() -> bool) -> bool {
        let stops = {
            let state = &mut self.0.clients.borrow_mut()[client as usize];
            if state.fenced {
                return false;
            }
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

    pub(crate) fn moment(&self, flight: &Rc<RefCell<Flight>>, moment: &Moment) {
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
        let was_last = under_way.landed_one(node);
        if was_last && !self.0.nodes.borrow().is_down(node) {
            let kinds = VerbKinds::of(under_way.batch.posted(), node);
            let elapsed_ns = self.0.sim.now_ns() - under_way.posted_ns;
            under_way.counters.round_trips().note(node, kinds, elapsed_ns);
        }
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
        let mut trace = self.0.trace.borrow_mut();
        if trace.is_on() {
            let line = trace.verb(seen, how, words, found);
            trace.push(self.0.sim.now_ns(), seen.client, &line);
        }
    }
}

impl std::fmt::Debug for SimPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimPool").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}

impl Flight {
    /// True if it was the last one of this node.
    fn landed_one(&mut self, node: u16) -> bool {
        self.moments_left -= 1;
        let left = self.left.iter_mut().find(|(of, _)| *of == node);
        let left = &mut left.expect("every verb's node was counted").1;
        *left -= 1;
        *left == 0
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
