// SPDX-License-Identifier: Apache-2.0
//! Bounds of wire contracts, for docs/limits.md.

use crate::control::{ANSWER_MAX, MESSAGE_MAX};
use bartizan_base::limit::Trace::Told;
use bartizan_base::limit::{Limit, bytes};
use bartizan_base::limits;

/// All of this crate.
pub const LIMITS: &[Limit] = limits! {
    Control "bytes of a message on the command socket" = "{}" [bytes(MESSAGE_MAX)] in ["api/control/mod.rs", "api/control/messages.rs"],
        "the client is told and let go", [Told("`too_long` of `control-stats`")];
    Control "bytes of an answer that `bartizan ctl` takes" = "{}" [bytes(ANSWER_MAX)] in ["api/control/mod.rs"],
        "`bartizan ctl` says so and ends", [Told("an error of `bartizan ctl`")];
};
