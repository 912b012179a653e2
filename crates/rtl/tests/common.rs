// SPDX-License-Identifier: Apache-2.0
//! Frames, policies, and the device with a policy.

pub use crate::reference::GENERATION;
use crate::reference::{IDS, PFW, Policy, PolicyRule, SFW, TUNNEL_PORTS, VXLAN_PORT};
use bartizan_base::{Fid, LinkId, Path, Reason, TenantId, Verdict};
use bartizan_classify::{HeaderRule, Net, Range};
use bartizan_packet::tables::{RuleEntry, RuleEntryFlags};
use bartizan_rtl::driver::TenantEntry;
use bartizan_rtl::model::Configuration;
use bartizan_rtl::simulation::Simulation;
use bartizan_rtl::{EntryClass, TableDriver, TernaryEntry};
use bartizan_testkit::layers;
use bartizan_testkit::packet::{Datagram, Ip, Layer, Packet, Segment};
use bartizan_testkit::random::Random;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A device under test, with the rule of each of its entries.
pub struct Device {
    pub driver: TableDriver<Simulation>,
    /// Number of rules that have entries.
    pub rules: usize,
}

/// The outcome of a rule of the packet filter, as `pfw_table::entry` of crate functions makes it.
pub fn outcome(place: usize, verdict: Verdict) -> RuleEntry {
    RuleEntry {
        rule: 1,
        counter: place as u32,
        verdict: verdict as u8,
        reason: Reason::PfwRule as u8,
        flags: RuleEntryFlags::VALID.bits(),
        generation: GENERATION,
        egress: 0,
    }
}

impl Device {
    /// A device with as many of the policy's rules as fit, from the first on.
    pub fn new(configuration: Configuration, seed: u32, policy: &Policy) -> Self {
        let mut driver =
            TableDriver::new(Simulation::new(configuration, seed), seed.into()).expect("the device answers");
        driver.set_generation(GENERATION).unwrap();
        driver.set_tunnel_ports(VXLAN_PORT, TUNNEL_PORTS).unwrap();
        driver.set_function_bits(PFW, SFW).unwrap();
        for (place, tenant) in policy.tenants.iter().enumerate() {
            driver.set_tenant(place, Some(*tenant)).unwrap();
        }
        let mut device = Device { driver, rules: 0 };
        device.load(&policy.rules);
        device.driver.enable(true).unwrap();
        device
    }

    /// Fills the classifier with rules, and says how many fit.
    pub fn load(&mut self, rules: &[PolicyRule]) {
        let capabilities = *self.driver.capabilities();
        let mut place = 0;
        self.rules = 0;
        for (number, rule) in rules.iter().enumerate() {
            let entries = TernaryEntry::of(&rule.rule, capabilities.layout());
            if place + entries.len() > capabilities.entries || number >= capabilities.entries {
                break;
            }
            self.driver.set_outcome(number, &outcome(number, rule.verdict)).unwrap();
            let fid = Fid(number as u32 + 1);
            let class = EntryClass { fid, path: rule.path, generation: GENERATION, outcome: number as u16 };
            for entry in entries {
                self.driver.set_entry(place, entry, class).unwrap();
                place += 1;
            }
            self.rules += 1;
        }
        for place in place..capabilities.entries {
            self.driver.clear_entry(place).unwrap();
        }
    }
}

/// An address of a small world, so that rules and frames meet.
fn address(random: &mut Random, v6: bool) -> IpAddr {
    let low = *random.pick(&[1u8, 2, 3, 200]);
    let net = *random.pick(&[0u8, 1, 128]);
    if v6 {
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, net.into(), 0, 0, 0, 0, low.into()))
    } else {
        IpAddr::V4(Ipv4Addr::new(10, net, 0, low))
    }
}

fn net(random: &mut Random, v6: bool) -> Option<Net> {
    let lengths: &[u8] = if v6 { &[0, 41, 48, 127, 128] } else { &[0, 9, 16, 31, 32] };
    random.percent(90).then(|| Net { address: address(random, v6), length: *random.pick(lengths) })
}

fn ports(random: &mut Random) -> Range {
    // Ranges take several entries: few, so that a policy fits into 64.
    match random.below(10) {
        0..5 => Range::ANY,
        5..8 => Range::one(*random.pick(&[53, 80, 443])),
        8 => Range { first: 1024, last: 65_535 },
        _ => Range { first: 80, last: 90 },
    }
}

/// A policy of so many rules: all verdicts and paths, tenants by VNI, VLAN and link.
pub fn policy(random: &mut Random, count: usize) -> Policy {
    let mut policy = Policy::default();
    for _ in 0..count {
        let v6 = random.percent(40);
        let any = random.percent(4);
        let rule = HeaderRule {
            tenant: random.percent(30).then(|| TenantId(*random.pick(&[0, 5, 6, 0x1234]))),
            link: random.percent(20).then(|| LinkId(random.below(2) as u16)),
            source: if any { None } else { net(random, v6) },
            destination: if any { None } else { net(random, v6) },
            protocol: random.percent(60).then(|| *random.pick(&[6u8, 17])),
            source_ports: ports(random),
            destination_ports: ports(random),
            ..HeaderRule::default()
        };
        let path = *random.pick(&[
            1 << PFW,
            1 << PFW,
            1 << PFW,
            1 << PFW | 1 << SFW,
            1 << PFW | 1 << IDS,
            0,
            1 << IDS,
        ]);
        let verdict = *random.pick(&[Verdict::Drop, Verdict::Drop, Verdict::Continue, Verdict::Reject]);
        policy.rules.push(PolicyRule { rule, path: Path(path), verdict });
    }
    // The default of a policy: it forwards most of what is left, so that packets of both ends are met.
    let rest = HeaderRule { destination_ports: Range { first: 0, last: 0x7fff }, ..HeaderRule::default() };
    policy.rules.push(PolicyRule { rule: rest, path: Path(1 << PFW), verdict: Verdict::Continue });
    policy.tenants = vec![
        TenantEntry { vni: Some(7), tenant: 5, ..TenantEntry::default() },
        TenantEntry { vlan: Some(9), tenant: 6, ..TenantEntry::default() },
        TenantEntry { link: Some(1), vlan: Some(10), tenant: 0x1234, ..TenantEntry::default() },
    ];
    policy
}

/// A frame of the kinds that the device knows, and of some that it does not; `number` is in its first bytes,
/// which are no part of any decision.
pub fn frame(random: &mut Random, number: u64, v6: bool) -> Vec<u8> {
    let mut frame = plain(random, v6, 300);
    if random.percent(15) {
        let (outer6, ends) = (v6 && random.percent(30), random.percent(90));
        let mut inside = plain(random, v6, 200);
        if random.percent(5) {
            inside = layers::tagged(9, inside);
        }
        let vni = *random.pick(&[7u32, 8, 0xff_ffff]);
        let load = layers::vxlan(vni, &inside);
        let ip = Ip::new(address(random, outer6), address(random, outer6), 17);
        let port = if ends { VXLAN_PORT } else { 6081 };
        frame = Packet { ip, layer: Layer::Udp(Datagram::new((40_000, port), &load)), piece: None }.frame();
    }
    for _ in 0..*random.pick(&[0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 4]) {
        frame = layers::tagged(*random.pick(&[9u16, 10, 11, 0xf009]), frame);
    }
    match random.below(20) {
        // What is broken is broken somewhere in the headers.
        0 | 1 => {
            let at = 12 + random.below(frame.len().min(120) - 12);
            frame[at] = random.draw() as u8;
        }
        2 => frame.truncate(1 + random.below(frame.len())),
        3 => {
            let count = random.below(64);
            frame.extend(random.bytes(count));
        }
        _ => {}
    }
    for (place, byte) in frame.iter_mut().zip(number.to_le_bytes()).take(6) {
        *place = byte;
    }
    frame
}

/// The number that [`frame`] has put into a frame.
pub fn number(frame: &[u8]) -> Option<u64> {
    let mut bytes = [0; 8];
    bytes[..6].copy_from_slice(frame.get(..6)?);
    Some(u64::from_le_bytes(bytes))
}

fn plain(random: &mut Random, v6: bool, most: usize) -> Vec<u8> {
    let v6 = v6 && random.percent(45);
    let (from, to) = (address(random, v6), address(random, v6));
    let ports =
        (*random.pick(&[1023, 1024, 40_000]), *random.pick(&[53, 80, 85, 91, 443, 53, 80, 443, 3544, 4789]));
    let count = random.below(most);
    let load = random.bytes(count);
    let mut ip = Ip::new(from, to, 6);
    if random.percent(6) && !v6 {
        ip.options = random.pick(&[vec![1, 1, 1, 0], vec![148, 4, 0, 0], vec![9; 40], vec![7, 39]]).clone();
    }
    let layer = match random.below(10) {
        0..6 => {
            let flags = *random.pick(&[0x02, 0x12, 0x10, 0x18, 0x11, 0x04, 0]);
            let mut segment = Segment::new(ports, (random.draw() as u32, random.draw() as u32), flags, &load);
            segment.raw_options = random
                .pick(&[
                    vec![],
                    vec![],
                    vec![],
                    vec![],
                    vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2],
                    vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2],
                    vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2],
                    vec![2, 4, 5, 0xb4],
                    vec![8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1],
                    vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0],
                    vec![3, 9, 0, 0],
                ])
                .clone();
            Layer::Tcp(segment)
        }
        6..9 => {
            ip.protocol = 17;
            Layer::Udp(Datagram::new(ports, &load))
        }
        _ => {
            ip.protocol = *random.pick(&[1, 4, 41, 44, 47, 58, 59, 60, 132]);
            Layer::Part(load)
        }
    };
    Packet { ip, layer, piece: None }.frame()
}
