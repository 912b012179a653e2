// SPDX-License-Identifier: Apache-2.0
//! What the tests of workers share: frames built by hand, functions that write down what they see.
#![allow(dead_code)] // Not every test uses everything.

use bartizan_applayer::file::FileSettings;
use bartizan_applayer::flow::Engine;
use bartizan_base::{Decision, FunctionId, Generation, LinkId, RuleId, Settings, Timestamp};
use bartizan_dataplane::chain::Chains;
use bartizan_dataplane::settings::EngineSettings;
use bartizan_dataplane::worker::Frame;
use bartizan_function::{
    Finding, FindingAction, Function, FunctionSpec, Model, PacketContext, RuleInfo, WorkerState,
};
use bartizan_packet::{LinkType, PacketSource, Transport};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

/// A frame with its time.
#[derive(Clone, Debug)]
pub struct Captured {
    pub now: Timestamp,
    pub bytes: Vec<u8>,
}

impl Captured {
    pub fn frame(&self, number: u64) -> Frame<'_> {
        Frame {
            now: self.now,
            bytes: &self.bytes,
            wire_len: self.bytes.len() as u32,
            link_type: LinkType::ETHERNET,
            link: LinkId(0),
            number: Some(number),
        }
    }
}

pub fn ethernet(v6: bool, ip: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend_from_slice(if v6 { &[0x86, 0xdd] } else { &[8, 0] });
    frame.extend_from_slice(ip);
    frame
}

fn v6_address(host: u8) -> [u8; 16] {
    [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]
}

pub fn address(v6: bool, host: u8) -> IpAddr {
    if v6 { IpAddr::from(v6_address(host)) } else { IpAddr::from([10, 0, 0, host]) }
}

/// Offset in bytes and whether more fragments follow, with the datagram's id.
type Part = Option<(u16, bool, u32)>;

fn ip_header(v6: bool, (src, dst): (u8, u8), proto: u8, part: Part, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    if v6 {
        let extra = if part.is_some() { 8 } else { 0 };
        out.extend_from_slice(&[0x60, 0, 0, 0]);
        out.extend_from_slice(&(body.len() as u16 + extra).to_be_bytes());
        out.extend_from_slice(&[if part.is_some() { 44 } else { proto }, 64]);
        out.extend_from_slice(&v6_address(src));
        out.extend_from_slice(&v6_address(dst));
        if let Some((offset, more, id)) = part {
            out.extend_from_slice(&[proto, 0]);
            out.extend_from_slice(&(offset | u16::from(more)).to_be_bytes());
            out.extend_from_slice(&id.to_be_bytes());
        }
    } else {
        let (offset, more, id) = part.unwrap_or((0, false, 7));
        out.extend_from_slice(&[0x45, 0]);
        out.extend_from_slice(&(body.len() as u16 + 20).to_be_bytes());
        out.extend_from_slice(&(id as u16).to_be_bytes());
        out.extend_from_slice(&((offset / 8) | (u16::from(more) << 13)).to_be_bytes());
        out.extend_from_slice(&[64, proto, 0, 0, 10, 0, 0, src, 10, 0, 0, dst]);
        let sum = bartizan_packet::InternetChecksum::new().with(&out).finish();
        out[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    out.extend_from_slice(body);
    out
}

pub fn ip(v6: bool, ends: (u8, u8), proto: u8, body: &[u8]) -> Vec<u8> {
    ip_header(v6, ends, proto, None, body)
}

/// The fragments of a datagram, `size` bytes each (a multiple of 8).
pub fn fragments(v6: bool, ends: (u8, u8), proto: u8, id: u32, body: &[u8], size: usize) -> Vec<Vec<u8>> {
    let pieces: Vec<&[u8]> = body.chunks(size).collect();
    pieces
        .iter()
        .enumerate()
        .map(|(index, piece)| {
            let part = Some(((index * size) as u16, index + 1 < pieces.len(), id));
            ip_header(v6, ends, proto, part, piece)
        })
        .collect()
}

pub fn udp(ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&ports.0.to_be_bytes());
    out.extend_from_slice(&ports.1.to_be_bytes());
    out.extend_from_slice(&(payload.len() as u16 + 8).to_be_bytes());
    // No checksum; the tests do not check them.
    out.extend_from_slice(&[0x11, 0x11]);
    out.extend_from_slice(payload);
    out
}

pub fn tcp(ports: (u16, u16), seq: u32, ack: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&ports.0.to_be_bytes());
    out.extend_from_slice(&ports.1.to_be_bytes());
    out.extend_from_slice(&seq.to_be_bytes());
    out.extend_from_slice(&ack.to_be_bytes());
    out.extend_from_slice(&[0x50, flags, 0x40, 0, 0, 0, 0, 0]);
    out.extend_from_slice(payload);
    out
}

/// GRE around an IP packet.
pub fn gre(v6_inside: bool, inner: &[u8]) -> Vec<u8> {
    let mut out = vec![0, 0];
    out.extend_from_slice(if v6_inside { &[0x86, 0xdd] } else { &[8, 0] });
    out.extend_from_slice(inner);
    out
}

/// ICMP (IPv4) port unreachable about a packet.
pub fn unreachable(quoted: &[u8]) -> Vec<u8> {
    let mut out = vec![3, 3, 0, 0, 0, 0, 0, 0];
    out.extend_from_slice(&quoted[..quoted.len().min(28)]);
    let sum = bartizan_packet::InternetChecksum::new().with(&out).finish();
    out[2..4].copy_from_slice(&sum.to_be_bytes());
    out
}

/// What a function saw of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub worker: u16,
    pub generation: u64,
    pub now: Timestamp,
    /// Lower and higher (address, port), protocol: the flow whichever way round.
    pub flow: Option<[(IpAddr, u16); 2]>,
    pub protocol: u8,
    /// Inside so many tunnels: another flow for each.
    pub level: u8,
    /// Flow and number that the test put into the payload.
    pub mark: Option<(u32, u32)>,
}

/// Writes down each packet; refuses those whose payload says `drop`, reports those that say `evil`.
pub struct Watch {
    pub generation: u64,
    pub workers: AtomicU16,
    pub seen: Arc<Mutex<Vec<Seen>>>,
    pub rule: Arc<RuleInfo>,
}

static SPEC: FunctionSpec = spec("find", Model::Payload);
pub static HEADER_SPEC: FunctionSpec = spec("watch", Model::StatefulHeaders);

/// A function of a test that only looks.
pub const fn spec(name: &'static str, model: Model) -> FunctionSpec {
    FunctionSpec {
        name,
        summary: "Writes down what it sees.",
        model,
        runs_after: &[],
        runs_before: &[],
        buffers: &[],
        header_half: None,
        counters: &[],
    }
}

pub const MARK: &[u8; 4] = b"mark";

fn find(payload: &[u8], word: &[u8]) -> bool {
    payload.windows(word.len()).any(|w| w == word)
}

pub fn mark(flow: u32, number: u32, size: usize) -> Vec<u8> {
    let mut payload = MARK.to_vec();
    payload.extend_from_slice(&flow.to_be_bytes());
    payload.extend_from_slice(&number.to_be_bytes());
    payload.resize(size.max(12), b'.');
    payload
}

pub fn read_mark(payload: &[u8]) -> Option<(u32, u32)> {
    let rest = payload.strip_prefix(MARK)?;
    let (flow, rest) = rest.split_first_chunk()?;
    let (number, _) = rest.split_first_chunk()?;
    Some((u32::from_be_bytes(*flow), u32::from_be_bytes(*number)))
}

impl Function for Watch {
    fn spec(&self) -> &'static FunctionSpec {
        &HEADER_SPEC
    }

    fn id(&self) -> FunctionId {
        FunctionId(0)
    }

    fn worker(&self) -> WorkerState {
        Box::new(self.workers.fetch_add(1, Ordering::Relaxed))
    }

    fn packet(&self, context: &mut PacketContext<'_>) -> Decision {
        let Some(packet) = context.packet else { return Decision::CONTINUE };
        let decoded = packet.decoded();
        if decoded.source == PacketSource::FlowTimeout {
            return Decision::CONTINUE;
        }
        let payload = packet.payload();
        let ports = decoded.ports().unwrap_or_default();
        let flow = decoded.src().zip(decoded.dst()).map(|(src, dst)| {
            let mut ends = [(src, ports.0), (dst, ports.1)];
            ends.sort_unstable();
            ends
        });
        let has_inner = decoded.flags.contains(bartizan_packet::PacketFlags::HAS_INNER);
        self.seen.lock().unwrap().push(Seen {
            worker: *context.worker.downcast_ref::<u16>().unwrap(),
            generation: self.generation,
            now: context.now,
            flow: flow.filter(|_| context.flow.is_some()),
            protocol: decoded.proto().unwrap_or(0),
            level: decoded.recursion,
            mark: if has_inner { None } else { read_mark(payload) },
        });
        if context.prevention && find(payload, b"drop") {
            return Decision::refuse(
                bartizan_base::Verdict::Drop,
                bartizan_base::Reason::PfwRule,
                FunctionId(0),
            );
        }
        Decision::CONTINUE
    }
}

/// Reports `evil` in payloads and streams.
pub struct Finder(pub Arc<RuleInfo>);

impl Function for Finder {
    fn spec(&self) -> &'static FunctionSpec {
        &SPEC
    }

    fn id(&self) -> FunctionId {
        FunctionId(1)
    }

    fn payload(&self, context: &mut PacketContext<'_>) -> Decision {
        let in_packet = context.packet.is_some_and(|p| {
            find(p.payload(), b"evil") && matches!(p.decoded().transport, Transport::Udp(_))
        });
        let in_stream = context.stream.as_ref().is_some_and(|s| find(s.bytes, b"evil"));
        if in_packet || in_stream {
            let finding = Finding::new(Arc::clone(&self.0), FindingAction::Allowed);
            context.findings.push(Finding { stream: in_stream, ..finding });
        }
        Decision::CONTINUE
    }
}

/// All that a run needs.
pub struct Bench {
    pub settings: Settings,
    pub engine_settings: EngineSettings,
    pub engine: Arc<Engine>,
    pub chains: Arc<Chains>,
    pub seen: Arc<Mutex<Vec<Seen>>>,
}

pub fn chains(generation: u64, seen: &Arc<Mutex<Vec<Seen>>>) -> Arc<Chains> {
    let rule = Arc::new(RuleInfo {
        id: RuleId { gid: 1, sid: 9, rev: 1 },
        message: "evil".into(),
        category: String::new(),
        severity: 3,
        references: Vec::new(),
        metadata: Vec::new(),
        target_is_source: None,
        text: String::new(),
        firewall: None,
    });
    let watch =
        Watch { generation, workers: AtomicU16::new(0), seen: Arc::clone(seen), rule: Arc::clone(&rule) };
    Arc::new(Chains::one(Generation(generation), vec![Arc::new(watch), Arc::new(Finder(rule))]))
}

pub fn bench(prevention: bool, checksums: &str) -> Bench {
    let mut settings = bartizan_config::suricata::shipped();
    settings.set("pcap-file.checksum-checks", checksums);
    settings.set("flow.memcap", "4mb");
    let engine_settings = EngineSettings::from_settings(&settings, prevention, [11, 22]).unwrap().0;
    let engine = Arc::new(Engine::new(&settings, FileSettings::default()).unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let chains = chains(1, &seen);
    Bench { settings, engine_settings, engine, chains, seen }
}

/// A recorder that keeps nothing.
pub struct Nothing;

impl bartizan_dataplane::record::Recorder for Nothing {
    fn alert(
        &mut self,
        _: &bartizan_dataplane::record::Occasion<'_>,
        _: Option<&bartizan_dataplane::record::Entry>,
        _: &Finding,
        _: &bartizan_dataplane::record::Fate,
        _: Option<bartizan_dataplane::record::TxRecord<'_>>,
    ) {
    }

    fn tagged(
        &mut self,
        _: &bartizan_dataplane::record::Occasion<'_>,
        _: Option<&bartizan_dataplane::record::Entry>,
    ) {
    }

    fn anomaly(
        &mut self,
        _: &bartizan_dataplane::record::Occasion<'_>,
        _: Option<&bartizan_dataplane::record::Entry>,
        _: bartizan_dataplane::record::Anomaly<'_>,
    ) {
    }

    fn refused(
        &mut self,
        _: &bartizan_dataplane::record::Occasion<'_>,
        _: Option<&bartizan_dataplane::record::Entry>,
        _: &bartizan_dataplane::record::Fate,
        _: &[Finding],
    ) {
    }

    fn transaction(
        &mut self,
        _: &bartizan_dataplane::record::Occasion<'_>,
        _: &bartizan_dataplane::record::Entry,
        _: bartizan_dataplane::record::TxRecord<'_>,
    ) {
    }

    fn file(
        &mut self,
        _: &bartizan_dataplane::record::Occasion<'_>,
        _: &bartizan_dataplane::record::Entry,
        _: bartizan_dataplane::record::TxRecord<'_>,
        _: bartizan_base::Direction,
        _: usize,
    ) {
    }

    fn flow(&mut self, _: &bartizan_dataplane::record::Entry, _: bartizan_flow::EndReason, _: Timestamp) {}
}

impl bartizan_dataplane::workers::WorkerRecorder for Nothing {}

/// A folder that stands beside the repository, or one up for a worktree.
pub fn beside(name: &str) -> Option<std::path::PathBuf> {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    ["../../../shared", "../../../../shared"].iter().map(|p| here.join(p).join(name)).find(|p| p.is_dir())
}

/// What the scenario's packets are wrapped in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Plain,
    Fragmented,
    Tunnel,
    FragmentedTunnel,
}

/// The frames of one marked UDP packet of a flow.
pub fn marked(v6: bool, flow: u32, number: u32, shape: Shape) -> Vec<Vec<u8>> {
    marked_saying(v6, flow, number, shape, b"")
}

/// As [`marked`], with a word in the payload.
pub fn marked_saying(v6: bool, flow: u32, number: u32, shape: Shape, word: &[u8]) -> Vec<Vec<u8>> {
    let (client, server) = ((flow % 5) as u8 + 1, (flow % 3) as u8 + 100);
    let (mut ends, mut ports) = ((client, server), (1000 + flow as u16, 2000));
    if number % 3 == 2 {
        ends = (ends.1, ends.0);
        ports = (ports.1, ports.0);
    }
    let mut payload = mark(flow, number, 64);
    payload[12..12 + word.len()].copy_from_slice(word);
    let body = udp(ports, &payload);
    let id = flow << 8 | number;
    // Outer and inner version differ, so both are tunnelled in both.
    let wrap = |inner: &[u8]| gre(v6, inner);
    match shape {
        Shape::Plain => vec![ethernet(v6, &ip(v6, ends, 17, &body))],
        Shape::Fragmented => fragments(v6, ends, 17, id, &body, 24).iter().map(|f| ethernet(v6, f)).collect(),
        Shape::Tunnel => vec![ethernet(!v6, &ip(!v6, (200, 201), 47, &wrap(&ip(v6, ends, 17, &body))))],
        Shape::FragmentedTunnel => {
            let outer = wrap(&ip(v6, ends, 17, &body));
            fragments(!v6, (200, 201), 47, id, &outer, 40).iter().map(|f| ethernet(!v6, f)).collect()
        }
    }
}
