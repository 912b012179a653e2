// SPDX-License-Identifier: Apache-2.0
//! Causes of differences: detection of the protocol where flows may begin in the middle (`stream.midstream`), and sessions that are read on.

use crate::causes::Case;
use crate::finding::{Finding, FlowKey, What};
use crate::passage::{ahead, segment};
use bartizan_testkit::packet::{ACK, SYN};

/// Ports that Suricata asks a probe at: how many bytes of the client it takes to answer, and how many of the server.
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

/// Whether the server's probe has answered when detection has seen a flow's packets up to one, and whether the client's has not.
/// Passively what is acknowledged was seen, in prevention what came.
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
        // Data that a direction sent, or what the other one says it has of it.
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

/// Whether the server's probe answers before the client's, or the flow is met with data of its server.
fn is_answered_first(case: &Case<'_>, flow: FlowKey) -> bool {
    let met = case.passage.of_flow(flow).next().is_some_and(|(_, packet)| {
        !packet.to_server && segment(packet).is_some_and(|one| one.flags & SYN == 0)
    });
    let first = |(at, _)| probes(case, flow, at).is_some_and(|(server, client)| server && (client || met));
    case.passage.of_flow(flow).any(first)
}

/// Where flows may begin in the middle, Suricata's detection of the client's side does not end once a probe was asked about the server's.
pub(crate) fn answer_before_a_probe(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Record(name) = &finding.what else { return None };
    let is = matches!((finding.more, name.as_str()), (true, "flow:TCP:failed") | (false, "flow:TCP:-"))
        && midstream(case)
        && case.concerns(finding, |flow| is_answered_first(case, flow));
    is.then_some(
        "detection ends at ports with a probe as well where flows may begin in the middle; Suricata's does not once the server has spoken",
    )
}

/// There, what no pattern knows is not taken for a request by Suricata when the server's answer tells the protocol.
pub(crate) fn no_request_before_an_answer(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const ONE_SIDE: &str = "anomaly:APPLAYER_DETECT_PROTOCOL_ONLY_ONE_DIRECTION";
    const METHOD: u32 = 20;
    let told = case
        .findings
        .iter()
        .any(|one| one.more && matches!(&one.what, What::Record(name) if name == ONE_SIDE));
    // Its first word is no method.
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
        What::Alert(alert) => finding.more && alert.to_server && case.is_on_http(alert) && of(alert.flow),
        What::Drop(..) => false,
    };
    (told && midstream(case) && is && case.got.has("flow:TCP:http")).then_some(
        "what no pattern knows is read as requests when the answer tells the protocol; where flows may begin in the middle Suricata does not",
    )
}

/// A session whose hello has a version that no list has is read on, with an event; Suricata's parser fails at the next record.
pub(crate) fn version_that_no_list_has(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const EVENT: &str = "anomaly:INVALID_RECORD_VERSION";
    // A record's head, a hello's, and its version.
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
    fn detection_where_flows_may_begin_in_the_middle_is_explained_at_ports_with_a_probe_only() {
        let (failed, open) = (["flow:TCP:failed"], ["flow:TCP:-"]);
        let both = ["-flow:TCP:-", "+flow:TCP:failed"];
        // The server speaks first at port 53; at port 80 nothing of the client is acknowledged.
        assert!(left_of(32, 728, false, &failed, &open).is_empty());
        assert_eq!(left_of(32, 728, false, &open, &failed).len(), 2);
        assert!(left_of(45, 2270, false, &failed, &open).is_empty());
        // Flows do not begin in the middle; a port without a probe.
        assert_eq!(left_of(1, 600, false, &failed, &open), both);
        assert_eq!(left_of(32, 1854, false, &failed, &open), both);
        // The client begins with rubbish; pair 968 is its scene.
        const ONE_SIDE: &str = "anomaly:APPLAYER_DETECT_PROTOCOL_ONLY_ONE_DIRECTION";
        const UNMATCHED: &str = "anomaly:UNABLE_TO_MATCH_RESPONSE_TO_REQUEST";
        let (ours, theirs) = ([ONE_SIDE, "flow:TCP:http"], [UNMATCHED, "http", "flow:TCP:http"]);
        assert!(left_of(37, 970, false, &ours, &theirs).is_empty());
        assert_eq!(left_of(37, 968, false, &ours, &theirs).len(), 3);
        assert_eq!(left_of(37, 970, false, &["flow:TCP:http"], &theirs).len(), 2, "it is not read");
    }

    #[test]
    fn versions_and_heads_explain_what_they_bring_only() {
        // The copy of the hello's version that came first is rubbish; pair 48 is its scene.
        let ours = ["anomaly:INVALID_RECORD_VERSION", "flow:TCP:tls"];
        let theirs = ["drop@9:applayer.error", "flow:TCP:tls"];
        assert!(left_of(38, 52, true, &ours, &theirs).is_empty());
        assert_eq!(left_of(38, 48, true, &ours, &theirs).len(), 2);
        assert_eq!(left_of(38, 52, true, &ours[1..], &theirs), ["-drop@9:applayer.error"], "it is not told");
        // The server begins with rubbish; a line that a segment ends with is in it. Pair 2344 is its scene.
        const UNMATCHED: &str = "anomaly:UNABLE_TO_MATCH_RESPONSE_TO_REQUEST";
        let (ours, theirs) = (["flow:TCP:http"], [UNMATCHED, "http", "fileinfo", "flow:TCP:http"]);
        assert!(left_of(51, 2350, false, &ours, &theirs).is_empty());
        assert_eq!(left_of(51, 2344, false, &ours, &theirs).len(), 3);
        // Rule 0 is on the body, which is all that the server says.
        assert!(left_of(50, 1614, false, &["0@-<1.0:allowed", "fileinfo"], &["fileinfo"]).is_empty());
        assert_eq!(left_of(50, 1614, false, &["fileinfo"], &["0@-<1.0:allowed", "fileinfo"]).len(), 1);
        assert_eq!(left_of(50, 1608, false, &["0@-<1.0:allowed", "fileinfo"], &["fileinfo"]).len(), 1);
    }
}
