//! Asking for cache lines ahead of their use.
//!
//! A prefetch never faults and changes nothing that a program can see, so any
//! address will do.

/// Asks for the line at an address, to read it.
#[inline]
pub(crate) fn line_to_read<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch never faults.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) at, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}

/// Asks for the line at an address, to write it.
#[inline]
pub(crate) fn line_to_write<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, and where there is no PREFETCHW it does nothing.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(at.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch never faults.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) at, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}

/// Brings a value of one's own nearer, before it is read: an index into a large
/// table is known long before its entry is needed.
#[inline]
pub fn prefetch_read<T>(value: &T) {
    line_to_read(value);
}
