// SPDX-License-Identifier: Apache-2.0
//! Packets that belong to no flow: rules on headers and decode events still look at them.

use super::Runner;
use super::lifecycle::{Fallen, Said, fate_without};
use super::sight::{Hands, Sight, context};
use crate::chain::Matches;
use crate::context::Context;
use crate::identity::Whence;
use crate::notice::QuotaKind;
use crate::record::{Fate, Occasion};
use bartizan_base::{Decision, Path};
use bartizan_function::contain::contained;
use bartizan_function::header::header_of_packet;
use bartizan_function::{Model, Notes};
use bartizan_packet::PacketView;
use std::sync::Arc;

impl Runner {
    /// Shows a packet without a flow to the functions that its class has.
    ///
    /// What is not IP, and fragments before they are put together, are no matter of header functions: a datagram's
    /// decision is that of its last fragment.
    pub fn without_flow(
        &mut self,
        cx: &mut Context<'_>,
        whence: &Whence,
        (view, occasion): (&PacketView<'_>, &Occasion<'_>),
    ) -> Decision {
        let chains = Arc::clone(&self.chains);
        let packet = view.decoded();
        // By its own header, also if it is about a flow that is not known: what it quotes can be made up.
        let mut matches = Matches::new();
        let header = header_of_packet(packet, whence.tenant, whence.link);
        let class = header.map(|header| chains.classifier.classify(&header, occasion.now, &mut matches));
        let headers = class.is_some() && !packet.is_fragment();
        let fid = class.map(|c| c.fid).unwrap_or_default();
        cx.account.fid = fid;
        let related = packet.about().map(|_| false);
        let waits = packet.is_fragment() && cx.settings.defrag.hold;
        let mut notes =
            Notes { fid, tenant: whence.tenant, related, waits, matches: &matches, ..Notes::default() };
        let mut reject = None;
        self.findings.clear();
        self.edits.clear();
        for function in &chains.functions {
            if class.is_some_and(|c| !c.path.contains(function.id()))
                || !headers && function.spec().model != Model::Payload
            {
                continue;
            }
            let id = function.id();
            if self.lifecycle.away().contains(id) {
                let refused = self.refused_for_want(Path::EMPTY.with(id), fid, cx.settings.prevention);
                notes.decision = notes.decision.strictest(refused.unwrap_or(Decision::CONTINUE));
                continue;
            }
            let Some(worker) = self.states.get_mut(usize::from(id.0)) else { continue };
            let (mut slot, mut staged) = (None, 0);
            let said = Said::before(&self.findings, &self.edits, reject);
            let hands = Hands {
                worker,
                slot: &mut slot,
                staged: &mut staged,
                reject: &mut reject,
                findings: &mut self.findings,
                edits: &mut self.edits,
            };
            let mut context = context(Sight::of(occasion, None, &[]), &notes, hands, cx.settings.prevention);
            let called = contained(|| {
                let decision = function.packet(&mut context);
                match function.spec().model {
                    Model::Payload => decision.strictest(function.payload(&mut context)),
                    _ => decision,
                }
            });
            let decision = called.unwrap_or_else(|panicked| {
                said.restore(&mut self.findings, &mut self.edits, &mut reject);
                self.lifecycle.leave(id);
                self.fallen.push(Fallen { id, panicked });
                fate_without(&chains, id, (cx.settings.prevention, fid))
            });
            notes.decision = notes.decision.strictest(decision);
        }
        self.settle_fallen(cx);
        let fate = Fate { decision: notes.decision, reject };
        for finding in self.findings.iter().filter(|finding| finding.action.is_alert()) {
            cx.account.alert(finding.action);
            if !chains.quotas.writes_alert(whence.tenant, occasion.now) {
                self.tell_exceeded(cx, whence.tenant, QuotaKind::Alerts);
                continue;
            }
            cx.recorder.alert(occasion, None, finding, &fate, None);
        }
        if !notes.decision.verdict.forwards() {
            cx.recorder.refused(occasion, None, &fate, &self.findings);
        }
        cx.note_edits(&self.edits, view, &notes.decision);
        notes.decision
    }
}
