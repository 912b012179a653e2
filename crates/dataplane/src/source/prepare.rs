// SPDX-License-Identifier: Apache-2.0
//! Preparation of a batch before a worker sees it: combined datagrams are split, open checksums filled in.

use crate::counters::LiveCounters;
use crate::segmentation;
use crate::worker::{Frame, Worker};
use bartizan_base::{LinkId, Timestamp};
use bartizan_packet::{Checksums, DecodeOutput, Decoder, InternetChecksum, LinkType};
use bartizan_ports::{Batch, FrameFlags, FrameInfo, PendingChecksum};

/// Decodes frames outside of a worker, with the worker's tunnel settings.
#[derive(Default)]
pub(super) struct FrameReader {
    pub(super) decoder: Decoder,
    pub(super) output: DecodeOutput,
}

impl FrameReader {
    /// A reader that decodes as `worker` does.
    pub(super) fn new(worker: &Worker) -> Self {
        FrameReader { decoder: Decoder::new(*worker.decoder_config()), output: DecodeOutput::default() }
    }

    /// Decodes an Ethernet frame.
    pub(super) fn read(&mut self, bytes: &[u8]) -> &DecodeOutput {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.decoder.decode(LinkType::ETHERNET, bytes, length, &mut self.output);
        &self.output
    }

    /// Splits combined datagrams, before a worker sees them. Returns the number of frames that the batch
    /// holds afterwards.
    pub(super) fn split(&mut self, batch: &mut Batch, counters: &mut LiveCounters) -> usize {
        let split = segmentation::split(batch, &mut self.decoder, &mut self.output);
        counters.normaliser.datagrams += split.datagrams;
        counters.normaliser.joined += split.left;
        batch.len()
    }
}

/// Inline: fills in the checksums that senders on this host left to a device, at the offsets that the kernel
/// reports: in any payload, also in tunnels that are not decoded, whose own checksum already assumes the
/// filled-in value. Frames that are to be cut get their checksums with the cut.
pub(super) fn fill_in_checksums(batch: &mut Batch, counters: &mut LiveCounters) {
    for index in 0..batch.len() {
        let Some(info) = batch.info(index) else { continue };
        let PendingChecksum { start, field } = info.pending;
        let whole = info.refusal().is_ok() && info.segmentation.size == 0;
        if start == 0 || !whole {
            continue;
        }
        let filled = batch.bytes_mut(index).and_then(|bytes| fill_in(bytes, start.into(), field.into()));
        if let Some(info) = batch.info_mut(index).filter(|_| filled.is_some()) {
            // The offset is from a sender on this host, who may lie: the checksums of inspected headers are
            // verified as usual.
            info.flags = info.flags.without(FrameFlags::CHECKSUM_PENDING).with(FrameFlags::CHECKSUM_FILLED);
            counters.normaliser.checksums += 1;
        }
    }
}

/// Fills in a checksum at `field` bytes after `start`, over all bytes from `start` on; the field holds the
/// pseudo-header sum. `None`: the field lies beyond the frame.
fn fill_in(bytes: &mut [u8], start: usize, field: usize) -> Option<()> {
    let about = bytes.get_mut(start..)?;
    let sum = InternetChecksum::new().with(about).finish();
    // In UDP zero means "no checksum"; elsewhere both values are the same number (RFC 768).
    let sum = if sum == 0 { 0xffff } else { sum };
    about.get_mut(field..field.checked_add(2)?)?.copy_from_slice(&sum.to_be_bytes());
    Some(())
}

/// The time of a batch's last frame.
pub(super) fn newest_of(batch: &Batch) -> Timestamp {
    let last = batch.len().checked_sub(1).and_then(|last| batch.info(last));
    last.map_or(Timestamp::ZERO, |info| info.timestamp)
}

/// A frame of a batch, as a worker takes it.
pub(super) fn frame_of(batch: &Batch, index: usize, link: LinkId) -> Option<(Frame<'_>, &FrameInfo)> {
    let (info, bytes) = (batch.info(index)?, batch.bytes(index)?);
    let frame = Frame {
        now: info.timestamp,
        bytes,
        wire_len: info.wire_length,
        link_type: LinkType::ETHERNET,
        link,
        number: None,
    };
    Some((frame, info))
}

/// The kernel's report about a frame's checksums.
pub(super) const fn checksums_of(flags: FrameFlags) -> Checksums {
    if flags.contains(FrameFlags::CHECKSUM_PENDING) {
        Checksums::Pending
    } else if flags.contains(FrameFlags::CHECKSUM_FILLED) {
        Checksums::Filled
    } else if flags.contains(FrameFlags::CHECKSUM_VALID) {
        Checksums::Valid
    } else {
        Checksums::Unknown
    }
}
