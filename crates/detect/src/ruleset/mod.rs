// SPDX-License-Identifier: Apache-2.0
//! A compiled set of rules.

mod load;
pub mod needs;
mod rule;
mod writers;

use crate::compile::firewall::Firewall;
pub use crate::compile::skipped_entries::SKIPPED_ENTRY;
pub use crate::compile::unknown_classes::UNKNOWN_CLASS;
use crate::model::buffers::Buffers;
use crate::model::content::Item;
use crate::model::heads::Heads;
use crate::model::prefilter::Prefilters;
use crate::model::signature::{Member, RuleAction, Signature};
use crate::model::visibility::Visibility;
use crate::state::shared::Shared;
use bartizan_base::RuleId;
use bartizan_function::Together;
use bartizan_rules::RuleSetReport;
pub use load::{LoadError, Loaded, RefusedRule, load};
pub use rule::{LoadInput, origins};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
pub use writers::{NEVER_WRITTEN, WRITER_LEFT_OUT};

/// A compiled set of rules.
pub struct RuleSet {
    /// Unique number of the set.
    pub(crate) number: u64,
    /// The rules in the order of evaluation.
    pub signatures: Vec<Member>,
    /// Heads of the rules, by number.
    pub heads: Heads,
    pub(crate) head_of: Vec<u32>,
    /// Buffers by number.
    pub buffers: Buffers,
    /// Prefilters, which find the rules worth evaluating.
    pub prefilters: Prefilters,
    /// Report of the load: numbers of loaded, refused and skipped rules.
    pub report: RuleSetReport,
    /// State that outlives generations.
    pub shared: Arc<Shared>,
    /// Alerts of rules on packets and streams show the transaction that they probably belong to.
    pub guess_tx: bool,
    /// Some rule tags packets: the state of hosts is read for every packet.
    pub tags: bool,
    /// Some rule on addresses alone reads what other flows change (marks of hosts, reputation). It is
    /// evaluated once for each direction, so each flow has to remember that it was.
    pub reads_hosts_once: bool,
    /// Limit of such alerts for one transaction.
    pub guess_limit: u8,
    /// Rules that decide about flows, by gid and sid, with decision and position: decisions about flows stay
    /// in force as long as their rule is in this map.
    deciding: HashMap<(u32, u32), (RuleDecision, u32)>,
    /// The tables of firewall rules if firewall mode is on; these rules come after those of detection in
    /// `signatures`.
    pub firewall: Option<Firewall>,
    /// Firewall rules that accept flows, by gid and sid: a flow stays accepted as long as its rule is in this
    /// set.
    accepting: HashSet<(u32, u32)>,
    /// Cached properties of all rules.
    summary: OnceLock<RuleSetSummary>,
}

/// The rules that a policy sees.
#[derive(Clone)]
pub struct VisibleRules {
    /// The rule set.
    pub rules: Arc<RuleSet>,
    /// The visible part of the set; `None`: all.
    pub visible: Option<Arc<Visibility>>,
}

impl VisibleRules {
    /// All rules of a set.
    #[must_use]
    pub const fn all(rules: Arc<RuleSet>) -> Self {
        VisibleRules { rules, visible: None }
    }

    /// Number of visible rules.
    #[must_use]
    pub fn count(&self) -> usize {
        self.visible.as_ref().map_or(self.rules.signatures.len(), |visible| visible.count())
    }

    /// Whether there are no rules at all, so that flows are only recorded.
    #[must_use]
    pub fn watches_nothing(&self) -> bool {
        self.rules.watches_nothing() || self.visible.as_ref().is_some_and(|visible| visible.count() == 0)
    }
}

/// Properties that some rule of a set has. Cached, since all generations that share the set need them, and it
/// has tens of thousands of rules.
#[derive(Clone, Copy)]
struct RuleSetSummary {
    /// Some rule refuses traffic by its detected protocol (`app-layer-protocol`).
    waits_for_protocol: bool,
    /// Some rule replaces bytes.
    replaces: bool,
}

/// A rule's decision about a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleDecision {
    /// The flow passes detection.
    Pass,
    /// The flow is dropped or rejected.
    Refuse,
}

impl RuleDecision {
    const fn of(action: RuleAction) -> Option<Self> {
        match action {
            RuleAction::Pass => Some(RuleDecision::Pass),
            RuleAction::Drop | RuleAction::Reject(_) => Some(RuleDecision::Refuse),
            RuleAction::Alert | RuleAction::Config | RuleAction::Accept => None,
        }
    }

    /// The decision of a rule about a flow within detection.
    fn of_rule(signature: &Signature) -> Option<Self> {
        match &signature.firewall {
            // Refusals of the firewall are not decisions of detection.
            Some(rule) => rule.pass.then_some(RuleDecision::Pass),
            None => RuleDecision::of(signature.action),
        }
    }
}

impl RuleSet {
    /// Whether the set has the rule, in any revision, with this decision. `visible`: the visible rules;
    /// `None`: all.
    #[must_use]
    pub fn has_decision(&self, rule: &RuleId, what: RuleDecision, visible: Option<&Visibility>) -> bool {
        self.deciding
            .get(&(rule.gid, rule.sid))
            .is_some_and(|(says, index)| *says == what && visible.is_none_or(|visible| visible.has(*index)))
    }

    /// Whether a rule that passes whole flows also bypasses them. A pass stays in force across generations
    /// without another evaluation of the rule.
    #[must_use]
    pub fn bypasses(&self, rule: &RuleId) -> bool {
        let index = self.deciding.get(&(rule.gid, rule.sid)).map(|(_, index)| *index as usize);
        index.and_then(|index| self.signatures.get(index)).is_some_and(|signature| signature.bypass)
    }

    /// Whether the firewall has the rule, in any revision, as one that accepts flows.
    #[must_use]
    pub fn accepts(&self, rule: &RuleId) -> bool {
        self.accepting.contains(&(rule.gid, rule.sid))
    }

    /// Whether some rule refuses traffic by its detected protocol (`app-layer-protocol:!tls`).
    #[must_use]
    pub fn waits_for_protocol(&self) -> bool {
        self.summary().waits_for_protocol
    }

    /// Whether there are no rules at all, so that flows are only recorded.
    #[must_use]
    pub fn watches_nothing(&self) -> bool {
        self.signatures.is_empty() && self.firewall.is_none()
    }

    /// The way in which segments of a stream that came in one batch may be inspected together.
    #[must_use]
    pub fn together(&self) -> Together {
        if self.tags || self.firewall.is_some() || self.summary().replaces {
            // Tags and replacements concern single packets, and the firewall judges each packet.
            Together::Apart
        } else if self.prefilters.inspects_segments() {
            Together::StreamJoined
        } else {
            Together::Joined
        }
    }

    /// Rules that no connection of the stream path can meet, whose bytes come without packets: they have a
    /// condition on a packet's headers or size. Those for datagrams alone are not among them.
    pub fn of_packets_alone(&self) -> impl Iterator<Item = RuleId> + '_ {
        let on_tcp = |s: &Member| s.protocol.ip.is_empty() || s.protocol.ip.contains(&6);
        let of_packet = |s: &Member| {
            s.packet.iter().any(|c| c.needs_real_packet())
                || s.values.iter().any(|v| v.buffer.is_of_one_packet())
        };
        self.signatures.iter().filter(move |s| on_tcp(s) && of_packet(s)).map(|s| s.id)
    }

    fn summary(&self) -> RuleSetSummary {
        let refuses = |s: &Member| matches!(s.action, RuleAction::Drop | RuleAction::Reject(_));
        let waits = |s: &Member| refuses(s) && s.packet.iter().any(|c| c.is_detection());
        let replaces = |s: &Member| {
            s.values.iter().any(|v| v.program.literals().any(|(_, literal)| literal.replace.is_some()))
        };
        *self.summary.get_or_init(|| RuleSetSummary {
            waits_for_protocol: self.signatures.iter().any(waits),
            replaces: self.signatures.iter().any(replaces),
        })
    }
}

/// Items of a rule, over all buffers; for `explain`.
pub fn items(signature: &Signature) -> impl Iterator<Item = &Item> {
    signature.values.iter().flat_map(|v| v.program.items.iter())
}
