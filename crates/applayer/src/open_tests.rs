// SPDX-License-Identifier: Apache-2.0
//! While detection is open no byte is lost: whatever the segments, the records and the order of both sides'
//! first bytes, a parser gets all bytes, and a request before its response.

use crate::detection::Detected;
use crate::event::{DETECT_PROTOCOL_ONLY_ONE_DIRECTION, PROTO_DETECTION_SKIPPED};
use crate::file::FileSettings;
use crate::flow::{AppLayer, DetectedProtocol, Engine, FlowInfo, HoldBounds, HoldDecision};
use crate::protocol::{Input, ProtocolSpec, Transport};
use crate::protocols::{self, dns, http, tls};
use crate::suite::cuts::{self, Player};
use crate::suite::feeder::Feeder;
use crate::suite::{Shape, play, shape};
use bartizan_base::Direction::{ToClient as TC, ToServer as TS};
use bartizan_base::{Direction, PacketDuration, PerDirection, SettingsMap, Timestamp};
use proptest::prelude::*;

fn engine() -> Engine {
    Engine::new(&SettingsMap::new(), FileSettings::default()).unwrap()
}

fn name(known: DetectedProtocol) -> Option<&'static str> {
    protocols::spec(known.protocol()?).map(|spec| spec.name)
}

fn shapes(spec: &ProtocolSpec, flow: &mut Feeder<'_>) -> Vec<Shape> {
    let parser = flow.parser();
    parser.tx_range().filter_map(|id| parser.tx(id)).map(|tx| shape(spec, tx)).collect()
}

/// Plays a conversation with cuts to a flow, and compares the result with a parser that gets it uncut.
fn assert_nothing_is_lost(
    spec: &'static ProtocolSpec,
    port: u16,
    pieces: &[(Direction, &[u8])],
    cuts: &[Vec<usize>],
) {
    let engine = engine();
    let mut flow = cuts::play(spec, || Feeder::new(&engine, port), pieces, cuts);
    flow.finish();
    assert_eq!(name(flow.app.protocol()), Some(spec.name), "cut at {cuts:?}");
    let whole = play(spec, Transport::Tcp, pieces, &[], false);
    assert_eq!(shapes(spec, &mut flow), whole.transactions, "cut at {cuts:?}");
    assert_eq!([flow.left(TS), flow.left(TC)], [0, 0]);
}

/// Offsets at which a piece is cut.
fn offsets(pieces: &[(Direction, &[u8])], lengths: &[usize]) -> Vec<Vec<usize>> {
    let mut lengths = lengths.iter().copied().cycle();
    let mut of = |bytes: &[u8]| {
        let mut at = 0;
        core::iter::from_fn(|| {
            at += lengths.next()?;
            (at < bytes.len()).then_some(at)
        })
        .collect()
    };
    pieces.iter().map(|(_, bytes)| of(bytes)).collect()
}

fn lengths() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![Just(vec![1]), prop::collection::vec(1usize..40, 1..20), Just(vec![100_000])]
}

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Requests that servers answer and whose beginning matches no pattern.
fn odd_request() -> impl Strategy<Value = Vec<u8>> {
    let blank = prop::collection::vec(prop::sample::select(vec!["\r\n", "\n"]), 0..5);
    let method = prop::sample::select(vec!["GET", "post", "FOO", "M-SEARCH", "X"]);
    (blank, method).prop_map(|(blank, method)| {
        format!("{}{method} /evil.php HTTP/1.1\r\nHost: a\r\n\r\n", blank.concat()).into_bytes()
    })
}

fn record(version: u8, body: &[u8]) -> Vec<u8> {
    record_of(22, 0x0300 | u16::from(version), body)
}

fn record_of(kind: u8, version: u16, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap().to_be_bytes();
    [&[kind][..], &version.to_be_bytes(), &length, body].concat()
}

/// Records that some server skips before a hello, or nothing.
fn skipped() -> impl Strategy<Value = Vec<u8>> {
    let alert = (any::<u16>(), any::<u8>()).prop_map(|(version, what)| record_of(21, version, &[1, what]));
    let change = any::<u16>().prop_map(|version| record_of(20, version, &[1]));
    prop_oneof![4 => Just(Vec::new()), 2 => alert, 1 => change]
}

fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap().to_be_bytes();
    [&kind.to_be_bytes()[..], &length, body].concat()
}

/// A client's hello that names a server.
fn hello(server: &[u8]) -> Vec<u8> {
    let length = u8::try_from(server.len()).unwrap();
    let names = [&[0, length + 3, 0, 0, length], server].concat();
    let extensions =
        [extension(0, &names), extension(10, &[0, 2, 0, 29]), extension(43, &[2, 3, 4])].concat();
    let total = u16::try_from(extensions.len()).unwrap().to_be_bytes();
    let mut body =
        [&[3, 3][..], &[7; 32], &[0, 0, 4, 0x13, 1, 0xc0, 0x2f, 1, 0], &total, &extensions].concat();
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    body.splice(0..0, [1, length[1], length[2], length[3]]);
    body
}

fn server_hello() -> Vec<u8> {
    let body = [&[3, 3][..], &[9; 32], &[0, 0x13, 1, 0, 0, 6, 0, 43, 0, 2, 3, 4]].concat();
    record(3, &[&[2, 0, 0, u8::try_from(body.len()).unwrap()][..], &body].concat())
}

/// The facts of a flow in passive mode or in prevention.
fn told(prevents: bool) -> FlowInfo {
    FlowInfo {
        now: Timestamp::ZERO,
        ports: PerDirection::new(80, 40_000),
        transport: Transport::Tcp,
        prevents,
        may_turn: false,
    }
}

fn input(data: &[u8]) -> Input<'_> {
    Input { data, offset: 0, eof: false }
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const RUBBISH: &[u8] = b"what no protocol of ours begins with, and no client of one says";

#[test]
fn passively_a_lost_beginning_leaves_its_side_untold() {
    let (engine, passive) = (engine(), told(false));
    let mut app = AppLayer::default();
    app.stream(&engine, TS, input(REQUEST), &passive);
    assert!(!app.take_detected(TC, false), "the acknowledgement of what is read");
    assert!(app.take_detected(TS, false), "the side's next packet");
    assert!(app.gap(&engine, TC, 10, ANSWER, false, &passive));
    assert_eq!(app.by_direction().to_client, DetectedProtocol::Pending);
    app.set_ended(TC);
    assert_eq!(name(app.protocol()), Some("http"));
    assert_eq!(app.by_direction().to_client, DetectedProtocol::Pending, "also at its end");
    assert!(!app.take_detected(TC, false) && !app.take_detected(TC, false));
}

#[test]
fn passively_a_side_that_says_nothing_speaks_the_others_protocol_at_its_end() {
    let engine = engine();
    for (prevents, at_the_end) in [(false, Some("http")), (true, None)] {
        let mut app = AppLayer::default();
        app.stream(&engine, TS, input(REQUEST), &told(prevents));
        assert_eq!(app.by_direction().to_client, DetectedProtocol::Pending);
        app.set_ended(TC);
        assert_eq!(name(app.by_direction().to_client), at_the_end);
        assert!(!app.take_detected(TC, false) && !app.take_detected(TC, false), "no rule is asked");
    }
}

#[test]
fn passively_a_flow_without_a_beginning_is_given_up_when_the_other_side_is_looked_at() {
    let (engine, passive) = (engine(), told(false));
    let mut app = AppLayer::default();
    app.stream(&engine, TS, input(RUBBISH), &passive);
    assert!(!app.gap(&engine, TC, 10, RUBBISH, false, &passive));
    assert_eq!(app.protocol(), DetectedProtocol::Pending);
    app.stream(&engine, TS, input(RUBBISH), &passive);
    assert_eq!(app.protocol(), DetectedProtocol::Failed);
}

#[test]
fn in_prevention_the_result_is_asked_for_again_when_the_other_side_tells_it() {
    let (engine, prevents) = (engine(), told(true));
    let mut app = AppLayer::default();
    app.stream(&engine, TS, input(RUBBISH), &prevents);
    assert!(app.take_detected(TS, false) && app.take_detected(TS, false) && !app.take_detected(TS, false));
    app.stream(&engine, TC, input(ANSWER), &prevents);
    assert_eq!(name(app.by_direction().to_client), Some("http"));
    assert!(app.take_detected(TC, false) && app.take_detected(TS, false));
    assert!(!app.take_detected(TS, false));
}

#[test]
fn a_line_before_the_clients_identification_is_refused() {
    let (engine, prevents) = (engine(), told(true));
    let mut app = AppLayer::default();
    app.stream(&engine, TS, input(b"a line\r\nSSH-2.0-x\r\n"), &prevents);
    assert!(app.waits(TS), "the bytes are kept until the server has spoken");
    let advance = app.stream(&engine, TC, input(b"SSH-2.0-server\r\n"), &prevents);
    assert!(advance.other_side_first && name(app.protocol()) == Some("ssh"));
    app.stream(&engine, TS, input(b"a line\r\nSSH-2.0-x\r\n"), &prevents);
    assert!(app.failed_parsing);
}

#[test]
fn in_prevention_mail_and_files_are_known_on_any_port() {
    let engine = engine();
    for (server, client, protocol) in [
        ("220 x ESMTP y\r\n", "", Some("smtp")),
        ("220 x\r\n", "NOOP\r\nMAIL FROM:<a>\r\n", Some("smtp")),
        ("", "RSET\r\nhelo x\r\n", Some("smtp")),
        ("220 welcome\r\n", " PASV\r\n", Some("ftp")),
        ("220 FTP server\r\n", "", Some("ftp")),
        ("220 x\r\n", "GET / HTTP/1.1\r\n", Some("http")),
        ("220 x\r\n", "NOOP\r\n", None),
        ("hello\r\n", "NOOP\r\n", None),
    ] {
        let mut app = AppLayer::default();
        for (direction, text) in [(TC, server), (TS, client)] {
            if !text.is_empty() {
                app.stream(&engine, direction, input(text.as_bytes()), &told(true));
            }
        }
        assert_eq!(name(app.protocol()), protocol, "{server} {client}");
        assert!(!app.failed_parsing, "{server} {client}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn http_records_do_not_depend_on_segments(
        first in odd_request(), second in odd_request(), lengths in lengths(), port in prop::sample::select(vec![80, 53, 9999]),
    ) {
        let pieces = [(TS, &first[..]), (TC, ANSWER), (TS, &second), (TC, ANSWER)];
        assert_nothing_is_lost(&http::SPEC, port, &pieces, &offsets(&pieces, &lengths));
    }

    /// The request is parsed, and can be refused, with its last byte, not with the response.
    #[test]
    fn http_is_known_before_the_server_can_answer(request in odd_request(), lengths in lengths()) {
        let engine = engine();
        let mut flow = Feeder::new(&engine, 80);
        let pieces = [(TS, &request[..])];
        let mut at = 0;
        for cut in offsets(&pieces, &lengths).concat().into_iter().chain([request.len()]) {
            flow.send(TS, &request[at..cut]);
            at = cut;
        }
        prop_assert_eq!(name(flow.app.protocol()), Some("http"));
        let seen = shapes(&http::SPEC, &mut flow);
        let uri = seen[0].buffers.iter().find(|b| b.0 == "http.uri").map(|b| b.3.clone());
        prop_assert_eq!(uri.as_deref(), Some(&b"/evil.php"[..]));
    }

    /// The parsed fields of a hello depend neither on its records, nor on their versions, nor on segments.
    #[test]
    fn tls_fields_do_not_depend_on_records(
        records in prop::collection::vec((skipped(), any::<u16>(), 0usize..60), 1..30),
        lengths in lengths(),
        port in prop::sample::select(vec![443, 9999]),
    ) {
        let hello = hello(b"evil.example");
        let mut rest = &hello[..];
        let mut cut = Vec::new();
        for (before, version, length) in &records {
            if rest.is_empty() {
                break;
            }
            let (head, tail) = rest.split_at_checked(*length).unwrap_or((rest, &[]));
            cut.extend(before);
            cut.extend(record_of(22, *version, head));
            rest = tail;
        }
        if !rest.is_empty() {
            cut.extend(record(1, rest));
        }
        let answer = server_hello();
        let engine = engine();
        let pieces = [(TS, &cut[..]), (TC, &answer)];
        let mut flow = cuts::play(&tls::SPEC, || Feeder::new(&engine, port), &pieces, &offsets(&pieces, &lengths));
        flow.finish();
        prop_assert_eq!(name(flow.app.protocol()), Some("tls"));
        let whole = play(&tls::SPEC, Transport::Tcp, &[(TS, &record(1, &hello)), (TC, &answer)], &[], false).transactions;
        let seen = shapes(&tls::SPEC, &mut flow);
        prop_assert_eq!(&seen[0].buffers, &whole[0].buffers);
        prop_assert_eq!(&seen[0].records, &whole[0].records);
        prop_assert!(seen[0].buffers.iter().any(|b| b.0 == "tls.sni" && b.3 == b"evil.example"));
        prop_assert_eq!([flow.left(TS), flow.left(TC)], [0, 0]);
    }

    /// A request whose protocol only the response reveals is held until then, and is parsed first.
    #[test]
    fn what_only_the_answer_explains_is_parsed_before_it(lengths in lengths()) {
        let request = format!("{} /evil.php HTTP/1.1\r\nHost: a\r\n\r\n", "A".repeat(40)).into_bytes();
        let pieces = [(TS, &request[..]), (TC, ANSWER), (TS, &request), (TC, ANSWER)];
        assert_nothing_is_lost(&http::SPEC, 80, &pieces, &offsets(&pieces, &lengths));
    }

    /// Whatever both sides send, and in whatever order: once the protocol is known the parser has got all
    /// bytes, and if it does not become known, nothing is held.
    #[test]
    fn any_order_loses_no_byte(
        order in prop::collection::vec((any::<bool>(), 1usize..30), 1..40),
        client in prop_oneof![odd_request(), Just(b"SSH-2.0-x\r\n".repeat(5)), prop::collection::vec(any::<u8>(), 0..80)],
        server in prop_oneof![Just(ANSWER.to_vec()), Just(b"220 mail ESMTP\r\n".to_vec()), prop::collection::vec(any::<u8>(), 0..80)],
    ) {
        let engine = engine();
        let mut flow = Feeder::new(&engine, 80);
        let mut rest = [&client[..], &server[..]];
        for (to_client, length) in order.into_iter().chain([(false, 10_000), (true, 10_000)]) {
            let rest = &mut rest[usize::from(to_client)];
            let (head, tail) = rest.split_at_checked(length).unwrap_or((rest, &[]));
            if !head.is_empty() {
                flow.send(if to_client { TC } else { TS }, head);
            }
            *rest = tail;
        }
        flow.finish();
        match flow.app.protocol() {
            DetectedProtocol::Protocol(id) if !flow.app.failed_parsing && flow.app.original().is_none() => {
                let waits = [flow.app.waits(TS), flow.app.waits(TC)];
                prop_assert!(waits == [false, false] || flow.app.finished(), "{waits:?} of {id:?}");
            }
            _ => {}
        }
    }
}

#[test]
fn an_answer_shows_what_the_request_was() {
    let engine = engine();
    let mut flow = Feeder::new(&engine, 80);
    let request = format!("{} /evil.php HTTP/1.1\r\n\r\n", "@".repeat(40)).into_bytes();
    flow.send(TS, &request[..20]);
    flow.send(TS, &request[20..]);
    assert_eq!(flow.app.protocol(), DetectedProtocol::Pending);
    assert_eq!(flow.app.by_direction().to_server, DetectedProtocol::Failed);
    assert_eq!(flow.left(TS), request.len(), "all of it waits");
    flow.send(TC, ANSWER);
    let seen = shapes(&http::SPEC, &mut flow);
    assert_eq!(seen.len(), 1, "request and answer are one transaction");
    assert!(seen[0].records[0].contains("/evil.php"));
    assert!(flow.app.events.has(DETECT_PROTOCOL_ONLY_ONE_DIRECTION));
    assert_eq!(flow.left(TS), 0);
}

/// In passive mode the engine sees no more of such hellos than Suricata does.
#[test]
fn hellos_that_suricata_does_not_see_are_seen_in_prevention_only() {
    let hello = hello(b"evil.example");
    let plain = record(1, &hello);
    for (cut, first) in [
        (false, record_of(22, 0x0200, &hello)),
        (false, record_of(22, 0x0404, &hello)),
        (false, record_of(22, 0x0f0f, &hello)),
        (false, record_of(22, 0, &hello)),
        (false, [record_of(21, 0x0301, &[1, 0x5a]), plain.clone()].concat()),
        (true, [record_of(21, 0x0301, &[1, 0x5a]), plain.clone()].concat()),
        (true, [record_of(20, 0x0303, &[1]), plain].concat()),
    ] {
        let engine = engine();
        for (make, seen) in [(Feeder::new as fn(_, _) -> _, true), (Feeder::passive, false)] {
            let mut flow = make(&engine, 443);
            let (head, tail) = first.split_at(if cut { 6 } else { 0 });
            for piece in [head, tail].into_iter().filter(|piece| !piece.is_empty()) {
                flow.send(TS, piece);
            }
            let found = shapes(&tls::SPEC, &mut flow);
            let mut buffers = found.iter().flat_map(|tx| &tx.buffers);
            let named = buffers.any(|b| b.0 == "tls.sni" && b.3 == b"evil.example");
            assert_eq!(named, seen, "{:?}", &first[..16]);
            assert!(!flow.app.failed_parsing);
            assert!(!seen || found[0].progress == [1, 0], "its handshake has only begun");
        }
    }
}

/// A server that takes any bytes for a method reads a request in bytes that are a hello for other servers.
#[test]
fn first_bytes_that_two_protocols_would_read_are_refused_in_prevention() {
    let plain = hello(b"good.example");
    let mut both = plain.clone();
    let request = b" /evil.php HTTP/1.1\r\n\r\n";
    both[6..6 + request.len()].copy_from_slice(request);
    let engine = engine();
    for version in [0x0301, 0x0303, 0x0505] {
        for (hello, contested) in [(&both, true), (&plain, false)] {
            let bytes = record_of(22, version, hello);
            for step in [1, 7, bytes.len()] {
                let mut flow = Feeder::new(&engine, 443);
                bytes.chunks(step).for_each(|piece| flow.send(TS, piece));
                assert_eq!(
                    (flow.app.failed_parsing, flow.app.finished()),
                    (contested, contested),
                    "{version:04x} by {step}"
                );
                // At the end of the request, however many bytes the record lacks.
                let mut flow = Feeder::new(&engine, 443);
                bytes[..11 + request.len()].chunks(step).for_each(|piece| flow.send(TS, piece));
                assert_eq!(flow.app.failed_parsing, contested, "{version:04x} by {step}");
                let mut flow = Feeder::passive(&engine, 443);
                bytes.chunks(step).for_each(|piece| flow.send(TS, piece));
                assert!(!flow.app.failed_parsing, "{version:04x} by {step}");
            }
        }
    }
}

const QUERY: &[u8] = b"\0\x1b\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x04evil\x04test\0\0\x01\0\x01";

/// A query over TCP that declares additionals without having them.
fn query(additionals: u16) -> Vec<u8> {
    let mut query = QUERY.to_vec();
    query[12..14].copy_from_slice(&additionals.to_be_bytes());
    query
}

fn asked(flow: &mut Feeder<'_>) -> usize {
    let found = shapes(&dns::SPEC, flow);
    found.iter().flat_map(|tx| &tx.buffers).filter(|b| b.0 == "dns.query" && b.3 == b"evil.test").count()
}

/// dnsmasq skips messages that are too short to be one, and ignores the number of additionals.
#[test]
fn queries_that_servers_answer_are_known_in_prevention() {
    for stream in [
        [b"\0\x05aaaaa", QUERY].concat(),
        [b"\0\x0baaaaaaaaaaa", QUERY].concat(),
        [&b"\0\x01a".repeat(20)[..], QUERY].concat(),
        [&b"\0\x01a".repeat(100)[..], QUERY].concat(),
        [&b"\0\0".repeat(3)[..], QUERY].concat(),
        [QUERY, b"\0\x03abc"].concat(),
        query(300),
        query(20),
    ] {
        for length in [1, 7, 13, stream.len()] {
            let engine = engine();
            let mut flow = Feeder::new(&engine, 53);
            stream.chunks(length).for_each(|piece| flow.send(TS, piece));
            assert_eq!(
                (name(flow.app.protocol()), asked(&mut flow)),
                (Some("dns"), 1),
                "{stream:?} by {length}"
            );
            assert!(!flow.app.failed_parsing);
            assert_eq!(flow.left(TS), 0);
            // At other ports no server expects it.
            let mut flow = Feeder::new(&engine, 9999);
            stream.chunks(length).for_each(|piece| flow.send(TS, piece));
            assert_eq!(name(flow.app.protocol()), None);
        }
    }
    // In passive mode as in Suricata.
    for stream in [[b"\0\x05aaaaa", QUERY].concat(), query(300), query(20)] {
        let engine = engine();
        let mut flow = Feeder::passive(&engine, 53);
        flow.send(TS, &stream);
        assert_eq!(name(flow.app.protocol()), None, "{stream:?}");
    }
}

#[test]
fn datagrams_with_wrong_counts_are_known_in_prevention() {
    for (port, server, counts) in
        [(53, "dns", [20u16, 255, 256, 300, 0xffff]), (5353, "mdns", [20, 255, 256, 300, 0xffff])]
    {
        for count in counts {
            let engine = engine();
            let seen = |prevents: bool| {
                let mut flow =
                    if prevents { Feeder::new(&engine, port) } else { Feeder::passive(&engine, port) };
                flow.datagram(TS, &query(count)[2..]);
                (name(flow.app.protocol()), flow.parser().tx_range().end - flow.parser().tx_range().start)
            };
            assert_eq!(seen(true), (Some(server), 1));
            assert_eq!(seen(false), (None, 0));
        }
    }
    // The same holds for a response: resolvers read the records that it has.
    let engine = engine();
    for (prevents, count) in [(true, 2), (false, 1)] {
        let mut flow = if prevents { Feeder::new(&engine, 53) } else { Feeder::passive(&engine, 53) };
        flow.datagram(TS, &QUERY[2..]);
        let mut answer = query(300)[2..].to_vec();
        answer[2] = 0x81;
        flow.datagram(TC, &answer);
        assert_eq!(flow.parser().tx_range().end - flow.parser().tx_range().start, count);
    }
}

/// Data that was held for too long leaves, and counts as having no protocol; nevertheless it is the beginning
/// of the data that follows.
#[test]
fn when_holding_ends_detection_goes_on() {
    let bounds = HoldBounds { bytes: 1024, time: PacketDuration::from_millis(150) };
    let hello = record(1, &hello(b"evil.example"));
    for (spec, port, bytes, last) in [
        (&dns::SPEC, 53, QUERY, 13),
        (&tls::SPEC, 443, &hello, 2),
        (&http::SPEC, 80, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 3),
    ] {
        for cut in 1..=last {
            let engine = engine();
            let mut flow = Feeder::new(&engine, port);
            flow.send(TS, &bytes[..cut]);
            let mut hold = |now: u64| flow.app.hold(TS, Timestamp::from_nanos(now * 1_000_000), &bounds);
            assert_eq!(
                [hold(0), hold(149), hold(150), hold(151)],
                [HoldDecision::Yes, HoldDecision::Yes, HoldDecision::Over, HoldDecision::No]
            );
            assert_eq!(
                flow.app.summary().by_direction.to_server,
                DetectedProtocol::Failed,
                "{} {cut}",
                spec.name
            );
            flow.send(TS, &bytes[cut..]);
            assert_eq!(name(flow.app.protocol()), Some(spec.name), "{cut}");
            assert_eq!(name(flow.app.by_direction().to_server), Some(spec.name), "{cut}");
            let whole = play(spec, Transport::Tcp, &[(TS, bytes)], &[], false).transactions;
            flow.finish();
            assert_eq!(shapes(spec, &mut flow), whole, "{} {cut}", spec.name);
        }
    }
}

#[test]
fn a_hole_that_a_parser_cannot_pass_fails_it_also_before_the_protocol_is_known() {
    let engine = engine();
    for known_before in [false, true] {
        for prevents in [false, true] {
            let mut flow = if prevents { Feeder::new(&engine, 443) } else { Feeder::passive(&engine, 443) };
            if known_before {
                flow.send(TS, &record(1, &hello(b"evil.example")));
            }
            flow.lose(TS, 10);
            flow.send(TS, &[7; 40]);
            flow.send(TC, &server_hello());
            assert_eq!(name(flow.app.protocol()), Some("tls"));
            assert_eq!(flow.app.failed_parsing, prevents, "known before: {known_before}");
            assert_eq!(flow.app.finished(), prevents, "passively the other side is read on");
        }
    }
}

#[test]
fn what_fills_a_hole_before_the_protocol_is_known_is_read_with_what_lies_behind_it() {
    let query =
        b"\x00\x1e\x9d\x29\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x02a1\x05xevil\x03com\x00\x00\x01\x00\x01";
    let mut answer = query.to_vec();
    answer[4..6].copy_from_slice(&[0x81, 0x80]);
    let engine = engine();
    for filled in [true, false] {
        for prevents in [false, true] {
            let mut flow = if prevents { Feeder::new(&engine, 53) } else { Feeder::passive(&engine, 53) };
            flow.lose(TS, 16);
            flow.send(TS, &query[16..]);
            if filled {
                flow.fill(TS, &query[..16]);
            }
            flow.send(TC, &answer);
            assert_eq!(name(flow.app.protocol()), Some("dns"));
            // A query and a response, or the possible beginning of a long message and a response.
            let left = if filled { 0 } else { query.len() - 16 };
            assert_eq!(flow.left(TS), left, "prevention: {prevents}");
            assert_eq!(shapes(&dns::SPEC, &mut flow).len(), 1 + usize::from(filled));
        }
    }
}

#[test]
fn what_was_left_unread_fails_nothing() {
    let engine = engine();
    let mut flow = Feeder::new(&engine, 443);
    flow.pass_over(TS, 10);
    flow.send(TS, &[7; 40]);
    flow.send(TC, &server_hello());
    assert_eq!(name(flow.app.protocol()), Some("tls"));
    assert!(!flow.app.failed_parsing && !flow.app.finished());
}

#[test]
fn records_say_of_detection_what_suricata_says() {
    // Although its protocol is recognised before the response, the client's side counts as not detected.
    let engine = engine();
    let mut flow = Feeder::new(&engine, 80);
    flow.send(TS, b"\r\nGET / HTTP/1.1\r\n\r\n");
    assert_eq!(name(flow.app.protocol()), Some("http"));
    assert_eq!(flow.app.by_direction().to_server, DetectedProtocol::Failed);
    assert!(!flow.app.events.has(DETECT_PROTOCOL_ONLY_ONE_DIRECTION));
    flow.send(TC, ANSWER);
    assert_eq!(name(flow.app.by_direction().to_client), Some("http"));
    assert!(flow.app.events.has(DETECT_PROTOCOL_ONLY_ONE_DIRECTION));
    // In passive mode detection can wait for the response, and agrees with Suricata about flows without one.
    let mut flow = Feeder::passive(&engine, 80);
    flow.send(TS, b"\r\nGET / HTTP/1.1\r\n\r\n");
    assert_eq!(flow.app.protocol(), DetectedProtocol::Pending);
    flow.send(TC, ANSWER);
    assert_eq!(name(flow.app.protocol()), Some("http"));
    assert_eq!(shapes(&http::SPEC, &mut flow).len(), 1);
    assert_eq!(flow.left(TS), 0);
}

/// In passive mode the end of a side decides nothing, but once the other side has revealed the protocol no
/// byte is left unparsed.
#[test]
fn what_waits_at_the_end_is_parsed_when_the_other_side_has_told_the_protocol() {
    let engine = engine();
    for make in [Feeder::new, Feeder::passive] {
        let mut flow = make(&engine, 80);
        flow.send(TS, b"GET / HTTP/1.1\r\n\r\n");
        flow.send(TC, b"HT");
        flow.finish();
        assert_eq!((name(flow.app.protocol()), flow.left(TC), flow.app.waits(TC)), (Some("http"), 0, false));
    }
}

#[test]
fn who_speaks_first_and_is_not_known_is_given_up_when_the_other_side_is_not_known_either() {
    for (port, banner, answer) in [
        (119, &b"200 news.example.org ready\r\n"[..], &b"MODE READER and so on\r\n"[..]),
        (6600, b"OK MPD 0.23.5 and so on\r\n", b"command_list_begin and so on\r\n"),
        (
            3306,
            b"\x4a\0\0\0\x0a8.0.36\0\x0b\0\0\0aaaaaaaa\0",
            b"\x54\0\0\x01\x85\xa2\x1a\0\0\0\0\x01\x2d\0\0\0\0\0",
        ),
    ] {
        let engine = engine();
        let mut flow = Feeder::new(&engine, port);
        flow.send(TC, banner);
        assert_eq!(flow.app.protocol(), DetectedProtocol::Pending);
        flow.send(TS, answer);
        assert_eq!(flow.app.protocol(), DetectedProtocol::Failed, "{port}");
        assert!(flow.app.finished());
    }
}

/// Binary first bytes may become a line with a version, but not if the server has answered in no known
/// protocol.
#[test]
fn who_is_answered_in_no_protocol_is_given_up() {
    let engine = engine();
    let mut flow = Feeder::new(&engine, 9999);
    flow.send(TS, b"\x03\0\0\x13\x0e\xe0\0\0");
    assert_eq!(flow.app.protocol(), DetectedProtocol::Pending);
    flow.send(TC, b"\x03\0\0\x13\x0e\xd0\0\0");
    assert_eq!(flow.app.protocol(), DetectedProtocol::Failed);
    assert!(flow.app.finished());
}

#[test]
fn a_silent_other_side_is_not_waited_for_for_ever() {
    let engine = engine();
    let mut flow = Feeder::passive(&engine, 9999);
    for _ in 0..99 {
        flow.send(TS, &[0xfe; 1000]);
        assert!(!flow.app.finished());
    }
    flow.send(TC, b"+OK\n");
    flow.send(TS, &[0xfe; 2000]);
    assert!(flow.app.finished());
    assert!(flow.app.events.has(PROTO_DETECTION_SKIPPED));
    // Endless white space counts as the text before a request.
    let mut flow = Feeder::new(&engine, 9999);
    for _ in 0..300 {
        flow.send(TS, &b"\r\n".repeat(500));
    }
    flow.send(TS, b"FOO /evil.php HTTP/1.1\r\n\r\n");
    assert!(shapes(&http::SPEC, &mut flow)[0].records[0].contains("/evil.php"));
}

#[test]
fn a_pattern_that_is_there_by_chance_hides_no_other_protocol() {
    // A query over TCP whose id and flags look like a hello of SSL 2.0.
    let query = [0, 19, 1, 0, 2, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, b'a', 0, 0, 1, 0, 1];
    let detector = crate::detection::Detector::new(&SettingsMap::new()).unwrap();
    let ports = bartizan_base::PerDirection::new(53, 40_000);
    let found = detector.detect(Transport::Tcp, TS, ports, &query, false);
    let (dns, _) = protocols::by_name("dns").unwrap();
    assert_eq!(found, Detected::Protocol(dns, TS));
}

#[test]
fn a_flow_that_is_watched_from_the_middle_on_has_no_protocol_if_its_client_tells_none() {
    let engine = engine();
    let known = |met: bool, prevents: bool| {
        let mut flow = if prevents { Feeder::new(&engine, 4_000) } else { Feeder::passive(&engine, 4_000) };
        if met {
            flow.mark_midstream();
        }
        flow.send(TS, b"the rest of a body that was begun before");
        flow.send(TC, ANSWER);
        name(flow.app.protocol())
    };
    assert_eq!(known(true, false), None);
    assert_eq!(known(false, false), Some("http"));
    assert_eq!(known(true, true), Some("http"), "before a receiver what it says is read");
}

#[test]
fn only_a_flow_that_was_met_in_the_middle_is_turned_by_an_answer() {
    let reverses = |setting: &str, may_turn: bool, data: &[u8]| {
        let mut settings = SettingsMap::new();
        settings.set("stream.midstream", setting);
        let engine = Engine::new(&settings, FileSettings::default()).unwrap();
        let ports = PerDirection::new(40_000, 80);
        let (now, transport) = (Timestamp::default(), Transport::Tcp);
        let info = FlowInfo { now, ports, transport, prevents: false, may_turn };
        AppLayer::default().stream(&engine, TS, Input { data, offset: 0, eof: false }, &info).reverse
    };
    assert!(reverses("yes", true, ANSWER));
    assert!(!reverses("yes", false, ANSWER), "its SYN was seen");
    assert!(!reverses("no", true, ANSWER));
    assert!(!reverses("yes", true, &ANSWER[..16]), "a pattern of a client may yet lie there");
    assert!(!reverses("yes", true, b"GET /evil HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert!(!reverses("yes", true, b"nothing that any pattern knows"));
}
