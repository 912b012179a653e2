// SPDX-License-Identifier: Apache-2.0
//! Effects of rules besides alerts, through the whole program: replaced bytes, records left out, stored
//! files, remembered values, more members in alerts. IPv4 and IPv6 alike: the sample has the same exchange
//! over both.

use crate::sample as common;

use common::{Capture, Folder, stage};
use serde_json::{Value, json};
use std::net::IpAddr;

/// Inspects the folder's capture with rules and settings; returns standard error.
fn inspect(folder: &Folder, rules: &str, out: &str, more: &[&str]) -> String {
    folder.write("r.rules", rules);
    let args = ["inspect", "--rules", "r.rules", "--out", out, "--json"];
    let ran = folder.run(&[&args[..], more, &["c.pcap"][..]].concat());
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    ran.stderr()
}

fn stats(folder: &Folder, out: &str) -> Value {
    let text = std::fs::read(folder.path().join(out).join("stats.json")).expect("stats");
    serde_json::from_slice(&text).expect("JSON")
}

#[test]
fn replace_acts_inline_and_only_there() {
    let folder = stage("replace");
    let rule = "alert tcp any any -> any 80 (msg:\"x\"; content:\"passwd\"; replace:\"public\"; content:\"GET\"; sid:1;)";
    inspect(&folder, rule, "inline", &["--ips"]);
    assert_eq!(stats(&folder, "inline")["ips.replaced"], 2);
    assert_eq!(folder.events("inline", "alert").len(), 2);
    inspect(&folder, rule, "passive", &[]);
    assert_eq!(stats(&folder, "passive").get("ips.replaced"), None);
    // Nothing is replaced where another content of the rule is missing, or the packet is refused.
    inspect(&folder, &rule.replace("GET", "PUT"), "other", &["--ips"]);
    assert_eq!(stats(&folder, "other")["ips.replaced"], 0);
    inspect(&folder, &rule.replace("alert", "drop"), "refused", &["--ips"]);
    assert_eq!(stats(&folder, "refused")["ips.replaced"], 0);
}

/// A mark that is set during a handshake does not change what the flow's first packet was judged by.
#[test]
fn rules_on_marks_of_hosts_are_evaluated_once_for_each_direction() {
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    let folder = Folder::new("marks-once");
    let rules = "alert udp any any -> any any (msg:\"set\"; content:\"mark\"; xbits:set,m,track ip_src,expire 100; sid:1;)\n\
        alert ip any any -> any any (msg:\"read\"; xbits:isset,m,track ip_src; sid:2;)";
    for (client, server) in [("10.0.0.1", "192.0.2.7"), ("2001:db8::1", "2001:db8:1::7")] {
        let end = |address: &str, port| (address.parse::<IpAddr>().unwrap(), port);
        let (client, server) = (end(client, 4_000), end(server, 80));
        for ips in [false, true] {
            let mut capture = Capture::default();
            capture.tcp(client, server, (100, 0), SYN, b"");
            capture.udp((client.0, 5_000), (server.0, 6_000), b"mark");
            capture.tcp(server, client, (900, 101), SYN | ACK, b"");
            capture.tcp(client, server, (101, 901), ACK, b"");
            capture.tcp(client, server, (101, 901), ACK, b"hello");
            folder.write("c.pcap", capture.pcap());
            let out = format!("{}{ips}", if client.0.is_ipv4() { "v4" } else { "v6" });
            inspect(&folder, rules, &out, if ips { &["--ips"] } else { &[] });
            let alerts = folder.events(&out, "alert");
            let sids: Vec<_> = alerts.iter().map(|alert| &alert["alert"]["signature_id"]).collect();
            assert_eq!(sids, [1], "{out}");
        }
    }
}

/// Bytes that wait for a minimal size to be inspected would have left by then: prevention inspects bodies
/// as they arrive.
#[test]
fn a_body_is_refused_where_it_matches_and_not_at_its_end() {
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    let folder = Folder::new("body-inline");
    let mut capture = Capture::default();
    for (client, server) in [("10.0.0.1", "192.0.2.7"), ("2001:db8::1", "2001:db8:1::7")] {
        for to_client in [true, false] {
            let client: (IpAddr, u16) = (client.parse().unwrap(), if to_client { 4_000 } else { 4_001 });
            let server: (IpAddr, u16) = (server.parse().unwrap(), 80);
            let (request, answer): (&[u8], &[u8]) = if to_client {
                (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 30000\r\n\r\n")
            } else {
                (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 30000\r\n\r\n", b"")
            };
            let (r, a) = (101 + request.len() as u32, 901 + answer.len() as u32);
            capture.tcp(client, server, (100, 0), SYN, b"");
            capture.tcp(server, client, (900, 101), SYN | ACK, b"");
            capture.tcp(client, server, (101, 901), ACK, b"");
            capture.tcp(client, server, (101, 901), ACK, request);
            // The body is far from its end and from any minimal size.
            let (from, to, seq, ack) =
                if to_client { (server, client, a, r) } else { (client, server, r, 901) };
            if to_client {
                capture.tcp(server, client, (901, r), ACK, answer);
            }
            capture.tcp(from, to, (seq, ack), ACK, b"ten bytes some evil text");
            capture.tcp(from, to, (seq + 24, ack), ACK, b"and more");
        }
    }
    folder.write("c.pcap", capture.pcap());
    let rules = "drop http any any -> any any (msg:\"a\"; flow:established,to_client; file_data; content:\"evil\"; sid:1;)
drop http any any -> any any (msg:\"b\"; flow:established,to_server; http.request_body; content:\"evil\"; sid:2;)";
    inspect(&folder, rules, "inline", &["--ips"]);
    let at = |out: &str| -> Vec<Value> {
        folder.events(out, "alert").iter().map(|alert| alert["pcap_cnt"].clone()).collect()
    };
    // The packet with the text itself, in all four connections.
    assert_eq!(at("inline"), [json!(6), json!(12), json!(19), json!(25)]);
    // Passively bodies grow to a minimal size first, as `auto` has it; here they are inspected when the flow
    // ends.
    inspect(&folder, rules, "passive", &[]);
    assert_eq!(at("passive"), vec![Value::Null; 4]);
}

fn dns(id: u8, response: bool, name: &str) -> Vec<u8> {
    let mut message = vec![0, id, if response { 0x81 } else { 1 }, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(label.len() as u8);
        message.extend_from_slice(label.as_bytes());
    }
    message.extend_from_slice(&[0, 0, 1, 0, 1]);
    message
}

#[test]
fn config_leaves_records_of_a_query_and_its_response_out() {
    let folder = Folder::new("config");
    let mut capture = Capture::default();
    for (client, server) in [("10.0.0.1", "192.0.2.7"), ("2001:db8::1", "2001:db8:1::7")] {
        let (client, server): (IpAddr, IpAddr) = (client.parse().unwrap(), server.parse().unwrap());
        for (id, name) in [(1, "quiet.example"), (2, "loud.example")] {
            for (response, from, to) in
                [(false, (client, 4_000u16), (server, 53u16)), (true, (server, 53u16), (client, 4_000u16))]
            {
                capture.udp(from, to, &dns(id, response, name));
            }
        }
    }
    folder.write("c.pcap", capture.pcap());
    let rule = "config dns any any -> any any (dns.query; content:\"quiet\"; \
                config:logging disable, type tx, scope tx; sid:1;)";
    for (threads, out) in [("1", "one"), ("3", "three")] {
        inspect(&folder, rule, out, &["--threads", threads]);
        let records = folder.events(out, "dns");
        let names: Vec<&Value> = records.iter().map(|r| &r["dns"]["queries"][0]["rrname"]).collect();
        assert_eq!(names, [&json!("loud.example"); 4], "{records:?}");
        assert_eq!(folder.events(out, "alert").len(), 0);
    }
}

const STORE: [&str; 4] =
    ["--set", "outputs.9.file-store.enabled=yes", "--set", "outputs.9.file-store.write-fileinfo=yes"];

#[test]
fn files_are_kept_where_rules_and_settings_say_so() {
    let folder = stage("filestore");
    let rule = "alert http any any -> any any (msg:\"x\"; flow:to_client; file.data; content:\"no\"; filestore; sid:7;)";
    for (threads, out) in [("1", "one"), ("2", "two")] {
        inspect(&folder, rule, out, &[&STORE[..], &["--threads", threads]].concat());
        // SHA-256 of `no`.
        let name = "9390298f3fb0c5b160498935d79cb139aef28e1c47358b4bbba61862b9c26e59";
        let path = folder.path().join(out).join("files/93").join(name);
        assert_eq!(std::fs::read(&path).ok().as_deref(), Some(b"no".as_slice()));
        let records = folder.events(out, "fileinfo");
        assert_eq!(records.len(), 2);
        for record in &records {
            let file = &record["fileinfo"];
            assert_eq!(
                (&file["stored"], &file["sid"], &file["sha256"]),
                (&json!(true), &json!([7]), &json!(name))
            );
        }
        // One copy, a record for each time.
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 3);
        assert_eq!(stats(&folder, out)["file_store.stored"], 2);
    }
    let said = inspect(&folder, rule, "without", &[]);
    assert!(said.contains("no file is stored"), "{said}");
    assert!(!folder.path().join("without/files").exists());
    assert_eq!(folder.events("without", "fileinfo")[0]["fileinfo"]["stored"], false);
    // A rule that does not match keeps nothing; `force-filestore` keeps all.
    inspect(&folder, &rule.replace("no\\", "yes\\").replace("\"no\"", "\"yes\""), "none", &STORE);
    assert_eq!(stats(&folder, "none")["file_store.stored"], 0);
    let force = ["--set", "outputs.9.file-store.force-filestore=yes"];
    inspect(&folder, "", "force", &[&STORE[..], &force].concat());
    assert_eq!(stats(&folder, "force")["file_store.stored"], 2);
}

#[test]
fn data_sets_are_saved_and_known_the_next_time() {
    let folder = stage("datasets");
    let rule = "alert http any any -> any any (msg:\"new host\"; http.host; dataset:set,hosts,type string,state hosts.lst; sid:1;)";
    inspect(&folder, rule, "out", &[]);
    assert_eq!(folder.events("out", "alert").len(), 1, "once, as the second host is known");
    let saved = std::fs::read_to_string(folder.path().join("out/hosts.lst")).expect("the set is saved");
    // base64 of shop.example.
    assert_eq!(saved, "c2hvcC5leGFtcGxl\n");
    inspect(&folder, rule, "out", &[]);
    assert_eq!(folder.events("out", "alert").len(), 1, "events are appended: still that of the first run");
}

#[test]
fn alerts_say_what_the_rule_and_its_data_sets_know() {
    let folder = stage("context");
    folder.write("hosts.json", r#"{"list": [{"host": "shop.example", "seen": 2005, "by": "us"}]}"#);
    let rules = "\
alert http any any -> any any (msg:\"x\"; http.host; dataset:isset,bad,type string,load hosts.json,format json,array_key list,value_key host,context_key bad_host,remove_key; sid:1;)
alert http any any -> any any (msg:\"y\"; http.uri.raw; pcre:\"/cgi.*\\/(\\w+)$/, alert:file\"; pcre:\"/^\\/(\\w+)/, pkt:first\"; sid:2;)
";
    inspect(&folder, rules, "out", &[]);
    let alerts = folder.events("out", "alert");
    let of = |sid: u64| alerts.iter().filter(move |a| a["alert"]["signature_id"] == sid).collect::<Vec<_>>();
    assert_eq!((of(1).len(), of(2).len()), (2, 2));
    for alert in of(1) {
        assert_eq!(alert["alert"]["context"], json!({"bad_host": {"seen": 2005, "by": "us"}}));
    }
    for alert in of(2) {
        assert_eq!(alert["alert"]["context"], json!({"file": "passwd"}));
        assert_eq!(alert["metadata"]["pktvars"], json!([{"first": "cgi"}]));
    }
}

#[test]
fn inline_a_content_may_lie_in_two_segments() {
    let folder = Folder::new("split");
    let mut capture = Capture::default();
    for (client, server) in [("10.0.0.1", "192.0.2.7"), ("2001:db8::1", "2001:db8:1::7")] {
        let (client, server): (IpAddr, IpAddr) = (client.parse().unwrap(), server.parse().unwrap());
        let (client, server) = ((client, 40_000), (server, 7_000));
        capture.tcp(client, server, (100, 0), common::SYN, b"");
        capture.tcp(server, client, (900, 101), common::SYN | common::ACK, b"");
        capture.tcp(client, server, (101, 901), common::ACK, b"");
        capture.tcp(
            client,
            server,
            (101, 901),
            common::PSH | common::ACK,
            b"first a longer part and some of ev",
        );
        capture.tcp(client, server, (135, 901), common::PSH | common::ACK, b"il");
    }
    folder.write("c.pcap", capture.pcap());
    let rule = "drop tcp any any -> any 7000 (msg:\"x\"; content:\"longer part\"; content:\"evil\"; distance:0; sid:1;)";
    inspect(&folder, rule, "out", &["--ips"]);
    let alerts = folder.events("out", "alert");
    assert_eq!(alerts.len(), 2, "{alerts:?}");
    assert!(alerts.iter().all(|a| a["alert"]["action"] == "blocked"));
}
