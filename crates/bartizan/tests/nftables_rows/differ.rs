// SPDX-License-Identifier: Apache-2.0
//! Rows in which nftables and Bartizan differ: packets that Bartizan passes because their receiver drops
//! them, and differences by decision.

use super::Versions::{Both, V4, V6};
use super::trial::{In, Out, Trial};
use super::{Row, differ};

use bartizan_testkit::layers::ethernet;
use bartizan_testkit::packet::{ACK, Datagram, FIN, Ip, IpFixed, Piece, RST, SYN, Segment, UDP};

/// Packets that receivers drop: they pass, and change no state.
pub const LOOSER: &[Row] = &[
    differ(
        "a RST one before the exact number",
        Both,
        ["drop", "pass"],
        "The receiver drops it. The connection goes on.",
        |t| {
            t.open();
            t.judge(t.tcp(Out, (0, 1), RST | ACK, b""));
            t.judge(t.tcp(In, (1, 1), ACK, b"data"));
            t.judge(t.tcp(Out, (1, 5), ACK, b"data"));
        },
    ),
    differ(
        "an acknowledgement by SACK of what was never sent",
        Both,
        ["drop", "pass"],
        "The receiver ignores the option.",
        |t| {
            t.open();
            let edges = [900_000u32.to_be_bytes(), 900_100u32.to_be_bytes()].concat();
            t.judge(
                t.frame_of(Out, &Segment { options: vec![(5, edges)], ..t.segment(Out, (1, 1), ACK, b"") }),
            );
        },
    ),
    differ(
        "an echo reply with another id than the request",
        Both,
        ["drop", "pass"],
        "Echo messages between two hosts are one flow. The host drops the reply (RFC 792).",
        |t| {
            t.set(t.echo(In, false, 7, 1));
            t.judge(t.echo(Out, true, 8, 1));
        },
    ),
    differ(
        "wrong checksums of TCP, UDP, ICMP",
        Both,
        ["drop", "pass"],
        "The receiver drops the packet. It settles nothing: a RST with a wrong checksum ends no connection.",
        |t| {
            t.open();
            t.judge(t.frame_of(Out, &Segment { chksum_error: 1, ..t.segment(Out, (1, 1), RST | ACK, b"") }));
            t.judge(t.tcp(In, (1, 1), ACK, b"data"));
            t.next();
            t.set(t.udp(In, b"?"));
            let ip = t.ip(Out, UDP);
            let datagram = Datagram { chksum: Some(1), ..Datagram::new(t.ports(Out), b"!") };
            t.judge(ip.frame(&datagram.bytes(&ip), None));
            t.set(t.echo(In, false, 7, 1));
            let (protocol, kind) = if t.v6 { (58, 129) } else { (1, 0) };
            t.judge(t.ip(Out, protocol).frame(&[kind, 0, 1, 1, 0, 7, 0, 1], None));
        },
    ),
    differ(
        "a wrong checksum of the IPv4 header",
        V4,
        ["drop", "pass"],
        "The receiver drops the packet (RFC 1122).",
        |t| {
            let fixed = IpFixed { chksum: Some(1), ..IpFixed::default() };
            let ip = Ip { fixed, ..t.ip(In, UDP) };
            t.judge(ip.frame(&Datagram::new((9, 9), b"?").bytes(&ip), None));
        },
    ),
    differ(
        "SCTP with a wrong tag, DATA of an association that was never opened",
        Both,
        ["drop", "pass"],
        "SCTP has a flow by its ports and no state. The receiver drops the packet (RFC 9260 section 8.5).",
        |t| {
            let sctp = |tag: u8, chunk| {
                [
                    0x13, 0x88, 0x17, 0x70, 0, 0, 0, tag, 0, 0, 0, 0, chunk, 0, 0, 20, 1, 1, 1, 1, 1, 1, 1,
                    1, 1, 1, 1, 1, 1, 1, 1, 1,
                ]
            };
            t.judge(t.raw(In, 132, &sctp(5, 0)));
            t.judge(t.raw(In, 132, &sctp(6, 6)));
        },
    ),
    differ(
        "PROBE: extended echo requests (42, 160) and their replies (43, 161)",
        Both,
        ["pass; drop", "pass"],
        "Connection tracking does not know these types. RFC 8335 pairs them as it pairs echo.",
        |t| {
            t.judge(t.icmp(In, (42, 160), 0, &[0, 7, 1, 1, 0, 8, 3, 1, 0, 0, 0, 1]));
            t.judge(t.icmp(Out, (43, 161), 0, &[0, 7, 1, 0]));
        },
    ),
];

/// The first fragment, and the second one with an IP header of its own.
fn two_pieces(t: &Trial, first: &Ip, second: &Ip) -> [Vec<u8>; 2] {
    let body = t.ip(In, UDP).summed(&Datagram::new(t.ports(In), &[b'f'; 24]).unsummed());
    let piece = |ip: &Ip, offset, more| ip.frame(&body[offset..offset + 16], Some(Piece { offset, more }));
    [piece(first, 0, true), piece(second, 16, false)]
}

/// Rows that differ on purpose.
pub const DECIDED: &[Row] = &[
    differ(
        "the second copy of a fragment that waits",
        Both,
        ["pass, unseen", "drop `defrag`; pass"],
        "Receivers differ in which copy they keep ([0011](design/0011-what-the-receiver-reads.md)). The datagram passes.",
        |t| {
            let ip = Ip { id: 7, ..t.ip(In, UDP) };
            let [first, last] = two_pieces(t, &ip, &ip);
            t.judge_fragments(vec![first.clone(), first, last]);
        },
    ),
    differ(
        "fragments whose hop limits differ",
        Both,
        ["pass", "drop `defrag`"],
        "Some of them may end on the way, so that the receiver makes another datagram of the rest.",
        |t| {
            let ip = Ip { id: 8, ..t.ip(In, UDP) };
            t.judge_fragments(two_pieces(t, &ip, &Ip { ttl: 3, ..ip.clone() }).to_vec());
        },
    ),
    differ(
        "IPv4 options in the first fragment only",
        V4,
        ["pass", "drop `defrag`"],
        "Receivers differ in what they do with the rest.",
        |t| {
            let ip = Ip { id: 9, ..t.ip(In, UDP) };
            let first = Ip { options: vec![7, 7, 4, 0, 0, 0, 0, 0], ..ip.clone() };
            t.judge_fragments(two_pieces(t, &first, &ip).to_vec());
        },
    ),
    differ(
        "a first fragment without the whole TCP header",
        V4,
        ["pass", "drop `defrag`"],
        "Its flags stand in another fragment (RFC 3128).",
        |t| {
            let ip = Ip { id: 10, ..t.ip(In, 6) };
            let segment = t.segment(In, (0, 0), SYN, b"data").bytes(&ip);
            t.judge_fragments(ip.fragment_frames(&segment, 16));
        },
    ),
    differ(
        "an error about the ninth latest of the ids of echo requests between two hosts",
        Both,
        ["pass", "drop `sfw_unrelated_icmp`"],
        "A flow keeps eight ids: its memory is bounded.",
        |t| {
            let oldest = t.echo(In, false, 1, 1);
            for id in 1..10 {
                t.set(t.echo(In, false, id, 1));
            }
            t.judge(t.error(&oldest, if t.v6 { (1, 0) } else { (3, 1) }, 1_000));
        },
    ),
    differ(
        "an ACK of the inside whose SYN/ACK was never seen",
        Both,
        ["pass, new", "drop `sfw_state`"],
        "One direction alone says nothing of what the other side has read. `one-sided` of the policy says otherwise.",
        |t| {
            t.next();
            t.set(t.tcp(In, (0, 0), SYN, b""));
            t.judge(t.tcp(In, (1, 1), ACK, b""));
        },
    ),
    differ(
        "a client's SYN of another number between SYN/ACK and ACK; the answer again, the client's RST, its SYN again",
        Both,
        ["pass", "drop `sfw_window`; pass"],
        "One handshake of the same ports at a time. The new connection begins with the client's next SYN, when the first one has been reset.",
        |t| {
            t.next();
            t.set(t.tcp(In, (0, 0), SYN, b""));
            t.set(t.tcp(Out, (0, 1), SYN | ACK, b""));
            t.judge(t.tcp(In, (7_000, 0), SYN, b""));
            t.judge(t.tcp(Out, (0, 1), SYN | ACK, b""));
            t.judge(t.tcp(In, (1, 0), RST, b""));
            t.judge(t.tcp(In, (7_000, 0), SYN, b""));
            t.judge(t.tcp(Out, (5_000, 7_001), SYN | ACK, b""));
            t.judge(t.tcp(In, (7_001, 5_001), ACK, b""));
        },
    ),
    differ(
        "SYN/ACKs to two SYNs of a client, the first one first; the client's RST, its second SYN again",
        Both,
        ["pass", "pass; drop `sfw_window`; pass"],
        "The same.",
        |t| {
            t.next();
            t.set(t.tcp(In, (0, 0), SYN, b""));
            t.set(t.tcp(In, (7_000, 0), SYN, b""));
            t.judge(t.tcp(Out, (0, 1), SYN | ACK, b""));
            t.judge(t.tcp(Out, (5_000, 7_001), SYN | ACK, b""));
            t.judge(t.tcp(In, (1, 0), RST, b""));
            t.judge(t.tcp(In, (7_000, 0), SYN, b""));
            t.judge(t.tcp(Out, (5_000, 7_001), SYN | ACK, b""));
            t.judge(t.tcp(In, (7_001, 5_001), ACK, b""));
        },
    ),
    differ(
        "a connection that was open before the program started",
        Both,
        ["pass", "drop `stream_midstream`"],
        "The beginning of its streams was not inspected. UDP goes on.",
        |t| {
            t.open();
            t.restart();
            t.judge(t.tcp(In, (1, 1), ACK, b"data"));
        },
    ),
    differ(
        "UDP-Lite: the inside's packet, and the answer",
        Both,
        ["pass; drop", "pass"],
        "Every protocol has a flow ([flows of IP protocols](protocols.md)). Connection tracking takes the answer for invalid.",
        |t| {
            t.judge(t.raw(In, 136, &[1; 16]));
            t.judge(t.raw(Out, 136, &[1; 16]));
        },
    ),
    differ(
        "IP in IP whose inner addresses have no policy",
        Both,
        ["pass", "drop `policy_default`"],
        "The receiver acts on what is inside, so the inner packet needs a policy as well.",
        |t| {
            let [a, b] = if t.v6 { ["2001:db8:5::1", "2001:db8:5::2"] } else { ["192.0.2.1", "192.0.2.2"] };
            let ip = Ip::new(a.parse().unwrap(), b.parse().unwrap(), UDP);
            let inner = ip.packet(&Datagram::new((1, 2), b"?").bytes(&ip), None);
            t.judge(t.raw(In, if t.v6 { 41 } else { 4 }, &inner));
        },
    ),
    differ(
        "authentication headers of IPv6 before TCP",
        V6,
        ["drop", "pass"],
        "RFC 7045 counts them as extension headers: the packet is judged as the TCP that it carries. `meta l4proto` is the header's own number there.",
        |t| {
            let ip = Ip { extensions: vec![(51, [1, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1].to_vec())], ..t.ip(In, 6) };
            t.judge(ip.frame(&t.segment(In, (0, 0), SYN, b"").bytes(&ip), None));
        },
    ),
    differ(
        "established TCP: 2 hours of silence; 5 hours more",
        Both,
        ["pass (5 days)", "pass; drop `stream_midstream`"],
        "At least 2 h 4 min (RFC 5382 REQ-5). `flow-timeouts` gives more.",
        |t| {
            t.open();
            t.set(t.tcp(In, (1, 1), ACK, b"data"));
            t.set(t.tcp(Out, (1, 5), ACK, b"data"));
            t.wait(2 * 3_600_000);
            t.judge(t.tcp(Out, (5, 5), ACK, b"data"));
            t.wait(5 * 3_600_000);
            t.judge(t.tcp(Out, (9, 5), ACK, b"data"));
        },
    ),
    differ(
        "the answer to a SYN after 61 s",
        Both,
        ["pass (120 s)", "drop `stream_midstream`"],
        "Unanswered SYNs wait 60 s (`flow-timeouts`, `tcp.new`).",
        |t| {
            t.next();
            t.set(t.tcp(In, (0, 0), SYN, b""));
            t.wait(61_000);
            t.judge(t.tcp(Out, (0, 1), SYN | ACK, b""));
        },
    ),
    differ(
        "UDP with answers: 130 s of silence; 301 s of silence",
        Both,
        ["drop (120 s)", "pass; drop `pfw_default`"],
        "Answered datagrams wait 300 s (`udp.established`).",
        |t| {
            t.set(t.udp(In, b"?"));
            t.set(t.udp(Out, b"!"));
            t.wait(130_000);
            t.judge(t.udp(Out, b"!"));
            t.wait(301_000);
            t.judge(t.udp(Out, b"!"));
        },
    ),
    differ(
        "a full flow table: a newcomer, then the open connection",
        Both,
        ["not measured", "pass"],
        "Flows that nobody has answered make room first, so a flood of newcomers keeps nobody out.",
        |t| {
            t.with_little_room();
            t.open();
            for port in 1..500 {
                t.judge(t.udp_between(In, (port, 9), b"flood"));
            }
            t.judge(t.tcp(In, (1, 1), FIN | ACK, b""));
            t.judge(t.tcp(Out, (1, 2), ACK, b""));
        },
    ),
    differ(
        "LLDP, EAPOL",
        V4,
        ["drop (a bridge)", "pass"],
        "An inline link is a wire, no bridge (IEEE 802.1D). No policy selects frames that are neither IP nor ARP.",
        |t| {
            for kind in [0x88cc, 0x888e] {
                t.judge(ethernet(kind, &[0; 46]));
            }
        },
    ),
];

/// The sections of the page, with their rows.
pub const SECTIONS: &[(&str, &[Row])] =
    &[("Packets that receivers drop: Bartizan lets them go on", LOOSER), ("Different on purpose", DECIDED)];
