// SPDX-License-Identifier: Apache-2.0
//! TCP session tracking (RFC 9293, RFC 7323, RFC 7413) with the semantics of Suricata's stream
//! engine, since its events and alerts are what users compare with.
//!
//! [`TcpSession`] is plain data that lives in a flow entry. [`TcpSession::handle`] takes one
//! [`Segment`] and says in an [`Outcome`] what it meant; given a [`crate::stream::StreamPair`] it also
//! feeds reassembly. Without one (no payload function on the path) it tracks the session alone.
//!
//! Not done here: choosing a host policy for an address, applying exception policies, timeouts,
//! the flow's key and its reversal. The caller does these with what [`Outcome`] says.

mod checks;
mod closing;
mod config;
mod counters;
mod established;
mod event;
mod export;
mod handshake;
mod outcome;
mod peer;
mod pickup;
mod queue;
mod reuse;
mod segment;
mod seq;
mod session;
mod step;
mod validate;

#[cfg(test)]
mod tests;

pub use config::{
    ExceptionPolicy, ExceptionTarget, OverlapAction, ReassemblyConfig, StreamConfig, StreamMode, UrgentPolicy,
};
pub use counters::StreamCounters;
pub use event::{EventList, StreamEvent};
pub use outcome::{Advice, FlowState, Outcome, PacketKind};
pub use peer::Peer;
pub use segment::{Arrival, HostPolicy, Segment, SegmentOptions, TcpFlags, WSCALE_MAX};
pub use seq::Seq;
pub use session::{StreamContext, TcpSession, TcpState};
