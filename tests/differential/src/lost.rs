// SPDX-License-Identifier: Apache-2.0
//! Causes of differences where bytes are lost and connections go on; as in [`crate::causes`].

use crate::causes::Case;
use crate::finding::{Alert, Finding, FlowKey, What};
use crate::passage::{ahead, key, segment};
use bartizan_testkit::packet::{ACK, FIN, SYN};

/// A TCP header; a datagram whose first fragment has less of it is refused in prevention.
const HEADER: usize = 20;

/// A message's length and head, by which DNS over TCP is known.
const DNS_HEAD: u32 = 14;

/// Whether the server acknowledges first bytes of the client that nobody saw (they may come later).
pub(crate) fn begins_late(case: &Case<'_>, flow: FlowKey) -> bool {
    let Some(syn) = case.passage.before(flow, true, usize::MAX).find(|one| one.flags & SYN != 0) else {
        return false;
    };
    let begin = syn.seq.wrapping_add(1);
    for (_, packet) in case.passage.of_flow(flow) {
        let Some(one) = segment(packet).filter(|one| one.chksum_error == 0) else { continue };
        let refused = case.ips && packet.fragments.is_some_and(|each| each < HEADER);
        if packet.to_server {
            let end = one.seq.wrapping_add(one.load.len() as u32);
            if !refused && ahead(one.seq, begin) <= 0 && ahead(end, begin) > 0 {
                return false;
            }
        } else if one.flags & ACK != 0 && ahead(one.ack, begin) > 0 {
            return true;
        }
    }
    false
}

/// Whether the first byte of the client comes at all.
fn fills_its_beginning(case: &Case<'_>, flow: FlowKey) -> bool {
    let syn = case.passage.before(flow, true, usize::MAX).find(|one| one.flags & SYN != 0);
    let edge = case.passage.contiguous(flow, true, usize::MAX);
    syn.zip(edge).is_some_and(|(syn, edge)| ahead(edge, syn.seq.wrapping_add(1)) > 0)
}

/// Whether an alert is of a connection's end: of no packet, or of one behind the ends of both sides.
fn is_behind_the_end(case: &Case<'_>, alert: &Alert) -> bool {
    let Some((at, _)) = alert.frame.and_then(|frame| case.passage.packet(frame)) else { return true };
    let ended = |to_server| case.passage.before(alert.flow, to_server, at).any(|one| one.flags & FIN != 0);
    ended(true) && ended(false)
}

/// The parser of HTTP is told of first bytes that are missing; Suricata's begins with what it gets.
pub fn request_without_a_head(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const FOLLOWS: &[&str] = &[
        "http",
        "anomaly:INVALID_GAP",
        "anomaly:UNABLE_TO_MATCH_RESPONSE_TO_REQUEST",
        "anomaly:APPLAYER_DETECT_PROTOCOL_ONLY_ONE_DIRECTION",
        "anomaly:REQUEST_LINE_MISSING_PROTOCOL",
        "anomaly:REQUEST_LINE_UNKNOWN_METHOD_NO_PROTOCOL",
        "anomaly:REQUEST_LINE_UNKNOWN_METHOD",
        "anomaly:REQUEST_LINE_LEADING_WHITESPACE",
        "fileinfo",
    ];
    let is = match &finding.what {
        What::Record(name) => {
            FOLLOWS.contains(&name.as_str()) && case.concerns(finding, |flow| begins_late(case, flow))
        }
        // What is left of the request is parsed later than Suricata has it.
        What::Alert(alert) if finding.more => {
            let told = case.theirs.iter().any(|one| one.is_like(alert) && one.place() < alert.place());
            // An answer that stands at no request is inspected for itself.
            let answer = case.got.has("anomaly:UNABLE_TO_MATCH_RESPONSE_TO_REQUEST");
            let head = case.pair.rules.get(alert.rule)?.head.starts_with("http");
            case.ips
                && (head || case.is_on_http(alert) || case.is_on_body(alert))
                && begins_late(case, alert.flow)
                && (alert.to_server && (told || case.comes_earlier(finding)) || answer)
        }
        // The other program's, when its connection ends.
        What::Alert(alert) => {
            let head = case.pair.rules.get(alert.rule)?.head.starts_with("http");
            case.ips
                && is_behind_the_end(case, alert)
                && (head || case.is_on_http(alert) || case.is_on_body(alert))
                && begins_late(case, alert.flow)
                && case.comes_earlier(finding)
        }
        What::Drop(..) => false,
    };
    let alert = matches!(finding.what, What::Alert(_));
    // A body whose answer stands at no request, or whose request is none.
    let file = matches!(&finding.what, What::Record(name) if name == "fileinfo")
        && case.got.has("anomaly:UNABLE_TO_MATCH_RESPONSE_TO_REQUEST");
    ((finding.more || alert || file) && is && case.got.has("flow:TCP:http")).then_some(
        "where the first bytes of a connection are missing its parser of HTTP is told so, and what answers them stands at no request; \
         Suricata's begins with what it gets",
    )
}

/// Over a capture first bytes come that were acknowledged before: the parser has gone on, and they are part of no request. So the first request
/// is another one, and so are those that answers stand at.
pub fn request_that_came_late(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const UNMATCHED: &str = "anomaly:UNABLE_TO_MATCH_RESPONSE_TO_REQUEST";
    const VERSION: &[u8] = b" HTTP/1.";
    let What::Alert(alert) = &finding.what else { return None };
    let at = alert.frame.and_then(|frame| case.passage.packet(frame)).map_or(usize::MAX, |(at, _)| at);
    let said = case.passage.said_before(alert.flow, true, at);
    let only_one = said.windows(VERSION.len()).filter(|word| *word == VERSION).count() <= 1;
    let shifted = case
        .findings
        .iter()
        .any(|other| other.more && matches!(&other.what, What::Record(name) if name == UNMATCHED));
    // The name of an answer's file is that of its request.
    let concerned = if alert.to_server { only_one } else { shifted && case.asks(alert, &["file.name"]) };
    let is = case.ips
        && !finding.more
        && (case.is_on_http(alert) || case.is_on_body(alert) || case.asks(alert, &["file"]))
        && concerned
        && case.got.has("anomaly:INVALID_GAP")
        && begins_late(case, alert.flow)
        && fills_its_beginning(case, alert.flow);
    is.then_some(
        "over a capture in prevention first bytes that were acknowledged before they came are part of no request; Suricata waits for them",
    )
}

/// Passively a hole ends TLS of its direction only.
pub fn other_side_of_a_hole(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const TLS: &[&str] = &["tls.", "tls_", "ssl_", "ja3", "ja4"];
    let is = match &finding.what {
        What::Record(name) => {
            let hole = |flow| case.passage.has_hole(flow, true) || case.passage.has_hole(flow, false);
            name == "tls" && case.concerns(finding, hole)
        }
        What::Alert(alert) => case.asks(alert, TLS) && case.passage.has_hole(alert.flow, !alert.to_server),
        What::Drop(..) => false,
    };
    (!case.ips && finding.more && is && case.got.has("flow:TCP:tls")).then_some(
        "passively the other side of a TLS connection is read on behind a hole; Suricata gives up both",
    )
}

/// In prevention a session of TLS whose first bytes were acknowledged before they came cannot be inspected.
pub fn session_without_a_head(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const REASON: &str = "a TLS session whose first bytes were acknowledged before they came is refused: its parser cannot go on; Suricata leaves it alone";
    let What::Drop(Some(frame), reason) = &finding.what else {
        // Of what is refused there is no record.
        let What::Record(name) = &finding.what else { return None };
        let refused =
            |one: &Finding| matches!(one.what, What::Drop(..)) && session_without_a_head(case, one).is_some();
        let is = !finding.more && name == "tls" && case.findings.iter().any(refused);
        return is.then_some(REASON);
    };
    let flow = key(case.passage.packet(*frame)?.1);
    let because = matches!(reason.as_str(), "applayer.error" | "exception.policy.flow.drop");
    (case.ips && finding.more && because && begins_late(case, flow) && case.got.has("flow:TCP:tls"))
        .then_some(REASON)
}

/// Suricata finds no further messages of a DNS connection behind one that was lost in part.
pub fn messages_behind_a_hole(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let hole = |flow| case.passage.has_hole(flow, true) || case.passage.has_hole(flow, false);
    let is = match &finding.what {
        What::Record(name) if name == "anomaly:APPLAYER_DETECT_PROTOCOL_ONLY_ONE_DIRECTION" => {
            let headless = |flow| case.passage.first(flow, true, DNS_HEAD).len() < DNS_HEAD as usize;
            finding.more && case.concerns(finding, |flow| hole(flow) && headless(flow))
        }
        // What came when it was acknowledged already is refused by live prevention; over a capture the parser has gone on.
        What::Record(name) if name == "dns" && !finding.more => {
            case.ips && case.concerns(finding, |flow| begins_late(case, flow))
        }
        What::Record(name) => finding.more && name == "dns" && case.concerns(finding, hole),
        // The stream is shown when a message is parsed.
        What::Alert(alert) => {
            let of_dns = case.pair.rules.get(alert.rule)?.head.starts_with("dns ");
            (of_dns || !case.is_on_buffers(alert)) && hole(alert.flow) && case.comes_earlier(finding)
        }
        What::Drop(..) => false,
    };
    (is && case.got.has("flow:TCP:dns")).then_some(
        "DNS over TCP is read on behind a message that was lost in part; Suricata finds no further ones",
    )
}

#[cfg(test)]
mod tests {
    use crate::explained::left_of;

    #[test]
    fn what_is_lost_explains_what_follows_from_it_only() {
        const GAP: &str = "anomaly:INVALID_GAP";
        // The first request is lost; pair 744 is its scene.
        assert!(left_of(3, 748, false, &[GAP, "flow:TCP:http"], &["flow:TCP:http"]).is_empty());
        assert_eq!(left_of(3, 748, false, &[], &[GAP]), ["-anomaly:INVALID_GAP"]);
        assert_eq!(
            left_of(3, 744, false, &[GAP, "flow:TCP:http"], &["flow:TCP:http"]),
            ["+anomaly:INVALID_GAP"]
        );
        // A segment of the client's hello is lost; rule 1 is on the server's certificate.
        let tls = &["flow:TCP:tls"];
        assert!(left_of(3, 566, false, &["tls", "1@98<1.0:allowed", "flow:TCP:tls"], tls).is_empty());
        assert_eq!(left_of(3, 566, true, &["tls", "flow:TCP:tls"], tls), ["+tls"]);
        assert_eq!(
            left_of(3, 566, false, &["2@98>1.0:allowed", "flow:TCP:tls"], tls),
            ["+2@98>1.0:allowed"],
            "its own side"
        );
        assert_eq!(left_of(3, 560, false, &["tls", "flow:TCP:tls"], tls), ["+tls"], "nothing is lost");
        // The end of the first message is lost.
        let dns = &["flow:TCP:dns"];
        assert!(left_of(3, 678, true, &["dns", "flow:TCP:dns"], dns).is_empty());
        assert_eq!(left_of(3, 678, true, dns, &["dns", "flow:TCP:dns"]), ["-dns"]);
        // The first bytes of the client are acknowledged and never come, or come later; packets 17 and 76 end the connections.
        let http = "flow:TCP:http";
        assert!(left_of(42, 204, true, &["0@5>1.0:allowed", http], &["0@17>1.0:allowed", http]).is_empty());
        assert_eq!(
            left_of(42, 204, true, &[GAP, http], &["0@17>1.0:allowed", http]),
            ["-0@17>1.0:allowed"],
            "never told"
        );
        assert!(left_of(41, 1868, true, &[GAP, http], &["2@76>1.0:allowed", http]).is_empty());
        assert_eq!(left_of(41, 1868, true, &[http], &["2@76>1.0:allowed", http]), ["-2@76>1.0:allowed"]);
        assert!(left_of(72, 554, true, &[GAP, http], &["3@18>1.0:allowed", http]).is_empty());
        assert_eq!(left_of(72, 554, false, &[GAP, http], &["3@18>1.0:allowed", http]), ["-3@18>1.0:allowed"]);
        assert_eq!(
            left_of(72, 552, true, &[GAP, http], &["3@7>1.0:allowed", http]),
            ["-3@7>1.0:allowed", "+anomaly:INVALID_GAP"],
            "nothing came late"
        );
        // The second answer's file has the name of a request that stands beside it in Suricata.
        const UNMATCHED: &str = "anomaly:UNABLE_TO_MATCH_RESPONSE_TO_REQUEST";
        assert!(left_of(36, 782, true, &[GAP, UNMATCHED, http], &["1@38<1.0:allowed", http]).is_empty());
        assert_eq!(
            left_of(36, 782, true, &[GAP, UNMATCHED, http], &["3@38<1.0:allowed", http]),
            ["-3@38<1.0:allowed"],
            "a field of the answer itself"
        );
    }
}
