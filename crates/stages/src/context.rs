// SPDX-License-Identifier: Apache-2.0
//! The context that the stages share for a frame, beside the state of each stage.

use crate::account::Account;
use crate::chain::{Chains, Enforcement};
use crate::checksums::ChecksumSample;
use crate::flow_ext::StreamOrigin;
use crate::leaving::{Leaving, Replaced};
use crate::notice::{Notice, QuotaKind};
use crate::record::{Entry, EventContext, PacketVerdict, Recorder};
use crate::settings::EngineSettings;
use crate::shedding::Shedding;
use bartizan_base::turns::CaptureTurn;
use bartizan_base::{Decision, Generation, TenantId, Timestamp};
use bartizan_flow::FlowFlags;
use bartizan_function::{Edit, Finding, FindingAction, would_refuse};
use bartizan_packet::{PacketView, TcpFlags};
use std::sync::Arc;

/// A worker's position in the run.
#[derive(Default)]
pub struct RunPosition {
    /// The packet clock.
    pub clock: Timestamp,
    /// Number of the frame, with the number of the packet in the frame in the lowest byte.
    pub place: u64,
    /// The turn of this worker among several that share captures: shared state is touched in packet order.
    pub turn: Option<CaptureTurn>,
    /// The last generation announced to the recorder.
    pub announced: Option<Generation>,
    /// Tenant of the latest packet with a flow.
    pub tenant: TenantId,
    /// The program that sent the current bytes, on the stream path.
    pub origin: Option<Arc<StreamOrigin>>,
}

impl RunPosition {
    /// Advances the packet clock; an earlier time is ignored.
    pub fn advance(&mut self, now: Timestamp) {
        self.clock = self.clock.max(now);
    }

    /// Waits until this worker's turn for a step of a frame.
    pub fn wait_for(&self, frame: u64, step: u64) {
        if let Some(turn) = &self.turn {
            turn.at(frame, step);
        }
    }
}

/// The worker's state that every stage needs for a frame, borrowed for that frame.
pub struct FrameContext<'w> {
    /// The worker's settings.
    pub settings: &'w EngineSettings,
    /// The worker's position in the run.
    pub position: &'w mut RunPosition,
    /// Whether checksums count.
    pub checksums: &'w mut ChecksumSample,
    /// Counters and memory.
    pub account: &'w mut Account,
    /// The flows that are shed now.
    pub shedding: &'w mut Shedding,
    /// Changes to the packet before it leaves.
    pub leaving: &'w mut Leaving,
    /// Receiver of findings.
    pub recorder: &'w mut dyn Recorder,
}

impl FrameContext<'_> {
    /// Counts the decision on a frame and returns the decision to carry out.
    pub fn decided(&mut self, decision: &Decision) -> Decision {
        self.account.counters.decided(decision, self.settings.prevention)
    }

    /// Counts the decision on the current packet by its class and returns the decision to carry out: a
    /// staged policy forwards packets that it would drop.
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

    /// Counts the decision on the current packet by its class, without regard to enforcement.
    pub fn done(&mut self, decision: Decision, bytes: u32) -> Decision {
        self.account.packet(&decision, bytes, self.settings.prevention);
        decision
    }

    /// Whether refusals of the current packet are reported as would-be.
    pub fn is_staged(&self, chains: &Chains) -> bool {
        self.settings.prevention && chains.enforcement(self.account.fid) == Enforcement::Staged
    }

    /// Whether refusals of the current packet are enforced or, in detection, counted as enforced. Otherwise
    /// the packet leaves unchanged.
    pub fn enforces(&self, chains: &Chains) -> bool {
        !self.settings.prevention || chains.enforcement(self.account.fid) == Enforcement::Enforced
    }

    /// Records the refusal of the current packet, enforced or would-be.
    pub fn refused(
        &mut self,
        chains: &Chains,
        occasion: &EventContext<'_>,
        entry: Option<&mut Entry>,
        verdict: &PacketVerdict,
        findings: &[Finding],
    ) {
        if self.enforces(chains) {
            self.recorder.refused(occasion, entry.map(|entry| &*entry), verdict, findings);
            return;
        }
        let Some(entry) = entry else {
            return self.report_would_be(chains, occasion, None, &verdict.decision);
        };
        self.would_refuse(chains, occasion, entry, &verdict.decision);
        let standing = &mut entry.ext.standing;
        let brings = |flags: TcpFlags| flags.contains(TcpFlags::SYN) || !occasion.payload().is_empty();
        let segment = occasion.decoded().and_then(|packet| packet.transport.tcp());
        if segment.is_some_and(|tcp| brings(tcp.flags)) {
            standing.note_stray();
        }
    }

    /// Stores in the flow the refusals that a staged policy would enforce, and reports each reason once.
    pub fn would_refuse(
        &mut self,
        chains: &Chains,
        occasion: &EventContext<'_>,
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

    /// Reports a refusal that the engine would enforce if the policy were not staged, or for want of a
    /// function.
    pub fn report_would_be(
        &mut self,
        chains: &Chains,
        occasion: &EventContext<'_>,
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
        // A packet without a flow has no tenant, as in the record of a dropped packet.
        let tenant = entry.as_deref().map(Entry::tenant);
        if tenant.is_none_or(|tenant| chains.quotas.writes_alert(tenant, occasion.now)) {
            let fate = PacketVerdict::from(Decision::CONTINUE);
            self.recorder.alert(occasion, entry.map(|entry| &*entry), &finding, &fate, None);
        } else if let Some(tenant) = tenant
            && let Some(exceeded) = chains.quotas.exceeded(tenant, QuotaKind::Alerts, occasion.now)
        {
            self.recorder.notice(occasion.now, chains.generation, Notice::Quota(&exceeded));
        }
    }

    /// Notes the replacements that rules want in the current packet, if it leaves inline.
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
