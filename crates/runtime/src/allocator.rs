// SPDX-License-Identifier: Apache-2.0
//! The allocator, and its settings for returning memory to the system.
//!
//! Transactions of application protocols are many small blocks of memory, allocated and freed in the order of
//! the traffic: mimalloc is fast with those. By default it keeps free pages for a second, and requests huge
//! pages, which count whole however little of them is used. Under a flood that makes the process larger than
//! the sum of its bounds (docs/limits.md). So free pages are returned soon, address space is reserved in
//! smaller pieces, and huge pages are left to the system's settings (the feature `no_thp`).

use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_int, c_long, c_void};

/// The allocator of the tests, which count allocations. A program declares its own.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// The allocator that the product is measured with: a program makes it its `#[global_allocator]`.
///
/// It calls mimalloc directly where it can: crate `mimalloc` passes an alignment each time, which takes twice
/// as many instructions, although every block of mimalloc lies at a multiple of `ALWAYS`.
pub struct Allocator;

/// Alignment of every block of mimalloc, whatever its size (its documentation: 8 bytes, 16 from 16 bytes on).
const ALWAYS: usize = 8;

// SAFETY: all memory is mimalloc's: what one of its functions gave, each other takes back or makes larger.
// The short functions keep what `GlobalAlloc` asks for: blocks of at least the size, at a multiple of the
// alignment, which is `ALWAYS` at most.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        #[cfg(test)]
        counted::more(layout.size());
        if layout.align() <= ALWAYS {
            // SAFETY: takes any size.
            return unsafe { mi_malloc(layout.size()) }.cast();
        }
        // SAFETY: the caller's word.
        unsafe { MiMalloc.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        #[cfg(test)]
        counted::more(layout.size());
        if layout.align() <= ALWAYS {
            // SAFETY: takes any size.
            return unsafe { mi_zalloc(layout.size()) }.cast();
        }
        // SAFETY: the caller's word.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        #[cfg(test)]
        counted::less(layout.size());
        // SAFETY: the caller's word.
        unsafe { MiMalloc.dealloc(at, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        #[cfg(test)]
        {
            counted::less(layout.size());
            counted::more(size);
        }
        if layout.align() <= ALWAYS {
            // SAFETY: the block is mimalloc's, by the caller's word.
            return unsafe { mi_realloc(at.cast(), size) }.cast();
        }
        // SAFETY: the caller's word.
        unsafe { MiMalloc.realloc(at, layout, size) }
    }
}

/// `mi_option_purge_delay`: milliseconds after which free pages are returned to the system.
const PURGE_DELAY: (c_int, c_long) = (15, 100);
/// `mi_option_arena_reserve`: KiB of address space that are reserved at a time; more from the ninth on.
const ARENA_RESERVE: (c_int, c_long) = (23, 128 << 10);

unsafe extern "C" {
    /// Allocates a block at a multiple of [`ALWAYS`]; null where there is no memory.
    fn mi_malloc(size: usize) -> *mut c_void;
    /// `mi_malloc` with the block filled with zeros.
    fn mi_zalloc(size: usize) -> *mut c_void;
    /// Makes a block larger or smaller; null, with the block unchanged, where there is no memory.
    fn mi_realloc(at: *mut c_void, size: usize) -> *mut c_void;
    /// Part of mimalloc's documented interface; settings in the environment (`MIMALLOC_PURGE_DELAY` ...) take
    /// precedence.
    fn mi_option_set_default(option: c_int, value: c_long);
    /// Part of the same interface; `force`: also blocks that were freed just now.
    fn mi_collect(force: bool);
}

/// Configures the allocator; called when the program begins.
pub fn set_up() {
    for (option, value) in [PURGE_DELAY, ARENA_RESERVE] {
        // SAFETY: it takes plain numbers, and stores the value in a static table of the library; numbers of
        // options that do not exist are ignored. No other thread runs yet that could read the table
        // meanwhile.
        unsafe { mi_option_set_default(option, value) };
    }
}

/// Returns free pages to the system: those of the calling thread, and those that no thread uses. Called after
/// a large release, by the thread that freed the memory. Takes milliseconds.
pub fn release_free_pages() {
    // SAFETY: it touches only what is free; other threads may allocate meanwhile.
    unsafe { mi_collect(true) };
    // SAFETY: as above. Libraries (libhs, PCRE2) allocate with the C library.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Count of allocated bytes, for tests of memory use.
#[cfg(test)]
pub mod counted {
    use std::sync::atomic::{AtomicI64, Ordering};

    static LIVE: AtomicI64 = AtomicI64::new(0);

    /// Counts bytes that were allocated.
    pub fn more(bytes: usize) {
        LIVE.fetch_add(bytes as i64, Ordering::Relaxed);
    }

    /// Counts bytes that were freed.
    pub fn less(bytes: usize) {
        LIVE.fetch_sub(bytes as i64, Ordering::Relaxed);
    }

    /// Bytes requested and not freed, by all threads; requests of C libraries are not included.
    pub fn live() -> i64 {
        LIVE.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        fn mi_option_get(option: c_int) -> c_long;
    }

    fn value(option: c_int) -> c_long {
        // SAFETY: as above.
        unsafe { mi_option_get(option) }
    }

    #[test]
    fn blocks_lie_where_they_are_asked_to() {
        let mut blocks = Vec::new();
        for size in (1..200).chain([1 << 10, 1 << 16, 1 << 21]) {
            for align in [1, 2, 4, 8, 16, 64, 4096] {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: the size is not 0; what is written lies in the block, which goes back once, as it
                // was asked for.
                unsafe {
                    let at = Allocator.alloc(layout);
                    assert!(!at.is_null() && at.addr().is_multiple_of(align), "{size} {align}");
                    at.write_bytes(0xa5, size);
                    let at = Allocator.realloc(at, layout, size + 24);
                    assert!(
                        !at.is_null() && at.addr().is_multiple_of(align) && at.add(size - 1).read() == 0xa5
                    );
                    let zeros = Allocator.alloc_zeroed(layout);
                    assert!(zeros.addr().is_multiple_of(align) && zeros.read() == 0);
                    assert_eq!(zeros.add(size - 1).read(), 0);
                    Allocator.dealloc(zeros, layout);
                    blocks.push((at, Layout::from_size_align(size + 24, align).unwrap()));
                }
            }
        }
        // SAFETY: as above.
        blocks.into_iter().for_each(|(at, layout)| unsafe { Allocator.dealloc(at, layout) });
    }

    #[test]
    fn options_are_those_that_are_meant() {
        // The option numbers are those of one version of the library: its own defaults show whether they
        // still hold.
        let of_the_library = [value(PURGE_DELAY.0), value(ARENA_RESERVE.0)];
        assert_eq!(of_the_library, [1000, 1 << 20], "options of mimalloc have other numbers or defaults");
        set_up();
        assert_eq!([value(PURGE_DELAY.0), value(ARENA_RESERVE.0)], [PURGE_DELAY.1, ARENA_RESERVE.1]);
    }
}
