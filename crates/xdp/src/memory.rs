// SPDX-License-Identifier: Apache-2.0
//! Arrays of the program that are mapped into memory.
//!
//! Source: Linux `kernel/bpf/arraymap.c` (`array_map_mmap`), BPF_F_MMAPABLE. This is one of the crate's two
//! modules with `unsafe` (the other one is `sys`).
//!
//! Soundness: the kernel keeps the pages of such an array as long as the mapping exists, also when
//! all descriptors are closed, and never moves them. The mapping is made here, is not given away, and ends
//! with its owner, from which every reference to it is borrowed. Its content is accessed as 64-bit atomic
//! numbers only: the program and other threads write at the same time, with single aligned stores of 64
//! bits, which is what relaxed atomic loads and stores of this machine are. Every bit pattern is a number.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::AtomicU64;

/// An array of the program, as 64-bit numbers in this machine's order.
#[derive(Debug)]
pub(crate) struct Words {
    start: NonNull<AtomicU64>,
    count: usize,
    mapped: usize,
}

// SAFETY: the memory belongs to the process, not to a thread, and is only seen as atomic numbers.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl bartizan_offload::marks::MarkMemory for Words {
    fn words(&self) -> &[AtomicU64] {
        self.get()
    }
}

impl Words {
    /// Maps the `count` numbers that an array holds (entries × their length ÷ 8).
    ///
    /// # Errors
    /// The array is shorter, or must not be mapped; there is no address space.
    pub(crate) fn map(array: BorrowedFd<'_>, count: usize) -> io::Result<Self> {
        // SAFETY: no pointers.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let mapped = count
            .checked_mul(8)
            .and_then(|bytes| bytes.checked_next_multiple_of(page))
            .filter(|bytes| *bytes > 0)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        // SAFETY: a new mapping at an address of the kernel's choice. It refuses what does not lie within the
        // array's pages.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                array.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(address.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Words { start, count, mapped })
    }

    /// The numbers.
    pub(crate) fn get(&self) -> &[AtomicU64] {
        // SAFETY: `count` numbers are mapped at `start`, aligned to a page, until `self` is dropped; see
        // above for what else is written to them.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: address and length are those of the mapping, and no reference to it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.mapped) };
    }
}
