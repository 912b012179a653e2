// SPDX-License-Identifier: Apache-2.0
//! Tests of DNS: by conversation, and the properties of the shared suite.

use super::*;
use crate::suite::{self, Seed, protocol_suite, record};
use crate::transaction::{BufferQuery, LogOptions};
use bartizan_events::JsonWriter;
use serde_json::{Value, json};

/// Builds messages.
struct Build(Vec<u8>);

impl Build {
    fn new(id: u16, flags: u16, counts: [u16; 4]) -> Self {
        let mut bytes = Vec::new();
        for number in [id, flags, counts[0], counts[1], counts[2], counts[3]] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        Build(bytes)
    }

    fn name(mut self, text: &str) -> Self {
        for label in text.split('.').filter(|l| !l.is_empty()) {
            self.0.push(u8::try_from(label.len()).expect("a label"));
            self.0.extend_from_slice(label.as_bytes());
        }
        self.0.push(0);
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn question(self, text: &str, rrtype: u16) -> Self {
        self.name(text).raw(&rrtype.to_be_bytes()).raw(&[0, 1])
    }

    /// Adds a record whose owner is the name of the first question.
    fn record(self, rrtype: u16, ttl: u32, data: &[u8]) -> Self {
        self.raw(&[0xc0, 12]).tail(rrtype, ttl, data)
    }

    fn tail(self, rrtype: u16, ttl: u32, data: &[u8]) -> Self {
        let length = u16::try_from(data.len()).expect("data");
        self.raw(&rrtype.to_be_bytes())
            .raw(&[0, 1])
            .raw(&ttl.to_be_bytes())
            .raw(&length.to_be_bytes())
            .raw(data)
    }
}

fn query(id: u16) -> Vec<u8> {
    Build::new(id, 0x0120, [1, 0, 0, 1]).question("www.oisf.net", 1).name("").tail(41, 0, &[]).0
}

fn response(id: u16) -> Vec<u8> {
    let soa: Vec<u8> = [b"\x02ns\xc0\x10\x04root\xc0\x10".as_slice(), &[0; 3], &[7; 17]].concat();
    Build::new(id, 0x8580, [1, 8, 1, 2])
        .question("www.oisf.net", 1)
        .record(5, 60, b"\x03web\xc0\x10")
        .record(1, 61, &[192, 0, 2, 1])
        .record(28, 62, &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])
        .record(15, 63, b"\x00\x0a\x04mail\xc0\x10")
        .record(16, 64, b"\x02ab\x03c\xffd")
        .record(33, 65, b"\x00\x01\x00\x02\x00\x35\x03srv\xc0\x10")
        .record(44, 66, &[1, 2, 0xab, 0xcd])
        .record(13, 67, b"\x01x\x01y")
        .record(6, 68, &soa)
        .name("")
        .tail(41, 0, &[0, 10, 0, 2, 0xbe, 0xef])
        .name("")
        .tail(41, 0, &[])
        .0
}

fn framed(messages: &[Vec<u8>]) -> Vec<u8> {
    messages
        .iter()
        .flat_map(|m| [u16::try_from(m.len()).expect("a message").to_be_bytes().as_slice(), m].concat())
        .collect()
}

fn tcp_seeds() -> Vec<Seed> {
    let one = vec![
        (Direction::ToServer, framed(&[query(1)])),
        (Direction::ToClient, framed(&[response(1)])),
        (Direction::ToServer, framed(&[query(2)])),
    ];
    let pipelined = vec![
        (Direction::ToServer, framed(&[query(1), query(2), query(3)])),
        (Direction::ToClient, [framed(&[response(2)]), vec![0, 0], framed(&[response(1)])].concat()),
    ];
    vec![one, pipelined]
}

fn udp_seeds() -> Vec<Seed> {
    vec![vec![(Direction::ToServer, query(1)), (Direction::ToClient, response(1))]]
}

fn multicast_seeds() -> Vec<Seed> {
    vec![vec![(Direction::ToServer, query(0)), (Direction::ToServer, response(0))]]
}

protocol_suite!(over_tcp, &SPEC, Transport::Tcp, tcp_seeds());
protocol_suite!(over_udp, &SPEC, Transport::Udp, udp_seeds());
protocol_suite!(multicast, &MDNS, Transport::Udp, multicast_seeds());

fn tx(direction: Direction, bytes: &[u8]) -> DnsTransaction {
    transaction(Variant::Unicast, direction, bytes, false).expect("a message")
}

fn logged(tx: &DnsTransaction, options: &LogOptions, in_alert: bool) -> Value {
    serde_json::from_str(&record(tx, options, in_alert)).expect("JSON")
}

fn options(version: u8, settings: &[(&str, &str)], formats: &[&str]) -> LogOptions {
    let mut options = LogOptions { version, ..LogOptions::default() };
    settings.iter().for_each(|(key, value)| options.settings.set(*key, *value));
    options.formats = formats.iter().map(|f| (*f).to_owned()).collect();
    options
}

fn values(tx: &DnsTransaction, name: &str, direction: Direction) -> Vec<String> {
    let spec = if tx.variant() == Variant::Unicast { &SPEC } else { &MDNS };
    let buffer = spec.buffers.iter().find(|b| b.name == name).expect("a buffer");
    (0..)
        .map_while(|index| {
            let mut scratch = Vec::new();
            let view = tx.buffer(BufferQuery { id: buffer.id, direction, index }, &mut scratch)?;
            Some(String::from_utf8_lossy(view.data).into_owned())
        })
        .collect()
}

#[test]
fn a_query_in_version_3() {
    let value = logged(&tx(Direction::ToServer, &query(7)), &options(3, &[], &[]), false);
    assert_eq!(
        value,
        json!({"version": 3, "type": "request", "tx_id": 0, "id": 7, "flags": "120", "rd": true, "opcode": 0,
            "rcode": "NOERROR", "queries": [{"rrname": "www.oisf.net", "rrtype": "A"}]})
    );
}

#[test]
fn a_response_in_version_3() {
    let value = logged(&tx(Direction::ToClient, &response(7)), &options(3, &[], &[]), false);
    let soa = json!({"mname": "ns.oisf.net", "rname": "root.oisf.net", "serial": 7, "refresh": 117_901_063,
        "retry": 117_901_063, "expire": 117_901_063, "minimum": 117_901_063});
    let fingerprint = json!({"fingerprint": "ab:cd", "algo": 1, "type": 2});
    let service = json!({"priority": 1, "weight": 2, "port": 53, "name": "srv.oisf.net"});
    let rr = |rrtype: &str, ttl: u32, key: &str, data: &Value| json!({"rrname": "www.oisf.net", "rrtype": rrtype, "ttl": ttl, key: data});
    assert_eq!(
        value,
        json!({"version": 3, "type": "response", "tx_id": 0, "id": 7, "flags": "8580", "qr": true, "aa": true,
            "rd": true, "ra": true, "opcode": 0, "rcode": "NOERROR",
            "queries": [{"rrname": "www.oisf.net", "rrtype": "A"}],
            "answers": [
                rr("CNAME", 60, "rdata", &json!("web.oisf.net")),
                rr("A", 61, "rdata", &json!("192.0.2.1")),
                rr("AAAA", 62, "rdata", &json!("2001:0db8:0000:0000:0000:0000:0000:0001")),
                rr("MX", 63, "rdata", &json!("mail.oisf.net")),
                rr("TXT", 64, "rdata", &json!("ab")),
                rr("TXT", 64, "rdata", &json!("c\\xffd")),
                rr("SRV", 65, "srv", &service),
                rr("SSHFP", 66, "sshfp", &fingerprint),
                {"rrname": "www.oisf.net", "rrtype": "HINFO", "ttl": 67},
            ],
            "grouped": {"CNAME": ["web.oisf.net"], "A": ["192.0.2.1"],
                "AAAA": ["2001:0db8:0000:0000:0000:0000:0000:0001"], "MX": ["mail.oisf.net"],
                "TXT": ["ab", "c\\xffd"], "SRV": [service], "SSHFP": [fingerprint]},
            "authorities": [rr("SOA", 68, "soa", &soa)],
            "additionals": [{"rrname": "", "rrtype": "OPT", "ttl": 0, "opt": [{"code": 10, "data": "beef"}]}]})
    );
}

#[test]
fn alerts_show_everything_but_groups() {
    let tx = tx(Direction::ToClient, &response(7));
    let value = logged(&tx, &options(2, &[("responses", "no")], &[]), true);
    assert_eq!(value["version"], 3);
    assert_eq!(value["answers"].as_array().map(Vec::len), Some(9));
    assert!(value.get("grouped").is_none());
}

#[test]
fn version_2() {
    let value = logged(&tx(Direction::ToServer, &query(7)), &options(2, &[], &[]), false);
    assert_eq!(
        value,
        json!({"version": 2, "type": "query", "id": 7, "rrname": "www.oisf.net", "rrtype": "A", "tx_id": 0, "opcode": 0})
    );
    let value = logged(&tx(Direction::ToClient, &response(7)), &options(2, &[], &["grouped"]), false);
    assert_eq!(
        (&value["type"], &value["rrname"], &value["rrtype"]),
        (&json!("answer"), &json!("www.oisf.net"), &json!("A"))
    );
    assert!(value.get("answers").is_none() && value.get("queries").is_none() && value.get("tx_id").is_none());
    assert_eq!(value["grouped"]["A"][0], "192.0.2.1");
}

#[test]
fn version_2_has_a_record_for_each_question() {
    let message =
        Build::new(7, 0x0100, [3, 0, 0, 0]).question("one.e", 1).question("two.e", 15).question("three.e", 1);
    let tx = tx(Direction::ToServer, &message.0);
    let names = |settings: &[(&str, &str)]| {
        let options = options(2, settings, &[]);
        let name = |number| {
            let mut json = JsonWriter::new();
            json.begin_object();
            tx.log_record(&mut json, &options, number);
            json.end_object();
            let value: serde_json::Value = serde_json::from_slice(json.bytes()).expect("JSON");
            value["rrname"].as_str().expect("a name").to_owned()
        };
        (0..tx.records(&options)).map(name).collect::<Vec<_>>()
    };
    assert_eq!(names(&[]), ["one.e", "two.e", "three.e"]);
    assert_eq!(names(&[("types.0", "a")]), ["one.e", "three.e"]);
    assert_eq!(names(&[("types.0", "mx")]), ["two.e"]);
    assert_eq!(names(&[("requests", "no")]), [""; 0]);
    assert_eq!(tx.records(&options(3, &[], &[])), 1);
}

#[test]
fn filters() {
    let (query, response) = (tx(Direction::ToServer, &query(1)), tx(Direction::ToClient, &response(1)));
    let wanted = |tx: &DnsTransaction, settings: &[(&str, &str)]| {
        [2, 3].map(|v| tx.records(&options(v, settings, &[])) == 1)
    };
    assert_eq!(wanted(&query, &[]), [true; 2]);
    assert_eq!(wanted(&query, &[("requests", "no")]), [false; 2]);
    assert_eq!(wanted(&response, &[("requests", "no")]), [true; 2]);
    assert_eq!(wanted(&response, &[("responses", "no")]), [false; 2]);
    assert_eq!(wanted(&query, &[("types.0", "mx")]), [false; 2]);
    assert_eq!(wanted(&query, &[("types.0", "mx"), ("types.1", "a")]), [true; 2]);
    // A type without a name is logged only as long as no filter is set.
    let unnamed = tx(Direction::ToServer, &Build::new(1, 0, [1, 0, 0, 0]).question("a.b", 64).0);
    assert_eq!(wanted(&unnamed, &[]), [true; 2]);
    assert_eq!(wanted(&unnamed, &[("responses", "no")]), [false; 2]);
    assert_eq!(logged(&unnamed, &options(3, &[], &[]), false)["queries"][0]["rrtype"], "64");
}

#[test]
fn the_name_of_the_root_is_there() {
    let (ts, tc) = (Direction::ToServer, Direction::ToClient);
    let root = |flags, answers: u16| Build::new(1, flags, [1, answers, 0, 0]).question("", 2);
    let is_present = |tx: &DnsTransaction, name: &str, direction| {
        let spec = SPEC.buffers.iter().find(|b| b.name == name).unwrap();
        tx.is_present(BufferQuery { id: spec.id, direction, index: 0 })
    };
    let query = tx(ts, &root(0, 0).0);
    for name in ["dns.query", "dns.queries.rrname", "dns.query.name"] {
        assert_eq!(values(&query, name, ts), [""; 0], "{name}");
        assert!(is_present(&query, name, ts) && !is_present(&query, name, tc), "{name}");
    }
    assert!(!is_present(&query, "dns.answers.rrname", ts));
    let response = tx(tc, &root(0x8000, 0).0);
    assert!(
        is_present(&response, "dns.queries.rrname", tc) && is_present(&response, "dns.response.rrname", tc)
    );
    assert!(!is_present(&response, "dns.answers.rrname", tc) && !is_present(&response, "dns.query", ts));
}

#[test]
fn buffers_and_numbers() {
    let (ts, tc) = (Direction::ToServer, Direction::ToClient);
    let query = tx(ts, &query(1));
    let response = tx(tc, &response(1));
    assert_eq!(values(&query, "dns.query", ts), ["www.oisf.net"]);
    assert_eq!(values(&query, "dns.queries.rrname", tc), [""; 0]);
    assert_eq!(values(&response, "dns.query", ts), [""; 0]);
    assert_eq!(values(&response, "dns.queries.rrname", tc), ["www.oisf.net"]);
    assert_eq!(values(&response, "dns.answers.rrname", tc).len(), 8);
    assert_eq!(values(&response, "dns.authorities.rrname", tc), ["www.oisf.net"]);
    assert_eq!(values(&response, "dns.additionals.rrname", tc), [""; 0], "the root ends the section");
    let all = values(&response, "dns.response.rrname", tc);
    assert_eq!(all.len(), 1 + 8 + 2 + 2, "{all:?}");
    assert!(all.contains(&"mail.oisf.net".to_owned()) && all.contains(&"ns.oisf.net".to_owned()));
    assert_eq!(query.number(buffers::RRTYPE, ts), Some(1));
    assert_eq!(query.number(buffers::RCODE, tc), None);
    assert_eq!(response.number(buffers::RRTYPE, tc), Some(5));
    assert_eq!(response.number(buffers::OPCODE, tc), Some(0));
    assert_eq!(values(&response, "dns.rrtype.raw", tc).len(), 8);
}

#[test]
fn events() {
    let names = |direction, bytes: &[u8]| -> Vec<&str> {
        tx(direction, bytes).common().events.as_slice().iter().map(|e| EVENTS[usize::from(*e)]).collect()
    };
    let odd = |flags| Build::new(1, flags, [1, 0, 0, 0]).question("a", 1).0;
    assert_eq!(names(Direction::ToServer, &odd(0x0040)), ["z_flag_set"]);
    assert_eq!(names(Direction::ToServer, &odd(0x3800)), ["invalid_opcode"]);
    assert_eq!(names(Direction::ToClient, &odd(0)), ["not_response"]);
    let refused = transaction(Variant::Unicast, Direction::ToServer, &odd(0x8000), false).err();
    assert_eq!(refused, Some(DnsMessageError::NotRequest));
    let broken = |counts| Build::new(1, 0x8000, counts).question("a", 1).raw(&[0x80; 8]).0;
    assert_eq!(names(Direction::ToClient, &broken([1, 0, 1, 0])), ["invalid_authorities"]);
    assert_eq!(names(Direction::ToClient, &broken([1, 0, 0, 1])), ["invalid_additionals"]);
    let refused = transaction(Variant::Unicast, Direction::ToClient, &broken([1, 1, 0, 0]), false).err();
    assert_eq!(refused, Some(DnsMessageError::Malformed));
    // The class is read a second time, as a pointer at itself.
    let looped = Build::new(1, 0, [1, 0, 0, 0]).raw(&[0xc0, 16, 0, 1, 0xc0, 16]).0;
    assert_eq!(names(Direction::ToServer, &looped), ["infinite_loop"]);
    let circle = Build::new(1, 0, [1, 0, 0, 0]).raw(&[1, b'x', 0xc0, 12, 0, 1, 0, 1]).0;
    assert_eq!(names(Direction::ToServer, &circle), ["name_too_long", "too_many_labels"]);
}

#[test]
fn events_of_refused_messages_go_to_the_message_before() {
    let mut driver = suite::Driver::new(&SPEC, Transport::Udp);
    driver.send(Direction::ToServer, &query(1));
    driver.send(Direction::ToServer, &response(1));
    let outcome = driver.outcome();
    assert_eq!(outcome.transactions.len(), 1);
    assert_eq!(outcome.transactions[0].events, [NOT_REQUEST]);
}

#[test]
fn what_is_and_is_not_dns() {
    let looks = |bytes: &[u8]| probe(Transport::Udp, Direction::ToServer, bytes);
    assert_eq!(looks(&query(1)), Probe::Yes(Direction::ToServer));
    assert_eq!(looks(&response(1)), Probe::Yes(Direction::ToClient), "the flow is the wrong way round");
    assert_eq!(looks(b"GET / HTTP/1.0\r\n\r\n"), Probe::No);
    assert_eq!(looks(&Build::new(1, 0, [0, 0, 0, 0]).0), Probe::No, "asks nothing");
    assert_eq!(looks(&Build::new(1, 0x8001, [0, 0, 0, 0]).0), Probe::Yes(Direction::ToClient), "an error");
    assert_eq!(
        probe_multicast(Transport::Udp, Direction::ToServer, &response(1)),
        Probe::Yes(Direction::ToServer)
    );
    let stream = framed(&[response(1)]);
    assert_eq!(probe(Transport::Tcp, Direction::ToServer, &stream[..13]), Probe::More);
    assert_eq!(probe(Transport::Tcp, Direction::ToServer, &stream[..14]), Probe::Yes(Direction::ToClient));
}

#[test]
fn after_a_gap_the_next_message_is_found() {
    let mut driver = suite::Driver::new(&SPEC, Transport::Tcp);
    let stream = framed(&[query(1), query(2)]);
    driver.send(Direction::ToServer, &stream[..20]);
    driver.lose(Direction::ToServer, 30);
    driver.send(Direction::ToServer, b"the end of a message that began in the gap");
    driver.send(Direction::ToServer, &framed(&[query(3)]));
    let outcome = driver.outcome();
    assert!(!outcome.failed);
    assert_eq!(outcome.transactions.len(), 1);
    assert!(outcome.transactions[0].records[0].contains("\"id\":3"));
}

/// The ids of two messages that are parsed after one that a gap has cut, or whose end it has swallowed, in
/// pieces of a size.
fn ids_behind_a_gap(sent: usize, lost: usize, piece: usize) -> Vec<bool> {
    let mut driver = suite::Driver::new(&SPEC, Transport::Tcp);
    let stream = framed(&[query(1), query(2), query(3)]);
    driver.send(Direction::ToServer, &stream[..sent]);
    driver.lose(Direction::ToServer, lost as u64);
    for piece in stream[sent + lost..].chunks(piece) {
        driver.send(Direction::ToServer, piece);
    }
    let outcome = driver.outcome();
    assert!(!outcome.failed, "{sent} {lost} {piece}");
    let has = |id: u32| {
        let id = format!("\"id\":{id}");
        outcome.transactions.iter().any(|one| one.records.iter().any(|record| record.contains(&id)))
    };
    [1, 2, 3].map(has).to_vec()
}

#[test]
fn behind_a_cut_message_the_next_one_begins_where_it_ends() {
    let length = framed(&[query(1)]).len();
    for piece in [1, 3, 16, 100] {
        for sent in 2..length {
            for lost in 1..=length - sent {
                assert_eq!(ids_behind_a_gap(sent, lost, piece), [false, true, true], "{sent} {lost} {piece}");
            }
        }
        // The length of the message with which the gap begins, or ends, is unknown.
        for (sent, lost) in [(0, 5), (1, 5), (0, length + 7), (5, length), (10, length + 3)] {
            assert!(ids_behind_a_gap(sent, lost, piece)[2], "{sent} {lost} {piece}");
        }
    }
}

#[test]
fn a_flood_in_one_piece_is_bounded() {
    let mut driver = suite::Driver::new(&SPEC, Transport::Tcp);
    let piece = framed(&vec![query(1); MAX_HELD + 10]);
    driver.send(Direction::ToServer, &piece);
    let range = driver.parser().tx_range();
    assert_eq!((range.start, range.end), (10, (MAX_HELD + 10) as u64));
    let newest = driver.parser().tx(range.end - 1).expect("the newest");
    assert!(newest.common().events.has(FLOODED));
}

#[test]
fn a_message_that_unfolds_stays_small() {
    // 4,000 records, each with a name of 1,025 bytes by pointer.
    let label = [&[63u8][..], &[b'a'; 63]].concat();
    let mut build = Build::new(1, 0x8000, [1, 4000, 0, 0]);
    for _ in 0..17 {
        build = build.raw(&label);
    }
    build = build.raw(&[0, 0, 1, 0, 1]);
    for _ in 0..4000 {
        build = build.record(16, 0, b"");
    }
    let tx = tx(Direction::ToClient, &build.0);
    assert!(tx.message().size() < 3 * build.0.len());
    assert!(tx.common().events.has(NAME_TOO_LONG));
    assert_eq!(values(&tx, "dns.answers.rrname", Direction::ToClient).len(), 4000);
}

#[test]
fn multicast_records() {
    let tx = transaction(Variant::Multicast, Direction::ToServer, &response(0), false).expect("a message");
    let value = logged(&tx, &LogOptions::default(), false);
    assert_eq!(value["type"], "response");
    assert_eq!(value["flags"], json!(["aa", "rd", "ra"]));
    assert_eq!(value["rcode"], 0);
    assert_eq!(value["answers"][0], json!({"rrname": "www.oisf.net", "cname": "web.oisf.net"}));
    assert_eq!(value["answers"][4]["txt"], json!(["ab", "c\\xffd"]));
    assert_eq!(value["answers"][7]["hinfo"], "\u{1}x\u{1}y");
    assert_eq!(values(&tx, "mdns.answers.rrname", Direction::ToServer).len(), 8);
    assert_eq!(values(&tx, "mdns.queries.rrname", Direction::ToServer), [""; 0]);
    assert!(values(&tx, "mdns.response.rrname", Direction::ToServer).len() > 8);
}
