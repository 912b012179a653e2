// SPDX-License-Identifier: Apache-2.0
//! TCP session tracking (RFC 9293, RFC 7323, RFC 7413) with the semantics of Suricata's stream engine, since
//! users compare with its events and alerts.
//!
//! [`TcpSession`] is plain data that lives in a flow entry. [`TcpSession::handle`] takes one [`Segment`] and
//! writes the result to an [`Outcome`]; given a [`crate::stream::StreamPair`], it also feeds reassembly.
//! Without one (no payload function on the path) it tracks the session alone.
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
//! streams.end_packet(direction, segment.payload, context.budget);
//! assert_eq!(streams.stream(direction).app_progress(), 16);
//! ```
//!
//! Deliberate differences from Suricata: a session picked up at a packet of the flow's second direction keeps
//! the flow's directions; inline, every payload that leaves is compared and inspected whatever its packet's
//! state, and a RST does not acknowledge its sender's data; raw inspection can see an overlap; packets of
//! honest hosts during a close (FINs that cross or are retransmitted, unexpected ACKs after a loss, a RST
//! after the client's FIN) are neither refused nor reported; with real receivers a session is over when both
//! FINs are acknowledged or a side has reset it, and only then a SYN replaces it, and data that acknowledges
//! unsent data is refused. Inline and one-sided together, the sender's own progress takes the place of the
//! missing acknowledgements, so a retransmission that differs is detected only while its bytes are held.
//!
//! The caller chooses the host policy for an address, applies exception policies and timeouts, and makes and
//! reverses the flow's key, by the [`Outcome`].

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
pub use resume::{Fin, TcpProgress};
pub use segment::{Arrival, HostPolicy, Segment, SegmentOptions, TcpFlags, WSCALE_MAX};
pub use seq::Seq;
pub use session::TcpSession;
pub use state::{SessionPhase, TcpState};
pub use windows::SharedWindows;
