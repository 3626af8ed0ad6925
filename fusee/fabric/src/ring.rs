//! Sockets through io_uring: one thread hands over what it wants sent and received
//! for many sockets by one system call.
//!
//! What the kernel works with belongs to the ring until its completion has come,
//! even when whoever asked for it is gone: bytes that are sent, the socket, and the
//! buffers that are received into. Linux 6.1 or newer; containers often forbid it
//! ([`SocketRing::new`] tells).

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use io_uring::types::{CancelBuilder, Fd};
use io_uring::{IoUring, cqueue, opcode, squeue};
use slab::Slab;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

mod buffers;

use buffers::ReceiveBuffers;

/// What one receive brings at most.
pub const RECEIVE_BYTES: usize = 16 * 1024;
/// Receives that may have completed and not been looked at; more are asked for again.
const RECEIVE_BUFFERS: u16 = 64;
/// Operations handed over by one system call; more take another.
const SUBMISSIONS: u32 = 512;
/// Completions that wait; what does not fit stays in the kernel.
const COMPLETIONS: u32 = 4096;
/// Does not try before the socket has told that there is something: a client that
/// has just got its reply has not sent its next request.
const POLL_FIRST: u16 = 1;
/// Each lets other threads run; a cancelled operation is over at once.
const ENDING_TURNS_MAX: u32 = 1000;
/// The completion of a cancellation, which says nothing.
const CANCELLED: u64 = u64::MAX;

/// The operations of one thread on its sockets. `S` owns a socket.
pub struct SocketRing<S> {
    ring: IoUring,
    buffers: ReceiveBuffers,
    operations: Slab<Operation<S>>,
    /// Is signalled when there is something to complete.
    signal: OwnedFd,
}

/// Tells when a ring has something to complete.
#[derive(Debug)]
pub struct Signal(AsyncFd<OwnedFd>);

impl Signal {
    /// Waits for what has come since the last wait. Nothing is read: an eventfd tells
    /// of each time that it is raised, and only that is of interest.
    ///
    /// # Errors
    ///
    /// If the runtime is ending.
    pub async fn raised(&self) -> io::Result<()> {
        self.0.readable().await?.clear_ready();
        Ok(())
    }
}

enum Operation<S> {
    Receive { socket: S },
    Send { socket: S, bytes: Vec<u8>, from: usize },
}

/// Something that the kernel is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OperationId(usize);

/// What has become of an operation.
#[derive(Debug)]
pub enum Completion<'a> {
    /// What a socket has received; nothing if its peer sends no more.
    Received(io::Result<&'a [u8]>),
    /// All receive buffers were in use: it has to be asked for again.
    NotReceived,
    /// The bytes of a send, where it began in them, and how many went from there.
    Sent {
        /// All bytes, as they were handed over.
        bytes: Vec<u8>,
        /// Of the first that this send was to send.
        from: usize,
        /// How many were sent.
        result: io::Result<usize>,
    },
}

/// Whether sockets can be used through io_uring here.
///
/// On a thread of its own: when a ring is gone, the kernel interrupts what its thread
/// waits for once more, and a read with a time limit fails by that.
///
/// # Errors
///
/// As [`SocketRing::new`].
pub fn probe() -> io::Result<()> {
    let body = || SocketRing::<OwnedFd>::new().map(drop);
    let thread = std::thread::Builder::new().name("io-uring-probe".to_owned()).spawn(body)?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the probe ended before its time")))
}

impl<S: AsFd> SocketRing<S> {
    /// For this thread, which alone uses it.
    ///
    /// # Errors
    ///
    /// If the kernel is too old or forbids it (`ENOSYS`, `EPERM`, `EINVAL`).
    pub fn new() -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_clamp()
            .setup_cqsize(COMPLETIONS)
            .build(SUBMISSIONS)?;
        let signal = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        ring.submitter().register_eventfd(signal.as_raw_fd())?;
        let buffers = ReceiveBuffers::register(&ring, RECEIVE_BUFFERS, RECEIVE_BYTES)?;
        Ok(Self { ring, buffers, operations: Slab::new(), signal })
    }

    /// Tells when there is something to complete. Needs tokio's driver of I/O.
    ///
    /// # Errors
    ///
    /// If there are no more file descriptors, or the runtime takes none.
    pub fn signal(&self) -> io::Result<Signal> {
        let signal = self.signal.try_clone()?;
        // SAFETY: it owns its descriptor, and leaves it open as long as it lives.
        let signal = unsafe { AsyncFd::register_with_interest(signal, Interest::READABLE) }?;
        Ok(Signal(signal))
    }

    /// Receives once, when there is something.
    ///
    /// # Errors
    ///
    /// If the kernel takes no more operations.
    pub fn receive(&mut self, socket: S) -> io::Result<OperationId> {
        let fd = socket.as_fd().as_raw_fd();
        let id = self.operations.insert(Operation::Receive { socket });
        let entry = opcode::Recv::new(Fd(fd), std::ptr::null_mut(), RECEIVE_BYTES as u32)
            .ioprio(POLL_FIRST)
            .buf_group(buffers::GROUP)
            .build()
            .flags(squeue::Flags::BUFFER_SELECT);
        self.push(id, entry)
    }

    /// Sends `bytes[from..]`, or its beginning.
    ///
    /// # Errors
    ///
    /// If the kernel takes no more operations.
    pub fn send(&mut self, socket: S, bytes: Vec<u8>, from: usize) -> io::Result<OperationId> {
        let fd = socket.as_fd().as_raw_fd();
        let part = &bytes[from..];
        let (start, count) = (part.as_ptr(), part.len().try_into().unwrap_or(u32::MAX));
        let entry = opcode::Send::new(Fd(fd), start, count).flags(libc::MSG_NOSIGNAL).build();
        let id = self.operations.insert(Operation::Send { socket, bytes, from });
        self.push(id, entry)
    }

    /// Ends an operation soon; its completion comes as any other's. One that has
    /// completed is nothing to cancel, so `id` must not be older than that.
    ///
    /// # Errors
    ///
    /// If the kernel takes no more operations.
    pub fn cancel(&mut self, id: OperationId) -> io::Result<()> {
        let entry = opcode::AsyncCancel::new(id.0 as u64).build().user_data(CANCELLED);
        // SAFETY: the entry points to no memory.
        unsafe { self.push_entry(&entry) }
    }

    fn push(&mut self, id: usize, entry: squeue::Entry) -> io::Result<OperationId> {
        let entry = entry.user_data(id as u64);
        // SAFETY: the bytes and the socket of the entry are in `operations` until its
        // completion has been seen: a vector that is moved leaves its bytes in place.
        match unsafe { self.push_entry(&entry) } {
            Ok(()) => Ok(OperationId(id)),
            Err(error) => {
                self.operations.remove(id);
                Err(error)
            }
        }
    }

    /// # Safety
    ///
    /// What the entry points to must stay until its completion.
    unsafe fn push_entry(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: the caller promises it.
        if unsafe { self.ring.submission().push(entry) }.is_ok() {
            return Ok(());
        }
        self.enter()?;
        // SAFETY: as above.
        unsafe { self.ring.submission().push(entry) }
            .map_err(|_| io::Error::new(io::ErrorKind::WouldBlock, "the ring is full"))
    }

    /// Hands over what has been asked for, and lets the kernel do what is due; one
    /// system call, or none if there is nothing of both.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the call as a whole.
    pub fn submit(&mut self) -> io::Result<()> {
        let queue = self.ring.submission();
        let is_due = !queue.is_empty() || queue.taskrun() || queue.cq_overflow();
        drop(queue);
        if is_due { self.enter() } else { Ok(()) }
    }

    /// Looks at one completed operation; `None` if there is none.
    pub fn complete<T>(&mut self, look: impl FnOnce(S, Completion<'_>) -> T) -> Option<T> {
        loop {
            let entry = self.ring.completion().next()?;
            if entry.user_data() == CANCELLED {
                continue;
            }
            let id = usize::try_from(entry.user_data()).ok();
            let Some(operation) = id.and_then(|id| self.operations.try_remove(id)) else {
                continue;
            };
            let result = match entry.result() {
                count @ 0.. => Ok(count as usize),
                error => Err(io::Error::from_raw_os_error(-error)),
            };
            return Some(match operation {
                Operation::Send { socket, bytes, from } => {
                    look(socket, Completion::Sent { bytes, from, result })
                }
                Operation::Receive { socket } => {
                    let buffer = cqueue::buffer_select(entry.flags());
                    let done = match result {
                        Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                            look(socket, Completion::NotReceived)
                        }
                        Err(error) => look(socket, Completion::Received(Err(error))),
                        Ok(count) => {
                            let bytes = buffer.map_or(&[][..], |id| self.buffers.get(id, count));
                            look(socket, Completion::Received(Ok(bytes)))
                        }
                    };
                    if let Some(id) = buffer {
                        self.buffers.give_back(id);
                    }
                    done
                }
            });
        }
    }
}

impl<S> SocketRing<S> {
    fn enter(&self) -> io::Result<()> {
        match self.ring.submit() {
            Ok(_) => Ok(()),
            // What could not be handed over now is the next time.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Ends all operations and lets go of their sockets.
    pub fn end(&mut self) {
        let all = CancelBuilder::any();
        // That there is nothing to cancel is an error, too.
        let _ = self.ring.submitter().register_sync_cancel(None, all);
        for _ in 0..ENDING_TURNS_MAX {
            while let Some(entry) = self.ring.completion().next() {
                let id = usize::try_from(entry.user_data()).ok();
                drop(id.and_then(|id| self.operations.try_remove(id)));
            }
            if self.operations.is_empty() {
                return;
            }
            let _ = self.enter();
            std::thread::yield_now();
        }
    }
}

impl<S> Drop for SocketRing<S> {
    fn drop(&mut self) {
        // The kernel may not touch what is freed after this.
        self.end();
        if !self.operations.is_empty() {
            tracing::error!(
                operations = self.operations.len(),
                "the kernel does not let go of sockets; their memory is given up"
            );
            std::mem::forget(std::mem::take(&mut self.operations));
            self.buffers.leak();
        }
    }
}
