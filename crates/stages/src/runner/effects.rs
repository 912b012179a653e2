// SPDX-License-Identifier: Apache-2.0
//! The outcome of running functions: their decision, and the changes that their caller has to make.

use bartizan_base::{Decision, Path};

/// Effects on a flow's entry in the table, on the memory account and on the level below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Effects {
    /// The memory that the flow holds may have changed and has to be measured.
    pub touched: bool,
    /// No function is left on the flow's path.
    pub bypassed: bool,
    /// Functions that failed or got an order to start or stop: flows that a lower level handles for them must
    /// return to the host.
    pub left: Path,
}

impl Effects {
    /// The memory that the flow holds may have changed.
    pub(super) const TOUCHED: Self = Effects { touched: true, bypassed: false, left: Path::EMPTY };
    /// Nothing has changed.
    pub const NONE: Self = Effects { touched: false, bypassed: false, left: Path::EMPTY };

    /// The memory that the flow holds may have changed, if `touched`.
    pub(super) const fn touched(touched: bool) -> Self {
        Effects { touched, ..Effects::NONE }
    }
}

impl core::ops::BitOrAssign for Effects {
    fn bitor_assign(&mut self, other: Self) {
        self.touched |= other.touched;
        self.bypassed |= other.bypassed;
        self.left = self.left.or(other.left);
    }
}

/// The decision of functions, and its effects.
#[derive(Clone, Copy, Debug, Default)]
pub struct Judgement {
    /// The decision.
    pub decision: Decision,
    /// The effects, which the caller applies.
    pub effects: Effects,
}

impl Judgement {
    /// A decision without effects.
    pub const fn of(decision: Decision) -> Self {
        Judgement { decision, effects: Effects::NONE }
    }

    /// Another judgement holds as well: the strictest decision, and all effects.
    pub fn join(&mut self, other: Self) {
        self.decision = self.decision.strictest(other.decision);
        self.effects |= other.effects;
    }
}
