// SPDX-License-Identifier: Apache-2.0
//! The controller's side of the southbound protocol. All but [`listener`] is without I/O: connections, bytes
//! and times go in, bytes come out.
//!
//! * [`Server`]: all sessions, and who may have which;
//! * [`Backend`]: what it asks of the rest of the controller;
//! * `session`: one connection;
//! * [`listener`]: real sockets and a clock around it;
//! * [`enrolment`]: certificates for devices, and revocations;
//! * [`counters`]: what happened.

pub mod backend;
pub mod counters;
pub mod enrolment;
pub mod listener;
mod server;
mod session;

pub use backend::{Backend, DeviceRecord, EnrolRefusal, Unavailable, Wanted};
pub use server::{BELIEVED_AHEAD, Connection, Server, ServerConfig};
pub use session::Peer;
