// SPDX-License-Identifier: Apache-2.0
//! Egress of an inline link: frames are changed, cut to the port's MTU, answered, redirected.
//!
//! A frame leaves by the port across its link, or by a named port if a policy redirects its flow. Each worker
//! has egress ports of its own. A frame that a port does not take (its interface is gone or down, its ring is
//! full, the frame is too long and cannot be cut) is counted at that port and reported ([`UnsentFrames`]); it
//! does not leave by another port instead.

use super::unsent::UnsentFrames;
use crate::counters::LiveCounters;
use crate::segmentation;
use crate::source::HandedOver;
use crate::source::prepare::FrameReader;
use crate::worker::Worker;
use bartizan_base::{Decision, PortIndex, Timestamp, Verdict};
use bartizan_packet::PacketView;
use bartizan_ports::{Batch, Disposition, PairSide, Port, Segmentation};
use bartizan_stages::normaliser::{self, NormaliserCounters, Rewrite};
use core::ops::RangeInclusive;

/// Bytes before the network layer, with an 802.1Q tag.
const ETHERNET_AND_TAG: usize = 18;
/// Least header bytes of a TCP frame: Ethernet, IPv4, TCP.
const HEADERS_LEAST: usize = 54;

/// The egress of frames that came in by one side of a link.
pub(super) struct Egress<'p> {
    /// The side that the frames came in by.
    pub(super) side: PairSide,
    /// The port across the link.
    pub(super) across: &'p mut dyn Port,
    /// The named ports, by their numbers.
    pub(super) exits: &'p mut [Box<dyn Port>],
    pub(super) unsent: &'p mut UnsentFrames,
    pub(super) editor: &'p mut FrameEditor,
    pub(super) counters: &'p mut LiveCounters,
}

impl Egress<'_> {
    /// Sends the fragments of a datagram that were held until this frame: after the earlier frames of its
    /// batch, and before the frame itself. They leave as the frame does: across the link, or by the named
    /// port `to`.
    pub(super) fn send_released(
        &mut self,
        worker: &mut Worker,
        batch: Option<&mut Batch>,
        to: Option<PortIndex>,
        room: &mut Vec<u8>,
    ) {
        if !worker.has_released() {
            return;
        }
        self.counters.normaliser = self.counters.normaliser.plus(worker.take_normalised());
        if let Some(batch) = batch {
            self.across.transmit(batch);
        }
        while let Some((_, came)) = worker.take_released(room) {
            match to {
                Some(to) => self.send_by(to, room, Segmentation::default(), came),
                None => self.send_across(room, came),
            }
        }
    }

    /// Carries out the decision on a frame of a batch. A frame that is not marked does not leave.
    pub(super) fn apply(
        &mut self,
        worker: &mut Worker,
        batch: &mut Batch,
        index: usize,
        decision: &Decision,
    ) {
        if decision.verdict == Verdict::Reject
            && let Some(bytes) = batch.bytes(index)
        {
            self.editor.answer(bytes, &mut self.counters.normaliser);
        }
        if !decision.verdict.forwards() {
            return;
        }
        if let Some(change) = worker.take_rewrite() {
            let counters = &mut self.counters.normaliser;
            let done =
                batch.bytes_mut(index).is_some_and(|bytes| self.editor.rewrite(bytes, &change, counters));
            if !self.editor.longer.is_empty() {
                batch.replace(index, &self.editor.longer);
            }
            worker.reuse_rewrite(change);
            if !done {
                self.counters.unwritable += 1;
                return;
            }
        }
        let Some(to) = decision.egress else {
            batch.set_disposition(index, Disposition::Forward);
            return;
        };
        let (Some(info), Some(bytes)) = (batch.info(index), batch.bytes(index)) else { return };
        if info.refusal().is_err() {
            self.counters.incomplete += 1;
            return;
        }
        self.send_by(to, bytes, info.segmentation, info.timestamp);
    }

    /// Sends as segments those of the frames that leave and are larger than the port carries; earlier frames
    /// of the batch go first. A frame that cannot be cut is left for the port to refuse.
    pub(super) fn send_large(&mut self, batch: &mut Batch, frames: RangeInclusive<usize>) {
        for index in frames {
            let segments = batch.info(index).map(|info| info.segmentation).unwrap_or_default();
            let is_cut = batch.bytes(index).is_some_and(|bytes| is_to_be_cut(bytes, segments, &*self.across));
            if !is_cut || batch.disposition(index) != Some(Disposition::Forward) {
                continue;
            }
            batch.set_disposition(index, Disposition::Hold);
            self.across.transmit(batch);
            let sent = batch.info(index).is_some_and(|info| info.refusal().is_ok())
                && batch.bytes(index).is_some_and(|bytes| {
                    send_as_segments(&mut *self.across, bytes, segments, self.editor, self.counters)
                });
            if !sent {
                batch.set_disposition(index, Disposition::Forward);
            }
        }
    }

    /// Carries out the decision on a frame that another worker handed over. `segments`: the frame's
    /// segmentation on arrival; `None`: only its first bytes were captured, or it is several datagrams.
    /// `room`: buffer for a changed frame.
    pub(super) fn deliver(
        &mut self,
        worker: &mut Worker,
        handed: &HandedOver<'_>,
        segments: Option<Segmentation>,
        room: &mut Vec<u8>,
    ) {
        let HandedOver { frame, decision, .. } = handed;
        self.send_released(worker, None, decision.egress, room);
        if decision.verdict == Verdict::Reject {
            self.editor.answer(frame.bytes, &mut self.counters.normaliser);
        }
        if !decision.verdict.forwards() {
            return;
        }
        let mut bytes = frame.bytes;
        if let Some(change) = worker.take_rewrite() {
            room.clear();
            room.extend_from_slice(frame.bytes);
            let done = self.editor.rewrite(room, &change, &mut self.counters.normaliser);
            if !self.editor.longer.is_empty() {
                core::mem::swap(room, &mut self.editor.longer);
            }
            worker.reuse_rewrite(change);
            if !done {
                self.counters.unwritable += 1;
                return;
            }
            bytes = room;
        }
        let Some(segments) = segments else {
            self.counters.incomplete += 1;
            return;
        };
        if let Some(to) = decision.egress {
            self.send_by(to, bytes, segments, frame.now);
            return;
        }
        if is_to_be_cut(bytes, segments, &*self.across)
            && send_as_segments(&mut *self.across, bytes, segments, self.editor, self.counters)
        {
            return;
        }
        self.send_across(bytes, frame.now);
    }

    /// Sends a frame across the link. The port counts a refusal.
    fn send_across(&mut self, bytes: &[u8], at: Timestamp) {
        if let Err(refusal) = self.across.transmit_frame(bytes) {
            self.unsent.note(self.side, refusal, bytes, at);
        }
    }

    /// Sends a frame by a named port, in pieces if the frame is larger than the port carries. The port counts
    /// a refusal.
    fn send_by(&mut self, to: PortIndex, bytes: &[u8], segments: Segmentation, at: Timestamp) {
        let Some(port) = self.exits.get_mut(usize::from(to.0)) else {
            self.counters.gone += 1;
            return;
        };
        let cut = is_to_be_cut(bytes, segments, &**port);
        if cut && send_as_segments(&mut **port, bytes, segments, self.editor, self.counters) {
            return;
        }
        if let Err(refusal) = port.transmit_frame(bytes) {
            self.unsent.note_exit(to, refusal, bytes, at);
        }
    }
}

/// Flushes the named ports. The loss of one does not end the link: the port counts the frames that it is
/// given from then on.
pub(super) fn flush(exits: &mut [Box<dyn Port>]) {
    for port in exits {
        let _ = port.flush();
    }
}

/// Whether a frame must leave in pieces: it is larger than a port carries, a VLAN tag allowed for, or it is
/// more than one segment of its sender. In the latter case even where it would fit: in a tunnel the outer
/// checksum is not valid before the cut, and a link after the port may carry less.
fn is_to_be_cut(bytes: &[u8], segments: Segmentation, egress: &dyn Port) -> bool {
    let of_segment = usize::from(segments.size).saturating_add(HEADERS_LEAST);
    bytes.len() > egress.mtu() as usize + ETHERNET_AND_TAG || segments.size != 0 && bytes.len() > of_segment
}

/// Sends a frame as segments of the size that its sender set. `false`: the frame cannot be cut, and nothing
/// was sent.
fn send_as_segments(
    egress: &mut dyn Port,
    bytes: &[u8],
    segments: Segmentation,
    editor: &mut FrameEditor,
    counters: &mut LiveCounters,
) -> bool {
    let FrameReader { decoder, output } = &mut editor.reader;
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    decoder.decode(bartizan_packet::LinkType::ETHERNET, bytes, length, output);
    let (mtu, mut pieces) = (egress.mtu(), 0u64);
    let mut send = |segment: &[u8]| {
        pieces += 1;
        // The port counts a refusal.
        let _ = egress.transmit_frame(segment);
    };
    let known = output.packets();
    let header = usize::from(segments.header);
    let done = match segmentation::hidden_in_tunnel(bytes, known, header, decoder) {
        Some(hidden) => segmentation::cut(bytes, &[known, &[hidden]].concat(), mtu, segments.size, &mut send),
        None => segmentation::cut(bytes, known, mtu, segments.size, &mut send),
    };
    counters.normaliser.cut += u64::from(done.is_some());
    counters.normaliser.pieces += pieces.saturating_sub(1);
    done.is_some()
}

/// Answers to rejected packets, sent after the batch, and a buffer for a frame that becomes longer.
#[derive(Default)]
pub(super) struct FrameEditor {
    pub(super) reader: FrameReader,
    answers: Vec<Vec<u8>>,
    longer: Vec<u8>,
}

impl FrameEditor {
    /// An editor that decodes as `worker` does.
    pub(super) fn new(worker: &Worker) -> Self {
        FrameEditor { reader: FrameReader::new(worker), ..FrameEditor::default() }
    }

    /// Applies a change to a frame; a frame of another length is in `longer` afterwards. `false`: the change
    /// does not fit the frame.
    fn rewrite(&mut self, frame: &mut [u8], change: &Rewrite, counters: &mut NormaliserCounters) -> bool {
        let FrameEditor { reader, longer, .. } = self;
        let packets = if change.resizes() { reader.read(frame).packets() } else { &[] };
        normaliser::rewrite(frame, change, packets, longer, counters)
    }

    /// Makes the answer to a rejected packet.
    fn answer(&mut self, bytes: &[u8], counters: &mut NormaliserCounters) {
        if let Some(packet) = self.reader.read(bytes).outer() {
            self.answers.extend(normaliser::rejection(&PacketView::new(bytes, packet), counters));
        }
    }

    /// Sends the answers by the port that their packets came in by.
    pub(super) fn send_answers(&mut self, port: &mut dyn Port) {
        if self.answers.is_empty() {
            return;
        }
        for frame in self.answers.drain(..) {
            // The port counts a refusal.
            let _ = port.transmit_frame(&frame);
        }
        let _ = port.flush();
    }
}
