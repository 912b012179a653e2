// SPDX-License-Identifier: Apache-2.0
//! Prevention before a flow's protocol is detected: bytes that a rule refuses do not leave, no byte waits
//! longer than the bounds allow, and a flow of no known protocol is inspected as a raw stream.

use bartizan_base::{Reason, Timestamp};
use bartizan_testkit::hosts::{ethernet, ip, tcp};
use bartizan_testkit_worker::events::first;
use bartizan_testkit_worker::{Captured, Made, Stack};

const SYN: u8 = 2;
const ACK: u8 = 16;

/// The client (true) or the server sends bytes at a millisecond.
type Step<'s> = (u64, bool, u32, &'s [u8]);

const URI: &str = "drop http any any -> any any (msg:\"u\"; http.uri; content:\"/evil.php\"; sid:1;)";
const STRICT: &[(&str, &str)] = &[("app-layer.protocols.http.strict", "yes")];
const SNI: &str = "drop tls any any -> any any (msg:\"s\"; tls.sni; content:\"evil.example\"; sid:1;)";
const ONLY_TLS: &str = "drop tcp any any -> any any (msg:\"n\"; app-layer-protocol:!tls; sid:1;)";
/// The step waits for the protocol, but not on this port.
const ELSEWHERE: &str = "drop tcp any any -> any 9 (msg:\"n\"; app-layer-protocol:!tls; sid:1;)
drop tcp any any -> any any (msg:\"r\"; content:\"evil\"; sid:2;)";

/// Plays a connection to port 80; the client's next number is 101, the server's 501. Returns the reason of
/// each refusal.
fn play(name: &str, rules: &str, set: &[(&str, &str)], v6: bool, steps: &[Step<'_>]) -> Vec<Option<Reason>> {
    run(name, rules, set, v6, steps).0
}

/// Runs the steps; returns the reasons of refusals and the events.
fn run(
    name: &str,
    rules: &str,
    set: &[(&str, &str)],
    v6: bool,
    steps: &[Step<'_>],
) -> (Vec<Option<Reason>>, Vec<serde_json::Value>) {
    under("chain: [ids], ids: {rules: r}", name, rules, set, v6, steps)
}

/// Runs the steps under a policy.
fn under(
    policy: &str,
    name: &str,
    rules: &str,
    set: &[(&str, &str)],
    v6: bool,
    steps: &[Step<'_>],
) -> (Vec<Option<Reason>>, Vec<serde_json::Value>) {
    let name = format!("open-{name}-{v6}");
    let made = Made { name: &name, policy, set, tune: |_| (), rules, thresholds: "" };
    let mut stack = Stack::new(&made);
    let from = |client: bool, seq, ack, flags, payload: &[u8]| {
        let (ends, ports) = if client { ((1, 2), (1000, 80)) } else { ((2, 1), (80, 1000)) };
        ethernet(v6, &ip(v6, ends, 6, &tcp(ports, seq, ack, flags, payload)))
    };
    let mut frames = vec![
        (0, from(true, 100, 0, SYN, b"")),
        (0, from(false, 500, 101, SYN | ACK, b"")),
        (0, from(true, 101, 501, ACK, b"")),
        (0, from(false, 501, 101, ACK, b"")),
    ];
    let mut next = [501, 101];
    for (at, client, seq, bytes) in steps {
        let ack = next[usize::from(!client)];
        frames.push((*at, from(*client, *seq, ack, ACK, bytes)));
        let end = &mut next[usize::from(*client)];
        *end = (*end).max(seq + bytes.len() as u32);
    }
    let mut reasons = Vec::new();
    for (number, (at, bytes)) in (1u64..).zip(frames) {
        let now = Timestamp::from_nanos(1_000_000_000 + at * 1_000_000);
        let frame = Captured { now, bytes };
        let decision = stack.worker.frame(&frame.frame(number), &mut stack.recorder);
        let decision = decision.expect("nothing comes in fragments");
        reasons.push(decision.reason.filter(|_| !decision.verdict.forwards()));
    }
    (reasons.split_off(4), stack.finish().1)
}

fn check(name: &str, rules: &str, set: &[(&str, &str)], steps: &[Step<'_>], wanted: &[Option<Reason>]) {
    for v6 in [false, true] {
        assert_eq!(play(name, rules, set, v6, steps), wanted, "{name}, v6 {v6}");
    }
}

const RULE: Option<Reason> = Some(Reason::IdsRule);
const FLOW: Option<Reason> = Some(Reason::IdsFlow);
const HELD: Option<Reason> = Some(Reason::ProtocolOpen);

#[test]
fn requests_that_no_pattern_knows_do_not_reach_the_server() {
    for (name, request) in [
        ("crlf", &b"\r\nGET /evil.php HTTP/1.1\r\n\r\n"[..]),
        ("lf", b"\nGET /evil.php HTTP/1.1\r\n\r\n"),
        ("lines", b"\r\n\n\r\n\r\n\n\nGET /evil.php HTTP/1.1\r\n\r\n"),
        ("method", b"FOO /evil.php HTTP/1.1\r\n\r\n"),
        ("lower", b"foo /evil.php http/1.1\r\n\r\n"),
        ("versionless", b"SEARCH /evil.php\r\n\r\n"),
        ("binary", b"\0GET /evil.php HTTP/1.1\r\n\r\n"),
    ] {
        check(name, URI, &[], &[(1, true, 101, request)], &[RULE]);
        // In two segments: the first is no request yet, and goes on.
        let (head, tail) = request.split_at(request.len() - 15);
        let second = 101 + head.len() as u32;
        check(name, URI, &[], &[(1, true, 101, head), (2, true, second, tail)], &[None, RULE]);
    }
    for (name, request) in [
        ("blank", &b" \r\nGET /evil.php HTTP/1.1\r\n\r\n"[..]),
        ("blanks", b"\t\n\x0b\r\n \nPURGE /evil.php HTTP/1.1\r\n\r\n"),
    ] {
        check(name, URI, STRICT, &[(1, true, 101, request)], &[RULE]);
        let (head, tail) = request.split_at(request.len() - 15);
        let second = 101 + head.len() as u32;
        check(name, URI, STRICT, &[(1, true, 101, head), (2, true, second, tail)], &[None, RULE]);
    }
    check("good", URI, &[], &[(1, true, 101, b"\r\nFOO /good.php HTTP/1.1\r\n\r\n")], &[None]);
}

#[test]
fn hellos_in_odd_records_do_not_reach_the_server() {
    let name = b"evil.example";
    let names = [&[0, 15, 0, 0, 12][..], name].concat();
    let extension = [&[0, 0, 0, 17][..], &names].concat();
    let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0, 0, 21], &extension].concat();
    let hello = [&[1, 0, 0, body.len() as u8][..], &body].concat();
    let record = |version: u8, body: &[u8]| [&[22, 3, version, 0, body.len() as u8][..], body].concat();
    for (name, records) in [
        ("whole", record(1, &hello)),
        ("v4", record(4, &hello)),
        ("v255", record(255, &hello)),
        ("head", [record(4, &hello[..2]), record(3, &hello[2..])].concat()),
        ("tail", [record(1, &hello[..60]), record(1, &hello[60..62]), record(1, &hello[62..])].concat()),
        ("empty", [record(1, &[]), record(5, &hello)].concat()),
        ("ones", hello.iter().flat_map(|byte| record(1, &[*byte])).collect()),
    ] {
        check(name, SNI, &[], &[(1, true, 101, &records)], &[RULE]);
    }
}

#[test]
fn what_cannot_be_the_wanted_protocol_is_refused_at_once() {
    check("ping", ONLY_TLS, &[], &[(1, true, 101, b"PING\n")], &[RULE]);
    // Up to the fifth byte it may be SMB, which has four bytes before its magic.
    let more: &[Step<'_>] = &[(1, true, 101, b"\0"), (2, true, 102, b"evil, and no message of SMB at all")];
    check("nul", ONLY_TLS, &[], more, &[HELD, RULE]);
    check("nuls", ONLY_TLS, &[], &[(1, true, 101, b"\0\0\0\0\0")], &[RULE]);
}

#[test]
fn a_beginning_is_held_until_more_or_time_has_come() {
    let hello = b"\x16\x03\x01\0\x50\x01\0\0\x4c\x03\x03";
    // Held, known with the next segment, and taken when it is sent again.
    check(
        "more",
        ONLY_TLS,
        &[],
        &[(1, true, 101, &hello[..2]), (2, true, 103, &hello[2..]), (3, true, 101, &hello[..2])],
        &[HELD, None, None],
    );
    check("other", ONLY_TLS, &[], &[(1, true, 101, b"\x16"), (2, true, 102, b"evil")], &[HELD, RULE]);
    // Sent again when the time is up: of no known protocol, which this rule refuses and the other does not.
    let again: &[Step<'_>] = &[(1, true, 101, b"\x16"), (100, true, 101, b"\x16"), (201, true, 101, b"\x16")];
    check("time", ONLY_TLS, &[], again, &[HELD, HELD, RULE]);
    check("elsewhere", ELSEWHERE, &[], again, &[HELD, HELD, None]);
    let drops: &[(&str, &str)] = &[("app-layer.hold.policy", "drop-flow")];
    check("drop", ELSEWHERE, drops, again, &[HELD, HELD, HELD]);
    let first = &again[..1];
    check("off", ELSEWHERE, &[("app-layer.hold.bytes", "0")], first, &[None]);
    check("quick", ELSEWHERE, &[("app-layer.hold.milliseconds", "0")], first, &[None]);
    check("not asked", URI, &[], first, &[None]);
}

#[test]
fn what_leaves_detection_is_inspected_as_a_raw_stream() {
    let steps: &[Step<'_>] = &[
        (1, true, 101, b"\x16"),
        (201, true, 101, b"\x16"),
        (202, true, 102, b"evil"),
        (203, true, 106, b"x"),
    ];
    check("raw", ELSEWHERE, &[], steps, &[HELD, None, RULE, FLOW]);
}

#[test]
fn server_first_and_unknown_protocols_are_not_held() {
    let conversations: [&[Step<'_>]; 5] = [
        &[
            (1, false, 501, b"220 mail ESMTP\r\n"),
            (2, true, 101, b"EHLO a\r\n"),
            (3, false, 517, b"250 ok\r\n"),
        ],
        &[(1, false, 501, b"SSH-2.0-a\r\n"), (2, true, 101, b"SSH-2.0-b\r\n"), (3, true, 112, b"\0\0\0\x09")],
        &[
            (1, false, 501, b"\x4a\0\0\0\x0a8.0.36\0"),
            (2, true, 101, b"\x54\0\0\x01\x85\xa2"),
            (3, false, 513, b"\x07\0"),
        ],
        &[
            (1, true, 101, b"JDWP-Handshake"),
            (2, false, 501, b"JDWP-Handshake"),
            (3, true, 115, b"\0\0\0\x0b"),
        ],
        &[(1, true, 101, b"\x7e"), (2, false, 501, b"\x01"), (3, true, 102, b"\xfd\xfc")],
    ];
    for (number, steps) in conversations.iter().enumerate() {
        check(&format!("others-{number}"), ELSEWHERE, &[], steps, &[None, None, None]);
        check(&format!("others-http-{number}"), URI, &[], steps, &[None, None, None]);
    }
}

/// Receivers differ in their treatment of a folded header about the body, and of a bare CR: some continue
/// with headers where others see a body, or a body in another encoding.
#[test]
fn messages_over_which_receivers_differ_do_not_leave() {
    const NOTHING: &str = "drop http any any -> any any (msg:\"n\"; http.uri; content:\"/nothing\"; sid:1;)";
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".as_slice();
    let requests: [(&[u8], bool); 8] = [
        (b"POST / HTTP/1.1\r\nContent-Length:\r\n 20\r\n\r\n", true),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding:\r\n\tchunked\r\n\r\n", true),
        (b"GET / HTTP/1.1\r\nX: y\rContent-Length: 20\r\n\r\n", true),
        (b"GET / HTTP/1.1\r\nX\rContent-Length: 20\r\n\r\n", true),
        (b"POST / HTTP/1.1\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\na;abcdefg", true),
        (b"CONNECT a:1 HTTP/1.1\r\nContent-Length: 9\r\n\r\nGET / HTT", true),
        (b"GET / HTTP/1.1\r\nX: y\r\n z\r\nContent-Length: 0\r\n\r\n", false),
        (b"GET / HTTP/1.1\nX: y\nContent-Length: 0\n\n", false),
    ];
    let answers: [(&[u8], bool); 3] = [
        (b"HTTP/1.1 200 OK\nContent-Length: 2\nContent-Encoding:\n gzip\n\n", true),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n chunked\r\n\r\n", true),
        (b"HTTP/1.1 200 OK\r\nX-Long: y\r\n z\r\nContent-Length: 0\r\n\r\n", false),
    ];
    for v6 in [false, true] {
        for (set, strict) in [(STRICT, true), (&[], false)] {
            for (bytes, differs) in requests {
                let decided = play("ambiguous", NOTHING, set, v6, &[(1, true, 101, bytes)]);
                let reason = (differs && strict).then_some(Reason::AppLayerError);
                assert_eq!(decided.last(), Some(&reason), "{}", bytes.escape_ascii());
            }
            for (bytes, differs) in answers {
                let steps = [(1, true, 101, request), (2, false, 501, bytes)];
                let decided = play("ambiguous", NOTHING, set, v6, &steps);
                let reason = (differs && strict).then_some(Reason::AppLayerError);
                assert_eq!(decided.last(), Some(&reason), "{}", bytes.escape_ascii());
            }
        }
    }
}

#[test]
fn what_may_become_a_request_is_of_no_protocol_when_the_connection_is_over() {
    // A word that goes on may be a method.
    let word = [b'm'; 40];
    let asked = (1, true, 101, &word[..]);
    for (name, steps, wanted) in [
        ("answered", &[asked, (2, false, 501, b"nothing that is known")][..], Some("failed")),
        // The server's answer may yet show the protocol.
        ("unanswered", &[asked], None),
        ("told", &[asked, (2, false, 501, b"HTTP/1.1 200 OK\r\n\r\n")], Some("http")),
    ] {
        for v6 in [false, true] {
            let (reasons, events) = run(name, "", &[], v6, steps);
            assert!(reasons.iter().all(Option::is_none), "{name}: {reasons:?}");
            let flow = first(&events, "flow");
            assert_eq!(flow["app_proto"].as_str(), wanted, "{name}: {flow}");
        }
    }
}

/// A staged policy holds no packet back, and does not affect an enforced one beside it.
#[test]
fn beside_a_staged_policy_an_enforced_one_holds_beginnings() {
    let again: &[Step<'_>] = &[(1, true, 101, b"\x16"), (100, true, 101, b"\x16"), (201, true, 101, b"\x16")];
    let drops: &[(&str, &str)] = &[("app-layer.hold.policy", "drop-flow")];
    // The connection goes to the host of the first policy; the second one is for all others.
    for (staged, wanted) in [([false, true], [HELD; 3]), ([true, false], [None; 3])] {
        for v6 in [false, true] {
            let [first, others] =
                staged.map(|staged| format!("chain: [ids], ids: {{rules: r}}, staged: {staged}"));
            let host = if v6 { "2001:db8::2" } else { "10.0.0.2" };
            let policy = format!("to: [{host}], {first}}}\n  - {{name: others, {others}");
            let name = format!("beside-{}", staged[0]);
            assert_eq!(under(&policy, &name, ELSEWHERE, drops, v6, again).0, wanted, "{staged:?}, v6 {v6}");
        }
    }
}
