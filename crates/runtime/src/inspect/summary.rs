// SPDX-License-Identifier: Apache-2.0
//! The summary of an inspection.

use bartizan_dataplane::eve::EveRecorder;
use bartizan_rules::RuleSetReport;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What was read and found. As JSON it is the summary that `bartizan inspect --json` prints.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// Packets that were inspected.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Their flows.
    pub flows: u64,
    /// Alerts by sid.
    pub alerts: BTreeMap<u32, u64>,
    /// With a policy: packets that were refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refused>,
    /// Rules.
    pub rules: Rules,
    /// Time that was taken.
    pub seconds: Seconds,
    /// Workers.
    pub threads: u16,
    /// Packets that `--filter` left out; they are not among `packets`.
    #[serde(skip_serializing_if = "is_zero")]
    pub filtered: u64,
    /// Captures that could not be read to their end, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub incomplete: Vec<String>,
    /// Files of folders that are no captures, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
    /// The engine that searches patterns.
    pub patterns: String,
    /// The first output of events.
    pub eve: PathBuf,
    /// Events that outputs could not take.
    #[serde(skip_serializing_if = "is_zero")]
    pub events_lost: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The shape that serde wants.
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Packets that were refused, by what refused them.
#[derive(Debug, Serialize)]
pub struct Refused {
    /// Packets.
    pub packets: u64,
    /// They were dropped (prevention); else they would have been.
    pub dropped: bool,
    /// By policy, function and reason.
    pub by: Vec<RefusedBy>,
}

/// Packets that one policy, function and reason refused.
#[derive(Debug, Serialize)]
pub struct RefusedBy {
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
        let by: Vec<RefusedBy> = (recorder.refusals().iter())
            .map(|((policy, function, reason), packets)| RefusedBy {
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
    /// In force.
    pub loaded: u64,
    /// Left out, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Of those refused: they are right, and their protocol has no parser here.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unsupported_protocols: BTreeMap<String, u64>,
    /// Of those refused: they are right, and have a keyword that is not evaluated here.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unsupported_keywords: BTreeMap<String, u64>,
    /// Skipped with a reason of their own, as Suricata does.
    pub skipped: u64,
}

/// Wall-clock time.
#[derive(Debug, Serialize)]
pub struct Seconds {
    /// Until rules and settings were loaded.
    pub load: f64,
    /// From then on.
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
