//! A stretch of memory that clients share: mapped, lazily committed, on huge
//! pages where the system has any.
//!
//! Why this is sound. Nobody ever holds a `&[u8]`, a `&mut` or a plain pointer
//! into the mapping: it is handed out only as `&[AtomicU64]`, and only inside
//! this crate, so that every access is an atomic one of a whole word (see
//! `word.rs`). Any bit pattern is an `AtomicU64`, the kernel gives zeroes, and the
//! mapping lives as long as the [`Memory`] that the borrow is of. A file that
//! another process could shrink would take pages away from under us (SIGBUS), so
//! ours are sealed against shrinking and [`Memory::attach`] takes no other.

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

/// What pages lie under a memory: a probe misses the TLB far more often on
/// small ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Pages of 2 MiB that were set aside at boot or by `vm.nr_hugepages`.
    HugeTlb,
    /// The kernel makes huge pages where it finds room.
    TransparentHuge,
    /// Pages of 4 KiB: reserve huge pages or allow transparent ones to be faster.
    Small,
}

/// Memory of one memory node.
#[derive(Debug)]
pub struct Memory {
    words: NonNull<AtomicU64>,
    count: usize,
    map: NonNull<c_void>,
    mapped: usize,
    backing: Backing,
    file: Option<OwnedFd>,
}

// SAFETY: the mapping belongs to the process, not to a thread, and all that is
// ever done to it is by atomics.
unsafe impl Send for Memory {}
// SAFETY: as for Send.
unsafe impl Sync for Memory {}

const HUGE_PAGE_BYTES: usize = 2 << 20;
/// As many as Linux can be built for.
const NUMA_NODES_MAX: usize = 1024;

impl Memory {
    /// For several processes: a memfd, on reserved huge pages if there are
    /// enough, otherwise on what the kernel gives.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn shared(bytes: usize, name: &str) -> io::Result<Self> {
        if let Ok(memory) = Self::huge(bytes, name) {
            return Ok(memory);
        }
        let file = memfd(bytes, name, MemfdFlags::empty())?;
        let mut memory = Self::map(bytes, 0, Some(file), MapFlags::SHARED | MapFlags::NORESERVE)?;
        memory.ask_for_huge_pages("shmem_enabled", &["always", "within_size", "advise", "force"]);
        Ok(memory)
    }

    /// For the threads of this process.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn private(bytes: usize) -> io::Result<Self> {
        // Huge pages need a start of their alignment.
        let align = if bytes >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { 0 };
        let mut memory = Self::map(bytes, align, None, MapFlags::PRIVATE | MapFlags::NORESERVE)?;
        memory.ask_for_huge_pages("enabled", &["always", "madvise"]);
        Ok(memory)
    }

    /// For the threads of this process: reserved huge pages if there are enough,
    /// otherwise private memory, which gets transparent ones where files do not.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn embedded(bytes: usize, name: &str) -> io::Result<Self> {
        Self::huge(bytes, name).or_else(|_| Self::private(bytes))
    }

    /// The memory behind a file that another process got from [`Memory::file`].
    ///
    /// # Errors
    ///
    /// If the file is not sealed against shrinking, or the system refuses.
    pub fn attach(file: OwnedFd) -> io::Result<Self> {
        if !rustix::fs::fcntl_get_seals(&file)?.contains(SealFlags::SHRINK) {
            return Err(io::Error::other("the memory's file may shrink: it has no seal"));
        }
        let bytes = usize::try_from(rustix::fs::fstat(&file)?.st_size).map_err(io::Error::other)?;
        let page = rustix::fs::fstatfs(&file)?.f_bsize as usize;
        let mut memory = Self::map(bytes, 0, Some(file), MapFlags::SHARED | MapFlags::NORESERVE)?;
        if page >= HUGE_PAGE_BYTES {
            memory.backing = Backing::HugeTlb;
        } else {
            memory
                .ask_for_huge_pages("shmem_enabled", &["always", "within_size", "advise", "force"]);
        }
        Ok(memory)
    }

    /// On reserved huge pages, or not at all: mapping reserves them, so that no
    /// touch fails later.
    fn huge(bytes: usize, name: &str) -> io::Result<Self> {
        let bytes = bytes.next_multiple_of(HUGE_PAGE_BYTES);
        let file = memfd(bytes, name, MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB)?;
        let mut memory = Self::map(bytes, 0, Some(file), MapFlags::SHARED)?;
        memory.backing = Backing::HugeTlb;
        Ok(memory)
    }

    fn map(bytes: usize, align: usize, file: Option<OwnedFd>, flags: MapFlags) -> io::Result<Self> {
        let mapped = bytes
            .checked_add(align)
            .filter(|_| bytes > 0)
            .ok_or_else(|| io::Error::other("a memory of no such size can be"))?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let map = match &file {
            // SAFETY: the kernel chooses the place, so nothing else is there.
            Some(file) => unsafe {
                rustix::mm::mmap(ptr::null_mut(), mapped, access, flags, file, 0)
            },
            // SAFETY: as above.
            None => unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), mapped, access, flags) },
        }?;
        let skip = if align > 0 { map.align_offset(align) } else { 0 };
        Ok(Self {
            words: NonNull::new(map.wrapping_byte_add(skip).cast())
                .expect("the kernel maps nothing at 0"),
            count: bytes / 8,
            map: NonNull::new(map).expect("the kernel maps nothing at 0"),
            mapped,
            backing: Backing::Small,
            file,
        })
    }

    fn ask_for_huge_pages(&mut self, setting: &str, enough: &[&str]) {
        let start = self.words.as_ptr().cast();
        // SAFETY: the advice changes no content, and the range is ours.
        let advised =
            unsafe { rustix::mm::madvise(start, self.count * 8, Advice::LinuxHugepage) }.is_ok();
        let path = format!("/sys/kernel/mm/transparent_hugepage/{setting}");
        let settings = std::fs::read_to_string(path).unwrap_or_default();
        let chosen = settings.split('[').nth(1).and_then(|rest| rest.split(']').next());
        if advised && chosen.is_some_and(|chosen| enough.contains(&chosen)) {
            self.backing = Backing::TransparentHuge;
        }
    }

    /// Asks for pages near the processors of a NUMA node, as long as that node has
    /// any. Pages that were touched before stay where they are.
    ///
    /// # Errors
    ///
    /// If there is no such node, or the system knows of none at all.
    pub fn prefer_numa_node(&self, node: u16) -> io::Result<()> {
        let mut mask = [0u64; NUMA_NODES_MAX / 64];
        let word = mask.get_mut(usize::from(node) / 64);
        *word.ok_or_else(|| io::Error::other("no system has so many NUMA nodes"))? |=
            1 << (node % 64);
        let bytes = self.count * 8;
        let (start, mask) = (self.words.as_ptr(), mask.as_ptr());
        // SAFETY: the policy says which pages will be taken, and changes no content;
        // the range is ours, and the kernel only reads the mask, during the call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                start,
                bytes,
                libc::MPOL_PREFERRED,
                mask,
                NUMA_NODES_MAX,
                0,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// How many bytes it has, a multiple of 8.
    pub fn bytes(&self) -> u64 {
        self.count as u64 * 8
    }

    /// What lies under it.
    pub fn backing(&self) -> Backing {
        self.backing
    }

    /// The file, to be passed to another process. Private memory has none.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// All words.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: so many aligned words are mapped until self is dropped, zeroes
        // at first, and touched by atomics alone.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }

    /// The word that holds the byte at `offset`, if there is one.
    #[inline]
    pub(crate) fn word(&self, offset: u64) -> Option<&AtomicU64> {
        self.words().get(usize::try_from(offset / 8).ok()?)
    }

    /// So many words from the one at `offset` on, if they are all there.
    #[inline]
    pub(crate) fn range(&self, offset: u64, words: usize) -> Option<&[AtomicU64]> {
        let from = usize::try_from(offset / 8).ok()?;
        self.words().get(from..from.checked_add(words)?)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this size, and every borrow of it has ended.
        let unmapped = unsafe { rustix::mm::munmap(self.map.as_ptr(), self.mapped) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours can be unmapped");
    }
}

fn memfd(bytes: usize, name: &str, flags: MemfdFlags) -> io::Result<OwnedFd> {
    let flags = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create(name, flags)?;
    rustix::fs::ftruncate(&file, bytes as u64)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::SeqCst;

    #[test]
    fn memory_begins_as_zeroes_and_keeps_what_is_stored() {
        let bytes = 5 << 20;
        let made = [
            Memory::private(bytes).unwrap(),
            Memory::shared(bytes, "test").unwrap(),
            Memory::embedded(bytes, "test").unwrap(),
        ];
        for memory in made {
            assert!(memory.bytes() >= bytes as u64);
            for offset in [0, 4096, bytes as u64 - 8] {
                let word = memory.word(offset).unwrap();
                assert_eq!(word.swap(offset + 1, SeqCst), 0);
                assert_eq!(memory.range(offset, 1).unwrap()[0].load(SeqCst), offset + 1);
            }
            let end = memory.bytes();
            assert!(memory.word(end).is_none());
            assert!(memory.range(end - 8, 2).is_none());
            assert!(memory.range(8, usize::MAX).is_none());
        }
    }

    #[test]
    fn memory_is_not_committed_before_it_is_touched() {
        let memory = Memory::private(1 << 36).unwrap();
        memory.word((1 << 36) - 8).unwrap().store(1, SeqCst);
    }

    #[test]
    fn another_process_attaches_the_same_memory() {
        let ours = Memory::shared(1 << 20, "test").unwrap();
        let file = ours.file().unwrap().try_clone_to_owned().unwrap();
        let theirs = Memory::attach(file).unwrap();
        assert_eq!((theirs.bytes(), theirs.backing()), (ours.bytes(), ours.backing()));
        ours.word(4096).unwrap().store(7, SeqCst);
        assert_eq!(theirs.word(4096).unwrap().load(SeqCst), 7);
    }

    #[test]
    fn a_file_that_could_shrink_is_refused() {
        let file = rustix::fs::memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, 4096).unwrap();
        assert!(Memory::attach(file).unwrap_err().to_string().contains("shrink"));
        let ours = Memory::shared(1 << 20, "test").unwrap();
        assert!(rustix::fs::ftruncate(ours.file().unwrap(), 4096).is_err());
    }

    #[test]
    fn pages_come_from_a_numa_node_that_is_there() {
        let memory = Memory::shared(4 << 20, "test").unwrap();
        match memory.prefer_numa_node(0) {
            Ok(()) => memory.word(1 << 20).unwrap().store(1, SeqCst),
            // A kernel without NUMA has no such call.
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOSYS)),
        }
        assert!(memory.prefer_numa_node(1000).is_err());
        assert!(memory.prefer_numa_node(u16::MAX).is_err());
    }

    #[test]
    fn no_memory_at_all_is_an_error() {
        assert!(Memory::private(0).is_err());
        assert!(Memory::private(usize::MAX).is_err());
        assert!(Memory::private(usize::MAX / 2).is_err());
    }

    #[test]
    fn what_lies_under_private_memory_is_told_as_the_system_sets_it() {
        let settings = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        let never = settings.is_ok_and(|text| text.contains("[never]"));
        let backing = Memory::private(64 << 20).unwrap().backing();
        if never {
            assert_eq!(backing, Backing::Small);
        } else {
            assert_eq!(backing, Backing::TransparentHuge);
        }
    }
}
