// SPDX-License-Identifier: Apache-2.0
//! Fields of events over whole captures, over IPv4 and IPv6. The expected values are those of Suricata 8.0.8
//! for the same packets.

use crate::sample as common;

use bartizan_testkit::packet::{self, address};
use common::{ACK, Capture, FIN, Folder, PSH, SYN};
use serde_json::{Value, json};
use std::net::IpAddr;

type End = (IpAddr, u16);

/// A client and a server, over IPv4 and IPv6.
fn ends() -> [(End, End); 2] {
    [("10.0.0.1", "192.0.2.7"), ("2001:db8::1", "2001:db8:1::7")]
        .map(|(c, s)| ((c.parse().unwrap(), 40_000), (s.parse().unwrap(), 80)))
}

fn inspect(folder: &Folder, rules: &str, out: &str, more: &[&str]) {
    folder.write("r.rules", rules);
    let args = ["inspect", "--rules", "r.rules", "--out", out, "--json"];
    let ran = folder.run(&[&args[..], more, &["c.pcap"][..]].concat());
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
}

/// The packets of all events of a type.
fn packets(folder: &Folder, out: &str, kind: &str) -> Vec<u64> {
    let events = folder.events(out, kind);
    let mut packets: Vec<_> = events.iter().filter_map(|event| event["pcap_cnt"].as_u64()).collect();
    packets.sort_unstable();
    packets
}

/// A connection whose segments are acknowledged at once.
struct Talk {
    client: End,
    server: End,
    sent: (u32, u32),
}

impl Talk {
    fn open(capture: &mut Capture, (client, server): (End, End)) -> Self {
        capture.tcp(client, server, (100, 0), SYN, b"");
        capture.tcp(server, client, (900, 101), SYN | ACK, b"");
        capture.tcp(client, server, (101, 901), ACK, b"");
        Talk { client, server, sent: (101, 901) }
    }

    fn ask(&mut self, capture: &mut Capture, bytes: &[u8]) {
        capture.tcp(self.client, self.server, self.sent, PSH | ACK, bytes);
        self.sent.0 += bytes.len() as u32;
    }

    fn answer(&mut self, capture: &mut Capture, bytes: &[u8]) {
        capture.tcp(self.server, self.client, (self.sent.1, self.sent.0), PSH | ACK, bytes);
        self.sent.1 += bytes.len() as u32;
    }

    fn acknowledge(&self, capture: &mut Capture) {
        capture.tcp(self.client, self.server, self.sent, ACK, b"");
    }

    fn close(self, capture: &mut Capture) {
        let (client, server) = self.sent;
        capture.tcp(self.client, self.server, (client, server), FIN | ACK, b"");
        capture.tcp(self.server, self.client, (server, client + 1), FIN | ACK, b"");
        capture.tcp(self.client, self.server, (client + 1, server + 1), ACK, b"");
    }
}

#[test]
fn a_file_under_way_is_no_file_cut_off() {
    let folder = Folder::new("file-under-way");
    let mut capture = Capture::default();
    for ends in ends() {
        let mut talk = Talk::open(&mut capture, ends);
        talk.ask(&mut capture, b"GET /f.bin HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 600\r\n\r\n";
        talk.answer(&mut capture, &[&head[..], b"MZ", &[b'a'; 198]].concat());
        talk.acknowledge(&mut capture);
        for _ in 0..2 {
            talk.answer(&mut capture, &[b'a'; 200]);
            talk.acknowledge(&mut capture);
        }
        talk.close(&mut capture);
    }
    folder.write("c.pcap", capture.pcap());
    let rules = "alert http any any -> any any (msg:\"status\"; flow:established,to_client; http.stat_code; content:\"200\"; sid:1;)\n";
    for (out, more) in [("passive", &[][..]), ("inline", &["--ips"][..])] {
        inspect(&folder, rules, out, more);
        let alerts = folder.events(out, "alert");
        assert_eq!(alerts.len(), 2, "{out}: {alerts:?}");
        for alert in alerts {
            let file = &alert["files"][0];
            assert_eq!((&file["state"], &file["size"]), (&json!("UNKNOWN"), &json!(200)), "{out}: {alert}");
        }
        let files = folder.events(out, "fileinfo");
        assert_eq!(files.len(), 2, "{out}");
        for file in files {
            let file = &file["fileinfo"];
            assert_eq!((&file["state"], &file["size"]), (&json!("CLOSED"), &json!(600)), "{out}: {file}");
        }
    }
}

#[test]
fn a_file_that_the_end_of_both_sides_closes_comes_with_it() {
    let folder = Folder::new("file-at-the-end");
    let mut capture = Capture::default();
    for ends in ends() {
        let mut talk = Talk::open(&mut capture, ends);
        talk.ask(&mut capture, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        talk.answer(&mut capture, b"HTTP/1.1 200 OK\r\n\r\nall that comes until the end");
        talk.close(&mut capture);
    }
    folder.write("c.pcap", capture.pcap());
    inspect(&folder, "", "o", &[]);
    assert_eq!(packets(&folder, "o", "fileinfo"), [8, 16]);
    for file in folder.events("o", "fileinfo") {
        assert_eq!(file["fileinfo"]["state"], "CLOSED", "{file}");
    }
}

#[test]
fn the_kind_of_a_file_is_told_where_a_rule_asked_or_records_are_to_tell_it() {
    let folder = Folder::new("kinds-of-files");
    let mut capture = Capture::default();
    for ends in ends() {
        let mut talk = Talk::open(&mut capture, ends);
        for file in [b"%PDF-1.5 of the rule".as_slice(), b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"] {
            talk.ask(&mut capture, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", file.len());
            talk.answer(&mut capture, &[head.as_bytes(), file].concat());
            talk.acknowledge(&mut capture);
        }
        talk.close(&mut capture);
    }
    folder.write("c.pcap", capture.pcap());
    let rule = "alert http any any -> any any (msg:\"pdf\"; flow:to_client; file.data; content:\"%PDF\"; fast_pattern; \
                file.magic; content:\"PDF document\"; sid:1;)\n";
    let kinds = |out: &str, rules: &str, more: &[&str]| -> Vec<[bool; 2]> {
        inspect(&folder, rules, out, more);
        let files = folder.events(out, "fileinfo");
        assert_eq!(files.len(), 4, "{out}");
        let kind = |file: &Value| file["fileinfo"]["magic"].as_str().unwrap_or_default().to_owned();
        let pairs = files.chunks(2).map(|two| [kind(&two[0]), kind(&two[1])]);
        pairs.map(|[pdf, png]| [pdf.starts_with("PDF document"), png.starts_with("PNG image")]).collect()
    };
    let forced = ["--set", "outputs.1.eve-log.types.9.files.force-magic=yes"];
    assert_eq!(kinds("asked", rule, &[]), [[true, false]; 2], "a rule got as far as one of them");
    assert_eq!(folder.events("asked", "alert").len(), 2);
    assert_eq!(kinds("inline", rule, &["--ips"]), [[true, false]; 2]);
    assert_eq!(kinds("forced", rule, &forced), [[true, true]; 2]);
    assert_eq!(kinds("forced-alone", "", &forced), [[true, true]; 2]);
    assert_eq!(kinds("nobody", "", &[]), [[false, false]; 2]);
}

/// The marked packets of one connection with ten requests, at 4, 7, 10 and so on, each answer after its
/// request; the first and the fifth request `evil`, the third `also`. Each request takes one packet more
/// than the one before.
fn marked(folder: &str, rules: &str, more: &[&str]) -> Vec<u64> {
    let folder = Folder::new(folder);
    let mut capture = Capture::default();
    let mut talk = Talk::open(&mut capture, ends()[0]);
    for name in ["evil", "x", "also", "y", "evil", "z", "z", "z", "z", "z"] {
        talk.ask(&mut capture, format!("GET /{name} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        talk.answer(&mut capture, b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno");
        talk.acknowledge(&mut capture);
    }
    talk.close(&mut capture);
    folder.write("c.pcap", capture.pcap());
    inspect(&folder, rules, "o", more);
    packets(&folder, "o", "packet")
}

fn evil(rest: &str) -> String {
    format!(
        "alert http any any -> any any (msg:\"m\"; flow:established,to_server; http.uri; content:\"evil\"; {rest})\n"
    )
}

#[test]
fn tags_mark_what_suricata_marks() {
    let inline = |rules: String| marked("marked", &rules, &["--ips"]);
    assert_eq!(inline(evil("tag:session,2,packets; sid:5;")), [5, 17]);
    assert_eq!(inline(evil("tag:session,4,packets; sid:5;")), [5, 6, 7, 17, 18, 19]);
    assert_eq!(inline(evil("tag:session,1,packets; sid:5;")), Vec::<u64>::new());
    assert_eq!(inline(evil("tag:session,0,packets; sid:5;")), Vec::<u64>::new());
    assert_eq!(inline(evil("tag:host,4,packets,src; sid:5;")), [5, 6, 7, 17, 18, 19]);
    assert_eq!(inline(evil("tag:host,4,packets; sid:5;")), [5, 6, 7, 17, 18, 19]);
    assert_eq!(inline(evil("tag:session,300,bytes; sid:5;")), [5, 6, 17, 18]);
    assert_eq!(inline(evil("tag:session; sid:5;")), (5..=36).collect::<Vec<_>>());
    assert_eq!(marked("marked", &evil("tag:session,2,packets; sid:5;"), &[]), [7, 19]);
}

#[test]
fn tags_of_several_rules_run_beside_each_other() {
    let rules = format!(
        "{}{}alert http any any -> any any (msg:\"m\"; flow:established,to_server; http.uri; content:\"also\"; tag:session,6,packets; sid:6;)\n",
        evil("tag:session,3,packets; sid:5;"),
        evil("tag:session,9,packets; sid:7;"),
    );
    let expected: Vec<u64> = (5..=15).chain(17..=24).collect();
    assert_eq!(marked("several-tags", &rules, &["--ips"]), expected);
    // Of a flow that a rule passes or drops nothing is looked at, nor marked.
    for action in ["drop", "pass"] {
        let ends = format!(
            "{}{action} http any any -> any any (msg:\"m\"; flow:established,to_server; http.uri; content:\"also\"; sid:6;)\n",
            evil("tag:session,12,packets; sid:5;"),
        );
        assert_eq!(marked("several-tags", &ends, &["--ips"]), (5..=10).collect::<Vec<_>>(), "{action}");
    }
}

#[test]
fn syns_without_answers_have_one_region_a_side() {
    let folder = Folder::new("syns");
    let mut capture = Capture::default();
    for (client, server) in ends() {
        capture.tcp(client, server, (100, 0), SYN, b"");
    }
    folder.write("c.pcap", capture.pcap());
    inspect(&folder, "", "o", &[]);
    let flows = folder.events("o", "flow");
    assert_eq!(flows.len(), 2);
    for flow in flows {
        let tcp = &flow["tcp"];
        assert_eq!((&tcp["ts_max_regions"], &tcp["tc_max_regions"]), (&json!(1), &json!(1)), "{flow}");
    }
}

#[test]
fn a_side_that_failed_is_told_when_the_flow_is_known() {
    let folder = Folder::new("side-failed");
    let mut capture = Capture::default();
    for (client, server) in ends() {
        let mut talk = Talk::open(&mut capture, (client, (server.0, 4711)));
        talk.ask(&mut capture, &[0x80; 64]);
        talk.acknowledge(&mut capture);
        talk.ask(&mut capture, b"mark");
        talk.acknowledge(&mut capture);
    }
    folder.write("c.pcap", capture.pcap());
    let rules = "alert tcp any any -> any any (msg:\"m\"; content:\"mark\"; sid:1;)\n";
    inspect(&folder, rules, "o", &["--ips"]);
    let events = [folder.events("o", "alert"), folder.events("o", "flow")].concat();
    assert_eq!(events.len(), 4);
    for event in events {
        let of = |key: &str| event.get(key).cloned().unwrap_or(Value::Null);
        if of("app_proto").is_null() {
            let sides = (of("app_proto_ts"), of("app_proto_tc"));
            assert_eq!(sides, (Value::Null, Value::Null), "{event}");
        }
    }
}

#[test]
fn transactions_of_http_alone_tell_their_number() {
    let folder = Folder::new("tx-id");
    let mut capture = Capture::default();
    for ends in ends() {
        let mut talk = Talk::open(&mut capture, ends);
        talk.ask(&mut capture, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        talk.answer(&mut capture, b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno");
        talk.close(&mut capture);
        let (client, server) = ends;
        let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07example\x03com\0\0\x01\0\x01";
        capture.udp((client.0, 5000), (server.0, 53), query);
    }
    folder.write("c.pcap", capture.pcap());
    inspect(&folder, "", "o", &[]);
    for (kind, tells) in [("http", true), ("dns", false)] {
        let events = folder.events("o", kind);
        assert_eq!(events.len(), 2, "{kind}");
        assert!(events.iter().all(|event| event.get("tx_id").is_some() == tells), "{kind}: {events:?}");
    }
}

/// Connections of one request and one answer.
fn conversations(request: &[u8]) -> Capture {
    let mut capture = Capture::default();
    for ends in ends() {
        let mut talk = Talk::open(&mut capture, ends);
        for ask in [request, b"GET /2 HTTP/1.1\r\nHost: a\r\n\r\n"] {
            talk.ask(&mut capture, ask);
            talk.answer(&mut capture, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            talk.acknowledge(&mut capture);
        }
        talk.close(&mut capture);
    }
    capture
}

#[test]
fn a_protocol_alone_is_told_with_the_first_packet_behind_its_detection() {
    let folder = Folder::new("protocol-alone");
    folder.write("c.pcap", conversations(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").pcap());
    inspect(&folder, "alert tcp any any -> any any (app-layer-protocol:http; sid:1;)\n", "o", &[]);
    // Passively a side is read when it is acknowledged, by a packet of the other one.
    assert_eq!(packets(&folder, "o", "alert"), [6, 8, 18, 20]);
}

const DROPS: [&str; 2] = ["--set", "outputs.1.eve-log.types.34.drop.alerts=yes"];

#[test]
fn a_dropped_flow_is_told_once_in_each_direction() {
    let folder = Folder::new("dropped-flow");
    folder.write("c.pcap", conversations(b"GET /bad HTTP/1.1\r\nHost: a\r\n\r\n").pcap());
    let rules = "drop http any any -> any any (http.uri; content:\"/bad\"; sid:1;)\n";
    inspect(&folder, rules, "o", &[&["--ips"], &DROPS[..]].concat());
    assert_eq!(packets(&folder, "o", "drop"), [4, 5, 16, 17]);
    let reasons: Vec<_> =
        folder.events("o", "drop").iter().map(|e| e["drop"]["reason"].as_str().unwrap().to_owned()).collect();
    assert_eq!(reasons, ["rules", "flow drop", "rules", "flow drop"]);
    let flows = folder.events("o", "flow");
    assert_eq!(flows.len(), 2);
    for flow in flows {
        // Packets that are refused with their flow have flags, too.
        let tcp = &flow["tcp"];
        assert_eq!((&tcp["tcp_flags_ts"], &tcp["tcp_flags_tc"]), (&json!("1b"), &json!("1b")), "{flow}");
        assert_eq!((&tcp["state"], &flow["flow"]["action"]), (&json!("established"), &json!("drop")));
    }
}

#[test]
fn a_flow_dropped_by_a_policy_is_told_once_in_each_direction() {
    let folder = Folder::new("dropped-midstream");
    let mut capture = Capture::default();
    for ends in ends() {
        let mut talk = Talk { client: ends.0, server: ends.1, sent: (100, 7) };
        for _ in 0..3 {
            talk.ask(&mut capture, b"hello");
            capture.tcp(talk.server, talk.client, (talk.sent.1, talk.sent.0), ACK, b"");
        }
    }
    folder.write("c.pcap", capture.pcap());
    inspect(&folder, "", "o", &[&["--ips"], &DROPS[..]].concat());
    assert_eq!(packets(&folder, "o", "drop"), [1, 2, 7, 8]);
    let reasons: Vec<_> =
        folder.events("o", "drop").iter().map(|e| e["drop"]["reason"].as_str().unwrap().to_owned()).collect();
    assert_eq!(reasons, ["stream midstream", "exception policy flow drop"].repeat(2));
}

#[test]
fn more_alerts_of_a_packet_than_suricata_allows_are_not_asked_for() {
    let folder = Folder::new("packet-alert-max");
    let mut capture = Capture::default();
    capture.tcp(ends()[0].0, ends()[0].1, (100, 0), SYN, b"");
    folder.write("c.pcap", capture.pcap());
    let rules: String =
        (1..=300).map(|sid| format!("alert tcp any any -> any any (flags:S; sid:{sid};)\n")).collect();
    for (most, told) in [("20", 20), ("255", 255), ("256", 15), ("0", 15)] {
        inspect(&folder, &rules, most, &["--set", &format!("packet-alert-max={most}")]);
        assert_eq!(folder.events(most, "alert").len(), told, "{most}");
    }
}

#[test]
fn of_packets_that_are_no_ip_only_decode_events_are_asked() {
    let folder = Folder::new("no-ip");
    let mut capture = Capture::default();
    let frame =
        |kind: [u8; 2], rest: &[u8]| [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], &kind, rest].concat();
    capture.frame(frame(
        [0x08, 0x06],
        &[0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2],
    ));
    capture.frame(frame([0x88, 0xcc], b"abcabcabcabc"));
    // IPv4 with an option that is longer than the header: no flow either.
    let mut broken = packet::udp((address(false, 1), 5), (address(false, 2), 6), b"opts");
    broken.ip.options = vec![7, 0x20, 4, 0];
    capture.frame(broken.frame());
    capture.tcp(ends()[0].0, ends()[0].1, (100, 0), SYN, b"");
    folder.write("c.pcap", capture.pcap());
    let rules = [
        "alert ip any any -> any any (sid:1;)",
        "alert pkthdr any any -> any any (sid:2;)",
        "alert ip any any -> any any (dsize:<5; sid:3;)",
        "alert pkthdr any any -> any any (vlan.layers:0; sid:4;)",
        "alert pkthdr any any -> any any (decode-event:ethernet.unknown_ethertype; sid:5;)",
        "alert ip any any -> any any (decode-event:ethernet.unknown_ethertype; sid:6;)",
        "alert ip any any -> any any (decode-event:ethernet.unknown_ethertype; vlan.layers:0; sid:7;)",
        "alert ip any any -> any any (flow:stateless; sid:8;)",
        "alert pkthdr any any -> any any (decode-event:ipv4.opt_invalid_len; sid:9;)",
    ];
    inspect(&folder, &(rules.join("\n") + "\n"), "o", &[]);
    let events = folder.events("o", "alert");
    let told = events
        .iter()
        .map(|e| (e["alert"]["signature_id"].as_u64().unwrap(), e["pcap_cnt"].as_u64().unwrap()));
    let mut told: Vec<_> = told.collect();
    told.sort_unstable();
    assert_eq!(told, [(1, 3), (1, 4), (2, 3), (2, 4), (3, 4), (4, 4), (5, 2), (6, 2), (8, 4), (9, 3)]);
}

#[test]
fn alerts_before_a_switch_are_of_the_old_protocol() {
    let folder = Folder::new("before-a-switch");
    let mut capture = Capture::default();
    for ends in ends() {
        let mut talk = Talk::open(&mut capture, ends);
        talk.ask(&mut capture, b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n");
        talk.answer(&mut capture, b"HTTP/1.1 200 Connection established\r\n\r\n");
        talk.ask(&mut capture, b"GET /in HTTP/1.1\r\nHost: in\r\n\r\n");
        talk.answer(&mut capture, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        talk.close(&mut capture);
    }
    folder.write("c.pcap", capture.pcap());
    let rules = "alert http any any -> any any (http.method; content:\"CONNECT\"; sid:1;)\n\
        alert http any any -> any any (http.uri; content:\"/in\"; sid:2;)\n";
    inspect(&folder, rules, "o", &[]);
    let events = folder.events("o", "alert");
    let said: Vec<_> = events
        .iter()
        .map(|e| {
            (
                e["alert"]["signature_id"].as_u64().unwrap(),
                e["app_proto"].clone(),
                e["app_proto_orig"].clone(),
            )
        })
        .collect();
    let http = || json!("http");
    let each = [(1, http(), Value::Null), (2, http(), http())];
    assert_eq!(said.iter().filter(|s| **s == each[0]).count(), 2, "{said:?}");
    assert_eq!((said.iter().filter(|s| s.0 == 2).count(), said.len()), (2, 4), "{said:?}");
}

/// A packet that carries another one is not inspected in addition to it, except where a receiver may read
/// the outer packet's payload as such.
#[test]
fn rules_on_payloads_pass_over_what_carries_a_packet_unless_it_is_to_be_prevented() {
    let folder = Folder::new("carries");
    let mut capture = Capture::default();
    for (v6, outer) in [(false, (40_000, 4789)), (true, (40_001, 4789))] {
        let inner = packet::udp((address(v6, 1), 5), (address(v6, 2), 99), b"mark").frame();
        let ends = ((address(v6, 11), outer.0), (address(v6, 12), outer.1));
        capture.udp(ends.0, ends.1, &bartizan_testkit::layers::vxlan(7, &inner));
    }
    folder.write("c.pcap", capture.pcap());
    let rules =
        ["content:\"mark\"", "dsize:>1", "dsize:<2000", "dsize:10<>2000", "udp.hdr; content:\"|00|\""];
    let rules: String = (1..)
        .zip(rules)
        .map(|(sid, rule)| format!("alert udp any any -> any any (msg:\"{sid}\"; {rule}; sid:{sid};)\n"))
        .collect();
    let counts = |out: &str| {
        let alerts = folder.events(out, "alert");
        [1, 2, 3, 4, 5].map(|sid| alerts.iter().filter(|a| a["alert"]["signature_id"] == sid).count())
    };
    inspect(&folder, &rules, "passive", &[]);
    assert_eq!(counts("passive"), [2, 2, 4, 0, 4]);
    inspect(&folder, &rules, "ips", &["--ips"]);
    assert_eq!(counts("ips"), [4, 4, 4, 2, 4]);
}

#[test]
fn a_rule_that_alerts_may_also_end_the_logging_of_its_transaction() {
    let folder = Folder::new("config");
    let mut capture = Capture::default();
    let query = b"\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01x\x04test\x00\x00\x01\x00\x01";
    for (client, mut server) in ends() {
        server.1 = 53;
        capture.udp(client, server, query);
    }
    folder.write("c.pcap", capture.pcap());
    let config = |action: &str, sid: u32| {
        let options = "dns.query; content:\"x.test\"; config:logging disable, type tx, scope tx";
        format!("{action} dns any any -> any any (msg:\"c\"; {options}; sid:{sid};)\n")
    };
    inspect(&folder, &(config("alert", 1) + &config("config", 2)), "o", &[]);
    let sids: Vec<_> =
        folder.events("o", "alert").iter().map(|a| a["alert"]["signature_id"].clone()).collect();
    assert_eq!((sids, folder.events("o", "dns").len()), (vec![json!(1), json!(1)], 0));
}

#[test]
fn marked_packets_show_the_flows_values_and_files_that_nobody_keeps_are_not_being_stored() {
    let folder = Folder::new("values");
    let mut capture = Capture::default();
    let mut talk = Talk::open(&mut capture, ends()[0]);
    talk.ask(&mut capture, b"GET /VAR=hello HTTP/1.1\r\nHost: a\r\n\r\n");
    talk.answer(&mut capture, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    talk.acknowledge(&mut capture);
    talk.close(&mut capture);
    folder.write("c.pcap", capture.pcap());
    let rules = "alert tcp any any -> any any (msg:\"v\"; content:\"VAR=\"; pcre:\"/VAR=(?P<flow_v>\\w+)/\"; sid:1;)\n\
                 alert http any any -> any any (msg:\"t\"; http.uri; content:\"VAR\"; tag:session,3,packets; sid:2;)\n\
                 alert http any any -> any any (msg:\"f\"; http.uri; content:\"VAR\"; filestore:both,tx; sid:3;)\n";
    inspect(&folder, rules, "o", &[]);
    let marked = folder.events("o", "packet");
    assert!(!marked.is_empty());
    for event in marked {
        assert_eq!(event["metadata"]["flowvars"], json!([{ "v": "hello" }]), "{event}");
    }
    let files = folder.events("o", "fileinfo");
    assert_eq!(files.len(), 1);
    let file = &files[0]["fileinfo"];
    assert_eq!(
        (&file["stored"], &file["storing"], &file["sid"]),
        (&json!(false), &Value::Null, &Value::Null)
    );
}
