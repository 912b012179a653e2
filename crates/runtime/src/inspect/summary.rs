// SPDX-License-Identifier: Apache-2.0
//! The summary of an inspection.

use super::LevelSummary;
use bartizan_dataplane::eve::EveRecorder;
use bartizan_rules::RuleSetReport;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Packets, flows and findings. `bartizan inspect --json` prints it as JSON.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// Packets that were inspected; with a level below, those that came up.
    pub packets: u64,
    /// Bytes of the packets on the wire.
    pub bytes: u64,
    /// Flows of the packets.
    pub flows: u64,
    /// Alerts by sid.
    pub alerts: BTreeMap<u32, u64>,
    /// With a policy: packets that were refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refused>,
    /// Frames that a level below the worker handled first, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<LevelSummary>,
    /// Rules.
    pub rules: Rules,
    /// Time that was taken.
    pub seconds: InspectTimings,
    /// Workers.
    pub threads: u16,
    /// Packets that `--filter` left out; `packets` does not include them.
    #[serde(skip_serializing_if = "is_zero")]
    pub filtered: u64,
    /// Captures that could not be read to their end, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub incomplete: Vec<String>,
    /// Files of folders that are no captures, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
    /// The engine that searches patterns.
    pub patterns: String,
    /// The first output of events.
    pub eve: PathBuf,
    /// Events that outputs did not take.
    #[serde(skip_serializing_if = "is_zero")]
    pub events_lost: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The shape that serde wants.
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Refused packets, by policy, function and reason.
#[derive(Debug, Serialize)]
pub struct Refused {
    /// Packets.
    pub packets: u64,
    /// Whether the packets were dropped (prevention), or would have been (detection).
    pub dropped: bool,
    /// Counts by policy, function and reason.
    pub by: Vec<PolicyDropCount>,
}

/// Packets that one policy, function and reason refused.
#[derive(Debug, Serialize)]
pub struct PolicyDropCount {
    /// Policy of the flow; absent for packets without a flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Function.
    pub function: &'static str,
    /// Reason.
    pub reason: &'static str,
    /// Packets.
    pub packets: u64,
}

impl Refused {
    pub(super) fn of(recorder: &EveRecorder, prevention: bool) -> Self {
        let by: Vec<PolicyDropCount> = (recorder.refusals().iter())
            .map(|((policy, function, reason), packets)| PolicyDropCount {
                policy: policy.as_deref().map(str::to_owned),
                function,
                reason: reason.name(),
                packets: *packets,
            })
            .collect();
        Refused { packets: by.iter().map(|b| b.packets).sum(), dropped: prevention, by }
    }
}

/// Rules that were loaded and left out.
#[derive(Debug, Serialize)]
pub struct Rules {
    /// Rules in force.
    pub loaded: u64,
    /// Rules left out, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Part of the refused rules: valid rules for protocols without a parser here.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unsupported_protocols: BTreeMap<String, u64>,
    /// Part of the refused rules: valid rules with a keyword that is not evaluated here.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unsupported_keywords: BTreeMap<String, u64>,
    /// Rules that are skipped for a reason of their own, as in Suricata.
    pub skipped: u64,
}

/// Wall-clock time.
#[derive(Debug, Serialize)]
pub struct InspectTimings {
    /// Time to load rules and settings.
    pub load: f64,
    /// Time after that.
    pub inspect: f64,
}

impl Rules {
    pub(super) fn of(report: &RuleSetReport) -> Self {
        Rules {
            loaded: report.loaded,
            refused: report.refused.clone(),
            unsupported_protocols: report.unsupported_protocols.clone(),
            unsupported_keywords: report.unsupported_keywords.clone(),
            skipped: report.skipped,
        }
    }
}
