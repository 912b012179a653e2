// SPDX-License-Identifier: Apache-2.0
//! What a stage is given for a packet beside its own state: built once for a frame, handed from stage to stage.

use crate::account::Account;
use crate::checksums::ChecksumSample;
use crate::leaving::{Leaving, Replaced};
use crate::record::Recorder;
use crate::settings::EngineSettings;
use bartizan_base::turns::Turn;
use bartizan_base::{Decision, Generation, TenantId, Timestamp};
use bartizan_function::Edit;
use bartizan_packet::PacketView;

/// Where in the run a worker is.
#[derive(Default)]
pub struct Position {
    /// The packet clock.
    pub clock: Timestamp,
    /// Frame, and packet of the frame in the lowest byte.
    pub place: u64,
    /// Captures with several workers: what they share is touched in the order of the packets.
    pub turn: Option<Turn>,
    /// The generation of which the recorder was told last.
    pub announced: Option<Generation>,
    /// Whose the latest packet with a flow was.
    pub tenant: TenantId,
}

impl Position {
    /// The clock goes on; never back.
    pub fn advance(&mut self, now: Timestamp) {
        self.clock = self.clock.max(now);
    }

    /// Waits until it is this worker's turn to do what is done at a place.
    pub fn wait_for(&self, frame: u64, step: u64) {
        if let Some(turn) = &self.turn {
            turn.at(frame, step);
        }
    }
}

/// See the module.
pub struct Context<'w> {
    /// The worker's settings.
    pub settings: &'w EngineSettings,
    /// Where in the run it is.
    pub position: &'w mut Position,
    /// Whether checksums count.
    pub checksums: &'w mut ChecksumSample,
    /// What is counted.
    pub account: &'w mut Account,
    /// What is changed before the packet leaves.
    pub leaving: &'w mut Leaving,
    /// Where findings go.
    pub recorder: &'w mut dyn Recorder,
}

impl Context<'_> {
    /// Counts what became of a frame, and gives what is done with it.
    pub fn decided(&mut self, decision: &Decision) -> Decision {
        self.account.counters.decided(decision, self.settings.prevention)
    }

    /// Notes what rules want to have replaced in the packet in hand, if it leaves inline.
    pub fn note_edits(&mut self, edits: &[Edit], view: &PacketView<'_>, decision: &Decision) {
        if edits.is_empty() || !self.settings.prevention || !decision.verdict.forwards() {
            return;
        }
        match self.leaving.note_edits(edits, view) {
            Replaced::Nothing => {}
            Replaced::Noted => self.account.counters.replaced += 1,
            Replaced::Refused => self.account.counters.not_replaced += 1,
        }
    }
}
