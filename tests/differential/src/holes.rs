// SPDX-License-Identifier: Apache-2.0
//! Causes of differences that depend on the arrival of bytes: some are missing, cut in the middle, or
//! acknowledged out of order; as in [`crate::causes`].

use crate::causes::Case;
use crate::finding::{Alert, Finding, FlowKey, What};
use crate::pair::Packet;
use crate::passage::{ahead, key, segment};
use bartizan_testkit::packet::{ACK, FIN, Segment};

/// Suricata parses no response before its request: if the response is acknowledged first, it takes the
/// client's encrypted data for the end of the handshake, and the certificate comes too late for a record.
pub(crate) fn certificate_behind_the_end(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const ENCRYPTED: &[u8] = &[0x17, 3];
    let crossed = |flow: FlowKey| {
        let said = case.passage.said(flow, true);
        answered_first(case, flow) && said.windows(ENCRYPTED.len()).any(|two| two == ENCRYPTED)
    };
    let is = match &finding.what {
        What::Record(name) => name == "tls" && case.concerns(finding, crossed),
        What::Alert(alert) => {
            !alert.to_server && case.asks(alert, &["tls", "ja3", "ja4"]) && crossed(alert.flow)
        }
        What::Drop(..) => false,
    };
    (!case.ips && finding.more && is)
        .then_some("a certificate that is acknowledged before the client's hello is looked at and has its record; Suricata has ended the handshake by then")
}

/// Passively this program parses a response that is acknowledged first before its request: the state is then
/// that of the request.
pub(crate) fn state_of_the_question(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    // The condition holds for the response's state, and not for the request's.
    let of_answer = |option: &String| {
        let Some(states) = option.strip_prefix("ssl_state:") else { return false };
        let (wanted, states) = states.strip_prefix('!').map_or((true, states), |states| (false, states));
        let holds = |state: &str| states.split('|').any(|one| one.trim() == state) == wanted;
        !holds("client_hello") && (holds("server_hello") || holds("server_keyx"))
    };
    let is = !case.ips
        && !finding.more
        && !alert.to_server
        && case.pair.rules.get(alert.rule)?.options.iter().any(of_answer)
        && answered_first(case, alert.flow);
    is.then_some("a TLS answer that is acknowledged before its question is parsed first, and `ssl_state` is what the question says then; Suricata parses the question first")
}

/// Whether the server's first data is acknowledged before the client's.
fn answered_first(case: &Case<'_>, flow: FlowKey) -> bool {
    let asked = case.passage.of_flow(flow).find_map(|(_, packet)| data(packet, true));
    let answered = case.passage.of_flow(flow).find_map(|(_, packet)| data(packet, false));
    let (Some(asked), Some(answered)) = (asked, answered) else { return false };
    // Index of the packet in which each side first acknowledges data of the other.
    let acknowledged = |by_client: bool, seq: u32| {
        case.passage.of_flow(flow).find_map(|(at, packet)| {
            let one = segment(packet).filter(|_| packet.to_server == by_client)?;
            (one.flags & ACK != 0 && ahead(one.ack, seq) > 0).then_some(at)
        })
    };
    let both = acknowledged(true, answered.seq).zip(acknowledged(false, asked.seq));
    both.is_some_and(|(answer, question)| answer < question)
}

/// Passively a response that is acknowledged first stands alone; Suricata does not inspect the body of the
/// request that follows.
pub(crate) fn request_behind_its_answer(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    // Prevention reads data on arrival.
    let came = |to_server: bool| {
        case.passage.of_flow(alert.flow).find_map(|(at, packet)| data(packet, to_server).map(|_| at))
    };
    let first = || came(false).zip(came(true)).is_some_and(|(answer, question)| answer < question);
    let is = finding.more
        && alert.to_server
        && (case.is_on_body(alert) || case.asks(alert, &["file."]))
        && (if case.ips { first() } else { answered_first(case, alert.flow) || first() })
        && case.got.has("anomaly:UNABLE_TO_MATCH_RESPONSE_TO_REQUEST");
    is.then_some("the body of a request that is read behind its answer is looked at; Suricata passes over it")
}

/// A packet's segment, if it has data and this direction.
fn data(packet: &Packet, to_server: bool) -> Option<&Segment> {
    segment(packet).filter(|one| packet.to_server == to_server && !one.load.is_empty())
}

/// The last bytes before a FIN are missing: Suricata reports a hole to parsers only when data follows it.
pub(crate) fn hole_before_the_end(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let edge = case.passage.contiguous(alert.flow, alert.to_server, usize::MAX)?;
    let beyond: Vec<_> = case
        .passage
        .before(alert.flow, alert.to_server, usize::MAX)
        .filter(|one| ahead(one.seq, edge) > 0)
        .collect();
    let ended = case.passage.of_flow(alert.flow).find(|(_, packet)| {
        let one = segment(packet).filter(|_| packet.to_server == alert.to_server);
        one.is_some_and(|one| one.flags & FIN != 0 && ahead(one.seq, edge) > 0)
    });
    let is = !case.ips
        && finding.more
        && case.is_on_body(alert)
        && beyond.iter().all(|one| one.load.is_empty())
        && ended.is_some_and(|(end, _)| place(case, alert) >= end);
    is.then_some("a body whose last bytes before a FIN are missing is looked at when the connection closes; Suricata does not tell its parser of that hole")
}

/// Suricata attaches the event to the previous transaction, the response to an unseen request, and reports it
/// unless that transaction is already recorded.
pub(crate) fn hole_before_a_request(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Record(name) = &finding.what else { return None };
    let answered = |flow: FlowKey| {
        case.passage.of_flow(flow).any(|(at, packet)| {
            let spoken = || case.passage.before(flow, false, at).any(|one| !one.load.is_empty());
            data(packet, true).is_some_and(|one| lies_ahead(case, (flow, true), at, one) && spoken())
        })
    };
    // Or the missing data arrived after it was acknowledged.
    let late = |flow: FlowKey| {
        case.passage.of_flow(flow).any(|(at, packet)| {
            let spoken = || case.passage.before(flow, false, at).any(|one| !one.load.is_empty());
            let edge = || case.passage.contiguous(flow, true, at);
            let one = segment(packet).filter(|one| !packet.to_server && one.flags & ACK != 0);
            let filled = |edge| {
                case.passage.contiguous(flow, true, usize::MAX).is_some_and(|end| ahead(end, edge) > 0)
            };
            one.is_some_and(|one| {
                spoken() && edge().is_some_and(|edge| ahead(one.ack, edge) > 0 && filled(edge))
            })
        })
    };
    let is = finding.more
        && name == "anomaly:INVALID_GAP"
        && case.concerns(finding, |flow| answered(flow) || case.ips && late(flow));
    is.then_some("a hole before a request is told with that request; Suricata tells it with the answer before, unless that is recorded")
}

/// Whether a segment is after a hole when it arrives, and the hole is never filled.
fn lies_ahead(case: &Case<'_>, (flow, to_server): (FlowKey, bool), at: usize, one: &Segment) -> bool {
    let behind =
        |at| case.passage.contiguous(flow, to_server, at).is_some_and(|edge| ahead(one.seq, edge) > 0);
    behind(at) && behind(usize::MAX)
}

/// Suricata looks for a DNS message in each segment alone, and takes a segment that is too short to decide
/// for a beginning.
pub(crate) fn message_behind_a_hole(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let headless = |flow: FlowKey, to_server: bool, upto: usize| {
        case.passage.of_flow(flow).any(|(at, packet)| {
            let segment = data(packet, to_server);
            at <= upto && segment.is_some_and(|one| lies_ahead(case, (flow, to_server), at, one))
        })
    };
    let is = match &finding.what {
        What::Record(name) if name == "dns" => {
            let all = usize::MAX;
            case.concerns(finding, |flow| headless(flow, true, all) || headless(flow, false, all))
        }
        What::Alert(alert) => {
            case.asks(alert, &["dns"]) && headless(alert.flow, alert.to_server, place(case, alert))
        }
        _ => false,
    };
    (finding.more && is).then_some(
        "behind a hole DNS over TCP goes on with the next message; Suricata looks at each segment alone and misses it",
    )
}

/// The index of an alert's packet; the largest number for an alert without one.
fn place(case: &Case<'_>, alert: &Alert) -> usize {
    alert.frame.and_then(|frame| case.passage.packet(frame)).map_or(usize::MAX, |(at, _)| at)
}

/// Libhtp parses the rest of a chunk's length without its beginning, and finds it invalid.
pub(crate) fn chunk_line_in_pieces(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const EVENTS: [(&str, bool); 2] =
        [("anomaly:INVALID_REQUEST_CHUNK_LEN", true), ("anomaly:INVALID_RESPONSE_CHUNK_LEN", false)];
    let lacks = |event: &str| {
        case.findings.iter().any(|one| !one.more && matches!(&one.what, What::Record(name) if name == event))
    };
    let (event, to_server) = EVENTS.into_iter().find(|(event, _)| lacks(event))?;
    // A segment continues such a line with bytes that are invalid by themselves.
    let cut = |flow: FlowKey| {
        case.passage.of_flow(flow).find_map(|(at, packet)| {
            let first = data(packet, to_server)?.load.first().copied()?;
            let said = case.passage.said_before(flow, to_server, at);
            let line = said.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
            let digits = line.strip_suffix(b"\r").unwrap_or(line);
            let is = !digits.is_empty()
                && digits.iter().all(u8::is_ascii_hexdigit)
                && said.to_ascii_lowercase().windows(7).any(|word| word == b"chunked")
                && !first.is_ascii_hexdigit()
                && !first.is_ascii_whitespace();
            is.then_some(at)
        })
    };
    let is = match &finding.what {
        What::Record(name) => name == event && case.concerns(finding, |flow| cut(flow).is_some()),
        What::Drop(Some(frame), reason) => {
            let (at, packet) = case.passage.packet(*frame)?;
            let because = matches!(reason.as_str(), "applayer.error" | "exception.policy.flow.drop");
            because && !finding.more && cut(key(packet)).is_some_and(|from| from <= at)
        }
        What::Drop(None, _) => false,
        What::Alert(alert) => {
            (finding.more || case.comes_earlier(finding))
                && cut(alert.flow).is_some_and(|from| from <= place(case, alert))
        }
    };
    is.then_some("a chunk's length that is cut in the middle is put together; Suricata looks at its rest alone and takes it for none")
}

/// Whether a server's data does not begin with a status line.
fn is_headless(case: &Case<'_>, flow: FlowKey) -> bool {
    const BEGIN: &[u8] = b"HTTP/";
    let first = case.passage.first(flow, false, BEGIN.len() as u32);
    first.len() == BEGIN.len() && first != BEGIN
}

/// Whether the first byte of a server is missing while later bytes arrive.
fn begins_with_a_hole(case: &Case<'_>, flow: FlowKey) -> bool {
    case.passage.has_hole(flow, false) && case.passage.first(flow, false, 1).is_empty()
}

/// Server data without a status line is a body: Suricata shows it to some rules only.
pub(crate) fn body_without_status(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    // A transaction that a rule blocks has no record.
    let lacks = |name: &str| {
        case.findings.iter().any(|one| !one.more && matches!(&one.what, What::Record(other) if other == name))
    };
    let is = finding.more
        && !alert.to_server
        && case.is_on_body(alert)
        && (case.got.has("fileinfo") || alert.blocked && lacks("fileinfo"))
        && (is_headless(case, alert.flow) || begins_with_a_hole(case, alert.flow));
    is.then_some("an answer that has no status line is a body, which rules look at; Suricata may record it and look at nothing")
}

/// A response without its beginning has no status line: libhtp takes its lines for a body that ends at a line
/// end at the end of a segment, and the following bytes for a response to no request. Here the next bytes
/// decide whether that line was the last one.
pub(crate) fn line_without_status(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const UNMATCHED: &str = "anomaly:UNABLE_TO_MATCH_RESPONSE_TO_REQUEST";
    const OF_UNMATCHED: &str = "app-layer-event:http.unable_to_match_response_to_request";
    let lacks = |name: &str| {
        case.findings.iter().any(|one| !one.more && matches!(&one.what, What::Record(other) if other == name))
    };
    // A segment of the response after a hole ends with a line end, and more follows.
    let cut = |flow: FlowKey| {
        let mut ended = false;
        case.passage.of_flow(flow).any(|(at, packet)| {
            let Some(one) = data(packet, false) else { return false };
            let follows = ended;
            let behind = lies_ahead(case, (flow, false), at, one) || is_headless(case, flow);
            ended |= behind && one.load.ends_with(b"\n");
            follows
        })
    };
    // The following bytes are then the response to the next request, if there is one: only its body is
    // additional.
    let next = |flow: FlowKey| {
        let said = case.passage.said(flow, true);
        cut(flow) && said.windows(4).filter(|end| *end == b"\r\n\r\n").count() > 1
    };
    let unmatched = lacks(UNMATCHED) && lacks("http");
    let is = match &finding.what {
        What::Record(name) if !unmatched => {
            !finding.more && name == "fileinfo" && case.concerns(finding, next)
        }
        What::Record(name) => {
            !finding.more
                && [UNMATCHED, "http", "fileinfo"].contains(&name.as_str())
                && case.concerns(finding, cut)
        }
        // Findings of a response to no request are missing, too.
        What::Alert(alert)
            if !finding.more
                && (unmatched && case.asks(alert, &["absent"]) || case.asks(alert, &[OF_UNMATCHED])) =>
        {
            unmatched && !alert.to_server && cut(alert.flow)
        }
        // The body is inspected when it ends.
        What::Alert(alert) => {
            let others = if finding.more { &case.theirs } else { &case.ours };
            // In prevention a blocking rule ends the transaction: there is one record.
            let refused = || case.ips && alert.blocked && lacks("fileinfo") && lacks("http");
            (unmatched || lacks("fileinfo") && next(alert.flow) || refused())
                && !alert.to_server
                && case.is_on_body(alert)
                && cut(alert.flow)
                && others.iter().any(|one| one.is_like(alert))
        }
        What::Drop(..) => false,
    };
    is.then_some(
        "an answer whose beginning is missing goes on until its connection ends; Suricata ends it with a line that a segment ends with",
    )
}

/// Suricata records a message with a hole when the other side's ends; later events of it are lost.
pub(crate) fn told_behind_a_hole(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const EVENTS: [(&str, bool); 2] =
        [("anomaly:INVALID_REQUEST_CHUNK_LEN", true), ("anomaly:INVALID_RESPONSE_CHUNK_LEN", false)];
    let What::Record(name) = &finding.what else { return None };
    let (_, to_server) = EVENTS.into_iter().find(|(event, _)| event == name)?;
    let hole = |flow: FlowKey| {
        let answers = case.passage.before(flow, !to_server, usize::MAX).any(|one| !one.load.is_empty());
        answers && case.passage.has_hole(flow, to_server)
    };
    let is = finding.more && case.got.has("anomaly:INVALID_GAP") && case.concerns(finding, hole);
    is.then_some("what is wrong with a body behind a hole is told; Suricata has recorded its message by then")
}

/// Whether bytes of a direction arrive after they were acknowledged.
pub(crate) fn is_filled_late(case: &Case<'_>, flow: FlowKey, to_server: bool) -> bool {
    case.passage.of_flow(flow).any(|(at, packet)| {
        let Some(one) = segment(packet).filter(|_| packet.to_server != to_server) else { return false };
        let Some(edge) = case.passage.contiguous(flow, to_server, at) else { return false };
        let filled = || case.passage.contiguous(flow, to_server, usize::MAX);
        one.flags & ACK != 0 && ahead(one.ack, edge) > 1 && filled().is_some_and(|end| ahead(end, edge) > 0)
    })
}

/// In prevention the HTTP parser continues after a hole that was acknowledged; data that fills it later is
/// inspected, but belongs to no message.
pub(crate) fn hole_filled_late(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const MESSAGES: [&str; 3] = ["anomaly:UNABLE_TO_MATCH_RESPONSE_TO_REQUEST", "http", "fileinfo"];
    let What::Record(name) = &finding.what else { return None };
    let is = case.ips
        && !finding.more
        && MESSAGES.contains(&name.as_str())
        && case
            .concerns(finding, |flow| is_filled_late(case, flow, true) || is_filled_late(case, flow, false));
    is.then_some(
        "in prevention HTTP goes on behind a hole that was acknowledged; what fills it later is no message's",
    )
}
