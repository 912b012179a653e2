// SPDX-License-Identifier: Apache-2.0
//! Sources and sinks of packets.
//!
//! * [`Port`]: the interface of every source and sink; a worker sees only this.
//! * [`Batch`]: the frames that a port hands out together, which stay in its ring.
//! * [`PassivePort`]: AF_PACKET with a TPACKET_V3 ring, block-wise, for taps.
//! * [`MergedTap`]: several of them watched as one, frames in the order of their timestamps.
//! * [`InlinePort`] and [`InlinePair`]: AF_PACKET with TPACKET_V2 rings, where a frame is visible at once.
//! * [`TestPort`]: two joined ports in memory.
//!
//! Nothing here allocates or makes a system call per packet, with one counted exception: a frame larger
//! than its ring slot is fetched through the socket.
//!
//! Not done: AF_XDP.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod awake;
mod batch;
mod bpf;
mod duplicates;
mod error;
mod exit;
// libpcap; the argument is at the top of the file.
#[allow(unsafe_code)]
mod ffi_pcap;
mod filter;
mod frame;
mod inline;
mod interface;
pub mod limits;
mod merge;
mod mtu;
mod offload;
mod pair;
mod passive;
mod peer;
mod port;
mod processor;
mod refusal;
// Memory shared with the kernel; the argument is at the top of the file.
#[allow(unsafe_code)]
mod ring;
mod snap;
mod socket;
// System calls; the argument is at the top of the file.
#[allow(unsafe_code)]
mod sys;
mod testport;
mod timestamps;
mod wait;

pub use awake::{Awake, DEVICE as AWAKE_DEVICE};
pub use batch::{Batch, Disposition, Split};
pub use error::{OpenError, PortError};
pub use exit::ExitPort;
pub use ffi_pcap::{FilterError, PacketFilter};
pub use frame::{FrameFlags, FrameInfo, PendingChecksum, Segmentation};
pub use inline::{InlineOptions, InlinePort, MAX_MTU, TransmitPath};
pub use interface::{Interface, LinkState};
pub use merge::{MERGE_WAIT, MERGED_MOST, MergeFrame, MergedTap};
pub use offload::{Offload, OffloadGuard, Warning, ethtool_command, offloads_on};
pub use pair::{InlinePair, PairSide};
pub use passive::{PassiveOptions, PassivePort};
pub use peer::PeerProcess;
pub use port::{BACKLOG_PARTS, LinkLayer, MAX_FRAME, Port, PortStats};
pub use processor::{processors, stay_on_processor};
pub use refusal::{SendFailures, SendRefusal};
pub use snap::{AfterHeaders, HeaderLayer, SnapLength};
pub use socket::{Fanout, FanoutMode, stamps_by_device};
pub use testport::{TestClock, TestPort};
pub use timestamps::{NoStamps, Timestamps};
pub use wait::{Waker, Woke, busy_poll_any, packet_clock, wait_any};
