// SPDX-License-Identifier: Apache-2.0
//! Causes of differences where bytes are lost and connections go on, or begin midstream; as in
//! [`crate::causes`].

use crate::causes::{Case, REQUESTS};
use crate::finding::{Alert, Finding, FlowKey, What};
use crate::passage::{ahead, key, segment};
use crate::text::looked_for;
use bartizan_testkit::packet::{ACK, FIN, SYN};

/// Bytes of a TCP header; prevention drops a datagram whose first fragment has less of it.
const HEADER: usize = 20;

/// Bytes of a message's length and head, by which DNS over TCP is detected.
const DNS_HEAD: u32 = 14;

/// Whether the server acknowledges first bytes of the client before they are seen (they may arrive later).
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

/// Whether the first byte of the client arrives at all.
fn fills_its_beginning(case: &Case<'_>, flow: FlowKey) -> bool {
    let syn = case.passage.before(flow, true, usize::MAX).find(|one| one.flags & SYN != 0);
    let edge = case.passage.contiguous(flow, true, usize::MAX);
    syn.zip(edge).is_some_and(|(syn, edge)| ahead(edge, syn.seq.wrapping_add(1)) > 0)
}

/// Whether an alert belongs to a connection's end: it has no packet, or one after the FINs of both sides.
fn is_behind_the_end(case: &Case<'_>, alert: &Alert) -> bool {
    let Some((at, _)) = alert.frame.and_then(|frame| case.passage.packet(frame)) else { return true };
    let ended = |to_server| case.passage.before(alert.flow, to_server, at).any(|one| one.flags & FIN != 0);
    ended(true) && ended(false)
}

/// The HTTP parser knows of missing first bytes; Suricata's begins with the first bytes that it gets.
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
    // Whether a response has no body depends on its request.
    const OF_ANSWERS: &str = "anomaly:RESPONSE_BODY_UNEXPECTED";
    let unmatched = case.got.has("anomaly:UNABLE_TO_MATCH_RESPONSE_TO_REQUEST");
    let is = match &finding.what {
        What::Record(name) => {
            (FOLLOWS.contains(&name.as_str()) || name == OF_ANSWERS && unmatched)
                && case.concerns(finding, |flow| begins_late(case, flow))
        }
        // The rest of the request is parsed later than in Suricata. A message at another transaction, or at
        // none, has other parts, and lacks others.
        What::Alert(alert)
            if case.asks(alert, &["absent"])
                && (unmatched || case.got.has("anomaly:INVALID_GAP"))
                && (case.is_on_http(alert) || case.is_on_body(alert)) =>
        {
            begins_late(case, alert.flow)
        }
        What::Alert(alert) if finding.more => {
            let told = case.theirs.iter().any(|one| one.is_like(alert) && one.place() < alert.place());
            // A response without a request is inspected by itself.
            let answer = unmatched;
            let head = case.pair.rules.get(alert.rule)?.head.starts_with("http");
            case.ips
                && (head || case.is_on_http(alert) || case.is_on_body(alert))
                && begins_late(case, alert.flow)
                && (alert.to_server && (told || case.comes_earlier(finding) || case.is_refused_behind(alert))
                    || answer)
        }
        // Suricata's alert, when its connection ends.
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
    // A body whose response has no request, or an invalid one.
    let file =
        unmatched && matches!(&finding.what, What::Record(name) if name == "fileinfo" || name == OF_ANSWERS);
    ((finding.more || alert || file) && is && case.got.has("flow:TCP:http")).then_some(
        "where the first bytes of a connection are missing its parser of HTTP is told so, and what answers them stands at no request; \
         Suricata's begins with what it gets",
    )
}

/// Passively a hole ends TLS parsing of its direction only.
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
    // Suricata evaluates a session that it has given up once more when the connection ends, with the flow's
    // counters of then.
    let at_the_end = || match &finding.what {
        What::Alert(alert) => {
            alert.frame.is_none() && case.asks(alert, &["stream_size:", "flow.pkts", "flow.bytes"])
        }
        _ => false,
    };
    let is = is && (finding.more || at_the_end());
    (!case.ips && is && case.got.has("flow:TCP:tls")).then_some(
        "passively the other side of a TLS connection is read on behind a hole; Suricata gives up both",
    )
}

/// Passively the stream opposite a hole in a TLS connection is inspected record by record; Suricata inspects
/// the rest when the connection ends.
pub fn stream_beside_a_hole(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let hole = |alert: &Alert| {
        let (at, _) = alert.frame.and_then(|frame| case.passage.packet(frame))?;
        let (flow, side) = (alert.flow, !alert.to_server);
        let edge = case.passage.contiguous(flow, side, at)?;
        let mut before = case.passage.before(flow, side, at);
        before.any(|one| !one.load.is_empty() && ahead(one.seq, edge) > 0).then_some(())
    };
    let ends = |alert: &Alert| {
        let segment = alert.frame.and_then(|frame| case.passage.segment(frame));
        segment.is_none_or(|(_, _, one)| one.flags & FIN != 0)
    };
    let told = |one: &&Alert| one.is_like(alert) && one.place() < alert.place() && hole(one).is_some();
    let is = !case.ips
        && case.pair.rules.get(alert.rule)?.head.starts_with("tls ")
        && !case.is_on_buffers(alert)
        && hole(alert).is_some()
        && (finding.more || ends(alert) && case.ours.iter().any(|one| told(&one)));
    (is && case.got.has("flow:TCP:tls")).then_some(
        "passively the stream beside a hole of a TLS connection's other side is shown record by record; Suricata shows it when the connection ends",
    )
}

/// First bytes are missing and no protocol is known: Suricata repeats the event of the hole with each packet,
/// and at the end.
pub fn hole_told_again(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let unknown = ["flow:TCP:-", "flow:TCP:failed"].iter().any(|name| case.got.has(name));
    let is = !case.ips
        && !finding.more
        && unknown
        && case.asks(alert, &["stream-event:reassembly_seq_gap"])
        && case.passage.first(alert.flow, alert.to_server, 1).is_empty()
        && case.passage.said(alert.flow, alert.to_server).len() > 1;
    is.then_some(
        "first bytes that are missing are an event once; where no protocol is known Suricata tells it with each packet, and at the end",
    )
}

/// In prevention a TLS session whose first bytes were acknowledged before they arrived cannot be inspected.
pub fn session_without_a_head(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const REASON: &str = "a TLS session whose first bytes were acknowledged before they came is refused: its parser cannot go on; Suricata leaves it alone";
    let What::Drop(Some(frame), reason) = &finding.what else {
        // Dropped traffic has no record.
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

/// Suricata finds no further messages of a DNS connection after one that was partly lost.
pub fn messages_behind_a_hole(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let hole = |flow| case.passage.has_hole(flow, true) || case.passage.has_hole(flow, false);
    let is = match &finding.what {
        What::Record(name) if name == "anomaly:APPLAYER_DETECT_PROTOCOL_ONLY_ONE_DIRECTION" => {
            let headless = |flow| case.passage.first(flow, true, DNS_HEAD).len() < DNS_HEAD as usize;
            finding.more && case.concerns(finding, |flow| hole(flow) && headless(flow))
        }
        What::Record(name) => finding.more && name == "dns" && case.concerns(finding, hole),
        // The stream is inspected when a message is parsed.
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

/// In prevention first bytes that arrive after their acknowledgment are read together with the following
/// data, before the server answers.
pub fn filled_before_the_protocol(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const RECORDS: [&str; 5] =
        ["tls", "http", "dns", "fileinfo", "anomaly:APPLAYER_DETECT_PROTOCOL_ONLY_ONE_DIRECTION"];
    const KNOWN: [&str; 3] = ["flow:TCP:tls", "flow:TCP:http", "flow:TCP:dns"];
    const PARSED: [&str; 3] = ["tls ", "http", "dns "];
    let filled = |flow: FlowKey, at: usize| {
        let first = case.passage.of_flow(flow).find_map(|(_, packet)| {
            segment(packet).filter(|one| !packet.to_server && one.flags & (ACK | SYN) == ACK)
        });
        let edge = || case.passage.contiguous(flow, true, at);
        begins_late(case, flow)
            && first.is_some_and(|one| edge().is_some_and(|edge| ahead(edge, one.ack) >= 0))
    };
    let is = match &finding.what {
        What::Alert(alert) => {
            let early = |one: &Finding| match &one.what {
                What::Alert(ours) if one.more && ours.is_like(alert) => {
                    let packet = ours.frame.and_then(|frame| case.passage.packet(frame));
                    packet.is_some_and(|(at, _)| filled(ours.flow, at + 1))
                }
                _ => false,
            };
            let head = &case.pair.rules.get(alert.rule)?.head;
            let parsed = case.is_on_buffers(alert) || PARSED.iter().any(|name| head.starts_with(name));
            // Suricata never reports the protocol of a side that it has given up.
            let asks = || case.asks(alert, &["app-layer-protocol:"]);
            let place = || alert.frame.and_then(|frame| case.passage.packet(frame)).map(|(at, _)| at + 1);
            alert.to_server
                && parsed
                && (finding.more && early(finding)
                    || case.comes_earlier(finding) && case.findings.iter().any(early))
                || finding.more && asks() && place().is_some_and(|place| filled(alert.flow, place))
        }
        What::Record(name) => {
            let told = finding.more && (RECORDS.contains(&name.as_str()) || KNOWN.contains(&name.as_str()));
            let unknown = !finding.more && matches!(name.as_str(), "flow:TCP:-" | "flow:TCP:failed");
            (told || unknown)
                && KNOWN.iter().any(|known| case.got.has(known))
                && case.concerns(finding, |flow| filled(flow, usize::MAX))
        }
        What::Drop(..) => false,
    };
    (case.ips && is).then_some(
        "in prevention first bytes that come late are read at once with what lies behind them; Suricata waits for the server to tell the \
         protocol, and for the end of a TLS session",
    )
}

/// Whether a rule matches the data before a request that has arrived by a packet: that data has all its
/// contents. With a transform the contents say nothing, and any data suffices.
fn is_about_what_came(
    case: &Case<'_>,
    alert: &Alert,
    (from, seq): (usize, u32),
    until: usize,
) -> Option<bool> {
    let of_client = case
        .passage
        .of_flow(alert.flow)
        .filter(|(at, packet)| packet.to_server && (from..until).contains(at));
    let loads = of_client.filter_map(|(_, packet)| segment(packet).filter(|one| ahead(one.seq, seq) < 0));
    let data: Vec<u8> = loads.flat_map(|one| one.load.to_ascii_lowercase()).collect();
    let options = &case.pair.rules.get(alert.rule)?.options;
    let transforms = options
        .iter()
        .any(|option| crate::usual::TRANSFORMS.iter().any(|transform| option.starts_with(transform)));
    let stands =
        |what: &Vec<u8>| data.windows(what.len().max(1)).any(|piece| piece.eq_ignore_ascii_case(what));
    let all = options.iter().filter_map(|option| looked_for(option)).all(|what| stands(&what));
    Some(!data.is_empty() && (transforms || all))
}

/// In prevention a request after first bytes that its receiver acknowledged is parsed before it leaves; data
/// that fills the hole later belongs to no message, and before real receivers it is dropped.
pub fn request_before_what_fills(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let behind = |flow: FlowKey, until: usize| {
        case.passage.of_flow(flow).find_map(|(at, packet)| {
            let one = segment(packet).filter(|_| packet.to_server && at < until)?;
            let edge = case.passage.contiguous(flow, true, at)?;
            (REQUESTS.iter().any(|method| one.load.starts_with(method)) && ahead(one.seq, edge) > 0)
                .then_some((at, one.seq))
        })
    };
    let is = match &finding.what {
        What::Alert(alert) => {
            let packet = alert.frame.and_then(|frame| case.passage.packet(frame));
            let until = packet.map_or(usize::MAX, |(at, _)| at);
            let looks = case.is_on_http(alert) || case.is_on_body(alert);
            let is_about = |place| is_about_what_came(case, alert, place, until) == Some(true);
            alert.to_server
                && looks
                && begins_late(case, alert.flow)
                && behind(alert.flow, until).is_some_and(is_about)
        }
        // Records of the late request.
        What::Record(name) => {
            name == "anomaly:HOST_HEADER_AMBIGUOUS"
                && case.concerns(finding, |flow| {
                    begins_late(case, flow)
                        && behind(flow, usize::MAX).is_some()
                        && fills_its_beginning(case, flow)
                })
        }
        What::Drop(..) => false,
    };
    (case.ips && !finding.more && is).then_some(
        "in prevention a request behind first bytes that were acknowledged is parsed before it leaves; what fills the hole late is no message's",
    )
}

/// Ports with a probe in Suricata: port, bytes of the client that the probe needs, and bytes of the server.
const PROBES: [(u16, i32, i32); 3] = [(53, 15, 15), (80, 25, 9), (443, 3, 4)];

fn midstream(case: &Case<'_>) -> bool {
    crate::engine::SETTINGS.get(case.pair.setting).is_some_and(|one| one.contains(&"stream.midstream=true"))
}

/// The sequence number before a direction's first byte.
fn begin(case: &Case<'_>, flow: FlowKey, to_server: bool) -> Option<u32> {
    let syn = case.passage.before(flow, to_server, usize::MAX).find(|one| one.flags & SYN != 0);
    let acked = || {
        let other = case.passage.before(flow, !to_server, usize::MAX).find(|one| one.flags & ACK != 0)?;
        let own = case.passage.before(flow, to_server, usize::MAX).next()?;
        Some(if ahead(own.seq, other.ack) < 0 { own.seq } else { other.ack })
    };
    syn.map(|one| one.seq.wrapping_add(1)).or_else(acked)
}

/// Whether, after the packets of a flow up to `until`, the server's probe has an answer, and whether the
/// client's has none. In passive mode acknowledged data counts, in prevention received data.
fn probes(case: &Case<'_>, flow: FlowKey, until: usize) -> Option<(bool, bool)> {
    let (_, first) = case.passage.of_flow(flow).next()?;
    let (_, of_client, of_server) = PROBES.into_iter().find(|(port, ..)| *port == first.port)?;
    let seen = |to_server: bool| {
        let begin = begin(case, flow, to_server);
        let edge = |one: &&_| -> i32 {
            let one: &bartizan_testkit::packet::Segment = one;
            let seq = if case.ips { one.seq.wrapping_add(one.load.len() as u32) } else { one.ack };
            begin.map_or(0, |begin| ahead(seq, begin))
        };
        // Data sent by a direction, or acknowledged by the other one.
        let from = to_server == case.ips;
        case.passage
            .before(flow, from, until + 1)
            .filter(|one| one.flags & (ACK | SYN) == ACK)
            .map(|one| edge(&one))
            .max()
            .unwrap_or(0)
    };
    Some((seen(false) >= of_server, seen(true) < of_client))
}

/// Whether the server's probe answers before the client's, or the flow begins with data of its server.
fn is_answered_first(case: &Case<'_>, flow: FlowKey) -> bool {
    let met = case.passage.of_flow(flow).next().is_some_and(|(_, packet)| {
        !packet.to_server && segment(packet).is_some_and(|one| one.flags & SYN == 0)
    });
    let first = |(at, _)| probes(case, flow, at).is_some_and(|(server, client)| server && (client || met));
    case.passage.of_flow(flow).any(first)
}

/// If flows may begin midstream, Suricata's detection of the client's side does not end once the server's
/// side was probed.
pub(crate) fn answer_before_a_probe(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Record(name) = &finding.what else { return None };
    let is = matches!((finding.more, name.as_str()), (true, "flow:TCP:failed") | (false, "flow:TCP:-"))
        && midstream(case)
        && case.concerns(finding, |flow| is_answered_first(case, flow));
    is.then_some(
        "detection ends at ports with a probe as well where flows may begin in the middle; Suricata's does not once the server has spoken",
    )
}

/// With midstream flows, Suricata does not take unrecognised client data for a request when the server's
/// answer shows the protocol.
pub(crate) fn no_request_before_an_answer(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const ONE_SIDE: &str = "anomaly:APPLAYER_DETECT_PROTOCOL_ONLY_ONE_DIRECTION";
    const METHOD: u32 = 20;
    let told = case
        .findings
        .iter()
        .any(|one| one.more && matches!(&one.what, What::Record(name) if name == ONE_SIDE));
    // The first word is not a method.
    let unlike = |flow: FlowKey| {
        let first = case.passage.first(flow, true, METHOD);
        let word: Vec<u8> = first.iter().copied().take_while(|byte| *byte != b' ').collect();
        first.len() as u32 == METHOD && !word.iter().all(u8::is_ascii_uppercase)
    };
    let at_probe = |flow: FlowKey| {
        let (_, first) = case.passage.of_flow(flow).next()?;
        PROBES.iter().any(|(port, ..)| *port == first.port).then_some(())
    };
    let of = |flow: FlowKey| unlike(flow) && at_probe(flow).is_some();
    let is = match &finding.what {
        What::Record(name) if finding.more => {
            (name == ONE_SIDE || name.starts_with("anomaly:REQUEST_") || name == "fileinfo")
                && case.concerns(finding, of)
        }
        What::Record(name) => {
            matches!(name.as_str(), "http" | "fileinfo" | "anomaly:UNABLE_TO_MATCH_RESPONSE_TO_REQUEST")
                && case.concerns(finding, of)
        }
        // Suricata's alerts come when the connection ends.
        What::Alert(alert) => {
            (finding.more || is_behind_the_end(case, alert) && case.comes_earlier(finding))
                && alert.to_server
                && case.is_on_http(alert)
                && of(alert.flow)
        }
        What::Drop(..) => false,
    };
    (told && midstream(case) && is && case.got.has("flow:TCP:http")).then_some(
        "what no pattern knows is read as requests when the answer tells the protocol; where flows may begin in the middle Suricata does not",
    )
}

/// A session whose hello has an unlisted version is parsed further, with an event; Suricata's parser fails at
/// the next record.
pub(crate) fn version_that_no_list_has(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const EVENT: &str = "anomaly:INVALID_RECORD_VERSION";
    // Header of a record, header of a hello, and its version.
    const HELLO: u32 = 10;
    let told =
        case.findings.iter().any(|one| one.more && matches!(&one.what, What::Record(name) if name == EVENT));
    let odd = |flow: FlowKey| {
        [true, false].into_iter().any(|side| {
            let first = case.passage.first(flow, side, HELLO);
            matches!(first.as_slice(), [0x16, 3, _, _, _, 1 | 2, _, _, _, major] if *major != 3)
        })
    };
    let is = match &finding.what {
        What::Record(name) => finding.more && name == EVENT && case.concerns(finding, odd),
        What::Drop(Some(_), reason) => {
            !finding.more
                && matches!(reason.as_str(), "applayer.error" | "exception.policy.flow.drop")
                && case.concerns(finding, odd)
        }
        What::Drop(None, _) | What::Alert(_) => false,
    };
    (case.ips && told && is && case.got.has("flow:TCP:tls")).then_some(
        "a TLS session whose hello has an unknown version is read on, with an event; Suricata's parser fails",
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
        // The first bytes of the client are acknowledged and never arrive, or arrive later; packets 17 and 76
        // end the connections.
        let http = "flow:TCP:http";
        assert!(left_of(42, 204, true, &["0@5>1.0:allowed", http], &["0@17>1.0:allowed", http]).is_empty());
        // Late data is read: a rule on the request, or on the file name of a response, has all its data.
        const UNMATCHED: &str = "anomaly:UNABLE_TO_MATCH_RESPONSE_TO_REQUEST";
        assert_eq!(
            left_of(41, 1868, true, &[GAP, http], &["2@76>1.0:allowed", http])[0],
            "-2@76>1.0:allowed"
        );
        assert_eq!(left_of(72, 554, true, &[GAP, http], &["3@18>1.0:allowed", http])[0], "-3@18>1.0:allowed");
        let left = left_of(36, 782, true, &[GAP, UNMATCHED, http], &["1@38<1.0:allowed", http]);
        assert_eq!(left[0], "-1@38<1.0:allowed");
        // The client's first bytes arrive with packet 6, after their acknowledgment; rule 0 is on the query.
        let (ours, theirs) = (["0@6>1.0:blocked", "drop@6:rules"], ["0@16>1.0:blocked", "drop@16:rules"]);
        assert!(left_of(36, 2084, true, &ours, &theirs).is_empty());
        assert_eq!(left_of(36, 2084, true, &[], &theirs), ["-0@16>1.0:blocked", "-drop@16:rules"]);
        assert_eq!(left_of(36, 2084, true, &["0@5>1.0:allowed"], &["0@16>1.0:allowed"]).len(), 2);
        assert!(left_of(2, 1778, true, &["tls", "flow:TCP:tls"], &["flow:TCP:tls"]).is_empty());
        assert_eq!(left_of(2, 1776, true, &["tls", "flow:TCP:tls"], &["flow:TCP:tls"]), ["+tls"]);
        // A request follows the one that was acknowledged before it arrived; rule 1 is on requests.
        assert!(left_of(54, 174, true, &[], &["1@14>1.0:allowed"]).is_empty());
        assert_eq!(left_of(54, 174, false, &[], &["1@14>1.0:allowed"]), ["-1@14>1.0:allowed"]);
        assert_eq!(left_of(54, 168, true, &[], &["1@14>1.0:allowed"]), ["-1@14>1.0:allowed"]);
        assert_eq!(left_of(54, 174, true, &[], &["1@4>1.0:allowed"]), ["-1@4>1.0:allowed"], "before it");
        assert_eq!(
            left_of(54, 174, true, &[], &["3@14>1.0:allowed"]),
            ["-3@14>1.0:allowed"],
            "about the request behind it"
        );
    }

    #[test]
    fn detection_where_flows_may_begin_in_the_middle_is_explained_at_ports_with_a_probe_only() {
        let (failed, open) = (["flow:TCP:failed"], ["flow:TCP:-"]);
        let both = ["-flow:TCP:-", "+flow:TCP:failed"];
        // The server sends first at port 53; at port 80 no data of the client is acknowledged.
        assert!(left_of(32, 728, false, &failed, &open).is_empty());
        assert_eq!(left_of(32, 728, false, &open, &failed).len(), 2);
        assert!(left_of(45, 2270, false, &failed, &open).is_empty());
        // Flows may not begin midstream; a port without a probe.
        assert_eq!(left_of(1, 600, false, &failed, &open), both);
        assert_eq!(left_of(32, 1854, false, &failed, &open), both);
        // The client begins with rubbish; pair 968 is its scene.
        const ONE_SIDE: &str = "anomaly:APPLAYER_DETECT_PROTOCOL_ONLY_ONE_DIRECTION";
        const UNMATCHED: &str = "anomaly:UNABLE_TO_MATCH_RESPONSE_TO_REQUEST";
        let (ours, theirs) = ([ONE_SIDE, "flow:TCP:http"], [UNMATCHED, "http", "flow:TCP:http"]);
        assert!(left_of(37, 970, false, &ours, &theirs).is_empty());
        assert_eq!(left_of(37, 968, false, &ours, &theirs).len(), 3);
        assert_eq!(left_of(37, 970, false, &["flow:TCP:http"], &theirs).len(), 2, "it is not read");
        // The first request arrives after the second one, and names two hosts.
        const HOSTS: &str = "anomaly:HOST_HEADER_AMBIGUOUS";
        assert!(left_of(95, 1162, true, &[], &[HOSTS]).is_empty());
        assert_eq!(left_of(95, 1162, false, &[], &[HOSTS]).len(), 1);
        assert_eq!(left_of(95, 1160, true, &[], &[HOSTS]).len(), 1, "the scene");
        // Rule 1 is on the head of requests, which Suricata reads when the connection ends.
        let late = ["1@->1.0:allowed", "flow:TCP:http"];
        assert!(left_of(82, 1708, false, &["1@12>1.0:allowed", ONE_SIDE, "flow:TCP:http"], &late).is_empty());
        assert_eq!(left_of(82, 1708, false, &[ONE_SIDE, "flow:TCP:http"], &late), ["-1@->1.0:allowed"]);
    }

    #[test]
    fn versions_and_heads_explain_what_they_bring_only() {
        // The first copy of the hello's version is rubbish; pair 48 is its scene.
        let ours = ["anomaly:INVALID_RECORD_VERSION", "flow:TCP:tls"];
        let theirs = ["drop@9:applayer.error", "flow:TCP:tls"];
        assert!(left_of(38, 52, true, &ours, &theirs).is_empty());
        assert_eq!(left_of(38, 48, true, &ours, &theirs).len(), 2);
        assert_eq!(left_of(38, 52, true, &ours[1..], &theirs), ["-drop@9:applayer.error"], "it is not told");
        // The server begins with rubbish, which has a line that a segment ends with. Pair 2344 is its scene.
        const UNMATCHED: &str = "anomaly:UNABLE_TO_MATCH_RESPONSE_TO_REQUEST";
        let (ours, theirs) = (["flow:TCP:http"], [UNMATCHED, "http", "fileinfo", "flow:TCP:http"]);
        assert!(left_of(51, 2350, false, &ours, &theirs).is_empty());
        assert_eq!(left_of(51, 2344, false, &ours, &theirs).len(), 3);
        // Rule 0 is on the body, which is all data of the server.
        assert!(left_of(50, 1614, false, &["0@-<1.0:allowed", "fileinfo"], &["fileinfo"]).is_empty());
        assert_eq!(left_of(50, 1614, false, &["fileinfo"], &["0@-<1.0:allowed", "fileinfo"]).len(), 1);
        assert_eq!(left_of(50, 1608, false, &["0@-<1.0:allowed", "fileinfo"], &["fileinfo"]).len(), 1);
    }
}
