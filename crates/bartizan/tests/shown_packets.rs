// SPDX-License-Identifier: Apache-2.0
//! The bytes that rules inspect with each packet, through the whole program over captures: bytes put back
//! into a packet, earlier bytes, bytes after a gap, bytes left when a flow ends. The expected results are
//! those of Suricata 8.0.8.

use crate::sample as common;

use common::{ACK, Capture, FIN, Folder, PSH, SYN};
use serde_json::{Value, json};
use std::net::IpAddr;

const RST: u8 = 4;

/// A client and a server, over IPv4 and IPv6.
fn ends() -> [((IpAddr, u16), (IpAddr, u16)); 2] {
    [("10.0.0.1", "192.0.2.7"), ("2001:db8::1", "2001:db8:1::7")]
        .map(|(c, s)| ((c.parse().unwrap(), 40_000), (s.parse().unwrap(), 80)))
}

fn inspect(folder: &Folder, rules: &str, out: &str, more: &[&str]) {
    folder.write("r.rules", rules);
    let args = ["inspect", "--rules", "r.rules", "--out", out, "--json"];
    let ran = folder.run(&[&args[..], more, &["c.pcap"][..]].concat());
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
}

/// The packets at which a rule alerted.
fn alerts(folder: &Folder, out: &str, sid: u32) -> Vec<Value> {
    let all = folder.events(out, "alert");
    let of_rule = all.iter().filter(|alert| alert["alert"]["signature_id"] == sid);
    of_rule.map(|alert| alert["pcap_cnt"].clone()).collect()
}

/// Three packets that open a connection: the client continues with 101, the server with 901.
fn open(capture: &mut Capture, client: (IpAddr, u16), server: (IpAddr, u16)) {
    capture.tcp(client, server, (100, 0), SYN, b"");
    capture.tcp(server, client, (900, 101), SYN | ACK, b"");
    capture.tcp(client, server, (101, 901), ACK, b"");
}

/// Number of packets that a run in prevention refused.
fn refused(folder: &Folder, out: &str) -> Option<u64> {
    let text = std::fs::read(folder.path().join(out).join("stats.json")).unwrap();
    let stats: Value = serde_json::from_slice(&text).expect("statistics");
    stats["ips.blocked"].as_u64()
}

#[test]
fn rules_are_shown_a_packet_as_it_leaves() {
    let folder = Folder::new("as-it-leaves");
    let mut capture = Capture::default();
    for (client, server) in ends() {
        open(&mut capture, client, server);
        capture.tcp(client, server, (101, 901), ACK, b"GOOD");
        // Differs from the inspected bytes: inline the good bytes are put back.
        capture.tcp(client, server, (101, 901), ACK, b"EVIL");
        capture.tcp(server, client, (901, 105), ACK, b"");
    }
    folder.write("c.pcap", capture.pcap());
    let rules = "alert tcp-stream any any -> any any (msg:\"s\"; content:\"EVIL\"; sid:1;)
alert tcp-stream any any -> any any (msg:\"s\"; content:\"GOOD\"; sid:2;)
alert tcp-pkt any any -> any any (msg:\"p\"; content:\"EVIL\"; sid:3;)
alert tcp-pkt any any -> any any (msg:\"p\"; content:\"GOOD\"; sid:4;)
";
    inspect(&folder, rules, "inline", &["--ips"]);
    let both = [json!(4), json!(5), json!(10), json!(11)];
    assert_eq!(alerts(&folder, "inline", 1), [] as [Value; 0]);
    assert_eq!(alerts(&folder, "inline", 2), both);
    assert_eq!(alerts(&folder, "inline", 3), [] as [Value; 0]);
    assert_eq!(alerts(&folder, "inline", 4), both);
    // Passively it goes on as it came.
    inspect(&folder, rules, "passive", &[]);
    assert_eq!(alerts(&folder, "passive", 3), [json!(5), json!(11)]);
    assert_eq!(alerts(&folder, "passive", 4), [json!(4), json!(10)]);
}

/// Prevention refuses packets of no connection; rules on stream events and on headers report the cause, and
/// none inspects their payload.
#[test]
fn what_tracking_refuses_is_shown_to_rules_on_events_and_headers() {
    let folder = Folder::new("refused-by-tracking");
    let mut capture = Capture::default();
    for (client, server) in ends() {
        open(&mut capture, client, server);
        capture.tcp(client, server, (101, 901), PSH | ACK, b"hi");
        capture.tcp(server, client, (901, 103), ACK, b"");
        capture.tcp(server, client, (88_000, 0), SYN, b"");
        capture.tcp(client, server, (77_000, 901), SYN | ACK, b"forged");
        capture.tcp(client, server, (103, 99_999), RST | ACK, b"");
        capture.tcp(client, server, (103, 901), PSH | ACK, b"goes on");
    }
    folder.write("c.pcap", capture.pcap());
    let rules = "alert tcp any any -> any any (msg:\"1\"; stream-event:est_syn_toclient; sid:1;)
alert tcp any any -> any any (msg:\"2\"; stream-event:est_synack_toserver; sid:2;)
alert tcp any any -> any any (msg:\"3\"; stream-event:rst_invalid_ack; sid:3;)
alert tcp any any -> any any (msg:\"4\"; flags:SA; flow:to_server; sid:4;)
alert tcp any any -> any any (msg:\"5\"; seq:77000; flow:established; sid:5;)
alert tcp any any -> any any (msg:\"6\"; content:\"forged\"; sid:6;)
alert tcp any any -> any any (msg:\"7\"; flags:SA; content:!\"x\"; flow:established; sid:7;)
alert tcp any any -> any any (msg:\"8\"; dsize:6; sid:8;)
alert tcp any any -> any any (msg:\"9\"; content:\"goes on\"; sid:9;)
";
    for (out, more, hidden) in [("inline", &["--ips"][..], true), ("passive", &[], false)] {
        inspect(&folder, rules, out, more);
        let seen = [(1, 6), (2, 7), (3, 8), (4, 7), (5, 7), (9, 9)];
        // Passively data waits for its acknowledgement.
        for (sid, packet) in &seen[..if hidden { 6 } else { 5 }] {
            let (sid, packet) = (*sid, *packet);
            assert_eq!(alerts(&folder, out, sid).first(), Some(&json!(packet)), "{out} {sid}");
            assert_eq!(alerts(&folder, out, sid).last(), Some(&json!(packet + 9)), "{out} {sid}");
        }
        let payload = if hidden { vec![] } else { vec![json!(7), json!(16)] };
        for sid in [6, 7, 8] {
            assert_eq!(alerts(&folder, out, sid), payload, "{out} {sid}");
        }
    }
    assert_eq!(folder.events("inline", "flow").len(), 2);
}

/// The bytes held around a segment after a gap are inspected with it, also those that came before it.
#[test]
fn a_segment_behind_a_hole_is_shown_with_what_came_earlier_behind_it() {
    let folder = Folder::new("behind-it-earlier");
    let mut capture = Capture::default();
    for (client, server) in ends() {
        open(&mut capture, client, server);
        capture.tcp(client, server, (114, 901), ACK, b"def");
        capture.tcp(client, server, (111, 901), ACK, b"abc");
        capture.tcp(client, server, (101, 901), ACK, b"0123456789");
        capture.tcp(server, client, (901, 117), ACK, b"");
    }
    folder.write("c.pcap", capture.pcap());
    let rules =
        "alert tcp any any -> any any (msg:\"n\"; content:\"abc\"; content:!\"def\"; within:3; sid:1;)
alert tcp any any -> any any (msg:\"p\"; content:\"abc\"; content:\"def\"; within:3; sid:2;)
";
    inspect(&folder, rules, "inline", &["--ips"]);
    assert_eq!(alerts(&folder, "inline", 1), [] as [Value; 0]);
    assert_eq!(alerts(&folder, "inline", 2).first(), Some(&json!(5)));
}

/// The stream waits for the next packet of its connection.
#[test]
fn a_packet_with_a_wrong_checksum_shows_nothing_of_the_stream() {
    let folder = Folder::new("wrong-checksum");
    let mut capture = Capture::default();
    for (client, server) in ends() {
        open(&mut capture, client, server);
        capture.tcp(client, server, (101, 901), ACK, b"first");
        capture.tcp(server, client, (901, 106), ACK, b"");
        capture.unsummed(client, server, (106, 901), ACK, b"stray");
        capture.tcp(client, server, (106, 901), ACK, b"next");
        capture.tcp(server, client, (901, 110), ACK, b"");
    }
    folder.write("c.pcap", capture.pcap());
    let rules = "alert tcp-stream any any -> any any (msg:\"s\"; content:\"first\"; sid:1;)
alert tcp-pkt any any -> any any (msg:\"p\"; content:\"stray\"; sid:2;)
";
    let more = ["--set", "stream.reassembly.toserver-chunk-size=4", "--set", "pcap-file.checksum-checks=yes"];
    inspect(&folder, rules, "passive", &more);
    assert_eq!(alerts(&folder, "passive", 1), [json!(7), json!(15)]);
    assert_eq!(alerts(&folder, "passive", 2), [json!(6), json!(14)]);
}

/// Each piece of the stream that a packet releases is inspected beside the transactions that come with it.
#[test]
fn what_lies_behind_a_hole_is_looked_for_beside_transactions() {
    let folder = Folder::new("beside-a-hole");
    let mut capture = Capture::default();
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 80\r\n\r\n0123456789";
    let question = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
    let next = 101 + question.len() as u32;
    let hole = 901 + head.len() as u32;
    for (client, server) in ends() {
        open(&mut capture, client, server);
        capture.tcp(client, server, (101, 901), PSH | ACK, question);
        capture.tcp(server, client, (901, next), ACK, head);
        capture.tcp(client, server, (next, hole), ACK, b"");
        // 20 bytes are lost.
        capture.tcp(server, client, (hole + 20, next), ACK, b"the needle is here.");
        capture.tcp(client, server, (next, hole + 39), ACK, b"");
        capture.tcp(server, client, (hole + 39, next), ACK, &[b'x'; 31]);
        capture.tcp(client, server, (next, hole + 70), ACK, b"");
        capture.tcp(client, server, (next, hole + 70), FIN | ACK, b"");
        capture.tcp(server, client, (hole + 70, next + 1), FIN | ACK, b"");
        capture.tcp(client, server, (next + 1, hole + 71), ACK, b"");
    }
    folder.write("c.pcap", capture.pcap());
    // As in Suricata: with the FIN, which shows both pieces, and each rule once.
    let rules = "alert http any any -> any any (msg:\"behind\"; http.stat_code; content:\"200\"; pkt_data; content:\"needle\"; sid:1;)
alert http any any -> any any (msg:\"before\"; http.stat_code; content:\"200\"; pkt_data; content:\"OK\"; sid:2;)
alert http any any -> any any (msg:\"body\"; file.data; content:\"456\"; pkt_data; content:\"needle\"; fast_pattern; sid:3;)
alert http any any -> any any (msg:\"in neither\"; http.stat_code; content:\"200\"; pkt_data; content:\"9the needle\"; sid:4;)
alert http any any -> any any (msg:\"in both\"; http.stat_code; content:\"200\"; pkt_data; content:\"e\"; nocase; sid:5;)
";
    inspect(&folder, rules, "passive", &[]);
    for sid in [1, 2, 3, 5] {
        assert_eq!(alerts(&folder, "passive", sid), [json!(12), json!(25)], "{sid}");
    }
    assert_eq!(alerts(&folder, "passive", 4), [] as [Value; 0]);
}

/// After a gap in DNS the parser searches for a message: the bytes that it skips do not make the stream be
/// inspected in pieces.
#[test]
fn only_messages_of_dns_prompt_a_look_at_the_stream() {
    let folder = Folder::new("no-message");
    let query =
        b"\x00\x1dp\xa5\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x02a1\x04x007\x03com\x00\x00\x01\x00\x01";
    let rest = b"\x00\x01\x00\x00\x00<\x00\x04\x93\xc5*\x10\xc0\x0c\x00\x10\x00\x01\x00\x00\x00<\x00\x04\x03abc\xc0\x0c\x00\x05\x00\x01\x00";
    let mut capture = Capture::default();
    for (client, (server, _)) in ends() {
        let server = (server, 53);
        open(&mut capture, client, server);
        capture.tcp(client, server, (101, 901), PSH | ACK, query);
        capture.tcp(server, client, (901, 132), ACK, b"");
        // Packet 6 acknowledges 35 bytes that are not in the capture.
        capture.tcp(client, server, (132, 936), ACK, b"");
        capture.tcp(server, client, (936, 132), ACK, rest);
        capture.tcp(client, server, (132, 971), ACK, b"");
        capture.tcp(server, client, (971, 132), PSH | ACK, b"\x00\x00<\x00\n\x04Toto\x03net\x00");
        capture.tcp(client, server, (132, 986), ACK, b"");
        capture.tcp(client, server, (132, 986), FIN | ACK, b"");
        capture.tcp(server, client, (986, 133), FIN | ACK, b"");
        capture.tcp(client, server, (133, 987), ACK, b"");
    }
    folder.write("c.pcap", capture.pcap());
    let rules = "alert tcp any any -> any any (msg:\"all\"; pcre:\"/^.{50}$/s\"; sid:1;)
alert tcp any any -> any any (msg:\"a piece\"; pcre:\"/^.{35}$/s\"; sid:2;)
";
    inspect(&folder, rules, "passive", &[]);
    assert_eq!(alerts(&folder, "passive", 1), [json!(12), json!(25)]);
    assert_eq!(alerts(&folder, "passive", 2), [] as [Value; 0]);
}

/// `tcp:all` means each packet but does not bind a rule to packets: its contents are searched in the stream
/// as well.
#[test]
fn a_rule_for_all_packets_looks_at_the_stream() {
    let folder = Folder::new("hook-all");
    let mut capture = Capture::default();
    for (client, server) in ends() {
        open(&mut capture, client, server);
        capture.tcp(client, server, (101, 901), ACK, b"over two seg");
        capture.tcp(client, server, (113, 901), ACK | PSH, b"ments, whole");
        capture.tcp(server, client, (901, 125), ACK, b"");
    }
    folder.write("c.pcap", capture.pcap());
    let rules = "alert tcp:all any any -> any any (msg:\"all\"; content:\"segments\"; sid:1;)
alert tcp any any -> any any (msg:\"none\"; content:\"segments\"; sid:2;)
alert tcp:all any any -> any any (msg:\"whole\"; content:\"whole\"; sid:3;)
";
    inspect(&folder, rules, "inline", &["--ips"]);
    let both = [json!(5), json!(11)];
    for sid in [1, 2, 3] {
        assert_eq!(alerts(&folder, "inline", sid), both, "{sid}");
    }
}

/// A rule that refuses bytes that were replaced would refuse the inspected ones: no packet is refused for
/// bytes that do not leave.
#[test]
fn what_is_undone_is_no_reason_to_refuse() {
    let folder = Folder::new("undone");
    let mut capture = Capture::default();
    for (client, server) in ends() {
        open(&mut capture, client, server);
        capture.tcp(client, server, (101, 901), ACK, b"GOOD");
        capture.tcp(client, server, (101, 901), ACK, b"EVIL");
        capture.tcp(client, server, (105, 901), ACK, b"more");
    }
    folder.write("c.pcap", capture.pcap());
    inspect(
        &folder,
        "drop tcp-pkt any any -> any any (msg:\"p\"; content:\"EVIL\"; sid:3;)\n",
        "inline",
        &["--ips"],
    );
    let stats: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("inline/stats.json")).unwrap())
            .expect("statistics");
    assert_eq!(stats["ips.blocked"], 0, "{stats}");
}

#[test]
fn inline_what_lies_behind_a_hole_is_shown_when_it_comes_and_again_in_its_place() {
    let folder = Folder::new("behind-a-hole");
    let mut capture = Capture::default();
    for (client, server) in ends() {
        open(&mut capture, client, server);
        capture.tcp(server, client, (901, 101), PSH | ACK, b"Please ");
        capture.tcp(server, client, (912, 101), PSH | ACK, b"Me ");
        capture.tcp(server, client, (915, 101), PSH | ACK, b"In!");
        capture.tcp(server, client, (908, 101), PSH | ACK, b"Let ");
    }
    folder.write("c.pcap", capture.pcap());
    let rules = "alert tcp any any -> any any (msg:\"late\"; content:\"Me In\"; sid:1;)
alert tcp any any -> any any (msg:\"all\"; content:\"Please Let Me In\"; sid:2;)
alert tcp any any -> any any (msg:\"hole\"; content:\"Please Me\"; sid:3;)
";
    inspect(&folder, rules, "inline", &["--ips"]);
    assert_eq!(alerts(&folder, "inline", 1), [json!(6), json!(7), json!(13), json!(14)]);
    assert_eq!(alerts(&folder, "inline", 2), [json!(7), json!(14)]);
    assert_eq!(alerts(&folder, "inline", 3), [] as [Value; 0]);
}

/// The sender's data did not end with the received bytes: some later ones are known to be missing.
#[test]
fn a_body_before_a_hole_is_cut_off_and_not_closed() {
    let folder = Folder::new("before-a-hole");
    let mut capture = Capture::default();
    for (client, server) in ends() {
        open(&mut capture, client, server);
        let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let after = 101 + request.len() as u32;
        capture.tcp(client, server, (101, 901), PSH | ACK, request);
        let answer = b"HTTP/1.1 200 OK\r\n\r\nten bytes.";
        let next = 901 + answer.len() as u32;
        capture.tcp(server, client, (901, after), PSH | ACK, answer);
        capture.tcp(client, server, (after, next), ACK, b"");
        capture.tcp(server, client, (next + 5, after), PSH | ACK, b"behind five");
        capture.tcp(client, server, (after, next), RST | ACK, b"");
    }
    folder.write("c.pcap", capture.pcap());
    inspect(&folder, "", "o", &[]);
    let files = folder.events("o", "fileinfo");
    assert_eq!(files.len(), 2, "{files:?}");
    for file in files {
        assert_eq!(
            (&file["fileinfo"]["state"], &file["fileinfo"]["size"]),
            (&json!("TRUNCATED"), &json!(10))
        );
    }
}

/// The rest of each side is inspected with the packet made for it: results of an answer alone are the
/// server's.
#[test]
fn what_the_end_of_a_flow_tells_comes_from_the_side_that_sent_it() {
    let folder = Folder::new("told-at-the-end");
    let mut capture = Capture::default();
    for (client, server) in ends() {
        capture.tcp(server, client, (900, 101), SYN | ACK, b"");
        capture.tcp(server, client, (901, 181), ACK, b"");
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        capture.tcp(server, client, (901, 181), PSH | ACK, answer);
        capture.tcp(server, client, (901 + answer.len() as u32, 182), FIN | ACK, b"");
    }
    folder.write("c.pcap", capture.pcap());
    inspect(&folder, "", "o", &["--set", "stream.midstream=true"]);
    let told = folder.events("o", "anomaly");
    assert_eq!(told.len(), 2, "{told:?}");
    for anomaly in told {
        assert_eq!(anomaly["anomaly"]["event"], "UNABLE_TO_MATCH_RESPONSE_TO_REQUEST");
        assert_eq!((&anomaly["src_port"], &anomaly["dest_port"]), (&json!(80), &json!(40_000)), "{anomaly}");
    }
    // The record itself goes by the flow.
    assert!(folder.events("o", "http").iter().all(|record| record["src_port"] == 40_000));
}

const ONE_SIDED: &[&str] = &["--set", "stream.async-oneside=true", "--set", "stream.midstream=true"];
const SIDES: &str = "alert http any any -> any any (msg:\"m\"; http.method; content:\"GET\"; sid:1;)
alert http any any -> any any (msg:\"b\"; http.request_body; content:\"efgh\"; sid:2;)
alert http any any -> any any (msg:\"s\"; http.stat_code; content:\"404\"; sid:3;)
alert tcp any any -> any any (msg:\"t\"; content:\"Host\"; sid:4;)
";

/// Packet and the named member of all records of a kind.
fn records(folder: &Folder, out: &str, kind: &str, member: &str) -> Vec<(Value, Value)> {
    let all = folder.events(out, kind);
    all.iter().map(|e| (e["pcap_cnt"].clone(), e[kind][member].clone())).collect()
}

/// The data of a flow with one visible side is never acknowledged or answered: alerts and records come with
/// its packets all the same.
#[test]
fn with_one_side_in_sight_nothing_waits_for_the_other() {
    let folder = Folder::new("one-side");
    for (n, (client, server)) in ends().into_iter().enumerate() {
        let mut capture = Capture::default();
        capture.tcp(client, server, (100, 0), SYN, b"");
        capture.tcp(client, server, (101, 901), ACK, b"");
        let mut at = 101;
        for data in [
            &b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            b"POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nabcd",
            b"efgh",
            b"GET /3 HTTP/1.1\r\nHost: a\r\n\r\n",
        ] {
            capture.tcp(client, server, (at, 901), PSH | ACK, data);
            at += data.len() as u32;
        }
        folder.write("c.pcap", capture.pcap());
        let out = format!("client-{n}");
        inspect(&folder, SIDES, &out, ONE_SIDED);
        assert_eq!(alerts(&folder, &out, 1), [json!(3), json!(6)]);
        assert_eq!(alerts(&folder, &out, 2), [json!(5)]);
        assert_eq!(alerts(&folder, &out, 4), [json!(3), json!(5), json!(6)]);
        let urls = [(json!(3), json!("/1")), (json!(5), json!("/2")), (json!(6), json!("/3"))];
        assert_eq!(records(&folder, &out, "http", "url"), urls);
        assert_eq!(records(&folder, &out, "fileinfo", "size"), [(json!(5), json!(8))]);

        let mut capture = Capture::default();
        capture.tcp(server, client, (900, 101), SYN | ACK, b"");
        capture.tcp(server, client, (901, 181), ACK, b"");
        let mut at = 901;
        for data in [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nok"[..],
            b"ok",
            b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno",
        ] {
            capture.tcp(server, client, (at, 181), PSH | ACK, data);
            at += data.len() as u32;
        }
        folder.write("c.pcap", capture.pcap());
        let out = format!("server-{n}");
        inspect(&folder, SIDES, &out, ONE_SIDED);
        assert_eq!(alerts(&folder, &out, 3), [json!(5)]);
        assert_eq!(
            records(&folder, &out, "http", "status"),
            [(json!(4), json!(200)), (json!(5), json!(404))]
        );
        assert_eq!(records(&folder, &out, "fileinfo", "size"), [(json!(4), json!(4)), (json!(5), json!(2))]);
    }
}

/// The other side was only late: its answer belongs to no request that was regarded as over, and later ones
/// are paired again.
#[test]
fn a_side_that_comes_late_is_read_from_there_on() {
    let folder = Folder::new("late-side");
    for (n, (client, server)) in ends().into_iter().enumerate() {
        let mut capture = Capture::default();
        let (get, no) =
            (b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno");
        let (asked, answered) = (get.len() as u32, no.len() as u32);
        capture.tcp(client, server, (100, 0), SYN, b"");
        capture.tcp(client, server, (101, 901), ACK, b"");
        capture.tcp(client, server, (101, 901), PSH | ACK, get);
        capture.tcp(server, client, (900, 101), SYN | ACK, b"");
        for turn in 0..2 {
            let (r, a) = (101 + asked * (turn + 1), 901 + answered * turn);
            capture.tcp(server, client, (a, r), PSH | ACK, no);
            capture.tcp(client, server, (r, a + answered), PSH | ACK, get);
        }
        folder.write("c.pcap", capture.pcap());
        let out = n.to_string();
        inspect(&folder, SIDES, &out, ONE_SIDED);
        let records = records(&folder, &out, "http", "status");
        let expected = [
            (json!(3), Value::Null),
            (json!(6), json!(404)),
            (json!(8), json!(404)),
            (Value::Null, Value::Null),
        ];
        assert_eq!(records, expected);
        assert_eq!(alerts(&folder, &out, 3).len(), 2);
    }
}

/// Transactions before a switch of protocols are inspected like any other, and a refusal of the answer
/// holds for the packet that carries it.
#[test]
fn transactions_before_a_switch_of_protocols_are_inspected() {
    let upgrade = "GET /in HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                   Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    let upgraded =
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX: told\r\n\r\n";
    let connect = "CONNECT in:443 HTTP/1.1\r\nHost: in\r\n\r\n";
    let connected = "HTTP/1.1 200 OK\r\nX: told\r\n\r\n";
    for (n, (question, answer)) in [(upgrade, upgraded), (connect, connected)].into_iter().enumerate() {
        let folder = Folder::new(&format!("before-a-switch-{n}"));
        let mut capture = Capture::default();
        for (client, server) in ends() {
            open(&mut capture, client, server);
            let (r, a) = (101 + question.len() as u32, 901 + answer.len() as u32);
            capture.tcp(client, server, (101, 901), PSH | ACK, question.as_bytes());
            capture.tcp(server, client, (901, r), PSH | ACK, answer.as_bytes());
            capture.tcp(client, server, (r, a), ACK, b"");
            capture.tcp(client, server, (r, a), PSH | ACK, b"\x81\x85\x01\x02\x03\x04abcde");
            capture.tcp(server, client, (a, r + 11), ACK, b"");
        }
        folder.write("c.pcap", capture.pcap());
        let rules = "alert http any any -> any any (msg:\"q\"; flow:to_server; http.request_line; content:\"in\"; sid:1;)
alert http any any -> any any (msg:\"a\"; flow:to_client; http.header; content:\"told\"; sid:2;)
";
        inspect(&folder, rules, "passive", &[]);
        for sid in [1, 2] {
            assert_eq!(alerts(&folder, "passive", sid).len(), 2, "{question} {sid}");
        }
        assert_eq!(folder.events("passive", "http").len(), 2);
        inspect(&folder, &rules.replace("alert", "drop"), "inline", &["--ips"]);
        inspect(&folder, &rules.lines().last().unwrap().replace("alert", "drop"), "answer", &["--ips"]);
        // From the question on, and from the answer on.
        assert_eq!(
            (refused(&folder, "inline"), refused(&folder, "answer")),
            (Some(10), Some(8)),
            "{question}"
        );
    }
}

/// Messages of WebSocket are inspected without mask, compression and division into frames, and refused with
/// the packet that completes what a rule looks for.
#[test]
fn messages_after_an_upgrade_are_inspected() {
    let question = "GET /chat HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                    Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    let answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
    let rules = "alert websocket any any -> any any (msg:\"hello\"; websocket.payload; content:\"Hello\"; sid:1;)\n\
                 alert websocket any any -> any any (msg:\"kind\"; websocket.opcode:ping; websocket.flags:fin; sid:2;)\n";
    // RFC 6455 section 5.7: a masked text, two fragments with a ping between them. RFC 7692 section 7.2.3.1:
    // a compressed text.
    let masked: &[&[u8]] = &[b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d", b"\x51\x58"];
    let fragments: &[&[u8]] = &[b"\x01\x03Hel", b"\x89\x00", b"\x80\x02lo"];
    let compressed: &[&[u8]] = &[b"\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00"];
    for (n, (segments, pings)) in [(masked, 0), (fragments, 1), (compressed, 0)].into_iter().enumerate() {
        let folder = Folder::new(&format!("after-an-upgrade-{n}"));
        let mut capture = Capture::default();
        for (client, server) in ends() {
            open(&mut capture, client, server);
            let (mut r, a) = (101 + question.len() as u32, 901 + answer.len() as u32);
            capture.tcp(client, server, (101, 901), PSH | ACK, question.as_bytes());
            capture.tcp(server, client, (901, r), PSH | ACK, answer.as_bytes());
            for segment in segments {
                capture.tcp(client, server, (r, a), PSH | ACK, segment);
                r += segment.len() as u32;
                capture.tcp(server, client, (a, r), ACK, b"");
            }
        }
        folder.write("c.pcap", capture.pcap());
        inspect(&folder, rules, "passive", &[]);
        let count = |out, sid| alerts(&folder, out, sid).len();
        assert_eq!((count("passive", 1), count("passive", 2)), (2, 2 * pings), "{n}");
        let records = folder.events("passive", "websocket");
        assert_eq!(records.len(), 2 * if pings == 0 { 1 } else { segments.len() }, "{records:?}");
        inspect(&folder, &rules.replace("alert", "drop"), "inline", &["--ips"]);
        assert_eq!(
            (count("inline", 1), count("inline", 2)),
            (if pings == 0 { 2 } else { 0 }, 2 * pings),
            "{n}"
        );
        // From the segment on that completes it.
        assert_eq!(refused(&folder, "inline"), Some(if pings == 0 { 4 } else { 8 }), "{n}");
    }
}

#[test]
fn phases_of_a_connection_are_known() {
    let folder = Folder::new("phases");
    let mut capture = Capture::default();
    for (client, server) in ends() {
        open(&mut capture, client, server);
        capture.tcp(client, server, (101, 901), ACK | PSH, b"hello");
        capture.tcp(server, client, (901, 106), ACK, b"");
        capture.tcp(client, server, (106, 901), ACK | FIN, b"");
        capture.tcp(server, client, (901, 107), ACK | PSH, b"more");
        capture.tcp(server, client, (905, 107), ACK | FIN, b"");
        capture.tcp(client, server, (107, 906), ACK, b"");
        // Refused at once.
        let (client, server) = ((client.0, 40_001), server);
        capture.tcp(client, server, (100, 0), SYN, b"");
        capture.tcp(server, client, (0, 101), RST | ACK, b"");
    }
    folder.write("c.pcap", capture.pcap());
    let rules = "alert tcp any any -> any any (msg:\"s\"; tcp.session:setup; sid:1;)
alert tcp any any -> any any (msg:\"e\"; tcp.session:established; sid:2;)
alert tcp any any -> any any (msg:\"c\"; tcp.session:closing; sid:3;)
alert ip any any -> any any (msg:\"sc\"; tcp.session:setup, closing; flow:to_client; sid:4;)
";
    inspect(&folder, rules, "passive", &[]);
    let twice = |packets: &[u64]| -> Vec<Value> {
        packets
            .iter()
            .copied()
            .chain(packets.iter().map(|packet| packet + 11))
            .map(|packet| json!(packet))
            .collect()
    };
    assert_eq!(alerts(&folder, "passive", 1), twice(&[1, 2, 3, 10, 11]));
    assert_eq!(alerts(&folder, "passive", 2), twice(&[4, 5, 6, 7, 8, 9]));
    assert_eq!(alerts(&folder, "passive", 3), twice(&[6, 7, 8]));
    assert_eq!(alerts(&folder, "passive", 4), twice(&[2, 7, 8, 11]));
}

#[test]
fn a_flow_beyond_a_rate_is_an_elephant() {
    let folder = Folder::new("elephants");
    let mut capture = Capture::default();
    for (client, server) in ends() {
        open(&mut capture, client, server);
        for segment in 0..10 {
            capture.tcp(client, server, (101 + segment * 100, 901), ACK, &[b'x'; 100]);
        }
        capture.tcp(server, client, (901, 1_101), ACK, b"y");
    }
    folder.write("c.pcap", capture.pcap());
    let rules = "alert tcp any any -> any any (msg:\"s\"; flow.elephant:toserver; sid:1;)
alert tcp any any -> any any (msg:\"c\"; flow.elephant:toclient; sid:2;)
alert tcp any any -> any any (msg:\"e\"; flow.elephant:either; sid:3;)
alert tcp any any -> any any (msg:\"b\"; flow.elephant:both; sid:4;)
";
    let tracked = ["--set", "flow.rate-tracking.bytes=900", "--set", "flow.rate-tracking.interval=10"];
    inspect(&folder, rules, "tracked", &tracked);
    // Frames of 54 and 154 bytes, over IPv6 of 74 and 174: the eighth packet to the server of the one, the
    // seventh of the other.
    let marked: Vec<Value> = (9..=14).chain(22..=28).map(|packet| json!(packet)).collect();
    assert_eq!(alerts(&folder, "tracked", 1), marked);
    assert_eq!(alerts(&folder, "tracked", 3), marked);
    assert_eq!(alerts(&folder, "tracked", 2), [] as [Value; 0]);
    assert_eq!(alerts(&folder, "tracked", 4), [] as [Value; 0]);
    let records = folder.events("tracked", "flow");
    assert_eq!(records.iter().map(|flow| &flow["flow"]["elephant"]).collect::<Vec<_>>(), [&json!(true); 2]);
    let stats = |out: &str| -> Value {
        let text = std::fs::read(folder.path().join(out).join("stats.json")).expect("stats");
        serde_json::from_slice(&text).expect("JSON")
    };
    let counted = stats("tracked");
    let names = ["flow.elephant", "flow.elephant_toserver", "flow.elephant_toclient"];
    assert_eq!(names.map(|name| counted[name].as_u64()), [Some(2), Some(2), Some(0)]);
    inspect(&folder, rules, "untracked", &[]);
    assert_eq!(folder.events("untracked", "alert").len(), 0);
    assert_eq!(names.map(|name| stats("untracked").get(name).cloned()), [None, None, None]);
    let wrong =
        folder.run(&["inspect", "--rules", "r.rules", "--set", "flow.rate-tracking.bytes=900", "c.pcap"]);
    assert!(
        wrong.code() != 0 && wrong.stderr().contains("flow.rate-tracking.interval"),
        "{}",
        wrong.stderr()
    );
}
