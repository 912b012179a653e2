// SPDX-License-Identifier: Apache-2.0
//! Differences that are on purpose; docs/limits.md has the reasons.

use crate::answer::Answer;

/// The reason of a difference (a line of [`Answer::differences`]), if it has one.
#[must_use]
pub fn reason(line: &str, ips: bool, got: &Answer) -> Option<&'static str> {
    let (finding, _) = line.rsplit_once('*').unwrap_or((line, ""));
    if let Some(event) = finding.strip_prefix("-anomaly:")
        && got.has(&format!("anomaly:{event}"))
    {
        return Some("an event of a transaction is told once, also when Suricata's parser raises it twice");
    }
    if ips && matches!(finding, "-flow:TCP:-" | "+flow:TCP:failed") {
        return Some("in prevention detection of the protocol ends as soon as no more bytes can tell");
    }
    None
}
