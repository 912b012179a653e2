// SPDX-License-Identifier: Apache-2.0
//! HTTP/2 in clear text (RFC 9113): recognised by the client's preface, not parsed.
//!
//! The connections have a name in records and in rules (`alert http2`), and in prevention a policy decides
//! whether they continue (`app-layer.protocols.http2.policy`). Their data forms no requests, responses or
//! transactions.
//!
//! Not supported: frames, headers, streams.

use crate::event::UNEXPECTED_PROTOCOL;
use crate::protocol::{
    CounterSpec, DetectionPattern, Input, ParseContext, Parser, ParserFactory, Probe, Progress, ProtocolSpec,
    RecordSpec, Transport,
};
use crate::worklist::Worklist;
use bartizan_base::{Direction, PerDirection};

/// The connection preface of a client (RFC 9113 section 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Offset of the type of the frame after the preface, and the required type.
const FRAME_TYPE: usize = PREFACE.len() + 3;
const SETTINGS: u8 = 4;
/// Length of a frame's header, in bytes (RFC 9113 section 4.1).
const FRAME_HEAD: usize = 9;

/// HTTP/2.
pub const SPEC: ProtocolSpec = ProtocolSpec {
    name: "http2",
    aliases: &[],
    family: Some("http"),
    carries: None,
    exact_name: "http2",
    eve_name: "http2",
    eve_type: None,
    records: RecordSpec::PLAIN,
    counters: CounterSpec::PLAIN,
    transports: &[Transport::Tcp],
    patterns: &[DetectionPattern {
        transport: Transport::Tcp,
        direction: Direction::ToServer,
        bytes: b"PRI * HTTP/2.0\r\n",
        nocase: false,
        offset: 0,
        depth: 17,
    }],
    ports: &[],
    probe: Some(probe),
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
    configure: |_| Ok(Box::new(Http2Factory)),
};

/// Matches the client's whole preface, since servers of HTTP/1 read a text that only begins like it as a
/// request, or the first frame of a server.
fn probe(_transport: Transport, direction: Direction, bytes: &[u8]) -> Probe {
    if direction == Direction::ToClient {
        match bytes {
            [0, _, _, SETTINGS, 0 | 1, 0, 0, 0, 0, ..] => Probe::Yes(Direction::ToClient),
            _ if bytes.len() < FRAME_HEAD => Probe::More,
            _ => Probe::No,
        }
    } else if bytes.starts_with(PREFACE) {
        Probe::Yes(Direction::ToServer)
    } else if PREFACE.starts_with(bytes) {
        Probe::More
    } else {
        Probe::No
    }
}

struct Http2Factory;

impl ParserFactory for Http2Factory {
    fn make(&self) -> Box<dyn Parser> {
        Box::new(Http2Parser::default())
    }
}

/// The parser of a flow: it has no transactions.
#[derive(Default)]
struct Http2Parser {
    /// The client's first frame has come.
    begun: bool,
    worklist: Worklist,
}

impl Parser for Http2Parser {
    fn parse(&mut self, direction: Direction, input: Input<'_>, context: &mut ParseContext<'_>) -> Progress {
        if self.begun || direction == Direction::ToClient || !context.prevents {
            return Progress::Done;
        }
        // A server of HTTP/1 that continues after the preface must find no request there.
        match input.data.get(FRAME_TYPE) {
            Some(&SETTINGS) => {
                self.begun = true;
                Progress::Done
            }
            Some(_) => Progress::Error,
            None if input.eof => Progress::Done,
            None => Progress::Incomplete { consumed: 0, needed: FRAME_TYPE + 1 },
        }
    }

    fn gap(&mut self, _direction: Direction, _missing: u64, _context: &mut ParseContext<'_>) -> bool {
        self.begun = true;
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
    use crate::flow::{AppLayer, DetectedProtocol, Engine, FlowInfo};
    use crate::{event, file::FileSettings, protocols};
    use bartizan_base::{SettingsMap, Timestamp};

    /// Plays the bytes of both sides, one after the other. Returns the flow, and whether parsing failed.
    fn flow(prevents: bool, sides: &[(Direction, &[u8])]) -> (AppLayer, bool) {
        let engine = Engine::new(&SettingsMap::new(), FileSettings::default()).expect("an engine");
        let info = FlowInfo {
            now: Timestamp::ZERO,
            ports: PerDirection::new(80, 1000),
            transport: Transport::Tcp,
            prevents,
            may_turn: false,
        };
        let mut app = AppLayer::default();
        for (direction, data) in sides {
            app.stream(&engine, *direction, Input { data, offset: 0, eof: false }, &info);
        }
        let failed = app.failed_parsing;
        (app, failed)
    }

    fn with_frame(kind: u8) -> Vec<u8> {
        [PREFACE, &[0, 0, 0, kind, 0, 0, 0, 0, 0]].concat()
    }

    #[test]
    fn the_preface_is_known() {
        let (id, _) = protocols::by_name("http2").expect("in the table");
        assert!(protocols::unparsed().any(|(unparsed, _)| unparsed == id));
        let begin = with_frame(SETTINGS);
        for prevents in [false, true] {
            let (app, failed) = flow(prevents, &[(Direction::ToServer, &begin)]);
            assert_eq!((app.protocol(), failed), (DetectedProtocol::Protocol(id), false));
        }
        // Its server answers.
        let answer = [0, 0, 0, SETTINGS, 0, 0, 0, 0, 0];
        let (app, _) = flow(false, &[(Direction::ToServer, &begin), (Direction::ToClient, &answer)]);
        assert_eq!(
            (app.by_direction().to_client, app.events.as_slice()),
            (DetectedProtocol::Protocol(id), &[][..])
        );
        // The server sends first.
        let (app, _) = flow(false, &[(Direction::ToClient, &answer), (Direction::ToServer, &begin)]);
        assert_eq!(app.protocol(), DetectedProtocol::Protocol(id));
        // A server that knows HTTP/1 only.
        let refusal = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
        let (app, failed) = flow(false, &[(Direction::ToServer, &begin), (Direction::ToClient, refusal)]);
        assert_eq!((app.protocol(), failed), (DetectedProtocol::Protocol(id), false));
        assert_eq!(
            app.by_direction().to_client,
            DetectedProtocol::Protocol(protocols::by_name("http").expect("there").0)
        );
        assert_eq!(app.events.as_slice(), [event::MISMATCH_PROTOCOL_BOTH_DIRECTIONS]);
        assert!(app.parser().is_some_and(|parser| parser.tx_range().is_empty()), "no record of http");
    }

    #[test]
    fn what_only_begins_like_the_preface_is_a_request() {
        for request in ["PRI * HTTP/2.0\r\n\r\nGET / HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\nHost: h\r\n\r\n"] {
            let (app, _) = flow(true, &[(Direction::ToServer, request.as_bytes())]);
            assert_eq!(app.protocol().protocol(), protocols::by_name("http").map(|(id, _)| id), "{request}");
        }
    }

    #[test]
    fn in_prevention_settings_come_first() {
        for (behind, fails) in [(with_frame(SETTINGS), false), (with_frame(0), true)] {
            assert_eq!(flow(true, &[(Direction::ToServer, &behind)]).1, fails);
        }
        let smuggled = [PREFACE, b"GET /x HTTP/1.1\r\n\r\n"].concat();
        assert!(flow(true, &[(Direction::ToServer, &smuggled)]).1);
    }
}
