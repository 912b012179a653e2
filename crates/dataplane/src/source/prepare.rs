// SPDX-License-Identifier: Apache-2.0
//! Frames of a batch before a worker sees them: joined datagrams are taken apart, open checksums filled in.

use crate::counters::LiveCounters;
use crate::segmentation;
use crate::worker::{Frame, Worker};
use bartizan_base::{LinkId, Timestamp};
use bartizan_packet::{Checksums, DecodeOutput, Decoder, InternetChecksum, LinkType};
use bartizan_ports::{Batch, FrameFlags, FrameInfo, PendingChecksum};

/// Decodes frames outside of a worker, with the tunnels that the worker knows.
#[derive(Default)]
pub(super) struct FrameReader {
    pub(super) decoder: Decoder,
    pub(super) output: DecodeOutput,
}

impl FrameReader {
    /// One that decodes as a worker does.
    pub(super) fn new(worker: &Worker) -> Self {
        FrameReader { decoder: Decoder::new(*worker.decoder_config()), output: DecodeOutput::default() }
    }

    /// Decodes an Ethernet frame.
    pub(super) fn read(&mut self, bytes: &[u8]) -> &DecodeOutput {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.decoder.decode(LinkType::ETHERNET, bytes, length, &mut self.output);
        &self.output
    }

    /// Takes datagrams apart that came as one, before a worker looks at them. Returns the number of frames
    /// that the batch holds afterwards.
    pub(super) fn split(&mut self, batch: &mut Batch, counters: &mut LiveCounters) -> usize {
        let split = segmentation::split(batch, &mut self.decoder, &mut self.output);
        counters.normaliser.datagrams += split.datagrams;
        counters.normaliser.joined += split.left;
        batch.len()
    }
}

/// Inline: fills in the checksums that senders on this host left to a device, where the kernel says that they
/// stand: in whatever a frame carries, also in tunnels that nobody decodes, whose own checksum already counts
/// on it. Frames that are to be cut get theirs then.
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
            // Where it stands a sender on this host says, who may lie: the checksums of what is inspected are
            // looked at as ever.
            info.flags = info.flags.without(FrameFlags::CHECKSUM_PENDING).with(FrameFlags::CHECKSUM_FILLED);
            counters.normaliser.checksums += 1;
        }
    }
}

/// Fills in a checksum that stands `field` bytes behind `start` and is about all from there on; the sum of
/// the pseudo header stands there. `None`: it would lie behind the frame.
fn fill_in(bytes: &mut [u8], start: usize, field: usize) -> Option<()> {
    let about = bytes.get_mut(start..)?;
    let sum = InternetChecksum::new().with(about).finish();
    // Zero says "no checksum" in UDP, and is the same number in others (RFC 768).
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

/// What the kernel says of a frame's checksums.
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
