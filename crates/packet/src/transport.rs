// SPDX-License-Identifier: Apache-2.0
//! The transport layer of a decoded packet, as plain values.

use bitflags::bitflags;
use core::net::IpAddr;

bitflags! {
    /// TCP flags (RFC 9293, 3.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct TcpFlags: u8 {
        /// No more data from sender.
        const FIN = 0x01;
        /// Synchronise sequence numbers.
        const SYN = 0x02;
        /// Reset the connection.
        const RST = 0x04;
        /// Push.
        const PSH = 0x08;
        /// The acknowledgement number counts.
        const ACK = 0x10;
        /// The urgent pointer counts.
        const URG = 0x20;
        /// Explicit congestion notification echo.
        const ECE = 0x40;
        /// Congestion window reduced.
        const CWR = 0x80;
    }
}

/// TCP options that were well-formed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpOptions {
    /// Maximum segment size.
    pub mss: Option<u16>,
    /// Window scale, as in the option; one above 14 is an event, and connections use 14 instead (RFC 7323
    /// section 2.3).
    pub wscale: Option<u8>,
    /// Selective acknowledgement is permitted.
    pub sack_ok: bool,
    /// Number of selective acknowledgement blocks.
    pub sack_blocks: u8,
    /// The offset of the blocks from the first byte of the TCP header; 0 without blocks.
    pub sack_offset: u8,
    /// Fast Open, with the length of its cookie in bytes (0 requests one).
    pub fast_open: Option<u8>,
    /// Timestamp value and echo reply.
    pub timestamps: Option<(u32, u32)>,
    /// MD5 signature (RFC 2385) is present; it is not checked.
    pub md5: bool,
    /// Authentication option (RFC 5925) is present; it is not checked.
    pub ao: bool,
    /// An option of Multipath TCP (RFC 8684) is present.
    pub multipath: bool,
}

/// Kind of the options of Multipath TCP (RFC 8684 section 3).
pub const MULTIPATH: u8 = 30;

/// TCP header fields (RFC 9293).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tcp {
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Window, not scaled.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Flags.
    pub flags: TcpFlags,
    /// The four reserved bits.
    pub reserved: u8,
    /// Header length with options, in bytes (20 to 60).
    pub header_len: u8,
    /// Options.
    pub options: TcpOptions,
}

/// UDP header fields (RFC 768).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Udp {
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// Length of header and payload as given in the header, in bytes.
    pub len: u16,
}

/// SCTP common header fields (RFC 9260).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sctp {
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// Verification tag.
    pub tag: u32,
}

/// The packet that an ICMP error quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotedPacket {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// IP protocol (IPv6: after the extension headers).
    pub proto: u8,
    /// Source and destination port, where enough of TCP, UDP or SCTP is quoted.
    pub ports: Option<(u16, u16)>,
    /// TCP sequence number, where enough is quoted.
    pub tcp_seq: Option<u32>,
    /// The quoted part of an ICMP message.
    pub icmp: Option<QuotedIcmp>,
    /// Security parameter index of ESP.
    pub spi: Option<u32>,
    /// The offset of the quoted IP header.
    pub offset: u32,
}

/// The ICMP message that an ICMP error quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotedIcmp {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// Identifier of an echo and the like.
    pub id: Option<u16>,
}

/// ICMP (RFC 792) or ICMPv6 (RFC 4443) header fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Icmp {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// Identifier, of messages that have one.
    pub id: Option<u16>,
    /// Sequence number, of messages that have one.
    pub seq: Option<u16>,
    /// MTU of "packet too big" (ICMPv6) and "fragmentation needed" (ICMP).
    pub mtu: Option<u32>,
    /// The packet that an error quotes.
    pub quoted: Option<QuotedPacket>,
}

/// GRE header fields (RFC 2784, 2890, 2637).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gre {
    /// 0, or 1 for PPTP.
    pub version: u8,
    /// EtherType of the payload.
    pub protocol: u16,
    /// Key, if there is one.
    pub key: Option<u32>,
}

/// ESP header fields (RFC 4303).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Esp {
    /// Security parameters index.
    pub spi: u32,
    /// Sequence number.
    pub seq: u32,
}

/// Authentication header over IPv4 (RFC 4302); its payload is not decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ah {
    /// Security parameters index.
    pub spi: u32,
    /// Sequence number.
    pub seq: u32,
    /// The protocol of the payload.
    pub next_header: u8,
}

/// The transport layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportLayer {
    /// None that could be decoded (fragments, broken headers, other protocols).
    #[default]
    None,
    /// TCP.
    Tcp(Tcp),
    /// UDP.
    Udp(Udp),
    /// SCTP.
    Sctp(Sctp),
    /// ICMP over IPv4.
    Icmp(Icmp),
    /// ICMPv6.
    Icmpv6(Icmp),
    /// GRE.
    Gre(Gre),
    /// ESP.
    Esp(Esp),
    /// Authentication header over IPv4.
    Ah(Ah),
}

impl TransportLayer {
    /// The TCP header.
    #[must_use]
    pub const fn tcp(&self) -> Option<&Tcp> {
        match self {
            TransportLayer::Tcp(tcp) => Some(tcp),
            _ => None,
        }
    }

    /// The UDP header.
    #[must_use]
    pub const fn udp(&self) -> Option<&Udp> {
        match self {
            TransportLayer::Udp(udp) => Some(udp),
            _ => None,
        }
    }

    /// The ICMP or ICMPv6 header.
    #[must_use]
    pub const fn icmp(&self) -> Option<&Icmp> {
        match self {
            TransportLayer::Icmp(icmp) | TransportLayer::Icmpv6(icmp) => Some(icmp),
            _ => None,
        }
    }
}

/// The ICMP type that answers a type, or that a type answers, if there is one: both belong to one flow.
#[must_use]
pub const fn icmpv4_counterpart(kind: u8) -> Option<u8> {
    Some(match kind {
        8 => 0,
        0 => 8,
        13 => 14,
        14 => 13,
        15 => 16,
        16 => 15,
        10 => 9,
        9 => 10,
        17 => 18,
        18 => 17,
        42 => 43,
        43 => 42,
        _ => return None,
    })
}

/// The ICMPv6 type that answers a type, or that a type answers, if there is one: both belong to one flow.
#[must_use]
pub const fn icmpv6_counterpart(kind: u8) -> Option<u8> {
    Some(match kind {
        128 => 129,
        129 => 128,
        130 => 131,
        131 => 130,
        133 => 134,
        134 => 133,
        135 => 136,
        136 => 135,
        139 => 140,
        140 => 139,
        144 => 145,
        145 => 144,
        146 => 147,
        147 => 146,
        148 => 149,
        149 => 148,
        151 => 152,
        152 => 151,
        157 => 158,
        158 => 157,
        160 => 161,
        161 => 160,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counterparts_are_mutual() {
        for kind in 0..=255u8 {
            for counterpart in [icmpv4_counterpart, icmpv6_counterpart] {
                if let Some(other) = counterpart(kind) {
                    assert_eq!(counterpart(other), Some(kind));
                    assert_ne!(other, kind);
                }
            }
        }
    }
}
