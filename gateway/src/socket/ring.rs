//! Sockets that the worker's io_uring sends and receives for.
//!
//! A connection asks for input when it has read all, and the outbox hands over what
//! has been written; both wait until everybody has been served, and go to the kernel
//! by one system call.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll};

use fusee_fabric::ring::{Completion, OperationId, RECEIVE_BYTES};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown};
use tokio::net::TcpStream;

use super::driver::Driver;
use super::parked::Parked;
use crate::pool::BufferPool;
use crate::stats::WorkerStats;

/// A socket of the ring's.
pub(crate) struct RingSocket {
    fd: OwnedFd,
    driver: Rc<Driver>,
    /// What has been received and not been read.
    arrived: RefCell<Vec<u8>>,
    /// Whether the kernel may hold more, since it filled a buffer.
    may_have_more: Cell<bool>,
    /// The client sends no more.
    is_over: Cell<bool>,
    /// Why it broke, as the kernel's number.
    broken: Cell<Option<i32>>,
    receiving: Cell<Option<OperationId>>,
    sending: Cell<Option<OperationId>>,
    /// Bytes that are being sent.
    in_flight: Cell<usize>,
    /// Whether the connection wants to know when there is room again.
    wants_room: Cell<bool>,
    parked: Parked,
}

/// What a completion leads to.
pub(super) enum Next {
    Nothing,
    Send { socket: Rc<RingSocket>, bytes: Vec<u8>, from: usize },
    Receive { socket: Rc<RingSocket> },
}

impl AsFd for RingSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl RingSocket {
    pub(super) fn new(stream: TcpStream, driver: Rc<Driver>) -> io::Result<Rc<Self>> {
        let stream = stream.into_std()?;
        // The ring waits by itself; for a socket that does not wait it would not.
        stream.set_nonblocking(false)?;
        Ok(Rc::new(Self {
            fd: stream.into(),
            driver,
            arrived: RefCell::default(),
            may_have_more: Cell::new(false),
            is_over: Cell::new(false),
            broken: Cell::new(None),
            receiving: Cell::new(None),
            sending: Cell::new(None),
            in_flight: Cell::new(0),
            wants_room: Cell::new(false),
            parked: Parked::default(),
        }))
    }

    pub(super) fn sends(&self, id: OperationId) {
        self.sending.set(Some(id));
    }

    pub(super) fn receives(&self, id: OperationId) {
        self.receiving.set(Some(id));
    }

    fn check(&self) -> io::Result<()> {
        self.broken.get().map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(code)))
    }

    /// Bytes that are being sent.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.get()
    }

    /// Begins to send, unless it sends already. True if it took the bytes.
    pub(super) fn send(self: &Rc<Self>, bytes: &mut Vec<u8>, from: usize) -> io::Result<bool> {
        self.check()?;
        if self.sending.get().is_some() {
            self.wants_room.set(true);
            return Ok(false);
        }
        self.in_flight.set(bytes.len() - from);
        self.sends(self.driver.send(self.clone(), std::mem::take(bytes), from)?);
        Ok(true)
    }

    pub(super) fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        if self.sending.get().is_none() {
            return Poll::Ready(Ok(()));
        }
        self.wants_room.set(true);
        self.parked.park(context.waker());
        Poll::Pending
    }

    pub(super) fn poll_read(
        self: &Rc<Self>,
        context: &mut Context<'_>,
        input: &mut Vec<u8>,
        buffers: &BufferPool,
        make_room: impl FnOnce(&mut Vec<u8>),
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        let mut arrived = self.arrived.borrow_mut();
        if !arrived.is_empty() {
            let count = arrived.len();
            let mut bytes = std::mem::take(&mut *arrived);
            if input.capacity() == 0 {
                *input = bytes;
            } else {
                make_room(input);
                input.append(&mut bytes);
                buffers.give(bytes);
            }
            return Poll::Ready(Ok(count));
        }
        if self.may_have_more.get() {
            make_room(input);
            match self.read_on(input)? {
                Some(0) => self.is_over.set(true),
                Some(count) => return Poll::Ready(Ok(count)),
                None => {}
            }
        }
        if self.is_over.get() {
            return Poll::Ready(Ok(0));
        }
        self.parked.park(context.waker());
        if self.receiving.get().is_none() {
            self.receives(self.driver.receive(self.clone())?);
        }
        Poll::Pending
    }

    /// Reads what more there is of something large, if there is more.
    fn read_on(&self, input: &mut Vec<u8>) -> io::Result<Option<usize>> {
        loop {
            let room = input.capacity() - input.len();
            let read = rustix::net::recv(
                &self.fd,
                rustix::buffer::spare_capacity(input),
                RecvFlags::DONTWAIT,
            );
            match read {
                Ok((_, count)) => {
                    self.may_have_more.set(count == room && count > 0);
                    return Ok(Some(count));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.may_have_more.set(false);
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether the kernel holds nothing that the client has sent.
    pub(super) fn is_drained(&self) -> bool {
        self.arrived.borrow().is_empty()
            && rustix::io::ioctl_fionread(&self.fd).is_ok_and(|n| n == 0)
    }

    /// Tells the client that nothing more will be sent.
    pub(super) fn shutdown(&self) -> io::Result<()> {
        match rustix::net::shutdown(&self.fd, Shutdown::Write) {
            Ok(()) | Err(Errno::NOTCONN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes back what the kernel has been asked for, so that it lets go of the socket.
    pub(super) fn close(&self) {
        for id in [self.receiving.take(), self.sending.take()].into_iter().flatten() {
            self.driver.cancel(id);
        }
    }

    /// Takes what has become of an operation.
    pub(super) fn completed(
        self: Rc<Self>,
        completion: Completion<'_>,
        buffers: &BufferPool,
        stats: &WorkerStats,
    ) -> Next {
        match completion {
            Completion::Received(Ok(bytes)) => {
                self.receiving.set(None);
                if bytes.is_empty() {
                    self.is_over.set(true);
                } else {
                    let mut arrived = self.arrived.borrow_mut();
                    if arrived.capacity() == 0 {
                        *arrived = buffers.take();
                    }
                    arrived.extend_from_slice(bytes);
                    self.may_have_more.set(bytes.len() == RECEIVE_BYTES);
                }
                self.parked.wake();
                Next::Nothing
            }
            Completion::NotReceived if self.receiving.get().is_some() => {
                Next::Receive { socket: self }
            }
            Completion::NotReceived => Next::Nothing,
            Completion::Received(Err(error)) => {
                if self.receiving.take().is_some() {
                    self.fail(&error);
                }
                Next::Nothing
            }
            Completion::Sent { bytes, from, result } => {
                let is_wanted = self.sending.take().is_some();
                match result {
                    Ok(count) => {
                        stats.bytes_out.add(count as u64);
                        let left = bytes.len() - from - count;
                        self.in_flight.set(left);
                        if left > 0 && is_wanted {
                            self.tell_room();
                            return Next::Send { socket: self, bytes, from: from + count };
                        }
                        buffers.give(bytes);
                        self.tell_room();
                    }
                    Err(error) => {
                        self.in_flight.set(0);
                        if is_wanted {
                            self.fail(&error);
                        }
                    }
                }
                Next::Nothing
            }
        }
    }

    fn tell_room(&self) {
        if self.wants_room.replace(false) {
            self.parked.wake();
        }
    }

    fn fail(&self, error: &io::Error) {
        self.broken.set(error.raw_os_error().or(Some(Errno::IO.raw_os_error())));
        self.parked.wake();
    }
}

impl std::fmt::Debug for RingSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RingSocket").field("fd", &self.fd).finish_non_exhaustive()
    }
}
