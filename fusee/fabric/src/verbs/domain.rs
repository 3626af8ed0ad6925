//! What belongs to an opened device: its protection domain, the memory that is
//! registered there, and its completion queues. Each owns the one that it is made
//! of, so nothing ends before what depends on it.

use super::library::Library;
use super::{Device, VerbsError, ffi};
use libc::{c_int, c_void};
use rustix::process::{Resource, getrlimit};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// An opened device.
#[derive(Debug)]
pub(crate) struct Opened {
    library: &'static Library,
    context: NonNull<ffi::Context>,
    name: String,
}

// SAFETY: libibverbs lets any thread use a context, and any number at a time.
unsafe impl Send for Opened {}
// SAFETY: as for Send.
unsafe impl Sync for Opened {}

impl Opened {
    /// Every device of the machine, opened or with the reason why not.
    pub(crate) fn all(
        library: &'static Library,
    ) -> Result<Vec<Result<Self, VerbsError>>, VerbsError> {
        let mut count: c_int = 0;
        // SAFETY: it writes how many there are, and returns an array of so many.
        let list = unsafe { (library.get_device_list)(&raw mut count) };
        if list.is_null() {
            let error = io::Error::last_os_error();
            // Without the kernel's modules there are no devices either.
            if error.raw_os_error() == Some(libc::ENOSYS) {
                return Err(VerbsError::NoDevice);
            }
            return Err(VerbsError::refused("libibverbs", "list the devices", &error));
        }
        // SAFETY: the array has so many devices until it is freed below.
        let devices = unsafe { std::slice::from_raw_parts(list, count.max(0) as usize) };
        let opened = devices.iter().map(|&device| Self::open(library, device)).collect();
        // SAFETY: no device of the list is used after this; contexts may outlive it.
        unsafe { (library.free_device_list)(list) };
        Ok(opened)
    }

    fn open(library: &'static Library, device: *mut ffi::Device) -> Result<Self, VerbsError> {
        // SAFETY: the device is of a list that was not freed yet.
        let name = unsafe { (library.get_device_name)(device) };
        // SAFETY: a device has a name, which ends with 0.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        // SAFETY: as above.
        let context = unsafe { (library.open_device)(device) };
        match NonNull::new(context) {
            Some(context) => Ok(Self { library, context, name }),
            None => Err(VerbsError::refused(&name, "open the device", &io::Error::last_os_error())),
        }
    }

    /// The device of this name, opened.
    pub(crate) fn named(name: &str) -> Result<Self, VerbsError> {
        for opened in Self::all(Library::get()?)? {
            match opened {
                Ok(opened) if opened.name == name => return Ok(opened),
                Err(VerbsError::Refused { device, what, reason }) if device == name => {
                    return Err(VerbsError::Refused { device, what, reason });
                }
                _ => {}
            }
        }
        Err(VerbsError::NoneFits { refused: vec![format!("{name} is gone")] })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn attributes(&self) -> Result<ffi::DeviceAttributes, VerbsError> {
        // SAFETY: numbers and arrays of numbers may be 0.
        let mut attributes: ffi::DeviceAttributes = unsafe { std::mem::zeroed() };
        // SAFETY: it fills a structure of this size.
        let error =
            unsafe { (self.library.query_device)(self.context.as_ptr(), &raw mut attributes) };
        self.check(error, "query the device").map(|()| attributes)
    }

    pub(crate) fn port(&self, number: u8) -> Result<ffi::PortAttributes, VerbsError> {
        // SAFETY: numbers may be 0, and the function leaves the last ones alone.
        let mut port: ffi::PortAttributes = unsafe { std::mem::zeroed() };
        // SAFETY: it fills at most a structure of this size.
        let error =
            unsafe { (self.library.query_port)(self.context.as_ptr(), number, &raw mut port) };
        self.check(error, "query a port").map(|()| port)
    }

    /// An entry of a port's table of GIDs, unless it is empty.
    pub(crate) fn gid(&self, port: u8, index: u32) -> Option<ffi::GidEntry> {
        // SAFETY: numbers may be 0.
        let mut entry: ffi::GidEntry = unsafe { std::mem::zeroed() };
        let size = size_of::<ffi::GidEntry>();
        // SAFETY: it fills a structure of the size that it is told.
        let error = unsafe {
            (self.library.query_gid_ex)(
                self.context.as_ptr(),
                port.into(),
                index,
                &raw mut entry,
                0,
                size,
            )
        };
        (error == 0).then_some(entry)
    }

    /// Functions return 0 or an errno.
    pub(crate) fn check(&self, error: c_int, what: &'static str) -> Result<(), VerbsError> {
        if error == 0 {
            return Ok(());
        }
        Err(VerbsError::refused(&self.name, what, &io::Error::from_raw_os_error(error)))
    }

    /// Functions return an address or set errno.
    fn check_made<T>(&self, made: *mut T, what: &'static str) -> Result<NonNull<T>, VerbsError> {
        NonNull::new(made)
            .ok_or_else(|| VerbsError::refused(&self.name, what, &io::Error::last_os_error()))
    }

    fn ops(&self) -> &ffi::ContextOps {
        // SAFETY: the context is open, and its functions do not change.
        unsafe { &(*self.context.as_ptr()).ops }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: everything that was made of it owned it, so nothing is left.
        let error = unsafe { (self.library.close_device)(self.context.as_ptr()) };
        debug_assert_eq!(error, 0, "an opened device can be closed");
    }
}

/// A protection domain: queue pairs and memory regions that belong together.
#[derive(Debug)]
pub(crate) struct Domain {
    pd: NonNull<ffi::ProtectionDomain>,
    opened: Opened,
}

// SAFETY: libibverbs lets any thread use a protection domain.
unsafe impl Send for Domain {}
// SAFETY: as for Send.
unsafe impl Sync for Domain {}

impl Domain {
    /// A new one on a device, which it opens for itself.
    pub(crate) fn new(device: &Device) -> Result<Arc<Self>, VerbsError> {
        let opened = Opened::named(&device.name)?;
        // SAFETY: the context is open.
        let pd = unsafe { (opened.library.alloc_pd)(opened.context.as_ptr()) };
        let pd = opened.check_made(pd, "make a protection domain")?;
        Ok(Arc::new(Self { pd, opened }))
    }

    pub(crate) fn opened(&self) -> &Opened {
        &self.opened
    }

    pub(crate) fn library(&self) -> &'static Library {
        self.opened.library
    }

    pub(crate) fn pd(&self) -> *mut ffi::ProtectionDomain {
        self.pd.as_ptr()
    }

    /// Waits for asynchronous events. Within a runtime.
    pub(crate) fn watch(self: &Arc<Self>) -> io::Result<AsyncFd<Arc<Self>>> {
        watch(self.clone())
    }

    /// The next asynchronous event, acknowledged: what it is about, and its kind.
    /// `None` if there is none now.
    pub(crate) fn async_event(&self) -> Option<(usize, c_int)> {
        let mut event = ffi::AsyncEvent { element: ptr::null_mut(), event_type: 0 };
        let context = self.opened.context.as_ptr();
        // SAFETY: it fills a structure of this size; the descriptor does not block.
        let error = unsafe { (self.opened.library.get_async_event)(context, &raw mut event) };
        if error != 0 {
            return None;
        }
        let seen = (event.element.addr(), event.event_type);
        // At once: what an event is about cannot be destroyed before.
        // SAFETY: the event was got and is acknowledged once.
        unsafe { (self.opened.library.ack_async_event)(&raw mut event) };
        Some(seen)
    }
}

impl AsRawFd for Domain {
    /// Readable when there are asynchronous events.
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: the context is open, and the descriptor does not change.
        unsafe { (*self.opened.context.as_ptr()).async_fd }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: everything that was made in it owned it, so nothing is left.
        let error = unsafe { (self.opened.library.dealloc_pd)(self.pd.as_ptr()) };
        debug_assert_eq!(error, 0, "an empty protection domain can be given back");
    }
}

/// Memory that a device may read and write.
#[derive(Debug)]
pub(crate) struct MemoryRegion {
    region: NonNull<ffi::MemoryRegion>,
    domain: Arc<Domain>,
}

// SAFETY: libibverbs lets any thread use a memory region.
unsafe impl Send for MemoryRegion {}
// SAFETY: as for Send.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// Registers memory, which locks it.
    ///
    /// # Safety
    ///
    /// The memory lives as long as the region, and whatever `access` allows to peers
    /// and to work requests is a use of it that the owner of the memory expects.
    pub(crate) unsafe fn register(
        domain: &Arc<Domain>,
        start: *mut c_void,
        bytes: usize,
        access: c_int,
    ) -> Result<Self, VerbsError> {
        // SAFETY: the caller's promise.
        let region = unsafe { (domain.opened.library.reg_mr)(domain.pd(), start, bytes, access) };
        let region = NonNull::new(region).ok_or_else(|| VerbsError::Register {
            bytes: bytes as u64,
            device: domain.opened.name.clone(),
            reason: io::Error::last_os_error().to_string(),
            locked_max: getrlimit(Resource::Memlock).current,
        })?;
        Ok(Self { region, domain: domain.clone() })
    }

    pub(crate) fn is_of(&self, domain: &Arc<Domain>) -> bool {
        Arc::ptr_eq(&self.domain, domain)
    }

    /// Its name in one's own work requests.
    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: the region was made by libibverbs and does not change.
        unsafe { (*self.region.as_ptr()).lkey }
    }

    /// Its name in a peer's work requests.
    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.region.as_ptr()).rkey }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: it was registered, and is not used after this.
        let error = unsafe { (self.domain.opened.library.dereg_mr)(self.region.as_ptr()) };
        debug_assert_eq!(error, 0, "a memory region can be deregistered");
    }
}

/// Where work requests complete, with the channel over which it wakes us.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    cq: NonNull<ffi::CompletionQueue>,
    channel: NonNull<ffi::CompletionChannel>,
    /// Events that were got and have to be acknowledged before the end.
    events: AtomicU32,
    domain: Arc<Domain>,
}

// SAFETY: libibverbs lets any thread use a completion queue.
unsafe impl Send for CompletionQueue {}
// SAFETY: as for Send.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// With room for so many completions.
    pub(crate) fn new(domain: &Arc<Domain>, entries: u32) -> Result<Arc<Self>, VerbsError> {
        let opened = &domain.opened;
        let context = opened.context.as_ptr();
        // SAFETY: the context is open.
        let channel = unsafe { (opened.library.create_comp_channel)(context) };
        let channel = opened.check_made(channel, "make a completion channel")?;
        // SAFETY: context and channel live as long as the queue.
        let cq = unsafe {
            (opened.library.create_cq)(
                context,
                entries as c_int,
                ptr::null_mut(),
                channel.as_ptr(),
                0,
            )
        };
        match opened.check_made(cq, "make a completion queue") {
            Ok(cq) => {
                let events = AtomicU32::new(0);
                Ok(Arc::new(Self { cq, channel, events, domain: domain.clone() }))
            }
            Err(error) => {
                // SAFETY: no queue is on it.
                unsafe { (opened.library.destroy_comp_channel)(channel.as_ptr()) };
                Err(error)
            }
        }
    }

    pub(crate) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    pub(crate) fn cq(&self) -> *mut ffi::CompletionQueue {
        self.cq.as_ptr()
    }

    /// Takes completions, as many as there are and find room; how many.
    #[inline]
    pub(crate) fn poll(
        &self,
        completions: &mut [ffi::WorkCompletion],
    ) -> Result<usize, VerbsError> {
        let poll = self.domain.opened.ops().poll_cq;
        // SAFETY: it writes at most so many completions.
        let taken =
            unsafe { poll(self.cq(), completions.len() as c_int, completions.as_mut_ptr()) };
        usize::try_from(taken).map_err(|_| {
            let error = io::Error::from_raw_os_error(-taken);
            VerbsError::refused(self.domain.opened.name(), "poll completions", &error)
        })
    }

    /// Asks for an event at the next completion.
    pub(crate) fn arm(&self) -> Result<(), VerbsError> {
        let arm = self.domain.opened.ops().req_notify_cq;
        // SAFETY: the queue has a channel.
        let error = unsafe { arm(self.cq(), 0) };
        self.domain.opened.check(error, "ask for an event")
    }

    /// Waits for events. Within a runtime.
    pub(crate) fn watch(self: &Arc<Self>) -> io::Result<AsyncFd<Arc<Self>>> {
        watch(self.clone())
    }

    /// Takes an event off the channel; `false` if there is none.
    pub(crate) fn take_event(&self) -> bool {
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: it writes two addresses; the descriptor does not block.
        let error = unsafe {
            (self.domain.opened.library.get_cq_event)(
                self.channel.as_ptr(),
                &raw mut cq,
                &raw mut context,
            )
        };
        if error == 0 {
            self.events.fetch_add(1, Relaxed);
        }
        error == 0
    }
}

impl AsRawFd for CompletionQueue {
    /// Readable when there are events.
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: the channel is there, and the descriptor does not change.
        unsafe { (*self.channel.as_ptr()).fd }
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        let library = self.domain.opened.library;
        // Acknowledging takes a lock, so it is done once for all; destroying waits
        // for it.
        // SAFETY: so many events of this queue were got.
        unsafe { (library.ack_cq_events)(self.cq(), *self.events.get_mut()) };
        // SAFETY: queue pairs own their completion queue, so none is on it.
        let error = unsafe { (library.destroy_cq)(self.cq()) };
        debug_assert_eq!(error, 0, "a completion queue without queue pairs can be destroyed");
        // SAFETY: its only queue is gone.
        let error = unsafe { (library.destroy_comp_channel)(self.channel.as_ptr()) };
        debug_assert_eq!(error, 0, "a channel without queues can be destroyed");
    }
}

/// Watches a descriptor, which from then on does not block.
fn watch<T: AsRawFd>(source: Arc<T>) -> io::Result<AsyncFd<Arc<T>>> {
    // SAFETY: the descriptor is open as long as its source, which is borrowed.
    let descriptor = unsafe { BorrowedFd::borrow_raw(source.as_raw_fd()) };
    let flags = rustix::fs::fcntl_getfl(descriptor)?;
    rustix::fs::fcntl_setfl(descriptor, flags | rustix::fs::OFlags::NONBLOCK)?;
    // SAFETY: called for the two types of this file that have descriptors, which are
    // open and the same as long as their owners live.
    Ok(unsafe { AsyncFd::register_with_interest(source, Interest::READABLE) }?)
}
