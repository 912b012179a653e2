// SPDX-License-Identifier: Apache-2.0
//! What the data plane keeps in a flow's entry beside the flow table's own part.

use crate::chain::Matches;
use crate::quotas::Counted;
use crate::standing::Standing;
use bartizan_applayer::flow::{AppLayer, Known};
use bartizan_base::FunctionId;
use bartizan_base::{Direction, PerDirection};
use bartizan_flow::rate::Rate;
use bartizan_flow::stream::StreamPair;
use bartizan_flow::tcp::{ExceptionPolicy, ExceptionTarget, TcpFlags, TcpSession};
use bartizan_function::{FlowDescription, Slot, SlotState};
use bartizan_offload::{Mark, Stays};
use bartizan_packet::VlanIds;

/// What is kept of a flow for one function.
#[derive(Default)]
pub struct FunctionSlot {
    /// The function's own.
    pub own: Slot,
    /// See `PacketContext::staged`.
    pub staged: u64,
}

impl FunctionSlot {
    /// Bytes of memory that the function's state holds beside its own place.
    pub fn held(&self) -> usize {
        self.own.as_deref().map_or(0, SlotState::held)
    }

    /// Lets go of what is only of use for data that comes.
    pub fn let_go(&mut self) {
        if let Some(own) = self.own.as_deref_mut() {
            own.let_go();
        }
    }
}

/// What of a flow the statistics of protocols have counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppCounted {
    pub(crate) protocol: Option<Known>,
    pub(crate) transactions: u64,
    pub(crate) error: bool,
    pub(crate) gap: bool,
}

/// See the module.
#[derive(Default)]
pub struct FlowExt {
    /// Number of the flow in events, unique in a run.
    pub event_id: u64,
    /// Where in the run it began: the same order with any number of workers.
    pub began: u64,
    /// TCP state; plain data.
    pub session: TcpSession,
    /// Reassembly; made with the first segment that has a payload function on its path.
    pub streams: Option<Box<StreamPair>>,
    /// Application layer; made with the first data.
    pub app: Option<Box<AppLayer>>,
    /// What functions keep, by their bit in paths.
    pub slots: Vec<FunctionSlot>,
    /// The latest beginning of a function when they were looked at last (`runner/lifecycle.rs`).
    pub begun: u32,
    /// What the generation's lookup found among functions' rules on headers.
    pub matches: Matches,
    /// ICMP: type and code that they hold for, as the opener would send them.
    pub matched_icmp: (u16, u16),
    /// Least and greatest TTL or hop limit by direction.
    pub ttl: PerDirection<Option<(u8, u8)>>,
    /// Ethernet addresses on the client's (`to_server`) and on the server's side, each once; only where some
    /// output shows them.
    pub macs: Option<Box<PerDirection<Vec<[u8; 6]>>>>,
    /// VLAN ids of the first packet.
    pub vlan: VlanIds,
    /// ICMP: type and code of the first packet.
    pub icmp: Option<(u8, u8)>,
    /// ICMP: type and code of the first answer.
    pub icmp_response: Option<(u8, u8)>,
    /// Exception policies that were applied, each once.
    pub exceptions: Vec<(ExceptionTarget, ExceptionPolicy)>,
    /// What becomes of its next packet.
    pub standing: Standing,
    /// Reassembly was ended because no payload function was left on the path.
    pub reading_stopped: bool,
    /// Flags of TCP packets that no session took, by nobody's direction.
    pub stray_flags: TcpFlags,
    /// Flags of TCP packets that were refused with their flow and that its session did not see.
    pub refused_flags: PerDirection<TcpFlags>,
    /// Transactions that were begun in protocols before a switch.
    pub earlier_tx: u64,
    /// What of it the statistics of protocols have counted.
    pub counted: AppCounted,
    /// What the flow holds, as it was counted last.
    pub memory: crate::app_memory::Charge,
    /// Bytes of the latest seconds, where rates are tracked.
    pub rate: Option<Box<Rate>>,
    /// An end-of-flow inspection took place.
    pub ended: bool,
    /// Its place in its tenant's quota, where there is one.
    pub quota: Option<Counted>,
    /// Where packets without a flow are refused below: its packets are not.
    pub mark: Option<Mark>,
    /// Payload functions are on the path of its class, so what is decided of it may rest on what it carries.
    pub by_content: bool,
    /// Why it is at no lower level, if it was asked in this generation.
    pub stays: Option<Stays>,
}

/// Ethernet addresses kept of one side of a flow (as in Suricata).
const MACS_MAX: usize = 10;

impl FlowExt {
    /// Exchanges what is kept of packets by direction: the flow was picked up the wrong way round.
    pub fn turn(&mut self) {
        self.ttl.swap();
        self.refused_flags.swap();
        if let Some(macs) = self.macs.as_deref_mut() {
            macs.swap();
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
    pub fn note_macs(&mut self, direction: Direction, (source, destination): ([u8; 6], [u8; 6])) {
        for (side, address) in [(direction, source), (direction.flip(), destination)] {
            let known = &mut self.macs.get_or_insert_default()[side];
            if known.len() < MACS_MAX && !known.contains(&address) {
                known.push(address);
            }
        }
    }

    /// Ethernet addresses of a side.
    #[must_use]
    pub fn macs_of(&self, side: Direction) -> &[[u8; 6]] {
        self.macs.as_ref().map_or(&[], |macs| &macs[side])
    }

    /// What functions say of the flow, with the functions' bits and in their order.
    pub fn descriptions(&self) -> impl Iterator<Item = (FunctionId, FlowDescription<'_>)> {
        let slots = (0u8..).map(FunctionId).zip(&self.slots);
        slots.filter_map(|(bit, slot)| Some((bit, slot.own.as_deref()?.describe())))
    }

    /// Transactions of the flow so far.
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
        // Whoever makes it larger has a reason that is worth a line for each of a million flows.
        assert_eq!(size_of::<Entry>(), 640);
    }
}
