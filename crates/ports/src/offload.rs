// SPDX-License-Identifier: Apache-2.0
//! Offloads that make an interface deliver other frames than those on the wire.
//!
//! Source: Linux `include/uapi/linux/ethtool.h`. With GRO or LRO several packets arrive as one, which no
//! egress can send; with TSO, GSO or transmit checksums a local sender (a virtual machine, the other end of a
//! veth pair) sends 64 KiB "packets" without a valid checksum. Both are inspected as they are. Inline the
//! data plane fills checksums in and cuts TCP frames into segments, which costs time; with all offloads off,
//! on both ends of a veth pair, neither is necessary.
//!
//! Not done: the other end of a veth pair is in another namespace and cannot be checked; frames with a
//! missing checksum are counted at run time instead (`PortStats::checksum_pending`).

use crate::sys;
use crate::timestamps::NoStamps;
use std::fmt;
use std::os::fd::AsFd;

/// One offload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// The device computes transmit checksums.
    TxChecksum,
    /// The device segments TCP.
    Tso,
    /// Segmentation is delayed to the last moment.
    Gso,
    /// The kernel merges received packets.
    Gro,
    /// The device merges received packets.
    Lro,
    /// The device removes the VLAN tags of received packets. Packet sockets get the tag all the same; a level
    /// below reads the frame itself.
    RxVlan,
}

impl Offload {
    /// The offloads that matter to a packet socket, in the order of switching them on again (segmentation
    /// needs checksums).
    pub const ALL: [Offload; 5] =
        [Offload::TxChecksum, Offload::Tso, Offload::Gso, Offload::Gro, Offload::Lro];

    /// The offloads that matter to a level below that reads frames itself, in the same order.
    pub const OF_LEVEL: [Offload; 6] =
        [Offload::TxChecksum, Offload::Tso, Offload::Gso, Offload::Gro, Offload::Lro, Offload::RxVlan];

    /// Name in `ethtool -K`.
    #[must_use]
    pub const fn ethtool_name(self) -> &'static str {
        match self {
            Offload::TxChecksum => "tx",
            Offload::Tso => "tso",
            Offload::Gso => "gso",
            Offload::Gro => "gro",
            Offload::Lro => "lro",
            Offload::RxVlan => "rxvlan",
        }
    }

    /// The request that reads it; the request that sets it has the next number.
    const fn request(self) -> u32 {
        match self {
            Offload::TxChecksum => 0x16,
            Offload::Tso => 0x1e,
            Offload::Gso => 0x23,
            Offload::Gro => 0x2b,
            Offload::Lro | Offload::RxVlan => 0x25,
        }
    }

    /// Its bit, if the answer to its request has several.
    const fn flag(self) -> Option<u32> {
        match self {
            Offload::Lro => Some(1 << 15),
            Offload::RxVlan => Some(1 << 8),
            _ => None,
        }
    }

    /// Whether it is on; `false` also when the device does not support it.
    fn is_on(self, interface: &str) -> std::io::Result<bool> {
        let socket = sys::request_socket()?;
        let value = sys::ethtool_value(socket.as_fd(), interface, self.request(), 0).unwrap_or(0);
        Ok(value & self.flag().unwrap_or(u32::MAX) != 0)
    }

    fn set(self, interface: &str, on: bool) -> std::io::Result<()> {
        let socket = sys::request_socket()?;
        let fd = socket.as_fd();
        let value = if let Some(flag) = self.flag() {
            let flags = sys::ethtool_value(fd, interface, self.request(), 0)?;
            if on { flags | flag } else { flags & !flag }
        } else {
            u32::from(on)
        };
        sys::ethtool_value(fd, interface, self.request() + 1, value).map(|_| ())
    }
}

/// The active offloads that matter to a packet socket.
#[must_use]
pub fn offloads_on(interface: &str) -> Vec<Offload> {
    which_are_on(interface, &Offload::ALL)
}

fn which_are_on(interface: &str, offloads: &[Offload]) -> Vec<Offload> {
    offloads.iter().copied().filter(|o| o.is_on(interface).unwrap_or(false)).collect()
}

/// The command that switches offloads off.
#[must_use]
pub fn ethtool_command(interface: &str, offloads: &[Offload]) -> String {
    let mut command = format!("ethtool -K {interface}");
    for offload in offloads {
        command.push_str(&format!(" {} off", offload.ethtool_name()));
    }
    command
}

/// Offloads that were switched off; dropping this switches them on again.
#[derive(Debug)]
pub struct OffloadGuard {
    interface: String,
    switched: Vec<Offload>,
}

impl OffloadGuard {
    /// Switches active offloads off that matter to a packet socket. Returns the guard and the offloads that
    /// could not be switched off.
    #[must_use]
    pub fn switch_off(interface: &str) -> (Self, Vec<Offload>) {
        Self::switch_off_these(interface, &Offload::ALL)
    }

    /// Switches the active ones among some offloads off. Returns the guard and the offloads that could not be
    /// switched off.
    #[must_use]
    pub fn switch_off_these(interface: &str, offloads: &[Offload]) -> (Self, Vec<Offload>) {
        let on = which_are_on(interface, offloads);
        // Backwards: segmentation before the checksums that it needs, so that each can be restored.
        for offload in on.iter().rev() {
            // The offloads still on afterwards decide.
            let _ = offload.set(interface, false);
        }
        let left = which_are_on(interface, offloads);
        let switched = on.into_iter().filter(|o| !left.contains(o)).collect();
        (Self { interface: interface.to_owned(), switched }, left)
    }

    /// The offloads that were switched off.
    #[must_use]
    pub fn switched(&self) -> &[Offload] {
        &self.switched
    }
}

impl Drop for OffloadGuard {
    fn drop(&mut self) {
        for offload in &self.switched {
            // The interface may be gone by now; then there is nothing to restore.
            let _ = offload.set(&self.interface, true);
        }
    }
}

/// A warning about an open port, for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// Offloads are on.
    Offloads {
        /// The interface.
        interface: String,
        /// The active offloads.
        on: Vec<Offload>,
    },
    /// The device's timestamps were preferred, but it gives none.
    SoftwareTimestamps {
        /// The interface.
        interface: String,
        /// The reason.
        why: NoStamps,
    },
    /// The kernel does not report the segment sizes of merged frames.
    NoSegmentSizes {
        /// The interface.
        interface: String,
        /// The reason: not requested, or refused.
        why: &'static str,
    },
    /// Frames larger than the supported maximum can arrive.
    LargeMtu {
        /// The interface.
        interface: String,
        /// Its MTU.
        mtu: u32,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::Offloads { interface, on } => {
                let names: Vec<&str> = on.iter().map(|o| o.ethtool_name()).collect();
                write!(
                    f,
                    "interface `{interface}` has offloads on ({}): packets of senders on this host may arrive merged and without a checksum; they are inspected all the same, which inline costs time that `{}` saves (on a veth pair also for the other end)",
                    names.join(", "),
                    ethtool_command(interface, on),
                )
            }
            Warning::SoftwareTimestamps { interface, why } => write!(
                f,
                "interface `{interface}` has software timestamps: {why} (`ethtool -T {interface}` lists its capabilities; `timestamps: software` confirms them)"
            ),
            Warning::NoSegmentSizes { interface, why } => write!(
                f,
                "interface `{interface}`: {why}, so UDP datagrams that a sender on this host leaves to a device to take apart (UDP_SEGMENT, as QUIC servers use it) are seen as one, and inline those that are too large are refused; `ethtool -K {interface} tx-udp-segmentation off`, on a veth pair for the other end, has the kernel take them apart"
            ),
            Warning::LargeMtu { interface, mtu } => write!(
                f,
                "interface `{interface}` has MTU {mtu}: frames over 65,535 bytes are cut; `ip link set dev {interface} mtu 65517` avoids that"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warning_holds_the_exact_command() {
        let warning = Warning::Offloads { interface: "eth0".into(), on: vec![Offload::Tso, Offload::Gro] };
        assert!(warning.to_string().contains("`ethtool -K eth0 tso off gro off`"), "{warning}");
        let warning = Warning::NoSegmentSizes { interface: "eth0".into(), why: "it is old" };
        assert!(warning.to_string().contains("`ethtool -K eth0 tx-udp-segmentation off`"), "{warning}");
    }
}
