// SPDX-License-Identifier: Apache-2.0
//! Prevention and whole packets whose payload cannot be located by their headers: none leaves, while packets
//! that are merely odd are not refused.

use crate::common;

use bartizan_base::{Decision, Reason, Timestamp};
use bartizan_dataplane::handover::{Handled, connect};
use bartizan_dataplane::worker::Worker;
use bartizan_testkit::packet::Ip;
use common::{Captured, Nothing, bench, ethernet, gre, header, ip, tcp, udp};
use std::sync::Arc;

const ENDS: (u8, u8) = (1, 2);

/// Decides on a frame.
type Decide = Box<dyn FnMut(Vec<u8>) -> Decision>;

/// A worker, or a station that owns everything: both have to decide alike. Without real receivers nothing is
/// refused.
fn both(real: bool) -> [Decide; 2] {
    let bench = bench(true, "no");
    let worker = || {
        let mut settings = bench.engine_settings.clone();
        if real {
            settings = settings.for_real_receivers(true);
        }
        Worker::new(settings, Arc::clone(&bench.engine), Arc::clone(&bench.chains)).unwrap()
    };
    let captured = |bytes| Captured { now: Timestamp::from_nanos(1_000_000_000), bytes };
    let mut alone = worker();
    let mut station = connect(vec![worker()], &bench.engine_settings, 8).pop().unwrap();
    let plain =
        move |bytes| alone.frame(&captured(bytes).frame(1), &mut Nothing).expect("no fragment is sent");
    let stationed = move |bytes| match station.frame(&captured(bytes).frame(1), 0, &mut Nothing) {
        Handled::Here(decision) => decision,
        other => panic!("there is nobody else, and no fragment: {other:?}"),
    };
    [Box::new(plain), Box::new(stationed)]
}

/// An IPv4 packet with options, its lengths and checksum right.
fn optioned(options: &[u8], proto: u8, body: &[u8]) -> Vec<u8> {
    let header = Ip { options: options.to_vec(), ..header(false, ENDS, proto) };
    header.packet(&header.summed(body), None)
}

/// An IPv6 packet with extension headers before its payload: the first one's number, and their bytes.
fn extended(first: u8, extensions: &[u8], body: &[u8]) -> Vec<u8> {
    ip(true, ENDS, first, &[extensions, body].concat())
}

/// With a length field of its own.
fn with_length(mut packet: Vec<u8>, v6: bool, length: u16) -> Vec<u8> {
    let at = if v6 { 4 } else { 2 };
    packet[at..at + 2].copy_from_slice(&length.to_be_bytes());
    packet
}

fn tagged(count: usize, v6: bool, packet: &[u8]) -> Vec<u8> {
    let mut frame = ethernet(v6, packet);
    for _ in 0..count {
        frame.splice(12..12, [0x81, 0, 0, 0]);
    }
    frame
}

/// A datagram that no rule forbids, and one that the finder of the bench would refuse.
fn datagram(word: &str) -> Vec<u8> {
    udp((9, 10), format!("please {word} this one").as_bytes())
}

/// UDP with this length field, TCP with this data offset.
fn sized(length: u16) -> Vec<u8> {
    let mut bytes = datagram("drop");
    bytes[4..6].copy_from_slice(&length.to_be_bytes());
    bytes
}

fn offset(words: u8) -> Vec<u8> {
    let mut bytes = tcp((9, 10), 1, 0, 2, b"please drop this one");
    bytes[12] = words << 4;
    bytes
}

/// Frames whose payload cannot be determined, by name.
fn unreadable() -> Vec<(&'static str, Vec<u8>)> {
    let text = datagram("drop");
    let v4 = |packet: &[u8]| ethernet(false, packet);
    let v6 = |packet: &[u8]| ethernet(true, packet);
    let broken = optioned(&[7, 200, 4, 0], 17, &text);
    // A jumbogram without the option that says so: Linux takes what is there.
    let mut lengthless = extended(0, &[17, 0, 1, 4, 0, 0, 0, 0], &text);
    lengthless[4..6].fill(0);
    vec![
        ("an option beyond the header", v4(&broken)),
        ("an option of length 0", v4(&optioned(&[7, 0, 0, 0], 17, &text))),
        ("an option of length 1, TCP", v4(&optioned(&[1, 130, 1, 0], 6, &tcp((9, 10), 1, 0, 2, b"x")))),
        ("less than a header, IPv4", v4(&ip(false, ENDS, 17, &text)[..12])),
        ("another version, IPv4", v4(&[&[0x65], &ip(false, ENDS, 17, &text)[1..]].concat())),
        ("a length beyond the frame, IPv4", v4(&with_length(ip(false, ENDS, 17, &text), false, 1000))),
        ("no length, IPv4", v4(&with_length(ip(false, ENDS, 17, &text), false, 0))),
        ("a length beyond the frame, IPv6", v6(&with_length(ip(true, ENDS, 17, &text), true, 1000))),
        ("another version, IPv6", v6(&ip(false, ENDS, 17, &[0; 60]))),
        ("no length, IPv6", v6(&lengthless)),
        ("a destination header beyond the packet", v6(&extended(60, &[17, 9, 1, 4, 0, 0, 0, 0], &text))),
        ("a routing header beyond the packet", v6(&extended(43, &[17, 9, 4, 0, 0, 0, 0, 0], &text))),
        ("an authentication header beyond the packet", v6(&extended(51, &[17, 90, 0, 0, 0, 0, 0, 0], &text))),
        // As of a jumbogram: Linux takes what is there.
        ("a datagram of length 0, IPv6", v6(&ip(true, ENDS, 17, &sized(0)))),
        ("a datagram of length 0, IPv4", v4(&ip(false, ENDS, 17, &sized(0)))),
        ("a datagram of length 7", v6(&ip(true, ENDS, 17, &sized(7)))),
        ("a datagram longer than its packet", v4(&ip(false, ENDS, 17, &sized(99)))),
        ("a segment with its data before it", v4(&ip(false, ENDS, 6, &offset(4)))),
        ("a segment with its data behind it", v6(&ip(true, ENDS, 6, &offset(15)))),
        // Linux takes them all off.
        ("four tags of VLAN 0, IPv4", tagged(4, false, &ip(false, ENDS, 17, &text))),
        ("four tags of VLAN 0, IPv6", tagged(4, true, &ip(true, ENDS, 17, &text))),
        ("in GRE", v6(&ip(true, ENDS, 47, &gre(false, &broken)))),
        (
            "in GRE with a header that is not read",
            v4(&ip(false, ENDS, 47, &{
                let mut tunnel = gre(false, &ip(false, ENDS, 17, &text));
                tunnel[0] |= 1;
                tunnel
            })),
        ),
        ("in an IPv4 tunnel", v4(&ip(false, ENDS, 4, &broken))),
        ("in an IPv6 tunnel", v6(&ip(true, ENDS, 41, &lengthless))),
        (
            "in VXLAN",
            v4(&ip(
                false,
                ENDS,
                17,
                &udp((9, 4789), &[&[8, 0, 0, 0, 0, 0, 7, 0][..], &ethernet(false, &broken)].concat()),
            )),
        ),
    ]
}

/// Frames that are odd, and good.
fn odd() -> Vec<(&'static str, Vec<u8>)> {
    let text = datagram("keep");
    let v4 = |packet: &[u8]| ethernet(false, packet);
    let v6 = |packet: &[u8]| ethernet(true, packet);
    let padded = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
    let with_trailer = |mut frame: Vec<u8>| {
        frame.extend([0; 12]);
        frame
    };
    vec![
        ("no operations", v4(&optioned(&[1, 1, 1, 1], 17, &text))),
        ("an end of the list, then anything", v4(&optioned(&[0, 7, 200, 200], 17, &text))),
        ("a router alert", v4(&optioned(&[0x94, 4, 0, 0], 17, &text))),
        ("a record route", v4(&optioned(&[7, 7, 4, 0, 0, 0, 0, 0], 17, &text))),
        ("an option that nobody knows", v4(&optioned(&[0x9e, 4, 1, 2], 17, &text))),
        (
            "a security option of a kind that is not known",
            v4(&optioned(&[0x86, 10, 0, 0, 0, 1, 128, 4, 0, 1, 0, 0], 17, &text)),
        ),
        ("a trailer", with_trailer(v4(&ip(false, ENDS, 17, &text)))),
        ("a trailer, IPv6", with_trailer(v6(&ip(true, ENDS, 17, &text)))),
        ("a packet of a protocol that is not decoded", v4(&ip(false, ENDS, 89, b"please"))),
        ("the same of IPv6", v6(&ip(true, ENDS, 89, b"please"))),
        ("the same behind options", v6(&extended(60, &padded(89), b"please"))),
        ("no next header", v6(&ip(true, ENDS, 59, b""))),
        ("no next header, and bytes", v6(&extended(0, &padded(59), b"please"))),
        (
            "options, a routing header, options",
            v6(&extended(60, &[&padded(43)[..], &[60, 0, 4, 0, 0, 0, 0, 0], &padded(17)].concat(), &text)),
        ),
        ("an authentication header", v6(&extended(51, &[&[17, 4, 0, 0][..], &[0; 20]].concat(), &text))),
        ("the same over IPv4", v4(&ip(false, ENDS, 51, &[&[17, 4, 0, 0][..], &[0; 20], &text].concat()))),
        ("a datagram in one fragment", v6(&extended(44, &[17, 0, 0, 0, 0, 0, 0, 9], &text))),
        // UDP options (RFC 9868).
        ("bytes behind a datagram", v4(&ip(false, ENDS, 17, &[&text[..], b"more"].concat()))),
        ("three tags", tagged(3, true, &ip(true, ENDS, 17, &text))),
        ("a request for an address", {
            let mut frame = vec![0xff; 6];
            frame.extend([2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1]);
            frame.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
            frame
        }),
        (
            "a frame of a protocol that is not known",
            ethernet(false, b"please")
                .iter()
                .copied()
                .enumerate()
                .map(|(at, byte)| if at == 12 { 0x88 } else { byte })
                .collect(),
        ),
        (
            "an ICMP error that quotes little",
            v4(&ip(false, ENDS, 1, &common::unreachable(&ip(false, (2, 1), 17, &text)[..20]))),
        ),
        (
            "a tunnel that is none",
            v4(&ip(
                false,
                ENDS,
                17,
                &udp((9, 4789), b"please do not take this for VXLAN, whatever its port says"),
            )),
        ),
    ]
}

#[test]
fn what_nobody_can_read_does_not_leave() {
    for decide in &mut both(true) {
        for (name, frame) in unreadable() {
            let decision = decide(frame);
            let reasons = [Some(Reason::Unreadable), Some(Reason::TunnelInner)];
            assert!(reasons.contains(&decision.reason), "{name}: {decision:?}");
            assert!(!decision.verdict.forwards(), "{name}");
        }
    }
}

#[test]
fn what_is_merely_odd_leaves() {
    for decide in &mut both(true) {
        for (name, frame) in odd() {
            let decision = decide(frame);
            assert!(decision.verdict.forwards(), "{name}: {decision:?}");
        }
    }
}

/// Over captures such packets are not refused: they get Suricata's treatment.
#[test]
fn over_captures_it_goes_on() {
    for decide in &mut both(false) {
        for (name, frame) in unreadable() {
            let decision = decide(frame);
            assert_ne!(decision.reason, Some(Reason::Unreadable), "{name}");
        }
    }
}

/// Options that are wrong in a list that can be walked, and tunnels behind extension headers: receivers take
/// some of them.
#[test]
fn what_is_wrong_but_can_be_read_is_inspected() {
    let text = datagram("drop");
    let inner = ip(true, ENDS, 17, &text);
    let options = |next: u8| [next, 0, 4, 1, 4, 1, 1, 0];
    let frames = [
        (
            "a record route with an odd pointer",
            ethernet(false, &optioned(&[7, 11, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0], 17, &text)),
        ),
        (
            "a destination option that is too short",
            ethernet(true, &extended(60, &[17, 0, 5, 1, 0, 1, 1, 0], &text)),
        ),
        ("IPv6 behind options", ethernet(true, &extended(60, &options(41), &inner))),
        ("GRE behind options", ethernet(true, &extended(60, &options(47), &gre(true, &inner)))),
    ];
    for decide in &mut both(true) {
        for (name, frame) in &frames {
            let decision = decide(frame.clone());
            let reasons = [Some(Reason::PfwRule), Some(Reason::TunnelInner)];
            assert!(reasons.contains(&decision.reason), "{name}: {decision:?}");
        }
    }
}
