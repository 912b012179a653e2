// SPDX-License-Identifier: Apache-2.0
//! TFTP over UDP (RFC 1350): requests to read or write a file.
//!
//! Each request is a complete transaction. The transfer itself uses ports of its own (RFC 1350, section 4),
//! so it is another flow, in which nothing is parsed; datagrams that a server nevertheless sends from port 69
//! are skipped.
//!
//! Not supported: the transferred files, options of requests (RFC 2347).

use crate::event::{EventCode, UNEXPECTED_PROTOCOL};
use crate::memory::allocated;
use crate::protocol::{
    BufferKind::Single, BufferSpec, CounterSpec, Input, NumberId, NumberSpec, ParseContext, Parser,
    ParserFactory, Probe, ProbePort, Progress, ProtocolSpec, RecordSpec, Transport, buffer,
};
use crate::transaction::{
    BufferQuery, BufferView, LogOptions, Transaction, TxCommon, TxList, listed_transactions,
};
use bartizan_base::limit::{LimitSpec, LimitTrace, count};
use bartizan_base::{Direction, Path, PerDirection, limits};
use bartizan_events::JsonWriter;

/// Progress of a request that exists.
const COMPLETE: u8 = 1;
/// Length of the shortest datagram that is inspected: operation, and empty name and mode.
const LEAST: usize = 4;
/// Limit of requests held for a flow. They are freed as soon as they are inspected and recorded.
const MAX_HELD: usize = 1_024;

/// `tftp.file`.
const FILE: u16 = 0;
/// `tftp.mode`.
const MODE: u16 = 1;

const BUFFERS: &[BufferSpec] = &[
    buffer(FILE, "tftp.file", true, false, COMPLETE, Single),
    buffer(MODE, "tftp.mode", true, false, COMPLETE, Single),
];

/// `tftp.opcode`: 1 reads a file, 2 writes one.
const OPCODE: NumberId = 0;

const NUMBERS: &[NumberSpec] = &[NumberSpec { id: OPCODE, name: "tftp.opcode" }];

const EVENTS: &[&str] = &["flooded"];
const FLOODED: EventCode = 0;

/// Transfer modes (RFC 1350, section 1); letter case is ignored.
const MODES: [&[u8]; 3] = [b"netascii", b"octet", b"mail"];

/// TFTP.
pub const SPEC: ProtocolSpec = ProtocolSpec {
    name: "tftp",
    aliases: &[],
    family: None,
    carries: None,
    exact_name: "tftp",
    eve_name: "tftp",
    eve_type: Some("tftp"),
    records: RecordSpec::PLAIN,
    counters: CounterSpec::PLAIN,
    transports: &[Transport::Udp],
    patterns: &[],
    ports: &[ProbePort {
        transport: Transport::Udp,
        port: 69,
        min_depth: LEAST as u16,
        max_depth: LEAST as u16,
    }],
    probe: Some(probe),
    likely: None,
    enabled_by_default: true,
    complete: PerDirection::new(COMPLETE, COMPLETE),
    states: PerDirection {
        to_server: &["request_started", "request_complete"],
        to_client: &["response_started", "response_complete"],
    },
    buffers: BUFFERS,
    numbers: NUMBERS,
    encrypted: None,
    frames: &[],
    events: EVENTS,
    absent: UNEXPECTED_PROTOCOL,
    has_trailing_bytes: false,
    limits: LIMITS,
    configure: |_| Ok(Box::new(TftpFactory)),
};

/// Bounds of this protocol.
pub(crate) const LIMITS: &[LimitSpec] = limits! {
    Protocol "TFTP: requests held for a flow" = "{}" [count(MAX_HELD)]
        in ["applayer/protocols/tftp.rs"], "the oldest are let go of", [LimitTrace::Event("tftp.flooded")];
};

/// Matches a zero byte with another byte after it, which is enough at the port, as in Suricata.
fn probe(_transport: Transport, _direction: Direction, bytes: &[u8]) -> Probe {
    match bytes {
        [0, _, _, _, ..] => Probe::Yes(Direction::ToServer),
        [] | [0] | [0, _] | [0, _, _] => Probe::More,
        _ => Probe::No,
    }
}

/// A request.
#[derive(Debug)]
pub struct TftpTransaction {
    common: TxCommon,
    /// 1: read, 2: write.
    operation: u16,
    file: Box<[u8]>,
    mode: Box<[u8]>,
}

impl TftpTransaction {
    /// Reads a datagram that is a request; `None`: it is none.
    fn read(bytes: &[u8]) -> Option<Self> {
        let (operation, rest) = bytes.split_first_chunk::<2>()?;
        let operation = u16::from_be_bytes(*operation);
        let (file, rest) = text(rest)?;
        let (mode, _) = text(rest)?;
        let known = MODES.iter().any(|known| known.eq_ignore_ascii_case(mode));
        if !matches!(operation, 1 | 2) || !known {
            return None;
        }
        let mut common = TxCommon::default();
        // The other direction has no part of the request.
        common.done.to_client = Path::ALL;
        // Modes ignore letter case; records and rules have them in lower case, as in Suricata.
        Some(TftpTransaction { common, operation, file: file.into(), mode: mode.to_ascii_lowercase().into() })
    }
}

/// Text up to a zero byte, and the bytes after that.
fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let (text, rest) = bytes.split_at_checked(end)?;
    Some((text, rest.get(1..)?))
}

impl Transaction for TftpTransaction {
    fn common(&self) -> &TxCommon {
        &self.common
    }

    fn common_mut(&mut self) -> &mut TxCommon {
        &mut self.common
    }

    fn progress(&self, _direction: Direction) -> u8 {
        COMPLETE
    }

    fn buffer<'a>(&'a self, query: BufferQuery, _scratch: &'a mut Vec<u8>) -> Option<BufferView<'a>> {
        match (query.id, query.index) {
            (FILE, 0) => Some(BufferView::whole(&self.file)),
            (MODE, 0) => Some(BufferView::whole(&self.mode)),
            _ => None,
        }
    }

    fn number(&self, id: NumberId, direction: Direction) -> Option<u64> {
        (id == OPCODE && direction == Direction::ToServer).then_some(self.operation.into())
    }

    fn message_direction(&self) -> Option<Direction> {
        Some(Direction::ToServer)
    }

    fn held(&self) -> usize {
        allocated(self.file.len()).saturating_add(allocated(self.mode.len()))
    }

    fn log(&self, json: &mut JsonWriter, _options: &LogOptions, _in_alert: bool) {
        json.str("packet", if self.operation == 1 { "read" } else { "write" });
        json.text("file", &self.file);
        json.text("mode", &self.mode);
    }
}

struct TftpFactory;

impl ParserFactory for TftpFactory {
    fn make(&self) -> Box<dyn Parser> {
        Box::new(TftpParser::default())
    }
}

/// The parser of a flow.
#[derive(Default)]
struct TftpParser {
    held: TxList<TftpTransaction>,
}

impl Parser for TftpParser {
    fn parse(&mut self, direction: Direction, input: Input<'_>, _context: &mut ParseContext<'_>) -> Progress {
        if direction == Direction::ToClient {
            return Progress::Done;
        }
        // A datagram that is no request does not affect the next one.
        let Some(request) = TftpTransaction::read(input.data) else { return Progress::Done };
        self.held.push(request);
        if self.held.len() > MAX_HELD {
            let oldest = self.held.range().start;
            self.held.free(oldest);
            if let Some(newest) = self.held.last_mut() {
                newest.common_mut().events.set(FLOODED);
            }
        }
        Progress::Done
    }

    fn gap(&mut self, _direction: Direction, _missing: u64, _context: &mut ParseContext<'_>) -> bool {
        // Datagrams have none.
        false
    }

    listed_transactions!(held);

    fn held(&mut self) -> usize {
        size_of::<Self>().saturating_add(self.held.held())
    }

    fn end(&mut self, _direction: Direction, _context: &mut ParseContext<'_>) {
        // Every transaction is complete from its beginning.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{self, Seed, protocol_suite};

    fn request(operation: u8, file: &str, mode: &str) -> Vec<u8> {
        [&[0, operation], file.as_bytes(), &[0], mode.as_bytes(), &[0]].concat()
    }

    fn seeds() -> Vec<Seed> {
        let read = request(1, "pxelinux.0", "octet");
        let options = [request(2, "running-config", "NetASCII").as_slice(), b"blksize\x001428\0"].concat();
        vec![
            vec![(Direction::ToServer, read.clone())],
            vec![
                (Direction::ToServer, options),
                (Direction::ToClient, vec![0, 4, 0, 0]),
                (Direction::ToServer, read),
            ],
        ]
    }

    protocol_suite!(over_udp, &SPEC, Transport::Udp, seeds());

    #[test]
    fn requests_are_read() {
        for (bytes, expected) in [
            (request(1, "a/b", "octet"), Some((1, "a/b", "octet"))),
            (request(2, "", "MAIL"), Some((2, "", "mail"))),
            ([request(1, "x", "netascii").as_slice(), b"tsize\x000\0"].concat(), Some((1, "x", "netascii"))),
            (request(3, "x", "octet"), None),
            (request(1, "x", "binary"), None),
            (b"\0\x01x\0octet".to_vec(), None),
            (b"\0\x01x".to_vec(), None),
            (b"\0".to_vec(), None),
        ] {
            let read = TftpTransaction::read(&bytes);
            let found = read.as_ref().map(|tx| (tx.operation, &*tx.file, &*tx.mode));
            let expected =
                expected.map(|(op, file, mode): (u16, &str, &str)| (op, file.as_bytes(), mode.as_bytes()));
            assert_eq!(found, expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_bad_request_hides_no_later_one() {
        let good = request(1, "boot.img", "octet");
        for bad in
            [request(1, "x", "bogus"), request(9, "x", "octet"), b"\0".to_vec(), b"\0\x01x\0octet".to_vec()]
        {
            let mut driver = suite::Driver::new(&SPEC, Transport::Udp);
            for datagram in [&bad, &good, &bad, &good] {
                driver.send(Direction::ToServer, datagram);
            }
            assert_eq!(driver.parser().tx_range(), 0..2, "{bad:?}");
        }
    }

    #[test]
    fn the_record_is_suricatas() {
        let mut driver = suite::Driver::new(&SPEC, Transport::Udp);
        driver.send(Direction::ToServer, &request(2, "rfc1350.txt", "octet"));
        let record = suite::record(driver.parser().tx(0).expect("a request"), &LogOptions::default(), false);
        assert_eq!(record, r#"{"packet":"write","file":"rfc1350.txt","mode":"octet"}"#);
    }

    #[test]
    fn a_flood_is_bounded_and_told() {
        let mut driver = suite::Driver::new(&SPEC, Transport::Udp);
        for _ in 0..=MAX_HELD {
            driver.send(Direction::ToServer, &request(1, "x", "octet"));
        }
        let range = driver.parser().tx_range();
        assert_eq!((range.start, range.end), (1, MAX_HELD as u64 + 1));
        let newest = driver.parser().tx(range.end - 1).expect("the newest");
        assert!(newest.common().events.has(FLOODED));
    }
}
