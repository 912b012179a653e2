// SPDX-License-Identifier: Apache-2.0
//! The expected result for a frame, by the host's decoder and the linear search.
//!
//! A frame that the device decides has to be one that the decoder finds nothing wrong with; and a frame that
//! the declared limits of the device let it decide has to be decided.

use bartizan_base::{Fid, LinkId, Path, Reason, TenantId, Verdict};
use bartizan_classify::{Classifier, Header, HeaderRule, Linear, Match, RankedRule};
use bartizan_flow::tcp::TcpState;
use bartizan_flow::{EspFlows, FlowKey, FlowScope, FlowSide};
use bartizan_packet::windows::{Line, WINDOW_WORDS, WindowSegment};
use bartizan_packet::{DecodeOutput, Decoded, Decoder, LinkType, TcpFlags, TransportLayer, TunnelKind};
use bartizan_rtl::registers::FrameDisposition;
use bartizan_rtl::{CacheKey, CacheNumbers, EntryAction, EntryControl, EntryCounts, SegmentCheck};
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;

/// The generation of all tables of tests.
pub const GENERATION: u8 = 7;

/// The packet filter's number in paths.
pub const PFW: u8 = 0;
/// The stateful firewall's number in paths.
pub const SFW: u8 = 1;
/// A function without a half on the device.
pub const IDS: u8 = 2;
/// UDP ports that only the host reads as tunnels.
pub const TUNNEL_PORTS: [u16; 4] = [3544, 6081, 2152, 0];
pub const VXLAN_PORT: u16 = 4789;

/// A rule with what follows from it.
#[derive(Clone, Copy, Debug)]
pub struct PolicyRule {
    pub rule: HeaderRule,
    pub path: Path,
    pub verdict: Verdict,
}

/// A selector of tenants.
pub type TenantSelector = bartizan_rtl::driver::TenantEntry;

/// Rules, first match first, and tenants; the fid of a rule is its number from 1.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    pub rules: Vec<PolicyRule>,
    pub tenants: Vec<TenantSelector>,
}

/// Result for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// It leaves by the other port.
    ToPort,
    /// It is refused.
    Drop(Reason),
    /// It goes up for this cause.
    Up(FrameDisposition),
    /// It goes up; several causes hold, and which is counted is not defined.
    UpSomehow,
}

/// Expected result for a frame.
#[derive(Clone, Debug)]
pub struct Expected {
    pub end: End,
    /// Numbers of rules that count a packet, outer first.
    pub counted: Vec<usize>,
    /// Flow class and remaining path of the outer packet.
    pub class: Option<(Fid, Path)>,
    /// Offsets of the outer packet: network, transport, payload.
    pub offsets: Option<[u32; 3]>,
    pub tenant: u16,
    /// The port that it leaves by, if it does.
    pub egress: u8,
}

/// A flow in the cache. Its numbers are compared by the rule that host and XDP have.
pub struct CachedFlow {
    pub control: EntryControl,
    pub numbers: CacheNumbers,
    pub counts: EntryCounts,
}

pub struct Reference {
    pub flows: HashMap<CacheKey, CachedFlow>,
    /// Whether keys have the side of the link, and VLAN ids.
    pub keys: [bool; 2],
    decoder: Decoder,
    out: DecodeOutput,
    linear: Linear,
    policy: Policy,
    ipv6: bool,
}

/// Decision on one packet.
#[derive(Clone, Copy, Debug)]
struct PacketDecision {
    up: Option<FrameDisposition>,
    rule: Option<usize>,
    path: Path,
    refused: Option<Reason>,
    counted: bool,
    /// The entry where the packet counts, if its frame does not go up, from which endpoint, and its bytes.
    flow: Option<(CacheKey, usize, u64)>,
    redirect: Option<u8>,
}

impl PacketDecision {
    const fn leaves(&self) -> bool {
        self.up.is_none() && self.refused.is_none() && self.path.0 == 0
    }
}

impl Reference {
    pub fn new(policy: Policy, ipv6: bool) -> Self {
        let mut linear = Linear::new(1);
        let entries: Vec<RankedRule> = (0..)
            .zip(&policy.rules)
            .map(|(n, rule)| RankedRule { fid: Fid(n + 1), priority: n, rule: rule.rule })
            .collect();
        linear.insert(0, &entries).expect("as many rules as the device holds");
        Reference {
            flows: HashMap::new(),
            keys: [true; 2],
            decoder: Decoder::default(),
            out: DecodeOutput::new(),
            linear,
            policy,
            ipv6,
        }
    }

    fn lookup(&self, header: &Header) -> Option<usize> {
        let mut found: [Option<Match>; 1] = [None];
        self.linear.lookup(header, &mut found);
        found[0].map(|found| found.priority as usize)
    }

    fn tenant(&self, packet: &Decoded, link: u8) -> u16 {
        let selects = |selector: &&TenantSelector| {
            let of_vni = |vni| packet.tunnel.kind != TunnelKind::None && packet.tunnel.id == vni;
            selector.vni.is_none_or(of_vni)
                && selector.vlan.is_none_or(|vlan| packet.vlan.as_slice().contains(&vlan))
                && selector.link.is_none_or(|of| of == link)
        };
        self.policy.tenants.iter().find(selects).map_or(0, |selector| selector.tenant)
    }

    /// Decides a packet that the device reads.
    fn decide(&self, packet: &Decoded, link: u8) -> PacketDecision {
        let (flow, redirect) = (None, None);
        let path = Path(0);
        let mut decision =
            PacketDecision { up: None, rule: None, path, refused: None, counted: false, flow, redirect };
        let (Some(source), Some(destination), Some((source_port, destination_port)), Some(protocol)) =
            (packet.src(), packet.dst(), packet.ports(), packet.proto())
        else {
            panic!("the device reads no packet without ports: {packet:?}");
        };
        let header = Header {
            tenant: TenantId(self.tenant(packet, link)),
            link: LinkId(link.into()),
            source,
            destination,
            protocol,
            source_port,
            destination_port,
        };
        let Some(number) = self.lookup(&header) else {
            decision.up = Some(FrameDisposition::UpNoEntry);
            return decision;
        };
        let rule = self.policy.rules[number];
        (decision.rule, decision.path) = (Some(number), rule.path);
        if rule.path.0 >> PFW & 1 == 0 {
            return decision;
        }
        match rule.verdict {
            Verdict::Reject => decision.up = Some(FrameDisposition::UpReject),
            verdict => {
                decision.counted = true;
                decision.path = Path(rule.path.0 & !(1 << PFW));
                decision.refused = (verdict == Verdict::Drop).then_some(Reason::PfwRule);
            }
        }
        decision
    }

    /// The key of a packet in the flow cache, by the host's identity of flows.
    pub fn key(&self, packet: &Decoded, ingress: u8) -> Option<(CacheKey, usize)> {
        let [sides, vlans] = self.keys;
        let link = ingress / 2;
        let scope = FlowScope {
            tenant: TenantId(self.tenant(packet, link)),
            link: LinkId(link.into()),
            tunnel: packet.tunnel.key(),
            level: packet.recursion,
            vlans: if vlans { packet.vlan.padded() } else { [0; 3] },
            side: match ingress & 1 {
                _ if !sides => FlowSide::Unknown,
                0 => FlowSide::First,
                _ => FlowSide::Second,
            },
        };
        let key = FlowKey::of_packet(&scope, packet, EspFlows::default())?;
        Some((CacheKey::new(key.words())?, usize::from(key.is_reversed())))
    }

    /// The key of the last packet of a frame.
    pub fn key_of(&mut self, ingress: u8, frame: &[u8]) -> Option<CacheKey> {
        let mut out = std::mem::take(&mut self.out);
        self.decoder.decode(LinkType::ETHERNET, frame, frame.len() as u32, &mut out);
        let key = out.packets().last().and_then(|packet| self.key(packet, ingress));
        self.out = out;
        Some(key?.0)
    }

    /// Applies the entry of a packet's flow to what was decided of it. `outer_leaves`: the packet around it
    /// leaves, or there is none.
    fn apply_flow(
        &mut self,
        mut decision: PacketDecision,
        packet: &Decoded,
        ingress: u8,
        outer_leaves: bool,
    ) -> PacketDecision {
        let Some((key, end)) = self.key(packet, ingress) else { return decision };
        let Some(flow) = self.flows.get_mut(&key) else { return decision };
        let control = flow.control;
        let tcp = packet.transport.tcp();
        let compares = control.check == SegmentCheck::Compare;
        let is_selected =
            decision.up.is_none() && decision.refused.is_none() && decision.path.0 >> SFW & 1 == 1;
        let judges = is_selected && (tcp.is_none() || compares);
        if control.generation != GENERATION || !control.decides && !judges {
            return decision;
        }
        let told = TcpFlags::FIN | TcpFlags::SYN | TcpFlags::RST | TcpFlags::ACK;
        let is_plain = tcp.is_none_or(|tcp| tcp.flags & told == TcpFlags::ACK);
        let segment = tcp.map(|tcp| WindowSegment {
            sequence: tcp.seq,
            end: tcp.seq.wrapping_add(packet.payload_len),
            acknowledged: tcp.ack,
            window: tcp.window,
            timestamp: tcp.options.timestamps.map(|(own, _)| own),
            urgent: tcp.flags.contains(TcpFlags::URG),
        });
        let next = segment.as_ref().filter(|_| is_plain).and_then(|segment| flow.next(end, segment));
        let other_end = control.only_from.is_some_and(|high| high != (end == 1));
        let in_tunnel = packet.recursion > 0 || packet.ports().is_some_and(|(_, to)| to == VXLAN_PORT);
        decision.counted &= !control.decides;
        if other_end || !is_plain || compares && tcp.is_some() && next.is_none() {
            decision.up = Some(FrameDisposition::UpFlow);
            return decision;
        }
        if !control.decides {
            decision.path = Path(decision.path.0 & !(1 << SFW));
        } else if matches!(control.action, EntryAction::Redirect(_)) && in_tunnel {
            decision.up = Some(FrameDisposition::UpRedirect);
            return decision;
        } else {
            (decision.up, decision.path, decision.refused) = (None, Path(0), None);
            match control.action {
                EntryAction::Forward => {}
                EntryAction::Drop(reason) => decision.refused = Some(reason),
                EntryAction::Redirect(port) => decision.redirect = Some(port),
            }
        }
        decision.flow = Some((key, end, packet.length().into()));
        if let (Some(next), true) = (next, decision.leaves() && outer_leaves) {
            flow.numbers = next;
        }
        decision
    }

    /// The expected result for a frame.
    pub fn judge(&mut self, ingress: u8, frame: &[u8]) -> Expected {
        let mut out = std::mem::take(&mut self.out);
        self.decoder.decode(LinkType::ETHERNET, frame, frame.len() as u32, &mut out);
        let expected = self.judge_packets(ingress, frame, out.packets());
        self.out = out;
        expected
    }

    fn judge_packets(&mut self, ingress: u8, frame: &[u8], packets: &[Decoded]) -> Expected {
        let link = ingress / 2;
        let outer = &packets[0];
        let readable = self.cause(frame, outer);
        let mut expected = Expected {
            end: End::UpSomehow,
            counted: Vec::new(),
            class: None,
            offsets: None,
            tenant: 0,
            egress: ingress ^ 1,
        };
        if matches!(outer.transport, TransportLayer::Tcp(_) | TransportLayer::Udp(_))
            && matches!(
                readable,
                Ok(()) | Err(Some(FrameDisposition::UpTcpOptions | FrameDisposition::UpTunnel))
            )
        {
            expected.offsets = Some([outer.l3, outer.l4, outer.payload]);
            expected.tenant = self.tenant(outer, link);
        }
        match readable {
            Err(Some(cause)) => {
                expected.end = End::Up(cause);
                return expected;
            }
            Err(None) => return expected,
            Ok(()) => {}
        }
        let is_vxlan = outer.ports().is_some_and(|(_, to)| to == VXLAN_PORT)
            && matches!(outer.transport, TransportLayer::Udp(_));
        let outside = self.decide(outer, link);
        let outside = self.apply_flow(outside, outer, ingress, true);
        let inside = if is_vxlan {
            let Some(inner) = packets.get(1).filter(|inner| inner.tunnel.kind == TunnelKind::Vxlan) else {
                return expected;
            };
            if !inner.vlan.is_empty() || packets.len() > 2 || self.cause(frame, inner) != Ok(()) {
                return expected;
            }
            let inside = self.decide(inner, link);
            Some(self.apply_flow(inside, inner, ingress, outside.leaves()))
        } else {
            assert_eq!(packets.len(), 1, "a packet inside that the device does not know of: {packets:?}");
            None
        };
        let expected = join(expected, outside, inside);
        if matches!(expected.end, End::ToPort | End::Drop(_)) {
            for (key, end, bytes) in [Some(outside), inside].into_iter().flatten().filter_map(|d| d.flow) {
                let flow = self.flows.get_mut(&key).expect("the flow that has decided");
                flow.counts.packets[end] += 1;
                flow.counts.bytes[end] += bytes;
            }
        }
        expected
    }

    /// Why a packet goes up by its headers; `Err(None)`: for one of several causes.
    fn cause(&self, frame: &[u8], packet: &Decoded) -> Result<(), Option<FrameDisposition>> {
        use FrameDisposition as D;
        let outer = packet.recursion == 0;
        if outer {
            if frame.len() < 34 {
                return Err(Some(D::UpShort));
            }
            if packet.vlan.len() > 2 {
                return Err(Some(D::UpVlan));
            }
            let ether = 12 + 4 * packet.vlan.len();
            match u16::from_be_bytes([frame[ether], frame[ether + 1]]) {
                0x0800 => {}
                0x86dd if self.ipv6 => {}
                _ => return Err(Some(D::UpEtherType)),
            }
        } else if packet.ipv6().is_some() && !self.ipv6 {
            return Err(None);
        }
        if packet.is_unreadable() && packet.ipv4().is_none() && packet.ipv6().is_none() {
            // Broken options are the host's to find; the device only sees that there are some.
            let at = 14 + 4 * packet.vlan.len();
            let has_options = outer && frame.get(at).is_some_and(|byte| byte >> 4 == 4 && byte & 15 > 5);
            return Err(Some(D::UpIpBroken).filter(|_| !has_options));
        }
        if packet.is_fragment() && packet.ipv4().is_some() {
            return Err(Some(D::UpFragment));
        }
        let next = packet.ipv4().map(|ip| ip.proto).or(packet.ipv6().map(|ip| ip.next_header));
        if !matches!(next, Some(6 | 17)) {
            return Err(Some(D::UpProtocol));
        }
        if !matches!(packet.transport, TransportLayer::Tcp(_) | TransportLayer::Udp(_)) {
            return Err(Some(D::UpTransportBroken));
        }
        let has_options = packet.ipv4().is_some_and(|ip| ip.header_len > 20);
        if let (TransportLayer::Udp(udp), false) = (&packet.transport, has_options) {
            if TUNNEL_PORTS.iter().any(|port| *port != 0 && [udp.sport, udp.dport].contains(port)) {
                return Err(Some(D::UpTunnel));
            }
            if udp.dport == VXLAN_PORT && !outer {
                return Err(Some(D::UpTunnel));
            }
        }
        if has_options {
            // A tunnel's ports come first, and what of its options is broken is not looked at.
            return Err(Some(D::UpIpOptions).filter(|_| matches!(packet.transport, TransportLayer::Tcp(_))));
        }
        if let TransportLayer::Tcp(tcp) = &packet.transport {
            let at = packet.l4 as usize + 20;
            let plain = tcp.header_len == 20
                || (tcp.header_len == 32 && frame.get(at..at + 4) == Some(&[1, 1, 8, 10]));
            if !plain {
                return Err(Some(D::UpTcpOptions));
            }
        }
        if outer && packet.is_invalid() && packet.ports().is_some_and(|(_, to)| to == VXLAN_PORT) {
            // What is inside is no IP packet.
            return Err(Some(D::UpTunnel));
        }
        assert!(!packet.is_invalid(), "the device reads a packet that the decoder finds broken: {packet:?}");
        Ok(())
    }
}

impl CachedFlow {
    /// The numbers after a plain segment of an endpoint; `None`: it goes up.
    fn next(&self, end: usize, segment: &WindowSegment) -> Option<CacheNumbers> {
        let mut next = self.numbers;
        let (from_high, other) = (end == 1, 1 - end);
        let later = |had: u32, new: u32| if new.wrapping_sub(had).cast_signed() > 0 { new } else { had };
        match self.control.check {
            SegmentCheck::Nothing => {}
            SegmentCheck::Note => {
                let had = self.numbers.windows.sides;
                let noted = self.numbers.noted[end];
                let number = |had, new| if noted { later(had, new) } else { new };
                next.windows.sides[end].sent = number(had[end].sent, segment.end);
                next.windows.sides[other].acknowledged =
                    number(had[other].acknowledged, segment.acknowledged);
                next.noted[end] = true;
            }
            SegmentCheck::Compare => {
                let words: [AtomicU64; WINDOW_WORDS] = Default::default();
                let line = Line::new(&words);
                line.write(&self.numbers.windows);
                let sides = self.numbers.windows.sides;
                let opens = self.control.follows
                    && self.numbers.state == TcpState::SynRecv
                    && from_high == self.control.client_is_high
                    && segment.sequence == sides[end].sent
                    && segment.acknowledged == sides[other].sent;
                if !line.advance(from_high, segment) || !opens && self.numbers.state != TcpState::Established
                {
                    return None;
                }
                next.windows = line.read();
                next.state = TcpState::Established;
            }
        }
        Some(next)
    }
}

/// Joins the decisions on a frame's packets.
fn join(mut expected: Expected, outside: PacketDecision, inside: Option<PacketDecision>) -> Expected {
    let both = || core::iter::once(&outside).chain(&inside);
    expected.egress = outside.redirect.unwrap_or(expected.egress);
    if let (Some(rule), true) = (outside.rule, outside.up != Some(FrameDisposition::UpNoEntry)) {
        expected.class = Some((Fid(rule as u32 + 1), outside.path));
    }
    let counted: Vec<usize> = both().filter(|d| d.counted).filter_map(|d| d.rule).collect();
    let path_left = both().any(|d| !d.path.is_empty());
    expected.end = if let Some(cause) = both().find_map(|d| d.up) {
        End::Up(cause)
    } else if path_left {
        if inside.is_none() {
            expected.counted = counted;
        }
        End::Up(FrameDisposition::UpPath)
    } else if inside.is_some() && both().any(|d| d.refused.is_some()) {
        End::Up(FrameDisposition::UpTunnelRefused)
    } else {
        expected.counted = counted;
        outside.refused.map_or(End::ToPort, End::Drop)
    };
    expected
}
