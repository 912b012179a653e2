// SPDX-License-Identifier: Apache-2.0
//! Checks firewall rules, and keeps firewall-only actions out of detection rules.

use crate::compile::builder::SignatureBuilder;
use crate::compile::refusal::KeywordError;
use crate::model::action::RejectSide;
use crate::model::firewall::{Act, At, FirewallRule, PacketHook, Reach};
use bartizan_applayer::protocol::{ProtocolSpec, Transport};
use bartizan_applayer::protocols;
use bartizan_base::Direction;
use bartizan_rules::{ActionScope, ParsedRuleAction, Rule, RuleDirection, ScopedAction};

/// Actions beside the first one.
pub(super) struct Also {
    pub(super) pass: bool,
    pub(super) alert: bool,
    /// All actions, as events show them.
    pub(super) text: String,
}

/// Checks a detection rule.
///
/// # Errors
/// The rule has something that only firewall rules may have.
pub(crate) fn check_detection(rule: &Rule, firewall: bool) -> Result<(), KeywordError> {
    if rule.action == ParsedRuleAction::Accept {
        return Err(KeywordError::context("`accept` is only an action of firewall rules").help(
            "put the rule into a file of `firewall.rule-files`, or give it with --firewall-rules-exclusive",
        ));
    }
    if !rule.also.is_empty() {
        return Err(KeywordError::context("only firewall rules have several actions"));
    }
    if rule.covers_earlier_hooks() {
        return Err(KeywordError::context("only firewall rules can accept the hooks before their own (`<`)"));
    }
    if firewall && rule.action == ParsedRuleAction::Config {
        return Err(KeywordError::context("in firewall mode `config` is an action of firewall rules only"));
    }
    Ok(())
}

/// Reads the actions of a firewall rule or of a policy.
///
/// # Errors
/// An action is not allowed there, or not together with the others.
pub(super) fn actions(first: ScopedAction, also: &[ScopedAction]) -> Result<(Act, Also), KeywordError> {
    if matches!(first.action, ParsedRuleAction::Alert | ParsedRuleAction::Pass) {
        return Err(KeywordError::context(format!(
            "a firewall rule cannot begin with `{}`",
            first.action.name()
        ))
        .help("write accept, drop, reject or config with a scope first: `accept:hook,alert`"));
    }
    let Some(scope) = first.scope else {
        return Err(KeywordError::context(format!("`{}` has no scope", first.action.name()))
            .help(format!("an action of a firewall rule needs a scope: `{}:flow`", first.action.name())));
    };
    let (mut pass, mut alert) = (false, false);
    for more in also {
        match more.action {
            ParsedRuleAction::Alert => alert = true,
            ParsedRuleAction::Pass => {
                if first.action != ParsedRuleAction::Accept {
                    return Err(KeywordError::context("`pass` goes with `accept` only"));
                }
                if more.scope.is_some_and(|own| own != scope) {
                    return Err(KeywordError::context("all actions of a rule must have the same scope"));
                }
                if !matches!(scope, ActionScope::Packet | ActionScope::Flow) {
                    return Err(KeywordError::context(format!("`pass` has no scope `{}`", scope.name()))
                        .help("write `accept:packet,pass` or `accept:flow,pass`"));
                }
                pass = true;
            }
            other => {
                return Err(KeywordError::context(format!(
                    "`{}` cannot follow another action",
                    other.name()
                ))
                .help("only `alert` may follow the first action, and `pass` may follow `accept`"));
            }
        }
    }
    let name = if first.action == ParsedRuleAction::Reject { "rejectsrc" } else { first.action.name() };
    let mut text = format!("{name}:{}", scope.name());
    if pass {
        text.push_str(&format!(",pass:{}", scope.name()));
    }
    if alert {
        text.push_str(",alert");
    }
    Ok((act_of(first), Also { pass, alert, text }))
}

/// The firewall's act for an action with its scope.
pub(super) const fn act_of(action: ScopedAction) -> Act {
    let flow = matches!(action.scope, Some(ActionScope::Flow));
    let reject = match action.action {
        ParsedRuleAction::Accept => {
            return Act::Accept(match action.scope {
                Some(ActionScope::Flow) => Reach::Flow,
                Some(ActionScope::Packet) => Reach::Packet,
                Some(ActionScope::Tx) => Reach::Tx,
                Some(ActionScope::Hook) | None => Reach::Hook,
            });
        }
        ParsedRuleAction::Config | ParsedRuleAction::Alert | ParsedRuleAction::Pass => return Act::Nothing,
        ParsedRuleAction::Drop => None,
        ParsedRuleAction::Reject => Some(RejectSide::Source),
        ParsedRuleAction::RejectDst => Some(RejectSide::Destination),
        ParsedRuleAction::RejectBoth => Some(RejectSide::Both),
    };
    Act::Refuse { flow, reject }
}

/// The firewall's part of a rule whose keywords are parsed, and whether the rule's matches are reported.
///
/// # Errors
/// The rule is not a valid firewall rule.
pub(crate) fn check_firewall(
    rule: &Rule,
    builder: &SignatureBuilder<'_>,
) -> Result<(FirewallRule, bool), KeywordError> {
    let first = ScopedAction { action: rule.action, scope: rule.scope };
    let (act, also) = actions(first, &rule.also)?;
    if rule.direction == RuleDirection::Transaction {
        return Err(KeywordError::context(
            "`=>` is not possible in firewall rules, which are about one direction",
        ));
    }
    let Some(name) = rule.hook() else {
        return Err(KeywordError::context("the rule has no hook, and a firewall rule needs one")
            .help("write it after the protocol: `tcp:all`, `http1:request_line`"));
    };
    let covers_earlier = rule.covers_earlier_hooks();
    if covers_earlier && (builder.hook.is_none() || !matches!(act, Act::Accept(_))) {
        return Err(KeywordError::context("`<` goes with `accept` at a state of a protocol only"));
    }
    let (at, hook) = match builder.hook {
        Some(hook) => {
            let spec = protocols::spec(hook.protocol);
            if rule.scope == Some(ActionScope::Packet) && !spec.is_some_and(is_of_datagrams) {
                return Err(KeywordError::context("the scope `packet` does not apply to states of protocols over TCP")
                    .help("packets of a stream carry parts of several transactions: write `flow`, or for `accept` `hook` or `tx`"));
            }
            if covers_earlier && rule.scope == Some(ActionScope::Packet) {
                return Err(KeywordError::context("`<` goes with the scopes flow, tx and hook"));
            }
            let shown = spec.and_then(|spec| state_name(spec, hook.direction, hook.state));
            (At::State(hook.protocol, hook.direction, hook.state), shown)
        }
        None => {
            let hook = match name {
                "pre_flow" => PacketHook::PreFlow,
                "pre_stream" => PacketHook::PreStream,
                _ => PacketHook::Filter,
            };
            if hook == PacketHook::PreFlow && rule.scope == Some(ActionScope::Flow) {
                return Err(KeywordError::context(
                    "the scope `flow` is not possible at a hook before the flow lookup",
                )
                .help("its scopes are packet and hook"));
            }
            (At::Packet(hook), Some(hook.name().to_owned()))
        }
    };
    let rule = FirewallRule { act, pass: also.pass, covers_earlier, at, hook, policy: also.text };
    Ok((rule, also.alert && !builder.noalert))
}

/// A state's name in events; `None` where the protocol has only the states that every protocol has.
pub(super) fn state_name(spec: &ProtocolSpec, direction: Direction, state: u8) -> Option<String> {
    let own = spec.states[direction];
    let general = ["request_started", "request_complete", "response_started", "response_complete"];
    if own.iter().all(|name| general.contains(name)) {
        return None;
    }
    Some(format!("{}:{}", spec.eve_name, own.get(usize::from(state))?))
}

/// Whether a protocol runs over datagrams, so that packet and flow scope differ.
fn is_of_datagrams(spec: &ProtocolSpec) -> bool {
    spec.transports.contains(&Transport::Udp)
}
