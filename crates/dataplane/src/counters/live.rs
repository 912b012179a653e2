// SPDX-License-Identifier: Apache-2.0
//! Counters of the live loop, beside those of its worker.

use bartizan_stages::normaliser::NormaliserCounters;

/// Counters of a live loop that its worker does not have.
#[derive(Clone, Copy, Debug, Default)]
pub struct LiveCounters {
    /// Counters of the normaliser.
    pub normaliser: NormaliserCounters,
    /// Turns that brought frames.
    pub turns: u64,
    /// Frames that had to leave changed and were lost, because the change did not fit.
    pub unwritable: u64,
    /// Frames that were lost because only their first bytes were captured when they had to leave at another
    /// worker, and combined datagrams that could not be split.
    pub incomplete: u64,
    /// Frames that were in transit between workers when one of them ended by a defect.
    pub under_way: u64,
    /// Frames that were in transit between workers when their link went down; they were lost.
    pub gone: u64,
    /// Frames of a tap that were the second copy of a pair and were not inspected.
    pub duplicates: u64,
    /// Frames that a level of this process forwarded before the worker saw them.
    pub level_forwarded: u64,
    /// Frames that it dropped.
    pub level_dropped: u64,
}

impl LiveCounters {
    /// The sum of two workers' counters.
    #[must_use]
    pub fn plus(self, other: &LiveCounters) -> LiveCounters {
        // Every field by name, so that a new one is not forgotten here.
        let LiveCounters {
            normaliser,
            turns,
            unwritable,
            incomplete,
            under_way,
            gone,
            duplicates,
            level_forwarded,
            level_dropped,
        } = *other;
        LiveCounters {
            normaliser: self.normaliser.plus(normaliser),
            turns: self.turns + turns,
            unwritable: self.unwritable + unwritable,
            incomplete: self.incomplete + incomplete,
            under_way: self.under_way + under_way,
            gone: self.gone + gone,
            duplicates: self.duplicates + duplicates,
            level_forwarded: self.level_forwarded + level_forwarded,
            level_dropped: self.level_dropped + level_dropped,
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
