// SPDX-License-Identifier: Apache-2.0
//! The XDP program on the ports of a link, random frames for it, and the host's decoding of them for
//! comparison.
//!
//! The kernel runs the program on each frame, in a network namespace that ends with the test.
#![allow(dead_code)]

use bartizan_base::{LinkId, TenantId};
use bartizan_flow::{EspFlows, FlowKey, FlowScope, FlowSide};
use bartizan_packet::{DecodeOutput, Decoded, Decoder, DecoderConfig, LinkType};
use bartizan_testkit::namespace::{number, ports};
use bartizan_testkit::packet::{ACK, Datagram, End, Ip, Layer, PSH, Packet, Segment, TCP, UDP};
use bartizan_testkit::random::Random;
use bartizan_xdp::{ModeChoice, PortSetup, PortSide, XdpOptions, XdpProgram};
use std::net::IpAddr;

pub const DROP: u32 = 1;
pub const PASS: u32 = 2;
pub const REDIRECT: u32 = 4;
pub const LINK: LinkId = LinkId(0xbeef);

/// Where host and program look for tunnels.
pub fn config() -> DecoderConfig {
    let mut config = DecoderConfig::default();
    config.gtp.enabled = true;
    config
}

/// A link, and the program.
pub fn program() -> XdpProgram {
    ports(["lan", "wan"]);
    XdpProgram::load(&XdpOptions {
        flows: 64,
        mode: ModeChoice::Auto,
        tunnels: config(),
        workers: 1,
        early: None,
        seed: 77,
    })
    .unwrap()
}

/// Settings of a link's ports.
#[derive(Clone, Copy)]
pub struct Setting {
    pub sides: bool,
    pub vlans: bool,
}

pub fn attach(program: &mut XdpProgram, setting: Setting) {
    for (name, side, index, pair) in [("lan", PortSide::First, 0, 1), ("wan", PortSide::Second, 1, 0)] {
        let side = if setting.sides { side } else { PortSide::Unknown };
        let port = PortSetup {
            ifindex: number(name),
            link: LINK,
            side,
            index,
            pair,
            vlans_in_key: setting.vlans,
            drop_samples: None,
            early: None,
            watch: None,
        };
        program.attach(&port).unwrap();
    }
}

pub fn endpoint(random: &mut Random, v6: bool) -> End {
    // Near one another, so that one is now the higher by its address, now by its port, and now there is only
    // one.
    let odd = [0, 1, 0x7fff_ffff_ffff_ffff, 0x8000_0000_0000_0000, u64::MAX];
    let address = if v6 {
        let half = |random: &mut Random| if random.percent(70) { *random.pick(&odd) } else { random.draw() };
        let number = u128::from(half(random)) << 64 | u128::from(half(random));
        IpAddr::V6(number.into())
    } else {
        let number = if random.percent(70) { *random.pick(&odd) as u32 } else { random.draw() as u32 };
        IpAddr::V4(number.into())
    };
    let port =
        if random.percent(50) { *random.pick(&[0, 1, 0x7fff, 0x8000, 0xffff]) } else { random.draw() as u16 };
    // The host looks for a tunnel in datagrams of these.
    let port = if [4789, 6081, 2152].contains(&port) { port + 1 } else { port };
    (address, port)
}

pub fn packet(random: &mut Random) -> Packet {
    let v6 = random.percent(50);
    let (from, to) = (endpoint(random, v6), endpoint(random, v6));
    let length = random.below(60);
    let load = random.bytes(length);
    let mut ip = Ip::new(from.0, to.0, if random.percent(50) { TCP } else { UDP });
    ip.tags = (0..random.below(4)).map(|_| random.draw() as u16).collect();
    (ip.ttl, ip.tos) = (random.draw() as u8, random.draw() as u8);
    ip.id = random.draw() as u32 & 0xffff;
    let layer = if ip.protocol == TCP {
        let mut segment = Segment::new((from.1, to.1), (random.draw() as u32, 7), ACK | PSH, &load);
        if random.percent(50) {
            segment.raw_options = vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        }
        if random.percent(20) {
            segment.raw_options.extend([1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        }
        Layer::Tcp(segment)
    } else {
        Layer::Udp(Datagram::new((from.1, to.1), &load))
    };
    Packet { ip, layer, piece: None }
}

/// The packets in a frame, as the host decodes them.
pub fn decode(frame: &[u8]) -> Vec<Decoded> {
    decode_by(config(), frame)
}

/// [`decode`] with the tunnel ports of another configuration.
pub fn decode_by(config: DecoderConfig, frame: &[u8]) -> Vec<Decoded> {
    let mut out = DecodeOutput::new();
    Decoder::new(config).decode(LinkType::ETHERNET, frame, frame.len() as u32, &mut out);
    out.packets().to_vec()
}

/// The key of a packet that came by a side of the link, as the data plane makes it (`identity.rs`).
pub fn key(packet: &Decoded, setting: Setting, second: bool, tenant: u16) -> Option<FlowKey> {
    let scope = FlowScope {
        tenant: TenantId(tenant),
        link: LINK,
        tunnel: packet.tunnel.key(),
        level: packet.recursion,
        vlans: if setting.vlans { packet.vlan.padded() } else { [0; 3] },
        side: match (setting.sides, second) {
            (false, _) => FlowSide::Unknown,
            (true, false) => FlowSide::First,
            (true, true) => FlowSide::Second,
        },
    };
    FlowKey::of_packet(&scope, packet, EspFlows::default())
}

/// Changes a few bytes, mostly of the headers, and sometimes the length.
pub fn spoil(random: &mut Random, frame: &mut Vec<u8>) {
    for _ in 0..random.within(1, 3) {
        let reach = if random.percent(80) { frame.len().min(80) } else { frame.len() };
        let at = random.below(reach);
        frame[at] = if random.percent(50) { frame[at] ^ 1 << random.below(8) } else { random.draw() as u8 };
    }
    if random.percent(20) {
        let length = random.within(14, frame.len() + 4);
        frame.resize(length, 0);
    }
    // A checksum that fits lets more through to what is behind it.
    if frame.len() >= 34 && frame[12..15] == [8, 0, 0x45] && random.percent(80) {
        bartizan_testkit::packet::sum_ipv4_header(&mut frame[14..34]);
    }
}
