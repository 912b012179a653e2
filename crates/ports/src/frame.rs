// SPDX-License-Identifier: Apache-2.0
//! A port's information about a frame besides its bytes.

use crate::refusal::SendRefusal;
use bartizan_base::Timestamp;

/// A port's marks of a frame; a set of flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameFlags(u8);

impl FrameFlags {
    /// The sender left the transport checksum to hardware that does not exist (a local sender): the bytes are
    /// wrong, which is no fault.
    pub const CHECKSUM_PENDING: FrameFlags = FrameFlags(1);
    /// Device or kernel has verified the transport checksum.
    pub const CHECKSUM_VALID: FrameFlags = FrameFlags(2);
    /// Only the first bytes are captured (`wire_length` is the whole length).
    pub const TRUNCATED: FrameFlags = FrameFlags(4);
    /// The kernel had removed the outer VLAN tag; it is restored in the frame.
    pub const VLAN_RESTORED: FrameFlags = FrameFlags(8);
    /// Several UDP datagrams in one frame, left to a device by their sender (`UDP_SEGMENT`), or joined by the
    /// kernel (GRO): [`FrameInfo::segmentation`] has their sizes. They have to be split
    /// ([`crate::Batch::split`]) before any other step.
    pub const JOINED: FrameFlags = FrameFlags(16);
    /// The second of a pair of equal frames ([`crate::PassiveOptions::duplicate_window`]): to be ignored.
    pub const DUPLICATE: FrameFlags = FrameFlags(32);

    /// The sender left a checksum to hardware that does not exist, and this host has filled it in.
    pub const CHECKSUM_FILLED: FrameFlags = FrameFlags(64);

    /// Whether all flags of `other` are set.
    #[must_use]
    pub const fn contains(self, other: FrameFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// These flags and those of `other`.
    #[must_use]
    pub const fn with(self, other: FrameFlags) -> Self {
        FrameFlags(self.0 | other.0)
    }

    /// These flags without those of `other`.
    #[must_use]
    pub const fn without(self, other: FrameFlags) -> Self {
        FrameFlags(self.0 & !other.0)
    }
}

/// The segmentation of a frame that its sender left to a device to cut, or that the kernel joined. Zeros:
/// none, or the kernel does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segmentation {
    /// Bytes of payload after TCP or UDP in each segment but the last.
    pub size: u16,
    /// The offset of the header that segments repeat (TCP, UDP) in the frame; 0 when it is the first of the
    /// frame.
    pub header: u16,
}

/// The place of a checksum to be filled in. Zeros: none, or the kernel does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingChecksum {
    /// The offset in the frame of the first byte that it covers; it covers the rest of the frame.
    pub start: u16,
    /// The offset of its field from there. The field holds the sum of the pseudo header until then.
    pub field: u16,
}

/// A port's information about a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameInfo {
    /// The time of arrival, on the port's clock.
    pub timestamp: Timestamp,
    /// The frame's length on the wire in bytes, outer VLAN tag included, frame check sequence not.
    pub wire_length: u32,
    /// The frame's flags.
    pub flags: FrameFlags,
    /// The segmentation that the frame needs.
    pub segmentation: Segmentation,
    /// The pending checksum, of the frame's outer or inner packet.
    pub pending: PendingChecksum,
}

impl FrameInfo {
    /// Returns an error for a frame that no port may send as it is.
    ///
    /// # Errors
    /// [`SendRefusal::Incomplete`] when only its first bytes are here, [`SendRefusal::Joined`] when it is
    /// several datagrams.
    pub const fn refusal(&self) -> Result<(), SendRefusal> {
        if self.flags.contains(FrameFlags::TRUNCATED) {
            Err(SendRefusal::Incomplete)
        } else if self.flags.contains(FrameFlags::JOINED) {
            Err(SendRefusal::Joined)
        } else {
            Ok(())
        }
    }
}
