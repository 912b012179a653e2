// SPDX-License-Identifier: Apache-2.0
//! What a live run counts beside its worker.

use bartizan_stages::normaliser::NormaliserCounters;

/// What a live run counted beyond the worker's own counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct LiveCounters {
    /// What the normaliser did.
    pub normaliser: NormaliserCounters,
    /// Turns that brought frames.
    pub turns: u64,
    /// Frames that were to leave changed, and the change did not fit: they did not leave.
    pub unwritable: u64,
    /// Frames of which only the first bytes were here when their turn to leave came at another worker, and
    /// datagrams that came as one and could not be taken apart: they did not leave.
    pub incomplete: u64,
    /// Frames that were on their way between workers when one of them ended by a defect.
    pub under_way: u64,
    /// Frames that were on their way between workers when their link went: they did not leave.
    pub gone: u64,
    /// Frames of a tap that were the second of a pair of equal ones: not looked at.
    pub duplicates: u64,
}

impl LiveCounters {
    /// The counters of two workers together.
    #[must_use]
    pub fn plus(self, other: &LiveCounters) -> LiveCounters {
        // Every field by name, so that a new one is not forgotten here.
        let LiveCounters { normaliser, turns, unwritable, incomplete, under_way, gone, duplicates } = *other;
        LiveCounters {
            normaliser: self.normaliser.plus(normaliser),
            turns: self.turns + turns,
            unwritable: self.unwritable + unwritable,
            incomplete: self.incomplete + incomplete,
            under_way: self.under_way + under_way,
            gone: self.gone + gone,
            duplicates: self.duplicates + duplicates,
        }
    }

    /// Counters of frames that are lost or left out elsewhere than in a port, by name.
    pub fn for_each_loss(&self, mut each: impl FnMut(&'static str, u64)) {
        each("normaliser.unwritable", self.unwritable);
        each("hand_over.incomplete", self.incomplete);
        each("hand_over.under_way", self.under_way);
        each("hand_over.link_gone", self.gone);
        each("capture.duplicates", self.duplicates);
    }
}
