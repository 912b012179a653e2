// SPDX-License-Identifier: Apache-2.0
//! Conversations of SMTP (RFC 5321) with PIPELINING, CHUNKING, AUTH and STARTTLS.

use super::conversation::Talk;
use super::mail;
use crate::scene::Scene;
use crate::talk::Way;
use crate::text::{data, name};
use crate::tls;
use bartizan_testkit::random::Random;

/// Conditions of rules on SMTP.
pub(super) const CONDITIONS: &[&str] = &[
    "app-layer-event:smtp.invalid_reply",
    "app-layer-event:smtp.unable_to_match_reply_with_request",
    "app-layer-event:smtp.max_command_line_len_exceeded",
    "app-layer-event:smtp.max_reply_line_len_exceeded",
    "app-layer-event:smtp.invalid_pipelined_sequence",
    "app-layer-event:smtp.bdat_chunk_len_exceeded",
    "app-layer-event:smtp.no_server_welcome_message",
    "app-layer-event:smtp.tls_rejected",
    "app-layer-event:smtp.data_command_rejected",
    "app-layer-event:smtp.mime_parse_failed",
    "app-layer-event:smtp.mime_malformed_msg",
    "app-layer-event:smtp.mime_invalid_base64",
    "app-layer-event:smtp.mime_invalid_qp",
    "app-layer-event:smtp.mime_long_line",
    "app-layer-event:smtp.mime_long_enc_line",
    "app-layer-event:smtp.mime_long_header_name",
    "app-layer-event:smtp.mime_long_header_value",
    "app-layer-event:smtp.mime_long_boundary",
    "app-layer-event:smtp.mime_long_filename",
    "app-layer-event:smtp.duplicate_fields",
    "app-layer-event:smtp.unparsable_content",
    "app-layer-event:smtp.truncated_line",
    "filesize:>20",
    "filesize:<40",
    "fileext:\"exe\"",
    "filename:\"abc\"",
    "file.name; content:\"a\"",
    "file.name; content:\".txt\"; endswith",
    "file.data; content:\"MZ\"; startswith",
    "email.url; content:\"example\"",
    "email.received; content:\"from\"",
    "email.subject; content:!\"abc\"",
    "email.x_mailer; absent",
    "email.cc; bsize:>5",
    "smtp.helo; content:\".\"",
    "smtp.rcpt_to; content:\"<\"; startswith",
    "smtp.mail_from; content:\"<>\"",
    "smtp.mail_from; bsize:>10",
    "frame:smtp.command_line; content:\"MAIL\"; startswith; nocase",
    "frame:smtp.response_line; content:\"250\"; startswith",
    "frame:smtp.data; content:\"a\"",
    "frame:smtp.command_line; bsize:<7",
];

/// Codes and texts of replies that fit anything.
const REFUSALS: &[&str] =
    &["550 no", "451 later", "500 what", "503-bad\r\n503 order", "421 closing", "252 perhaps"];

/// A conversation.
pub(super) fn scene(random: &mut Random) -> Scene {
    let mut talk = Talk::default();
    let end = *random.pick(&["\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\n"]);
    let mut way = Way { port: *random.pick(&[25, 25, 25, 587, 2525]), ..Way::default() };
    greeting(random, &mut talk);
    hello(random, &mut talk, end);
    let mut turns_tls = false;
    if random.percent(12) {
        talk.client(format!("STARTTLS{end}"));
        turns_tls = random.percent(75);
        talk.server(if turns_tls { "220 2.0.0 go ahead\r\n" } else { "454 4.7.0 not now\r\n" });
    }
    if turns_tls {
        let scene = tls::scene(random);
        if random.percent(85) {
            talk.append(scene);
        } else {
            hello(random, &mut talk, end);
        }
    } else {
        if random.percent(12) {
            authenticate(random, &mut talk, end);
        }
        for _ in 0..*random.pick(&[0, 1, 1, 1, 1, 2]) {
            beside(random, &mut talk, end);
            envelope(random, &mut talk, end);
        }
        beside(random, &mut talk, end);
        if random.percent(80) {
            talk.client(format!("QUIT{end}"));
            if random.percent(85) {
                talk.server("221 bye\r\n");
            }
        }
    }
    if random.percent(22) {
        talk.disturb(random);
    }
    frames(&mut talk);
    if random.percent(15) {
        way.sizes = (0..6).map(|_| random.within(1, 90)).collect();
    }
    Scene { messages: talk.messages, way, targets: talk.targets, beside: Vec::new() }
}

/// Lines of the conversation as targets: payload, and frames.
fn frames(talk: &mut Talk) {
    let some: Vec<(Vec<u8>, bool)> = talk
        .messages
        .iter()
        .filter_map(|message| {
            let line = message.data.split_inclusive(|byte| *byte == b'\n').next()?;
            Some((line.to_vec(), message.to_server))
        })
        .take(8)
        .collect();
    for (at, (line, to_server)) in some.iter().enumerate() {
        let frame = if *to_server { "frame:smtp.command_line" } else { "frame:smtp.response_line" };
        let (proto, buffer) = [("smtp", frame), ("tcp", ""), ("smtp", "")][at % 3];
        talk.target(proto, buffer, line, *to_server);
    }
    if let Some(message) = talk.messages.iter().find(|message| message.data.len() > 200) {
        let (load, to_server) = (message.data.clone(), message.to_server);
        talk.target("smtp", "frame:smtp.data", load, to_server);
    }
    if talk.targets.is_empty() {
        talk.target("smtp", "smtp.helo", b"a", true);
    }
}

fn greeting(random: &mut Random, talk: &mut Talk) {
    let host = name(random, 1);
    match random.below(20) {
        0 => {}
        1 => talk.server("554 no service\r\n"),
        2 => talk.server(format!("220 {host} ESMTP\n")),
        3 => talk.server(format!("220-{host} ESMTP\r\n220-second line\r\n220 third\r\n")),
        4 => {
            let length = random.within(2, 12);
            talk.server([random.letters(length), b"\r\n".to_vec()].concat());
        }
        5 => talk.server("220\r\n"),
        _ => talk.server(format!("220 {host}.example ESMTP ready\r\n")),
    }
}

fn hello(random: &mut Random, talk: &mut Talk, end: &str) {
    let word = *random.pick(&["EHLO", "EHLO", "EHLO", "HELO", "ehlo", "HeLo"]);
    let client = match random.below(10) {
        0 => String::new(),
        1 => "[10.0.0.1]".into(),
        2 => format!(" {}", name(random, 1)),
        3 => format!("{} extra", name(random, 1)),
        _ => format!("{}.example", name(random, 1)),
    };
    let blank = if client.is_empty() { "" } else { " " };
    talk.client(format!("{word}{blank}{client}{end}"));
    talk.target("smtp", "smtp.helo", client.trim(), true);
    if word.eq_ignore_ascii_case("HELO") {
        talk.server("250 hello\r\n");
        return;
    }
    let mut lines = vec!["hello".to_string()];
    for (word, percent) in [
        ("PIPELINING", 60),
        ("SIZE 10240000", 40),
        ("STARTTLS", 30),
        ("CHUNKING", 30),
        ("8BITMIME", 30),
        ("SMTPUTF8", 20),
    ] {
        if random.percent(percent) {
            lines.push(if random.percent(8) { word.to_lowercase() } else { word.into() });
        }
    }
    let last = lines.len() - 1;
    let text: String = lines
        .iter()
        .enumerate()
        .map(|(at, line)| format!("250{}{line}\r\n", if at == last { ' ' } else { '-' }))
        .collect();
    talk.server(text);
}

fn authenticate(random: &mut Random, talk: &mut Talk, end: &str) {
    let secret = String::from_utf8(mail::base64(&data(random, 3))).unwrap_or_default();
    match random.below(3) {
        0 => talk.client(format!("AUTH PLAIN {secret}{end}")),
        1 => {
            talk.client(format!("AUTH LOGIN{end}"));
            talk.server("334 VXNlcm5hbWU6\r\n");
            talk.client(format!("{secret}{end}"));
            talk.server("334 UGFzc3dvcmQ6\r\n");
            talk.client(format!("{secret}{end}"));
        }
        _ => {
            talk.client(format!("AUTH PLAIN{end}"));
            talk.server("334 \r\n");
            talk.client(format!("{secret}{end}"));
        }
    }
    talk.server(if random.percent(80) { "235 2.7.0 welcome\r\n" } else { "535 5.7.8 no\r\n" });
}

/// Commands that need no envelope, now and then.
fn beside(random: &mut Random, talk: &mut Talk, end: &str) {
    if !random.percent(30) {
        return;
    }
    let word = name(random, 1);
    let (command, reply) = match random.below(13) {
        0 => (format!("NOOP{end}"), "250 ok\r\n"),
        1 => (format!("RSET{end}"), "250 reset\r\n"),
        2 => (format!("VRFY {word}{end}"), "252 perhaps\r\n"),
        3 => (format!("HELP{end}"), "214-Commands:\r\n214 NOOP\r\n"),
        4 => (format!("XCLIENT NAME={word} ADDR=10.1.1.1{end}"), "220 again\r\n"),
        5 => (format!("{word}{end}"), "500 unknown\r\n"),
        6 => (format!("EHLO {word}{end}"), "250 again\r\n"),
        7 => (format!("NOOP {}{end}", "x".repeat(random.within(505, 520))), "250 long\r\n"),
        8 if random.percent(20) => {
            (format!("NOOP {}{end}", "y".repeat(random.within(4_085, 4_100))), "500 too long\r\n")
        }
        9 => (end.to_string(), "500 empty\r\n"),
        10 => (format!("ETRN {word}{end}"), "999 code\r\n"),
        11 => (format!("DATA{end}"), "503 no mail\r\n"),
        _ => (format!("EXPN {word}{end}NOOP{end}"), "250 one\r\n250 two\r\n"),
    };
    talk.client(command);
    if random.percent(95) {
        talk.server(reply);
    }
}

fn envelope(random: &mut Random, talk: &mut Talk, end: &str) {
    let from = match random.below(8) {
        0 => "<>".to_string(),
        1 => format!(" <{}@a.example> SIZE=100", name(random, 1)),
        2 => format!("{}@b.example", name(random, 1)),
        _ => format!("<{}@c.example>", name(random, 2)),
    };
    let mail = *random.pick(&["MAIL FROM:", "MAIL FROM:", "mail from:", "MAIL FROM: ", "Mail From:"]);
    let mut steps = vec![(format!("{mail}{from}"), "250 sender ok\r\n".to_string())];
    talk.target("smtp", "smtp.mail_from", from.trim(), true);
    for _ in 0..*random.pick(&[1, 1, 1, 2, 3, 0]) {
        let to = format!("<{}@d.example>", name(random, 2));
        let word = *random.pick(&["RCPT TO:", "RCPT TO:", "rcpt to:", "RCPT TO: "]);
        talk.target("smtp", "smtp.rcpt_to", &to, true);
        steps.push((format!("{word}{to}"), "250 recipient ok\r\n".into()));
    }
    if random.percent(4) {
        steps.push((format!("MAIL FROM:<again@{}>", name(random, 1)), "503 twice\r\n".into()));
    }
    let chunked = random.percent(12);
    let accepted = random.percent(90);
    if !chunked {
        let word = *random.pick(&["DATA", "DATA", "DATA", "data", "DATA "]);
        steps.push((word.into(), if accepted { "354 go on\r\n".into() } else { "554 no\r\n".into() }));
    }
    for step in &mut steps {
        if random.percent(4) {
            step.1 = format!("{}\r\n", random.pick(REFUSALS));
        }
    }
    let pipelined = random.percent(25);
    if pipelined {
        let commands: String = steps.iter().map(|(command, _)| format!("{command}{end}")).collect();
        talk.client(commands);
        let replies: String = steps.iter().map(|(_, reply)| reply.as_str()).collect();
        talk.server(replies);
    } else {
        for (command, reply) in steps {
            talk.client(format!("{command}{end}"));
            talk.server(reply);
        }
    }
    if chunked {
        return chunks(random, talk, end);
    }
    if !accepted && random.percent(80) {
        return;
    }
    letter(random, talk, end);
}

/// The message with the dot at its end, and its reply.
fn letter(random: &mut Random, talk: &mut Talk, end: &str) {
    let lines = mail::message(random, talk);
    let mut text = Vec::new();
    for line in lines {
        if line.starts_with(b".") && random.percent(90) {
            text.push(b'.');
        }
        text.extend(line);
        text.extend(end.bytes());
    }
    if !random.percent(4) {
        text.extend(format!(".{end}").bytes());
    }
    if random.percent(10) {
        // The next command follows at once.
        text.extend(format!("{}{end}", random.pick(&["NOOP", "RSET", "QUIT"])).bytes());
    }
    let pieces = *random.pick(&[1, 1, 1, 2, 3]);
    let size = text.len().div_ceil(pieces).max(1);
    for piece in text.chunks(size) {
        talk.client(piece);
    }
    match random.below(12) {
        0 => talk.server("550 refused\r\n"),
        1 => talk.server("250-queued\r\n250 as 1\r\n"),
        2 => {}
        _ => talk.server("250 queued\r\n"),
    }
}

/// A message in chunks.
fn chunks(random: &mut Random, talk: &mut Talk, end: &str) {
    let lines = mail::message(random, talk);
    let text = lines.join(&b"\r\n"[..]);
    let count = random.within(1, 2);
    let size = text.len().div_ceil(count).max(1);
    let pieces: Vec<&[u8]> = text.chunks(size).collect();
    for (at, piece) in pieces.iter().enumerate() {
        let last = if at + 1 == pieces.len() { *random.pick(&[" LAST", " LAST", " last", ""]) } else { "" };
        let length = match random.below(14) {
            0 => piece.len() + 3,
            1 => piece.len().saturating_sub(3),
            _ => piece.len(),
        };
        let number = match random.below(30) {
            0 => "x".to_string(),
            1 => format!("{length} LAST more"),
            _ => length.to_string(),
        };
        let command = format!("BDAT {number}{last}{end}");
        if random.percent(50) {
            talk.client([command.as_bytes(), piece].concat());
        } else {
            talk.client(command);
            talk.client(piece);
        }
        talk.server("250 chunk taken\r\n");
    }
}
