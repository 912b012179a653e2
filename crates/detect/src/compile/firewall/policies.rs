// SPDX-License-Identifier: Apache-2.0
//! The settings `firewall.*`: whether the mode is on, and the policies where no rule decides.
//!
//! The most specific of these holds: `policies.packet.HOOK`, `policies.packet.default-policy`,
//! `policies.default-policy`; for states `policies.app.PROTOCOL.STATE`,
//! `policies.app.PROTOCOL.default-policy`, `policies.app.default-policy`, `policies.default-policy`.

use super::rules::{act_of, state_name};
use crate::model::firewall::{Act, PacketHook};
use bartizan_applayer::protocol::ProtocolId;
use bartizan_applayer::protocols;
use bartizan_base::{Direction, PerDirection, SettingError, SettingsMap};
use bartizan_rules::{ActionScope, ParsedRuleAction, ScopedAction};
use std::collections::HashMap;

/// Signature ids under which policies are reported: of packets, of states. Suricata's numbers.
pub(crate) const POLICY_SIDS: [u32; 2] = [2_201_000, 2_201_001];

/// Whether the settings enable firewall mode.
///
/// # Errors
/// The value is neither yes nor no.
pub fn is_enabled(settings: &SettingsMap) -> Result<bool, SettingError> {
    settings.bool("firewall.enabled", false)
}

/// A policy as the settings write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FirewallPolicySpec {
    pub(crate) act: Act,
    pub(crate) pass: bool,
    pub(crate) alert: bool,
    /// The policy as events show it.
    pub(crate) text: String,
    /// The hook's name in events.
    pub(crate) hook: Option<String>,
}

/// The firewall's policies, which decide where no rule does.
#[derive(Clone, Debug)]
pub struct Policies {
    packets: [FirewallPolicySpec; 3],
    states: HashMap<ProtocolId, PerDirection<Vec<FirewallPolicySpec>>>,
    pub(crate) accepts_arp: bool,
}

const WANTED: &str = "a list like [\"drop:flow\", \"alert\"]: accept, drop or reject with a scope that the hook has (packets: packet, hook, \
                      flow, before the flow not flow; states: hook, tx, flow), then pass (with accept) or alert";

impl Policies {
    /// Reads the policies from the settings.
    ///
    /// # Errors
    /// A policy cannot be understood, or has a scope that its hook lacks.
    pub fn from_settings(settings: &SettingsMap) -> Result<Self, SettingError> {
        use ActionScope::{Flow, Hook, Packet, Tx};
        let hooks = [
            (PacketHook::PreFlow, "pre-flow", scoped(ParsedRuleAction::Accept, Hook), &[Packet, Hook][..]),
            (
                PacketHook::PreStream,
                "pre-stream",
                scoped(ParsedRuleAction::Accept, Hook),
                &[Packet, Hook, Flow],
            ),
            (PacketHook::Filter, "filter", scoped(ParsedRuleAction::Drop, Packet), &[Packet, Hook, Flow]),
        ];
        let mut packets = Vec::new();
        for (hook, name, usual, scopes) in hooks {
            let keys = [
                format!("firewall.policies.packet.{name}"),
                "firewall.policies.packet.default-policy".to_owned(),
                "firewall.policies.default-policy".to_owned(),
            ];
            packets.push(read(settings, &keys, usual, scopes, Some(hook.name().to_owned()))?);
        }
        let mut states = HashMap::new();
        for (id, spec) in protocols::all() {
            let name = spec.exact_name;
            let mut both = PerDirection::<Vec<FirewallPolicySpec>>::default();
            for direction in Direction::BOTH {
                for state in 0..=spec.complete[direction] {
                    let mut keys: Vec<String> = Vec::new();
                    for known in crate::model::hook::names_of(id, spec, direction, state) {
                        keys.push(format!("firewall.policies.app.{name}.{}", known.replace('_', "-")));
                    }
                    keys.push(format!("firewall.policies.app.{name}.default-policy"));
                    keys.push("firewall.policies.app.default-policy".to_owned());
                    keys.push("firewall.policies.default-policy".to_owned());
                    let hook = state_name(spec, direction, state);
                    both[direction].push(read(
                        settings,
                        &keys,
                        scoped(ParsedRuleAction::Drop, Flow),
                        &[Hook, Tx, Flow],
                        hook,
                    )?);
                }
            }
            states.insert(id, both);
        }
        let packets: [FirewallPolicySpec; 3] =
            packets.try_into().map_err(|_| settings.error("firewall.policies.packet", "", WANTED))?;
        let accepts_arp = settings.bool("firewall.policies.accept-arp", false)?;
        Ok(Policies { packets, states, accepts_arp })
    }

    pub(crate) const fn of_packets(&self, hook: PacketHook) -> &FirewallPolicySpec {
        let [flow, stream, filter] = &self.packets;
        match hook {
            PacketHook::PreFlow => flow,
            PacketHook::PreStream => stream,
            PacketHook::Filter => filter,
        }
    }

    pub(crate) fn of_states(&self, protocol: ProtocolId, direction: Direction) -> &[FirewallPolicySpec] {
        self.states.get(&protocol).map_or(&[], |both| &both[direction])
    }

    /// Rules under which policies are reported: sid, hook and actions, each once.
    pub(crate) fn reported(&self) -> Vec<(u32, Option<String>, String, Act, bool)> {
        let [of_packets, of_states] = POLICY_SIDS;
        let states = self.states.values().flat_map(|both| Direction::BOTH.map(|d| &both[d])).flatten();
        let all = self.packets.iter().map(|p| (of_packets, p)).chain(states.map(|p| (of_states, p)));
        let mut found: Vec<(u32, Option<String>, String, Act, bool)> = Vec::new();
        for (sid, policy) in all.filter(|(_, p)| p.alert) {
            let one = (sid, policy.hook.clone(), policy.text.clone(), policy.act, policy.pass);
            if !found.contains(&one) {
                found.push(one);
            }
        }
        found.sort_by(|a, b| (a.0, &a.1, &a.2).cmp(&(b.0, &b.1, &b.2)));
        found
    }
}

const fn scoped(action: ParsedRuleAction, scope: ActionScope) -> ScopedAction {
    ScopedAction { action, scope: Some(scope) }
}

/// The first of the keys that the settings have.
fn read(
    settings: &SettingsMap,
    keys: &[String],
    usual: ScopedAction,
    scopes: &[ActionScope],
    hook: Option<String>,
) -> Result<FirewallPolicySpec, SettingError> {
    let there =
        keys.iter().find(|key| settings.get(key).is_some() || settings.children(key).next().is_some());
    let Some(key) = there else {
        let act = act_of(usual);
        return Ok(FirewallPolicySpec { act, pass: false, alert: false, text: usual.to_string(), hook });
    };
    let items: Vec<&str> = settings
        .children(key)
        .filter_map(|item| settings.get(&format!("{key}.{item}")))
        .map(str::trim)
        .collect();
    let wrong = || {
        settings.error(
            key,
            &if items.is_empty() { settings.get(key).unwrap_or("").to_owned() } else { items.join(", ") },
            WANTED,
        )
    };
    if items.is_empty() || items.iter().any(|item| item.contains(',')) {
        return Err(wrong());
    }
    // A policy is parsed as the actions of a rule are.
    let text = format!("{} ip any any -> any any (sid:1;)", items.join(","));
    let file = bartizan_rules::parse_file(text.into_bytes(), "policy");
    let rule = file.rules.first().ok_or_else(wrong)?;
    let first = ScopedAction { action: rule.action, scope: rule.scope };
    let fits = rule.scope.is_some_and(|scope| scopes.contains(&scope));
    if !fits || rule.action == ParsedRuleAction::Config {
        return Err(wrong());
    }
    let (act, also) = super::rules::actions(first, &rule.also).map_err(|_| wrong())?;
    Ok(FirewallPolicySpec { act, pass: also.pass, alert: also.alert, text: also.text, hook })
}
