// SPDX-License-Identifier: Apache-2.0
//! Causes of intended differences: unsupported rules and parsers, and rules that alert once.

use crate::causes::Case;
use crate::finding::{Finding, What};

/// A rule requires that a bit is unset which an unsupported rule would set: this program skips the rule, in
/// Suricata it always holds.
pub(crate) fn asks_for_what_was_left_out(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let is_skipped = |rule: usize| {
        let asks = ["flowbits:isnotset", "xbits:isnotset", "hostbits:isnotset", "flowint:"];
        let options = case.pair.rules.get(rule).map(|rule| rule.options.join("; ")).unwrap_or_default();
        let setter_is_left_out = |other: usize| other != rule && case.got.has(&format!("refused:{other}"));
        asks.iter().any(|ask| options.contains(ask))
            && case.got.has(&format!("refused:{rule}"))
            && (0..case.pair.rules.len()).any(setter_is_left_out)
    };
    let is = match &finding.what {
        What::Record(name) => {
            let rule = name.strip_prefix("refused:").and_then(|rule| rule.parse().ok());
            finding.more && rule.is_some_and(is_skipped)
        }
        What::Alert(alert) => !finding.more && is_skipped(alert.rule),
        What::Drop(..) => false,
    };
    is.then_some("a rule that asks whether something is not set, whose setter was left out, is skipped")
}

/// A UDP flow that Suricata detects as QUIC, with what its parser's failure brings in prevention.
pub(crate) fn no_parser_of_quic(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let quic = |finding: &Finding| {
        !finding.more && matches!(&finding.what, What::Record(name) if name == "flow:UDP:quic")
    };
    let failed = matches!(&finding.what, What::Record(name) if name == "flow:UDP:failed");
    let has_quic = case.findings.iter().any(quic);
    // Suricata's parser fails, and its exception policy drops the flow.
    let refused = |finding: &Finding| {
        let reasons = ["applayer.error", "exception.policy.flow.drop", "tunnel.packet.drop"];
        !finding.more && matches!(&finding.what, What::Drop(_, reason) if reasons.contains(&reason.as_str()))
    };
    let is_alert_of_refused =
        || finding.more && matches!(finding.what, What::Alert(_)) && case.findings.iter().any(refused);
    let is = quic(finding)
        || has_quic && (finding.more && failed || case.ips && (refused(finding) || is_alert_of_refused()));
    is.then_some("QUIC has no parser")
}

/// A bidirectional rule that matches a packet in both directions.
pub(crate) fn fits_both_ways(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let both = case.pair.rules.get(alert.rule).is_some_and(|rule| rule.head.contains("<>"));
    (!finding.more && both && case.ours.contains(alert))
        .then_some("a rule for both ways that fits a packet both ways is told once")
}

/// A rule whose only condition is an unknown protocol, in prevention.
pub(crate) fn unknown_alone(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let rule = case.pair.rules.get(alert.rule)?;
    let alone = rule.options.len() == 1 && rule.options[0].starts_with("app-layer-protocol:unknown");
    (case.ips && finding.more && alone).then_some(
        "prevention decides on a direction's protocol when its bytes tell none, before the other side's come",
    )
}
