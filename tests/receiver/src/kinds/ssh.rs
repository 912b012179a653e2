// SPDX-License-Identifier: Apache-2.0
//! Conversations with an SSH server: an identification line that names forbidden software, in odd forms.

use super::case::Play;
use super::made::Made;
use crate::receivers::Service;
use crate::talk::{Failure, Talk};

/// Conversations in odd forms.
pub(super) fn forms(made: &mut Made<'_>) -> Play {
    made.talk(Service::Ssh, dirty, good)
}

/// SSH_MSG_KEXINIT (RFC 4253 section 7.1) in a packet, of an ordinary client.
fn key_exchange(talk: &mut Talk) -> Vec<u8> {
    let lists = [
        "curve25519-sha256,ecdh-sha2-nistp256",
        "ssh-ed25519",
        "aes128-ctr",
        "aes128-ctr",
        "hmac-sha2-256",
        "hmac-sha2-256",
        "none",
        "none",
        "",
        "",
    ];
    let mut message = vec![20];
    message.extend(talk.random.bytes(16));
    for list in lists {
        message.extend((list.len() as u32).to_be_bytes());
        message.extend(list.bytes());
    }
    message.extend([0; 5]);
    let padding = 8 - (message.len() + 5) % 8;
    let padding = if padding < 4 { padding + 8 } else { padding };
    let length = (message.len() + padding + 1) as u32;
    [&length.to_be_bytes()[..], &[padding as u8], &message, &vec![0; padding]].concat()
}

/// The conversation of an ordinary client up to the first answer to its key exchange.
fn good(talk: &mut Talk) -> Result<(), Failure> {
    talk.connect()?;
    let line = talk.line()?;
    if !line.starts_with("SSH-2.0-") {
        return Err(format!("no identification: {line}"));
    }
    let mark_line = format!("SSH-2.0-{}\r\n", talk.mark);
    let packet = key_exchange(talk);
    talk.send(mark_line.as_bytes())?;
    talk.send(&packet)?;
    let head = talk.bytes(6)?;
    if head[5] != 20 {
        return Err(format!("message {} is no key exchange", head[5]));
    }
    talk.drain();
    Ok(())
}

/// An identification line in an odd form.
fn dirty(talk: &mut Talk) -> Result<(), Failure> {
    talk.connect()?;
    if !talk.is_odd() {
        talk.line()?;
    }
    let before = talk.form("", &["\r\n", "a line\r\n", "SSH\r\n", "\n", "SSH-\r\n", "GET / HTTP/1.1\r\n"]);
    let version = talk.form("2.0", &["1.99", " 2.0", "2. 0", "02.00", "+2.0"]);
    let end = talk.form("\r\n", &["\n", "\r\r\n", " \r\n", "\0\r\n", " a comment\r\n"]);
    let blank = talk.form("", &[" ", "\t", "-", "x", "\r"]);
    let length = if talk.is_odd() { talk.random.within(100, 8_300) } else { 0 };
    let padding = "y".repeat(length);
    let (first, second) = if talk.is_odd() { (padding.as_str(), "") } else { ("", padding.as_str()) };
    let line = format!("{before}SSH-{version}-{blank}{first}evil{second}{end}");
    let packet = key_exchange(talk);
    if talk.random.percent(50) {
        talk.send(&[line.as_bytes(), &packet].concat())?;
    } else {
        talk.send(line.as_bytes())?;
        talk.send(&packet)?;
    }
    talk.drain();
    Ok(())
}
