// SPDX-License-Identifier: Apache-2.0
//! Bounds of the command line, for docs/limits.md.

use crate::commands::ctl::diff::PAIRS_MAX;
use bartizan_base::limit::Trace::NotNeeded;
use bartizan_base::limit::{Limit, count};
use bartizan_base::limits;

/// All of the program's own.
pub const LIMITS: &[Limit] = limits! {
    File "lines of two documents that are compared, one's times the other's" = "{}" [count(PAIRS_MAX)]
        in ["bartizan/commands/ctl/diff.rs"], "all of both is shown", [NotNeeded];
};
