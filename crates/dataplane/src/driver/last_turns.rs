// SPDX-License-Identifier: Apache-2.0
//! A worker's turns after the word to stop: what had come by then is handled like everything before it, and
//! no more is waited for.
//!
//! The ring of a tap shows frames some time after they came ([`bartizan_ports::Port::delay`]). So a worker
//! that watches looks on for that long, and ends with the first frame that came later.

use super::control::Control;
use crate::source::Taken;
use bartizan_base::{PacketDuration, Timestamp};
use std::time::Duration;

/// The turns of one worker after the word to stop.
#[derive(Default)]
pub(super) struct LastTurns {
    turns: u32,
    idle: bool,
    /// Time of the newest frame of the turn before.
    newest: Timestamp,
    /// The port's clock when the word was seen, and when the turn before began.
    word: Timestamp,
    began: Timestamp,
}

impl LastTurns {
    /// Turns of a port that shows frames at once: a ring's frames, and some that come meanwhile.
    const MOST: u32 = 32;
    /// Longest time for what lies in a ring that shows frames later.
    const LONGEST: PacketDuration = PacketDuration::from_secs(10);
    /// Sleep between two looks at a ring that shows nothing.
    const PAUSE: Duration = Duration::from_micros(500);

    /// Whether another turn is to be made. `clock`: the port's, and how late it shows frames.
    pub(super) fn goes_on(
        &mut self,
        control: &Control,
        clock: impl FnOnce() -> (Timestamp, PacketDuration),
    ) -> bool {
        if !control.stopping() {
            return true;
        }
        let (now, delay) = clock();
        let began = std::mem::replace(&mut self.began, now);
        self.turns += 1;
        if self.turns == 1 {
            // The turn before the word came may have seen nothing; one after it must.
            self.word = now;
            return true;
        }
        if delay == PacketDuration::ZERO {
            return !self.idle && self.turns <= Self::MOST;
        }
        let shown = self.word + delay;
        if self.newest > shown || now > self.word + Self::LONGEST || (self.idle && began >= shown) {
            return false;
        }
        if self.idle {
            std::thread::sleep(Self::PAUSE);
        }
        true
    }

    /// Takes in what a turn saw.
    pub(super) const fn saw(&mut self, taken: Taken) {
        self.idle = taken.frames == 0;
        self.newest = taken.newest;
    }
}
