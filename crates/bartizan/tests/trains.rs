// SPDX-License-Identifier: Apache-2.0
//! Detection over trains: the results for segments in a train equal those for single segments.

use bartizan_base::Timestamp;
use bartizan_stages::train;
use bartizan_testkit::hosts::{ethernet, ip, tcp};
use bartizan_testkit_worker::{Captured, Made, Stack, events};

const SYN: u8 = 2;
const ACK: u8 = 16;
const SIZE: usize = 1200;

/// An HTTP response of many full segments, a request before it.
fn response(body: &[u8]) -> Vec<Vec<u8>> {
    let client = |seq, ack, flags, payload: &[u8]| {
        ethernet(false, &ip(false, (1, 2), 6, &tcp((1000, 80), seq, ack, flags, payload)))
    };
    let server = |seq, ack, flags, payload: &[u8]| {
        let mut segment = tcp((80, 1000), seq, ack, flags, payload);
        segment[14..16].fill(0xff);
        ethernet(false, &ip(false, (2, 1), 6, &segment))
    };
    let request = b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n";
    let after = 101 + request.len() as u32;
    let mut frames = vec![
        client(100, 0, SYN, b""),
        server(500, 101, SYN | ACK, b""),
        client(101, 501, ACK, b""),
        client(101, 501, ACK, request),
        server(501, after, ACK, b""),
    ];
    // `tcp` writes the client's window: the segments sent at once fit into it.
    let mut data = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    data.extend_from_slice(body);
    let mut seq = 501u32;
    for (number, piece) in data.chunks(SIZE).enumerate() {
        frames.push(server(seq, after, ACK, piece));
        seq += piece.len() as u32;
        if number % 10 == 9 {
            frames.push(client(after, seq, ACK, b""));
        }
    }
    frames.push(client(after, seq, ACK, b""));
    frames
}

struct Outcome {
    /// By frame.
    leaves: Vec<bool>,
    /// Rules that matched, and whether they refused.
    alerts: Vec<(u64, String)>,
    drops: usize,
    waited: usize,
    flow: serde_json::Value,
}

fn play(name: &str, rules: &str, frames: &[Vec<u8>], joined: bool) -> Outcome {
    let policy = "chain: [sfw, ids], ids: {rules: [r]}";
    let name = format!("{name}-{joined}");
    let made = Made { name: &name, policy, set: &[], tune: |_| (), rules, thresholds: "" };
    let mut stack = Stack::new(&made);
    let frames: Vec<Captured> = (0u64..)
        .zip(frames)
        .map(|(n, bytes)| Captured {
            now: Timestamp::from_nanos(1_000_000_000 + n * 1000),
            bytes: bytes.clone(),
        })
        .collect();
    let mut leaves = vec![false; frames.len()];
    let mut waited = 0;
    for at in 0..frames.len() {
        let next = frames.get(at + 1);
        let follows = joined && next.is_some_and(|next| train::follows(&frames[at].bytes, &next.bytes));
        let Stack { worker, recorder, .. } = &mut stack;
        let Some(decision) = worker.frame_in_batch(&frames[at].frame(at as u64 + 1), follows, recorder)
        else {
            waited += 1;
            continue;
        };
        leaves[at] = decision.verdict.forwards();
        for before in at - worker.waiting()..at {
            let decision = worker.release(&frames[before].frame(before as u64 + 1), recorder);
            leaves[before] = decision.verdict.forwards();
        }
    }
    let (worker, events) = stack.finish();
    let counters = worker.counters();
    let refused: u64 = counters.refused.iter().sum();
    assert_eq!(counters.forwarded + refused, frames.len() as u64);
    let of = |kind| events::of_type(&events, kind);
    let mut alerts: Vec<_> = of("alert")
        .map(|event| {
            let alert = &event["alert"];
            (alert["signature_id"].as_u64().unwrap(), alert["action"].as_str().unwrap().to_owned())
        })
        .collect();
    // One by one, a window that slides over the stream shows a match several times.
    alerts.sort();
    alerts.dedup();
    let drops = of("drop").count();
    assert_eq!(drops as u64, refused, "each refused frame is recorded");
    let flow = of("flow").next().unwrap()["flow"].clone();
    Outcome { leaves, alerts, drops, waited, flow }
}

/// Text that no rule matches, with words at offsets.
fn body(words: &[(usize, &[u8])]) -> Vec<u8> {
    let mut body: Vec<u8> = (0..60_000u32).map(|n| b'a' + (n * 7 % 13) as u8).collect();
    for (at, word) in words {
        body[*at..*at + word.len()].copy_from_slice(word);
    }
    body
}

/// Offset in the body of the beginning of the segment with that number.
fn begin_of(segment: usize) -> usize {
    segment * SIZE - "HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n".len()
}

#[test]
fn alerts_are_those_of_single_segments() {
    // Over a boundary of segments, within one, over a boundary of trains (an acknowledgement comes after
    // ten).
    let words: [(usize, &[u8]); 3] = [
        (begin_of(3) - 4, b"over-two"),
        (begin_of(14) + 9, b"within-one"),
        (begin_of(20) - 6, b"over-trains"),
    ];
    let stream = "alert tcp any any -> any any (msg:\"1\"; content:\"over-two\"; sid:1;)\n\
        alert tcp any any -> any any (msg:\"2\"; content:\"within-one\"; sid:2;)\n\
        alert tcp any any -> any any (msg:\"3\"; content:\"over-trains\"; sid:3;)\n\
        alert http any any -> any any (msg:\"4\"; http.response_body; content:\"over-two\"; sid:4;)\n\
        alert http any any -> any any (msg:\"5\"; file.data; content:\"over-two\"; content:\"over-trains\"; distance:0; sid:5;)\n\
        alert tcp any any -> any any (msg:\"6\"; content:\"nowhere\"; sid:6;)\n";
    let packets = "alert tcp any any -> any any (msg:\"7\"; dsize:1200; content:\"within-one\"; sid:7;)\n\
        alert tcp any any -> any any (msg:\"8\"; dsize:>1000; threshold:type threshold, track by_src, count 12, seconds 60; sid:8;)\n\
        alert tcp any any -> any any (msg:\"9\"; flow:established,to_client; dsize:0; sid:9;)\n";
    let frames = response(&body(&words));
    for (name, rules) in [("stream", stream.to_owned()), ("both", format!("{stream}{packets}"))] {
        let one_by_one = play(name, &rules, &frames, false);
        let joined = play(name, &rules, &frames, true);
        assert_eq!(one_by_one.waited, 0);
        assert!(joined.waited > 40, "{}", joined.waited);
        assert_eq!(joined.alerts, one_by_one.alerts, "{name}");
        let sids: Vec<u64> = joined.alerts.iter().map(|a| a.0).collect();
        assert!((1..=5).all(|sid| sids.contains(&sid)) && !sids.contains(&6), "{sids:?}");
        assert!(name == "stream" || (7..=8).all(|sid| sids.contains(&sid)), "{sids:?}");
        assert!(joined.leaves.iter().all(|l| *l));
        assert_eq!(joined.flow, one_by_one.flow);
    }
}

#[test]
fn what_a_rule_drops_is_dropped_and_more_of_it() {
    let frames = response(&body(&[(begin_of(14) - 4, b"over-two")]));
    for rule in [
        "drop tcp any any -> any any (content:\"over-two\"; sid:1;)\n",
        "drop http any any -> any any (http.response_body; content:\"over-two\"; sid:1;)\n",
    ] {
        let one_by_one = play("drop", rule, &frames, false);
        let joined = play("drop", rule, &frames, true);
        assert_eq!(joined.alerts, one_by_one.alerts);
        assert_eq!(joined.alerts, [(1, "blocked".to_owned())]);
        assert!(joined.drops > one_by_one.drops);
        for (at, (joined, single)) in joined.leaves.iter().zip(&one_by_one.leaves).enumerate() {
            assert!(!joined || *single, "frame {at} leaves only in a train");
        }
        // The train begins after the acknowledgement of the first ten segments; rules inspect a body in
        // larger pieces.
        let first = joined.leaves.iter().position(|l| !l).unwrap();
        assert!(first == 16 || rule.starts_with("drop http") && first > 16, "{first}");
        assert!(joined.leaves[first..].iter().all(|l| !l), "{:?}", joined.leaves);
    }
}

#[test]
fn what_is_about_packets_is_not_joined() {
    let frames = response(&body(&[(begin_of(14) + 5, b"within-one")]));
    let rules = "alert tcp any any -> any any (content:\"within-one\"; replace:\"nothin-one\"; sid:1;)\n";
    assert_eq!(play("replace", rules, &frames, true).waited, 0);
}
