// SPDX-License-Identifier: Apache-2.0
//! The kernel's half of [`Spread`]: a classic BPF program that selects the port of a group for a frame.
//!
//! Source: Linux `networking/filter.rst`; packet(7), `PACKET_FANOUT_CBPF`. The program sees a frame that
//! arrives from its network header on (the outermost VLAN tag is removed by then) and one that this host
//! sends from its link header on, so it counts from the network header (`SKF_NET_OFF`): both directions of a
//! flow reach one port. Frames that it cannot parse (tunnels, quoted packets in ICMP errors, IPv6 extension
//! headers, MPLS, PPPoE, a third VLAN tag) reach some port, and are handed over to their owner.
//!
//! Not done: tunnels.

use crate::bpf::{
    ADD_K, ADD_X, AND_K, BpfProgram, IPV4, IPV6, LD_B_ABS, LD_H_ABS, LD_H_IND, LD_IMM, LD_MEM, LD_W_ABS,
    LDX_MEM, LDX_MSH, Label, MUL_K, RET_A, RET_K, RSH_K, ST, TAX, XOR_X,
};
use bartizan_base::Spread;
use libc::sock_filter;

/// Added to an offset, which then counts from the network header, wherever the frame begins.
const NET: u32 = libc::SKF_NET_OFF as u32;

const TAGS: [u32; 2] = [0x8100, 0x88a8];
const VLAN_ID: u32 = 0xfff;
// Cells of memory: the addresses' part, a port, the sum of VLAN ids.
const ADDRESSES: u32 = 0;
const PORT: u32 = 1;
const VLANS: u32 = 2;
/// Protocols with ports at the beginning of their header: TCP, UDP, SCTP.
const PORTED: [u32; 3] = [6, 17, 132];

/// The program of a group: all frames of a flow go to one port, the one that [`Spread::worker`] selects.
pub(crate) fn program(spread: &Spread) -> Option<Vec<sock_filter>> {
    let mut p = BpfProgram::default();
    let end = p.label();
    // The tag that the kernel removed; one left in the frame is added where it is read.
    let untagged = p.label();
    p.op(LD_W_ABS, (libc::SKF_AD_OFF + libc::SKF_AD_VLAN_TAG_PRESENT) as u32);
    p.if_equal(0, untagged);
    p.op(LD_W_ABS, (libc::SKF_AD_OFF + libc::SKF_AD_VLAN_TAG) as u32);
    p.op(AND_K, VLAN_ID);
    p.place(untagged);
    p.op(ST, VLANS);
    // The type after the link header, without the tag that the kernel removed. A second tag may follow.
    p.op(LD_W_ABS, (libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL) as u32);
    let (plain4, plain6, tagged) = (p.label(), p.label(), p.label());
    p.if_equal(IPV4, plain4);
    p.if_equal(IPV6, plain6);
    for tag in TAGS {
        p.if_equal(tag, tagged);
    }
    p.op(RET_K, 0);
    p.place(tagged);
    p.op(LD_H_ABS, NET);
    p.op(AND_K, VLAN_ID);
    p.op(LDX_MEM, VLANS);
    p.op(ADD_X, 0);
    p.op(ST, VLANS);
    p.op(LD_H_ABS, NET + 2);
    let (inner4, inner6) = (p.label(), p.label());
    p.if_equal(IPV4, inner4);
    p.if_equal(IPV6, inner6);
    p.op(RET_K, 0);
    for (base, four, six) in [(NET, plain4, plain6), (NET + 4, inner4, inner6)] {
        p.place(four);
        ipv4(&mut p, base, spread, end);
        p.place(six);
        ipv6(&mut p, base, spread, end);
    }
    // A: the contribution of the ports.
    p.place(end);
    p.op(LDX_MEM, ADDRESSES);
    p.op(ADD_X, 0);
    p.op(ST, ADDRESSES);
    p.op(LD_MEM, VLANS);
    p.op(MUL_K, spread.factors().vlans);
    p.op(ADD_K, spread.start());
    p.op(LDX_MEM, ADDRESSES);
    p.op(ADD_X, 0);
    p.op(TAX, 0);
    p.op(RSH_K, 15);
    p.op(XOR_X, 0);
    p.op(MUL_K, spread.factors().last);
    p.op(RSH_K, 16);
    p.op(MUL_K, u32::from(spread.workers()));
    p.op(RSH_K, 16);
    p.op(RET_A, 0);
    p.finish()
}

fn ipv4(p: &mut BpfProgram, base: u32, spread: &Spread, end: Label) {
    let factors = spread.factors();
    let [first, ..] = factors.address;
    pair(p, base + 12, base + 16);
    p.op(MUL_K, first);
    p.op(ST, ADDRESSES);
    let (whole, ports) = (p.label(), p.label());
    // Offset and "more fragments".
    p.op(LD_H_ABS, base + 6);
    p.op(AND_K, 0x3fff);
    p.if_equal(0, whole);
    p.op(LD_IMM, 0);
    p.jump(end);
    p.place(whole);
    p.op(LD_B_ABS, base + 9);
    ported(p, ports);
    p.op(LD_IMM, 0);
    p.jump(end);
    p.place(ports);
    // Four times the header's length in words.
    p.op(LDX_MSH, base);
    p.op(LD_H_IND, base);
    p.op(ST, PORT);
    p.op(LD_H_IND, base + 2);
    p.op(LDX_MEM, PORT);
    p.op(ADD_X, 0);
    p.op(MUL_K, factors.ports);
    p.jump(end);
}

fn ipv6(p: &mut BpfProgram, base: u32, spread: &Spread, end: Label) {
    let factors = spread.factors();
    for (index, factor) in (0u32..).zip(factors.address) {
        pair(p, base + 8 + 4 * index, base + 24 + 4 * index);
        p.op(MUL_K, factor);
        if index > 0 {
            p.op(LDX_MEM, ADDRESSES);
            p.op(ADD_X, 0);
        }
        p.op(ST, ADDRESSES);
    }
    let ports = p.label();
    p.op(LD_B_ABS, base + 6);
    ported(p, ports);
    p.op(LD_IMM, 0);
    p.jump(end);
    p.place(ports);
    p.op(LD_H_ABS, base + 40);
    p.op(TAX, 0);
    p.op(LD_H_ABS, base + 42);
    p.op(ADD_X, 0);
    p.op(MUL_K, factors.ports);
    p.jump(end);
}

/// A = word at `a` + word at `b`.
fn pair(p: &mut BpfProgram, a: u32, b: u32) {
    p.op(LD_W_ABS, a);
    p.op(TAX, 0);
    p.op(LD_W_ABS, b);
    p.op(ADD_X, 0);
}

fn ported(p: &mut BpfProgram, ports: Label) {
    for protocol in PORTED {
        p.if_equal(protocol, ports);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::tests::{Received, run_at};
    use bartizan_base::LinkId;
    use bartizan_base::spread::{SpreadPorts, VirtualNetwork};
    use bartizan_testkit::packet::{Ip, IpFixed};
    use std::net::IpAddr;

    /// Runs a program as the kernel does, for a frame that arrives and one that is sent: a load beyond the
    /// packet ends it with 0.
    fn run(program: &[sock_filter], (tag, protocol): (Option<u16>, u16), packet: &[u8]) -> u32 {
        let sent = [&[0xee; 14], packet].concat();
        let at = |network| Received { tag, protocol, network };
        let (one, other) = (run_at(program, at(0), packet), run_at(program, at(14), &sent));
        assert_eq!(one, other, "a frame that arrives and one that is sent");
        one
    }

    fn v4(options: usize, fragment: u16, protocol: u8, host: u8) -> Vec<u8> {
        let (source, destination) = ends(false, host);
        let fixed = IpFixed {
            flags: Some((fragment >> 13) as u8),
            frag: Some(fragment & 0x1fff),
            ..IpFixed::default()
        };
        let ip = Ip::new(source, destination, protocol);
        let ip = Ip { id: 0x1234, options: vec![1; 4 * options], fixed, ..ip };
        ip.packet(&[0x9c, 0x40, 1, 187, 0, 0, 0, 0], None)
    }

    fn v6(next: u8, host: u8) -> Vec<u8> {
        let (source, destination) = ends(true, host);
        let fragment: &[u8] = &[17, 0, 0, 1, 9, 9, 1, 2];
        let ports: &[u8] = &[0x9c, 0x40, 1, 187, 0, 0];
        Ip::new(source, destination, next).packet(if next == 44 { fragment } else { ports }, None)
    }

    fn ends(v6: bool, host: u8) -> (IpAddr, IpAddr) {
        if v6 {
            let source = [0xfd09, 0x0807, 0x0605, 0x0403, 0, 0, 0x0102, 0x0300 | u16::from(host)];
            (IpAddr::from(source), "2001:db8::ffee:0:0:1".parse().unwrap())
        } else {
            (IpAddr::from([10, 1, 2, host]), IpAddr::from([192, 0, 2, 200]))
        }
    }

    #[test]
    fn the_kernel_computes_what_the_owners_are() {
        let ports = SpreadPorts::Ports(40_000, 443);
        for (workers, link, counts) in [(2, 0, true), (3, 7, true), (8, 1, false), (256, 65_535, true)] {
            let spread = Spread::new([5, 6], workers).of_link(LinkId(link)).counting(counts, true);
            let program = program(&spread).unwrap();
            let mut seen = std::collections::HashSet::new();
            for host in 0..100 {
                let cases = [
                    (0x0800, v4(0, 0, 6, host), false, ports),
                    (0x0800, v4(5, 0x4000, 17, host), false, ports),
                    (0x0800, v4(0, 0, 132, host), false, ports),
                    (0x0800, v4(0, 0, 1, host), false, SpreadPorts::Nothing),
                    (0x0800, v4(0, 0x2000, 17, host), false, SpreadPorts::Nothing),
                    (0x0800, v4(1, 0x00b9, 6, host), false, SpreadPorts::Nothing),
                    (0x86dd, v6(6, host), true, ports),
                    (0x86dd, v6(17, host), true, ports),
                    (0x86dd, v6(58, host), true, SpreadPorts::Nothing),
                    (0x86dd, v6(44, host), true, SpreadPorts::Nothing),
                ];
                for (protocol, packet, is_v6, part) in cases {
                    let (source, destination) = ends(is_v6, host);
                    let expected = |vlans: [u16; 3]| {
                        let network = VirtualNetwork { vlans, tunnel: 0 };
                        u32::from(spread.worker_in(network, source, destination, part))
                    };
                    assert_eq!(run(&program, (None, protocol), &packet), expected([0; 3]), "{packet:x?}");
                    seen.insert(expected([0; 3]));
                    // The priority of a tag is ignored.
                    let own = u16::from(host) * 41;
                    let tag = Some(own | 0x6000);
                    assert_eq!(run(&program, (tag, protocol), &packet), expected([own, 0, 0]));
                    // After a tag that the kernel left in the frame, and after a second one.
                    let mut tagged = vec![0xa0, 7];
                    tagged.extend_from_slice(&protocol.to_be_bytes());
                    tagged.extend_from_slice(&packet);
                    assert_eq!(run(&program, (None, 0x8100), &tagged), expected([7, 0, 0]));
                    assert_eq!(run(&program, (tag, 0x88a8), &tagged), expected([own, 7, 0]));
                }
            }
            assert!(seen.len() > usize::from(workers) / 2);
        }
    }

    #[test]
    fn what_it_does_not_know_and_what_is_cut_goes_somewhere() {
        let program = program(&Spread::new([5, 6], 4)).unwrap();
        assert!(program.len() < 256, "{}", program.len());
        assert_eq!(run(&program, (None, 0x0806), &[0; 28]), 0);
        for packet in [v4(0, 0, 6, 1), v6(6, 1)] {
            let protocol = if packet[0] == 0x60 { 0x86dd } else { 0x0800 };
            for length in 0..packet.len() {
                assert!(run(&program, (None, protocol), &packet[..length]) < 4);
            }
        }
    }
}
