//! Buffers that the kernel receives into, and the ring by which it is given them.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU16, Ordering::Release};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;
use rustix::mm::{MapFlags, ProtFlags};

/// The only group of buffers of a ring.
pub(super) const GROUP: u16 = 0;

/// A mapping: first the ring of entries, then the buffers.
pub(super) struct ReceiveBuffers {
    map: NonNull<u8>,
    mapped: usize,
    count: u16,
    buffer_bytes: usize,
    tail: u16,
}

impl ReceiveBuffers {
    /// `count` is a power of two.
    pub(super) fn register(ring: &IoUring, count: u16, buffer_bytes: usize) -> io::Result<Self> {
        let mapped = Self::buffers_at(count) + usize::from(count) * buffer_bytes;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping is nobody else's.
        let map = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), mapped, access, flags) }?;
        let map = NonNull::new(map.cast()).expect("the kernel maps nothing at 0");
        let mut buffers = Self { map, mapped, count, buffer_bytes, tail: 0 };
        let entries = buffers.map.as_ptr() as u64;
        // SAFETY: the mapping stays until the ring is gone.
        unsafe { ring.submitter().register_buf_ring_with_flags(entries, count, GROUP, 0) }?;
        for id in 0..count {
            buffers.give_back(id);
        }
        Ok(buffers)
    }

    /// Where the buffers begin: on the page after the entries.
    fn buffers_at(count: u16) -> usize {
        (usize::from(count) * size_of::<BufRingEntry>()).next_multiple_of(4096)
    }

    fn buffer(&self, id: u16) -> NonNull<u8> {
        assert!(id < self.count, "the kernel chose buffer {id} of {}", self.count);
        let at = Self::buffers_at(self.count) + usize::from(id) * self.buffer_bytes;
        // SAFETY: it lies in the mapping.
        unsafe { self.map.add(at) }
    }

    /// What was received into a buffer that has not been given back.
    pub(super) fn get(&self, id: u16, count: usize) -> &[u8] {
        let count = count.min(self.buffer_bytes);
        // SAFETY: the kernel has written so many bytes, and does not touch the buffer
        // before it is given back, for which this borrow has to end.
        unsafe { std::slice::from_raw_parts(self.buffer(id).as_ptr(), count) }
    }

    /// Lets the kernel receive into a buffer.
    pub(super) fn give_back(&mut self, id: u16) {
        let address = self.buffer(id).as_ptr() as u64;
        let entries: *mut BufRingEntry = self.map.as_ptr().cast();
        let place = usize::from(self.tail & (self.count - 1));
        // SAFETY: the entry lies in the mapping, is aligned, and zeroes are a valid one;
        // the kernel does not read it before the tail has passed it.
        let entry = unsafe { &mut *entries.wrapping_add(place) };
        entry.set_addr(address);
        entry.set_len(self.buffer_bytes as u32);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the address of the first entry, which is initialised.
        let tail = unsafe { BufRingEntry::tail(entries) };
        // SAFETY: the tail is two aligned bytes that the kernel only reads.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        // Pairs with the kernel's acquiring load: it sees the entry.
        tail.store(self.tail, Release);
    }

    /// Leaves the mapping for ever.
    pub(super) fn leak(&mut self) {
        self.mapped = 0;
    }
}

impl Drop for ReceiveBuffers {
    fn drop(&mut self) {
        if self.mapped > 0 {
            // SAFETY: it was mapped with this size, and no operation uses it any more.
            let unmapped = unsafe { rustix::mm::munmap(self.map.as_ptr().cast(), self.mapped) };
            debug_assert!(unmapped.is_ok(), "a mapping of ours can be unmapped");
        }
    }
}
