// SPDX-License-Identifier: Apache-2.0
//! `bypass` of a policy: the most bytes of a flow to inspect. Both IP versions, passive and in prevention.

use crate::sample as common;

use common::{ACK, Capture, Folder, PSH, SYN};
use serde_json::Value;
use std::net::IpAddr;

type End = (IpAddr, u16);

/// A rule with a packet size inspects each packet, not the stream.
const RULES: &str = "alert tcp any any -> any any (msg:\"seen\"; dsize:8; content:\"secret\"; sid:1;)\n\
    alert udp any any -> any any (msg:\"seen\"; content:\"secret\"; sid:2;)\n";

fn policy(folder: &Folder, bypass: &str) {
    folder.write("local.rules", RULES);
    folder.write(
        "policy.yaml",
        format!(
            "policies: [{{name: all, chain: [ids], ids: {{rules: [local.rules]}}{bypass}}}]\ndefault: {{action: allow}}\n"
        ),
    );
}

fn ends(v6: bool) -> (End, End) {
    let [client, server]: [IpAddr; 2] = if v6 {
        ["2001:db8::1".parse().unwrap(), "2001:db8:1::7".parse().unwrap()]
    } else {
        ["10.0.0.1".parse().unwrap(), "192.0.2.7".parse().unwrap()]
    };
    ((client, 40_000), (server, 443))
}

/// The alerts and the flow records.
fn inspect(folder: &Folder, capture: Capture, bypass: &str, ips: bool) -> (Vec<Value>, Vec<Value>) {
    policy(folder, bypass);
    folder.write("x.pcap", capture.pcap());
    let mut line = vec!["inspect", "--policy", "policy.yaml", "--cache", "none", "--out", "out", "x.pcap"];
    if ips {
        line.push("--ips");
    }
    let ran = folder.run(&line);
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    let found = (folder.events("out", "alert"), folder.events("out", "flow"));
    std::fs::remove_dir_all(folder.path().join("out")).unwrap();
    found
}

/// A connection whose data segments each contain the secret: 3 packets of the handshake, then data and
/// acknowledgement by turns.
fn talk(v6: bool, rounds: u32) -> Capture {
    let (client, server) = ends(v6);
    let mut capture = Capture::default();
    capture.tcp(client, server, (100, 0), SYN, b"");
    capture.tcp(server, client, (900, 101), SYN | ACK, b"");
    capture.tcp(client, server, (101, 901), ACK, b"");
    for round in 0..rounds {
        capture.tcp(client, server, (101 + round * 8, 901), PSH | ACK, b" secret ");
        capture.tcp(server, client, (901, 109 + round * 8), ACK, b"");
    }
    capture
}

#[test]
fn after_so_many_packets_or_bytes_nothing_is_inspected() {
    let folder = Folder::new("policy-bypass");
    for (v6, ips) in [(false, false), (false, true), (true, false), (true, true)] {
        let (all, flows) = inspect(&folder, talk(v6, 10), "", ips);
        assert_eq!((all.len(), flows.len()), (10, 1), "IPv6 {v6}, prevention {ips}");
        assert_eq!(flows[0]["flow"]["state"], "established");
        // The ninth packet is the last acknowledgement that is looked at: three data segments came before it.
        for bypass in [", bypass: {packets: 9}", ", bypass: {packets: 9, bytes: 1MiB, encrypted: true}"] {
            let (some, flows) = inspect(&folder, talk(v6, 10), bypass, ips);
            assert_eq!(some.len(), 3, "IPv6 {v6}, prevention {ips}: {bypass}");
            assert_eq!(flows[0]["flow"]["state"], "bypassed");
            assert_eq!(
                (&flows[0]["flow"]["pkts_toserver"], &flows[0]["flow"]["pkts_toclient"]),
                (&12.into(), &11.into())
            );
        }
        let bytes = if v6 { 300 } else { 200 };
        let bypass = format!(", bypass: {{bytes: {bytes}}}");
        let (one, _) = inspect(&folder, talk(v6, 10), &bypass, ips);
        assert_eq!(one.len(), 1, "IPv6 {v6}, prevention {ips}");
    }
}

#[test]
fn datagrams_count_too() {
    let folder = Folder::new("policy-bypass-udp");
    for v6 in [false, true] {
        let (client, server) = ends(v6);
        let mut capture = Capture::default();
        (0..6).for_each(|_| capture.udp(client, server, b" secret "));
        let (alerts, flows) = inspect(&folder, capture, ", bypass: {packets: 2}", true);
        assert_eq!(alerts.len(), 2);
        assert_eq!(flows[0]["flow"]["state"], "bypassed");
    }
}

/// Length in `bytes` bytes, then the body.
fn sized(bytes: usize, body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_be_bytes()[4 - bytes..], body].concat()
}

fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind, 3, 3][..], &sized(2, body)].concat()
}

/// A session of TLS 1.2, and then application data with the secret from both sides.
fn tls(v6: bool) -> Capture {
    let (client, server) = ends(v6);
    let message = |kind: u8, body: &[u8]| [&[kind][..], &sized(3, body)].concat();
    let hello = record(22, &message(1, &[&[3, 3][..], &[7; 32], &[0, 0, 2, 0, 0x2f, 1, 0]].concat()));
    let answer = message(2, &[&[3, 3][..], &[9; 32], &[0, 0, 0x2f, 0]].concat());
    let answer = record(22, &[answer, message(14, &[])].concat());
    let finished = [record(20, &[1]), record(22, &[5; 40])].concat();
    let data = record(23, b"secret and more");
    let mut capture = Capture::default();
    let mut next = [101u32, 901];
    capture.tcp(client, server, (100, 0), SYN, b"");
    capture.tcp(server, client, (900, 101), SYN | ACK, b"");
    capture.tcp(client, server, (101, 901), ACK, b"");
    let talk = [
        (0, &hello),
        (1, &answer),
        (0, &finished),
        (1, &finished),
        (0, &data),
        (1, &data),
        (0, &data),
        (1, &data),
    ];
    for (side, bytes) in talk {
        let (from, to) = if side == 0 { (client, server) } else { (server, client) };
        capture.tcp(from, to, (next[side], next[1 - side]), PSH | ACK, bytes);
        next[side] += bytes.len() as u32;
        capture.tcp(to, from, (next[1 - side], next[side]), ACK, b"");
    }
    capture
}

#[test]
fn what_is_encrypted_is_not_inspected_and_the_session_is_recorded() {
    let folder = Folder::new("policy-bypass-tls");
    for (v6, ips) in [(false, false), (false, true), (true, false), (true, true)] {
        // Such a rule inspects packets, also after the handshake.
        let (_, flows) = inspect(&folder, tls(v6), "", ips);
        assert_eq!(flows[0]["flow"]["state"], "established");
        let (_, flows) = inspect(&folder, tls(v6), ", bypass: {encrypted: true}", ips);
        assert_eq!(flows[0]["flow"]["state"], "bypassed", "IPv6 {v6}, prevention {ips}");
        assert_eq!(flows[0]["app_proto"], "tls");
    }
}

/// A connection of QUIC: hellos, then datagrams with the secret from both sides.
fn quic(v6: bool) -> Capture {
    use bartizan_testkit::quic::{client, client_hello, crypto, server, server_hello};
    let (from_client, from_server) = ends(v6);
    let mut capture = Capture::default();
    capture.udp(from_client, from_server, &client(0, &crypto(0, &client_hello("a.example"))).seal());
    capture.udp(from_server, from_client, &server(0, &crypto(0, &server_hello())).seal());
    for _ in 0..3 {
        capture.udp(from_client, from_server, b"\x41 secret ");
        capture.udp(from_server, from_client, b"\x41 secret ");
    }
    capture
}

#[test]
fn quic_is_encrypted_after_both_hellos() {
    let folder = Folder::new("policy-bypass-quic");
    for (v6, ips) in [(false, false), (false, true), (true, false), (true, true)] {
        let (alerts, flows) = inspect(&folder, quic(v6), "", ips);
        assert_eq!((alerts.len(), &flows[0]["app_proto"]), (6, &"quic".into()));
        assert_eq!(flows[0]["flow"]["state"], "established");
        let (alerts, flows) = inspect(&folder, quic(v6), ", bypass: {encrypted: true}", ips);
        assert_eq!(alerts.len(), 0, "IPv6 {v6}, prevention {ips}");
        assert_eq!(flows[0]["flow"]["state"], "bypassed", "IPv6 {v6}, prevention {ips}");
        assert_eq!(flows[0]["app_proto"], "quic");
    }
}

#[test]
fn rules_see_encrypted_bytes_in_prevention_or_where_the_settings_say_so() {
    let folder = Folder::new("policy-hidden-tls");
    let rules = [
        // Application data: in a packet, in the stream, and by its length.
        r#"alert tcp any any -> any any (msg:"packet"; content:"secret"; offset:5; depth:6; sid:1;)"#,
        r#"alert tcp any any -> any any (msg:"stream"; content:"secret and"; sid:2;)"#,
        r#"alert tcp any any -> any any (msg:"length"; dsize:20; sid:3;)"#,
        // Not about the payload.
        r#"alert tcp any any -> any any (msg:"flags"; flags:PA; sid:4;)"#,
        r#"alert tcp any any -> any any (msg:"below"; dsize:<21; flags:PA; sid:5;)"#,
        // Before encryption.
        r#"alert tcp any any -> any any (msg:"hello"; content:"|16 03 03|"; depth:3; flow:to_server; sid:6;)"#,
    ];
    folder.write("x.rules", rules.join("\n"));
    let full = "app-layer.protocols.tls.encryption-handling=full";
    let inspect = |v6: bool, more: &[&str]| {
        folder.write("x.pcap", tls(v6).pcap());
        let mut line = vec!["inspect", "--rules", "x.rules", "--cache", "none", "--out", "out", "x.pcap"];
        line.extend(more);
        let ran = folder.run(&line);
        assert_eq!(ran.code(), 0, "{}", ran.stderr());
        let mut counts = [0; 6];
        for alert in folder.events("out", "alert") {
            counts[alert["alert"]["signature_id"].as_u64().unwrap() as usize - 1] += 1;
        }
        std::fs::remove_dir_all(folder.path().join("out")).unwrap();
        counts
    };
    for v6 in [false, true] {
        // The server's first record of data has come when the acknowledgement of the client's shows that the
        // session is encrypted.
        let hidden = inspect(v6, &[]);
        assert_eq!(hidden, [1, 0, 1, 8, 4, 2], "IPv6 {v6}");
        for shown in [inspect(v6, &["--set", full]), inspect(v6, &["--ips"])] {
            assert!(shown[0] >= 4 && shown[1] >= 2 && shown[2] == 4, "IPv6 {v6}: {shown:?}");
            assert_eq!(shown[3..5], hidden[3..5], "IPv6 {v6}");
        }
    }
}

#[test]
fn wrong_values_are_refused_with_their_place() {
    let folder = Folder::new("policy-bypass-wrong");
    for (bypass, says) in [
        (", bypass: {packets: 0}", "policy.yaml:1:"),
        (", bypass: {bytes: much}", "`much` is not a size"),
        (", bypass: {encripted: true}", "`encrypted`"),
    ] {
        policy(&folder, bypass);
        folder.write("x.pcap", talk(false, 1).pcap());
        let ran = folder.run(&["inspect", "--policy", "policy.yaml", "--cache", "none", "x.pcap"]);
        assert_eq!(ran.code(), 1, "{bypass}");
        assert!(
            ran.stderr().contains(says) && ran.stderr().lines().count() == 1,
            "{bypass}: {}",
            ran.stderr()
        );
    }
}
