// SPDX-License-Identifier: Apache-2.0
//! The last stage: counts verdicts by policy and measures the memory that flows hold.

use crate::app_memory::{AppMemory, Charge, PoolBytes};
use crate::app_stats::AppStats;
use crate::chain::Chains;
use crate::counts::WorkerCounters;
use crate::flow_ext::FlowExt;
use crate::flows::Flows;
use crate::settings::EngineSettings;
use crate::tally::Tally;
use bartizan_applayer::flow::AppLayer;
use bartizan_base::{Decision, Fid, FlowId, TenantId};
use bartizan_flow::stream::StreamPair;
use bartizan_function::FindingAction;

/// The class of packets whose class cannot be known: fragments by themselves, malformed packets, packets
/// other than IP.
pub const UNKNOWN: Fid = Fid(u32::MAX);

/// A worker's account: counters, counters by policy and protocol, and charges of memory.
pub struct Account {
    /// The worker's counters.
    pub counters: WorkerCounters,
    /// Decisions by policy.
    pub tally: Tally,
    /// Counters by application protocol.
    pub app_stats: AppStats,
    /// Memory of application layers and streams.
    pub memory: AppMemory,
    /// Class of the current packet; [`UNKNOWN`] where it has none.
    pub fid: Fid,
}

impl Account {
    /// An empty account of the policies in force.
    pub fn new(settings: &EngineSettings, chains: &Chains) -> Self {
        let mut memory = AppMemory::new(&settings.app_memory, settings.stream.reassembly.memcap);
        memory.set_quotas(chains.quotas());
        Account {
            counters: WorkerCounters::default(),
            tally: Tally::new(chains),
            app_stats: AppStats::default(),
            memory,
            fid: UNKNOWN,
        }
    }

    /// Counts an alert of the current packet.
    pub fn alert(&mut self, action: FindingAction) {
        self.counters.alerts += 1;
        self.tally.alert(self.fid, action);
    }

    /// Counts the decision on the current packet. `acts`: refusals are enforced.
    pub fn packet(&mut self, decision: &Decision, bytes: u32, acts: bool) {
        self.tally.count(self.fid, decision, bytes, acts);
    }

    /// Counts the refusal that a staged policy would enforce on the current packet; the packet itself is
    /// forwarded and counted as forwarded.
    pub fn would_be(&mut self, decision: &Decision, bytes: u32) {
        self.tally.would_be(self.fid, decision, bytes);
    }

    /// Charges a flow with the memory that its application layer, streams and slots hold now.
    pub fn measure(&mut self, flows: &mut Flows, id: FlowId) {
        let Some(entry) = flows.get_mut(id) else { return };
        let of_tenant = entry.tenant();
        let FlowExt { app, streams, slots, memory, .. } = &mut entry.ext;
        let (parsed, protocol) = match app.as_deref_mut() {
            Some(app) => (AppLayer::held(app), app.summary().current()),
            None => (0, None),
        };
        let remembered = slots.iter().fold(0usize, |sum, slot| sum.saturating_add(slot.held()));
        let held = PoolBytes {
            app: parsed.saturating_add(remembered) as u64,
            streams: streams.as_deref().map_or(0, StreamPair::held),
        };
        let moved = self.memory.set(id, memory, held, of_tenant, protocol);
        note_moved(flows, moved);
    }

    /// Ends the charge of a flow that moves to another worker, which charges the flow from now on.
    pub fn discharge_moved(&mut self, flows: &mut Flows, id: FlowId, of: TenantId, memory: &mut Charge) {
        let moved = self.memory.set(id, memory, PoolBytes::default(), of, None);
        note_moved(flows, moved);
    }

    /// Ends the charge of a flow that ends.
    pub fn discharge(&mut self, flows: &mut Flows, id: FlowId) {
        let Some(entry) = flows.get_mut(id) else { return };
        let tenant = entry.tenant();
        let moved = self.memory.set(id, &mut entry.ext.memory, PoolBytes::default(), tenant, None);
        note_moved(flows, moved);
    }
}

fn note_moved(flows: &mut Flows, moved: Option<(FlowId, u32)>) {
    if let Some((other, place)) = moved
        && let Some(entry) = flows.get_mut(other)
    {
        entry.ext.memory.moved(place);
    }
}
