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
    /// Its own: no other set has it.
    pub(crate) number: u64,
    /// The rules in the order of evaluation.
    pub signatures: Vec<Member>,
    /// Addresses and ports of their heads, and which is whose.
    pub heads: Heads,
    pub(crate) head_of: Vec<u32>,
    /// Buffers by number.
    pub buffers: Buffers,
    /// Which rules are worth evaluating.
    pub prefilters: Prefilters,
    /// What became of the rules that were given.
    pub report: RuleSetReport,
    /// What belongs to no generation.
    pub shared: Arc<Shared>,
    /// Alerts of rules on packets and streams show the transaction that they are probably about.
    pub guess_tx: bool,
    /// Some rule tags packets: hosts are asked about every packet.
    pub tags: bool,
    /// For one transaction so often.
    pub guess_limit: u8,
    /// Rules that say more than alert, by generator and number, with their positions: what they decided of
    /// flows stands with them.
    deciding: HashMap<(u32, u32), (Says, u32)>,
    /// Firewall mode is on: the tables of its rules, which stand behind those of detection in `signatures`.
    pub firewall: Option<Firewall>,
    /// Rules of the firewall that accept flows, by generator and number: a flow stays accepted as long as
    /// there is such a rule.
    accepting: HashSet<(u32, u32)>,
    /// What all rules were looked through for.
    looked: OnceLock<Looked>,
}

/// The rules that a policy sees.
#[derive(Clone)]
pub struct Seen {
    /// The set that they are of.
    pub rules: Arc<RuleSet>,
    /// Which of its rules; `None`: all.
    pub visible: Option<Arc<Visibility>>,
}

impl Seen {
    /// All rules of a set.
    #[must_use]
    pub const fn all(rules: Arc<RuleSet>) -> Self {
        Seen { rules, visible: None }
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.visible.as_ref().map_or(self.rules.signatures.len(), |visible| visible.count())
    }

    /// Whether there is no rule at all: flows are only recorded.
    #[must_use]
    pub fn watches_nothing(&self) -> bool {
        self.rules.watches_nothing() || self.visible.as_ref().is_some_and(|visible| visible.count() == 0)
    }
}

/// What some rule of a set does. Generations that share the set ask, and it has tens of thousands of rules.
#[derive(Clone, Copy)]
struct Looked {
    /// It refuses what speaks another protocol than it says.
    waits_for_protocol: bool,
    /// It changes bytes.
    replaces: bool,
}

/// What a rule can decide of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// It passes.
    Pass,
    /// It is dropped or rejected.
    Refuse,
}

impl Says {
    const fn of(action: RuleAction) -> Option<Self> {
        match action {
            RuleAction::Pass => Some(Says::Pass),
            RuleAction::Drop | RuleAction::Reject(_) => Some(Says::Refuse),
            RuleAction::Alert | RuleAction::Config | RuleAction::Accept => None,
        }
    }

    /// What a rule can decide of what detection does with a flow.
    fn of_rule(signature: &Signature) -> Option<Self> {
        match &signature.firewall {
            // What the firewall refuses is its own matter.
            Some(rule) => rule.pass.then_some(Says::Pass),
            None => Says::of(signature.action),
        }
    }
}

impl RuleSet {
    /// Whether there is such a rule, of whatever revision, and that is what it says. `visible`: the rules
    /// that are seen; `None`: all.
    #[must_use]
    pub fn says(&self, rule: &RuleId, what: Says, visible: Option<&Visibility>) -> bool {
        self.deciding
            .get(&(rule.gid, rule.sid))
            .is_some_and(|(says, index)| *says == what && visible.is_none_or(|visible| visible.has(*index)))
    }

    /// Whether a rule that passes the whole flow wants it bypassed as well. What was passed stands from one
    /// generation to the next, and the rule is not asked again.
    #[must_use]
    pub fn bypasses(&self, rule: &RuleId) -> bool {
        let index = self.deciding.get(&(rule.gid, rule.sid)).map(|(_, index)| *index as usize);
        index.and_then(|index| self.signatures.get(index)).is_some_and(|signature| signature.bypass)
    }

    /// Whether the firewall has a rule of this number, of whatever revision, that accepts flows.
    #[must_use]
    pub fn accepts(&self, rule: &RuleId) -> bool {
        self.accepting.contains(&(rule.gid, rule.sid))
    }

    /// Whether some rule refuses what speaks another protocol than it says (`app-layer-protocol:!tls`).
    #[must_use]
    pub fn waits_for_protocol(&self) -> bool {
        self.looked().waits_for_protocol
    }

    /// Whether there is no rule at all: flows are only recorded.
    #[must_use]
    pub fn watches_nothing(&self) -> bool {
        self.signatures.is_empty() && self.firewall.is_none()
    }

    /// How segments of a stream that came together may be shown.
    #[must_use]
    pub fn together(&self) -> Together {
        if self.tags || self.firewall.is_some() || self.looked().replaces {
            // What is tagged or changed is the packet, and each is judged by the firewall.
            Together::Apart
        } else if self.prefilters.looks_at_segments() {
            Together::StreamJoined
        } else {
            Together::Joined
        }
    }

    fn looked(&self) -> Looked {
        let refuses = |s: &Member| matches!(s.action, RuleAction::Drop | RuleAction::Reject(_));
        let waits = |s: &Member| refuses(s) && s.packet.iter().any(|c| c.is_detection());
        let replaces = |s: &Member| {
            s.values.iter().any(|v| v.program.literals().any(|(_, literal)| literal.replace.is_some()))
        };
        *self.looked.get_or_init(|| Looked {
            waits_for_protocol: self.signatures.iter().any(waits),
            replaces: self.signatures.iter().any(replaces),
        })
    }
}

/// Items of a rule, over all buffers; for `explain`.
pub fn items(signature: &Signature) -> impl Iterator<Item = &Item> {
    signature.values.iter().flat_map(|v| v.program.items.iter())
}
