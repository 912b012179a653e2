// SPDX-License-Identifier: Apache-2.0
//! TCP session tracking (RFC 9293, RFC 7323, RFC 7413) with the semantics of Suricata's stream
//! engine, since its events and alerts are what users compare with.
//!
//! [`TcpSession`] is plain data that lives in a flow entry. [`TcpSession::handle`] takes one
//! [`Segment`] and writes into an [`Outcome`] what it meant; given a [`crate::stream::StreamPair`] it also
//! feeds reassembly. Without one (no payload function on the path) it tracks the session alone.
//!
//! ```
//! use bartizan_base::{Direction, Timestamp};
//! use bartizan_flow::stream::{AppChunk, MemoryBudget, StreamPair};
//! use bartizan_flow::tcp::*;
//!
//! let config = StreamConfig { midstream: true, mode: StreamMode::Inline, ..StreamConfig::default() };
//! let (mut counters, mut budget) = (StreamCounters::default(), MemoryBudget::new(config.reassembly.memcap));
//! let mut context = StreamContext { config: &config, counters: &mut counters, budget: &mut budget };
//! let (mut session, mut streams) = (TcpSession::default(), StreamPair::default());
//!
//! let payload = b"GET / HTTP/1.1\r\n";
//! let segment = Segment { flags: TcpFlags::ACK, payload, checksum_ok: true, ..Segment::default() };
//! let direction = Direction::ToServer;
//! let arrival = Arrival { direction, now: Timestamp::ZERO, policy: HostPolicy::Linux };
//! let mut outcome = Outcome::default();
//! session.handle(&segment, arrival, Some(&mut streams), &mut context, &mut outcome);
//!
//! for which in Direction::BOTH.into_iter().filter(|d| outcome.readable[*d]) {
//!     // The packet belongs to its own direction; the other one reads what is held.
//!     let packet = if which == direction { segment.payload } else { &[] };
//!     while let Some(chunk) = streams.stream_mut(which).app(packet) {
//!         let taken = match chunk {
//!             AppChunk::Data { bytes, .. } => bytes.len() as u64, // the parser says how many
//!             AppChunk::Gap { len, .. } => len,
//!         };
//!         streams.stream_mut(which).app_consume(taken);
//!     }
//! }
//! streams.settle(direction, segment.payload, context.budget);
//! assert_eq!(streams.stream(direction).app_progress(), 16);
//! ```
//!
//! Differences from Suricata, on purpose: a session picked up at a packet of the flow's second direction
//! keeps the flow's directions; inline, every payload that leaves is compared and shown to the readers
//! whatever its packet's state, and a RST does not acknowledge what its sender sent; raw inspection can see
//! an overlap; what honest hosts send while they close (FINs that cross or come again, ACKs beside what is
//! expected after a loss, a RST behind the client's FIN) is neither refused nor told; before real receivers a
//! session is over when both FINs are acknowledged or a side has reset it, and only then a SYN replaces it,
//! and data that acknowledges what was not sent is refused. Inline and one-sided together, the sender's own
//! progress stands for the missing acknowledgements, so a retransmission that differs is noticed only while
//! its bytes are held.
//!
//! Not done here: choosing a host policy for an address, applying exception policies, timeouts,
//! the flow's key and its reversal. The caller does these with what [`Outcome`] says.

mod checkpoint;
mod checks;
mod closing;
mod config;
mod context;
mod counters;
mod established;
mod event;
mod export;
pub(crate) mod handle;
mod handshake;
mod outcome;
mod peer;
mod pickup;
mod queue;
mod queued;
mod resume;
mod reuse;
mod segment;
mod seq;
pub(crate) mod session;
mod state;
mod step;
mod validate;
mod windows;

#[cfg(test)]
mod tests;

pub use checkpoint::Checkpoint;
pub(crate) use config::COOKIE_REACH;
pub use config::{
    ExceptionPolicy, ExceptionTarget, OverlapAction, ReassemblyConfig, StreamConfig, StreamMode, UrgentPolicy,
};
pub use context::StreamContext;
pub use counters::StreamCounters;
pub use event::{EventList, StreamEvent};
pub use outcome::{Advice, Outcome, PacketKind};
pub use peer::Peer;
pub use queued::OpeningSyn;
pub use resume::{Fin, Progress};
pub use segment::{Arrival, HostPolicy, Segment, SegmentOptions, TcpFlags, WSCALE_MAX};
pub use seq::Seq;
pub use session::TcpSession;
pub use state::{SessionPhase, TcpState};
pub use windows::SharedWindows;
