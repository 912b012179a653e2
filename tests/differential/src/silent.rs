// SPDX-License-Identifier: Apache-2.0
//! Causes of differences that show in other rules than those that cause them: bits set by rules without
//! alerts, sizes that bound contents, a protocol that is given up; as in [`crate::causes`].

use crate::causes::{
    Case, behind_a_transform, depth_that_varies, flags_that_are_not_there, random_of_the_other_side,
};
use crate::finding::{Alert, Finding, What};
use crate::pair::{Body, Packet, Rule};
use crate::passage::key;
use crate::text::looked_for;
use crate::times::hangs_on;

/// Header of a record, header of a message, a version and the random, in bytes.
const RANDOM: usize = 5 + 4 + 2 + 32;

/// The required bit is set by a rule without alerts that matches in one of the programs only.
pub(crate) fn bit_of_a_silent_rule(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    // An additional alert here requires the bit to be set.
    let waits = &["flowbits:isset", "xbits:isset", "hostbits:isset", "flowint:"];
    if finding.more && !case.asks(alert, waits) {
        return None;
    }
    // This program's alert comes earlier for that reason.
    let mut others = case.findings.iter().filter(|other| !finding.more && other.more);
    let earlier = others.find(|other| match &other.what {
        What::Alert(ours) => ours.is_like(alert) && ours.place() < alert.place(),
        _ => false,
    });
    if let Some(reason) = earlier.and_then(|ours| bit_of_a_silent_rule(case, ours)) {
        return Some(reason);
    }
    let sets = |rule: usize, frame: u32| {
        let silent = case.pair.rules.get(rule)?.options.iter().any(|option| option.ends_with("noalert"));
        let (_, packet) = case.passage.packet(frame)?;
        let (flow, to_server) = (alert.flow, packet.to_server);
        let other = Alert { rule, frame: Some(frame), flow, to_server, blocked: false };
        if !silent || key(packet) != flow || !hangs_on(case, finding, &other) {
            return None;
        }
        let of_it = Finding { more: finding.more, what: What::Alert(other), flow: None };
        // The hello of its side is there.
        let said = || {
            let (at, _) = case.passage.packet(frame)?;
            let said = case.passage.said_before(flow, to_server, at + 1);
            (said.starts_with(&[0x16, 3]) && said.len() >= RANDOM).then_some(())
        };
        let here_only = || {
            flags_that_are_not_there(case, &of_it)
                .or_else(|| random_of_the_other_side(case, &of_it).filter(|_| case.ips && said().is_some()))
        };
        behind_a_transform(case, &of_it).or_else(|| finding.more.then(here_only)?)
    };
    let upto = alert.frame?;
    let rules = 0..case.pair.rules.len();
    rules
        .flat_map(|rule| (1..=upto).map(move |frame| (rule, frame)))
        .find_map(|(rule, frame)| sets(rule, frame))
}

/// Suricata takes `dsize:!N` for a size that all contents must fit in, and searches no further.
pub(crate) fn contents_beyond_a_size(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    (finding.more && lies_beyond(case, alert)).then_some(
        "contents beside `dsize:!N` may lie anywhere; Suricata looks for them in the first N bytes",
    )
}

/// Whether the packet of an alert is longer than the size that its rule negates.
fn lies_beyond(case: &Case<'_>, alert: &Alert) -> bool {
    let size = |packet: &Packet| match &packet.body {
        Body::Tcp(segment) => segment.load.len(),
        Body::Udp(data) | Body::Echo(_, _, data) | Body::Other(_, data) => data.len(),
    };
    let size = match alert.frame {
        Some(frame) => case.passage.packet(frame).map(|(_, packet)| size(packet)),
        // A reassembled datagram is not a frame.
        None => {
            let of_it = |packet: &Packet| packet.fragments.is_some() && packet.to_server == alert.to_server;
            let whole = case.passage.of_flow(alert.flow).filter(|(_, packet)| of_it(packet));
            whole.map(|(_, packet)| size(packet)).max()
        }
    };
    let size = size.unwrap_or_default();
    let options = case.pair.rules.get(alert.rule).map_or(&[][..], |rule| &rule.options);
    let mut bounds =
        options.iter().filter_map(|option| option.strip_prefix("dsize:!")?.parse::<usize>().ok());
    bounds.any(|bound| size > bound) && options.iter().any(|option| option.starts_with("content:"))
}

/// A `pass` rule with a negated `dsize`, or with a variable depth, holds in this program only.
pub(crate) fn passed_beside_a_size(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let passes = |rule: usize| {
        let of_it = Alert { rule, ..alert.clone() };
        let told = Finding { more: true, what: What::Alert(of_it.clone()), flow: None };
        case.pair.rules.get(rule).is_some_and(|rule| rule.action == "pass")
            && (lies_beyond(case, &of_it) || depth_that_varies(case, &told).is_some())
    };
    // It passes its packet, on which there is then no other alert.
    let quiet = !case.ours.iter().any(|one| (one.frame, one.flow) == (alert.frame, alert.flow));
    let is = !finding.more && quiet && (0..case.pair.rules.len()).any(passes);
    is.then_some(
        "a `pass` with contents beside a size holds wherever they lie; Suricata's holds where they fit in",
    )
}

/// If the first data of both sides fits no protocol, prevention has ended detection; Suricata waits for more.
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

/// An HTTP drop rule without alerts drops when a line ends with its segment; Suricata waits for the next
/// line.
pub(crate) fn silent_on_a_line(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const RECENT: usize = 3;
    let (flow, place) = match &finding.what {
        What::Alert(alert) if !finding.more => (alert.flow, alert.place()),
        What::Drop(Some(frame), reason) => {
            let kind = matches!((finding.more, reason.as_str()), (_, "rules") | (true, "flow.drop"));
            (kind.then(|| case.passage.packet(*frame).map(|(_, packet)| key(packet)))??, *frame)
        }
        _ => return None,
    };
    let silent = |(rule, text): (usize, &Rule)| {
        let alert = Alert { rule, frame: None, flow, to_server: true, blocked: true };
        let refuses =
            matches!(text.action, "drop" | "reject") && text.options.iter().any(|one| one == "noalert");
        refuses && case.is_on_http(&alert)
    };
    // After a line's end, in a connection without further alerts.
    let at_a_line = |frame: u32| {
        let Some((at, packet)) = case.passage.packet(frame) else { return false };
        let before: Vec<_> = case.passage.before(flow, packet.to_server, at + 1).collect();
        let mut recent = before.iter().rev().filter(|one| !one.load.is_empty()).take(RECENT);
        recent.any(|one| one.load.ends_with(b"\n") || one.load.ends_with(b"\r"))
    };
    let refused = |other: &Finding, more: bool| match &other.what {
        What::Drop(Some(frame), reason) if reason == "rules" && other.more == more => Some(*frame),
        _ => None,
    };
    let told = |more: bool| case.findings.iter().filter_map(move |other| refused(other, more));
    let is = if case.ips {
        // This program drops first, and Suricata soon after.
        told(true)
            .zip(told(false))
            .any(|(ours, theirs)| at_a_line(ours) && ours < theirs && (ours..=theirs).contains(&place))
    } else {
        let quiet = !case.ours.iter().any(|one| one.flow == flow && one.place() >= place);
        matches!(finding.what, What::Alert(_)) && quiet && at_a_line(place)
    };
    (is && case.pair.rules.iter().enumerate().any(silent)).then_some(
        "a line of HTTP that ends with its segment is looked at when it is known to be over: a rule that refuses in silence refuses earlier",
    )
}

/// A drop rule on `tls.random` without alerts drops when its own side has sent the random; Suricata waits for
/// the other side's.
pub(crate) fn silent_on_a_random(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let silent = |rule: &Rule| {
        let has = |word: &str| rule.options.iter().any(|option| option.starts_with(word));
        matches!(rule.action, "drop" | "reject") && has("noalert") && has("tls.random")
    };
    // Here with the segment that completes the hello.
    let first = case.findings.iter().find_map(|other| match &other.what {
        What::Drop(Some(frame), reason) if other.more && reason == "rules" => {
            let (at, packet, segment) = case.passage.segment(*frame)?;
            let said = case.passage.said_before(key(packet), packet.to_server, at + 1);
            // A segment that arrives before its turn adds nothing yet.
            let before = said.len().checked_sub(segment.load.len())?;
            (said.starts_with(&[0x16, 3]) && said.len() >= RANDOM && before < RANDOM)
                .then_some((key(packet), *frame))
        }
        _ => None,
    })?;
    let of_it = |flow, place| first.0 == flow && place >= first.1;
    let is = match &finding.what {
        What::Drop(Some(frame), reason) => {
            let kind =
                matches!((finding.more, reason.as_str()), (true, "rules" | "flow.drop") | (false, "rules"));
            kind && case.passage.packet(*frame).is_some_and(|(_, packet)| of_it(key(packet), *frame))
        }
        What::Drop(None, _) => false,
        What::Alert(alert) => !finding.more && of_it(alert.flow, alert.place()),
        What::Record(name) => {
            !finding.more && name == "tls" && case.concerns(finding, |flow| flow == first.0)
        }
    };
    (case.ips && is && case.pair.rules.iter().any(silent)).then_some(
        "`tls.random` is looked at when its own side has sent it: a rule that refuses in silence refuses earlier",
    )
}

/// Suricata extracts a number of zero length from the memory after its value.
pub(crate) fn number_of_no_length(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const FIELD: &[u8] = b"content-length:";
    let What::Alert(alert) = &finding.what else { return None };
    let options = &case.pair.rules.get(alert.rule)?.options;
    let bound = options.iter().find_map(|option| option.split_once("byte_test:0,>,")?.1.split(',').next())?;
    let bound: u64 = bound.parse().ok()?;
    let at = alert.frame.and_then(|frame| case.passage.packet(frame)).map_or(usize::MAX, |(at, _)| at);
    let said =
        case.passage.said_before(alert.flow, alert.to_server, at.saturating_add(1)).to_ascii_lowercase();
    let digits = |place: usize| -> Option<u64> {
        let value = said.get(place + FIELD.len()..)?.trim_ascii_start();
        let digits: Vec<u8> = value.iter().copied().take_while(u8::is_ascii_digit).collect();
        String::from_utf8(digits).ok()?.parse().ok()
    };
    let fields = || said.windows(FIELD.len()).enumerate().filter(|(_, word)| *word == FIELD);
    let none =
        fields().count() > 0 && fields().all(|(place, _)| digits(place).is_some_and(|size| size <= bound));
    let is = !finding.more && case.asks(alert, &["http.content_len"]) && none;
    is.then_some(
        "`byte_test` of no bytes reads the digits that are there; Suricata reads on behind the value",
    )
}

/// Suricata stops inspecting the bytes of a TLS connection, of both sides, once a side encrypts.
pub(crate) fn behind_a_handshake(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let at = alert.frame.and_then(|frame| case.passage.packet(frame)).map_or(usize::MAX, |(at, _)| at);
    let encrypts = |to_server: bool| {
        let said = case.passage.said_before(alert.flow, to_server, at.saturating_add(1));
        said.windows(3).any(|head| matches!(head, [0x17, 3, 0..=4]))
    };
    // A version next to a pattern in the stream is a condition, not a buffer.
    let is_buffer = |option: &str| !option.starts_with("tls.version:");
    let of_buffer = |option: &String| {
        ["tls.", "ja3", "ja4"].iter().any(|word| option.starts_with(word)) && is_buffer(option)
    };
    let versions = case.asks(alert, &["tls.version:"]) && !case.rule(alert)?.options.iter().any(of_buffer);
    let of_tls = || case.got.has("flow:TCP:tls") && case.asks(alert, &["content:"]);
    let is = finding.more
        && (case.rule(alert)?.head.starts_with("tls ") || of_tls())
        && (!case.is_on_buffers(alert) || versions)
        && (encrypts(true) || encrypts(false));
    is.then_some("rules on the stream of a TLS connection look on, with what lies before, when sides encrypt: what is no TLS could follow")
}

/// A `pass` on the stream of a TLS connection is evaluated after sides encrypt, too; Suricata inspects none
/// of its bytes then.
pub(crate) fn passed_when_sides_encrypt(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const ENCRYPTED: &[u8] = &[0x17, 3];
    let What::Alert(alert) = &finding.what else { return None };
    let at = alert.frame.and_then(|frame| case.passage.packet(frame)).map_or(usize::MAX, |(at, _)| at + 1);
    let encrypts = |to_server: bool| {
        let said = case.passage.said_before(alert.flow, to_server, at);
        said.windows(ENCRYPTED.len()).any(|two| two == ENCRYPTED)
    };
    // The content that it searches was sent before.
    let said = [true, false].map(|side| case.passage.said_before(alert.flow, side, at));
    let was_said = |what: &[u8]| {
        said.iter().any(|said| said.windows(what.len().max(1)).any(|piece| piece.eq_ignore_ascii_case(what)))
    };
    let passes = |(rule, text): (usize, &Rule)| {
        let of_it = Alert { rule, ..alert.clone() };
        text.action == "pass"
            && (text.head.starts_with("tls ") || case.got.has("flow:TCP:tls"))
            && !case.is_on_buffers(&of_it)
            && case.asks(&of_it, &["content:", "pcre:", "byte_", "dsize:"])
            && text.options.iter().filter_map(|option| looked_for(option)).all(|what| was_said(&what))
    };
    let is = !finding.more
        && case.is_quiet(alert)
        && (encrypts(true) || encrypts(false))
        && case.pair.rules.iter().enumerate().any(passes);
    is.then_some("a `pass` on the stream of a TLS connection holds also when sides encrypt; Suricata looks at no bytes then")
}

#[cfg(test)]
mod tests {
    use crate::explained::left_of;

    #[test]
    fn bits_sizes_and_closed_detection_explain_what_hangs_on_them_only() {
        // Rule 2 requires the bit that rule 1 sets without an alert on the client's random.
        assert!(left_of(32, 631, true, &["2@4>1.0:allowed"], &[]).is_empty());
        assert_eq!(left_of(32, 631, true, &[], &["2@4>1.0:allowed"]), ["-2@4>1.0:allowed"]);
        assert_eq!(left_of(32, 631, false, &["2@4>1.0:allowed"], &[]), ["+2@4>1.0:allowed"]);
        assert_eq!(left_of(32, 631, true, &["0@4>1.0:allowed"], &[]), ["+0@4>1.0:allowed"], "asks for none");
        // Rule 2 sets the bit on packets without a FIN; packet 1 is a SYN.
        assert!(left_of(43, 1607, false, &["1@8>1.0:allowed"], &[]).is_empty());
        assert_eq!(left_of(43, 1607, false, &["1@1>1.0:allowed"], &[]), ["+1@1>1.0:allowed"]);
        // Rule 0, which has no alerts, compares a number extracted from a value after a transform.
        assert!(left_of(53, 1615, true, &[], &["2@4>1.0:allowed"]).is_empty());
        assert_eq!(left_of(53, 1615, true, &[], &["3@4<1.0:allowed"]), ["-3@4<1.0:allowed"], "asks for none");
        // Rule 2 requires the bit that rule 1 sets without an alert, in Suricata with packet 5 only.
        let theirs = ["2@8>1.0:allowed"];
        assert!(left_of(99, 375, true, &["2@4>1.0:allowed"], &theirs).is_empty());
        assert_eq!(left_of(99, 375, true, &[], &theirs), ["-2@8>1.0:allowed"]);
        // Rule 0 counts to two, on both sides.
        assert!(left_of(94, 53, false, &["0@9<1.0:allowed"], &["0@7>1.0:allowed"]).is_empty());
        assert_eq!(left_of(94, 53, false, &[], &["0@7>1.0:allowed"]), ["-0@7>1.0:allowed"]);
        // The server's hello is acknowledged with packet 7, the client's with packet 8.
        assert!(left_of(95, 2358, false, &[], &["2@8<1.0:allowed"]).is_empty());
        assert_eq!(left_of(95, 2358, true, &[], &["2@8<1.0:allowed"]), ["-2@8<1.0:allowed"]);
        assert_eq!(left_of(95, 2352, false, &[], &["2@8<1.0:allowed"]), ["-2@8<1.0:allowed"], "the scene");
        // The content of rule 2 is beyond the 13 bytes that the rule negates as the datagram's size.
        assert!(left_of(34, 656, false, &["2@4>1.0:allowed"], &[]).is_empty());
        assert_eq!(left_of(34, 656, false, &[], &["2@4>1.0:allowed"]), ["-2@4>1.0:allowed"]);
        assert_eq!(left_of(34, 656, false, &["0@4>1.0:allowed"], &[]), ["+0@4>1.0:allowed"], "no `dsize`");
        // Rule 0 passes a content within a variable depth, and has a size.
        assert!(left_of(60, 449, false, &[], &["1@4>1.0:allowed"]).is_empty());
        assert_eq!(
            left_of(60, 449, false, &["2@4>1.0:allowed"], &["1@4>1.0:allowed", "2@4>1.0:allowed"]),
            ["-1@4>1.0:allowed"],
            "nothing passes where there are alerts"
        );
        assert_eq!(left_of(60, 448, false, &[], &["1@4>1.0:allowed"]), ["-1@4>1.0:allowed"]);
        // The client's hello is broken: its random is inspected later.
        const BROKEN: &str = "anomaly:HANDSHAKE_INVALID_LENGTH";
        let (ours, theirs) = (["3@81>1.0:allowed", BROKEN], ["3@36>1.0:allowed", BROKEN]);
        assert!(left_of(62, 1142, false, &ours, &theirs).is_empty());
        assert_eq!(left_of(62, 1142, false, &[BROKEN], &theirs), ["-3@36>1.0:allowed"]);
        // A rule that matches once matches after the FIN with which Suricata's matches.
        let (ours, theirs) = (["2@8>1.0:allowed"], ["2@6>1.0:allowed"]);
        assert!(left_of(61, 1886, false, &ours, &theirs).is_empty());
        assert_eq!(left_of(61, 1886, false, &ours, &[]), ["+2@8>1.0:allowed"]);
        // Both sides have sent data with packet 10.
        const FAILED: &str = "flow:TCP:failed";
        assert!(left_of(42, 1410, true, &[FAILED], &["3@10<1.0:allowed", FAILED]).is_empty());
        assert_eq!(left_of(42, 1410, true, &[], &["3@10<1.0:allowed"]), ["-3@10<1.0:allowed"]);
        assert_eq!(left_of(42, 1410, false, &[FAILED], &["3@10<1.0:allowed", FAILED]), ["-3@10<1.0:allowed"]);
        // A window of 64 bytes is inspected, and rule 2 decodes from its beginning.
        assert!(left_of(45, 1218, true, &[], &["2@11<1.0:allowed"]).is_empty());
        assert_eq!(left_of(45, 1218, false, &[], &["2@11<1.0:allowed"]), ["-2@11<1.0:allowed"]);
    }

    #[test]
    fn what_is_missing_is_explained_where_its_cause_is_only() {
        // The datagram of packet 12, the server's, is dropped; packets 18 and 20 are FINs.
        const DEFRAG: [&str; 1] = ["drop@12:defrag.error"];
        assert!(left_of(7, 1154, true, &DEFRAG, &["3@-<1.0:allowed"]).is_empty());
        assert!(left_of(7, 1154, true, &DEFRAG, &["3@20<1.0:allowed"]).is_empty());
        assert_eq!(
            left_of(7, 1154, true, &DEFRAG, &["2@18>1.0:allowed"]),
            ["-2@18>1.0:allowed"],
            "what the client says is whole"
        );
        // The data that packet 5 brings ahead is readable with packet 6.
        assert_eq!(left_of(54, 174, true, &[], &["3@5>1.0:allowed"]), ["-3@5>1.0:allowed"]);
        // Packet 5 has no data, packet 4 is the client's hello.
        assert!(left_of(4, 561, true, &["drop@5:rules"], &["drop@6:rules"]).is_empty());
        assert_eq!(left_of(4, 561, true, &["drop@4:rules"], &[]), ["+drop@4:rules"]);
    }

    #[test]
    fn silence_lines_and_numbers_of_no_length_explain_themselves_only() {
        // Rule 0 drops without an alert on `http.accept_enc`; the client's bytes arrive one by one, its last
        // field ends with packet 294.
        let ours = ["drop@296:rules", "drop@297:flow.drop"];
        assert!(left_of(104, 1418, true, &ours, &["2@298>1.0:allowed", "drop@298:rules"]).is_empty());
        assert!(left_of(104, 1418, false, &[], &["2@301>1.0:allowed"]).is_empty());
        assert_eq!(left_of(104, 1418, false, &[], &["2@9>1.0:allowed"]), ["-2@9>1.0:allowed"]);
        assert_eq!(left_of(104, 1418, true, &[], &["2@298>1.0:allowed"]), ["-2@298>1.0:allowed"]);
        // Rule 0 drops without an alert on the client's random, in packet 4.
        let ours = ["drop@4:rules", "drop@5:flow.drop"];
        assert!(left_of(100, 1329, true, &ours, &["tls"]).is_empty());
        assert_eq!(left_of(100, 1329, true, &["drop@3:rules"], &[]), ["+drop@3:rules"], "no hello");
        // Rule 3 requires more than 10 in `http.content_len`: the response of packet 10 has 0, the request of
        // packet 4 has 23.
        assert!(left_of(105, 1032, false, &[], &["3@10<1.0:allowed"]).is_empty());
        assert_eq!(left_of(105, 1032, false, &[], &["3@6>1.0:allowed"]), ["-3@6>1.0:allowed"]);
        // The datagram arrives in fragments; rule 2 has a `dsize:!21`.
        assert!(left_of(55, 404, false, &["2@->1.0:allowed"], &[]).is_empty());
        assert_eq!(left_of(55, 404, false, &["0@->1.0:allowed"], &[]), ["+0@->1.0:allowed"]);
        // Packet 4 is far ahead, and a rule without alerts has dropped it.
        let theirs = ["drop@4:rules", "drop@5:rules"];
        assert!(left_of(50, 2266, true, &["drop@4:rules", "drop@5:flow.drop"], &theirs).is_empty());
        assert_eq!(left_of(50, 2266, true, &["drop@5:flow.drop"], &theirs[1..]).len(), 2);
        // The client's hello is acknowledged only with the end.
        assert!(left_of(44, 1974, false, &[], &["0@10<1.0:allowed"]).is_empty());
        assert_eq!(left_of(44, 1974, false, &[], &["3@11>1.0:allowed"]), ["-3@11>1.0:allowed"]);
    }

    #[test]
    fn last_chunks_explain_what_is_looked_at_behind_them_only() {
        // Segments of one byte; packet 1230 ends the line of the last chunk of a body that rule 1 is on.
        let theirs = ["1@1234<1.0:allowed"];
        assert!(left_of(51, 1102, false, &["1@1232<1.0:allowed"], &theirs).is_empty());
        assert_eq!(left_of(51, 1102, false, &["1@1190<1.0:allowed"], &theirs).len(), 2);
        // Rule 3 is on the size of the file; pair 2280 is the scene.
        assert!(left_of(12, 2284, false, &["3@237>1.0:allowed"], &[]).is_empty());
        assert_eq!(left_of(12, 2284, false, &[], &["3@237>1.0:allowed"]), ["-3@237>1.0:allowed"]);
        assert_eq!(left_of(12, 2280, false, &["3@7>1.0:allowed"], &[]), ["+3@7>1.0:allowed"]);
    }
}
