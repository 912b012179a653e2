// SPDX-License-Identifier: Apache-2.0
//! DCERPC over TCP (C706 chapter 12, [MS-RPCE]) and over UDP (C706 section 12.5).
//!
//! A transaction is a BIND, an ALTER_CONTEXT or a request, with its answer. As in Suricata, over TCP an
//! answer is complete with its first fragment: a later one is a transaction of its own, and the bytes of an
//! answer for rules begin with its fields.
//!
//! - `pdu`: messages of TCP, also those in pipes of SMB; `datagram`: messages of UDP;
//! - `parser`, `tx`: transactions; `tables`: bounds, buffers, settings.
//!
//! Settings (below `app-layer.protocols.dcerpc`): `max-tx`, `max-stub-size`.
//!
//! Not supported: arguments that are signed and encrypted; the mapping of ports.

mod datagram;
mod parser;
pub(crate) mod pdu;
mod tables;
#[cfg(test)]
mod tests;
mod tx;

use crate::event::UNEXPECTED_PROTOCOL;
use crate::protocol::{
    CounterSpec, DetectionPattern, Parser, ParserFactory, Probe, ProtocolSpec, RecordSpec, Transport,
};
use bartizan_base::limit::LimitTrace::Nothing;
use bartizan_base::limit::{LimitSpec, bytes, count};
use bartizan_base::{Direction, PerDirection, SettingError, SettingsMap, limits};
use tables::{BUFFERS, COMPLETE, INTERFACES_MAX, RpcConfig, STUB_MAX, TX_MAX, is_representation};

/// DCERPC's entry in the table of protocols.
pub static SPEC: ProtocolSpec = ProtocolSpec {
    name: "dcerpc",
    aliases: &[],
    family: None,
    carries: None,
    exact_name: "dcerpc",
    eve_name: "dcerpc",
    eve_type: Some("dcerpc"),
    records: RecordSpec::PLAIN,
    counters: CounterSpec { by_transport: true, ..CounterSpec::PLAIN },
    transports: &[Transport::Tcp, Transport::Udp],
    patterns: PATTERNS,
    ports: &[],
    probe: Some(probe),
    likely: None,
    enabled_by_default: true,
    complete: PerDirection::new(COMPLETE, COMPLETE),
    states: PerDirection {
        to_server: &["request_started", "request_complete"],
        to_client: &["response_started", "response_complete"],
    },
    buffers: BUFFERS,
    numbers: &[],
    encrypted: None,
    frames: &["stream", "pdu", "hdr", "data"],
    events: &[],
    absent: UNEXPECTED_PROTOCOL,
    has_trailing_bytes: false,
    limits: LIMITS,
    configure,
};

const fn first(transport: Transport, direction: Direction, bytes: &'static [u8]) -> DetectionPattern {
    DetectionPattern { transport, direction, bytes, nocase: false, offset: 0, depth: 2 }
}

/// First bytes of messages: their version, and over UDP that they are requests.
const PATTERNS: &[DetectionPattern] = &[
    first(Transport::Tcp, Direction::ToServer, b"\x05\x00"),
    first(Transport::Tcp, Direction::ToClient, b"\x05\x00"),
    first(Transport::Udp, Direction::ToServer, b"\x04\x00"),
];

/// Bounds of this protocol.
pub(crate) const LIMITS: &[LimitSpec] = limits! {
    Protocol "DCERPC: transactions of a flow without an end (`max-tx`)" = "{}" [count(TX_MAX)] in ["applayer/protocols/dcerpc/tables.rs"],
        "the oldest ends", [Nothing];
    Protocol "DCERPC: arguments or results (`max-stub-size`), interfaces of a connection" = "{}, {}"
        [bytes(STUB_MAX), count(INTERFACES_MAX)] in ["applayer/protocols/dcerpc/tables.rs"], "further bytes, and interfaces, are left out", [Nothing];
};

/// Matches the header of a message.
fn probe(transport: Transport, direction: Direction, data: &[u8]) -> Probe {
    match transport {
        Transport::Udp => match datagram::RpcDatagram::read(data) {
            Some(_) if data.get(1) == Some(&pdu::REQUEST) => Probe::Yes(Direction::ToServer),
            Some(_) => Probe::Yes(Direction::ToClient),
            None => Probe::No,
        },
        Transport::Tcp => {
            let is_odd =
                |at: usize, is_good: fn(u8) -> bool| data.get(at).is_some_and(|byte| !is_good(*byte));
            if is_odd(0, |byte| byte == 5)
                || is_odd(1, |byte| byte == 0)
                || is_odd(2, |byte| byte <= pdu::LAST_KIND)
                || is_odd(4, |byte| is_representation(byte, 0))
                || is_odd(5, |byte| is_representation(0, byte))
            {
                return Probe::No;
            }
            match data.get(..pdu::HEAD).and_then(pdu::RpcHead::read) {
                Some(head) => Probe::Yes(head.sender().unwrap_or(direction)),
                None if data.len() < pdu::HEAD => Probe::More,
                None => Probe::No,
            }
        }
    }
}

fn configure(settings: &SettingsMap) -> Result<Box<dyn ParserFactory>, SettingError> {
    let stub = settings.size("max-stub-size", STUB_MAX as u64)?;
    let max_tx = settings.number("max-tx", TX_MAX)?.max(1);
    let config = RpcConfig { max_tx, stub: usize::try_from(stub).unwrap_or(usize::MAX) };
    Ok(Box::new(RpcFactory { config }))
}

struct RpcFactory {
    config: RpcConfig,
}

impl ParserFactory for RpcFactory {
    fn make(&self) -> Box<dyn Parser> {
        Box::new(parser::RpcParser::new(self.config))
    }
}
