// SPDX-License-Identifier: Apache-2.0
//! What a stage is given for a packet beside its own state: built once for a frame, handed from stage to
//! stage.

use crate::account::Account;
use crate::chain::{Chains, Enforcement};
use crate::checksums::ChecksumSample;
use crate::leaving::{Leaving, Replaced};
use crate::notice::{Notice, QuotaKind};
use crate::record::{Entry, Fate, Occasion, Recorder};
use crate::settings::EngineSettings;
use crate::shedding::Shedding;
use bartizan_base::turns::Turn;
use bartizan_base::{Decision, Generation, TenantId, Timestamp};
use bartizan_flow::FlowFlags;
use bartizan_function::{Edit, Finding, FindingAction, would_refuse};
use bartizan_packet::{PacketView, TcpFlags};

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
    /// The flows that give way now.
    pub shedding: &'w mut Shedding,
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

    /// Counts what was decided of the packet in hand by its class, and gives what is done with it: what a
    /// staged policy refuses goes on.
    pub fn enforced(&mut self, chains: &Chains, decision: Decision, bytes: u32) -> Decision {
        let acts = self.settings.prevention;
        if !acts || decision.verdict.forwards() {
            return self.done(decision, bytes);
        }
        match chains.enforcement(self.account.fid) {
            Enforcement::Enforced => self.done(decision, bytes),
            Enforcement::Staged => {
                self.account.packet(&decision, bytes, false);
                Decision { reason: decision.reason, ..Decision::CONTINUE }
            }
            Enforcement::ForwardsAll => self.done(Decision::CONTINUE, bytes),
        }
    }

    /// Counts what was decided of the packet in hand by its class, whatever that enforces.
    pub fn done(&mut self, decision: Decision, bytes: u32) -> Decision {
        self.account.packet(&decision, bytes, self.settings.prevention);
        decision
    }

    /// Whether refusals of the packet in hand are reported as would-be.
    pub fn is_staged(&self, chains: &Chains) -> bool {
        self.settings.prevention && chains.enforcement(self.account.fid) == Enforcement::Staged
    }

    /// Whether refusals of the packet in hand are done or, in detection, counted as if they were. Else it
    /// leaves as it came.
    pub fn enforces(&self, chains: &Chains) -> bool {
        !self.settings.prevention || chains.enforcement(self.account.fid) == Enforcement::Enforced
    }

    /// Records the refusal of the packet in hand: what is done, or what a staged policy would do.
    pub fn refused(
        &mut self,
        chains: &Chains,
        occasion: &Occasion<'_>,
        entry: Option<&mut Entry>,
        fate: &Fate,
        findings: &[Finding],
    ) {
        if self.enforces(chains) {
            self.recorder.refused(occasion, entry.map(|entry| &*entry), fate, findings);
            return;
        }
        let Some(entry) = entry else {
            return self.report_would_be(chains, occasion, None, &fate.decision);
        };
        self.would_refuse(chains, occasion, entry, &fate.decision);
        let standing = &mut entry.ext.standing;
        let brings = |flags: TcpFlags| flags.contains(TcpFlags::SYN) || !occasion.payload().is_empty();
        let segment = occasion.decoded().and_then(|packet| packet.transport.tcp());
        if segment.is_some_and(|tcp| brings(tcp.flags)) {
            standing.note_stray();
        }
    }

    /// Keeps, and reports once for each reason, what a staged policy would refuse of a flow.
    pub fn would_refuse(
        &mut self,
        chains: &Chains,
        occasion: &Occasion<'_>,
        entry: &mut Entry,
        decision: &Decision,
    ) {
        let standing = &mut entry.ext.standing;
        if chains.enforcement(self.account.fid) == Enforcement::Staged {
            standing.note_would_be(decision, decision.verdict);
        }
        if decision.reason.is_none_or(|reason| standing.note_reported(reason)) {
            self.report_would_be(chains, occasion, Some(entry), decision);
        }
    }

    /// Reports what the engine would refuse if the policy were not staged, or what would be refused for
    /// want of a function.
    pub fn report_would_be(
        &mut self,
        chains: &Chains,
        occasion: &Occasion<'_>,
        mut entry: Option<&mut Entry>,
        decision: &Decision,
    ) {
        let Some(reason) = decision.reason else { return };
        if chains.enforcement(self.account.fid) != Enforcement::Staged {
            return;
        }
        let function = chains.function(decision.function).map(|function| function.spec().name);
        let finding = Finding::new(would_refuse(function, reason), FindingAction::Allowed);
        self.account.alert(finding.action);
        if let Some(entry) = &mut entry {
            entry.flags.insert(FlowFlags::ALERTED);
        }
        // Without a flow it is nobody's, as the record of a packet that is dropped.
        let tenant = entry.as_deref().map(Entry::tenant);
        if tenant.is_none_or(|tenant| chains.quotas.writes_alert(tenant, occasion.now)) {
            let fate = Fate::from(Decision::CONTINUE);
            self.recorder.alert(occasion, entry.map(|entry| &*entry), &finding, &fate, None);
        } else if let Some(tenant) = tenant
            && let Some(exceeded) = chains.quotas.exceeded(tenant, QuotaKind::Alerts, occasion.now)
        {
            self.recorder.notice(occasion.now, chains.generation, Notice::Quota(&exceeded));
        }
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
