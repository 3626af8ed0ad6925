//! A client's socket and the replies that wait to be sent on it.
//!
//! Replies are not sent when they are written but when all connections whose
//! requests had arrived have been served: the kernel's sending path then runs
//! for one after another, which costs a tenth less than taking turns with the
//! receiving path, and clients wake up once.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use rustls::ServerConnection;
use tokio::io::{AsyncReadExt as _, AsyncWrite as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;

mod driver;
mod parked;
mod ring;
mod tls;

use crate::pool::BufferPool;
use crate::stats::WorkerStats;
pub(crate) use driver::Driver;
use parked::Parked;
use ring::RingSocket;
use tls::Tls;

/// One client's socket.
#[derive(Debug)]
pub(crate) struct Socket {
    wire: Wire,
    output: RefCell<Output>,
    /// Whether it waits in the worker's [`Outbox`].
    is_queued: Cell<bool>,
    /// Set while the connection waits for its socket.
    parked: Parked,
}

/// How bytes come and go.
#[derive(Debug)]
enum Wire {
    /// The kernel tells when the socket is ready.
    Polled { stream: RefCell<TcpStream>, tls: Option<Box<RefCell<Tls>>> },
    /// The kernel tells when it has sent or received.
    Ring(Rc<RingSocket>),
}

/// Replies, and how much of them has been sent.
#[derive(Debug, Default)]
struct Output {
    bytes: Vec<u8>,
    sent: usize,
}

impl Socket {
    /// Sockets that speak TLS are polled: sessions of it read and write by themselves.
    pub(crate) fn new(
        stream: TcpStream,
        tls: Option<ServerConnection>,
        driver: Option<&Rc<Driver>>,
    ) -> io::Result<Self> {
        let wire = match (driver, tls) {
            (Some(driver), None) => Wire::Ring(RingSocket::new(stream, driver.clone())?),
            (_, tls) => Wire::Polled {
                stream: RefCell::new(stream),
                tls: tls.map(|connection| Box::new(RefCell::new(Tls::new(connection)))),
            },
        };
        Ok(Self {
            wire,
            output: RefCell::default(),
            is_queued: Cell::new(false),
            parked: Parked::default(),
        })
    }

    /// Notes whom to wake.
    #[inline]
    pub(crate) fn park(&self, waker: &Waker) {
        self.parked.park(waker);
    }

    /// Wakes the connection if it waits.
    pub(crate) fn wake(&self) {
        self.parked.wake();
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
        let held = match &self.wire {
            Wire::Polled { tls, .. } => {
                usize::from(tls.as_ref().is_some_and(|tls| tls.borrow().wants_write()))
            }
            Wire::Ring(socket) => socket.in_flight(),
        };
        output.bytes.len() - output.sent + held
    }

    /// Whether its connection has to see to it that all is sent.
    fn wants_care(&self) -> bool {
        matches!(self.wire, Wire::Polled { .. }) && self.pending() > 0
    }

    /// Sends as much as the socket takes.
    pub(crate) fn send(&self, buffers: &BufferPool, stats: &WorkerStats) -> io::Result<()> {
        let mut output = self.output.borrow_mut();
        let Output { bytes, sent } = &mut *output;
        let (stream, tls) = match &self.wire {
            Wire::Polled { stream, tls } => (stream.borrow(), tls),
            Wire::Ring(socket) => {
                if *sent < bytes.len() && socket.send(bytes, *sent)? {
                    *sent = 0;
                }
                return Ok(());
            }
        };
        if let Some(tls) = tls {
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
        match &self.wire {
            Wire::Polled { stream, .. } => stream.borrow().poll_write_ready(context),
            Wire::Ring(socket) => socket.poll_write_ready(context),
        }
    }

    /// Whether nothing that the client has sent waits to be read, after
    /// [`Self::poll_read`] had nothing.
    pub(crate) fn is_drained(&self) -> bool {
        match &self.wire {
            Wire::Polled { .. } => true,
            Wire::Ring(socket) => socket.is_drained(),
        }
    }

    /// Lets go of the connection.
    pub(crate) fn close(&self) {
        if let Wire::Ring(socket) = &self.wire {
            socket.close();
        }
    }

    /// Tells the client that nothing more will be sent.
    pub(crate) fn poll_shutdown(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.wire {
            Wire::Polled { stream, tls } => {
                if let Some(tls) = tls {
                    tls.borrow_mut().close(&stream.borrow())?;
                }
                pin!(&mut *stream.borrow_mut()).poll_shutdown(context)
            }
            Wire::Ring(socket) => Poll::Ready(socket.shutdown()),
        }
    }

    /// Reads what there is into `input`, for which `make_room` is called only
    /// when there is something.
    pub(crate) fn poll_read(
        &self,
        context: &mut Context<'_>,
        input: &mut Vec<u8>,
        buffers: &BufferPool,
        make_room: impl FnOnce(&mut Vec<u8>),
    ) -> Poll<io::Result<usize>> {
        let (stream, tls) = match &self.wire {
            Wire::Polled { stream, tls } => (stream, tls),
            Wire::Ring(socket) => return socket.poll_read(context, input, buffers, make_room),
        };
        if let Some(tls) = tls {
            let (stream, tls) = (&stream.borrow(), &mut tls.borrow_mut());
            return Self::poll_read_tls(stream, tls, context, input, make_room);
        }
        let mut stream = stream.borrow_mut();
        ready!(stream.poll_read_ready(context))?;
        make_room(input);
        pin!(stream.read_buf(input)).poll(context)
    }

    /// The same through TLS, which may hold input that the socket no longer has.
    fn poll_read_tls(
        stream: &TcpStream,
        tls: &mut Tls,
        context: &mut Context<'_>,
        input: &mut Vec<u8>,
        make_room: impl FnOnce(&mut Vec<u8>),
    ) -> Poll<io::Result<usize>> {
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
            match tls.read(stream, input) {
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
    wake: Rc<Notify>,
}

impl Outbox {
    /// Sends and receives by io_uring for the worker whose outbox it is, on whose
    /// thread and in whose runtime this is called.
    ///
    /// # Errors
    ///
    /// If the kernel is too old or forbids it.
    pub(crate) fn driver(&self) -> io::Result<Rc<Driver>> {
        Driver::new(self.wake.clone()).map(Rc::new)
    }

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
            self.send_queued(&mut sending, buffers, stats);
        }
    }

    /// Sends and receives as long as the driver can.
    ///
    /// # Errors
    ///
    /// Why it cannot any more.
    pub(crate) async fn drive(
        &self,
        driver: &Driver,
        buffers: &BufferPool,
        stats: &WorkerStats,
    ) -> io::Result<Infallible> {
        let mut sending = Vec::new();
        loop {
            driver.wait().await?;
            loop {
                self.send_queued(&mut sending, buffers, stats);
                if !driver.turn(buffers, stats)? {
                    break;
                }
                // Those who have been woken come first.
                to_the_end().await;
            }
        }
    }

    fn send_queued(
        &self,
        sending: &mut Vec<Rc<Socket>>,
        buffers: &BufferPool,
        stats: &WorkerStats,
    ) {
        std::mem::swap(&mut *self.queued.borrow_mut(), sending);
        for socket in sending.drain(..) {
            socket.is_queued.set(false);
            let result = socket.send(buffers, stats);
            if result.is_err() || socket.wants_care() {
                // The connection waits for room itself, or meets the error.
                socket.wake();
            }
        }
    }
}

/// Lets every other task run that is ready, without looking for more first.
fn to_the_end() -> impl Future<Output = ()> {
    let mut has_waited = false;
    std::future::poll_fn(move |context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
}
