// SPDX-License-Identifier: Apache-2.0
//! HTTP conversations, and the buffers of their messages.

use crate::scene::{Scene, Target};
use crate::talk::{Message, Way};
use crate::text::{data, name};
use bartizan_testkit::random::Random;

/// A request or a response, and the values of its buffers.
struct Said {
    bytes: Vec<u8>,
    values: Vec<(&'static str, Vec<u8>)>,
}

/// One to three requests with their responses, in one connection.
#[must_use]
pub fn scene(random: &mut Random) -> Scene {
    let mut messages = Vec::new();
    let mut targets = Vec::new();
    let count = *random.pick(&[1, 1, 2, 3]);
    let pipelined = count > 1 && random.percent(25);
    let mut answers = Vec::new();
    for at in 0..count {
        let head = random.percent(6);
        let said = request(random, head, at + 1 == count);
        let answer = response(random, head);
        for (to_server, said) in [(true, &said), (false, &answer)] {
            let proto = *random.pick(&["http", "http", "http", "tcp", "http1"]);
            for (buffer, value) in &said.values {
                targets.push(Target { proto, buffer, data: value.clone(), to_server });
            }
            if random.percent(40) {
                targets.push(Target { proto: "tcp", buffer: "", data: said.bytes.clone(), to_server });
            }
        }
        messages.push(Message::new(true, said.bytes));
        let answer = Message::new(false, answer.bytes);
        if pipelined { answers.push(answer) } else { messages.push(answer) }
    }
    messages.extend(answers);
    if random.percent(8) {
        // The last request has no response.
        messages.pop();
    }
    Scene {
        messages,
        way: Way { port: *random.pick(&[80, 80, 8080]), ..Way::default() },
        targets,
        beside: Vec::new(),
    }
}

fn request(random: &mut Random, head: bool, last: bool) -> Said {
    let body = if head || random.percent(65) { Vec::new() } else { data(random, 8) };
    let method = if head {
        "HEAD"
    } else if body.is_empty() {
        *random.pick(&["GET", "GET", "GET", "OPTIONS", "DELETE"])
    } else {
        *random.pick(&["POST", "POST", "PUT"])
    };
    let (raw, uri) = uri(random);
    let version = *random.pick(&["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0"]);
    let host = format!("{}.Example.com", name(random, 1));
    let agent = name(random, 3);
    let mut headers = vec![("Host", host.clone())];
    headers.push((*random.pick(&["User-Agent", "user-agent", "USER-AGENT"]), agent.clone()));
    let cookie = format!("id={}; b={}", name(random, 1), name(random, 2));
    let optional: [(&'static str, String); 7] = [
        ("Cookie", cookie.clone()),
        ("Accept", "text/html, */*".into()),
        ("Accept-Encoding", "gzip, deflate".into()),
        ("Accept-Language", "en-us,en;q=0.5".into()),
        ("Referer", format!("http://{}/{}", name(random, 1), name(random, 1))),
        ("Content-Type", "text/plain".into()),
        ("X-Own", format!(" {}  {}", name(random, 1), name(random, 1))),
    ];
    let mut values = vec![
        ("http.method", method.as_bytes().to_vec()),
        ("http.uri", uri.into_bytes()),
        ("http.uri.raw", raw.clone().into_bytes()),
        ("http.host", host.to_lowercase().into_bytes()),
        ("http.host.raw", host.into_bytes()),
        ("http.user_agent", agent.into_bytes()),
        ("http.protocol", version.as_bytes().to_vec()),
        ("http.request_line", format!("{method} {raw} {version}").into_bytes()),
    ];
    for (header, value) in optional {
        if random.percent(30) {
            let buffer = match header {
                "Cookie" => "http.cookie",
                "Accept" => "http.accept",
                "Accept-Encoding" => "http.accept_enc",
                "Accept-Language" => "http.accept_lang",
                "Referer" => "http.referer",
                "Content-Type" => "http.content_type",
                _ => "http.header",
            };
            values.push((buffer, value.clone().into_bytes()));
            headers.push((header, value));
        }
    }
    if last && random.percent(20) {
        headers.push(("Connection", "close".into()));
        values.push(("http.connection", b"close".to_vec()));
    }
    let chunked = !body.is_empty() && random.percent(20);
    if chunked {
        headers.push(("Transfer-Encoding", "chunked".into()));
    } else if !body.is_empty() {
        headers.push(("Content-Length", body.len().to_string()));
        values.push(("http.content_len", body.len().to_string().into_bytes()));
    }
    let end = *random.pick(&["\r\n", "\r\n", "\r\n", "\r\n", "\n"]);
    let mut text = format!("{method} {raw} {version}{end}").into_bytes();
    common(&mut values, &mut text, &headers, end);
    values.push(("http.start", text.clone()));
    values.push((
        "http.request_header",
        headers.last().map(|(n, v)| format!("{n}: {v}")).unwrap_or_default().into_bytes(),
    ));
    if !body.is_empty() {
        values.push(("http.request_body", body.clone()));
        values.push(("file.data", body.clone()));
        values.push((
            "file.name",
            values[1].1.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec(),
        ));
    }
    text.extend(if chunked { chunks(random, &body) } else { body });
    Said { bytes: text, values }
}

fn response(random: &mut Random, head: bool) -> Said {
    let (code, reason) = *random.pick(&[
        (200, "OK"),
        (200, "OK"),
        (404, "Not Found"),
        (302, "Found"),
        (204, "No Content"),
        (304, "Not Modified"),
    ]);
    let bodiless = matches!(code, 204 | 304);
    let body = if bodiless || random.percent(15) { Vec::new() } else { data(random, 14) };
    let server = name(random, 2);
    let mut headers = vec![("Server", server.clone())];
    let mut values = vec![
        ("http.stat_code", code.to_string().into_bytes()),
        ("http.stat_msg", reason.as_bytes().to_vec()),
        ("http.server", server.into_bytes()),
        ("http.response_line", format!("HTTP/1.1 {code} {reason}").into_bytes()),
    ];
    if code == 302 {
        headers.push(("Location", "http://Other/evil".into()));
        values.push(("http.location", b"http://Other/evil".to_vec()));
    }
    if random.percent(30) {
        let cookie = format!("s={}", name(random, 1));
        headers.push(("Set-Cookie", cookie.clone()));
        values.push(("http.cookie", cookie.into_bytes()));
    }
    if !body.is_empty() {
        headers.push(("Content-Type", "text/html".into()));
        values.push(("http.content_type", b"text/html".to_vec()));
    }
    let gzip = !body.is_empty() && random.percent(20);
    let mut sent = if gzip { stored(&body) } else { body.clone() };
    if gzip {
        headers.push(("Content-Encoding", "gzip".into()));
    }
    // Without a length or chunks the body extends to the end of the connection.
    match random.below(10) {
        0 => {}
        1..=3 if !sent.is_empty() => {
            headers.push(("Transfer-Encoding", "chunked".into()));
            sent = chunks(random, &sent);
        }
        _ => {
            headers.push(("Content-Length", sent.len().to_string()));
            values.push(("http.content_len", sent.len().to_string().into_bytes()));
        }
    }
    let mut text = format!("HTTP/1.1 {code} {reason}\r\n").into_bytes();
    common(&mut values, &mut text, &headers, "\r\n");
    values.push((
        "http.response_header",
        headers.last().map(|(n, v)| format!("{n}: {v}")).unwrap_or_default().into_bytes(),
    ));
    if !body.is_empty() && !head {
        values.push(("http.response_body", body.clone()));
        values.push(("file.data", body));
        values.push(("file_data", values.last().map(|(_, v)| v.clone()).unwrap_or_default()));
    }
    if !head {
        text.extend(sent);
    }
    Said { bytes: text, values }
}

/// Writes headers, and adds the buffers that hold all headers.
fn common(
    values: &mut Vec<(&'static str, Vec<u8>)>,
    text: &mut Vec<u8>,
    headers: &[(&str, String)],
    end: &str,
) {
    let (mut all, mut raw, mut names) = (String::new(), String::new(), String::from("\r\n"));
    for (name, value) in headers {
        raw.push_str(&format!("{name}: {value}{end}"));
        if !name.ends_with("Cookie") {
            all.push_str(&format!("{name}: {}\r\n", value.trim()));
        }
        names.push_str(&format!("{name}\r\n"));
    }
    text.extend_from_slice(raw.as_bytes());
    text.extend_from_slice(end.as_bytes());
    values.push(("http.header", all.into_bytes()));
    values.push(("http.header.raw", raw.into_bytes()));
    values.push(("http.header_names", format!("{names}\r\n").into_bytes()));
}

/// A URI in raw and normalised form.
fn uri(random: &mut Random) -> (String, String) {
    let (mut raw, mut normal) = (String::new(), String::new());
    for _ in 0..random.within(1, 3) {
        let part = name(random, 2);
        let (sent, read) = match random.below(9) {
            0 => (format!("/%{:02x}{}", part.as_bytes()[0], &part[1..]), format!("/{part}")),
            1 => (format!("//{part}"), format!("/{part}")),
            2 => (format!("/zz/../{part}"), format!("/{part}")),
            3 => (format!("/./{part}"), format!("/{part}")),
            4 => (format!("/{part}%20x"), format!("/{part} x")),
            _ => (format!("/{part}"), format!("/{part}")),
        };
        raw.push_str(&sent);
        normal.push_str(&read);
    }
    if random.percent(40) {
        let (key, value) = (name(random, 1), name(random, 2));
        let plus = *random.pick(&["", "+", "%2f", "%u0041"]);
        raw.push_str(&format!("?{key}={value}{plus}"));
        normal.push_str(&format!("?{key}={value}{plus}"));
    }
    if random.percent(6) {
        raw = format!("http://Host.example{raw}");
    }
    (raw, normal)
}

fn chunks(random: &mut Random, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let size = random.within(1, body.len());
    for piece in body.chunks(size) {
        bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        bytes.extend_from_slice(piece);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

/// A gzip file with stored blocks (RFC 1951, 3.2.4; RFC 1952), the same on every machine.
fn stored(body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1];
    let length = body.len() as u16;
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&(!length).to_le_bytes());
    bytes.extend_from_slice(body);
    let mut sum = flate2::Crc::new();
    sum.update(body);
    bytes.extend_from_slice(&sum.sum().to_le_bytes());
    bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
    bytes
}
