// SPDX-License-Identifier: Apache-2.0
//! Causes of differences: HTTP bodies that arrive in more than one segment.

use crate::causes::{Case, REQUESTS};
use crate::finding::{Alert, Finding, FlowKey, What};
use crate::passage::{ahead, segment};
use bartizan_testkit::packet::{SYN, Segment};

/// Prevention evaluates body rules as soon as a part of the body is there, with the part's size as the size.
pub(crate) fn size_of_a_part(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let (at, _) = case.passage.packet(alert.frame?)?;
    // A part is never larger than the whole.
    let holds_early = |option: &String| {
        option.strip_prefix("bsize:").is_some_and(|size| !size.starts_with('>') && !size.contains("<>"))
    };
    // The whole body need not end with the part's last bytes.
    let ends = |option: &String| option.contains("endswith");
    let there = case.passage.said_before(alert.flow, alert.to_server, at + 1).len();
    let is = case.ips
        && finding.more
        && case.is_on_body(alert)
        && case.pair.rules.get(alert.rule)?.options.iter().any(|option| holds_early(option) || ends(option))
        && there < case.passage.said(alert.flow, alert.to_server).len();
    is.then_some(
        "in prevention `bsize` and `endswith` are held against what has come of a body; Suricata waits for more of it",
    )
}

/// Whether more of an alert's body follows its packet.
fn goes_on(case: &Case<'_>, alert: &Alert) -> bool {
    let Some((at, _)) = alert.frame.and_then(|frame| case.passage.packet(frame)) else { return false };
    let there = case.passage.said_before(alert.flow, alert.to_server, at + 1).len();
    there < case.passage.said(alert.flow, alert.to_server).len()
}

/// Prevention evaluates body rules as soon as a part of the body is there, and takes the part's end as the
/// end.
pub(crate) fn end_of_a_part(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let ends = |option: &String| {
        option == "endswith"
            || option.starts_with("pcre:")
                && option.rsplit_once('/').is_some_and(|(text, _)| text.ends_with('$'))
    };
    let is = case.ips
        && finding.more
        && case.is_on_body(alert)
        && case.pair.rules.get(alert.rule)?.options.iter().any(ends)
        && goes_on(case, alert);
    is.then_some("in prevention what has to stand at a body's end is looked for at the end of what has come of it; Suricata waits for more of it")
}

/// Suricata has no response body if the request has no path: the request line is incomplete, or a hole has
/// left one word of it. `absent` matches then.
pub(crate) fn answer_to_half_a_line(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let half = || case.got.has("anomaly:REQUEST_LINE_INCOMPLETE") && is_asked_half_a_line(case, alert.flow);
    let word =
        || case.got.has("anomaly:REQUEST_LINE_MISSING_PROTOCOL") && case.passage.has_hole(alert.flow, true);
    let is = (finding.more || case.asks(alert, &["absent"]))
        && !alert.to_server
        && case.is_on_body(alert)
        && (half() || word());
    is.then_some("the body of an answer whose request has no path, since its line is not over or its beginning is missing, is looked at; Suricata has no such body")
}

/// Libhtp reads a body of a response that cannot have one (1xx, 204, 304) if its head announces one. The
/// following bytes are the next response there, which is paired with another request.
pub(crate) fn body_where_none_may_be(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let is = !alert.to_server
        && case.got.has("anomaly:RESPONSE_BODY_UNEXPECTED")
        && (case.is_on_http(alert) || case.is_on_body(alert))
        && says_that_it_has_a_body(case, alert.flow);
    is.then_some("an answer without a body (204, 304) has none, also when it says how long it is; for libhtp it has, and what follows answers other requests")
}

/// Whether a response that cannot have a body announces one of some bytes.
fn says_that_it_has_a_body(case: &Case<'_>, flow: FlowKey) -> bool {
    const MOST: u32 = 1 << 13;
    const LENGTH: &str = "content-length: ";
    let said = case.passage.first(flow, false, MOST).to_ascii_lowercase();
    let text = String::from_utf8_lossy(&said).replace('\r', "");
    // The head may be followed by the status line of another response.
    text.split("\n\n").any(|part| {
        let long = part
            .split(LENGTH)
            .skip(1)
            .any(|rest| rest.starts_with(|digit: char| ('1'..='9').contains(&digit)));
        let first = part.find("http/1.").and_then(|at| part.get(at + "http/1.".len()..));
        long && first.is_some_and(has_no_body)
    })
}

/// Whether a status line, from the minor version on, is that of a response without a body.
fn has_no_body(line: &str) -> bool {
    line.get(1..).is_some_and(|rest| rest.starts_with(" 304") || rest.starts_with(" 204"))
}

/// Whether a server sends data while its client's last line since then has no end.
fn is_asked_half_a_line(case: &Case<'_>, flow: FlowKey) -> bool {
    const MOST: u32 = 1 << 13;
    let all = case.passage.first(flow, true, MOST);
    let Some(syn) = case.passage.before(flow, true, usize::MAX).find(|one| one.flags & SYN != 0) else {
        return false;
    };
    let begin = syn.seq.wrapping_add(1);
    let mut asked = 0usize;
    case.passage.of_flow(flow).any(|(at, packet)| {
        let speaks = !packet.to_server && segment(packet).is_some_and(|one| !one.load.is_empty());
        let Some(edge) = case.passage.contiguous(flow, true, at).filter(|_| speaks) else { return false };
        let end = usize::try_from(ahead(edge, begin)).unwrap_or(0);
        let said = all.get(asked..end).unwrap_or_default();
        asked = end;
        !said.is_empty() && !said.contains(&b'\n')
    })
}

/// A `pass` on the flow comes after prevention has inspected a part of a body.
pub(crate) fn passed_behind_a_body(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let quiet =
        |alerts: &[Alert]| !alerts.iter().any(|one| one.flow == alert.flow && one.place() > alert.place());
    let is = case.ips
        && finding.more
        && case.is_on_body(alert)
        && goes_on(case, alert)
        && case.pair.rules.iter().any(|rule| rule.action == "pass")
        && quiet(&case.theirs)
        && quiet(&case.ours);
    is.then_some("prevention looks at a part of a body before a `pass` holds that comes with more of it; Suricata looks at the body behind that")
}

/// Suricata forgets matches in the raw headers unless the whole body arrives with the end of the headers.
pub(crate) fn raw_headers_before_a_body(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let frame = alert.frame.and_then(|frame| case.passage.packet(frame));
    let until = frame.map_or(usize::MAX, |(at, _)| at);
    let last = case.passage.of_flow(alert.flow).filter(|(at, packet)| {
        let speaks = segment(packet).is_some_and(|one| !one.load.is_empty());
        *at <= until && packet.to_server == alert.to_server && speaks
    });
    let (last, _) = last.last()?;
    let before = case.passage.said_before(alert.flow, alert.to_server, last);
    let is = finding.more
        && case.asks(alert, &["http.header.raw"])
        && case.is_on_body(alert)
        && before.windows(4).any(|end| end == b"\r\n\r\n");
    is.then_some("a rule on `http.header.raw` and on the body matches when the body has come behind the headers; Suricata's misses")
}

/// Whether a client sends some bytes twice, with different content.
fn has_copies(case: &Case<'_>, flow: FlowKey) -> bool {
    case.passage.of_flow(flow).filter(|(_, packet)| packet.to_server).any(|(at, packet)| {
        let Some(one) = segment(packet) else { return false };
        let differs = |before: &Segment| {
            let behind = ahead(before.seq, one.seq);
            let skip = |by: i32| usize::try_from(by).unwrap_or(0);
            let shared =
                one.load.iter().skip(skip(behind)).zip(before.load.iter().skip(skip(behind.wrapping_neg())));
            shared.into_iter().any(|(new, old)| new != old)
        };
        case.passage.before(flow, true, at).any(differs)
    })
}

/// The rest of an unannounced body without a line end precedes the next request.
pub(crate) fn request_behind_rubbish(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const EVENT: &str = "anomaly:REQUEST_BODY_UNEXPECTED";
    let lacks =
        case.findings.iter().any(|one| !one.more && matches!(&one.what, What::Record(name) if name == EVENT));
    let behind = |line: &[u8]| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let ends = line.ends_with(b" HTTP/1.0") || line.ends_with(b" HTTP/1.1");
        let within = |method: &&[u8]| line.windows(method.len()).skip(1).any(|word| word == *method);
        ends && REQUESTS.iter().any(within)
    };
    // The length of the previous body is missing, or has a second copy, or arrives after it was acknowledged.
    let late = |flow| case.ips && crate::holes::is_filled_late(case, flow, true);
    let lost = |flow| case.passage.has_hole(flow, true) || has_copies(case, flow) || late(flow);
    let of = |flow| lost(flow) && case.passage.said(flow, true).split(|byte| *byte == b'\n').any(behind);
    // Findings that follow: the next response arrives before the line that Suricata then reads has ended.
    const FOLLOWS: [&str; 4] =
        [EVENT, "fileinfo", "anomaly:UNABLE_TO_MATCH_RESPONSE_TO_REQUEST", "anomaly:REQUEST_LINE_INCOMPLETE"];
    let is = match &finding.what {
        What::Record(name) => {
            // The request has a record of its own.
            let follows = if finding.more { name == "http" } else { FOLLOWS.contains(&name.as_str()) };
            follows && case.concerns(finding, of)
        }
        // Or Suricata inspects the supposed request when the connection ends.
        What::Alert(alert) => {
            (finding.more || case.comes_earlier(finding))
                && alert.to_server
                && case.is_on_http(alert)
                && of(alert.flow)
        }
        What::Drop(..) => false,
    };
    (lacks && is && case.got.has("flow:TCP:http")).then_some(
        "a request line that bytes without a meaning stand before is a request of a method that nobody knows; Suricata takes it for a body",
    )
}

/// Suricata is done with a chunked message once it has read past the last chunk: a file that is closed with
/// the message comes too late.
pub(crate) fn size_behind_the_last_chunk(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    // A segment ends after the last chunk, before the message does.
    let cut = case.passage.of_flow(alert.flow).any(|(at, packet)| {
        let loaded = segment(packet).is_some_and(|one| !one.load.is_empty());
        let said = || case.passage.said_before(alert.flow, alert.to_server, at + 1).to_ascii_lowercase();
        packet.to_server == alert.to_server && loaded && {
            let said = said();
            (said.ends_with(b"\n0\r\n") || said.ends_with(b"\n0\r\n\r"))
                && said.windows(7).any(|word| word == b"chunked")
        }
    });
    (finding.more && case.asks(alert, &["filesize"]) && cut).then_some(
        "the size of a file whose last chunk is cut from the message's end is looked at with that end; Suricata looks no more",
    )
}

#[cfg(test)]
mod tests {
    use crate::explained::left_of;

    #[test]
    fn bodies_in_pieces_explain_rules_that_ask_for_them_only() {
        // Rule 0 has `bsize:!50` for a body of 50 bytes, 45 of which have arrived with packet 642.
        assert!(left_of(19, 1484, true, &["0@642<1.0:allowed"], &[]).is_empty());
        assert_eq!(left_of(19, 1484, false, &["0@642<1.0:allowed"], &[]), ["+0@642<1.0:allowed"]);
        assert_eq!(left_of(19, 1484, true, &["1@642<1.0:allowed"], &[]), ["+1@642<1.0:allowed"], "no size");
        assert_eq!(left_of(19, 1484, true, &["0@-<1.0:allowed"], &[]), ["+0@-<1.0:allowed"], "all is there");
        // Rule 3 is on the raw headers and on the body, which follows them.
        assert!(left_of(22, 522, false, &["3@53<1.0:allowed"], &[]).is_empty());
        assert!(left_of(22, 522, true, &["3@46<1.0:allowed"], &[]).is_empty());
        assert_eq!(left_of(22, 522, false, &["2@53<1.0:allowed"], &[]), ["+2@53<1.0:allowed"]);
        assert_eq!(left_of(22, 522, false, &[], &["3@53<1.0:allowed"]), ["-3@53<1.0:allowed"]);
        // Rule 0 has a `$` after the last bytes of packet 19; more of the body follows.
        assert!(left_of(70, 234, true, &["0@19<1.0:allowed"], &[]).is_empty());
        assert_eq!(left_of(70, 234, false, &["0@19<1.0:allowed"], &[]), ["+0@19<1.0:allowed"]);
        assert_eq!(left_of(70, 234, true, &["3@19<1.0:allowed"], &[]), ["+3@19<1.0:allowed"], "no body");
        // Rule 0 passes the flow from packet 15 on, rule 2 is on the body that begins with packet 15.
        assert!(left_of(34, 1262, true, &["2@15>1.0:allowed"], &[]).is_empty());
        assert_eq!(left_of(34, 1262, false, &["2@15>1.0:allowed"], &[]), ["+2@15>1.0:allowed"]);
        assert_eq!(
            left_of(34, 1262, true, &["2@15>1.0:allowed", "3@21<1.0:allowed"], &["3@21<1.0:allowed"]),
            ["+2@15>1.0:allowed"],
            "nothing passes where there are alerts"
        );
        // The client's line is incomplete; rule 2 is on the response's body.
        let incomplete = "anomaly:REQUEST_LINE_INCOMPLETE";
        assert!(left_of(31, 366, false, &["2@10<1.0:allowed", incomplete], &[incomplete]).is_empty());
        assert_eq!(left_of(31, 366, false, &["2@10<1.0:allowed"], &[]), ["+2@10<1.0:allowed"], "it is");
        assert_eq!(
            left_of(31, 366, false, &[incomplete], &["2@10<1.0:allowed", incomplete]),
            ["-2@10<1.0:allowed"]
        );
        // Data that is sent again after a FIN, and that a rule drops.
        let ours = ["0@17<1.0:blocked", "drop@17:rules"];
        assert!(left_of(23, 524, true, &ours, &["drop@17:stream.error"]).is_empty());
        assert_eq!(left_of(23, 524, true, &ours, &[]), ["+0@17<1.0:blocked", "+drop@17:rules"]);
    }

    #[test]
    fn ends_of_parts_rubbish_and_files_explain_what_they_bring_only() {
        // Rule 0 has `endswith` for a body that goes on until the connection closes.
        assert!(left_of(38, 843, true, &["0@10<1.0:blocked", "drop@10:rules"], &[]).is_empty());
        assert_eq!(left_of(38, 843, false, &["0@10<1.0:allowed"], &[]), ["+0@10<1.0:allowed"]);
        // The last line of the client's first message comes after a hole, and has no end.
        const EVENT: &str = "anomaly:REQUEST_BODY_UNEXPECTED";
        let http = ["flow:TCP:http"];
        assert!(left_of(32, 1962, false, &http, &[EVENT, "fileinfo", "flow:TCP:http"]).is_empty());
        assert_eq!(left_of(32, 1960, false, &http, &[EVENT, "flow:TCP:http"]).len(), 1);
        // Rubbish precedes the length of a body, and another request line follows it; pair 328 is its scene.
        assert!(left_of(82, 334, true, &http, &[EVENT, "fileinfo", "flow:TCP:http"]).is_empty());
        assert_eq!(left_of(82, 328, true, &http, &[EVENT, "flow:TCP:http"]).len(), 1);
    }
}
