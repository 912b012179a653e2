// SPDX-License-Identifier: Apache-2.0
//! Mail protocols that are recognised and not parsed: POP3 (RFC 1939) and IMAP (RFC 9051).
//!
//! Their connections have a name in records and in rules (`alert pop3`). Without it POP3's first command
//! would be taken for one of FTP.
//!
//! Not supported: commands, answers, TLS after STLS or STARTTLS.

use crate::event::UNEXPECTED_PROTOCOL;
use crate::protocol::{
    CounterSpec, DetectionPattern, Input, ParseContext, Parser, ParserFactory, Probe, ProbePort, Progress,
    ProtocolSpec, RecordSpec, Transport,
};
use crate::worklist::Worklist;
use bartizan_base::{Direction, PerDirection};

/// A protocol without a parser.
const NONE: ProtocolSpec = ProtocolSpec {
    name: "",
    aliases: &[],
    family: None,
    carries: None,
    exact_name: "",
    eve_name: "",
    eve_type: None,
    records: RecordSpec::PLAIN,
    counters: CounterSpec::PLAIN,
    transports: &[Transport::Tcp],
    patterns: &[],
    ports: &[],
    probe: None,
    likely: None,
    enabled_by_default: true,
    complete: PerDirection::new(0, 0),
    states: PerDirection { to_server: &[], to_client: &[] },
    buffers: &[],
    numbers: &[],
    encrypted: None,
    frames: &[],
    events: &[],
    absent: UNEXPECTED_PROTOCOL,
    has_trailing_bytes: false,
    limits: &[],
    configure: |_| Ok(Box::new(UnparsedFactory)),
};

/// POP3.
pub static POP3: ProtocolSpec = ProtocolSpec {
    name: "pop3",
    exact_name: "pop3",
    eve_name: "pop3",
    ports: &[ProbePort { transport: Transport::Tcp, port: 110, min_depth: 4, max_depth: 5 }],
    probe: Some(pop3),
    ..NONE
};

/// IMAP.
pub static IMAP: ProtocolSpec = ProtocolSpec {
    name: "imap",
    exact_name: "imap",
    eve_name: "imap",
    counters: CounterSpec { flows_only: true, ..CounterSpec::PLAIN },
    patterns: GREETINGS,
    probe: Some(imap),
    ..NONE
};

/// First commands of POP3's clients.
const COMMANDS: &[&[u8]] = &[b"USER", b"PASS", b"CAPA", b"AUTH", b"APOP", b"STLS", b"QUIT", b"NOOP", b"STAT"];
/// Answers of POP3's servers.
const ANSWERS: &[&[u8]] = &[b"+OK", b"-ERR"];

const fn greeting(bytes: &'static [u8], depth: u16) -> DetectionPattern {
    let direction = Direction::ToClient;
    DetectionPattern { transport: Transport::Tcp, direction, bytes, nocase: true, offset: 0, depth }
}

/// Greetings of IMAP's servers, and a first command of many clients.
const GREETINGS: &[DetectionPattern] = &[
    greeting(b"* OK ", 5),
    greeting(b"* NO ", 5),
    greeting(b"* BAD ", 6),
    greeting(b"* BYE ", 6),
    greeting(b"* PREAUTH ", 10),
    DetectionPattern {
        transport: Transport::Tcp,
        direction: Direction::ToServer,
        bytes: b"1 capability",
        nocase: true,
        offset: 0,
        depth: 12,
    },
];

/// Matches the first of these texts that the bytes begin with.
fn begins<'t>(texts: impl Iterator<Item = &'t [u8]>, direction: Direction, data: &[u8]) -> Probe {
    let mut found = Probe::No;
    for text in texts {
        let begin = data.get(..text.len()).unwrap_or(data);
        if text.get(..begin.len()).is_some_and(|same| same.eq_ignore_ascii_case(begin)) {
            if begin.len() == text.len() {
                return Probe::Yes(direction);
            }
            found = Probe::More;
        }
    }
    found
}

fn pop3(_transport: Transport, direction: Direction, data: &[u8]) -> Probe {
    let texts = if direction == Direction::ToServer { COMMANDS } else { ANSWERS };
    begins(texts.iter().copied(), direction, data)
}

fn imap(_transport: Transport, direction: Direction, data: &[u8]) -> Probe {
    let texts =
        GREETINGS.iter().filter(|pattern| pattern.direction == direction).map(|pattern| pattern.bytes);
    begins(texts, direction, data)
}

struct UnparsedFactory;

impl ParserFactory for UnparsedFactory {
    fn make(&self) -> Box<dyn Parser> {
        Box::new(Unparsed::default())
    }
}

/// The parser of a flow: it has no transactions.
#[derive(Default)]
struct Unparsed {
    worklist: Worklist,
}

impl Parser for Unparsed {
    fn parse(
        &mut self,
        _direction: Direction,
        _input: Input<'_>,
        _context: &mut ParseContext<'_>,
    ) -> Progress {
        Progress::Done
    }

    fn gap(&mut self, _direction: Direction, _missing: u64, _context: &mut ParseContext<'_>) -> bool {
        true
    }

    fn worklist(&self) -> &Worklist {
        &self.worklist
    }

    fn worklist_mut(&mut self) -> &mut Worklist {
        &mut self.worklist
    }

    fn held(&mut self) -> usize {
        size_of::<Self>()
    }

    fn end(&mut self, _direction: Direction, _context: &mut ParseContext<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::FileSettings;
    use crate::flow::{AppLayer, DetectedProtocol, Engine, FlowInfo};
    use crate::protocols;
    use Direction::{ToClient, ToServer};
    use bartizan_base::{SettingsMap, Timestamp};

    /// The protocol of a conversation, and the number of events.
    fn protocol(port: u16, pieces: &[(Direction, &str)]) -> (Option<&'static str>, usize) {
        let engine = Engine::new(&SettingsMap::new(), FileSettings::default()).expect("an engine");
        let info = FlowInfo {
            now: Timestamp::ZERO,
            ports: PerDirection::new(port, 1_000),
            transport: Transport::Tcp,
            prevents: false,
            may_turn: false,
        };
        let mut app = AppLayer::default();
        for (direction, text) in pieces {
            let input = Input { data: text.as_bytes(), offset: 0, eof: false };
            app.stream(&engine, *direction, input, &info);
        }
        let DetectedProtocol::Protocol(id) = app.protocol() else { return (None, 0) };
        let both = app.by_direction();
        assert_eq!(both.to_server.protocol().or(Some(id)), Some(id));
        (protocols::spec(id).map(|spec| spec.name), app.events.as_slice().len())
    }

    #[test]
    fn a_users_name_is_of_the_protocol_that_the_server_has_greeted_in() {
        let user = (ToServer, "USER alice\r\nPASS x\r\n");
        assert_eq!(protocol(110, &[(ToClient, "+OK ready\r\n"), user]), (Some("pop3"), 0));
        assert_eq!(protocol(21, &[(ToClient, "220 ready\r\n"), user]), (Some("ftp"), 0));
        assert_eq!(protocol(2_100, &[user]), (Some("ftp"), 0));
    }

    #[test]
    fn greetings_of_imap() {
        for greeting in ["* OK IMAP4rev1 ready\r\n", "* PREAUTH you\r\n", "* BYE no\r\n"] {
            assert_eq!(protocol(143, &[(ToClient, greeting)]), (Some("imap"), 0), "{greeting}");
        }
        assert_eq!(protocol(143, &[(ToClient, "* what no server says\r\n")]), (None, 0));
    }
}
