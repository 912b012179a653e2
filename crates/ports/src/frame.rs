// SPDX-License-Identifier: Apache-2.0
//! What a port says about a frame besides its bytes.

use crate::refusal::SendRefusal;
use bartizan_base::Timestamp;

/// What a port knows about a frame besides its bytes; a set of flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameFlags(u8);

impl FrameFlags {
    /// The sender left the transport checksum to hardware that does not exist (a local sender): it is wrong
    /// in the bytes, and no fault.
    pub const CHECKSUM_PENDING: FrameFlags = FrameFlags(1);
    /// Device or kernel has verified the transport checksum.
    pub const CHECKSUM_VALID: FrameFlags = FrameFlags(2);
    /// Only the first bytes are here (`wire_length` tells how many there were).
    pub const TRUNCATED: FrameFlags = FrameFlags(4);
    /// The kernel had taken the outer VLAN tag out; it stands in the frame again.
    pub const VLAN_RESTORED: FrameFlags = FrameFlags(8);
    /// Several UDP datagrams that their sender left to a device to take apart (`UDP_SEGMENT`), or that the
    /// kernel put together (GRO), as one: [`FrameInfo::segmentation`] says how. To be taken apart
    /// ([`crate::Batch::split`]) before anything else.
    pub const JOINED: FrameFlags = FrameFlags(16);
    /// The second of a pair of equal frames ([`crate::PassiveOptions::duplicate_window`]): not to be looked
    /// at.
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

/// How a frame is to be cut that its sender left to a device to cut, or that the kernel put together. Zeros:
/// it is not, or the kernel does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segmentation {
    /// Bytes of payload behind TCP or UDP in each segment but the last.
    pub size: u16,
    /// Where the header that is repeated (TCP, UDP) begins in the frame; 0 when it is the first of the frame.
    pub header: u16,
}

/// Where a checksum is still to be filled in. Zeros: nowhere, or the kernel does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingChecksum {
    /// Where in the frame the bytes begin that it is about, which go to the frame's end.
    pub start: u16,
    /// Where it stands, from there on. The sum of the pseudo header stands there until then.
    pub field: u16,
}

/// What a port says about a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameInfo {
    /// When it arrived, on the port's clock.
    pub timestamp: Timestamp,
    /// Its length on the wire in bytes, outer VLAN tag included, frame check sequence not.
    pub wire_length: u32,
    /// More about it.
    pub flags: FrameFlags,
    /// How it is to be cut.
    pub segmentation: Segmentation,
    /// The checksum that is pending, in whatever the frame carries.
    pub pending: PendingChecksum,
}

impl FrameInfo {
    /// Why such a frame must not be sent as it is, whatever the port.
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
