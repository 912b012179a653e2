// SPDX-License-Identifier: Apache-2.0
//! The agent's side of the southbound protocol, without I/O: bytes, times and what was done go in; bytes and
//! what is to be done come out. Who drives it has the sockets, the clock and the store.
//!
//! * [`Session`]: the connection to a controller, again and again;
//! * [`enrolment`]: a device's first certificate;
//! * `stage`: what is held ready for the next generation;
//! * `outbox`: statistics and alerts that wait, bounded;
//! * `backoff`: when to dial again;
//! * [`store`]: what outlives the process; [`disk`]: the files that it has.
//!
//! A session never touches what runs: a controller that is away, refuses or speaks nonsense costs a device no
//! protection.

mod backoff;
pub mod client;
pub mod disk;
pub mod enrolment;
mod machine;
mod outbox;
mod stage;
pub mod store;

pub use machine::{Action, Candidate, Counters, End, Session, SessionConfig};
pub use stage::Held;
