// SPDX-License-Identifier: Apache-2.0
//! Rules with parts that exclude each other, and the basis on which a rule with payload is evaluated, as in
//! Suricata 8.0.8 according to the differential test (docs/differential.md).

use crate::common;

use bartizan_base::SettingsMap;
use bartizan_detect::basis::{Basis, Packets};
use common::{Lab, NONE, load_text, matches, udp_rule};
use std::sync::Arc;

/// Whether each of some rules (without message and sid) is refused.
fn refused(rules: &[&str]) -> Vec<bool> {
    let of = |rule: &&str| {
        let text = format!("{} sid:1;)", rule);
        load_text(&text, &SettingsMap::new(), &Arc::default()).rules.signatures.is_empty()
    };
    rules.iter().map(of).collect()
}

#[test]
fn what_is_of_one_packet_cannot_stand_beside_a_transaction_or_the_stream() {
    for packet in [
        "dsize:>3;",
        "flags:A;",
        "ttl:64;",
        "seq:1;",
        "tcp.mss:>3;",
        "flow.pkts:toserver,>1;",
        "flow.bytes:toserver,>1;",
        "flow.age:>1;",
        "tcp.hdr; content:\"a\";",
        "flow:no_stream;",
    ] {
        let rule = |head: &str, more: &str| format!("alert {head} any any -> any any ({packet} {more}");
        for (head, more, is) in [
            ("tcp", "http.uri; content:\"a\";", true),
            ("tcp", "filesize:>1;", true),
            ("tcp", "app-layer-event:http.missing_host_header;", true),
            ("tcp-stream", "", true),
            ("http", "", false),
            ("tcp", "content:\"a\";", false),
        ] {
            assert_eq!(refused(&[rule(head, more).as_str()]), [is], "{packet} {head} {more}");
        }
    }
    // These conditions concern the flow, or events of the engine.
    for flow in [
        "stream_size:client,>,3;",
        "stream-event:est_invalid_ack;",
        "tcpv4-csum:valid;",
        "flowbits:isset,a;",
        "ip.src; content:\"a\";",
        "detection_filter:track by_src,count 1,seconds 1;",
    ] {
        let rule = format!("alert tcp any any -> any any ({flow} http.uri; content:\"a\";");
        assert_eq!(refused(&[rule.as_str()]), [false], "{flow}");
    }
}

#[test]
fn directions_that_contradict_each_other() {
    let rules = [
        ("->", "urilen:3; http.stat_code; content:\"2\";", true),
        ("->", "flow:to_server; http.stat_code; content:\"2\";", true),
        ("->", "flow:to_client; urilen:3;", true),
        // The body of a response turns a rule round that named the other direction before.
        ("->", "flow:to_server; http.response_body; content:\"b\";", false),
        ("->", "flow:to_server; http.response_body; content:\"b\"; http.stat_code; content:\"2\";", false),
        ("->", "flow:to_server; http.response_body; content:\"b\"; http.uri; content:\"a\";", true),
        ("->", "http.response_body; content:\"b\"; flow:to_server;", true),
        ("->", "flow:to_client; http.stat_code; content:\"2\";", false),
        // A file goes either way.
        ("->", "http.uri; content:\"a\"; file.data; content:\"2\";", false),
        ("->", "http.uri; content:\"a\"; content:\"2\"; http_server_body;", true),
        ("->", "content:\"a\"; http_uri; content:\"2\"; http_server_body;", false),
        ("->", "http.header.raw; content:\"b\";", true),
        ("->", "http.header.raw; to_md5; content:\"b\";", false),
        ("->", "flow:to_server; http.header.raw; content:\"b\";", false),
        ("->", "tls.sni; content:\"a\"; tls.version:1.2;", false),
    ];
    for (arrow, options, is) in rules {
        let rule = format!("alert tcp any any {arrow} any any ({options}");
        assert_eq!(refused(&[rule.as_str()]), [is], "{options}");
    }
}

#[test]
fn arguments_that_suricata_refuses() {
    let rules = [
        ("tcp", "content:\"b\"; detection_filter:track by_both, count 1, seconds 2;", true),
        ("tcp", "content:\"b\"; detection_filter:track by_rule, count 1, seconds 2;", true),
        ("tcp", "content:\"b\"; detection_filter:track by_flow, count 1, seconds 2;", false),
        ("http", "http.uri; to_lowercase; content:\"B\"; nocase;", true),
        ("http", "http.uri; to_lowercase; content:!\"B\";", false),
        ("http", "http.uri; strip_whitespace; to_uppercase; content:\"b\";", true),
        ("http", "http.uri; strip_whitespace; content:\"a b\";", true),
        ("http", "http.uri; compress_whitespace; content:\"a  b\";", true),
        ("http", "http.uri; compress_whitespace; content:\"a b\";", false),
        ("http", "http.uri; to_lowercase; base64_decode; base64_data; content:\"a\";", true),
        ("http", "http.uri; to_lowercase; content:\"a\"; base64_decode; base64_data; content:\"a\";", false),
        ("tcp", "base64_decode; base64_data; content:\"a\"; http.uri; content:\"b\";", true),
        ("tcp", "base64_decode; base64_data; content:\"a\"; pkt_data; content:\"b\";", false),
        ("tcp", "ip_proto:6; content:\"a\";", true),
        ("ip", "ip_proto:6; content:\"a\";", false),
        ("tls", "tls.version:\"1.2\";", true),
        ("tcp", "stream_size:client,>=,0;", false),
        ("tcp", "app-layer-protocol:unknown;", false),
    ];
    for (head, options, is) in rules {
        let rule = format!("alert {head} any any -> any any ({options}");
        assert_eq!(refused(&[rule.as_str()]), [is], "{options}");
    }
}

#[test]
fn what_must_not_occur_wants_a_payload_in_which_it_does_not() {
    for options in ["content:!\"q\";", "isdataat:!5;", "pcre:!\"/q/\";"] {
        assert!(matches(options, b"abc"), "{options}");
        assert!(!matches(options, b""), "{options}");
    }
    let mut lab = Lab::new(&udp_rule("dsize:0;"));
    assert_eq!(lab.send_to_server(b""), [1]);
    let mut lab = Lab::new(&udp_rule("flow:only_stream; content:\"a\";"));
    assert_eq!(lab.send_to_server(b"abc"), NONE);
}

#[test]
fn where_payloads_are_looked_at() {
    let of = |head: &str, options: &str| {
        let text = format!("alert {head} any any -> any any ({options} content:\"a\"; sid:1;)");
        let loaded = load_text(&text, &SettingsMap::new(), &Arc::default());
        let Basis { packets, stream } = Basis::of(&loaded.rules.signatures[0]);
        (packets, stream)
    };
    assert_eq!(of("tcp", ""), (Packets::OutsideStream, true));
    assert_eq!(of("tcp-stream", ""), (Packets::OutsideStream, true));
    assert_eq!(of("tcp-pkt", ""), (Packets::All, false));
    assert_eq!(of("tcp", "flow:only_stream;"), (Packets::None, true));
    assert_eq!(of("udp", "flow:only_stream;"), (Packets::None, false));
    assert_eq!(of("tcp", "stream_size:client,>,3;"), (Packets::All, true));
    for counted in ["flow.pkts:toserver,>1;", "flow.bytes:toserver,>1;", "flow.age:>1;"] {
        assert_eq!(of("tcp", counted), (Packets::All, false), "{counted}");
    }
    // All packets of a flow and direction have the same addresses; other packet buffers belong to a packet.
    for address in ["ip.src", "ip.dst"] {
        for head in ["tcp", "ip", "http", "tcp-stream"] {
            let options = format!("{address}; content:\"b\"; pkt_data;");
            assert_eq!(of(head, &options), (Packets::OutsideStream, true), "{head} {address}");
        }
        let options = |more| format!("{address}; to_md5; content:\"b\"; pkt_data; {more}");
        assert_eq!(of("tcp", &options("content:\"c\"; depth:9;")), (Packets::All, true), "{address}");
        assert_eq!(of("tcp", &options("flow:only_stream;")), (Packets::None, true), "{address}");
        for packet in ["flow:no_stream;", "dsize:>0;", "tcp.hdr; content:\"b\"; pkt_data;"] {
            assert_eq!(of("tcp", &options(packet)), (Packets::All, false), "{address} {packet}");
        }
        assert_eq!(of("tcp-pkt", &options("")), (Packets::All, false), "{address}");
        assert_eq!(of("udp", &options("")), (Packets::All, false), "{address}");
    }
    for header in ["ipv4.hdr", "ipv6.hdr", "tcp.hdr"] {
        let options = format!("{header}; content:\"b\"; pkt_data;");
        assert_eq!(of("tcp", &options), (Packets::All, false), "{header}");
    }
    assert_eq!(of("tcp", "pktvar:a,\"b\";"), (Packets::OutsideStream, true));
    assert_eq!(of("tcp", "stream-event:est_invalid_ack;"), (Packets::OutsideStream, true));
    assert_eq!(of("tcp", "tcpv4-csum:valid;"), (Packets::OutsideStream, true));
}

#[test]
fn contents_that_dsize_leaves_no_room_for_are_refused() {
    for (options, is) in [
        ("dsize:4; content:\"abcde\";", true),
        ("dsize:<5; content:\"abcde\";", false),
        ("dsize:<5; content:\"abcdef\";", true),
        ("dsize:2<>5; content:\"abcde\";", false),
        ("dsize:2<>5; content:\"abcdef\";", true),
        ("dsize:>3; content:\"abcde\";", false),
        ("dsize:!4; content:\"abcde\";", false),
        ("dsize:0; content:\"a\";", true),
        // With its offset.
        ("dsize:5; content:\"abcd\"; offset:2;", true),
        ("dsize:6; content:\"abcd\"; offset:2;", false),
        // The first content counts even if it is negated.
        ("dsize:5; content:!\"abcdef\";", true),
        ("dsize:5; content:\"ab\"; distance:4;", true),
        // Further contents count if they are relative to the one before.
        ("dsize:5; content:\"abc\"; content:\"def\";", false),
        ("dsize:5; content:\"a\"; content:\"abcdefgh\";", false),
        ("dsize:5; content:\"abc\"; content:\"def\"; distance:0;", true),
        ("dsize:5; content:\"abc\"; content:\"def\"; within:3;", true),
        ("dsize:6; content:\"abc\"; content:\"def\"; distance:0;", false),
        ("dsize:6; content:\"abc\"; content:\"def\"; distance:1;", true),
        ("dsize:7; content:\"abc\"; offset:2; content:\"def\"; distance:0;", true),
        ("dsize:5; content:\"abc\"; content:!\"def\"; distance:0;", false),
        ("dsize:5; content:\"abc\"; content:\"def\"; distance:-2;", false),
        ("dsize:5; content:\"abc\"; content:\"d\"; content:\"ef\"; distance:0;", false),
        ("dsize:5; content:\"ab\"; pcre:\"/xxxxx/R\"; content:\"cde\"; distance:1;", true),
        // A distance that is unknown when the rule loads.
        ("dsize:5; content:\"a\"; byte_extract:1,0,x,relative; content:\"bcde\"; distance:x;", false),
        ("dsize:5; content:\"abc\"; base64_decode:bytes 4; base64_data; content:\"abcdefgh\";", false),
    ] {
        for protocol in ["udp", "tcp"] {
            let rule = format!("alert {protocol} any any -> any any ({options}");
            assert_eq!(refused(&[rule.as_str()]), [is], "{protocol} {options}");
        }
    }
}
