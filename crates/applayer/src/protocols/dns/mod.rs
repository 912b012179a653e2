// SPDX-License-Identifier: Apache-2.0
//! DNS over UDP and TCP (RFC 1035, RFC 7766) and multicast DNS (RFC 6762).
//!
//! Every message is a transaction of its own: the parser keeps no state between messages, so a flood of
//! queries without responses holds no memory once they are inspected, and a response without its query is
//! parsed. Over TCP two bytes of length precede each message; after a gap the parser continues at the end of
//! the message that the gap has cut, or else with the first message that it finds.
//!
//! Detection inspects whole datagrams and, for streams, the header or the whole of the first message. A flow
//! whose first packet is a response is turned round. In prevention detection accepts at its ports what
//! servers accept, too (`likely`), and messages are read as lenient receivers do (`message`).
//!
//! Not supported: matching of responses to queries (function `names` does it for itself), DNS over TLS, EDNS
//! response codes above 15, classes (detection and records do not distinguish IN and CH).

pub(super) mod buffers;
mod likely;
pub(crate) mod limits;
mod log;
mod lookup;
mod message;
mod name;
mod record;
mod states;
mod transaction;

#[cfg(test)]
mod tests;

pub use message::{Data, DnsHeader, DnsRecord, Message, Query, Section};
pub use name::{Bad, Name, NameFlags};
pub use transaction::{DnsTransaction, Variant};

use crate::event::{EventCode, UNEXPECTED_PROTOCOL};
use crate::frames::{Notes, ProtocolFrameNote};
use crate::memory::Held as _;
use crate::protocol::{
    CounterSpec, Input, ParseContext, Parser, ParserFactory, Probe, ProbePort, Progress, ProtocolSpec,
    RecordSource, RecordSpec, Transport,
};
use crate::transaction::{Transaction, TxId, TxList};
use crate::worklist::Worklist;
use bartizan_base::{Direction, PerDirection};
use message::HEADER;
use states::{COMPLETE, STATES};
use std::collections::VecDeque;

/// Bytes of length before each message over TCP.
const PREFIX: usize = 2;

/// Limit of transactions held for a flow. They are freed as soon as they are inspected and recorded, so only
/// thousands of messages in one piece of a stream reach it.
const MAX_HELD: usize = 8192;

/// Limit of the memory of a flow's messages, in bytes.
const MAX_MEMORY: usize = 4 << 20;

/// Number of bytes after a possible header in which a whole message is searched after a gap, before that
/// header is accepted.
const MAX_SEARCHED: usize = 4096;

/// Names of the events.
const EVENTS: &[&str] = &[
    "malformed_data",
    "not_request",
    "not_response",
    "z_flag_set",
    "invalid_opcode",
    "name_too_long",
    "infinite_loop",
    "too_many_labels",
    "invalid_additionals",
    "invalid_authorities",
    "flooded",
];

const MALFORMED_DATA: EventCode = 0;
const NOT_REQUEST: EventCode = 1;
const NOT_RESPONSE: EventCode = 2;
const Z_FLAG_SET: EventCode = 3;
const INVALID_OPCODE: EventCode = 4;
const NAME_TOO_LONG: EventCode = 5;
const INFINITE_LOOP: EventCode = 6;
const TOO_MANY_LABELS: EventCode = 7;
const INVALID_ADDITIONALS: EventCode = 8;
const INVALID_AUTHORITIES: EventCode = 9;
const FLOODED: EventCode = 10;

/// Names of the frames; see [`crate::frames`].
const FRAMES: &[&str] = &["stream", "pdu"];
/// Index of the frame that is one message.
const PDU: u8 = 1;

/// Alerts do not contain the progress, as Suricata's of these protocols do not.
const MDNS_RECORDS: RecordSpec = RecordSpec { progress: false, ..RecordSpec::PLAIN };
const RECORDS: RecordSpec = RecordSpec {
    source: RecordSource::Message,
    version: log::LATEST,
    version_variable: Some("SURICATA_EVE_DNS_VERSION"),
    ..MDNS_RECORDS
};

/// DNS.
pub const SPEC: ProtocolSpec = ProtocolSpec {
    name: "dns",
    aliases: &[],
    family: None,
    carries: None,
    exact_name: "dns",
    eve_name: "dns",
    eve_type: Some("dns"),
    records: RECORDS,
    counters: CounterSpec { by_transport: true, ..CounterSpec::PLAIN },
    transports: &[Transport::Tcp, Transport::Udp],
    patterns: &[],
    ports: &[
        ProbePort { transport: Transport::Udp, port: 53, min_depth: 0, max_depth: HEADER as u16 },
        ProbePort { transport: Transport::Tcp, port: 53, min_depth: 0, max_depth: (HEADER + PREFIX) as u16 },
    ],
    probe: Some(probe),
    likely: Some(likely::likely),
    enabled_by_default: true,
    complete: PerDirection::new(COMPLETE, COMPLETE),
    states: STATES,
    buffers: buffers::DNS,
    numbers: buffers::NUMBERS,
    encrypted: None,
    frames: FRAMES,
    events: EVENTS,
    absent: UNEXPECTED_PROTOCOL,
    has_trailing_bytes: false,
    limits: limits::LIMITS,
    configure: |_| Ok(Box::new(Factory(Variant::Unicast))),
};

/// Multicast DNS.
pub const MDNS: ProtocolSpec = ProtocolSpec {
    name: "mdns",
    aliases: &[],
    family: None,
    carries: None,
    exact_name: "mdns",
    eve_name: "mdns",
    eve_type: Some("mdns"),
    records: MDNS_RECORDS,
    counters: CounterSpec::PLAIN,
    transports: &[Transport::Udp],
    patterns: &[],
    ports: &[ProbePort { transport: Transport::Udp, port: 5353, min_depth: 0, max_depth: HEADER as u16 }],
    probe: Some(probe_multicast),
    likely: Some(likely::multicast),
    enabled_by_default: true,
    complete: PerDirection::new(COMPLETE, COMPLETE),
    states: STATES,
    buffers: buffers::MDNS,
    numbers: &[],
    encrypted: None,
    frames: FRAMES,
    events: EVENTS,
    absent: UNEXPECTED_PROTOCOL,
    has_trailing_bytes: false,
    limits: &[],
    configure: |_| Ok(Box::new(Factory(Variant::Multicast))),
};

/// The classification of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeResult {
    /// A message: a query or a response.
    Message(Direction),
    /// A message that ends too early.
    Cut,
    /// Something else.
    Other,
}

/// Classifies a message of `length` bytes, of which `bytes` have come.
fn probe_message(bytes: &[u8], length: usize) -> ProbeResult {
    let bytes = bytes.get(..length).unwrap_or(bytes);
    let Some(header) = DnsHeader::read(bytes) else { return ProbeResult::Other };
    if bytes.len() == length {
        match Message::read(bytes, false) {
            Ok(_) => {}
            Err(Bad::Short) => return ProbeResult::Cut,
            Err(Bad::Broken) => return ProbeResult::Other,
        }
    }
    if !header.plausible(length) {
        return ProbeResult::Other;
    }
    ProbeResult::Message(if header.is_response() { Direction::ToClient } else { Direction::ToServer })
}

/// Classifies the beginning of a stream.
fn probe_stream(bytes: &[u8]) -> ProbeResult {
    match bytes.split_first_chunk::<PREFIX>() {
        Some((length, rest)) => probe_message(rest, usize::from(u16::from_be_bytes(*length))),
        None => ProbeResult::Cut,
    }
}

/// Searches a message in bytes of a stream at an unknown position. Returns its offset, or the progress of the
/// parser until a message can be found.
fn search(direction: Direction, data: &[u8]) -> Result<usize, Progress> {
    let mut begun = None;
    for (at, _) in data.windows(PREFIX + HEADER).enumerate() {
        let here = data.get(at..).unwrap_or_default();
        match probe_stream(here) {
            // At the first byte, a message of the wrong direction counts, too: it is reported.
            ProbeResult::Message(shown) if shown == direction || at == 0 => {}
            _ => continue,
        }
        let whole = here.split_first_chunk::<PREFIX>().is_some_and(|(length, behind)| {
            let length = usize::from(u16::from_be_bytes(*length));
            length >= HEADER && behind.len() >= length
        });
        if whole {
            return Ok(at);
        }
        begun = begun.or(Some(at));
    }
    match begun {
        Some(at) if data.len().saturating_sub(at) > MAX_SEARCHED => Ok(at),
        _ => {
            let consumed = begun.unwrap_or(data.len().saturating_sub(PREFIX + HEADER - 1));
            let behind = data.len().saturating_sub(consumed);
            Err(Progress::Incomplete { consumed, needed: behind.saturating_add(1).max(PREFIX + HEADER) })
        }
    }
}

fn probe(transport: Transport, _direction: Direction, bytes: &[u8]) -> Probe {
    let seen = match transport {
        Transport::Udp => probe_message(bytes, bytes.len()),
        Transport::Tcp if bytes.len() < PREFIX + HEADER => return Probe::More,
        Transport::Tcp => probe_stream(bytes),
    };
    match seen {
        ProbeResult::Message(shown) => Probe::Yes(shown),
        ProbeResult::Cut | ProbeResult::Other => Probe::No,
    }
}

fn probe_multicast(_transport: Transport, _direction: Direction, bytes: &[u8]) -> Probe {
    match probe_message(bytes, bytes.len()) {
        ProbeResult::Message(_) => Probe::Yes(Direction::ToServer),
        ProbeResult::Cut | ProbeResult::Other => Probe::No,
    }
}

/// The reason why a message did not become a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsMessageError {
    /// The header is not plausible.
    Header,
    /// The message travels to the server and is a response.
    NotRequest,
    /// Questions or answers cannot be read.
    Malformed,
}

/// Makes a transaction of one message; also for messages that other protocols carry (DNS over HTTPS).
/// `lenient`: read it as a lenient receiver does ([`Message::read`]).
///
/// # Errors
/// See [`DnsMessageError`].
pub fn transaction(
    variant: Variant,
    direction: Direction,
    bytes: &[u8],
    lenient: bool,
) -> Result<DnsTransaction, DnsMessageError> {
    let header = DnsHeader::read(bytes).ok_or(DnsMessageError::Header)?;
    let plausible = header.plausible(bytes.len());
    if !(plausible || lenient && header.is_read()) {
        return Err(DnsMessageError::Header);
    }
    let message = Message::read(bytes, lenient).map_err(|_| DnsMessageError::Malformed)?;
    let response = match (variant, direction) {
        (Variant::Multicast, _) => header.is_response(),
        (Variant::Unicast, Direction::ToServer) if header.is_response() => {
            return Err(DnsMessageError::NotRequest);
        }
        (Variant::Unicast, _) => direction == Direction::ToClient,
    };
    let odd = message.odd;
    let found = [
        (message.malformed || !plausible, MALFORMED_DATA),
        (message.invalid_additionals, INVALID_ADDITIONALS),
        (message.invalid_authorities, INVALID_AUTHORITIES),
        (response && !header.is_response(), NOT_RESPONSE),
        (header.flags & 0x0040 != 0, Z_FLAG_SET),
        (header.opcode() >= 7, INVALID_OPCODE),
        (odd.contains(NameFlags::TRUNCATED), NAME_TOO_LONG),
        (odd.contains(NameFlags::LOOP), INFINITE_LOOP),
        (odd.contains(NameFlags::LABELS), TOO_MANY_LABELS),
    ];
    let direction = if variant == Variant::Multicast { Direction::ToServer } else { direction };
    let mut tx = DnsTransaction::new(variant, direction, response, message);
    for (_, event) in found.iter().filter(|(is, _)| *is) {
        tx.common_mut().events.set(*event);
    }
    Ok(tx)
}

struct Factory(Variant);

impl ParserFactory for Factory {
    fn make(&self) -> Box<dyn Parser> {
        Box::new(DnsParser {
            variant: self.0,
            held: TxList::default(),
            memory: 0,
            lost: PerDirection::default(),
            next: PerDirection::default(),
            short: PerDirection::default(),
            read: PerDirection::default(),
            silent: VecDeque::new(),
            frames: Notes::default(),
        })
    }
}

/// The parser of a flow.
struct DnsParser {
    variant: Variant,
    held: TxList<DnsTransaction>,
    /// Memory of the messages held, in bytes.
    memory: usize,
    /// After a gap, the beginning of the next message is unknown.
    lost: PerDirection<bool>,
    /// Stream offset of the end of the last incomplete message; 0: there was none.
    next: PerDirection<u64>,
    /// A message too short to be one was skipped; the next message reports it.
    short: PerDirection<bool>,
    /// A message was read since the last call of [`Parser::wants_raw`]; one that was only searched after a
    /// gap does not count.
    read: PerDirection<bool>,
    /// Ids of queries without records: the first response to each has no record, either.
    silent: VecDeque<u16>,
    frames: Notes,
}

/// Limit of remembered queries whose responses are not recorded; the oldest are forgotten.
const MAX_SILENT: usize = 500;

impl DnsParser {
    /// Handles a whole message.
    fn message(&mut self, direction: Direction, bytes: &[u8], lenient: bool) -> Result<(), DnsMessageError> {
        let result = transaction(self.variant, direction, bytes, lenient);
        match result {
            Ok(mut tx) => {
                if core::mem::take(&mut self.short[direction]) {
                    tx.common_mut().events.set(MALFORMED_DATA);
                }
                if let Some(at) = self.silent.iter().position(|id| *id == tx.message().header.id)
                    && tx.is_response()
                {
                    self.silent.remove(at);
                    tx.common_mut().silent = true;
                }
                self.memory = self.memory.saturating_add(tx.message().size());
                self.held.push(tx);
                self.bound();
                self.read[direction] = true;
                Ok(())
            }
            Err(refused) => {
                // A refused message has no transaction, so the event goes to the previous one.
                let event = match refused {
                    DnsMessageError::Header => return Err(refused),
                    DnsMessageError::NotRequest => NOT_REQUEST,
                    DnsMessageError::Malformed => MALFORMED_DATA,
                };
                if let Some(last) = self.held.last_mut() {
                    last.common_mut().events.set(event);
                }
                Err(refused)
            }
        }
    }

    /// Drops the oldest transactions if there are too many, and raises an event on the newest.
    fn bound(&mut self) {
        let mut dropped = false;
        while self.held.len() > 1 && (self.held.len() > MAX_HELD || self.memory > MAX_MEMORY) {
            let oldest = self.held.range().start;
            self.free_tx(oldest);
            dropped = true;
        }
        if dropped && let Some(newest) = self.held.last_mut() {
            newest.common_mut().events.set(FLOODED);
        }
    }

    /// Records a message as a frame.
    fn note(&mut self, direction: Direction, at: u64, len: usize) {
        let tx = Some(self.held.next_id());
        self.frames.add(direction, ProtocolFrameNote::Whole { kind: PDU, at, len: len as u64, tx });
    }

    /// After a gap: number of bytes to skip before the next message, or the parser's progress until it can be
    /// found. A message that the gap has cut has declared its length, so the next one begins at its end. If
    /// the gap reaches beyond that, the first complete message at any position is taken.
    fn find_again(&mut self, direction: Direction, data: &[u8], offset: u64) -> Result<usize, Progress> {
        if !self.lost[direction] {
            return Ok(0);
        }
        if let Some(left) = self.next[direction].checked_sub(offset) {
            let left = usize::try_from(left).unwrap_or(usize::MAX);
            if left > data.len() {
                return Err(Progress::Done);
            }
            self.lost[direction] = false;
            return Ok(left);
        }
        let at = search(direction, data)?;
        self.lost[direction] = false;
        Ok(at)
    }

    fn stream(
        &mut self,
        direction: Direction,
        Input { data, offset, .. }: Input<'_>,
        lenient: bool,
    ) -> Progress {
        let (data, offset, skipped) = match self.find_again(direction, data, offset) {
            Ok(skipped) => {
                let behind = data.get(skipped..).unwrap_or_default();
                (behind, offset.saturating_add(skipped as u64), skipped)
            }
            Err(progress) => return progress,
        };
        let mut rest = data;
        loop {
            let behind_skipped = data.len().saturating_sub(rest.len());
            let consumed = skipped.saturating_add(behind_skipped);
            let at = offset.saturating_add(behind_skipped as u64).saturating_add(PREFIX as u64);
            let Some((length, behind)) = rest.split_first_chunk::<PREFIX>() else {
                return match rest.is_empty() {
                    true => Progress::Done,
                    false => Progress::Incomplete { consumed, needed: PREFIX },
                };
            };
            let length = usize::from(u16::from_be_bytes(*length));
            let Some((message, behind)) = behind.split_at_checked(length) else {
                self.next[direction] = at.saturating_add(length as u64);
                return Progress::Incomplete { consumed, needed: length.saturating_add(PREFIX) };
            };
            self.note(direction, at, length);
            if lenient && (1..HEADER).contains(&length) {
                // Servers skip such a message and read the next one.
                self.short[direction] = true;
            } else if length > 0 && self.message(direction, message, lenient).is_err() {
                return Progress::Error;
            }
            rest = behind;
        }
    }
}

impl Parser for DnsParser {
    fn parse(&mut self, direction: Direction, input: Input<'_>, context: &mut ParseContext<'_>) -> Progress {
        match context.transport {
            Transport::Tcp => self.stream(direction, input, context.prevents),
            Transport::Udp => {
                self.note(direction, 0, input.data.len());
                // A bad datagram does not affect the next one.
                let _ = self.message(direction, input.data, context.prevents);
                Progress::Done
            }
        }
    }

    fn gap(&mut self, direction: Direction, _missing: u64, _context: &mut ParseContext<'_>) -> bool {
        self.lost[direction] = true;
        true
    }

    fn tx_range(&self) -> core::ops::Range<TxId> {
        self.held.range()
    }

    fn tx(&self, id: TxId) -> Option<&dyn Transaction> {
        self.held.get(id).map(|tx| tx as &dyn Transaction)
    }

    fn tx_mut(&mut self, id: TxId) -> Option<&mut dyn Transaction> {
        self.held.mark_mut(id).map(|tx| tx as &mut dyn Transaction)
    }

    fn silence(&mut self, id: TxId) {
        let Some(tx) = self.held.mark_mut(id) else { return };
        tx.common_mut().silent = true;
        let number = tx.message().header.id;
        if !tx.is_response() && !self.silent.contains(&number) {
            if self.silent.len() >= MAX_SILENT {
                self.silent.pop_front();
            }
            self.silent.push_back(number);
        }
    }

    fn free_tx(&mut self, id: TxId) {
        if let Some(tx) = self.held.get(id) {
            self.memory = self.memory.saturating_sub(tx.message().size());
        }
        self.held.free(id);
    }

    fn wants_raw(&mut self, direction: Direction) -> bool {
        core::mem::take(&mut self.read[direction])
    }

    fn frames(&mut self) -> Option<&mut Notes> {
        Some(&mut self.frames)
    }

    fn worklist(&self) -> &Worklist {
        self.held.worklist()
    }

    fn worklist_mut(&mut self) -> &mut Worklist {
        self.held.worklist_mut()
    }

    fn held(&mut self) -> usize {
        size_of::<Self>().saturating_add(self.silent.held()).saturating_add(self.held.held())
    }

    fn end(&mut self, _direction: Direction, _context: &mut ParseContext<'_>) {
        // Every transaction is complete from its beginning.
    }
}
