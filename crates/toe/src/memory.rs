// SPDX-License-Identifier: Apache-2.0
//! Memory that is shared with another process: size-sealed memfds, and access to them.
//!
//! Why this is sound although the other side may write at any time:
//!
//! * The descriptor carries `F_SEAL_SHRINK`, `F_SEAL_GROW` and `F_SEAL_SEAL`, which are set before it is
//!   given away and compared before it is mapped. So no page of the map goes away (no SIGBUS). Holes can be
//!   punched: their bytes read as zero.
//! * Every access is bounds-checked against the length of the map, which is private.
//! * Single words are only reached as atomics, which may change at any time.
//! * Bytes are only copied, by raw pointers; no reference to them is ever made. They are plain bytes, for
//!   which every value is valid. A copy that races with a writer has some mixture of old and new bytes; it
//!   is private from then on and never read again from the source.
//! * The map lives as long as the value that owns it; references to words borrow that value.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Types that consist of atomic words only, so that memory which another process changes may be reached as
/// one: every bit pattern is valid, and every field may change at any time.
///
/// # Safety
/// `repr(C)`, and all fields are atomics or types with this trait.
pub unsafe trait AtomicWords {}

// SAFETY: an atomic word.
unsafe impl AtomicWords for AtomicU32 {}
// SAFETY: an atomic word.
unsafe impl AtomicWords for AtomicU64 {}
// SAFETY: `repr(C)`, of atomics.
unsafe impl AtomicWords for crate::layout::RingHead {}
// SAFETY: `repr(C)`, of atomics.
unsafe impl AtomicWords for crate::layout::RingEntry {}
// SAFETY: `repr(C)`, of structs of atomics.
unsafe impl AtomicWords for crate::layout::SlotState {}

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// A mapped segment.
#[derive(Debug)]
pub struct SharedMemory {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: the map belongs to the process; words are atomics and bytes are copied by raw pointers.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Creates a memfd of this number of bytes, seals its size, and maps it.
    ///
    /// # Errors
    /// The kernel has no descriptor or memory left, or `length` is 0.
    pub fn create(name: &str, length: usize) -> Result<(OwnedFd, SharedMemory), Errno> {
        let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, u64::try_from(length).map_err(|_| Errno::INVAL)?)?;
        fcntl_add_seals(&fd, SEALS)?;
        let memory = SharedMemory::map(&fd, length)?;
        Ok((fd, memory))
    }

    /// Maps a segment of exactly this length.
    ///
    /// # Errors
    /// `INVAL`: another length, or its size is not sealed; or the kernel refuses the map.
    pub fn map(fd: &impl AsFd, length: usize) -> Result<SharedMemory, Errno> {
        let size = usize::try_from(fstat(fd)?.st_size).map_err(|_| Errno::INVAL)?;
        if length == 0 || size != length || !fcntl_get_seals(fd)?.contains(SEALS) {
            return Err(Errno::INVAL);
        }
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new map at an address that the kernel chooses replaces no memory of this process.
        let base =
            unsafe { mmap(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, flags, fd, 0)? };
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(SharedMemory { base, length })
    }

    /// Bytes of the segment.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Start of `length` bytes at an offset; `None`: they are not all within the segment.
    fn place(&self, offset: usize, length: usize) -> Option<*mut u8> {
        if offset.checked_add(length)? > self.length {
            return None;
        }
        // SAFETY: the offset is within the map, as was compared above.
        Some(unsafe { self.base.as_ptr().add(offset) })
    }

    /// The words at an offset; `None`: outside of the segment or not aligned.
    #[must_use]
    pub fn at<T: AtomicWords>(&self, offset: usize) -> Option<&T> {
        let place = self.place(offset, size_of::<T>())?.cast::<T>();
        // SAFETY: within the map and aligned as compared; of atomics only (`AtomicWords`), which may change
        // at any time; the reference borrows `self`, which owns the map.
        place.is_aligned().then(|| unsafe { &*place })
    }

    /// Appends bytes of the segment to private memory; `None`: they are not all within the segment.
    #[must_use]
    pub fn copy_out(&self, offset: usize, length: usize, into: &mut Vec<u8>) -> Option<()> {
        let from = self.place(offset, length)?;
        into.reserve(length);
        // Without the fences a compiler might fetch bytes again from the source, or before the index that
        // says they are there.
        fence(Ordering::SeqCst);
        // SAFETY: `from` has `length` bytes within the map; `into` has room for them, and is private, so the
        // two do not overlap. All bytes up to the new length are written.
        unsafe {
            std::ptr::copy_nonoverlapping(from.cast_const(), into.as_mut_ptr().add(into.len()), length);
            into.set_len(into.len() + length);
        }
        fence(Ordering::SeqCst);
        Some(())
    }

    /// Copies bytes of the segment into a private slice; `None`: they are not all within the segment.
    #[must_use]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Option<()> {
        let from = self.place(offset, into.len())?;
        // SAFETY: `from` has that many bytes within the map; the slice is private, so they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from.cast_const(), into.as_mut_ptr(), into.len()) };
        Some(())
    }

    /// Copies private bytes into the segment; `None`: there is no room for all of them at the offset.
    #[must_use]
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Option<()> {
        let to = self.place(offset, bytes.len())?;
        // SAFETY: `to` has that many bytes within the map, to which no reference exists; the source is
        // private, so they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Some(())
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the map was made by `map` with this length; references to it borrow `self`. An error
        // leaves the map in place, which is safe.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
    }
}

/// A byte ring in a segment: a buffer whose indices count modulo 2^32.
#[derive(Clone, Copy, Debug)]
pub struct ByteRing<'m> {
    /// The segment.
    pub memory: &'m SharedMemory,
    /// Place of the buffer.
    pub offset: usize,
    /// Bytes of it, a power of two.
    pub size: u32,
}

impl ByteRing<'_> {
    /// Place of an index, and the bytes from there to the end of the buffer.
    fn place(&self, index: u32) -> (usize, usize) {
        let within = (index & (self.size - 1)) as usize;
        (self.offset + within, self.size as usize - within)
    }

    /// Appends `length` bytes from an index on to private memory.
    #[must_use]
    pub fn copy_out(&self, index: u32, length: usize, into: &mut Vec<u8>) -> Option<()> {
        let (place, whole) = self.place(index);
        let first = length.min(whole);
        self.memory.copy_out(place, first, into)?;
        if first < length { self.memory.copy_out(self.offset, length - first, into) } else { Some(()) }
    }

    /// Copies bytes from an index on into a slice.
    #[must_use]
    pub fn read(&self, index: u32, into: &mut [u8]) -> Option<()> {
        let (place, whole) = self.place(index);
        let (first, second) = into.split_at_mut(into.len().min(whole));
        self.memory.read(place, first)?;
        self.memory.read(self.offset, second)
    }

    /// Copies bytes to an index.
    #[must_use]
    pub fn write(&self, index: u32, bytes: &[u8]) -> Option<()> {
        let (place, whole) = self.place(index);
        let (first, second) = bytes.split_at(bytes.len().min(whole));
        self.memory.write(place, first)?;
        self.memory.write(self.offset, second)
    }
}
