// SPDX-License-Identifier: Apache-2.0
//! Receive ring of TPACKET_V2: a frame is visible as soon as it has arrived.
//!
//! Source: Linux `packet_mmap.rst`, `struct tpacket2_hdr`. See [`super`] for why handing out frames is sound.

use super::{Geometry, Mapping, RingHeader, RingPosition, VNET_BYTES, vlan_tag};
use crate::batch::Batch;
use crate::frame::{FrameFlags, FrameInfo};
use crate::port::{BACKLOG_PARTS, backlog_of};
use crate::sys;
use bartizan_packet::casts::{Casts, cast_of};
use bartizan_packet::sizes::{Sizes, size_class};
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Header and address before a frame, without the gap.
const BEFORE: usize = libc::TPACKET2_HDRLEN;
/// The offset of the link-layer address in a slot.
const ADDRESS: usize = BEFORE - size_of::<libc::sockaddr_ll>();
/// Frames of one batch that may come through the socket's queue because they exceed their slot.
const MAX_COPIES: usize = 16;

/// The result of one read of the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filled {
    /// Frames put into the batch.
    pub(crate) frames: u64,
    /// Their bytes on the wire.
    pub(crate) bytes: u64,
    /// The frames by the kind of their destination.
    pub(crate) casts: Casts,
    /// The frames by their size.
    pub(crate) sizes: Sizes,
    /// Frames that were larger than a slot: cut, or fetched whole through the socket.
    pub(crate) oversized: u64,
    /// Frames among those that were fetched whole.
    pub(crate) copied: u64,
    /// Frames with a checksum that the sender left to hardware.
    pub(crate) checksum_pending: u64,
    /// Frames skipped: sent by this host, or with an invalid header.
    pub(crate) skipped: u64,
    /// Frames with the kernel's timestamp in place of the device's, which they should have.
    pub(crate) unstamped: u64,
    /// False when another batch still holds frames of this ring.
    pub(crate) lease_free: bool,
}

impl Filled {
    /// Counts a frame put into the batch.
    pub(super) fn count(&mut self, length: usize, info: FrameInfo, cast: usize) {
        self.frames += 1;
        self.bytes += u64::from(info.wire_length);
        if let Some(count) = self.sizes.get_mut(size_class(length)) {
            *count += 1;
        }
        if let Some(count) = self.casts.get_mut(cast) {
            *count += 1;
        }
        self.checksum_pending += u64::from(info.flags.contains(FrameFlags::CHECKSUM_PENDING));
    }
}

/// Reader of a V2 ring.
pub(crate) struct RxV2 {
    mapping: Arc<Mapping>,
    geometry: Geometry,
    next: RingPosition,
    /// Leave out frames that this host sent (for kernels without `PACKET_IGNORE_OUTGOING`).
    pub(crate) skip_outgoing: bool,
    /// The largest frame to fetch whole through the socket when it exceeds its slot.
    pub(crate) max_frame: usize,
    /// The socket reports the segmentation of frames (`PACKET_VNET_HDR`).
    pub(crate) vnet: bool,
}

impl RxV2 {
    /// Reads the ring at the start of `mapping`.
    pub(crate) fn new(mapping: Arc<Mapping>, geometry: Geometry, max_frame: usize) -> Self {
        Self {
            mapping,
            geometry,
            next: RingPosition::default(),
            skip_outgoing: false,
            max_frame,
            vnet: false,
        }
    }

    /// Whether a frame waits.
    pub(crate) fn ready(&self) -> bool {
        self.mapping.status(self.next.offset(&self.geometry)) & libc::TP_STATUS_USER != 0
    }

    /// Eighths of the ring that are ready to be read: see [`Port::backlog`](crate::Port::backlog).
    pub(crate) fn backlog(&self) -> u8 {
        let frames = self.geometry.frames();
        backlog_of(|part| {
            let slot =
                self.next.behind(frames * usize::from(part) / usize::from(BACKLOG_PARTS), &self.geometry);
            self.mapping.status(slot.offset(&self.geometry)) & libc::TP_STATUS_USER != 0
        })
    }

    /// Takes the frames present, up to the batch's capacity. First returns the frames that the batch held.
    pub(crate) fn fill(&mut self, fd: BorrowedFd<'_>, batch: &mut Batch) -> Filled {
        batch.clear();
        let mut filled = Filled::default();
        if !self.ready() {
            filled.lease_free = true;
            return filled;
        }
        if !batch.lease_mut().begin(&self.mapping) {
            return filled;
        }
        filled.lease_free = true;
        let mut copies = 0;
        // At most one round: slots taken keep the status "user" until the batch returns them.
        for _ in 0..self.geometry.frames() {
            if !batch.has_room() {
                break;
            }
            let start = self.next.offset(&self.geometry);
            let status = self.mapping.status(start);
            if status & libc::TP_STATUS_USER == 0 {
                break;
            }
            let copy = status & libc::TP_STATUS_COPY != 0;
            if copy && copies == MAX_COPIES {
                break;
            }
            self.next = self.next.next(&self.geometry);
            let following = self.next.offset(&self.geometry);
            self.mapping.prefetch(following);
            self.mapping.prefetch(following + 64);
            batch.lease_mut().release_later(start);
            copies += usize::from(copy);
            self.take(fd, batch, start, status, &mut filled);
        }
        filled
    }

    fn take(&self, fd: BorrowedFd<'_>, batch: &mut Batch, start: usize, status: u32, filled: &mut Filled) {
        let header = self.header(start, status);
        // SAFETY: the status word gave the slot to user space, it was not leased since (`next` has just
        // passed it).
        let found = unsafe { header.locate(&self.mapping, start, self.geometry.frame_size) };
        let outgoing = self.skip_outgoing && self.packet_type(start) == libc::PACKET_OUTGOING;
        let Some(mut found) = found.filter(|_| !outgoing) else {
            filled.skipped += 1;
            if status & libc::TP_STATUS_COPY != 0 {
                // The queue and the ring must stay in step.
                let _ = sys::receive_copy(fd, &mut []);
            }
            return;
        };
        if found.info.flags.contains(FrameFlags::TRUNCATED) {
            filled.oversized += 1;
            if status & libc::TP_STATUS_COPY != 0 {
                let tag = (status & libc::TP_STATUS_VLAN_VALID != 0)
                    .then(|| vlan_tag(status, header.vlan_tci, header.vlan_tpid));
                let whole = (header.length as usize).min(self.max_frame);
                found.info.flags = found.info.flags.without(FrameFlags::TRUNCATED);
                // As before the frame in the ring.
                let head = if self.vnet { VNET_BYTES } else { 0 };
                let got = batch
                    .push_with(head, whole, tag, found.info, |buffer| sys::receive_copy(fd, buffer).ok());
                if got.is_some() {
                    filled.copied += 1;
                    let frame = batch.newest();
                    filled.count(frame.len(), found.info, cast_of(frame));
                    return;
                }
                found.info.flags = found.info.flags.with(FrameFlags::TRUNCATED);
            }
        }
        // SAFETY: inside of this slot, behind header and address (`locate` checked it); one span a slot.
        let span = unsafe { batch.lease_mut().push(found.offset, found.length) };
        if let Some(span) = span {
            batch.push_leased(span, found.info);
            filled.count(found.length, found.info, found.cast);
        }
    }

    fn header(&self, start: usize, status: u32) -> RingHeader {
        let m = &self.mapping;
        RingHeader {
            status,
            length: m.load(start + offset_of!(libc::tpacket2_hdr, tp_len)),
            captured: m.load(start + offset_of!(libc::tpacket2_hdr, tp_snaplen)),
            mac: m.half(start + offset_of!(libc::tpacket2_hdr, tp_mac)),
            seconds: m.load(start + offset_of!(libc::tpacket2_hdr, tp_sec)),
            nanos: m.load(start + offset_of!(libc::tpacket2_hdr, tp_nsec)),
            vlan_tci: m.half(start + offset_of!(libc::tpacket2_hdr, tp_vlan_tci)),
            vlan_tpid: m.half(start + offset_of!(libc::tpacket2_hdr, tp_vlan_tpid)),
            before: BEFORE,
            vnet: self.vnet,
        }
    }

    fn packet_type(&self, start: usize) -> u8 {
        let pair = self.mapping.half(start + ADDRESS + offset_of!(libc::sockaddr_ll, sll_pkttype));
        let [first, _] = pair.to_ne_bytes();
        first
    }
}

#[cfg(test)]
mod tests {
    use super::super::in_file;
    use super::*;

    #[test]
    fn the_backlog_counts_eighths_of_the_slots_that_wait_wherever_they_begin() {
        for frames in [16, 64, 100, 1_000] {
            let geometry = Geometry::new(1_518, frames);
            let frames = geometry.frames();
            for (number, first) in [0, 1, frames / 2, frames - 1].into_iter().enumerate() {
                let mapping = in_file(&format!("slots-{frames}-{number}"), geometry.bytes(), &[]);
                let mut ring = RxV2::new(Arc::clone(&mapping), geometry, 1_518);
                ring.next = RingPosition::default().behind(first, &geometry);
                assert_eq!((0..first).fold(RingPosition::default(), |at, _| at.next(&geometry)), ring.next);
                assert_eq!(ring.backlog(), 0);
                let mut slot = ring.next;
                for waiting in 1..=frames {
                    mapping.set_status(slot.offset(&geometry), libc::TP_STATUS_USER);
                    slot = slot.next(&geometry);
                    let expected = (1..8).filter(|part| waiting > frames * part / 8).count();
                    assert_eq!(usize::from(ring.backlog()), expected, "{waiting} of {frames} from {first}");
                }
            }
        }
    }
}
