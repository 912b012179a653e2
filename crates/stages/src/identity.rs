// SPDX-License-Identifier: Apache-2.0
//! The flow key of a packet, and the packet as a TCP segment for the stream engine.

use crate::settings::EngineSettings;
use bartizan_base::{LinkId, TenantId};
use bartizan_flow::tcp::{Segment, SegmentOptions, Seq};
use bartizan_flow::{EspFlows, FlowKey, FlowScope, FlowSide};
use bartizan_packet::{Decoded, PacketView, TransportLayer};

/// The tenant of a packet and the port, link and tunnel on which it arrived: the part of a flow's identity
/// that is not in the header.
#[derive(Clone, Copy, Debug)]
pub struct PacketOrigin {
    /// The tenant of the packet.
    pub tenant: TenantId,
    /// The link on which the packet arrived.
    pub link: LinkId,
    /// The caller's number of the port; its lowest bit is the side of a link.
    pub arrived_by: u32,
    /// The part of a packet that distinguishes flows of ESP ([`crate::chain::Chains::esp_flows`]).
    pub esp_flows: EspFlows,
}

impl PacketOrigin {
    fn scope(&self, settings: &EngineSettings, packet: &Decoded) -> FlowScope {
        FlowScope {
            tunnel: if settings.tunnel_in_key { packet.tunnel.key() } else { 0 },
            level: if settings.tunnel_in_key { packet.recursion } else { 0 },
            vlans: if settings.vlan_in_key { packet.vlan.padded() } else { [0; 3] },
            ..self.plain_scope(settings)
        }
    }

    /// The scope of a packet outside of VLANs and tunnels.
    pub fn plain_scope(&self, settings: &EngineSettings) -> FlowScope {
        let side = match self.arrived_by & 1 {
            _ if !settings.side_in_key => FlowSide::Unknown,
            0 => FlowSide::First,
            _ => FlowSide::Second,
        };
        FlowScope { tenant: self.tenant, link: self.link, side, ..FlowScope::default() }
    }

    /// The key of a packet's flow by the packet's own header.
    pub fn key(&self, settings: &EngineSettings, packet: &Decoded) -> Option<FlowKey> {
        FlowKey::of_packet(&self.scope(settings, packet), packet, self.esp_flows)
    }

    /// The key of the flow that an ICMP error is about.
    pub fn key_about(&self, settings: &EngineSettings, packet: &Decoded) -> Option<FlowKey> {
        // Hardly any packet is an ICMP error, so this test comes first.
        let quoted = packet.about()?;
        let scope = self.scope(settings, packet);
        // The quoted packet crossed the link before, from the side to which the error goes.
        let scope = FlowScope { side: scope.side.other(), ..scope };
        Some(FlowKey::of_quoted(&scope, quoted, self.esp_flows))
    }
}

/// Type and code of an ICMP packet.
pub fn icmp_of(packet: &Decoded) -> Option<(u8, u8)> {
    match &packet.transport {
        TransportLayer::Icmp(icmp) | TransportLayer::Icmpv6(icmp) => Some((icmp.kind, icmp.code)),
        _ => None,
    }
}

/// The packet as a segment for the stream engine. `checksum_ok`: whether its checksum lets it count.
pub fn segment<'a>(view: &PacketView<'a>, checksum_ok: impl FnOnce() -> bool) -> Option<Segment<'a>> {
    let TransportLayer::Tcp(tcp) = &view.decoded().transport else { return None };
    let checksum_ok = checksum_ok();
    let header = view.l4_header().unwrap_or_default();
    let start = usize::from(tcp.options.sack_offset);
    let end = start.saturating_add(usize::from(tcp.options.sack_blocks) * 8);
    Some(Segment {
        seq: Seq(tcp.seq),
        ack: Seq(tcp.ack),
        flags: tcp.flags,
        window: tcp.window,
        urgent: tcp.urgent,
        options: SegmentOptions {
            mss: tcp.options.mss,
            wscale: tcp.options.wscale,
            sack_ok: tcp.options.sack_ok,
            ts: tcp.options.timestamps,
            fast_open: tcp.options.fast_open.is_some(),
            sack: header.get(start..end).unwrap_or_default(),
            signed: tcp.options.md5 || tcp.options.ao,
        },
        payload: view.payload(),
        payload_len_on_wire: view.decoded().payload_len,
        checksum_ok,
    })
}
