// SPDX-License-Identifier: Apache-2.0
//! Options of the EVE outputs, through the whole program over captures, over IPv4 and IPv6: the client behind
//! a proxy (`xff`), the order of Ethernet addresses (`ethernet`), `drop` records and `blocked`. The expected
//! results are those of Suricata 8.0.8 for the same packets.

use crate::sample as common;

use bartizan_testkit::packet::{self, Layer, Packet};
use common::{ACK, Capture, FIN, Folder, PSH, SYN};
use serde_json::{Value, json};
use std::net::IpAddr;

type End = (IpAddr, u16);

/// A client and a server, over IPv4 and IPv6.
fn ends() -> [(End, End); 2] {
    [("10.0.0.1", "192.0.2.7"), ("2001:db8::1", "2001:db8:1::7")]
        .map(|(c, s)| ((c.parse().unwrap(), 40_000), (s.parse().unwrap(), 80)))
}

/// Runs the program with these settings of the output, `KEY=VALUE` below `outputs.1.eve-log`.
fn inspect(folder: &Folder, rules: &str, out: &str, options: &[&str], more: &[&str]) {
    folder.write("r.rules", rules);
    let options: Vec<String> = options.iter().map(|option| format!("outputs.1.eve-log.{option}")).collect();
    let options = options.iter().flat_map(|option| ["--set", option]);
    let args = ["inspect", "--rules", "r.rules", "--out", out, "--json"];
    let args: Vec<&str> =
        args.into_iter().chain(options).chain(more.iter().copied()).chain(["c.pcap"]).collect();
    let ran = folder.run(&args);
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
}

/// A connection with requests with these headers, each with its answer; `together`: all requests, then all
/// answers.
fn requests(capture: &mut Capture, (client, server): (End, End), fields: [&str; 3], together: bool) {
    let (mut c, mut s) = (101u32, 901u32);
    capture.tcp(client, server, (100, 0), SYN, b"");
    capture.tcp(server, client, (900, 101), SYN | ACK, b"");
    capture.tcp(client, server, (101, 901), ACK, b"");
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfound";
    let turns = if together { [0, 0, 3] } else { [1; 3] };
    for (field, answers) in fields.into_iter().zip(turns) {
        let request = format!("GET /a HTTP/1.1\r\nHost: a\r\n{field}\r\n");
        capture.tcp(client, server, (c, s), PSH | ACK, request.as_bytes());
        c += request.len() as u32;
        for _ in 0..answers {
            capture.tcp(server, client, (s, c), PSH | ACK, answer);
            s += answer.len() as u32;
            capture.tcp(client, server, (c, s), ACK, b"");
        }
    }
    capture.tcp(client, server, (c, s), FIN | ACK, b"");
    capture.tcp(server, client, (s, c + 1), FIN | ACK, b"");
    capture.tcp(client, server, (c + 1, s + 1), ACK, b"");
}

/// The headers of a connection's three requests; the second has none.
const NAMED: [&str; 3] =
    ["X-Forwarded-For: 192.0.2.99, 2001:DB8::7\r\n", "", "x-forwarded-for: 203.0.113.9:8080\r\n"];

/// Requests of a proxy, by IPv4 and IPv6.
fn behind_a_proxy(fields: [&str; 3], together: bool) -> Vec<u8> {
    let mut capture = Capture::default();
    ends().into_iter().for_each(|ends| requests(&mut capture, ends, fields, together));
    capture.pcap()
}

const RULES: &str = "\
alert http any any -> any any (msg:\"uri\"; flow:to_server; http.uri; content:\"/a\"; target:src_ip; sid:1;)
alert tcp any any -> any any (msg:\"answer\"; flow:to_client; dsize:>0; content:\"found\"; target:dest_ip; sid:2;)
";

/// The two addresses of an event with the extra one.
fn shown(event: &Value) -> [&str; 3] {
    let extra = event["xff"].as_str().or(event["alert"]["xff"].as_str()).unwrap_or("-");
    [event["src_ip"].as_str().unwrap(), event["dest_ip"].as_str().unwrap(), extra]
}

/// Events of a type (for alerts, of a rule) of one IP version, as `shown`.
fn all_shown(folder: &Folder, out: &str, (kind, sid): (&str, u64), version: u64) -> Vec<[String; 3]> {
    let events = folder.events(out, kind).into_iter();
    let events = events.filter(|e| e["ip_v"] == version && (sid == 0 || e["alert"]["signature_id"] == sid));
    events.map(|event| shown(&event).map(str::to_owned)).collect()
}

#[test]
fn records_show_for_whom_a_proxy_forwards() {
    let folder = Folder::new("xff");
    folder.write("c.pcap", behind_a_proxy(NAMED, false));
    let [on, extra, instead] = ["xff.enabled=yes", "xff.mode=extra-data", "xff.mode=overwrite"];
    let [reverse, forward] = ["xff.deployment=reverse", "xff.deployment=forward"];
    inspect(&folder, RULES, "extra", &[on, extra, reverse], &[]);
    inspect(&folder, RULES, "forward", &[on, extra, forward], &[]);
    inspect(&folder, RULES, "instead", &[on, instead, reverse], &[]);
    inspect(&folder, RULES, "inline", &[on, instead, reverse], &["--ips"]);
    inspect(&folder, RULES, "off", &["xff.enabled=no", extra, reverse], &[]);
    let of = |out, what, version| all_shown(&folder, out, what, version);
    for (version, c, s) in [
        (4, "10.0.0.1", "192.0.2.7"),
        (6, "2001:0db8:0000:0000:0000:0000:0000:0001", "2001:0db8:0001:0000:0000:0000:0000:0007"),
    ] {
        let (first, last) = ("2001:DB8::7", "203.0.113.9");
        for what in [("http", 0), ("alert", 1)] {
            assert_eq!(of("extra", what, version), [[c, s, first], [c, s, "-"], [c, s, last]], "{what:?}");
            assert_eq!(
                of("forward", what, version),
                [[c, s, "192.0.2.99"], [c, s, "-"], [c, s, last]],
                "{what:?}"
            );
            assert_eq!(of("off", what, version), [[c, s, "-"]; 3], "{what:?}");
        }
        assert_eq!(of("extra", ("fileinfo", 0), version), [[s, c, first], [s, c, "-"], [s, c, last]]);
        // No rule on a transaction: by the first one that is held. With the second answer that is still the
        // first.
        assert_eq!(of("extra", ("alert", 2), version), [[s, c, first], [s, c, first], [s, c, last]]);

        assert_eq!(of("instead", ("http", 0), version), [[first, s, "-"], [c, s, "-"], [last, s, "-"]]);
        assert_eq!(of("instead", ("fileinfo", 0), version), [[s, first, "-"], [s, c, "-"], [s, last, "-"]]);
        assert_eq!(of("instead", ("alert", 1), version), [[first, s, first], [c, s, "-"], [last, s, last]]);
        assert_eq!(
            of("instead", ("alert", 2), version),
            [[s, first, first], [s, first, first], [s, last, last]]
        );
        // A record that shows the flow, with a packet of the server: Suricata puts the address in the
        // server's place.
        assert_eq!(of("inline", ("http", 0), version), [[c, first, "-"], [c, s, "-"], [c, last, "-"]]);
    }
    for alert in folder.events("instead", "alert") {
        let client = if alert["direction"] == "to_server" { &alert["src_ip"] } else { &alert["dest_ip"] };
        assert_eq!(&alert["flow"]["src_ip"], client, "{alert}");
        assert_eq!(&alert["alert"]["target"]["ip"], client, "{alert}");
    }
    // The flow's own events have the addresses on the wire.
    for flow in folder.events("instead", "flow") {
        assert!(flow["src_ip"] == "10.0.0.1" || flow["ip_v"] == 6, "{flow}");
    }
}

#[test]
fn an_alert_of_no_transaction_asks_all_that_are_held() {
    let folder = Folder::new("xff-held");
    let fields = ["", "X-Forwarded-For: 198.51.100.4\r\n", "X-Forwarded-For: 198.51.100.5\r\n"];
    folder.write("c.pcap", behind_a_proxy(fields, true));
    inspect(&folder, RULES, "o", &["xff.enabled=yes"], &[]);
    for version in [4, 6] {
        let extra = |sid| {
            let all = all_shown(&folder, "o", ("alert", sid), version);
            all.into_iter().map(|[_, _, extra]| extra).collect::<Vec<_>>()
        };
        // Rules on the stream see the first answer beside three requests; the first of these has no such
        // header.
        assert_eq!(extra(2), ["198.51.100.4", "198.51.100.4", "198.51.100.4"]);
        assert_eq!(extra(1), ["198.51.100.5", "198.51.100.4", "-"]);
    }
}

#[test]
fn a_type_has_its_own_view_of_proxies() {
    let folder = Folder::new("xff-types");
    folder.write("c.pcap", behind_a_proxy(NAMED, false));
    let options = [
        "xff.enabled=yes",
        "xff.mode=overwrite",
        "types.0.alert.xff.enabled=yes",
        "types.0.alert.xff.header=X-Real-IP",
        "types.3.http.xff.enabled=yes",
        "types.3.http.xff.deployment=forward",
        "types.7.files.xff.enabled=no",
    ];
    inspect(&folder, RULES, "o", &options, &[]);
    let none = |kind| {
        folder
            .events("o", kind)
            .iter()
            .all(|event| shown(event)[2] == "-" && event["flow"]["src_ip"] != "2001:DB8::7")
    };
    assert!(none("alert") && none("fileinfo"));
    let http: Vec<_> = folder.events("o", "http").iter().map(|event| event["xff"].clone()).collect();
    let expected = [json!("192.0.2.99"), Value::Null, json!("203.0.113.9")];
    assert_eq!(http, [expected.clone(), expected].concat());
    assert!(folder.events("o", "fileinfo").iter().all(|event| event["dest_ip"] != "2001:DB8::7"));
}

#[test]
fn records_beside_kept_files_show_it_by_their_own_setting() {
    let folder = Folder::new("xff-store");
    folder.write("c.pcap", behind_a_proxy(NAMED, false));
    folder.write(
        "s.yaml",
        "%YAML 1.1\n---\noutputs:\n  - file-store: {version: 2, enabled: yes, force-filestore: yes, write-fileinfo: yes, dir: kept, \
         xff: {enabled: yes, mode: overwrite, deployment: reverse, header: X-Forwarded-For}}\n  \
         - eve-log: {enabled: yes, filename: eve.json, types: [files]}\n",
    );
    inspect(&folder, "", "o", &[], &["--suricata-config", "s.yaml"]);
    let kept = folder.path().join("o/kept");
    let folders =
        std::fs::read_dir(kept).unwrap().filter_map(|entry| std::fs::read_dir(entry.unwrap().path()).ok());
    let records = folders
        .flatten()
        .map(|entry| entry.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "json"));
    let mut ends: Vec<String> = records
        .map(|path| serde_json::from_slice::<Value>(&std::fs::read(path).unwrap()).unwrap())
        .map(|record| record["dest_ip"].as_str().unwrap().to_owned())
        .collect();
    ends.sort();
    ends.dedup();
    assert!(ends.contains(&"2001:DB8::7".to_owned()), "{ends:?}");
    assert!(folder.events("o", "fileinfo").iter().all(|event| event["dest_ip"] != "2001:DB8::7"));
}

const CLIENT_MAC: &str = "02:00:00:00:00:03";
const SERVER_MAC: &str = "02:00:00:00:00:02";

/// Sends packets between these two, each with its own Ethernet address.
struct Wire {
    capture: Capture,
    client: IpAddr,
}

impl Wire {
    fn send(&mut self, mut packet: Packet) {
        if packet.ip.src != self.client {
            let ip = &mut packet.ip;
            std::mem::swap(&mut ip.mac, &mut ip.from_mac);
        }
        if let Layer::Tcp(segment) = &mut packet.layer {
            segment.window = 0xfaf0;
        }
        self.capture.frame(packet.frame());
    }

    /// A question and its answer, each acknowledged at once.
    fn talk(&mut self, client: End, server: End, question: &[u8], answer: &[u8]) {
        let (q, a) = (question.len() as u32, answer.len() as u32);
        self.send(packet::tcp(client, server, (100, 0), SYN, b""));
        self.send(packet::tcp(server, client, (900, 101), SYN | ACK, b""));
        self.send(packet::tcp(client, server, (101, 901), ACK, b""));
        self.send(packet::tcp(client, server, (101, 901), PSH | ACK, question));
        self.send(packet::tcp(server, client, (901, 101 + q), ACK, b""));
        self.send(packet::tcp(server, client, (901, 101 + q), PSH | ACK, answer));
        self.send(packet::tcp(client, server, (101 + q, 901 + a), ACK, b""));
        self.send(packet::tcp(client, server, (101 + q, 901 + a), FIN | ACK, b""));
        self.send(packet::tcp(server, client, (901 + a, 102 + q), FIN | ACK, b""));
        self.send(packet::tcp(client, server, (102 + q, 902 + a), ACK, b""));
    }
}

/// A DNS question for `a.test`, and its answer.
fn dns() -> [Vec<u8>; 2] {
    let asked = b"\x01a\x04test\0\0\x01\0\x01";
    let question = [&b"\0\x07\x01\0\0\x01\0\0\0\0\0\0"[..], asked].concat();
    let answer = [
        &b"\0\x07\x81\x80\0\x01\0\x01\0\0\0\0"[..],
        asked,
        b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x09",
    ];
    [question, answer.concat()]
}

#[test]
fn ethernet_addresses_stand_beside_their_hosts() {
    let folder = Folder::new("ethernet");
    let framed = |message: &[u8]| [&(message.len() as u16).to_be_bytes()[..], message].concat();
    let mut wire = Wire { capture: Capture::default(), client: ends()[0].0.0 };
    for (client, server) in ends() {
        wire.client = client.0;
        wire.talk(
            client,
            server,
            b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfound",
        );
        let [question, answer] = dns();
        let of = |(address, port): End, other| (address, if port == 80 { 53 } else { other });
        wire.send(packet::udp(of(client, 5000), of(server, 0), &question));
        wire.send(packet::udp(of(server, 0), of(client, 5000), &answer));
        wire.talk(of(client, 5001), of(server, 0), &framed(&question), &framed(&answer));
        // Without a flow there is no ID of one.
        wire.send(Packet { layer: Layer::Part(vec![1, 2]), ..packet::udp(client, server, b"") });
    }
    folder.write("c.pcap", wire.capture.pcap());
    let rules = "alert ip any any -> any any (msg:\"all\"; sid:1;)\n\
                 alert tcp any any -> any any (msg:\"data\"; flow:established; dsize:>0; sid:2;)\n";
    let options = ["ethernet=yes", "community-id=true", "types.34=netflow"];
    let old_dns = [&options[..], &["types.4.dns.version=2"]].concat();
    for (out, options, more) in [
        ("passive", &options[..], &[][..]),
        ("inline", &options[..], &["--ips"][..]),
        ("old", &old_dns[..], &[][..]),
    ] {
        inspect(&folder, rules, out, options, more);
        let addresses = [json!("10.0.0.1"), json!("2001:0db8:0000:0000:0000:0000:0000:0001")];
        for (kind, least) in
            [("http", 2), ("dns", 8), ("fileinfo", 2), ("alert", 8), ("flow", 6), ("netflow", 12)]
        {
            let events = folder.events(out, kind);
            let mut told = 0;
            for event in &events {
                let ether = &event["ether"];
                let [src, dest] = ["src", "dest"].map(|side| {
                    ether.get(format!("{side}_mac")).or_else(|| ether.get(format!("{side}_macs"))?.get(0))
                });
                let Some((src, dest)) = src.zip(dest) else { continue };
                let client_sends = addresses.contains(&event["src_ip"]);
                let macs = if client_sends { [CLIENT_MAC, SERVER_MAC] } else { [SERVER_MAC, CLIENT_MAC] };
                assert_eq!([src, dest], macs, "{out} {event}");
                told += 1;
            }
            assert!(told >= least, "{out} {kind}: {told} of {}", events.len());
        }
        let broken = folder.events(out, "alert").into_iter().filter(|e| e["flow_id"].is_null());
        let broken: Vec<_> = broken.map(|e| e["community_id"].clone()).collect();
        assert_eq!(broken, [Value::Null, Value::Null], "{out}");
        assert!(folder.events(out, "flow").iter().all(|e| e["community_id"].is_string()));
    }
}

/// Datagrams of a client, for both IP versions.
fn datagrams(payloads: [&[u8]; 4]) -> Vec<u8> {
    let mut capture = Capture::default();
    for (client, server) in ends() {
        payloads.into_iter().for_each(|payload| capture.udp(client, server, payload));
    }
    capture.pcap()
}

/// The `action` of a rule's alerts, for IPv4 and IPv6.
fn actions(folder: &Folder, out: &str, sid: u64) -> [Vec<String>; 2] {
    [4, 6].map(|version| {
        let alerts = folder.events(out, "alert").into_iter();
        let alerts = alerts.filter(|a| a["alert"]["signature_id"] == sid && a["ip_v"] == version);
        alerts.map(|a| a["alert"]["action"].as_str().unwrap().to_owned()).collect()
    })
}

#[test]
fn what_a_rate_filter_makes_of_a_rule_is_blocked_without_prevention_too() {
    let folder = Folder::new("rate-filter");
    folder.write("c.pcap", datagrams([b"evil"; 4]));
    folder.write(
        "t.config",
        "rate_filter gen_id 1, sig_id 1, track by_src, count 2, seconds 60, new_action drop, timeout 30\n\
         rate_filter gen_id 1, sig_id 2, track by_src, count 2, seconds 60, new_action reject, timeout 30\n\
         rate_filter gen_id 1, sig_id 3, track by_src, count 2, seconds 60, new_action pass, timeout 30\n\
         rate_filter gen_id 1, sig_id 4, track by_src, count 2, seconds 60, new_action alert, timeout 30\n\
         rate_filter gen_id 1, sig_id 5, track by_src, count 2, seconds 60, new_action alert, timeout 30\n",
    );
    let rule = |action: &str, sid| {
        format!("{action} udp any any -> any any (msg:\"r\"; content:\"evil\"; sid:{sid};)\n")
    };
    let verdicts = |out: &str| {
        let alerts = folder.events(out, "alert");
        alerts.iter().map(|a| a["verdict"]["action"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let run = |rules: &str, out: &str, more: &[&str]| {
        let more = [&["--set", "threshold-file=t.config"], more].concat();
        inspect(&folder, rules, out, &["types.0.alert.verdict=yes", "types.35=drop"], &more);
    };
    let turned = ["allowed", "allowed", "blocked", "blocked"].map(str::to_owned);
    let [never, always] = ["allowed", "blocked"].map(|word| [word; 4].map(str::to_owned));
    for (sid, want) in [(1, &turned[..]), (2, &turned), (3, &turned[..2]), (4, &never)] {
        run(&rule("alert", sid), "o", &[]);
        assert_eq!(actions(&folder, "o", sid), [want, want], "{sid}");
        assert!(folder.events("o", "drop").is_empty(), "nothing is refused");
        // The verdict is about the packet.
        assert!(verdicts("o").iter().all(|verdict| verdict == "alert"), "{sid}");
    }
    // A plain `drop` is `allowed`; what a rate filter has made an `alert` is what the packet is.
    for (out, more) in [("passive", &[][..]), ("inline", &["--ips"])] {
        run(&[rule("drop", 6), rule("alert", 5)].concat(), out, more);
        assert_eq!(actions(&folder, out, 5), [&turned, &turned], "{out}");
        let of_drop = if out == "passive" { &never } else { &always };
        assert_eq!(actions(&folder, out, 6), [of_drop, of_drop], "{out}");
    }
}

#[test]
fn the_record_of_a_refusal_names_the_rule_that_refuses_without_an_alert() {
    let folder = Folder::new("silent-refusal");
    folder.write("c.pcap", datagrams([b"evil", b"evil twin", b"noisy evil", b"limited"]));
    folder.write("t.config", "suppress gen_id 1, sig_id 3, track by_src, ip 10.0.0.1\n");
    let rules = "drop udp any any -> any any (msg:\"silent\"; content:\"evil\"; noalert; sid:1;)\n\
                 drop udp any any -> any any (msg:\"loud\"; content:\"noisy\"; sid:2;)\n\
                 drop udp any any -> any any (msg:\"suppressed\"; content:\"limited\"; sid:3;)\n";
    let options = ["types.35=drop", "types.35.drop.alerts=yes"];
    inspect(&folder, rules, "o", &options, &["--ips", "--set", "threshold-file=t.config"]);
    let named: Vec<_> =
        folder.events("o", "drop").iter().map(|d| d["alert"]["signature_id"].clone()).collect();
    // The third packet meets both: the one that alerts is named.
    let expected = [1, 1, 2, 3].map(Value::from);
    assert_eq!(named, [expected.clone(), expected].concat());
    assert_eq!(actions(&folder, "o", 3), [vec![], vec!["blocked".to_owned()]]);
    assert!(folder.events("o", "alert").iter().all(|alert| alert["alert"]["signature_id"] != 1));

    // A staged policy refuses nothing: what has no alert gets none.
    folder.write("p.yaml", "policies: [{name: p, staged: true, chain: [ids], ids: {rules: [r.rules]}}]\ndefault: {action: allow}\n");
    let ran = folder.run(&["inspect", "--policy", "p.yaml", "--ips", "--out", "staged", "--json", "c.pcap"]);
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    let alerts = folder.events("staged", "alert");
    assert!(alerts.iter().any(|alert| alert["alert"]["signature_id"] == 2), "{alerts:?}");
    assert!(alerts.iter().all(|alert| alert["alert"]["signature_id"] != 1), "{alerts:?}");
}

#[test]
fn an_alert_shows_what_was_acknowledged_and_what_its_buffer_holds() {
    let folder = Folder::new("payload");
    let requests = [&b"GET /first HTTP/1.1\r\nHost: a\r\n\r\n"[..], b"GET /then HTTP/1.1\r\nHost: a\r\n\r\n"];
    let mut capture = Capture::default();
    for (client, server) in ends() {
        let (mut c, s) = (101, 901);
        capture.tcp(client, server, (100, 0), SYN, b"");
        capture.tcp(server, client, (900, 101), SYN | ACK, b"");
        capture.tcp(client, server, (101, 901), ACK, b"");
        for request in requests {
            capture.tcp(client, server, (c, s), PSH | ACK, request);
            c += request.len() as u32;
            capture.tcp(server, client, (s, c), ACK, b"");
        }
        capture.tcp(client, server, (c, s), FIN | ACK, b"");
        capture.tcp(server, client, (s, c + 1), FIN | ACK, b"");
    }
    folder.write("c.pcap", capture.pcap());
    let rules = "alert http any any -> any any (msg:\"u\"; http.uri; content:\"/first\"; sid:1;)\n\
                 alert tcp any any -> any any (msg:\"s\"; flags:S; sid:2;)\n";
    let shown = [
        "types.0.alert.payload=yes",
        "types.0.alert.payload-printable=yes",
        "types.0.alert.payload-length=yes",
    ];
    let small = [&shown[..], &["types.0.alert.payload-buffer-size=10"]].concat();
    for (out, options, text) in [("whole", &shown[..], requests[0]), ("small", &small, &requests[0][..9])] {
        inspect(&folder, rules, out, options, &[]);
        let alerts = folder.events(out, "alert");
        assert_eq!(alerts.len(), 4, "{alerts:?}");
        for alert in alerts {
            if alert["alert"]["signature_id"] == 1 {
                // With the packet of the second request, which is not acknowledged yet.
                assert_eq!(alert["payload_printable"], std::str::from_utf8(text).unwrap(), "{out} {alert}");
                assert_eq!((&alert["payload_length"], &alert["stream"]), (&json!(text.len()), &json!(1)));
            } else {
                assert_eq!(
                    (&alert["payload_length"], &alert["stream"]),
                    (&json!(0), &json!(0)),
                    "{out} {alert}"
                );
                assert!(alert["payload"].is_null() && alert["payload_printable"].is_null(), "{alert}");
            }
        }
    }
}

#[test]
fn every_record_of_a_packet_shows_the_variables_of_the_packet() {
    let folder = Folder::new("variables");
    let mut capture = Capture::default();
    for (client, server) in ends() {
        let server = (server.0, 53);
        let [question, answer] = dns();
        capture.udp(client, server, &question);
        capture.udp(server, client, &answer);
    }
    folder.write("c.pcap", capture.pcap());
    let rule = |action| {
        format!(
            "{action} udp any any -> any 53 (msg:\"q\"; content:\"test\"; pcre:\"/(?P<pkt_name>t.st)/\"; flowbits:set,seen; sid:1;)\n"
        )
    };
    inspect(&folder, &rule("alert"), "o", &[], &[]);
    let variables = |kind: &str| {
        folder.events("o", kind).iter().map(|e| e["metadata"]["pktvars"].clone()).collect::<Vec<_>>()
    };
    let named = json!([{"name": "test"}]);
    assert_eq!(variables("alert"), [named.clone(), named.clone()]);
    assert_eq!(variables("dns"), [named.clone(), Value::Null, named.clone(), Value::Null]);
    inspect(&folder, &rule("drop"), "o", &["types.35=drop"], &["--ips"]);
    assert_eq!(variables("drop")[0], named);
    assert!(folder.events("o", "drop").iter().all(|drop| drop["metadata"]["flowbits"] == json!(["seen"])));
    inspect(&folder, &rule("drop"), "without", &["types.35=drop", "metadata=no"], &["--ips"]);
    assert!(folder.events("without", "drop").iter().all(|drop| drop["metadata"].is_null()));
}

#[test]
fn a_frame_shows_as_much_as_suricata_holds_of_it() {
    let folder = Folder::new("frames");
    let mut capture = Capture::default();
    for (client, server) in ends() {
        capture.exchange(
            client,
            server,
            b"GET /a HTTP/1.1\r\nHost: a.test\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        );
        let [question, _] = dns();
        let name = &question[12..];
        let text =
            [&b"\xc0\x0c\0\x10\0\x01\0\0\0\x3c\x01\x10\xff"[..], &[b'a'; 255], b"\x0f", &[b'a'; 15]].concat();
        capture.udp(client, (server.0, 53), &question);
        let answer = [&b"\0\x07\x81\x80\0\x01\0\x01\0\0\0\0"[..], name, &text].concat();
        capture.udp((server.0, 53), client, &answer);
    }
    folder.write("c.pcap", capture.pcap());
    let rules = "alert http1 any any -> any any (msg:\"f\"; frame:http1.request; content:\"GET\"; sid:1;)\n\
                 alert dns any 53 -> any any (msg:\"d\"; frame:dns.pdu; content:\"aaa\"; sid:2;)\n";
    let options = [
        "types.1.frame.enabled=yes",
        "types.1.frame.payload-buffer-size=20",
        "types.0.alert.payload-buffer-size=10",
    ];
    inspect(&folder, rules, "o", &options, &[]);
    let length = |event: &Value| event["frame"]["payload_printable"].as_str().map(str::len);
    let frames: Vec<_> = folder.events("o", "frame");
    let of = |kind: &str, direction: &str| {
        let these =
            frames.iter().filter(|e| e["frame"]["type"] == kind && e["frame"]["direction"] == direction);
        these.map(length).collect::<Vec<_>>()
    };
    assert_eq!(of("request", "toserver"), [Some(19), Some(19)]);
    assert_eq!(of("pdu", "toclient"), [Some(256), Some(256)]);
    let alerts = folder.events("o", "alert");
    let of = |sid: u64| {
        alerts.iter().filter(|a| a["alert"]["signature_id"] == sid).map(length).collect::<Vec<_>>()
    };
    assert_eq!(of(1), [Some(9), Some(9)]);
    assert_eq!(of(2), [Some(256), Some(256)]);
}

#[test]
fn events_of_arp_go_with_those_of_streams() {
    let folder = Folder::new("arp-events");
    let mut capture = Capture::default();
    // A hardware address of 5 bytes.
    capture.frame([&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 5, 4, 0, 1], &[0; 20]].concat());
    folder.write("c.pcap", capture.pcap());
    for (kind, told) in [("stream", 1), ("decode", 0)] {
        let option = format!("types.2.anomaly.types.{kind}=yes");
        inspect(&folder, "", kind, &[&option], &[]);
        let events = folder.events(kind, "anomaly");
        assert_eq!(events.len(), told, "{kind}: {events:?}");
        for event in events {
            let anomaly = json!({"type": "stream", "event": "decoder.arp.invalid_hardware_size"});
            assert_eq!(event["anomaly"], anomaly);
        }
    }
}
