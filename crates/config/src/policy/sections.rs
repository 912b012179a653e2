// SPDX-License-Identifier: Apache-2.0
//! What a policy says to the functions that come with the program: its sections `pfw`, `sfw` and `ids`.
//!
//! A function that others add brings the type of its section along; see docs/writing-a-function.md.

use super::values::{List, Ports, Protocol, Target};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is done with a packet that a rule matches, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FilterAction {
    /// It goes on.
    Allow,
    /// It does not, silently.
    Drop,
    /// It does not, and the sender is told.
    Reject,
}

/// Section `pfw`: the packet filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PfwSection {
    /// What happens to a flow that no rule matches.
    pub default: FilterAction,
    /// The rules in order: the first that matches decides.
    #[serde(default)]
    pub rules: Vec<PfwRule>,
}

/// A rule of the packet filter. Exactly one of `allow`, `drop`, `reject` and `redirect`; what is left out
/// matches anything, except that `from` and `to` are then those of the policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PfwRule {
    /// Protocols that are let through.
    #[serde(default, deserialize_with = "super::values::filled_if_any")]
    pub allow: Option<List<Protocol>>,
    /// Protocols that are dropped.
    #[serde(default, deserialize_with = "super::values::filled_if_any")]
    pub drop: Option<List<Protocol>>,
    /// Protocols that are dropped, telling the sender.
    #[serde(default, deserialize_with = "super::values::filled_if_any")]
    pub reject: Option<List<Protocol>>,
    /// Protocols whose flows are let through and leave, both ways, by the port that `egress` names.
    #[serde(default, deserialize_with = "super::values::filled_if_any")]
    pub redirect: Option<List<Protocol>>,
    /// Of `redirect`: a port, by its name in `ports` of the host file.
    pub egress: Option<String>,
    /// Addresses of the side that opens the flow.
    #[serde(default, deserialize_with = "super::values::filled_if_any")]
    pub from: Option<List<Target>>,
    /// Addresses of the other side.
    #[serde(default, deserialize_with = "super::values::filled_if_any")]
    pub to: Option<List<Target>>,
    /// Ports of the side that opens the flow.
    #[serde(default, deserialize_with = "super::values::filled_if_any")]
    pub from_ports: Option<List<Ports>>,
    /// Ports of the other side.
    #[serde(default, deserialize_with = "super::values::filled_if_any")]
    pub to_ports: Option<List<Ports>>,
    /// ICMP or ICMPv6 types.
    #[serde(default, deserialize_with = "super::values::filled_if_any")]
    pub r#type: Option<List<Ports>>,
    /// ICMP or ICMPv6 codes.
    #[serde(default, deserialize_with = "super::values::filled_if_any")]
    pub code: Option<List<Ports>>,
    /// Tenants, by name.
    #[serde(default, deserialize_with = "super::values::filled_if_any")]
    pub tenant: Option<List<String>>,
    /// Its name, one within the policy: its counter goes by it, wherever the rule stands and whatever else of
    /// it changes.
    pub name: Option<String>,
    /// A remark for people.
    pub comment: Option<String>,
}

/// Which side of a policy may open flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Initiate {
    /// Those of `from`.
    #[default]
    From,
    /// Those of `to`.
    To,
    /// Both.
    Both,
}

/// What happens to a TCP connection whose beginning was not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Midstream {
    /// Its packets are dropped.
    #[default]
    Drop,
    /// It is taken as open (stream tracking has to pick it up: `stream.midstream`).
    Allow,
}

/// Section `sfw`: the stateful firewall.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SfwSection {
    /// Which side may open flows. Neighbour discovery and multicast listener discovery (ICMPv6 types 130 to 137
    /// and 143) go on from both sides: IPv6 does not work without them (RFC 4890, section 4.4.1). Rules of
    /// `pfw` can refuse them.
    #[serde(default)]
    pub initiate: Initiate,
    /// Half-open TCP connections that one source may have; no limit unless given.
    pub max_half_open: Option<u32>,
    /// Open flows that one source may have; no limit unless given. One that was open before there was a limit
    /// stays, and counts from its next packet on.
    pub max_connections: Option<u32>,
    /// TCP connections whose beginning was not seen.
    #[serde(default)]
    pub midstream: Midstream,
    /// Sequence and acknowledgement numbers have to lie in the window.
    #[serde(default = "yes")]
    pub window_check: bool,
}

fn yes() -> bool {
    true
}

/// What detection does with what its rules refuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum IdsMode {
    /// Reports it.
    Detect,
    /// Reports and refuses it, where the program stands inline.
    #[default]
    Prevent,
}

/// Section `ids`: detection with Suricata's rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct IdsSection {
    /// Rule files, beside the policy file or absolute.
    #[serde(default)]
    pub rules: List<String>,
    /// A name of `rule-groups`, or `none`: these flows need no detection.
    pub level: Option<String>,
    /// Whether what rules refuse is refused.
    #[serde(default)]
    pub mode: IdsMode,
}
