// SPDX-License-Identifier: Apache-2.0
//! Causes of differences in the time of a rule's evaluation, and in the range of the stream inspected; as in
//! [`crate::causes`]. A cause that excuses a missing alert requires another alert of the same rule in the
//! same flow and direction.

use crate::causes::Case;
use crate::finding::{Alert, Finding, FlowKey, What};
use crate::pair::Body;
use crate::passage::{ahead, segment};
use bartizan_testkit::packet::{ACK, FIN, Segment};

/// Options that depend on the beginning or end of the inspected range.
pub(crate) const PLACES: &[&str] =
    &["offset:", "depth:", "startswith", "endswith", "isdataat:", "byte_", "pcre:", "base64_decode:"];

/// Whether the other program has an alert of the same rule in the same flow and direction.
fn is_there(case: &Case<'_>, finding: &Finding, alert: &Alert) -> bool {
    let others = if finding.more { &case.theirs } else { &case.ours };
    others.iter().any(|other| other.is_like(alert))
}

/// The index of an alert's packet; the largest number for an alert without one.
fn place(case: &Case<'_>, alert: &Alert) -> usize {
    alert.frame.and_then(|frame| case.passage.packet(frame)).map_or(usize::MAX, |(at, _)| at)
}

/// Inline the stream is inspected as a packet plus a window before it; in Suricata the packet is part of the
/// window, so its range begins later once more data has arrived than fits.
pub(crate) fn window_before_a_packet(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let (flow, to_server) = (alert.flow, alert.to_server);
    let at = match alert.frame {
        Some(frame) => case.passage.segment(frame)?.0,
        // A reassembled datagram is not a frame.
        None => {
            let mut packets = case.passage.of_flow(flow);
            packets.find(|(_, one)| one.to_server == to_server && one.fragments.is_some())?.0
        }
    };
    let begin = case.passage.before(flow, to_server, at).find(|one| !one.load.is_empty())?.seq;
    let most =
        case.passage.before(flow, to_server, at + 1).map(|one| one.seq.wrapping_add(one.load.len() as u32));
    let shown = most.map(|end| ahead(end, begin)).max()?;
    let window = crate::engine::window(case.pair.setting);
    let rule = case.pair.rules.get(alert.rule)?;
    let places = |option: &String| PLACES.iter().any(|word| option.contains(word)) || option.contains(":!");
    // Numeric keywords of a transaction have an argument, and leave contents in the stream.
    let sticky = |option: &String| option.starts_with("uricontent") || !option.contains(':');
    let on_stream = !case.is_on_buffers(alert)
        || !rule.options.iter().any(|option| sticky(option) && option.contains(['.', '_']));
    let is = case.ips && shown > window && on_stream && (finding.more || rule.options.iter().any(places));
    is.then_some(
        "inline the stream is shown with a window before the packet; in Suricata the packet is part of the window",
    )
}

/// Passively data after a hole is inspected when the hole is known to stay, or at the end; data repeated
/// after a FIN belongs to no range.
pub(crate) fn other_time_of_a_hole(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let at = place(case, alert);
    let (flow, to_server) = (alert.flow, alert.to_server);
    // Data follows the hole, or the hole was acknowledged.
    let hole = |at: usize| {
        case.passage.contiguous(flow, to_server, at).is_some_and(|edge| {
            let beyond =
                |one: &Segment| (!one.load.is_empty() || one.flags & FIN != 0) && ahead(one.seq, edge) > 0;
            // A FIN takes one sequence number.
            let answers = |one: &Segment| one.flags & ACK != 0 && ahead(one.ack, edge) > 1;
            case.passage.before(flow, to_server, at).any(beyond)
                || case.passage.before(flow, !to_server, at).any(answers)
        })
    };
    let holes = case.passage.of_flow(flow).map(|(place, _)| place).filter(|place| *place <= at).any(hole);
    // Data was sent again after a side had ended.
    let is_again = |(sent, packet): (usize, &crate::pair::Packet)| {
        let Some(one) = segment(packet).filter(|_| packet.to_server == to_server && sent <= at) else {
            return false;
        };
        let fin = |one: &Segment| one.flags & FIN != 0;
        let ended = [true, false].into_iter().any(|side| case.passage.before(flow, side, sent).any(fin));
        let end = one.seq.wrapping_add(one.load.len() as u32);
        let edge = case.passage.contiguous(flow, to_server, sent);
        ended && !one.load.is_empty() && edge.is_some_and(|edge| ahead(end, edge) <= 0)
    };
    let again = case.passage.of_flow(flow).any(is_again);
    // A rule that counts has matched before without an alert.
    let counted = !finding.more
        && case.asks(alert, &["detection_filter", "threshold"])
        && case.passage.of_flow(flow).any(|(sent, packet)| sent == at && is_again((sent, packet)));
    // The beginning of the inspected range depends on the repeated data, too.
    let placed = again && !case.is_on_buffers(alert) && case.asks(alert, PLACES);
    let reset = case.passage.reset(flow).is_some();
    let there = is_there(case, finding, alert);
    let is = !case.ips && (there && (holes || again || reset) || placed || counted);
    is.then_some("passively what lies behind a hole is looked at once, when the hole is known to stay, or with a reset; what comes again behind a FIN is no news")
}

/// Passively the stream of a TLS connection that carries another protocol is inspected at another time.
pub(crate) fn no_tls_within_tls(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const HEAD: usize = 5;
    let What::Alert(alert) = &finding.what else { return None };
    let said = case.passage.said(alert.flow, alert.to_server);
    let mut rest = said.as_slice();
    while let [0x14..=0x17, 3, _, high, low, ..] = rest {
        let Some(next) = rest.get(HEAD + usize::from(u16::from_be_bytes([*high, *low]))..) else { break };
        rest = next;
    }
    let is = !case.ips
        && case.pair.rules.get(alert.rule)?.head.starts_with("tls ")
        && !case.is_on_buffers(alert)
        && is_there(case, finding, alert)
        && !rest.is_empty();
    is.then_some("the stream of a TLS connection in which something else follows is shown with its end; Suricata shows it when the other side is parsed")
}

/// A drop rule on a body without alerts: only the drops show its time.
pub(crate) fn silent_on_a_body(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let silent = |(rule, text): (usize, &crate::pair::Rule)| {
        let alert = Alert { rule, frame: None, flow: (0, 0), to_server: true, blocked: true };
        let is = text.options.iter().any(|option| option == "noalert") && case.is_on_body(&alert);
        is && matches!(text.action, "drop" | "reject")
    };
    let first = case.findings.iter().find_map(|other| match &other.what {
        What::Drop(Some(frame), reason) if other.more && reason == "rules" => Some(*frame),
        _ => None,
    })?;
    let kind = match &finding.what {
        What::Drop(Some(frame), reason) => {
            matches!(reason.as_str(), "rules" | "flow.drop") && (finding.more || *frame >= first)
        }
        What::Drop(None, _) => !finding.more,
        What::Record(name) => !finding.more && matches!(name.as_str(), "http" | "fileinfo"),
        What::Alert(alert) => !finding.more && alert.place() >= first,
    };
    (case.ips && kind && case.pair.rules.iter().enumerate().any(silent))
        .then_some("prevention looks at bodies as they come: a rule that refuses in silence refuses earlier")
}

/// A packet that is dropped for its place in the stream is inspected before the drop.
pub(crate) fn refused_packet(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let drop = format!("drop@{}:stream.error", alert.frame?);
    let same = |one: &Finding| matches!(&one.what, What::Drop(frame, reason) if *frame == alert.frame && reason == "stream.error");
    let is = case.ips && finding.more && case.got.has(&drop) && !case.findings.iter().any(same);
    is.then_some("rules on packets see one that is refused for its place in the stream; Suricata's do not")
}

/// If one side may be missing, the late data of the other side is parsed from its first byte on.
pub(crate) fn late_side(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const MESSAGES: [&str; 3] = ["http", "fileinfo", "anomaly:UNABLE_TO_MATCH_RESPONSE_TO_REQUEST"];
    const ANSWERED: &str = "anomaly:RESPONSE_BODY_UNEXPECTED";
    let either = crate::engine::SETTINGS.get(case.pair.setting)?.contains(&"stream.async-oneside=true");
    let late = |flow: FlowKey| {
        let speaks = |one: &Segment| !one.load.is_empty();
        case.passage.is_one_sided(flow)
            && [true, false].into_iter().all(|side| case.passage.before(flow, side, usize::MAX).any(speaks))
    };
    let is = match &finding.what {
        What::Record(name) => {
            let told = MESSAGES.contains(&name.as_str()) || finding.more && name == ANSWERED;
            told && !case.ips && case.concerns(finding, late)
        }
        // `absent` is evaluated at the end of a message: at another time if other responses are paired.
        What::Alert(alert) => {
            case.asks(alert, &["absent"])
                && case.is_on_http(alert) | case.is_on_body(alert)
                && late(alert.flow)
        }
        What::Drop(..) => false,
    };
    (either && is).then_some("where one side may be in sight, the other's that comes late is read from there on, and paired with the requests that come then")
}

/// A `pass` that holds earlier than in Suricata, or only here.
pub(crate) fn passed_earlier(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const HELLO: u8 = 0x16;
    let What::Alert(alert) = &finding.what else { return None };
    let at = place(case, alert).saturating_add(1);
    let begins = |option: &String, words: &[&str]| words.iter().any(|word| option.starts_with(word));
    let hello = |to_server: bool| case.passage.said_before(alert.flow, to_server, at).first() == Some(&HELLO);
    let passes = |rule: &crate::pair::Rule| {
        let any = |words: &[&str]| rule.options.iter().any(|option| begins(option, words));
        rule.action == "pass"
            && (any(&["tls.random"]) && (hello(true) || hello(false))
                || case.ips && any(&["app-layer-protocol:!", "app-layer-protocol:failed"]))
    };
    let is = !finding.more && case.is_quiet(alert) && case.pair.rules.iter().any(passes);
    is.then_some("a `pass` on `tls.random`, or on what is not the protocol, holds as soon as that is known; Suricata's holds later")
}

/// Suricata requires negated content to fit into the size of its buffer.
pub(crate) fn size_of_what_must_not_be(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let rule = match &finding.what {
        What::Alert(alert) if finding.more => alert.rule,
        What::Record(name) if !finding.more => name.strip_prefix("refused:")?.parse().ok()?,
        _ => return None,
    };
    let refused = case.findings.iter().any(|other| {
        matches!(&other.what, What::Record(name) if !other.more && *name == format!("refused:{rule}"))
    });
    let options = case.pair.rules.get(rule)?.options.join("; ");
    let denied = options.split("content:!").skip(1).any(|rest| {
        let rest = rest.split("content:").next().unwrap_or_default();
        rest.contains("within:") || rest.contains("distance:")
    });
    let sized = options.contains("bsize:") || options.contains("dsize:");
    (refused && sized && denied).then_some(
        "a rule may say `bsize` or `dsize` beside a content that must not be within more bytes; Suricata refuses it",
    )
}

/// Suricata knows the version of a record before the record's header is complete.
pub(crate) fn version_within_a_header(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const HEAD: usize = 5;
    let What::Alert(alert) = &finding.what else { return None };
    let theirs = case.theirs.iter().find(|one| one.is_like(alert))?;
    let ours = case.ours.iter().find(|one| one.is_like(alert))?;
    let said = |one: &Alert| {
        case.passage.said_before(one.flow, one.to_server, place(case, one).saturating_add(1)).len()
    };
    let cut = if case.ips { said(theirs) } else { said(theirs).saturating_sub(1) } < HEAD;
    let is = case.asks(alert, &["tls.version", "ssl_version"]) && theirs.place() < ours.place() && cut;
    is.then_some("the version of TLS is known when the first record's header is there; Suricata goes by its first bytes")
}

/// A packet with a wrong checksum is not part of its stream; rules inspect it by itself.
pub(crate) fn wrong_checksum(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const PLAIN: &[&str] = &["tcp", "ip ", "udp"];
    let What::Alert(alert) = &finding.what else { return None };
    let (_, _, one) = case.passage.segment(alert.frame?)?;
    let head = &case.pair.rules.get(alert.rule)?.head;
    let is = finding.more
        && one.chksum_error != 0
        && !PLAIN.iter().any(|plain| head.starts_with(plain))
        && !case.is_on_buffers(alert);
    is.then_some(
        "a packet with a wrong checksum is looked at by rules of its flow's protocol as by those of TCP",
    )
}

/// Whether a segment begins at a lower number than one that arrived earlier, and differs from it where they
/// overlap: Suricata reads the newer bytes.
pub(crate) fn copies_differ(case: &Case<'_>, flow: FlowKey, to_server: Option<bool>, until: usize) -> bool {
    case.passage.of_flow(flow).take_while(|(at, _)| *at < until).any(|(at, packet)| {
        let Some(one) = segment(packet) else { return false };
        let of_side = to_server.is_none_or(|side| side == packet.to_server);
        let other = |before: &Segment| {
            let from = before.seq.wrapping_sub(one.seq) as usize;
            let shared = one.load.iter().skip(from).zip(&before.load);
            ahead(before.seq, one.seq) > 0 && shared.into_iter().any(|(new, old)| new != old)
        };
        of_side && case.passage.before(flow, packet.to_server, at).any(other)
    })
}

/// Where copies of bytes differ, prevention reads the copy that left first.
pub(crate) fn copy_that_left(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const REASON: &str = "where copies of bytes differ prevention reads those that left first";
    let What::Record(name) = &finding.what else {
        // Suricata's parser fails on the other copy, and this program's continues to the end of the
        // handshake.
        let What::Drop(Some(frame), reason) = &finding.what else { return None };
        let failed = matches!(reason.as_str(), "applayer.error" | "exception.policy.flow.drop");
        let (at, packet) = case.passage.packet(*frame)?;
        let is = case.ips
            && !finding.more
            && failed
            && case.got.has("tls")
            && copies_differ(case, crate::passage::key(packet), None, at);
        return is.then_some(REASON);
    };
    let kind = match name.as_str() {
        "dns" => !finding.more,
        // Suricata's parser fails before it.
        "anomaly:INVALID_RECORD_LENGTH" => finding.more,
        // Events of the copy that left.
        name => finding.more && COPIED.contains(&name),
    };
    let is = case.ips && kind && case.concerns(finding, |flow| copies_differ(case, flow, None, usize::MAX));
    is.then_some(REASON)
}

/// Events of a message that is parsed as it left.
const COPIED: [&str; 5] = [
    "anomaly:invalid_opcode",
    "anomaly:not_response",
    "anomaly:z_flag_set",
    "anomaly:REQUEST_LINE_MISSING_PROTOCOL",
    "http",
];

/// A transaction rule that requires a bit is evaluated again when the bit is set.
pub(crate) fn bit_behind_a_transaction(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let waits = case.is_on_buffers(alert) && case.asks(alert, WAITS);
    let sets = |one: &Alert| {
        one.flow == alert.flow
            && one.rule != alert.rule
            && one.place() <= alert.place()
            && case.asks(one, SETS)
    };
    let known = |alerts: &[Alert]| alerts.iter().any(sets);
    let is =
        (finding.more || case.comes_earlier(finding)) && waits && known(&case.ours) && known(&case.theirs);
    is.then_some("a rule on a transaction that waits for a bit is asked when it is set, too; Suricata asks when the transaction goes on")
}

/// Options that require bits and numbers set by other rules, and options that set them.
const WAITS: &[&str] = &["flowbits:is", "xbits:is", "hostbits:is", "flowint:"];
const SETS: &[&str] = &[
    "flowbits:set",
    "flowbits:unset",
    "flowbits:toggle",
    "xbits:set",
    "xbits:unset",
    "xbits:toggle",
    "hostbits:set",
    "hostbits:unset",
    "hostbits:toggle",
    "flowint:",
];

/// Whether a finding follows from the other time, or the absence in one program, of an alert: its rule
/// requires a state that the alert's rule sets.
pub(crate) fn hangs_on(case: &Case<'_>, finding: &Finding, other: &Alert) -> bool {
    let What::Alert(alert) = &finding.what else { return false };
    let name = |option: &String, words: &[&str]| {
        let word = words.iter().find(|word| option.starts_with(**word))?;
        let kind = word.split(':').next()?;
        let names = option.split_once(':')?.1.split(';').next()?;
        let names = if kind == "flowint" { names.split(',').next()? } else { names.split(',').nth(1)? };
        Some(names.split('|').map(|name| (kind.to_owned(), name.trim().to_owned())).collect::<Vec<_>>())
    };
    let names = |rule: usize, words: &[&str]| -> Vec<(String, String)> {
        let options = case.pair.rules.get(rule).into_iter().flat_map(|rule| &rule.options);
        options.filter_map(|option| name(option, words)).flatten().collect()
    };
    let set = names(other.rule, SETS);
    alert.rule != other.rule
        && other.place() <= alert.place()
        && names(alert.rule, WAITS).iter().any(|name| set.contains(name))
}

/// A rule on a body and on the stream is evaluated with the data of both that has arrived.
pub(crate) fn body_and_stream(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let is = case.ips
        && finding.more
        && case.is_on_body(alert)
        && case.pair.rules.get(alert.rule)?.options.iter().any(|option| option.contains("pkt_data"));
    is.then_some("prevention asks a rule on a body and on the stream with both as they come; Suricata's body comes later than its stream")
}

/// Suricata evaluates a transaction rule without a literal for as long as the state of its values lasts, as
/// it does for a rule with one.
pub(crate) fn asked_while_it_goes_on(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const CHANGES: &[&str] = &["stream_size:", "flow.pkts", "flow.bytes", "flow.age"];
    let What::Alert(alert) = &finding.what else { return None };
    let literal = |option: &String| option.starts_with("content:") && !option.starts_with("content:!");
    let is = finding.more
        && case.is_on_buffers(alert)
        && case.asks(alert, CHANGES)
        && !case.pair.rules.get(alert.rule)?.options.iter().any(literal);
    is.then_some("a rule on transactions without a content is asked as long as the transaction goes on; Suricata asks while its values' state lasts")
}

/// A client's truncated datagram is not DNS. In prevention the following datagrams go through detection;
/// Suricata uses the other side's.
pub(crate) fn asked_behind_a_cut_query(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let of_dns = case.asks(alert, &["dns."])
        || case.pair.rules.get(alert.rule).is_some_and(|rule| rule.head.starts_with("dns "));
    let at = alert.frame.and_then(|frame| case.passage.packet(frame)).map(|(at, _)| at)?;
    let mut before = case.passage.of_flow(alert.flow).take_while(|(place, _)| *place < at).peekable();
    let cut = before.peek().is_some_and(
        |(_, packet)| matches!(&packet.body, Body::Udp(query) if crate::dns::is_cut_short(query)),
    );
    let is = case.ips
        && finding.more
        && of_dns
        && alert.to_server
        && case.got.has("flow:UDP:dns")
        && cut
        && before.all(|(_, packet)| packet.to_server);
    is.then_some("in prevention each datagram of an unknown flow is asked what it is")
}
