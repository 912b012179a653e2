// SPDX-License-Identifier: Apache-2.0
//! Receive ring of TPACKET_V3: whole blocks of frames, handed over when full or after the retire time.
//!
//! Source: Linux `packet_mmap.rst`, `struct tpacket_block_desc`, `struct tpacket3_hdr`. See [`super`] for why
//! handing out frames is sound. A block may be larger than a batch: it is then handed out in several batches
//! and returned with the last.

use super::v2::Filled;
use super::{Mapping, RingHeader};
use crate::batch::Batch;
use crate::frame::FrameFlags;
use crate::port::{BACKLOG_PARTS, backlog_of};
use std::mem::offset_of;
use std::sync::Arc;

/// Header and address before a frame, without the gap.
const BEFORE: usize = libc::TPACKET3_HDRLEN;
/// The offset of the link-layer address in a packet's part.
const ADDRESS: usize = BEFORE - size_of::<libc::sockaddr_ll>();
/// The offset of the first version's block header.
const BLOCK: usize = offset_of!(libc::tpacket_block_desc, hdr);
const BLOCK_STATUS: usize = BLOCK + offset_of!(libc::tpacket_hdr_v1, block_status);
const VARIANT: usize = offset_of!(libc::tpacket3_hdr, hv1);

/// Reader of a V3 ring.
pub(crate) struct RxV3 {
    mapping: Arc<Mapping>,
    block_size: usize,
    blocks: usize,
    block: usize,
    /// The number of packets of the current block not handed out yet, and the offset of the next of them.
    open: Option<(u32, usize)>,
    /// Leave out frames that this host sent (for kernels without `PACKET_IGNORE_OUTGOING`).
    pub(crate) skip_outgoing: bool,
    /// The socket reports the segmentation of frames (`PACKET_VNET_HDR`).
    pub(crate) vnet: bool,
    /// Frames should have the device's timestamps.
    pub(crate) by_device: bool,
    /// Frames begin with an IP header.
    pub(crate) raw_ip: bool,
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
            raw_ip: false,
        }
    }

    /// Whether a packet waits.
    pub(crate) fn ready(&self) -> bool {
        self.open.is_some()
            || self.mapping.status(self.block * self.block_size + BLOCK_STATUS) & libc::TP_STATUS_USER != 0
    }

    /// Whether half of the ring or more is ready to be read.
    pub(crate) fn pressed(&self) -> bool {
        self.waits(self.blocks / 2)
    }

    /// Eighths of the ring that are ready to be read: see [`Port::backlog`](crate::Port::backlog).
    pub(crate) fn backlog(&self) -> u8 {
        backlog_of(|part| self.waits(self.blocks * usize::from(part) / usize::from(BACKLOG_PARTS)))
    }

    /// Whether the block so many after the current one is ready to be read.
    fn waits(&self, blocks: usize) -> bool {
        let block = self.block + blocks;
        let block = if block < self.blocks { block } else { block - self.blocks };
        self.mapping.status(block * self.block_size + BLOCK_STATUS) & libc::TP_STATUS_USER != 0
    }

    /// Takes the frames present, up to the batch's capacity. First returns the frames that the batch held.
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
        let header = RingHeader {
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
        // SAFETY: the block's status word gave it to user space; this packet was not leased since (`at` only
        // grows).
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
            filled.count(found.length, found.info, if self.raw_ip { 0 } else { found.cast });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::in_file;
    use super::*;
    use bartizan_base::Timestamp;

    const BLOCK_SIZE: usize = 4096;
    /// A ring never hands out all its blocks at once.
    const BLOCKS: usize = 2;
    const FIRST: usize = size_of::<libc::tpacket_block_desc>().next_multiple_of(16);
    /// Header, address and frame, and the distance of packets.
    const STEP: usize = 256;
    const MAC: usize = BEFORE.next_multiple_of(16);
    const FRAME: [u8; 60] = [0x5a; 60];

    /// Status and time of a packet, as the kernel writes them: the time is in the same words whatever its
    /// source.
    type Stamped = (u32, u32, u32);

    /// The kernel's contents of the first block of a ring that has received such packets.
    fn block(packets: &[Stamped]) -> Vec<u8> {
        let mut block = vec![0; BLOCK_SIZE];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        let header = |of: usize, value: u32| (BLOCK + of, value);
        for (at, value) in [
            header(offset_of!(libc::tpacket_hdr_v1, block_status), libc::TP_STATUS_USER),
            header(offset_of!(libc::tpacket_hdr_v1, num_pkts), packets.len() as u32),
            header(offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt), FIRST as u32),
        ] {
            put(at, &value.to_ne_bytes());
        }
        for (number, &(status, seconds, nanos)) in packets.iter().enumerate() {
            let start = FIRST + number * STEP;
            let next = if number + 1 == packets.len() { 0 } else { STEP };
            for (at, value) in [
                (offset_of!(libc::tpacket3_hdr, tp_next_offset), next as u32),
                (offset_of!(libc::tpacket3_hdr, tp_sec), seconds),
                (offset_of!(libc::tpacket3_hdr, tp_nsec), nanos),
                (offset_of!(libc::tpacket3_hdr, tp_snaplen), FRAME.len() as u32),
                (offset_of!(libc::tpacket3_hdr, tp_len), FRAME.len() as u32),
                (offset_of!(libc::tpacket3_hdr, tp_status), libc::TP_STATUS_USER | status),
            ] {
                put(start + at, &value.to_ne_bytes());
            }
            put(start + offset_of!(libc::tpacket3_hdr, tp_mac), &(MAC as u16).to_ne_bytes());
            put(start + MAC, &FRAME);
        }
        block
    }

    /// A ring in a file instead of a socket's: any file can be mapped.
    fn ring(name: &str, packets: &[Stamped]) -> RxV3 {
        RxV3::new(in_file(name, BLOCKS * BLOCK_SIZE, &block(packets)), BLOCK_SIZE, BLOCKS)
    }

    /// The timestamps of the frames of a ring, and its counts.
    fn read(mut ring: RxV3) -> (Vec<Timestamp>, Filled) {
        let mut batch = Batch::with_capacity(16);
        let filled = ring.fill(&mut batch);
        assert_eq!((filled.frames, filled.skipped), (batch.len() as u64, 0));
        assert!((0..batch.len()).all(|at| batch.bytes(at) == Some(&FRAME[..])));
        ((0..batch.len()).filter_map(|at| Some(batch.info(at)?.timestamp)).collect(), filled)
    }

    /// Linux `packet_mmap.rst`, "Packet fill-in": with `PACKET_TIMESTAMP` the status says whose time is in
    /// the header, and the kernel's own is there if the device has given none.
    #[test]
    fn times_of_the_device_are_taken_and_others_are_counted() {
        let packets = [
            (libc::TP_STATUS_TS_RAW_HARDWARE, 1_700_000_000, 123_456_789),
            (libc::TP_STATUS_TS_SOFTWARE, 1_700_000_001, 5),
            // Beside the packet's own status.
            (libc::TP_STATUS_TS_RAW_HARDWARE | libc::TP_STATUS_CSUM_VALID, 1_700_000_000, 999_999_999),
            // Kernels that do not report it, and a device's clock converted by the kernel, which Linux no
            // longer has.
            (0, 1_700_000_002, 0),
            (libc::TP_STATUS_TS_SYS_HARDWARE, 1_700_000_003, 0),
        ];
        let times: Vec<_> = packets
            .iter()
            .map(|&(_, seconds, nanos)| Timestamp::from_parts(u64::from(seconds), nanos))
            .collect();
        let mut by_device = ring("device", &packets);
        by_device.by_device = true;
        let (read_times, filled) = read(by_device);
        assert_eq!((read_times, filled.unstamped), (times.clone(), 3));
        // The device's time was not requested.
        let (read_times, filled) = read(ring("kernel", &packets));
        assert_eq!((read_times, filled.unstamped), (times, 0));
    }

    #[test]
    fn all_packets_of_a_device_are_stamped() {
        let mut ring = ring("all", &[(libc::TP_STATUS_TS_RAW_HARDWARE, 7, 8); 3]);
        ring.by_device = true;
        let (times, filled) = read(ring);
        assert_eq!((times, filled.unstamped), (vec![Timestamp::from_parts(7, 8); 3], 0));
    }

    #[test]
    fn the_backlog_counts_eighths_of_the_blocks_that_wait_wherever_they_begin() {
        for blocks in [16, 32, 100] {
            for (number, first) in [0, 1, blocks / 2, blocks - 1].into_iter().enumerate() {
                let mapping = in_file(&format!("backlog-{blocks}-{number}"), blocks * BLOCK_SIZE, &[]);
                let mut ring = RxV3::new(Arc::clone(&mapping), BLOCK_SIZE, blocks);
                ring.block = first;
                assert_eq!(ring.backlog(), 0);
                for waiting in 1..=blocks {
                    let block = (first + waiting - 1) % blocks;
                    mapping.set_status(block * BLOCK_SIZE + BLOCK_STATUS, libc::TP_STATUS_USER);
                    let expected = (1..8).filter(|part| waiting > blocks * part / 8).count();
                    assert_eq!(usize::from(ring.backlog()), expected, "{waiting} of {blocks} from {first}");
                    assert_eq!(ring.pressed(), waiting > blocks / 2);
                }
            }
        }
    }
}
