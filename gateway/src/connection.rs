//! The socket driver: tokio's. It moves bytes between a socket and a
//! [`Session`] and knows nothing of what they mean, so that another driver can
//! be put in its place.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;
use tracing::debug;

use crate::client::{Client, ClientType};
use crate::command::{connection, guard};
use crate::keyspace::Keyspace;
use crate::pool::BUFFER_BYTES;
use crate::reply::Reply;
use crate::session::{Flow, Session};
use crate::settings::SubscriberLimit;
use crate::socket::Socket;
use crate::worker::Worker;

/// Replies beyond which a turn sends what it has before it goes on.
const OUTPUT_BYTES_PER_TURN: usize = 256 * 1024;
/// Room for an argument that is announced but has not arrived grows by doubling
/// what has, but at least by this.
const GROWTH_BYTES_MIN: usize = 64 * 1024;

/// How long what a client has sent before the server began to stop may take to be
/// read; whoever sends without end is not read from after that.
const DRAIN_READS: Duration = Duration::from_millis(250);
/// How long a client gets to notice that its connection has ended: since it last sent
/// something, and at most.
const LINGER: Duration = Duration::from_millis(500);
const LINGER_MAX: Duration = Duration::from_secs(5);

/// How a connection shall end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// When it has nothing left to do.
    Drain,
    /// At once.
    Now,
}

/// What others of the same worker do with a connection: look and end it.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) client: Arc<Client>,
    socket: Rc<Socket>,
    end: Cell<Option<End>>,
    /// Until when requests are still taken although the connection shall end.
    drain_until: Cell<Option<Instant>>,
    is_waiting: Cell<bool>,
    /// Since when more output waits than the limit, and how much of it has been
    /// sent since does not matter.
    stalled_at_ms: Cell<Option<u64>>,
    /// Since when more messages wait than a subscriber may have for long.
    burdened_at_ms: Cell<Option<u64>>,
}

impl Link {
    pub(crate) fn new(client: Arc<Client>, socket: Socket) -> Self {
        Self {
            client,
            socket: Rc::new(socket),
            end: Cell::new(None),
            drain_until: Cell::new(None),
            is_waiting: Cell::new(false),
            stalled_at_ms: Cell::new(None),
            burdened_at_ms: Cell::new(None),
        }
    }

    /// Ends the connection where it waits; an operation under way is finished.
    pub(crate) fn ask(&self, end: End) {
        self.end.set(Some(end));
        self.drain_until.set(Some(Instant::now() + DRAIN_READS));
        self.socket.wake();
    }

    /// Bytes of replies that wait for the client.
    pub(crate) fn output_bytes(&self) -> usize {
        self.socket.pending()
    }

    pub(crate) fn stalled_ms(&self, now_ms: u64) -> u64 {
        self.stalled_at_ms.get().map_or(0, |at| now_ms.saturating_sub(at))
    }

    /// Whether more than the soft limit has waited for a subscriber for too long.
    pub(crate) fn is_burdened(&self, now_ms: u64, limit: SubscriberLimit) -> bool {
        if !self.is_subscriber() || limit.soft_bytes == 0 {
            return false;
        }
        let waiting = self.client.inbox.bytes() + self.socket.pending();
        if waiting <= limit.soft_bytes {
            self.burdened_at_ms.set(None);
            return false;
        }
        let since = self.burdened_at_ms.get().unwrap_or(now_ms);
        self.burdened_at_ms.set(Some(since));
        now_ms.saturating_sub(since) >= limit.soft_s * 1000
    }

    fn is_subscriber(&self) -> bool {
        self.client.kind() == ClientType::Subscriber
    }

    /// Who listens is silent for as long as it likes.
    pub(crate) fn is_idle(&self, now_ms: u64, limit_ms: u64) -> bool {
        !self.is_subscriber()
            && self.is_waiting.get()
            && now_ms.saturating_sub(self.client.last_active_ms()) > limit_ms
    }
}

/// Serves one connection until it ends.
pub(crate) async fn serve<K: Keyspace + 'static>(worker: Rc<Worker<K>>, link: Rc<Link>) {
    let session = Session::new(link.client.clone(), &worker.place);
    let mut connection = Connection { worker: &worker, link: &link, session, input: Vec::new() };
    if let Err(error) = connection.run().await {
        debug!(client = link.client.id, %error, "a connection broke");
    }
    connection::forget(&mut connection.session.state, &worker.place);
    drop(connection);
    link.socket.close();
    worker.forget(&link);
}

struct Connection<'a, K> {
    worker: &'a Worker<K>,
    link: &'a Link,
    session: Session,
    input: Vec<u8>,
}

/// How often a paused connection looks whether it may go on.
const PAUSE: Duration = Duration::from_millis(5);
/// Messages that are written at a time, before others have their turn.
const MESSAGE_BYTES_PER_TURN: usize = 256 * 1024;

/// Why a wait ended.
enum Event {
    /// Messages have come for the client.
    Mail,
    /// There is more input.
    Ready,
    /// The client sends no more.
    Closed,
    /// The connection shall end.
    End,
}

impl<K: Keyspace> Connection<'_, K> {
    async fn run(&mut self) -> io::Result<()> {
        std::future::poll_fn(|context| {
            self.link.client.inbox.belongs_to(context.waker());
            Poll::Ready(())
        })
        .await;
        loop {
            // Who does not read is not read from.
            self.hold().await?;
            match self.wait().await? {
                Event::Ready => {}
                Event::Mail => {
                    self.deliver();
                    tokio::task::yield_now().await;
                    continue;
                }
                // Whoever sends no more may still read.
                Event::Closed => return self.send_all().await,
                Event::End => return self.linger().await,
            }
            while self.session.load(&mut self.input) {
                let flow = self.turn().await?;
                self.session.compact(&mut self.input);
                match flow {
                    Flow::Abort => return Ok(()),
                    Flow::Close => {
                        self.send_all().await?;
                        return self.linger().await;
                    }
                    Flow::More | Flow::Done | Flow::Pause => {
                        self.worker.outbox.push(&self.link.socket);
                    }
                }
                if self.input.is_empty() || self.link.client.inbox.is_killed() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            if self.input.is_empty() {
                self.worker.buffers.give(std::mem::take(&mut self.input));
                self.link.client.holds(0, 0);
            } else if self.input.len() > self.worker.limits.query_bytes {
                debug!(client = self.link.client.id, "closing: its request is too long");
                return Ok(());
            }
        }
    }

    /// Runs what was loaded and appends the replies.
    async fn turn(&mut self) -> io::Result<Flow> {
        let Worker { keyspace, place, buffers, .. } = self.worker;
        let socket = &self.link.socket;
        self.link.client.holds(self.input.len(), self.input.capacity());
        let begin = place.clock.raw();
        self.session.begin(begin);
        self.session.state.look_up_user(place);
        let mut reply = Reply::new(socket.take(buffers), self.session.state.protocol);
        let flow = loop {
            let flow = self.session.step(keyspace, place, &self.input, &mut reply).await;
            let pauses = flow == Flow::Pause;
            if !pauses && flow != Flow::More {
                break flow;
            }
            if pauses || reply.len() > OUTPUT_BYTES_PER_TURN {
                self.session.count_errors(place, &reply);
                socket.put(reply.into_bytes());
                self.send()?;
                if pauses {
                    self.pause().await?;
                }
                self.hold().await?;
                reply = Reply::new(socket.take(buffers), self.session.state.protocol);
                self.session.begin(place.clock.raw());
            }
        };
        let now = place.clock.raw();
        let elapsed_ns = place.clock.delta_as_nanos(begin, now);
        self.session.count(place, &self.input, &reply, now, elapsed_ns);
        self.link.client.active(self.worker.coarse_ms.get(), self.session.last_command());
        socket.put(reply.into_bytes());
        Ok(flow)
    }

    /// Lets a moment of a pause pass; requests that have arrived stay.
    async fn pause(&self) -> io::Result<()> {
        tokio::time::sleep(PAUSE).await;
        if self.link.end.get() == Some(End::Now) || self.link.client.inbox.is_killed() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }

    /// Writes messages that have come.
    fn deliver(&self) {
        let socket = &self.link.socket;
        let bytes = socket.take(&self.worker.buffers);
        let mut reply = Reply::new(bytes, self.session.state.protocol);
        self.link.client.inbox.take(MESSAGE_BYTES_PER_TURN, |message| message.write(&mut reply));
        socket.put(reply.into_bytes());
        self.worker.outbox.push(socket);
    }

    fn pending(&self) -> usize {
        self.link.socket.pending()
    }

    fn send(&self) -> io::Result<()> {
        self.link.socket.send(&self.worker.buffers, &self.worker.place.stats)
    }

    /// Waits until no more output is pending than the limit allows.
    async fn hold(&mut self) -> io::Result<()> {
        let limit = self.worker.limits.output_bytes;
        if self.pending() > limit {
            self.send()?;
        }
        if self.pending() <= limit {
            return Ok(());
        }
        let place = &self.worker.place;
        place.stats.output_stalls.add(1);
        let begin = place.clock.raw();
        while self.pending() > limit {
            self.writable().await?;
        }
        let elapsed_ns = place.clock.delta_as_nanos(begin, place.clock.raw());
        guard::note_reply(place, self.session.last_command(), elapsed_ns);
        Ok(())
    }

    /// Sends everything before the connection closes.
    async fn send_all(&mut self) -> io::Result<()> {
        self.send()?;
        while self.pending() > 0 {
            self.writable().await?;
        }
        Ok(())
    }

    /// Reads on for a moment, and forgets it, until the client has closed its
    /// side. Closing a socket to which the client still sends resets the
    /// connection, and a reset takes replies with it that the client has not
    /// read yet.
    async fn linger(&mut self) -> io::Result<()> {
        let link = self.link;
        if link.end.get() == Some(End::Now) {
            return Ok(());
        }
        std::future::poll_fn(|context| link.socket.poll_shutdown(context)).await?;
        let closed = async {
            loop {
                self.input.clear();
                let read = |context: &mut Context<'_>| {
                    link.socket.poll_read(context, &mut self.input, &self.worker.buffers, |input| {
                        input.reserve(BUFFER_BYTES);
                    })
                };
                // Who still sends has not come to the end of its replies.
                match tokio::time::timeout(LINGER, std::future::poll_fn(read)).await {
                    Ok(Ok(1..)) => {}
                    Ok(Err(error)) => return Err(error),
                    Ok(Ok(0)) | Err(_) => return Ok(()),
                }
            }
        };
        tokio::time::timeout(LINGER_MAX, closed).await.unwrap_or(Ok(()))
    }

    /// Waits for room in the socket and sends. A client that makes none is
    /// ended by the sweep.
    async fn writable(&mut self) -> io::Result<()> {
        let link = self.link;
        if link.stalled_at_ms.get().is_none() {
            link.stalled_at_ms.set(Some(self.worker.coarse_ms.get()));
        }
        let before = self.pending();
        std::future::poll_fn(|context| {
            if link.end.get() == Some(End::Now) || link.client.inbox.is_killed() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            link.socket.park(context.waker());
            link.socket.poll_write_ready(context)
        })
        .await?;
        self.send()?;
        if self.pending() < before {
            link.stalled_at_ms.set(None);
        }
        Ok(())
    }

    /// Waits for input, and sends pending output meanwhile.
    async fn wait(&mut self) -> io::Result<Event> {
        let link = self.link;
        link.is_waiting.set(true);
        let event = std::future::poll_fn(|context| self.poll_wait(context)).await;
        link.is_waiting.set(false);
        event
    }

    fn poll_wait(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Event>> {
        let Link { socket, end, .. } = self.link;
        if end.get() == Some(End::Now) {
            return Poll::Ready(Ok(Event::End));
        }
        if self.link.client.inbox.is_killed() {
            self.worker.place.stats.killed.add(1);
            end.set(Some(End::Now));
            return Poll::Ready(Ok(Event::End));
        }
        if self.link.client.inbox.has_mail() {
            return Poll::Ready(Ok(Event::Mail));
        }
        // What the outbox could not send; what it has yet to try is left to it.
        if !socket.is_queued() && socket.pending() > 0 {
            while socket.pending() > 0 && socket.poll_write_ready(context)?.is_ready() {
                self.send()?;
            }
        }
        let is_over = self.link.drain_until.get().is_some_and(|until| Instant::now() >= until);
        if is_over && end.get() == Some(End::Drain) {
            // Nothing more is read, also while the client is slow to take what is pending.
            while socket.pending() > 0 && socket.poll_write_ready(context)?.is_ready() {
                self.send()?;
            }
            if socket.pending() == 0 {
                return Poll::Ready(Ok(Event::End));
            }
            socket.park(context.waker());
            return Poll::Pending;
        }
        let Self { worker, session, input, .. } = self;
        let make_room = |input: &mut Vec<u8>| make_room(input, worker, session);
        match socket.poll_read(context, input, &worker.buffers, make_room)? {
            Poll::Ready(0) => return Poll::Ready(Ok(Event::Closed)),
            Poll::Ready(read) => {
                worker.place.stats.bytes_in.add(read as u64);
                return Poll::Ready(Ok(Event::Ready));
            }
            Poll::Pending => {}
        }
        if end.get() == Some(End::Drain) && socket.is_drained() {
            socket.send(&worker.buffers, &worker.place.stats)?;
            if socket.pending() == 0 {
                return Poll::Ready(Ok(Event::End));
            }
            // To be woken once it has been sent.
            let _ = socket.poll_write_ready(context)?;
        }
        socket.park(context.waker());
        Poll::Pending
    }
}

/// Makes room for the next read. An announced argument gets no more than what
/// has arrived has shown to be likely: the buffer doubles.
fn make_room<K>(input: &mut Vec<u8>, worker: &Worker<K>, session: &Session) {
    if input.capacity() == 0 {
        *input = worker.buffers.take();
    }
    let wanted = session.wanted(input);
    let room = input.capacity() - input.len();
    if wanted > room {
        let grown = input.len().max(GROWTH_BYTES_MIN);
        input.reserve_exact(wanted.min(grown));
    } else if wanted == 0 && room < BUFFER_BYTES / 4 {
        input.reserve(BUFFER_BYTES);
    }
}
