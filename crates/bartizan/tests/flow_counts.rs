// SPDX-License-Identifier: Apache-2.0
//! docs/flow-records.md: the counts of each row's packets in flow records.

use bartizan_testkit::generated;

use bartizan_base::{LinkId, SettingsMap, Timestamp};
use bartizan_dataplane::worker::Frame;
use bartizan_packet::LinkType;
use bartizan_stages::settings::EngineSettings;
use bartizan_testkit::layers::{gre, tagged, vxlan};
use bartizan_testkit::packet::{
    ACK, Datagram, End, FIN, Ip, PSH, Packet, SYN, TCP, UDP, address, icmp, tcp, udp,
};
use bartizan_testkit_worker::{Made, Stack};
use serde_json::Value;
use std::fmt::Write as _;

/// Packets, and the records of their flows.
struct Row {
    packets: &'static str,
    policy: Policy,
    frames: fn() -> Vec<Sent>,
    /// One record each: protocol, packets and bytes of the client and the server, and further members.
    records: &'static [&'static str],
    note: &'static str,
}

/// The function that judges the packets.
#[derive(Clone, Copy)]
enum Policy {
    /// Detection of a tap, with these rules.
    Tap(&'static str),
    /// Detection that refuses by these rules.
    Prevention(&'static str),
    /// A packet filter that passes only UDP to port 53.
    Filter,
}

/// A frame, and the number of its bytes that were captured.
struct Sent {
    bytes: Vec<u8>,
    captured: Option<usize>,
}

impl From<Vec<u8>> for Sent {
    fn from(bytes: Vec<u8>) -> Self {
        Sent { bytes, captured: None }
    }
}

impl From<Packet> for Sent {
    fn from(packet: Packet) -> Self {
        packet.frame().into()
    }
}

/// The shipped settings of detection.
fn passive(settings: &mut EngineSettings) {
    let shipped: SettingsMap = bartizan_config::suricata::shipped();
    *settings = EngineSettings::from_settings(&shipped, false, [1, 2]).unwrap().0;
}

/// The flow records of frames.
fn records(row: &Row) -> Vec<String> {
    let (chain, rules, tune): (_, _, fn(&mut EngineSettings)) = match row.policy {
        Policy::Tap(rules) => ("[ids], ids: {rules: [r]}", rules, passive),
        Policy::Prevention(rules) => ("[ids], ids: {rules: [r]}", rules, |_| ()),
        Policy::Filter => {
            ("[pfw, sfw], pfw: {default: drop, rules: [{allow: udp, to-ports: 53}]}", "", |_| ())
        }
    };
    let policy = "chain: [sfw]";
    let mut stack = Stack::new(&Made { name: "flow-counts", policy, set: &[], tune, rules, thresholds: "" });
    stack.swap_file(&format!("default: {{action: allow, chain: {chain}}}\n"), rules);
    for (number, sent) in (0u64..).zip((row.frames)()) {
        let captured = sent.captured.unwrap_or(sent.bytes.len());
        let frame = Frame {
            now: Timestamp::from_nanos(1_000_000_000 + number * 1_000_000),
            bytes: &sent.bytes[..captured],
            wire_len: sent.bytes.len() as u32,
            link_type: LinkType::ETHERNET,
            link: LinkId(0),
            number: Some(number + 1),
        };
        stack.worker.frame(&frame, &mut stack.recorder);
        while stack.worker.take_released(&mut Vec::new()).is_some() {}
    }
    let (_, events) = stack.finish();
    let mut lines: Vec<_> = events.iter().filter(|event| event["event_type"] == "flow").map(line).collect();
    lines.sort();
    lines
}

fn line(event: &Value) -> String {
    let flow = &event["flow"];
    let number = |key: &str| flow[key].as_u64().unwrap();
    let mut text = format!(
        "{}: {} and {} packets, {} and {} bytes",
        event["proto"].as_str().unwrap(),
        number("pkts_toserver"),
        number("pkts_toclient"),
        number("bytes_toserver"),
        number("bytes_toclient")
    );
    if let Some(state) = flow["state"].as_str().filter(|state| *state == "bypassed") {
        let _ = write!(text, ", `state` `{state}`");
    }
    if let Some(reason) = flow["reason"].as_str().filter(|reason| *reason != "shutdown") {
        let _ = write!(text, ", `reason` `{reason}`");
    }
    if let Some(reason) = event["bartizan"]["reason"].as_str() {
        let _ = write!(text, ", `bartizan.reason` `{reason}`");
    }
    text
}

const CLIENT: u16 = 40_000;

fn client(port: u16) -> End {
    (address(false, 1), port)
}

fn server(port: u16) -> End {
    (address(false, 2), port)
}

fn question(load: &[u8]) -> Packet {
    udp(client(CLIENT), server(53), load)
}

fn reply(load: &[u8]) -> Packet {
    udp(server(53), client(CLIENT), load)
}

/// A datagram in fragments of 400 bytes.
fn fragmented(v6: bool) -> Vec<Sent> {
    let ip = Ip { id: 7, ..Ip::new(address(v6, 1), address(v6, 2), UDP) };
    let datagram = ip.summed(&Datagram::new((CLIENT, 53), &[b'x'; 1_000]).unsummed());
    ip.fragment_frames(&datagram, 400).into_iter().map(Sent::from).collect()
}

/// A connection: its handshake, so many requests of 100 bytes with answers of 200, and its end.
fn connection(first: u32, requests: u32) -> Vec<Packet> {
    let (a, b) = (client(CLIENT), server(80));
    let (mut seq, mut ack) = (first, first + 5_000);
    let mut all = vec![
        tcp(a, b, (seq, 0), SYN as u8, b""),
        tcp(b, a, (ack, seq + 1), (SYN | ACK) as u8, b""),
        tcp(a, b, (seq + 1, ack + 1), ACK as u8, b""),
    ];
    (seq, ack) = (seq + 1, ack + 1);
    for _ in 0..requests {
        all.push(tcp(a, b, (seq, ack), (PSH | ACK) as u8, &[b'q'; 100]));
        all.push(tcp(b, a, (ack, seq + 100), (PSH | ACK) as u8, &[b'a'; 200]));
        (seq, ack) = (seq + 100, ack + 200);
    }
    all.push(tcp(a, b, (seq, ack), (FIN | ACK) as u8, b""));
    all.push(tcp(b, a, (ack, seq + 1), (FIN | ACK) as u8, b""));
    all.push(tcp(a, b, (seq + 1, ack + 1), ACK as u8, b""));
    all
}

fn sent(packets: Vec<Packet>) -> Vec<Sent> {
    packets.into_iter().map(Sent::from).collect()
}

const NONE: Policy = Policy::Tap("");

const ROWS: &[Row] = &[
    Row {
        packets: "A datagram of 12 bytes and its answer of 20, in Ethernet frames",
        policy: NONE,
        frames: || vec![question(&[0; 12]).into(), reply(&[0; 20]).into()],
        records: &["UDP: 1 and 1 packets, 54 and 62 bytes"],
        note: "Bytes count from the link header on.",
    },
    Row {
        packets: "The same with a VLAN tag and 10 bytes behind the IP packet",
        policy: NONE,
        frames: || {
            [question(&[0; 12]), reply(&[0; 20])]
                .map(|packet| {
                    let mut frame = tagged(5, packet.frame());
                    frame.resize(frame.len() + 10, 0);
                    frame.into()
                })
                .into()
        },
        records: &["UDP: 1 and 1 packets, 68 and 76 bytes"],
        note: "Tags and padding count, the frame check sequence does not: it is not captured.",
    },
    Row {
        packets: "A datagram of 1,000 bytes in three fragments (IPv4)",
        policy: NONE,
        frames: || fragmented(false),
        records: &["UDP: 1 and 0 packets, 1042 and 0 bytes"],
        note: "It is one packet of the length that it has in one frame. Fragments that never become a datagram are in no record.",
    },
    Row {
        packets: "The same (IPv6)",
        policy: NONE,
        frames: || fragmented(true),
        records: &["UDP: 1 and 0 packets, 1062 and 0 bytes"],
        note: "",
    },
    Row {
        packets: "A datagram, and the port unreachable of its receiver",
        policy: NONE,
        frames: || {
            let packet = question(&[0; 12]);
            let quoted = [&[0; 4], &packet.bytes()[..]].concat();
            vec![packet.into(), icmp(server(53).0, client(CLIENT).0, (3, 1), 3, &quoted).into()]
        },
        records: &["UDP: 1 and 1 packets, 54 and 82 bytes"],
        note: "An ICMP error counts in the flow that it quotes, in the direction in which it goes.",
    },
    Row {
        packets: "A port unreachable about a flow that nobody has seen",
        policy: NONE,
        frames: || {
            let quoted = [&[0; 4], &question(&[0; 12]).bytes()[..]].concat();
            vec![icmp(server(53).0, client(CLIENT).0, (3, 1), 3, &quoted).into()]
        },
        records: &[],
        note: "An error of IPv6 has a record of its own.",
    },
    Row {
        packets: "The same (IPv6)",
        policy: NONE,
        frames: || {
            let packet = udp((address(true, 1), 9), (address(true, 2), 9), &[0; 12]);
            let quoted = [&[0; 4], &packet.bytes()[..]].concat();
            vec![icmp(address(true, 2), address(true, 1), (3, 1), 4, &quoted).into()]
        },
        records: &["IPv6-ICMP: 1 and 0 packets, 122 and 0 bytes"],
        note: "",
    },
    Row {
        packets: "IP in IP",
        policy: NONE,
        frames: || {
            let ip = Ip::new(address(false, 8), address(false, 9), 4);
            vec![ip.frame(&question(&[0; 12]).bytes(), None).into()]
        },
        records: &["IP-in-IP: 1 and 0 packets, 74 and 0 bytes", "UDP: 1 and 0 packets, 40 and 0 bytes"],
        note: "The packet around counts as a whole frame, the packet inside from its IP header on. A sum over records counts the inner bytes twice.",
    },
    Row {
        packets: "VXLAN",
        policy: NONE,
        frames: || {
            let load = vxlan(5, &question(&[0; 12]).frame());
            vec![udp((address(false, 8), 9_000), (address(false, 9), 4789), &load).into()]
        },
        records: &["UDP: 1 and 0 packets, 104 and 0 bytes", "UDP: 1 and 0 packets, 40 and 0 bytes"],
        note: "So it is where the tunnel carries Ethernet frames.",
    },
    Row {
        packets: "GRE",
        policy: NONE,
        frames: || {
            let ip = Ip::new(address(false, 8), address(false, 9), 47);
            vec![ip.frame(&gre(false, &question(&[0; 12]).bytes()), None).into()]
        },
        records: &["UDP: 1 and 0 packets, 40 and 0 bytes"],
        note: "Where only `ids` judges, the packet around has no flow ([flows of IP protocols](protocols.md)).",
    },
    Row {
        packets: "A connection with two requests, of which one segment comes twice",
        policy: NONE,
        frames: || {
            let mut all = connection(1_000, 2);
            let again = all[3].clone();
            all.insert(4, again);
            sent(all)
        },
        records: &["TCP: 7 and 4 packets, 678 and 616 bytes"],
        note: "Every packet counts, also a retransmission.",
    },
    Row {
        packets: "Two connections of the same ports, one after the other",
        policy: NONE,
        frames: || sent([connection(1_000, 1), connection(900_000, 1)].concat()),
        records: &[
            "TCP: 5 and 3 packets, 370 and 362 bytes",
            "TCP: 5 and 3 packets, 370 and 362 bytes, `reason` `tcp_reuse`",
        ],
        note: "Each connection has a record. A new SYN ends the record of a connection that both sides have closed.",
    },
    Row {
        packets: "A frame of 154 bytes, of which a capture has 60",
        policy: NONE,
        frames: || vec![Sent { bytes: question(&[0; 112]).frame(), captured: Some(60) }],
        records: &[],
        note: "A packet whose end is missing is malformed and has no flow. A tap with a [snap length](running.md#snap-length) counts the length on the wire.",
    },
    Row {
        packets: "A datagram whose UDP checksum is wrong",
        policy: NONE,
        frames: || {
            let ip = Ip::new(address(false, 1), address(false, 2), UDP);
            let datagram = Datagram { chksum: Some(1), ..Datagram::new((CLIENT, 53), &[0; 12]) };
            vec![ip.frame(&datagram.bytes(&ip), None).into()]
        },
        records: &["UDP: 1 and 0 packets, 54 and 0 bytes"],
        note: "Its content is not inspected, see `stream.checksum-validation`.",
    },
    Row {
        packets: "A connection that a rule bypasses with its first request",
        policy: Policy::Tap("alert tcp any any -> any any (content:\"q\"; bypass; sid:1;)\n"),
        frames: || sent(connection(1_000, 2)),
        records: &["TCP: 6 and 4 packets, 524 and 616 bytes, `state` `bypassed`"],
        note: "Packets that nobody inspects count as well. `flow.bypassed` counts those that a level below the host handled.",
    },
    Row {
        packets: "A connection that a rule refuses with its first request",
        policy: Policy::Prevention("drop tcp any any -> any any (content:\"q\"; sid:1;)\n"),
        frames: || sent(connection(1_000, 2)),
        records: &["TCP: 6 and 4 packets, 524 and 616 bytes, `bartizan.reason` `ids_flow`"],
        note: "Packets that were refused count with those that went on.",
    },
    Row {
        packets: "A datagram that the packet filter refuses, twice",
        policy: Policy::Filter,
        frames: || {
            let stray = || udp(client(CLIENT), server(9), &[0; 12]);
            vec![stray().into(), stray().into()]
        },
        records: &["UDP: 2 and 0 packets, 108 and 0 bytes, `bartizan.reason` `pfw_default`"],
        note: "A refused packet opens no flow, and has a record all the same.",
    },
    Row {
        packets: "An echo request and its reply",
        policy: NONE,
        frames: || {
            let (a, b) = (client(0).0, server(0).0);
            vec![icmp(a, b, (8, 128), 0, &[0, 7, 0, 1]).into(), icmp(b, a, (0, 129), 0, &[0, 7, 0, 1]).into()]
        },
        records: &["ICMP: 1 and 1 packets, 42 and 42 bytes"],
        note: "",
    },
    Row {
        packets: "An answer of port 53 whose question was not seen",
        policy: NONE,
        frames: || vec![reply(&[0; 20]).into()],
        records: &["UDP: 1 and 0 packets, 62 and 0 bytes"],
        note: "The side that is seen first is the client, unless its bytes tell the protocol's server.",
    },
    Row {
        packets: "A later fragment alone; a SYN whose header is cut off",
        policy: NONE,
        frames: || {
            let ip = Ip::new(address(false, 1), address(false, 2), TCP);
            vec![fragmented(false).pop().unwrap(), ip.frame(&[0; 12], None).into()]
        },
        records: &[],
        note: "",
    },
];

#[test]
fn records_count_what_the_page_says() {
    let mut wrong = String::new();
    for row in ROWS {
        let found = records(row);
        if found != row.records {
            let _ = writeln!(wrong, "{}: {found:?}", row.packets);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn the_table_of_the_page_of_flow_records_is_that_of_the_rows() {
    let mut text =
        "| packets | records: packets and bytes of client and server | |\n|---|---|---|\n".to_owned();
    for row in ROWS {
        let records = if row.records.is_empty() { "none".to_owned() } else { row.records.join("<br>") };
        let _ = writeln!(text, "| {} | {records} | {} |", row.packets, row.note);
    }
    generated::check_section("docs/flow-records.md", "what counts", &text);
}
