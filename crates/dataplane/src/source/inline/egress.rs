// SPDX-License-Identifier: Apache-2.0
//! Workers on live ports. [`together`] has the one loop that all of them run, inline and passive, one or
//! several; here is the handling of a batch's frames: before a worker sees them, and on their way out.
//!
//! Generations are swapped between batches; an idle link is woken for it, so a swap never waits for traffic.
//! A turn takes what is there and never waits for more; one send call per batch and port.

mod answering;
mod berth;
mod control;
mod exits;
mod last_turns;
pub mod together;
mod unsent;

use crate::ahead::AHEAD;
use crate::segmentation;
use crate::worker::{Frame, Worker};
use bartizan_base::{Decision, LinkId, PortIndex, Timestamp, Verdict};
use bartizan_packet::{Checksums, DecodeOutput, Decoder, InternetChecksum, LinkType, PacketView};
use bartizan_ports::{
    Awake, Batch, Disposition, FrameFlags, FrameInfo, PendingChecksum, Port, Segmentation, Side,
};
use bartizan_stages::normaliser::{self, NormaliserCounters};
use bartizan_stages::record::Recorder;
use bartizan_stages::train;
use std::time::Duration;

pub use crate::counters::LiveCounters;
pub use crate::inquiry;
pub use crate::views::live::{Counted, LevelsNow, LiveFlow, RefusedBy, StaysBy};
pub use control::{Control, MOVES_ASKED};
use exits::Exits;
use last_turns::LastTurns;

/// Bytes before the network layer, an 802.1Q tag among them.
const ETHERNET_AND_TAG: usize = 18;
/// Bytes of headers that a TCP segment has at least: Ethernet, IPv4, TCP.
const HEADERS_LEAST: usize = 54;

/// Sleep of a worker that owes its level something. A turn takes a millisecond or some, so not all of the
/// processor's time goes there.
const OWED: Duration = Duration::from_millis(1);

/// How a worker uses its ports.
#[derive(Clone, Copy, Debug)]
pub struct LiveOptions {
    /// Frames of one turn at most.
    pub batch: usize,
    /// How long to look before sleeping, where a core is free.
    pub spin: Duration,
    /// Inline: idle processors are asked to wait awake while packets come ([`bartizan_ports::Awake`]).
    pub awake: bool,
    /// Longest sleep: timeouts of flows are looked at that often on an idle link.
    pub tick: Duration,
}

impl Default for LiveOptions {
    fn default() -> Self {
        LiveOptions {
            batch: 256,
            spin: Duration::from_micros(50),
            awake: false,
            tick: Duration::from_millis(100),
        }
    }
}

impl LiveOptions {
    /// How long a worker sleeps at most: shorter while the level below is due more than a turn does.
    #[must_use]
    pub fn sleep_of(&self, worker: &Worker) -> Duration {
        if worker.level_owes() { self.tick.min(OWED) } else { self.tick }
    }

    /// What keeps processors awake. Where the kernel does not offer it, nothing does.
    fn awake(&self) -> Awake {
        if self.awake { Awake::open().unwrap_or_default() } else { Awake::default() }
    }
}

/// Takes datagrams apart that came as one, before anything looks at them. Gives the number of frames that the
/// batch holds now.
fn take_apart(batch: &mut Batch, rejecter: &mut Rejecter, counters: &mut LiveCounters) -> usize {
    let split = segmentation::split(batch, &mut rejecter.decoder, &mut rejecter.output);
    counters.normaliser.datagrams += split.datagrams;
    counters.normaliser.joined += split.left;
    batch.len()
}

/// Inline: fills in the checksums that senders on this host left to a device, where the kernel says that they
/// stand: in whatever a frame carries, also in tunnels that nobody decodes, whose own checksum already counts
/// on it. Frames that are to be cut get theirs then.
fn fill_in_checksums(batch: &mut Batch, counters: &mut LiveCounters) {
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
fn newest_of(batch: &Batch) -> Timestamp {
    let last = batch.len().checked_sub(1).and_then(|last| batch.info(last));
    last.map_or(Timestamp::ZERO, |info| info.timestamp)
}

/// A frame of a batch, as a worker takes it.
fn frame_of(batch: &Batch, index: usize, link: LinkId) -> Option<(Frame<'_>, &FrameInfo)> {
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
const fn checksums_of(flags: FrameFlags) -> Checksums {
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

/// Fetches the flows of the next frames of a batch, some at a time. One alone is there as soon as it is
/// looked up.
fn look_ahead(worker: &Worker, batch: &Batch, index: usize, by: (LinkId, u32)) {
    if index.is_multiple_of(AHEAD) && index + 1 < batch.len() {
        let next = index..batch.len().min(index + AHEAD);
        worker.expect(next.filter_map(|index| batch.bytes(index)), by);
    }
}

/// Whether the frame behind another one of a batch goes on with its TCP segment.
fn is_followed(worker: &Worker, batch: &Batch, index: usize) -> bool {
    if !worker.forms_trains() {
        return false;
    }
    let both = batch.bytes(index).zip(batch.bytes(index + 1));
    both.is_some_and(|(frame, next)| train::follows(frame, next))
}

/// Sends the frames of a datagram that were held until the frame in hand, which came in by the same side and
/// leaves by the same named port, if any: behind those that came before it in its batch, and before it.
fn send_released(
    worker: &mut Worker,
    egress: &mut dyn Port,
    batch: Option<&mut Batch>,
    (side, to): (Side, Option<PortIndex>),
    (frame, exits): (&mut Vec<u8>, &mut Exits<'_>),
    rejecter: &mut Rejecter,
    counters: &mut LiveCounters,
) {
    if !worker.has_released() {
        return;
    }
    counters.normaliser = counters.normaliser.plus(worker.take_normalised());
    if let Some(batch) = batch {
        egress.transmit(batch);
    }
    while let Some((_, came)) = worker.take_released(frame) {
        if let Some(to) = to {
            exits.send(to, (frame, Segmentation::default(), came), rejecter, counters);
            continue;
        }
        // The port counts it as well.
        if let Err(refusal) = egress.transmit_frame(frame) {
            exits.unsent.note(side, refusal, frame, came);
        }
    }
}

/// Does with the frames that waited for one what was decided of them.
fn release(worker: &mut Worker, batch: &mut Batch, index: usize, link: LinkId, recorder: &mut dyn Recorder) {
    for waited in index.saturating_sub(worker.waiting())..index {
        let Some((frame, _)) = frame_of(batch, waited, link) else { continue };
        // Who is told of a rejection is told once, with the last of them.
        if worker.release(&frame, recorder).verdict.forwards() {
            batch.set_disposition(waited, Disposition::Forward);
        }
    }
}

/// Sends those of the frames that are to leave and are larger than the port carries, as segments; what came
/// before them in the batch goes first. What cannot be cut is left for the port to refuse.
fn send_large(
    egress: &mut dyn Port,
    batch: &mut Batch,
    frames: core::ops::RangeInclusive<usize>,
    rejecter: &mut Rejecter,
    counters: &mut LiveCounters,
) {
    for index in frames {
        let told = batch.info(index).map(|info| info.segmentation).unwrap_or_default();
        let is_cut = batch.bytes(index).is_some_and(|bytes| is_to_be_cut(bytes, told.size, egress));
        if !is_cut || batch.disposition(index) != Some(Disposition::Forward) {
            continue;
        }
        batch.set_disposition(index, Disposition::Hold);
        egress.transmit(batch);
        let sent = batch.info(index).is_some_and(|info| info.refusal().is_ok())
            && batch.bytes(index).is_some_and(|b| send_as_segments(egress, b, told, rejecter, counters));
        if !sent {
            batch.set_disposition(index, Disposition::Forward);
        }
    }
}

/// Whether a frame is to leave in pieces: it is larger than a port carries, be it tagged, or more than one
/// segment of its sender. The latter also where it would fit: in a tunnel the checksum around it is not right
/// before it is cut, and the way behind the port may be narrower.
fn is_to_be_cut(bytes: &[u8], told: u16, egress: &dyn Port) -> bool {
    let of_segment = usize::from(told).saturating_add(HEADERS_LEAST);
    bytes.len() > egress.mtu() as usize + ETHERNET_AND_TAG || told != 0 && bytes.len() > of_segment
}

/// Sends a frame as segments, of the size that its sender told. `false`: it cannot be cut, and nothing was
/// sent.
fn send_as_segments(
    egress: &mut dyn Port,
    bytes: &[u8],
    told: Segmentation,
    rejecter: &mut Rejecter,
    counters: &mut LiveCounters,
) -> bool {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    rejecter.decoder.decode(LinkType::ETHERNET, bytes, length, &mut rejecter.output);
    let (mtu, mut pieces) = (egress.mtu(), 0u64);
    let mut send = |segment: &[u8]| {
        pieces += 1;
        // The port counts what it does not take.
        let _ = egress.transmit_frame(segment);
    };
    let known = rejecter.output.packets();
    let header = usize::from(told.header);
    let done = match segmentation::hidden_in_tunnel(bytes, known, header, &mut rejecter.decoder) {
        Some(hidden) => segmentation::cut(bytes, &[known, &[hidden]].concat(), mtu, told.size, &mut send),
        None => segmentation::cut(bytes, known, mtu, told.size, &mut send),
    };
    counters.normaliser.cut += u64::from(done.is_some());
    counters.normaliser.pieces += pieces.saturating_sub(1);
    done.is_some()
}

/// Does with a frame of the batch what was decided.
fn settle(
    worker: &mut Worker,
    batch: &mut Batch,
    index: usize,
    decision: &Decision,
    exits: &mut Exits<'_>,
    rejecter: &mut Rejecter,
    counters: &mut LiveCounters,
) {
    if decision.verdict == Verdict::Reject
        && let Some(bytes) = batch.bytes(index)
    {
        rejecter.make(bytes, &mut counters.normaliser);
    }
    // A frame that is not marked stays here.
    if !decision.verdict.forwards() {
        return;
    }
    if let Some(change) = worker.take_rewrite() {
        let longer = &mut rejecter.longer;
        let done = batch
            .bytes_mut(index)
            .is_some_and(|b| normaliser::rewrite(b, &change, longer, &mut counters.normaliser));
        if !longer.is_empty() {
            batch.replace(index, longer);
        }
        worker.reuse_rewrite(change);
        if !done {
            counters.unwritable += 1;
            return;
        }
    }
    if let Some(to) = decision.egress {
        exits.send_of(to, (batch, index), rejecter, counters);
        return;
    }
    batch.set_disposition(index, Disposition::Forward);
}

/// Answers to rejected packets, sent after the batch; what decodes frames that are cut; and room for a frame
/// that leaves longer than it came.
struct Rejecter {
    decoder: Decoder,
    output: DecodeOutput,
    frames: Vec<Vec<u8>>,
    /// A frame that grew.
    longer: Vec<u8>,
}

impl Rejecter {
    /// It knows the same tunnels as the workers do.
    fn new(worker: &Worker) -> Self {
        Rejecter {
            decoder: Decoder::new(*worker.decoder_config()),
            output: DecodeOutput::default(),
            frames: Vec::new(),
            longer: Vec::new(),
        }
    }

    fn make(&mut self, bytes: &[u8], counters: &mut NormaliserCounters) {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.decoder.decode(LinkType::ETHERNET, bytes, length, &mut self.output);
        if let Some(packet) = self.output.outer() {
            self.frames.extend(normaliser::rejection(&PacketView::new(bytes, packet), counters));
        }
    }

    fn send(&mut self, port: &mut dyn Port) {
        if self.frames.is_empty() {
            return;
        }
        for frame in self.frames.drain(..) {
            // A refusal is in the port's own counters.
            let _ = port.transmit_frame(&frame);
        }
        let _ = port.flush();
    }
}
