// SPDX-License-Identifier: Apache-2.0
//! The packets that a rule is evaluated for, and those that its match decides for: through the whole
//! program over captures, passively and in prevention, over IPv4 and IPv6. The expected results are those
//! of Suricata 8.0.8 on the same packets, except where a test says otherwise.

use crate::sample as common;

use bartizan_testkit::packet::{self, End, Ip, UDP};
use common::{ACK, Capture, FIN, Folder, PSH, SYN};
use serde_json::Value;
use std::net::IpAddr;

/// Client, server and a router between them.
fn hosts() -> [[IpAddr; 3]; 2] {
    [["10.0.0.1", "10.0.0.2", "203.0.113.9"], ["2001:db8::1", "2001:db8::2", "2001:db8:ff::9"]]
        .map(|three| three.map(|address| address.parse().unwrap()))
}

/// Runs the program over a capture; `mode`: more arguments.
fn inspect(folder: &Folder, rules: &str, out: &str, mode: &[&str]) {
    folder.write("r.rules", rules);
    let args = ["inspect", "--rules", "r.rules", "--out", out];
    let ran = folder.run(&[&args[..], mode, &["c.pcap"][..]].concat());
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
}

/// The packet numbers of a rule's alerts; 0 for an alert without one.
fn alerts(folder: &Folder, out: &str, sid: u32) -> Vec<u64> {
    let all = folder.events(out, "alert");
    let of_rule = all.iter().filter(|alert| alert["alert"]["signature_id"] == sid);
    of_rule.map(|alert| alert["pcap_cnt"].as_u64().unwrap_or(0)).collect()
}

/// The packet numbers of alerts with a refusal.
fn refused(folder: &Folder, out: &str) -> Vec<u64> {
    let all = folder.events(out, "alert");
    let blocked = all.iter().filter(|alert| alert["alert"]["action"] == "blocked");
    blocked.filter_map(|alert| alert["pcap_cnt"].as_u64()).collect()
}

const MODES: [(&str, &[&str]); 2] = [("passive", &[]), ("inline", &["--ips"])];

/// An error about a packet that the client has sent.
fn error(from: IpAddr, to: IpAddr, quoted: &packet::Packet) -> Vec<u8> {
    let bytes = quoted.bytes();
    packet::icmp(from, to, (3, 1), if from.is_ipv4() { 3 } else { 4 }, &[&[0; 4], bytes.as_slice()].concat())
        .frame()
}

/// A packet about a flow that any host can send decides nothing about that flow.
#[test]
fn a_rule_on_an_icmp_error_decides_for_the_error_alone() {
    let folder = Folder::new("icmp-error");
    let mut capture = Capture::default();
    let mut at = 0;
    let (mut errors, mut datagrams, mut requests) = (Vec::new(), Vec::new(), Vec::new());
    for [client, server, router] in hosts() {
        let (from, to) = ((client, 40_000), (server, 9_000));
        let datagram = packet::udp(from, to, b"\xfe\xfe\xfe\xfe");
        capture.frame(datagram.frame());
        capture.frame(error(router, client, &datagram));
        capture.frame(error(server, client, &datagram));
        capture.frame(datagram.frame());
        capture.udp(to, from, b"\xfe\xfe\xfe\xfeback");
        // Before the answer to a SYN, and within the connection.
        let (from, to) = ((client, 41_000), (server, 80));
        let syn = packet::tcp(from, to, (100, 0), SYN, b"");
        capture.frame(error(router, client, &syn));
        capture.tcp(from, to, (100, 0), SYN, b"");
        capture.frame(error(router, client, &syn));
        capture.tcp(to, from, (900, 101), SYN | ACK, b"");
        capture.tcp(from, to, (101, 901), ACK, b"");
        let segment = packet::tcp(from, to, (101, 901), PSH | ACK, b"GET / HTTP/1.1\r\n\r\n");
        capture.tcp(from, to, (101, 901), PSH | ACK, b"GET / HTTP/1.1\r\n\r\n");
        capture.frame(error(router, client, &segment));
        capture.tcp(to, from, (901, 119), ACK, b"");
        datagrams.extend([at + 1, at + 4, at + 5]);
        // The first of them is about a flow that is not there yet: what it begins is its own.
        errors.extend([at + 2, at + 3, at + 8, at + 12]);
        requests.push(at + 11);
        at += 13;
    }
    folder.write("c.pcap", capture.pcap());
    let watching = concat!(
        "alert udp any any -> any any (content:\"|fe fe fe fe|\"; sid:1;)\n",
        "alert http any any -> any any (http.method; content:\"GET\"; sid:2;)\n",
    );
    let deciding = [
        "icmp any any -> any any (sid:9;)",
        "ip any any -> any any (ip_proto:1; sid:9;)\nACTION ip any any -> any any (ip_proto:58; sid:10;)",
        "ip [203.0.113.0/24,2001:db8:ff::/48] any -> any any (sid:9;)",
        "ip ![10.0.0.0/8,2001:db8::/48] any -> any any (sid:9;)",
        "icmp any any -> any any (itype:3; bypass; sid:9;)\nACTION icmp any any -> any any (itype:1; bypass; sid:10;)",
        "icmp any any -> any any (icode:>2; sid:9;)",
    ];
    for action in ["pass", "drop", "drop:flow", "pass:flow", "reject"] {
        for (number, rule) in deciding.iter().enumerate() {
            let rules = format!("{action} {}\n{watching}", rule.replace("ACTION", action));
            for (way, mode) in MODES {
                let out = &format!("{way}-{number}-{}", action.replace(':', "-"));
                inspect(&folder, &rules, out, mode);
                let said = format!("{rules} {out}");
                assert_eq!(alerts(&folder, out, 1), datagrams, "{said}");
                let seen = alerts(&folder, out, 2);
                assert!(seen.len() == 2, "{said}: {seen:?}");
                if way == "inline" {
                    assert_eq!(seen, requests, "{said}");
                    let refused = refused(&folder, out);
                    let all = errors.iter().all(|error| refused.contains(error));
                    let by_source = rule.contains("203.0.113") || rule.contains("10.0.0.0/8");
                    assert!(all || by_source || action.starts_with("pass"), "{said}: {refused:?}");
                    let of_flows = datagrams.iter().chain(&requests);
                    assert!(
                        of_flows.into_iter().all(|packet| !refused.contains(packet)),
                        "{said}: {refused:?}"
                    );
                }
                let flows = folder.events(out, "flow");
                let decided = |flow: &&Value| {
                    ["TCP", "UDP"].iter().any(|proto| flow["proto"] == *proto)
                        && !flow["flow"]["action"].is_null()
                };
                assert_eq!(flows.iter().find(decided), None, "{said}");
            }
        }
    }
}

/// A connection: data of client and server by turns, and its end; `c`: by the client.
fn talk(capture: &mut Capture, client: End, server: End, said: &[(char, &[u8])]) {
    let (mut c, mut s) = (101, 901);
    capture.tcp(client, server, (100, 0), SYN, b"");
    capture.tcp(server, client, (900, 101), SYN | ACK, b"");
    capture.tcp(client, server, (101, 901), ACK, b"");
    for (by, data) in said {
        let length = data.len() as u32;
        if *by == 'c' {
            capture.tcp(client, server, (c, s), PSH | ACK, data);
            c += length;
            capture.tcp(server, client, (s, c), ACK, b"");
        } else {
            capture.tcp(server, client, (s, c), PSH | ACK, data);
            s += length;
            capture.tcp(client, server, (c, s), ACK, b"");
        }
    }
    capture.tcp(client, server, (c, s), FIN | ACK, b"");
    capture.tcp(server, client, (s, c + 1), FIN | ACK, b"");
    capture.tcp(client, server, (c + 1, s + 1), ACK, b"");
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// A body that may still come is not absent: a body in a segment of its own is not missing.
#[test]
fn a_body_is_absent_when_its_message_is_over_without_one() {
    let folder = Folder::new("absent-body");
    let conversations: &[&[(char, &[u8])]] = &[
        &[('c', GET), ('s', b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")],
        &[('c', GET), ('s', b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), ('s', b"hello")],
        &[('c', GET), ('s', b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")],
        &[('c', GET), ('s', b"HTTP/1.1 204 No Content\r\n\r\n")],
        &[
            ('c', b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"),
            ('s', b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        ],
        &[('c', GET), ('s', b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), ('s', b"0\r\n\r\n")],
        &[
            ('c', GET),
            ('s', b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
            ('s', b"5\r\nhello\r\n0\r\n\r\n"),
        ],
        &[('c', GET), ('s', b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"), ('s', b"hello")],
        &[
            ('c', b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"),
            ('c', b"hello"),
            ('s', b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        ],
        &[
            ('c', b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"),
            ('s', b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        ],
        // Its headers come in two segments.
        &[('c', b"GET / HTTP/1.1\r\n"), ('c', b"Host: a\r\n\r\n")],
        &[
            ('c', b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"),
            ('s', b"HTTP/1.1 100 Continue\r\n\r\n"),
            ('c', b"hello"),
            ('s', b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        ],
    ];
    let mut capture = Capture::default();
    // Packets by what they complete: a response without a body, a request without one, a POST without one.
    let (mut responses, mut gets, mut posts) = (Vec::new(), Vec::new(), Vec::new());
    let mut at = 0;
    for [client, server, _] in hosts() {
        for (number, said) in conversations.iter().enumerate() {
            talk(&mut capture, (client, 40_000 + number as u16), (server, 80), said);
            let piece = |index: usize| at + 4 + 2 * index as u64;
            match number {
                0..=1 | 6..=7 => gets.push(piece(0)),
                2..=4 => (gets.push(piece(0)), responses.push(piece(1))).1,
                5 => (gets.push(piece(0)), responses.push(piece(2))).1,
                9 => posts.push(piece(0)),
                10 => gets.push(piece(1)),
                11 => responses.push(piece(3)),
                _ => {}
            }
            at += 6 + 2 * said.len() as u64;
        }
    }
    folder.write("c.pcap", capture.pcap());
    let rules = "alert http any any -> any any (flow:to_client; file.data; absent; sid:1;)
alert http any any -> any any (http.response_body; absent; sid:2;)
alert http any any -> any any (http.response_body; absent: or_else; content:\"zzz\"; sid:3;)
alert http any any -> any any (flow:to_client; file.name; absent; sid:4;)
alert http any any -> any any (http.request_body; absent; sid:5;)
alert http any any -> any any (flow:to_server; file.data; absent; sid:6;)
alert http any any -> any any (http.method; content:\"POST\"; http.request_body; absent; sid:7;)
alert http any any -> any any (http.uri; content:\"/\"; http.request_body; absent; http.host; content:\"a\"; sid:8;)
";
    let mut requests: Vec<u64> = gets.iter().chain(&posts).copied().collect();
    requests.sort_unstable();
    inspect(&folder, rules, "inline", &["--ips"]);
    for sid in 1..=4 {
        assert_eq!(alerts(&folder, "inline", sid), responses, "{sid}");
    }
    for sid in [5, 6, 8] {
        let found: Vec<u64> = alerts(&folder, "inline", sid);
        // The HEAD request has none either.
        let without_head: Vec<u64> = found.iter().copied().filter(|at| requests.contains(at)).collect();
        assert_eq!((without_head, found.len()), (requests.clone(), requests.len()), "{sid}");
    }
    assert_eq!(alerts(&folder, "inline", 7), posts);
    // Passively they come with what acknowledges it, and are as many.
    inspect(&folder, rules, "passive", &[]);
    let count = |sid| alerts(&folder, "passive", sid).len();
    assert_eq!([1, 2, 3, 4].map(count), [responses.len(); 4]);
    assert_eq!([5, 6, 8].map(count), [requests.len(); 3]);
    assert_eq!(count(7), posts.len());
    // Nothing that has a body is refused: what has none is, with the packet that completes it.
    inspect(&folder, &rules.replace("alert", "drop"), "refused", &["--ips"]);
    let mut without: Vec<u64> = requests.iter().chain(&responses).copied().collect();
    without.sort_unstable();
    let found = refused(&folder, "refused");
    assert!(!found.is_empty() && found.iter().all(|at| without.contains(at)), "{found:?}");
    assert!(posts.iter().all(|at| found.contains(at)), "{found:?}");
}

/// As in Suricata a rule with a packet's buffer inspects packets, also beside a transaction's buffer.
#[test]
fn a_rule_with_a_packets_buffer_decides_for_the_packet() {
    let folder = Folder::new("packet-buffer");
    let mut capture = Capture::default();
    for [client, server, _] in hosts() {
        let answer: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        talk(
            &mut capture,
            (client, 40_000),
            (server, 80),
            &[('c', GET), ('s', answer), ('c', GET), ('s', answer)],
        );
    }
    folder.write("c.pcap", capture.pcap());
    let beside = "http.uri; content:\"/\"; ip.src; content:!\"|7f|\"; startswith;";
    let watching = concat!(
        "alert http any any -> any any (http.stat_code; content:\"200\"; sid:2;)\n",
        "alert http any any -> any any (http.method; content:\"GET\"; sid:3;)\n",
    );
    let requests = [4, 8, 18, 22];
    let answers = [6, 10, 20, 24];
    // Those of the packet itself are passed.
    inspect(
        &folder,
        &format!("pass http any any -> any any ({beside} sid:1;)\n{watching}"),
        "pass",
        &["--ips"],
    );
    assert_eq!((alerts(&folder, "pass", 2), alerts(&folder, "pass", 3)), (answers.to_vec(), vec![]));
    // What decides for the flow: the same without the packet's buffer.
    let whole = "pass http any any -> any any (http.uri; content:\"/\"; sid:1;)\n";
    inspect(&folder, &format!("{whole}{watching}"), "flow", &["--ips"]);
    assert_eq!((alerts(&folder, "flow", 2), alerts(&folder, "flow", 3)), (vec![], vec![]));
    inspect(&folder, &format!("drop http any any -> any any ({beside} sid:1;)\n"), "drop", &["--ips"]);
    assert_eq!(alerts(&folder, "drop", 1), requests);
    let flows = folder.events("drop", "flow");
    assert!(flows.iter().all(|flow| flow["flow"]["action"].is_null()), "{flows:?}");
}

/// All packets of a flow have the same addresses: a rule on payload and an address matches on the stream,
/// and still decides for the packet. A packet's variable is that of the packet that the stream is inspected
/// with.
#[test]
fn a_rule_on_payload_and_an_address_looks_at_the_stream() {
    let folder = Folder::new("address-beside-payload");
    let mut capture = Capture::default();
    for [client, server, _] in hosts() {
        talk(
            &mut capture,
            (client, 40_000),
            (server, 7_000),
            &[('c', b"one ev"), ('c', b"il two"), ('s', b"three ev"), ('s', b"il four"), ('c', b"five")],
        );
    }
    folder.write("c.pcap", capture.pcap());
    let not_loopback = "content:!\"|7f|\"; startswith;";
    let beside = [
        format!("content:\"evil\"; ip.src; {not_loopback}"),
        format!("ip.dst; {not_loopback} pkt_data; content:\"evil\"; fast_pattern;"),
        "pcre:\"/e(?P<pkt_word>vi)l/\"; ip.src; to_md5; content:!\"zz\";".to_owned(),
        "content:\"evil\"; pktvar:word,\"vi\";".to_owned(),
    ];
    let rules = |action: &str| -> String {
        let rule = |(at, options): (usize, &String)| {
            format!("{action} tcp any any -> any any ({options} sid:{};)\n", at + 1)
        };
        beside.iter().enumerate().map(rule).collect::<String>()
            + "alert tcp any any -> any any (content:\"evil\"; tcp.hdr; content:!\"zz\"; sid:9;)\n"
    };
    let (first, second) = ([4, 8, 20, 24], [6, 10, 22, 26]);
    for (way, mode) in MODES {
        inspect(&folder, &rules("alert"), way, mode);
        for sid in 1..=4 {
            let found = alerts(&folder, way, sid);
            if way == "inline" {
                assert!(second.iter().all(|at| found.contains(at)), "{sid}: {found:?}");
                assert!(!found.iter().any(|at| first.contains(at)), "{sid}: {found:?}");
            } else {
                // Little data is inspected when the connection ends.
                assert_eq!(found, [14, 15, 30, 31], "{sid}");
            }
        }
        assert!(alerts(&folder, way, 9).is_empty(), "{way}");
    }
    let rule = format!("drop tcp any any -> any any ({} sid:1;)\n", beside[0]);
    inspect(&folder, &rule, "drop", &["--ips"]);
    let refused = refused(&folder, "drop");
    // Later packets are refused as well, as long as the window holds the match.
    assert_eq!(refused, [6, 10, 12, 22, 26, 28]);
    let flows = folder.events("drop", "flow");
    assert!(flows.iter().all(|flow| flow["flow"]["action"].is_null()), "{flows:?}");
}

/// Refused bytes that are sent again do not leave then either, however they are cut; bytes after them do,
/// and are inspected.
#[test]
fn bytes_that_a_rule_refused_with_their_packet_are_refused_again() {
    let folder = Folder::new("refused-again");
    let evil: &[u8] = b"GET /evil HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut capture = Capture::default();
    for [client, server, _] in hosts() {
        let (from, to) = ((client, 40_000), (server, 80));
        talk(&mut capture, from, to, &[]);
        let (from, to) = ((client, 40_001), (server, 80));
        capture.tcp(from, to, (100, 0), SYN, b"");
        capture.tcp(to, from, (900, 101), SYN | ACK, b"");
        capture.tcp(from, to, (101, 901), ACK, b"");
        capture.tcp(from, to, (101, 901), PSH | ACK, evil);
        // Again: whole, its beginning, its end.
        capture.tcp(from, to, (101, 901), PSH | ACK, evil);
        capture.tcp(from, to, (101, 901), PSH | ACK, &evil[..10]);
        capture.tcp(from, to, (111, 901), PSH | ACK, &evil[10..]);
        let behind = 101 + evil.len() as u32;
        capture.tcp(from, to, (behind, 901), PSH | ACK, GET);
        capture.tcp(to, from, (901, behind), ACK, b"");
    }
    folder.write("c.pcap", capture.pcap());
    let watching = "alert http any any -> any any (http.method; content:\"GET\"; sid:2;)\n";
    for (number, rule) in [
        "drop http any any -> any any (http.uri; content:\"evil\"; ip.src; content:!\"|7f|\"; startswith; sid:1;)",
        "drop:packet http any any -> any any (http.uri; content:\"evil\"; sid:1;)",
    ]
    .into_iter()
    .enumerate()
    {
        let out = &format!("again-{number}");
        inspect(&folder, &format!("{rule}\n{watching}"), out, &["--ips"]);
        assert_eq!(alerts(&folder, out, 1), [10, 25], "{rule}");
        assert!(alerts(&folder, out, 2).ends_with(&[29]), "{rule}: {:?}", alerts(&folder, out, 2));
        let stats = folder.events(out, "stats");
        let blocked = stats.last().map(|stats| stats["stats"]["ips"]["blocked"].clone());
        assert_eq!(blocked, Some(8.into()), "{rule}");
    }
}

/// `app-layer-protocol` over datagrams, and in prevention over TCP: evaluated with the packet that ends
/// detection, and with the next one of each direction. While the protocol is unknown, no negated condition
/// holds.
#[test]
fn rules_on_the_protocol_over_udp_and_tcp() {
    let folder = Folder::new("protocol");
    let query = |answer: bool| {
        let flags: [u8; 2] = if answer { [0x81, 0x80] } else { [1, 0] };
        [&[0, 7][..], &flags, &[0, 1, 0, 0, 0, 0, 0, 0], b"\x01a\x07example\x00\x00\x01\x00\x01"].concat()
    };
    let mut capture = Capture::default();
    let (mut known, mut unknown, mut requests, mut again) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut at = 0;
    for [client, server, _] in hosts() {
        let (from, to) = ((client, 40_000), (server, 53));
        for _ in 0..3 {
            capture.udp(from, to, &query(false));
            capture.udp(to, from, &query(true));
        }
        let (from, to) = ((client, 40_001), (server, 9_999));
        for _ in 0..3 {
            capture.udp(from, to, b"hello");
            capture.udp(to, from, b"world");
        }
        known.extend(at + 1..=at + 4);
        unknown.extend(at + 7..=at + 10);
        talk(
            &mut capture,
            (client, 40_002),
            (server, 80),
            &[('c', GET), ('s', b"HTTP/1.1 204 No Content\r\n\r\n")],
        );
        requests.extend([at + 16, at + 18]);
        again.extend([at + 16, at + 18, at + 19, at + 21]);
        at += 22;
    }
    folder.write("c.pcap", capture.pcap());
    let rules = "alert udp any any -> any any (app-layer-protocol:dns; sid:1;)
alert udp any any -> any any (app-layer-protocol:!dns; sid:2;)
alert udp any any -> any any (app-layer-protocol:!tls|http; sid:3;)
alert udp any any -> any any (app-layer-protocol:tls|dns,exact; sid:4;)
alert udp any any -> any any (app-layer-protocol:failed; sid:5;)
alert tcp any any -> any any (app-layer-protocol:!http; flags:S; sid:10;)
alert tcp any any -> any any (app-layer-protocol:!http,either; flags:S; sid:11;)
alert tcp any any -> any any (app-layer-protocol:!http,final; flags:S; sid:12;)
alert tcp any any -> any any (app-layer-protocol:!http,original; flags:S; sid:13;)
alert tcp any any -> any any (app-layer-protocol:!tls|http,to_client; flags:S; sid:14;)
alert tcp-pkt any any -> any any (app-layer-protocol:!http,original; content:\"GET\"; sid:15;)
alert tcp any any -> any any (app-layer-protocol:tls|http; sid:20;)
alert tcp any any -> any any (app-layer-protocol:!tls|dns; sid:21;)
";
    inspect(&folder, rules, "inline", &["--ips"]);
    let mut both: Vec<u64> = known.iter().chain(&unknown).copied().collect();
    both.sort_unstable();
    assert_eq!(alerts(&folder, "inline", 1), known);
    assert_eq!(alerts(&folder, "inline", 2), unknown);
    assert_eq!(alerts(&folder, "inline", 3), both);
    assert_eq!(alerts(&folder, "inline", 4), known);
    assert_eq!(alerts(&folder, "inline", 5), unknown);
    for sid in 10..=15 {
        assert_eq!(alerts(&folder, "inline", sid), [0u64; 0], "{sid}");
    }
    assert_eq!(alerts(&folder, "inline", 20), again);
    assert_eq!(alerts(&folder, "inline", 21), again);
    inspect(&folder, rules, "passive", &[]);
    for sid in 1..=5 {
        assert_eq!(alerts(&folder, "passive", sid), alerts(&folder, "inline", sid), "{sid}");
    }
    for sid in 10..=15 {
        assert_eq!(alerts(&folder, "passive", sid), [0u64; 0], "{sid}");
    }
    assert_eq!([20, 21].map(|sid| alerts(&folder, "passive", sid).len()), [requests.len(); 2]);
}

/// A port list other than `any` matches only packets that have ports.
#[test]
fn packets_without_ports_meet_no_list_of_ports() {
    let folder = Folder::new("no-ports");
    let mut capture = Capture::default();
    let mut with_ports = Vec::new();
    let mut at = 0;
    for [client, server, _] in hosts() {
        capture.frame(packet::icmp(client, server, (8, 128), 0, b"\0\x01\0\x01abcdefgh").frame());
        for protocol in [47, 50, 99] {
            capture.frame(Ip::new(client, server, protocol).frame(b"\0\0\0\0abcdefghijkl", None));
        }
        let datagram = packet::udp((client, 4_000), (server, 4_000), &[b'x'; 40]);
        for fragment in Ip::new(client, server, UDP).fragment_frames(&datagram.payload(), 24) {
            capture.frame(fragment);
        }
        capture.frame(packet::udp((client, 4_001), (server, 4_000), b"abc").frame());
        capture.frame(packet::tcp((client, 4_001), (server, 4_000), (1, 0), SYN, b"").frame());
        let sctp = [
            0x0f, 0xa1, 0x0f, 0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 20, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1,
            0, 0, 0, 0,
        ];
        capture.frame(Ip::new(client, server, 132).frame(&sctp, None));
        with_ports.extend([at + 7, at + 8, at + 9]);
        at += 9;
    }
    folder.write("c.pcap", capture.pcap());
    let lists = [
        "any -> any !6001",
        "any -> any :5000",
        "any -> any 0:",
        "any -> any [!6001,!6002]",
        "any -> any $LIST",
        "any -> any [1:6000,6002:]",
        "any -> any $ANY",
        "!6001 -> any any",
        "1: -> any any",
        "any <> any !6001",
    ];
    let mut rules = "alert ip any any -> any any (ttl:>0; sid:99;)\n".to_owned();
    for (number, list) in lists.iter().enumerate() {
        let (from, to) = list.split_once(" any").unwrap();
        rules += &format!("alert ip any {from} any{to} (ttl:>0; sid:{};)\n", number + 1);
        rules += &format!("alert ip any {from} any{to} (sid:{};)\n", number + 101);
        rules += &format!("alert icmp any {from} any{to} (itype:>0; sid:{};)\n", number + 201);
    }
    let sets = [
        "--set",
        "vars.port-groups.LIST=!6001",
        "--set",
        "vars.port-groups.ANY=any",
        "--set",
        "packet-alert-max=100",
    ];
    for (out, mode) in MODES {
        inspect(&folder, &rules, out, &[&sets[..], mode].concat());
        for (number, list) in lists.iter().enumerate() {
            let found: Vec<u64> = alerts(&folder, out, number as u32 + 1);
            // A datagram that was put together again is no packet of the capture, and has ports.
            let rebuilt = found.iter().filter(|at| **at == 0).count();
            let found: Vec<u64> = found.into_iter().filter(|at| *at > 0).collect();
            assert!(rebuilt <= 2, "{list} {out}");
            assert!(with_ports.iter().all(|at| found.contains(at)), "{list} {out}: {found:?}");
            let rest = found.iter().filter(|at| !with_ports.contains(at)).count();
            assert!(rest + rebuilt == 2, "{list} {out}: {found:?}");
            let by_address = alerts(&folder, out, number as u32 + 101);
            let portless = |at: &&u64| [1, 2, 3, 4].contains(&((**at).wrapping_sub(1) % 9 + 1)) && **at > 0;
            assert_eq!(by_address.iter().find(portless), None, "{list} {out}");
            assert_eq!(alerts(&folder, out, number as u32 + 201), [0u64; 0], "{list} {out}");
        }
        assert_eq!(alerts(&folder, out, 99).iter().filter(|at| **at > 0).count() as u64 + 2, at + 2);
    }
}
