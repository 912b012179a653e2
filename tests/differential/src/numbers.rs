// SPDX-License-Identifier: Apache-2.0
//! Causes of differences from sequence numbers that wrap, are far ahead, or are old; as in [`crate::causes`].

use crate::causes::{Case, old_data};
use crate::finding::{Finding, FlowKey, What};
use crate::passage::{ahead, key};
use bartizan_testkit::packet::{FIN, RST, SYN};

/// Suricata compares its inspected position in a stream with sequence numbers regardless of wrapping: after a
/// wrap it assumes pending data, and evaluates rules on an empty range with packets without data.
pub fn numbers_that_wrapped(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let (at, _, segment) = case.passage.segment(alert.frame?)?;
    let before = || case.passage.before(alert.flow, alert.to_server, at);
    let first = before().find(|one| one.flags & SYN != 0)?;
    let wrapped = case.passage.contiguous(alert.flow, alert.to_server, at)? < first.seq;
    let is = !case.ips
        && !finding.more
        && wrapped
        && segment.load.is_empty()
        && before().any(|one| one.flags & FIN != 0)
        && case.only_denies(alert);
    is.then_some("a packet without data behind a FIN shows rules nothing; Suricata shows it once more where sequence numbers have wrapped")
}

/// A segment beyond any window is part of the outgoing stream: a drop of it drops the flow.
pub fn refused_far_ahead(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const WINDOW: i32 = 65_535;
    // A drop rule without alerts: both programs drop such a packet, and neither alerts.
    let silent = |flow: FlowKey, upto: u32| {
        let refuses = |rule: &crate::pair::Rule| {
            matches!(rule.action, "drop" | "reject") && rule.options.iter().any(|option| option == "noalert")
        };
        let far = |frame: u32| {
            case.passage.segment(frame).is_some_and(|(at, packet, one)| {
                let edge = case.passage.contiguous(flow, packet.to_server, at);
                key(packet) == flow && edge.is_some_and(|edge| ahead(one.seq, edge) > WINDOW)
            })
        };
        case.pair.rules.iter().any(refuses)
            && (1..upto).any(|frame| far(frame) && case.got.has(&format!("drop@{frame}:rules")))
    };
    let refused = |flow: FlowKey, upto: u32| {
        case.ours.iter().any(|alert| {
            let far =
                alert.frame.and_then(|frame| case.passage.segment(frame)).is_some_and(|(at, _, one)| {
                    let edge = case.passage.contiguous(flow, alert.to_server, at);
                    edge.is_some_and(|edge| ahead(one.seq, edge) > WINDOW)
                });
            alert.blocked && alert.flow == flow && alert.place() < upto && far && case.theirs.contains(alert)
        }) || silent(flow, upto)
    };
    let is = match &finding.what {
        What::Alert(alert) => !finding.more && refused(alert.flow, alert.place()),
        What::Drop(Some(frame), reason) => {
            matches!((finding.more, reason.as_str()), (true, "flow.drop") | (false, "rules"))
                && refused(key(case.passage.packet(*frame)?.1), *frame)
        }
        _ => false,
    };
    (case.ips && is).then_some("`drop` on a segment far ahead refuses the flow, whose stream it is of; Suricata refuses the packet alone")
}

/// Data far ahead is inspected when its side closes.
pub fn shown_with_the_fin(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let (at, packet, segment) = case.passage.segment(alert.frame?)?;
    let end = segment.seq.wrapping_add(segment.load.len() as u32);
    let beyond = case
        .passage
        .before(alert.flow, alert.to_server, at)
        .any(|one| !one.load.is_empty() && ahead(one.seq, end) > 0);
    let is = !case.ips
        && finding.more
        && packet.to_server == alert.to_server
        && segment.flags & FIN != 0
        && beyond
        && case.theirs.iter().any(|one| one.is_like(alert) && one.frame.is_none());
    is.then_some(
        "data that lies beyond a FIN is looked at with it; Suricata looks at it when the connection ends",
    )
}

/// Packet rules see data that is repeated after its FIN, since it is forwarded unless they drop it.
pub fn told_of_old_data(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let goes_on = case.findings.iter().any(|other| {
        let of_it = matches!(&other.what, What::Drop(frame, _) if frame.is_some() && *frame == alert.frame);
        of_it && old_data(case, other).is_some()
    });
    (finding.more && goes_on)
        .then_some("rules see data that comes again at a connection's end; Suricata drops it before")
}

/// A receiver answers a RST within its window whose number is not the next one, and a genuine sender then
/// resets with the exact number (RFC 5961 section 3.2).
pub(crate) fn reset_in_the_window(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Drop(Some(frame), reason) = &finding.what else { return None };
    let (_, _, segment) = case.passage.segment(*frame)?;
    let resets = segment.flags & RST != 0 && segment.load.is_empty();
    let of_the_stream =
        |one: &Finding| !one.more && one.what == What::Drop(Some(*frame), "stream.error".into());
    // A rule may drop a packet that is forwarded otherwise.
    let is = of_the_stream(finding)
        || finding.more && reason == "rules" && case.findings.iter().any(of_the_stream);
    let is = case.ips && resets && is;
    is.then_some("a RST in the window whose number is not the next one leaves: its receiver answers it")
}

#[cfg(test)]
mod tests {
    use crate::explained::left_of;

    #[test]
    fn numbers_explain_packets_of_their_kind_only() {
        // Numbers wrap; packet 10 is the last acknowledgment. Rule 2 has only negated content, rule 0 does
        // not.
        assert!(left_of(3, 1028, false, &[], &["2@10>1.0:allowed"]).is_empty());
        assert_eq!(left_of(3, 1028, false, &[], &["2@6>1.0:allowed"]), ["-2@6>1.0:allowed"]);
        assert_eq!(left_of(3, 1028, false, &[], &["0@10>1.0:allowed"]), ["-0@10>1.0:allowed"]);
        assert_eq!(left_of(3, 1028, true, &[], &["2@10>1.0:allowed"]), ["-2@10>1.0:allowed"]);
        assert_eq!(left_of(3, 1024, false, &[], &["2@10>1.0:allowed"]), ["-2@10>1.0:allowed"], "no wrap");
        // Packet 4 is far ahead.
        let ours = ["0@4<1.0:blocked", "drop@5:flow.drop"];
        let theirs = ["0@4<1.0:blocked", "0@5<1.0:blocked", "drop@5:rules"];
        assert!(left_of(3, 862, true, &ours, &theirs).is_empty());
        assert_eq!(left_of(3, 862, true, &["drop@5:flow.drop"], &[]), ["+drop@5:flow.drop"]);
        assert!(left_of(3, 862, false, &["0@10<1.0:allowed"], &["0@-<1.0:allowed"]).is_empty());
        assert_eq!(left_of(3, 862, false, &["0@10<1.0:allowed"], &[]), ["+0@10<1.0:allowed"]);
        // Packet 9 is a RST whose number is not the next one; rule 0 drops it.
        let theirs = ["drop@9:stream.error"];
        assert!(left_of(10, 3180, true, &["drop@9:rules"], &theirs).is_empty());
        assert_eq!(left_of(10, 3180, true, &["drop@9:rules"], &[]), ["+drop@9:rules"]);
        assert_eq!(left_of(10, 3180, true, &["drop@8:rules"], &theirs), ["+drop@8:rules"], "another packet");
        // Packet 13 repeats packet 10, after the FIN.
        assert!(left_of(3, 926, true, &["1@13>1.0:allowed"], &["drop@13:stream.error"]).is_empty());
        assert_eq!(left_of(3, 926, true, &["1@13>1.0:allowed"], &[]), ["+1@13>1.0:allowed"]);
    }
}
