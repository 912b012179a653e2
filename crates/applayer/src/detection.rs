// SPDX-License-Identifier: Apache-2.0
//! Detects the protocol of a flow by its first bytes.
//!
//! There are two methods, in this order: literals that must lie in the first bytes of a direction, and probes
//! that a protocol offers for its ports. Both inspect the bytes from the start of the direction. A method is
//! finished once more bytes could not change its answer, and when all methods of a direction are finished
//! without an answer, the direction's protocol is unknown for good.
//!
//! Suricata does so, and records show the result. Receivers are more lenient: an HTTP server skips empty
//! lines and looks up methods that no list has, a TLS server accepts records of any version, a DNS server
//! checks little of a message's head. So prevention has a third method ([`Detector::likely`]): the reading of
//! a lenient receiver, on any port, or only at the protocol's own ports if nothing else indicates the
//! protocol. Its answer opens the parser before the receiver has answered, and does not change the result of
//! detection in records.

use crate::protocol::{Probe, ProbeFn, ProbePort, ProtocolId, ProtocolSpec, Transport};
use crate::protocols;
use bartizan_base::{Direction, PerDirection, SettingError, SettingsMap};

/// Result of detection on the first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detected {
    /// This protocol; the bytes are typical of the given direction.
    Protocol(ProtocolId, Direction),
    /// More bytes may give an answer.
    Pending,
    /// No protocol that this engine knows.
    Unknown,
}

/// The answer of lenient receivers to the first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Likely {
    /// A receiver of this protocol reads them.
    Yes(ProtocolId),
    /// More bytes may give an answer.
    More,
    /// No receiver reads them.
    No,
}

/// A literal of a protocol, compiled for one transport and direction.
#[derive(Debug)]
struct Literal {
    protocol: ProtocolId,
    bytes: &'static [u8],
    nocase: bool,
    offset: usize,
    depth: usize,
}

/// A port of a protocol's probe, after settings were applied.
#[derive(Debug)]
struct PortEntry {
    protocol: ProtocolId,
    transport: Transport,
    port: u16,
    /// The port is that of the flow's client (`sp`), else of its server.
    client: bool,
    min_depth: usize,
    max_depth: usize,
}

/// Probe that reads first bytes as receivers of a protocol do.
#[derive(Debug)]
struct Receiver {
    protocol: ProtocolId,
    transport: Transport,
    probe: ProbeFn,
    /// The protocol is known by its ports only, not by patterns, so the probe runs only at these ports.
    at_ports: bool,
}

/// Tables for protocol detection; built once from settings, shared by all flows.
#[derive(Debug, Default)]
pub struct Detector {
    literals: [PerDirection<Vec<Literal>>; 2],
    depth: [PerDirection<usize>; 2],
    ports: Vec<PortEntry>,
    likely: Vec<Receiver>,
    /// Enabled protocols over TCP.
    over_tcp: Vec<ProtocolId>,
    /// `stream.midstream`: a flow may be picked up from a response.
    midstream: bool,
}

/// Number of bytes before which detection of a TCP direction does not end without an answer: the reach of the
/// literals of the protocols that Suricata knows. Rules match on the end (`app-layer-protocol:failed`), and
/// records show it.
pub(crate) const LITERALS_END: PerDirection<usize> = PerDirection { to_server: 17, to_client: 10 };
/// Server port and number of bytes before which detection to this port does not end: after the preface of
/// HTTP/2, which Suricata expects at port 80.
const PREFACE_END: (u16, usize) = (80, 25);

/// Index of a transport in the tables.
const fn slot(transport: Transport) -> usize {
    match transport {
        Transport::Tcp => 0,
        Transport::Udp => 1,
    }
}

/// The switch of a protocol: `app-layer.protocols.NAME.enabled` or, for protocols on both transports,
/// `app-layer.protocols.NAME.tcp.enabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Neither detected nor parsed.
    Off,
    /// Detected, not parsed.
    DetectOnly,
    /// Detected and parsed.
    On,
}

/// Reads the switch of a protocol for a transport.
///
/// # Errors
/// The value is neither yes, no nor `detection-only`.
pub fn switch(
    spec: &ProtocolSpec,
    transport: Transport,
    settings: &SettingsMap,
) -> Result<Switch, SettingError> {
    let base = format!("app-layer.protocols.{}", spec.name);
    let own = match transport {
        Transport::Tcp => format!("{base}.tcp.enabled"),
        Transport::Udp => format!("{base}.udp.enabled"),
    };
    let general = format!("{base}.enabled");
    for key in [own, general] {
        match settings.get(&key) {
            None => {}
            Some("detection-only") => return Ok(Switch::DetectOnly),
            Some(text) => {
                return match bartizan_base::parse_bool(text) {
                    Some(true) => Ok(Switch::On),
                    Some(false) => Ok(Switch::Off),
                    None => Err(SettingError {
                        value: text.to_owned(),
                        key,
                        expected: "yes, no or detection-only",
                    }),
                };
            }
        }
    }
    Ok(if spec.enabled_by_default { Switch::On } else { Switch::Off })
}

impl Detector {
    /// Builds the tables for the enabled protocols.
    ///
    /// # Errors
    /// A setting of a protocol cannot be understood.
    pub fn new(settings: &SettingsMap) -> Result<Self, SettingError> {
        let mut detector =
            Detector { midstream: settings.bool("stream.midstream", false)?, ..Detector::default() };
        for (index, spec) in protocols::TABLE.iter().enumerate() {
            let id = ProtocolId(index as u8);
            for transport in spec.transports {
                if switch(spec, *transport, settings)? == Switch::Off {
                    continue;
                }
                detector.add_literals(id, spec, *transport);
                detector.add_ports(id, spec, *transport, settings);
                let at_ports = !spec.patterns.iter().any(|p| p.transport == *transport);
                let receiver = |probe| Receiver { protocol: id, transport: *transport, probe, at_ports };
                detector.likely.extend(spec.likely.map(receiver));
                if *transport == Transport::Tcp {
                    detector.over_tcp.push(id);
                }
            }
        }
        Ok(detector)
    }

    fn add_literals(&mut self, id: ProtocolId, spec: &ProtocolSpec, transport: Transport) {
        let (Some(literals), Some(depths)) =
            (self.literals.get_mut(slot(transport)), self.depth.get_mut(slot(transport)))
        else {
            return;
        };
        for pattern in spec.patterns.iter().filter(|p| p.transport == transport) {
            let depth = usize::from(pattern.depth);
            depths[pattern.direction] = depths[pattern.direction].max(depth);
            literals[pattern.direction].push(Literal {
                protocol: id,
                bytes: pattern.bytes,
                nocase: pattern.nocase,
                offset: usize::from(pattern.offset),
                depth,
            });
        }
    }

    fn add_ports(
        &mut self,
        id: ProtocolId,
        spec: &ProtocolSpec,
        transport: Transport,
        settings: &SettingsMap,
    ) {
        let name = match transport {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
        };
        let depths: Vec<&ProbePort> = spec.ports.iter().filter(|p| p.transport == transport).collect();
        let Some(first) = depths.first() else { return };
        let mut entry = |port: u16, client: bool| {
            self.ports.push(PortEntry {
                protocol: id,
                transport,
                port,
                client,
                min_depth: usize::from(first.min_depth),
                max_depth: usize::from(first.max_depth),
            });
        };
        let base = format!("app-layer.protocols.{}", spec.name);
        let list = |side: &str| {
            settings
                .get(&format!("{base}.{name}.detection-ports.{side}"))
                .or_else(|| settings.get(&format!("{base}.detection-ports.{side}")))
                .map(parse_ports)
        };
        match list("dp") {
            Some(ports) => ports.into_iter().for_each(|port| entry(port, false)),
            None => depths.iter().for_each(|p| entry(p.port, false)),
        }
        if let Some(ports) = list("sp") {
            ports.into_iter().for_each(|port| entry(port, true));
        }
    }

    /// Whether the bytes match a protocol to which both sides have agreed to switch. In prevention all bytes
    /// match one that nothing but the agreement shows: the receiver reads them in it.
    #[must_use]
    pub fn shows_expected(&self, id: ProtocolId, direction: Direction, data: &[u8], prevents: bool) -> bool {
        self.over_tcp.contains(&id) && (prevents && is_by_agreement(id) || shows(id, direction, data))
    }

    /// Whether a pattern or a port's probe could still detect a stream with more bytes. Suricata continues up
    /// to the length of its longest pattern; prevention calls this as well, so that detection ends as early
    /// as it can.
    #[must_use]
    pub fn is_open(&self, direction: Direction, ports: PerDirection<u16>, data: &[u8]) -> bool {
        let literals = self.literals.get(slot(Transport::Tcp)).map_or(&[][..], |l| &l[direction]);
        let refused = |id| probe_with(id, Transport::Tcp, direction, data) == Some(Probe::No);
        literals.iter().any(|l| l.may_occur(data) && !refused(l.protocol))
            || self.by_port(Transport::Tcp, direction, ports, data, false, false) == Detected::Pending
    }

    /// Detects the protocol by the bytes of a direction from its start.
    #[must_use]
    pub fn detect(
        &self,
        transport: Transport,
        direction: Direction,
        ports: PerDirection<u16>,
        data: &[u8],
        eof: bool,
    ) -> Detected {
        let mut pending = false;
        for id in self.by_literal(transport, direction, data) {
            match probe_with(id, transport, direction, data) {
                Some(Probe::Yes(shown)) => return Detected::Protocol(id, shown),
                None => return Detected::Protocol(id, direction),
                Some(Probe::More) => pending |= !eof,
                // The literal occurs by chance: another protocol may still match.
                Some(Probe::No) => {}
            }
        }
        let mut depth =
            self.depth.get(slot(transport)).map_or(0, |d| d[direction]).max(LITERALS_END[direction]);
        if self.midstream {
            // The first bytes may be a response, so both directions are tried.
            depth = depth.max(LITERALS_END.to_server);
        }
        if direction == Direction::ToServer && ports.to_server == PREFACE_END.0 {
            depth = depth.max(PREFACE_END.1);
        }
        let literals_done = data.len() >= depth || transport == Transport::Udp || eof;
        match self.by_port(transport, direction, ports, data, eof, true) {
            Detected::Unknown if pending || !literals_done => Detected::Pending,
            other => other,
        }
    }

    /// Whether a pattern of the other direction matches these bytes, if flows may be picked up in the middle:
    /// such a flow may have its sides exchanged. As in Suricata, this is checked when no pattern of their own
    /// direction can match any more.
    #[must_use]
    pub fn is_the_other_way(&self, direction: Direction, data: &[u8]) -> bool {
        let shows = |id| {
            !matches!(probe_with(id, Transport::Tcp, direction.flip(), data), Some(Probe::No | Probe::More))
        };
        self.midstream
            && data.len() >= LITERALS_END[direction]
            && self.by_literal(Transport::Tcp, direction.flip(), data).any(shows)
    }

    /// Whether a lenient receiver of some protocol would read these bytes, although no pattern and no probe
    /// matches. Suricata does not check this; prevention must know the protocol before the receiver acts, not
    /// from its response.
    #[must_use]
    pub fn likely(
        &self,
        transport: Transport,
        direction: Direction,
        ports: PerDirection<u16>,
        data: &[u8],
        eof: bool,
    ) -> Likely {
        let mut more = false;
        for receiver in self.likely.iter().filter(|r| r.transport == transport) {
            if receiver.at_ports && !self.is_port_of(receiver.protocol, transport, ports) {
                continue;
            }
            match (receiver.probe)(transport, direction, data) {
                Probe::Yes(_) => return Likely::Yes(receiver.protocol),
                Probe::More => more = true,
                Probe::No => {}
            }
        }
        if more && !eof { Likely::More } else { Likely::No }
    }

    /// The answer of receivers of all protocols except `id` to the bytes, from their start on.
    #[must_use]
    pub fn rival(
        &self,
        id: ProtocolId,
        transport: Transport,
        direction: Direction,
        ports: PerDirection<u16>,
        data: &[u8],
    ) -> Probe {
        let mut found = Probe::No;
        for receiver in self.likely.iter().filter(|r| r.transport == transport && r.protocol != id) {
            if receiver.at_ports && !self.is_port_of(receiver.protocol, transport, ports) {
                continue;
            }
            match (receiver.probe)(transport, direction, data) {
                Probe::No => {}
                Probe::More => found = Probe::More,
                yes @ Probe::Yes(_) => return yes,
            }
        }
        found
    }

    /// Whether a protocol is expected at a flow's ports.
    fn is_port_of(&self, id: ProtocolId, transport: Transport, ports: PerDirection<u16>) -> bool {
        self.ports.iter().filter(|e| e.protocol == id && e.transport == transport).any(|e| {
            let port = if e.client { ports.to_client } else { ports.to_server };
            e.port == 0 || e.port == port
        })
    }

    /// Protocols with a literal in these bytes, in the order of the table.
    fn by_literal(
        &self,
        transport: Transport,
        direction: Direction,
        data: &[u8],
    ) -> impl Iterator<Item = ProtocolId> {
        let literals = self.literals.get(slot(transport)).map_or(&[][..], |l| &l[direction]);
        literals.iter().filter(move |l| l.occurs(data)).map(|l| l.protocol)
    }

    /// Runs the probes of the flow's ports. `late`: a probe that refused the bytes stays open up to its
    /// depth.
    fn by_port(
        &self,
        transport: Transport,
        direction: Direction,
        ports: PerDirection<u16>,
        data: &[u8],
        eof: bool,
        late: bool,
    ) -> Detected {
        let mut pending = false;
        for entry in self.ports.iter().filter(|e| e.transport == transport) {
            let port = if entry.client { ports.to_client } else { ports.to_server };
            // A flow that is picked up from its response has its ports exchanged. For datagrams Suricata runs
            // a probe then only if the settings let flows begin in the middle.
            let reversed = (transport == Transport::Tcp || self.midstream) && entry.port == ports.to_client;
            if entry.port != 0 && entry.port != port && !reversed {
                continue;
            }
            if data.len() < entry.min_depth {
                pending = true;
                continue;
            }
            match probe_with(entry.protocol, transport, direction, data) {
                Some(Probe::Yes(shown)) => return Detected::Protocol(entry.protocol, shown),
                // Suricata gives a probe up only after its depth.
                Some(Probe::No) if late && entry.max_depth != 0 && data.len() <= entry.max_depth => {
                    pending = true
                }
                Some(Probe::More) if entry.max_depth == 0 || data.len() < entry.max_depth => pending = true,
                _ => {}
            }
        }
        if pending && !eof && transport == Transport::Tcp { Detected::Pending } else { Detected::Unknown }
    }
}

impl Literal {
    /// Whether the literal could lie in these bytes and later ones.
    fn may_occur(&self, data: &[u8]) -> bool {
        let last = self.depth.saturating_sub(self.bytes.len());
        (self.offset..=last).any(|at| {
            let there = data.get(at..).unwrap_or_default();
            let there = there.get(..self.bytes.len()).unwrap_or(there);
            let head = self.bytes.get(..there.len()).unwrap_or_default();
            if self.nocase { there.eq_ignore_ascii_case(head) } else { there == head }
        })
    }

    fn occurs(&self, data: &[u8]) -> bool {
        let end = self.depth.min(data.len());
        let Some(window) = data.get(self.offset..end) else { return false };
        if self.nocase {
            window.windows(self.bytes.len()).any(|w| w.eq_ignore_ascii_case(self.bytes))
        } else {
            memchr::memmem::find(window, self.bytes).is_some()
        }
    }
}

/// Whether the bytes of a stream's direction match the protocol that was detected in the other direction.
#[must_use]
pub fn shows(id: ProtocolId, direction: Direction, data: &[u8]) -> bool {
    probe_with(id, Transport::Tcp, direction, data) == Some(Probe::Yes(direction))
}

/// Whether no first bytes show a protocol, only an agreement of both sides (WebSocket).
#[must_use]
pub fn is_by_agreement(id: ProtocolId) -> bool {
    protocols::spec(id).is_some_and(|spec| spec.patterns.is_empty() && spec.ports.is_empty())
}

/// Whether the bytes match a protocol that is known already.
#[must_use]
pub fn shows_any(known: Option<ProtocolId>, direction: Direction, data: &[u8]) -> bool {
    known.is_some_and(|id| shows(id, direction, data))
}

fn probe_with(id: ProtocolId, transport: Transport, direction: Direction, data: &[u8]) -> Option<Probe> {
    let probe = protocols::spec(id)?.probe?;
    Some(probe(transport, direction, data))
}

/// Ports of a setting: `5060, 5061` or `[80,8080]`; ranges `5900:5909`. Malformed items are left out.
fn parse_ports(text: &str) -> Vec<u16> {
    let mut ports = Vec::new();
    for part in text.trim().trim_start_matches('[').trim_end_matches(']').split(',') {
        let part = part.trim();
        match part.split_once([':', '-']) {
            Some((low, high)) => {
                if let (Ok(low), Ok(high)) = (low.trim().parse::<u16>(), high.trim().parse::<u16>()) {
                    ports.extend(low..=high);
                }
            }
            None => ports.extend(part.parse::<u16>().ok()),
        }
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_lists() {
        assert_eq!(parse_ports("5060, 5061"), [5060, 5061]);
        assert_eq!(parse_ports("[80:82,443]"), [80, 81, 82, 443]);
        assert!(parse_ports("$HTTP_PORTS").is_empty());
    }

    #[test]
    fn a_datagram_from_the_port_of_a_protocol_is_not_probed() {
        let detector = Detector::new(&SettingsMap::new()).unwrap();
        let answer = b"\x00\x01\x81\x80\x00\x01\x00\x00\x00\x00\x00\x00\x03abc\x03com\x00\x00\x01\x00\x01";
        let detect = |transport, to_server, to_client, data: &[u8]| {
            let ports = PerDirection::new(to_server, to_client);
            detector.detect(transport, Direction::ToServer, ports, data, false)
        };
        assert!(matches!(
            detect(Transport::Udp, 53, 4_000, answer),
            Detected::Protocol(_, Direction::ToClient)
        ));
        assert_eq!(detect(Transport::Udp, 4_000, 53, answer), Detected::Unknown);
        // A connection may have been picked up from its response.
        let framed = [&[0, answer.len() as u8][..], answer].concat();
        let tcp = detect(Transport::Tcp, 4_000, 53, &framed);
        assert!(matches!(tcp, Detected::Protocol(_, Direction::ToClient)), "{tcp:?}");
    }

    #[test]
    fn detection_ends_behind_the_longest_literal() {
        let detector = Detector::new(&SettingsMap::new()).unwrap();
        let ports = PerDirection::new(4_000, 4_001);
        for direction in Direction::BOTH {
            let literals = crate::protocols::TABLE.iter().flat_map(|spec| spec.patterns);
            let of_side = literals.filter(|of| (of.transport, of.direction) == (Transport::Tcp, direction));
            let length = of_side.map(|of| usize::from(of.depth)).max().unwrap();
            let detect =
                |length| detector.detect(Transport::Tcp, direction, ports, &vec![b'q'; length], false);
            assert_eq!(detect(length - 1), Detected::Pending, "{direction:?}");
            assert_eq!(detect(length), Detected::Unknown, "{direction:?}");
        }
    }
}
