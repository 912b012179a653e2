// SPDX-License-Identifier: Apache-2.0
//! Prefetch of a batch's flows: while a frame is handled, the flow entries of the next frames are fetched
//! into the processor's caches.
//!
//! With thousands of open flows a packet's flow is in no cache, and a lookup is a chain of misses: bucket of
//! the index, then entry. The misses of different packets are independent, so they overlap. The prefetch is a
//! hint: no result depends on it, and a packet whose flow key cannot be read at fixed offsets (tunnels,
//! fragments, options) is only not prefetched.

use bartizan_flow::{FlowKey, FlowScope};
use bartizan_stages::train::two;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Frames whose flows are prefetched together.
pub(crate) const AHEAD: usize = 16;

/// Parts of a flow's key that a frame's headers do not contain, guessed from the latest packet.
pub(crate) struct Guess {
    /// Scope of packets outside of VLANs and tunnels; the tenant is that of the latest packet.
    pub scope: FlowScope,
    /// VLAN tags are part of flow keys.
    pub vlans: bool,
}

impl Guess {
    /// Probable flow key of an Ethernet frame with TCP or UDP, with one VLAN tag or none.
    #[inline]
    pub(crate) fn key(&self, frame: &[u8]) -> Option<FlowKey> {
        let (mut at, mut scope) = (12, self.scope);
        let mut kind = two(frame, at)?;
        if kind == 0x8100 {
            if self.vlans {
                scope.vlans = [two(frame, at + 2)? & 0xfff, 0, 0];
            }
            at += 4;
            kind = two(frame, at)?;
        }
        let ip = frame.get(at + 2..)?;
        let (protocol, source, destination, header): (u8, IpAddr, IpAddr, usize) = match kind {
            0x0800 => {
                let [0x45, _, _, _, _, _, f0, f1, _, protocol, _, _, addresses @ ..] =
                    *ip.first_chunk::<20>()?
                else {
                    return None;
                };
                if u16::from_be_bytes([f0, f1]) & 0x3fff != 0 {
                    return None;
                }
                let [s0, s1, s2, s3, d0, d1, d2, d3] = addresses;
                (protocol, Ipv4Addr::new(s0, s1, s2, s3).into(), Ipv4Addr::new(d0, d1, d2, d3).into(), 20)
            }
            0x86dd => {
                let address = |at: usize| Some(Ipv6Addr::from(*ip.get(at..)?.first_chunk::<16>()?));
                (*ip.get(6)?, address(8)?.into(), address(24)?.into(), 40)
            }
            _ => return None,
        };
        if !matches!(protocol, 6 | 17) {
            return None;
        }
        let ports = (two(ip, header)?, two(ip, header + 2)?);
        Some(FlowKey::ported(&scope, protocol, (source, ports.0), (destination, ports.1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segmentation::tests::decode;
    use bartizan_base::{LinkId, TenantId};
    use bartizan_config::suricata;
    use bartizan_flow::EspFlows;
    use bartizan_stages::identity::PacketOrigin;
    use bartizan_stages::settings::EngineSettings;
    use bartizan_testkit::packet::{Datagram, Ip, Segment, address};

    fn settings() -> EngineSettings {
        EngineSettings::from_settings(&suricata::shipped(), true, [0, 0]).expect("they hold").0
    }

    fn tagged(mut frame: Vec<u8>) -> Vec<u8> {
        frame.splice(12..12, [0x81, 0, 0x60, 77]);
        frame
    }

    /// Frames with TCP and UDP, over IPv4 and IPv6, with a VLAN tag and without.
    fn frames() -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for v6 in [false, true] {
            let ip = |protocol| Ip::new(address(v6, 1), address(v6, 2), protocol);
            let tcp = Segment::new((4711, 80), (1, 1), 0x10, b"x").unsummed();
            let udp = Datagram::new((53, 4712), b"x").unsummed();
            for frame in [ip(6).frame(&tcp, None), ip(17).frame(&udp, None)] {
                frames.extend([tagged(frame.clone()), frame]);
            }
        }
        frames
    }

    #[test]
    fn the_flow_is_the_one_that_the_decoder_finds() {
        let settings = settings();
        for (number, frame) in frames().iter().enumerate() {
            for (vlans, arrived_by) in [(true, 0), (false, 1)] {
                let settings = EngineSettings { vlan_in_key: vlans, side_in_key: true, ..settings.clone() };
                let esp_flows = EspFlows::default();
                let whence = PacketOrigin { tenant: TenantId(3), link: LinkId(2), arrived_by, esp_flows };
                let decoded = whence.key(&settings, decode(frame).outer().expect("a packet"));
                let guess = Guess { scope: whence.plain_scope(&settings), vlans };
                assert!(decoded.is_some());
                assert_eq!(guess.key(frame), decoded, "frame {number}");
            }
        }
    }

    #[test]
    fn what_is_cut_off_before_its_ports_has_none() {
        let guess = Guess { scope: FlowScope::default(), vlans: true };
        for frame in frames() {
            let tag = if frame[12] == 0x81 { 4 } else { 0 };
            let ports = 14 + tag + if frame[14 + tag] == 0x45 { 20 } else { 40 } + 4;
            for end in 0..=frame.len() {
                assert_eq!(guess.key(&frame[..end]).is_some(), end >= ports, "{end} of {frame:02x?}");
            }
        }
    }
}
