// SPDX-License-Identifier: Apache-2.0
//! The last turns of a worker after the stop signal: frames that had arrived by then are handled like all
//! before them; later frames are not waited for.
//!
//! The ring of a tap shows frames some time after their arrival ([`bartizan_ports::Port::delay`]). So a
//! watching worker continues for that long, and ends with the first frame that arrived later.

use super::control::Control;
use crate::source::Taken;
use bartizan_base::{PacketDuration, Timestamp};
use std::time::Duration;

/// The turns of one worker after the stop signal.
#[derive(Default)]
pub(super) struct LastTurns {
    turns: u32,
    idle: bool,
    /// Time of the newest frame of the previous turn.
    newest: Timestamp,
    /// The port's clock at the stop signal, and at the beginning of the previous turn.
    word: Timestamp,
    began: Timestamp,
}

impl LastTurns {
    /// Most turns with a port that shows frames at once: enough for a full ring and the frames that arrive
    /// meanwhile.
    const MOST: u32 = 32;
    /// Longest time for the frames of a ring that shows them late.
    const LONGEST: PacketDuration = PacketDuration::from_secs(10);
    /// Sleep between two polls of a ring that shows nothing.
    const PAUSE: Duration = Duration::from_micros(500);

    /// Whether another turn follows. `clock`: the port's clock, and its delay in showing frames.
    pub(super) fn has_next(
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
            // The turn before the signal may have seen nothing; one after it must.
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

    /// Notes a turn's result.
    pub(super) const fn note_taken(&mut self, taken: Taken) {
        self.idle = taken.frames == 0;
        self.newest = taken.newest;
    }
}
