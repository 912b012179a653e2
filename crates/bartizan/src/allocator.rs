// SPDX-License-Identifier: Apache-2.0
//! The allocator, and how it gives memory back.
//!
//! Transactions of application protocols are many small pieces of memory, made and freed in the order of the traffic: mimalloc is quick with
//! those. As it comes it keeps what is free for a second, and asks the system for huge pages, which count whole however little of them
//! is used. Under a flood that makes the program larger than what its bounds add up to (docs/limits.md). So free pages go back
//! soon, address space is reserved in smaller pieces, and huge pages are left to the system's settings (the feature `no_thp`).

use std::ffi::{c_int, c_long};

/// Of the whole program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay`: milliseconds after which free pages go back to the system.
const PURGE_DELAY: (c_int, c_long) = (15, 100);
/// `mi_option_arena_reserve`: KiB of address space that are reserved at a time; more for those behind the eighth.
const ARENA_RESERVE: (c_int, c_long) = (23, 128 << 10);

unsafe extern "C" {
    /// Part of mimalloc's documented interface; what is given in the environment (`MIMALLOC_PURGE_DELAY` ...) goes before it.
    fn mi_option_set_default(option: c_int, value: c_long);
    /// As well; `force`: also what was freed just now.
    fn mi_collect(force: bool);
}

/// To be called when the program begins.
pub fn set_up() {
    for (option, value) in [PURGE_DELAY, ARENA_RESERVE] {
        // SAFETY: it takes plain numbers, and stores the value in a static table of the library; numbers of options that do not
        // exist are ignored. No other thread runs yet that could read the table meanwhile.
        unsafe { mi_option_set_default(option, value) };
    }
}

/// Gives free pages of the calling thread back to the system, and those that no thread uses: for when much was freed at once, by the thread
/// that freed it. Takes milliseconds.
pub fn give_back() {
    // SAFETY: it touches only what is free; other threads may allocate meanwhile.
    unsafe { mi_collect(true) };
    // SAFETY: as above. Libraries (libhs, PCRE2) allocate with the C library.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0)
    };
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
    fn options_are_those_that_are_meant() {
        // The numbers are of one version of the library: its own defaults tell whether they still are.
        let of_the_library = [value(PURGE_DELAY.0), value(ARENA_RESERVE.0)];
        assert_eq!(of_the_library, [1000, 1 << 20], "options of mimalloc have other numbers or defaults");
        set_up();
        assert_eq!([value(PURGE_DELAY.0), value(ARENA_RESERVE.0)], [PURGE_DELAY.1, ARENA_RESERVE.1]);
    }
}
