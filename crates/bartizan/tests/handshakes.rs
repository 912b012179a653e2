// SPDX-License-Identifier: Apache-2.0
//! Handshakes through the whole stack, in prevention: data of a SYN hides no request, one-sided connections
//! are handled as their policy says, segments with broken options are inspected, a segment directly after
//! the handshake leaves.

use bartizan_base::{Reason, Timestamp};
use bartizan_testkit::hosts::{ethernet, ip, tcp};
use bartizan_testkit_worker::{Captured, Made, Stack};

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

const HTTP: &str = "drop http any any -> any any (msg:\"request\"; http.uri; content:\"/evil\"; sid:1;)";
const ANSWER: &str =
    "drop tcp any any -> any any (msg:\"answer\"; flow:to_client; content:\"evil answer\"; sid:2;)";
const REQUEST: &[u8] = b"GET /evil HTTP/1.1\r\nHost: a\r\n\r\n";

/// A segment of the client (1) or of the server (2).
fn segment(v6: bool, client: bool, (seq, ack, flags): (u32, u32, u8), payload: &[u8]) -> Vec<u8> {
    let (ends, ports) = if client { ((1, 2), (1000, 80)) } else { ((2, 1), (80, 1000)) };
    ethernet(v6, &ip(v6, ends, 6, &tcp(ports, seq, ack, flags, payload)))
}

/// A segment with 12 bytes of options.
fn with_options(v6: bool, numbers: (u32, u32, u8), options: [u8; 12], payload: &[u8]) -> Vec<u8> {
    let mut body = tcp((1000, 80), numbers.0, numbers.1, numbers.2, &[&options[..], payload].concat());
    body[12] = 0x80;
    ethernet(v6, &ip(v6, (1, 2), 6, &body))
}

/// The reason why each frame is refused: `None` if it leaves.
fn play(name: &str, policy: &str, rules: &str, frames: &[Vec<u8>]) -> Vec<Option<Reason>> {
    let made = Made { name, policy, set: &[], tune: |_| (), rules, thresholds: "" };
    let mut stack = Stack::new(&made);
    let decided = (0u64..).zip(frames).map(|(n, bytes)| {
        let now = Timestamp::from_nanos(1_000_000_000 + n * 1_000_000);
        let frame = Captured { now, bytes: bytes.clone() };
        let decision = stack.worker.frame(&frame.frame(n + 1), &mut stack.recorder).expect("no fragment");
        assert_eq!(decision.verdict.forwards(), decision.reason.is_none() || decision.verdict.forwards());
        if decision.verdict.forwards() { None } else { decision.reason }
    });
    let decided = decided.collect();
    stack.finish();
    decided
}

const CHAINS: [&str; 2] = [
    "chain: [ids], ids: {rules: r}",
    "chain: [pfw, sfw, ids], pfw: {default: allow}, sfw: {}, ids: {rules: r}",
];

#[test]
fn a_second_syn_hides_no_request() {
    let decoy =
        [&b"\0\x1e\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\x03com\0\0\x01\0\x01"[..], &[b'x'; 600]]
            .concat();
    for v6 in [false, true] {
        for policy in CHAINS {
            // The decoy comes first, second with another number, or second with the same; the first or the
            // last SYN is answered.
            let syns: [&[(u32, &[u8])]; 5] = [
                &[(100, b""), (70_000, &decoy)],
                &[(70_000, &decoy), (100, b"")],
                &[(100, b""), (0x8000_0064, &decoy), (100, b"")],
                &[(100, b""), (70_000, b""), (70_000, &decoy), (100, b"")],
                &[(70_000, &decoy), (100, &decoy), (100, b"")],
            ];
            for syns in syns {
                let mut frames: Vec<_> =
                    syns.iter().map(|(seq, data)| segment(v6, true, (*seq, 0, SYN), data)).collect();
                frames.push(segment(v6, false, (500, 101, SYN | ACK), b""));
                frames.push(segment(v6, true, (101, 501, ACK), b""));
                frames.push(segment(v6, true, (101, 501, ACK), REQUEST));
                let decided = play("second-syn", policy, HTTP, &frames);
                assert_eq!(decided.last(), Some(&Some(Reason::IdsRule)), "{policy}: {decided:?}");
                // The answered SYN is the connection, which is established.
                assert_eq!(
                    decided[decided.len() - 3..decided.len() - 1],
                    [None, None],
                    "{policy}: {decided:?}"
                );
            }
        }
    }
}

#[test]
fn a_reset_of_the_handshake_hides_no_answer() {
    for v6 in [false, true] {
        for policy in CHAINS {
            for reset in [
                segment(v6, false, (0, 0x9000_0000, RST | ACK), b""),
                segment(v6, false, (0, 7, RST | ACK), b""),
                segment(v6, false, (0, 0, RST), b""),
                segment(v6, true, (100, 101, RST | ACK), b""),
            ] {
                let frames = [
                    segment(v6, true, (100, 0, SYN), b""),
                    reset,
                    segment(v6, false, (500, 101, SYN | ACK), b""),
                    segment(v6, true, (101, 501, ACK), b""),
                    segment(v6, true, (101, 501, ACK), b"question"),
                    segment(v6, false, (501, 109, ACK), b"an evil answer"),
                ];
                let decided = play("reset", policy, ANSWER, &frames);
                assert!(decided[5].is_some(), "{policy}: {decided:?}");
            }
        }
    }
}

#[test]
fn segments_with_broken_options_are_inspected() {
    // Kind 77 says that it is longer than the header; Linux takes the segment.
    let broken = [1, 1, 77, 40, 0, 0, 0, 0, 0, 0, 0, 0];
    for v6 in [false, true] {
        for policy in CHAINS {
            let frames = [
                with_options(v6, (100, 0, SYN), broken, b""),
                segment(v6, false, (500, 101, SYN | ACK), b""),
                segment(v6, true, (101, 501, ACK), b""),
                with_options(v6, (101, 501, ACK), broken, REQUEST),
            ];
            let decided = play("options", policy, HTTP, &frames);
            assert_eq!(decided, [None, None, None, Some(Reason::IdsRule)], "{policy}");
        }
    }
}

#[test]
fn a_segment_right_behind_the_beginning_leaves() {
    for v6 in [false, true] {
        for policy in CHAINS {
            let begun = [
                segment(v6, true, (100, 0, SYN), b""),
                segment(v6, false, (500, 101, SYN | ACK), b""),
                segment(v6, true, (101, 501, ACK), b""),
                segment(v6, true, (101, 501, ACK), b"hello"),
            ];
            let mut closed = begun.to_vec();
            closed.push(segment(v6, true, (106, 501, ACK | FIN), b""));
            assert_eq!(play("fin", policy, HTTP, &closed), [None; 5], "{policy}");
            let mut goes_on = begun.to_vec();
            goes_on.push(segment(v6, true, (106, 501, ACK), b"world"));
            assert_eq!(play("data", policy, HTTP, &goes_on), [None; 5], "{policy}");
        }
    }
}

#[test]
fn one_sided_connections_go_on_as_the_policy_says() {
    for v6 in [false, true] {
        let client: Vec<_> = [(100, 0, SYN, &b""[..]), (101, 501, ACK, b""), (101, 501, ACK, b"some data")]
            .into_iter()
            .chain((0..6).map(|n| (110 + n, 501, ACK, &b"x"[..])))
            .map(|(seq, ack, flags, data)| segment(v6, true, (seq, ack, flags), data))
            .collect();
        let server: Vec<_> =
            [(500, 101, SYN | ACK, &b""[..]), (501, 109, ACK, b"an answer"), (510, 120, ACK, b"and more")]
                .into_iter()
                .map(|(seq, ack, flags, data)| segment(v6, false, (seq, ack, flags), data))
                .collect();
        for one_sided in ["allow", "ids-only"] {
            for chain in [
                "chain: [ids]",
                "chain: [sfw, ids], sfw: {initiate: both, midstream: allow}",
                "chain: [sfw], sfw: {initiate: both, midstream: allow}",
            ] {
                let policy = format!("{chain}, one-sided: {one_sided}");
                for frames in [&client, &server] {
                    let decided = play("one-sided", &policy, "", frames);
                    assert!(decided.iter().all(Option::is_none), "{policy}: {decided:?}");
                }
            }
        }
        // A firewall admits no connection whose SYN it has not seen, unless its policy allows it.
        let decided = play("one-sided", "chain: [sfw], sfw: {initiate: both}, one-sided: allow", "", &server);
        assert!(decided.iter().all(Option::is_some), "{decided:?}");
        let decided = play("one-sided", "chain: [ids], one-sided: drop", "", &client);
        assert!(decided.last().is_some_and(Option::is_some), "{decided:?}");
        // The connection is inspected, and inspected bytes stay as they are.
        let policy = "chain: [ids], ids: {rules: r}, one-sided: allow";
        let mut frames = client.clone();
        frames.push(segment(v6, true, (116, 501, ACK), REQUEST));
        let rule = "drop tcp any any -> any any (msg:\"request\"; content:\"/evil\"; sid:1;)";
        assert_eq!(play("one-sided", policy, rule, &frames).last(), Some(&Some(Reason::IdsRule)));
        // Bytes after a gap are inspected once the gap is filled, before the receiver can read them.
        let mut frames = client.clone();
        frames.push(segment(v6, true, (120, 501, ACK), b"il"));
        frames.push(segment(v6, true, (116, 501, ACK), b"/ev"));
        frames.push(segment(v6, true, (119, 501, ACK), b"-"));
        assert_eq!(
            play("one-sided", policy, &rule.replace("/evil", "/ev-il"), &frames).last(),
            Some(&Some(Reason::IdsRule))
        );
    }
}

/// A request that comes with the FIN and completes the handshake: servers take it (SYN_RECV goes to
/// ESTABLISHED and on).
#[test]
fn a_request_in_the_fin_that_completes_the_handshake_is_inspected() {
    for v6 in [false, true] {
        for policy in CHAINS {
            let frames = [
                segment(v6, true, (100, 0, SYN), b""),
                segment(v6, false, (500, 101, SYN | ACK), b""),
                segment(v6, true, (101, 501, FIN | ACK), REQUEST),
            ];
            let established = HTTP.replace("http.uri", "flow:established,to_server; http.uri");
            let decided = play("fin", policy, &established, &frames);
            assert_eq!(decided, [None, None, Some(Reason::IdsRule)], "{policy}");
        }
    }
}

/// Segments that come in the wrong order and begin one byte before the stream: receivers cut that byte off.
#[test]
fn a_request_that_begins_before_the_stream_is_inspected() {
    for v6 in [false, true] {
        for policy in CHAINS {
            // The pieces overlap by three bytes.
            let (front, back) = (&REQUEST[..27], &REQUEST[24..]);
            let begun = [
                segment(v6, true, (100, 0, SYN), b""),
                segment(v6, false, (500, 101, SYN | ACK), b""),
                segment(v6, true, (101, 501, ACK), b""),
            ];
            let early = [b"x", front].concat();
            let pieces =
                [segment(v6, true, (125, 501, ACK), back), segment(v6, true, (100, 501, ACK), &early)];
            for ordered in [[0, 1], [1, 0], [0, 0], [1, 1]] {
                let mut frames = begun.to_vec();
                frames.extend(ordered.map(|at: usize| pieces[at].clone()));
                frames.extend(pieces.iter().cloned());
                let decided = play("early", policy, HTTP, &frames);
                let told = decided.contains(&Some(Reason::IdsRule));
                let order = begun.iter().map(|_| None).chain(ordered.map(Some)).chain([Some(0), Some(1)]);
                let left =
                    |piece| order.clone().zip(&decided).any(|(at, d)| at == Some(piece) && d.is_none());
                assert!(told || !(left(0) && left(1)), "{policy} {ordered:?}: {decided:?}");
            }
        }
    }
}

/// A server that takes data of a SYN at once has read it before there is a packet that could be refused.
#[test]
fn what_a_syn_brings_is_inspected_before_it_leaves() {
    let established = "drop http any any -> any any (msg:\"request\"; flow:established,to_server; http.uri; content:\"/evil\"; sid:1;)
drop tcp any any -> any any (msg:\"stream\"; flow:established,to_server; content:\"GET /evil\"; sid:3;)";
    // No option; TCP Fast Open with and without a cookie.
    let options: [&[u8; 12]; 3] =
        [&[1; 12], &[34, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1], &[34, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]];
    for v6 in [false, true] {
        for policy in CHAINS {
            for rule in established.lines() {
                for options in options {
                    let syn = with_options(v6, (100, 0, SYN), *options, REQUEST);
                    let decided = play("syn-data", policy, rule, &[syn]);
                    assert_eq!(decided, [Some(Reason::IdsRule)], "{policy}: {rule}: {options:?}");
                    // A good one leaves; what completes it is refused.
                    let good = with_options(v6, (100, 0, SYN), *options, &REQUEST[..8]);
                    let rest = segment(v6, true, (109, 501, ACK), &REQUEST[8..]);
                    let answer = segment(v6, false, (500, 109, SYN | ACK), b"");
                    let decided = play("syn-data", policy, rule, &[good, answer, rest]);
                    assert_eq!(decided, [None, None, Some(Reason::IdsRule)], "{policy}: {rule}: {options:?}");
                }
            }
        }
    }
}

/// A packet that belongs to no connection opens none, and decides nothing of the one that opens on its
/// tuple.
#[test]
fn strays_before_a_handshake_decide_nothing_of_it() {
    let strays: [(u8, &[u8]); 7] = [
        (SYN | ACK, b""),
        (ACK, b""),
        (RST, b""),
        (RST | ACK, b""),
        (FIN | ACK, b""),
        (ACK, b"stray data"),
        (SYN | FIN, b""),
    ];
    for v6 in [false, true] {
        for policy in CHAINS {
            for (flags, data) in strays {
                for client in [false, true] {
                    for several in [1, 3] {
                        let stray = segment(v6, client, (77, 99, flags), data);
                        let mut frames = vec![stray; several];
                        frames.push(segment(v6, true, (100, 0, SYN), b""));
                        // The SYN comes again.
                        frames.push(segment(v6, true, (100, 0, SYN), b""));
                        frames.push(segment(v6, false, (500, 101, SYN | ACK), b""));
                        frames.push(segment(v6, true, (101, 501, ACK), b""));
                        frames.push(segment(
                            v6,
                            true,
                            (101, 501, ACK),
                            b"GET /good HTTP/1.1\r\nHost: a\r\n\r\n",
                        ));
                        frames.push(segment(v6, false, (501, 132, ACK), b"HTTP/1.1 204 No\r\n\r\n"));
                        frames.push(segment(v6, true, (132, 520, ACK), REQUEST));
                        let decided = play("strays", policy, HTTP, &frames);
                        let (last, good) = decided[several..].split_last().unwrap();
                        assert_eq!(*last, Some(Reason::IdsRule), "{policy}, {flags}, {client}: {decided:?}");
                        assert!(good.iter().all(Option::is_none), "{policy}, {flags}, {client}: {decided:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn rules_look_at_the_byte_of_a_keep_alive_as_at_a_packet_of_its_own() {
    let rule = "drop tcp any any -> any any (msg:\"short\"; isdataat:!1; content:\"h\"; sid:3;)";
    for v6 in [false, true] {
        for policy in CHAINS {
            let frames = [
                segment(v6, true, (100, 0, SYN), b""),
                segment(v6, false, (500, 101, SYN | ACK), b""),
                segment(v6, true, (101, 501, ACK), b""),
                segment(v6, true, (101, 501, ACK), b"abcdefgh"),
                segment(v6, true, (108, 501, ACK), b"h"),
            ];
            let decided = play("keep-alive", policy, rule, &frames);
            assert_eq!(decided, [None, None, None, None, Some(Reason::IdsRule)], "{policy}");
        }
    }
}

/// Data of a SYN/ACK is read by a client that accepts it: it is inspected before it leaves, alone and with
/// the bytes that follow, whatever part of it the client accepts.
#[test]
fn data_of_a_syn_ack_is_inspected() {
    for v6 in [false, true] {
        for policy in CHAINS {
            let whole = [
                segment(v6, true, (100, 0, SYN), b""),
                segment(v6, false, (500, 101, SYN | ACK), b"an evil answer"),
            ];
            let decided = play("syn-ack-data", policy, ANSWER, &whole);
            assert_eq!(decided, [None, Some(Reason::IdsRule)], "{policy}");
            for taken in [0, 3, 8] {
                let rest = &b"an evil answer"[taken..];
                let ack = 501 + taken as u32;
                let frames = [
                    segment(v6, true, (100, 0, SYN), b""),
                    segment(v6, false, (500, 101, SYN | ACK), b"an evil "),
                    segment(v6, true, (101, ack, ACK), b""),
                    segment(v6, true, (101, ack, ACK), b"hello"),
                    segment(v6, false, (ack, 106, ACK), rest),
                ];
                let decided = play("syn-ack-data", policy, ANSWER, &frames);
                assert_eq!(decided, [None, None, None, None, Some(Reason::IdsRule)], "{policy}, {taken}");
            }
        }
    }
}

/// Whether a client accepts a SYN/ACK with an echo that was never sent, or resets it and accepts the next
/// one, its request is inspected.
#[test]
fn a_syn_ack_with_a_foreign_echo_hides_no_request() {
    let stamp = |value: u32, echo: u32| {
        let mut options = [1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0];
        options[4..8].copy_from_slice(&value.to_be_bytes());
        options[8..].copy_from_slice(&echo.to_be_bytes());
        options
    };
    let answer = |v6, number, echo| {
        let mut body = tcp((80, 1000), number, 101, SYN | ACK, &stamp(70, echo));
        body[12] = 0x80;
        ethernet(v6, &ip(v6, (2, 1), 6, &body))
    };
    for v6 in [false, true] {
        for policy in CHAINS {
            let opens = with_options(v6, (100, 0, SYN), stamp(10, 0), b"");
            let asks = |ack| with_options(v6, (101, ack, ACK), stamp(11, 70), REQUEST);
            let decided =
                play("foreign-echo", policy, HTTP, &[opens.clone(), answer(v6, 500, 4711), asks(501)]);
            assert_eq!(decided, [None, None, Some(Reason::IdsRule)], "{policy}");
            let frames = [
                opens,
                answer(v6, 500, 4711),
                segment(v6, true, (101, 0, RST), b""),
                answer(v6, 900, 10),
                asks(901),
            ];
            let decided = play("foreign-echo", policy, HTTP, &frames);
            assert_eq!(decided, [None, None, None, None, Some(Reason::IdsRule)], "{policy}");
        }
    }
}
