// SPDX-License-Identifier: Apache-2.0
//! Commands of FTP (RFC 959, RFC 2228, RFC 2428, RFC 3659), and the addresses that they announce.

use core::net::{IpAddr, Ipv4Addr};

/// The command that asks for TLS (RFC 4217). Suricata does not know it: it is read in prevention only.
pub(super) const AUTH_TLS: &str = "AUTH TLS";

/// Names of the commands that make transactions, in upper case: those that Suricata knows.
const COMMANDS: &[&str] = &[
    "ABOR", "ACCT", "ALLO", "APPE", "CDUP", "CHMOD", "CWD", "DELE", "EPRT", "EPSV", "HELP", "IDLE", "LIST",
    "MAIL", "MDTM", "MKD", "MLFL", "MLSD", "MODE", "MRCP", "MRSQ", "MSAM", "MSND", "MSOM", "NLST", "NOOP",
    "PASS", "PASV", "PORT", "PWD", "QUIT", "REIN", "REST", "RETR", "RMD", "RNFR", "RNTO", "SITE", "SIZE",
    "SMNT", "STAT", "STOR", "STOU", "STRU", "SYST", "TYPE", "UMASK", "USER",
];

/// The command of a line without white space before it, passively. As in Suricata, a known name counts at any
/// place of the line, the one that ends first (`XCWD` is `CWD`).
pub(super) fn command_of(line: &[u8]) -> Option<&'static str> {
    let is = |part: &[u8], name: &str| part.eq_ignore_ascii_case(name.as_bytes());
    let ends_at = |end: usize| {
        let read = line.get(..end)?;
        let last = read.last().map(u8::to_ascii_uppercase).filter(u8::is_ascii_uppercase)?;
        let ends = |name: &str| read.len().checked_sub(name.len()).and_then(|at| read.get(at..));
        let names = COMMANDS.iter().filter(|name| name.as_bytes().last() == Some(&last));
        names.copied().find(|name| ends(name).is_some_and(|part| is(part, name)))
    };
    (3..=line.len()).find_map(ends_at)
}

/// The command of a line as lenient servers read it, and its argument: after bytes that are no letters, by
/// the names that RFC 775 gave, and AUTH with every name of TLS.
pub(super) fn lenient_command_of(line: &[u8]) -> (Option<&'static str>, &[u8]) {
    let begin = line.iter().position(u8::is_ascii_alphabetic).unwrap_or(line.len());
    let line = line.get(begin..).unwrap_or_default();
    let end = line.iter().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(line.len());
    let (verb, argument) = line.split_at_checked(end).unwrap_or_default();
    let is = |name: &str| verb.eq_ignore_ascii_case(name.as_bytes());
    let other = OTHER_NAMES.iter().find(|(name, _)| is(name)).map(|(_, name)| *name);
    let argument = argument.trim_ascii();
    if is("AUTH") {
        let is_tls = [&b"TLS"[..], b"SSL"]
            .iter()
            .any(|name| argument.get(..name.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(name)));
        return (is_tls.then_some(AUTH_TLS), argument);
    }
    let begins = |name: &&&str| {
        line.get(..name.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(name.as_bytes()))
    };
    (other.or_else(|| COMMANDS.iter().find(begins).copied()), argument)
}

/// Other names of commands (RFC 775).
const OTHER_NAMES: &[(&str, &str)] =
    &[("XMKD", "MKD"), ("XRMD", "RMD"), ("XCWD", "CWD"), ("XPWD", "PWD"), ("XCUP", "CDUP")];

/// Commands that move bytes over a data connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    /// The server sends a file.
    Retrieve,
    /// The client sends a file: STOR, STOU, APPE.
    Store(&'static str),
    /// The server sends names of files.
    List(&'static str),
}

impl Transfer {
    /// The transfer that a command begins.
    pub(super) fn of(command: &'static str) -> Option<Self> {
        match command {
            "RETR" => Some(Transfer::Retrieve),
            "STOR" | "STOU" | "APPE" => Some(Transfer::Store(command)),
            "LIST" | "NLST" | "MLSD" => Some(Transfer::List(command)),
            _ => None,
        }
    }

    /// Name of the command.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Transfer::Retrieve => "RETR",
            Transfer::Store(name) | Transfer::List(name) => name,
        }
    }

    /// Number of the command, in the data of an expected connection.
    pub(super) const fn number(self) -> u8 {
        match self {
            Transfer::Retrieve => 1,
            Transfer::Store(name) => match name.as_bytes() {
                b"STOU" => 3,
                b"APPE" => 4,
                _ => 2,
            },
            Transfer::List(name) => match name.as_bytes() {
                b"NLST" => 6,
                b"MLSD" => 7,
                _ => 5,
            },
        }
    }

    /// The command of a number.
    pub(super) const fn of_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Transfer::Retrieve),
            2 => Some(Transfer::Store("STOR")),
            3 => Some(Transfer::Store("STOU")),
            4 => Some(Transfer::Store("APPE")),
            5 => Some(Transfer::List("LIST")),
            6 => Some(Transfer::List("NLST")),
            7 => Some(Transfer::List("MLSD")),
            _ => None,
        }
    }

    /// Whether the command has to name a file.
    pub(super) fn needs_name(self) -> bool {
        self.has_file() && self.name() != "STOU"
    }

    /// Whether the bytes are a file.
    pub(super) const fn has_file(self) -> bool {
        !matches!(self, Transfer::List(_))
    }
}

/// A port that one side has announced for the next data connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Announced {
    /// The address, if the announcement has one.
    pub(super) address: Option<IpAddr>,
    /// The port.
    pub(super) port: u16,
}

/// Reads six numbers with commas between them: `h1,h2,h3,h4,p1,p2` (RFC 959 section 4.1.2).
fn six_numbers(text: &[u8]) -> Option<Announced> {
    let mut numbers = [0u8; 6];
    let mut parts = text.split(|byte| *byte == b',');
    for number in &mut numbers {
        let digits = parts.next()?.trim_ascii();
        *number = core::str::from_utf8(digits).ok()?.parse().ok()?;
    }
    let [a, b, c, d, high, low] = numbers;
    let address = Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d)));
    parts.next().is_none().then_some(Announced { address, port: u16::from_be_bytes([high, low]) })
}

/// The announcement of a line of PORT or EPRT in the form that Suricata takes: in upper case, without blanks
/// between the numbers, any family.
pub(super) fn strict_announcement(line: &[u8]) -> Option<Announced> {
    if let Some(rest) = line.strip_prefix(b"PORT") {
        return strict_numbers(rest.trim_ascii_start()).map(|(announced, _)| announced);
    }
    let rest = line.strip_prefix(b"EPRT")?;
    let mut parts = rest.split(|byte| *byte == b'|').skip(1);
    let (_family, address, port) = (parts.next()?, parts.next()?, parts.next()?);
    let address = core::str::from_utf8(address).ok().and_then(|text| text.parse().ok());
    let (port, _) = strict_number(port)?;
    Some(Announced { address, port }).filter(|announced| announced.port != 0)
}

/// The port of a reply to PASV or EPSV in the form that Suricata takes.
pub(super) fn strict_passive_reply(line: &[u8]) -> Option<Announced> {
    let ends = |rest: &[u8]| rest.starts_with(b")");
    if let Some(rest) = line.strip_prefix(b"227 ") {
        let open = memchr::memchr(b'(', rest)?;
        let (announced, rest) = strict_numbers(rest.get(open.saturating_add(1)..)?)?;
        return ends(rest).then_some(announced);
    }
    let rest = line.strip_prefix(b"229 ")?;
    let open = memchr::memmem::find(rest, b"|||")?;
    let (port, rest) = strict_number(rest.get(open.saturating_add(3)..)?)?;
    let announced = Announced { address: None, port };
    rest.strip_prefix(b"|").is_some_and(ends).then_some(announced).filter(|announced| announced.port != 0)
}

/// Reads six numbers at the front of a text; returns what follows.
fn strict_numbers(text: &[u8]) -> Option<(Announced, &[u8])> {
    let mut numbers = [0u8; 6];
    let mut rest = text;
    for (at, number) in numbers.iter_mut().enumerate() {
        if at > 0 {
            rest = rest.strip_prefix(b",")?;
        }
        let (value, behind) = strict_number(rest)?;
        (*number, rest) = (u8::try_from(value).ok()?, behind);
    }
    let [a, b, c, d, high, low] = numbers;
    let address = Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d)));
    let announced = Announced { address, port: u16::from_be_bytes([high, low]) };
    (announced.port != 0).then_some((announced, rest))
}

/// Reads a number at the front of a text; returns what follows.
fn strict_number(text: &[u8]) -> Option<(u16, &[u8])> {
    let length = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at_checked(length)?;
    Some((core::str::from_utf8(digits).ok()?.parse().ok()?, rest))
}

/// Reads six numbers as lenient servers do: whatever stands between and after them, of each the last eight
/// bits.
fn six_numbers_leniently(text: &[u8]) -> Option<Announced> {
    let mut numbers = [0u8; 6];
    let mut parts = text.split(|byte| !byte.is_ascii_digit()).filter(|digits| !digits.is_empty());
    for number in &mut numbers {
        *number = last_bits(parts.next()?).to_le_bytes().first().copied()?;
    }
    let [a, b, c, d, high, low] = numbers;
    let address = Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d)));
    Some(Announced { address, port: u16::from_be_bytes([high, low]) })
}

/// The last bits of a decimal number.
fn last_bits(digits: &[u8]) -> u16 {
    digits
        .iter()
        .fold(0u16, |all, digit| all.wrapping_mul(10).wrapping_add(u16::from(digit.wrapping_sub(b'0'))))
}

/// The announcement of a command as lenient servers read it.
pub(super) fn lenient_announcement(command: &str, argument: &[u8]) -> Option<Announced> {
    match command {
        "PORT" => six_numbers_leniently(argument),
        "EPRT" => {
            let (delimiter, rest) = argument.trim_ascii().split_first()?;
            let mut parts = rest.split(|byte| byte == delimiter);
            let address =
                parts.nth(1).and_then(|text| core::str::from_utf8(text.trim_ascii()).ok()?.parse().ok());
            let port = parts.next()?.trim_ascii();
            let digits = port.iter().take_while(|byte| byte.is_ascii_digit()).count();
            Some(Announced { address, port: last_bits(port.get(..digits)?) })
        }
        _ => None,
    }
    .filter(|announced| announced.port != 0)
}

/// The announcement in a reply as lenient clients read it, whichever command it belongs to.
pub(super) fn announcement_of_reply(line: &[u8]) -> Option<Announced> {
    match line.get(..3)? {
        b"227" => passive_reply(line.get(3..)?).or_else(|| {
            let text = line.get(3..).unwrap_or_default();
            six_numbers_leniently(text).filter(|announced| announced.port != 0)
        }),
        b"229" => extended_passive_reply(line),
        _ => None,
    }
}

/// Reads the reply to PASV: six numbers anywhere in the text (RFC 1123 section 4.1.2.6).
fn passive_reply(text: &[u8]) -> Option<Announced> {
    let is_part = |byte: &u8| byte.is_ascii_digit() || *byte == b',';
    text.split(|byte| !is_part(byte)).find_map(six_numbers).filter(|announced| announced.port != 0)
}

/// Reads the reply to EPSV: `(|||6446|)` (RFC 2428 section 3). Any character is the delimiter.
fn extended_passive_reply(text: &[u8]) -> Option<Announced> {
    let open = memchr::memchr(b'(', text)?;
    let rest = text.get(open.saturating_add(1)..)?;
    let (delimiter, rest) = rest.split_first()?;
    let digits = rest.strip_prefix(&[*delimiter, *delimiter])?;
    let end = digits.iter().position(|byte| byte == delimiter)?;
    let port = core::str::from_utf8(digits.get(..end)?).ok()?.parse().ok().filter(|port| *port != 0)?;
    Some(Announced { address: None, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_known_wherever_they_stand() {
        for (line, command) in [
            ("user alice", Some("USER")),
            ("AUTH TLS", None),
            ("FEAT", None),
            ("PWD", Some("PWD")),
            ("PW", None),
            ("", None),
            ("XCWD /a", Some("CWD")),
            ("HELP USER", Some("HELP")),
            ("STORETR", Some("STOR")),
            ("MLSD", Some("MLSD")),
        ] {
            assert_eq!(command_of(line.as_bytes()), command, "{line}");
        }
    }

    #[test]
    fn strict_announcements() {
        let port = |line: &str| strict_announcement(line.as_bytes()).map(|found| found.port);
        assert_eq!(port("PORT 10,0,0,1,15,161"), Some(4_001));
        assert_eq!(port("PORT 10,0,0,1,15,161,9"), Some(4_001));
        assert_eq!(port("EPRT |2|10.0.0.1|4001|"), Some(4_001));
        for broken in
            ["port 10,0,0,1,15,161", "PORT 10,0,0,1, 15, 161", "PORT 10,0,0,1,999,1", "EPRT !1!a!4001!"]
        {
            assert_eq!(port(broken), None, "{broken}");
        }
        let port = |line: &str| strict_passive_reply(line.as_bytes()).map(|found| found.port);
        assert_eq!(port("227 =(10,0,0,2,19,137)"), Some(5_001));
        assert_eq!(port("229 ok (|||5001|) and more"), Some(5_001));
        for broken in
            ["227 10,0,0,2,19,137", "227 a (x) (1,2,3,4,5,6)", "229 ok |||5001|", "229 ok (!!!5001!)"]
        {
            assert_eq!(port(broken), None, "{broken}");
        }
    }

    #[test]
    fn lenient_servers_know_more_commands() {
        for (line, command, argument) in [
            (" \u{ff}mkd  a b ", Some("MKD"), "a b"),
            ("XMKD\ta", Some("MKD"), "a"),
            ("auth  ssl", Some("AUTH TLS"), "ssl"),
            ("AUTH GSSAPI", None, "GSSAPI"),
            ("FOO bar", None, "bar"),
            ("\0\0", None, ""),
        ] {
            assert_eq!(lenient_command_of(line.as_bytes()), (command, argument.as_bytes()), "{line}");
        }
    }

    #[test]
    fn transfers_have_numbers() {
        for name in ["RETR", "STOR", "STOU", "APPE", "LIST", "NLST", "MLSD"] {
            let transfer = Transfer::of(name).expect(name);
            assert_eq!((Transfer::of_number(transfer.number()), transfer.name()), (Some(transfer), name));
        }
        assert_eq!((Transfer::of("CWD"), Transfer::of_number(0)), (None, None));
    }

    #[test]
    fn announcements() {
        let of = |address: &str, port| Some(Announced { address: address.parse().ok(), port });
        let text = b"227 Entering Passive Mode (10,77,0,2,156,148).";
        assert_eq!(passive_reply(text), of("10.77.0.2", 40_084));
        assert_eq!(passive_reply(b"227 =10,77,0,2,156,148"), of("10.77.0.2", 40_084));
        assert_eq!(passive_reply(b"227 Entering Passive Mode."), None);
        for (command, argument, address, port) in [
            ("PORT", "192,168,0,13,234,10", "192.168.0.13", 59_914),
            ("PORT", "192, 168, 0, 13, 234, 10", "192.168.0.13", 59_914),
            ("EPRT", "!2!1080::8:800:200C:417A!5282!", "1080::8:800:200C:417A", 5_282),
            ("PORT", "010,1,2,3,0256,522 x", "10.1.2.3", 10),
            ("EPRT", "|1|132.235.1.2|06275", "132.235.1.2", 6_275),
            ("EPRT", "!9!::1!65537x!", "::1", 1),
        ] {
            assert_eq!(lenient_announcement(command, argument.as_bytes()), of(address, port), "{argument}");
        }
        assert_eq!(lenient_announcement("PORT", b"1,2,3,4,5"), None);
        assert_eq!(announcement_of_reply(b"227 Entering (10,77,0,2,156,148,9)"), of("10.77.0.2", 40_084));
        assert_eq!(announcement_of_reply(b"230 (10,77,0,2,156,148)"), None);
        assert_eq!(extended_passive_reply(b"229 Ok (|||40002|)").map(|found| found.port), Some(40_002));
        for broken in ["229 Ok", "229 (||40002|)", "229 (|||x|)", "229 (|||40002"] {
            assert_eq!(extended_passive_reply(broken.as_bytes()), None, "{broken}");
        }
    }
}
