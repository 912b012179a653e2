// SPDX-License-Identifier: Apache-2.0
//! A direction that cannot be read further, cause by cause, passive and in prevention, IPv4 and IPv6: the
//! effects on its transactions, detection, records and the connection. The table is
//! docs/design/0010-streams-that-end-early.md; each outcome was compared with Suricata 8.0.8 on the same
//! packets.

use crate::sample as common;

use common::{Capture, Folder};
use std::net::IpAddr;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;
const SEGMENT: usize = 1400;

/// Rules on each kind of data that a stream is parsed for.
const RULES: &str = r#"
alert http any any -> any any (msg:"uri"; http.uri; content:"/after"; sid:1;)
alert http any any -> any any (msg:"header"; flow:to_client; http.header; content:"X-Late"; sid:2;)
alert tcp any any -> any any (msg:"raw request"; flow:to_server; content:"/after"; sid:3;)
alert http any any -> any any (msg:"open"; http.uri; content:"/open"; sid:6;)
alert http any any -> any any (msg:"bypass"; http.uri; content:"/bypass"; bypass; sid:9;)
"#;

/// A conversation between a client and a server.
struct Talk {
    capture: Capture,
    /// Client, server: address and port, next sequence number.
    ends: [(IpAddr, u16, u32); 2],
}

#[derive(Clone, Copy)]
enum From {
    Client = 0,
    Server = 1,
}

impl Talk {
    fn new(v6: bool) -> Self {
        let address = |host: u8| -> IpAddr {
            if v6 { format!("2001:db8::{host}").parse().unwrap() } else { [192, 0, 2, host].into() }
        };
        let mut talk = Talk {
            capture: Capture::default(),
            ends: [(address(1), 40_000, 1_000), (address(2), 80, 9_000)],
        };
        talk.segment(From::Client, SYN, b"");
        talk.segment(From::Server, SYN | ACK, b"");
        talk.segment(From::Client, ACK, b"");
        talk
    }

    fn segment(&mut self, from: From, flags: u8, data: &[u8]) {
        let sender = self.ends[from as usize];
        let receiver = self.ends[1 - from as usize];
        let ack = if flags & ACK == 0 { 0 } else { receiver.2 };
        let numbers = (sender.2, ack);
        self.capture.tcp((sender.0, sender.1), (receiver.0, receiver.1), numbers, flags, data);
        let counted = data.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
        self.ends[from as usize].2 += counted;
    }

    /// Sends data in segments except the one of number `lost`, which the receiver acknowledges all the same.
    fn send_but(&mut self, from: From, data: &[u8], lost: Option<usize>) {
        let other = if matches!(from, From::Client) { From::Server } else { From::Client };
        for (number, piece) in data.chunks(SEGMENT).enumerate() {
            if Some(number) == lost {
                self.ends[from as usize].2 += piece.len() as u32;
            } else {
                self.segment(from, PSH | ACK, piece);
            }
            self.segment(other, ACK, b"");
        }
    }

    fn ask(&mut self, path: &str) {
        self.send_but(From::Client, format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes(), None);
    }

    fn answer(&mut self, length: usize, header: &str) {
        self.send_but(From::Server, &response(length, header), None);
    }

    /// Three more requests with their answers, then an orderly close.
    fn go_on(&mut self) {
        for number in 0..3 {
            self.ask(&format!("/after{number}"));
            self.answer(10, "X-Late: yes\r\n");
        }
        self.segment(From::Client, FIN | ACK, b"");
        self.segment(From::Server, FIN | ACK, b"");
        self.segment(From::Client, ACK, b"");
    }
}

fn response(length: usize, header: &str) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{header}\r\n").into_bytes();
    text.resize(text.len() + length, b'b');
    text
}

/// A cause, and its expected effects.
struct Row {
    cause: &'static str,
    set: &'static [&'static str],
    talk: fn(&mut Talk),
    /// Records: path and status, in any order.
    http: &'static [&'static str],
    /// Alerts of the rules: (sid, number); sids without any are left out.
    alerts: &'static [(u32, u64)],
    /// The expected effects in prevention, where they differ.
    prevented: Option<Prevented>,
}

/// The effects of a cause in prevention.
struct Prevented {
    /// The reason by which the connection is refused from there on.
    reason: Option<&'static str>,
    http: &'static [&'static str],
    alerts: &'static [(u32, u64)],
}

const AFTER: &[&str] = &["/after0 200", "/after1 200", "/after2 200"];

const ROWS: &[Row] = &[
    // A connection whose beginning was not captured: its first segment shows which side is the server.
    Row {
        cause: "met at an answer",
        set: &["stream.midstream=true"],
        talk: |talk| {
            talk.capture = Capture::default();
            talk.answer(10, "");
            talk.go_on();
        },
        http: &["/libhtp::request_uri_not_seen 200", "/after0 200", "/after1 200", "/after2 200"],
        alerts: &[(1, 3), (2, 3), (3, 3)],
        // Both FINs are refused, as in Suricata.
        prevented: Some(Prevented {
            reason: Some("stream error"),
            http: &["/libhtp::request_uri_not_seen 200", "/after0 200", "/after1 200", "/after2 200"],
            alerts: &[(1, 3), (2, 3), (3, 3)],
        }),
    },
    // The client is read on: each request is a transaction that is ended towards the client from its
    // beginning.
    Row {
        cause: "depth, answers",
        set: &["stream.reassembly.depth=20kb"],
        talk: |talk| {
            talk.ask("/large");
            talk.answer(50_000, "");
            talk.go_on();
        },
        http: &["/large 200", "/after0 -", "/after1 -", "/after2 -"],
        alerts: &[(1, 3), (3, 3)],
        prevented: None,
    },
    // Answers are still parsed, and belong to requests that were not parsed.
    Row {
        cause: "depth, requests",
        set: &["stream.reassembly.depth=20kb"],
        talk: |talk| {
            let mut upload = b"POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n".to_vec();
            upload.resize(upload.len() + 50_000, b'u');
            talk.send_but(From::Client, &upload, None);
            talk.answer(10, "");
            talk.go_on();
        },
        http: &[
            "/upload 200",
            "/libhtp::request_uri_not_seen 200",
            "/libhtp::request_uri_not_seen 200",
            "/libhtp::request_uri_not_seen 200",
        ],
        // Bytes beyond the depth are searched packet by packet.
        alerts: &[(2, 3), (3, 3)],
        prevented: None,
    },
    Row {
        cause: "depth, both",
        set: &["stream.reassembly.depth=20kb"],
        talk: |talk| {
            let mut upload = b"POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n".to_vec();
            upload.resize(upload.len() + 50_000, b'u');
            talk.send_but(From::Client, &upload, None);
            talk.answer(50_000, "");
            talk.go_on();
        },
        http: &["/upload 200"],
        alerts: &[(3, 3)],
        prevented: None,
    },
    // A body with a gap goes on after it.
    Row {
        cause: "gap in a body",
        set: &[],
        talk: |talk| {
            talk.ask("/hole");
            talk.send_but(From::Server, &response(20_000, ""), Some(5));
            talk.go_on();
        },
        http: &["/hole 200", AFTER[0], AFTER[1], AFTER[2]],
        alerts: &[(1, 3), (2, 3), (3, 3)],
        prevented: None,
    },
    // A header block with a hole cannot be read on; requests are.
    Row {
        cause: "gap in the head of an answer",
        set: &[],
        talk: |talk| {
            talk.ask("/hole");
            talk.send_but(From::Server, &response(5_000, ""), Some(0));
            talk.go_on();
        },
        http: &["/hole -", "/after0 -", "/after1 -", "/after2 -"],
        alerts: &[(1, 3), (3, 3)],
        prevented: None,
    },
    // Both directions end; the flow is no longer parsed, but the stream is still searched.
    Row {
        cause: "parser error",
        set: &[],
        talk: |talk| {
            talk.ask("/before");
            talk.answer(10, "");
            let endless = format!("GET /endless HTTP/1.1\r\nX: {}", "a".repeat(30_000));
            talk.send_but(From::Client, endless.as_bytes(), None);
            talk.go_on();
        },
        http: &["/before 200", "/endless -"],
        alerts: &[(3, 1)],
        prevented: Some(Prevented {
            reason: Some("applayer error"),
            http: &["/before 200", "/endless -"],
            alerts: &[],
        }),
    },
    Row {
        cause: "too many transactions",
        set: &[
            "app-layer.protocols.http.libhtp.default-config.max-tx=4",
            "app-layer.protocols.http.max-tx=4",
        ],
        talk: |talk| {
            for _ in 0..6 {
                talk.ask("/open");
            }
            for _ in 0..6 {
                talk.answer(10, "");
            }
            talk.go_on();
        },
        http: &["/open -", "/open -", "/open -", "/open -"],
        alerts: &[(3, 1), (6, 4)],
        prevented: Some(Prevented {
            reason: Some("applayer error"),
            http: &["/open -", "/open -", "/open -", "/open -"],
            alerts: &[(6, 4)],
        }),
    },
    Row {
        cause: "reset",
        set: &[],
        talk: |talk| {
            talk.ask("/open");
            talk.send_but(From::Server, &response(5_000, "")[..2_000], None);
            talk.segment(From::Server, RST | ACK, b"");
        },
        http: &["/open 200"],
        alerts: &[(6, 1)],
        prevented: None,
    },
    // The capture ends: the flow does, too.
    Row {
        cause: "end of the flow",
        set: &[],
        talk: |talk| {
            talk.ask("/open");
            talk.send_but(From::Server, &response(5_000, "")[..2_000], None);
        },
        http: &["/open 200"],
        alerts: &[(6, 1)],
        prevented: None,
    },
    Row {
        cause: "bypass by a rule",
        set: &[],
        talk: |talk| {
            talk.ask("/bypass");
            talk.answer(10, "");
            talk.go_on();
        },
        // Passively the answer has come by the time that the request is read.
        http: &["/bypass 200"],
        alerts: &[(9, 1)],
        prevented: Some(Prevented { reason: None, http: &[], alerts: &[(9, 1)] }),
    },
];

/// Runs a row: records, alerts, reasons of refusals.
fn run(row: &Row, v6: bool, prevention: bool) -> (Vec<String>, Vec<(u32, u64)>, Vec<String>) {
    let name = format!("early-{}-{v6}-{prevention}", row.cause.replace([' ', ','], ""));
    let folder = Folder::new(&name);
    let mut talk = Talk::new(v6);
    (row.talk)(&mut talk);
    folder.write("c.pcap", talk.capture.pcap());
    folder.write("r.rules", RULES);
    let mut args = vec!["inspect", "--rules", "r.rules", "--out", "o", "--json", "--cache", "none"];
    args.extend(prevention.then_some("--ips"));
    args.extend([
        "--set",
        "outputs.1.eve-log.types.34=drop",
        "--set",
        "outputs.1.eve-log.types.34.drop.flows=all",
    ]);
    args.extend(row.set.iter().flat_map(|set| ["--set", set]));
    args.push("c.pcap");
    let ran = folder.run(&args);
    assert_eq!(ran.code(), 0, "{}: {}", row.cause, ran.stderr());
    let mut http: Vec<String> = folder
        .events("o", "http")
        .iter()
        .map(|event| {
            let status = event["http"]["status"].as_u64().map_or("-".to_owned(), |n| n.to_string());
            format!("{} {status}", event["http"]["url"].as_str().unwrap_or("-"))
        })
        .collect();
    http.sort();
    let summary = ran.json();
    let alerts = summary["alerts"].as_object().unwrap();
    let mut alerts: Vec<(u32, u64)> =
        alerts.iter().map(|(sid, count)| (sid.parse().unwrap(), count.as_u64().unwrap())).collect();
    alerts.sort_unstable();
    let drops = folder.events("o", "drop");
    let mut reasons: Vec<String> =
        drops.iter().map(|drop| drop["drop"]["reason"].as_str().unwrap_or("-").to_owned()).collect();
    reasons.dedup();
    (http, alerts, reasons)
}

#[test]
fn each_cause_has_its_outcome() {
    let mut wrong = Vec::new();
    for row in ROWS {
        for v6 in [false, true] {
            for prevention in [false, true] {
                let expected = row.prevented.as_ref().filter(|_| prevention);
                let mut records = expected.map_or(row.http, |p| p.http).to_vec();
                records.sort_unstable();
                let alerts = expected.map_or(row.alerts, |p| p.alerts);
                let (http, given, reasons) = run(row, v6, prevention);
                let reason = expected.and_then(|p| p.reason);
                // In prevention nothing is refused but for a cause whose policy says so.
                let refused_rightly = reasons.first().map(String::as_str) == reason;
                if http != records || given != alerts || !refused_rightly {
                    wrong.push(format!(
                        "{}, IPv6 {v6}, prevention {prevention}: {http:?} {given:?} {reasons:?}",
                        row.cause
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// D0 of the trials: 5,000 requests in one connection whose answers reach the depth as shipped.
#[test]
fn a_keep_alive_connection_goes_on_beyond_the_depth() {
    let row = Row {
        cause: "keep-alive",
        set: &["stream.reassembly.depth=100kb"],
        talk: |talk| {
            for number in 0..1_500 {
                talk.ask(&format!("/{number}"));
                talk.answer(200, "");
            }
        },
        http: &[],
        alerts: &[],
        prevented: None,
    };
    for prevention in [false, true] {
        let (http, _, reasons) = run(&row, false, prevention);
        assert_eq!((http.len(), reasons.as_slice()), (1_500, &[][..]), "prevention {prevention}");
    }
}
