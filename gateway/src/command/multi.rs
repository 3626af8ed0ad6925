//! MULTI, EXEC, WATCH: commands that are kept and run together.
//!
//! What is kept runs on the keyspace of a transaction, which may run it more than
//! once before that is committed. So commands that concern the connection or the
//! server (PUBLISH, CLIENT, ...) run only after that, and their replies are put where
//! they belong.

use std::io::Write as _;
use std::rc::Rc;
use std::sync::Arc;

use fusee::{Error, Key, Watched};

use super::eval::Caller;
use super::read::{Answers, Source, gather};
use super::table::{self, COMMANDS, Command};
use super::{
    Call, Local, Run, acl, connection, eval, function, guard, in_transaction, key, refuse,
    write_within,
};
use crate::acl::User;
use crate::keyspace::{InTransaction, Keyspace};
use crate::reply::Reply;
use crate::request::{Arguments, Frame, Limits, Next, Requests};
use crate::session::{By, Flow, Place, State};
use crate::tally::Tally;

/// Commands about transactions.
#[expect(missing_docs, reason = "each is the command of its name")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Multi {
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
}

/// Bytes of requests that are kept at most: what Redis lets a client's requests
/// take (client-query-buffer-limit), and below what a request's places can tell.
const KEPT_BYTES_MAX: usize = 1 << 30;

/// Requests that are kept until they run.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    bytes: Vec<u8>,
    requests: Requests,
    frames: Vec<Frame>,
    /// One of the commands was refused, so none of them runs.
    pub(crate) is_broken: bool,
    pub(crate) writes: bool,
    /// One of them may make the connection another user's.
    changes_user: bool,
}

impl Queue {
    /// Keeps a request; false if there is no room for it.
    pub(crate) fn push<'a>(
        &mut self,
        arguments: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    ) -> bool {
        let bytes: usize = arguments.clone().map(|argument| argument.len() + HEADER_BYTES).sum();
        if !has_room(self.bytes.len(), bytes) {
            // None of them runs, so they need not be kept any longer.
            *self = Self { is_broken: true, ..Self::default() };
            return false;
        }
        let _ = write!(self.bytes, "*{}\r\n", arguments.len());
        for argument in arguments {
            let _ = write!(self.bytes, "${}\r\n", argument.len());
            self.bytes.extend_from_slice(argument);
            self.bytes.extend_from_slice(b"\r\n");
        }
        match self.requests.next(&mut self.bytes, Limits::new(true)) {
            Ok(Next::Frame(frame)) => self.frames.push(frame),
            // What was parsed once is parsed again.
            Ok(Next::Incomplete) | Err(_) => self.is_broken = true,
        }
        true
    }

    fn arguments(&self, frame: Frame) -> Arguments<'_> {
        self.requests.arguments(&self.bytes, frame)
    }

    /// The request that was kept last, if all were.
    pub(crate) fn last(&self) -> Option<Kept<'_>> {
        let frame = self.frames.last().filter(|_| !self.is_broken)?;
        Some(Kept::new(&self.requests, &self.bytes, *frame))
    }
}

/// More than what stands before and behind an argument.
const HEADER_BYTES: usize = 24;

fn has_room(kept: usize, more: usize) -> bool {
    kept.saturating_add(more) <= KEPT_BYTES_MAX
}

/// A request that is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept<'a> {
    requests: &'a Requests,
    bytes: &'a [u8],
    frame: Frame,
}

impl<'a> Kept<'a> {
    /// A request where a connection has it.
    pub(crate) fn new(requests: &'a Requests, bytes: &'a [u8], frame: Frame) -> Self {
        Self { requests, bytes, frame }
    }

    pub(crate) fn arguments(&self) -> Arguments<'a> {
        self.requests.arguments(self.bytes, self.frame)
    }
}

/// Whether a command is run at once although requests are kept.
pub(crate) fn is_run_at_once(command: &Command) -> bool {
    matches!(command.run, Run::Multi(multi) if multi != Multi::Unwatch)
        || matches!(command.run, Run::Local(Local::Quit | Local::Reset))
}

/// Keeps a request that nothing speaks against. False if something does, which
/// whoever runs it tells.
pub(crate) fn keep(
    command: Option<&'static Command>,
    arguments: Arguments<'_>,
    state: &mut State,
    reply: &mut Reply,
) -> bool {
    let Some(queue) = &mut state.queue else { return false };
    let Some(command) = command else {
        queue.is_broken = true;
        return false;
    };
    if !command.takes(arguments.len()) || command.run == Run::Container {
        queue.is_broken = true;
        return false;
    }
    if command.is_not_queued() {
        queue.is_broken = true;
        reply.error("ERR Command not allowed inside a transaction");
        return true;
    }
    queue.writes |= command.is_write() || command.publishes();
    queue.changes_user |= matches!(command.run, Run::Local(Local::Auth | Local::Hello));
    if queue.push(arguments.from(0)) {
        reply.simple("QUEUED");
    } else {
        reply.error("ERR the transaction is too large: send EXEC after at most 1 GB of commands");
    }
    true
}

/// Runs a command about transactions.
pub(crate) async fn run<K: Keyspace>(
    multi: Multi,
    keyspace: &K,
    place: &Place,
    state: &mut State,
    arguments: Arguments<'_>,
    reply: &mut Reply,
) -> Flow {
    match multi {
        Multi::Multi if state.queue.is_some() => {
            reply.error("ERR MULTI calls can not be nested");
        }
        Multi::Multi => {
            state.queue = Some(Box::default());
            state.guard();
            reply.ok();
        }
        Multi::Discard => match state.forget_transaction() {
            Some(_) => reply.ok(),
            None => reply.error("ERR DISCARD without MULTI"),
        },
        Multi::Watch if state.queue.is_some() => {
            reply.error("ERR WATCH inside MULTI is not allowed");
        }
        Multi::Watch => watch(keyspace, place, state, arguments, reply).await,
        Multi::Unwatch => {
            state.watched.clear();
            reply.ok();
        }
        Multi::Exec => return exec(keyspace, place, state, reply).await,
    }
    Flow::More
}

/// WATCH key [key ...]
async fn watch<K: Keyspace>(
    keyspace: &K,
    place: &Place,
    state: &mut State,
    arguments: Arguments<'_>,
    reply: &mut Reply,
) {
    for name in arguments.from(1) {
        let key = Key { database: state.database, name };
        if state.watched.iter().any(|watched| watched.key() == key) {
            continue;
        }
        match keyspace.watch(key).await {
            Ok(watched) => {
                let watched = Rc::new(watched);
                place.watches.borrow_mut().push(Rc::downgrade(&watched));
                state.watched.push(watched);
            }
            Err(error) => return refuse(reply, error),
        }
    }
    reply.ok();
}

/// EXEC
async fn exec<K: Keyspace>(
    keyspace: &K,
    place: &Place,
    state: &mut State,
    reply: &mut Reply,
) -> Flow {
    let watched = std::mem::take(&mut state.watched);
    let Some(queue) = state.forget_transaction() else {
        reply.error("ERR EXEC without MULTI");
        state.watched = watched;
        return Flow::More;
    };
    if queue.is_broken {
        reply.error("EXECABORT Transaction discarded because of previous errors.");
        return Flow::More;
    }
    let leaves = leaves(&queue, state, place);
    let replies = keyspace
        .transact(async |keyspace| {
            let mut replies = Replies::new(Reply::new(Vec::new(), reply.protocol));
            if !are_unchanged(keyspace, &watched).await? {
                return Ok(None);
            }
            let mut database = state.database;
            for (&frame, leave) in queue.frames.iter().zip(&leaves) {
                let all = &mut replies.all;
                let (failures, begun) = (all.failures(), place.clock.raw());
                match leave {
                    Leave::To(user) => {
                        let kept = Kept::new(&queue.requests, &queue.bytes, frame);
                        let by = By { client: &state.client, user };
                        run_kept(keyspace, place, by, kept, &mut database, all).await;
                    }
                    Leave::Denied(why) => all.error(why),
                }
                let elapsed_ns = place.clock.delta_as_nanos(begun, place.clock.raw());
                let has_failed = all.failures() != failures;
                replies.ends.push(End { bytes: all.len(), elapsed_ns, has_failed });
            }
            Ok(Some(replies))
        })
        .await;
    match replies {
        Err(error) => refuse(reply, error),
        Ok(None) => reply.null_array(),
        Ok(Some(replies)) => {
            reply.array(queue.frames.len());
            return tell(&queue, &leaves, replies, place, state, reply);
        }
    }
    Flow::More
}

/// Whether a command that was kept may run.
enum Leave {
    /// As this user.
    To(Arc<User>),
    Denied(String),
}

/// What the user may do of what was kept: maybe less than when it was kept, and AUTH may
/// stand among it. It is asked once, before anything runs.
fn leaves(queue: &Queue, state: &State, place: &Place) -> Vec<Leave> {
    let mut user = state.user.clone();
    if user.is_unlimited() && !queue.changes_user {
        return queue.frames.iter().map(|_| Leave::To(user.clone())).collect();
    }
    let leave = |&frame: &Frame| {
        let arguments = queue.arguments(frame);
        let Some(id) = table::find(arguments.get(0)) else { return Leave::To(user.clone()) };
        let command = guard::resolved(id, arguments);
        let by = By { client: &state.client, user: &user };
        if let Some(why) = acl::denial_at_exec(command, arguments, by, &place.shared) {
            return Leave::Denied(why);
        }
        let credentials = connection::credentials(command, arguments);
        let next = credentials.and_then(|(name, word)| place.shared.acl.authenticate(name, word));
        match next {
            Some(next) => Leave::To(std::mem::replace(&mut user, next)),
            None => Leave::To(user.clone()),
        }
    };
    queue.frames.iter().map(leave).collect()
}

async fn are_unchanged<K: InTransaction>(
    keyspace: &K,
    watched: &[Rc<Watched>],
) -> Result<bool, Error> {
    for watched in watched {
        if !keyspace.is_unchanged(watched).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Replies one after another.
struct Replies {
    all: Reply,
    ends: Vec<End>,
}

/// How a command that was kept has ended.
struct End {
    /// Where its reply does.
    bytes: usize,
    elapsed_ns: u64,
    has_failed: bool,
}

impl Replies {
    fn new(all: Reply) -> Self {
        Self { all, ends: Vec::new() }
    }
}

/// Writes the replies of what was run, and runs what was left out.
fn tell(
    queue: &Queue,
    leaves: &[Leave],
    replies: Replies,
    place: &Place,
    state: &mut State,
    reply: &mut Reply,
) -> Flow {
    reply.count_errors_of(&replies.all);
    let (failures, mut tally) = (reply.failures(), Tally::default());
    let bytes = replies.all.into_bytes();
    let mut begin = 0;
    let mut flow = Flow::More;
    for ((&frame, leave), end) in queue.frames.iter().zip(leaves).zip(replies.ends) {
        let arguments = queue.arguments(frame);
        let id = table::find(arguments.get(0)).map(|id| guard::resolved_id(id, arguments));
        let End { bytes: end, mut elapsed_ns, mut has_failed } = end;
        match id.map(|id| COMMANDS[usize::from(id)].run).filter(|_| matches!(leave, Leave::To(_))) {
            Some(Run::Local(local)) => {
                let (before, begun) = (reply.failures(), place.clock.raw());
                let next = connection::local(local, state, place, arguments, reply);
                if next != Flow::More {
                    flow = next;
                }
                elapsed_ns = place.clock.delta_as_nanos(begun, place.clock.raw());
                has_failed = reply.failures() != before;
            }
            Some(Run::Multi(_)) => reply.ok(),
            _ => reply.raw(&bytes[begin..end]),
        }
        match (id, leave) {
            (Some(id), Leave::To(_)) => tally.call(id, elapsed_ns, has_failed),
            (Some(id), Leave::Denied(_)) => tally.rejected(id),
            (None, _) => {}
        }
        begin = end;
    }
    tally.count(&place.stats);
    // What failed is these commands, not EXEC.
    reply.forget_failures(failures);
    flow
}

/// Runs a request in a transaction of its own.
pub(crate) async fn run_alone<K: Keyspace>(
    keyspace: &K,
    place: &Place,
    state: &State,
    kept: Kept<'_>,
    reply: &mut Reply,
) {
    in_transaction(keyspace, reply, async |keyspace, reply| {
        let mut database = state.database;
        run_kept(keyspace, place, state.by(), kept, &mut database, reply).await;
    })
    .await;
}

/// Runs a request on the keyspace of a transaction, unless it concerns the
/// connection or the server alone; of these only SELECT has its effect, on
/// `database`.
pub(crate) async fn run_kept<K: InTransaction>(
    keyspace: &K,
    place: &Place,
    by: By<'_>,
    kept: Kept<'_>,
    database: &mut u8,
    reply: &mut Reply,
) {
    let arguments = kept.arguments();
    let Some(id) = table::find(arguments.get(0)) else { return };
    let command = guard::resolved(id, arguments);
    match command.run {
        Run::Read(read) => {
            let mut keys = Vec::new();
            let gathered = [gather(read, command, kept.frame, arguments, *database, &mut keys)];
            let source = Source { requests: kept.requests, input: kept.bytes };
            let random = place.random();
            let mut answers = Answers::new(&gathered, source, reply, random, || keyspace.now_ms());
            keyspace.read(&keys, |_, entry| answers.take(entry)).await;
            let (lookups, _) = answers.end();
            place.stats.hits.add(lookups.hits);
            place.stats.misses.add(lookups.misses);
        }
        Run::Write(run) => {
            let database = *database;
            let call = Call { keyspace, command, arguments, database, reply, changes: None };
            write_within(run, call, &place.shared).await;
        }
        Run::Walk(run) => {
            let database = *database;
            let call = Call { keyspace, command, arguments, database, reply, changes: None };
            key::walk(run, call, place).await;
        }
        Run::Eval(run) => {
            let caller = Caller { place, by, database: *database };
            Box::pin(eval::eval(run, keyspace, caller, arguments, reply)).await;
        }
        Run::Function(run) => {
            let caller = Caller { place, by, database: *database };
            Box::pin(function::function(run, keyspace, caller, arguments, reply)).await;
        }
        Run::Local(Local::Select) => {
            *database = connection::database_of(arguments.get(1)).unwrap_or(*database);
        }
        Run::Local(_) | Run::Multi(_) | Run::Container | Run::CloseSilently => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_a_queue_that_overflows_keeps_nothing() {
        assert!(has_room(KEPT_BYTES_MAX - 1, 1) && !has_room(KEPT_BYTES_MAX, 1));
        assert!(!has_room(1, usize::MAX));
        let mut queue = Queue::default();
        assert!(queue.push([&b"SET"[..], b"k", b"v"].into_iter()));
        assert_eq!(queue.last().unwrap().arguments().get(2), b"v");
        let large = vec![0; 1 << 20];
        let many = std::iter::repeat_n(&large[..], 1024);
        assert!(!queue.push(many.collect::<Vec<_>>().into_iter()));
        assert!(queue.is_broken && queue.last().is_none() && queue.bytes.is_empty());
    }
}
