// SPDX-License-Identifier: Apache-2.0
//! The source of an inline link: two ports that forward to each other, and named ports for redirected frames.

mod egress;
mod unsent;

use super::prepare::{checksums_of, fill_in_checksums, frame_of};
use super::{Arrivals, HandedOver, LevelWay, Source, Taken};
use crate::ahead::AHEAD;
use crate::counters::LiveCounters;
use crate::worker::{Frame, Worker};
use bartizan_base::{Generation, LinkId, Timestamp};
use bartizan_offload::level::FramePassage;
use bartizan_ports::{
    Batch, Disposition, FrameInfo, InlinePair, PairSide, PortError, PortStats, Segmentation, Waker, Woke,
};
use bartizan_stages::record::Recorder;
use bartizan_stages::train;
use egress::{Egress, FrameEditor};
use std::time::Duration;
use unsent::UnsentFrames;

/// Tag bit: the frame came in by side B.
const SIDE_B: u32 = 1;
/// Tag bit: the frame may not leave as it is, since only its first bytes were captured, or it is several
/// datagrams.
const INCOMPLETE: u32 = 2;
/// First tag bit of the offset of the header that segments repeat.
const HEADER: u32 = 2;
/// The largest such offset.
const HEADER_MAX: u16 = 0x3fff;
/// First tag bit of the sender's segment size.
const SEGMENT: u32 = 16;

/// The source; see the module.
pub struct InlineSource {
    // Dropped before the pair: frames return to rings that still exist.
    batch: Batch,
    pair: InlinePair,
    /// Editors by side.
    editors: [FrameEditor; 2],
    /// Buffer for a frame that is changed before it leaves, or was held.
    room: Vec<u8>,
    unsent: UnsentFrames,
    /// By side: whether a frame that came in by it was delivered since the last flush.
    delivered: [bool; 2],
    /// A level of this process that sees frames first.
    level: Option<LevelWay>,
}

impl InlineSource {
    /// The source of a pair of ports.
    #[must_use]
    pub fn new(pair: InlinePair) -> Self {
        InlineSource {
            batch: Batch::with_capacity(0),
            pair,
            editors: Default::default(),
            room: Vec::new(),
            unsent: UnsentFrames::default(),
            delivered: [false; 2],
            level: None,
        }
    }

    /// Takes the frames that came in by one side.
    fn take_side(&mut self, side: PairSide, arrivals: &mut Arrivals<'_>) -> Result<usize, PortError> {
        let InlineSource { batch, pair, editors: [of_a, of_b], room, unsent, level, .. } = self;
        let editor = if side == PairSide::A { of_a } else { of_b };
        let (ingress, across, exits) = pair.ways(side);
        if ingress.receive(batch)? == 0 {
            return Ok(0);
        }
        let frames = editor.reader.split(batch, arrivals.counters);
        fill_in_checksums(batch, arrivals.counters);
        let link = arrivals.link();
        for index in 0..frames {
            prefetch_flows(arrivals, batch, index, side);
            let Some((frame, info)) = frame_of(batch, index, link) else { continue };
            match passage(level.as_ref(), &frame, info, side) {
                FramePassage::Up => {}
                FramePassage::Leaves(_) => {
                    arrivals.counters.level_forwarded += 1;
                    batch.set_disposition(index, Disposition::Forward);
                    continue;
                }
                FramePassage::Dropped => {
                    arrivals.counters.level_dropped += 1;
                    continue;
                }
            }
            // The next frame may end at the level, so none waits for it.
            let follows = level.is_none() && is_followed(arrivals.station.worker(), batch, index);
            let here = arrivals.frame(&frame, checksums_of(info.flags), tag_of(side, info), follows);
            let worker = arrivals.station.worker_mut();
            let counters = &mut *arrivals.counters;
            let (across, exits, unsent, editor) = (&mut *across, &mut *exits, &mut *unsent, &mut *editor);
            let mut egress = Egress { side, across, exits, unsent, editor, counters };
            egress.send_released(worker, Some(batch), here.and_then(|decision| decision.egress), room);
            if let Some(decision) = here {
                egress.apply(worker, batch, index, &decision);
            }
            let first = index.saturating_sub(worker.waiting());
            release(worker, batch, index, link, arrivals.recorder);
            egress.send_large(batch, first..=index);
        }
        across.transmit(batch);
        unsent.note_batch(side, batch);
        across.flush()?;
        egress::flush(exits);
        batch.clear();
        editor.send_answers(ingress);
        Ok(frames)
    }
}

impl Source for InlineSource {
    fn forwards(&self) -> bool {
        true
    }

    fn pass_through(&mut self, level: LevelWay) {
        self.level = Some(level);
    }

    fn begin(&mut self, worker: &mut Worker, batch: usize) {
        self.batch = Batch::with_capacity(batch);
        self.editors = [FrameEditor::new(worker), FrameEditor::new(worker)];
    }

    fn take(&mut self, arrivals: &mut Arrivals<'_>) -> Result<Taken, PortError> {
        let mut taken = Taken::default();
        for side in PairSide::BOTH {
            taken.frames += self.take_side(side, arrivals)?;
        }
        Ok(taken)
    }

    fn deliver(&mut self, worker: &mut Worker, handed: &HandedOver<'_>, counters: &mut LiveCounters) {
        let side = if handed.tag & SIDE_B == 0 { PairSide::A } else { PairSide::B };
        let InlineSource { pair, editors: [of_a, of_b], room, unsent, delivered: [from_a, from_b], .. } =
            self;
        let (editor, delivered) = if side == PairSide::A { (of_a, from_a) } else { (of_b, from_b) };
        *delivered = true;
        let (_, across, exits) = pair.ways(side);
        let mut egress = Egress { side, across, exits, unsent, editor, counters };
        egress.deliver(worker, handed, segmentation_of(handed.tag), room);
    }

    fn flush(&mut self) -> Result<(), PortError> {
        let InlineSource { pair, editors, delivered, .. } = self;
        egress::flush(pair.exits());
        for ((side, delivered), editor) in PairSide::BOTH.into_iter().zip(delivered).zip(editors) {
            let (ingress, across) = pair.direction(side);
            if core::mem::take(delivered) {
                across.flush()?;
            }
            editor.send_answers(ingress);
        }
        Ok(())
    }

    fn has_unsent(&self) -> bool {
        self.unsent.is_pending()
    }

    fn report_unsent(&mut self, now: Option<Timestamp>, generation: Generation, recorder: &mut dyn Recorder) {
        self.unsent.report(now, &mut self.pair, generation, recorder);
    }

    fn each_port(&mut self, each: &mut dyn FnMut(&str, &PortStats, u64)) {
        let mut one = |port: &mut dyn bartizan_ports::Port| {
            let stats = port.stats();
            each(port.name(), &stats, port.pending() as u64);
        };
        PairSide::BOTH.into_iter().for_each(|side| one(self.pair.port(side)));
        self.pair.exits().iter_mut().for_each(|port| one(&mut **port));
    }

    fn now(&mut self) -> Timestamp {
        self.pair.port(PairSide::A).now()
    }

    fn backlog(&self) -> u8 {
        self.pair.backlog()
    }

    fn busy_poll(&mut self, else_ready: &dyn Fn() -> bool, spin: Duration) -> bool {
        self.pair.busy_poll(else_ready, spin)
    }

    fn wait(&mut self, waker: Option<&Waker>, timeout: Duration) -> Result<Woke, PortError> {
        self.pair.wait(waker, Duration::ZERO, timeout)
    }
}

/// The result of a frame at a level of this process. A frame that is not complete, or is several segments, is
/// the worker's.
fn passage(level: Option<&LevelWay>, frame: &Frame<'_>, info: &FrameInfo, side: PairSide) -> FramePassage {
    let whole = info.refusal().is_ok() && info.segmentation.size == 0;
    let Some(LevelWay { path, ports: [first, second] }) = level.filter(|_| whole) else {
        return FramePassage::Up;
    };
    let (ingress, across) = if side == PairSide::A { (*first, *second) } else { (*second, *first) };
    match path.pass(ingress, frame.bytes, frame.now) {
        // It has none of the named ports.
        FramePassage::Leaves(port) if port != across => FramePassage::Dropped,
        passage => passage,
    }
}

/// Prefetches the flows of the next frames of a batch, some at a time. A single frame is not worth it.
fn prefetch_flows(arrivals: &Arrivals<'_>, batch: &Batch, index: usize, side: PairSide) {
    if index.is_multiple_of(AHEAD) && index + 1 < batch.len() {
        let next = index..batch.len().min(index + AHEAD);
        arrivals.expect(next.filter_map(|index| batch.bytes(index)), side as u32);
    }
}

/// Whether the next frame of a batch continues a frame's TCP segment.
fn is_followed(worker: &Worker, batch: &Batch, index: usize) -> bool {
    if !worker.forms_trains() {
        return false;
    }
    let both = batch.bytes(index).zip(batch.bytes(index + 1));
    both.is_some_and(|(frame, next)| train::follows(frame, next))
}

/// Carries out the decisions on the frames that waited for the one at `index`. A rejection is sent once, with
/// the last of them.
fn release(worker: &mut Worker, batch: &mut Batch, index: usize, link: LinkId, recorder: &mut dyn Recorder) {
    for waited in index.saturating_sub(worker.waiting())..index {
        let Some((frame, _)) = frame_of(batch, waited, link) else { continue };
        if worker.release(&frame, recorder).verdict.forwards() {
            batch.set_disposition(waited, Disposition::Forward);
        }
    }
}

/// The tag of a frame: the facts that [`InlineSource::deliver`] needs.
fn tag_of(side: PairSide, info: &FrameInfo) -> u32 {
    let incomplete = if info.refusal().is_err() { INCOMPLETE } else { 0 };
    let side = if side == PairSide::B { SIDE_B } else { 0 };
    let Segmentation { size, header } = info.segmentation;
    // A larger offset is left out.
    let header = if header <= HEADER_MAX { header } else { 0 };
    u32::from(size) << SEGMENT | u32::from(header) << HEADER | incomplete | side
}

/// The segmentation in a tag. `None`: the frame is not complete.
const fn segmentation_of(tag: u32) -> Option<Segmentation> {
    if tag & INCOMPLETE != 0 {
        return None;
    }
    Some(Segmentation { size: (tag >> SEGMENT) as u16, header: (tag >> HEADER) as u16 & HEADER_MAX })
}
