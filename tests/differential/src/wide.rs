// SPDX-License-Identifier: Apache-2.0
//! Causes of differences that the wider grammar finds: fragments of a datagram that matched `drop`, sizes of
//! encrypted packets, bytes that were dropped with their packet; as in [`crate::causes`].

use crate::causes::Case;
use crate::finding::{Finding, FlowKey, What};
use crate::pair::Rule;
use crate::passage::{ahead, key, segment};

/// Passively nothing is dropped: the frame with the last fragment is inspected as the others are. In Suricata
/// a match of `drop` on the reassembled datagram, or on its flow before, ends inspection of the frame.
pub(crate) fn fragment_of_a_matched_datagram(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let frame = alert.frame?;
    let (at, packet) = case.passage.packet(frame)?;
    let last = case.passage.packet(frame + 1).is_none_or(|(next, _)| next != at);
    let drops =
        |rule: usize| case.pair.rules.get(rule).is_some_and(|rule| matches!(rule.action, "drop" | "reject"));
    let matched = || {
        let on_datagram = |one: &&crate::finding::Alert| {
            one.frame.is_none_or(|before| before < frame) && one.flow == key(packet) && drops(one.rule)
        };
        case.theirs.iter().filter(on_datagram).any(|one| case.ours.contains(one))
    };
    let is = !case.ips && finding.more && packet.fragments.is_some() && last && matched();
    is.then_some(
        "passively the frame with the last fragment of a datagram that matches `drop` is looked at; Suricata ends with the datagram",
    )
}

/// Sizes of encrypted packets: here payload counts once a side of a TLS connection encrypts; Suricata counts
/// none.
pub(crate) fn size_of_what_is_encrypted(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const ENCRYPTED: &[u8] = &[0x17, 3];
    const CHANGE: &[u8] = &[0x14, 3];
    let What::Alert(alert) = &finding.what else { return None };
    let (at, _, one) = case.passage.segment(alert.frame?)?;
    let has = |to_server: bool, what: &[u8]| {
        let said = case.passage.said_before(alert.flow, to_server, at + 1);
        said.windows(what.len()).any(|two| two == what)
    };
    let changed = || has(alert.to_server, CHANGE) || case.passage.has_hole(alert.flow, alert.to_server);
    let encrypts = has(!alert.to_server, ENCRYPTED) || has(alert.to_server, ENCRYPTED) && changed();
    // A `pass` on the packet by its size leaves no other alert on it.
    let sized = |rule: &Rule| rule.options.iter().any(|option| option.starts_with("dsize:"));
    let passes = || case.pair.rules.iter().any(|rule| rule.action == "pass" && sized(rule));
    let quiet = || !case.ours.iter().any(|one| (one.frame, one.flow) == (alert.frame, alert.flow));
    let is = if finding.more { case.asks(alert, &["dsize:"]) } else { passes() && quiet() }
        && !one.load.is_empty()
        && case.got.has("flow:TCP:tls")
        && encrypts;
    is.then_some("packets of a TLS connection have a payload when sides encrypt, too; for Suricata they have none then, and `dsize:>0` misses")
}

/// Bytes that a rule dropped with their packet, but not with the flow, are dropped when they are sent again.
pub(crate) fn refused_bytes_again(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Drop(Some(frame), reason) = &finding.what else { return None };
    let (at, packet, one) = case.passage.segment(*frame)?;
    let refused = case.got.names().any(|name| match What::read(name) {
        What::Drop(Some(first), reason) if reason == "rules" && first < *frame => {
            case.passage.packet(first).is_some_and(|(before, other)| {
                let same = (key(other), other.to_server) == (key(packet), packet.to_server);
                let overlaps = segment(other).is_some_and(|other| {
                    let end = |of: u32, load: &[u8]| of.wrapping_add(load.len() as u32);
                    ahead(end(one.seq, &one.load), other.seq) > 0
                        && ahead(end(other.seq, &other.load), one.seq) > 0
                });
                before < at && same && overlaps
            })
        }
        _ => false,
    });
    let is = case.ips && finding.more && reason == "rules" && !one.load.is_empty() && refused;
    is.then_some(
        "bytes that a rule refused with their packet are refused when they come again; Suricata lets them go",
    )
}

/// For packet rules a packet with which the stream is inspected has a payload, even if it is empty. Suricata
/// inspects no stream if no rule of the port's group requires it.
pub(crate) fn no_stream_is_shown(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let (_, _, segment) = case.passage.segment(alert.frame?)?;
    let on_packets = |rule: &Rule| rule.head.starts_with("tcp-pkt ");
    let is = !case.ips
        && finding.more
        && segment.load.is_empty()
        && case.only_denies(alert)
        && case.pair.rules.iter().all(on_packets);
    is.then_some("what must not be in a payload is not in that of a packet with which the stream is shown; Suricata shows none where no rule asks for streams")
}

/// Prevention parses DNS messages as lenient receivers do, with an event; Suricata's parser fails.
pub(crate) fn lenient_message(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const EVENT: &str = "anomaly:malformed_data";
    let told = case
        .findings
        .iter()
        .any(|other| other.more && matches!(&other.what, What::Record(name) if name == EVENT));
    // A message that is too short for its header is reported with the next one, if there is one.
    let short = matches!(finding.what, What::Drop(..))
        && case.concerns(finding, |flow| has_a_short_message(case, flow));
    let read = told || short;
    let is = match &finding.what {
        What::Record(name) => finding.more && matches!(name.as_str(), EVENT | "dns"),
        What::Drop(Some(_), reason) => {
            !finding.more && matches!(reason.as_str(), "applayer.error" | "exception.policy.flow.drop")
        }
        What::Alert(alert) => {
            let of_dns = case.rule(alert).is_some_and(|rule| rule.head.starts_with("dns "));
            finding.more && (of_dns || case.asks(alert, &["dns"]))
        }
        What::Drop(None, _) => false,
    };
    (case.ips && read && is && case.got.has("flow:TCP:dns"))
        .then_some("prevention reads a message of DNS with wrong records as lenient receivers do, and tells an event; Suricata's parser fails")
}

/// Whether a side sends a DNS message over TCP that is shorter than a header.
fn has_a_short_message(case: &Case<'_>, flow: FlowKey) -> bool {
    const HEAD: usize = 12;
    const MOST: u32 = 1 << 13;
    [true, false].into_iter().any(|to_server| {
        let said = case.passage.first(flow, to_server, MOST);
        let mut rest = said.as_slice();
        while let [high, low, behind @ ..] = rest {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            let Some(next) = behind.get(length..) else { break };
            if (1..HEAD).contains(&length) {
                return true;
            }
            rest = next;
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use crate::explained::left_of;

    #[test]
    fn a_fragment_is_explained_where_its_datagram_matched_drop_only() {
        // Frames 1 to 3 are the fragments of a datagram; rule 0 drops, rule 1 does not, rule 3 is on any
        // packet.
        const FRAGMENT: &str = "3@3<3.18446744073709511616:allowed";
        let left = |ips, ours: &[&str], theirs: &[&str]| left_of(2, 4184, ips, ours, theirs);
        let matched = "0@-<3.0:allowed";
        assert!(left(false, &[matched, FRAGMENT], &[matched]).is_empty());
        assert_eq!(left(false, &[FRAGMENT], &[]).len(), 1, "no match");
        assert_eq!(left(false, &["1@-<3.0:allowed", FRAGMENT], &["1@-<3.0:allowed"]).len(), 1, "no drop");
        assert_eq!(left(true, &[matched, FRAGMENT], &[matched]).len(), 1, "in prevention");
        let second = "3@2<3.18446744073709511616:allowed";
        assert_eq!(left(false, &[matched, second], &[matched]).len(), 1, "not the last fragment");
        assert_eq!(left(false, &[matched], &[matched, FRAGMENT]).len(), 1, "a missed one");
    }

    #[test]
    fn sizes_are_explained_where_they_count_only() {
        // Packet 10 is the server's, which changes its cipher with it; rule 0 is on a size, rule 1 is not.
        let left = |got: &[&str], want: &[&str]| {
            let flow = ["flow:TCP:tls"];
            left_of(2, 4016, false, &[got, &flow].concat(), &[want, &flow].concat())
        };
        assert!(left(&["0@10<1.0:allowed"], &[]).is_empty());
        assert_eq!(left(&[], &["0@10<1.0:allowed"]), ["-0@10<1.0:allowed"], "a missed one");
        assert_eq!(left(&["0@6<1.0:allowed"], &[]), ["+0@6<1.0:allowed"], "before it encrypts");
    }

    #[test]
    fn bytes_that_come_again_are_refused_where_they_were_refused_only() {
        // Packet 11 repeats a byte of packet 10.
        let left = |ips, got: &[&str], want: &[&str]| left_of(3, 3670, ips, got, want);
        assert!(left(true, &["drop@10:rules", "drop@11:rules"], &["drop@10:rules"]).is_empty());
        assert_eq!(left(true, &["drop@11:rules"], &[]), ["+drop@11:rules"], "not refused before");
        assert_eq!(left(true, &["drop@8:rules", "drop@10:rules"], &["drop@8:rules"]).len(), 1, "other bytes");
    }

    #[test]
    fn sizes_are_explained_once_the_other_side_encrypts() {
        let flow = "flow:TCP:tls";
        // Packet 10 has a wrong checksum, before the server changes its cipher; packet 6 is its hello.
        let left = |alert| left_of(3, 3124, false, &[alert, flow], &[flow]);
        assert!(left("3@10<1.0:allowed").is_empty());
        assert_eq!(left("3@6<1.0:allowed"), ["+3@6<1.0:allowed"]);
        // Rule 0 passes packets with a payload.
        let left = |ours: &[&str], alert| left_of(4, 4529, false, ours, &[alert, flow]);
        assert!(left(&[flow], "3@10<1.0:allowed").is_empty());
        assert_eq!(left(&[flow], "3@6<1.0:allowed"), ["-3@6<1.0:allowed"], "nobody encrypts yet");
        assert_eq!(left(&[flow, "1@10<1.0:allowed"], "3@10<1.0:allowed").len(), 2, "nothing passed");
    }

    #[test]
    fn fragments_are_explained_where_they_are_refused_only() {
        const FRAGMENT: &str = "2@7>1.18446744073709511616:allowed";
        // Rule 0 drops the flow of a fragmented datagram, which is frames 5 to 7.
        assert!(left_of(2, 2666, false, &["0@1>1.0:allowed", FRAGMENT], &["0@1>1.0:allowed"]).is_empty());
        assert_eq!(left_of(2, 2666, false, &[FRAGMENT], &[]).len(), 1, "no drop");
        // The first fragment lacks a part of the header; frame 10 is the last one.
        let alert = |frame: u32| format!("0@{frame}>1.18446744073709511616:allowed");
        let refused = ["drop@10:defrag.error"];
        assert!(left_of(5, 4570, true, &refused, &[&alert(10)]).is_empty());
        assert_eq!(left_of(5, 4570, true, &refused, &[&alert(11)]).len(), 1, "another frame");
        assert_eq!(left_of(5, 4570, true, &[], &[&alert(10)]).len(), 1, "not refused");
        // The rest of a request after such a hole is another request.
        assert!(left_of(5, 4052, true, &["drop@18:defrag.error", "http"], &[]).is_empty());
        assert_eq!(left_of(5, 4052, true, &["http"], &[]), ["+http"]);
    }

    #[test]
    fn answers_to_requests_without_a_path_are_explained_only() {
        const INCOMPLETE: &str = "anomaly:REQUEST_LINE_INCOMPLETE";
        // One request is letters without a line end; rule 1 is on an absent body, rule 2 is not.
        for (seed, number, event) in [(6, 2956, INCOMPLETE), (7, 4110, INCOMPLETE)] {
            let left = |ours: &[&str], theirs: &[&str]| left_of(seed, number, false, ours, theirs);
            assert!(left(&[event], &[event, "1@18<1.0:allowed"]).is_empty(), "{seed}/{number}");
            assert_eq!(left(&[], &["1@18<1.0:allowed"]).len(), 1, "all lines are over");
            assert_eq!(left(&[event], &[event, "2@18<1.0:allowed"]).len(), 1, "no rule on a body");
        }
        // The head of the second request is lost.
        const WORD: &str = "anomaly:REQUEST_LINE_MISSING_PROTOCOL";
        assert!(left_of(5, 3530, false, &[WORD], &[WORD, "3@41<1.0:allowed"]).is_empty());
        assert_eq!(left_of(5, 3530, false, &[WORD], &[WORD, "2@41<1.0:allowed"]).len(), 1);
    }

    #[test]
    fn what_a_refusal_cuts_off_is_explained_where_both_refuse_only() {
        const REFUSED: &str = "0@7<1.0:blocked";
        // Rule 1 is on a request's body, which has no end; the response is dropped.
        assert!(left_of(5, 4324, true, &["1@5>1.0:allowed", REFUSED], &[REFUSED]).is_empty());
        assert_eq!(left_of(5, 4324, true, &["1@5>1.0:allowed"], &[]).len(), 1, "nothing is refused");
        // The first request is lost.
        let (ours, refused) = ("2@7>1.0:allowed", "0@9<1.0:blocked");
        assert!(
            left_of(4, 2446, true, &[ours, refused, "flow:TCP:http"], &[refused, "flow:TCP:http"]).is_empty()
        );
        assert_eq!(left_of(4, 2446, true, &[ours, "flow:TCP:http"], &["flow:TCP:http"]).len(), 1);
        // Rubbish precedes a response, whose first line ends with its segment.
        let theirs = ["0@23<1.0:blocked", "drop@23:rules", "drop@24:flow.drop", "http", "fileinfo"];
        assert_eq!(left_of(6, 3914, true, &["0@25<1.0:blocked", "drop@25:rules"], &theirs), [""; 0]);
        let left = left_of(6, 3914, true, &["0@25<1.0:blocked", "drop@25:rules"], &theirs[..3]);
        assert_eq!(
            left,
            theirs[..3].iter().map(|line| format!("-{line}")).collect::<Vec<_>>(),
            "no record of it"
        );
    }

    #[test]
    fn what_is_read_behind_holes_is_explained_there_only() {
        // The first two segments of a request are swapped and acknowledged before they arrive; rules 1 and 3
        // are on the protocol.
        assert!(left_of(7, 4020, true, &["1@14<1.0:allowed", "3@6>1.0:allowed"], &[]).is_empty());
        assert_eq!(left_of(7, 4020, true, &["3@5>1.0:allowed"], &[]).len(), 1, "before it is filled");
        assert_eq!(left_of(7, 4020, true, &[], &["3@6>1.0:allowed"]).len(), 1, "a missed one");
        // The end of a chunked body is lost.
        const CHUNK: &str = "anomaly:INVALID_REQUEST_CHUNK_LEN";
        const GAP: &str = "anomaly:INVALID_GAP";
        assert!(left_of(7, 1932, false, &[GAP, CHUNK], &[GAP]).is_empty());
        assert_eq!(left_of(7, 1932, false, &[CHUNK], &[]), ["+anomaly:INVALID_REQUEST_CHUNK_LEN"]);
        assert_eq!(left_of(7, 1932, false, &[GAP], &[GAP, CHUNK]).len(), 1, "a missed one");
        // A keep-alive is within `chunked`.
        let told = "2@31<1.0:allowed";
        assert!(left_of(7, 3556, false, &[told], &[told, "2@33<1.0:allowed"]).is_empty());
        assert_eq!(left_of(7, 3556, false, &[], &["2@33<1.0:allowed"]).len(), 1, "not told before");
        // The first segment of a response is lost; rule 0 is on its body, rule 1 is not.
        let left = |alert| left_of(8, 2622, true, &[alert, "fileinfo"], &["fileinfo"]);
        assert!(left("0@12<1.0:allowed").is_empty());
        assert_eq!(left("1@12<1.0:allowed"), ["+1@12<1.0:allowed"]);
        // A part of such a response is another response for Suricata.
        const UNMATCHED: &str = "anomaly:UNABLE_TO_MATCH_RESPONSE_TO_REQUEST";
        assert!(left_of(8, 3580, false, &[], &["2@21<1.0:allowed", UNMATCHED, "http"]).is_empty());
        assert_eq!(left_of(8, 3580, false, &[], &["2@21<1.0:allowed"]).len(), 1);
    }

    #[test]
    fn late_answers_and_unknown_sides_are_explained_for_their_rules_only() {
        // The server's handshake is missing; rule 0 is on an absent body.
        assert!(left_of(4, 2958, false, &["0@6>1.0:allowed"], &["0@10>1.0:allowed"]).is_empty());
        assert_eq!(left_of(4, 2446, false, &["2@6>1.0:allowed"], &[]).len(), 1, "both sides are seen");
        // The server's first bytes fit no protocol; rule 2 is on an unknown client, rule 0 is not.
        let left = |alert| left_of(8, 4407, true, &[alert, "flow:TCP:failed"], &["flow:TCP:failed"]);
        assert!(left("2@4<1.0:allowed").is_empty());
        assert_eq!(left("0@4<1.0:allowed"), ["+0@4<1.0:allowed"]);
    }

    #[test]
    fn short_messages_unexpected_bodies_and_streams_are_explained_where_they_are_only() {
        // The client's first DNS message has five bytes; pair 4960 has no such message.
        let flow = "flow:TCP:dns~1.0";
        let theirs = ["drop@10:applayer.error", "drop@12:exception.policy.flow.drop", flow];
        assert!(left_of(9, 4952, true, &[flow], &theirs).is_empty());
        assert_eq!(left_of(9, 4952, true, &[flow], &["drop@10:rules", flow]), ["-drop@10:rules"]);
        assert_eq!(
            left_of(5, 1762, true, &["flow:TCP:dns"], &["drop@10:applayer.error", "flow:TCP:dns"]).len(),
            1
        );
        // A 304 response announces 38 bytes; rule 2 is on responses, rule 3 on requests.
        const UNEXPECTED: &str = "anomaly:RESPONSE_BODY_UNEXPECTED";
        let left = |alert| left_of(9, 4942, false, &[UNEXPECTED], &[UNEXPECTED, alert]);
        assert!(left("2@56<1.0:allowed").is_empty());
        assert_eq!(left("3@50>1.0:allowed"), ["-3@50>1.0:allowed"]);
        // All rules are on packets, rule 2 has only negated content; packet 6 is empty.
        assert!(left_of(9, 4672, false, &["2@6>1.0:allowed"], &[]).is_empty());
        assert_eq!(left_of(9, 4672, false, &["1@6>1.0:allowed"], &[]).len(), 1);
        assert_eq!(left_of(9, 4672, false, &["2@4>1.0:allowed"], &[]).len(), 1, "a payload");
    }
}
