// SPDX-License-Identifier: Apache-2.0
//! Shedding of packets while more arrive than the worker can handle ([`bartizan_stages::shedding`]).
//!
//! A packet is decoded and its flow found, as always; the expensive rest is skipped: session, streams,
//! application layer and functions do not see the packet. In prevention the packet is dropped, with a reason
//! of its own, so its sender retransmits it and no byte counts as inspected. In detection, and under a staged
//! policy, it is forwarded uninspected, and streams have a gap as if the kernel had dropped it. It counts for
//! its flow. A packet that would open a flow opens none. Where the policy says `pass`, the flow passes
//! uninspected from then on, and header functions still judge it.
//!
//! A packet that carries others is handled in full: its verdict depends on theirs, and they may have a higher
//! priority. So are fragments up to the complete datagram, packets that are not IP, and IPv6 neighbour
//! discovery, without which no flow continues.

use super::Passage;
use super::arrival::Arrival;
use bartizan_base::{Decision, Fid, FlowId, FunctionId, Reason, Timestamp, Verdict};
use bartizan_flow::tcp::{ExceptionPolicy, ExceptionTarget};
use bartizan_packet::{Decoded, TransportLayer};
use bartizan_stages::account::UNKNOWN;
use bartizan_stages::identity::PacketOrigin;
use bartizan_stages::overload::OverloadAction;
use bartizan_stages::record::{EventContext, PacketVerdict};
use bartizan_stages::runner::apply_policy;
use bartizan_stages::standing::PacketDisposition;

/// ICMPv6 types of neighbour discovery (RFC 4861).
const NEIGHBOURS: core::ops::RangeInclusive<u8> = 133..=137;

/// The part of a packet's handling that is shed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GivesWay {
    /// The packet is dropped or forwarded uninspected.
    Packet,
    /// The flow's inspection ends.
    Inspection,
}

impl Passage<'_> {
    /// The part that is shed of a packet of this class. `None`: none.
    fn shed_part(&self, fid: Fid, packet: &Decoded) -> Option<GivesWay> {
        let chains = self.runner.chains();
        let overload = chains.overload(fid);
        let is_needed =
            matches!(&packet.transport, TransportLayer::Icmpv6(icmp) if NEIGHBOURS.contains(&icmp.kind));
        if fid == UNKNOWN
            || overload.priority >= self.cx.shedding.below()
            || is_needed
            || chains.forwards_all(fid)
        {
            return None;
        }
        Some(if overload.action == OverloadAction::Pass { GivesWay::Inspection } else { GivesWay::Packet })
    }

    /// Decides a packet of a flow whose class is shed. `None`: the packet is handled.
    #[cold]
    pub(super) fn shed(&mut self, arrival: &Arrival<'_>, id: FlowId) -> Option<Decision> {
        let gives_way = self.shed_part(self.cx.account.fid, arrival.decoded())?;
        let entry = self.flows.get(id)?;
        let course = entry.ext.standing.course(entry.state());
        match (gives_way, course) {
            // The flow's own reason applies.
            (_, PacketDisposition::Refused(_)) => return None,
            (GivesWay::Inspection, course) => {
                if course == PacketDisposition::Judged {
                    self.end_inspection(id);
                }
                return None;
            }
            // In detection a bypassed packet is not inspected anyway, so shedding it saves nothing.
            (GivesWay::Packet, PacketDisposition::Bypassed) if !self.cx.settings.prevention => return None,
            (GivesWay::Packet, _) => {}
        }
        self.count_unjudged(arrival, id, arrival.length());
        Some(self.decide_shed(&arrival.occasion, Some(id)))
    }

    /// The class of a packet that would open a flow and is shed. `None`: the packet opens a flow.
    #[cold]
    pub(super) fn shed_opening(
        &self,
        origin: &PacketOrigin,
        packet: &Decoded,
        now: Timestamp,
    ) -> Option<Fid> {
        let fid = self.runner.class_of(origin, packet, now);
        (self.shed_part(fid, packet) == Some(GivesWay::Packet)).then_some(fid)
    }

    /// Decides a shed packet, and counts it. The first of a flow is recorded; of packets that would have
    /// opened a flow, the first of each batch.
    pub(super) fn decide_shed(&mut self, occasion: &EventContext<'_>, id: Option<FlowId>) -> Decision {
        let chains = self.runner.chains();
        let enforces = self.cx.enforces(chains);
        let mut entry = id.and_then(|id| self.flows.get_mut(id));
        let counters = &mut self.cx.account.counters.shed;
        counters.packets += 1;
        counters.uninspected += u64::from(!self.cx.settings.prevention || !enforces);
        if !self.cx.settings.prevention {
            return entry.map_or(Decision::CONTINUE, |entry| entry.ext.standing.unjudged_decision());
        }
        let decision = Decision::refuse(Verdict::Drop, Reason::Overload, FunctionId::ENGINE);
        let is_told = match &mut entry {
            Some(entry) if enforces => {
                entry.ext.standing.note_refusal(&decision);
                !entry.ext.standing.note_reported(Reason::Overload)
            }
            // Under a staged policy the refusal is kept, and reported once for each reason.
            Some(_) => false,
            None => !self.cx.shedding.take_opening_record(),
        };
        if !is_told {
            self.cx.refused(chains, occasion, entry, &PacketVerdict::from(decision), &[]);
        }
        if let Some(id) = id {
            self.mark_unenforced(id);
        }
        decision
    }

    /// Ends the inspection of a flow as its policy says.
    fn end_inspection(&mut self, id: FlowId) {
        let Some(entry) = self.flows.get_mut(id) else { return };
        if !self.runner.chains().wants_payload(entry.path) {
            return;
        }
        let exception = (ExceptionTarget::Overload, ExceptionPolicy::PassFlow);
        if !entry.ext.exceptions.contains(&exception) {
            entry.ext.exceptions.push(exception);
        }
        // The `pass` policy refuses nothing.
        let _ = apply_policy(self.cx.settings, entry, exception.0, exception.1);
        let effects = self.runner.stop_reading(entry);
        self.cx.account.counters.shed.flows += 1;
        self.apply(id, effects);
    }
}
