// SPDX-License-Identifier: Apache-2.0
//! Rows in which nftables and Bartizan have the same verdict.

use super::Versions::{Both, V4, V6};
use super::trial::{In, Out, Trial};
use super::{Row, same};

use bartizan_testkit::packet::{ACK, Datagram, FIN, Ip, IpFixed, PSH, Piece, RST, SYN, Segment, UDP, URG};

/// TCP (6).
pub const TCP: &[Row] = &[
    same("data a megabyte beyond the window", Both, ["drop", "drop `sfw_window`"], |t| {
        t.open();
        t.judge(t.tcp(In, (1_000_001, 1), ACK, b"x"));
    }),
    same(
        "data that comes again, keep-alives with 0 and 1 byte, of both sides",
        Both,
        ["pass", "pass"],
        |t| {
            t.open();
            t.judge(t.tcp(In, (1, 1), ACK, &[b'x'; 1000]));
            t.judge(t.tcp(Out, (1, 1001), ACK, &[b'y'; 1000]));
            t.judge(t.tcp(In, (1, 1), ACK, &[b'x'; 1000]));
            t.judge(t.tcp(In, (1001, 1001), ACK, b""));
            for load in [&b""[..], b"x"] {
                t.judge(t.tcp(In, (1000, 1001), ACK, load));
                t.judge(t.tcp(Out, (1001, 1001), ACK, b""));
                t.judge(t.tcp(Out, (1000, 1001), ACK, load));
                t.judge(t.tcp(In, (1001, 1001), ACK, b""));
            }
        },
    ),
    same("a window of zero: probes, a FIN into it; a window that shrinks", Both, ["pass", "pass"], |t| {
        t.open();
        let closed = Segment { window: 0, ..t.segment(Out, (1, 1), ACK, b"") };
        t.judge(t.frame_of(Out, &closed));
        t.judge(t.tcp(In, (1, 1), ACK, b"p"));
        t.judge(t.frame_of(Out, &closed));
        t.judge(t.tcp(In, (1, 1), FIN | ACK, b""));
        t.open();
        t.judge(t.tcp(In, (1, 1), ACK, &[b'x'; 100]));
        t.judge(t.frame_of(Out, &Segment { window: 10, ..t.segment(Out, (1, 101), ACK, b"") }));
        t.judge(t.tcp(In, (101, 1), ACK, &[b'x'; 10]));
    }),
    same("window scales 7 and 7, 7 and none, 15 (counts as 14)", Both, ["pass", "pass"], |t| {
        for (client, server, sent) in
            [(Some(7), Some(7), 60_000), (Some(7), None, 60_000), (Some(15), Some(15), 200_000)]
        {
            t.next();
            let with = |segment: Segment, scale: Option<u8>| Segment {
                window: 0xffff,
                options: scale.map(|scale| (3, vec![scale])).into_iter().collect(),
                ..segment
            };
            t.set(t.frame_of(In, &with(t.segment(In, (0, 0), SYN, b""), client)));
            t.set(t.frame_of(Out, &with(t.segment(Out, (0, 1), SYN | ACK, b""), server)));
            t.set(t.frame_of(In, &with(t.segment(In, (1, 1), ACK, b""), None)));
            t.set(t.frame_of(Out, &with(t.segment(Out, (1, 1), ACK, b""), None)));
            for at in (0..sent).step_by(1000) {
                t.judge(t.tcp(In, (1 + at, 1), ACK, &[b'x'; 1000]));
            }
        }
    }),
    same("a RST in the window that is not exact, also behind a lost segment", Both, ["pass", "pass"], |t| {
        t.open();
        t.judge(t.tcp(Out, (101, 1), RST | ACK, b""));
        t.judge(t.tcp(In, (1, 1), ACK, b"still there"));
        t.judge(t.tcp(Out, (1, 12), RST | ACK, b""));
    }),
    same(
        "a SYN of another number in an established connection, the challenge ACK, its RST, the new handshake",
        Both,
        ["pass", "pass"],
        |t| {
            t.open();
            t.judge(t.tcp(In, (500_000, 0), SYN, b""));
            t.judge(t.tcp(Out, (1, 1), ACK, b""));
            t.judge(t.tcp(In, (1, 0), RST, b""));
            t.judge(t.tcp(In, (500_000, 0), SYN, b""));
            t.judge(t.tcp(Out, (700_000, 500_001), SYN | ACK, b""));
            t.judge(t.tcp(In, (500_001, 700_001), ACK, b""));
        },
    ),
    same("a SYN of the server in an established connection", Both, ["drop", "drop `sfw_state`"], |t| {
        t.open();
        t.judge(t.tcp(Out, (500_000, 0), SYN, b""));
    }),
    same("a SYN with data, taken or not taken by the server", Both, ["pass", "pass"], |t| {
        for taken in [false, true] {
            t.next();
            t.judge(t.tcp(In, (0, 0), SYN, b"data"));
            t.judge(t.tcp(Out, (0, if taken { 5 } else { 1 }), SYN | ACK, b""));
            t.judge(t.tcp(In, (if taken { 5 } else { 1 }, 1), ACK, b""));
        }
    }),
    same("a SYN/ACK with data, and what follows", Both, ["pass", "pass"], |t| {
        t.next();
        t.judge(t.tcp(In, (0, 0), SYN, b""));
        t.judge(t.tcp(Out, (0, 1), SYN | ACK, b"hello"));
        t.judge(t.tcp(In, (1, 6), ACK, b""));
        t.judge(t.tcp(In, (1, 6), ACK, b"question"));
        t.judge(t.tcp(Out, (6, 9), ACK, b"answer"));
    }),
    same("after both FINs: old data, the FIN again, acknowledgements", Both, ["pass", "pass"], |t| {
        t.open();
        t.judge(t.tcp(In, (1, 1), ACK, b"bye"));
        t.judge(t.tcp(In, (4, 1), FIN | ACK, b""));
        t.judge(t.tcp(Out, (1, 5), FIN | ACK, b""));
        t.judge(t.tcp(In, (5, 2), ACK, b""));
        t.judge(t.tcp(In, (1, 1), ACK, b"bye"));
        t.judge(t.tcp(Out, (1, 5), FIN | ACK, b""));
        t.judge(t.tcp(In, (5, 2), ACK, b""));
    }),
    same(
        "every packet twice; both close at once; a FIN with data ends the handshake",
        Both,
        ["pass", "pass"],
        |t| {
            t.next();
            t.judge_twice(t.tcp(In, (0, 0), SYN, b""));
            t.judge_twice(t.tcp(Out, (0, 1), SYN | ACK, b""));
            t.judge_twice(t.tcp(In, (1, 1), ACK, b""));
            t.judge_twice(t.tcp(In, (1, 1), ACK, b"data"));
            t.judge_twice(t.tcp(Out, (1, 5), FIN | ACK, b""));
            t.judge_twice(t.tcp(In, (5, 1), FIN | ACK, b""));
            t.judge_twice(t.tcp(Out, (2, 6), ACK, b""));
            t.judge_twice(t.tcp(In, (6, 2), ACK, b""));
            t.next();
            t.set(t.tcp(In, (0, 0), SYN, b""));
            t.set(t.tcp(Out, (0, 1), SYN | ACK, b""));
            t.judge(t.tcp(In, (1, 1), FIN | PSH | ACK, b"all"));
            t.judge(t.tcp(Out, (1, 5), FIN | ACK, b""));
        },
    ),
    same(
        "every second segment lost, a FIN that overtakes data, the handshake's ACK lost",
        Both,
        ["pass", "pass"],
        |t| {
            t.next();
            t.set(t.tcp(In, (0, 0), SYN, b""));
            t.set(t.tcp(Out, (0, 1), SYN | ACK, b""));
            for at in (0..4_000).step_by(200) {
                t.judge(t.tcp(In, (1 + at, 1), ACK, &[b'x'; 100]));
            }
            t.judge(t.tcp(In, (4_001, 1), FIN | ACK, b""));
            t.judge(t.tcp(In, (101, 1), ACK, &[b'x'; 100]));
        },
    ),
    same("RST to the SYN, of a closed port and of a server that gives up", Both, ["pass", "pass"], |t| {
        t.next();
        t.judge(t.tcp(In, (0, 0), SYN, b""));
        t.judge(t.frame_of(Out, &Segment { seq: 0, ..t.segment(Out, (0, 1), RST | ACK, b"") }));
        t.next();
        t.judge(t.tcp(In, (0, 0), SYN, b""));
        t.judge(t.tcp(Out, (1, 1), RST | ACK, b""));
    }),
    same("SYNs with URG, PSH, ECE and CWR; ACK with PSH, URG, ECE", Both, ["pass", "pass"], |t| {
        for more in [URG, PSH, 0x40, 0xc0] {
            t.next();
            t.judge(t.tcp(In, (0, 0), SYN | more, b""));
        }
        t.open();
        t.judge(t.tcp(In, (1, 1), ACK | PSH | URG, b"a"));
        t.judge(t.tcp(In, (2, 1), ACK | PSH | 0x40, b"b"));
    }),
    same(
        "MSS 0, MD5, multipath, unknown options, timestamps that wrap, other MAC addresses, a trailer",
        Both,
        ["pass", "pass"],
        |t| {
            let options: [&[(u8, Vec<u8>)]; 4] =
                [&[(2, vec![0, 0])], &[(19, vec![0; 16])], &[(30, vec![1; 10])], &[(253, vec![1, 2])]];
            for options in options {
                t.next();
                t.judge(
                    t.frame_of(In, &Segment { options: options.to_vec(), ..t.segment(In, (0, 0), SYN, b"") }),
                );
            }
            t.next();
            let stamped = |segment, now: u32, echo: u32| {
                let value = [now.to_be_bytes(), echo.to_be_bytes()].concat();
                Segment { options: vec![(8, value)], ..segment }
            };
            t.judge(t.frame_of(In, &stamped(t.segment(In, (0, 0), SYN, b""), u32::MAX, 0)));
            t.judge(t.frame_of(Out, &stamped(t.segment(Out, (0, 1), SYN | ACK, b""), 5, u32::MAX)));
            t.judge(t.frame_of(In, &stamped(t.segment(In, (1, 1), ACK, b""), 3, 5)));
            let ip = Ip { mac: [2, 9, 9, 9, 9, 9], trailer: 12, ..t.ip(In, 6) };
            let segment = stamped(t.segment(In, (1, 1), ACK, b"data"), 3, 5);
            t.judge(ip.frame(&segment.bytes(&ip), None));
        },
    ),
    same("another connection of the same ports after both FINs", Both, ["pass", "pass"], |t| {
        t.open();
        t.set(t.tcp(In, (1, 1), FIN | ACK, b""));
        t.set(t.tcp(Out, (1, 2), FIN | ACK, b""));
        t.set(t.tcp(In, (2, 2), ACK, b""));
        t.wait(2_000);
        t.judge(t.tcp(In, (800_000, 0), SYN, b""));
        t.judge(t.tcp(Out, (900_000, 800_001), SYN | ACK, b""));
        t.judge(t.tcp(In, (800_001, 900_001), ACK, b""));
    }),
    same("a SYN of the outside", Both, ["drop", "drop `pfw_default`"], |t| {
        t.judge(t.tcp(Out, (0, 0), SYN, b""));
    }),
];

/// UDP and the protocols on it.
pub const UDP_ROWS: &[Row] = &[
    same(
        "an answer 31 s after the question; the next question and its answer",
        Both,
        ["drop; pass", "drop `pfw_default`; pass"],
        |t| {
            t.set(t.udp(In, b"?"));
            t.wait(31_000);
            t.judge(t.udp(Out, b"!"));
            t.judge(t.udp(In, b"?"));
            t.judge(t.udp(Out, b"!"));
        },
    ),
    same(
        "a datagram that nobody asked for; then the inside asks from these ports",
        Both,
        ["drop; pass", "drop `pfw_default`; pass"],
        |t| {
            for _ in 0..2 {
                t.judge(t.udp(Out, b"stray"));
                t.wait(1_000);
            }
            t.judge(t.udp(In, b"?"));
            t.judge(t.udp(Out, b"!"));
        },
    ),
    same(
        "a question to a broadcast or multicast address; a host's own answer",
        Both,
        ["pass; drop", "pass; drop `pfw_default`"],
        |t| {
            let group = if t.v6 { "ff02::fb" } else { "224.0.0.251" }.parse().unwrap();
            let ip = Ip::new(t.host(In), group, UDP);
            t.judge(ip.frame(&Datagram::new((5353, 5353), b"?").bytes(&ip), None));
            t.judge(t.udp_between(Out, (5353, 5353), b"!"));
        },
    ),
    same("TFTP: the answer comes from another port", Both, ["pass; drop", "pass; drop `pfw_default`"], |t| {
        t.judge(t.udp_between(In, (40_000, 69), b"\0\x01file\0octet\0"));
        t.judge(t.udp_between(Out, (50_000, 40_000), b"\0\x03\0\x01data"));
    }),
    same(
        "active FTP: the server opens the connection for the data",
        Both,
        ["drop", "drop `pfw_default`"],
        |t| {
            t.open();
            t.set(t.tcp(In, (1, 1), ACK, b"PORT 10,0,0,1,160,0\r\n"));
            let ip = t.ip(Out, 6);
            t.judge(ip.frame(&Segment::new((20, 40_960), (1, 0), SYN, b"").bytes(&ip), None));
        },
    ),
    same("port 0", Both, ["pass", "pass"], |t| {
        t.judge(t.udp_between(In, (0, 0), b"?"));
        t.judge(t.udp_between(Out, (0, 0), b"!"));
    }),
    same("ESP in UDP, port 4500", Both, ["pass", "pass"], |t| {
        t.judge(t.udp_between(In, (4500, 4500), &[0, 0, 0, 9, 0, 0, 0, 1, 1, 2, 3, 4]));
        t.judge(t.udp_between(Out, (4500, 4500), &[0, 0, 0, 8, 0, 0, 0, 1, 1, 2, 3, 4]));
    }),
];

/// ICMP and ICMPv6.
pub const ICMP: &[Row] = &[
    same(
        "echo: two hosts with one id, a second reply, a reply with another number",
        Both,
        ["pass", "pass"],
        |t| {
            t.judge(t.echo(In, false, 7, 1));
            t.judge(t.echo(Out, true, 7, 1));
            t.judge(t.echo(Out, true, 7, 1));
            t.judge(t.echo(Out, true, 7, 9));
            let other = if t.v6 { "fd00::5" } else { "10.0.0.5" }.parse().unwrap();
            t.judge(t.icmp_between(other, t.host(Out), (8, 128), 0, &[0, 7, 0, 1]));
            t.judge(t.icmp_between(t.host(Out), other, (0, 129), 0, &[0, 7, 0, 1]));
        },
    ),
    same(
        "an echo reply of another host, an echo request of the outside",
        Both,
        ["drop", "drop `pfw_default`"],
        |t| {
            t.set(t.echo(In, false, 7, 1));
            t.judge(t.icmp_between(t.stranger(), t.host(In), (0, 129), 0, &[0, 7, 0, 1]));
            t.judge(t.echo(Out, false, 9, 1));
        },
    ),
    same("timestamp, information and mask (types 13 to 18)", V4, ["pass", "pass"], |t| {
        for question in [13, 15, 17] {
            t.judge(t.icmp(In, (question, 0), 0, &[0, 7, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
            t.judge(t.icmp(Out, (question + 1, 0), 0, &[0, 7, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
        }
    }),
    same("answers of these types that nobody asked for", V4, ["drop", "drop `pfw_default`"], |t| {
        for answer in [14, 16, 18] {
            t.judge(t.icmp(Out, (answer, 0), 0, &[0, 7, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
        }
    }),
    same("errors about TCP with 8 bytes quoted, of all types and codes", Both, ["pass", "pass"], |t| {
        t.open();
        let sent = t.tcp(In, (1, 1), ACK, b"data");
        t.set(sent.clone());
        for kind in t.errors() {
            t.judge(t.error(&sent, *kind, t.least_quote()));
        }
    }),
    same(
        "errors about UDP, an echo, a SYN; by the inside about the server's packets",
        Both,
        ["pass", "pass"],
        |t| {
            for sent in [t.udp(In, b"?"), t.echo(In, false, 7, 1), t.tcp(In, (0, 0), SYN, b"")] {
                t.set(sent.clone());
                t.judge(t.error(&sent, if t.v6 { (1, 4) } else { (3, 3) }, 1_000));
            }
            t.next();
            t.set(t.udp(In, b"?"));
            let answer = t.udp(Out, b"!");
            t.set(answer.clone());
            t.judge(t.error_to(t.host(In), t.host(Out), &answer, if t.v6 { (1, 4) } else { (3, 3) }, 1_000));
        },
    ),
    same("errors whose quote a router has changed: TTL, TOS, length", Both, ["pass", "pass"], |t| {
        t.open();
        let sent = t.tcp(In, (1, 1), ACK, b"data");
        t.set(sent.clone());
        let places: &[(usize, u8)] =
            if t.v6 { &[(14, 0x6f), (21, 3)] } else { &[(15, 0xb8), (22, 3), (17, 60)] };
        for (place, value) in places {
            let mut changed = sent.clone();
            changed[*place] = *value;
            t.judge(t.error(&changed, if t.v6 { (3, 0) } else { (11, 0) }, t.least_quote()));
        }
    }),
    same(
        "errors that quote the IP header alone, or go to another host than they quote",
        Both,
        ["drop", "drop `pfw_default`"],
        |t| {
            t.open();
            let sent = t.tcp(In, (1, 1), ACK, b"data");
            t.set(sent.clone());
            let kind = if t.v6 { (1, 0) } else { (3, 1) };
            t.judge(t.error(&sent, kind, if t.v6 { 40 } else { 20 }));
            let other = if t.v6 { "fd00::5" } else { "10.0.0.5" }.parse().unwrap();
            t.judge(t.error_to(t.stranger(), other, &sent, kind, 1_000));
        },
    ),
    same("an error about an echo of another id", Both, ["drop", "drop `sfw_unrelated_icmp`"], |t| {
        t.set(t.echo(In, false, 7, 1));
        t.judge(t.error(&t.echo(In, false, 8, 1), if t.v6 { (1, 0) } else { (3, 1) }, 1_000));
    }),
    same("an error about an error", Both, ["drop", "drop `policy_default`"], |t| {
        let kind = if t.v6 { (1, 0) } else { (3, 1) };
        t.open();
        let sent = t.tcp(In, (1, 1), ACK, b"data");
        t.set(sent.clone());
        let about = t.error(&sent, kind, t.least_quote());
        t.judge(t.error(&about, kind, 1_000));
    }),
    same("an error about a connection that a RST has ended", Both, ["pass", "pass"], |t| {
        t.open();
        let sent = t.tcp(In, (1, 1), ACK, b"data");
        t.set(sent.clone());
        t.set(t.tcp(In, (5, 1), RST | ACK, b""));
        t.judge(t.error(&sent, if t.v6 { (1, 0) } else { (3, 1) }, 1_000));
    }),
    same("packet too big of 1,000 bytes, of a link-local router", V6, ["pass", "pass"], |t| {
        t.open();
        let sent = t.tcp(In, (1, 1), ACK, &[b'x'; 1200]);
        t.set(sent.clone());
        t.judge(t.error(&sent, (2, 0), 1_192));
        t.judge(t.error_to("fe80::1".parse().unwrap(), t.host(In), &sent, (2, 0), 48));
    }),
    same(
        "neighbour solicitation of the inside; the outside's advertisement",
        V6,
        ["pass; drop", "pass; drop `pfw_default`"],
        |t| {
            let group = "ff02::1:ff00:2".parse().unwrap();
            let target = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
            t.judge(t.icmp_between(t.host(In), group, (0, 135), 0, &[&[0; 4], &target[..]].concat()));
            t.judge(t.icmp(Out, (0, 136), 0, &[&[0x60, 0, 0, 0], &target[..]].concat()));
        },
    ),
];

/// The pieces of a datagram from the inside, 16 bytes each.
fn pieces(t: &Trial, id: u32) -> Vec<Vec<u8>> {
    let ip = Ip { id, ..t.ip(In, UDP) };
    ip.fragment_frames(&ip.summed(&Datagram::new(t.ports(In), &[b'f'; 56]).unsummed()), 16)
}

/// Fragments.
pub const FRAGMENTS: &[Row] =
    &[
        same("fragments in order, the last one first, a small one", Both, ["pass", "pass"], |t| {
            t.judge_fragments(pieces(t, 1));
            t.judge_fragments(pieces(t, 2).into_iter().rev().collect());
            let ip = Ip { id: 3, ..t.ip(In, UDP) };
            t.judge_fragments(
                ip.fragment_frames(&ip.summed(&Datagram::new(t.ports(In), b"12345678").unsummed()), 8),
            );
        }),
        same(
            "fragments of an answer, of two protocols with one id, of a large ping",
            Both,
            ["pass", "pass"],
            |t| {
                t.set(t.udp(In, b"?"));
                let answer = Ip { id: 4, ..t.ip(Out, UDP) };
                t.judge_fragments(answer.fragment_frames(
                    &answer.summed(&Datagram::new(t.ports(Out), &[b'a'; 40]).unsummed()),
                    24,
                ));
                let protocol = if t.v6 { 58 } else { 1 };
                let ping = Ip { id: 4, ..t.ip(In, protocol) };
                let kind = if t.v6 { 128 } else { 8 };
                let body = ping.summed(&[&[kind, 0, 0, 0, 0, 7, 0, 1][..], &[b'p'; 3_000]].concat());
                t.judge_fragments(ping.fragment_frames(&body, 1_400));
            },
        ),
        same("fragments with \"do not fragment\", with another DSCP", V4, ["pass", "pass"], |t| {
            let ip = t.ip(In, UDP);
            let body = ip.summed(&Datagram::new(t.ports(In), b"12345678").unsummed());
            for (id, flags, tos) in [(5, 2, 0), (6, 0, 0xb8)] {
                let piece = |offset, more: bool| {
                    let fixed = IpFixed { flags: Some(flags | u8::from(more)), ..IpFixed::default() };
                    let tos = if offset == 0 { 0 } else { tos };
                    let ip = Ip { id, tos, fixed, ..ip.clone() };
                    ip.frame(&body[offset..offset + 8], Some(Piece { offset, more }))
                };
                t.judge_fragments(vec![piece(0, true), piece(8, false)]);
            }
        }),
    ];

/// A packet of SCTP: ports, tag and a chunk's type.
fn sctp(by: super::trial::Side, tag: u32, chunk: u8) -> Vec<u8> {
    let ports: [u16; 2] = if by == In { [5000, 6000] } else { [6000, 5000] };
    let [[a, b], [c, d]] = ports.map(u16::to_be_bytes);
    [&[a, b, c, d], &tag.to_be_bytes()[..], &[0; 4], &[chunk, 0, 0, 20], &[7; 16]].concat()
}

/// Other protocols.
pub const OTHERS: &[Row] = &[
    same(
        "SCTP: INIT and its answer, INIT after ABORT, a heartbeat to the server's second address and back",
        Both,
        ["pass", "pass"],
        |t| {
            t.judge(t.raw(In, 132, &sctp(In, 0, 1)));
            t.judge(t.raw(Out, 132, &sctp(Out, 9, 2)));
            t.judge(t.raw(Out, 132, &sctp(Out, 9, 6)));
            t.judge(t.raw(In, 132, &sctp(In, 0, 1)));
            let (there, back) =
                (Ip::new(t.host(In), t.stranger(), 132), Ip::new(t.stranger(), t.host(In), 132));
            t.judge(there.frame(&sctp(In, 8, 4), None));
            t.judge(back.frame(&sctp(Out, 9, 5), None));
        },
    ),
    same(
        "a heartbeat of the server's second address first; then the inside's",
        Both,
        ["drop; pass", "drop `pfw_default`; pass"],
        |t| {
            t.set(t.raw(In, 132, &sctp(In, 0, 1)));
            let (there, back) =
                (Ip::new(t.host(In), t.stranger(), 132), Ip::new(t.stranger(), t.host(In), 132));
            t.judge(back.frame(&sctp(Out, 9, 4), None));
            t.judge(there.frame(&sctp(In, 8, 4), None));
            t.judge(back.frame(&sctp(Out, 9, 5), None));
        },
    ),
    same("ESP of both ends, each with its own SPI", Both, ["pass", "pass"], |t| {
        t.judge(t.raw(In, 50, &[0, 0, 0, 9, 0, 0, 0, 1, 1, 2, 3, 4]));
        t.judge(t.raw(Out, 50, &[0, 0, 0, 8, 0, 0, 0, 1, 1, 2, 3, 4]));
    }),
    same("ESP of the outside first", Both, ["drop", "drop `pfw_default`"], |t| {
        t.judge(t.raw(Out, 50, &[0, 0, 0, 8, 0, 0, 0, 1, 1, 2, 3, 4]));
    }),
    same("IPComp, PIM, VRRP, DCCP, GRE: the inside's packet, and the answer", Both, ["pass", "pass"], |t| {
        for protocol in [108, 103, 112, 33] {
            t.judge(t.raw(In, protocol, &[1; 16]));
            t.judge(t.raw(Out, protocol, &[1; 16]));
        }
        t.judge(t.raw(In, 47, &[0, 0, 0x99, 0x99, 1, 2, 3, 4]));
        t.judge(t.raw(Out, 47, &[0, 0, 0x99, 0x99, 1, 2, 3, 4]));
    }),
    same("TTL 0 and 1, IPv4 options, one address at both ends", Both, ["pass", "pass"], |t| {
        for ttl in [0, 1] {
            let ip = Ip { ttl, ..t.ip(In, UDP) };
            t.judge(ip.frame(&Datagram::new((7, 7), b"?").bytes(&ip), None));
        }
        let ip = Ip::new(t.host(In), t.host(In), UDP);
        t.judge(ip.frame(&Datagram::new((7, 7), b"?").bytes(&ip), None));
    }),
    same("hop-by-hop options, destination options, routing headers (0 and 4)", V6, ["pass", "pass"], |t| {
        let headers: [(u8, &[u8]); 4] = [
            (0, &[0, 1, 4, 0, 0, 0, 0]),
            (60, &[0, 1, 4, 0, 0, 0, 0]),
            (43, &[0, 0, 0, 0, 0, 0, 0]),
            (43, &[2, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        ];
        for (kind, bytes) in headers {
            t.next();
            let ip = Ip { extensions: vec![(kind, bytes.to_vec())], ..t.ip(In, 6) };
            t.judge(ip.frame(&t.segment(In, (0, 0), SYN, b"").bytes(&ip), None));
        }
    }),
];

/// The sections of the page, with their rows.
pub const SECTIONS: &[(&str, &[Row])] = &[
    ("TCP", TCP),
    ("UDP", UDP_ROWS),
    ("ICMP and ICMPv6", ICMP),
    ("Fragments", FRAGMENTS),
    ("Other protocols", OTHERS),
];
