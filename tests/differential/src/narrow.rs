// SPDX-License-Identifier: Apache-2.0
//! Planted differences that resemble those of a cause but have another one: a cause must not excuse them.

use crate::answer::Answer;
use crate::explained::{explain, left_of};

#[test]
fn headers_are_matched_again_behind_a_chunked_body_only() {
    // Rule 1 counts to two, and is on `http.header`; rule 3 is on names. The last chunk is packet 94, the
    // headers end with packet 78.
    let left = |want: &[&str]| left_of(164, 2060, false, &[], want);
    assert!(left(&["1@97<1.0:allowed"]).is_empty());
    assert_eq!(left(&["1@80<1.0:allowed"]), ["-1@80<1.0:allowed"], "the body goes on");
    assert_eq!(left(&["1@52>1.0:allowed"]), ["-1@52>1.0:allowed"], "the client has no body");
    assert_eq!(left(&["3@97<1.0:allowed"]), ["-3@97<1.0:allowed"], "not on headers");
}

#[test]
fn a_body_without_a_status_line_ends_elsewhere_where_suricata_ends_it_only() {
    // The first answer begins with rubbish; its segment of packet 45 ends with a line. Rule 2 is on the body,
    // rule 1 is not.
    let left = |got: &[&str], want: &[&str]| left_of(145, 1612, false, got, want);
    assert!(left(&["2@-<1.0:allowed", "fileinfo"], &["2@47<1.0:allowed", "fileinfo", "fileinfo"]).is_empty());
    assert_eq!(
        left(&["fileinfo"], &["2@47<1.0:allowed", "fileinfo", "fileinfo"]),
        ["-2@47<1.0:allowed"],
        "at no time"
    );
    let (ours, theirs) = ("2@-<1.0:allowed", "2@47<1.0:allowed");
    assert_eq!(left(&[ours], &[theirs]), ["+2@-<1.0:allowed", "-2@47<1.0:allowed"], "no other answer there");
    let (ours, theirs) = ("1@-<1.0:allowed", "1@47<1.0:allowed");
    assert_eq!(
        left(&[ours, "fileinfo"], &[theirs, "fileinfo", "fileinfo"]),
        ["+1@-<1.0:allowed", "-1@47<1.0:allowed"],
        "not on the body"
    );
}

#[test]
fn an_incomplete_line_follows_from_a_body_that_nobody_expected_only() {
    const INCOMPLETE: &str = "anomaly:REQUEST_LINE_INCOMPLETE";
    const UNEXPECTED: &str = "anomaly:REQUEST_BODY_UNEXPECTED";
    let left = |want: &[&str]| left_of(151, 2222, true, &["flow:TCP:http"], want);
    assert!(left(&["flow:TCP:http", UNEXPECTED, INCOMPLETE]).is_empty());
    assert_eq!(left(&["flow:TCP:http", INCOMPLETE]), ["-anomaly:REQUEST_LINE_INCOMPLETE"]);
    let other = left_of(151, 2222, true, &["flow:TCP:http", INCOMPLETE], &["flow:TCP:http", UNEXPECTED]);
    assert_eq!(other, ["+anomaly:REQUEST_LINE_INCOMPLETE"], "more here");
    // The same holds for an additional request.
    let more = |want: &[&str]| left_of(170, 1710, false, &["flow:TCP:http", "http"], want);
    assert!(more(&["flow:TCP:http", UNEXPECTED]).is_empty());
    assert_eq!(more(&["flow:TCP:http"]), ["+http"]);
    // The length of a body arrives with packet 24, after packet 22 has acknowledged it.
    let late = |ips| left_of(143, 108, ips, &["flow:TCP:http"], &["flow:TCP:http", UNEXPECTED]);
    assert!(late(true).is_empty());
    assert_eq!(late(false), ["-anomaly:REQUEST_BODY_UNEXPECTED"], "passively it is waited for");
}

/// Unexplained lines of a difference of a pair whose rule `rule` gets other options.
fn left_with(
    (seed, number): (u64, u32),
    rule: usize,
    options: &[&str],
    (got, want): (&[&str], &[&str]),
) -> Vec<String> {
    let mut pair = crate::make::pair(seed, number);
    pair.rules[rule].options = options.iter().map(|option| (*option).to_owned()).collect();
    let [got, want] = [got, want].map(|items| {
        let mut answer = Answer::default();
        items.iter().for_each(|item| answer.add((*item).into()));
        answer
    });
    explain(&pair, false, &got, &want).0
}

#[test]
fn a_segment_without_new_bytes_has_bytes() {
    // A part of the server's certificate is lost; packet 51 is the client's FIN, which has no data. Both
    // sides encrypt from packet 37 on.
    let tls = "flow:TCP:tls";
    let left = left_of(143, 1524, true, &["3@37>1.0:allowed", tls], &["3@51>1.0:allowed", tls]);
    assert_eq!(left, ["-3@51>1.0:allowed"]);
}

#[test]
fn streams_are_looked_on_at_when_sides_encrypt_only() {
    // Packets 4 to 10 are the client's hello.
    let left = |ips, got: &[&str]| left_of(143, 1524, ips, got, &["3@4>1.0:allowed"]);
    assert!(left(true, &["3@4>1.0:allowed", "3@37>1.0:allowed"]).is_empty());
    assert_eq!(left(true, &["3@4>1.0:allowed", "3@6>1.0:allowed"]), ["+3@6>1.0:allowed"], "once more");
    assert_eq!(left(false, &["3@4>1.0:allowed", "3@8>1.0:allowed"]), ["+3@8>1.0:allowed"]);
}

#[test]
fn a_silent_bit_is_set_by_what_is_there_only() {
    // Rule 1 sets the bit on the client's random, which arrives with packet 4; packet 3 only acknowledges.
    assert!(left_of(32, 631, true, &["2@4>1.0:allowed"], &[]).is_empty());
    assert_eq!(left_of(32, 631, true, &["2@3>1.0:allowed"], &[]), ["+2@3>1.0:allowed"]);
}

#[test]
fn a_body_comes_earlier_where_something_of_it_is_there_only() {
    // Rule 2 is on bodies.
    let left = |got: &str| left_of(141, 1356, true, &[got], &["2@55>1.0:allowed"]);
    assert!(left("2@51>1.0:allowed").is_empty());
    let open = |got: &str| [format!("+{got}"), "-2@55>1.0:allowed".to_owned()];
    assert_eq!(left("2@1>1.0:allowed"), open("2@1>1.0:allowed"), "a handshake has no body");
    assert_eq!(left("2@4>1.0:allowed"), open("2@4>1.0:allowed"), "the headers go on");
}

#[test]
fn a_rule_that_asks_for_a_bit_is_asked_with_the_transaction_that_sets_that_bit_only() {
    // Rule 3 requires another bit than the one that rule 1 sets on a transaction.
    // Packet 3 is a datagram that is not a message, packet 4 is one; rule 3 requires no bit.
    let left = |got: &str| left_of(173, 2343, true, &[got], &[]);
    assert!(left("2@3>1.0:allowed").is_empty());
    assert_eq!(left("2@4<1.0:allowed"), ["+2@4<1.0:allowed"]);
    assert_eq!(left("3@3>1.0:allowed"), ["+3@3>1.0:allowed"]);
    assert_eq!(left_of(173, 2343, true, &[], &["2@3>1.0:allowed"]), ["-2@3>1.0:allowed"], "a missed one");
    // Another bit.
    assert_eq!(left_of(2, 1255, false, &["3@2<1.0:allowed"], &[]), ["+3@2<1.0:allowed"]);
}

#[test]
fn the_state_of_a_question_hides_what_is_true_of_an_answer_only() {
    // The server's hello is acknowledged first, with packet 7.
    let left = |option: &str| left_with((95, 2358), 2, &[option], (&[], &["2@8<1.0:allowed"]));
    for option in ["ssl_state:!client_hello", "ssl_state:server_hello", "ssl_state:server_hello|unknown"] {
        assert!(left(option).is_empty(), "{option}");
    }
    for option in ["ssl_state:client_hello", "ssl_state:client_hello|server_hello", "ssl_state:!server_hello"]
    {
        assert_eq!(left(option), ["-2@8<1.0:allowed"], "{option}");
    }
}

#[test]
fn a_body_without_a_status_line_is_refused_where_suricata_records_it_only() {
    // Rule 0 is on the body and refuses, rule 2 is on the status line.
    let left = |got: &str, want: &[&str]| left_of(170, 394, true, &[got], want);
    assert!(left("0@41<1.0:blocked", &["fileinfo"]).is_empty());
    assert_eq!(left("0@41<1.0:blocked", &[]), ["+0@41<1.0:blocked"], "a body that nobody has");
    assert_eq!(left("0@41<1.0:allowed", &["fileinfo"])[0], "+0@41<1.0:allowed", "it is recorded");
    assert_eq!(left("2@41<1.0:blocked", &["fileinfo"])[0], "+2@41<1.0:blocked", "not on the body");
}

#[test]
fn data_that_comes_again_behind_a_fin_counts_in_suricata_only() {
    // Packet 7 repeats packet 4 after the FIN of packet 6. Rule 3 counts, rule 0 does not.
    let left = |ips, want: &str| left_of(172, 794, ips, &[], &[want]);
    assert!(left(false, "3@7>1.0:allowed").is_empty());
    assert_eq!(left(false, "3@4>1.0:allowed"), ["-3@4>1.0:allowed"], "the first time");
    assert_eq!(left(false, "3@6>1.0:allowed"), ["-3@6>1.0:allowed"], "the FIN");
    assert_eq!(left(false, "0@7>1.0:allowed"), ["-0@7>1.0:allowed"], "it counts nothing");
}

#[test]
fn what_is_asked_when_a_given_up_session_ends_hangs_on_numbers_of_the_flow_only() {
    // Packet 14, the server's, has a wrong checksum. Rule 0 is on the size of both streams, rule 3 is not.
    let left = |ips, want: &str| left_of(172, 1652, ips, &["flow:TCP:tls"], &["flow:TCP:tls", want]);
    assert!(left(false, "0@->1.0:allowed").is_empty());
    assert_eq!(left(false, "0@13>1.0:allowed"), ["-0@13>1.0:allowed"], "before the end");
    assert_eq!(left(true, "0@->1.0:allowed"), ["-0@->1.0:allowed"], "in prevention");
    // Rule 2 is on the certificate, which has the hole.
    assert_eq!(left(false, "2@-<1.0:allowed"), ["-2@-<1.0:allowed"], "its own side");
}

#[test]
fn a_request_that_is_taken_for_a_body_is_looked_at_at_another_time_only() {
    // Rule 0 is on the head of requests; packet 22 is the third one, packet 54 is after both FINs.
    const UNEXPECTED: &str = "anomaly:REQUEST_BODY_UNEXPECTED";
    let left = |got: &[&str], want: &str| {
        let got: Vec<&str> = got.iter().copied().chain(["flow:TCP:http"]).collect();
        left_of(174, 1742, true, &got, &[want, UNEXPECTED, "flow:TCP:http"])
    };
    assert!(left(&["0@22>1.0:allowed"], "0@54>1.0:allowed").is_empty());
    assert_eq!(left(&[], "0@54>1.0:allowed"), ["-0@54>1.0:allowed"], "nothing here");
    assert_eq!(left(&["0@22>1.0:allowed"], "0@34<1.0:allowed"), ["-0@34<1.0:allowed"], "an answer");
}

#[test]
fn a_rule_on_a_failed_protocol_matches_earlier_where_detection_ends_only() {
    // Rule 2 matches once, and requires `failed`; rule 3 does not.
    let left = |ips, got: &[&str], want: &str| left_of(167, 767, ips, got, &[want]);
    assert!(left(true, &["2@4>1.0:allowed"], "2@8>1.0:allowed").is_empty());
    assert_eq!(left(true, &[], "2@8>1.0:allowed"), ["-2@8>1.0:allowed"], "nothing here");
    assert_eq!(left(true, &["2@10>1.0:allowed"], "2@8>1.0:allowed").len(), 1, "later here");
    assert_eq!(left(true, &["3@4>1.0:allowed"], "3@8>1.0:allowed").len(), 2, "asks for no protocol");
    assert_eq!(left(false, &["2@4>1.0:allowed"], "2@8>1.0:allowed").len(), 2, "passively");
}
