// SPDX-License-Identifier: Apache-2.0
//! Bounds of detection, of rule files and of regular expressions, for docs/limits.md.

use crate::compile::{addresses, groups};
use crate::engine::evaluate::STEPS_MAX;
use crate::engine::explain::{SIDS_SHOWN, trace};
use crate::engine::txstate::TRANSACTIONS_MAX;
use crate::model::content::VARIABLES_MAX;
use crate::state::VARIABLES_PER_FLOW_MAX;
use bartizan_base::limit::LimitTrace::{Function, Metric, NotNeeded, Nothing, Told};
use bartizan_base::limit::{LimitSpec, bytes, count};
use bartizan_base::limits;
use bartizan_pattern::{CACHE_BYTES, DFA_MAX_LINKS, Limits};
use bartizan_rules::{MAX_DEPTH, MAX_DIAGNOSTICS, MAX_RANGES};

/// Limits of this crate and of the crates of rules and patterns.
pub const LIMITS: &[LimitSpec] = limits! {
    Rule "steps of one rule on one value" = "{}" [count(STEPS_MAX)] in ["detect/engine/evaluate.rs"],
        "the rule does not match the value (as with Suricata's default `inspection-recursion-limit`)", [Nothing];
    Rule "variables of `byte_extract` and `byte_math` in one rule" = "{}" [count(VARIABLES_MAX)]
        in ["detect/model/content/number.rs"], "the rule is refused with that reason", [Told("the summary")];
    Rule "flow variables, entropies, thresholds by flow of a flow" = "{} of each kind" [count(VARIABLES_PER_FLOW_MAX)]
        in ["detect/state/flow.rs"], "not set or not stored; a threshold does not count. The flow's state has a counter, which no output shows",
        [Nothing];
    Rule "transactions with remembered progress per flow" = "{}" [count(TRANSACTIONS_MAX)] in ["detect/engine/txstate.rs"],
        "the progress of the oldest is discarded: a rule can match on them again", [Nothing];
    Rule "match limits of a regular expression" = "`pcre.match-limit` ({}), `pcre.match-limit-recursion` ({})"
        [count(Limits::default().matches), count(Limits::default().depth)] in ["pattern/regex.rs"],
        "the expression does not match", [Function("pcre_limits")];
    Rule "depth of address and port expressions" = "{}" [count(MAX_DEPTH)] in ["rules/expr.rs"], "the rule is refused",
        [Told("the summary")];
    Rule "ranges of one resolved expression" = "{}" [count(MAX_RANGES)] in ["rules/variables.rs"], "the rule is refused",
        [Told("the summary")];
    Rule "findings kept of one rule file" = "{}" [count(MAX_DIAGNOSTICS)] in ["rules/parse.rs"], "counted, not kept",
        [NotNeeded];
    File "header rules that select signature groups; bytes of the groups; pairs of networks of a tenant" = "{}; {}; {}"
        [count(groups::RULES_MAX), bytes(groups::BYTES_MAX), count(groups::PAIRS_MAX)] in ["detect/compile/groups.rs"],
        "groups get coarser: more rules are compared with a flow's header", [NotNeeded];
    File "entries of the lists that find rules by address" = "{}" [count(addresses::ENTRIES_MAX)]
        in ["detect/compile/addresses.rs"], "each rule with addresses is compared with each new flow", [NotNeeded];
    File "failure links of a pattern automaton that becomes a DFA" = "{}" [count(DFA_MAX_LINKS)] in ["pattern/automaton.rs"],
        "it stays an NFA: half as fast, built in linear time", [NotNeeded];
    File "compiled patterns on disk" = "{}" [bytes(CACHE_BYTES)] in ["pattern/cache.rs"],
        "the oldest are removed", [Metric("bartizan_pattern_cache_total")];
    File "attempts that `explain rule` and `ctl trace` show" = "{}, on demand up to {}" [count(trace::ATTEMPTS), count(trace::ATTEMPTS_MAX)] in ["detect/engine/explain/trace.rs"],
        "counted, not listed", [Told("`attempts`")];
    File "sids of a flow's rules that `explain flow` lists" = "{}" [count(SIDS_SHOWN)] in ["detect/engine/explain/mod.rs"],
        "only their number is reported", [NotNeeded];
};
