// SPDX-License-Identifier: Apache-2.0
//! Bounds of files that are read, of what is told, and of the command socket, for docs/limits.md.

pub mod control;

use crate::client::diff::PAIRS_MAX;
use crate::guests::BLOCKED_KEPT;
use crate::input::TEXT_MAX;
use crate::load::WRONG_SHOWN;
use crate::metrics::{collect, http};
use crate::reload::{LOSS, PLACES_SHOWN};
use crate::{stats, supervisor};
use bartizan_base::limit::LimitTrace::{Metric, NotNeeded, Told};
use bartizan_base::limit::{LimitSpec, bytes, count, time};
use bartizan_base::{PacketDuration, limits};
use std::time::Duration;

fn span(of: Duration) -> String {
    time(PacketDuration::from_millis(of.as_millis() as u64))
}

/// All of this crate, but those of the command socket ([`control`]).
pub const LIMITS: &[LimitSpec] = limits! {
    File "product of the line counts of two compared documents" = "{}" [count(PAIRS_MAX)]
        in ["runtime/client/diff.rs"], "both are shown in full", [NotNeeded];
    File "blocked streams that are kept for `guest status`" = "{}" [count(BLOCKED_KEPT)] in ["runtime/guests/view.rs"],
        "the oldest is forgotten", [Metric("bartizan_guest_refused_total")];
    File "text file (rules, policies), uncompressed" = "{}" [bytes(TEXT_MAX)] in ["runtime/input.rs"], "refused",
        [Told("the message")];
    File "listed values of settings that cannot be read" = "{}" [count(WRONG_SHOWN)] in ["runtime/load.rs"],
        "further ones are counted", [Told("the message")];
    File "share of the rules that a reload may remove" = "{}, or `reload.max-loss`" [LOSS.to_string()]
        in ["runtime/reload.rs"], "the reload is refused", [Metric("bartizan_reloads_total")];
    File "time that a reload waits until a worker has begun the previous generation, if a level drops packets without a flow"
        = "{}" [span(supervisor::ENTERED)] in ["runtime/supervisor.rs"],
        "those packets go to the host in the new generation, and pass while their link is open", [Told("the message")];
    File "files listed by a refused reload" = "{}" [count(PLACES_SHOWN)] in ["runtime/reload.rs"],
        "further ones are counted", [Told("the message")];
    File "size of a request for metrics, time for it, connections at the same time" = "{}, {}, {}"
        [bytes(http::REQUEST_MAX), span(http::PATIENCE), count(http::CONNECTIONS_MAX)] in ["runtime/metrics/http.rs"],
        "status 431, 408, 503", [Told("the status")];
    File "time that a request for metrics waits for workers" = "{}" [span(collect::ANSWER)] in ["runtime/metrics/collect.rs"],
        "the workers' last values are used", [Metric("bartizan_worker_late")];
    File "time that statistics wait for workers" = "{}" [span(stats::ANSWER)] in ["runtime/stats.rs"],
        "the workers' last values are written", [NotNeeded];
};
