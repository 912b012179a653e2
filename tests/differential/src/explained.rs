// SPDX-License-Identifier: Apache-2.0
//! Explains intended differences; docs/limits.md has the reasons, [`crate::causes`] the conditions of each.

use crate::answer::Answer;
use crate::causes::Case;
use crate::finding::{Alert, Finding, FlowKey, What};
use crate::pair::Pair;
use crate::passage::{Passage, key};
use crate::reasons::{Reason, reason};
use std::collections::BTreeSet;

/// The unexplained lines of a difference; if there are none, the reasons of the others.
#[must_use]
pub fn explain(pair: &Pair, ips: bool, got: &Answer, want: &Answer) -> (Vec<String>, BTreeSet<Reason>) {
    let said = reasons(pair, ips, got, want);
    let left: Vec<String> =
        said.iter().filter(|(_, why)| *why == Why::Open).map(|(line, _)| line.clone()).collect();
    let reason = |(_, why): &(String, Why)| if let Why::Reason(reason) = why { Some(*reason) } else { None };
    let because = if left.is_empty() { said.iter().filter_map(reason).collect() } else { BTreeSet::new() };
    (left, because)
}

/// The explanation of one line of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// No known cause.
    Open,
    /// An intended difference.
    Reason(Reason),
    /// A consequence of a block, or of a bit, that has a reason.
    Follows,
}

/// Each line of a difference with its explanation.
#[must_use]
pub fn reasons(pair: &Pair, ips: bool, got: &Answer, want: &Answer) -> Vec<(String, Why)> {
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
    let reasons: Vec<Option<Reason>> = read.iter().map(|finding| reason(&case, finding.as_ref()?)).collect();
    // After one program has blocked a flow for a known reason, everything later in it differs.
    let blocks: Vec<Refused<'_>> = read
        .iter()
        .zip(&reasons)
        .filter(|(_, reason)| reason.is_some())
        .filter_map(|(finding, _)| match finding.as_ref() {
            Some(Finding { more, what: What::Alert(alert), .. })
                if alert.blocked || decides(pair, ips, alert) =>
            {
                Some(Refused::of(&case, alert, *more))
            }
            _ => None,
        })
        .collect();
    // Alerts with a reason whose rules set a bit that other rules require.
    let sets: Vec<(&Alert, bool)> = read
        .iter()
        .zip(&reasons)
        .filter(|(_, reason)| reason.is_some())
        .filter_map(|(finding, _)| match finding.as_ref() {
            Some(Finding { more, what: What::Alert(alert), .. }) => Some((alert, *more)),
            _ => None,
        })
        .collect();
    // Packets that only one program has dropped, for a known reason.
    let dropped: Vec<DroppedPacket> = read
        .iter()
        .zip(&reasons)
        .filter(|(_, reason)| reason.is_some())
        .filter_map(|(finding, _)| DroppedPacket::of(&case, finding.as_ref()?))
        .collect();
    let comes_of_it = |finding: &Option<Finding>| {
        finding.as_ref().is_some_and(|finding| {
            (ips || matches!(finding.what, What::Alert(_)))
                && blocks.iter().any(|refused| refused.brings(&case.passage, finding))
                || dropped.iter().any(|packet| packet.brings(finding))
                || sets.iter().any(|(alert, _)| crate::times::hangs_on(&case, finding, alert))
                || sets.iter().any(|(alert, more)| was_counted(&case, finding, alert, *more))
        })
    };
    let why = |(finding, reason): (&Option<Finding>, &Option<Reason>)| match reason {
        Some(reason) => Why::Reason(*reason),
        None if comes_of_it(finding) => Why::Follows,
        None => Why::Open,
    };
    let whys: Vec<Why> = read.iter().zip(&reasons).map(why).collect();
    lines.into_iter().zip(whys).collect()
}

/// Whether a counting rule has used its count on an alert that the other program lacks, so that a later alert
/// is missing.
fn was_counted(case: &Case<'_>, finding: &Finding, other: &Alert, more: bool) -> bool {
    let What::Alert(alert) = &finding.what else { return false };
    let counts = &["threshold:", "detection_filter:"];
    finding.more != more
        && alert.rule == other.rule
        && other.place() < alert.place()
        && case.asks(alert, counts)
}

/// Whether a match would have blocked its flow: in passive mode, too, nothing more of it is inspected.
fn decides(pair: &Pair, ips: bool, alert: &Alert) -> bool {
    !ips && pair.rules.get(alert.rule).is_some_and(|rule| matches!(rule.action, "drop" | "reject"))
}

/// Drop reason of a frame that is the last fragment of a dropped datagram.
const LAST_FRAGMENT: &str = "tunnel.packet.drop";

/// A flow that an alert has blocked: in this program, or only in the other one.
struct Refused<'a> {
    alert: &'a Alert,
    ours: bool,
    /// The first dropped frame. A reassembled datagram has no frame of its own; its last fragment counts.
    place: u32,
}

impl<'a> Refused<'a> {
    fn of(case: &Case<'_>, alert: &'a Alert, ours: bool) -> Self {
        let fragment = case.findings.iter().filter(|other| other.more == ours).find_map(|other| {
            let What::Drop(Some(frame), reason) = &other.what else { return None };
            (reason == LAST_FRAGMENT && in_flow(&case.passage, *frame, alert.flow)).then_some(*frame)
        });
        let place = alert.frame.or(fragment.filter(|_| alert.blocked)).unwrap_or(u32::MAX);
        Refused { alert, ours, place }
    }

    /// Whether a finding follows from the block.
    fn brings(&self, passage: &Passage<'_>, finding: &Finding) -> bool {
        let Refused { alert: refused, ours, place } = *self;
        let of_fragments = refused.frame.is_none() && place != u32::MAX;
        match &finding.what {
            // No more alerts after the block.
            What::Alert(alert) => {
                finding.more != ours && alert.flow == refused.flow && alert.place() >= place
            }
            What::Drop(Some(frame), reason) if finding.more == ours => {
                (matches!(reason.as_str(), "rules" | "flow.drop")
                    || (!of_fragments || *frame == place) && reason == LAST_FRAGMENT)
                    && *frame >= place
                    && in_flow(passage, *frame, refused.flow)
            }
            What::Drop(Some(frame), _) => *frame >= place && in_flow(passage, *frame, refused.flow),
            What::Drop(None, reason) => {
                let later = || {
                    let mut packets = passage.of_flow(refused.flow);
                    let at = refused.frame.and_then(|frame| passage.packet(frame)).map(|(at, _)| at);
                    at.is_some_and(|at| packets.any(|(one, packet)| one > at && packet.fragments.is_some()))
                };
                finding.more != ours || of_fragments && reason == "rules" || reason == "flow.drop" && later()
            }
            // Dropped traffic is not recorded, or not in full.
            What::Record(name) => {
                finding.flow.is_none_or(|flow| flow == refused.flow)
                    && (finding.more != ours || name.starts_with("flow:"))
            }
        }
    }
}

/// A packet that one program has dropped and the other has not.
struct DroppedPacket {
    flow: FlowKey,
    to_server: bool,
    frame: u32,
    ours: bool,
    /// Its flow is dropped from here on.
    with_flow: bool,
}

impl DroppedPacket {
    fn of(case: &Case<'_>, finding: &Finding) -> Option<Self> {
        let What::Drop(Some(frame), reason) = &finding.what else { return None };
        let (_, packet) = case.passage.packet(*frame)?;
        Some(DroppedPacket {
            flow: key(packet),
            to_server: packet.to_server,
            frame: *frame,
            ours: finding.more,
            with_flow: reason == "flow.drop",
        })
    }

    /// Whether a finding follows from the drop: an alert on this packet by the program that inspected it, a
    /// later alert of the other program on the same side, whose data lacks the packet's, or a record of the
    /// other program, where the rest of the flow is dropped.
    fn brings(&self, finding: &Finding) -> bool {
        let alert = match &finding.what {
            What::Alert(alert) => alert,
            What::Record(_) => {
                let of_flow = finding.flow.is_none_or(|flow| flow == self.flow);
                return self.with_flow && of_flow && finding.more != self.ours;
            }
            What::Drop(..) => return false,
        };
        let lacks = finding.more == self.ours;
        alert.flow == self.flow
            && if lacks {
                alert.place() > self.frame && alert.to_server == self.to_server
            } else {
                alert.place() == self.frame
            }
    }
}

fn in_flow(passage: &Passage<'_>, frame: u32, flow: FlowKey) -> bool {
    passage.packet(frame).is_some_and(|(_, packet)| key(packet) == flow)
}

fn alerts(answer: &Answer) -> Vec<Alert> {
    let alert = |name: &str| match What::read(name) {
        What::Alert(alert) => Some(alert),
        _ => None,
    };
    answer.names().filter_map(alert).collect()
}

/// Unexplained lines of a pair's difference.
#[cfg(test)]
pub(crate) fn left_of(seed: u64, number: u32, ips: bool, got: &[&str], want: &[&str]) -> Vec<String> {
    let answer = |items: &[&str]| {
        let mut answer = Answer::default();
        items.iter().for_each(|item| answer.add((*item).into()));
        answer
    };
    explain(&crate::make::pair(seed, number), ips, &answer(got), &answer(want)).0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Unexplained lines of a pair of seed 1.
    fn left(number: u32, ips: bool, got: &[&str], want: &[&str]) -> Vec<String> {
        left_of(1, number, ips, got, want)
    }

    #[test]
    fn a_reason_holds_for_its_cause_only() {
        // Rule 1 is about `tls.random`, rule 0 is not.
        assert!(left(1648, true, &["1@4>1.0:allowed"], &[]).is_empty());
        assert_eq!(left(1648, true, &["0@4>1.0:allowed"], &[]), ["+0@4>1.0:allowed"]);
        assert_eq!(left(1648, false, &[], &["1@7>1.0:allowed"]), ["-1@7>1.0:allowed"], "a missed one");
        // Packet 5 repeats packet 4.
        assert!(left(350, true, &["3@4>1.0:allowed"], &["3@4>1.0:allowed", "3@5>1.0:allowed"]).is_empty());
        assert_eq!(left(350, true, &[], &["3@4>1.0:allowed"]), ["-3@4>1.0:allowed"]);
        assert_eq!(
            left(350, true, &[], &["3@5>1.0:allowed"]),
            ["-3@5>1.0:allowed"],
            "not told before either"
        );
        // A segment that lies far ahead; the FIN after it, and another packet.
        assert!(left(1626, true, &[], &["drop@10:stream.error"]).is_empty());
        assert_eq!(left(1626, true, &[], &["drop@9:stream.error"]), ["-drop@9:stream.error"]);
        assert_eq!(left(1626, false, &[], &["drop@10:stream.error"]), ["-drop@10:stream.error"]);
    }

    #[test]
    fn holes_and_crossed_acknowledgments_explain_what_they_bring_only() {
        const GAP: &str = "anomaly:INVALID_GAP";
        const UNMATCHED: &str = "anomaly:UNABLE_TO_MATCH_RESPONSE_TO_REQUEST";
        // The response is acknowledged with the client's FIN, the hello with the server's; in the other pair
        // all are acknowledged in time.
        assert!(left(1522, false, &["tls"], &[]).is_empty());
        assert_eq!(left(1522, true, &["tls"], &[]), ["+tls"]);
        assert_eq!(left(695, false, &["tls"], &[]), ["+tls"]);
        assert_eq!(left(1522, false, &[], &["tls"]), ["-tls"]);
        // The last segment of the client's body is lost; its FIN is packet 26.
        assert!(left(974, false, &["0@28>1.0:allowed"], &[]).is_empty());
        assert_eq!(left(974, false, &["0@16>1.0:allowed"], &[]), ["+0@16>1.0:allowed"]);
        assert_eq!(left(974, false, &["3@28>1.0:allowed"], &[]), ["+3@28>1.0:allowed"], "not on the body");
        assert!(left(2346, true, &[GAP, UNMATCHED], &[UNMATCHED]).is_empty());
        assert_eq!(
            left(974, true, &[GAP, UNMATCHED], &[UNMATCHED]),
            ["+anomaly:INVALID_GAP"],
            "no hole before a request"
        );
        // Rules on the certificate in such a connection; the client's side.
        assert!(left(1522, false, &["1@9<1.0:allowed"], &[]).is_empty());
        assert_eq!(left(1522, false, &["1@9>1.0:allowed"], &[]), ["+1@9>1.0:allowed"]);
    }

    #[test]
    fn what_libhtp_and_dns_make_of_a_segment_alone_is_explained_where_it_is_cut_only() {
        let left = left_of;
        const CHUNK: &str = "anomaly:INVALID_REQUEST_CHUNK_LEN";
        // Packet 36 continues with letters after packet 34 has ended within a length.
        assert!(left(2, 298, true, &[], &[CHUNK, "drop@36:applayer.error"]).is_empty());
        assert_eq!(left(2, 298, true, &[], &[CHUNK, "drop@34:applayer.error"]), ["-drop@34:applayer.error"]);
        assert_eq!(left(2, 298, true, &[], &["drop@36:applayer.error"]), ["-drop@36:applayer.error"]);
        assert_eq!(left(2, 298, false, &[CHUNK], &[]), ["+anomaly:INVALID_REQUEST_CHUNK_LEN"]);
        assert_eq!(left(1, 974, false, &[], &[CHUNK]), ["-anomaly:INVALID_REQUEST_CHUNK_LEN"]);
        // The first bytes of the server's first answer are lost.
        assert!(left(2, 1124, false, &["dns"], &[]).is_empty());
        assert_eq!(left(2, 1124, false, &[], &["dns"]), ["-dns"]);
        assert!(left(2, 1124, false, &["2@44<1.0:allowed"], &[]).is_empty());
        assert_eq!(left(2, 1124, false, &["3@44>1.0:allowed"], &[]), ["+3@44>1.0:allowed"], "the other side");
    }

    #[test]
    fn what_follows_a_refusal_with_a_reason_has_it_too() {
        let ours = ["0@4>1.0:blocked", "drop@4:rules", "drop@5:flow.drop"];
        assert!(left(560, true, &ours, &["tls", "1@8>1.0:allowed"]).is_empty());
        assert_eq!(left(560, true, &ours, &["1@3>1.0:allowed"]), ["-1@3>1.0:allowed"], "before it");
        let other = ["0@4>1.0:allowed", "drop@5:flow.drop"];
        assert_eq!(left(560, true, &other, &[]), ["+drop@5:flow.drop"], "nothing was refused");
        // The hello's last segment arrives in fragments: packets 10 and 11.
        let ours = ["0@->1.0:blocked", "drop@-:rules", "drop@11:tunnel.packet.drop", "drop@12:flow.drop"];
        assert!(left_of(105, 754, true, &ours, &["3@15<1.0:allowed"]).is_empty());
        assert_eq!(left_of(105, 754, true, &ours, &["3@9<1.0:allowed"]), ["-3@9<1.0:allowed"]);
        let allowed = ["0@->1.0:allowed", "drop@-:rules"];
        assert_eq!(left_of(105, 754, true, &allowed, &[]), ["+drop@-:rules"]);
    }

    #[test]
    fn alerts_on_a_packet_that_one_program_drops_with_a_reason_follow() {
        // Suricata's parser of DNS fails at packet 11, and it drops the flow.
        let with = |alert| [alert, "anomaly:malformed_data", "dns*6"];
        let theirs =
            ["dns*3", "drop@11:applayer.error", "drop@15:exception.policy.flow.drop", "flow:TCP:dns"];
        let left =
            |alert| left_of(5101, 3220, true, &[&with(alert)[..], &["flow:TCP:dns"]].concat(), &theirs);
        assert!(left("2@11<1.0:allowed").is_empty() && left("2@15<1.0:allowed").is_empty());
        assert_eq!(left("2@6<1.0:allowed"), ["+2@6<1.0:allowed"], "before");
        assert_eq!(left("2@13<1.0:allowed"), ["+2@13<1.0:allowed"], "not dropped");
        assert_eq!(left_of(5101, 3220, true, &["2@11<1.0:allowed"], &[]), ["+2@11<1.0:allowed"], "no drop");
        // This program drops the second response: the first one's side shows no body until its end.
        let ours = ["2@-<1.0:allowed", "drop@10:defrag.error"];
        assert!(left_of(5102, 3468, true, &ours, &["fileinfo"]).is_empty());
        let other = ["1@->1.0:allowed", "drop@10:defrag.error"];
        assert_eq!(left_of(5102, 3468, true, &other, &["fileinfo"]), ["+1@->1.0:allowed"], "the other side");
        let before = ["2@8<1.0:allowed", "drop@10:defrag.error"];
        assert_eq!(left_of(5102, 3468, true, &before, &["fileinfo"]), ["+2@8<1.0:allowed"]);
    }

    #[test]
    fn bodies_that_pass_and_messages_of_no_type_explain_themselves_only() {
        // Rule 0 passes a body, which arrives in packets 13 and 15.
        assert!(left_of(3, 302, true, &[], &["1@19<1.0:allowed"]).is_empty());
        let other = ["2@21<1.0:allowed"];
        assert_eq!(
            left_of(3, 302, true, &other, &["1@19<1.0:allowed", "2@21<1.0:allowed"]),
            ["-1@19<1.0:allowed"],
            "nothing passes where there are alerts"
        );
        assert_eq!(left_of(3, 302, true, &[], &["3@7>1.0:allowed"]), ["-3@7>1.0:allowed"], "before the body");
        assert_eq!(left_of(3, 302, false, &[], &["1@19<1.0:allowed"]), ["-1@19<1.0:allowed"]);
        // The body that rule 0 passes begins with packet 6.
        assert!(left_of(84, 905, true, &[], &["1@6<1.0:allowed"]).is_empty());
        assert_eq!(
            left_of(84, 905, true, &[], &["3@4>1.0:allowed"]),
            ["-3@4>1.0:allowed"],
            "before the body"
        );
        // The hello's type and length come from an earlier segment.
        const MESSAGE: &str = "anomaly:INVALID_HANDSHAKE_MESSAGE";
        assert!(left_of(3, 822, true, &[MESSAGE], &[]).is_empty());
        assert_eq!(left_of(3, 816, true, &[MESSAGE], &[]), ["+anomaly:INVALID_HANDSHAKE_MESSAGE"]);
    }

    #[test]
    fn detection_stays_open_for_what_may_become_a_request_only() {
        // The client's two bytes announce 258 more; its FIN is never acknowledged. Pair 600, its scene,
        // closes normally.
        let (open, failed) = (["flow:TCP:-"], ["flow:TCP:failed"]);
        assert!(left(604, true, &open, &failed).is_empty());
        assert_eq!(left(604, false, &open, &failed), ["+flow:TCP:-", "-flow:TCP:failed"]);
        assert_eq!(left(600, true, &open, &failed), ["+flow:TCP:-", "-flow:TCP:failed"]);
        assert_eq!(left(695, true, &open, &failed), ["+flow:TCP:-", "-flow:TCP:failed"]);
    }

    #[test]
    fn flags_states_and_depths_explain_rules_that_have_them_only() {
        // Rule 0 passes packets without a SYN; in pair 1208, its scene, that rule has no flags.
        assert!(left_of(4, 1213, true, &[], &["1@4>1.0:allowed"]).is_empty());
        assert_eq!(left_of(4, 1213, true, &[], &["1@1>1.0:allowed"]), ["-1@1>1.0:allowed"], "a SYN");
        assert_eq!(left_of(4, 1208, true, &[], &["1@4>1.0:allowed"]), ["-1@4>1.0:allowed"]);
        let (ours, theirs) = (["drop@5:rules", "drop@6:flow.drop"], ["drop@6:rules"]);
        assert!(left_of(4, 561, true, &ours, &theirs).is_empty());
        assert_eq!(left_of(4, 561, true, &[], &theirs), ["-drop@6:rules"]);
        assert!(left_of(4, 773, true, &["0@4>1.0:blocked", "drop@4:rules"], &[]).is_empty());
        assert_eq!(left_of(4, 773, true, &["1@4>1.0:allowed"], &[]), ["+1@4>1.0:allowed"]);
    }

    #[test]
    fn what_seeds_5_and_6_found_is_explained_where_its_cause_is_only() {
        // Packet 7 is a keep-alive of one byte, packet 6 the byte before it.
        assert!(left_of(5, 582, true, &[], &["0@7>1.0:blocked", "drop@7:rules"]).is_empty());
        assert_eq!(left_of(5, 582, true, &[], &["0@6>1.0:blocked"]), ["-0@6>1.0:blocked"]);
        assert_eq!(left_of(5, 582, false, &[], &["0@7>1.0:allowed"]), ["-0@7>1.0:allowed"]);
        // Packet 9 is a keep-alive, and leaves with another byte.
        assert!(left_of(83, 1882, true, &["2@9<1.0:allowed"], &[]).is_empty());
        // Rule 2 denies a content in a body that arrives in packets 47 and 49.
        assert!(left_of(6, 1642, true, &["2@47<1.0:allowed"], &[]).is_empty());
        assert_eq!(left_of(6, 1642, false, &["2@47<1.0:allowed"], &[]), ["+2@47<1.0:allowed"]);
        assert_eq!(
            left_of(6, 1642, true, &["3@47<1.0:allowed"], &[]),
            ["+3@47<1.0:allowed"],
            "not on a body"
        );
        // The client's first bytes were acknowledged before they arrived.
        let refused = ["drop@12:applayer.error", "flow:TCP:tls"];
        assert!(left_of(2, 1778, true, &refused, &["flow:TCP:tls"]).is_empty());
        assert_eq!(left_of(2, 1776, true, &refused, &["flow:TCP:tls"]), ["+drop@12:applayer.error"]);
        // The client's FIN is lost, and its first bytes may be the length of a message.
        assert!(left_of(6, 70, true, &["flow:TCP:-"], &["flow:TCP:failed"]).is_empty());
        // In a connection without its opening only the client sends.
        assert!(left_of(4, 1754, true, &["flow:TCP:-"], &["flow:TCP:failed"]).is_empty());
        assert_eq!(
            left_of(4, 1754, false, &["flow:TCP:failed"], &["flow:TCP:-"]),
            ["-flow:TCP:-", "+flow:TCP:failed"]
        );
    }

    #[test]
    fn what_answers_and_bits_bring_is_explained_where_its_cause_is_only() {
        const UNMATCHED: &str = "anomaly:UNABLE_TO_MATCH_RESPONSE_TO_REQUEST";
        // The answer is acknowledged before the request; rule 2 is on the request's body.
        assert!(left_of(4, 2314, false, &["2@8>1.0:allowed", UNMATCHED], &[UNMATCHED]).is_empty());
        assert_eq!(
            left_of(4, 2312, false, &["2@8>1.0:allowed", UNMATCHED], &[UNMATCHED]),
            ["+2@8>1.0:allowed"]
        );
        // Rule 2 requires the bit that rule 1 sets on a transaction; the number of matches may differ, but
        // not whether it matches.
        let before = "2@10<1.0:allowed";
        assert!(left_of(6, 2223, true, &[before, "2@14<1.0:allowed"], &[before]).is_empty());
        assert_eq!(left_of(6, 2223, true, &[], &["2@14<1.0:allowed"]), ["-2@14<1.0:allowed"]);
        // Each datagram goes through protocol detection; rule 3 is on a query.
        let (ours, theirs) = (["3@2>1.0:allowed", "dns", "flow:UDP:dns"], ["flow:UDP:failed"]);
        assert!(left_of(5, 356, true, &ours, &theirs).is_empty());
        assert_eq!(left_of(5, 356, false, &["3@2>1.0:allowed"], &[]), ["+3@2>1.0:allowed"]);
        // The first of two queries is cut short; only the response shows the flow's protocol.
        let ours = ["2@2>1.0:allowed", "dns", "flow:UDP:dns"];
        assert!(left_of(100, 1634, true, &ours, &["flow:UDP:dns"]).is_empty());
        assert_eq!(left_of(100, 1634, true, &["2@1>1.0:allowed"], &[]), ["+2@1>1.0:allowed"]);
        assert_eq!(left_of(100, 1634, false, &["2@2>1.0:allowed"], &[]), ["+2@2>1.0:allowed"]);
        // A rule on a session and on its stream, within a record and at its end.
        assert!(left_of(4, 2290, true, &["0@64>1.0:allowed"], &[]).is_empty());
        assert_eq!(left_of(4, 2290, true, &["0@42>1.0:allowed"], &[]), ["+0@42>1.0:allowed"]);
        // A message of DNS with wrong records, and an event.
        let event = "anomaly:malformed_data";
        assert!(
            left_of(4, 740, true, &[event, "flow:TCP:dns"], &["flow:TCP:dns", "drop@15:applayer.error"])
                .is_empty()
        );
        assert_eq!(
            left_of(4, 740, true, &["flow:TCP:dns"], &["flow:TCP:dns", "drop@15:applayer.error"]),
            ["-drop@15:applayer.error"]
        );
    }

    #[test]
    fn what_seeds_5_to_18_found_is_explained_where_its_cause_is_only() {
        const UNMATCHED: &str = "anomaly:UNABLE_TO_MATCH_RESPONSE_TO_REQUEST";
        // The beginning of the second response is lost; pair 200 is the scene.
        let (ours, theirs) = (["2@-<1.0:allowed", "http"], ["2@31<1.0:allowed", "http", "http", UNMATCHED]);
        assert!(left_of(5, 202, false, &ours, &theirs).is_empty());
        assert_eq!(left_of(5, 202, false, &["http"], &["http", "http"]), ["-http"], "not without the event");
        assert!(!left_of(5, 200, false, &ours, &theirs).is_empty());
        // A window of 64 bytes; packet 6 is the first that exceeds it.
        assert!(left_of(10, 64, true, &["0@6>1.0:allowed"], &[]).is_empty());
        assert_eq!(left_of(10, 64, true, &["0@4>1.0:allowed"], &[]), ["+0@4>1.0:allowed"]);
        assert_eq!(left_of(10, 64, false, &["0@6>1.0:allowed"], &[]), ["+0@6>1.0:allowed"]);
        // Rule 2 denies a content within more bytes than its size.
        assert!(left_of(16, 1352, false, &[], &["refused:2"]).is_empty());
        assert_eq!(left_of(16, 1352, false, &[], &["refused:0"]), ["-refused:0"]);
        // Rule 1 is on a random: it may match earlier, but must match.
        assert!(left_of(18, 1648, true, &["1@4>1.0:allowed"], &["1@8>1.0:allowed"]).is_empty());
        assert_eq!(left_of(18, 1648, true, &[], &["1@8>1.0:allowed"]), ["-1@8>1.0:allowed"]);
        // Packet 15 is sent again after the client's FIN.
        assert!(left_of(12, 1602, false, &["2@15<1.0:allowed"], &["2@16<1.0:allowed"]).is_empty());
        assert_eq!(left_of(12, 1602, false, &[], &["2@16<1.0:allowed"]), ["-2@16<1.0:allowed"]);
        assert_eq!(left_of(12, 1602, true, &[], &["2@16<1.0:allowed"]), ["-2@16<1.0:allowed"]);
    }

    #[test]
    fn what_later_seeds_found_is_explained_where_its_cause_is_only() {
        // Rule 1 has a stream size and a regular expression; rule 0 has a content.
        assert!(left_of(41, 814, false, &["1@34<1.0:allowed"], &[]).is_empty());
        assert_eq!(left_of(41, 814, false, &["0@33>1.0:allowed"], &[]), ["+0@33>1.0:allowed"]);
        assert_eq!(left_of(41, 814, false, &[], &["1@34<1.0:allowed"]), ["-1@34<1.0:allowed"]);
        // The client encrypts from packet 30 on, the server not yet.
        assert!(left_of(107, 1586, false, &["0@43<1.0:allowed"], &[]).is_empty());
        assert_eq!(left_of(107, 1586, false, &["0@29<1.0:allowed"], &[]), ["+0@29<1.0:allowed"]);
        assert_eq!(left_of(107, 1586, false, &[], &["0@43<1.0:allowed"]), ["-0@43<1.0:allowed"]);
        // A part of the chunked body arrives in fragments, with an alert on the headers; rule 3 is on them.
        let told = ["3@-<1.0:allowed"];
        assert!(left_of(123, 2124, false, &told, &["3@-<1.0:allowed", "3@33<1.0:allowed"]).is_empty());
        assert_eq!(left_of(123, 2124, false, &[], &["3@33<1.0:allowed"]), ["-3@33<1.0:allowed"]);
        // The client encrypts from packet 4 on; until then both evaluate rule 0, which passes.
        assert!(left_of(120, 1586, false, &[], &["3@10>1.0:allowed"]).is_empty());
        assert_eq!(left_of(120, 1586, false, &[], &["3@2>1.0:allowed"]), ["-3@2>1.0:allowed"]);
        // A part of the body arrives in fragments; rule 2 is on a field.
        assert!(left_of(31, 1772, true, &["1@-<1.0:allowed"], &["1@24<1.0:allowed"]).is_empty());
        assert_eq!(left_of(31, 1772, true, &[], &["1@24<1.0:allowed"]), ["-1@24<1.0:allowed"]);
        assert_eq!(
            left_of(31, 1772, true, &["2@-<1.0:allowed"], &["2@18<1.0:allowed"]),
            ["+2@-<1.0:allowed", "-2@18<1.0:allowed"]
        );
        // Rule 1 is on a field after a fragment that is dropped.
        let (gap, refused) = ("anomaly:INVALID_GAP", "drop@8:defrag.error");
        assert!(
            left_of(71, 1676, true, &["1@19>1.0:allowed", gap, refused], &["1@17>1.0:allowed"]).is_empty()
        );
        assert_eq!(
            left_of(71, 1676, true, &["1@7>1.0:allowed", refused], &[]),
            ["+1@7>1.0:allowed"],
            "before it"
        );
    }

    #[test]
    fn what_seeds_140_to_160_found_is_explained_where_its_cause_is_only() {
        // A part of the server's certificate is lost; packet 51 is the client's FIN, rule 3 is on the stream.
        let (ours, theirs) = (["3@37>1.0:allowed", "flow:TCP:tls"], ["3@51>1.0:allowed", "flow:TCP:tls"]);
        assert!(left_of(143, 1524, false, &ours, &theirs).is_empty());
        assert_eq!(left_of(143, 1524, false, &ours[1..], &theirs), ["-3@51>1.0:allowed"], "nothing here");
        assert_eq!(
            left_of(143, 1524, false, &ours, &["3@39>1.0:allowed", "flow:TCP:tls"]).len(),
            1,
            "no end"
        );
        // The server's first bytes are lost, and rule 1 is on the event of a hole.
        let theirs = ["1@13<1.0:allowed", "flow:TCP:-"];
        assert!(left_of(92, 1950, false, &["flow:TCP:-"], &theirs).is_empty());
        assert_eq!(left_of(92, 1950, true, &["flow:TCP:-"], &theirs), ["-1@13<1.0:allowed"]);
        assert_eq!(
            left_of(92, 1950, false, &["flow:TCP:http"], &["1@13<1.0:allowed", "flow:TCP:http"]),
            ["-1@13<1.0:allowed"],
            "a protocol is known"
        );
        // Rule 0 counts to three by source; packet 12 comes after a reset.
        let theirs = ["0@21>1.0:allowed"];
        assert!(left_of(141, 1978, true, &["0@12>1.1:allowed"], &theirs).is_empty());
        assert_eq!(left_of(141, 1978, true, &[], &theirs), ["-0@21>1.0:allowed"]);
        assert_eq!(
            left_of(141, 1978, true, &["3@12>1.1:allowed"], &theirs),
            theirs.map(|one| format!("-{one}"))
        );
        // The flow is blocked on the client's random; later packets of it arrive in fragments.
        let ours = ["0@4>1.0:blocked", "drop@-:flow.drop", "drop@12:tunnel.packet.drop", "drop@4:rules"];
        assert!(left_of(152, 886, true, &ours, &[]).is_empty());
        assert_eq!(left_of(152, 886, true, &ours[1..3], &[]).len(), 2, "it is not refused");
        // With packet 13 the client has sent one word; its later data is not a request.
        const FAILED: &str = "flow:TCP:failed~1.0";
        assert!(left_of(147, 1272, true, &["2@13<1.0:allowed", FAILED], &[FAILED]).is_empty());
        assert_eq!(left_of(147, 1272, true, &["2@27<1.0:allowed"], &[]), ["+2@27<1.0:allowed"]);
        // A datagram of another flow is dropped, and rule 1 counts by both hosts; rule 3 does not count.
        let (ours, theirs) = (["drop@4:defrag.error"], ["1@25>1.1:allowed"]);
        assert!(left_of(153, 380, true, &ours, &theirs).is_empty());
        assert_eq!(left_of(153, 380, true, &ours, &["3@25>1.1:allowed"]), ["-3@25>1.1:allowed"]);
        assert_eq!(left_of(153, 380, true, &[], &theirs), ["-1@25>1.1:allowed"]);
        // A reassembled datagram of the client exceeds a window of 64 bytes.
        assert!(left_of(145, 28, true, &["1@->1.0:allowed"], &[]).is_empty());
        assert_eq!(left_of(145, 28, true, &["1@-<1.0:allowed"], &[]), ["+1@-<1.0:allowed"]);
        // Two copies of the server's hello differ; packet 27 is after them, packet 15 before.
        let ours = ["flow:TCP:tls", "tls"];
        let theirs = |drop: &'static str| ["flow:TCP:tls", "tls", drop];
        assert!(left_of(144, 2036, true, &ours, &theirs("drop@27:applayer.error")).is_empty());
        assert_eq!(
            left_of(144, 2036, true, &ours, &theirs("drop@15:applayer.error")),
            ["-drop@15:applayer.error"]
        );
        assert_eq!(left_of(144, 2036, true, &ours, &theirs("drop@27:rules")), ["-drop@27:rules"]);
        // Rule 0 has a size that a content plus a negated content after it exceed.
        assert!(left_of(140, 2320, false, &[], &["refused:0"]).is_empty());
        assert_eq!(left_of(140, 2320, false, &[], &["refused:1"]), ["-refused:1"]);
    }
}
