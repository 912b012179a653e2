// SPDX-License-Identifier: Apache-2.0
//! Owners of packets, and the hand-over of packets that arrive at a worker which does not own their flow.
//!
//! A flow has one home: the worker selected by a keyed symmetric hash of link, virtual network, addresses and
//! ports ([`Spread`](bartizan_base::Spread), which the kernel computes as well, so that a plain packet
//! arrives at its owner); an ICMP error is hashed by the packet that it quotes. Fragments belong to the owner
//! of their addresses until their datagram is complete; the datagram then goes to the owner of its flow. The
//! home owns the flow, until it moves the flow to another worker and hands the flow's packets on (`moves`).
//!
//! Each worker has a [`Station`]. A received frame is walked through, innermost packet first, as in
//! [`Worker::frame`]. At a packet of another owner the frame, with its decoded packets and their decisions,
//! becomes a [`Parcel`] and continues at that owner; the worker that handles the last packet has the decision
//! for the whole frame and forwards it. So each packet of a frame is handled once, by its owner, and a frame
//! leaves once.
//!
//! Order: two stations are connected by one single-producer ring per direction, so packets of a flow that
//! arrive at one station reach the owner in the order of their arrival. Packets of a flow that take different
//! paths (some as fragments; two directions on two queues) have the order in which they reach the owner. With
//! a single reader of captures, `captures` keeps the order of the capture for those as well.
//!
//! Bounds: a station has a fixed number of parcels. They return to it by a second ring; when none is left, or
//! a ring is full, the frame is refused with [`Reason::HandOverRing`] and counted at the station where that
//! happened.
//!
//! Memory ordering: parcels are handed over by value through `rtrb` rings (tail stored with `Release`, loaded
//! with `Acquire`), so a parcel is never visible to two threads. `HandoverLedger` detects the end of all
//! stations; see its documentation.
//!
//! Generations: a frame is handled in the generation of its first packet. During a swap, a worker that runs
//! another generation handles the rest of such a frame in the frame's generation (`Worker::in_generation`).
//!
//! Not done: order between inner flows of one tunnel, whose frames may overtake each other (those of one
//! inner flow do not).

pub(crate) mod away;
mod moves;
mod owners;
mod site;

use crate::walk::{WalkStop, only_packet};
use crate::worker::{Frame, Worker};
use away::Away;
use bartizan_base::{Decision, FunctionId, LinkId, Reason, Timestamp, Verdict, WorkerId};
use bartizan_flow::FlowKey;
use bartizan_packet::LinkType;
use bartizan_ports::BACKLOG_PARTS;
use bartizan_stages::frame::PacketPosition;
use bartizan_stages::intake::fragment::Settled;
use bartizan_stages::moving::MovedFlow;
use bartizan_stages::record::Recorder;
use bartizan_stages::settings::EngineSettings;
use rtrb::{Consumer, Producer, RingBuffer};
use site::{Journey, Site};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub use crate::counters::HandOverCounters;
pub use away::AWAY_MAX;
pub use owners::Owners;

/// A frame in transit from one worker to another.
#[derive(Default)]
pub struct Parcel {
    now: Timestamp,
    wire_len: u32,
    link_type: LinkType,
    link: LinkId,
    number: Option<u64>,
    /// The caller's tag: the port that the frame leaves by.
    tag: u32,
    home: WorkerId,
    bytes: Vec<u8>,
    journey: Journey,
}

/// A message from one station to another; a ring keeps their order.
enum StationMessage {
    Frame(Box<Parcel>),
    /// To a guest's worker: adopt this flow.
    Flow(Box<MovedFlow>),
    /// To a guest's worker: give this flow back.
    Recall(Box<FlowKey>),
    /// To the flow's home: it has arrived.
    Arrived(Box<FlowKey>),
    /// To the flow's home: the flow cannot be given back.
    Stays(Box<FlowKey>),
    /// To the flow's home: the flow, given back.
    Back(Box<MovedFlow>),
    /// To the flow's home: the flow has ended, after the packet of this number.
    Ended(Box<(FlowKey, u64)>),
}

/// Receives each frame after its last packet, with the frame's decision and tag.
type Decided<'d> = dyn FnMut(&mut Worker, &Frame<'_>, Decision, u32) + 'd;

/// Detects the end of all stations: no station takes frames any more and no parcel is in transit.
///
/// `begun` and `ended` of a station are written by that station alone. A station closes with `Release` after
/// its last frame, so a thread that sees it closed (`Acquire`) sees its final `begun`. After that only
/// `ended` can grow, and every end is of a parcel that was begun: when the sums, read after all are closed,
/// are equal, no parcel is in transit. A parcel ends before its count does (`Release`), so a thread that sees
/// the sum also sees the effects of the parcels.
///
/// Moves of flows are counted by the flow's home alone, which begins none after it has closed: from then on
/// their number only falls, and at 0 none is in progress.
#[derive(Debug)]
struct HandoverLedger {
    stations: Box<[Account]>,
}

/// The counters of one station, on a cache line of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Account {
    begun: AtomicU64,
    ended: AtomicU64,
    closed: AtomicBool,
    /// Moves that this station has begun and that are in progress.
    moves: AtomicU64,
}

impl HandoverLedger {
    fn of(stations: usize) -> Self {
        HandoverLedger { stations: (0..stations).map(|_| Account::default()).collect() }
    }

    fn add(counter: &AtomicU64) {
        // This thread is the only writer.
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    fn begin(&self, station: WorkerId) {
        if let Some(account) = self.stations.get(usize::from(station.0)) {
            Self::add(&account.begun);
        }
    }

    fn end(&self, station: WorkerId) {
        if let Some(account) = self.stations.get(usize::from(station.0)) {
            Self::add(&account.ended);
        }
    }

    fn move_begins(&self, station: WorkerId) {
        if let Some(account) = self.stations.get(usize::from(station.0)) {
            Self::add(&account.moves);
        }
    }

    fn move_ends(&self, station: WorkerId) {
        if let Some(account) = self.stations.get(usize::from(station.0)) {
            // This thread is the only writer.
            let left = account.moves.load(Ordering::Relaxed).saturating_sub(1);
            account.moves.store(left, Ordering::Release);
        }
    }

    fn is_over(&self) -> bool {
        let is_done = |s: &Account| s.closed.load(Ordering::Acquire) && s.moves.load(Ordering::Acquire) == 0;
        if !self.stations.iter().all(is_done) {
            return false;
        }
        let begun: u64 = self.stations.iter().map(|s| s.begun.load(Ordering::Acquire)).sum();
        let ended: u64 = self.stations.iter().map(|s| s.ended.load(Ordering::Acquire)).sum();
        begun == ended
    }

    /// Parcels in transit; exact only while no station runs.
    fn under_way(&self) -> u64 {
        let ended: u64 = self.stations.iter().map(|s| s.ended.load(Ordering::Acquire)).sum();
        let begun: u64 = self.stations.iter().map(|s| s.begun.load(Ordering::Acquire)).sum();
        begun.saturating_sub(ended)
    }
}

/// Rings to one other station.
struct Outgoing {
    frames: Producer<StationMessage>,
    /// Empty parcels of this station, coming home.
    home: Consumer<Box<Parcel>>,
}

/// Rings from one other station.
struct Incoming {
    frames: Consumer<StationMessage>,
    /// Empty parcels on their way to their home.
    home: Producer<Box<Parcel>>,
}

impl Incoming {
    /// Fill of the ring, in eighths.
    fn backlog(&self) -> u8 {
        let room = self.frames.buffer().capacity().max(1);
        let eighths = self.frames.slots() * usize::from(BACKLOG_PARTS) / room;
        u8::try_from(eighths).unwrap_or(BACKLOG_PARTS).min(BACKLOG_PARTS - 1)
    }
}

/// Outcome of a frame at the station where it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// The frame is decided here.
    Here(Decision),
    /// The frame is at this worker; it leaves from there, or, if it is held for a flow that is moving, from
    /// the worker that has the flow then.
    Away(WorkerId),
    /// The frame is a fragment and is held here until its datagram is complete ([`Worker::take_released`]).
    Held,
}

/// A worker with its hand-over rings.
pub struct Station {
    me: WorkerId,
    owners: Owners,
    worker: Worker,
    /// Rings by worker; `None` for this worker itself.
    outgoing: Vec<Option<Outgoing>>,
    incoming: Vec<Option<Incoming>>,
    // Rings carry parcels as pointers: a push moves eight bytes.
    #[allow(clippy::vec_box)]
    parcels: Vec<Box<Parcel>>,
    ledger: Arc<HandoverLedger>,
    /// Flows whose home is here and which other workers own.
    away: Away<Box<Parcel>>,
    /// Queued answers to the homes of guests.
    answers: VecDeque<(WorkerId, StationMessage)>,
    closed: bool,
    counters: HandOverCounters,
    /// Workers that were handed something since the last [`Station::take_touched`], a bit each (the last for
    /// all beyond).
    touched: u64,
}

/// Makes connected stations for workers with these settings; each can then move to its thread. `parcels`:
/// frames that each station can have in transit, also the length of each ring.
#[must_use]
pub fn connect(workers: Vec<Worker>, settings: &EngineSettings, parcels: usize) -> Vec<Station> {
    let count = u16::try_from(workers.len()).unwrap_or(u16::MAX);
    // A single worker hands nothing over.
    let parcels = if count == 1 { 1 } else { parcels.max(1) };
    let owners = Owners::new(settings.spread(count));
    let ledger = Arc::new(HandoverLedger::of(workers.len()));
    let mut stations: Vec<Station> = (0..count)
        .zip(workers)
        .map(|(me, worker)| Station::new(WorkerId(me), owners, worker, parcels, Arc::clone(&ledger)))
        .collect();
    for from in 0..stations.len() {
        for to in 0..stations.len() {
            let (outgoing, incoming) = if from == to {
                (None, None)
            } else {
                let (frames_in, frames_out) = RingBuffer::new(parcels);
                // One ring has room for all of a station's parcels on their way home.
                let (home_in, home_out) = RingBuffer::new(parcels);
                (
                    Some(Outgoing { frames: frames_in, home: home_out }),
                    Some(Incoming { frames: frames_out, home: home_in }),
                )
            };
            if let Some(station) = stations.get_mut(from) {
                station.outgoing.push(outgoing);
            }
            if let Some(station) = stations.get_mut(to) {
                station.incoming.push(incoming);
            }
        }
    }
    stations
}

impl Station {
    fn new(
        me: WorkerId,
        owners: Owners,
        worker: Worker,
        parcels: usize,
        ledger: Arc<HandoverLedger>,
    ) -> Self {
        Station {
            me,
            owners,
            worker,
            outgoing: Vec::new(),
            incoming: Vec::new(),
            parcels: (0..parcels).map(|_| Box::new(Parcel { home: me, ..Parcel::default() })).collect(),
            ledger,
            away: Away::default(),
            answers: VecDeque::new(),
            closed: false,
            counters: HandOverCounters::default(),
            touched: 0,
        }
    }

    /// The station of a link's only worker, which owns all flows and hands nothing over.
    #[must_use]
    pub fn alone(worker: Worker) -> Self {
        let owners = Owners::new(worker.settings.spread(1));
        // One parcel, for a frame that has several packets or is a fragment.
        Station::new(WorkerId(0), owners, worker, 1, Arc::new(HandoverLedger::of(1)))
    }

    /// Takes the worker out of the station.
    #[must_use]
    pub fn into_worker(self) -> Worker {
        self.worker
    }

    /// Number of the worker on its link.
    #[must_use]
    pub const fn id(&self) -> WorkerId {
        self.me
    }

    /// The worker.
    #[must_use]
    pub const fn worker(&self) -> &Worker {
        &self.worker
    }

    /// The worker, to swap generations or to advance its clock.
    pub const fn worker_mut(&mut self) -> &mut Worker {
        &mut self.worker
    }

    /// The station's counters.
    #[must_use]
    pub const fn counters(&self) -> HandOverCounters {
        self.counters
    }

    /// The map of owners, for callers that request moves.
    #[must_use]
    pub const fn owners(&self) -> Owners {
        self.owners
    }

    /// Flows whose home is here and which other workers own, or which are moving.
    #[must_use]
    pub fn flows_away(&self) -> usize {
        self.away.len()
    }

    /// Workers that were handed frames since the last call, a bit each: to be woken once per batch. Bit 63
    /// covers all workers from the 64th on.
    pub const fn take_touched(&mut self) -> u64 {
        let touched = self.touched;
        self.touched = 0;
        touched
    }

    /// Handles a frame that arrived here. `tag` travels with the frame, for the worker that forwards it. As
    /// with [`Worker::frame`], [`Worker::take_rewrite`] returns the change that the frame needs before it
    /// leaves from here.
    pub fn frame(&mut self, frame: &Frame<'_>, tag: u32, recorder: &mut dyn Recorder) -> Handled {
        self.worker.begin_frame(frame, false, recorder);
        self.handle(frame, tag, recorder)
    }

    /// [`Station::frame`], for a frame of a batch. `None`: the frame waits for the next one; see
    /// [`Worker::frame_in_batch`].
    pub fn frame_in_batch(
        &mut self,
        frame: &Frame<'_>,
        tag: u32,
        follows: bool,
        recorder: &mut dyn Recorder,
    ) -> Option<Handled> {
        self.worker.begin_frame(frame, follows, recorder);
        let handled = self.handle(frame, tag, recorder);
        if self.worker.train_took() {
            return None;
        }
        self.worker.close_train(recorder);
        Some(handled)
    }

    fn handle(&mut self, frame: &Frame<'_>, tag: u32, recorder: &mut dyn Recorder) -> Handled {
        self.worker.arrives_by(tag);
        let mut output = self.worker.intake.decode(frame);
        // A single whole packet that this worker owns: the usual case. Nothing is copied.
        if let Some(packet) = only_packet(&self.worker.settings, &output)
            && self.owners.of_packet(frame.link, packet) == self.me
            && self.away.key_of(&self.worker, frame, packet).is_none()
        {
            let place = PacketPosition::from(packet.recursion > 0);
            let decision = self.worker.packet(frame, frame.bytes, packet, &place, recorder);
            self.worker.intake.done(output);
            if self.worker.train_took() {
                return Handled::Here(decision);
            }
            return Handled::Here(self.decided(decision));
        }
        // Frames in parcels form no train.
        self.worker.leave_train();
        let Some(mut parcel) = self.parcel() else {
            self.worker.intake.done(output);
            return Handled::Here(self.refuse());
        };
        parcel.journey.begin(&mut output, frame.number);
        self.worker.intake.done(output);
        self.ledger.begin(self.me);
        let site = Site { me: self.me, owners: &self.owners, away: &self.away };
        match parcel.journey.run(&site, &mut self.worker, frame, recorder) {
            WalkStop::Done => match self.end(parcel, frame, recorder) {
                Some(decision) => Handled::Here(decision),
                None => Handled::Held,
            },
            WalkStop::At(owner) => {
                parcel.fill(frame, tag);
                match self.hand_over(parcel, owner, recorder) {
                    Ok(()) => Handled::Away(owner),
                    Err(decision) => Handled::Here(decision),
                }
            }
            WalkStop::Moved(key) => {
                parcel.fill(frame, tag);
                match self.follow(parcel, &key, recorder) {
                    Ok(worker) => Handled::Away(worker),
                    Err(decision) => Handled::Here(decision),
                }
            }
        }
    }

    /// Handles frames that other workers handed over, at most `budget` from each. `decided` receives each
    /// frame whose last packet was handled here, with its decision and tag, and forwards it or not (after the
    /// worker's [`Worker::take_rewrite`]). Returns the number of messages taken, those about moves of flows
    /// included.
    pub fn handed_over(
        &mut self,
        budget: usize,
        recorder: &mut dyn Recorder,
        mut decided: impl FnMut(&mut Worker, &Frame<'_>, Decision, u32),
    ) -> usize {
        let mut taken = 0;
        for from in 0..self.incoming.len() {
            for _ in 0..budget {
                let Some(Some(incoming)) = self.incoming.get_mut(from) else { break };
                let Ok(sent) = incoming.frames.pop() else { break };
                taken += 1;
                self.counters.taken += u64::from(matches!(sent, StationMessage::Frame(_)));
                // The number of stations fits into a worker's number.
                self.handle_message(WorkerId(from as u16), sent, recorder, &mut decided);
            }
        }
        self.answer();
        taken
    }

    /// Continues a frame that was handed over, or that was held for its flow.
    fn resume(&mut self, mut parcel: Box<Parcel>, recorder: &mut dyn Recorder, decided: &mut Decided<'_>) {
        let bytes = core::mem::take(&mut parcel.bytes);
        let frame = parcel.frame(&bytes);
        let tag = parcel.tag;
        self.worker.take_over(&frame, tag, recorder);
        let site = Site { me: self.me, owners: &self.owners, away: &self.away };
        let stop = parcel.journey.run(&site, &mut self.worker, &frame, recorder);
        if matches!(stop, WalkStop::Done) {
            // `None`: the frame is held, and the caller does nothing.
            if let Some(decision) = self.finish_frame(&mut parcel, &frame, recorder) {
                decided(&mut self.worker, &frame, decision, tag);
            }
        }
        parcel.bytes = bytes;
        // Refused on the way: the frame is counted and goes nowhere, and the caller does nothing.
        let _ = match stop {
            WalkStop::Done => {
                self.return_parcel(parcel);
                Ok(self.me)
            }
            WalkStop::At(owner) => self.hand_over(parcel, owner, recorder).map(|()| owner),
            WalkStop::Moved(key) => self.follow(parcel, &key, recorder),
        };
    }

    /// Closes the station: no more frames arrive here (those of other stations are still taken).
    pub fn close(&mut self) {
        self.closed = true;
        if let Some(account) = self.ledger.stations.get(usize::from(self.me.0)) {
            account.closed.store(true, Ordering::Release);
        }
    }

    /// Whether all stations are closed and no frame is in transit, so that flows can be ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ledger.is_over()
    }

    /// Takes the backlog before a batch: the larger one of the ports' and of the fullest ring from another
    /// worker. See [`Worker::shed_by`].
    pub fn shed_by(&mut self, ports: impl FnOnce() -> u8) {
        let Station { worker, incoming, .. } = self;
        worker.shed_by(|| incoming.iter().flatten().map(Incoming::backlog).fold(ports(), u8::max));
    }

    /// Whether messages of other stations, or queued answers to them, are waiting.
    #[must_use]
    pub fn has_parcels(&self) -> bool {
        self.incoming.iter().flatten().any(|incoming| !incoming.frames.is_empty())
            || !self.answers.is_empty()
            || self.worker.guests().has_ended()
    }

    /// Frames in transit between stations; exact only while none of them runs.
    #[must_use]
    pub fn under_way(&self) -> u64 {
        self.ledger.under_way()
    }

    /// An empty parcel, if one is left.
    fn parcel(&mut self) -> Option<Box<Parcel>> {
        if let Some(parcel) = self.parcels.pop() {
            return Some(parcel);
        }
        for outgoing in self.outgoing.iter_mut().flatten() {
            while let Ok(parcel) = outgoing.home.pop() {
                self.parcels.push(parcel);
            }
        }
        self.parcels.pop()
    }

    /// Hands a parcel over to its next owner. `Err`: the decision, if there is no room.
    fn hand_over(
        &mut self,
        parcel: Box<Parcel>,
        owner: WorkerId,
        recorder: &mut dyn Recorder,
    ) -> Result<(), Decision> {
        match self.send_message(owner, StationMessage::Frame(parcel)) {
            Ok(()) => {
                self.counters.handed_over += 1;
                Ok(())
            }
            Err(sent) => {
                if let StationMessage::Frame(parcel) = sent {
                    self.lose(parcel, recorder);
                }
                Err(self.refuse())
            }
        }
    }

    /// Sends a message, if the ring has room.
    fn send_message(&mut self, to: WorkerId, sent: StationMessage) -> Result<(), StationMessage> {
        let Some(Some(outgoing)) = self.outgoing.get_mut(usize::from(to.0)) else { return Err(sent) };
        outgoing.frames.push(sent).map_err(|rtrb::PushError::Full(sent)| sent)?;
        self.touched |= 1 << to.0.min(63);
        Ok(())
    }

    fn has_ring_room(&self, to: WorkerId) -> bool {
        self.outgoing.get(usize::from(to.0)).and_then(Option::as_ref).is_some_and(|o| o.frames.slots() > 0)
    }

    /// Ends a walk that began here. Returns the decision, unless the frame is held.
    fn end(
        &mut self,
        mut parcel: Box<Parcel>,
        frame: &Frame<'_>,
        recorder: &mut dyn Recorder,
    ) -> Option<Decision> {
        let decision = self.finish_frame(&mut parcel, frame, recorder);
        self.return_parcel(parcel);
        decision
    }

    /// Settles a frame whose packets are all handled.
    fn finish_frame(
        &mut self,
        parcel: &mut Parcel,
        frame: &Frame<'_>,
        recorder: &mut dyn Recorder,
    ) -> Option<Decision> {
        let walk = &mut parcel.journey.walk;
        match self.worker.finish_frame(frame, walk, recorder) {
            Settled::Decided(decision) => Some(self.decided(decision)),
            Settled::Held => None,
        }
    }

    /// Gives up a frame that cannot continue. Where this worker keeps the frame's fragments, their datagrams
    /// are given up too; elsewhere they end by timeout.
    fn lose(&mut self, mut parcel: Box<Parcel>, recorder: &mut dyn Recorder) {
        let joined = core::mem::take(&mut parcel.journey.walk.joined);
        if parcel.journey.walk.keeper() == Some(self.me) {
            self.worker.discard_datagrams(joined, recorder);
        }
        self.return_parcel(parcel);
    }

    /// Returns an empty parcel to its home.
    fn return_parcel(&mut self, parcel: Box<Parcel>) {
        let home = parcel.home;
        if home == self.me {
            self.parcels.push(parcel);
        } else if let Some(Some(incoming)) = self.incoming.get_mut(usize::from(home.0)) {
            // The ring has room for all parcels of that station.
            let _ = incoming.home.push(parcel);
        }
        self.ledger.end(self.me);
    }

    fn refuse(&mut self) -> Decision {
        self.counters.refused += 1;
        // The frame was not inspected, so it is not forwarded, even in detection.
        self.worker.refuse_unseen(Reason::HandOverRing);
        Decision::refuse(Verdict::Drop, Reason::HandOverRing, FunctionId::ENGINE)
    }

    /// Counts a decision, as [`Worker::frame`] does; returns the decision that is carried out.
    fn decided(&mut self, decision: Decision) -> Decision {
        self.worker.decided(&decision)
    }
}

impl Parcel {
    fn fill(&mut self, frame: &Frame<'_>, tag: u32) {
        self.now = frame.now;
        self.wire_len = frame.wire_len;
        self.link_type = frame.link_type;
        self.link = frame.link;
        self.number = frame.number;
        self.tag = tag;
        self.bytes.clear();
        self.bytes.extend_from_slice(frame.bytes);
    }

    const fn frame<'a>(&self, bytes: &'a [u8]) -> Frame<'a> {
        Frame {
            now: self.now,
            bytes,
            wire_len: self.wire_len,
            link_type: self.link_type,
            link: self.link,
            number: self.number,
        }
    }
}
