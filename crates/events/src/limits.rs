// SPDX-License-Identifier: Apache-2.0
//! Bounds of output, for docs/limits.md.

use crate::metrics::DEFAULT_SERIES;
use crate::sink::ledger::TOLD_MAX;
use crate::sink::patience::{ABSENT, CAPTURES_QUIET, END_QUIET, END_TOTAL};
use crate::sink::stream::HELD_BYTES;
use crate::{file_store, tls_store};
use bartizan_base::limit::LimitTrace::{Metric, Nothing, Stats, Told};
use bartizan_base::limit::{LimitSpec, bytes, count};
use bartizan_base::limits;

/// All bounds of this crate.
pub const LIMITS: &[LimitSpec] = limits! {
    File "incidents of an output that wait to be reported" = "{}" [count(TOLD_MAX)] in ["events/sink/ledger.rs"],
        "the oldest are forgotten", [Nothing];
    File "time without progress after which a reader of a socket or pipe is given up: over captures; at the orderly end of a run; without a reader; live" =
        "{} s; {} s; {} s; none" [count(CAPTURES_QUIET.as_secs()), count(END_QUIET.as_secs()), count(ABSENT.as_secs())]
        in ["events/sink/patience.rs"], "events are lost and counted until it reads again", [Metric("bartizan_events_lost_total")];
    File "time that the ordered end of a run waits for all readers" = "{} s" [count(END_TOTAL.as_secs())]
        in ["events/sink/patience.rs"], "the remaining events are lost and counted", [Metric("bartizan_events_lost_total")];
    File "events waiting for a socket or pipe" = "{}" [bytes(HELD_BYTES)] in ["events/sink/stream.rs"],
        "over captures and at the end they wait; live they are lost and counted", [Metric("bartizan_events_lost_total")];
    File "pieces of files waiting for the disk" = "{}" [count(file_store::QUEUE)] in ["events/file_store.rs"],
        "captures wait; live the file is given up", [Stats("file_store.lost")];
    File "files held open by the store" = "{}, or `max-open-files`" [count(file_store::OPEN_MAX)] in ["events/file_store.rs"],
        "opened for each piece", [Stats("file_store.open_files_max_hit")];
    File "chains of certificates waiting for the disk (`tls.store`), each as large as the parser takes in" = "{}"
        [count(tls_store::QUEUE)] in ["events/tls_store.rs"], "captures wait; live the chain is given up",
        [Stats("tls_store.lost")];
    File "series of the metrics page" = "{} of each metric" [count(DEFAULT_SERIES)] in ["events/metrics.rs"],
        "the rest is summed up in a series with the label `other`", [Told("that series")];
};
