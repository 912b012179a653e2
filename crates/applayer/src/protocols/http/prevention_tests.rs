// SPDX-License-Identifier: Apache-2.0
//! In prevention requests are read as the most lenient server reads them, before they leave: bytes before
//! them, missing parts of their lines, their ends, and data after a CONNECT.

use super::SPEC;
use crate::file::FileSettings;
use crate::flow::Engine;
use crate::suite::feeder::Feeder;
use crate::suite::{Shape, cuts::Player as _, shape};
use bartizan_base::Direction::{self, ToClient as TC, ToServer as TS};
use bartizan_base::SettingsMap;

fn engine() -> Engine {
    engine_with(&[])
}

/// An engine of prevention, with these settings of bodies.
fn engine_with(bodies: &[(&str, &str)]) -> Engine {
    let mut settings = SettingsMap::new();
    settings.set("app-layer.protocols.http.inline", "yes");
    settings.set("app-layer.protocols.http.strict", "yes");
    for (key, value) in bodies {
        settings.set(format!("app-layer.protocols.http.libhtp.default-config.{key}"), *value);
    }
    Engine::new(&settings, FileSettings::default()).expect("settings")
}

/// Results of a flow: URIs, bodies of requests, whether its parser failed.
#[derive(Debug, Default, PartialEq)]
struct HttpFlowResult {
    uris: Vec<String>,
    bodies: Vec<String>,
    failed: bool,
}

impl HttpFlowResult {
    fn shows(&self, word: &str) -> bool {
        self.uris.iter().chain(&self.bodies).any(|text| text.contains(word))
    }
}

/// Plays a conversation, whose pieces are cut into parts of `step` bytes, and returns the results before its
/// end.
fn play(pieces: &[(Direction, &[u8])], step: usize) -> HttpFlowResult {
    let engine = engine();
    let mut flow = Feeder::new(&engine, 80);
    for (direction, bytes) in pieces {
        bytes.chunks(step).for_each(|piece| flow.send(*direction, piece));
    }
    let failed = flow.app.failed_parsing;
    let parser = flow.parser();
    let shapes: Vec<Shape> =
        parser.tx_range().filter_map(|id| parser.tx(id)).map(|tx| shape(&SPEC, tx)).collect();
    let of = |name: &str| {
        let buffers = shapes.iter().flat_map(|tx| &tx.buffers).filter(|(found, ..)| *found == name);
        buffers.map(|(.., bytes)| String::from_utf8_lossy(bytes).into_owned()).collect()
    };
    HttpFlowResult { uris: of("http.uri"), bodies: of("http.request_body"), failed }
}

const GOOD: &[u8] = b"GET /good HTTP/1.1\r\nHost: a\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Plays a request alone, after another one in the same segment, and after one that was answered.
fn everywhere(request: &[u8], check: impl Fn(&HttpFlowResult, &str)) {
    let joined = [GOOD, request].concat();
    let alone = [(TS, request)];
    let behind = [(TS, joined.as_slice())];
    let answered = [(TS, GOOD), (TC, ANSWER), (TS, request)];
    for step in [1, 7, 100_000] {
        for pieces in [&alone[..], &behind, &answered] {
            check(&play(pieces, step), &format!("{} by {step}, {}", request.escape_ascii(), pieces.len()));
        }
    }
}

#[test]
fn white_space_before_a_request_hides_nothing_of_it() {
    for blank in [
        &b" \r\n"[..],
        b" \n",
        b"\t\r\n",
        b"  \t \r\n",
        b"\x0b\r\n",
        b"\x0c\n",
        b"\r\r\n",
        b"\r\r\r\n",
        b" \r\n\r\n",
        b"\r\n \r\n\n\t\n",
        b" \r",
        b"\r",
        b"\x1c\r\n",
        b" \x85\xa0\n",
        b"\x0b\x0c ",
    ] {
        let request = [blank, b"GET /evil HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
        everywhere(&request, |seen, what| {
            let last = seen.uris.last().map(String::as_str);
            assert!(seen.failed || last == Some("/evil"), "{what}: {seen:?}");
        });
    }
    // Bytes that servers skip are no request, and no valid request fails.
    let seen =
        play(&[(TS, b" \r\n\t\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n \r\n"), (TC, ANSWER), (TS, GOOD)], 1000);
    assert_eq!((seen.uris, seen.failed), (vec!["/a".to_owned(), "/good".to_owned()], false));
}

#[test]
fn a_request_without_a_version_is_seen_whatever_its_method() {
    for method in [
        "ACL",
        "BIND",
        "LINK",
        "M-SEARCH",
        "NOTIFY",
        "PURGE",
        "REBIND",
        "SEARCH",
        "SOURCE",
        "SUBSCRIBE",
        "UNBIND",
        "UNLINK",
        "UNSUBSCRIBE",
        "MKCALENDAR",
        "QUERY",
        "FOO",
        "foo",
        "GET",
    ] {
        for rest in [
            " /evil\r\n\r\n",
            " /evil\n\n",
            "  /evil\r\n\r\n",
            "\t/evil\r\n\r\n",
            " /evil \r\n\r\n",
            " http://a/evil\r\n\r\n",
            " /evil\r\nHost: a\r\n\r\n",
            " /evil\r\n x: y\r\n\r\n",
            " /evil\r\r\n\r\n",
        ] {
            everywhere(format!("{method}{rest}").as_bytes(), |seen, what| {
                assert!(seen.failed || seen.shows("evil"), "{what}: {seen:?}");
            });
        }
    }
    everywhere(b"FOO evil\r\n\r\n", |seen, what| assert!(seen.shows("evil"), "{what}: {seen:?}"));
    // Some take any bytes for a method.
    for method in [&b"\x00GET"[..], b"\x01", b"G\xc3\xa9T", b"\x7f\x80\xff", b"\xef\xbb\xbfGET", b"F(O:"] {
        everywhere(&[method, b" /evil HTTP/1.1\r\nHost: a\r\n\r\n"].concat(), |seen, what| {
            assert!(seen.failed || seen.shows("/evil"), "{what}: {seen:?}");
        });
    }
    // The connection of a server that continues after such a request.
    let seen = play(&[(TS, b"GET /a\r\n\r\n"), (TC, b"a page"), (TS, b"GET /evil HTTP/1.1\r\n\r\n")], 1000);
    assert!(seen.shows("/evil"), "{seen:?}");
}

#[test]
fn a_request_whose_end_servers_find_at_different_places_does_not_leave() {
    let both = "Content-Length: 9\r\nTransfer-Encoding: chunked";
    for (version, fields) in [
        ("1.1", both),
        ("1.1", "Transfer-Encoding: chunked\r\nContent-Length: 9"),
        ("1.1", "Content-Length: 0\r\nTransfer-Encoding: chunked"),
        ("1.1", "Content-Length: 9\r\nTransfer-Encoding: gzip, chunked"),
        ("1.1", "Content-Length: 9\r\nTransfer-Encoding: identity"),
        ("1.1", "Transfer-Encoding: xchunked"),
        ("1.1", "Transfer-Encoding: chunked, chunked"),
        ("1.1", "Transfer-Encoding: x, chunked"),
        ("1.1", "Transfer-Encoding: chunked, identity"),
        ("1.1", "Transfer-Encoding: chunked;x"),
        ("1.0", "Transfer-Encoding: chunked"),
        ("1.0", both),
    ] {
        for body in ["a;evil123", "", "9\r\nevil12345\r\n0\r\n\r\n"] {
            let request = format!("POST /a HTTP/{version}\r\nHost: a\r\n{fields}\r\n\r\n{body}");
            everywhere(request.as_bytes(), |seen, what| assert!(seen.failed, "{what}: {seen:?}"));
        }
    }
    for coding in ["chunked", "Chunked ", "gzip, chunked", "identity, chunked"] {
        let request = format!(
            "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: {coding}\r\n\r\n3;x=y\r\nabc\r\n0\r\n\r\n"
        );
        everywhere(request.as_bytes(), |seen, what| assert!(!seen.failed, "{what}: {seen:?}"));
    }
}

/// Clients that use the length, or that know no chunks in version 1.0, read all bytes after the headers.
#[test]
fn chunk_lines_that_some_client_takes_for_content_hold_nothing_else() {
    let fails = |head: &str, body: &str| {
        let answer = format!("HTTP/1.{head}\r\n\r\n{body}");
        let one = |step| play(&[(TS, GOOD), (TC, answer.as_bytes())], step).failed;
        assert_eq!(one(1), one(1000), "{answer}");
        one(1000)
    };
    let plain = "1 200 OK\r\nTransfer-Encoding: chunked";
    for head in [
        "1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked",
        "0 200 OK\r\nTransfer-Encoding: chunked",
        "1 200 OK\r\nTransfer-Encoding: chunked, x",
    ] {
        for body in ["a;evil123", "a;evil\r\n", "evil", "3\r\nabc\r\n0;evil\r\n\r\n", "-"] {
            assert!(fails(head, body), "{head} {body}");
        }
        for body in ["3\r\nabc\r\n0\r\n\r\n", "3  \r\nabc\r\n0\r\n\r\n", "3\nabc\n0\n\n", "3", ""] {
            assert!(!fails(head, body), "{head} {body}");
        }
    }
    assert!(!fails(plain, "3;x=y\r\nabc\r\n0;z\r\n\r\n"));
}

#[test]
fn what_follows_a_connect_is_read_as_a_server_without_tunnels_reads_it() {
    let next = "GET /evil HTTP/1.1\r\nHost: a\r\n\r\n";
    for target in ["a:80", "/a", "http://a/"] {
        let head = format!("CONNECT {target} HTTP/1.1\r\nHost: a\r\n");
        for (body, expected) in [
            (format!("{head}Content-Length: 4\r\n\r\nevil"), "evil"),
            (format!("{head}Content-Length: 10\r\n\r\nx\r\n{{\"evil\""), "evil"),
            (format!("{head}Transfer-Encoding: chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n"), "evil"),
            (format!("{head}Content-Length: 4\r\n\r\n{{\r\n}}{next}"), "/evil"),
            (format!("{head}Content-Length: 1\r\n\r\nx\r\n{next}"), "/evil"),
            (format!("{head}Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n{next}"), "/evil"),
            (format!("{head}\r\n{next}"), "/evil"),
            (format!("{head}\r\n \r\nSEARCH /evil\r\n\r\n"), "/evil"),
            (format!("{head}Content-Length: 0\r\n\r\n{next}"), "/evil"),
        ] {
            everywhere(body.as_bytes(), |seen, what| {
                assert!(seen.failed || seen.shows(expected), "{what}: {seen:?}");
            });
            // Read with the request, and not only refused.
            let seen = play(&[(TS, body.as_bytes())], 1000);
            assert!(seen.shows(expected), "{body}: {seen:?}");
        }
    }
}

/// Wherever the response to the CONNECT cuts them.
#[test]
fn requests_behind_a_connect_are_read_on_when_it_is_answered() {
    let head = "CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n";
    let content = "CONNECT a:80 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n{\r\n}";
    let post = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nevil";
    for requests in [
        format!("{head}{post}"),
        format!("{head}{head}{post}"),
        format!("{content}{post}"),
        format!("{content}\n \r\nSEARCH /evil\r\n\r\n"),
        format!("{head}\r\n \n\x01 /evil HTTP/1.1\r\nHost: a\r\n\r\n"),
    ] {
        let begin = if requests.starts_with(head) { head.len() } else { content.len() };
        for cut in begin..requests.len() {
            let (before, behind) = requests.as_bytes().split_at(cut);
            for answer in [
                "HTTP/1.1 200 OK\r\n\r\n",
                "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n",
                "HTTP/1.1 405 No\r\nContent-Length: 2\r\n\r\nno",
            ] {
                for step in [1, 1000] {
                    let first = [(TS, before), (TC, answer.as_bytes())];
                    let pieces: Vec<_> =
                        first.into_iter().chain(behind.chunks(step).map(|piece| (TS, piece))).collect();
                    let seen = play(&pieces, 1000);
                    assert!(
                        seen.failed || seen.shows("evil"),
                        "{requests:?} cut at {cut}, {answer}: {seen:?}"
                    );
                }
            }
        }
    }
}

/// Servers without tunnels take the target for a path.
#[test]
fn the_target_of_a_connect_is_its_uri() {
    for (target, uri) in [("a:443", "a:443"), ("*evil", "*evil"), ("/a%62", "/ab")] {
        let seen = play(&[(TS, format!("CONNECT {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())], 1000);
        assert_eq!(seen.uris, [uri], "{target}");
    }
}

#[test]
fn what_may_begin_a_tunnel_does_not_leave_as_content() {
    let head = "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n";
    for content in
        ["\u{16}\u{3}\u{1}", "GET /evil HTTP/1.1\r\n\r\n", "FOO /evil HTTP/1.1\r\n\r\n", "\r\nGET /evil "]
    {
        let length = content.len();
        for request in [
            format!("{head}Content-Length: {length}\r\n\r\n{content}"),
            format!("{head}Content-Length: 99\r\n\r\n{content}"),
        ] {
            for step in [1, 7, 1000] {
                let seen = play(&[(TS, request.as_bytes())], step);
                assert!(seen.failed, "{request} by {step}: {seen:?}");
            }
        }
    }
    let early = format!("{head}\r\n\u{16}\u{3}\u{1}");
    assert!(play(&[(TS, early.as_bytes())], 1000).failed);
}

#[test]
fn ordinary_tunnels_are_opened() {
    let request = b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n";
    let agreed = b"HTTP/1.1 200 Connection established\r\n\r\n";
    let inside = b"\x16\x03\x01\0\x05\x01\0\0\x01\x03";
    let first = [(TS, &request[..]), (TC, agreed), (TS, inside)];
    let later = [&[(TS, GOOD), (TC, ANSWER)][..], &first].concat();
    for (step, pieces) in [(1, &first[..]), (1000, &first), (1, &later), (1000, &later)] {
        let engine = engine();
        let mut flow = Feeder::new(&engine, 3128);
        for (direction, bytes) in pieces {
            bytes.chunks(step).for_each(|piece| flow.send(*direction, piece));
        }
        let name = |id| crate::protocols::spec(id).map(|spec| spec.name);
        assert_eq!(flow.app.original().and_then(name), Some("http"));
        assert_eq!(flow.app.protocol().protocol().and_then(name), Some("tls"));
    }
    // A CONNECT that the server refused is a request like any other.
    let refused = b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno";
    let seen = play(&[(TS, request), (TC, refused), (TS, GOOD), (TC, ANSWER)], 1000);
    assert!(!seen.failed && seen.shows("/good"), "{seen:?}");
}

/// Deflated content of which a segment stands for more than a window holds is inspected whole: the parser's
/// next call, or the packet, comes after rules have seen it.
#[test]
fn all_that_a_segment_stands_for_is_held_for_rules() {
    use std::io::Write as _;
    let deflate = |parts: &[&[u8]]| {
        let mut coder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
        parts.iter().for_each(|part| coder.write_all(part).expect("memory"));
        coder.finish().expect("memory")
    };
    let (zeros, word) = (vec![0; 20 << 20], b"forbidden-word".as_slice());
    for (before, after) in [(1_000, 20 << 20), (3 << 20, 3 << 20), (900_000, 1_400_000)] {
        let body = deflate(&[&zeros[..before], word, &zeros[..after]]);
        let header = format!("Content-Encoding: deflate\r\nContent-Length: {}\r\n\r\n", body.len());
        for direction in [TS, TC] {
            let engine = engine_with(&[("request-body-limit", "0"), ("response-body-limit", "0")]);
            let mut flow = Feeder::new(&engine, 80);
            let first = ["POST / HTTP/1.1\r\nHost: a\r\n", "HTTP/1.1 200 OK\r\n"];
            if direction == TC {
                flow.send(TS, GOOD);
            }
            let first = first[usize::from(direction == TC)];
            flow.send(direction, [first.as_bytes(), header.as_bytes()].concat().as_slice());
            let mut seen = false;
            for segment in body.chunks(30_000) {
                flow.send(direction, segment);
                let parser = flow.parser();
                let tx = parser.tx(0).expect("a transaction");
                for (name, _, _, bytes) in shape(&SPEC, tx).buffers {
                    seen |= name.ends_with("_body") && memchr::memmem::find(&bytes, word).is_some();
                }
            }
            assert!(seen && !flow.app.failed_parsing, "{before} {after} {direction:?}");
        }
    }
}

/// A body that stands for more than is decoded is refused.
#[test]
fn bombs_are_refused() {
    use std::io::Write as _;
    let gzip = |data: &[u8]| {
        let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        coder.write_all(data).expect("memory");
        coder.finish().expect("memory")
    };
    let body = gzip(&gzip(&vec![0; 30 << 20]));
    let header =
        format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\nContent-Length: {}\r\n\r\n", body.len());
    for (limit, failed) in [("0", true), ("100 KiB", false)] {
        let engine = engine_with(&[("response-body-limit", limit)]);
        let mut flow = Feeder::new(&engine, 80);
        flow.send(TS, GOOD);
        flow.send(TC, [header.as_bytes(), &body].concat().as_slice());
        assert_eq!(flow.app.failed_parsing, failed, "{limit}");
    }
}

/// Who accepts an upgrade reads what follows the request in the other protocol, also what came before the
/// answer.
#[test]
fn data_ahead_of_the_answer_to_an_upgrade_is_refused() {
    let request = |protocol: &str, more: &[u8]| {
        let head = format!("GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n");
        [head.as_bytes(), more].concat()
    };
    let frame = b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58".as_slice();
    for protocol in ["websocket", "h2c"] {
        let (alone, together) = (request(protocol, b""), request(protocol, frame));
        for step in [1, 7, usize::MAX] {
            assert!(play(&[(TS, &together)], step).failed, "{protocol} {step}");
            assert!(play(&[(TS, &alone), (TS, frame)], step).failed, "{protocol} {step}");
            // A further request is inspected as one, and an answer of HTTP settles it.
            assert!(!play(&[(TS, &request(protocol, GOOD))], step).failed, "{protocol} {step}");
            let answered = [(TS, alone.as_slice()), (TC, ANSWER), (TS, b"\r\n"), (TS, GOOD)];
            assert!(!play(&answered, step).failed, "{protocol} {step}");
        }
    }
    assert!(!play(&[(TS, GOOD), (TS, b"\r\n"), (TS, GOOD)], usize::MAX).failed);
}

/// A client goes on in the protocol that it asked for, however the answer names it, and a lenient server
/// reads its bytes in it, whatever the first ones are.
#[test]
fn all_bytes_after_an_agreement_are_read_in_its_protocol() {
    let websocket = crate::protocols::by_name("websocket").map(|(id, _)| id);
    let request = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n";
    for named in
        ["Upgrade: websocket", "UPGRADE: other, WebSocket/13", "Upgrade: other\r\nUpgrade: websocket", "X: y"]
    {
        for (first, failed) in [
            (b"\x81\x01a".as_slice(), false),
            (b"\xa1\x01a", true),
            (b"\x16\x03\x01\0\x05\x01\0\0\x01\x03", true),
            (b"GET / HTTP/1.1\r\n\r\n", true),
        ] {
            let answer =
                format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n{named}\r\n\r\n");
            let engine = engine();
            let mut flow = Feeder::new(&engine, 80);
            flow.send(TS, request);
            flow.send(TC, answer.as_bytes());
            flow.send(TS, first);
            assert_eq!(flow.app.protocol().protocol(), websocket, "{named} {first:?}");
            assert_eq!(flow.app.failed_parsing, failed, "{named} {first:?}");
        }
    }
}
