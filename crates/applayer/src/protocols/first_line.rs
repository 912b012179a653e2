// SPDX-License-Identifier: Apache-2.0
//! First lines of protocols with commands and three-digit replies (SMTP, FTP), as lenient servers read them,
//! for prevention on any port.
//!
//! Servers of both answer commands that decide nothing (NOOP, HELP) and go on. Both greet with `220`: a
//! greeting that names one protocol shows it, else the client's lines do.
//!
//! Not done: a client's first line that is no command of the protocol, at a port that is not the protocol's,
//! before a greeting that does not name it.

use crate::protocol::Probe;
use bartizan_base::Direction;

/// Limit of the lines that are inspected, and of their bytes.
const LINES_MAX: usize = 16;
pub(crate) const BYTES_MAX: usize = 2_048;

/// Commands of a protocol, in upper case.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstCommands {
    /// Those that show it.
    pub(super) own: &'static [&'static str],
    /// Those that other protocols have, too.
    pub(super) shared: &'static [&'static str],
    /// Word in a greeting that names it, in lower case.
    pub(super) greets: &'static [u8],
    /// Words in a greeting of other protocols.
    pub(super) others: &'static [u8],
}

/// First commands that only SMTP has, and those that FTP has, too.
pub(super) const SMTP: FirstCommands = FirstCommands {
    own: &[
        "EHLO", "HELO", "MAIL", "RCPT", "DATA", "BDAT", "STARTTLS", "VRFY", "EXPN", "ETRN", "XCLIENT",
        "XFORWARD",
    ],
    shared: &["NOOP", "RSET", "HELP", "QUIT", "AUTH"],
    greets: b"smtp",
    others: b"ftp",
};

/// First commands that only FTP has, and those that others have, too: SMTP, POP3, NNTP (`MODE READER`) and
/// IRC (`PASS`). Servers do nothing for a client before its `USER`.
pub(super) const FTP: FirstCommands = FirstCommands {
    own: &[
        "USER", "ACCT", "CWD", "CDUP", "XCWD", "XMKD", "XPWD", "PASV", "PORT", "EPRT", "EPSV", "STOR",
        "STOU", "APPE", "NLST", "MLSD", "MLST", "SYST", "FEAT", "OPTS", "STRU", "MKD", "RMD", "PWD", "RNFR",
        "RNTO", "MDTM", "REIN", "ABOR", "ALLO", "PBSZ", "PROT",
    ],
    shared: &[
        "NOOP", "HELP", "QUIT", "AUTH", "PASS", "RETR", "LIST", "SITE", "TYPE", "MODE", "DELE", "SIZE",
        "STAT", "REST",
    ],
    greets: b"ftp",
    others: b"smtp",
};

/// The first word of a line if it has letters only, after whatever stands before it. Other words are none of
/// commands: those of AUTH are base64.
fn verb_of(line: &[u8]) -> Option<&[u8]> {
    let begin = line.iter().position(u8::is_ascii_alphabetic)?;
    let word = line.get(begin..)?.split(u8::is_ascii_whitespace).next()?;
    word.iter().all(u8::is_ascii_alphabetic).then_some(word)
}

impl FirstCommands {
    fn has(&self, verb: &[u8]) -> bool {
        self.own.iter().chain(self.shared).any(|name| name.as_bytes().eq_ignore_ascii_case(verb))
    }

    /// Whether a client's line is a command of this protocol that `other` does not have. A server of `other`
    /// refuses it and goes on, and one of this protocol carries it out, whatever came before.
    pub(super) fn is_foreign_to(&self, other: &FirstCommands, line: &[u8]) -> bool {
        verb_of(line).is_some_and(|verb| self.has(verb) && !other.has(verb))
    }

    /// Inspects first bytes.
    pub(super) fn likely(&self, direction: Direction, data: &[u8]) -> Probe {
        match direction {
            Direction::ToServer => self.client(data),
            Direction::ToClient => self.server(data),
        }
    }

    fn client(&self, data: &[u8]) -> Probe {
        let mut rest = data;
        let mut is_first = true;
        for _ in 0..LINES_MAX {
            let end = memchr::memchr(b'\n', rest);
            let line = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
            let begin = line.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(line.len());
            let text = line.get(begin..).unwrap_or_default();
            let letters = text.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
            let verb = text.get(..letters).unwrap_or_default();
            let is = |name: &&str| name.as_bytes().eq_ignore_ascii_case(verb);
            let may_be = |name: &&str| {
                name.as_bytes().get(..letters).is_some_and(|begin| begin.eq_ignore_ascii_case(verb))
            };
            // A verb is whole when something follows it.
            let is_whole = end.is_some() || letters < text.len();
            if is_whole && self.own.iter().any(is) {
                return Probe::Yes(Direction::ToServer);
            }
            let is_known = text.is_empty()
                || is_whole && self.shared.iter().any(is)
                || !is_whole && self.own.iter().chain(self.shared).any(may_be);
            if is_first && !is_known {
                return Probe::No;
            }
            is_first &= text.is_empty();
            let Some(end) = end else {
                return if data.len() < BYTES_MAX { Probe::More } else { Probe::No };
            };
            rest = rest.get(end.saturating_add(1)..).unwrap_or_default();
        }
        Probe::No
    }

    fn server(&self, data: &[u8]) -> Probe {
        let head = data.get(..3).unwrap_or(data);
        if !b"220".starts_with(head) || !matches!(data.get(3), None | Some(b' ' | b'-')) {
            return Probe::No;
        }
        let Some(end) = memchr::memchr(b'\n', data) else { return Probe::More };
        let line = data.get(..end).unwrap_or_default().to_ascii_lowercase();
        let names = |word: &[u8]| memchr::memmem::find(&line, word).is_some();
        // A greeting that names none, or both, leaves it to the client.
        if names(self.greets) && !names(self.others) {
            return Probe::Yes(Direction::ToClient);
        }
        if data.len() < BYTES_MAX { Probe::More } else { Probe::No }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{ToClient, ToServer};

    const COMMANDS: FirstCommands =
        FirstCommands { own: &["MAIL", "EHLO"], shared: &["NOOP"], greets: b"smtp", others: b"ftp" };

    #[test]
    fn lines_are_read_until_one_decides() {
        for (text, expected) in [
            ("EHLO x", Probe::Yes(ToServer)),
            (" \tehlo\r\n", Probe::Yes(ToServer)),
            ("\r\nnoop\r\nFOO\r\nMAIL\tx", Probe::Yes(ToServer)),
            ("MAIL", Probe::More),
            ("N", Probe::More),
            ("NOOP\r\n", Probe::More),
            ("\r\n", Probe::More),
            ("NOOPS\r\n", Probe::No),
            ("GET", Probe::No),
            ("FOO\r\nEHLO x\r\n", Probe::No),
            ("\x16\x03", Probe::No),
        ] {
            assert_eq!(COMMANDS.likely(ToServer, text.as_bytes()), expected, "{text:?}");
        }
        let many = "NOOP\r\n".repeat(LINES_MAX);
        assert_eq!(COMMANDS.likely(ToServer, many.as_bytes()), Probe::No);
        let long = format!("NOOP {}", "x".repeat(BYTES_MAX));
        assert_eq!(COMMANDS.likely(ToServer, long.as_bytes()), Probe::No);
    }

    #[test]
    fn commands_of_the_other_protocol() {
        for (line, foreign) in [
            ("USER anonymous", true),
            (" \u{ff}mkd /a\r", true),
            ("STOR", true),
            ("RSET", false),
            ("noop", false),
            ("EHLO x", false),
            ("USER5bGlzdA==", false),
            ("cwd+", false),
            ("XFOO a", false),
            ("", false),
        ] {
            assert_eq!(FTP.is_foreign_to(&SMTP, line.as_bytes()), foreign, "{line:?}");
        }
        assert!(SMTP.is_foreign_to(&FTP, b"ehlo x") && !SMTP.is_foreign_to(&FTP, b"AUTH TLS"));
    }

    #[test]
    fn greetings_that_name_the_protocol() {
        for (text, expected) in [
            ("220 x ESMTP Exim\r\n", Probe::Yes(ToClient)),
            ("220-x smtp\r\n", Probe::Yes(ToClient)),
            ("220 ftp.x ESMTP\r\n", Probe::More),
            ("220 x\r\n", Probe::More),
            ("22", Probe::More),
            ("220x\r\n", Probe::No),
            ("+OK\r\n", Probe::No),
        ] {
            assert_eq!(COMMANDS.likely(ToClient, text.as_bytes()), expected, "{text:?}");
        }
    }
}
