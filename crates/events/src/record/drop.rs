// SPDX-License-Identifier: Apache-2.0
//! `drop`: a packet that was not forwarded, with its headers and the reason.

use super::alert::{AlertInfo, VerdictInfo};
use super::common::Common;
use crate::JsonWriter;
use crate::config::{DropOptions, HeaderOptions};
use bartizan_base::{Direction, Reason};

/// IP header fields of a dropped packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkHeader {
    /// IPv4.
    V4 {
        /// Total length.
        len: u16,
        /// Type of service.
        tos: u8,
        /// Time to live.
        ttl: u8,
        /// Identification.
        id: u16,
    },
    /// IPv6.
    V6 {
        /// Payload length.
        len: u16,
        /// Traffic class.
        class: u8,
        /// Hop limit.
        hop_limit: u8,
        /// Flow label.
        flow_label: u32,
    },
}

/// Transport header fields of a dropped packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportHeader {
    /// None, or one without fields in the record (ICMPv6).
    #[default]
    None,
    /// TCP.
    Tcp {
        /// Sequence number.
        seq: u32,
        /// Acknowledgement number.
        ack: u32,
        /// Window, as on the wire.
        window: u16,
        /// The eight flag bits.
        flags: u8,
        /// The four bits between data offset and flags.
        reserved: u8,
        /// Urgent pointer.
        urgent: u16,
    },
    /// UDP.
    Udp {
        /// Length field.
        len: u16,
    },
    /// ICMP for IPv4.
    Icmp {
        /// Identifier, as it is written.
        id: u16,
        /// Sequence number, as it is written.
        seq: u16,
    },
}

/// One dropped packet.
#[derive(Clone, Copy, Debug)]
pub struct DropRecord<'a> {
    /// Direction in the flow; `None` without a flow.
    pub direction: Option<Direction>,
    /// IP header; `None` if the packet is not IP.
    pub network: Option<NetworkHeader>,
    /// Transport header.
    pub transport: TransportHeader,
    /// Suricata's text for the reason, see [`drop_reason`].
    pub reason: Option<&'a str>,
    /// The verdict, for `verdict: yes`.
    pub verdict: Option<VerdictInfo>,
    /// The rule that caused the drop, for `alerts: yes`.
    pub alert: Option<AlertInfo<'a>>,
}

impl DropRecord<'_> {
    /// Writes the event.
    pub fn write(
        &self,
        w: &mut JsonWriter,
        options: &HeaderOptions,
        drop: &DropOptions,
        common: &Common<'_>,
    ) {
        common.begin_packet_event(w, options, "drop");
        if let Some(direction) = self.direction {
            w.str("direction", direction.eve_name());
        }
        w.object("drop");
        self.write_network(w);
        self.write_transport(w);
        if let Some(reason) = self.reason {
            w.str("reason", reason);
        }
        w.end_object();
        if drop.verdict
            && let Some(verdict) = &self.verdict
        {
            verdict.write(w);
        }
        if drop.alerts
            && let Some(alert) = &self.alert
        {
            alert.write(w, common, None);
        }
        common.finish(w, options);
    }

    fn write_network(&self, w: &mut JsonWriter) {
        match self.network {
            Some(NetworkHeader::V4 { len, tos, ttl, id }) => {
                w.num("len", len);
                w.num("tos", tos);
                w.num("ttl", ttl);
                w.num("ipid", id);
            }
            Some(NetworkHeader::V6 { len, class, hop_limit, flow_label }) => {
                w.num("len", len);
                w.num("tc", class);
                w.num("hoplimit", hop_limit);
                w.num("flowlbl", flow_label);
            }
            None => {}
        }
    }

    fn write_transport(&self, w: &mut JsonWriter) {
        match self.transport {
            TransportHeader::None => {}
            TransportHeader::Tcp { seq, ack, window, flags, reserved, urgent } => {
                w.num("tcpseq", seq);
                w.num("tcpack", ack);
                w.num("tcpwin", window);
                for (name, bit) in
                    [("syn", 0x02), ("ack", 0x10), ("psh", 0x08), ("rst", 0x04), ("urg", 0x20), ("fin", 0x01)]
                {
                    w.bool(name, flags & bit != 0);
                }
                w.num("tcpres", reserved);
                w.num("tcpurgp", urgent);
            }
            TransportHeader::Udp { len } => w.num("udplen", len),
            TransportHeader::Icmp { id, seq } => {
                w.num("icmp_id", id);
                w.num("icmp_seq", seq);
            }
        }
    }
}

/// Suricata's text for a reason. Reasons without a counterpart in Suricata keep their own name; the exact one
/// is always in `bartizan.reason`.
#[must_use]
pub const fn drop_reason(reason: Reason) -> &'static str {
    match reason {
        Reason::IdsRule => "rules",
        Reason::IdsThreshold => "threshold detection_filter",
        Reason::IdsFlow => "flow drop",
        Reason::ExceptionFlow => "exception policy flow drop",
        Reason::TunnelInner => "tunnel packet drop",
        Reason::Unreadable => "decode error",
        Reason::Defrag => "defrag error",
        Reason::DefragMemory => "defrag memcap",
        Reason::FlowMemory => "flow memcap",
        Reason::StreamError => "stream error",
        Reason::StreamMemory => "stream memcap",
        Reason::StreamMidstream => "stream midstream",
        Reason::StreamReassembly => "stream reassembly",
        Reason::AppLayerError => "applayer error",
        Reason::FirewallRule => "firewall rules",
        Reason::FirewallPacketPolicy => "firewall default packet policy",
        Reason::FirewallAppPolicy => "firewall default app policy",
        Reason::FirewallPreFlow => "firewall pre flow hook",
        Reason::FirewallPreStream => "firewall pre stream hook",
        Reason::FirewallFlow => "firewall flow drop",
        other => other.name(),
    }
}
