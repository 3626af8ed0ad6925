//! The socket driver: tokio's. It moves bytes between a socket and a
//! [`Session`] and knows nothing of what they mean, so that another driver can
//! be put in its place.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tracing::debug;

use crate::client::Client;
use crate::keyspace::Keyspace;
use crate::pool::BUFFER_BYTES;
use crate::reply::Reply;
use crate::session::{Flow, Session};
use crate::worker::Worker;

/// Replies beyond which a turn sends what it has before it goes on.
const OUTPUT_BYTES_PER_TURN: usize = 256 * 1024;
/// Room for an argument that is announced but has not arrived grows by doubling
/// what has, but at least by this.
const GROWTH_BYTES_MIN: usize = 64 * 1024;

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
    /// Set while the connection waits for its socket.
    waker: RefCell<Option<Waker>>,
    end: Cell<Option<End>>,
    is_waiting: Cell<bool>,
    /// Since when more output waits than the limit.
    stalled_at_ms: Cell<Option<u64>>,
}

impl Link {
    pub(crate) fn new(client: Arc<Client>) -> Self {
        Self {
            client,
            waker: RefCell::default(),
            end: Cell::new(None),
            is_waiting: Cell::new(false),
            stalled_at_ms: Cell::new(None),
        }
    }

    /// Ends the connection where it waits; an operation under way is finished.
    pub(crate) fn ask(&self, end: End) {
        self.end.set(Some(end));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    pub(crate) fn stalled_ms(&self, now_ms: u64) -> u64 {
        self.stalled_at_ms.get().map_or(0, |at| now_ms.saturating_sub(at))
    }

    pub(crate) fn is_idle(&self, now_ms: u64, limit_ms: u64) -> bool {
        self.is_waiting.get() && now_ms.saturating_sub(self.client.last_active_ms()) > limit_ms
    }

    fn park(&self, waker: &Waker) {
        let mut parked = self.waker.borrow_mut();
        if !parked.as_ref().is_some_and(|parked| parked.will_wake(waker)) {
            *parked = Some(waker.clone());
        }
    }
}

/// Serves one connection until it ends.
pub(crate) async fn serve<K: Keyspace + 'static>(
    worker: Rc<Worker<K>>,
    stream: TcpStream,
    link: Rc<Link>,
) {
    let session = Session::new(link.client.clone());
    let mut connection = Connection {
        worker: &worker,
        stream,
        link: &link,
        session,
        input: Vec::new(),
        output: Vec::new(),
        sent: 0,
    };
    if let Err(error) = connection.run().await {
        debug!(client = link.client.id, %error, "a connection broke");
    }
    drop(connection);
    worker.forget(&link);
}

struct Connection<'a, K> {
    worker: &'a Worker<K>,
    stream: TcpStream,
    link: &'a Link,
    session: Session,
    input: Vec<u8>,
    output: Vec<u8>,
    /// How much of `output` has been sent.
    sent: usize,
}

/// Why a wait ended.
enum Event {
    /// There is more input, or room for more output.
    Ready,
    /// The client has closed, or the connection shall end.
    End,
}

impl<K: Keyspace> Connection<'_, K> {
    async fn run(&mut self) -> io::Result<()> {
        loop {
            if let Event::End = self.wait().await? {
                return Ok(());
            }
            // Output may have moved instead of input; then there is nothing new.
            while self.session.load(&mut self.input) {
                let flow = self.turn().await?;
                self.session.compact(&mut self.input);
                self.send()?;
                match flow {
                    Flow::Abort => return Ok(()),
                    Flow::Close => return self.send_all().await,
                    Flow::More | Flow::Done => {}
                }
                if self.input.is_empty() {
                    break;
                }
                self.hold().await?;
                tokio::task::yield_now().await;
            }
            if self.input.is_empty() {
                self.worker.buffers.give(std::mem::take(&mut self.input));
            } else if self.input.len() > self.worker.limits.query_bytes {
                debug!(client = self.link.client.id, "closing: its request is too long");
                return Ok(());
            }
        }
    }

    /// Runs what was loaded and appends the replies.
    async fn turn(&mut self) -> io::Result<Flow> {
        let Worker { keyspace, place, clock, .. } = self.worker;
        let begin = clock.raw();
        if self.output.capacity() == 0 {
            self.output = self.worker.buffers.take();
        }
        let mut reply = Reply::new(std::mem::take(&mut self.output), self.session.state.protocol);
        let flow = loop {
            let flow = self.session.step(keyspace, place, &self.input, &mut reply).await;
            if flow != Flow::More {
                break flow;
            }
            if reply.len() > OUTPUT_BYTES_PER_TURN {
                let errors = reply.errors;
                self.output = reply.into_bytes();
                self.send()?;
                self.hold().await?;
                if self.output.capacity() == 0 {
                    self.output = self.worker.buffers.take();
                }
                reply = Reply::new(std::mem::take(&mut self.output), self.session.state.protocol);
                reply.errors = errors;
            }
        };
        let elapsed_ns = clock.delta_as_nanos(begin, clock.raw());
        self.session.count(place, &reply, elapsed_ns);
        self.link.client.active(self.worker.coarse_ms.get(), self.session.last_command());
        self.output = reply.into_bytes();
        Ok(flow)
    }

    fn pending(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Sends as much as the socket takes.
    fn send(&mut self) -> io::Result<()> {
        while self.sent < self.output.len() {
            match self.stream.try_write(&self.output[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.sent += written;
                    self.worker.place.stats.bytes_out.add(written as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.sent == self.output.len() {
            self.sent = 0;
            self.worker.buffers.give(std::mem::take(&mut self.output));
        } else if self.sent > self.output.len() / 2 {
            // What has been sent moves out once it is the larger part, so a
            // byte is moved once on average.
            self.output.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }

    /// Waits until no more output is pending than the limit allows.
    async fn hold(&mut self) -> io::Result<()> {
        let limit = self.worker.limits.output_bytes;
        if self.pending() <= limit {
            return Ok(());
        }
        self.worker.place.stats.output_stalls.add(1);
        while self.pending() > limit {
            self.writable().await?;
        }
        Ok(())
    }

    /// Sends everything before the connection closes.
    async fn send_all(&mut self) -> io::Result<()> {
        while self.pending() > 0 {
            self.writable().await?;
        }
        Ok(())
    }

    /// Waits for room in the socket and sends. A client that makes none is
    /// ended by the sweep.
    async fn writable(&mut self) -> io::Result<()> {
        let now_ms = self.worker.coarse_ms.get();
        if self.link.stalled_at_ms.get().is_none() {
            self.link.stalled_at_ms.set(Some(now_ms));
        }
        let before = self.pending();
        std::future::poll_fn(|context| {
            if self.link.end.get() == Some(End::Now) {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.link.park(context.waker());
            self.stream.poll_write_ready(context)
        })
        .await?;
        self.send()?;
        if self.pending() < before {
            self.link.stalled_at_ms.set(None);
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
        if self.link.end.get() == Some(End::Now) {
            return Poll::Ready(Ok(Event::End));
        }
        if self.pending() > 0 && self.stream.poll_write_ready(context)?.is_ready() {
            self.send()?;
            if self.pending() > 0 {
                // Registers for the readiness that the attempt has used up.
                let _ = self.stream.poll_write_ready(context)?;
            }
        }
        match self.poll_read(context)? {
            Poll::Ready(0) => return Poll::Ready(Ok(Event::End)),
            Poll::Ready(_) => return Poll::Ready(Ok(Event::Ready)),
            Poll::Pending => {}
        }
        // The kernel held nothing more from this client.
        if self.link.end.get() == Some(End::Drain) && self.pending() == 0 {
            return Poll::Ready(Ok(Event::End));
        }
        self.link.park(context.waker());
        Poll::Pending
    }

    /// Reads what there is, into a buffer that is borrowed only then.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        ready!(self.stream.poll_read_ready(context))?;
        if self.input.capacity() == 0 {
            self.input = self.worker.buffers.take();
        }
        self.make_room();
        let read = ready!(pin!(self.stream.read_buf(&mut self.input)).poll(context))?;
        self.worker.place.stats.bytes_in.add(read as u64);
        Poll::Ready(Ok(read))
    }

    /// Makes room for the next read. An announced argument gets no more than
    /// what has arrived has shown to be likely: the buffer doubles.
    fn make_room(&mut self) {
        let wanted = self.session.wanted(&self.input);
        let room = self.input.capacity() - self.input.len();
        if wanted > room {
            let grown = self.input.len().max(GROWTH_BYTES_MIN);
            self.input.reserve_exact(wanted.min(grown));
        } else if wanted == 0 && room < BUFFER_BYTES / 4 {
            self.input.reserve(BUFFER_BYTES);
        }
    }
}
