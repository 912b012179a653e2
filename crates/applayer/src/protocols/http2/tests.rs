// SPDX-License-Identifier: Apache-2.0
//! Tests of HTTP/2: recognition, conversations, records, limits, prevention.

use super::*;
use crate::flow::{AppLayer, DetectedProtocol, Engine, FlowInfo};
use crate::protocol::Input;
use crate::suite::{Driver, Seed, protocol_suite};
use crate::transaction::{BufferQuery, LogOptions};
use crate::{event, file::FileSettings, protocols, suite};
use bartizan_base::{SettingsMap, Timestamp};

/// Plays the bytes of both sides, one after the other. Returns the flow, and whether parsing failed.
fn flow(prevents: bool, sides: &[(Direction, &[u8])]) -> (AppLayer, bool) {
    let engine = Engine::new(&SettingsMap::new(), FileSettings::default()).expect("an engine");
    let info = FlowInfo {
        now: Timestamp::ZERO,
        ports: PerDirection::new(80, 1000),
        transport: Transport::Tcp,
        prevents,
        may_turn: false,
    };
    let mut app = AppLayer::default();
    for (direction, data) in sides {
        app.stream(&engine, *direction, Input { data, offset: 0, eof: false }, &info);
    }
    let failed = app.failed_parsing;
    (app, failed)
}

fn with_frame(kind: u8) -> Vec<u8> {
    [PREFACE, &[0, 0, 0, kind, 0, 0, 0, 0, 0]].concat()
}

#[test]
fn the_preface_is_known() {
    let (id, _) = protocols::by_name("http2").expect("in the table");
    assert!(protocols::unparsed().all(|(unparsed, _)| unparsed != id));
    let begin = with_frame(SETTINGS);
    for prevents in [false, true] {
        let (app, failed) = flow(prevents, &[(Direction::ToServer, &begin)]);
        assert_eq!((app.protocol(), failed), (DetectedProtocol::Protocol(id), false));
    }
    // Its server answers.
    let answer = [0, 0, 0, SETTINGS, 0, 0, 0, 0, 0];
    let (app, _) = flow(false, &[(Direction::ToServer, &begin), (Direction::ToClient, &answer)]);
    assert_eq!(
        (app.by_direction().to_client, app.events.as_slice()),
        (DetectedProtocol::Protocol(id), &[][..])
    );
    // The server sends first.
    let (app, _) = flow(false, &[(Direction::ToClient, &answer), (Direction::ToServer, &begin)]);
    assert_eq!(app.protocol(), DetectedProtocol::Protocol(id));
    // A server that knows HTTP/1 only.
    let refusal = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    let (app, failed) = flow(false, &[(Direction::ToServer, &begin), (Direction::ToClient, refusal)]);
    assert_eq!((app.protocol(), failed), (DetectedProtocol::Protocol(id), false));
    assert_eq!(
        app.by_direction().to_client,
        DetectedProtocol::Protocol(protocols::by_name("http").expect("there").0)
    );
    assert_eq!(app.events.as_slice(), [event::MISMATCH_PROTOCOL_BOTH_DIRECTIONS]);
}

#[test]
fn what_only_begins_like_the_preface_is_a_request() {
    for request in ["PRI * HTTP/2.0\r\n\r\nGET / HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\nHost: h\r\n\r\n"] {
        let (app, _) = flow(true, &[(Direction::ToServer, request.as_bytes())]);
        assert_eq!(app.protocol().protocol(), protocols::by_name("http").map(|(id, _)| id), "{request}");
    }
}

#[test]
fn in_prevention_settings_come_first() {
    for (behind, fails) in [(with_frame(SETTINGS), false), (with_frame(0), true)] {
        assert_eq!(flow(true, &[(Direction::ToServer, &behind)]).1, fails);
    }
    let smuggled = [PREFACE, b"GET /x HTTP/1.1\r\n\r\n"].concat();
    assert!(flow(true, &[(Direction::ToServer, &smuggled)]).1);
}

/// A block of fields.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        hpack::write_literal(&mut out, name.as_bytes(), value.as_bytes());
    }
    out
}

const GET: &[(&str, &str)] = &[
    (":method", "GET"),
    (":path", "/a?b=c"),
    (":scheme", "http"),
    (":authority", "Host.Test:80"),
    ("user-agent", "ua"),
    ("cookie", "k=v"),
];
const POST: &[(&str, &str)] = &[
    (":method", "POST"),
    (":path", "/p"),
    (":scheme", "http"),
    (":authority", "h"),
    ("content-length", "4"),
];
const OK: &[(&str, &str)] = &[(":status", "200"), ("server", "s"), ("content-type", "text/plain")];

fn client(frames: &[Vec<u8>]) -> (Direction, Vec<u8>) {
    let first = [PREFACE, &settings_frame(&[0, 3, 0, 0, 0, 100])].concat();
    (Direction::ToServer, core::iter::once(first).chain(frames.iter().cloned()).collect::<Vec<_>>().concat())
}

fn server(frames: &[Vec<u8>]) -> (Direction, Vec<u8>) {
    let first = settings_frame(&[0, 4, 0, 1, 0, 0]);
    (Direction::ToClient, core::iter::once(first).chain(frames.iter().cloned()).collect::<Vec<_>>().concat())
}

const ENDS: u8 = frame::END_HEADERS | frame::END_STREAM;

/// Two requests at once, with answers in turns, a trailer, padding, a continued block, and frames of the
/// connection.
fn two_streams() -> Seed {
    let post = block(POST);
    let (head, tail) = post.split_at(9);
    vec![
        client(&[
            framed(frame::HEADERS, ENDS, 1, &block(GET)),
            framed(frame::WINDOW_UPDATE, 0, 0, &[0, 0, 4, 0]),
            framed(
                frame::HEADERS,
                frame::PADDED | frame::PRIORITISED,
                3,
                &[&[2, 0, 0, 0, 0, 7], head, &[0, 0]].concat(),
            ),
            framed(frame::CONTINUATION, frame::END_HEADERS, 3, tail),
            framed(frame::DATA, frame::PADDED, 3, &[3, b'a', b'b', 0, 0, 0]),
            framed(frame::DATA, frame::END_STREAM, 3, b"cd"),
        ]),
        server(&[
            framed(SETTINGS, 1, 0, &[]),
            framed(frame::HEADERS, frame::END_HEADERS, 3, &block(OK)),
            framed(frame::HEADERS, frame::END_HEADERS, 1, &block(OK)),
            framed(frame::DATA, 0, 1, b"one"),
            framed(frame::DATA, 0, 3, b"three"),
            framed(frame::DATA, frame::END_STREAM, 1, b" more"),
            framed(frame::HEADERS, ENDS, 3, &block(&[("x-trailer", "end")])),
        ]),
        (Direction::ToServer, framed(frame::GOAWAY, 0, 0, &[0; 8])),
    ]
}

fn pushed_and_reset() -> Seed {
    vec![
        client(&[framed(frame::HEADERS, ENDS, 1, &block(GET)), framed(frame::PING, 0, 0, &[7; 8])]),
        server(&[
            framed(frame::PUSH_PROMISE, frame::END_HEADERS, 1, &[&[0, 0, 0, 2], &block(GET)[..]].concat()),
            framed(frame::HEADERS, frame::END_HEADERS, 2, &block(OK)),
            framed(frame::DATA, frame::END_STREAM, 2, b"pushed"),
            framed(frame::RST_STREAM, 0, 1, &[0, 0, 0, 8]),
        ]),
    ]
}

fn seeds() -> Vec<Seed> {
    vec![two_streams(), pushed_and_reset()]
}

protocol_suite!(over_tcp, &SPEC, Transport::Tcp, seeds());

/// A frame that begins a transaction.
fn window_of(stream: u32) -> Vec<u8> {
    [&[0, 0, 4, frame::WINDOW_UPDATE, 0][..], &stream.to_be_bytes(), &[0, 0, 0, 1]].concat()
}

/// Plays a conversation in one piece for each side.
fn played(prevents: bool, seed: &Seed) -> Driver {
    let mut driver = Driver::new(&SPEC, Transport::Tcp);
    driver.prevents = prevents;
    for (direction, bytes) in seed {
        driver.send(*direction, bytes);
    }
    driver
}

fn events_of(driver: &mut Driver) -> Vec<&'static str> {
    let parser = driver.parser();
    let all = parser.tx_range().filter_map(|id| parser.tx(id)).flat_map(|tx| tx.common().events.as_slice());
    all.filter_map(|code| SPEC.events.get(usize::from(*code)).copied()).collect()
}

fn record(driver: &mut Driver, id: u64) -> serde_json::Value {
    let tx = driver.parser().tx(id).expect("a transaction");
    serde_json::from_str(&suite::record(tx, &LogOptions::default(), false)).expect("JSON")
}

#[test]
fn streams_have_records() {
    for prevents in [false, true] {
        let mut driver = played(prevents, &two_streams());
        assert!(!driver.failed && events_of(&mut driver).is_empty());
        let settings = record(&mut driver, 0);
        assert_eq!(
            settings["http2"]["request"]["settings"][0]["settings_id"],
            "SETTINGSMAXCONCURRENTSTREAMS"
        );
        let get = record(&mut driver, 1);
        assert_eq!(
            (&get["url"], &get["status"], &get["http2"]["stream_id"]),
            (&"/a?b=c".into(), &200.into(), &1.into())
        );
        let post = record(&mut driver, 3);
        assert_eq!((&post["length"], &post["http2"]["request"]["priority"]), (&4.into(), &7.into()));
        assert_eq!(post["response_headers"][3]["name"], "x-trailer");
        let tx = driver.parser().tx(1).expect("the first stream");
        let body = &tx.files_of(Direction::ToClient)[0];
        assert_eq!((body.content().0, body.state), (&b"one more"[..], crate::file::FileState::Closed));
        let mut scratch = Vec::new();
        let host = SPEC.buffers.iter().find(|buffer| buffer.name == "http.host").expect("a buffer");
        let query = BufferQuery { id: host.id, direction: Direction::ToServer, index: 0 };
        assert_eq!(tx.buffer(query, &mut scratch).expect("a host").data, b"host.test");
    }
}

#[test]
fn good_conversations_pass_in_prevention() {
    for seed in seeds() {
        assert!(!played(true, &seed).failed);
    }
    // Data that was on its way when the client reset the stream.
    let data = |flags| framed(frame::DATA, flags, 1, b"late");
    let seed = vec![
        client(&[
            framed(frame::HEADERS, ENDS, 1, &block(GET)),
            framed(frame::RST_STREAM, 0, 1, &[0, 0, 0, 8]),
        ]),
        server(&[
            framed(frame::HEADERS, frame::END_HEADERS, 1, &block(OK)),
            data(0),
            data(frame::END_STREAM),
        ]),
    ];
    let mut driver = played(true, &seed);
    assert!(!driver.failed && events_of(&mut driver).is_empty());
}

/// Rules see the fields of a message before its data comes.
#[test]
fn in_prevention_fields_are_ready_with_their_frame() {
    for (prevents, progress) in [(false, tx::OPEN), (true, tx::FIELDS)] {
        let mut driver =
            played(prevents, &vec![client(&[framed(frame::HEADERS, frame::END_HEADERS, 1, &block(POST))])]);
        let tx = driver.parser().tx(1).expect("a stream");
        assert_eq!(tx.progress(Direction::ToServer), progress);
    }
}

#[test]
fn in_prevention_messages_that_receivers_read_differently_are_refused() {
    let get = |fields: &[(&str, &str)]| framed(frame::HEADERS, ENDS, 1, &block(&[GET, fields].concat()));
    let open = framed(frame::HEADERS, frame::END_HEADERS, 1, &block(POST));
    let data = |flags, payload: &[u8]| framed(frame::DATA, flags, 1, payload);
    let cases: Vec<(&str, Vec<Vec<u8>>)> = vec![
        ("a name in upper case", vec![get(&[("X-Name", "v")])]),
        ("a blank in a name", vec![get(&[("x name", "v")])]),
        ("a line end in a value", vec![get(&[("x", "v\r\ny: z")])]),
        ("a NUL in a value", vec![get(&[("x", "v\0")])]),
        ("a coding of HTTP/1", vec![get(&[("transfer-encoding", "chunked")])]),
        ("a repeated pseudo-field", vec![get(&[(":path", "/other")])]),
        ("a false length", vec![open.clone(), data(frame::END_STREAM, b"abc")]),
        (
            "two lengths",
            vec![
                framed(
                    frame::HEADERS,
                    frame::END_HEADERS,
                    1,
                    &block(&[POST, &[("content-length", "5")]].concat()),
                ),
                data(frame::END_STREAM, b"abcd"),
            ],
        ),
        ("data before fields", vec![data(0, b"abc")]),
        ("data on the connection", vec![framed(frame::DATA, 0, 0, b"abc")]),
        ("data behind the end", vec![get(&[]), data(0, b"abc")]),
        ("fields behind the end", vec![get(&[]), get(&[])]),
        ("false padding", vec![open.clone(), data(frame::PADDED, b"\x05abc")]),
        (
            "a frame within a block",
            vec![framed(frame::HEADERS, 0, 1, &block(GET)), framed(frame::PING, 0, 0, &[0; 8])],
        ),
        (
            "a block that is continued elsewhere",
            vec![framed(frame::HEADERS, 0, 1, &block(GET)), framed(frame::CONTINUATION, 4, 3, &[])],
        ),
        ("a continuation of nothing", vec![framed(frame::CONTINUATION, 4, 1, &block(GET))]),
        ("an index beyond the table", vec![framed(frame::HEADERS, ENDS, 1, &[0xff, 0x00])]),
        ("a frame beyond the agreed size", vec![open.clone(), data(0, &[b'x'; 16_385])]),
        (
            "a promise of a client",
            vec![framed(frame::PUSH_PROMISE, 4, 1, &[&[0, 0, 0, 2], &block(GET)[..]].concat())],
        ),
        ("a window of three bytes", vec![framed(frame::WINDOW_UPDATE, 0, 0, &[0; 3])]),
        ("HTTP/1", vec![b"GET / HTTP/1.1\r\n\r\n".to_vec()]),
    ];
    for (what, frames) in cases {
        assert!(played(true, &vec![client(&frames)]).failed, "{what}");
    }
    assert!(!played(true, &vec![client(&[get(&[("x-name", "v")])])]).failed);
    assert!(!played(true, &vec![client(&[open, data(0, b"ab"), data(frame::END_STREAM, b"cd")])]).failed);
}

#[test]
fn anomalies_have_events() {
    let get = framed(frame::HEADERS, ENDS, 1, &block(GET));
    let cases: Vec<(&str, Vec<Vec<u8>>)> = vec![
        ("data_stream_zero", vec![framed(frame::DATA, 0, 0, b"abc")]),
        ("continuation_without_headers", vec![framed(frame::CONTINUATION, 4, 1, &block(GET))]),
        ("invalid_frame_length", vec![framed(frame::RST_STREAM, 0, 1, &[0; 3])]),
        ("invalid_frame_data", vec![framed(frame::HEADERS, ENDS, 1, &[0x40, 9, 1])]),
        ("invalid_header", vec![framed(frame::HEADERS, ENDS, 1, &[0xff, 0x00])]),
        ("header_integer_overflow", vec![framed(frame::HEADERS, ENDS, 1, &[0xff; 12])]),
        ("header_table_overflow", vec![framed(frame::HEADERS, ENDS, 1, &[0x3f, 0xff, 0xff, 0x7f])]),
        (
            "authority_host_mismatch",
            vec![framed(frame::HEADERS, ENDS, 1, &block(&[GET, &[("host", "other")]].concat()))],
        ),
        ("userinfo_in_uri", vec![framed(frame::HEADERS, ENDS, 1, &block(&[(":authority", "u@h")]))]),
        ("long_frame_data", vec![get.clone(), framed(0x20, 0, 1, &[0; 65_536])]),
        (
            "reassembly_limit_reached",
            core::iter::once(framed(frame::HEADERS, 0, 1, &[]))
                .chain((0..7).map(|_| framed(frame::CONTINUATION, 0, 1, &[0x82; 16_384])))
                .collect(),
        ),
        ("too_many_streams", (0..300).map(|n| window_of(2 * n + 1)).collect()),
    ];
    for (event, frames) in cases {
        let mut driver = played(false, &vec![client(&frames)]);
        assert!(events_of(&mut driver).contains(&event), "{event}: {:?}", events_of(&mut driver));
    }
    // A block as it is, and one whose length is not that of its check.
    let broken = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\0\x05\0\xfa\xffhello\x01\x05\0\0\0hello".to_vec();
    let answers = [
        ("failed_decompression", vec![("content-encoding", "gzip")], broken),
        ("invalid_range", vec![("content-range", "bytes x")], b"abc".to_vec()),
    ];
    for (event, fields, body) in answers {
        let seed = vec![
            client(core::slice::from_ref(&get)),
            server(&[
                framed(frame::HEADERS, frame::END_HEADERS, 1, &block(&[OK, &fields].concat())),
                framed(frame::DATA, 0, 1, &body),
                framed(frame::DATA, frame::END_STREAM, 1, &[0xff; 600]),
            ]),
        ];
        let mut driver = played(false, &seed);
        assert!(events_of(&mut driver).contains(&event), "{event}: {:?}", events_of(&mut driver));
    }
}

#[test]
fn messages_of_dns_turn_the_protocol() {
    let question = b"\0\0\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\x04test\0\0\x01\0\x01";
    let fields = [POST.get(..4).expect("fields"), &[("content-type", "application/dns-message")]].concat();
    for prevents in [false, true] {
        let frames = [
            framed(frame::HEADERS, frame::END_HEADERS, 1, &block(&fields)),
            framed(frame::DATA, 0, 1, &question[..7]),
            framed(frame::DATA, frame::END_STREAM, 1, &question[7..]),
        ];
        let mut driver = played(prevents, &vec![client(&frames)]);
        assert_eq!(driver.parser().refined_protocol(), Some("doh2"));
        let query = DOH2.buffers.iter().find(|buffer| buffer.name == "dns.query").expect("a buffer");
        let query = BufferQuery { id: query.id, direction: Direction::ToServer, index: 0 };
        let mut scratch = Vec::new();
        let tx = driver.parser().tx(1).expect("a stream");
        assert_eq!(tx.buffer(query, &mut scratch).expect("a name").data, b"www.example.test");
        assert_eq!(record(&mut driver, 1)["queries"][0]["rrname"], "www.example.test");
    }
}

#[test]
fn an_idle_connection_holds_little() {
    let mut driver = played(false, &two_streams());
    for id in driver.parser().tx_range() {
        driver.parser().free_tx(id);
    }
    assert!(driver.parser().held() <= 16 << 10, "{}", driver.parser().held());
}

/// An answer with a body that is encoded as its field says, after a request.
fn encoded_answer(coding: &str, body: &[u8]) -> Seed {
    let head = [OK, &[("content-encoding", coding)]].concat();
    let mut frames = vec![framed(frame::HEADERS, frame::END_HEADERS, 1, &block(&head))];
    frames.extend(body.chunks(16_000).map(|piece| framed(frame::DATA, 0, 1, piece)));
    frames.push(framed(frame::DATA, frame::END_STREAM, 1, b""));
    vec![client(&[framed(frame::HEADERS, ENDS, 1, &block(GET))]), server(&frames)]
}

fn deflated(parts: &[&[u8]]) -> Vec<u8> {
    use std::io::Write as _;
    let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    parts.iter().for_each(|part| coder.write_all(part).expect("memory"));
    coder.finish().expect("memory")
}

/// The bytes that a segment stands for are inspected after it: all of them have to be held until then.
#[test]
fn in_prevention_all_that_a_segment_stands_for_is_held() {
    let (zeros, word) = (vec![0; 20 << 20], b"forbidden-word".as_slice());
    for (before, after) in [(1_000, 20 << 20), (3 << 20, 3 << 20), (900_000, 1_400_000)] {
        let body = deflated(&[&zeros[..before], word, &zeros[..after]]);
        let [request, (direction, answer)] = encoded_answer("gzip", &body).try_into().expect("two pieces");
        let mut driver = Driver::new(&SPEC, Transport::Tcp);
        driver.prevents = true;
        driver.send(request.0, &request.1);
        let mut seen = false;
        for segment in answer.chunks(30_000) {
            driver.send(direction, segment);
            let range = driver.parser().tx_range();
            for id in range {
                let files = driver.parser().tx(id).map_or(&[][..], |tx| tx.files_of(direction));
                seen |= files.iter().any(|file| memchr::memmem::find(file.content().0, word).is_some());
            }
        }
        assert!(seen && !driver.failed, "{before} {after}");
    }
}

#[test]
fn in_prevention_bombs_are_refused() {
    let bomb = deflated(&[&deflated(&[&vec![0; 30 << 20]])]);
    for prevents in [true, false] {
        let mut driver = played(prevents, &encoded_answer("gzip, gzip", &bomb));
        assert_eq!(driver.failed, prevents);
        assert!(events_of(&mut driver).contains(&"compression_bomb"));
    }
}
