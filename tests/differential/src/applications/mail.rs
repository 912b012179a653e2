// SPDX-License-Identifier: Apache-2.0
//! Messages of mail (RFC 5322) with the structures and encodings of MIME (RFC 2045, 2046, 2047), valid and
//! odd.

use super::conversation::Talk;
use crate::text::{data, name};
use bartizan_testkit::random::Random;

/// A message: lines without their ends.
pub(super) fn message(random: &mut Random, talk: &mut Talk) -> Vec<Vec<u8>> {
    let mut lines = headers(random, talk);
    if random.percent(4) {
        // No empty line between header and body.
        return lines;
    }
    if random.percent(45) {
        let mut text = part_body(random, talk, false);
        if random.percent(30) {
            lines.push(type_of_text(random).into_bytes());
        }
        if random.percent(15) {
            lines.push(b"MIME-Version: 1.0".to_vec());
        }
        lines.push(Vec::new());
        lines.append(&mut text);
        return lines;
    }
    multipart(random, talk, &mut lines, 0);
    lines
}

fn address(random: &mut Random) -> String {
    let (user, host) = (name(random, 1), name(random, 1));
    match random.below(6) {
        0 => format!("\"{} {}\" <{user}@{host}.example>", name(random, 1), name(random, 1)),
        1 => format!("{user}@{host}.example"),
        2 => format!("=?utf-8?Q?{user}=C3=A4?= <{user}@{host}.example>"),
        3 => format!("{user}@{host}.example, {host}@{user}.example"),
        _ => format!("{} <{user}@{host}.example>", name(random, 1)),
    }
}

fn headers(random: &mut Random, talk: &mut Talk) -> Vec<Vec<u8>> {
    let (from, to, cc) = (address(random), address(random), address(random));
    let subject = format!("{} {}", name(random, 1), name(random, 3));
    let id = format!("<{}.1@{}.example>", name(random, 1), name(random, 1));
    let mailer = format!("{} 1.0", name(random, 1));
    let received =
        format!("from {} by {}; Sat, 28 Nov 2026 10:00:00 +0000", name(random, 1), name(random, 1));
    let fields: [(&'static str, &'static str, String, usize); 8] = [
        ("Received", "email.received", received, 35),
        ("From", "email.from", from, 85),
        ("To", "email.to", to, 80),
        ("Cc", "email.cc", cc, 30),
        ("Subject", "email.subject", subject, 85),
        ("Date", "email.date", "Sat, 28 Nov 2026 10:00:00 +0000".into(), 50),
        ("Message-ID", "email.message_id", id, 50),
        ("X-Mailer", "email.x_mailer", mailer, 35),
    ];
    let mut lines = Vec::new();
    for (field, buffer, value, percent) in fields {
        if !random.percent(percent) {
            continue;
        }
        for _ in 0..if random.percent(6) { 2 } else { 1 } {
            add_field(random, &mut lines, field, &value);
        }
        talk.target("smtp", buffer, &value, true);
    }
    match random.below(24) {
        0 => lines.push(b"X-Odd header without a colon".to_vec()),
        1 => lines.push([vec![b'X'; 1_001], b": long name".to_vec()].concat()),
        2 => lines.push([b"X-Long: ".to_vec(), vec![b'v'; 2_100]].concat()),
        3 => lines.push([b"X-Bytes: ".to_vec(), random.bytes(9).into_iter().map(no_line).collect()].concat()),
        4 => lines.push(b"X-Blank :  a  ".to_vec()),
        5 => lines.push(b": nothing".to_vec()),
        6 => lines.insert(0, b" folded at first".to_vec()),
        7 => lines.push(b"X-Empty:".to_vec()),
        _ => {}
    }
    lines
}

/// A byte that is no line end and no placeholder.
const fn no_line(byte: u8) -> u8 {
    if matches!(byte, 0 | 1 | b'\r' | b'\n') { b'~' } else { byte }
}

fn add_field(random: &mut Random, lines: &mut Vec<Vec<u8>>, field: &str, value: &str) {
    let field = match random.below(8) {
        0 => field.to_lowercase(),
        1 => field.to_uppercase(),
        _ => field.into(),
    };
    let blank = *random.pick(&[" ", " ", " ", "", "\t", "  "]);
    match value.split_once(' ') {
        Some((first, rest)) if random.percent(20) => {
            lines.push(format!("{field}:{blank}{first}").into_bytes());
            lines.push(format!("{}{rest}", random.pick(&[" ", "\t", "   "])).into_bytes());
        }
        _ => lines.push(format!("{field}:{blank}{value}").into_bytes()),
    }
}

fn type_of_text(random: &mut Random) -> String {
    (*random.pick(&[
        "Content-Type: text/plain",
        "Content-Type: text/plain; charset=utf-8",
        "Content-Type: text/html; charset=\"us-ascii\"",
        "content-type: TEXT/HTML",
        "Content-Type: text/x-own",
        "Content-Type:",
    ]))
    .into()
}

fn multipart(random: &mut Random, talk: &mut Talk, lines: &mut Vec<Vec<u8>>, depth: usize) {
    let boundary = match random.below(16) {
        0 => "b".repeat(260),
        1 => "-".into(),
        2 => "a b".into(),
        _ => format!("{}=_{depth}", name(random, 2)),
    };
    let kind = *random.pick(&["mixed", "mixed", "alternative", "related"]);
    match random.below(7) {
        0 => {
            lines.push(format!("Content-Type: multipart/{kind};").into_bytes());
            lines.push(format!("\tboundary=\"{boundary}\"").into_bytes());
        }
        1 => lines.push(format!("Content-Type: multipart/{kind}; boundary={boundary}").into_bytes()),
        2 => lines.push(format!("Content-Type: Multipart/{kind} ; Boundary=\"{boundary}\"").into_bytes()),
        3 => lines
            .push(format!("Content-Type: multipart/{kind}; x=y; boundary=\"{boundary}\"; z=w").into_bytes()),
        _ => lines.push(format!("Content-Type: multipart/{kind}; boundary=\"{boundary}\"").into_bytes()),
    }
    if random.percent(60) {
        lines.push(b"MIME-Version: 1.0".to_vec());
    }
    lines.push(Vec::new());
    if random.percent(25) {
        lines.push(b"A preamble with http://preamble.example/x".to_vec());
    }
    for _ in 0..random.within(1, 3) {
        lines.push(format!("--{boundary}{}", random.pick(&["", "", "", "", " "])).into_bytes());
        part(random, talk, lines, depth);
    }
    if random.percent(88) {
        lines.push(format!("--{boundary}--").into_bytes());
    }
    if random.percent(20) {
        lines.push(b"An epilogue with http://epilogue.example/y".to_vec());
    }
}

fn part(random: &mut Random, talk: &mut Talk, lines: &mut Vec<Vec<u8>>, depth: usize) {
    match random.below(9) {
        0 if depth < 2 => return multipart(random, talk, lines, depth + 1),
        1 if depth < 2 => {
            lines.push(b"Content-Type: message/rfc822".to_vec());
            lines.push(Vec::new());
            lines.push(format!("Subject: inner {}", name(random, 1)).into_bytes());
            lines.push(Vec::new());
            lines.extend(part_body(random, talk, false));
            return;
        }
        2 => {
            // Neither header nor empty line.
            lines.extend(part_body(random, talk, false));
            return;
        }
        _ => {}
    }
    if random.percent(40) {
        lines.push(type_of_text(random).into_bytes());
        let mut text = part_body_encoded(random, talk, lines, false);
        lines.append(&mut text);
        return;
    }
    let file = match random.below(12) {
        0 => "n".repeat(300),
        1 => format!("{} {}.txt", name(random, 1), name(random, 1)),
        _ => format!("{}.{}", name(random, 2), random.pick(&["exe", "txt", "end", "zip"])),
    };
    talk.target("smtp", "file.name", &file, true);
    let kind = *random.pick(&["application/octet-stream", "application/x-zip", "text/plain", "image/png"]);
    match random.below(6) {
        0 => lines.push(format!("Content-Type: {kind}; name=\"{file}\"").into_bytes()),
        1 => {
            lines.push(format!("Content-Type: {kind}").into_bytes());
            lines.push(format!("Content-Disposition: attachment; filename={file}").into_bytes());
        }
        2 => {
            lines.push(b"Content-Disposition: attachment;".to_vec());
            lines.push(format!(" filename=\"{file}\"").into_bytes());
        }
        3 => {
            lines.push(format!("Content-Type: {kind};").into_bytes());
            lines.push(format!("\tname={file}").into_bytes());
            lines.push(format!("Content-Disposition: inline; filename=\"{file}\"; size=9").into_bytes());
        }
        4 => lines.push(format!("Content-Disposition: attachment; filename*=utf-8''{file}").into_bytes()),
        _ => {
            lines.push(format!("Content-Type: {kind}; name=\"{file}\"").into_bytes());
            lines.push(format!("Content-Disposition: attachment; filename=\"{file}\"").into_bytes());
        }
    }
    let mut text = part_body_encoded(random, talk, lines, true);
    lines.append(&mut text);
}

/// Adds the transfer encoding's field and the end of the header; returns the body's lines.
fn part_body_encoded(
    random: &mut Random,
    talk: &mut Talk,
    lines: &mut Vec<Vec<u8>>,
    is_file: bool,
) -> Vec<Vec<u8>> {
    let body = match random.below(5) {
        0..=2 if is_file => {
            lines.push(
                format!(
                    "Content-Transfer-Encoding: {}",
                    random.pick(&["base64", "base64", "BASE64", "\"base64\""])
                )
                .into_bytes(),
            );
            let bytes = content(random, talk);
            base64_lines(random, &bytes)
        }
        3 => {
            lines.push(b"Content-Transfer-Encoding: quoted-printable".to_vec());
            let bytes = content(random, talk);
            printable_lines(random, &bytes)
        }
        0 => {
            lines.push(
                format!(
                    "Content-Transfer-Encoding: {}",
                    random.pick(&["7bit", "8bit", "binary", "uuencode"])
                )
                .into_bytes(),
            );
            part_body(random, talk, is_file)
        }
        _ => part_body(random, talk, is_file),
    };
    lines.push(Vec::new());
    body
}

/// The content of a file.
fn content(random: &mut Random, talk: &mut Talk) -> Vec<u8> {
    let words = random.within(1, 40);
    let mut bytes = data(random, words);
    match random.below(10) {
        0 => bytes.extend_from_slice(b" see http://www.url.example/path?q=1 and more"),
        1 => bytes = [b"MZ\x90\x00".to_vec(), bytes].concat(),
        2 => bytes.clear(),
        _ => {}
    }
    talk.target("smtp", "file.data", &bytes, true);
    bytes
}

/// Lines of text as they are.
fn part_body(random: &mut Random, talk: &mut Talk, is_file: bool) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    for _ in 0..random.within(0, 5) {
        let line = match random.below(16) {
            0 => b"see http://www.Example.com/Path?a=b&c here".to_vec(),
            1 => b"<a href=\"http://link.example/p\">x</a> https://secure.example/".to_vec(),
            2 => b"ftp://files.example/f and HTTP://UPPER.example".to_vec(),
            3 => b".dot at the beginning".to_vec(),
            4 => b"..".to_vec(),
            5 => Vec::new(),
            6 => vec![b'l'; *random.pick(&[998, 999, 1_000, 2_001])],
            7 => b"From here on: not a field".to_vec(),
            8 => b"--no boundary".to_vec(),
            9 => b"http://end".to_vec(),
            10 => [vec![b'w'; 60], b" http://1.2.3.4/a ".to_vec()].concat(),
            _ => {
                let words = random.within(1, 12);
                data(random, words).into_iter().map(no_line).collect()
            }
        };
        lines.push(line);
    }
    let all = lines.join(&b"\r\n"[..]);
    if is_file {
        talk.target("smtp", "file.data", &all, true);
    }
    if let Some(line) = lines.first() {
        talk.target("tcp", "", line, true);
    }
    for (text, url) in
        [("Example.com", "www.example.com/path?a=b&c"), ("link", "link.example/p"), ("1.2.3", "1.2.3.4/a")]
    {
        if all.windows(text.len()).any(|window| window == text.as_bytes()) {
            talk.target("smtp", "email.url", url, true);
        }
    }
    lines
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(super) fn base64(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for three in bytes.chunks(3) {
        let number =
            three.iter().fold(0_usize, |all, byte| all << 8 | usize::from(*byte)) << (8 * (3 - three.len()));
        for at in 0..4 {
            let digit = ALPHABET[number >> (18 - 6 * at) & 63];
            text.push(if at <= three.len() { digit } else { b'=' });
        }
    }
    text
}

fn base64_lines(random: &mut Random, bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut text = base64(bytes);
    match random.below(14) {
        0 => text.retain(|byte| *byte != b'='),
        1 if !text.is_empty() => {
            let at = random.below(text.len());
            text[at] = *random.pick(&[b'!', b' ', b'.', 0x80]);
        }
        2 => text.extend_from_slice(b"===="),
        3 if text.len() > 3 => text.truncate(text.len() - 1),
        _ => {}
    }
    let size = *random.pick(&[76, 76, 76, 4, 7, 61, 80, 1_100]);
    let mut lines: Vec<Vec<u8>> = text.chunks(size).map(<[u8]>::to_vec).collect();
    if !lines.is_empty() && random.percent(8) {
        let at = random.below(lines.len());
        lines.insert(at, Vec::new());
    }
    lines
}

fn printable_lines(random: &mut Random, bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut lines, mut line) = (Vec::new(), Vec::new());
    let size = *random.pick(&[70, 70, 20, 200]);
    for byte in bytes {
        match byte {
            b'\r' => {}
            b'\n' => lines.push(core::mem::take(&mut line)),
            b'=' | 0..=31 | 127.. => line.extend(format!("={byte:02X}").bytes()),
            _ => line.push(*byte),
        }
        if line.len() >= size {
            line.push(b'=');
            lines.push(core::mem::take(&mut line));
        }
    }
    match random.below(14) {
        0 => line.extend_from_slice(b"=zz"),
        1 => line.extend_from_slice(b"=4"),
        2 => line.extend_from_slice(b"=e4=3d"),
        3 => line.extend_from_slice(b"blank  "),
        4 => line.extend_from_slice(b"= "),
        _ => {}
    }
    lines.push(line);
    lines
}
