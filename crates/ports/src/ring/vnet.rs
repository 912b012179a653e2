// SPDX-License-Identifier: Apache-2.0
//! The kernel's description of a frame's segmentation, where the socket enables it (`PACKET_VNET_HDR`).
//!
//! Source: Linux `include/uapi/linux/virtio_net.h` (`struct virtio_net_hdr`), `include/linux/virtio_net.h`
//! (`virtio_net_hdr_from_skb`), packet(7). Ten bytes in the byte order of the host come directly before the
//! frame, in the ring and in the result of `recv`. Where the checksum is left to a device, they have the
//! offset of its header: the one that segments repeat, also in tunnels.

use super::Mapping;
use crate::frame::{PendingChecksum, Segmentation};

/// The length of the header in bytes.
pub(crate) const BYTES: usize = 10;
/// Additional bytes that slots reserve (`PACKET_RESERVE`), so that the network layer's header stays aligned.
pub(crate) const RESERVE: u32 = 6;

const NEEDS_CHECKSUM: u8 = 1;
const NONE: u8 = 0;
const UDP: u8 = 5;
const SIZE: usize = 4;
const CHECKSUM_START: usize = 6;
const CHECKSUM_OFFSET: usize = 8;

/// Its contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct VnetHeader {
    pub(super) segmentation: Segmentation,
    pub(super) pending: PendingChecksum,
    /// UDP: each segment is a datagram.
    pub(super) joined: bool,
}

/// Reads the header at `offset`. For a frame that is not segmented and has its checksum, as most, this reads
/// only the first word.
#[inline]
pub(super) fn read(mapping: &Mapping, offset: usize) -> VnetHeader {
    let [flags, kind] = mapping.half(offset).to_ne_bytes();
    let pending = if flags & NEEDS_CHECKSUM != 0 {
        let (start, field) = (offset + CHECKSUM_START, offset + CHECKSUM_OFFSET);
        PendingChecksum { start: mapping.half(start), field: mapping.half(field) }
    } else {
        PendingChecksum::default()
    };
    if kind == NONE {
        return VnetHeader { pending, ..VnetHeader::default() };
    }
    let segmentation = Segmentation { size: mapping.half(offset + SIZE), header: pending.start };
    VnetHeader { segmentation, pending, joined: kind == UDP }
}
