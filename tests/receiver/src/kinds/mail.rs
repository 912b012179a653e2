// SPDX-License-Identifier: Apache-2.0
//! Conversations with a mail server: a forbidden word in a place that a rule looks at (name of the client,
//! sender, recipient, subject, name or content of an attachment), said in ways that servers take: odd
//! commands, line ends, groups, chunks; and parts of messages that readers of mail find by their own rules.

use super::case::Play;
use super::made::Made;
use crate::receivers::Service;
use crate::talk::{Broken, Talk};
use bartizan_testkit::random::Random;

/// Conversations whose commands, line ends and framings are odd.
pub(super) fn forms(made: &mut Made<'_>) -> Play {
    made.talk(Service::Mail, dirty, good)
}

/// Conversations with plain commands, and a message whose parts are odd.
pub(super) fn parts(made: &mut Made<'_>) -> Play {
    made.talk(Service::Mail, dirty_parts, good)
}

/// Base64 of bytes, in lines of so many symbols.
fn base64(bytes: &[u8], width: usize, end: &str) -> String {
    const SYMBOLS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let all = group.iter().fold(0u32, |all, byte| all << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for at in 0..4 {
            let symbol = SYMBOLS[(all >> (18 - 6 * at)) as usize & 63];
            text.push(if at > group.len() { '=' } else { char::from(symbol) });
        }
    }
    let lines = text.as_bytes().chunks(width.max(1)).map(|line| String::from_utf8_lossy(line).into_owned());
    lines.collect::<Vec<_>>().join(end)
}

/// Quoted-printable of a text; some letters are escaped, and lines are broken softly.
fn quoted(text: &str, random: &mut Random, end: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match random.below(4) {
            0 => out.push_str(&format!("={byte:02X}")),
            1 if random.percent(30) => out.push_str(&format!("={end}{}", char::from(byte))),
            _ if byte == b'=' => out.push_str("=3D"),
            _ => out.push(char::from(byte)),
        }
    }
    out
}

fn letters(random: &mut Random, count: usize) -> String {
    String::from_utf8_lossy(&random.letters(count)).into_owned()
}

/// A message of an ordinary client: text, attachments in the usual encodings, lines that begin with a dot.
/// Without dots that hide others.
fn good_message(talk: &mut Talk) -> String {
    let random = &mut talk.random;
    let mut text = format!("From: a@x\r\nTo: b@y\r\nSubject: {}\r\n", talk.mark);
    if random.percent(30) {
        return text + "\r\nplain text\r\n.with a dot\r\n..and two\r\n";
    }
    let boundary = format!("=_{}", letters(random, 20));
    text.push_str(&format!(
        "MIME-Version: 1.0\r\nContent-Type: multipart/mixed;\r\n\tboundary=\"{boundary}\"\r\n\r\n"
    ));
    text.push_str("This is a message in parts.\r\n");
    for _ in 0..random.within(1, 4) {
        text.push_str(&format!("--{boundary}\r\n"));
        let count = random.within(1, 2_000);
        let content = random.bytes(count);
        match random.below(4) {
            0 => text.push_str("Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\nGr\u{fc}\u{df}e\r\n"),
            1 => {
                let name = letters(random, 8);
                text.push_str(&format!(
                    "Content-Type: application/octet-stream; name=\"{name}.bin\"\r\nContent-Transfer-Encoding: base64\r\nContent-Disposition: attachment;\r\n filename=\"{name}.bin\"\r\n\r\n{}\r\n",
                    base64(&content, 76, "\r\n")
                ));
            }
            2 => {
                let long = quoted("a line = of text ", random, "\r\n");
                text.push_str(&format!(
                    "Content-Type: text/html\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n{long}\r\n"
                ));
            }
            _ => text.push_str(
                "Content-Type: message/rfc822\r\n\r\nFrom: c@z\r\nSubject: inner\r\n\r\n.inner text\r\n",
            ),
        }
    }
    text.push_str(&format!("--{boundary}--\r\n"));
    text
}

/// The message as DATA sends it: a dot before each dot at the beginning of a line, and the end.
fn stuffed(message: &str) -> String {
    let mut text = String::new();
    for line in message.split_inclusive('\n') {
        if line.starts_with('.') {
            text.push('.');
        }
        text.push_str(line);
    }
    text + ".\r\n"
}

/// The conversation of an ordinary client.
fn good(talk: &mut Talk) -> Result<(), Broken> {
    talk.connect()?;
    talk.expect('2')?;
    let greets = if talk.random.percent(85) { "EHLO client.test" } else { "HELO client.test" };
    talk.send(format!("{greets}\r\n").as_bytes())?;
    let offers = talk.expect('2')?;
    if talk.random.percent(20) {
        let also = *talk.random.pick(&["NOOP", "RSET", "RSET"]);
        talk.send(format!("{also}\r\n").as_bytes())?;
        talk.expect('2')?;
    }
    let message = good_message(talk);
    let recipients: Vec<String> = (0..talk.random.within(1, 4)).map(|at| format!("b{at}@y.test")).collect();
    let size = if offers.contains("SIZE") { format!(" SIZE={}", message.len()) } else { String::new() };
    let mut commands = vec![format!("MAIL FROM:<a@x.test>{size}\r\n")];
    commands.extend(recipients.iter().map(|to| format!("RCPT TO:<{to}>\r\n")));
    let chunks = offers.contains("CHUNKING") && talk.random.percent(40);
    if !chunks {
        commands.push("DATA\r\n".into());
    }
    if offers.contains("PIPELINING") && talk.random.percent(60) {
        talk.send(commands.concat().as_bytes())?;
        for command in &commands {
            talk.expect(if command == "DATA\r\n" { '3' } else { '2' })?;
        }
    } else {
        for command in &commands {
            talk.send(command.as_bytes())?;
            talk.expect(if command == "DATA\r\n" { '3' } else { '2' })?;
        }
    }
    if chunks {
        send_chunks(talk, message.as_bytes(), true)?;
    } else {
        talk.send(stuffed(&message).as_bytes())?;
        talk.expect('2')?;
    }
    talk.send(b"QUIT\r\n")?;
    talk.expect('2')?;
    talk.drain();
    Ok(())
}

/// Sends a message in chunks (RFC 3030). `waits`: for each reply.
fn send_chunks(talk: &mut Talk, message: &[u8], waits: bool) -> Result<(), Broken> {
    let mut rest = message;
    let mut replies = 0;
    while !rest.is_empty() {
        let most = if talk.random.percent(50) { rest.len() } else { rest.len().min(60) };
        let length = talk.random.within(1, most);
        let (chunk, behind) = rest.split_at(length);
        rest = behind;
        let is_last = rest.is_empty() && talk.random.percent(70);
        let verb = if talk.is_good {
            "BDAT"
        } else {
            talk.form("BDAT", &["bdat", "Bdat", "BDAT ", " BDAT", "BDAT +"])
        };
        let last = if is_last { " LAST" } else { "" };
        let mut bytes = format!("{verb} {length}{last}\r\n").into_bytes();
        bytes.extend_from_slice(chunk);
        if rest.is_empty() && !is_last {
            bytes.extend_from_slice(b"BDAT 0 LAST\r\n");
            replies += 1;
        }
        replies += 1;
        talk.send(&bytes)?;
        if waits {
            while replies > 0 {
                talk.expect('2')?;
                replies -= 1;
            }
        }
    }
    for _ in 0..replies {
        talk.expect('2')?;
    }
    Ok(())
}

/// The place of the forbidden word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Client,
    Sender,
    Recipient,
    Subject,
    FileName,
    FileContent,
}

const PLACES: &[Place] =
    &[Place::Client, Place::Sender, Place::Recipient, Place::Subject, Place::FileName, Place::FileContent];

/// An address with a word, in a form that servers take.
fn address(word: &str, talk: &mut Talk) -> String {
    let forms = [
        format!("{word}@x.test"),
        format!(" <{word}@x.test>"),
        format!("<@a.test,@b.test:{word}@x.test>"),
        format!("<\"a {word}\"@x.test>"),
        format!("<<{word}@x.test>>"),
        format!("\t<{word}@x.test>"),
        format!("   <{word}@x.test>  "),
        format!("<\"a> {word}\"@x.test>"),
        format!("<a@{word}.test>"),
        format!("<(a comment) {word}@x.test>"),
        format!("Name <{word}@x.test>"),
    ];
    if talk.random.percent(50) { talk.random.pick(&forms).clone() } else { format!("<{word}@x.test>") }
}

/// A command of the envelope in a form that servers take.
fn envelope(verb: &str, value: &str, talk: &mut Talk) -> String {
    let forms = [
        verb.to_ascii_lowercase(),
        verb.replace(' ', "  "),
        verb.replace(' ', "\t"),
        format!("{verb} "),
        format!(" {verb}"),
    ];
    let verb = if talk.is_odd() { talk.random.pick(&forms).clone() } else { verb.to_owned() };
    let parameters = *talk.random.pick(&["", "", "", " SIZE=9", " BODY=8BITMIME", "  "]);
    let parameters = if verb.to_ascii_lowercase().contains("mail") { parameters } else { "" };
    let padding = if talk.is_odd() { " ".repeat(talk.random.within(400, 6_000)) } else { String::new() };
    format!("{verb}:{padding}{value}{parameters}")
}

fn line_end(talk: &mut Talk) -> &'static str {
    talk.form("\r\n", &["\n", "\n", "\r\r\n", " \r\n", "\t\r\n", "\0\r\n"])
}

/// Commands that change nothing, or that no server knows.
fn idle(talk: &mut Talk) -> String {
    let word = *talk.random.pick::<&str>(&[
        "NOOP",
        "RSET",
        "VRFY x",
        "HELP",
        "FOO",
        "",
        "EXPN x",
        "noop x",
        "AUTH PLAIN AGEAYQ==",
        "STARTTLS",
        "XCLIENT NAME=x",
        "MAIL FROM:bad bad",
        "MAIL",
        "RCPT TO:<>",
        "DATA",
        "DATA x",
        "BDAT",
        "BDAT x",
        "BDAT 3\r\nab",
        "ETRN x",
        "USER evil",
        "X\0Y",
        "EHLO again",
        "HELO again",
        "MAIL FROM:<good@x.test> A=b",
    ]);
    format!("{word}{}", line_end(talk))
}

/// A message with the word at this place; lines end in CR LF.
fn plain_message(place: Place, talk: &mut Talk) -> String {
    let forbidden = talk.word;
    let word = |here| if place == here { forbidden } else { "fine" };
    let random = &mut talk.random;
    let content = format!("some {} content", word(Place::FileContent));
    let (encoding, content) = match random.below(4) {
        0 => ("base64", base64(content.as_bytes(), random.within(4, 76), "\r\n")),
        1 => ("quoted-printable", quoted(&content, random, "\r\n")),
        _ => ("7bit", content),
    };
    let head =
        format!("Subject: {} {}\r\n", talk.mark, if place == Place::Subject { talk.word } else { "fine" });
    let name = if place == Place::FileName { talk.word } else { "fine" };
    let file = format!(
        "Content-Disposition: attachment; filename=\"{name}.txt\"\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n{content}\r\n"
    );
    if random.percent(30) {
        return head + &file;
    }
    let boundary = letters(random, 12);
    format!(
        "{head}Content-Type: multipart/mixed; boundary={boundary}\r\n\r\n--{boundary}\r\n\r\ntext\r\n--{boundary}\r\n{file}--{boundary}--\r\n"
    )
}

/// Says the bytes that have gathered. `waits` replies are read, as far as they come.
struct Gathered {
    bytes: Vec<u8>,
    replies: usize,
    /// Likelihood of a command to be sent at once, in percent.
    at_once: usize,
}

impl Gathered {
    fn say(&mut self, talk: &mut Talk, text: &str) -> Result<(), Broken> {
        self.bytes.extend_from_slice(text.as_bytes());
        self.replies += 1;
        if talk.random.percent(self.at_once) { self.flush(talk) } else { Ok(()) }
    }

    fn flush(&mut self, talk: &mut Talk) -> Result<(), Broken> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        talk.send(&core::mem::take(&mut self.bytes))?;
        for _ in 0..core::mem::take(&mut self.replies) {
            talk.reply()?;
        }
        Ok(())
    }
}

/// Sends the message after DATA, its lines and its end in odd forms.
fn send_data(talk: &mut Talk, message: &str, said: &mut Gathered) -> Result<(), Broken> {
    let verb = talk.form("DATA", &["data", "DATA ", "Data\t"]);
    let end = line_end(talk);
    said.bytes.extend_from_slice(format!("{verb}{end}").as_bytes());
    said.replies += 1;
    if !talk.is_odd() {
        said.flush(talk)?;
    }
    let newline = talk.form("\r\n", &["\n", "\r"]);
    let mut text = stuffed(message);
    text.truncate(text.len() - 3);
    let mut text = text.replace("\r\n", newline);
    if talk.is_odd() {
        // An end that only some servers take, in the middle.
        let trick = *talk.random.pick(&[
            "\n.\n",
            "\n.\r\n",
            "\r\n.\n",
            "\r.\r",
            "\r\n.\r",
            "\r\n.\r\r\n",
            "\r\n.\0\r\n",
            "\r\n. \r\n",
            "\r\n.\r\n",
        ]);
        let lines: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
        if !lines.is_empty() {
            let at = *talk.random.pick(&lines);
            text.insert_str(at + 1, &format!("x{trick}"));
        }
    }
    if talk.is_odd() {
        let first = talk.random.within(900, 6_000);
        text = format!("X-Long: {}{newline}{text}", "x".repeat(first));
    }
    said.bytes.extend_from_slice(text.as_bytes());
    let end = talk.form(".\r\n", &[".\n", ".\r", ". \r\n", "\r\n.\r\n"]);
    said.bytes.extend_from_slice(end.as_bytes());
    said.replies += 1;
    said.flush(talk)
}

/// A conversation in odd forms.
fn dirty(talk: &mut Talk) -> Result<(), Broken> {
    let place = *talk.random.pick(PLACES);
    talk.connect()?;
    if !talk.is_odd() {
        talk.reply()?;
    }
    let at_once = *talk.random.pick(&[0, 30, 70, 100, 100]);
    let mut said = Gathered { bytes: Vec::new(), replies: 0, at_once };
    let client = if place == Place::Client { talk.word } else { "c.test" };
    if talk.is_odd() {
        let text = idle(talk);
        said.say(talk, &text)?;
    }
    if place == Place::Client || !talk.is_odd() {
        let greeting = talk.form("EHLO ", &["HELO ", "ehlo ", "helo  ", "EHLO\t", " EHLO "]);
        let end = line_end(talk);
        said.say(talk, &format!("{greeting}{client}{end}"))?;
    }
    if talk.is_odd() {
        for _ in 0..talk.random.within(1, 3) {
            let text = idle(talk);
            said.say(talk, &text)?;
        }
    }
    let word = |here| if place == here { "evil" } else { "fine" };
    for (verb, here) in [("MAIL FROM", Place::Sender), ("RCPT TO", Place::Recipient)] {
        if talk.is_odd() {
            let text = idle(talk);
            said.say(talk, &text)?;
        }
        let value = address(word(here), talk);
        let end = line_end(talk);
        let text = envelope(verb, &value, talk);
        said.say(talk, &format!("{text}{end}"))?;
    }
    let message = plain_message(place, talk);
    if talk.random.percent(30) {
        said.flush(talk)?;
        let waits = talk.random.percent(60);
        send_chunks(talk, message.as_bytes(), waits)?;
    } else {
        send_data(talk, &message, &mut said)?;
    }
    let _ = talk.send(b"QUIT\r\n");
    talk.drain();
    Ok(())
}

/// The header of a part with an attachment of this name, in odd forms.
fn odd_file(name: &str, random: &mut Random) -> String {
    let encoded = base64(name.as_bytes(), 1_000, "");
    let (first, second) = name.split_at(2);
    let parameter = match random.below(16) {
        0 => format!("filename={name}.txt"),
        1 => format!("FILENAME = \"{name}.txt\""),
        2 => format!("filename*=utf-8''{}.txt", name.replace('v', "%76")),
        3 => format!("filename*0={first}; filename*1={second}.txt"),
        4 => format!(
            "filename*1*=%{:02x}{}; filename*0*=us-ascii'en'{first}",
            second.as_bytes()[0],
            &second[1..]
        ),
        5 => format!("filename=\"=?utf-8?B?{encoded}?=\""),
        6 => format!("filename==?utf-8?b?{encoded}?="),
        7 => format!("filename=\"=?iso-8859-1?Q?{}?=\"", name.replace('v', "=76")),
        8 => format!("filename=\"{}\\{}\"", first, second),
        9 => format!("filename=good.txt; filename={name}.txt"),
        10 => format!("filename=\"{name}.txt"),
        11 => format!("(a comment) ; filename={name}.txt"),
        12 => format!("\r\n filename=\"{name}.txt\""),
        13 => format!("filename=\"{first}\r\n {second}\""),
        14 => format!("x=\"a;b\"; filename={name}"),
        _ => format!("filename=\"{name}.txt\""),
    };
    let field = *random.pick(&["Content-Disposition: ", "content-disposition:", "CONTENT-DISPOSITION:\t"]);
    let kind = *random.pick(&["attachment; ", "attachment;", "inline; ", "ATTACHMENT ; "]);
    match random.below(8) {
        0 => format!("Content-Type: application/x-y; name=\"{name}.txt\"\r\n"),
        1 => format!(
            "Content-Type: application/x-y;\r\n\tname={name}.txt\r\nContent-Disposition: attachment\r\n"
        ),
        2 => format!("Content-Disposition: inline\r\n{field}{kind}{parameter}\r\n"),
        3 => format!("Content-Type: text/plain; name=\"good.txt\"\r\n{field}{kind}{parameter}\r\n"),
        _ => format!("{field}{kind}{parameter}\r\n"),
    }
}

/// The body of a part in an odd encoding, with its header field.
fn odd_body(content: &str, random: &mut Random) -> String {
    let field = *random.pick(&[
        "Content-Transfer-Encoding: ",
        "content-transfer-encoding:",
        "Content-Transfer-Encoding:\t",
    ]);
    let encoded = base64(content.as_bytes(), random.within(1, 76), "\r\n");
    match random.below(12) {
        0 => format!("{field}base64\r\n\r\n{encoded}\r\n"),
        1 => format!("{field}BASE64 \r\n\r\n{}\r\n", encoded.replace('\n', "\n ")),
        2 => format!("{field}base64\r\n\r\n{}\r\n", encoded.replace("\r\n", "*\r\n!")),
        3 => {
            let at = random.below(encoded.len());
            let (before, behind) = encoded.split_at(at);
            format!("{field}base64\r\n\r\n{before}={behind}\r\n")
        }
        4 => format!("{field}quoted-printable\r\n\r\n{}\r\n", quoted(content, random, "\r\n")),
        5 => format!("{field}Quoted-Printable\r\n\r\n{}\r\n", quoted(content, random, "  \r\n")),
        6 => format!("{field}\"base64\"\r\n\r\n{encoded}\r\n"),
        7 => format!("{field}base64 (a comment)\r\n\r\n{encoded}\r\n"),
        8 => format!("{field}7bit\r\n{field}base64\r\n\r\n{encoded}\r\n"),
        9 => format!("{field}x-uuencode\r\n\r\nbegin 644 a\r\n{}`\r\nend\r\n", uuencoded(content.as_bytes())),
        10 => format!("{field}x-token\r\n\r\n{content}\r\n"),
        _ => format!("\r\n{content}\r\n"),
    }
}

fn uuencoded(bytes: &[u8]) -> String {
    let symbol = |bits: u32| char::from(32 + if bits & 63 == 0 { 64 } else { bits & 63 } as u8);
    let mut text = String::new();
    for line in bytes.chunks(45) {
        text.push(symbol(line.len() as u32));
        for group in line.chunks(3) {
            let all =
                group.iter().fold(0u32, |all, byte| all << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
            text.extend([18, 12, 6, 0].map(|shift| symbol(all >> shift)));
        }
        text.push_str("\r\n");
    }
    text
}

/// A message whose parts readers find by their own rules.
fn odd_message(talk: &mut Talk) -> String {
    let is_name = talk.random.percent(50);
    let random = &mut talk.random;
    let (name, content) = if is_name { (talk.word, "fine content") } else { ("fine", "some evil content") };
    let file = odd_file(name, random) + &odd_body(content, random);
    let mut head = format!("Subject: {}\r\n", talk.mark);
    if random.percent(25) {
        let odd = *random.pick(&[
            "no colon\r\n",
            "X : y\r\n",
            ": x\r\n",
            "X: a\rContent-Type: text/plain\r\n",
            " begins folded\r\n",
            "X: \0\r\n",
            "Content-Type: text/plain\r\n",
            "From x y\r\n",
            "X:\r\n \r\n",
            "MIME-Version: 0.9\r\n",
        ]);
        head.push_str(odd);
    }
    if random.percent(15) {
        return head + &file;
    }
    let boundary = letters(random, 10);
    let parameter = match random.below(14) {
        0 => format!("boundary={boundary}"),
        1 => format!("Boundary = \"{boundary}\""),
        2 => format!("boundary=\"{boundary} \""),
        3 => format!("boundary*=us-ascii''{boundary}"),
        4 => format!("boundary*0={}; boundary*1={}", &boundary[..4], &boundary[4..]),
        5 => format!("boundary=other; boundary={boundary}"),
        6 => format!("boundary={boundary}; boundary=other"),
        7 => format!("boundary=\"{}\\{}\"", &boundary[..3], &boundary[3..]),
        8 => format!("boundary={boundary} (a comment)"),
        9 => format!("(a comment) boundary={boundary}"),
        _ => format!("boundary=\"{boundary}\""),
    };
    let kind = *random.pick(&[
        "multipart/mixed",
        "multipart/mixed",
        "MULTIPART/Related",
        "multipart/x",
        "multipart",
    ]);
    head.push_str(&format!("Content-Type: {kind}; {parameter}\r\n"));
    if random.percent(10) {
        head.push_str("Content-Transfer-Encoding: base64\r\n");
    }
    if random.percent(10) {
        head.push_str("Content-Type: text/plain\r\n");
    }
    head.push_str("\r\n");
    let before = match random.below(8) {
        0 => format!("--{boundary}\r\nContent-Type: text/plain\r\n\r\ntext\r\n--{boundary}x\r\n\r\n"),
        1 => format!("--{boundary}\r\n\r\ntext\r\n--{boundary}--\r\n"),
        2 => format!("--{boundary}\r\nContent-Type: multipart/mixed; boundary={}\r\n\r\n", &boundary[..5]),
        3 => format!("--{boundary}\r\nContent-Type: message/rfc822\r\n\r\n"),
        4 => format!(
            "--{boundary}\r\nContent-Type: message/rfc822\r\nContent-Transfer-Encoding: base64\r\n\r\n"
        ),
        5 => "text\r\n".to_owned(),
        _ => String::new(),
    };
    let line = match random.below(10) {
        0 => format!("--{boundary} \t\r\n"),
        1 => format!("--{boundary}\n"),
        2 => format!("--{boundary} x\r\n"),
        3 => format!("--{boundary}\r"),
        4 => format!(" --{boundary}\r\n"),
        _ => format!("--{boundary}\r\n"),
    };
    let end = *random.pick(&["--\r\n", "--\r\n", "--", "", "\r\n", "-- x\r\n"]);
    format!("{head}{before}{line}{file}--{boundary}{end}\r\n")
}

/// A conversation with plain commands and an odd message.
fn dirty_parts(talk: &mut Talk) -> Result<(), Broken> {
    talk.connect()?;
    talk.reply()?;
    let message = odd_message(talk);
    let chunks = talk.random.percent(25);
    for command in ["EHLO c.test", "MAIL FROM:<a@x.test>", "RCPT TO:<b@y.test>"] {
        talk.send(format!("{command}\r\n").as_bytes())?;
        talk.reply()?;
    }
    if chunks {
        send_chunks(talk, message.as_bytes(), true)?;
    } else {
        talk.send(b"DATA\r\n")?;
        talk.reply()?;
        talk.send(stuffed(&message).as_bytes())?;
        talk.reply()?;
    }
    talk.send(b"QUIT\r\n")?;
    talk.drain();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings() {
        assert_eq!(base64(b"evil", 76, ""), "ZXZpbA==");
        assert_eq!(base64(b"evi", 2, " "), "ZX Zp");
        assert_eq!(uuencoded(b"Cat"), "#0V%T\r\n");
        let text = quoted("a=b", &mut Random::new(1), "\r\n");
        assert!(!text.contains("a=b"), "{text}");
    }

    #[test]
    fn a_message_is_stuffed() {
        assert_eq!(stuffed("a\r\n.b\r\n"), "a\r\n..b\r\n.\r\n");
    }
}
