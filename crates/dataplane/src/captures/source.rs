// SPDX-License-Identifier: Apache-2.0
//! The source of one of several workers over captures: it takes the reader's rounds, and handles the packets
//! that its worker owns, at their places in the order of all workers.

use super::patience::wait_until;
use super::round::{Round, RoundFrame, RoundPacket, pack};
use crate::source::{Arrivals, Source, Taken};
use crate::worker::{Frame, Worker};
use bartizan_base::turns::CaptureTurns;
use bartizan_base::{Decision, Timestamp, WorkerId};
use bartizan_ports::{PortError, PortStats, Waker, Woke, wait_any};
use bartizan_stages::frame::{Inside, PacketPosition, next_frame};
use bartizan_stages::guests::Guest;
use bartizan_stages::record::Recorder;
use rtrb::Consumer;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::Thread;
use std::time::Duration;

/// Steps of a frame, in order. Before the first frame of a round a worker enters the round's generation,
/// gives flows away, then adopts others.
const GIVES: u64 = 0;
const TAKES: u64 = 1;
/// The clock advances.
const BEGINS: u64 = 2;
/// First step of packets. Flows that end with a frame end before its packets, each at the step of its
/// beginning (beyond 255).
const PACKETS: u64 = 1 << 63;

/// The rounds of one worker.
pub(super) struct RoundSource {
    me: WorkerId,
    rounds: Consumer<Arc<Round>>,
    reader: Thread,
    capture: Option<Arc<str>>,
    turns: Arc<CaptureTurns>,
    /// Time of the last frame.
    clock: Timestamp,
}

impl RoundSource {
    pub(super) fn new(
        me: WorkerId,
        rounds: Consumer<Arc<Round>>,
        reader: Thread,
        turns: Arc<CaptureTurns>,
    ) -> Self {
        RoundSource { me, rounds, reader, capture: None, turns, clock: Timestamp::ZERO }
    }

    fn has_rounds(&self) -> bool {
        !self.rounds.is_empty() || self.rounds.is_abandoned()
    }
}

impl Source for RoundSource {
    fn replays(&self) -> bool {
        true
    }

    fn begin(&mut self, worker: &mut Worker, _batch: usize) {
        worker.set_turn(Some(self.turns.take_part(usize::from(self.me.0))));
        if self.me != WorkerId(0) {
            worker.leave_hosts_to_another();
        }
    }

    fn take(&mut self, arrivals: &mut Arrivals<'_>) -> Result<Taken, PortError> {
        // The end first: earlier rounds are then taken in any case.
        let has_ended = self.rounds.is_abandoned();
        let Ok(round) = self.rounds.pop() else {
            return Ok(Taken { has_ended, ..Taken::default() });
        };
        let (worker, recorder) = arrivals.parts();
        RoundTurn { source: self, worker, recorder, round: &round }.run();
        drop(round);
        self.reader.unpark();
        // An empty round counts too: more may follow.
        Ok(Taken { frames: 1, newest: self.clock, has_ended: false })
    }

    fn end(&mut self, worker: &mut Worker) {
        worker.set_turn(None);
    }

    fn each_port(&mut self, _each: &mut dyn FnMut(&str, &PortStats, u64)) {}

    fn now(&mut self) -> Timestamp {
        self.clock
    }

    fn busy_poll(&mut self, else_ready: &dyn Fn() -> bool, _spin: Duration) -> bool {
        self.has_rounds() || else_ready()
    }

    fn wait(&mut self, waker: Option<&Waker>, timeout: Duration) -> Result<Woke, PortError> {
        // The reader wakes only a worker that it sees asleep: a round may have come just before.
        if self.has_rounds() {
            return Ok(Woke::Packets);
        }
        wait_any(&mut [], waker, Duration::ZERO, timeout)
    }
}

/// A round in the hands of one worker.
struct RoundTurn<'t> {
    source: &'t mut RoundSource,
    worker: &'t mut Worker,
    recorder: &'t mut dyn Recorder,
    round: &'t Round,
}

impl RoundTurn<'_> {
    fn run(&mut self) {
        let round = self.round;
        if round.chains.generation != self.worker.generation() {
            self.worker.enter_generation(Arc::clone(&round.chains));
        }
        if round.capture != self.source.capture {
            self.source.capture.clone_from(&round.capture);
            self.recorder.enter_capture(self.source.capture.as_deref().unwrap_or_default());
        }
        self.moves();
        let mut first = 0;
        for head in &round.frames {
            let place = next_frame(self.worker.position.place);
            self.worker.position.place = place;
            let frame = place >> 8;
            self.at(frame, BEGINS);
            self.source.clock = head.now;
            self.worker.pass_frame(head.now, self.recorder);
            let parts = round.parts.get(first..head.parts).unwrap_or_default();
            first = head.parts;
            let me = self.source.me;
            for (step, part) in (0u64..).zip(parts).filter(|(_, part)| part.owner == me) {
                self.worker.position.place = frame << 8 | step.min(0xff);
                self.at(frame, PACKETS | step);
                let inside = self.decided_inside(parts.iter().take(step as usize));
                self.part(head, part, inside);
            }
        }
        // The next frame is not available yet, and comes after all present work of the others.
        self.at((self.worker.position.place >> 8) + 1, GIVES);
        while let Some((key, _)) = self.worker.next_ended_guest() {
            if let Ok(mut ended) = round.ended.lock() {
                ended.push(key);
            }
        }
    }

    /// Gives flows away, then adopts others: all flows are given first, since other workers may wait for
    /// them.
    fn moves(&mut self) {
        let (round, me) = (self.round, self.source.me);
        for crossing in round.moves.iter().filter(|crossing| crossing.from == me) {
            self.worker.guests_mut().remove(&crossing.key);
            let id = self.worker.flow_of_key(&crossing.key);
            crossing.deposit(id.and_then(|id| self.worker.release_flow(id, false).ok()));
        }
        if !round.moves.is_empty() {
            self.at((self.worker.position.place >> 8) + 1, TAKES);
        }
        for crossing in round.moves.iter().filter(|crossing| crossing.to == me) {
            let from = usize::from(crossing.from.0);
            let flow = crossing.take(|| self.source.turns.has_ended(from));
            let is_there = flow.is_some();
            if let Some(flow) = flow {
                self.worker.take_in_for_good(flow, self.recorder);
            }
            if !crossing.is_home {
                self.worker.guests_mut().insert(crossing.key, Guest { home: me, number: 0 });
                if !is_there {
                    self.worker.guests_mut().may_have_ended(crossing.key);
                }
            }
        }
    }

    fn at(&self, frame: u64, step: u64) {
        self.worker.position.wait_for(frame, step);
    }

    /// The joint decision on these packets, which the current packet carries. Waits for the packets of other
    /// workers: inner packets do not depend on outer ones, so no cycle of waits is possible.
    fn decided_inside<'p>(&self, inner: impl Iterator<Item = &'p RoundPacket>) -> Inside {
        let mut decision = Decision::CONTINUE;
        for part in inner {
            let owner = usize::from(part.owner.0);
            wait_until(|| part.decided().is_some() || self.source.turns.has_ended(owner));
            decision = decision.strictest(part.decided().unwrap_or_default());
            if !decision.verdict.forwards() {
                break;
            }
        }
        decision.into()
    }

    fn part(&mut self, head: &RoundFrame, part: &RoundPacket, inside: Inside) {
        let (round, me) = (self.round, self.source.me);
        let frame = Frame {
            now: head.now,
            bytes: round.bytes.get(head.begin..head.end).unwrap_or_default(),
            wire_len: head.wire_len,
            link_type: head.link_type,
            link: head.link,
            number: head.number,
        };
        let bytes = round.bytes.get(part.begin..part.end).unwrap_or_default();
        self.worker.set_checksums(head.checksums);
        let place = PacketPosition { around: part.around.as_ref(), inside, ..part.place };
        let decision = self.worker.packet(&frame, bytes, &part.packet, &place, self.recorder);
        part.decision.store(pack(&decision), Ordering::Relaxed);
        if let Some(key) = &part.guest {
            self.worker.note_guest(key, Guest { home: me, number: 0 });
        }
    }
}
