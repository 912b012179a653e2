// SPDX-License-Identifier: Apache-2.0
//! Bounds of wire contracts, for docs/limits.md.

use crate::control::{ANSWER_MAX, MESSAGE_MAX};
use crate::southbound::DEAD_AFTER;
use crate::southbound::limits::{
    ALERTS, COUNTERS, DIAGNOSTICS, GROUP_RULES, INFLATED_BYTES, INVENTORY_PAGE, JSON_DEPTH, LEFT_OUT,
    LEFT_OUT_BYTES, MESSAGE_BYTES, NAME_LETTERS, OBJECT_BYTES, OBJECTS, TOLD_LEVELS,
};
use bartizan_base::limit::LimitTrace::{NotNeeded, Told};
use bartizan_base::limit::{LimitSpec, bytes, count};
use bartizan_base::limits;

/// All bounds of this crate.
pub const LIMITS: &[LimitSpec] = limits! {
    Control "bytes of a message on the command socket" = "{}" [bytes(MESSAGE_MAX)] in ["api/control/mod.rs", "api/control/messages.rs"],
        "the client gets an error and is disconnected", [Told("`too_long` of `control-stats`")];
    Control "bytes of an answer that `bartizan ctl` takes" = "{}" [bytes(ANSWER_MAX)] in ["api/control/mod.rs"],
        "`bartizan ctl` says so and ends", [Told("an error of `bartizan ctl`")];
    Controller "bytes of a message between controller and device; unpacked" = "{}; {}" [bytes(MESSAGE_BYTES), bytes(INFLATED_BYTES)] in ["api/southbound/limits.rs"],
        "the connection ends; a larger rule group goes in parts", [Told("malformed messages by kind, of both sides")];
    Controller "depth of JSON in a message between controller and device" = "{}" [count(JSON_DEPTH)] in ["api/southbound/limits.rs"],
        "the connection ends", [Told("malformed messages by kind, of both sides")];
    Controller "letters of a name in a message between controller and device" = "{}" [count(NAME_LETTERS)] in ["api/southbound/limits.rs"],
        "the connection ends", [Told("malformed messages by kind, of both sides")];
    Controller "objects that a device holds, bytes of all" = "{}, {}" [count(OBJECTS), bytes(OBJECT_BYTES)] in ["api/southbound/limits.rs"],
        "the device refuses the generation", [Told("diagnostics of the device")];
    Controller "entries of an inventory message" = "{}" [count(INVENTORY_PAGE)] in ["api/southbound/limits.rs"],
        "the next ones go in the next message", [NotNeeded];
    Controller "levels of workers that both sides remember, for short acknowledgements" = "{}" [count(TOLD_LEVELS)] in ["api/southbound/limits.rs"],
        "they are named in each acknowledgement", [NotNeeded];
    Controller "rules of a group" = "{}" [count(GROUP_RULES)] in ["api/southbound/limits.rs"],
        "the connection ends", [Told("malformed messages by kind, of both sides")];
    Controller "diagnostics of a refusal" = "{}" [count(DIAGNOSTICS)] in ["api/southbound/limits.rs"],
        "counted, not reported", [Told("the number in the refusal")];
    Controller "rules that a level or a device leaves out and names; bytes of a name and of its reason" = "{}; {}" [count(LEFT_OUT), bytes(LEFT_OUT_BYTES)] in ["api/southbound/limits.rs"],
        "counted, not named; cut", [Told("`count` in the device's status")];
    Controller "counters of a message of statistics, alerts of a message" = "{}, {}" [count(COUNTERS), count(ALERTS)] in ["api/southbound/limits.rs"],
        "the next ones go in the next message", [NotNeeded];
    Controller "missed keep-alives" = "{}" [count(DEAD_AFTER)] in ["api/southbound/pulse.rs"],
        "the connection ends, and the device connects again", [Told("sessions that ended, by reason")];
};
