//! A connection without its socket: bytes come in, replies are appended.
//!
//! Whoever drives sockets calls [`Session::load`] after a read, then
//! [`Session::step`] until nothing is left, and sends what has been written.
//! Everything else about sockets is the driver's.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Weak;
use std::sync::Arc;

use fusee::{Key, Setting, Watched};

use crate::client::Client;
use crate::command::multi::{self, Kept};
use crate::command::read::Gathered;
use crate::command::table::{self, COMMANDS, Command};
use crate::command::{Call, CommandId, Run, Write, connection, guard, key, write};
use crate::keyspace::Keyspace;
use crate::phase::{Phases, Spent};
use crate::reply::{Errors, Reply};
use crate::request::{Frame, Limits, Next, ProtocolError, Requests};
use crate::script::Engine;
use crate::shared::Shared;
use crate::stats::WorkerStats;

mod pipeline;
mod state;

pub(crate) use state::{By, Replies, State};

use pipeline::{KEYS_PER_READ, counted};

/// Requests that one turn of a connection takes, so that others have theirs.
/// Twice the deepest pipeline that clients commonly use.
const FRAMES_PER_TURN: usize = 128;

/// What a worker's commands see of the server.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) shared: Arc<Shared>,
    pub(crate) stats: Arc<WorkerStats>,
    pub(crate) clock: quanta::Clock,
    /// Whether the pool holds more than maxmemory allows, as of the last look.
    pub(crate) is_full: Cell<bool>,
    pub(crate) scripts: Engine,
    /// Keys that clients watch, to be looked at now and then.
    pub(crate) watches: RefCell<Vec<Weak<Watched>>>,
    random: Cell<u64>,
}

impl Place {
    pub(crate) fn new(shared: Arc<Shared>, stats: Arc<WorkerStats>, seed: u64) -> Self {
        Self {
            shared,
            stats,
            clock: quanta::Clock::new(),
            is_full: Cell::new(false),
            scripts: Engine::default(),
            watches: RefCell::default(),
            random: Cell::new(seed | 1),
        }
    }

    /// The next number of a sequence that nobody needs to be unable to guess.
    pub(crate) fn random(&self) -> u64 {
        let mut value = self.random.get();
        value ^= value << 13;
        value ^= value >> 7;
        value ^= value << 17;
        self.random.set(value);
        value.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// What the driver does after a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// There are more requests to run.
    More,
    /// Everything that was loaded has run.
    Done,
    /// Clients are paused: send what has been written, and come again later.
    Pause,
    /// Send what has been written and close.
    Close,
    /// Close at once.
    Abort,
}

/// A complete request and its command.
#[derive(Clone, Copy, Debug)]
struct Job {
    frame: Frame,
    command: Option<CommandId>,
    round_trips: u32,
}

/// A connection's place in its requests.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) state: State,
    requests: Requests,
    /// When it was last looked how long requests take, and how many of `jobs` had
    /// run by then.
    looked: u64,
    looked_at: usize,
    /// When the turn began, or went on after its replies were sent.
    begun: u64,
    spent: Spent,
    jobs: Vec<Job>,
    /// The first of `jobs` that has not run, and that is not yet prefetched.
    next: usize,
    prefetched: usize,
    /// What was found after the last of `jobs`.
    broken: Option<ProtocolError>,
    // Kept only for their memory.
    keys: Vec<Key<'static>>,
    gathered: Vec<Gathered>,
    sets: Vec<Setting<'static>>,
    /// Keys that one read takes: fewer while values are large.
    keys_per_read: usize,
}

impl Session {
    pub(crate) fn new(client: Arc<Client>, place: &Place) -> Self {
        let user_version = place.shared.acl.version();
        let user = place.shared.acl.default_user();
        client.names().user.clone_from(&user.name);
        let state = State::new(client, user, user_version);
        Self {
            state,
            requests: Requests::default(),
            looked: 0,
            looked_at: 0,
            begun: 0,
            spent: Spent::default(),
            jobs: Vec::new(),
            next: 0,
            prefetched: 0,
            broken: None,
            keys: Vec::new(),
            gathered: Vec::new(),
            sets: Vec::new(),
            keys_per_read: KEYS_PER_READ,
        }
    }

    /// Takes the complete requests that `input` holds, as many as one turn
    /// may. Whether there is anything to run.
    pub(crate) fn load(&mut self, input: &mut [u8]) -> bool {
        debug_assert!(self.next == self.jobs.len(), "the last turn has ended");
        self.jobs.clear();
        (self.next, self.prefetched, self.looked_at) = (0, 0, 0);
        let limits = Limits::new(self.state.authenticated);
        // What follows AUTH is read by the limits that hold after it.
        let most = if self.state.authenticated { FRAMES_PER_TURN } else { 1 };
        while self.jobs.len() < most && self.broken.is_none() {
            match self.requests.next(input, limits) {
                Ok(Next::Frame(frame)) => {
                    let name = self.requests.arguments(input, frame).get(0);
                    self.jobs.push(Job { frame, command: table::find(name), round_trips: 0 });
                }
                Ok(Next::Incomplete) => break,
                Err(error) => self.broken = Some(error),
            }
        }
        !self.jobs.is_empty() || self.broken.is_some()
    }

    /// Runs the next requests: all reads up to the next that is none, or one
    /// other.
    #[inline]
    pub(crate) async fn step<K: Keyspace>(
        &mut self,
        keyspace: &K,
        place: &Place,
        input: &[u8],
        reply: &mut Reply,
    ) -> Flow {
        if self.state.is_guarded || place.shared.is_watched() || place.is_full.get() {
            return self.step_alone(keyspace, place, input, reply).await;
        }
        let mut gathered_max = usize::MAX;
        if !self.state.user.is_unlimited() {
            gathered_max = self.allowed(input);
            if gathered_max == 0 {
                return self.step_alone(keyspace, place, input, reply).await;
            }
        }
        self.run(keyspace, place, input, reply, gathered_max).await
    }

    /// Runs one request after all that can keep it from running has been asked.
    #[cold]
    async fn step_alone<K: Keyspace>(
        &mut self,
        keyspace: &K,
        place: &Place,
        input: &[u8],
        reply: &mut Reply,
    ) -> Flow {
        let Some(&Job { frame, command, .. }) = self.jobs.get(self.next) else {
            return self.end(place, reply);
        };
        let arguments = self.requests.arguments(input, frame);
        let command = command.map(|id| guard::resolved(id, arguments));
        if guard::has_to_wait(command, &self.state, place) {
            return Flow::Pause;
        }
        let mark = reply.len();
        let is_silent = self.state.replies != Replies::All;
        if self.state.replies == Replies::SkipNext {
            self.state.replies = Replies::All;
            self.state.guard();
        }
        let refusal = guard::refusal(command, arguments, &self.state, place);
        let failures = reply.failures();
        let flow = if let Some(refusal) = refusal {
            guard::refuse(refusal, command, &mut self.state, reply);
            self.skip(command, place);
            Flow::More
        } else if !command.is_some_and(multi::is_run_at_once)
            && multi::keep(command, arguments, &mut self.state, reply)
        {
            let by = &self.state.client.address;
            guard::show(command, arguments, self.state.database, by, place);
            // EXEC counts it, unless it was refused.
            self.skip(command.filter(|_| reply.failures() != failures), place);
            Flow::More
        } else {
            let by = &self.state.client.address;
            guard::show(command, arguments, self.state.database, by, place);
            Box::pin(self.run(keyspace, place, input, reply, 1)).await
        };
        if is_silent && !command.is_some_and(Command::speaks_always) {
            reply.truncate(mark);
        }
        self.look(place, input);
        flow
    }

    /// Goes on behind a request that was not run: it counts as rejected, if it was a command
    /// that there is.
    fn skip(&mut self, rejected: Option<&Command>, place: &Place) {
        self.jobs[self.next].command = None;
        self.next += 1;
        if let Some(command) = rejected {
            place.stats.commands[usize::from(command.id())].rejected.add(1);
        }
    }

    /// Looks how long it took since the last look; what took long is noted. Writes
    /// that follow each other are timed together, and the last one stands for them,
    /// unless everything is watched.
    #[inline]
    fn look(&mut self, place: &Place, input: &[u8]) {
        let now = place.clock.raw();
        self.look_at(place, input, now);
    }

    #[inline]
    fn look_at(&mut self, place: &Place, input: &[u8], now: u64) {
        if self.looked_at == self.next {
            return;
        }
        let elapsed_ns = place.clock.delta_as_nanos(self.looked, now);
        if place.shared.is_long(elapsed_ns) {
            self.note(place, input, elapsed_ns);
        }
        (self.looked, self.looked_at) = (now, self.next);
        self.spent.clear();
    }

    /// Notes that the last request that ran took long.
    #[cold]
    fn note(&self, place: &Place, input: &[u8], elapsed_ns: u64) {
        let Some(job) = self.next.checked_sub(1).and_then(|last| self.jobs.get(last)) else {
            return;
        };
        let arguments = self.requests.arguments(input, job.frame);
        let queue_ns = place.clock.delta_as_nanos(self.begun, self.looked);
        let phases = Phases::of(queue_ns, elapsed_ns, &self.spent);
        guard::note(&self.state, place, arguments, elapsed_ns, phases);
    }

    /// From now on it is counted how long the next request takes.
    pub(crate) fn begin(&mut self, now: u64) {
        self.looked = now;
        self.begun = now;
        self.spent.clear();
    }

    async fn run<K: Keyspace>(
        &mut self,
        keyspace: &K,
        place: &Place,
        input: &[u8],
        reply: &mut Reply,
        gathered_max: usize,
    ) -> Flow {
        let Some(&Job { frame, command, .. }) = self.jobs.get(self.next) else {
            return self.end(place, reply);
        };
        let arguments = self.requests.arguments(input, frame);
        let Some(mut id) = command else {
            self.next += 1;
            connection::unknown(arguments, reply);
            return Flow::More;
        };
        let mut command = &COMMANDS[usize::from(id)];
        if let Run::Read(_) = command.run
            && command.takes(arguments.len())
        {
            self.reads(keyspace, place, input, reply, gathered_max).await;
            self.look(place, input);
            return Flow::More;
        }
        if command.has_subcommands() && arguments.len() > 1 {
            let Some(found) = table::find_subcommand(id, arguments.get(1)) else {
                connection::unknown_subcommand(command, arguments.get(1), reply);
                self.skip(None, place);
                return Flow::More;
            };
            id = found;
            command = &COMMANDS[usize::from(id)];
            self.jobs[self.next].command = Some(id);
        }
        if let Run::Read(_) = command.run
            && command.takes(arguments.len())
        {
            self.reads(keyspace, place, input, reply, gathered_max).await;
            self.look(place, input);
            return Flow::More;
        }
        if command.run == Run::CloseSilently {
            return Flow::Abort;
        }
        if !command.takes(arguments.len()) || command.run == Run::Container {
            connection::wrong_arity(command, reply);
            self.skip(Some(command), place);
            return Flow::More;
        }
        if command.run == Run::Write(Write::Set)
            && self.next + 1 < self.jobs.len()
            && gathered_max > 1
            && self.sets(keyspace, place, input, reply, gathered_max).await
        {
            return Flow::More;
        }
        if matches!(command.run, Run::Write(_)) && self.next >= self.prefetched {
            self.prefetch(keyspace, input);
        }
        let arguments = self.requests.arguments(input, frame);
        let failures = reply.failures();
        let database = self.state.database;
        let mut flow = Flow::More;
        match command.run {
            Run::Write(run) => {
                let call = Call { keyspace, command, arguments, database, reply, changes: None };
                let write = pin!(write(run, call, &place.shared));
                let round_trips = counted(keyspace, &place.clock, &self.spent, write).await;
                self.jobs[self.next].round_trips = round_trips;
            }
            Run::Walk(run) => {
                let call = Call { keyspace, command, arguments, database, reply, changes: None };
                let walk = pin!(key::walk(run, call, place));
                let round_trips = counted(keyspace, &place.clock, &self.spent, walk).await;
                self.jobs[self.next].round_trips = round_trips;
            }
            Run::Local(run) => {
                self.state.client.runs(id);
                flow = connection::local(run, &mut self.state, place, arguments, reply);
            }
            Run::Eval(_) | Run::Function(_) => {
                self.state.client.runs(id);
                let kept = Kept::new(&self.requests, input, frame);
                let mut ran = Box::pin(multi::run_alone(keyspace, place, &self.state, kept, reply));
                let round_trips = counted(keyspace, &place.clock, &self.spent, ran.as_mut()).await;
                self.jobs[self.next].round_trips = round_trips;
            }
            Run::Multi(run) => {
                self.state.client.runs(id);
                let state = &mut self.state;
                // Boxed: no other command needs so much room.
                let ran = Box::pin(multi::run(run, keyspace, place, state, arguments, reply));
                let ran = pin!(async { flow = ran.await });
                let round_trips = counted(keyspace, &place.clock, &self.spent, ran).await;
                self.jobs[self.next].round_trips = round_trips;
            }
            Run::Read(_) | Run::Container | Run::CloseSilently => {}
        }
        if reply.failures() != failures {
            place.stats.commands[usize::from(id)].failed.add(1);
        }
        self.next += 1;
        if !matches!(command.run, Run::Write(_)) {
            self.look(place, input);
        }
        flow
    }

    /// Everything loaded has run.
    fn end(&mut self, place: &Place, reply: &mut Reply) -> Flow {
        let Some(error) = self.broken else { return Flow::Done };
        place.stats.protocol_errors.add(1);
        reply.error_fmt(format_args!("ERR {error}"));
        Flow::Close
    }

    /// Counts the turn that has ended at `now`.
    pub(crate) fn count(
        &mut self,
        place: &Place,
        input: &[u8],
        reply: &Reply,
        now: u64,
        elapsed_ns: u64,
    ) {
        self.look_at(place, input, now);
        let stats = &place.stats;
        let bucket = WorkerStats::latency_bucket(elapsed_ns);
        for job in &self.jobs[..self.next] {
            if let Some(command) = job.command {
                stats.call(command, bucket, elapsed_ns, job.round_trips);
            }
        }
        stats.batches.add(1);
        stats.requests.add(self.next as u64);
        self.count_errors(place, reply);
    }

    /// Counts the errors of what has been written.
    pub(crate) fn count_errors(&self, place: &Place, reply: &Reply) {
        let errors = reply.errors();
        if *errors == Errors::default() {
            return;
        }
        for (counter, errors) in place.stats.errors.iter().zip(errors.kinds) {
            counter.add(u64::from(errors));
        }
        place.shared.note_codes(reply.other_codes());
    }

    /// The command that was loaded last.
    pub(crate) fn last_command(&self) -> Option<CommandId> {
        self.jobs.last().and_then(|job| job.command)
    }

    /// Drops what has run from the front of `input`.
    pub(crate) fn compact(&mut self, input: &mut Vec<u8>) {
        self.jobs.clear();
        self.next = 0;
        self.requests.compact(input);
    }

    /// How many more bytes the argument that is arriving needs.
    pub(crate) fn wanted(&self, input: &[u8]) -> usize {
        self.requests.wanted(input)
    }
}
