// SPDX-License-Identifier: Apache-2.0
//! Traces of rules for people, over captures and of live traffic.

use bartizan_detect::explain::trace::{Attempt, Trace};
use std::fmt::Write as _;

/// Writes a trace; `nothing` is the text for one without attempts.
pub fn write(trace: &Trace, nothing: &str, text: &mut String) {
    let _ = writeln!(
        text,
        "evaluated on {} packets, pieces of streams and transactions: all conditions held {} times, {} \
         alerts",
        trace.attempts, trace.matched, trace.alerts
    );
    if trace.attempts == 0 {
        let _ = writeln!(text, "  {nothing}");
    }
    if trace.matched > trace.alerts {
        let _ = writeln!(
            text,
            "  a match without alert: a threshold, `noalert`, a match of the same transaction before, or a decided flow"
        );
    }
    if !trace.alert_packets.is_empty() {
        let packets: Vec<String> = trace.alert_packets.iter().map(|n| format!("#{n}")).collect();
        let _ = writeln!(text, "alerts with packets {}", packets.join(", "));
    }
    for failed in &trace.first_false {
        let _ = writeln!(
            text,
            "  {:>6} times the first false condition: {} {}: {}",
            failed.count, failed.step, failed.name, failed.text
        );
    }
    trace.best.iter().for_each(|attempt| write_attempt(attempt, text));
}

fn write_attempt(attempt: &Attempt, text: &mut String) {
    let word = if attempt.matched { "matched" } else { "partial match" };
    let live = attempt.live.as_ref().map_or_else(String::new, |live| {
        let flow = live.flow_id.map_or_else(|| "no flow".to_owned(), |id| format!("flow {id}"));
        format!(", {}, worker {}, {flow}, rule {}", live.timestamp, live.worker, live.rule)
    });
    let _ = writeln!(
        text,
        "\npacket #{}{live}, {}, on {}: {word}",
        attempt.packet, attempt.direction, attempt.on
    );
    for (number, step) in attempt.steps.iter().enumerate() {
        let holds = if step.holds { "true " } else { "FALSE" };
        let offset = step.offset.map(|o| format!(", at offset {o}")).unwrap_or_default();
        let found = step.found.as_ref().map(|f| format!(" [{f}]")).unwrap_or_default();
        let _ = writeln!(text, "  {:>2} {holds} {}: {}{offset}{found}", number + 1, step.name, step.text);
    }
    if !attempt.matched && attempt.not_asked > 0 {
        let _ = writeln!(text, "     {} further conditions were not evaluated", attempt.not_asked);
    }
}
