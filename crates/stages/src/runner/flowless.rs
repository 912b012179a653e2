// SPDX-License-Identifier: Apache-2.0
//! Packets that have no flow, or one that detection does not know since Suricata has no such flow: header
//! rules and decode events still apply to them.

use super::Runner;
use super::effects::Judgement;
use super::facts::facts_of;
use super::lifecycle::{Checkpoint, FailedFunction, Wanting, decision_without};
use crate::account::UNKNOWN;
use crate::chain::HeaderRuleMatches;
use crate::context::FrameContext;
use crate::identity::PacketOrigin;
use crate::notice::QuotaKind;
use crate::record::{Entry, EventContext, PacketVerdict};
use bartizan_base::{Fid, Path, TenantId, Timestamp};
use bartizan_function::contain::contained;
use bartizan_function::header::header_of_packet;
use bartizan_function::{ChainResults, Function, FunctionModel, PacketContext};
use bartizan_packet::{Decoded, PacketView};
use std::sync::Arc;

/// The class of a packet that is judged without a flow.
struct AloneClass<'a> {
    fid: Fid,
    /// The rules of packet filters that the packet matches.
    matches: &'a HeaderRuleMatches,
    /// Selects the functions that judge the packet.
    judges: &'a dyn Fn(&dyn Function) -> bool,
}

impl Runner {
    /// The class of a packet without a flow, by its own header.
    pub fn class_of(&self, origin: &PacketOrigin, packet: &Decoded, now: Timestamp) -> Fid {
        let header = header_of_packet(packet, origin.tenant, origin.link);
        let class =
            header.map(|header| self.chains.classifier.classify(&header, now, &mut HeaderRuleMatches::new()));
        class.map_or(UNKNOWN, |class| class.fid)
    }

    /// Calls the functions of its class for a packet without a flow.
    ///
    /// Header functions do not judge packets other than IP or fragments before reassembly: the decision on a
    /// datagram is that of its last fragment.
    pub fn without_flow(
        &mut self,
        cx: &mut FrameContext<'_>,
        origin: &PacketOrigin,
        view: &PacketView<'_>,
        occasion: &EventContext<'_>,
    ) -> Judgement {
        let chains = Arc::clone(&self.chains);
        let packet = view.decoded();
        // The packet's own header decides, even for an ICMP error about an unknown flow: the quoted packet
        // can be forged.
        let mut matches = HeaderRuleMatches::new();
        let header = header_of_packet(packet, origin.tenant, origin.link);
        let class = header.map(|header| chains.classifier.classify(&header, occasion.now, &mut matches));
        let headers = class.is_some() && !packet.is_fragment();
        let judges = |function: &dyn Function| {
            class.is_none_or(|class| class.path.contains(function.id()))
                && (headers || function.spec().model == FunctionModel::Payload)
        };
        let fid = class.map(|c| c.fid).unwrap_or_default();
        cx.account.fid = class.map_or(UNKNOWN, |class| class.fid);
        let class = AloneClass { fid, matches: &matches, judges: &judges };
        self.judge_alone(cx, origin.tenant, view, occasion, &class)
    }

    /// Calls the payload functions of the flow's path for a packet of a flow that detection does not know, as
    /// for a packet without a flow.
    pub fn payload_alone(
        &mut self,
        cx: &mut FrameContext<'_>,
        entry: &Entry,
        view: &PacketView<'_>,
        occasion: &EventContext<'_>,
    ) -> Judgement {
        let own = self.chains.payload_part(entry.path);
        let matches = entry.ext.matches.clone();
        let judges = |function: &dyn Function| own.contains(function.id());
        cx.account.fid = entry.fid;
        let class = AloneClass { fid: entry.fid, matches: &matches, judges: &judges };
        self.judge_alone(cx, entry.tenant(), view, occasion, &class)
    }

    /// Calls functions for a packet without its flow. `judges` selects the functions.
    fn judge_alone(
        &mut self,
        cx: &mut FrameContext<'_>,
        tenant: TenantId,
        view: &PacketView<'_>,
        occasion: &EventContext<'_>,
        class: &AloneClass<'_>,
    ) -> Judgement {
        let &AloneClass { fid, matches, judges } = class;
        let chains = Arc::clone(&self.chains);
        let packet = view.decoded();
        let related = packet.about().map(|_| false);
        let waits = packet.is_fragment() && cx.settings.defrag.hold && chains.enforces_something();
        let mut notes = ChainResults { fid, tenant, related, waits, matches, ..ChainResults::default() };
        let facts = facts_of(occasion, occasion.packet(), cx.settings.prevention);
        let mut reject = None;
        self.findings.clear();
        self.edits.clear();
        for function in &chains.functions {
            if !judges(function.as_ref()) {
                continue;
            }
            let id = function.id();
            if self.lifecycle.away().contains(id) {
                match self.refused_for_want(Path::EMPTY.with(id), fid, cx.settings.prevention) {
                    Some(Wanting::Refuses(refused)) => notes.decision = notes.decision.strictest(refused),
                    Some(Wanting::WouldRefuse(refused)) if notes.decision.reason.is_none() => {
                        notes.decision.reason = refused.reason;
                        self.would_refuse_for_want(cx, occasion, None, &refused);
                        cx.account.would_be(&refused, packet.length());
                    }
                    _ => {}
                }
                continue;
            }
            let Some(worker) = self.states.get_mut(usize::from(id.0)) else { continue };
            let (mut slot, mut staged) = (None, 0);
            let said = Checkpoint::before(&self.findings, &self.edits, reject);
            let mut context = PacketContext {
                facts: &facts,
                app: None,
                notes: &notes,
                worker,
                slot: &mut slot,
                staged: &mut staged,
                reject: &mut reject,
                findings: &mut self.findings,
                edits: &mut self.edits,
            };
            let called = contained(|| {
                let decision = function.packet(&mut context);
                match function.spec().model {
                    FunctionModel::Payload => decision.strictest(function.payload(&mut context)),
                    _ => decision,
                }
            });
            let decision = called.unwrap_or_else(|panicked| {
                said.restore(&mut self.findings, &mut self.edits, &mut reject);
                self.lifecycle.leave(id);
                let fate = decision_without(&chains, id, cx.settings.prevention, fid);
                self.fallen.push(FailedFunction::new(id, panicked, &notes.decision, &fate));
                fate
            });
            notes.decision = notes.decision.strictest(decision);
        }
        let effects = self.handle_failed(cx, occasion, None);
        let fate = PacketVerdict { decision: notes.decision, reject };
        self.report_alone(cx, tenant, view, occasion, &fate);
        Judgement { decision: fate.decision, effects }
    }

    /// Records the findings and the refusal of a packet without its flow.
    fn report_alone(
        &mut self,
        cx: &mut FrameContext<'_>,
        tenant: TenantId,
        view: &PacketView<'_>,
        occasion: &EventContext<'_>,
        verdict: &PacketVerdict,
    ) {
        let chains = Arc::clone(&self.chains);
        for finding in self.findings.iter().filter(|finding| finding.action.is_alert()) {
            cx.account.alert(finding.action);
            if !chains.quotas.writes_alert(tenant, occasion.now) {
                self.report_exceeded(cx, tenant, QuotaKind::Alerts);
                continue;
            }
            cx.recorder.alert(occasion, None, finding, verdict, None);
        }
        if !verdict.decision.verdict.forwards() {
            cx.refused(&chains, occasion, None, verdict, &self.findings);
        }
        cx.note_edits(&self.edits, view, &verdict.decision);
    }
}
