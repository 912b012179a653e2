// SPDX-License-Identifier: Apache-2.0
//! Drop records of frames that had passed and that their egress port did not take (its ring is full, they are
//! too long for it, its link is down).
//!
//! A full ring refuses many frames at once, so a record stands for many: the first for one cause at a port is
//! written at once, later ones at most once a second, each with the first frame since the last record and the
//! number of frames. The numbers of a port's records sum up to its count of refused frames that were given to
//! it here; frames that a device returns after taking them, and answers of the normaliser, are only counted
//! by the port.

use bartizan_base::{Generation, PacketDuration, PortIndex, Timestamp};
use bartizan_packet::{DecodeOutput, Decoder, LinkType, PacketView};
use bartizan_ports::{Batch, Disposition, InlinePair, PairSide, SendRefusal};
use bartizan_stages::record::{EventContext, Recorder, Unsent};

/// Least time between two records of one cause at one port.
const INTERVAL: PacketDuration = PacketDuration::from_secs(1);

/// Frames that one port refused for one cause and that are not recorded yet.
#[derive(Default)]
struct UnsentSlot {
    frames: u64,
    /// The first of them, and the time of its refusal.
    sample: Vec<u8>,
    at: Timestamp,
    /// Earliest time of the next record.
    next: Timestamp,
}

/// The port that a frame had to leave by.
#[derive(Clone, Copy)]
enum EgressTarget {
    /// The port across from this side.
    Across(PairSide),
    /// The named port of this number.
    Exit(usize),
}

/// Notes a frame that a port refused.
fn note(slots: &mut Slots, refusal: SendRefusal, frame: &[u8], at: Timestamp) {
    let Some(slot) = slots.get_mut(refusal as usize) else { return };
    if slot.frames == 0 {
        slot.sample.clear();
        slot.sample.extend_from_slice(frame);
        slot.at = at;
    }
    slot.frames = slot.frames.saturating_add(1);
}

type Slots = [UnsentSlot; SendRefusal::ALL.len()];

/// Refused frames of both ports of a link, and of named ports.
#[derive(Default)]
pub(super) struct UnsentFrames {
    /// Slots by the side that frames came in by.
    slots: [Slots; 2],
    /// Slots by the number of the named port, as many as have refused a frame.
    exits: Vec<Slots>,
    pending: bool,
    decoder: Decoder,
    output: DecodeOutput,
}

impl UnsentFrames {
    /// Notes the refused frames of a batch that came in by `side`.
    pub(super) fn note_batch(&mut self, side: PairSide, batch: &Batch) {
        for index in batch.indices() {
            if let Some(Disposition::Refused(refusal)) = batch.disposition(index)
                && let (Some(info), Some(bytes)) = (batch.info(index), batch.bytes(index))
            {
                self.note(side, refusal, bytes, info.timestamp);
            }
        }
    }

    /// Notes a refused frame that came in by `side`.
    pub(super) fn note(&mut self, side: PairSide, refusal: SendRefusal, frame: &[u8], at: Timestamp) {
        let [a, b] = &mut self.slots;
        let slots = if side == PairSide::A { a } else { b };
        note(slots, refusal, frame, at);
        self.pending = true;
    }

    /// Notes a frame that a named port refused.
    pub(super) fn note_exit(&mut self, port: PortIndex, refusal: SendRefusal, frame: &[u8], at: Timestamp) {
        let number = usize::from(port.0);
        if self.exits.len() <= number {
            self.exits.resize_with(number + 1, Slots::default);
        }
        if let Some(slots) = self.exits.get_mut(number) {
            note(slots, refusal, frame, at);
            self.pending = true;
        }
    }

    /// Whether refused frames are not recorded yet.
    pub(super) const fn is_pending(&self) -> bool {
        self.pending
    }

    /// Writes the records that are due; without `now`, at the end of a run, all of them.
    pub(super) fn report(
        &mut self,
        now: Option<Timestamp>,
        pair: &mut InlinePair,
        generation: Generation,
        recorder: &mut dyn Recorder,
    ) {
        let UnsentFrames { slots, exits, pending, decoder, output } = self;
        *pending = false;
        let sides = PairSide::BOTH.into_iter().map(EgressTarget::Across).zip(slots);
        let exits = (0..).map(EgressTarget::Exit).zip(exits);
        for (out, slots) in sides.chain(exits) {
            for (slot, refusal) in slots.iter_mut().zip(SendRefusal::ALL) {
                if slot.frames == 0 {
                    continue;
                }
                if now.is_some_and(|now| now < slot.next) {
                    *pending = true;
                    continue;
                }
                let length = u32::try_from(slot.sample.len()).unwrap_or(u32::MAX);
                decoder.decode(LinkType::ETHERNET, &slot.sample, length, output);
                if let Some(packet) = output.outer() {
                    let view = PacketView::new(&slot.sample, packet);
                    let occasion = EventContext::of(&view, None, slot.at, generation);
                    let port = match out {
                        EgressTarget::Across(side) => pair.direction(side).1.name(),
                        EgressTarget::Exit(number) => pair.exits().get(number).map_or("", |port| port.name()),
                    };
                    let reason = refusal.reason();
                    let unsent = Unsent { port, cause: refusal.name(), reason, frames: slot.frames };
                    recorder.unsent(&occasion, &unsent);
                }
                slot.frames = 0;
                slot.next = now.unwrap_or(slot.at) + INTERVAL;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_ports::{TestClock, TestPort};
    use bartizan_stages::record::RecorderEvent;

    #[derive(Default)]
    struct Told(Vec<(String, &'static str, u64)>);

    impl Recorder for Told {
        fn record(&mut self, event: RecorderEvent<'_>) {
            if let RecorderEvent::Unsent { unsent, .. } = event {
                self.0.push((unsent.port.to_owned(), unsent.cause, unsent.frames));
            }
        }
    }

    #[test]
    fn a_flood_is_told_once_a_second_and_the_numbers_sum_up() {
        let clock = TestClock::starting_at(Timestamp::ZERO);
        let (_x, a) = TestPort::pair(["x", "a"], 1500, 10, &clock).expect("ports");
        let (b, _y) = TestPort::pair(["b", "y"], 1500, 10, &clock).expect("ports");
        let mut pair = InlinePair::new(Box::new(a), Box::new(b), true).expect("a pair");
        let (mut unsent, mut told) = (UnsentFrames::default(), Told::default());
        let frame = [0u8; 60];
        // 3,000 frames in three seconds, and frames that are too long in the other direction.
        for n in 0..3000u64 {
            let now = Timestamp::from_nanos(n * 1_000_000);
            unsent.note(PairSide::A, SendRefusal::RingFull, &frame, now);
            if n % 1000 == 0 {
                unsent.note(PairSide::B, SendRefusal::TooLarge, &frame, now);
            }
            assert!(unsent.is_pending());
            unsent.report(Some(now), &mut pair, Generation(1), &mut told);
        }
        unsent.report(None, &mut pair, Generation(1), &mut told);
        assert!(!unsent.is_pending());
        let of = |port: &str, cause| -> Vec<u64> {
            told.0.iter().filter(|one| one.0 == port && one.1 == cause).map(|one| one.2).collect()
        };
        assert_eq!(of("b", "ring_full"), [1, 1000, 1000, 999]);
        assert_eq!(of("a", "too_large"), [1, 1, 1]);
        assert_eq!(told.0.len(), 7);
    }
}
