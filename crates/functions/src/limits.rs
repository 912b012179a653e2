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
        = "after both FINs: data sent before them; after a RST: the window offered at that time, and from the sender of the RST only data sent before it" []
        in ["functions/sfw_tcp.rs"], "refused", [Refused(SfwState)];
    Flow "echo identifiers that `sfw` keeps per ICMP flow" = "{}" [count(ICMP_IDS_MAX)] in ["functions/sfw.rs"],
        "an ICMP error about an older one is dropped", [Refused(SfwUnrelatedIcmp)];
    Flow "state that a function keeps per host (`portscan`)"
        = "`memory: function-hosts` of the host file ({} for each function); the largest size of a value gives the number of entries"
        [bytes(HOST_MEMORY)] in ["function/hosts.rs"], "evicts, from the tenant with the most hosts, the host nearest to its timeout",
        [Metric("bartizan_host_entries_total"), Stats("host.evicted"), Stats("host.evicted_for_others")];
    Flow "attempts that `portscan` keeps per source" = "{}" [count(ATTEMPTS_MAX)] in ["functions/portscan.rs"],
        "evicts the oldest", [Metric("bartizan_host_entries_total")];
    Flow "addresses that a tenant's DNS names resolve to" = "`dns: {{addresses}}` of the policy file ({})" [count(ADDRESSES)]
        in ["classify/names.rs"], "further addresses do not become members; existing members stay", [Function("full")];
    Rule "pairs of members of `from` and `to`, for each tenant and link that policies name: in a policy file; in a tenant's policies"
        = "{}; {}" [count(PAIRS_MAX), count(TENANT_PAIRS_MAX)] in ["config/policy/shares.rs"],
        "the file is refused before it is built, and the error names the policy; with a controller, the tenant that has grown most since the previous file is held back",
        [Told("the diagnostic")];
    Rule "combinations of addresses, ports and protocols in rules of `pfw`: in a policy file; in a tenant's policies"
        = "{}; {}" [count(COMBINATIONS_MAX), count(TENANT_COMBINATIONS_MAX)] in ["config/policy/shares.rs"],
        "the same", [Told("the diagnostic")];
    Rule "combinations of addresses, ports and protocols in rules of `pfw`, per policy (pairs of IPv4 and \
         IPv6 do not count)" = "{}" [count(ENTRIES_MAX)] in ["functions/pfw.rs"],
        "the policy is refused; the error names the rule that exceeds the bound", [Told("the diagnostic")];
    Rule "members of groups, nested groups included: in a policy file; in a tenant's groups"
        = "{}; {}" [count(MEMBERS_MAX), count(TENANT_MEMBERS_MAX)] in ["config/policy/shares.rs"],
        "the same, with the group", [Told("the diagnostic")];
    Rule "DNS names in groups: in a policy file; in a tenant's groups"
        = "{}; {}" [count(DNS_NAMES_MAX), count(TENANT_DNS_NAMES_MAX)] in ["config/policy/shares.rs"],
        "the same, with the group", [Told("the diagnostic")];
    Rule "DNS names with a number, in all generations in use" = "{}" [count(IDS_MAX)] in ["classify/names.rs"],
        "the next generation is refused until an older one with some of the names has ended", [Told("the diagnostic")];
    Flow "DNS names of policies per address" = "{}" [count(NAMES_MAX)] in ["classify/names.rs"],
        "the address does not become a member of further names", [Function("crowded")];
    Flow "outstanding queries per flow (groups by DNS name)" = "{}" [count(ASKED_MAX)] in ["functions/names.rs"],
        "evicts the oldest; its answer is ignored", [Function("forgotten")];
    Flow "aliases (CNAME) followed per answer (groups by DNS name)" = "{}" [count(ALIASES_MAX)] in ["functions/names.rs"],
        "addresses of further aliases do not become members", [Function("answers")];
    Rule "alerts per packet" = "{}" [count(ALERTS_PER_PACKET)] in ["functions/ids.rs"],
        "actions of further ones apply, without an alert", [Function("alerts_discarded"), Stats("detect.alert_queue_overflow")];
    File "ports and hosts, window of `portscan`" = "{} to {}, {} to {}"
        [
            count(*COUNTS.start()),
            count(*COUNTS.end()),
            time(PacketDuration::from_secs(*WINDOWS.start())),
            time(PacketDuration::from_secs(*WINDOWS.end()))
        ] in ["functions/portscan.rs"], "an error with its position", [Told("the message")];
};
