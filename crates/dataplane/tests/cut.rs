// SPDX-License-Identifier: Apache-2.0
//! A tap with a snap length, which captures only the first bytes of each frame. Sessions and records use the
//! lengths on the wire, readers see missing bytes as lost, and incomplete data never counts as whole.

use bartizan_base::{LinkId, SettingsMap, Timestamp};
use bartizan_dataplane::worker::Frame;
use bartizan_packet::LinkType;
use bartizan_stages::settings::{ChecksumMode, EngineSettings};
use bartizan_testkit::dns;
use bartizan_testkit::layers::{ethernet_ip, vxlan};
use bartizan_testkit::packet::{ACK, Datagram, End, FIN, Ip, PSH, SYN, Segment, address, tcp, udp};
use bartizan_testkit_worker::{Made, Stack, events};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Bytes of payload that are left of a segment without options.
const LEFT: usize = 42;

fn snap(v6: bool) -> usize {
    14 + if v6 { 40 } else { 20 } + 20 + LEFT
}

/// A passive worker on a link with a snap length.
struct Tap {
    stack: Stack,
    snap: usize,
    nanos: u64,
    /// Frames and bytes on the wire, by the side that sent them.
    sent: [(u64, u64); 2],
}

impl Tap {
    fn new(name: &str, rules: &str, snap: usize) -> Self {
        let tune = |settings: &mut EngineSettings| {
            let shipped: SettingsMap = bartizan_config::suricata::shipped();
            *settings = EngineSettings::from_settings(&shipped, false, [1, 2]).unwrap().0;
            settings.checksums = ChecksumMode::Check;
            settings.decoder.cut_frames = true;
        };
        let policy = "chain: [ids], ids: {rules: [r]}";
        let stack = Stack::new(&Made { name, policy, set: &[], tune, rules, thresholds: "" });
        Tap { stack, snap, nanos: 1_000_000_000, sent: [(0, 0); 2] }
    }

    fn sees(&mut self, side: usize, frame: &[u8]) {
        self.nanos += 100_000;
        self.sent[side].0 += 1;
        self.sent[side].1 += frame.len() as u64;
        let frame = Frame {
            now: Timestamp::from_nanos(self.nanos),
            bytes: &frame[..frame.len().min(self.snap)],
            wire_len: frame.len() as u32,
            link_type: LinkType::ETHERNET,
            link: LinkId(0),
            number: None,
        };
        let decision = self.stack.worker.frame(&frame, &mut self.stack.recorder);
        assert!(decision.is_some_and(|decision| decision.verdict.forwards()));
    }

    fn stats(&self) -> BTreeMap<&'static str, u64> {
        let mut stats = BTreeMap::new();
        self.stack.worker.visit_stats(|name, value| {
            stats.insert(name, value);
        });
        stats
    }

    /// Ends the run. Returns the packet and byte counts in the record of the only flow, and its events.
    fn finish(self) -> (Value, Vec<Value>) {
        let sent = self.sent;
        let (worker, all) = self.stack.finish();
        let mut invalid = 0;
        worker.visit_stats(|name, value| {
            let bad = ["decoder.invalid", "tcp.invalid_checksum", "decoder.event.ipv4.trunc_pkt"];
            invalid += if bad.contains(&name) { value } else { 0 };
        });
        assert_eq!(invalid, 0, "no frame is malformed");
        let flow = events::first(&all, "flow").clone();
        let told = ["pkts_toserver", "bytes_toserver", "pkts_toclient", "bytes_toclient"]
            .map(|key| &flow["flow"][key]);
        assert_eq!(json!(told), json!([sent[0].0, sent[0].1, sent[1].0, sent[1].1]), "as on the wire");
        (flow, all)
    }
}

/// A TCP connection from both of its ends.
struct Connection {
    ends: [End; 2],
    next: [u32; 2],
}

impl Connection {
    fn open(tap: &mut Tap, v6: bool, port: u16) -> Self {
        let ends = [(address(v6, 1), 40_000), (address(v6, 2), port)];
        let mut connection = Connection { ends, next: [100, 900] };
        for (side, flags) in [(0, SYN), (1, SYN | ACK), (0, ACK)] {
            connection.says(tap, side, flags, b"");
        }
        connection
    }

    fn says(&mut self, tap: &mut Tap, side: usize, flags: u16, load: &[u8]) {
        let ack = if flags & ACK == 0 { 0 } else { self.next[1 - side] };
        let numbers = (self.next[side], ack);
        let frame = tcp(self.ends[side], self.ends[1 - side], numbers, flags as u8, load).frame();
        tap.sees(side, &frame);
        self.next[side] += load.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
    }

    fn close(&mut self, tap: &mut Tap) {
        for (side, flags) in [(0, FIN | ACK), (1, FIN | ACK), (0, ACK)] {
            self.says(tap, side, flags, b"");
        }
    }
}

#[test]
fn a_cut_connection_is_tracked_by_the_wire_and_read_with_gaps() {
    for v6 in [false, true] {
        // What would be read if missing bytes were taken for the next ones, or for zeros.
        let rules = "alert tcp any any -> any any (msg:\"n\"; content:\"AAB\"; sid:1;)\n\
                     alert tcp any any -> any any (msg:\"z\"; content:\"A|00 00 00|\"; sid:2;)\n\
                     alert tcp any any -> any any (msg:\"there\"; content:\"BBBB\"; sid:3;)\n";
        let mut tap = Tap::new("cut-http", rules, snap(v6));
        let mut connection = Connection::open(&mut tap, v6, 80);
        connection.says(&mut tap, 0, PSH | ACK, b"GET /one HTTP/1.1\r\nHost: cut.example\r\n\r\n");
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n";
        connection.says(&mut tap, 1, PSH | ACK, &head[..]);
        for number in 0..60 {
            connection.says(&mut tap, 1, ACK, &[if number % 2 == 0 { b'A' } else { b'B' }; 1_000]);
            connection.says(&mut tap, 0, ACK, b"");
        }
        // A request whose end is missing, and the next one, which is there.
        let long =
            [&b"POST /two HTTP/1.1\r\nHost: cut.example\r\nX: "[..], &[b'x'; 400], b"\r\n\r\n"].concat();
        connection.says(&mut tap, 0, PSH | ACK, &long);
        connection.says(&mut tap, 1, PSH | ACK, b"HTTP/1.1 204 No Content\r\n\r\n");
        connection.close(&mut tap);
        let stats = tap.stats();
        assert!(stats["tcp.reassembly_gap"] >= 59, "{}", stats["tcp.reassembly_gap"]);
        assert_eq!(stats["tcp.reassembly_memuse"], 0);
        let (flow, all) = tap.finish();
        assert_eq!((&flow["app_proto"], &flow["tcp"]["state"]), (&json!("http"), &json!("closed")), "{flow}");
        assert_eq!(flow["flow"]["state"], "closed");
        let http: Vec<_> = events::of_type(&all, "http").collect();
        let told = |e: &Value| json!([e["http"]["url"], e["http"]["hostname"], e["http"]["status"]]);
        let expected = json!([["/one", "cut.example", 200], ["/two", null, 204]]);
        assert_eq!(json!(http.iter().map(|e| told(e)).collect::<Vec<_>>()), expected);
        let file = events::first(&all, "fileinfo");
        assert_eq!(
            (&file["fileinfo"]["state"], &flow["tcp"]["tc_gap"]),
            (&json!("TRUNCATED"), &json!(true)),
            "{file}"
        );
        // What is there is found, and nothing across what is missing.
        let alerts: Vec<_> = events::of_type(&all, "alert").map(|e| &e["alert"]["signature_id"]).collect();
        assert!(!alerts.is_empty() && alerts.iter().all(|sid| **sid == 3), "{alerts:?}");
    }
}

#[test]
fn memory_of_cut_streams_stays_flat() {
    for (v6, port) in [(false, 80), (true, 80), (false, 5_001), (true, 5_001)] {
        let mut tap =
            Tap::new("cut-memory", "alert tcp any any -> any any (content:\"nowhere\"; sid:1;)\n", snap(v6));
        let mut connection = Connection::open(&mut tap, v6, port);
        connection.says(&mut tap, 0, PSH | ACK, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        connection.says(&mut tap, 1, PSH | ACK, b"HTTP/1.1 200 OK\r\n\r\n");
        let mut most = [0; 2];
        for number in 0..10_000 {
            connection.says(&mut tap, 1, ACK, &[b'd'; 1_400]);
            if number % 2 == 1 {
                connection.says(&mut tap, 0, ACK, b"");
            }
            if number % 100 == 99 {
                let stats = tap.stats();
                let held = stats["tcp.reassembly_memuse"] + stats["app_layer_memory.used"];
                let half = usize::from(number >= 1_000);
                most[half] = held.max(most[half]);
            }
        }
        assert!(most[1] <= most[0] && most[0] < 1 << 20, "{most:?}");
        connection.close(&mut tap);
        let (flow, _) = tap.finish();
        assert_eq!(flow["tcp"]["state"], "closed", "{flow}");
    }
}

#[test]
fn a_cut_datagram_is_no_message_and_rules_see_what_is_there() {
    for v6 in [false, true] {
        let rules = "alert udp any any -> any any (content:\"begin\"; dsize:300; sid:1;)\n\
                     alert udp any any -> any any (content:\"the end\"; sid:2;)\n\
                     alert udp any any -> any any (content:\"begin\"; content:!\"the end\"; sid:3;)\n\
                     alert udp any any -> any any (content:\"begin\"; isdataat:200; sid:4;)\n\
                     alert udp any any -> any any (content:\"begin\"; dsize:<100; sid:5;)\n\
                     alert udp any any -> any any (udpv4-csum:invalid; sid:6;)\n\
                     alert udp any any -> any any (udpv6-csum:invalid; sid:7;)\n";
        let mut tap = Tap::new("cut-udp", rules, snap(v6));
        let load = [&b"begin"[..], &[b'.'; 288], b"the end"].concat();
        tap.sees(0, &udp((address(v6, 1), 4_000), (address(v6, 2), 53), &load).frame());
        let stats = tap.stats();
        assert_eq!(stats["capture.cut_unparsed"], 1);
        let (flow, all) = tap.finish();
        assert!(flow["app_proto"].is_null() || flow["app_proto"] == "failed", "{flow}");
        let mut alerts: Vec<_> =
            events::of_type(&all, "alert").map(|e| e["alert"]["signature_id"].as_u64().unwrap()).collect();
        alerts.sort_unstable();
        assert_eq!(alerts, [1, 3]);

        // Messages that are whole are parsed as ever.
        let mut tap = Tap::new("cut-dns", "", snap(v6));
        let query = dns::query(7, "a.example", 1);
        tap.sees(0, &udp((address(v6, 1), 4_000), (address(v6, 2), 53), &query).frame());
        assert_eq!(tap.stats()["capture.cut_unparsed"], 0);
        let (flow, all) = tap.finish();
        assert_eq!(flow["app_proto"], "dns");
        assert_eq!(events::of_type(&all, "dns").count(), 1);
    }
}

#[test]
fn a_datagram_with_a_cut_fragment_never_becomes_whole() {
    for v6 in [false, true] {
        let rules = "alert udp any any -> any any (content:\"fragment\"; sid:1;)\n";
        let (from, to) = (address(v6, 1), address(v6, 2));
        let ip = Ip { id: 77, ..Ip::new(from, to, 17) };
        let body =
            Datagram::new((4_000, 5_000), &[b"a fragment".repeat(10), vec![0; 300]].concat()).bytes(&ip);
        let frames = ip.fragment_frames(&body, 200);
        for (snap, cut, whole) in [(1_500, 0, 1), (150, frames.len() as u64 - 1, 0)] {
            let mut tap = Tap::new("cut-fragments", rules, snap);
            frames.iter().for_each(|frame| tap.sees(0, frame));
            let stats = tap.stats();
            let long = frames.iter().filter(|frame| frame.len() > snap).count() as u64;
            assert!(whole == 1 || long >= cut, "{long}");
            let version = if v6 { "ipv6" } else { "ipv4" };
            assert_eq!(stats["defrag.dropped.cut"], long, "{version}");
            assert_eq!(stats[format!("defrag.{version}.fragments").as_str()], frames.len() as u64);
            assert_eq!(stats[format!("defrag.{version}.reassembled").as_str()], whole);
            let (_, all) = tap.stack.finish();
            assert_eq!(events::of_type(&all, "alert").count() as u64, whole);
        }
    }
}

#[test]
fn a_packet_in_a_cut_tunnel_is_decoded_as_far_as_it_is_there() {
    for v6 in [false, true] {
        let (from, to) = (address(v6, 1), address(v6, 2));
        let ip = Ip::new(from, to, 6);
        let segment = Segment::new((40_000, 5_001), (1, 0), SYN, &[]).bytes(&ip);
        let inner = ethernet_ip(v6, &ip.packet(&segment, None));
        let frame = udp(
            (address(false, 3), 9_999),
            (address(false, 4), 4_789),
            &[vxlan(5, &inner), vec![0; 400]].concat(),
        )
        .frame();
        let mut tap = Tap::new("cut-vxlan", "", 50 + inner.len());
        tap.sees(0, &frame);
        let (_, all) = tap.stack.finish();
        let mut told: Vec<_> = events::of_type(&all, "flow")
            .map(|e| (e["proto"].to_string(), e["flow"]["bytes_toserver"].as_u64()))
            .collect();
        told.sort();
        let wire = frame.len() as u64;
        assert_eq!(told, [("\"TCP\"".to_owned(), Some(wire - 64)), ("\"UDP\"".to_owned(), Some(wire))]);
    }
}
