// SPDX-License-Identifier: Apache-2.0
//! Bounds of compiled policies and of replays, for docs/limits.md.

use crate::classes::LISTED_MAX;
use crate::lookup::TOGETHER_MAX;
use crate::replay::{fates, record, report};
use bartizan_base::limit::LimitTrace::{NotNeeded, Told};
use bartizan_base::limit::{LimitSpec, bytes, count};
use bartizan_base::limits;

/// All bounds of this crate.
pub const LIMITS: &[LimitSpec] = limits! {
    File "flow record of `bartizan ctl replay`" = "{}" [bytes(record::RECORD_BYTES)] in ["agent/replay/record.rs"],
        "left out, counted", [Told("the report")];
    File "flows of captures that `bartizan ctl replay` keeps; flows that it lists because their verdict changes" = "{}; {}"
        [count(fates::FLOWS_MAX), count(report::CHANGED_MAX)] in ["agent/replay/fates.rs", "agent/replay/report.rs"],
        "left out, counted", [Told("the report")];
    File "rules of each set that match which `explain flow` lists" = "{}" [count(LISTED_MAX)] in ["agent/classes.rs"],
        "counted, not shown", [Told("`omitted`")];
    File "header rules of policies and functions in one lookup" = "{}" [count(TOGETHER_MAX)] in ["agent/lookup.rs"],
        "each policy has its own classifier for its functions' rules", [NotNeeded];
};
