// SPDX-License-Identifier: Apache-2.0
//! The unit of work: frames that a port handed out together.
//!
//! A batch either holds frames in a port's ring (not copied) or frames in its own memory. It is made once per
//! worker and reused; no memory is allocated per packet. Ring slots return to the kernel when the batch is
//! cleared, filled again or dropped: until then the bytes may be read and rewritten in place.

use crate::frame::{FrameFlags, FrameInfo};
use crate::refusal::SendRefusal;
use crate::ring::Lease;
use std::ops::Range;

/// The result of [`Batch::split`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Datagrams after the first of their frame.
    pub datagrams: u64,
    /// Frames of several datagrams that were left unchanged.
    pub left: u64,
}

/// The handling of a frame: planned, or done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Disposition {
    /// OffloadDenied here (the initial state of a frame).
    #[default]
    Hold,
    /// To be sent by the next [`crate::Port::transmit`].
    Forward,
    /// Handed to the egress port.
    Sent,
    /// Refused by the egress port.
    Refused(SendRefusal),
}

#[derive(Clone, Copy)]
enum FrameStorage {
    Leased(u32),
    Owned {
        start: usize,
        end: usize,
    },
    /// In the memory that [`Batch::split`] fills.
    Cut {
        start: usize,
        end: usize,
    },
}

struct BatchSlot {
    place: FrameStorage,
    info: FrameInfo,
    disposition: Disposition,
}

/// Frames of one port, to be processed together.
pub struct Batch {
    slots: Vec<BatchSlot>,
    capacity: usize,
    lease: Lease,
    owned: Vec<u8>,
    /// Whether some frame is several datagrams.
    joined: bool,
    cut: Vec<u8>,
    /// The slots before the last split: kept for its memory.
    before: Vec<BatchSlot>,
}

impl Batch {
    /// A batch of up to `capacity` frames (at least one).
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self {
            slots: Vec::with_capacity(capacity),
            capacity,
            lease: Lease::with_capacity(capacity),
            owned: Vec::new(),
            joined: false,
            cut: Vec::new(),
            before: Vec::new(),
        }
    }

    /// The number of frames in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether it holds no frame.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The most frames that it holds.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether another frame fits.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.slots.len() < self.capacity
    }

    /// Releases all frames and returns ring slots. Ports do this before they fill a batch; do it earlier when
    /// the frames are no longer needed.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.lease.clear();
        self.owned.clear();
        self.cut.clear();
        self.joined = false;
    }

    /// The port's information about frame `index`.
    #[must_use]
    pub fn info(&self, index: usize) -> Option<&FrameInfo> {
        self.slots.get(index).map(|s| &s.info)
    }

    /// The port's information about frame `index`, to be changed with the frame.
    pub fn info_mut(&mut self, index: usize) -> Option<&mut FrameInfo> {
        self.slots.get_mut(index).map(|s| &mut s.info)
    }

    /// Bytes of frame `index`.
    #[must_use]
    pub fn bytes(&self, index: usize) -> Option<&[u8]> {
        self.bytes_of(self.slots.get(index)?.place)
    }

    /// The frame added last.
    pub(crate) fn newest(&self) -> &[u8] {
        self.len().checked_sub(1).and_then(|index| self.bytes(index)).unwrap_or_default()
    }

    fn bytes_of(&self, place: FrameStorage) -> Option<&[u8]> {
        match place {
            FrameStorage::Leased(span) => self.lease.bytes(span),
            FrameStorage::Owned { start, end } => self.owned.get(start..end),
            FrameStorage::Cut { start, end } => self.cut.get(start..end),
        }
    }

    /// Bytes of frame `index`, for rewriting in place.
    pub fn bytes_mut(&mut self, index: usize) -> Option<&mut [u8]> {
        match self.slots.get(index)?.place {
            FrameStorage::Leased(span) => self.lease.bytes_mut(span),
            FrameStorage::Owned { start, end } => self.owned.get_mut(start..end),
            FrameStorage::Cut { start, end } => self.cut.get_mut(start..end),
        }
    }

    /// Shortens frame `index` to `length` bytes; a greater length changes nothing.
    pub fn truncate(&mut self, index: usize, length: usize) {
        if let Some(slot) = self.slots.get_mut(index) {
            match &mut slot.place {
                FrameStorage::Leased(span) => self.lease.truncate(*span, length),
                FrameStorage::Owned { start, end } | FrameStorage::Cut { start, end } => {
                    *end = (*end).min(start.saturating_add(length));
                }
            }
        }
    }

    /// Replaces the bytes of frame `index` (by any length; copied into the batch's own memory).
    pub fn replace(&mut self, index: usize, bytes: &[u8]) {
        if let Some(slot) = self.slots.get_mut(index) {
            let start = self.owned.len();
            self.owned.extend_from_slice(bytes);
            slot.place = FrameStorage::Owned { start, end: self.owned.len() };
            // The new bytes are the whole frame.
            slot.info.flags = slot.info.flags.without(FrameFlags::TRUNCATED);
        }
    }

    /// The planned or completed handling of frame `index`.
    #[must_use]
    pub fn disposition(&self, index: usize) -> Option<Disposition> {
        self.slots.get(index).map(|s| s.disposition)
    }

    /// Sets the handling of frame `index`.
    pub fn set_disposition(&mut self, index: usize, disposition: Disposition) {
        if let Some(slot) = self.slots.get_mut(index) {
            slot.disposition = disposition;
        }
    }

    /// Marks every frame for sending.
    pub fn forward_all(&mut self) {
        for slot in &mut self.slots {
            slot.disposition = Disposition::Forward;
        }
    }

    /// Copies a frame into the batch; false when it is full. For ports without a ring.
    pub fn push_copy(&mut self, bytes: &[u8], info: FrameInfo) -> bool {
        if !self.has_room() {
            return false;
        }
        let start = self.owned.len();
        self.owned.extend_from_slice(bytes);
        let place = FrameStorage::Owned { start, end: self.owned.len() };
        self.push(place, info);
        true
    }

    fn push(&mut self, place: FrameStorage, info: FrameInfo) {
        self.joined |= info.flags.contains(FrameFlags::JOINED);
        self.slots.push(BatchSlot { place, info, disposition: Disposition::Hold });
    }

    /// Replaces each frame of several datagrams ([`FrameFlags::JOINED`]) by its datagrams: `cut` passes them
    /// on one by one, whole frames with checksums, or returns `None`, which leaves the frame as it is, to be
    /// refused. Without such a frame, this does nothing. The batch may then hold more frames than its
    /// capacity.
    pub fn split(
        &mut self,
        mut cut: impl FnMut(&FrameInfo, &[u8], &mut dyn FnMut(&[u8])) -> Option<()>,
    ) -> Split {
        if !core::mem::take(&mut self.joined) {
            return Split::default();
        }
        let mut pieces = core::mem::take(&mut self.cut);
        let mut slots = core::mem::take(&mut self.before);
        let mut split = Split::default();
        for slot in self.slots.drain(..) {
            let is_joined = slot.info.flags.contains(FrameFlags::JOINED);
            let whole = match slot.place {
                _ if !is_joined || slot.info.flags.contains(FrameFlags::TRUNCATED) => None,
                FrameStorage::Leased(span) => self.lease.bytes(span),
                FrameStorage::Owned { start, end } => self.owned.get(start..end),
                // Cut frames are joined no more.
                FrameStorage::Cut { .. } => None,
            };
            let Some(whole) = whole else {
                slots.push(slot);
                split.left += u64::from(is_joined);
                continue;
            };
            let flags = slot.info.flags.without(FrameFlags::JOINED).without(FrameFlags::CHECKSUM_PENDING);
            let (first, end) = (slots.len(), pieces.len());
            let done = cut(&slot.info, whole, &mut |datagram| {
                let start = pieces.len();
                pieces.extend_from_slice(datagram);
                let info = FrameInfo {
                    timestamp: slot.info.timestamp,
                    wire_length: u32::try_from(datagram.len()).unwrap_or(u32::MAX),
                    flags: flags.with(FrameFlags::CHECKSUM_VALID),
                    ..FrameInfo::default()
                };
                let place = FrameStorage::Cut { start, end: pieces.len() };
                slots.push(BatchSlot { place, info, disposition: Disposition::Hold });
            });
            if done.is_some() && slots.len() > first {
                split.datagrams += (slots.len() - first - 1) as u64;
            } else {
                slots.truncate(first);
                pieces.truncate(end);
                slots.push(slot);
                split.left += 1;
            }
        }
        self.cut = pieces;
        self.before = core::mem::replace(&mut self.slots, slots);
        split
    }

    /// Has `fill` write `head` bytes and a frame of up to `room` bytes into the batch's own memory, then
    /// removes the head and inserts `tag` after the MAC addresses. Returns the frame's length, or `None` when
    /// `fill` had no frame or one larger than `room`.
    pub(crate) fn push_with(
        &mut self,
        head: usize,
        room: usize,
        tag: Option<[u8; 4]>,
        info: FrameInfo,
        fill: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> Option<usize> {
        const ADDRESSES: usize = 12;
        let start = self.owned.len();
        let filled = start.checked_add(4)?;
        let data = filled.checked_add(head)?;
        self.owned.resize(data.checked_add(room)?, 0);
        let got = fill(self.owned.get_mut(filled..)?).and_then(|got| got.checked_sub(head));
        let Some(end) = got.filter(|got| *got <= room).and_then(|got| data.checked_add(got)) else {
            self.owned.truncate(start);
            return None;
        };
        self.owned.truncate(end);
        let mut from = data;
        if let Some(tag) = tag.filter(|_| end - data >= ADDRESSES) {
            // At least four bytes are free before the frame.
            from = data - 4;
            self.owned.copy_within(data..data + ADDRESSES, from);
            if let Some(gap) = self.owned.get_mut(from + ADDRESSES..from + ADDRESSES + 4) {
                gap.copy_from_slice(&tag);
            }
        }
        self.push(FrameStorage::Owned { start: from, end }, info);
        Some(end - from)
    }

    pub(crate) fn push_leased(&mut self, span: u32, info: FrameInfo) {
        self.push(FrameStorage::Leased(span), info);
    }

    pub(crate) fn lease_mut(&mut self) -> &mut Lease {
        &mut self.lease
    }

    /// Calls `send` for each frame marked [`Disposition::Forward`], in order, and notes the outcome. Returns
    /// the number of frames sent. `send` should refuse frames that are incomplete: see
    /// [`FrameInfo::refusal`].
    pub fn send_each(&mut self, mut send: impl FnMut(&FrameInfo, &[u8]) -> Result<(), SendRefusal>) -> usize {
        let mut sent = 0;
        for index in 0..self.slots.len() {
            let Some(slot) = self.slots.get(index).filter(|s| s.disposition == Disposition::Forward) else {
                continue;
            };
            let outcome = match self.bytes_of(slot.place).map(|bytes| send(&slot.info, bytes)) {
                Some(Ok(())) => {
                    sent += 1;
                    Disposition::Sent
                }
                Some(Err(refusal)) => Disposition::Refused(refusal),
                None => Disposition::Refused(SendRefusal::TooShort),
            };
            self.set_disposition(index, outcome);
        }
        sent
    }

    /// Frames marked for sending: number and bytes.
    pub(crate) fn marked(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.disposition == Disposition::Forward)
            .filter_map(|(index, slot)| Some((index, self.bytes_of(slot.place)?)))
    }

    /// Numbers of all frames.
    #[must_use]
    pub fn indices(&self) -> Range<usize> {
        0..self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Segmentation;

    #[test]
    fn owned_frames_can_be_rewritten_replaced_and_cut() {
        let mut batch = Batch::with_capacity(2);
        assert!(batch.push_copy(&[1, 2, 3], FrameInfo::default()));
        assert!(batch.push_copy(&[4, 5], FrameInfo::default()));
        assert!(!batch.push_copy(&[6], FrameInfo::default()), "capacity is kept");
        batch.bytes_mut(0).unwrap()[0] = 9;
        batch.replace(1, &[7, 7, 7, 7]);
        batch.truncate(0, 2);
        assert_eq!(batch.bytes(0), Some(&[9, 2][..]));
        assert_eq!(batch.bytes(1), Some(&[7, 7, 7, 7][..]));
        assert_eq!(batch.bytes(2), None);
        batch.clear();
        assert!(batch.is_empty() && batch.bytes(0).is_none());
    }

    #[test]
    fn only_marked_frames_are_sent_and_outcomes_noted() {
        let mut batch = Batch::with_capacity(3);
        for byte in 0..3u8 {
            batch.push_copy(&[byte], FrameInfo::default());
        }
        batch.set_disposition(0, Disposition::Forward);
        batch.set_disposition(2, Disposition::Forward);
        let mut seen = Vec::new();
        let sent = batch.send_each(|_, frame| {
            seen.extend_from_slice(frame);
            if frame == [2] { Err(SendRefusal::RingFull) } else { Ok(()) }
        });
        assert_eq!((sent, seen), (1, vec![0, 2]));
        assert_eq!(batch.disposition(0), Some(Disposition::Sent));
        assert_eq!(batch.disposition(1), Some(Disposition::Hold));
        assert_eq!(batch.disposition(2), Some(Disposition::Refused(SendRefusal::RingFull)));
    }

    #[test]
    fn a_fetched_frame_gets_its_tag_back() {
        let mut batch = Batch::with_capacity(4);
        let wire: Vec<u8> = (0..60).collect();
        let fill = |buffer: &mut [u8]| {
            buffer[..60].copy_from_slice(&wire);
            Some(60)
        };
        assert_eq!(batch.push_with(0, 60, Some([0x81, 0, 0, 5]), FrameInfo::default(), fill), Some(64));
        assert_eq!(batch.push_with(0, 60, None, FrameInfo::default(), fill), Some(60));
        assert_eq!(
            batch.push_with(0, 59, None, FrameInfo::default(), |_| Some(60)),
            None,
            "more than there was room for"
        );
        assert_eq!(batch.push_with(0, 60, None, FrameInfo::default(), |_| None), None);
        assert_eq!(
            batch.push_with(10, 60, None, FrameInfo::default(), |_| Some(9)),
            None,
            "not even the head"
        );
        let behind = |buffer: &mut [u8]| {
            assert_eq!(buffer.len(), 70);
            buffer[..10].fill(0xee);
            buffer[10..].copy_from_slice(&wire);
            Some(70)
        };
        assert_eq!(batch.push_with(10, 60, None, FrameInfo::default(), behind), Some(60));
        assert_eq!(batch.push_with(10, 60, Some([0x81, 0, 0, 5]), FrameInfo::default(), behind), Some(64));
        assert_eq!(batch.bytes(2), Some(&wire[..]));
        assert_eq!(batch.bytes(3), batch.bytes(0));
        let tagged = batch.bytes(0).unwrap();
        assert_eq!(tagged[..12], wire[..12]);
        assert_eq!(tagged[12..16], [0x81, 0, 0, 5]);
        assert_eq!(tagged[16..], wire[12..]);
        assert_eq!(batch.bytes(1), Some(&wire[..]));
        assert_eq!(batch.len(), 4);
    }

    #[test]
    fn joined_frames_are_split_in_their_place_and_those_that_cannot_be_are_refused() {
        let joined = FrameInfo {
            flags: FrameFlags::JOINED.with(FrameFlags::CHECKSUM_PENDING).with(FrameFlags::VLAN_RESTORED),
            segmentation: Segmentation { size: 2, header: 0 },
            ..FrameInfo::default()
        };
        let mut batch = Batch::with_capacity(4);
        // Twice, to test the reuse of memory.
        for _ in 0..2 {
            batch.clear();
            batch.push_copy(&[1, 1], FrameInfo::default());
            batch.push_copy(&[2, 3, 4, 5, 6], joined);
            batch.push_copy(&[7], joined);
            let cut_off = FrameInfo { flags: joined.flags.with(FrameFlags::TRUNCATED), ..joined };
            batch.push_copy(&[8, 9, 10], cut_off);
            let split = batch.split(|info, bytes, each| {
                assert_eq!(info.segmentation.size, 2);
                bytes.chunks(2).for_each(&mut *each);
                // Pieces made before the failure do not count.
                (bytes.len() > 1).then_some(())
            });
            assert_eq!((split, batch.len()), (Split { datagrams: 2, left: 2 }, 6));
            let all: Vec<_> = batch.indices().map(|i| batch.bytes(i).unwrap().to_vec()).collect();
            assert_eq!(all, [&[1, 1][..], &[2, 3], &[4, 5], &[6], &[7], &[8, 9, 10]]);
            for index in 1..4 {
                let info = batch.info(index).unwrap();
                let flags = FrameFlags::CHECKSUM_VALID.with(FrameFlags::VLAN_RESTORED);
                assert_eq!((info.flags, info.segmentation), (flags, Segmentation::default()));
                assert_eq!(info.wire_length as usize, batch.bytes(index).unwrap().len());
            }
            batch.bytes_mut(2).unwrap()[0] = 0;
            batch.truncate(2, 1);
            assert_eq!(batch.bytes(2), Some(&[0][..]));
            assert_eq!(batch.split(|_, _, _| panic!("nothing is left to split")), Split::default());
            batch.forward_all();
            let sent = batch.send_each(|info, _| info.refusal());
            assert_eq!(sent, 4);
            assert_eq!(batch.disposition(4), Some(Disposition::Refused(SendRefusal::Joined)));
            assert_eq!(batch.disposition(5), Some(Disposition::Refused(SendRefusal::Incomplete)));
        }
    }
}
