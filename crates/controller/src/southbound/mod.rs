// SPDX-License-Identifier: Apache-2.0
//! The controller's side of the southbound protocol. All files but [`listener`] do no I/O: connections, bytes
//! and times go in, bytes come out.
//!
//! * [`SouthboundServer`]: all sessions, and admission of connections;
//! * [`Backend`]: the interface to the rest of the controller;
//! * `session`: one connection;
//! * [`listener`]: real sockets and a clock;
//! * [`enrolment`]: certificates for devices, and revocations;
//! * [`counters`]: counters of sessions.

pub mod backend;
pub mod counters;
pub mod enrolment;
pub mod listener;
mod server;
mod session;

pub use backend::{Backend, DeviceRecord, EnrolRefusal, Unavailable, Wanted};
pub use server::{BELIEVED_AHEAD, Connection, ServerConfig, SouthboundServer};
pub use session::PeerIdentity;
