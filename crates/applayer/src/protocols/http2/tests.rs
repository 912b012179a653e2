// SPDX-License-Identifier: Apache-2.0
//! Tests of HTTP/2: recognition, conversations, records, limits, prevention.

use super::*;
use crate::flow::{AppLayer, DetectedProtocol, Engine, FlowInfo};
use crate::protocol::Input;
use crate::suite::{Seed, protocol_suite};
use crate::{event, file::FileSettings, protocols};
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
