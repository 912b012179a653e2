// SPDX-License-Identifier: Apache-2.0
//! Causes of differences in rules that show elsewhere than where they come from: bits that silent rules set, sizes that bound contents, a
//! protocol that is given up; as in [`crate::causes`].

use crate::causes::{
    Case, behind_a_transform, depth_that_varies, flags_that_are_not_there, random_of_the_other_side,
};
use crate::finding::{Alert, Finding, What};
use crate::pair::Body;
use crate::passage::key;
use crate::times::hangs_on;

/// The bit that a rule asks for is set by one that tells nothing, and that holds here only, or in Suricata only.
pub(crate) fn bit_of_a_silent_rule(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let sets = |rule: usize, frame: u32| {
        let silent = case.pair.rules.get(rule)?.options.iter().any(|option| option.ends_with("noalert"));
        let (_, packet) = case.passage.packet(frame)?;
        let (flow, to_server) = (alert.flow, packet.to_server);
        let other = Alert { rule, frame: Some(frame), flow, to_server, blocked: false };
        if !silent || key(packet) != flow || !hangs_on(case, finding, &other) {
            return None;
        }
        let of_it = Finding { more: finding.more, what: What::Alert(other), flow: None };
        let here_only = || {
            flags_that_are_not_there(case, &of_it)
                .or_else(|| random_of_the_other_side(case, &of_it).filter(|_| case.ips))
        };
        behind_a_transform(case, &of_it).or_else(|| finding.more.then(here_only)?)
    };
    let upto = alert.frame?;
    let rules = 0..case.pair.rules.len();
    rules
        .flat_map(|rule| (1..=upto).map(move |frame| (rule, frame)))
        .find_map(|(rule, frame)| sets(rule, frame))
}

/// Suricata takes `dsize:!N` for a size that all contents have to fit in, and looks no further.
pub(crate) fn contents_beyond_a_size(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    (finding.more && lies_beyond(case, alert)).then_some(
        "contents beside `dsize:!N` may lie anywhere; Suricata looks for them in the first N bytes",
    )
}

/// Whether the packet of an alert is longer than the size that its rule does not want.
fn lies_beyond(case: &Case<'_>, alert: &Alert) -> bool {
    let packet = alert.frame.and_then(|frame| case.passage.packet(frame)).map(|(_, packet)| &packet.body);
    let size = match packet {
        Some(Body::Tcp(segment)) => segment.load.len(),
        Some(Body::Udp(data) | Body::Echo(_, _, data)) => data.len(),
        None => 0,
    };
    let options = case.pair.rules.get(alert.rule).map_or(&[][..], |rule| &rule.options);
    let mut bounds =
        options.iter().filter_map(|option| option.strip_prefix("dsize:!")?.parse::<usize>().ok());
    bounds.any(|bound| size > bound) && options.iter().any(|option| option.starts_with("content:"))
}

/// The same where such a rule passes, also one whose depth varies.
pub(crate) fn passed_beside_a_size(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let passes = |rule: usize| {
        let of_it = Alert { rule, ..alert.clone() };
        let told = Finding { more: true, what: What::Alert(of_it.clone()), flow: None };
        case.pair.rules.get(rule).is_some_and(|rule| rule.action == "pass")
            && (lies_beyond(case, &of_it) || depth_that_varies(case, &told).is_some())
    };
    // It passes its packet, on which there is no other alert then.
    let quiet = !case.ours.iter().any(|one| (one.frame, one.flow) == (alert.frame, alert.flow));
    let is = !finding.more && quiet && (0..case.pair.rules.len()).any(passes);
    is.then_some(
        "a `pass` with contents beside a size holds wherever they lie; Suricata's holds where they fit in",
    )
}

/// Where both sides have said what no protocol begins with, prevention has closed detection; Suricata waits for more.
pub(crate) fn unknown_until_it_is_closed(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let (at, ..) = case.passage.segment(alert.frame?)?;
    let speaks = |to_server: bool| !case.passage.said_before(alert.flow, to_server, at + 1).is_empty();
    let is = case.ips
        && !finding.more
        && case.asks(alert, &["app-layer-protocol:unknown"])
        && case.got.has("flow:TCP:failed")
        && speaks(true)
        && speaks(false);
    is.then_some("in prevention detection of the protocol ends as soon as no more bytes can tell")
}

#[cfg(test)]
mod tests {
    use crate::explained::left_of;

    #[test]
    fn bits_sizes_and_closed_detection_explain_what_hangs_on_them_only() {
        // Rule 2 asks for the bit that rule 1 sets in silence with the client's random.
        assert!(left_of(32, 631, true, &["2@4>1.0:allowed"], &[]).is_empty());
        assert_eq!(left_of(32, 631, true, &[], &["2@4>1.0:allowed"]), ["-2@4>1.0:allowed"]);
        assert_eq!(left_of(32, 631, false, &["2@4>1.0:allowed"], &[]), ["+2@4>1.0:allowed"]);
        assert_eq!(left_of(32, 631, true, &["0@4>1.0:allowed"], &[]), ["+0@4>1.0:allowed"], "asks for none");
        // Rule 2 sets it with packets without a FIN; packet 1 is a SYN.
        assert!(left_of(43, 1607, false, &["1@8>1.0:allowed"], &[]).is_empty());
        assert_eq!(left_of(43, 1607, false, &["1@1>1.0:allowed"], &[]), ["+1@1>1.0:allowed"]);
        // Rule 0, which is silent, compares what it took out of a value behind a transform.
        assert!(left_of(53, 1615, true, &[], &["2@4>1.0:allowed"]).is_empty());
        assert_eq!(left_of(53, 1615, true, &[], &["3@4<1.0:allowed"]), ["-3@4<1.0:allowed"], "asks for none");
        // The content of rule 2 lies behind the 13 bytes that the datagram may not have.
        assert!(left_of(34, 656, false, &["2@4>1.0:allowed"], &[]).is_empty());
        assert_eq!(left_of(34, 656, false, &[], &["2@4>1.0:allowed"]), ["-2@4>1.0:allowed"]);
        assert_eq!(left_of(34, 656, false, &["0@4>1.0:allowed"], &[]), ["+0@4>1.0:allowed"], "no `dsize`");
        // Rule 0 passes what has a content in a depth that varies, beside a size.
        assert!(left_of(60, 449, false, &[], &["1@4>1.0:allowed"]).is_empty());
        assert_eq!(
            left_of(60, 449, false, &["2@4>1.0:allowed"], &["1@4>1.0:allowed", "2@4>1.0:allowed"]),
            ["-1@4>1.0:allowed"],
            "nothing passes where there are alerts"
        );
        assert_eq!(left_of(60, 448, false, &[], &["1@4>1.0:allowed"]), ["-1@4>1.0:allowed"]);
        // The client's hello is broken: its random is looked at, later.
        const BROKEN: &str = "anomaly:HANDSHAKE_INVALID_LENGTH";
        let (ours, theirs) = (["3@81>1.0:allowed", BROKEN], ["3@36>1.0:allowed", BROKEN]);
        assert!(left_of(62, 1142, false, &ours, &theirs).is_empty());
        assert_eq!(left_of(62, 1142, false, &[BROKEN], &theirs), ["-3@36>1.0:allowed"]);
        // A rule that matches once matches behind the FIN that Suricata's matches with.
        let (ours, theirs) = (["2@8>1.0:allowed"], ["2@6>1.0:allowed"]);
        assert!(left_of(61, 1886, false, &ours, &theirs).is_empty());
        assert_eq!(left_of(61, 1886, false, &ours, &[]), ["+2@8>1.0:allowed"]);
        // Both sides have spoken with packet 10.
        const FAILED: &str = "flow:TCP:failed";
        assert!(left_of(42, 1410, true, &[FAILED], &["3@10<1.0:allowed", FAILED]).is_empty());
        assert_eq!(left_of(42, 1410, true, &[], &["3@10<1.0:allowed"]), ["-3@10<1.0:allowed"]);
        assert_eq!(left_of(42, 1410, false, &[FAILED], &["3@10<1.0:allowed", FAILED]), ["-3@10<1.0:allowed"]);
        // 64 bytes are shown, and what rule 2 decodes is counted from their beginning.
        assert!(left_of(45, 1218, true, &[], &["2@11<1.0:allowed"]).is_empty());
        assert_eq!(left_of(45, 1218, false, &[], &["2@11<1.0:allowed"]), ["-2@11<1.0:allowed"]);
    }

    #[test]
    fn what_is_missing_is_explained_where_its_cause_is_only() {
        // The datagram of packet 12, the server's, is refused; packets 18 and 20 are FINs.
        const DEFRAG: [&str; 1] = ["drop@12:defrag.error"];
        assert!(left_of(7, 1154, true, &DEFRAG, &["3@-<1.0:allowed"]).is_empty());
        assert!(left_of(7, 1154, true, &DEFRAG, &["3@20<1.0:allowed"]).is_empty());
        assert_eq!(
            left_of(7, 1154, true, &DEFRAG, &["2@18>1.0:allowed"]),
            ["-2@18>1.0:allowed"],
            "what the client says is whole"
        );
        // What lies ahead in packet 5 is readable with packet 6.
        assert_eq!(left_of(54, 174, true, &[], &["3@5>1.0:allowed"]), ["-3@5>1.0:allowed"]);
        // Packet 5 has no data, packet 4 is the client's hello.
        assert!(left_of(4, 561, true, &["drop@5:rules"], &["drop@6:rules"]).is_empty());
        assert_eq!(left_of(4, 561, true, &["drop@4:rules"], &[]), ["+drop@4:rules"]);
    }
}
