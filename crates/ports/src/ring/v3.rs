// SPDX-License-Identifier: Apache-2.0
//! Receive ring of TPACKET_V3: whole blocks of frames, handed over when full or after the retire time.
//!
//! Source: Linux `packet_mmap.rst`, `struct tpacket_block_desc`, `struct tpacket3_hdr`. See [`super`] for why handing out
//! frames is sound. A block may be larger than a batch: it is then handed out in several batches and given
//! back with the last.

use super::v2::Filled;
use super::{Header, Mapping};
use crate::batch::Batch;
use crate::frame::FrameFlags;
use std::mem::offset_of;
use std::sync::Arc;

/// Header and address before a frame, without the gap.
const BEFORE: usize = libc::TPACKET3_HDRLEN;
/// Where the link-layer address of a packet begins.
const ADDRESS: usize = BEFORE - size_of::<libc::sockaddr_ll>();
/// Where the first version's block header begins.
const BLOCK: usize = offset_of!(libc::tpacket_block_desc, hdr);
const BLOCK_STATUS: usize = BLOCK + offset_of!(libc::tpacket_hdr_v1, block_status);
const VARIANT: usize = offset_of!(libc::tpacket3_hdr, hv1);

/// Reader of a V3 ring.
pub(crate) struct RxV3 {
    mapping: Arc<Mapping>,
    block_size: usize,
    blocks: usize,
    block: usize,
    /// Packets of the current block not handed out yet, and where the next of them begins in the block.
    open: Option<(u32, usize)>,
    /// Leave out frames that this host sent (for kernels without `PACKET_IGNORE_OUTGOING`).
    pub(crate) skip_outgoing: bool,
    /// The socket says how frames are to be segmented (`PACKET_VNET_HDR`).
    pub(crate) vnet: bool,
    /// Frames are to have the device's timestamps.
    pub(crate) by_device: bool,
}

impl RxV3 {
    /// Reads the ring at the start of `mapping`.
    pub(crate) fn new(mapping: Arc<Mapping>, block_size: usize, blocks: usize) -> Self {
        Self {
            mapping,
            block_size,
            blocks,
            block: 0,
            open: None,
            skip_outgoing: false,
            vnet: false,
            by_device: false,
        }
    }

    /// Whether a packet waits.
    pub(crate) fn ready(&self) -> bool {
        self.open.is_some()
            || self.mapping.status(self.block * self.block_size + BLOCK_STATUS) & libc::TP_STATUS_USER != 0
    }

    /// Whether half of the ring or more waits to be read.
    pub(crate) fn pressed(&self) -> bool {
        let middle = self.block + self.blocks / 2;
        let middle = if middle < self.blocks { middle } else { middle - self.blocks };
        self.mapping.status(middle * self.block_size + BLOCK_STATUS) & libc::TP_STATUS_USER != 0
    }

    /// Takes what is there, up to the batch's capacity. Gives back what the batch held before.
    pub(crate) fn fill(&mut self, batch: &mut Batch) -> Filled {
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
        let mut finished = 0;
        // Never all blocks in one batch: the status of those taken is still "user".
        while batch.has_room() && finished < self.blocks && self.ready() {
            finished += usize::from(self.drain_block(batch, &mut filled));
        }
        filled
    }

    /// Hands out packets of the current block; true when it is used up.
    fn drain_block(&mut self, batch: &mut Batch, filled: &mut Filled) -> bool {
        let base = self.block * self.block_size;
        let (mut left, mut at) = self.open.take().unwrap_or_else(|| {
            let header = base + BLOCK;
            (
                self.mapping.load(header + offset_of!(libc::tpacket_hdr_v1, num_pkts)),
                self.mapping.load(header + offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt)) as usize,
            )
        });
        while left > 0 && at < self.block_size {
            if !batch.has_room() {
                self.open = Some((left, at));
                return false;
            }
            let step = self.mapping.load(base + at) as usize;
            self.mapping.prefetch(base + at + step);
            self.mapping.prefetch(base + at + step + 64);
            let size = if step == 0 { self.block_size - at } else { step.min(self.block_size - at) };
            self.take(batch, base + at, size, filled);
            left -= 1;
            if step == 0 {
                break;
            }
            at += step;
        }
        batch.lease_mut().release_later(base + BLOCK_STATUS);
        self.block = if self.block + 1 == self.blocks { 0 } else { self.block + 1 };
        true
    }

    fn take(&self, batch: &mut Batch, start: usize, size: usize, filled: &mut Filled) {
        let m = &self.mapping;
        let header = Header {
            status: m.load(start + offset_of!(libc::tpacket3_hdr, tp_status)),
            length: m.load(start + offset_of!(libc::tpacket3_hdr, tp_len)),
            captured: m.load(start + offset_of!(libc::tpacket3_hdr, tp_snaplen)),
            mac: m.half(start + offset_of!(libc::tpacket3_hdr, tp_mac)),
            seconds: m.load(start + offset_of!(libc::tpacket3_hdr, tp_sec)),
            nanos: m.load(start + offset_of!(libc::tpacket3_hdr, tp_nsec)),
            vlan_tci: m.load(start + VARIANT + offset_of!(libc::tpacket_hdr_variant1, tp_vlan_tci)) as u16,
            vlan_tpid: m.half(start + VARIANT + offset_of!(libc::tpacket_hdr_variant1, tp_vlan_tpid)),
            before: BEFORE,
            vnet: self.vnet,
        };
        let outgoing = self.skip_outgoing && {
            let pair = m.half(start + ADDRESS + offset_of!(libc::sockaddr_ll, sll_pkttype));
            let [first, _] = pair.to_ne_bytes();
            first == libc::PACKET_OUTGOING
        };
        // SAFETY: the block's status word gave it to user space; this packet was not leased since (`at` only grows).
        let found = unsafe { header.locate(m, start, size) };
        let Some(found) = found.filter(|_| !outgoing) else {
            filled.skipped += 1;
            return;
        };
        filled.oversized += u64::from(found.info.flags.contains(FrameFlags::TRUNCATED));
        filled.unstamped += u64::from(self.by_device && header.status & libc::TP_STATUS_TS_RAW_HARDWARE == 0);
        // SAFETY: inside of this packet's part of the block, behind header and address; one span a packet.
        let span = unsafe { batch.lease_mut().push(found.offset, found.length) };
        if let Some(span) = span {
            batch.push_leased(span, found.info);
            filled.count(found.length, found.info.flags);
        }
    }
}
