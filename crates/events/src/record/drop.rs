// SPDX-License-Identifier: Apache-2.0
//! `drop`: a packet that was not forwarded, with its headers and the reason.

use super::alert::{AlertInfo, VerdictInfo};
use super::common::Common;
use super::object::object;
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
        self.fields().write_object(w);
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

    /// The object of the event.
    fn fields(&self) -> DropFields<'_> {
        let mut fields = DropFields { reason: self.reason, ..DropFields::default() };
        match self.network {
            Some(NetworkHeader::V4 { len, tos, ttl, id }) => {
                (fields.len, fields.tos, fields.ttl, fields.ipid) =
                    (Some(len), Some(tos), Some(ttl), Some(id));
            }
            Some(NetworkHeader::V6 { len, class, hop_limit, flow_label }) => {
                (fields.len, fields.tc) = (Some(len), Some(class));
                (fields.hoplimit, fields.flowlbl) = (Some(hop_limit), Some(flow_label));
            }
            None => {}
        }
        match self.transport {
            TransportHeader::None => {}
            TransportHeader::Tcp { seq, ack, window, flags, reserved, urgent } => {
                (fields.tcpseq, fields.tcpack, fields.tcpwin) = (Some(seq), Some(ack), Some(window));
                let flag = |bit| Some(flags & bit != 0);
                (fields.syn, fields.ack, fields.psh) = (flag(0x02), flag(0x10), flag(0x08));
                (fields.rst, fields.urg, fields.fin) = (flag(0x04), flag(0x20), flag(0x01));
                (fields.tcpres, fields.tcpurgp) = (Some(reserved), Some(urgent));
            }
            TransportHeader::Udp { len } => fields.udplen = Some(len),
            TransportHeader::Icmp { id, seq } => (fields.icmp_id, fields.icmp_seq) = (Some(id), Some(seq)),
        }
        fields
    }
}

object! {
    derive(Default);
    /// Headers of a packet that was not forwarded.
    pub(crate) struct DropFields<'a> = "drop" {
        /// Length field of the IP header.
        len: Option<u16>,
        /// Type of service, IPv4.
        tos: Option<u8>,
        /// Time to live, IPv4.
        ttl: Option<u8>,
        /// Identification, IPv4.
        ipid: Option<u16>,
        /// Traffic class, IPv6.
        tc: Option<u8>,
        /// Hop limit, IPv6.
        hoplimit: Option<u8>,
        /// Flow label, IPv6.
        flowlbl: Option<u32>,
        /// TCP sequence number.
        tcpseq: Option<u32>,
        /// TCP acknowledgement number.
        tcpack: Option<u32>,
        /// TCP window.
        tcpwin: Option<u16>,
        /// TCP SYN.
        syn: Option<bool>,
        /// TCP ACK.
        ack: Option<bool>,
        /// TCP PSH.
        psh: Option<bool>,
        /// TCP RST.
        rst: Option<bool>,
        /// TCP URG.
        urg: Option<bool>,
        /// TCP FIN.
        fin: Option<bool>,
        /// Reserved bits of the TCP header.
        tcpres: Option<u8>,
        /// TCP urgent pointer.
        tcpurgp: Option<u16>,
        /// Length field of the UDP header.
        udplen: Option<u16>,
        /// ICMP identifier.
        icmp_id: Option<u16>,
        /// ICMP sequence number.
        icmp_seq: Option<u16>,
        /// Why, in Suricata's words.
        reason: Option<&'a str>,
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
