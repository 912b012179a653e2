// SPDX-License-Identifier: Apache-2.0
//! The agent's side of the southbound protocol, without I/O: bytes, times and results go in; bytes and
//! actions come out. The driver has the sockets, the clock and the store.
//!
//! * [`Session`]: the connection to a controller, with reconnects;
//! * [`enrolment`]: a device's first certificate;
//! * `stage`: the objects staged for the next generation;
//! * `outbox`: bounded queues of statistics and alerts;
//! * `backoff`: back-off between connection attempts;
//! * [`store`]: the stored generation; [`disk`]: its file operations.
//!
//! A session never touches the running generation by itself: a controller that is away, refuses or sends
//! invalid messages does not reduce a device's protection.

mod backoff;
pub mod client;
pub mod disk;
pub mod enrolment;
mod machine;
mod outbox;
mod stage;
pub mod store;

pub use machine::{AgentSessionCounters, Candidate, End, Session, SessionAction, SessionConfig};
pub use stage::ControllerGeneration;
