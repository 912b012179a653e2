// SPDX-License-Identifier: Apache-2.0
//! Causes of differences: bodies of HTTP that come in more than one segment.

use crate::causes::Case;
use crate::finding::{Finding, What};
use crate::passage::segment;

/// Prevention asks rules on a body when a part of it is there: its size is that of the part.
pub(crate) fn size_of_a_part(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let (at, _) = case.passage.packet(alert.frame?)?;
    // A part is never larger than the whole.
    let holds_early = |option: &String| {
        option.strip_prefix("bsize:").is_some_and(|size| !size.starts_with('>') && !size.contains("<>"))
    };
    // What a part ends with, the whole need not.
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

/// Suricata forgets what it has found in the headers as they were sent, unless the whole body comes with their end.
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

/// What is left of a body that nobody announced, and has no end of a line, stands before the next request.
pub(crate) fn request_behind_rubbish(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const EVENT: &str = "anomaly:REQUEST_BODY_UNEXPECTED";
    const METHODS: [&[u8]; 6] = [b"GET /", b"POST /", b"PUT /", b"HEAD /", b"DELETE /", b"OPTIONS /"];
    let lacks =
        case.findings.iter().any(|one| !one.more && matches!(&one.what, What::Record(name) if name == EVENT));
    let behind = |line: &[u8]| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let ends = line.ends_with(b" HTTP/1.0") || line.ends_with(b" HTTP/1.1");
        let within = |method: &&[u8]| line.windows(method.len()).skip(1).any(|word| word == *method);
        ends && METHODS.iter().any(within)
    };
    // The length of the body before is missing, or another copy of it.
    let lost =
        |flow| case.passage.has_hole(flow, true) || crate::times::copies_differ(case, flow, Some(true));
    let of = |flow| lost(flow) && case.passage.said(flow, true).split(|byte| *byte == b'\n').any(behind);
    let is = match &finding.what {
        What::Record(name) => {
            !finding.more
                && [EVENT, "fileinfo", "anomaly:UNABLE_TO_MATCH_RESPONSE_TO_REQUEST"].contains(&name.as_str())
                && case.concerns(finding, of)
        }
        What::Alert(alert) => finding.more && alert.to_server && case.is_on_http(alert) && of(alert.flow),
        What::Drop(..) => false,
    };
    (lacks && is && case.got.has("flow:TCP:http")).then_some(
        "a request line that bytes without a meaning stand before is a request of a method that nobody knows; Suricata takes it for a body",
    )
}

#[cfg(test)]
mod tests {
    use crate::explained::left_of;

    #[test]
    fn bodies_in_pieces_explain_rules_that_ask_for_them_only() {
        // Rule 0 has `bsize:!50` for a body of 50 bytes, 45 of which have come with packet 642.
        assert!(left_of(19, 1484, true, &["0@642<1.0:allowed"], &[]).is_empty());
        assert_eq!(left_of(19, 1484, false, &["0@642<1.0:allowed"], &[]), ["+0@642<1.0:allowed"]);
        assert_eq!(left_of(19, 1484, true, &["1@642<1.0:allowed"], &[]), ["+1@642<1.0:allowed"], "no size");
        assert_eq!(left_of(19, 1484, true, &["0@-<1.0:allowed"], &[]), ["+0@-<1.0:allowed"], "all is there");
        // Rule 3 looks at the headers as they were sent, and at the body, which comes behind them.
        assert!(left_of(22, 522, false, &["3@53<1.0:allowed"], &[]).is_empty());
        assert!(left_of(22, 522, true, &["3@46<1.0:allowed"], &[]).is_empty());
        assert_eq!(left_of(22, 522, false, &["2@53<1.0:allowed"], &[]), ["+2@53<1.0:allowed"]);
        assert_eq!(left_of(22, 522, false, &[], &["3@53<1.0:allowed"]), ["-3@53<1.0:allowed"]);
        // Data that comes again behind a FIN, and that a rule refuses.
        let ours = ["0@17<1.0:blocked", "drop@17:rules"];
        assert!(left_of(23, 524, true, &ours, &["drop@17:stream.error"]).is_empty());
        assert_eq!(left_of(23, 524, true, &ours, &[]), ["+0@17<1.0:blocked", "+drop@17:rules"]);
    }

    #[test]
    fn ends_of_parts_rubbish_and_files_explain_what_they_bring_only() {
        // Rule 0 has `endswith` for a body that goes on until the connection closes.
        assert!(left_of(38, 843, true, &["0@10<1.0:blocked", "drop@10:rules"], &[]).is_empty());
        assert_eq!(left_of(38, 843, false, &["0@10<1.0:allowed"], &[]), ["+0@10<1.0:allowed"]);
        // The last line of the client's first message is behind a hole, and has no end.
        const EVENT: &str = "anomaly:REQUEST_BODY_UNEXPECTED";
        let http = ["flow:TCP:http"];
        assert!(left_of(32, 1962, false, &http, &[EVENT, "fileinfo", "flow:TCP:http"]).is_empty());
        assert_eq!(left_of(32, 1960, false, &http, &[EVENT, "flow:TCP:http"]).len(), 1);
    }
}
