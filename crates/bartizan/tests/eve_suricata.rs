// SPDX-License-Identifier: Apache-2.0
//! Fields of events over whole captures, over IPv4 and IPv6. The answers are those of Suricata 8.0.8 for the same packets.

#[path = "common/sample.rs"]
mod common;

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

/// A connection, side by side: what was sent is acknowledged at once.
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

/// Packets that are marked, of one connection with ten requests: at 4, 7, 10 and so on, the answers behind them; the first
/// and the fifth ask for `evil`, the third for `also`. Packets here are one more a request than the one before it.
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
        let mut datagram = [5000u16, 53, 8 + query.len() as u16, 0].map(u16::to_be_bytes).concat();
        datagram.extend_from_slice(query);
        capture.ip(client.0, server.0, 17, datagram, 6);
    }
    folder.write("c.pcap", capture.pcap());
    inspect(&folder, "", "o", &[]);
    for (kind, tells) in [("http", true), ("dns", false)] {
        let events = folder.events("o", kind);
        assert_eq!(events.len(), 2, "{kind}");
        assert!(events.iter().all(|event| event.get("tx_id").is_some() == tells), "{kind}: {events:?}");
    }
}
