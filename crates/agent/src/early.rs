// SPDX-License-Identifier: Apache-2.0
//! The early list, by which a level below drops packets without a flow: policies with the rules of their
//! first function, in the order in which the lookup of a new flow uses them.
//!
//! A policy's rules apply within what the policy selects, and its default decides the rest, so that no later
//! policy sees its flows. A policy sends its packets up if its first function judges by more than headers, or
//! if it is staged.

use crate::lookup::PolicyRules;
use crate::tenants::{Selector, TenantSelector};
use bartizan_base::{Decision, FunctionId};
use bartizan_classify::early::EarlyTenant;
use bartizan_classify::{HeaderRule, Net};
use bartizan_function::{Function, HandsUp};
use bartizan_stages::chain::Class;
use bartizan_stages::early::{Early, EarlyOrigin, NotBelow};
use std::collections::HashMap;
use std::sync::Arc;

/// A policy or the default, as the list needs it.
pub(crate) struct Selected {
    /// The headers to which the refusals are limited.
    pub within: Arc<[HeaderRule]>,
    /// The class of its flows. (Its other classes have the same rules.)
    pub class: Class,
    /// Whether packets are forwarded while its first function is unavailable: a level may not drop for it
    /// then.
    pub fails_open: bool,
}

/// Makes the list. `rules`: the looked-up rules of all functions.
pub(crate) fn list<'r>(
    tenants: &TenantSelector,
    owners: &[Selected],
    functions: &[Arc<dyn Function>],
    rules: &'r [PolicyRules],
) -> Early {
    let mut early = Early::default();
    early.rules.set_tenants(tenants.selectors.iter().map(early_tenant).collect());
    let of =
        |own: &'r PolicyRules| own.policies.iter().map(move |policy| ((own.function, *policy), &*own.rules));
    let by_policy: HashMap<(FunctionId, usize), &[(u32, HeaderRule)]> = rules.iter().flat_map(of).collect();
    for (index, owner) in owners.iter().enumerate() {
        let first = owner.class.path.functions().next();
        let function = functions.iter().find(|function| Some(function.id()) == first);
        let own = first.and_then(|first| by_policy.get(&(first, index)).copied());
        add(&mut early, owner, function, own.unwrap_or_default());
    }
    early
}

/// The selector of a tenant, in the form of the table.
fn early_tenant(selector: &Selector) -> EarlyTenant {
    let net =
        |prefix: &bartizan_config::policy::Prefix| Net { address: prefix.address, length: prefix.length };
    EarlyTenant {
        tenant: selector.tenant,
        tunnels: selector.vnis.clone(),
        vlans: selector.vlans.clone(),
        links: selector.links.clone(),
        networks: selector.prefixes.as_ref().map(|all| all.iter().map(net).collect()),
    }
}

/// Adds the rules of a policy. If its packets are forwarded without its first function, each rule sends
/// packets up.
fn add(
    early: &mut Early,
    Selected { within, class, fails_open }: &Selected,
    function: Option<&Arc<dyn Function>>,
    rules: &[(u32, HeaderRule)],
) {
    let (fid, first) = (class.fid, class.path.functions().next());
    let refuses = |rule: Option<u32>| -> Result<Decision, NotBelow> {
        match function {
            _ if *fails_open => Err(NotBelow::FailOpen),
            Some(function) => function.refuses(fid, rule).map_err(NotBelow::Function),
            None => Err(NotBelow::Function(HandsUp::LetsGo)),
        }
    };
    let mut push = |alternatives: &[HeaderRule], rule: Option<u32>| {
        let number = u32::try_from(early.outcomes.len()).map_err(|_| NotBelow::NoRoom);
        let outcome = refuses(rule).and_then(|decision| Ok((number?, decision)));
        early.outcomes.extend(outcome.map(|(_, decision)| (fid, decision)));
        early.origins.push(EarlyOrigin { fid, function: first, rule, up: outcome.err() });
        early.rules.push(within, alternatives, outcome.ok().map(|(number, _)| number));
    };
    let mut sorted = rules.to_vec();
    sorted.sort_by_key(|(number, _)| *number);
    for rule in sorted.chunk_by(|a, b| a.0 == b.0) {
        let alternatives: Vec<HeaderRule> = rule.iter().map(|(_, header)| *header).collect();
        push(&alternatives, rule.first().map(|(number, _)| *number));
    }
    push(&[HeaderRule::default()], None);
}
