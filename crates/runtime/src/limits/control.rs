// SPDX-License-Identifier: Apache-2.0
//! Bounds of the command socket, for docs/limits.md.

use super::span;
use crate::channel::COMMANDS_WAITING;
use crate::control::server::{CLIENTS_MAX, PATIENCE, SILENCE};
use crate::reload::FAILED_TOLD;
use crate::traces::live::ATTEMPTS_WAITING;
use crate::traces::{PACKETS, PACKETS_MAX, SECONDS, SECONDS_MAX, TRACES_MAX};
use bartizan_base::PacketDuration;
use bartizan_base::limit::LimitTrace::Told;
use bartizan_base::limit::{LimitSpec, count, time};
use bartizan_base::limits;
use bartizan_stages::lifecycle::NEWS_MAX;

/// All of the program's own.
pub const LIMITS: &[LimitSpec] = limits! {
    Control "clients at once" = "{}" [count(CLIENTS_MAX)] in ["runtime/control/server.rs"],
        "who has been silent longest is let go for a newcomer; while all have a command under way it is refused", [Told("`gave_way`, `no_place` of `control-stats`")];
    Control "time for a message from its first byte on, and for its answer to be taken" = "{}" [span(PATIENCE)] in ["runtime/control/server.rs"],
        "the client is told, or not, and let go", [Told("`too_slow`, `not_taken` of `control-stats`")];
    Control "time that a client may say nothing" = "{}, before its first message {}" [span(SILENCE), span(PATIENCE)] in ["runtime/control/server.rs"],
        "it is let go", [Told("`silent` of `control-stats`")];
    Control "commands that wait, perhaps for a reload" = "{}" [count(COMMANDS_WAITING)] in ["runtime/channel.rs"],
        "the command is refused", [Told("the answer, `refused` of `control-stats`")];
    Control "rules of which `ruleset-failed-rules` tells" = "{}" [count(FAILED_TOLD)] in ["runtime/reload.rs"],
        "counted, not told", [Told("`omitted` in the answer")];
    Control "rules that are traced at once (`trace`)" = "{}" [count(TRACES_MAX)] in ["runtime/traces/mod.rs"],
        "one more is refused", [Told("the answer, `traces_refused` of `control-stats`")];
    Control "packets of a trace for which the rule's head holds" = "{}, on demand up to {}" [count(PACKETS), count(PACKETS_MAX)] in ["runtime/traces/mod.rs"],
        "the trace ends", [Told("`ended` of the answer")];
    Control "time of a trace" = "{}, on demand up to {}" [time(PacketDuration::from_secs(SECONDS)), time(PacketDuration::from_secs(SECONDS_MAX))] in ["runtime/traces/mod.rs"],
        "the trace ends", [Told("`ended` of the answer")];
    Control "attempts of a trace that wait to be collected" = "{}" [count(ATTEMPTS_WAITING)] in ["runtime/traces/live.rs"],
        "they are missing in the answer", [Told("`lost` of the answer, `traces_lost` of `control-stats`")];
    Control "failures and restarts of functions that wait for the log" = "{}" [count(NEWS_MAX)] in ["stages/lifecycle.rs"],
        "they do not stand in the log", [Told("failures and restarts of `function-list`")];
};
