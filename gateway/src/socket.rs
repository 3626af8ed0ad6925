//! A client's socket and the replies that wait to be sent on it.
//!
//! Replies are not sent when they are written but when all connections whose
//! requests had arrived have been served: the kernel's sending path then runs
//! for one after another, which costs a tenth less than taking turns with the
//! receiving path, and clients wake up once.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use rustls::ServerConnection;
use tokio::io::{AsyncReadExt as _, AsyncWrite as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;

mod tls;

use crate::pool::BufferPool;
use crate::stats::WorkerStats;
use tls::Tls;

/// One client's socket.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: RefCell<TcpStream>,
    tls: Option<RefCell<Tls>>,
    output: RefCell<Output>,
    /// Whether it waits in the worker's [`Outbox`].
    is_queued: Cell<bool>,
    /// Set while the connection waits for its socket.
    waker: RefCell<Option<Waker>>,
}

/// Replies, and how much of them has been sent.
#[derive(Debug, Default)]
struct Output {
    bytes: Vec<u8>,
    sent: usize,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream, tls: Option<ServerConnection>) -> Self {
        Self {
            stream: RefCell::new(stream),
            tls: tls.map(|connection| RefCell::new(Tls::new(connection))),
            output: RefCell::default(),
            is_queued: Cell::new(false),
            waker: RefCell::default(),
        }
    }

    /// Notes whom to wake.
    #[inline]
    pub(crate) fn park(&self, waker: &Waker) {
        let mut parked = self.waker.borrow_mut();
        if !parked.as_ref().is_some_and(|parked| parked.will_wake(waker)) {
            *parked = Some(waker.clone());
        }
    }

    /// Wakes the connection if it waits.
    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Takes the buffer to which replies are appended; [`Self::put`] gives it
    /// back. Meanwhile there is nothing to send.
    pub(crate) fn take(&self, buffers: &BufferPool) -> Vec<u8> {
        let Output { mut bytes, sent } = self.output.take();
        if bytes.capacity() == 0 {
            return buffers.take();
        }
        bytes.drain(..sent);
        bytes
    }

    pub(crate) fn put(&self, bytes: Vec<u8>) {
        self.output.replace(Output { bytes, sent: 0 });
    }

    /// Whether the outbox is about to send.
    pub(crate) fn is_queued(&self) -> bool {
        self.is_queued.get()
    }

    /// Bytes that wait to be sent; what TLS still holds counts as one.
    pub(crate) fn pending(&self) -> usize {
        let output = self.output.borrow();
        let is_held = self.tls.as_ref().is_some_and(|tls| tls.borrow().wants_write());
        output.bytes.len() - output.sent + usize::from(is_held)
    }

    /// Sends as much as the socket takes.
    pub(crate) fn send(&self, buffers: &BufferPool, stats: &WorkerStats) -> io::Result<()> {
        let mut output = self.output.borrow_mut();
        let Output { bytes, sent } = &mut *output;
        let stream = self.stream.borrow();
        if let Some(tls) = &self.tls {
            let taken = tls.borrow_mut().write(&stream, &bytes[*sent..])?;
            *sent += taken;
            stats.bytes_out.add(taken as u64);
            return Self::sent(bytes, sent, buffers);
        }
        while *sent < bytes.len() {
            match stream.try_write(&bytes[*sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    *sent += written;
                    stats.bytes_out.add(written as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Self::sent(bytes, sent, buffers)
    }

    /// Lets go of what has been sent.
    fn sent(bytes: &mut Vec<u8>, sent: &mut usize, buffers: &BufferPool) -> io::Result<()> {
        if *sent == bytes.len() {
            *sent = 0;
            buffers.give(std::mem::take(bytes));
        } else if *sent > bytes.len() / 2 {
            // What has been sent moves out once it is the larger part, so a
            // byte is moved once on average.
            bytes.drain(..*sent);
            *sent = 0;
        }
        Ok(())
    }

    pub(crate) fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.borrow().poll_write_ready(context)
    }

    /// Tells the client that nothing more will be sent.
    pub(crate) fn poll_shutdown(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(tls) = &self.tls {
            tls.borrow_mut().close(&self.stream.borrow())?;
        }
        pin!(&mut *self.stream.borrow_mut()).poll_shutdown(context)
    }

    /// Reads what there is into `input`, for which `make_room` is called only
    /// when there is something.
    pub(crate) fn poll_read(
        &self,
        context: &mut Context<'_>,
        input: &mut Vec<u8>,
        make_room: impl FnOnce(&mut Vec<u8>),
    ) -> Poll<io::Result<usize>> {
        if let Some(tls) = &self.tls {
            return self.poll_read_tls(&mut tls.borrow_mut(), context, input, make_room);
        }
        let mut stream = self.stream.borrow_mut();
        ready!(stream.poll_read_ready(context))?;
        make_room(input);
        pin!(stream.read_buf(input)).poll(context)
    }

    /// The same through TLS, which may hold input that the socket no longer has.
    fn poll_read_tls(
        &self,
        tls: &mut Tls,
        context: &mut Context<'_>,
        input: &mut Vec<u8>,
        make_room: impl FnOnce(&mut Vec<u8>),
    ) -> Poll<io::Result<usize>> {
        let stream = self.stream.borrow();
        let mut make_room = Some(make_room);
        loop {
            if tls.wants_write() {
                // To be woken once it can be sent; whoever waits sends it.
                let _ = stream.poll_write_ready(context)?;
            }
            if !tls.is_closed() {
                ready!(stream.poll_read_ready(context))?;
            }
            if let Some(make_room) = make_room.take() {
                make_room(input);
            }
            match tls.read(&stream, input) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }
}

/// Sockets whose replies are sent once everybody has been served.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    queued: RefCell<Vec<Rc<Socket>>>,
    wake: Notify,
}

impl Outbox {
    pub(crate) fn push(&self, socket: &Rc<Socket>) {
        if socket.is_queued.replace(true) {
            return;
        }
        let mut queued = self.queued.borrow_mut();
        queued.push(socket.clone());
        if queued.len() == 1 {
            // The sending task goes to the end of the scheduler's queue, behind
            // all connections that are ready now.
            self.wake.notify_one();
        }
    }

    /// Sends for ever.
    pub(crate) async fn run(&self, buffers: &BufferPool, stats: &WorkerStats) {
        let mut sending = Vec::new();
        loop {
            self.wake.notified().await;
            std::mem::swap(&mut *self.queued.borrow_mut(), &mut sending);
            for socket in sending.drain(..) {
                socket.is_queued.set(false);
                let result = socket.send(buffers, stats);
                if result.is_err() || socket.pending() > 0 {
                    // The connection waits for room itself, or meets the error.
                    socket.wake();
                }
            }
        }
    }
}
