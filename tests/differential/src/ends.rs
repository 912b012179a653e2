// SPDX-License-Identifier: Apache-2.0
//! Causes of differences from the order in which flows end with their capture, and from the end of the
//! inspected stream after a hole; as in [`crate::causes`].

use crate::causes::Case;
use crate::finding::{Alert, Finding, What};
use crate::passage::ahead;
use crate::times::PLACES;
use bartizan_testkit::packet::ACK;

/// Suricata ends the flows that are open at the end of the capture in the order of its table: a rule that
/// counts by host alerts in another flow.
pub(crate) fn counted_in_another_order(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let counts = |option: &String| {
        let counted = ["threshold:", "detection_filter:"].iter().any(|word| option.starts_with(word));
        counted && !option.contains("by_flow")
    };
    let elsewhere = |other: &Finding| match &other.what {
        What::Alert(there) => {
            other.more != finding.more
                && there.frame.is_none()
                && (there.rule, there.to_server) == (alert.rule, alert.to_server)
                && there.flow != alert.flow
        }
        _ => false,
    };
    let is = alert.frame.is_none()
        && case.pair.rules.get(alert.rule)?.options.iter().any(counts)
        && case.findings.iter().any(elsewhere);
    is.then_some("of flows that end with the capture the first one is shown first: a rule that counts by host alerts there; Suricata goes by their places in its table")
}

/// Passively Suricata adds the bytes of an acknowledged hole to the inspected range, and so inspects as many
/// unacknowledged bytes after it: the range ends elsewhere.
pub(crate) fn shown_before_it_is_acknowledged(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let (at, _, one) = case.passage.segment(alert.frame?)?;
    let edge = case.passage.contiguous(alert.flow, alert.to_server, at)?;
    let others = case.passage.before(alert.flow, !alert.to_server, at);
    let acknowledged =
        others.filter(|other| other.flags & ACK != 0).map(|other| ahead(other.ack, edge)).max()?;
    // Offset of the first data after the hole.
    let behind = case.passage.before(alert.flow, alert.to_server, at + 1).filter(|one| !one.load.is_empty());
    let begin = behind.map(|one| ahead(one.seq, edge)).filter(|begin| *begin > 0).min()?;
    let (from, length) = (ahead(one.seq, edge), one.load.len() as i32);
    let is = !case.ips
        && !finding.more
        && length > 0
        && from > 0
        && acknowledged > 0
        && acknowledged <= from
        && from + length - begin <= acknowledged
        && looks_at_an_end(case, alert);
    is.then_some("passively what nobody has acknowledged is shown when it is; behind an acknowledged hole Suricata shows as many bytes of it as the hole has")
}

/// Whether a stream rule depends on the beginning or end of the inspected range.
fn looks_at_an_end(case: &Case<'_>, alert: &Alert) -> bool {
    !case.is_on_buffers(alert) && case.asks(alert, PLACES)
}

#[cfg(test)]
mod tests {
    use crate::explained::left_of;

    #[test]
    fn the_order_of_ends_explains_what_is_counted_by_host_only() {
        // Rule 0 counts by the server, rule 1 does not count. Both flows end with the capture.
        let left = |got: &[&str], want: &[&str]| left_of(159, 762, false, got, want);
        assert!(left(&["0@->1.0:allowed"], &["0@->1.1:allowed"]).is_empty());
        assert_eq!(left(&[], &["0@->1.1:allowed"]), ["-0@->1.1:allowed"], "in no flow here");
        let (first, second) = ("1@->1.0:allowed", "1@->1.1:allowed");
        assert_eq!(left(&[first], &[second]), ["+1@->1.0:allowed", "-1@->1.1:allowed"], "does not count");
        let (first, second) = ("0@11>1.0:allowed", "0@13>1.1:allowed");
        assert_eq!(left(&[first], &[second]), ["+0@11>1.0:allowed", "-0@13>1.1:allowed"], "with packets");
    }

    #[test]
    fn what_is_shown_unacknowledged_explains_rules_on_its_end_only() {
        // Packet 8 is the last before the hole, packet 11 is after it; rule 2 has `$`, rule 0 is on a buffer.
        let left = |ips, want: &[&str]| left_of(152, 1138, ips, &[], want);
        assert!(left(false, &["2@11>1.0:allowed"]).is_empty());
        assert_eq!(left(false, &["2@8>1.0:allowed"]), ["-2@8>1.0:allowed"], "before the hole");
        assert_eq!(left(false, &["3@11>1.0:allowed"]), ["-3@11>1.0:allowed"], "on a buffer");
        assert_eq!(left(false, &["2@13<1.0:allowed"]), ["-2@13<1.0:allowed"], "the other side");
        assert_eq!(left(false, &["2@39>1.0:allowed"]), ["-2@39>1.0:allowed"], "no bytes");
    }
}
