// SPDX-License-Identifier: Apache-2.0
//! A function alone on a bench: packets are decoded, their flows and TCP sessions are tracked as the data plane does
//! it, its rules on headers are searched one by one, and the function says what it says.
#![allow(dead_code)] // Each test uses a part.

use bartizan_base::{
    Decision, Direction, Fid, FunctionId, Generation, LinkId, PerDirection, TenantId, Timestamp,
};
use bartizan_classify::Header;
use bartizan_flow::stream::MemoryBudget;
use bartizan_flow::tcp::{
    Arrival, HostPolicy, Outcome, Segment, SegmentOptions, Seq, StreamConfig, StreamContext, StreamCounters,
    TcpFlags, TcpSession,
};
use bartizan_flow::{FlowKey, FlowScope};
use bartizan_function::header::{header_of_packet, icmp_numbers};
use bartizan_function::{
    FlowView, Function, FunctionKind, HeaderRules, Notes, PacketContext, RuleSource, RulesError, Slot,
    WorkerState,
};
use bartizan_packet::{DecodeOutput, Decoded, Decoder, DecoderConfig, LinkType, PacketView, Transport};
use core::net::IpAddr;
use std::collections::HashMap;

pub const SYN: u8 = 0x02;
pub const ACK: u8 = 0x10;
pub const PSH: u8 = 0x08;
pub const RST: u8 = 0x04;
pub const FIN: u8 = 0x01;

/// A pair of addresses; both versions go through every test.
pub const PAIRS: [(&str, &str); 2] = [("10.0.0.1", "192.168.1.2"), ("2001:db8::1", "fd00::2")];

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// An IP packet around a transport header.
pub fn packet(source: IpAddr, destination: IpAddr, protocol: u8, body: &[u8]) -> Vec<u8> {
    match (source, destination) {
        (IpAddr::V4(s), IpAddr::V4(d)) => {
            let length = (20 + body.len()) as u16;
            let mut p = vec![0x45, 0];
            p.extend(length.to_be_bytes());
            p.extend([0, 1, 0, 0, 64, protocol, 0, 0]);
            p.extend(s.octets());
            p.extend(d.octets());
            p.extend(body);
            p
        }
        (IpAddr::V6(s), IpAddr::V6(d)) => {
            let mut p = vec![0x60, 0, 0, 0];
            p.extend((body.len() as u16).to_be_bytes());
            p.extend([protocol, 64]);
            p.extend(s.octets());
            p.extend(d.octets());
            p.extend(body);
            p
        }
        _ => panic!("two versions"),
    }
}

pub fn udp(from: (IpAddr, u16), to: (IpAddr, u16), data: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(from.1.to_be_bytes());
    body.extend(to.1.to_be_bytes());
    body.extend((8 + data.len() as u16).to_be_bytes());
    body.extend([0, 0]);
    body.extend(data);
    packet(from.0, to.0, 17, &body)
}

pub fn tcp(from: (IpAddr, u16), to: (IpAddr, u16), flags: u8, seq: u32, ack: u32, data: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(from.1.to_be_bytes());
    body.extend(to.1.to_be_bytes());
    body.extend(seq.to_be_bytes());
    body.extend(ack.to_be_bytes());
    body.extend([0x50, flags]);
    body.extend(8192u16.to_be_bytes());
    body.extend([0, 0, 0, 0]);
    body.extend(data);
    packet(from.0, to.0, 6, &body)
}

/// An ICMP message of the version of the addresses; `kind` is (ICMP type, ICMPv6 type).
pub fn icmp(from: IpAddr, to: IpAddr, kind: (u8, u8), code: u8, rest: &[u8]) -> Vec<u8> {
    let (protocol, kind) = if from.is_ipv4() { (1, kind.0) } else { (58, kind.1) };
    let mut body = vec![kind, code, 0, 0];
    body.extend(rest);
    packet(from, to, protocol, &body)
}

/// An ICMP error that quotes a packet.
pub fn icmp_error(from: IpAddr, to: IpAddr, kind: (u8, u8), quoted: &[u8]) -> Vec<u8> {
    let mut rest = vec![0; 4];
    rest.extend(quoted);
    icmp(from, to, kind, 0, &rest)
}

struct Flow {
    id: u64,
    client: (IpAddr, u16),
    server: (IpAddr, u16),
    session: TcpSession,
    slot: Slot,
    packets: PerDirection<u64>,
    on_path: bool,
}

/// See the module.
pub struct Bench {
    pub function: Box<dyn Function>,
    pub worker: WorkerState,
    header_rules: Vec<HeaderRules>,
    pub fid: Fid,
    pub tenant: TenantId,
    pub config: StreamConfig,
    pub now: Timestamp,
    flows: HashMap<FlowKey, Flow>,
    decoder: Decoder,
    next: u64,
}

/// One policy's class for a function's rules: fid 1, from 10/8 and 2001:db8::/32.
pub fn class(rules: &str) -> String {
    format!(
        r#"{{"tenants": {{"default": 0, "a": 1}}, "groups": {{"bad": ["10.9.0.0/16", "2001:db8:9::/48"]}},
            "classes": [{{"policy": "web", "fids": [1], "from": ["10.0.0.0/8", "2001:db8::/32"], "to": ["0.0.0.0/0", "::/0"], "rules": {rules}}}]}}"#
    )
}

pub fn make(
    kind: &dyn FunctionKind,
    json: &str,
    generation: u64,
) -> Result<Box<dyn Function>, Vec<RulesError>> {
    let rules = serde_json::from_str(json).unwrap();
    let source =
        RuleSource { rules: &rules, place: "test", generation: Generation(generation), id: FunctionId(1) };
    kind.rules(&source)
}

fn key_of(packet: &Decoded) -> FlowKey {
    let scope = FlowScope::default();
    match packet.about() {
        Some(quoted) => FlowKey::of_quoted(&scope, quoted),
        None => FlowKey::of_packet(&scope, packet).unwrap(),
    }
}

impl Bench {
    pub fn new(kind: &dyn FunctionKind, rules: &str) -> Self {
        let mut function = make(kind, &class(rules), 1).unwrap();
        let worker = function.worker();
        Bench {
            header_rules: function.take_header_rules(),
            function,
            worker,
            fid: Fid(1),
            tenant: TenantId(0),
            config: StreamConfig { checksum_validation: false, ..StreamConfig::default() },
            now: Timestamp::from_parts(1_000, 0),
            flows: HashMap::new(),
            decoder: Decoder::new(DecoderConfig::built_in()),
            next: 1,
        }
    }

    /// Another generation of the same rules or others.
    pub fn generation(&mut self, kind: &dyn FunctionKind, rules: &str, generation: u64) {
        self.function = make(kind, &class(rules), generation).unwrap();
        self.header_rules = self.function.take_header_rules();
        self.worker = self.function.worker();
        for flow in self.flows.values_mut() {
            flow.on_path = true;
        }
    }

    /// The flows end.
    pub fn end_flows(&mut self) {
        self.flows.clear();
    }

    pub fn counter(&self, name: &str) -> u64 {
        let mut value = None;
        self.function.log(&self.worker, &mut |n, v| {
            if n == name {
                value = Some(v);
            }
        });
        value.unwrap_or_else(|| panic!("no counter {name}"))
    }

    /// The function's rule for a header.
    fn matches(&self, header: &Header) -> Vec<(FunctionId, u32)> {
        let own = self.header_rules.iter().find(|r| r.fids.is_empty() || r.fids.contains(&self.fid));
        let all = own.iter().flat_map(|own| &own.rules);
        let found = all.filter(|(_, rule)| rule.matches(header)).map(|(number, _)| *number).min();
        found.map(|number| (self.function.id(), number)).into_iter().collect()
    }

    /// Runs a packet; `None` when the function is no longer on the flow's path.
    pub fn run(&mut self, bytes: &[u8]) -> Option<Decision> {
        let mut out = DecodeOutput::default();
        self.decoder.decode(LinkType::RAW, bytes, bytes.len() as u32, &mut out);
        let packet = out.outer().unwrap().clone();
        assert!(!packet.is_invalid(), "{:?}", packet.events.as_slice());
        let view = PacketView::new(bytes, &packet);
        let key = key_of(&packet);
        let error_of_flow = packet.about().is_some();
        let (source, port) = (packet.src().unwrap(), packet.ports().map_or(0, |p| p.0));
        if !self.flows.contains_key(&key) && !error_of_flow {
            let flow = self.open(&packet);
            self.flows.insert(key, flow);
        }
        let mut outcome = Outcome::default();
        let header = header_of_packet(&packet, self.tenant, LinkId(0)).unwrap();
        let mut matches = self.matches(&header);
        let related = packet.about().map(|_| self.flows.contains_key(&key));
        let mut notes = Notes { fid: self.fid, related, ..Notes::default() };
        let mut findings = Vec::new();
        let mut edits = Vec::new();
        let mut staged = 0;
        let Some(flow) = self.flows.get_mut(&key) else {
            let mut slot = None;
            let mut reject = None;
            notes.matches = &matches;
            let mut context = context(
                self.now,
                &view,
                None,
                Direction::ToServer,
                &notes,
                &mut self.worker,
                &mut slot,
                &mut staged,
                &mut reject,
                &mut findings,
                &mut edits,
            );
            return Some(self.function.packet(&mut context));
        };
        let mut direction = if flow.client == (source, port) || (port == 0 && flow.client.0 == source) {
            Direction::ToServer
        } else {
            Direction::ToClient
        };
        if let Transport::Tcp(header) = &packet.transport {
            let segment = Segment {
                seq: Seq(header.seq),
                ack: Seq(header.ack),
                flags: TcpFlags::from_bits_retain(header.flags.bits()),
                window: header.window,
                urgent: 0,
                options: SegmentOptions::default(),
                payload: view.payload(),
                payload_len_on_wire: packet.payload_len,
                checksum_ok: true,
            };
            let mut counters = StreamCounters::default();
            let mut budget = MemoryBudget::new(1 << 20);
            let mut stream =
                StreamContext { config: &self.config, counters: &mut counters, budget: &mut budget };
            let arrival = Arrival { direction, now: self.now, policy: HostPolicy::default() };
            flow.session.handle(&segment, arrival, None, &mut stream, &mut outcome);
            if outcome.reuse {
                let id = flow.id + 1000;
                *flow = Flow {
                    id,
                    client: (source, port),
                    server: (packet.dst().unwrap(), header.dport),
                    session: TcpSession::default(),
                    slot: None,
                    packets: PerDirection::default(),
                    on_path: true,
                };
                direction = Direction::ToServer;
                let arrival = Arrival { direction, ..arrival };
                flow.session.handle(&segment, arrival, None, &mut stream, &mut outcome);
            }
            if outcome.reverse {
                core::mem::swap(&mut flow.client, &mut flow.server);
                direction = direction.flip();
            }
            notes.tcp = Some(&outcome);
        }
        flow.packets[direction] += 1;
        if !flow.on_path {
            return None;
        }
        let (protocol, client, server) = (key.protocol(), flow.client, flow.server);
        let icmp = icmp_numbers(&packet, direction);
        let ports = if key.is_icmp() { icmp } else { (client.1, server.1) };
        matches = self.matches(&Header {
            source: client.0,
            destination: server.0,
            protocol,
            source_port: ports.0,
            destination_port: ports.1,
            ..header
        });
        notes.matches = &matches;
        let flow = self.flows.get_mut(&key)?;
        let established = match &notes.tcp {
            Some(o) => o.established || o.established_now,
            None => flow.packets.to_server > 0 && flow.packets.to_client > 0,
        };
        let flow_view = FlowView {
            id: flow.id,
            tenant: self.tenant,
            protocol: key.protocol(),
            client: flow.client,
            server: flow.server,
            turned: false,
            start: self.now,
            last_seen: self.now,
            packets: flow.packets,
            bytes: flow.packets,
            established,
            tcp: (key.protocol() == 6).then_some(&flow.session),
            app: Default::default(),
        };
        let mut reject = None;
        let mut context = context(
            self.now,
            &view,
            Some(&flow_view),
            direction,
            &notes,
            &mut self.worker,
            &mut flow.slot,
            &mut staged,
            &mut reject,
            &mut findings,
            &mut edits,
        );
        let decision = self.function.packet(&mut context);
        flow.on_path = !decision.done;
        Some(decision)
    }

    fn open(&mut self, packet: &Decoded) -> Flow {
        self.next += 1;
        let (s, d) = packet.ports().unwrap_or((0, 0));
        Flow {
            id: self.next,
            client: (packet.src().unwrap(), s),
            server: (packet.dst().unwrap(), d),
            session: TcpSession::default(),
            slot: None,
            packets: PerDirection::default(),
            on_path: true,
        }
    }

    /// Why a packet is refused; `None` when it goes on.
    pub fn refused(&mut self, bytes: &[u8]) -> Option<bartizan_base::Reason> {
        let decision = self.run(bytes)?;
        (!decision.verdict.forwards()).then(|| decision.reason.expect("no refusal without a reason"))
    }
}

#[allow(clippy::too_many_arguments)] // The parts of a context, borrowed from several places.
fn context<'a>(
    now: Timestamp,
    packet: &'a PacketView<'a>,
    flow: Option<&'a FlowView<'a>>,
    direction: Direction,
    notes: &'a Notes<'a>,
    worker: &'a mut WorkerState,
    slot: &'a mut Slot,
    staged: &'a mut u64,
    reject: &'a mut Option<bartizan_function::RejectTo>,
    findings: &'a mut Vec<bartizan_function::Finding>,
    edits: &'a mut Vec<bartizan_function::Edit>,
) -> PacketContext<'a> {
    let _ = LinkId(0);
    PacketContext {
        now,
        packet: Some(packet),
        direction,
        flow,
        app: None,
        app_events: &[],
        again: false,
        detection_done: false,
        stream: None,
        payload_in_stream: false,
        stream_events: &[],
        notes,
        worker,
        slot,
        staged,
        reject,
        findings,
        edits,
        prevention: true,
    }
}
