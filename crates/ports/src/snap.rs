// SPDX-License-Identifier: Apache-2.0
//! Snap lengths: the number of bytes of a frame that a passive port takes, counted from the frame's first
//! byte or from the end of its headers.
//!
//! The kernel cuts: a socket's classic BPF program returns the number of bytes of a frame to keep. A length
//! after headers is computed by a program that reads the headers as the decoder does: link header with VLAN
//! tags, MPLS labels or PPPoE, IPv4 with options, IPv6 with extension headers, transport header, and through
//! tunnels ([`PACKETS`]) the headers of the packet inside. Bytes count from the end of the innermost headers
//! found. A frame without an IP header, or with a header that breaks off or contradicts itself, is taken
//! whole (up to [`AfterHeaders::max`]).
//!
//! Source: Linux `net/core/filter.c` (facts: a load beyond the packet drops it, so lengths are compared
//! first; jumps go forward only).
//!
//! Not done: tunnels of Teredo and PPTP, 802.1ah, FabricPath, VN-Tag, NSH and Ethernet over MPLS; their
//! contents count as payload or, if no IP header was found before, the frame is taken whole.

use crate::bpf::{
    ADD_K, ADD_X, AND_K, BpfProgram, IPV4, IPV6, JEQ_K, JGE_K, JGE_X, JGT_K, LD_B_IND, LD_H_IND, LD_IMM,
    LD_LEN, LD_MEM, LDX_IMM, LSH_K, Label, RET_A, RET_K, RSH_K, ST, STX, SUB_X, TAX, TXA,
};
use crate::port::LinkLayer;
use bartizan_packet::{DecoderConfig, TunnelPorts};
use libc::sock_filter;

/// The bytes of each frame that the kernel puts into the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapLength {
    /// So many bytes from the frame's first byte on, without a VLAN tag that the kernel removes. At least 1.
    Frame(u32),
    /// The headers, and so many bytes after them.
    Headers(AfterHeaders),
}

/// A snap length that counts from the end of headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AfterHeaders {
    /// The last layer whose header is taken whole.
    pub layer: HeaderLayer,
    /// Bytes of each frame after that header.
    pub bytes: u32,
    /// The most bytes of any frame, independent of its headers; at least 1. No bound by default.
    pub max: Option<u32>,
    /// UDP ports that carry tunnels.
    pub tunnels: DecoderConfig,
}

/// A layer of headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderLayer {
    /// All bytes before the IP header.
    Link,
    /// The IP header with options and extension headers.
    Network,
    /// The header of TCP, UDP, SCTP, ICMP (in errors with the quoted header and 8 bytes after it), GRE, ESP
    /// or AH.
    Transport,
}

/// The most packets of a frame whose headers are read: the outer one, and those in tunnels.
const PACKETS: usize = 3;
/// The most VLAN tags before a packet, as in the decoder.
const TAGS_MOST: usize = 3;
/// The most MPLS labels before a packet.
const LABELS_MOST: usize = 4;
/// The most extension headers of an IPv6 packet; one with more is taken whole.
const EXTENSIONS_MOST: usize = 4;
/// The most extension headers of GTP-U.
const GTP_EXTENSIONS_MOST: usize = 2;

const ETHERNET: u32 = 0x6558;
const ERSPAN: u32 = 0x88be;
const VLAN_TYPES: [u32; 3] = [0x8100, 0x88a8, 0x9100];
const MPLS_TYPES: [u32; 2] = [0x8847, 0x8848];
const PPPOE: u32 = 0x8864;
/// Protocols of PPP: IPv4, IPv6.
const PPP_IP: [u32; 2] = [0x0021, 0x0057];

/// Extension headers with a length field of their own form.
const FRAGMENT: u32 = 44;
const AUTHENTICATION: u32 = 51;
/// Instead of a protocol number: this packet has no transport header (a fragment that is not the first).
const NO_TRANSPORT: u32 = 0xffff;
/// More bytes than any frame has, so all of it; the end of headers before any was found.
const WHOLE: u32 = 0x7fff_0000;

// Cells of memory: the end of the headers found, the number of the next header and of this one; the first
// bytes of this one, which cost a call to read.
const END: u32 = 0;
const NEXT: u32 = 1;
const THIS: u32 = 2;
const FIRST: u32 = 3;
/// The flag of a GRE header that has a sequence number.
const SEQUENCE: u32 = 0x1000;

/// The steps of the program for a wanted frame, the last of which return the number of bytes to keep.
pub(crate) fn steps(snap: &SnapLength, link_layer: LinkLayer) -> Option<Vec<sock_filter>> {
    match snap {
        SnapLength::Frame(bytes) => Some(vec![sock_filter { code: RET_K, jt: 0, jf: 0, k: *bytes }]),
        SnapLength::Headers(after) => SnapProgram::new(after).write(link_layer),
    }
}

/// Labels of the parts that read the headers of one packet.
#[derive(Clone, Copy)]
struct HeaderLabels {
    /// At its Ethernet header.
    ethernet: Label,
    /// At its IP header, of whatever version.
    ip: Label,
}

/// A program under construction. Register X is the read position; it is never beyond the frame.
struct SnapProgram<'s> {
    p: BpfProgram,
    after: &'s AfterHeaders,
    /// All headers were found.
    done: Label,
    /// Headers are broken.
    whole: Label,
}

impl<'s> SnapProgram<'s> {
    fn new(after: &'s AfterHeaders) -> Self {
        let mut p = BpfProgram::default();
        let (done, whole) = (p.label(), p.label());
        SnapProgram { p, after, done, whole }
    }

    fn write(mut self, link_layer: LinkLayer) -> Option<Vec<sock_filter>> {
        let entries: Vec<HeaderLabels> =
            (0..PACKETS).map(|_| HeaderLabels { ethernet: self.p.label(), ip: self.p.label() }).collect();
        self.p.op(LD_IMM, WHOLE);
        self.p.op(ST, END);
        self.p.op(LDX_IMM, 0);
        for (depth, entry) in entries.iter().enumerate() {
            if depth == 0 && link_layer == LinkLayer::RawIp {
                self.p.jump(entry.ip);
            }
            self.ethernet(*entry, depth == 0);
            self.ip(*entry, entries.get(depth + 1).copied());
        }
        let most = self.after.max.unwrap_or(WHOLE);
        self.p.place(self.done);
        self.p.op(LD_MEM, END);
        self.p.op(ADD_K, self.after.bytes);
        self.p.branch(JGT_K, most, self.whole);
        self.p.op(RET_A, 0);
        self.p.place(self.whole);
        self.p.op(RET_K, most);
        self.p.finish()
    }

    /// Takes the frame whole unless so many bytes follow.
    fn need(&mut self, bytes: u32) {
        self.p.op(LD_LEN, 0);
        self.p.op(SUB_X, 0);
        self.p.unless(JGE_K, bytes, self.whole);
    }

    /// Skips bytes that are present.
    fn skip(&mut self, bytes: u32) {
        self.p.op(TXA, 0);
        self.p.op(ADD_K, bytes);
        self.p.op(TAX, 0);
    }

    /// Skips as many bytes as A has, if they are present.
    fn skip_read(&mut self) {
        self.p.op(ADD_X, 0);
        self.p.op(TAX, 0);
        self.p.op(LD_LEN, 0);
        self.p.unless(JGE_X, 0, self.whole);
    }

    fn equal(&mut self, value: u32, to: Label) {
        self.p.branch(JEQ_K, value, to);
    }

    /// Notes the end of the headers up to a layer.
    fn end_of(&mut self, layer: HeaderLayer) {
        let counts = match self.after.layer {
            HeaderLayer::Transport => layer != HeaderLayer::Link,
            of => of == layer,
        };
        if counts {
            self.p.op(STX, END);
        }
    }

    /// Reads from an Ethernet header to the IP header. Labels and PPPoE are supported in the outer frame
    /// only.
    fn ethernet(&mut self, entry: HeaderLabels, outer: bool) {
        let (mpls, pppoe, ip) = (self.p.label(), self.p.label(), self.p.label());
        self.p.place(entry.ethernet);
        self.need(14);
        // At the type: each tag inserts four bytes before it.
        self.skip(12);
        let untagged = self.p.label();
        for _ in 0..TAGS_MOST {
            let tagged = self.p.label();
            self.p.op(LD_H_IND, 0);
            VLAN_TYPES.iter().for_each(|kind| self.equal(*kind, tagged));
            self.p.jump(untagged);
            self.p.place(tagged);
            self.need(6);
            self.skip(4);
        }
        self.p.op(LD_H_IND, 0);
        self.p.place(untagged);
        self.equal(IPV4, ip);
        self.equal(IPV6, ip);
        if outer {
            MPLS_TYPES.iter().for_each(|kind| self.equal(*kind, mpls));
            self.equal(PPPOE, pppoe);
        }
        self.p.jump(self.done);
        if outer {
            self.p.place(mpls);
            self.skip(2);
            for _ in 0..LABELS_MOST {
                self.need(4);
                self.p.op(LD_B_IND, 2);
                self.p.op(AND_K, 1);
                self.p.op(ST, NEXT);
                self.skip(4);
                self.p.op(LD_MEM, NEXT);
                self.equal(1, entry.ip);
            }
            self.p.jump(self.done);
            self.p.place(pppoe);
            self.skip(2);
            self.need(8);
            let session = self.p.label();
            self.p.op(LD_H_IND, 6);
            PPP_IP.iter().for_each(|protocol| self.equal(*protocol, session));
            self.p.jump(self.done);
            self.p.place(session);
            self.skip(8);
            self.p.jump(entry.ip);
        }
        self.p.place(ip);
        self.skip(2);
    }

    /// Reads from an IP header on. `inner`: the labels for the headers of a packet inside.
    fn ip(&mut self, entry: HeaderLabels, inner: Option<HeaderLabels>) {
        let (four, six, transport) = (self.p.label(), self.p.label(), self.p.label());
        self.p.place(entry.ip);
        self.need(1);
        self.p.op(LD_B_IND, 0);
        self.p.op(ST, FIRST);
        self.p.op(RSH_K, 4);
        self.equal(4, four);
        self.equal(6, six);
        self.p.jump(self.done);
        self.p.place(four);
        self.ipv4();
        self.p.jump(transport);
        self.p.place(six);
        self.ipv6(transport);
        self.p.place(transport);
        self.end_of(HeaderLayer::Network);
        self.transport(inner);
    }

    fn ipv4(&mut self) {
        self.end_of(HeaderLayer::Link);
        self.need(20);
        let first = self.p.label();
        self.p.op(LD_B_IND, 9);
        self.p.op(ST, NEXT);
        self.p.op(LD_H_IND, 6);
        self.p.op(AND_K, 0x1fff);
        self.equal(0, first);
        self.p.op(LD_IMM, NO_TRANSPORT);
        self.p.op(ST, NEXT);
        self.p.place(first);
        self.p.op(LD_MEM, FIRST);
        self.p.op(AND_K, 0x0f);
        self.p.op(LSH_K, 2);
        self.p.unless(JGE_K, 20, self.whole);
        self.skip_read();
    }

    fn ipv6(&mut self, transport: Label) {
        self.end_of(HeaderLayer::Link);
        self.need(40);
        self.p.op(LD_B_IND, 6);
        self.p.op(ST, NEXT);
        self.skip(40);
        let later = self.p.label();
        for _ in 0..EXTENSIONS_MOST {
            let (extension, fragment, authentication, end) =
                (self.p.label(), self.p.label(), self.p.label(), self.p.label());
            self.p.op(LD_MEM, NEXT);
            self.p.op(ST, THIS);
            self.if_extension(extension);
            self.p.jump(transport);
            self.p.place(extension);
            self.need(8);
            self.p.op(LD_H_IND, 0);
            self.p.op(ST, FIRST);
            self.p.op(RSH_K, 8);
            self.p.op(ST, NEXT);
            self.p.op(LD_MEM, THIS);
            self.equal(FRAGMENT, fragment);
            self.equal(AUTHENTICATION, authentication);
            // In units of eight bytes, the first not included.
            self.p.op(LD_MEM, FIRST);
            self.p.op(AND_K, 0xff);
            self.p.op(ADD_K, 1);
            self.p.op(LSH_K, 3);
            self.p.jump(end);
            // In units of four bytes, the first two not included.
            self.p.place(authentication);
            self.p.op(LD_MEM, FIRST);
            self.p.op(AND_K, 0xff);
            self.p.op(ADD_K, 2);
            self.p.op(LSH_K, 2);
            self.p.jump(end);
            self.p.place(fragment);
            self.p.op(LD_H_IND, 2);
            self.p.op(AND_K, 0xfff8);
            self.p.unless(JEQ_K, 0, later);
            self.p.op(LD_IMM, 8);
            self.p.place(end);
            self.skip_read();
        }
        self.p.op(LD_MEM, NEXT);
        self.if_extension(self.whole);
        self.p.jump(transport);
        self.p.place(later);
        self.p.op(LD_IMM, NO_TRANSPORT);
        self.p.op(ST, NEXT);
        self.skip(8);
    }

    /// Jumps if A is the number of an extension header.
    fn if_extension(&mut self, to: Label) {
        // Hop by hop, routing, destination, mobility, HIP, Shim6.
        let numbers = [0, 43, 60, 135, 139, 140, FRAGMENT, AUTHENTICATION];
        numbers.into_iter().for_each(|number| self.equal(number, to));
    }

    /// Reads from a transport header on.
    fn transport(&mut self, inner: Option<HeaderLabels>) {
        let (tcp, udp, gre) = (self.p.label(), self.p.label(), self.p.label());
        let (icmp, icmp6) = (self.p.label(), self.p.label());
        let counts = self.after.layer == HeaderLayer::Transport;
        let fixed = [(132, 12), (50, 8), (51, 12)].map(|(number, length)| (number, length, self.p.label()));
        self.p.op(LD_MEM, NEXT);
        if let Some(inner) = inner {
            self.equal(4, inner.ip);
            self.equal(41, inner.ip);
        }
        if counts || inner.is_some() {
            self.equal(17, udp);
            self.equal(47, gre);
        }
        if counts {
            self.equal(6, tcp);
            self.equal(1, icmp);
            self.equal(58, icmp6);
            fixed.iter().for_each(|(number, _, label)| self.equal(*number, *label));
        }
        self.p.jump(self.done);
        if counts {
            for (_, length, label) in fixed {
                self.p.place(label);
                self.need(length);
                self.skip(length);
                self.ends_in_transport();
            }
            self.p.place(tcp);
            self.need(20);
            self.p.op(LD_B_IND, 12);
            self.p.op(RSH_K, 4);
            self.p.op(LSH_K, 2);
            self.p.unless(JGE_K, 20, self.whole);
            self.skip_read();
            self.ends_in_transport();
            self.icmp(icmp, icmp6);
        }
        if counts || inner.is_some() {
            self.p.place(udp);
            self.udp(inner);
            self.p.place(gre);
            self.gre(inner);
        }
    }

    fn ends_in_transport(&mut self) {
        self.end_of(HeaderLayer::Transport);
        self.p.jump(self.done);
    }

    /// Reads messages of both versions. Errors quote a packet: flows use its addresses and ports.
    fn icmp(&mut self, four: Label, six: Label) {
        let (quote4, quote6, plain) = (self.p.label(), self.p.label(), self.p.label());
        self.p.place(four);
        self.need(8);
        self.p.op(LD_B_IND, 0);
        [3, 4, 5, 11, 12].into_iter().for_each(|kind| self.equal(kind, quote4));
        self.p.jump(plain);
        self.p.place(six);
        self.need(8);
        self.p.op(LD_B_IND, 0);
        [1, 2, 3, 4].into_iter().for_each(|kind| self.equal(kind, quote6));
        self.p.place(plain);
        self.skip(8);
        self.ends_in_transport();
        self.p.place(quote4);
        self.need(8 + 20 + 8);
        self.p.op(LD_B_IND, 8);
        self.p.op(AND_K, 0x0f);
        self.p.op(LSH_K, 2);
        self.p.op(ADD_K, 8 + 8);
        self.skip_read();
        self.ends_in_transport();
        self.p.place(quote6);
        self.need(8 + 40 + 8);
        self.skip(8 + 40 + 8);
        self.ends_in_transport();
    }

    fn udp(&mut self, inner: Option<HeaderLabels>) {
        self.need(8);
        let Some(inner) = inner else {
            self.skip(8);
            return self.ends_in_transport();
        };
        let config = self.after.tunnels;
        let (vxlan, geneve, gtp) = (self.p.label(), self.p.label(), self.p.label());
        self.p.op(LD_H_IND, 2);
        self.tunnel(&config.geneve, geneve);
        self.tunnel(&config.vxlan, vxlan);
        self.tunnel(&config.gtp, gtp);
        self.p.op(LD_H_IND, 0);
        self.tunnel(&config.geneve, geneve);
        self.tunnel(&config.gtp, gtp);
        self.skip(8);
        self.ends_in_transport();
        for (label, write) in
            [(vxlan, Self::vxlan as fn(&mut Self, HeaderLabels)), (geneve, Self::geneve), (gtp, Self::gtp)]
        {
            self.p.place(label);
            self.skip(8);
            self.end_of(HeaderLayer::Transport);
            write(self, inner);
        }
    }

    /// Jumps if A is a port of such tunnels.
    fn tunnel(&mut self, ports: &TunnelPorts, to: Label) {
        if !ports.enabled {
            return;
        }
        if ports.ports.is_any() {
            return self.p.jump(to);
        }
        ports.ports.listed().iter().for_each(|port| self.equal(u32::from(*port), to));
    }

    /// No tunnel unless so many bytes follow.
    fn tunnel_needs(&mut self, bytes: u32) {
        self.p.op(LD_LEN, 0);
        self.p.op(SUB_X, 0);
        self.p.unless(JGE_K, bytes, self.done);
    }

    /// Reads VXLAN (RFC 7348). Receivers other than strict ones ignore the reserved bits.
    fn vxlan(&mut self, inner: HeaderLabels) {
        self.tunnel_needs(8);
        self.p.op(LD_B_IND, 0);
        self.p.op(AND_K, 0x08);
        self.equal(0, self.done);
        self.skip(8);
        self.p.jump(inner.ethernet);
    }

    /// Reads GENEVE (RFC 8926).
    fn geneve(&mut self, inner: HeaderLabels) {
        self.tunnel_needs(8);
        self.p.op(LD_H_IND, 2);
        self.p.op(ST, NEXT);
        self.p.op(LD_B_IND, 0);
        self.p.op(ST, FIRST);
        self.p.op(AND_K, 0xc0);
        self.p.unless(JEQ_K, 0, self.done);
        self.p.op(LD_MEM, FIRST);
        self.p.op(AND_K, 0x3f);
        self.p.op(LSH_K, 2);
        self.p.op(ADD_K, 8);
        self.skip_read();
        self.p.op(LD_MEM, NEXT);
        self.equal(IPV4, inner.ip);
        self.equal(IPV6, inner.ip);
        self.equal(ETHERNET, inner.ethernet);
        self.p.jump(self.done);
    }

    /// Reads GTP-U (3GPP TS 29.281).
    fn gtp(&mut self, inner: HeaderLabels) {
        self.tunnel_needs(8);
        let (optional, end) = (self.p.label(), self.p.label());
        // Version, kind of a packet of a user; flags.
        self.p.op(LD_H_IND, 0);
        self.p.op(ST, FIRST);
        self.p.op(AND_K, 0xf0ff);
        self.p.unless(JEQ_K, 0x30ff, self.done);
        self.skip(8);
        self.p.op(LD_MEM, FIRST);
        self.p.op(AND_K, 0x0700);
        self.equal(0, inner.ip);
        self.tunnel_needs(4);
        self.p.op(LD_MEM, FIRST);
        self.p.op(AND_K, 0x0400);
        self.equal(0, optional);
        // At the type of the next extension header, which is the last byte of the one before.
        self.skip(3);
        for extensions in 0..=GTP_EXTENSIONS_MOST {
            self.tunnel_needs(1);
            self.p.op(LD_B_IND, 0);
            self.equal(0, end);
            if extensions < GTP_EXTENSIONS_MOST {
                self.tunnel_needs(2);
                self.p.op(LD_B_IND, 1);
                self.p.op(LSH_K, 2);
                self.p.unless(JGE_K, 4, self.done);
                self.skip_read();
            }
        }
        self.p.jump(self.done);
        self.p.place(end);
        self.skip(1);
        self.p.jump(inner.ip);
        self.p.place(optional);
        self.skip(4);
        self.p.jump(inner.ip);
    }

    /// Reads version 0 without source routes (RFC 2784, 2890), with ERSPAN. Of others only the four bytes
    /// that all have.
    fn gre(&mut self, inner: Option<HeaderLabels>) {
        let unknown = self.p.label();
        self.need(4);
        self.p.op(LD_H_IND, 2);
        self.p.op(ST, NEXT);
        self.p.op(LD_H_IND, 0);
        self.p.op(ST, FIRST);
        self.skip(4);
        // Source routes, the version.
        self.p.op(LD_MEM, FIRST);
        self.p.op(AND_K, 0x4007);
        self.p.unless(JEQ_K, 0, unknown);
        // Checksum, key, sequence number.
        for flag in [0x8000, 0x2000, SEQUENCE] {
            let without = self.p.label();
            self.p.op(LD_MEM, FIRST);
            self.p.op(AND_K, flag);
            self.equal(0, without);
            self.need(4);
            self.skip(4);
            self.p.place(without);
        }
        self.end_of(HeaderLayer::Transport);
        match inner {
            Some(inner) => self.inside(inner),
            None => self.p.jump(self.done),
        }
        self.p.place(unknown);
        self.ends_in_transport();
    }

    /// Continues with the packet in GRE.
    fn inside(&mut self, inner: HeaderLabels) {
        let (erspan, plain) = (self.p.label(), self.p.label());
        self.p.op(LD_MEM, NEXT);
        self.equal(IPV4, inner.ip);
        self.equal(IPV6, inner.ip);
        self.equal(ETHERNET, inner.ethernet);
        self.equal(ERSPAN, erspan);
        self.p.jump(self.done);
        self.p.place(erspan);
        self.p.op(LD_MEM, FIRST);
        self.p.op(AND_K, SEQUENCE);
        self.equal(0, plain);
        self.tunnel_needs(8);
        self.skip(8);
        self.p.place(plain);
        self.p.jump(inner.ethernet);
    }
}

#[cfg(test)]
mod tests;
