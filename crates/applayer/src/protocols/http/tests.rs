// SPDX-License-Identifier: Apache-2.0
//! Whole conversations through the parser: anomalies by table, and properties (any segmentation gives the
//! same, garbage never panics, memory stays bounded).

use super::SPEC;
use crate::event::Events;
use crate::file::FileSettings;
use crate::protocol::{Input, ParseContext, Parser, Progress, Transport};
use crate::transaction::{BufferQuery, LogOptions, Transaction};
use bartizan_base::{Direction, SettingsMap, Timestamp};
use bartizan_events::JsonWriter;
use proptest::prelude::*;

const TS: Direction = Direction::ToServer;
const TC: Direction = Direction::ToClient;

/// Settings as shipped.
fn shipped() -> SettingsMap {
    let mut settings = SettingsMap::new();
    for (key, value) in [
        ("personality", "IDS"),
        ("request-body-limit", "100 KiB"),
        ("response-body-limit", "100 KiB"),
        ("request-body-minimal-inspect-size", "32 KiB"),
        ("response-body-minimal-inspect-size", "40 KiB"),
        ("response-body-decompress-layer-limit", "2"),
    ] {
        settings.set(format!("libhtp.default-config.{key}"), value);
    }
    settings
}

/// A flow under test.
struct Flow {
    parser: Box<dyn Parser>,
    files: FileSettings,
    events: Events,
    last: Progress,
}

impl Flow {
    fn with(settings: &SettingsMap) -> Self {
        let parser = (SPEC.configure)(settings).expect("settings").make();
        Flow { parser, files: FileSettings::default(), events: Events::default(), last: Progress::Done }
    }

    fn new() -> Self {
        Self::with(&shipped())
    }

    fn context<R>(&mut self, call: impl FnOnce(&mut dyn Parser, &mut ParseContext<'_>) -> R) -> R {
        let mut context = ParseContext {
            now: Timestamp::default(),
            server_port: 80,
            client_port: 40_000,
            transport: Transport::Tcp,
            files: &self.files,
            prevents: false,
            events: &mut self.events,
        };
        call(self.parser.as_mut(), &mut context)
    }

    fn feed(&mut self, direction: Direction, data: &[u8]) -> &mut Self {
        if self.last != Progress::Error {
            self.last = self.context(|p, c| p.parse(direction, Input { data, offset: 0, eof: false }, c));
        }
        self
    }

    fn end(&mut self) -> &mut Self {
        for direction in Direction::BOTH {
            self.context(|p, c| p.end(direction, c));
        }
        self
    }

    fn exchange(request: &[u8], response: &[u8]) -> Self {
        let mut flow = Self::new();
        flow.feed(TS, request).feed(TC, response).end();
        flow
    }

    fn tx(&self, id: u64) -> &dyn Transaction {
        self.parser.tx(id).expect("transaction")
    }

    fn count(&self) -> u64 {
        let range = self.parser.tx_range();
        range.end - range.start
    }

    fn buffer_at(&self, id: u64, name: &str, direction: Direction, index: u32) -> Option<Vec<u8>> {
        let spec = SPEC.buffers.iter().find(|b| b.name == name).expect("buffer");
        let mut scratch = Vec::new();
        let query = BufferQuery { id: spec.id, direction, index };
        self.tx(id).buffer(query, &mut scratch).map(|v| v.data.to_vec())
    }

    fn text(&self, name: &str, direction: Direction) -> Option<String> {
        self.buffer_at(0, name, direction, 0).map(|b| String::from_utf8_lossy(&b).into_owned())
    }

    fn events(&self, id: u64) -> Vec<&'static str> {
        self.tx(id).common().events.as_slice().iter().map(|c| SPEC.events[usize::from(*c)]).collect()
    }

    fn record(&self, id: u64) -> serde_json::Value {
        let mut json = JsonWriter::new();
        let options = LogOptions { extended: true, ..LogOptions::default() };
        json.begin_object();
        self.tx(id).log(&mut json, &options, false);
        json.end_object();
        serde_json::from_slice(json.bytes()).expect("JSON")
    }

    /// All visible results, to compare segmentations.
    fn picture(&self) -> String {
        use core::fmt::Write as _;
        let mut out = String::new();
        for id in self.parser.tx_range() {
            let Some(tx) = self.parser.tx(id) else { continue };
            let _ = writeln!(out, "{id} {} {} {:?}", tx.progress(TS), tx.progress(TC), self.events(id));
            let _ = writeln!(out, "{}", self.record(id));
            for spec in SPEC.buffers {
                for direction in Direction::BOTH {
                    if spec.directions[direction] {
                        let value = self.buffer_at(id, spec.name, direction, 0);
                        let _ = writeln!(
                            out,
                            "{} {:?}",
                            spec.name,
                            value.map(|v| String::from_utf8_lossy(&v).into_owned())
                        );
                    }
                }
            }
            for direction in Direction::BOTH {
                for file in tx.files_of(direction) {
                    let _ = writeln!(out, "{:?} {} {:?}", file.name, file.size, file.state);
                }
            }
        }
        out
    }
}

const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: www.Example.com:8080\r\nUser-Agent: u\r\nCookie: c=1\r\n\r\n";

pub(super) fn gzip(data: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(data).expect("vec");
    encoder.finish().expect("vec")
}

/// An unknown method directly after a body: servers act on it, so it is a request of its own.
#[test]
fn a_request_with_an_unknown_method_behind_a_body_is_a_request() {
    let flow = Flow::exchange(
        b"POST /good HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcdeFOO /evil HTTP/1.1\r\nHost: a\r\n\r\n",
        b"",
    );
    assert_eq!(flow.count(), 2);
}

#[test]
fn a_plain_exchange() {
    let flow = Flow::exchange(
        GET,
        b"HTTP/1.1 200 OK\r\nServer: s\r\nSet-Cookie: d=2\r\nContent-Type: text/html; charset=x\r\nContent-Length: 5\r\n\r\nhello",
    );
    assert_eq!(flow.count(), 1);
    assert!(flow.events(0).is_empty());
    for (name, direction, value) in [
        ("http.uri", TS, "/a"),
        ("http.uri.raw", TS, "/a"),
        ("http.method", TS, "GET"),
        ("http.protocol", TS, "HTTP/1.1"),
        ("http.request_line", TS, "GET /a HTTP/1.1"),
        ("http.header", TS, "Host: www.Example.com:8080\r\nUser-Agent: u\r\n"),
        ("http.header.raw", TS, "Host: www.Example.com:8080\r\nUser-Agent: u\r\nCookie: c=1\r\n\r\n"),
        ("http.header_names", TS, "\r\nHost\r\nUser-Agent\r\nCookie\r\n\r\n"),
        ("http.cookie", TS, "c=1"),
        ("http.host", TS, "www.example.com"),
        ("http.host.raw", TS, "www.Example.com:8080"),
        ("http.user_agent", TS, "u"),
        ("http.request_header", TS, "Host: www.Example.com:8080"),
        ("http.stat_code", TC, "200"),
        ("http.stat_msg", TC, "OK"),
        ("http.protocol", TC, "HTTP/1.1"),
        ("http.cookie", TC, "d=2"),
        ("http.server", TC, "s"),
        ("http.response_body", TC, "hello"),
        ("file.data", TC, "hello"),
        ("file.name", TC, "/a"),
    ] {
        assert_eq!(flow.text(name, direction).as_deref(), Some(value), "{name}");
    }
    assert_eq!(
        flow.record(0),
        serde_json::json!({"hostname": "www.example.com", "http_port": 8080, "url": "/a", "http_user_agent": "u",
            "http_content_type": "text/html", "http_method": "GET", "protocol": "HTTP/1.1", "status": 200, "length": 5})
    );
    assert_eq!((flow.tx(0).progress(TS), flow.tx(0).progress(TC)), (5, 5));
}

#[test]
fn chunked_and_encoded_bodies() {
    let body = gzip(b"X5O!P%@AP");
    let (one, two) = body.split_at(7);
    let mut response =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n\r\n".to_vec();
    for part in [one, two] {
        response.extend_from_slice(format!("{:x};e=1\r\n", part.len()).as_bytes());
        response.extend_from_slice(part);
        response.extend_from_slice(b"\r\n");
    }
    response.extend_from_slice(b"0\r\nX-Trailer: t\r\n\r\n");
    let flow = Flow::exchange(GET, &response);
    assert_eq!(flow.text("file.data", TC).as_deref(), Some("X5O!P%@AP"));
    assert_eq!(flow.events(0), ["RESPONSE_CHUNK_EXTENSION"]);
    assert!(flow.text("http.header", TC).expect("headers").ends_with("X-Trailer: t\r\n"));
    assert_eq!(flow.tx(0).files_of(TC)[0].size, 9);
    assert_eq!(flow.tx(0).progress(TC), 5);
}

#[test]
fn the_file_of_an_encoded_body_begins_with_its_first_decoded_byte() {
    let body = gzip(b"X5O!P%@AP");
    // The header of the format has ten bytes.
    let (head, rest) = body.split_at(10);
    let mut flow = Flow::new();
    flow.feed(TS, GET);
    flow.feed(TC, b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Range: bytes 3-11/20\r\n\r\n");
    flow.feed(TC, head);
    assert!(flow.tx(0).files_of(TC).is_empty() && flow.text("file.name", TC).is_none());
    flow.feed(TC, rest);
    let [file] = flow.tx(0).files_of(TC) else { panic!("one file") };
    assert_eq!((file.size, file.start, file.end), (9, Some(3), Some(11)));
    assert_eq!(flow.text("file.name", TC).as_deref(), Some("/a"));
}

#[test]
fn requests_are_paired_with_responses() {
    let mut flow = Flow::new();
    flow.feed(TS, &[GET, GET, b"HEAD /h HTTP/1.1\r\nHost: h\r\n\r\n"].concat());
    assert_eq!(flow.count(), 3);
    flow.feed(TC, b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n");
    flow.feed(TC, b"HTTP/1.1 304 Not Modified\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n");
    let codes: Vec<_> = (0..3).map(|id| flow.tx(id).number(super::buffers::CODE, TC)).collect();
    assert_eq!(codes, [Some(204), Some(304), Some(200)]);
    assert_eq!(flow.tx(2).progress(TC), 5, "a response to HEAD has no body");
    flow.parser.free_tx(0);
    flow.parser.free_tx(1);
    assert_eq!(flow.parser.tx_range(), 2..3);
}

#[test]
fn odd_requests() {
    for (request, uri, events) in [
        ("GET /a%2f..%2Fb/%u0041?x=%41 HTTP/1.1\r\nHost: h\r\n\r\n", "/b/A?x=A", &[][..]),
        ("GET\t/x HTTP/1.1\r\nHost: h\r\n\r\n", "/x", &["METHOD_DELIM_NON_COMPLIANT"]),
        (" GET /x HTTP/1.1\r\nHost: h\r\n\r\n", "/x", &["REQUEST_LINE_LEADING_WHITESPACE"]),
        ("GET /x\tHTTP/1.1\r\nHost: h\r\n\r\n", "/x", &["URI_DELIM_NON_COMPLIANT"]),
        ("GET /x HTTP/1.1\r\n\r\n", "/x", &["MISSING_HOST_HEADER"]),
        ("GET /x HTTP/1.1\r\nHost: a..b\r\n\r\n", "/x", &["REQUEST_HEADER_HOST_INVALID"]),
        ("GET http://a/x HTTP/1.1\r\nHost: b\r\n\r\n", "/x", &["HOST_HEADER_AMBIGUOUS"]),
        ("GET /x HTTP/1.1\r\nHost : h\r\n\r\n", "/x", &["REQUEST_INVALID_LWS_AFTER_NAME"]),
        ("GET /x HTTP/1.1\r\nHost: h\r\nrubbish\r\n\r\n", "/x", &["REQUEST_FIELD_MISSING_COLON"]),
        ("GET /x HTTP/1.1\r\nHost: h\r\nA: 1\r\nA: 2\r\n\r\n", "/x", &["REQUEST_HEADER_REPETITION"]),
        ("GET /x HTTP/1.1\r\nHost: h\r\nAuthorization: NTLM q\r\n\r\n", "/x", &["REQUEST_AUTH_UNRECOGNIZED"]),
        ("GET /x\r\nHost: h\r\n\r\n", "/x", &["REQUEST_LINE_MISSING_PROTOCOL"]),
        ("BREW /x COFFEE\r\nHost: h\r\n\r\n", "/x", &["REQUEST_LINE_UNKNOWN_METHOD_INVALID_PROTOCOL"]),
    ] {
        let mut flow = Flow::new();
        flow.feed(TS, request.as_bytes());
        assert_eq!(flow.text("http.uri", TS).as_deref(), Some(uri), "{request}");
        assert_eq!(flow.events(0), events, "{request}");
    }
}

#[test]
fn http09_has_no_headers() {
    let mut flow = Flow::new();
    flow.feed(TS, b"GET /old\r\n").feed(TC, b"just data").end();
    assert_eq!(flow.text("file.data", TC).as_deref(), Some("just data"));
    assert_eq!(flow.tx(0).progress(TS), 5);
}

#[test]
fn odd_responses() {
    for (response, body, events) in [
        (
            &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnot chunked\n"[..],
            "not chunked\n",
            &["INVALID_RESPONSE_CHUNK_LEN"][..],
        ),
        (
            b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "abc",
            &["RESPONSE_CHUNKED_OLD_PROTO"],
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "abc",
            &["RESPONSE_ABNORMAL_TRANSFER_ENCODING"],
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3x\r\n\r\nabc", "abc", &["CONTENT_LENGTH_EXTRA_DATA_END"]),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
            "abc",
            &["DUPLICATE_CONTENT_LENGTH_FIELD_IN_RESPONSE", "RESPONSE_HEADER_REPETITION"],
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: zip\r\nContent-Length: 3\r\n\r\nabc",
            "abc",
            &["ABNORMAL_CE_HEADER"],
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nplain", "plain", &[]),
        (b"HTTP/1.1 200 OK\r\n\r\nto the end", "to the end", &[]),
        (
            b"HTTP/1.1 2oo OK\r\nContent-Length: 3\r\n\r\nabc",
            "abc",
            &["RESPONSE_LINE_INVALID_RESPONSE_STATUS"],
        ),
        (b"HTTP/1.3 200 OK\r\nContent-Length: 3\r\n\r\nabc", "abc", &["RESPONSE_LINE_INVALID_PROTOCOL"]),
        (b"HTTP/1.1 200 OK\rContent-Length: 3\r\n\r\nabc", "abc", &[]),
        (b"HTTP/1.1 200 OK\n\nbody", "body", &[]),
        (b"HTTP/1.1 200 OK\r\nA: b\r\n\r \r\n\r\nbody", " \r\n\r\nbody", &[]),
        (
            b"HTTP/1.1 200 OK\r\nA: b\r\n\r \n folded\r\n\r\nbody",
            "body",
            &["DEFORMED_EOL", "RESPONSE_FIELD_MISSING_COLON"],
        ),
    ] {
        let flow = Flow::exchange(GET, response);
        let name = String::from_utf8_lossy(response);
        assert_eq!(flow.text("file.data", TC).as_deref(), Some(body), "{name}");
        assert_eq!(flow.events(0), events, "{name}");
    }
}

#[test]
fn responses_without_request() {
    let mut flow = Flow::new();
    flow.feed(TC, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    assert_eq!(flow.events(0), ["UNABLE_TO_MATCH_RESPONSE_TO_REQUEST"]);
    assert_eq!(flow.record(0)["url"], "/libhtp::request_uri_not_seen");
    flow.feed(TS, GET);
    assert_eq!(flow.count(), 2);
}

#[test]
fn what_has_no_body_by_its_code_has_none_whatever_it_says() {
    let answer = |head: &str| format!("{head}\r\n\r\n");
    for strict in ["no", "yes"] {
        for says in ["Content-Length: 10", "Transfer-Encoding: chunked"] {
            let mut settings = shipped();
            settings.set("strict", strict);
            // The next response is parsed as one, not as a body.
            for (method, code) in [("GET", 304), ("GET", 204), ("HEAD", 200)] {
                let mut flow = Flow::with(&settings);
                flow.feed(TS, format!("{method} /a HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
                flow.feed(TC, answer(&format!("HTTP/1.1 {code} x\r\n{says}")).as_bytes());
                flow.feed(TS, GET).feed(TC, b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok").end();
                let codes: Vec<_> = (0..flow.count()).map(|id| flow.record(id)["status"].clone()).collect();
                assert_eq!(codes, [code, 201], "{method} {code} {says} strict {strict}");
                assert_eq!((flow.tx(0).files_of(TC).len(), flow.tx(1).files_of(TC)[0].size), (0, 2));
            }
            let mut flow = Flow::with(&settings);
            flow.feed(TS, GET).feed(TC, answer(&format!("HTTP/1.1 100 Continue\r\n{says}")).as_bytes());
            flow.feed(TC, b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok").end();
            assert_eq!(
                (flow.count(), flow.record(0)["status"].clone()),
                (1, 201.into()),
                "{says} strict {strict}"
            );
        }
    }
}

#[test]
fn files_of_requests() {
    let form =
        "--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\n\r\ncontent\r\n--B--\r\n";
    let request = format!(
        "POST /up HTTP/1.1\r\nHost: h\r\nContent-Type: multipart/form-data; boundary=B\r\nContent-Length: {}\r\n\r\n{form}",
        form.len()
    );
    let flow = Flow::exchange(request.as_bytes(), b"");
    let file = &flow.tx(0).files_of(TS)[0];
    assert_eq!((file.name.as_slice(), file.size), (&b"a.txt"[..], 7));
    assert_eq!(flow.text("file.data", TS).as_deref(), Some("content"));
    assert_eq!(flow.text("http.request_body", TS).as_deref(), Some(form));
    // A small file is visible with the last chunk, as the body is, before the trailer's end.
    let mut flow = Flow::new();
    flow.feed(TS, b"PUT /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    assert_eq!((flow.text("file.data", TS), flow.text("http.request_body", TS)), (None, None));
    flow.feed(TS, b"0\r\n");
    assert_eq!(flow.text("file.data", TS).as_deref(), Some("abc"));
    assert_eq!(flow.text("http.request_body", TS).as_deref(), Some("abc"));
    let flow = Flow::exchange(b"PUT /x/put.bin HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", b"");
    assert_eq!(flow.tx(0).files_of(TS)[0].name, b"/x/put.bin");
}

#[test]
fn a_form_that_is_cut_short_keeps_what_came() {
    let head = "POST /up HTTP/1.1\r\nHost: h\r\nContent-Type: multipart/form-data; boundary=B\r\nContent-Length: 900\r\n\r\n\
        --B\r\nContent-Disposition: form-data; name=f; filename=a\r\n\r\n";
    let state = crate::file::FileState::Truncated;
    // As in Suricata, the possible beginning of a boundary is no data.
    for (body, size) in
        [("", 0), ("ab", 2), ("abcdefghij", 10), ("abc\r\n", 3), ("abc\r\n-", 3), ("abc\r\nd", 6)]
    {
        let mut flow = Flow::new();
        flow.feed(TS, format!("{head}{body}").as_bytes());
        flow.end();
        let files: Vec<_> = flow.tx(0).files_of(TS).iter().map(|f| (f.size, f.state)).collect();
        assert_eq!(files, [(size, state)], "{body:?}");
    }
    // A limit of the body cuts it, too.
    let mut settings = shipped();
    settings.set("libhtp.default-config.request-body-limit", "70");
    let mut flow = Flow::with(&settings);
    flow.feed(TS, format!("{head}{}", "x".repeat(100)).as_bytes());
    let file = &flow.tx(0).files_of(TS)[0];
    let part = 70 - (head.len() - head.find("--B").expect("a boundary")) as u64;
    assert_eq!((file.size, file.state), (part, state));
}

#[test]
fn names_and_ranges_of_response_files() {
    let flow = Flow::exchange(
        GET,
        b"HTTP/1.1 206 P\r\nContent-Disposition: attachment; filename=\"e.txt\"\r\nContent-Range: bytes 5-7/100\r\nContent-Length: 3\r\n\r\nabc",
    );
    let file = &flow.tx(0).files_of(TC)[0];
    assert_eq!((file.name.as_slice(), file.start, file.end), (&b"e.txt"[..], Some(5), Some(7)));
    assert_eq!(flow.record(0)["content_range"]["size"], 100);
    let flow = Flow::exchange(
        GET,
        b"HTTP/1.1 206 P\r\nContent-Range: bytes 7-5/100\r\nContent-Length: 3\r\n\r\nabc",
    );
    assert_eq!(flow.events(0), ["RANGE_INVALID"]);
}

#[test]
fn an_encoded_body_is_a_file_once_something_is_decoded() {
    let response = |body: &[u8]| {
        let length = body.len();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {length}\r\n\r\n");
        [head.as_bytes(), body].concat()
    };
    assert_eq!(Flow::exchange(GET, &response(&gzip(b""))).tx(0).files_of(TC).len(), 0);
    assert_eq!(Flow::exchange(GET, &response(&gzip(b"a"))).tx(0).files_of(TC)[0].size, 1);
    let whole = response(&gzip(b"abc"));
    let mut flow = Flow::new();
    flow.feed(TS, GET);
    let head = whole.len() - gzip(b"abc").len() + 10;
    flow.feed(TC, &whole[..head]);
    assert_eq!(flow.tx(0).files_of(TC).len(), 0, "no more than the head of its encoding");
    flow.feed(TC, &whole[head..]);
    assert_eq!(flow.tx(0).files_of(TC)[0].size, 3);
}

#[test]
fn ranges_are_put_together() {
    let mut flow = Flow::new();
    flow.feed(TS, &[GET, GET].concat());
    flow.feed(TC, b"HTTP/1.1 206 P\r\nContent-Range: bytes 3-5/6\r\nContent-Length: 3\r\n\r\ndef");
    flow.feed(TC, b"HTTP/1.1 206 P\r\nContent-Range: bytes 0-2/6\r\nContent-Length: 3\r\n\r\nabc");
    let files = flow.tx(1).files_of(TC);
    assert_eq!(files.iter().map(|f| f.size).collect::<Vec<_>>(), [3, 6]);
    assert_eq!(files[1].content().0, b"abcdef");
    assert_eq!(files[1].start, None);
}

#[test]
fn a_body_that_is_a_file_is_held_once() {
    let body = vec![b'b'; 60_000];
    let of_request =
        [b"POST /up HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n", body.as_slice()].concat();
    let of_response = [
        b"HTTP/1.1 200 OK\r\nContent-Disposition: attachment; filename=\"e\"\r\nContent-Length: 100000\r\n\r\n",
        body.as_slice(),
    ]
    .concat();
    for (direction, data, name) in
        [(TS, &of_request, "http.request_body"), (TC, &of_response, "http.response_body")]
    {
        let mut flow = Flow::new();
        if direction == TC {
            flow.feed(TS, GET);
        }
        data.chunks(1400).for_each(|piece| {
            flow.feed(direction, piece);
        });
        let held = flow.parser.held();
        assert!(held > body.len() && held < body.len() * 2, "{name}: {held}");
        let tx = flow.parser.tx(0).unwrap();
        assert_eq!(tx.files_of(direction)[0].content(), (body.as_slice(), 0), "{name}");
        assert_eq!(flow.buffer_at(0, name, direction, 0).as_ref(), Some(&body), "{name}");
    }
}

#[test]
fn a_body_goes_on_behind_the_limit_of_the_file_that_is_kept() {
    let mut flow = Flow::new();
    flow.files = FileSettings { store_all: true, store_depth: Some(1000), ..FileSettings::default() };
    let head = b"POST /up HTTP/1.1\r\nHost: h\r\nContent-Length: 5000\r\n\r\n";
    let body: Vec<u8> = (0..5000u32).map(|n| n as u8).collect();
    flow.feed(TS, head);
    body.chunks(700).for_each(|piece| {
        flow.feed(TS, piece);
    });
    let tx = flow.parser.tx(0).unwrap();
    assert_eq!(tx.files_of(TS)[0].content().0, &body[..1000]);
    let held = flow.buffer_at(0, "http.request_body", TS, 0).unwrap();
    // Data that came with the end of the file's part was dropped with it.
    assert!(held.starts_with(&body[..1000]) && held.len() > 4000, "{}", held.len());
}

#[test]
fn codings_of_the_transfer_are_undone_behind_those_of_the_body() {
    let once = gzip(b"<html>body</html>");
    let twice = gzip(&once);
    for (head, body) in [
        ("Transfer-Encoding: gzip, chunked", &once),
        ("Transfer-Encoding: x-gzip,chunked", &once),
        ("Content-Encoding: gzip\r\nTransfer-Encoding: gzip, chunked", &twice),
        ("Content-Encoding: gzip\r\nTransfer-Encoding: chunked", &once),
    ] {
        let mut response = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{:x}\r\n", body.len()).into_bytes();
        response.extend_from_slice(body);
        response.extend_from_slice(b"\r\n0\r\n\r\n");
        let flow = Flow::exchange(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &response);
        assert_eq!(flow.text("file.data", TC).as_deref(), Some("<html>body</html>"), "{head}");
    }
}

#[test]
fn a_gzip_header_may_be_longer_than_what_is_held_of_it() {
    let plain = gzip(b"<html>body</html>");
    let mut body =
        [&b"\x1f\x8b\x08\x0c\0\0\0\0\0\x03\xff\xff"[..], &[7; 65_535], &[b'n'; 70_000], b"\0"].concat();
    body.extend_from_slice(&plain[10..]);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", body.len());
    let flow = Flow::exchange(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &[head.as_bytes(), &body].concat());
    assert_eq!(flow.text("file.data", TC).as_deref(), Some("<html>body</html>"));
}

#[test]
fn identity_is_an_encoding_of_responses_only() {
    let response = b"HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nContent-Length: 2\r\n\r\nok";
    assert!(Flow::exchange(GET, response).events(0).is_empty());
    let request = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Encoding: identity\r\nContent-Length: 2\r\n\r\nok";
    assert_eq!(Flow::exchange(request, b"").events(0), ["ABNORMAL_CE_HEADER"]);
}

/// Receivers skip words that mean no encoding, so these do not use up the limit of layers.
#[test]
fn words_without_an_encoding_hide_none() {
    use std::io::Write as _;
    let pack = |data: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(data).expect("vec");
        encoder.finish().expect("vec")
    };
    let body = pack(&pack(b"some text"));
    for list in ["gzip, gzip", "identity, gzip, gzip", "gzip, none, identity, gzip"] {
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Encoding: {list}\r\nContent-Length: {}\r\n\r\n", body.len());
        let flow = Flow::exchange(GET, &[head.as_bytes(), &body].concat());
        assert_eq!(flow.text("file.data", TC).as_deref(), Some("some text"), "{list}");
    }
}

#[test]
fn the_end_of_a_flow_is_no_anomaly() {
    let flow = Flow::exchange(GET, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok more");
    assert!(flow.events(0).is_empty());
    assert_eq!(flow.text("file.data", TC).as_deref(), Some("ok more"));
}

#[test]
fn tunnels_and_upgrades() {
    let mut flow = Flow::new();
    flow.feed(TS, b"CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n");
    flow.feed(TC, b"HTTP/1.1 200 Connection established\r\n\r\n");
    assert_eq!(flow.last, Progress::Switch { consumed: 39, to: None });
    assert_eq!((flow.tx(0).progress(TS), flow.tx(0).progress(TC)), (5, 5));
    flow.feed(TS, b"\x16\x03\x01");
    assert_eq!(flow.last, Progress::Switch { consumed: 0, to: None });

    let mut flow = Flow::new();
    flow.feed(TS, b"CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\nGET");
    assert!(matches!(flow.last, Progress::Incomplete { needed: 4, .. }));
    flow.feed(TC, b"HTTP/1.1 403 no\r\nContent-Length: 0\r\n\r\n");
    flow.feed(TS, GET);
    assert_eq!(flow.count(), 2);

    for (protocol, to) in [("h2c", "http2"), ("WebSocket", "websocket")] {
        let mut flow = Flow::new();
        flow.feed(TS, GET);
        let response =
            format!("HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n");
        flow.feed(TC, [response.as_bytes(), b"\0\0"].concat().as_slice());
        assert_eq!(flow.last, Progress::Switch { consumed: response.len(), to: Some(to) });
        assert_eq!(flow.tx(0).progress(TC), 5);
    }
}

/// As in Suricata: the file has all bytes of a complete body, and is truncated if the flow ended within the
/// body.
#[test]
fn a_file_that_no_boundary_ends_ends_with_its_body() {
    use crate::file::FileState;
    let form = "--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\n\r\ncontent";
    for (more, size, state) in [(0, Some(7), FileState::Closed), (10, None, FileState::Truncated)] {
        let mut flow = Flow::new();
        let head = format!(
            "POST /up HTTP/1.1\r\nHost: h\r\nContent-Type: multipart/form-data; boundary=B\r\nContent-Length: {}\r\n\r\n",
            form.len() + more
        );
        flow.feed(TS, head.as_bytes()).feed(TS, form.as_bytes());
        flow.context(|p, c| p.end(TS, c));
        let file = &flow.tx(0).files_of(TS)[0];
        assert_eq!(file.state, state, "{more} bytes of the body are missing");
        // At the end of the flow, the possible beginning of a boundary is held back.
        assert_eq!(file.size, size.unwrap_or(file.size), "{more} bytes of the body are missing");
    }
}

#[test]
fn gaps_within_bodies_are_survived() {
    let mut flow = Flow::new();
    flow.feed(TS, GET).feed(TC, b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
    assert!(flow.context(|p, c| p.gap(TC, 4, c)));
    flow.feed(TC, b"xyz");
    let file = &flow.tx(0).files_of(TC)[0];
    assert!(file.gaps);
    assert_eq!((file.size, file.state), (10, crate::file::FileState::Truncated));
    assert_eq!(flow.tx(0).progress(TC), 5);
    let mut flow = Flow::new();
    flow.feed(TS, b"GET /x HT");
    flow.context(|p, c| p.gap(TS, 5, c));
    assert_eq!(flow.events(0), ["INVALID_GAP"]);
}

#[test]
fn what_stands_behind_a_length_is_told_of_an_answer_without_a_body_too() {
    let mut flow = Flow::new();
    flow.feed(TS, GET).feed(TC, b"HTTP/1.1 304 Not Modified\r\nContent-Length: 0HTTP\r\n\r\n");
    assert_eq!(flow.events(0), ["RESPONSE_BODY_UNEXPECTED", "CONTENT_LENGTH_EXTRA_DATA_END"]);
}

#[test]
fn limits_hold() {
    let mut flow = Flow::new();
    flow.feed(TS, b"GET /").feed(TS, &[b'a'; 18_001]);
    assert_eq!(flow.last, Progress::Error);
    assert_eq!(flow.events(0), ["REQUEST_FIELD_TOO_LONG"]);

    let mut flow = Flow::new();
    flow.feed(TS, GET).feed(TC, b"HTTP/1.1 200 OK\r\n\r\n");
    for _ in 0..100 {
        flow.feed(TC, &[b'x'; 4096]);
    }
    let file = &flow.tx(0).files_of(TC)[0];
    assert_eq!((file.size, file.state), (102_400, crate::file::FileState::Truncated));
    assert_eq!(flow.text("file.data", TC).map(|b| b.len()), Some(102_400));

    let mut flow = Flow::new();
    for _ in 0..2000 {
        flow.feed(TS, GET);
    }
    assert!(flow.count() <= 513);

    let bomb = gzip(&vec![0u8; 8 << 20]);
    let header = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\nContent-Length: {}\r\n\r\n",
        gzip(&bomb).len()
    );
    let flow = Flow::exchange(GET, &[header.as_bytes(), &gzip(&bomb)].concat());
    assert_eq!(flow.events(0), ["COMPRESSION_BOMB"]);
}

#[test]
fn many_bombs_of_a_flow_are_an_event_of_their_own() {
    let bomb = gzip(&gzip(&vec![0u8; 8 << 20]));
    let header =
        format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\nContent-Length: {}\r\n\r\n", bomb.len());
    let mut flow = Flow::new();
    for _ in 0..4 {
        flow.feed(TS, GET).feed(TC, header.as_bytes());
        // In pieces, for each of which the decoder is already dropped.
        bomb.chunks(bomb.len() / 2).for_each(|piece| {
            flow.feed(TC, piece);
        });
    }
    let events: Vec<_> = (0..4).map(|tx| flow.events(tx)).collect();
    let one = ["COMPRESSION_BOMB"];
    let third = ["COMPRESSION_BOMB", "COMPRESSION_BOMB_LIMIT_REACHED"];
    assert_eq!(events, [one.as_slice(), &one, &third, &one]);
}

#[test]
fn bodies_are_shown_when_large_enough_or_complete() {
    let mut flow = Flow::new();
    flow.feed(TS, GET).feed(TC, b"HTTP/1.1 200 OK\r\n\r\n").feed(TC, &[b'x'; 1000]);
    assert_eq!(flow.text("file.data", TC), None);
    flow.feed(TC, &[b'x'; 40_000]);
    assert_eq!(flow.text("file.data", TC).map(|b| b.len()), Some(41_000));
}

/// Conversations whose meaning does not depend on how they are cut.
fn conversation() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let gz = gzip(b"the encoded body, the encoded body");
    let mut encoded =
        format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", gz.len())
            .into_bytes();
    encoded.extend_from_slice(&gz);
    let requests: Vec<Vec<u8>> = vec![
        GET.to_vec(),
        b"POST /p?q=%41 HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nabcdef".to_vec(),
        b"POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\nT: u\r\n\r\n".to_vec(),
        b"GET /f HTTP/1.0\r\nA: b\r\n c\r\nHost: h\r\n: v\r\nno colon\r\n\r\n".to_vec(),
        b"PUT /f HTTP/1.1\nHost: h\nContent-Length: 2\n\nxy".to_vec(),
    ];
    let responses: Vec<Vec<u8>> = vec![
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".to_vec(),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nA: 1\r\nA: 2\r\n\r\n5\r\nhello\r\n0\r\n\r\n".to_vec(),
        b"HTTP/1.1 204 No Content\r\nX : y\r\n\r\n".to_vec(),
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 302 F\r\nLocation: /x\r\nFold:\r\n ed\r\nContent-Length: 0\r\n\r\n".to_vec(),
        encoded,
    ];
    proptest::collection::vec((0..requests.len(), 0..responses.len()), 1..5).prop_map(move |pairs| {
        let request = pairs.iter().flat_map(|(r, _)| requests[*r].clone()).collect();
        let response = pairs.iter().flat_map(|(_, r)| responses[*r].clone()).collect();
        (request, response)
    })
}

fn pieces<'a>(data: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|c| c % (data.len() + 1)).collect();
    at.push(0);
    at.push(data.len());
    at.sort_unstable();
    at.windows(2).map(|w| &data[w[0]..w[1]]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn segmentation_changes_nothing(
        (request, response) in conversation(),
        cuts in proptest::collection::vec(any::<usize>(), 0..40),
    ) {
        let mut whole = Flow::new();
        whole.feed(TS, &request).feed(TC, &response).end();
        let mut cut = Flow::new();
        for piece in pieces(&request, &cuts) {
            cut.feed(TS, piece);
        }
        for piece in pieces(&response, &cuts) {
            cut.feed(TC, piece);
        }
        cut.end();
        prop_assert_eq!(whole.picture(), cut.picture());
        let mut bytewise = Flow::new();
        for byte in &request {
            bytewise.feed(TS, core::slice::from_ref(byte));
        }
        for byte in &response {
            bytewise.feed(TC, core::slice::from_ref(byte));
        }
        bytewise.end();
        prop_assert_eq!(whole.picture(), bytewise.picture());
    }

    #[test]
    fn garbage_never_panics(
        parts in proptest::collection::vec((any::<bool>(), prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..200),
            "[A-Z]{3,4} [!-~]{0,20} HTTP/1\\.[01]\r?\n([A-Za-z-]{1,8} ?:[ -~]{0,10}\r?\n[ \t]?){0,4}\r?\n".prop_map(String::into_bytes),
            "HTTP/1\\.[01] [0-9]{3}[ -~]{0,5}\r?\n(Transfer-Encoding: chunked\r\n)?(Content-Length: [0-9]{1,3}\r\n)?(Content-Encoding: (gzip|deflate|br)\r\n)?\r?\n".prop_map(String::into_bytes),
            "[0-9a-f]{1,3}[;\r\n ]{0,4}[ -~]{0,30}".prop_map(String::into_bytes),
        ]), 0..30),
        gap in any::<Option<u16>>(),
    ) {
        let mut flow = Flow::new();
        for (to_server, data) in &parts {
            flow.last = Progress::Done;
            flow.feed(if *to_server { TS } else { TC }, data);
            if let Progress::Incomplete { consumed, needed } = flow.last {
                prop_assert!(consumed <= data.len() && needed > 0);
            }
        }
        if let Some(gap) = gap {
            flow.context(|p, c| p.gap(TC, u64::from(gap), c));
            flow.context(|p, c| p.gap(TS, u64::from(gap), c));
        }
        flow.end();
        let _ = flow.picture();
    }
}
