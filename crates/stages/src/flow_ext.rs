// SPDX-License-Identifier: Apache-2.0
//! The data plane's state of a flow, kept in the flow's entry beside the flow table's own part.

use crate::chain::HeaderRuleMatches;
use crate::quotas::QuotaReservation;
use crate::standing::FlowDisposition;
use bartizan_applayer::flow::{AppLayer, DetectedProtocol};
use bartizan_applayer::protocol::ProtocolId;
use bartizan_base::FunctionId;
use bartizan_base::{Direction, PerDirection};
use bartizan_flow::rate::FlowRate;
use bartizan_flow::stream::StreamPair;
use bartizan_flow::tcp::{ExceptionPolicy, ExceptionTarget, TcpFlags, TcpSession};
use bartizan_function::{FlowDescription, SlotState, StateSlot};
use bartizan_offload::{Mark, OffloadDenied};
use bartizan_packet::VlanIds;
use std::sync::Arc;

/// The program that opened, or accepted, a flow of the stream path (docs/stream.md), whose bytes arrive
/// without packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamOrigin {
    /// Name of the guest, which is a link.
    pub guest: Arc<str>,
    /// Name of the guest at the other end, if no TCP is in between.
    pub peer_guest: Option<Arc<str>>,
    /// Number of the process.
    pub process: i32,
    /// Path of its executable; `None`: the process was gone, or may not be read.
    pub executable: Option<String>,
    /// The program's control group; `None` as above.
    pub cgroup: Option<String>,
}

/// The state of a flow for one function.
#[derive(Default)]
pub struct FunctionSlot {
    /// The function's own state.
    pub own: StateSlot,
    /// See `PacketContext::staged`.
    pub staged: u64,
}

impl FunctionSlot {
    /// Bytes of memory that the function's state holds beside its own place.
    pub fn held(&self) -> usize {
        self.own.as_deref().map_or(0, SlotState::held)
    }

    /// Frees memory that only further data would need.
    pub fn release_state(&mut self) {
        if let Some(own) = self.own.as_deref_mut() {
            own.release_state();
        }
    }
}

/// The part of a flow that the statistics of protocols have counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppCounted {
    pub(crate) protocol: Option<DetectedProtocol>,
    pub(crate) transactions: u64,
    pub(crate) error: bool,
    pub(crate) gap: bool,
}

/// The data plane's state of one flow.
#[derive(Default)]
pub struct FlowExt {
    /// Number of the flow in events, unique in a run.
    pub event_id: u64,
    /// Place in the run of the flow's first packet; the same with any number of workers.
    pub began: u64,
    /// TCP state; plain data.
    pub session: TcpSession,
    /// Reassembly; made with the first segment that has a payload function on its path.
    pub streams: Option<Box<StreamPair>>,
    /// Application layer; made with the first data.
    pub app: Option<Box<AppLayer>>,
    /// State of functions, by their bit in paths.
    pub slots: Vec<FunctionSlot>,
    /// The latest start of a function at the last check of the slots (`runner/lifecycle.rs`).
    pub begun: u32,
    /// Results of the generation's lookup in the header rules of functions.
    pub matches: HeaderRuleMatches,
    /// ICMP: type and code to which `matches` applies, as the opener would send them.
    pub matched_icmp: (u16, u16),
    /// Least and greatest TTL or hop limit by direction.
    pub ttl: PerDirection<Option<(u8, u8)>>,
    /// Facts that few flows have.
    pub rare: Option<Box<RareFlowFacts>>,
    /// VLAN ids of the first packet.
    pub vlan: VlanIds,
    /// ICMP: type and code of the first packet.
    pub icmp: Option<(u8, u8)>,
    /// ICMP: type and code of the first reply.
    pub icmp_response: Option<(u8, u8)>,
    /// Exception policies applied, without repetitions.
    pub exceptions: Vec<(ExceptionTarget, ExceptionPolicy)>,
    /// The verdict that applies to the flow's next packet without running any function.
    pub standing: FlowDisposition,
    /// Reassembly was ended because no payload function was left on the path.
    pub reading_stopped: bool,
    /// Flags of TCP packets that no session took, of both directions.
    pub stray_flags: TcpFlags,
    /// Flags of TCP packets that were refused with their flow and did not reach its session.
    pub refused_flags: PerDirection<TcpFlags>,
    /// Transactions of protocols that the flow used before a switch of protocol.
    pub earlier_tx: u64,
    /// The part of the flow that the statistics of protocols have counted.
    pub counted: AppCounted,
    /// The memory charged to the flow.
    pub memory: crate::app_memory::Charge,
    /// Bytes of the latest seconds, if rates are tracked.
    pub rate: Option<Box<FlowRate>>,
    /// An end-of-flow inspection took place.
    pub ended: bool,
    /// The flow's place in its tenant's quota, if there is one.
    pub quota: Option<QuotaReservation>,
    /// The mark of a flow on a link where a level below refuses packets without a flow; exempts the flow's
    /// packets.
    pub mark: Option<Mark>,
    /// Payload functions are on the path of its class, so decisions on the flow may depend on its content.
    pub by_content: bool,
    /// The reason why no lower level has the flow, if this generation has tried to offload it.
    pub stays: Option<OffloadDenied>,
}

/// Facts that few flows have, outside of the flow's entry.
#[derive(Default)]
pub struct RareFlowFacts {
    /// Ethernet addresses on the client's (`to_server`) and on the server's side, without repetitions; only
    /// if some output shows them.
    pub macs: PerDirection<Vec<[u8; 6]>>,
    /// The program behind a flow of the stream path.
    pub origin: Option<Arc<StreamOrigin>>,
    /// Number in events of the flow that announced this one.
    pub parent: Option<u64>,
    /// Protocol that the flow had before its last switch to another one.
    pub switched_from: Option<ProtocolId>,
}

/// Most Ethernet addresses kept for one side of a flow (as in Suricata).
const MACS_MAX: usize = 10;

impl FlowExt {
    /// Swaps the state by direction: the flow was picked up in the wrong direction.
    pub fn turn(&mut self) {
        self.ttl.swap();
        self.refused_flags.swap();
        if let Some(rare) = self.rare.as_deref_mut() {
            rare.macs.swap();
        }
        if let Some(rate) = self.rate.as_deref_mut() {
            rate.turn();
        }
    }

    /// Notes the time to live, or hop limit, of a packet.
    pub fn note_ttl(&mut self, direction: Direction, ttl: u8) {
        let seen = &mut self.ttl[direction];
        *seen = Some(seen.map_or((ttl, ttl), |(least, most)| (least.min(ttl), most.max(ttl))));
    }

    /// Notes the Ethernet addresses of a packet.
    pub fn note_macs(&mut self, direction: Direction, source: [u8; 6], destination: [u8; 6]) {
        for (side, address) in [(direction, source), (direction.flip(), destination)] {
            let known = &mut self.rare_mut().macs[side];
            if known.len() < MACS_MAX && !known.contains(&address) {
                known.push(address);
            }
        }
    }

    /// Ethernet addresses of a side.
    #[must_use]
    pub fn macs_of(&self, side: Direction) -> &[[u8; 6]] {
        self.rare.as_ref().map_or(&[], |rare| &rare.macs[side])
    }

    /// The program behind a flow of the stream path.
    #[must_use]
    pub fn origin(&self) -> Option<&Arc<StreamOrigin>> {
        self.rare.as_ref()?.origin.as_ref()
    }

    /// Number in events of the flow that announced this one.
    #[must_use]
    pub fn parent(&self) -> Option<u64> {
        self.rare.as_ref()?.parent
    }

    /// Protocol that the flow had before its last switch to another one.
    #[must_use]
    pub fn switched_from(&self) -> Option<ProtocolId> {
        self.rare.as_ref()?.switched_from
    }

    /// Facts that few flows have, for changes.
    pub fn rare_mut(&mut self) -> &mut RareFlowFacts {
        self.rare.get_or_insert_default()
    }

    /// The descriptions of the flow by functions, with the functions' bits and in their order.
    pub fn descriptions(&self) -> impl Iterator<Item = (FunctionId, FlowDescription<'_>)> {
        let slots = (0u8..).map(FunctionId).zip(&self.slots);
        slots.filter_map(|(bit, slot)| Some((bit, slot.own.as_deref()?.describe())))
    }

    /// Number of the flow's transactions so far.
    #[must_use]
    pub fn tx_count(&self) -> u64 {
        let now = self.app.as_deref().and_then(AppLayer::parser).map_or(0, |p| p.tx_range().end);
        self.earlier_tx.saturating_add(now)
    }
}

#[cfg(test)]
mod tests {
    use crate::record::Entry;

    #[test]
    fn a_flow_takes_ten_cache_lines() {
        // A larger entry costs another cache line for each of a million flows: it needs a good reason.
        assert_eq!(size_of::<Entry>(), 640);
    }
}
