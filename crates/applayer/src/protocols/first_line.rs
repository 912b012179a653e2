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

impl FirstCommands {
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
