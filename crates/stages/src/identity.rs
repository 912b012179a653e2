// SPDX-License-Identifier: Apache-2.0
//! What a packet belongs to, and how the stream engine sees it.

use crate::settings::EngineSettings;
use bartizan_base::{LinkId, TenantId};
use bartizan_flow::tcp::{Segment, SegmentOptions, Seq, TcpFlags};
use bartizan_flow::{EspFlows, FlowKey, FlowScope, FlowSide};
use bartizan_packet::{Decoded, PacketView, Transport};

/// Whose traffic a packet is and by which way it came: the part of a flow's identity that is not in its
/// header.
#[derive(Clone, Copy, Debug)]
pub struct Whence {
    /// Whose traffic it is.
    pub tenant: TenantId,
    /// What it came in by.
    pub link: LinkId,
    /// The caller's number of the way in; its lowest bit is the side of a link.
    pub arrived_by: u32,
    /// The part of a packet that tells flows of ESP apart ([`crate::chain::Chains::esp_flows`]).
    pub esp_flows: EspFlows,
}

impl Whence {
    fn scope(&self, settings: &EngineSettings, packet: &Decoded) -> FlowScope {
        FlowScope {
            tunnel: if settings.tunnel_in_key { packet.tunnel.key() } else { 0 },
            level: if settings.tunnel_in_key { packet.recursion } else { 0 },
            vlans: if settings.vlan_in_key { packet.vlan.padded() } else { [0; 3] },
            ..self.plain_scope(settings)
        }
    }

    /// That of a packet outside of VLANs and tunnels.
    pub fn plain_scope(&self, settings: &EngineSettings) -> FlowScope {
        let side = match self.arrived_by & 1 {
            _ if !settings.side_in_key => FlowSide::Unknown,
            0 => FlowSide::First,
            _ => FlowSide::Second,
        };
        FlowScope { tenant: self.tenant, link: self.link, side, ..FlowScope::default() }
    }

    /// The identity of a packet's flow by its own header.
    pub fn key(&self, settings: &EngineSettings, packet: &Decoded) -> Option<FlowKey> {
        FlowKey::of_packet(&self.scope(settings, packet), packet, self.esp_flows)
    }

    /// The identity of the flow that an ICMP error is about.
    pub fn key_about(&self, settings: &EngineSettings, packet: &Decoded) -> Option<FlowKey> {
        // Nearly no packet is one: asked before anything is looked up.
        let quoted = packet.about()?;
        let scope = self.scope(settings, packet);
        // What it quotes came across the link before, from the side to which the error goes.
        let scope = FlowScope { side: scope.side.other(), ..scope };
        Some(FlowKey::of_quoted(&scope, quoted, self.esp_flows))
    }
}

/// Type and code of an ICMP packet.
pub fn icmp_of(packet: &Decoded) -> Option<(u8, u8)> {
    match &packet.transport {
        Transport::Icmp(icmp) | Transport::Icmpv6(icmp) => Some((icmp.kind, icmp.code)),
        _ => None,
    }
}

/// The packet as the stream engine wants it. `checksum_ok`: whether its checksum lets it count.
pub fn segment<'a>(view: &PacketView<'a>, checksum_ok: impl FnOnce() -> bool) -> Option<Segment<'a>> {
    let Transport::Tcp(tcp) = &view.decoded().transport else { return None };
    let checksum_ok = checksum_ok();
    let header = view.l4_header().unwrap_or_default();
    let start = usize::from(tcp.options.sack_offset);
    let end = start.saturating_add(usize::from(tcp.options.sack_blocks) * 8);
    Some(Segment {
        seq: Seq(tcp.seq),
        ack: Seq(tcp.ack),
        flags: TcpFlags::from_bits_retain(tcp.flags.bits()),
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
