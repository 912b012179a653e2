// SPDX-License-Identifier: Apache-2.0
//! Good traffic with long silences, through the inline loop between ports in memory, whose clock the test
//! moves: connections go on after the silence unaffected. The suite in `tests/good-traffic` does the same
//! with real hosts for 90 s.

use bartizan_base::{PacketDuration, Timestamp};
use bartizan_dataplane::driver::{Control, LiveOptions};
use bartizan_ports::{InlinePair, Port, TestClock, TestPort};
use bartizan_testkit::hosts::{ethernet, ip, tcp, udp};
use bartizan_testkit_worker::{Made, Stack};
use std::time::{Duration, Instant};

const SYN: u8 = 2;
const PUSH_ACK: u8 = 24;
const ACK: u8 = 16;
const CHAINS: [&str; 4] = [
    "chain: []",
    "chain: [ids], ids: {}",
    "chain: [sfw], sfw: {}",
    "chain: [pfw, sfw, ids], pfw: {default: allow}, sfw: {}, ids: {}",
];

/// A frame, and whether the client sends it.
type Sent = (bool, Vec<u8>);

/// A TCP segment from 1:1000 to 2:7000, or back.
fn segment(v6: bool, client: bool, seq: u32, ack: u32, flags: u8, payload: &[u8]) -> Sent {
    let (ends, ports) = if client { ((1, 2), (1000, 7000)) } else { ((2, 1), (7000, 1000)) };
    (client, ethernet(v6, &ip(v6, ends, 6, &tcp(ports, seq, ack, flags, payload))))
}

fn datagram(v6: bool, client: bool, payload: &[u8]) -> Sent {
    let (ends, ports) = if client { ((1, 2), (1001, 7001)) } else { ((2, 1), (7001, 1001)) };
    (client, ethernet(v6, &ip(v6, ends, 17, &udp(ports, payload))))
}

/// Before the silence: an open connection that has carried data both ways.
fn begin(v6: bool) -> Vec<Sent> {
    vec![
        segment(v6, true, 100, 0, SYN, b""),
        segment(v6, false, 500, 101, SYN | ACK, b""),
        segment(v6, true, 101, 501, ACK, b""),
        segment(v6, true, 101, 501, PUSH_ACK, b"hello"),
        segment(v6, false, 501, 106, PUSH_ACK, b"hello yourself"),
        segment(v6, true, 106, 515, ACK, b""),
    ]
}

/// The segments after the idle time: one end sends, the other answers.
fn go_on(v6: bool, client_first: bool) -> Vec<Sent> {
    if client_first {
        vec![
            segment(v6, true, 106, 515, PUSH_ACK, b"still there?"),
            segment(v6, false, 515, 118, PUSH_ACK, b"yes"),
            segment(v6, true, 118, 518, ACK, b""),
        ]
    } else {
        vec![
            segment(v6, false, 515, 106, PUSH_ACK, b"still there?"),
            segment(v6, true, 106, 527, PUSH_ACK, b"yes"),
            segment(v6, false, 527, 109, ACK, b""),
        ]
    }
}

/// Sends `before`, advances the ports' clock by so many seconds, sends `after`; each frame has to leave
/// before the next one comes. Returns the number of the first that does not leave, and the worker's refusals.
fn silence(policy: &str, seconds: u64, before: &[Sent], after: &[Sent]) -> (Option<usize>, u64) {
    let name = format!("idle-{:?}", std::thread::current().id()).replace(['(', ')'], "-");
    let made = Made { name: &name, policy, set: &[], tune: |_| (), rules: "", thresholds: "" };
    let stack = Stack::new(&made);
    let clock = TestClock::starting_at(Timestamp::from_parts(1, 0));
    let (mut client, a) = TestPort::pair(["c", "a"], 1500, 64, &clock).unwrap();
    let (b, mut server) = TestPort::pair(["b", "s"], 1500, 64, &clock).unwrap();
    let pair = InlinePair::new(Box::new(a), Box::new(b), false).unwrap();
    let control = Control::new().unwrap();
    let options = LiveOptions { batch: 32, spin: Duration::ZERO, ..LiveOptions::default() };
    let (lost, worker, _) = stack.run_inline(pair, &options, &control, |_| {
        let mut lost = None;
        for (number, (from_client, frame)) in before.iter().chain(after).enumerate() {
            let pause = if number == before.len() {
                PacketDuration::from_secs(seconds)
            } else {
                PacketDuration::from_millis(1)
            };
            clock.advance(pause);
            let (from, to) =
                if *from_client { (&mut client, &mut server) } else { (&mut server, &mut client) };
            from.transmit_frame(frame).unwrap();
            from.flush().unwrap();
            if !arrives(to, frame) {
                lost = Some(number);
                break;
            }
        }
        lost
    });
    (lost, worker.counters().refused.iter().sum())
}

/// Whether the frame comes, unchanged, within a time that is long for any machine.
fn arrives(port: &mut TestPort, frame: &[u8]) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) {
        if let Some(came) = port.take() {
            assert_eq!(came, frame, "a frame leaves as it came");
            return true;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    false
}

/// Every chain, both versions of IP, either end first.
fn tcp_goes_on_after(seconds: u64) {
    for policy in CHAINS {
        for v6 in [false, true] {
            for client_first in [true, false] {
                let result = silence(policy, seconds, &begin(v6), &go_on(v6, client_first));
                assert_eq!(
                    result,
                    (None, 0),
                    "{policy}, IPv6 {v6}, client first {client_first}: first lost, refused"
                );
            }
        }
    }
}

#[test]
fn tcp_goes_on_after_nine_minutes() {
    // Shipped settings name ten minutes for flows of established connections.
    tcp_goes_on_after(9 * 60);
}

#[test]
fn tcp_goes_on_after_an_hour() {
    tcp_goes_on_after(3600);
}

#[test]
fn udp_goes_on_after_an_hour() {
    for policy in CHAINS {
        for v6 in [false, true] {
            for client_first in [true, false] {
                let before = [datagram(v6, true, b"hello"), datagram(v6, false, b"hello yourself")];
                let after =
                    [datagram(v6, client_first, b"still there?"), datagram(v6, !client_first, b"yes")];
                let result = silence(policy, 3600, &before, &after);
                assert_eq!(
                    result,
                    (None, 0),
                    "{policy}, IPv6 {v6}, client first {client_first}: first lost, refused"
                );
            }
        }
    }
}
