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

/// All bounds of the control plane in this crate.
pub const LIMITS: &[LimitSpec] = limits! {
    Control "clients at the same time" = "{}" [count(CLIENTS_MAX)] in ["runtime/control/server.rs"],
        "disconnects the client that has been idle longest; if all have a command in progress, the new client is refused", [Told("`gave_way`, `no_place` of `control-stats`")];
    Control "time for a message from its first byte, and for the client to take the answer" = "{}" [span(PATIENCE)] in ["runtime/control/server.rs"],
        "the client is disconnected, with an error if it can be sent", [Told("`too_slow`, `not_taken` of `control-stats`")];
    Control "idle time of a client" = "{}, before its first message {}" [span(SILENCE), span(PATIENCE)] in ["runtime/control/server.rs"],
        "the client is disconnected", [Told("`silent` of `control-stats`")];
    Control "waiting commands" = "{}" [count(COMMANDS_WAITING)] in ["runtime/channel.rs"],
        "the command is refused", [Told("the answer, `refused` of `control-stats`")];
    Control "rules that `ruleset-failed-rules` lists" = "{}" [count(FAILED_TOLD)] in ["runtime/reload.rs"],
        "further ones are counted only", [Told("`omitted` in the answer")];
    Control "rules traced at the same time (`trace`)" = "{}" [count(TRACES_MAX)] in ["runtime/traces/mod.rs"],
        "a further trace is refused", [Told("the answer, `traces_refused` of `control-stats`")];
    Control "packets of a trace that match the rule's header" = "{}, on request up to {}" [count(PACKETS), count(PACKETS_MAX)] in ["runtime/traces/mod.rs"],
        "the trace ends", [Told("`ended` of the answer")];
    Control "time of a trace" = "{}, on request up to {}" [time(PacketDuration::from_secs(SECONDS)), time(PacketDuration::from_secs(SECONDS_MAX))] in ["runtime/traces/mod.rs"],
        "the trace ends", [Told("`ended` of the answer")];
    Control "attempts of a trace that wait for collection" = "{}" [count(ATTEMPTS_WAITING)] in ["runtime/traces/live.rs"],
        "further attempts are missing in the answer", [Told("`lost` of the answer, `traces_lost` of `control-stats`")];
    Control "failures and restarts of functions that wait to be logged" = "{}" [count(NEWS_MAX)] in ["stages/lifecycle.rs"],
        "further ones are not logged", [Told("failures and restarts of `function-list`")];
};
