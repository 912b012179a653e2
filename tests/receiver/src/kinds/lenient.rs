// SPDX-License-Identifier: Apache-2.0
//! Requests that only lenient servers accept: after white space, without a version, with odd methods, with
//! odd line ends, after a CONNECT; and forms with a forbidden file, whose parts some servers find and others
//! do not.

use super::case::Play;
use super::made::Made;
use crate::receivers::Service;
use bartizan_testkit::random::Random;

/// A connection to Python's server in its lenient mode, in segments of any length.
fn send(made: &mut Made<'_>, bytes: Vec<u8>) -> Play {
    made.service = Service::Web;
    made.note = bytes.escape_ascii().to_string();
    let mut client = made.client_of(bytes.clone(), bytes);
    super::pieces(&mut client, made.random);
    Play::Tcp(Box::new(client))
}

/// White space that some servers skip before a request.
fn blank(random: &mut Random) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..random.within(1, 4) {
        let space = *random.pick(&["", " ", "\t", "  ", "\x0b", "\x0c", "\r", " \t"]);
        let end = *random.pick(&["\r\n", "\r\n", "\n"]);
        out.extend([space, end].concat().bytes());
    }
    out
}

/// A forbidden request that a lenient server accepts.
pub(super) fn requests(made: &mut Made<'_>) -> Play {
    let random = &mut *made.random;
    let mut bytes = Vec::new();
    for _ in 0..*random.pick(&[0, 0, 1, 2]) {
        let good = *random.pick(&[
            "GET /good HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST /good HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde",
            "CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
            "CONNECT a:80 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n{\r\n}",
        ]);
        bytes.extend(good.bytes());
    }
    if random.percent(60) {
        bytes.extend(blank(random));
    }
    let method: &[u8] = random.pick::<&[u8]>(&[
        &b"GET"[..],
        b"GET",
        b"SEARCH",
        b"M-SEARCH",
        b"PURGE",
        b"FOO",
        b"\x01",
        b"\0GET",
        b"G\xc3\xa9T",
        b"\x16\x03\x01\0\x60\x01\0\0\x5c\x03\x03",
        b"\x16\x03\x03\0\x50\x01\0\0\x4c\x03\x03abc",
    ]);
    let host = "Host: a\r\n";
    match random.below(4) {
        0 => {
            bytes.extend([method, b" /evil\r\n"].concat());
            bytes.extend((*random.pick(&[host, "", "X: y\r\n"])).bytes());
            bytes.extend(b"\r\n");
        }
        1 => {
            let framing = *random.pick(&[
                "Content-Length: 9\r\nTransfer-Encoding: chunked\r\n",
                "Transfer-Encoding: chunked\r\nContent-Length: 9\r\n",
                "Transfer-Encoding: identity\r\nContent-Length: 9\r\n",
            ]);
            let body = *random.pick(&["a;evil123", "5;evil\r\n1", "evil=1234", "1\r\nevil\r\n"]);
            bytes.extend(format!("POST /good HTTP/1.1\r\n{host}{framing}\r\n{body}").bytes());
        }
        2 => {
            let body = *random.pick(&["evil", "{\"a\":\"evil\"}", "x\r\nevil", "a b c\r\nevil"]);
            let (target, length) = (*random.pick(&["a:80", "/good"]), body.len());
            bytes.extend(
                format!("CONNECT {target} HTTP/1.1\r\n{host}Content-Length: {length}\r\n\r\n{body}").bytes(),
            );
        }
        _ => bytes.extend([method, b" /evil HTTP/1.1\r\n", host.as_bytes(), b"\r\n"].concat()),
    }
    send(made, bytes)
}

/// Header of a form's part with a file name.
fn head(name: &str, random: &mut Random) -> String {
    let file = match random.below(6) {
        0 => format!("filename={name}"),
        1 => format!("FileName=\"{name}\""),
        2 => format!("filename*=utf-8''{name}"),
        3 => format!("filename = \"{name}\""),
        _ => format!("filename=\"{name}\""),
    };
    let end = *random.pick(&["", "", "", "\r\n ", "\r\n\t"]);
    let field = *random.pick(&["Content-Disposition", "content-disposition", "CONTENT-DISPOSITION"]);
    let disposition = match random.below(4) {
        0 => format!("{field}: form-data;{end} {file}; name=\"f\""),
        1 => format!("{field}:form-data; name=f;{end}{file}"),
        2 => format!("{field}: attachment; name=\"f\"; {file}"),
        _ => format!("{field}: form-data; name=\"f\";{end} {file}"),
    };
    let kind =
        *random.pick(&["", "", "Content-Type: text/plain\r\n", "Content-Length: 4\r\n", "nocolon\r\n"]);
    if random.percent(50) { format!("{kind}{disposition}\r\n") } else { format!("{disposition}\r\n{kind}") }
}

/// A form with a forbidden file among its parts.
pub(super) fn forms(made: &mut Made<'_>) -> Play {
    let random = &mut *made.random;
    let line = *random.pick(&["\r\n", "\r\n", "\r\n", "\n"]);
    let parameter = *random.pick(&[
        "boundary=AaB03x",
        "boundary=AaB03x",
        "boundary=\"AaB03x\"",
        "Boundary=AaB03x",
        "boundary=AaB03x; charset=utf-8",
        "charset=utf-8; boundary=\"AaB03x\";",
        "boundary=\"AaB03x \"",
        "boundary=x; boundary=AaB03x",
        "boundary*=utf-8''AaB03x",
    ]);
    let mut body = String::new();
    if random.percent(20) {
        body.push_str(random.pick::<&str>(&["\r\n", "some text\r\n", "x"]));
    }
    let count = random.within(1, 3);
    let evil = random.below(count);
    for part in 0..count {
        let padding = *random.pick(&["", "", "", "", " ", "\t", "\x0b", "\x0c", "  ", "x"]);
        body.push_str(&format!("--AaB03x{padding}{line}"));
        let name = if part == evil { "evil.exe" } else { "good.txt" };
        let header = head(name, random).replace("\r\n", line);
        body.push_str(&header);
        let before = *random.pick(&[line, line, line, line, "\r", "", "\n"]);
        body.push_str(&format!("{line}data{before}"));
    }
    body.push_str(random.pick::<&str>(&["--AaB03x--\r\n", "--AaB03x--", "--AaB03x--\n", "--AaB03x\r\n", ""]));
    let length = body.len();
    let request = format!(
        "POST /good HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; {parameter}\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    send(made, request.into_bytes())
}
