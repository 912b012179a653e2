// SPDX-License-Identifier: Apache-2.0
//! A TCP packet as the stream engine needs it. The stream engine does not depend on the packet decoder: the
//! code that has decoded a packet fills in a [`Segment`].

use super::Seq;
use bartizan_base::{Direction, Timestamp};

pub use bartizan_packet::TcpFlags;

/// The TCP options that the stream engine uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentOptions<'a> {
    /// Maximum segment size.
    pub mss: Option<u16>,
    /// Window scale shift, as sent (values over 14 count as 14, RFC 7323 section 2.3).
    pub wscale: Option<u8>,
    /// SACK permitted.
    pub sack_ok: bool,
    /// Timestamp value and echo reply.
    pub ts: Option<(u32, u32)>,
    /// Whether the TCP Fast Open option (or its experimental form) is present.
    pub fast_open: bool,
    /// Blocks of the SACK option: pairs of 32-bit numbers in network order, empty without the option.
    pub sack: &'a [u8],
    /// A signature (RFC 2385 MD5 or RFC 5925 TCP-AO) that an observer cannot verify.
    pub signed: bool,
}

/// One TCP packet, decoded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Segment<'a> {
    /// Sequence number of the first byte (of the SYN, if there is one).
    pub seq: Seq,
    /// Acknowledgement field of the header.
    pub ack: Seq,
    /// Header flags.
    pub flags: TcpFlags,
    /// Window field, unscaled.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Options.
    pub options: SegmentOptions<'a>,
    /// The captured payload.
    pub payload: &'a [u8],
    /// Length of the payload on the wire; larger than `payload` when the capture cut the packet.
    pub payload_len_on_wire: u32,
    /// The TCP checksum is right, or was not checked.
    pub checksum_ok: bool,
}

impl Segment<'_> {
    /// Payload length in sequence space.
    #[must_use]
    pub fn len(&self) -> u32 {
        let captured = u32::try_from(self.payload.len()).unwrap_or(u32::MAX);
        self.payload_len_on_wire.max(captured)
    }

    /// Whether the segment carries no data.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sequence number after the last payload byte.
    #[must_use]
    pub fn end(&self) -> Seq {
        self.seq.plus(self.len())
    }

    /// Whether all of `flags` are set.
    #[must_use]
    pub const fn has(&self, flags: TcpFlags) -> bool {
        self.flags.contains(flags)
    }

    /// Window scale shift, limited to the maximum of RFC 7323.
    #[must_use]
    pub fn wscale(&self) -> Option<u8> {
        self.options.wscale.map(|shift| shift.min(WSCALE_MAX))
    }
}

/// Largest window scale shift of RFC 7323.
pub const WSCALE_MAX: u8 = 14;

/// The way in which the receiver of a direction resolves overlaps and judges resets and timestamps: its
/// operating system's behaviour, as in Suricata's `host-os-policy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HostPolicy {
    /// BSD, also for unknown hosts.
    #[default]
    Bsd,
    /// The first bytes stay.
    First,
    /// The last bytes stay.
    Last,
    /// Linux 2.4 and later.
    Linux,
    /// Linux before 2.4.
    OldLinux,
    /// Solaris.
    Solaris,
    /// HP-UX 10.
    Hpux10,
    /// HP-UX 11.
    Hpux11,
    /// IRIX.
    Irix,
    /// macOS.
    Macos,
    /// Windows before 2003.
    Windows,
    /// Windows 2003.
    Windows2k3,
    /// Windows Vista and later.
    Vista,
}

impl HostPolicy {
    /// The policy of a `host-os-policy` key; `bsd-right` and `old-solaris` are treated as their
    /// relatives, as Suricata does.
    #[must_use]
    pub fn from_name(name: &str) -> Option<HostPolicy> {
        Some(match name {
            "bsd" | "bsd-right" => HostPolicy::Bsd,
            "first" => HostPolicy::First,
            "last" => HostPolicy::Last,
            "linux" => HostPolicy::Linux,
            "old-linux" => HostPolicy::OldLinux,
            "solaris" | "old-solaris" => HostPolicy::Solaris,
            "hpux10" => HostPolicy::Hpux10,
            "hpux11" => HostPolicy::Hpux11,
            "irix" => HostPolicy::Irix,
            "macos" => HostPolicy::Macos,
            "windows" => HostPolicy::Windows,
            "windows2k3" => HostPolicy::Windows2k3,
            "vista" => HostPolicy::Vista,
            _ => return None,
        })
    }
}

/// The circumstances of a segment's arrival.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The packet's direction.
    pub direction: Direction,
    /// The time, on the packet clock.
    pub now: Timestamp,
    /// Behaviour of the packet's destination.
    pub policy: HostPolicy,
}
