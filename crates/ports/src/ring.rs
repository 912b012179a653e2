// SPDX-License-Identifier: Apache-2.0
//! Memory shared with the kernel: the rings of a packet socket.
//!
//! Source: Linux `Documentation/networking/packet_mmap.rst`, `include/uapi/linux/if_packet.h`. One of the
//! crate's two modules with `unsafe` (with its parts below): frames are handed out as `&mut [u8]` inside
//! memory that the kernel writes too. Why that is sound:
//!
//! * a slot (V2: a frame, V3: a block) has one owner, named by its status word. The kernel gives it with the
//!   bit `TP_STATUS_USER` (read with acquire order) and does not touch it until the word is
//!   `TP_STATUS_KERNEL` again (written with release order);
//! * a span is leased only while its slot is ours, spans of one lease come from distinct slots (or distinct
//!   packets of a block), and a mapping has **one** lease at a time (`leased`), so no byte is ever handed out
//!   twice;
//! * a lease holds the mapping alive, gives its slots back when it is cleared or dropped, and a lease that is
//!   leaked only starves the port;
//! * header words are read as relaxed atomics, never through references to whole structures; every offset is
//!   checked against the mapping, although the kernel is trusted. The header directly before a frame
//!   (`vnet`) is read while the slot is ours and before the frame is leased, since a restored tag overwrites
//!   it.

pub(crate) mod tx;
pub(crate) mod v2;
pub(crate) mod v3;
mod vnet;

use crate::sys;
use bartizan_packet::casts::cast_of;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
pub(crate) use vnet::{BYTES as VNET_BYTES, RESERVE as VNET_RESERVE};

/// The rings of one socket, mapped.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    length: usize,
    leased: AtomicBool,
}

// SAFETY: the memory is plain bytes; shared words are only accessed as atomics, and byte ranges only
// through the one lease or the one transmit window (see the module's text).
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `length` bytes of the socket's rings.
    pub(crate) fn new(fd: BorrowedFd<'_>, length: usize) -> io::Result<Arc<Self>> {
        // SAFETY: a fresh shared mapping at an address of the kernel's choice; nothing existing is replaced.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        Ok(Arc::new(Self { base, length, leased: AtomicBool::new(false) }))
    }

    /// The 32-bit word at `offset`; `None` outside of the mapping or unaligned.
    fn word(&self, offset: usize) -> Option<&AtomicU32> {
        if !offset.is_multiple_of(4) || offset.checked_add(4)? > self.length {
            return None;
        }
        // SAFETY: inside of the mapping and aligned (the base is page aligned); lives as long as `self`;
        // words read this way are headers, which no lease covers.
        Some(unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset).cast()) })
    }

    /// The 16-bit number at `offset`; 0 outside of the mapping or unaligned.
    fn half(&self, offset: usize) -> u16 {
        if !offset.is_multiple_of(2) || offset.checked_add(2).is_none_or(|end| end > self.length) {
            return 0;
        }
        // SAFETY: as in `word`.
        unsafe { AtomicU16::from_ptr(self.base.as_ptr().add(offset).cast()) }.load(Ordering::Relaxed)
    }

    /// The 32-bit number at `offset`; 0 outside of the mapping.
    fn load(&self, offset: usize) -> u32 {
        self.word(offset).map_or(0, |w| w.load(Ordering::Relaxed))
    }

    /// Status word, ordered before everything read after it.
    fn status(&self, offset: usize) -> u32 {
        self.word(offset).map_or(0, |w| w.load(Ordering::Acquire))
    }

    /// Hands a slot over: a reader of the status sees everything written before.
    fn set_status(&self, offset: usize, status: u32) {
        if let Some(word) = self.word(offset) {
            word.store(status, Ordering::Release);
        }
    }

    /// Prefetches the line at `offset`.
    #[inline]
    fn prefetch(&self, offset: usize) {
        #[cfg(target_arch = "x86_64")]
        if offset < self.length {
            // SAFETY: a hint; the address is inside of the mapping.
            unsafe {
                use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T0>(self.base.as_ptr().add(offset).cast());
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = offset;
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: base and length are those of the mapping made in `new`; nothing refers to it any more,
        // since leases and windows hold the `Arc`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

/// The received frames of one ring that a batch holds, and the slots to return with them.
#[derive(Default)]
pub(crate) struct Lease {
    mapping: Option<Arc<Mapping>>,
    spans: Vec<RingSpan>,
    releases: Vec<usize>,
}

/// The place of a frame in its mapping.
#[derive(Clone, Copy)]
struct RingSpan {
    offset: usize,
    length: usize,
}

impl Lease {
    /// A lease for up to `frames` frames without further allocation.
    pub(crate) fn with_capacity(frames: usize) -> Self {
        Self { mapping: None, spans: Vec::with_capacity(frames), releases: Vec::with_capacity(frames) }
    }

    /// Returns all slots to the kernel.
    pub(crate) fn clear(&mut self) {
        if let Some(mapping) = self.mapping.take() {
            for slot in self.releases.drain(..) {
                mapping.set_status(slot, libc::TP_STATUS_KERNEL);
            }
            self.spans.clear();
            mapping.leased.store(false, Ordering::Release);
        }
    }

    /// Begins a lease on `mapping`. False when another lease on it exists: then no frame may be handed out.
    #[must_use]
    fn begin(&mut self, mapping: &Arc<Mapping>) -> bool {
        self.clear();
        if mapping.leased.swap(true, Ordering::Acquire) {
            return false;
        }
        self.mapping = Some(Arc::clone(mapping));
        true
    }

    /// Adds a frame and returns its number; `None` when the range is not inside of the mapping.
    ///
    /// # Safety
    /// The range lies in a slot that user space owns, overlaps no other span of this lease and no header
    /// word.
    unsafe fn push(&mut self, offset: usize, length: usize) -> Option<u32> {
        let mapping = self.mapping.as_ref()?;
        if offset.checked_add(length)? > mapping.length {
            return None;
        }
        let number = u32::try_from(self.spans.len()).ok()?;
        self.spans.push(RingSpan { offset, length });
        Some(number)
    }

    /// Has the slot whose status word is at `status_offset` returned with the lease.
    fn release_later(&mut self, status_offset: usize) {
        self.releases.push(status_offset);
    }

    /// Bytes of a frame.
    pub(crate) fn bytes(&self, number: u32) -> Option<&[u8]> {
        let (mapping, span) = (self.mapping.as_ref()?, self.spans.get(number as usize)?);
        // SAFETY: checked against the mapping in `push`; owned by user space and by this lease alone.
        Some(unsafe { std::slice::from_raw_parts(mapping.base.as_ptr().add(span.offset), span.length) })
    }

    /// Bytes of a frame, for rewriting in place.
    pub(crate) fn bytes_mut(&mut self, number: u32) -> Option<&mut [u8]> {
        let (mapping, span) = (self.mapping.as_ref()?, self.spans.get(number as usize)?);
        // SAFETY: as in `bytes`; `&mut self` makes it the only reference, since spans do not overlap.
        Some(unsafe { std::slice::from_raw_parts_mut(mapping.base.as_ptr().add(span.offset), span.length) })
    }

    /// Shortens a frame; a greater length changes nothing.
    pub(crate) fn truncate(&mut self, number: u32, length: usize) {
        if let Some(span) = self.spans.get_mut(number as usize) {
            span.length = span.length.min(length);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The layout of a ring's slots in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Bytes of a slot.
    pub(crate) frame_size: usize,
    /// Slots in a block.
    pub(crate) frames_per_block: usize,
    /// Bytes of a block (a multiple of the page).
    pub(crate) block_size: usize,
    /// Number of blocks.
    pub(crate) blocks: usize,
}

/// Space that a slot needs besides the frame: header, address, alignment, the segmentation header, room for a
/// restored tag.
pub(crate) const SLOT_OVERHEAD: usize = 96;

impl Geometry {
    /// Slots for frames of up to `max_frame` bytes, at least `frames` of them.
    pub(crate) fn new(max_frame: usize, frames: usize) -> Self {
        const SMALL_BLOCK: usize = 64 * 1024;
        let need = max_frame + SLOT_OVERHEAD;
        let frame_size = if need <= 2048 { 2048 } else { need.next_multiple_of(128) };
        let block_size = if frame_size <= SMALL_BLOCK / 4 {
            SMALL_BLOCK
        } else {
            frame_size.next_multiple_of(sys::page_size())
        };
        let frames_per_block = block_size / frame_size;
        Self { frame_size, frames_per_block, block_size, blocks: frames.div_ceil(frames_per_block).max(1) }
    }

    /// Number of slots.
    pub(crate) const fn frames(&self) -> usize {
        self.frames_per_block * self.blocks
    }

    /// Bytes of the whole ring.
    pub(crate) const fn bytes(&self) -> usize {
        self.block_size * self.blocks
    }

    /// The request for such a ring; `None` when a number does not fit.
    pub(crate) fn request(&self) -> Option<libc::tpacket_req> {
        Some(libc::tpacket_req {
            tp_block_size: u32::try_from(self.block_size).ok()?,
            tp_block_nr: u32::try_from(self.blocks).ok()?,
            tp_frame_size: u32::try_from(self.frame_size).ok()?,
            tp_frame_nr: u32::try_from(self.frames()).ok()?,
        })
    }
}

/// A position in a circular ring, without a division per step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RingPosition {
    block: usize,
    in_block: usize,
}

impl RingPosition {
    /// Offset of the slot from the ring's start.
    const fn offset(self, geometry: &Geometry) -> usize {
        self.block * geometry.block_size + self.in_block * geometry.frame_size
    }

    /// The slot so many after this one, fewer than there are.
    #[must_use]
    const fn behind(self, slots: usize, geometry: &Geometry) -> Self {
        let at = self.block * geometry.frames_per_block + self.in_block + slots;
        let at = if at < geometry.frames() { at } else { at - geometry.frames() };
        Self { block: at / geometry.frames_per_block, in_block: at % geometry.frames_per_block }
    }

    /// The slot after this one.
    #[must_use]
    const fn next(self, geometry: &Geometry) -> Self {
        if self.in_block + 1 < geometry.frames_per_block {
            Self { block: self.block, in_block: self.in_block + 1 }
        } else if self.block + 1 < geometry.blocks {
            Self { block: self.block + 1, in_block: 0 }
        } else {
            Self { block: 0, in_block: 0 }
        }
    }
}

/// The contents of a frame's ring header, V2 and V3 alike.
struct RingHeader {
    status: u32,
    length: u32,
    captured: u32,
    mac: u16,
    seconds: u32,
    nanos: u32,
    vlan_tci: u16,
    vlan_tpid: u16,
    /// Bytes from the header's start to the end of the link-layer address that follows it.
    before: usize,
    /// The kernel's segmentation header comes before the frame (`PACKET_VNET_HDR`).
    vnet: bool,
}

/// Bytes of a link-layer address.
const ADDRESS_BYTES: usize = 6;

/// A frame found in a ring, ready to be leased.
struct RingFrame {
    offset: usize,
    length: usize,
    info: crate::frame::FrameInfo,
    /// The kind of its destination, if it begins with an Ethernet header.
    cast: usize,
}

impl RingHeader {
    /// Takes the frame out of its slot `[start, start + size)`: checks the kernel's numbers and restores a
    /// VLAN tag that the kernel removed, in the gap before the frame. `None` when the numbers are invalid.
    ///
    /// # Safety
    /// The slot is owned by user space and no part of it is leased.
    unsafe fn locate(&self, mapping: &Mapping, start: usize, size: usize) -> Option<RingFrame> {
        use crate::frame::{FrameFlags, FrameInfo};
        let (mac, length) = (usize::from(self.mac), self.captured as usize);
        let least = self.before + if self.vnet { VNET_BYTES } else { 0 };
        if mac < least || mac.checked_add(length)? > size || start.checked_add(size)? > mapping.length {
            return None;
        }
        let (mut offset, mut captured) = (start + mac, length);
        let mut info = FrameInfo {
            timestamp: bartizan_base::Timestamp::from_parts(u64::from(self.seconds), self.nanos),
            wire_length: self.length,
            flags: FrameFlags::default(),
            ..FrameInfo::default()
        };
        if self.vnet {
            // Before a tag overwrites it.
            let told = vnet::read(mapping, start + mac - VNET_BYTES);
            (info.segmentation, info.pending) = (told.segmentation, told.pending);
            if told.joined {
                info.flags = info.flags.with(FrameFlags::JOINED);
            }
        }
        if self.status & libc::TP_STATUS_CSUMNOTREADY != 0 {
            info.flags = info.flags.with(FrameFlags::CHECKSUM_PENDING);
        }
        if self.status & libc::TP_STATUS_CSUM_VALID != 0 {
            info.flags = info.flags.with(FrameFlags::CHECKSUM_VALID);
        }
        if self.captured < self.length {
            info.flags = info.flags.with(FrameFlags::TRUNCATED);
        }
        if self.status & libc::TP_STATUS_VLAN_VALID != 0 && length >= 12 && mac >= self.before + 4 {
            let tag = vlan_tag(self.status, self.vlan_tci, self.vlan_tpid);
            // SAFETY: the 16 bytes from `offset - 4` lie between address and end of the slot (checked above),
            // which is ours alone: move both MAC addresses down by four, write the tag behind them.
            unsafe {
                let to = mapping.base.as_ptr().add(offset - 4);
                std::ptr::copy(to.add(4), to, 12);
                std::ptr::copy_nonoverlapping(tag.as_ptr(), to.add(12), 4);
            }
            offset -= 4;
            captured += 4;
            info.wire_length = info.wire_length.saturating_add(4);
            info.flags = info.flags.with(FrameFlags::VLAN_RESTORED);
            if info.segmentation.header != 0 {
                info.segmentation.header = info.segmentation.header.saturating_add(4);
            }
            if info.pending.start != 0 {
                info.pending.start = info.pending.start.saturating_add(4);
            }
        }
        let cast = if captured < ADDRESS_BYTES {
            0
        } else {
            // SAFETY: the frame's first bytes lie inside of the slot (checked above), which is ours alone,
            // and nothing of it is leased yet.
            let address = unsafe { mapping.base.as_ptr().add(offset).cast::<[u8; ADDRESS_BYTES]>().read() };
            cast_of(&address)
        };
        Some(RingFrame { offset, length: captured, info, cast })
    }
}

/// The four bytes of a VLAN tag on the wire. Kernels that do not report the protocol mean 802.1Q.
fn vlan_tag(status: u32, tci: u16, tpid: u16) -> [u8; 4] {
    let tpid = if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 { tpid } else { 0x8100 };
    let ([a, b], [c, d]) = (tpid.to_be_bytes(), tci.to_be_bytes());
    [a, b, c, d]
}

/// A mapping of a file of so many zeros instead of a socket's rings.
#[cfg(test)]
fn in_file(name: &str, length: usize, begin: &[u8]) -> Arc<Mapping> {
    use std::fs::OpenOptions;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;
    let path = std::env::temp_dir().join(format!("bartizan-ring-{}-{name}", std::process::id()));
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.set_len(length as u64).unwrap();
    file.write_all_at(begin, 0).unwrap();
    Mapping::new(file.as_fd(), length).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geometry_keeps_what_the_kernel_demands() {
        for max_frame in [64, 1518, 1952, 1953, 9018, 16_000, 40_000, 65_535] {
            for frames in [1, 255, 256, 4096] {
                let g = Geometry::new(max_frame, frames);
                assert!(g.frame_size >= max_frame + SLOT_OVERHEAD, "{g:?}");
                assert_eq!(g.frame_size % 16, 0);
                assert_eq!(g.block_size % sys::page_size(), 0);
                assert!(g.frames() >= frames);
                assert_eq!(g.frames_per_block, g.block_size / g.frame_size);
            }
        }
    }

    #[test]
    fn a_place_visits_every_slot_once_a_round() {
        let g = Geometry { frame_size: 3072, frames_per_block: 2, block_size: 8192, blocks: 3 };
        let mut place = RingPosition::default();
        let mut seen = Vec::new();
        for _ in 0..g.frames() {
            seen.push(place.offset(&g));
            place = place.next(&g);
        }
        assert_eq!(seen, [0, 3072, 8192, 11_264, 16_384, 19_456]);
        assert_eq!(place, RingPosition::default());
    }

    #[test]
    fn a_tag_without_a_protocol_is_802_1q() {
        assert_eq!(vlan_tag(libc::TP_STATUS_VLAN_VALID, 0x2064, 0), [0x81, 0x00, 0x20, 0x64]);
        let both = libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID;
        assert_eq!(vlan_tag(both, 5, 0x88a8), [0x88, 0xa8, 0, 5]);
    }
}
