// SPDX-License-Identifier: Apache-2.0
//! The cases with a level below the worker: the worker offloads flows to a device, and frames that the device
//! handles do not come up. The outcome of each frame, and the record of each flow, must be those without a
//! level; so must alerts, and drop events of frames that came up.
//!
//! The kernel runs the very XDP program on each frame (BPF_PROG_TEST_RUN), in a network namespace that ends
//! with the test.

use super::case::{Case, Outcome, bytes, cases};
use super::host::{Host, Stands, link};
use bartizan_base::{Generation, LinkId, Timestamp};
use bartizan_classify::early::{EarlyKey, EarlyLevel, Protocol, outcome};
use bartizan_dataplane::eve::{EveRecorder, RunInfo};
use bartizan_events::time_text;
use bartizan_flow::{EspFlows, FlowKey, FlowScope};
use bartizan_offload::{Action, Device, DeviceKey, FlowManager};
use bartizan_packet::windows::WindowSegment;
use bartizan_packet::{
    DecodeOutput, Decoded, Decoder, DecoderConfig, LinkType, PacketFlags, TcpFlags, TransportLayer,
    TunnelKind,
};
use bartizan_testkit::namespace::{inside, number, ports};
use bartizan_testkit_device::{Habits, MockDevice, MockPacket, MockStranger, MockWire};
use bartizan_testkit_worker::events;
use bartizan_xdp::XdpDevice;
use bartizan_xdp::{EarlyMode, EarlyOptions, ModeChoice, PortSetup, PortSide, XdpOptions, XdpProgram};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

/// Most flows of one case on a device.
const ENTRIES: u32 = 64;
/// Longest time between two turns of a live worker.
const MOST_BETWEEN_TURNS_MS: u64 = 1_000;
/// The file with cases for levels: conversations that can be offloaded, and all kinds of frames that cannot.
const HEADERS: &str = "headers.jsonl";
/// The cases in tunnels.
const TUNNELS: &str = "tunnels.jsonl";
/// Inspected conversations, which are offloaded when a rule of detection ends the inspection or drops them.
const ALERTS: &str = "alerts.jsonl";

/// A frame at its arrival.
struct Arrival<'a> {
    bytes: &'a [u8],
    link: LinkId,
    now: Timestamp,
    /// The frame's packets as the host decodes them, the outer one first.
    packets: &'a [Decoded],
}

/// A level, which may handle a frame before the host.
trait Level {
    /// The device for the cases of one worker.
    fn device(&mut self, host: &Host, link: LinkId) -> Option<Box<dyn Device>>;

    /// Whether the level drops packets without a flow.
    fn is_early(&self) -> bool {
        false
    }

    /// The outcome of a frame at the level; `None`: the frame goes up.
    fn handles(&mut self, arrival: &Arrival<'_>) -> Option<Outcome>;

    /// Ends a case: its entries must not affect the next one.
    fn forget(&mut self, keys: &[DeviceKey]) {
        let _ = keys;
    }

    /// Whether records have the arrival times of this test. The kernel has its own clock.
    fn has_our_clock(&self) -> bool {
        true
    }
}

/// The host alone.
struct NoLevel;

impl Level for NoLevel {
    fn device(&mut self, _: &Host, _: LinkId) -> Option<Box<dyn Device>> {
        None
    }

    fn handles(&mut self, _: &Arrival<'_>) -> Option<Outcome> {
        None
    }
}

/// A device that decodes like the host, and passes up the packets in its contract: fragments, malformed
/// packets, those that open or reset a connection, tunnels in tunnels.
#[derive(Default)]
struct Mock {
    wire: Option<MockWire>,
    /// Whether the device drops packets without a flow, by `table` of its generation.
    early: bool,
    table: (Generation, Vec<u64>),
}

/// The early table of a host, on both links.
fn table_of(host: &Host) -> Vec<u64> {
    let links = [LinkId(0), LinkId(1)];
    let level = EarlyLevel { links: &links, outcomes: 1 << 13, tunnels: true };
    host.early.as_ref().map(|early| early.rules.table(level).words).unwrap_or_default()
}

impl Level for Mock {
    fn device(&mut self, host: &Host, _: LinkId) -> Option<Box<dyn Device>> {
        let early = self.early;
        let (device, wire) = MockDevice::new(Habits { entries: ENTRIES, early, ..Habits::default() });
        self.wire = Some(wire);
        self.table = (host.worker.generation(), table_of(host));
        Some(Box::new(device))
    }

    fn is_early(&self) -> bool {
        self.early
    }

    fn handles(&mut self, arrival: &Arrival<'_>) -> Option<Outcome> {
        self.by_entry(arrival).or_else(|| self.refuses(arrival).then_some(Outcome::Drop))
    }
}

impl Mock {
    /// The outcome by the entry of the packet's flow; in a tunnel by the entries of both flows.
    fn by_entry(&self, arrival: &Arrival<'_>) -> Option<Outcome> {
        let wire = self.wire.as_ref()?;
        match arrival.packets {
            [packet] => {
                let (key, seen) = plain(packet, arrival.link)?;
                let fin = packet.transport.tcp().is_some_and(|tcp| tcp.flags.contains(TcpFlags::FIN));
                let action = if fin {
                    wire.fin(&key, seen, arrival.now)?
                } else {
                    wire.packet(&key, seen, arrival.now)?
                };
                Some(if action == Action::Forward { Outcome::Forward } else { Outcome::Drop })
            }
            [outer, inner] => {
                if inner.transport.tcp().is_some_and(|tcp| tcp.flags.contains(TcpFlags::FIN)) {
                    return None;
                }
                let [outer, inner] = [plain(outer, arrival.link)?, plain(inner, arrival.link)?];
                let both = [(&outer.0, outer.1), (&inner.0, inner.1)];
                let action = wire.in_tunnel(both, arrival.now)?;
                Some(if action == Action::Forward { Outcome::Forward } else { Outcome::Drop })
            }
            _ => None,
        }
    }

    /// Whether the table drops a packet without an entry.
    fn refuses(&self, arrival: &Arrival<'_>) -> bool {
        let (Some(wire), (generation, words)) = (&self.wire, &self.table) else { return false };
        let (packet, around) = match arrival.packets {
            [packet] => (packet, None),
            [outer, inner] => match plain(outer, arrival.link) {
                Some(around) => (inner, Some(around)),
                None => return false,
            },
            _ => return false,
        };
        let Some((question, key)) = question(packet, arrival.link) else { return false };
        // The receiver of the packet may be the initiator.
        let answers =
            packet.transport.tcp().is_some_and(|tcp| tcp.flags.contains(TcpFlags::SYN | TcpFlags::ACK));
        let turned = EarlyKey {
            source: question.destination,
            destination: question.source,
            ports: (question.ports.1, question.ports.0),
            ..question
        };
        if words.is_empty() || answers && outcome(words, &turned).is_none() {
            return false;
        }
        let Some(outcome) = outcome(words, &question) else { return false };
        let (bytes, generation) = (packet.length().into(), *generation);
        self.early && wire.refuses(&MockStranger { key, bytes, generation, outcome, around }, arrival.now)
    }
}

/// The table's query for a packet without an entry, and the key of its flow; `None`: the packet is passed up.
fn question(packet: &Decoded, link: LinkId) -> Option<(EarlyKey, DeviceKey)> {
    let odd = packet.is_invalid()
        || !packet.can_have_flow()
        || packet.flags.intersects(PacketFlags::UNREADABLE | PacketFlags::FRAGMENT);
    let protocol = Protocol::of(packet.carried_protocol()?)?;
    let ports = match &packet.transport {
        TransportLayer::Icmp(icmp) if icmp.code == 0 && matches!(icmp.kind, 0 | 8 | 13..=18) => {
            (icmp.kind.into(), 0)
        }
        TransportLayer::Icmpv6(icmp) if icmp.code == 0 && matches!(icmp.kind, 128 | 129) => {
            (icmp.kind.into(), 0)
        }
        _ => packet.ports()?,
    };
    let question = EarlyKey {
        link: link.0.into(),
        source: packet.src()?,
        destination: packet.dst()?,
        protocol,
        ports,
        vlans: packet.vlan,
        tunnel: (packet.tunnel.kind != TunnelKind::None).then_some(packet.tunnel.id),
    };
    Some((question, DeviceKey::of(&key(packet, link).filter(|_| !odd)?)))
}

/// A packet as the mock device sees it; `None`: the device passes it up.
fn plain(packet: &Decoded, link: LinkId) -> Option<(DeviceKey, MockPacket)> {
    let told = TcpFlags::SYN | TcpFlags::RST | TcpFlags::ACK;
    let tcp = packet.transport.tcp();
    let odd = packet.is_invalid()
        || !packet.can_have_flow()
        || packet.flags.intersects(PacketFlags::UNREADABLE | PacketFlags::FRAGMENT)
        || tcp.is_some_and(|tcp| tcp.flags & told != TcpFlags::ACK);
    let key = key(packet, link).filter(|_| !odd)?;
    let segment = tcp.map(|tcp| WindowSegment {
        sequence: tcp.seq,
        end: tcp.seq.wrapping_add(packet.payload_len + u32::from(tcp.flags.contains(TcpFlags::FIN))),
        acknowledged: tcp.ack,
        window: tcp.window,
        timestamp: tcp.options.timestamps.map(|(own, _)| own),
        urgent: tcp.flags.contains(TcpFlags::URG),
    });
    let bytes = packet.length().into();
    Some((DeviceKey::of(&key), MockPacket { from_low: !key.is_reversed(), bytes, segment }))
}

/// The XDP program, on the first ports of both links.
struct Xdp {
    /// Whether the program drops packets without a flow.
    early: bool,
    program: XdpProgram,
    interfaces: [u32; 2],
}

impl Xdp {
    fn new(refuses: bool) -> Self {
        let names = [["one-a", "one-b"], ["two-a", "two-b"]];
        let options = XdpOptions {
            flows: ENTRIES,
            mode: ModeChoice::Auto,
            tunnels: DecoderConfig::default(),
            workers: 1,
            early: refuses.then_some(EarlyOptions { links: 2, flows: 1 << 12 }),
            seed: 77,
        };
        let mut program = XdpProgram::load(&options).unwrap();
        for (link, names) in (0..).zip(names) {
            ports(names);
            for (side, name) in (0..).zip(names) {
                let (index, pair) = (2 * link + side, 2 * link + 1 - side);
                // The files do not name the side by which a frame comes, so keys have none.
                let setup = PortSetup {
                    ifindex: number(name),
                    link: LinkId(link.into()),
                    side: PortSide::Unknown,
                    index,
                    pair,
                    vlans_in_key: true,
                    drop_samples: None,
                    early: refuses.then_some(EarlyMode::Always(link)),
                    watch: None,
                };
                program.attach(&setup).unwrap();
            }
        }
        Xdp { early: refuses, program, interfaces: names.map(|[first, _]| number(first)) }
    }
}

impl Level for Xdp {
    fn device(&mut self, host: &Host, link: LinkId) -> Option<Box<dyn Device>> {
        let tables = self.program.tables();
        tables.set_tunnel_ports(host.worker.decoder_config()).unwrap();
        let device = XdpDevice::new(Arc::clone(&tables), 0, ENTRIES);
        let Some(early) = tables.early() else { return Some(Box::new(device)) };
        assert!(early.write(host.worker.generation().0 as u8, &table_of(host)), "it fits");
        Some(Box::new(device.with_early(link.0 as u8, true)))
    }

    fn is_early(&self) -> bool {
        self.early
    }

    /// The entry that drops a flow stays in the tables of a program that outlives its run.
    fn forget(&mut self, keys: &[DeviceKey]) {
        let tables = self.program.tables();
        for key in keys {
            tables.remove(&key.0);
        }
    }

    fn handles(&mut self, arrival: &Arrival<'_>) -> Option<Outcome> {
        const DROP: u32 = 1;
        const PASS: u32 = 2;
        const REDIRECT: u32 = 4;
        const ETHERNET: usize = 14;
        if arrival.bytes.len() < ETHERNET {
            // Nothing that is shorter ever comes by an interface, and the kernel refuses to try.
            return None;
        }
        let interface = self.interfaces[usize::from(arrival.link.0)];
        match self.program.run_on(arrival.bytes, interface, 1).unwrap().result {
            PASS => None,
            REDIRECT => Some(Outcome::Forward),
            DROP => Some(Outcome::Drop),
            other => panic!("the program returned {other}"),
        }
    }

    fn has_our_clock(&self) -> bool {
        false
    }
}

/// The SmartNIC's logic as a model, with both links on one card.
#[cfg(feature = "rtl")]
struct SmartNic(bartizan_rtl::Card<bartizan_rtl::simulation::Simulation>);

#[cfg(feature = "rtl")]
impl SmartNic {
    fn new(configuration: bartizan_rtl::model::Configuration) -> Self {
        use bartizan_rtl::simulation::Simulation;
        let card = bartizan_rtl::Card::start(move || Simulation::new(configuration, 5), 77).unwrap();
        // The files do not name the side by which a frame comes, so keys have none.
        let begin = card.with(|state| {
            state.driver.set_flow_keys(false, true)?;
            state.driver.enable(true)
        });
        begin.unwrap();
        SmartNic(card)
    }
}

#[cfg(feature = "rtl")]
impl Level for SmartNic {
    fn device(&mut self, host: &Host, _: LinkId) -> Option<Box<dyn Device>> {
        let config = *host.worker.decoder_config();
        self.0.with(move |state| state.driver.set_tunnels(&config)).unwrap();
        Some(Box::new(bartizan_rtl::SmartNicDevice::new(self.0.clone(), ENTRIES, true)))
    }

    fn handles(&mut self, arrival: &Arrival<'_>) -> Option<Outcome> {
        use bartizan_rtl::simulation::FrameOut;
        let (bytes, ingress, now) = (arrival.bytes.to_vec(), 2 * arrival.link.0 as u8, arrival.now);
        let passed = self.0.with(move |state| {
            state.driver.bus().set_clock(now.as_nanos());
            Ok(state.driver.bus().pass(ingress, &bytes)?)
        });
        match passed.unwrap() {
            Some(FrameOut::ToCpu { bytes, .. }) => {
                assert_eq!(bytes, arrival.bytes);
                None
            }
            Some(FrameOut::ToPort { egress, bytes, .. }) => {
                assert_eq!((egress, bytes.as_slice()), (ingress ^ 1, arrival.bytes));
                Some(Outcome::Forward)
            }
            None => Some(Outcome::Drop),
        }
    }
}

/// The results of a case.
#[derive(Default)]
struct Played {
    fates: Vec<Outcome>,
    /// Flow records.
    records: Vec<Value>,
    alerts: Vec<Value>,
    /// Drop events.
    drops: Vec<Value>,
    /// Arrival times of frames that no level handled, in the format of events.
    up: BTreeSet<String>,
    /// Number of packets dropped, at any level.
    refused: u64,
    /// Both ends of packets dropped without an entry.
    early: BTreeSet<[String; 2]>,
    share: Share,
}

impl Played {
    /// The drop events of frames that came at these times.
    fn drops_of<'a>(&'a self, times: &'a BTreeSet<String>) -> impl Iterator<Item = &'a Value> {
        self.drops.iter().filter(|event| event["timestamp"].as_str().is_some_and(|time| times.contains(time)))
    }
}

/// Numbers of frames that a level handled.
#[derive(Clone, Copy, Default)]
struct Share {
    frames: u64,
    /// Frames whose flow had an entry in the device at arrival; in a tunnel, both flows.
    with_entry: u64,
    below: u64,
    /// Packets in those frames.
    packets: u64,
    /// Packets dropped without a flow.
    early: u64,
    /// Numbers of alerts and of drop events.
    told: [u64; 2],
}

impl Share {
    fn add(&mut self, other: Share) {
        self.frames += other.frames;
        self.with_entry += other.with_entry;
        self.below += other.below;
        self.packets += other.packets;
        self.early += other.early;
        self.told.iter_mut().zip(other.told).for_each(|(sum, told)| *sum += told);
    }

    fn percent(&self) -> u64 {
        100 * self.below / self.frames.max(1)
    }
}

/// The flow key of a packet by its own header, as the data plane finds it (`identity.rs`), without a tenant.
fn key(packet: &Decoded, link: LinkId) -> Option<FlowKey> {
    let scope = FlowScope {
        link,
        tunnel: packet.tunnel.key(),
        level: packet.recursion,
        vlans: packet.vlan.padded(),
        ..FlowScope::default()
    };
    // All chains of the cases judge headers.
    FlowKey::of_packet(&scope, packet, EspFlows::ByAddresses)
}

/// Whether a flow is offloaded. (Flows of two tenants differ here only if another part of the key does.)
fn is_below(host: &Host, key: &FlowKey) -> bool {
    let mut flows = host.worker.flows().iter();
    flows.any(|(_, entry)| DeviceKey::of(entry.key()) == DeviceKey::of(key) && !entry.is_at_host())
}

/// A folder that no parallel test uses.
fn folder_of_its_own() -> PathBuf {
    static FOLDERS: AtomicUsize = AtomicUsize::new(0);
    let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("bartizan-conformance-{}-{number}", std::process::id()))
}

fn events_of(folder: &PathBuf, host: &Host) -> EveRecorder {
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder).unwrap();
    let run = RunInfo { own_fields: true, ..RunInfo::default() };
    EveRecorder::new(&host.settings, folder, true, run, &mut Vec::new()).unwrap()
}

/// Advances the time, with the worker's turns.
fn pass(host: &mut Host, mut millis: u64, recorder: &mut EveRecorder) {
    while millis > 0 {
        let step = millis.min(MOST_BETWEEN_TURNS_MS);
        millis -= step;
        host.advance(step);
        while host.worker.idle(host.clock, recorder) {}
        host.worker.drive_level(host.clock, recorder);
    }
}

/// Runs a case with a level, as on a live link. All frames come after `begin`.
fn play(case: &Case, level: &mut dyn Level, begin: Timestamp) -> Result<Played, String> {
    let folder = folder_of_its_own();
    let (mut host, link) = (Host::with(case, Stands::Live, level.is_early())?, link(case)?);
    let mut recorder = events_of(&folder, &host);
    let config = *host.worker.decoder_config();
    if let Some(device) = level.device(&host, link) {
        host.worker.set_level(FlowManager::new(device, host.worker.generation()));
    }
    let mut decoder = Decoder::new(config);
    let (mut decoded, mut played, mut keys) = (DecodeOutput::new(), Played::default(), Vec::new());
    host.clock = begin;
    for (hex, after_ms) in case.frames() {
        pass(&mut host, after_ms, &mut recorder);
        let (bytes, now) = (bytes(hex)?, host.clock);
        decoder.decode(LinkType::ETHERNET, &bytes, bytes.len() as u32, &mut decoded);
        let packets = decoded.packets();
        let of_frame: Vec<FlowKey> = packets.iter().filter_map(|packet| key(packet, link)).collect();
        let known = of_frame.iter().filter(|key| is_below(&host, key)).count();
        let has_entry = known > 0 && known == packets.len();
        played.share.with_entry += u64::from(has_entry);
        keys.extend(of_frame.iter().map(DeviceKey::of));
        let below = level.handles(&Arrival { bytes: &bytes, link, now, packets });
        if below.is_some() && !has_entry {
            played.early.extend(packets.last().and_then(ends_of));
        }
        played.share.below += u64::from(below.is_some());
        played.share.packets += if below.is_some() { packets.len() as u64 } else { 0 };
        played.share.frames += 1;
        let fate = below.unwrap_or_else(|| {
            played.up.insert(time_text(now));
            host.hand_in(&bytes, link, &mut recorder).0
        });
        played.fates.push(fate);
    }
    host.worker.shutdown(&mut recorder);
    level.forget(&keys);
    assert!(recorder.finish().is_empty());
    let all = events::read(&folder.join("eve.json"));
    let of_type = |kind| events::of_type(&all, kind).cloned().collect();
    [played.records, played.alerts, played.drops] = ["flow", "alert", "drop"].map(of_type);
    played.share.told = [played.alerts.len() as u64, played.drops_of(&played.up).count() as u64];
    std::fs::remove_dir_all(&folder).unwrap();
    played.refused = host.worker.counters().refused.iter().sum();
    if let Some(counters) = host.worker.level_counters() {
        let dropped: u64 = counters.dropped.iter().map(|dropped| dropped.packets).sum();
        played.refused += dropped;
        played.share.early = counters.early.packets;
        // If a frame is dropped for its inner packet, both packets are counted, and the frame is dropped
        // once.
        let counted = counters.forwarded.packets + dropped + counters.around.packets;
        if counted != played.share.packets {
            return Err(format!("{} packets were handled below, {counted} counted", played.share.packets));
        }
    }
    Ok(played)
}

/// Both ends of a packet, sorted.
fn ends_of(packet: &Decoded) -> Option<[String; 2]> {
    let ports = packet.ports().map_or([None; 2], |(from, to)| [Some(from), Some(to)]);
    let end = |address: IpAddr, port: Option<u16>| format!("{address} {port:?}");
    let mut ends = [end(packet.src()?, ports[0]), end(packet.dst()?, ports[1])];
    ends.sort();
    Some(ends)
}

/// The ends of the flow of an event, sorted.
fn ends_of_event(event: &Value) -> [String; 2] {
    let end = |address: &str, port: &str| {
        let address: Option<IpAddr> = event[address].as_str().and_then(|text| text.parse().ok());
        let port = event[port].as_u64().map(|port| port as u16);
        address.map(|address| format!("{address} {port:?}")).unwrap_or_default()
    };
    let mut ends = [end("src_ip", "src_port"), end("dest_ip", "dest_port")];
    ends.sort();
    ends
}

fn take(of: &mut Value, keys: &[&str]) {
    if let Some(object) = of.as_object_mut() {
        keys.iter().for_each(|key| drop(object.remove(*key)));
    }
}

/// A flow's record without the level's part, and without times unless they are this test's.
fn comparable(record: &Value, times: bool) -> Value {
    let mut record = record.clone();
    // A flow that is taken up in order to end is written a little later.
    take(&mut record, &["flow_id", "timestamp"]);
    take(&mut record["flow"], &["bypassed", "bypass"]);
    take(&mut record["bartizan"], &["level", "levels", "stays"]);
    // Flags of packets handled below are not recorded; packets that begin or end a connection come up.
    take(&mut record["tcp"], &["psh", "urg", "ecn", "cwr"]);
    for key in ["tcp_flags", "tcp_flags_ts", "tcp_flags_tc"] {
        if let Some(flags) = record["tcp"].get_mut(key) {
            let number = flags.as_str().and_then(|text| u8::from_str_radix(text, 16).ok()).expect("flags");
            *flags = (number & (TcpFlags::SYN | TcpFlags::FIN | TcpFlags::RST | TcpFlags::ACK).bits()).into();
        }
    }
    if !times {
        take(&mut record["flow"], &["end", "age"]);
    }
    record
}

fn compare(with: &Played, without: &Played, times: bool) -> Result<(), String> {
    if let Some(at) = with.fates.iter().zip(&without.fates).position(|(a, b)| a != b) {
        return Err(format!("frame {at}: {:?}, without the level {:?}", with.fates[at], without.fates[at]));
    }
    if with.refused != without.refused {
        return Err(format!("{} packets were refused, without the level {}", with.refused, without.refused));
    }
    // Packets dropped without a flow have no record, and neither detection nor tracking has seen them.
    let is_told = |event: &&Value| !with.early.contains(&ends_of_event(event));
    let records = |played: &Played| -> Vec<Value> {
        played.records.iter().filter(|event| is_told(event)).map(|record| comparable(record, times)).collect()
    };
    let alerts = |played: &Played| -> Vec<Value> {
        played.alerts.iter().filter(|event| is_told(event)).map(of_packet).collect()
    };
    // Drops by a level give sampled events or none: only events of frames that came up are compared.
    let drops = |played: &Played| -> Vec<Value> {
        played.drops_of(&with.up).filter(|event| is_told(event)).map(of_packet).collect()
    };
    let mut differ = Vec::new();
    for (of, with, without) in [
        ("records", records(with), records(without)),
        ("alerts", alerts(with), alerts(without)),
        ("drops", drops(with), drops(without)),
    ] {
        differences(of, &Value::Array(with), &Value::Array(without), &mut differ);
    }
    if differ.is_empty() { Ok(()) } else { Err(differ.join("; ")) }
}

/// An event of a packet, without its flow's level, and without the number of the flow, which differs in each
/// run.
fn of_packet(event: &Value) -> Value {
    let mut event = event.clone();
    take(&mut event, &["flow_id"]);
    take(&mut event["bartizan"], &["level"]);
    event
}

/// The differences of two values: each place with both contents, without the level after `not`.
fn differences(place: &str, with: &Value, without: &Value, out: &mut Vec<String>) {
    let nothing = Value::Null;
    match (with, without) {
        (Value::Object(a), Value::Object(b)) => {
            let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for name in names {
                let [a, b] = [a, b].map(|object| object.get(name).unwrap_or(&nothing));
                differences(&format!("{place}.{name}"), a, b, out);
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            for at in 0..a.len().max(b.len()) {
                let [a, b] = [a, b].map(|array| array.get(at).unwrap_or(&nothing));
                differences(&format!("{place}[{at}]"), a, b, out);
            }
        }
        (a, b) if a != b => out.push(format!("{place} is {a}, not {b}")),
        _ => {}
    }
}

/// Runs all cases with a level and without; returns the level's shares of the frames in [`HEADERS`],
/// [`TUNNELS`] and [`ALERTS`].
fn all_the_same(name: &str, level: &mut dyn Level) -> [Share; 4] {
    let (mut wrong, mut all) = (Vec::new(), Share::default());
    const FILES: [&str; 3] = [HEADERS, TUNNELS, ALERTS];
    let mut files = [Share::default(); 3];
    for (place, case) in cases() {
        // By the kernel's clock, which dates flows whose packets the kernel has counted.
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let begin = Timestamp::from_nanos(since.as_nanos() as u64);
        let without = play(&case, &mut NoLevel, begin).unwrap();
        let times = level.has_our_clock();
        let compared = play(&case, level, begin).and_then(|with| {
            all.add(with.share);
            if let Some(of) = FILES.iter().position(|file| place.contains(file)) {
                files[of].add(with.share);
            }
            compare(&with, &without, times)
        });
        if let Err(error) = compared {
            wrong.push(format!("{place}: {}: {error}", case.id));
        }
    }
    for (of, share) in FILES.into_iter().zip(files).chain([("all files", all)]) {
        let Share { frames, with_entry, below, early, told: [alerts, drops], .. } = share;
        println!(
            "{name} decided {below} of {frames} frames of {of} ({} %), of {with_entry} whose flow had an entry; {early} packets refused without a flow; {alerts} alerts, {drops} drop events",
            share.percent()
        );
    }
    assert!(files[2].told.iter().all(|told| *told > 0), "there is something to compare: {:?}", files[2].told);
    assert!(wrong.is_empty(), "{} cases differ with {name}:\n{}", wrong.len(), wrong.join("\n"));
    let [headers, tunnels, alerts] = files;
    [headers, tunnels, alerts, all]
}

/// Conformance of a level that drops packets without a flow: it drops exactly the same packets.
fn refuses_the_same(name: &str, level: &mut dyn Level) {
    let [.., Share { early, .. }] = all_the_same(name, level);
    assert!(early >= 10, "{early} packets without a flow were refused");
}

#[test]
fn what_the_mock_device_refuses_without_a_flow_the_host_refuses() {
    refuses_the_same("mock, early", &mut Mock { early: true, ..Mock::default() });
}

#[test]
fn what_xdp_refuses_without_a_flow_the_host_refuses() {
    if !inside("what_xdp_refuses_without_a_flow_the_host_refuses") {
        return;
    }
    refuses_the_same("xdp, early", &mut Xdp::new(true));
}

#[test]
fn a_level_below_changes_nothing_with_the_mock_device() {
    for share in &all_the_same("mock", &mut Mock::default())[..3] {
        assert!(share.percent() >= 60, "{} %", share.percent());
    }
}

#[test]
fn a_level_below_changes_nothing_with_xdp() {
    if !inside("a_level_below_changes_nothing_with_xdp") {
        return;
    }
    for share in &all_the_same("xdp", &mut Xdp::new(false))[..3] {
        assert!(share.percent() >= 60, "{} %", share.percent());
    }
}

#[cfg(feature = "rtl")]
#[test]
fn a_level_below_changes_nothing_with_the_smartnic() {
    let mut level = SmartNic::new(bartizan_rtl::model::Configuration::Narrow);
    for share in &all_the_same("rtl", &mut level)[..3] {
        // Of tunnels it reads VXLAN alone, so its share of the frames is smaller than that of other levels.
        let of_entries = 100 * share.below / share.with_entry.max(1);
        assert!(share.below > 0 && of_entries >= 80, "{of_entries} % of the frames whose flow had an entry");
    }
}
