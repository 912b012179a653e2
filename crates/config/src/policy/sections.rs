// SPDX-License-Identifier: Apache-2.0
//! Sections of a policy for the built-in functions: `pfw`, `sfw` and `ids`.
//!
//! A function from elsewhere provides the type of its section; see docs/writing-a-function.md.

use super::section::SectionType;
use super::values::{IpProtocol, OneOrMany, Ports, Target};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The action of the packet filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FilterAction {
    /// The packet is forwarded.
    Allow,
    /// The packet is dropped silently.
    Drop,
    /// The packet is dropped, and the sender notified.
    Reject,
}

/// Section `pfw`: the packet filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PfwSection {
    /// The action for a flow that no rule matches.
    pub default: FilterAction,
    /// The rules in order: the first that matches decides.
    #[serde(default)]
    pub rules: Vec<PfwRule>,
}

impl SectionType for PfwSection {
    const FUNCTION: &'static str = "pfw";
}

/// A rule of the packet filter, with exactly one of `allow`, `drop`, `reject` and `redirect`. An absent key
/// matches anything, except that absent `from` and `to` are those of the policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PfwRule {
    /// Protocols to allow.
    #[serde(default, deserialize_with = "super::values::filled_if_any")]
    pub allow: Option<OneOrMany<IpProtocol>>,
    /// Protocols to drop.
    #[serde(default, deserialize_with = "super::values::filled_if_any")]
    pub drop: Option<OneOrMany<IpProtocol>>,
    /// Protocols to drop, notifying the sender.
    #[serde(default, deserialize_with = "super::values::filled_if_any")]
    pub reject: Option<OneOrMany<IpProtocol>>,
    /// Protocols to allow and to send, in both directions, by the port in `egress`.
    #[serde(default, deserialize_with = "super::values::filled_if_any")]
    pub redirect: Option<OneOrMany<IpProtocol>>,
    /// The port for `redirect`, by its name in `ports` of the host file.
    pub egress: Option<String>,
    /// Addresses of the initiator of the flow.
    #[serde(default, deserialize_with = "super::values::filled_if_any")]
    pub from: Option<OneOrMany<Target>>,
    /// Addresses of the responder.
    #[serde(default, deserialize_with = "super::values::filled_if_any")]
    pub to: Option<OneOrMany<Target>>,
    /// Ports of the initiator of the flow.
    #[serde(default, deserialize_with = "super::values::filled_if_any")]
    pub from_ports: Option<OneOrMany<Ports>>,
    /// Ports of the responder.
    #[serde(default, deserialize_with = "super::values::filled_if_any")]
    pub to_ports: Option<OneOrMany<Ports>>,
    /// ICMP or ICMPv6 types.
    #[serde(default, deserialize_with = "super::values::filled_if_any")]
    pub r#type: Option<OneOrMany<Ports>>,
    /// ICMP or ICMPv6 codes.
    #[serde(default, deserialize_with = "super::values::filled_if_any")]
    pub code: Option<OneOrMany<Ports>>,
    /// Tenants, by name.
    #[serde(default, deserialize_with = "super::values::filled_if_any")]
    pub tenant: Option<OneOrMany<String>>,
    /// Name of the rule, unique within the policy: its counter keeps this name when the rule moves or
    /// changes.
    pub name: Option<String>,
    /// A remark for people.
    pub comment: Option<String>,
}

/// The side of a policy that may open flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Initiate {
    /// The side in `from`.
    #[default]
    From,
    /// The side in `to`.
    To,
    /// Both sides.
    Both,
}

/// Handling of a TCP connection whose beginning was not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Midstream {
    /// Its packets are dropped.
    #[default]
    Drop,
    /// The connection counts as open (stream tracking must pick it up: `stream.midstream`).
    Allow,
}

/// Section `sfw`: the stateful firewall.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SfwSection {
    /// Which side may open flows. Neighbour discovery and multicast listener discovery (ICMPv6 types 130 to
    /// 137 and 143) are forwarded from both sides: IPv6 does not work without them (RFC 4890, section
    /// 4.4.1). Rules of `pfw` can refuse them.
    #[serde(default)]
    pub initiate: Initiate,
    /// Most half-open TCP connections of one source; no limit unless given.
    pub max_half_open: Option<u32>,
    /// Most open flows of one source; no limit unless given. A flow that was open before the limit existed
    /// stays, and counts from its next packet on.
    pub max_connections: Option<u32>,
    /// Handling of TCP connections whose beginning was not seen.
    #[serde(default)]
    pub midstream: Midstream,
    /// Whether sequence and acknowledgement numbers must be in the window.
    #[serde(default = "yes")]
    pub window_check: bool,
}

impl SectionType for SfwSection {
    const FUNCTION: &'static str = "sfw";
}

fn yes() -> bool {
    true
}

/// Handling of packets that detection's rules drop or reject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum IdsMode {
    /// They are only reported.
    Detect,
    /// They are reported and, inline, dropped.
    #[default]
    Prevent,
}

/// Section `ids`: detection with Suricata's rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct IdsSection {
    /// Rule files, beside the policy file or absolute.
    #[serde(default)]
    pub rules: OneOrMany<String>,
    /// A name of `rule-groups`, or `none`: no detection for these flows.
    pub level: Option<String>,
    /// Whether rules that drop or reject take effect.
    #[serde(default)]
    pub mode: IdsMode,
}

impl SectionType for IdsSection {
    const FUNCTION: &'static str = "ids";
}
