// SPDX-License-Identifier: Apache-2.0
//! Evaluates a generation on flow records: the classifier and the functions that handle headers only.
//! Decisions of other functions are unknown and reported as undecided.

use super::outcome::{ReplayOutcome, ReplayVerdict};
use super::record::Record;
use crate::build::{ClassInfo, DEFAULT_POLICY, GATE};
use crate::explain::Subject;
use crate::staged::STAGED_GID;
use crate::tenants::TenantQuestion;
use bartizan_base::{Fid, FunctionId, LinkId, Reason, TenantId};
use bartizan_dataplane::explain::first::{FirstPacket, FlowProbe, first_packet};
use bartizan_dataplane::explain::observe::FunctionCall;
use bartizan_flow::TableError;
use bartizan_function::FunctionModel;
use bartizan_packet::TunnelTag;
use std::collections::HashMap;

/// The evaluator; see the module.
pub struct Headers<'s> {
    subject: &'s Subject<'s>,
    classes: HashMap<Fid, &'s ClassInfo>,
    /// The link of records without one, or with one that the policy does not know.
    link: LinkId,
    /// The tenant of all records, if given.
    tenant: Option<TenantId>,
    /// Whether selectors use networks of tunnels, which records do not have.
    by_network: bool,
}

impl<'s> Headers<'s> {
    /// `link`: for records without one; `tenant`: of all records, otherwise the policy's selectors decide.
    #[must_use]
    pub fn new(subject: &'s Subject<'s>, link: LinkId, tenant: Option<TenantId>) -> Self {
        let classes = subject.classes.iter().map(|class| (class.fid, class.as_ref())).collect();
        let by_network = subject.file.tenants.iter().any(|tenant| tenant.select.vni.is_some());
        Headers { subject, classes, link, tenant, by_network }
    }

    /// The outcome of a flow.
    ///
    /// # Errors
    /// Memory for a small flow table is exhausted.
    pub fn judge(&self, record: &Record) -> Result<ReplayOutcome, TableError> {
        if self.tenant.is_none() && self.by_network {
            let fate =
                ReplayVerdict::Undecided { by: vec!["the tenant (its network is in no record)".to_owned()] };
            return Ok(ReplayOutcome { tenant: String::new(), policy: String::new(), verdict: fate });
        }
        let subject = self.subject;
        let named = record.link.as_ref().and_then(|name| subject.links.iter().find(|(n, _)| n == name));
        let link = named.map_or(self.link, |(_, id)| *id);
        let flow = &record.flow;
        let tenant = self.tenant.unwrap_or_else(|| {
            subject.tenants.select(&TenantQuestion {
                tunnel: TunnelTag::NONE,
                vlans: &record.vlans,
                link,
                addresses: Some((flow.src_ip, flow.dest_ip)),
            })
        });
        let probe = FlowProbe {
            tenant,
            link,
            protocol: flow.protocol,
            source: (flow.src_ip, flow.src_port),
            destination: (flow.dest_ip, flow.dest_port),
            icmp: record.icmp,
        };
        let first = first_packet(subject.chains, subject.settings, subject.engine, &probe)?;
        let class = self.classes.get(&first.class.fid);
        let policy = class.and_then(|class| class.policy.as_deref()).unwrap_or(DEFAULT_POLICY).to_owned();
        let tenant = class.map(|class| class.tenant.clone()).unwrap_or_default();
        Ok(ReplayOutcome { tenant, policy, verdict: self.verdict(&first) })
    }

    fn verdict(&self, first: &FirstPacket) -> ReplayVerdict {
        // The gate decides on a first packet what holds for the whole flow, except whether both directions
        // are seen.
        let decides = |call: &&FunctionCall| self.by_headers(call.function) || call.name == GATE;
        let mut staged = None;
        for call in first.calls.iter().filter(decides) {
            if !call.decision.verdict.forwards() {
                return ReplayVerdict::Refused {
                    function: call.name.to_owned(),
                    reason: call.decision.reason.map(Reason::name).unwrap_or_default().to_owned(),
                    rule: call.decision.rule.map(core::num::NonZeroU32::get),
                };
            }
            let mut reasons = call.findings.iter().filter_map(|(rule, _)| staged_reason(rule.gid, rule.sid));
            staged = staged.or_else(|| reasons.next());
        }
        if let Some(reason) = staged {
            return ReplayVerdict::Staged { reason };
        }
        let left = first.class.path.functions().filter(|id| !self.by_headers(*id));
        let name =
            |id: FunctionId| self.subject.functions.get(usize::from(id.0)).copied().unwrap_or_default();
        let by: Vec<String> = left.map(|id| name(id).to_owned()).collect();
        if by.is_empty() { ReplayVerdict::Forwarded } else { ReplayVerdict::Undecided { by } }
    }

    /// Whether a function handles headers only.
    fn by_headers(&self, id: FunctionId) -> bool {
        let function = self.subject.chains.functions.iter().find(|function| function.id() == id);
        function.is_some_and(|function| function.spec().model == FunctionModel::StatelessHeaders)
    }
}

/// The reason in a finding of a staged policy.
pub(super) fn staged_reason(gid: u32, sid: u32) -> Option<String> {
    let place = sid.checked_sub(1).filter(|_| gid == STAGED_GID)?;
    Reason::ALL.get(place as usize).map(|reason| reason.name().to_owned())
}
