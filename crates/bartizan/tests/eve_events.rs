// SPDX-License-Identifier: Apache-2.0
//! The content of events, through the whole program over captures: bodies and files of alerts, counters of
//! `stats`, gaps of streams, all of it equal with any number of workers.

use crate::sample as common;

use bartizan_testkit_worker::events;
use common::{ACK, Capture, FIN, Folder, PSH, SYN};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A client and a server, over IPv4 and IPv6.
fn ends() -> [(IpAddr, IpAddr); 2] {
    [("10.0.0.1", "192.0.2.7"), ("2001:db8::1", "2001:db8:1::7")]
        .map(|(c, s)| (c.parse().unwrap(), s.parse().unwrap()))
}

fn inspect(folder: &Folder, rules: &str, out: &str, more: &[&str]) {
    folder.write("r.rules", rules);
    let args = ["inspect", "--rules", "r.rules", "--out", out, "--json"];
    let ran = folder.run(&[&args[..], more, &["c.pcap"][..]].concat());
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
}

#[test]
fn an_alert_shows_bodies_when_asked_and_files_of_its_side_only() {
    let folder = Folder::new("bodies");
    let mut capture = Capture::default();
    for (client, server) in ends() {
        capture.exchange(
            (client, 40_000),
            (server, 80),
            b"POST /in HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nname=\x01evil",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfound",
        );
    }
    folder.write("c.pcap", capture.pcap());
    let rules = "alert http any any -> any any (msg:\"q\"; flow:to_server; http.request_body; content:\"evil\"; sid:1;)\n\
                 alert http any any -> any any (msg:\"a\"; flow:to_client; http.stat_code; content:\"200\"; sid:2;)\n";
    let bodies = [
        "--set",
        "outputs.1.eve-log.types.0.alert.http-body=yes",
        "--set",
        "outputs.1.eve-log.types.0.alert.http-body-printable=yes",
    ];
    inspect(&folder, rules, "with", &bodies);
    inspect(&folder, rules, "without", &[]);
    let alerts = folder.events("with", "alert");
    assert_eq!(alerts.len(), 4, "{alerts:?}");
    for alert in &alerts {
        let http = &alert["http"];
        assert_eq!(http["http_request_body"], "bmFtZT0BZXZpbA==", "{alert}");
        assert_eq!(http["http_request_body_printable"], "name=.evil", "{alert}");
        let names: Vec<&Value> =
            alert["files"].as_array().into_iter().flatten().map(|f| &f["size"]).collect();
        if alert["alert"]["signature_id"] == 1 {
            // The request's body is a file of its own; the answer's is not its matter.
            assert_eq!(names, [&Value::from(10)], "{alert}");
        } else {
            assert_eq!(http["http_response_body"], "Zm91bmQ=", "{alert}");
            assert_eq!(http["http_response_body_printable"], "found", "{alert}");
            assert_eq!(names, [&Value::from(5)], "{alert}");
        }
    }
    for alert in folder.events("without", "alert") {
        assert!(!alert["http"].to_string().contains("_body"), "{alert}");
    }
}

/// An answer with a missing segment that the client acknowledges nevertheless.
fn gap(capture: &mut Capture, client: (IpAddr, u16), server: (IpAddr, u16)) {
    capture.tcp(client, server, (100, 0), SYN, b"");
    capture.tcp(server, client, (900, 101), SYN | ACK, b"");
    capture.tcp(client, server, (101, 901), ACK, b"");
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let after = 101 + request.len() as u32;
    capture.tcp(client, server, (101, 901), PSH | ACK, request);
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n";
    let body = 901 + head.len() as u32;
    capture.tcp(server, client, (901, after), PSH | ACK, head);
    capture.tcp(server, client, (body + 10, after), PSH | ACK, b"this comes after ten");
    capture.tcp(client, server, (after, body + 30), ACK, b"");
    capture.tcp(client, server, (after, body + 30), FIN | ACK, b"");
    capture.tcp(server, client, (body + 30, after + 1), FIN | ACK, b"");
    capture.tcp(client, server, (after + 1, body + 31), ACK, b"");
}

#[test]
fn a_flow_tells_of_its_gap_and_stats_of_what_was_counted() {
    let folder = Folder::new("gap");
    let mut capture = Capture::default();
    for (client, server) in ends() {
        gap(&mut capture, (client, 41_000), (server, 80));
        // An unanswered SYN, and a connection whose ports are used again.
        capture.tcp((client, 41_001), (server, 22), (7, 0), SYN, b"");
        capture.exchange((client, 41_002), (server, 80), common::REQUEST, common::RESPONSE);
        capture.tcp((client, 41_002), (server, 80), (5_000, 0), SYN, b"");
    }
    folder.write("c.pcap", capture.pcap());
    let rules = "alert http any any -> any any (msg:\"bit\"; http.uri; content:\"passwd\"; flowbits:set,x; flowbits:noalert; sid:1;)\n";
    inspect(&folder, rules, "o", &[]);
    let gaps: Vec<Value> =
        folder.events("o", "flow").into_iter().filter(|f| f["src_port"] == 41_000).collect();
    assert_eq!(gaps.len(), 2);
    for flow in gaps {
        assert_eq!((flow["tcp"].get("ts_gap"), &flow["tcp"]["tc_gap"]), (None, &Value::Bool(true)), "{flow}");
    }
    let all = folder.events("o", "stats");
    let event = all.last().expect("an event of type stats");
    let (stats, own) = (&event["stats"], &event["bartizan"]);
    for (path, value) in [
        ("/flow/total", 8),
        ("/flow/end/tcp_state/closed", 4),
        ("/flow/end/tcp_state/syn_sent", 4),
        ("/flow/tcp_reuse", 2),
        ("/tcp/reassembly_gap", 2),
        ("/detect/alert", 0),
        ("/detect/alerts_suppressed", 2),
        ("/detect/engines/0/rules_loaded", 1),
        ("/app_layer/flow/http", 4),
        ("/app_layer/tx/http", 4),
        ("/app_layer/flow/dns_udp", 0),
        ("/tcp/invalid_checksum", 0),
    ] {
        assert_eq!(stats.pointer(path), Some(&Value::from(value)), "{path}: {stats}");
    }
    assert!(
        stats["detect"]["engines"][0]["last_reload"].as_str().is_some_and(|t| t.starts_with("20")),
        "{stats}"
    );
    // What this program does not do as Suricata does is not counted at all.
    for path in
        ["/tcp/pseudo", "/flow/spare", "/tcp/pkt_on_wrong_thread", "/tcp/rewritten", "/flow/end/reason"]
    {
        assert_eq!(stats.pointer(path), None, "{path}");
    }
    assert_eq!(
        (&own["version"], &own["stats"]["flow"]["end"]["reason"]["tcp_reuse"]),
        (&1.into(), &2.into()),
        "{own}"
    );
    assert!(own["stats"]["tcp"]["checksums_checked"].as_u64() > Some(40), "{own}");
    // Without rules there is no detection to be counted.
    inspect(&folder, "", "none", &[]);
    assert_eq!(folder.events("none", "stats")[0]["stats"].get("detect"), None);
    inspect(&folder, rules, "off", &["--set", "stats.enabled=no"]);
    assert_eq!(folder.events("off", "stats").len(), 0);
}

#[test]
fn captures_whose_checksums_are_mostly_wrong_are_told_of() {
    let folder = Folder::new("checksums");
    let mut capture = Capture::default();
    for (client, server) in ends() {
        capture.exchange((client, 42_000), (server, 80), common::REQUEST, common::RESPONSE);
    }
    let mut bytes = capture.pcap();
    // Each TCP checksum: after the file's head, in each record.
    let (mut at, mut frames) = (24, 0);
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
        let tcp = at + 16 + 14 + if bytes[at + 16 + 12] == 8 { 20 } else { 40 };
        bytes[tcp + 16] ^= 0x5a;
        (at, frames) = (at + 16 + length, frames + 1);
    }
    assert_eq!(frames, 18);
    folder.write("c.pcap", bytes);
    folder.write("r.rules", common::RULES);
    let check = ["inspect", "--rules", "r.rules", "--out", "o", "c.pcap", "--set"];
    let ran = folder.run(&[&check[..], &["capture.checksum-validation=all"]].concat());
    assert!(ran.stderr().contains("18 of 18 TCP segments have a wrong checksum"), "{}", ran.stderr());
    assert!(ran.stderr().contains("--set capture.checksum-validation=none"), "{}", ran.stderr());
    let stats = folder.events("o", "stats");
    assert_eq!(stats[0]["bartizan"]["stats"]["tcp"]["checksums_mostly_wrong"], 1);
    let ran = folder.run(&[&check[..], &["capture.checksum-validation=none"]].concat());
    assert!(!ran.stderr().contains("wrong checksum"), "{}", ran.stderr());
}

/// Events without members that always differ: numbers of flows, and statistics.
fn multiset(folder: &Folder, out: &str) -> BTreeMap<String, u32> {
    let mut events = BTreeMap::new();
    for event in events::read(&folder.path().join(out).join("eve.json")) {
        if event["event_type"] != "stats" {
            *events.entry(events::without_flow_id(&event)).or_default() += 1;
        }
    }
    events
}

#[test]
fn events_are_the_same_with_any_number_of_workers() {
    let folder = Folder::new("threads");
    let mut capture = Capture::default();
    // Connections of one host to many others, close together: which of them alerts is a matter of their
    // order.
    for round in 0..4u16 {
        for host in 1..=60u8 {
            for server in [IpAddr::from([192, 0, 2, host]), format!("2001:db8:1::{host:x}").parse().unwrap()]
            {
                let client = ends()[usize::from(server.is_ipv6())].0;
                let uri = if host % 9 == 0 { "/mark" } else { "/evil" };
                let request = format!("GET {uri} HTTP/1.1\r\nHost: h{host}\r\n\r\n");
                capture.exchange(
                    (client, 20_000 + round * 100 + u16::from(host)),
                    (server, 80),
                    request.as_bytes(),
                    common::RESPONSE,
                );
            }
        }
    }
    folder.write("c.pcap", capture.pcap());
    folder.write("seen.lst", "");
    let rules = "alert http any any -> any any (msg:\"some\"; http.uri; content:\"evil\"; threshold:type threshold, track by_src, count 5, seconds 3; sid:1;)\n\
                 alert http any any -> any any (msg:\"one\"; http.uri; content:\"evil\"; threshold:type limit, track by_src, count 2, seconds 2; sid:2;)\n\
                 alert http any any -> any any (msg:\"set\"; http.uri; content:\"mark\"; xbits:set,m,track ip_src,expire 1; sid:3;)\n\
                 alert http any any -> any any (msg:\"is\"; http.uri; content:\"evil\"; xbits:isset,m,track ip_src; sid:4;)\n\
                 alert http any any -> any any (msg:\"new\"; http.host; dataset:set,seen,type string; sid:5;)\n\
                 alert tcp any any -> any any (msg:\"tag\"; content:\"mark\"; tag:host,3,packets,src; sid:6;)\n";
    inspect(&folder, rules, "one", &["--threads", "1"]);
    let one = multiset(&folder, "one");
    let alerts = |sid: u32| one.keys().filter(|e| e.contains(&format!("\"signature_id\":{sid},"))).count();
    for sid in 1..=5 {
        assert!(alerts(sid) > 3, "{sid}: {}", alerts(sid));
    }
    for run in 0..6 {
        for threads in ["2", "4"] {
            let out = format!("many-{threads}-{run}");
            inspect(&folder, rules, &out, &["--threads", threads]);
            let many = multiset(&folder, &out);
            let differs: Vec<_> = one
                .iter()
                .filter(|(event, count)| many.get(*event) != Some(count))
                .chain(many.iter().filter(|(event, _)| !one.contains_key(*event)))
                .collect();
            assert!(
                differs.is_empty(),
                "{threads} workers, run {run}: {} differ: {:?}",
                differs.len(),
                &differs[..differs.len().min(4)]
            );
        }
    }
}

/// A suricata.yaml with the event types that are off as shipped.
const TYPES: &str = "%YAML 1.1\n---\noutputs:\n  - eve-log:\n      enabled: yes\n      filetype: regular\n      filename: eve.json\n      types:\n";

fn with_types(folder: &Folder, types: &str, rules: &str, out: &str) {
    let list: String = types.split_whitespace().map(|name| format!("        - {name}\n")).collect();
    folder.write("types.yaml", format!("{TYPES}{list}"));
    inspect(folder, rules, out, &["--suricata-config", "types.yaml"]);
}

#[test]
fn arp_messages_have_events_when_asked() {
    let folder = Folder::new("arp");
    let mut capture = Capture::default();
    let macs = [[2u8, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
    let hosts = [[10u8, 0, 0, 1], [10, 0, 0, 2]];
    let message = |operation: u8, from: usize, to_mac: [u8; 6]| {
        let mut frame = [&[0xff; 6][..], &macs[from], &[8, 6, 0, 1, 8, 0, 6, 4, 0, operation]].concat();
        frame.extend_from_slice(&[&macs[from][..], &hosts[from], &to_mac, &hosts[1 - from]].concat());
        frame
    };
    let cut = message(1, 0, [0; 6])[..30].to_vec();
    for frame in
        [message(1, 0, [0; 6]), message(2, 1, macs[0]), message(3, 0, macs[1]), message(4, 1, macs[0]), cut]
    {
        capture.frame(frame);
    }
    folder.write("c.pcap", capture.pcap());
    with_types(&folder, "arp", "", "on");
    let events = folder.events("on", "arp");
    let says = |event: &Value, member: &str| event["arp"][member].as_str().unwrap_or_default().to_owned();
    let all: Vec<_> = events.iter().map(|e| (e["pcap_cnt"].clone(), says(e, "opcode"))).collect();
    // One that is cut off is a decode event, and no message.
    let names = ["request", "reply", "request_reverse", "reply_reverse"];
    let expected: Vec<_> =
        names.iter().zip(1..).map(|(name, n)| (Value::from(n), (*name).to_owned())).collect();
    assert_eq!(all, expected);
    let first = &events[0];
    for (member, value) in [
        ("hw_type", "ethernet"),
        ("proto_type", "ipv4"),
        ("src_mac", "02:00:00:00:00:01"),
        ("src_ip", "10.0.0.1"),
        ("dest_mac", "00:00:00:00:00:00"),
        ("dest_ip", "10.0.0.2"),
    ] {
        assert_eq!(says(first, member), value, "{first}");
    }
    // It belongs to no flow and has no addresses of its own.
    assert!(first.get("flow_id").is_none() && first.get("src_ip").is_none(), "{first}");
    with_types(&folder, "flow", "", "off");
    assert_eq!(folder.events("off", "arp").len(), 0);
}

#[test]
fn packets_that_set_variables_have_metadata_events_when_asked() {
    let folder = Folder::new("metadata");
    let mut capture = Capture::default();
    for (client, server) in ends() {
        capture.exchange((client, 40_000), (server, 80), common::REQUEST, common::RESPONSE);
    }
    folder.write("c.pcap", capture.pcap());
    // Values of a packet are reported with that packet; bits of a flow are listed beside them.
    let rules = "alert http any any -> any any (msg:\"bit\"; http.method; content:\"GET\"; flowbits:set,traffic/label/web; flowbits:set,seen; noalert; sid:1;)
alert tcp any any -> any any (msg:\"value\"; flow:to_server; content:\"GET\"; pcre:\"/GET (?P<pkt_path>\\S+)/\"; sid:2;)
";
    with_types(&folder, "metadata alert", rules, "on");
    let events = folder.events("on", "metadata");
    assert_eq!(events.len(), 2, "{events:?}");
    for (event, alert) in events.iter().zip(folder.events("on", "alert")) {
        let path = std::str::from_utf8(common::REQUEST).unwrap().split(' ').nth(1).unwrap();
        let metadata = &event["metadata"];
        assert_eq!(metadata["pktvars"], serde_json::json!([{ "path": path }]), "{event}");
        assert_eq!((&event["pcap_cnt"], &event["flow_id"]), (&alert["pcap_cnt"], &alert["flow_id"]));
        assert_eq!(alert["metadata"]["pktvars"], metadata["pktvars"], "{alert}");
    }
    // A rule that sets no value of a packet makes none.
    with_types(&folder, "metadata alert", rules.lines().next().unwrap(), "bits");
    assert_eq!(folder.events("bits", "metadata").len(), 0);
    with_types(&folder, "alert", rules, "off");
    assert_eq!(folder.events("off", "metadata").len(), 0);
}

/// Data that the engine makes at a flow's end is in no frame: a match on it is an alert, and no frame is
/// dropped.
#[test]
fn a_match_at_the_end_of_a_flow_drops_no_frame() {
    let folder = Folder::new("dropped-at-the-end");
    let mut capture = Capture::default();
    let ((client, server), answer) = (ends()[0], b"HTTP/1.1 200 OK\r\nServer: a\r\n\r\nas long as it takes");
    let (client, server) = ((client, 43_000), (server, 80));
    capture.tcp(client, server, (100, 0), SYN, b"");
    capture.tcp(server, client, (900, 101), SYN | ACK, b"");
    capture.tcp(client, server, (101, 901), ACK, b"");
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    capture.tcp(client, server, (101, 901), PSH | ACK, request);
    capture.tcp(server, client, (901, 101 + request.len() as u32), PSH | ACK, answer);
    folder.write("c.pcap", capture.pcap());
    let rule = "drop http any any -> any any (msg:\"m\"; flow:to_client; filesize:>3; sid:1;)";
    folder.write("types.yaml", format!("{TYPES}        - alert\n        - drop\n"));
    inspect(&folder, rule, "o", &["--suricata-config", "types.yaml", "--ips"]);
    let alerts = folder.events("o", "alert");
    assert_eq!(alerts.len(), 1);
    assert_eq!((&alerts[0]["alert"]["action"], alerts[0].get("pcap_cnt")), (&Value::from("blocked"), None));
    assert_eq!(folder.events("o", "drop").len(), 0);
}

/// Alerts that a threshold holds back count as suppressed, also before the threshold is reached (as
/// Suricata 8.0.8 counts).
#[test]
fn matches_below_a_threshold_are_counted() {
    let folder = Folder::new("suppressed");
    let mut capture = Capture::default();
    for (client, server) in ends() {
        for port in 0..4 {
            capture.exchange((client, 42_000 + port), (server, 80), common::REQUEST, common::RESPONSE);
        }
    }
    folder.write("c.pcap", capture.pcap());
    for (kind, alerts, suppressed) in [
        ("threshold:type both, track by_src, count 3, seconds 60", 2, 6),
        ("threshold:type threshold, track by_src, count 3, seconds 60", 2, 6),
        ("threshold:type limit, track by_src, count 3, seconds 60", 6, 2),
        ("detection_filter:track by_src, count 3, seconds 60", 2, 6),
        ("noalert", 0, 8),
    ] {
        let rule = format!(
            "alert http any any -> any any (msg:\"m\"; http.method; content:\"GET\"; {kind}; sid:1;)"
        );
        let out = kind.get(..24).unwrap_or(kind).replace(' ', "-");
        inspect(&folder, &rule, &out, &[]);
        let detect = &folder.events(&out, "stats")[0]["stats"]["detect"];
        let counted = (detect["alert"].as_u64(), detect["alerts_suppressed"].as_u64());
        assert_eq!(counted, (Some(alerts), Some(suppressed)), "{kind}");
    }
}
