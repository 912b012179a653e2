// SPDX-License-Identifier: Apache-2.0
//! L2-L4 decoding, tunnels, checksums, defragmentation, capture formats and packet metadata.
//!
//! [`Decoder::decode`] turns a captured frame into [`Decoded`] descriptors: plain values with offsets into
//! the bytes, one for the outer packet and one for each tunnelled packet inside. [`PacketView`] joins a
//! descriptor with its bytes again. Malformed input becomes a named [`DecodeEvent`], never a panic; nothing
//! is allocated per packet once the output's vector has grown to the deepest nesting seen.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod capture;
pub mod casts;
pub mod defrag;

mod checksum;
mod config;
mod counters;
mod decode;
mod decoded;
mod event;
pub mod layout;
mod lengths;
pub mod limits;
mod link;
pub mod metadata;
mod network;
pub mod sizes;
pub mod slots;
pub mod tables;
mod transport;
mod view;
pub mod windows;

pub use checksum::{InternetChecksum, pseudo_header};
pub use config::{DecoderConfig, PortList, TunnelPorts, VxlanReservedBits};
pub use counters::DecoderCounters;
pub use decode::{DecodeOutput, Decoder};
pub use decoded::{Checksums, Decoded, PacketFlags, TunnelKind, TunnelTag, VlanIds};
pub use event::{DecodeEvent, DecodeEvents};
pub use lengths::renew_around;
pub use link::{LinkType, PacketSource};
pub use network::{Arp, Fragment, IpOptions, Ipv4, Ipv6, Ipv6ExtHeaders, Ipv6Fragment, Network};
pub use transport::{
    Ah, Esp, Gre, Icmp, MULTIPATH, QuotedIcmp, QuotedPacket, Sctp, Tcp, TcpFlags, TcpOptions, TransportLayer,
    Udp, icmpv4_counterpart, icmpv6_counterpart,
};
pub use view::{PacketView, TcpOption, TcpOptionIter};
