//! A worker's io_uring among the tasks of its runtime.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use fusee_fabric::ring::{OperationId, Signal, SocketRing};
use tokio::sync::Notify;

use super::ring::{Next, RingSocket};
use crate::pool::BufferPool;
use crate::stats::WorkerStats;

/// Hands over to the kernel what the sockets of one worker ask for, and tells them what
/// has become of it.
pub(crate) struct Driver {
    ring: RefCell<SocketRing<Rc<RingSocket>>>,
    signal: Signal,
    wake: Rc<Notify>,
    /// Whether `wake` has been notified since the last turn.
    is_told: Cell<bool>,
}

impl Driver {
    /// For the thread and the runtime that it is called in; `wake` makes its task run.
    pub(super) fn new(wake: Rc<Notify>) -> io::Result<Self> {
        let ring = SocketRing::new()?;
        let signal = ring.signal()?;
        Ok(Self { ring: RefCell::new(ring), signal, wake, is_told: Cell::new(false) })
    }

    /// Waits until there is something to hand over or to complete.
    pub(super) async fn wait(&self) -> io::Result<()> {
        tokio::select! {
            biased;
            () = self.wake.notified() => Ok(()),
            raised = self.signal.raised() => raised,
        }
    }

    /// Hands over and completes: one system call. True if something has been completed.
    pub(super) fn turn(&self, buffers: &BufferPool, stats: &WorkerStats) -> io::Result<bool> {
        self.is_told.set(false);
        let mut ring = self.ring.borrow_mut();
        ring.submit()?;
        let mut is_busy = false;
        while let Some(next) =
            ring.complete(|socket, completion| socket.completed(completion, buffers, stats))
        {
            is_busy = true;
            match next {
                Next::Nothing => {}
                Next::Send { socket, bytes, from } => {
                    let id = ring.send(socket.clone(), bytes, from)?;
                    socket.sends(id);
                }
                Next::Receive { socket } => {
                    let id = ring.receive(socket.clone())?;
                    socket.receives(id);
                }
            }
        }
        Ok(is_busy)
    }

    /// Asks for what a socket has to say next.
    pub(super) fn receive(&self, socket: Rc<RingSocket>) -> io::Result<OperationId> {
        self.tell();
        self.ring.borrow_mut().receive(socket)
    }

    /// Asks to send `bytes[from..]`.
    pub(super) fn send(
        &self,
        socket: Rc<RingSocket>,
        bytes: Vec<u8>,
        from: usize,
    ) -> io::Result<OperationId> {
        self.tell();
        self.ring.borrow_mut().send(socket, bytes, from)
    }

    pub(super) fn cancel(&self, id: OperationId) {
        self.tell();
        // A ring that takes nothing more is ending as a whole.
        let _ = self.ring.borrow_mut().cancel(id);
    }

    /// Lets go of all sockets.
    pub(crate) fn end(&self) {
        self.ring.borrow_mut().end();
    }

    fn tell(&self) {
        if !self.is_told.replace(true) {
            self.wake.notify_one();
        }
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}
