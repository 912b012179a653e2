// SPDX-License-Identifier: Apache-2.0
//! Differences that are on purpose; docs/limits.md has the reasons, [`crate::causes`] what makes a difference one of them.

use crate::answer::Answer;
use crate::causes::{CAUSES, Case};
use crate::finding::{Alert, Finding, FlowKey, What};
use crate::pair::Pair;
use crate::passage::{Passage, key};
use std::collections::BTreeSet;

/// What is left of a difference, and the reasons of what is not.
#[must_use]
pub fn explain(pair: &Pair, ips: bool, got: &Answer, want: &Answer) -> (Vec<String>, BTreeSet<&'static str>) {
    let lines = got.differences(want);
    let read: Vec<Option<Finding>> = lines.iter().map(|line| Finding::read(line)).collect();
    let case = Case {
        pair,
        passage: Passage::of(pair),
        ips,
        ours: alerts(got),
        theirs: alerts(want),
        findings: read.iter().flatten().cloned().collect(),
        got,
    };
    let reason = |finding: &Finding| CAUSES.iter().find_map(|cause| cause(&case, finding));
    let reasons: Vec<Option<&'static str>> =
        read.iter().map(|finding| finding.as_ref().and_then(reason)).collect();
    // Where one program has refused a flow for a reason that is known, all that follows differs.
    let blocks: Vec<(&Alert, bool)> = read
        .iter()
        .zip(&reasons)
        .filter(|(_, reason)| reason.is_some())
        .filter_map(|(finding, _)| match finding.as_ref() {
            Some(Finding { more, what: What::Alert(alert) }) if alert.blocked => Some((alert, *more)),
            _ => None,
        })
        .collect();
    let mut left = Vec::new();
    let mut said: BTreeSet<&'static str> = reasons.iter().flatten().copied().collect();
    for ((line, finding), reason) in lines.into_iter().zip(&read).zip(reasons) {
        let follows = finding.as_ref().is_some_and(|finding| {
            ips && blocks.iter().any(|(alert, ours)| follows(&case.passage, finding, alert, *ours))
        });
        if reason.is_none() && !follows {
            left.push(line);
        }
    }
    if !left.is_empty() {
        said.clear();
    }
    (left, said)
}

/// Whether a finding follows from a flow's being refused with an alert: by this program, or only by the other one.
fn follows(passage: &Passage<'_>, finding: &Finding, refused: &Alert, ours: bool) -> bool {
    let in_flow =
        |frame: u32, flow: FlowKey| passage.packet(frame).is_some_and(|(_, packet)| key(packet) == flow);
    match &finding.what {
        // No more alerts where it was refused.
        What::Alert(alert) => {
            finding.more != ours && alert.flow == refused.flow && alert.place() >= refused.place()
        }
        What::Drop(Some(frame), reason) if finding.more == ours => {
            matches!(reason.as_str(), "rules" | "flow.drop")
                && *frame >= refused.place()
                && in_flow(*frame, refused.flow)
        }
        What::Drop(Some(frame), _) => *frame >= refused.place() && in_flow(*frame, refused.flow),
        What::Drop(None, _) => finding.more != ours,
        // What was not let through is not recorded, or not in full.
        What::Record(name) => finding.more != ours || name.starts_with("flow:"),
    }
}

fn alerts(answer: &Answer) -> Vec<Alert> {
    let alert = |name: &str| match What::read(name) {
        What::Alert(alert) => Some(alert),
        _ => None,
    };
    answer.names().filter_map(alert).collect()
}
