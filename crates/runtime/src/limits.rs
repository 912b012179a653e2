// SPDX-License-Identifier: Apache-2.0
//! Bounds of files that are read, of what is told, and of the command socket, for docs/limits.md.

pub mod control;

use crate::client::diff::PAIRS_MAX;
use crate::guests::BLOCKED_KEPT;
use crate::input::TEXT_MAX;
use crate::load::WRONG_SHOWN;
use crate::metrics::{collect, http};
use crate::reload::{LOSS, PLACES_SHOWN};
use crate::{stats, steer};
use bartizan_base::limit::LimitTrace::{Metric, NotNeeded, Told};
use bartizan_base::limit::{LimitSpec, bytes, count, time};
use bartizan_base::{PacketDuration, limits};
use std::time::Duration;

fn span(of: Duration) -> String {
    time(PacketDuration::from_millis(of.as_millis() as u64))
}

/// All of this crate, but those of the command socket ([`control`]).
pub const LIMITS: &[LimitSpec] = limits! {
    File "lines of two documents that are compared, one's times the other's" = "{}" [count(PAIRS_MAX)]
        in ["runtime/client/diff.rs"], "all of both is shown", [NotNeeded];
    File "blocked streams that are kept for `guest status`" = "{}" [count(BLOCKED_KEPT)] in ["runtime/guests/view.rs"],
        "the oldest is forgotten", [Metric("bartizan_guest_refused_total")];
    File "text file (rules, policies), unpacked" = "{}" [bytes(TEXT_MAX)] in ["runtime/input.rs"], "refused",
        [Told("the message")];
    File "values of settings that cannot be understood, listed" = "{}" [count(WRONG_SHOWN)] in ["runtime/load.rs"],
        "the rest is counted", [Told("the message")];
    File "share of the rules that a reload may take away" = "{}, or `reload.max-loss`" [LOSS.to_string()]
        in ["runtime/reload.rs"], "the reload is refused", [Metric("bartizan_reloads_total")];
    File "time that a reload waits until a worker has begun with the generation before, where a level refuses packets without a flow"
        = "{}" [span(steer::ENTERED)] in ["runtime/steer.rs"],
        "those packets come up in the new generation, and pass while their link is open", [Told("the message")];
    File "files that a refused reload lists" = "{}" [count(PLACES_SHOWN)] in ["runtime/reload.rs"],
        "the rest is counted", [Told("the message")];
    File "request for metrics, time for it, connections at once" = "{}, {}, {}"
        [bytes(http::REQUEST_MAX), span(http::PATIENCE), count(http::CONNECTIONS_MAX)] in ["runtime/metrics/http.rs"],
        "status 431, 408, 503", [Told("the status")];
    File "time that a scrape waits for workers" = "{}" [span(collect::ANSWER)] in ["runtime/metrics/collect.rs"],
        "their last values", [Metric("bartizan_worker_late")];
    File "time that statistics wait for workers" = "{}" [span(stats::ANSWER)] in ["runtime/stats.rs"],
        "their last values are written", [NotNeeded];
};
