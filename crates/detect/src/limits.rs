// SPDX-License-Identifier: Apache-2.0
//! Bounds of detection, of rule files and of regular expressions, for docs/limits.md.

use crate::engine::evaluate::STEPS_MAX;
use crate::engine::txstate::TRANSACTIONS_MAX;
use crate::model::content::VARIABLES_MAX;
use crate::state::VARIABLES_PER_FLOW_MAX;
use bartizan_base::limit::Trace::{Function, NotNeeded, Nothing, Told};
use bartizan_base::limit::{Limit, count};
use bartizan_base::limits;
use bartizan_pattern::Limits;
use bartizan_rules::{MAX_DEPTH, MAX_DIAGNOSTICS, MAX_RANGES};

/// All of this crate, and of those of rules and patterns.
pub const LIMITS: &[Limit] = limits! {
    Rule "steps of one rule on one value" = "{}" [count(STEPS_MAX)] in ["detect/engine/evaluate.rs"],
        "the rule does not match there (as with Suricata's default `inspection-recursion-limit`)", [Nothing];
    Rule "values of `byte_extract` and `byte_math` in one rule" = "{}" [count(VARIABLES_MAX)]
        in ["detect/model/content/number.rs"], "the rule is refused with that reason", [Told("the summary")];
    Rule "flow variables, entropies, thresholds by flow of a flow" = "{} of each kind" [count(VARIABLES_PER_FLOW_MAX)]
        in ["detect/state/flow.rs"], "not set, not kept; a threshold does not count. The flow's state has how often; nothing shows it",
        [Nothing];
    Rule "transactions with remembered progress per flow" = "{}" [count(TRANSACTIONS_MAX)] in ["detect/engine/txstate.rs"],
        "the oldest are forgotten: a rule could match on them again", [Nothing];
    Rule "match limits of a regular expression" = "`pcre.match-limit` ({}), `pcre.match-limit-recursion` ({})"
        [count(Limits::default().matches), count(Limits::default().depth)] in ["pattern/regex.rs"],
        "the expression does not match", [Function("pcre_limits")];
    Rule "depth of address and port expressions" = "{}" [count(MAX_DEPTH)] in ["rules/expr.rs"], "the rule is refused",
        [Told("the summary")];
    Rule "ranges of one resolved expression" = "{}" [count(MAX_RANGES)] in ["rules/variables.rs"], "the rule is refused",
        [Told("the summary")];
    Rule "findings kept of one rule file" = "{}" [count(MAX_DIAGNOSTICS)] in ["rules/parse.rs"], "counted, not kept",
        [NotNeeded];
};
