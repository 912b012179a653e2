// SPDX-License-Identifier: Apache-2.0
//! Counters of a station: frames and flows that it exchanges with other stations.

/// Counters of a station. Packets are counted by the worker where they arrive, decisions where they are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandOverCounters {
    /// Frames handed over to other stations (a frame that is handed on from there counts there).
    pub handed_over: u64,
    /// Frames received from other stations.
    pub taken: u64,
    /// Frames refused because no ring or parcel had room.
    pub refused: u64,
    /// Flows whose home this station is, and which it moved to another owner.
    pub moved: u64,
    /// Refused moves of flows whose home this station is: refused here, by the old owner or by the new one.
    pub moves_refused: u64,
}

impl HandOverCounters {
    /// The sum of two stations' counters.
    #[must_use]
    pub const fn plus(self, other: HandOverCounters) -> HandOverCounters {
        HandOverCounters {
            handed_over: self.handed_over + other.handed_over,
            taken: self.taken + other.taken,
            refused: self.refused + other.refused,
            moved: self.moved + other.moved,
            moves_refused: self.moves_refused + other.moves_refused,
        }
    }

    /// Each counter by name.
    pub fn for_each(&self, mut each: impl FnMut(&'static str, u64)) {
        each("flow.handed_over", self.handed_over);
        each("flow.hand_over_taken", self.taken);
        each("flow.hand_over_refused", self.refused);
        each("flow.moved", self.moved);
        each("flow.moves_refused", self.moves_refused);
    }
}
