// SPDX-License-Identifier: Apache-2.0
//! The server against clients that behave and clients that do not.

use super::*;
use std::io::{BufRead, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Instant;

fn server() -> MetricsServer {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    MetricsServer::start(listener, Arc::new(|| "bartizan_uptime_seconds 1\n".to_owned())).unwrap()
}

/// Sends bytes and reads the whole answer.
fn ask(server: &MetricsServer, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // The server may close before it has read all of a large request.
    let _ = stream.write_all(request);
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn answers_by_request() {
    let server = server();
    let cases: [(&[u8], &str, &str); 16] = [
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK", "\r\n\r\nbartizan_uptime_seconds 1\n"),
        (b"GET /metrics HTTP/1.1\r\n\r\n", "200 OK", "version=0.0.4"),
        (b"\r\nGET /metrics HTTP/1.1\r\n\r\n", "200 OK", "seconds 1"),
        (b"GET http://x/metrics HTTP/1.1\r\n\r\n", "200 OK", "seconds 1"),
        (b"GET /metrics?name=x HTTP/1.1\r\n\r\n", "200 OK", "seconds 1"),
        (b"GET /metrics HTTP/1.1\n\n", "200 OK", "seconds 1"),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", "200 OK", "Content-Length: 26\r\n"),
        (b"GET / HTTP/1.1\r\n\r\n", "404 Not Found", "/metrics"),
        (b"GET /metrics/../etc/passwd HTTP/1.1\r\n\r\n", "404 Not Found", "/metrics"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405 Method", "Allow: GET, HEAD"),
        (b"DELETE / HTTP/1.1\r\n\r\n", "405 Method", "Allow: GET, HEAD"),
        (b"GET /metrics HTTP/2.0\r\n\r\n", "505 HTTP", "only HTTP/1"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505 HTTP", "only HTTP/1"),
        (b"GET /metrics\r\n\r\n", "400 Bad", "not an HTTP request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400 Bad", "not an HTTP request"),
        (b"G\xc3\x28T /metrics HTTP/1.1\r\n\r\n", "400 Bad", "not an HTTP request"),
    ];
    for (request, status, part) in cases {
        let text = ask(&server, request);
        let shown = String::from_utf8_lossy(request);
        assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{shown}: {text}");
        assert!(text.contains(part) && text.contains("Connection: close"), "{shown}: {text}");
    }
    let head = ask(&server, b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.ends_with("\r\n\r\n"), "{head}");
    // A client of HTTP/1.0 gets an answer of its version.
    let old = ask(&server, b"GET /metrics HTTP/1.0\r\n\r\n");
    assert!(
        old.starts_with("HTTP/1.0 200 OK\r\n") && old.ends_with("\nbartizan_uptime_seconds 1\n"),
        "{old}"
    );
    // One that ends its side after the request is answered as well.
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.contains("200 OK") && text.ends_with("seconds 1\n"), "{text}");
}

#[test]
fn a_page_that_fails_is_an_error_and_the_next_is_served() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let first = std::sync::atomic::AtomicBool::new(true);
    let page = move || {
        assert!(!first.swap(false, std::sync::atomic::Ordering::Relaxed), "the first page fails");
        "bartizan_uptime_seconds 1\n".to_owned()
    };
    let server = MetricsServer::start(listener, Arc::new(page)).unwrap();
    let text = ask(&server, b"GET /metrics HTTP/1.1\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 500 "), "{text}");
    assert!(ask(&server, b"GET /metrics HTTP/1.1\r\n\r\n").contains("200 OK"));
}

#[test]
fn a_request_in_pieces_is_put_together() {
    let server = server();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    for piece in [&b"GET /met"[..], b"rics HT", b"TP/1.1\r\nHost: x\r", b"\n\r", b"\n"] {
        stream.write_all(piece).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut line = String::new();
    std::io::BufReader::new(stream).read_line(&mut line).unwrap();
    assert_eq!(line, "HTTP/1.1 200 OK\r\n");
}

#[test]
fn large_requests_are_refused() {
    let server = server();
    let mut request = b"GET /metrics HTTP/1.1\r\nX: ".to_vec();
    request.resize(REQUEST_MAX * 2, b'a');
    let text = ask(&server, &request);
    assert!(text.starts_with("HTTP/1.1 431"), "{text}");
    assert!(ask(&server, b"GET /metrics HTTP/1.1\r\n\r\n").contains("200 OK"));
}

#[test]
fn slow_clients_hold_no_more_than_their_places_and_time() {
    let server = server();
    let begun = Instant::now();
    let mut slow: Vec<TcpStream> = (0..CONNECTIONS_MAX)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
            stream
        })
        .collect();
    // All places are taken as soon as the server has accepted them.
    std::thread::sleep(Duration::from_millis(200));
    let busy = ask(&server, b"GET /metrics HTTP/1.1\r\n\r\n");
    assert!(busy.is_empty() || busy.starts_with("HTTP/1.1 503"), "{busy}");
    // A byte now and then does not buy more time.
    let dripping = std::thread::spawn(move || {
        let mut answers = Vec::new();
        while begun.elapsed() < PATIENCE + Duration::from_millis(500) {
            for stream in &mut slow {
                let _ = stream.write_all(b"X");
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        for mut stream in slow {
            let mut text = String::new();
            let _ = stream.read_to_string(&mut text);
            answers.push(text);
        }
        answers
    });
    let free = loop {
        let text = ask(&server, b"GET /metrics HTTP/1.1\r\n\r\n");
        if text.contains("200 OK") {
            break begun.elapsed();
        }
        assert!(begun.elapsed() < PATIENCE * 3, "slow clients hold their places");
        std::thread::sleep(Duration::from_millis(100));
    };
    assert!(free >= PATIENCE - Duration::from_millis(500), "{free:?}");
    for text in dripping.join().unwrap() {
        // Data that a client sends after its time limit can destroy the answer.
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 408"), "{text}");
    }
}

#[test]
fn clients_that_say_nothing_or_go_away_do_no_harm() {
    let server = server();
    for _ in 0..CONNECTIONS_MAX * 4 {
        drop(TcpStream::connect(server.address()).unwrap());
    }
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(b"GET /metr").unwrap();
    drop(stream);
    std::thread::sleep(Duration::from_millis(100));
    assert!(ask(&server, b"GET /metrics HTTP/1.1\r\n\r\n").contains("200 OK"));
}

#[test]
fn it_ends_when_it_is_dropped() {
    let server = server();
    let address = server.address();
    drop(server);
    assert!(TcpStream::connect(address).is_err());
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_answered_or_dropped(
        bytes in proptest::collection::vec(proptest::arbitrary::any::<u8>(), 0..200),
    ) {
        static SERVER: std::sync::LazyLock<MetricsServer> = std::sync::LazyLock::new(server);
        let mut stream = TcpStream::connect(SERVER.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&bytes).unwrap();
        let _ = stream.shutdown(Shutdown::Write);
        let mut text = Vec::new();
        let read = stream.read_to_end(&mut text);
        let is_reset = read.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset);
        proptest::prop_assert!(is_reset || text.is_empty() || text.starts_with(b"HTTP/1."), "{:?}", text);
    }
}
