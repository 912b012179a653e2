// SPDX-License-Identifier: Apache-2.0
//! Conversations with an FTP server: a forbidden word as an argument, in a file that is sent, or in one that
//! is fetched, with odd commands and line ends, and data connections that are agreed on in unusual ways.

use super::case::Play;
use super::made::Made;
use crate::receivers::Service;
use crate::talk::{Failure, Talk};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::time::Duration;

/// Conversations in odd forms.
pub(super) fn forms(made: &mut Made<'_>) -> Play {
    made.talk(Service::Ftp, dirty, good)
}

/// The way to the next data connection.
enum DataPath {
    /// The client connects to this port, or has done so.
    Passive(u16, Option<TcpStream>),
    /// The server connects to this port.
    Active(TcpListener),
}

/// The transfer of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transfer {
    Fetch,
    Send,
    List,
}

fn line_end(talk: &mut Talk) -> &'static str {
    talk.form("\r\n", &["\n", "\r\r\n", " \r\n", "\0\r\n", "\r\n\r\n", "\0\n"])
}

/// Says a command in a form that servers take, without waiting for the reply.
fn say(talk: &mut Talk, verb: &str, argument: &str) -> Result<(), Failure> {
    let forms = [
        verb.to_ascii_lowercase(),
        format!(" {verb}"),
        format!("{verb} "),
        format!("\u{ff}{verb}"),
        format!("{verb}\t"),
    ];
    let verb = if talk.is_odd() { talk.random.pick(&forms).clone() } else { verb.to_owned() };
    let blank = if argument.is_empty() { "" } else { talk.form(" ", &["  ", "\t", " \t "]) };
    let padding = if talk.is_odd() && !argument.is_empty() {
        " ".repeat(talk.random.within(300, 5_000))
    } else {
        String::new()
    };
    let end = line_end(talk);
    talk.send(format!("{verb}{blank}{padding}{argument}{end}").as_bytes())
}

/// Says a command and waits for the reply.
fn ask(talk: &mut Talk, verb: &str, argument: &str) -> Result<String, Failure> {
    say(talk, verb, argument)?;
    talk.reply()
}

/// The port in the reply to PASV or EPSV.
fn port_of(reply: &str) -> Option<u16> {
    let inner = reply.split('(').nth(1)?.split(')').next()?;
    if inner.starts_with("|||") {
        return inner.trim_matches('|').parse().ok();
    }
    let numbers: Vec<u16> = inner.split(',').filter_map(|number| number.trim().parse().ok()).collect();
    Some(numbers.get(4)? * 256 + numbers.get(5)?)
}

/// Agrees on a data connection.
fn agree(talk: &mut Talk) -> Result<DataPath, Failure> {
    let v4 = talk.source.is_ipv4();
    if talk.random.percent(60) {
        let verb = if v4 && talk.random.percent(60) { "PASV" } else { "EPSV" };
        let argument = if verb == "EPSV" { talk.form("", &["1", "2", "ALL"]) } else { "" };
        let mut reply = ask(talk, verb, argument)?;
        if argument == "ALL" {
            reply = ask(talk, "EPSV", "")?;
        }
        let port = port_of(&reply).ok_or_else(|| format!("no port: {reply}"))?;
        return Ok(DataPath::Passive(port, None));
    }
    let listener = talk.listen()?;
    let port = listener.local_addr().map_err(|error| error.to_string())?.port();
    let (verb, argument) = match talk.source {
        IpAddr::V4(address) if talk.random.percent(60) => {
            let [a, b, c, d] = address.octets();
            let text = format!("{a},{b},{c},{d},{},{}", port >> 8, port & 255);
            let odd = [
                format!("{a}, {b}, {c}, {d}, {}, {}", port >> 8, port & 255),
                format!("0{a},{b},{c},{d},0{},{}", port >> 8, port & 255),
                format!("{text} x"),
                format!("{text},1"),
                format!("{a},{b},{c},{d},{},{}", port >> 8, (port & 255) + 256),
            ];
            ("PORT", if talk.is_odd() { talk.random.pick(&odd).clone() } else { text })
        }
        address => {
            let family = if address.is_ipv4() { 1 } else { 2 };
            let mark = talk.form("|", &["!", ",", "/", "#"]);
            let text = format!("{mark}{family}{mark}{address}{mark}{port}{mark}");
            let odd = [
                format!("{text} x"),
                text.trim_end_matches(mark).to_owned(),
                format!("{mark}{family}{mark}{address}{mark}0{port}{mark}"),
            ];
            ("EPRT", if talk.is_odd() { talk.random.pick(&odd).clone() } else { text })
        }
    };
    let reply = ask(talk, verb, &argument)?;
    if !reply.starts_with('2') {
        return Err(format!("refused: {reply}"));
    }
    Ok(DataPath::Active(listener))
}

/// Opens the data connection, or accepts the server's.
fn open(talk: &mut Talk, way: &mut DataPath) -> Result<TcpStream, Failure> {
    match way {
        DataPath::Passive(_, connected) if connected.is_some() => connected.take().ok_or_else(String::new),
        DataPath::Passive(port, _) => {
            let port = *port;
            talk.open(port)
        }
        DataPath::Active(listener) => talk.accept(listener),
    }
}

/// Moves the bytes of a transfer over its connection.
fn carry(talk: &mut Talk, socket: &mut TcpStream, what: Transfer, content: &str) -> Result<(), Failure> {
    if what == Transfer::Send {
        let cut = talk.random.within(0, content.len());
        for piece in [&content[..cut], &content[cut..]] {
            socket.write_all(piece.as_bytes()).map_err(|error| format!("data: {error}"))?;
            std::thread::sleep(Duration::from_millis(*talk.random.pick(&[0, 2])));
        }
        let _ = socket.shutdown(Shutdown::Write);
        return Ok(());
    }
    let mut read = Vec::new();
    let done = socket.read_to_end(&mut read);
    talk.data.extend_from_slice(&read);
    done.map(drop).map_err(|error| format!("data: {error}"))
}

/// Logs in.
fn log_in(talk: &mut Talk) -> Result<(), Failure> {
    talk.connect()?;
    if !talk.is_odd() {
        talk.expect('2')?;
    }
    if talk.is_odd() {
        for _ in 0..talk.random.within(1, 3) {
            let verb = *talk
                .random
                .pick(&["NOOP", "FEAT", "FOO", "EHLO x", "", "AUTH TLS", "HELP", "SYST", "QUUX \0"]);
            ask(talk, verb, "")?;
        }
    }
    let reply = ask(talk, "USER", "anonymous")?;
    if reply.starts_with('3') || reply.starts_with("22") {
        ask(talk, "PASS", "a@b")?;
    }
    Ok(())
}

/// A conversation in odd forms.
fn dirty(talk: &mut Talk) -> Result<(), Failure> {
    log_in(talk)?;
    if talk.random.percent(50) {
        return dirty_transfer(talk);
    }
    let mark = talk.mark.clone();
    match talk.random.below(4) {
        0 => ask(talk, "MKD", &format!("/pub/evil-{mark}"))?,
        1 => ask(talk, "CWD", "/pub").and_then(|_| ask(talk, "MKD", &format!("{mark}-evil")))?,
        2 => {
            ask(talk, "MKD", &format!("/pub/{mark}"))?;
            ask(talk, "RNFR", &format!("/pub/{mark}"))?;
            ask(talk, "RNTO", &format!("/pub/{mark}-evil"))?
        }
        _ => {
            let group = format!("NOOP\r\nPWD\r\nMKD /pub/{mark}-evil\r\n");
            talk.send(group.as_bytes())?;
            talk.reply()?;
            talk.reply()?;
            talk.reply()?
        }
    };
    talk.send(b"QUIT\r\n")?;
    talk.drain();
    Ok(())
}

/// A transfer with a forbidden name or content.
fn dirty_transfer(talk: &mut Talk) -> Result<(), Failure> {
    if talk.is_odd() {
        let kind = *talk.random.pick(&["A", "I", "L 8"]);
        ask(talk, "TYPE", kind)?;
    } else {
        ask(talk, "TYPE", "I")?;
    }
    if talk.is_odd() {
        // The first announcement is not used.
        let _unused = agree(talk)?;
    }
    let what = *talk.random.pick(&[Transfer::Fetch, Transfer::Send, Transfer::Send]);
    let by_name = talk.random.percent(30);
    let mark = talk.mark.clone();
    let (verb, name, content) = match (what, by_name) {
        (Transfer::Send, true) => ("STOR", format!("/pub/{mark}-evil"), "fine content".to_owned()),
        (Transfer::Send, false) => {
            let verb = *talk.random.pick(&["STOR", "STOR", "APPE"]);
            let before = talk.random.within(0, 3_000);
            let letters = String::from_utf8_lossy(&talk.random.letters(before)).into_owned();
            (verb, format!("/pub/{mark}"), format!("{letters} some evil content"))
        }
        (_, true) => ("RETR", "/pub/evil.txt".to_owned(), String::new()),
        (_, false) => ("RETR", "/pub/fine.txt".to_owned(), String::new()),
    };
    let mut way = agree(talk)?;
    let mut early = None;
    if matches!(way, DataPath::Passive(..)) && talk.random.percent(60) {
        let mut socket = open(talk, &mut way)?;
        if what == Transfer::Send && talk.is_odd() {
            // The bytes wait at the server until it knows their file.
            carry(talk, &mut socket, what, &content)?;
            std::thread::sleep(Duration::from_millis(5));
            ask(talk, verb, &name)?;
            return end(talk);
        }
        early = Some(socket);
    }
    if talk.is_odd() {
        let between = *talk.random.pick(&["NOOP", "PWD", "REST 0", "FOO", "ALLO 5", "STAT"]);
        ask(talk, between, "")?;
    }
    say(talk, verb, &name)?;
    let mut socket = match early {
        Some(socket) => socket,
        None => open(talk, &mut way)?,
    };
    carry(talk, &mut socket, what, &content)?;
    drop(socket);
    talk.reply()?;
    end(talk)
}

fn end(talk: &mut Talk) -> Result<(), Failure> {
    let _ = talk.reply();
    let _ = talk.send(b"QUIT\r\n");
    talk.drain();
    Ok(())
}

/// The conversation of an ordinary client: every transfer in every way, and commands.
fn good(talk: &mut Talk) -> Result<(), Failure> {
    talk.oddness = 0;
    log_in(talk)?;
    let mark = talk.mark.clone();
    for (verb, argument) in [("SYST", ""), ("FEAT", ""), ("PWD", ""), ("TYPE", "I")] {
        say(talk, verb, argument)?;
        talk.expect('2')?;
    }
    // Repeats of a conversation run at the same time.
    let source = talk.source.to_string().replace(':', ".");
    let name = format!("/pub/{mark}-{source}.bin");
    let length = talk.random.within(0, 60_000);
    let content = String::from_utf8_lossy(&talk.random.letters(length)).into_owned();
    for (what, verb, argument) in [
        (Transfer::Send, "STOR", name.as_str()),
        (Transfer::Fetch, "RETR", name.as_str()),
        (Transfer::List, *talk.random.pick(&["LIST", "NLST", "MLSD"]), "/pub/good.txt"),
    ] {
        let argument = if verb == "MLSD" { "/pub" } else { argument };
        let verb = if verb == "MLSD" { "LIST" } else { verb };
        let mut way = agree(talk)?;
        let is_early = matches!(way, DataPath::Passive(..)) && talk.random.percent(50);
        let early = if is_early { Some(open(talk, &mut way)?) } else { None };
        say(talk, verb, argument)?;
        let mut socket = match early {
            Some(socket) => socket,
            None => open(talk, &mut way)?,
        };
        talk.expect('1')?;
        talk.data.clear();
        carry(talk, &mut socket, what, &content)?;
        drop(socket);
        talk.expect('2')?;
        if what == Transfer::Fetch && talk.data != content.as_bytes() {
            return Err(format!("{} of {} bytes came back", talk.data.len(), content.len()));
        }
    }
    talk.data.clear();
    say(talk, "DELE", &name)?;
    talk.expect('2')?;
    say(talk, "QUIT", "")?;
    talk.expect('2')?;
    talk.drain();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::port_of;

    #[test]
    fn ports_of_replies() {
        assert_eq!(port_of("227 Entering Passive Mode (10,66,0,2,156,65)."), Some(40_001));
        assert_eq!(port_of("229 Entering Extended Passive Mode (|||40002|)"), Some(40_002));
        assert_eq!(port_of("500 no"), None);
    }
}
