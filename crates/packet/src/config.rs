// SPDX-License-Identifier: Apache-2.0
//! Settings of the decoder: the tunnels to decode, their ports, and their depth.

/// Up to four UDP ports, or any port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortList {
    ports: [u16; 4],
    len: u8,
    any: bool,
}

impl PortList {
    /// Every port.
    pub const ANY: PortList = PortList { ports: [0; 4], len: 0, any: true };

    /// The first four of `ports`; the rest is ignored (the caller warns: see [`PortList::CAPACITY`]).
    #[must_use]
    pub fn new(ports: &[u16]) -> Self {
        let mut list = PortList::default();
        for (slot, port) in list.ports.iter_mut().zip(ports) {
            *slot = *port;
            list.len += 1;
        }
        list
    }

    /// The most ports of a list.
    pub const CAPACITY: usize = 4;

    /// Whether every port is in the list.
    #[must_use]
    pub const fn is_any(&self) -> bool {
        self.any
    }

    /// The ports; none where every port is in the list.
    #[must_use]
    pub fn listed(&self) -> &[u16] {
        self.ports.get(..usize::from(self.len)).unwrap_or(&[])
    }

    /// Whether `port` is in the list.
    #[must_use]
    pub fn contains(&self, port: u16) -> bool {
        self.any || self.ports.iter().take(usize::from(self.len)).any(|p| *p == port)
    }
}

/// One tunnel protocol over UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelPorts {
    /// Whether the tunnel is decoded at all.
    pub enabled: bool,
    /// UDP ports that carry it.
    pub ports: PortList,
}

impl TunnelPorts {
    /// Decodes the tunnel on these ports.
    #[must_use]
    pub fn on(ports: &[u16]) -> Self {
        TunnelPorts { enabled: true, ports: PortList::new(ports) }
    }

    /// Whether a datagram from or to one of these ports may be of the tunnel.
    #[must_use]
    pub fn either(&self, source: u16, destination: u16) -> bool {
        self.enabled && (self.ports.contains(source) || self.ports.contains(destination))
    }

    /// Whether a datagram to this port may belong to the tunnel.
    #[must_use]
    pub fn to(&self, destination: u16) -> bool {
        self.enabled && self.ports.contains(destination)
    }
}

/// The check of VXLAN's reserved bits (`decoder.vxlan.reserved-bits-check`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VxlanReservedBits {
    /// All zero, otherwise the datagram is no VXLAN.
    Strict,
    /// Anything: a receiver ignores them (RFC 7348 section 5), and the extensions for group policies and
    /// other protocols use them.
    #[default]
    Permissive,
}

/// Settings of a [`crate::Decoder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoderConfig {
    /// Layers after which a packet is given up with `too_many_layers` (`decoder.max-layers`).
    pub max_layers: u8,
    /// Teredo (`decoder.teredo`).
    pub teredo: TunnelPorts,
    /// VXLAN (`decoder.vxlan`).
    pub vxlan: TunnelPorts,
    /// VXLAN's reserved bits.
    pub vxlan_reserved: VxlanReservedBits,
    /// GENEVE (`decoder.geneve`).
    pub geneve: TunnelPorts,
    /// GTP-U; off by default, as Suricata does not decode it.
    pub gtp: TunnelPorts,
    /// Frames may end before their length on the wire because the capture has a snap length: lengths in
    /// headers are compared with the frame's length on the wire, and a payload may be cut. Otherwise such a
    /// frame is malformed, as in Suricata.
    pub cut_frames: bool,
}

impl Default for DecoderConfig {
    /// The values of Suricata's shipped configuration.
    fn default() -> Self {
        DecoderConfig { teredo: TunnelPorts::on(&[3544]), ..Self::built_in() }
    }
}

impl DecoderConfig {
    /// The values where a configuration file has none: as the default, but Teredo on any port.
    #[must_use]
    pub fn built_in() -> Self {
        DecoderConfig {
            max_layers: 16,
            teredo: TunnelPorts { enabled: true, ports: PortList::ANY },
            vxlan: TunnelPorts::on(&[4789]),
            vxlan_reserved: VxlanReservedBits::Permissive,
            geneve: TunnelPorts::on(&[6081]),
            gtp: TunnelPorts { enabled: false, ports: PortList::new(&[2152]) },
            cut_frames: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_lists_hold_four() {
        let list = PortList::new(&[1, 2, 3, 4, 5]);
        assert!(list.contains(4) && !list.contains(5) && !list.contains(0));
        assert!(PortList::ANY.contains(0));
        assert!(!TunnelPorts { enabled: false, ports: PortList::ANY }.either(1, 2));
        assert!(DecoderConfig::default().teredo.either(9, 3544));
        assert!(!DecoderConfig::default().teredo.either(9, 10));
    }
}
