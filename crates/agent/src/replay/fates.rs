// SPDX-License-Identifier: Apache-2.0
//! A recorder for captures that keeps the outcome of each flow at its end.

use super::headers::staged_reason;
use super::outcome::{Amounts, FlowName, ReplayOutcome, ReplayVerdict};
use crate::build::{ClassInfo, DEFAULT_POLICY};
use bartizan_base::{Fid, Reason};
use bartizan_events::time_text;
use bartizan_stages::record::{Entry, Recorder, RecorderEvent};
use std::collections::HashMap;
use std::sync::Arc;

/// Most flows that are kept.
pub const FLOWS_MAX: usize = 1_000_000;

/// A flow with its outcome and amounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayFlow {
    /// The flow.
    pub flow: FlowName,
    /// The outcome.
    pub outcome: ReplayOutcome,
    /// Number of packets and bytes.
    pub amounts: Amounts,
}

/// The recorder; see the module.
pub struct FlowVerdicts {
    classes: HashMap<Fid, Arc<ClassInfo>>,
    names: Vec<&'static str>,
    /// Reasons for which staged policies would drop flows that have not ended, by flow number.
    staged: HashMap<u64, String>,
    /// The flows, in the order of their ends.
    pub seen: Vec<ReplayFlow>,
    /// Number of flows beyond [`FLOWS_MAX`].
    pub left_out: u64,
    /// Number of packets that were dropped without a flow.
    pub refused_without_flow: u64,
}

impl FlowVerdicts {
    /// `names`: of the functions, by their bits.
    #[must_use]
    pub fn new(classes: &[Arc<ClassInfo>], names: &[&'static str]) -> Self {
        FlowVerdicts {
            classes: classes.iter().map(|class| (class.fid, Arc::clone(class))).collect(),
            names: names.to_vec(),
            staged: HashMap::new(),
            seen: Vec::new(),
            left_out: 0,
            refused_without_flow: 0,
        }
    }

    fn verdict(&mut self, flow: &Entry) -> ReplayVerdict {
        let staged = self.staged.remove(&flow.ext.event_id);
        // The would-be drop of a staged policy counts as the flow's outcome; the flow is forwarded.
        if let Some(reason) = staged.filter(|_| self.classes.get(&flow.fid).is_some_and(|class| class.staged))
        {
            return ReplayVerdict::Staged { reason };
        }
        if let Some(refusal) = flow.ext.standing.last_refusal() {
            let function = self.names.get(usize::from(refusal.function.0)).copied().unwrap_or_default();
            return ReplayVerdict::Refused {
                function: function.to_owned(),
                reason: refusal.reason.map(Reason::name).unwrap_or_default().to_owned(),
                rule: refusal.rule.map(core::num::NonZeroU32::get),
            };
        }
        ReplayVerdict::Forwarded
    }
}

impl Recorder for FlowVerdicts {
    fn record(&mut self, event: RecorderEvent<'_>) {
        match event {
            RecorderEvent::Alert { flow, finding, .. } => {
                let id = finding.rule.id;
                if let (Some(flow), Some(reason)) = (flow, staged_reason(id.gid, id.sid)) {
                    self.staged.entry(flow.ext.event_id).or_insert(reason);
                }
            }
            RecorderEvent::Refused { flow, .. } => self.refused_without_flow += u64::from(flow.is_none()),
            RecorderEvent::Flow { flow, .. } => self.add_flow(flow),
            _ => {}
        }
    }
}

impl FlowVerdicts {
    fn add_flow(&mut self, flow: &Entry) {
        let fate = self.verdict(flow);
        if self.seen.len() >= FLOWS_MAX {
            self.left_out += 1;
            return;
        }
        let class = self.classes.get(&flow.fid);
        let policy =
            class.and_then(|class| class.policy.clone()).unwrap_or_else(|| DEFAULT_POLICY.to_owned());
        let tenant = class.map(|class| class.tenant.clone()).unwrap_or_default();
        let key = flow.key();
        let sum = |of: &bartizan_base::PerDirection<u64>| of.to_server.saturating_add(of.to_client);
        self.seen.push(ReplayFlow {
            flow: FlowName {
                protocol: key.protocol(),
                src_ip: key.source(),
                src_port: key.source_port(),
                dest_ip: key.destination(),
                dest_port: key.destination_port(),
                start: time_text(flow.start),
            },
            outcome: ReplayOutcome { tenant, policy, verdict: fate },
            amounts: Amounts { flows: 1, packets: sum(&flow.packets), bytes: sum(&flow.bytes) },
        });
    }
}
