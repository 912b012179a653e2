// SPDX-License-Identifier: Apache-2.0
//! Refusals reach the client: also while it still sends, also for malformed requests, and after a timeout.

use crate::common::wire::{Came, Wire, head};
use bartizan_controller::server::{Bounds, HEAD_MAX};
use std::time::{Duration, Instant};

fn is_problem(came: &Came, status: u16) {
    assert_eq!(came.status, status, "{came:?}");
    assert_eq!(came.field("content-type"), Some("application/problem+json"), "{came:?}");
    let problem = came.json();
    assert_eq!(problem["status"], status, "{came:?}");
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.len() > 10), "{came:?}");
    assert!(came.field("date").is_some_and(|date| date.ends_with(" gmt")), "{came:?}");
}

/// Routes with a body, and a body that is too large for each.
const BODIES: &[(&str, &str)] = &[
    ("PUT", "/v1/tenants/acme/groups/big"),
    ("PUT", "/v1/tenants/acme/policies/big"),
    ("PUT", "/v1/tenants/acme"),
    ("PUT", "/v1/libraries/big"),
    ("PUT", "/v1/devices/edge"),
    ("PUT", "/v1/settings/default"),
    ("POST", "/v1/tokens"),
    ("POST", "/v1/rollouts"),
    ("POST", "/v1/devices/edge/alerts"),
    ("POST", "/v1/devices/edge/acknowledgements"),
    ("PUT", "/v1/devices/edge/statistics"),
    ("POST", "/v1/devices/edge/functions/ids"),
    // Without a body of their own.
    ("POST", "/v1/devices/edge/enrolment"),
    ("DELETE", "/v1/tenants/acme"),
    ("GET", "/v1/tenants"),
];

#[test]
fn a_body_that_is_too_large_is_told_so_however_it_comes() {
    let wire = Wire::new(Bounds::default());
    let large = vec![b' '; 3 << 20];
    for (method, path) in BODIES {
        let head = wire.head(method, path);
        // The whole body, before the client reads.
        let mut line = wire.open();
        line.say(format!("{head}Content-Length: {}\r\n\r\n", large.len()).as_bytes()).unwrap();
        line.say(&large).unwrap();
        is_problem(&line.hear().unwrap(), 413);
        assert!(line.is_over(), "{path}");
        // No body: the client waits for `100 Continue`, which does not come.
        let mut line = wire.open();
        line.say(format!("{head}Expect: 100-continue\r\nContent-Length: {}\r\n\r\n", large.len()).as_bytes())
            .unwrap();
        is_problem(&line.hear().unwrap(), 413);
        // In chunks, without a total length.
        let mut line = wire.open();
        line.say(format!("{head}Transfer-Encoding: chunked\r\n\r\n").as_bytes()).unwrap();
        for piece in large.chunks(64 * 1024) {
            line.say(format!("{:x}\r\n", piece.len()).as_bytes()).unwrap();
            line.say(piece).unwrap();
            line.say(b"\r\n").unwrap();
        }
        line.say(b"0\r\n\r\n").unwrap();
        is_problem(&line.hear().unwrap(), 413);
    }
    let path = format!("/v1/rule-files/{}", "0".repeat(64));
    let came = wire.ask(format!("{}Content-Length: {}\r\n\r\n", wire.head("PUT", &path), (48 << 20) + 1));
    is_problem(&came, 413);
    assert_eq!(wire.counted("too-large"), 3 * BODIES.len() as u64 + 1);
}

#[test]
fn what_is_refused_by_its_head_is_told_so_while_its_body_comes() {
    let wire = Wire::new(Bounds::default());
    let body = vec![b' '; 1 << 20];
    let group = "/v1/tenants/acme/groups/lan";
    for (head, status) in [
        (head("PUT", group, "btz_none"), 401),
        (head("PUT", group, &wire.world.token) + "Content-Encoding: gzip\r\n", 415),
        (wire.head("PUT", "/v1/nothing"), 404),
        (wire.head("PATCH", group), 405),
        (wire.head("PUT", "/v1/tenants/acme/groups/lan?what=1"), 400),
        (wire.head("PUT", "/v1/tenants/acme/groups/LAN"), 400),
    ] {
        for expects in ["", "Expect: 100-continue\r\n"] {
            let mut line = wire.open();
            line.say(format!("{head}{expects}Content-Length: {}\r\n\r\n", body.len()).as_bytes()).unwrap();
            line.say(&body).unwrap();
            let came = line.hear().unwrap();
            is_problem(&came, status);
            assert_eq!(came.field("connection"), Some("close"));
            if status == 405 {
                assert_eq!(came.field("allow"), Some("head, get, put, delete"));
            }
        }
    }
    // Without an unread body, the connection stays open.
    let mut line = wire.open();
    for _ in 0..3 {
        line.say(format!("{}\r\n", wire.head("GET", "/v1/nothing")).as_bytes()).unwrap();
        is_problem(&line.hear().unwrap(), 404);
    }
    // An admitted client gets `100 Continue`.
    wire.world.tenant("acme", 7);
    let body = r#"{"members": ["10.0.0.1"]}"#;
    let mut line = wire.open();
    let asks =
        format!("{}Expect: 100-continue\r\nContent-Length: {}\r\n\r\n", wire.head("PUT", group), body.len());
    line.say(asks.as_bytes()).unwrap();
    assert_eq!(line.hear().unwrap().status, 100);
    line.say(body.as_bytes()).unwrap();
    assert_eq!(line.hear().unwrap().status, 201);
}

#[test]
fn what_is_no_request_is_told_what_it_is_not() {
    let wire = Wire::new(Bounds::default());
    let good = wire.head("GET", "/v1/tenants");
    for (request, status) in [
        (b"nonsense\r\n\r\n".to_vec(), 400),
        (b"GET /v1/tenants HTTP/9.9\r\nHost: a\r\n\r\n".to_vec(), 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), 400),
        (b"GET /v1/tenants HTTP/1.1\r\nHost : a\r\n\r\n".to_vec(), 400),
        (b"GET /v1/ten\x01ants HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), 400),
        (format!("{good}X: {}\r\n\r\n", "x".repeat(HEAD_MAX)).into_bytes(), 431),
        (format!("{good}X: {}\r\n\r\n", "x".repeat(4 << 20)).into_bytes(), 431),
        (format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(HEAD_MAX)).into_bytes(), 431),
        (format!("{good}{}\r\n", "X: y\r\n".repeat(200)).into_bytes(), 431),
    ] {
        let shown = String::from_utf8_lossy(&request[..request.len().min(80)]).into_owned();
        let mut line = wire.open();
        line.say(&request).unwrap();
        let came = line.hear().unwrap_or_else(|error| panic!("{shown}: {error}"));
        is_problem(&came, status);
        assert!(line.is_over(), "{shown}");
        // The same after an answered request.
        let mut line = wire.open();
        line.say(format!("{good}\r\n").as_bytes()).unwrap();
        assert_eq!(line.hear().unwrap().status, 200);
        line.say(&request).unwrap();
        is_problem(&line.hear().unwrap(), status);
    }
    assert_eq!((wire.counted("malformed"), wire.counted("too-large")), (10, 8));
}

#[test]
fn a_body_has_time_by_its_rate() {
    let patience = Duration::from_millis(400);
    let wire = Wire::new(Bounds { patience, rate_min: 64 * 1024, ..Bounds::default() });
    wire.world.tenant("acme", 7);
    // Longer than the patience, at four times the floor.
    let text = format!("# {}\n", "x".repeat(1_000)).repeat(400);
    let name = sha256(text.as_bytes());
    let mut line = wire.open();
    let asks = format!(
        "{}Content-Length: {}\r\n\r\n",
        wire.head("PUT", &format!("/v1/rule-files/{name}")),
        text.len()
    );
    line.say(asks.as_bytes()).unwrap();
    let begun = Instant::now();
    for piece in text.as_bytes().chunks(16 * 1024) {
        line.say(piece).unwrap();
        std::thread::sleep(Duration::from_millis(60));
    }
    assert_eq!(line.hear().unwrap().status, 201);
    assert!(begun.elapsed() > patience * 2);
    // A byte now and then; in a body with a length, in chunks, and in a head.
    let group = wire.head("PUT", "/v1/tenants/acme/groups/lan");
    for (begins, drips) in [
        (format!("{group}Content-Length: 1000\r\n\r\n"), " "),
        (format!("{group}Transfer-Encoding: chunked\r\n\r\n"), "1\r\n \r\n"),
        (group.clone(), "X: y\r\n"),
    ] {
        let mut line = wire.open();
        let begun = Instant::now();
        line.say(begins.as_bytes()).unwrap();
        while begun.elapsed() < patience * 2 && line.say(drips.as_bytes()).is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
        is_problem(&line.hear().unwrap(), 408);
        assert!(begun.elapsed() < patience * 6, "{:?}", begun.elapsed());
    }
    assert_eq!(wire.counted("timeout"), 3);
    // A silent client is disconnected without an answer.
    let mut line = wire.open();
    line.say(b"").unwrap();
    assert!(line.is_over());
    let mut line = wire.open();
    line.say(format!("{}\r\n", wire.head("GET", "/v1/tenants")).as_bytes()).unwrap();
    assert_eq!(line.hear().unwrap().status, 200);
    assert!(line.is_over());
    assert_eq!(wire.counted("timeout"), 3);
}

pub fn sha256(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
