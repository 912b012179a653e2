// SPDX-License-Identifier: Apache-2.0
//! What a station counts beside its worker.

/// What a station counted. The worker counts packets where they arrive, and decisions where they are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandOverCounters {
    /// Frames handed over to other stations (a frame that goes on from there counts there).
    pub handed_over: u64,
    /// Frames taken from other stations.
    pub taken: u64,
    /// Frames refused because no ring or parcel had room.
    pub refused: u64,
    /// Flows that this station, their home, has moved.
    pub moved: u64,
    /// Moves of its flows that were refused, here or by who was to take or give the flow.
    pub moves_refused: u64,
}

impl HandOverCounters {
    /// The counters of two stations together.
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
