// SPDX-License-Identifier: Apache-2.0
//! A hint to the processor that a cache line will be read soon.
//!
//! Why `unsafe` is needed: the standard library offers the prefetch instruction only as an unsafe
//! intrinsic on raw pointers. Looking up a batch of packets gains from it because each lookup is a
//! chain of two cache misses (index bucket, entry) that are independent between packets.

/// Prefetches the cache line in which `value` starts. Does nothing on processors without such an instruction.
#[inline]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of every x86-64, the instruction neither faults nor writes, and the
        // pointer comes from a live reference.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(value).cast::<i8>()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// Prefetches all cache lines of `value`, which begins at one.
#[inline]
pub(crate) fn prefetch_lines<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        const LINE: usize = 64;
        let first = core::ptr::from_ref(value).cast::<i8>();
        for line in 0..size_of::<T>().div_ceil(LINE) {
            // SAFETY: as above; the address lies within the value, as its last line begins before its end.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(first.add(line * LINE)) }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
