// SPDX-License-Identifier: Apache-2.0
//! Bounds of the functions, for docs/limits.md.

use crate::ids::ALERTS_PER_PACKET;
use crate::names::{ALIASES_MAX, ASKED_MAX};
use crate::pfw::ENTRIES_MAX;
use crate::portscan::{ATTEMPTS_MAX, COUNTS, WINDOWS};
use crate::sfw::ICMP_IDS_MAX;
use bartizan_base::Reason::{SfwState, SfwUnrelatedIcmp};
use bartizan_base::limit::LimitTrace::{Function, Metric, Refused, Stats, Told};
use bartizan_base::limit::{LimitSpec, bytes, count, time};
use bartizan_base::{PacketDuration, limits};
use bartizan_classify::names::{ADDRESSES, IDS_MAX, NAMES_MAX};
use bartizan_config::policy::shares::{
    COMBINATIONS_MAX, DNS_NAMES_MAX, MEMBERS_MAX, PAIRS_MAX, TENANT_COMBINATIONS_MAX, TENANT_DNS_NAMES_MAX,
    TENANT_MEMBERS_MAX, TENANT_PAIRS_MAX,
};
use bartizan_function::hosts::HOST_MEMORY;

/// All bounds of this crate, and of the interface of functions.
pub const LIMITS: &[LimitSpec] = limits! {
    Flow "data of an ended connection in `sfw`"
        = "after both FINs what was sent before; after a RST the window that was offered then, and of the RST's sender what was sent before" []
        in ["functions/sfw_tcp.rs"], "refused", [Refused(SfwState)];
    Flow "identifiers of echoes that `sfw` knows of an ICMP flow" = "{}" [count(ICMP_IDS_MAX)] in ["functions/sfw.rs"],
        "an error about an older one is refused", [Refused(SfwUnrelatedIcmp)];
    Flow "what a function keeps per host beyond flows (`portscan`)"
        = "`memory: function-hosts` of the host file ({} for each function); entries by the greatest size of a value"
        [bytes(HOST_MEMORY)] in ["function/hosts.rs"], "of the tenant that has most hosts, the one nearest to its end is forgotten",
        [Metric("bartizan_host_entries_total"), Stats("host.evicted"), Stats("host.evicted_for_others")];
    Flow "attempts that `portscan` keeps of a source" = "{}" [count(ATTEMPTS_MAX)] in ["functions/portscan.rs"],
        "the oldest is forgotten", [Metric("bartizan_host_entries_total")];
    Flow "addresses that a tenant has by DNS names" = "`dns: {{addresses}}` of the policy file ({})" [count(ADDRESSES)]
        in ["classify/names.rs"], "further ones are no members; those that are stay", [Function("full")];
    Rule "pairs of members of `from` and `to`, for each tenant and link that policies name: of a policy file; of a tenant's policies"
        = "{}; {}" [count(PAIRS_MAX), count(TENANT_PAIRS_MAX)] in ["config/policy/shares.rs"],
        "the file is refused before anything is made of it, with the policy; of a controller's tenants that has taken most since the file before is held back",
        [Told("the diagnostic")];
    Rule "combinations of addresses, ports and protocols in rules of `pfw`: of a policy file; of a tenant's policies"
        = "{}; {}" [count(COMBINATIONS_MAX), count(TENANT_COMBINATIONS_MAX)] in ["config/policy/shares.rs"],
        "the same", [Told("the diagnostic")];
    Rule "the same of a policy (pairs of addresses of different versions are none)" = "{}" [count(ENTRIES_MAX)] in ["functions/pfw.rs"],
        "the policy is refused, with the rule that was one too many", [Told("the diagnostic")];
    Rule "members of groups, those of groups in them counted: of a policy file; of a tenant's groups"
        = "{}; {}" [count(MEMBERS_MAX), count(TENANT_MEMBERS_MAX)] in ["config/policy/shares.rs"],
        "the same, with the group", [Told("the diagnostic")];
    Rule "DNS names in groups: of a policy file; of a tenant's groups"
        = "{}; {}" [count(DNS_NAMES_MAX), count(TENANT_DNS_NAMES_MAX)] in ["config/policy/shares.rs"],
        "the same, with the group", [Told("the diagnostic")];
    Rule "DNS names that have a number, of all generations that are in use" = "{}" [count(IDS_MAX)] in ["classify/names.rs"],
        "the next generation is refused until one that has some of them is gone", [Told("the diagnostic")];
    Flow "DNS names of policies that an address has" = "{}" [count(NAMES_MAX)] in ["classify/names.rs"],
        "it is no member of further ones", [Function("crowded")];
    Flow "questions of a flow that wait for an answer (groups by DNS name)" = "{}" [count(ASKED_MAX)] in ["functions/names.rs"],
        "the oldest is forgotten: its answer does not count", [Function("forgotten")];
    Flow "aliases that are followed in an answer (groups by DNS name)" = "{}" [count(ALIASES_MAX)] in ["functions/names.rs"],
        "what lies behind makes no members", [Function("answers")];
    Rule "findings of a packet" = "{}" [count(ALERTS_PER_PACKET)] in ["functions/ids.rs"],
        "further ones act and are not reported", [Function("alerts_discarded"), Stats("detect.alert_queue_overflow")];
    File "ports and hosts, window of `portscan`" = "{} to {}, {} to {}"
        [
            count(*COUNTS.start()),
            count(*COUNTS.end()),
            time(PacketDuration::from_secs(*WINDOWS.start())),
            time(PacketDuration::from_secs(*WINDOWS.end()))
        ] in ["functions/portscan.rs"], "refused with the position", [Told("the message")];
};
