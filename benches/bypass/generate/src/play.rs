// SPDX-License-Identifier: Apache-2.0
//! Many concurrent flows: each sends a packet in turn, and where one has ended the next one of the list
//! begins.

use crate::flows::{CLASSES, Flow};
use crate::frames::{Conversation, Maker};
use crate::talk;

/// Turns over which the first flows begin, so that they are not all in the same phase.
const SPREAD: usize = 16;

/// Frame and byte counts of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of frames.
    pub packets: u64,
    /// Bytes of frames, without the frame check sequence.
    pub bytes: u64,
}

/// Description of a generated frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// Sent by the client if true, else by the server.
    pub from_client: bool,
    /// Index in [`CLASSES`].
    pub class: usize,
    /// Length in bytes.
    pub length: usize,
}

/// Plays the flows of a list.
pub struct Player {
    list: Vec<Flow>,
    maker: Maker,
    slots: Vec<Option<Conversation>>,
    turn: usize,
    round: usize,
    next: u64,
    /// Flows started, by class.
    pub begun: [u64; CLASSES.len()],
    /// Flows played to the end, by class.
    pub ended: [u64; CLASSES.len()],
}

impl Player {
    /// Plays `concurrent` flows of a list at once, from the one with the number `first` on. After the end of
    /// the list it starts again, with other addresses and ports.
    ///
    /// # Panics
    /// If there are no flows.
    #[must_use]
    pub fn new(list: Vec<Flow>, maker: Maker, concurrent: usize, first: u64) -> Self {
        assert!(!list.is_empty() && concurrent > 0, "no flows to play");
        Player {
            list,
            maker,
            slots: vec![None; concurrent],
            turn: 0,
            round: 0,
            next: first,
            begun: [0; CLASSES.len()],
            ended: [0; CLASSES.len()],
        }
    }

    /// The number of the flow that starts next.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// Makes the next frame.
    pub fn make(&mut self, frame: &mut [u8]) -> Made {
        // Skips flows that have not started yet; happens only at the very beginning.
        while self.round < SPREAD && self.round < self.turn % SPREAD {
            self.step_on();
        }
        let slot = self.turn;
        self.step_on();
        let mut conversation = self.slots[slot].take().unwrap_or_else(|| {
            let flow = self.list[(self.next % self.list.len() as u64) as usize];
            self.begun[usize::from(flow.class)] += 1;
            self.next += 1;
            self.maker.begin(self.next - 1, flow)
        });
        let flow = conversation.flow;
        let step = talk::step(&flow, conversation.at);
        let length = self.maker.write(&mut conversation, &step, frame);
        let class = usize::from(flow.class);
        if conversation.at < flow.packets {
            self.slots[slot] = Some(conversation);
        } else {
            self.ended[class] += 1;
        }
        Made { from_client: step.from_client, class, length }
    }

    /// Ends the open flows, one frame per call: the client resets an established TCP connection. UDP flows,
    /// and connections whose handshake is incomplete or whose end has begun, are abandoned without a frame.
    /// `None` when no flow is open any more.
    pub fn close(&mut self, frame: &mut [u8]) -> Option<Made> {
        while let Some(slot) = self.slots.pop() {
            if let Some(mut open) = slot.filter(|open| talk::is_open(&open.flow, open.at)) {
                let step = talk::reset();
                let length = self.maker.write(&mut open, &step, frame);
                return Some(Made { from_client: true, class: usize::from(open.flow.class), length });
            }
        }
        None
    }

    fn step_on(&mut self) {
        self.turn += 1;
        if self.turn == self.slots.len() {
            self.turn = 0;
            self.round += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flows::LARGEST;
    use crate::list::Plan;
    use bartizan_testkit::packet::{End, FIN, RST, parse};
    use std::collections::HashMap;

    fn player(concurrent: usize, first: u64) -> Player {
        let sizes = vec![(64, 1), (594, 1)];
        let list = Plan { flows: 5000, bypassable: 0.7, v6: 0.25, sizes, seed: 3 }.list();
        Player::new(list, Maker::new(&[64, 594]), concurrent, first)
    }

    #[test]
    fn flows_are_said_whole_and_new_ones_begin_as_old_ones_end() {
        let (mut player, mut frame) = (player(64, 0), vec![0; usize::from(LARGEST)]);
        let (mut open, mut most, mut seen) = (HashMap::<(End, End), u16>::new(), 0, 0);
        for _ in 0..20_000 {
            let made = player.make(&mut frame);
            if !CLASSES[made.class].tcp {
                continue;
            }
            let packet = parse(&frame[..made.length]).unwrap();
            let (from, to) = ((packet.src, packet.segment.sport), (packet.dst, packet.segment.dport));
            let key = if made.from_client { (from, to) } else { (to, from) };
            assert_eq!(key.1.1, CLASSES[made.class].port);
            let said = open.entry(key).or_default();
            *said += 1;
            if packet.segment.flags & FIN != 0 && made.from_client {
                seen += 1;
            }
            most = most.max(open.len());
        }
        let [begun, ended] = [player.begun, player.ended].map(|of| of.iter().sum::<u64>());
        assert_eq!(begun - ended, 64 - player.slots.iter().filter(|slot| slot.is_none()).count() as u64);
        assert!(seen > 500 && begun > 1000, "{seen} {begun}");
        assert_eq!(player.next_number(), begun);
    }

    #[test]
    fn what_is_open_at_the_end_is_reset_once() {
        let (mut player, mut frame) = (player(64, 900), vec![0; usize::from(LARGEST)]);
        for _ in 0..3000 {
            player.make(&mut frame);
        }
        let open = player.slots.iter().flatten().filter(|c| talk::is_open(&c.flow, c.at)).count();
        let mut resets = 0;
        while let Some(made) = player.close(&mut frame) {
            assert!(made.from_client && parse(&frame[..made.length]).unwrap().segment.flags & RST != 0);
            resets += 1;
        }
        assert!(open > 10 && resets == open, "{resets} of {open}");
    }

    #[test]
    fn what_is_played_follows_from_the_list() {
        let (mut one, mut other) = (player(64, 10), player(64, 10));
        let (mut a, mut b) = (vec![0; usize::from(LARGEST)], vec![0; usize::from(LARGEST)]);
        for _ in 0..5000 {
            assert_eq!(one.make(&mut a), other.make(&mut b));
            assert_eq!(a, b);
        }
    }
}
