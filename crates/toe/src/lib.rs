// SPDX-License-Identifier: Apache-2.0
//! Layer-7 payloads over shared memory: programs of a guest hand payloads to the engine without a TCP/IP
//! stack in between, and security functions read them on the way (TOSEC, docs/stream.md).
//!
//! * [`descriptor`]: the 64-byte descriptors of control rings, and the messages of a process's channel.
//! * [`datagram`]: records of datagrams in a stream's buffers.
//! * [`layout`]: what stands where in a guest's shared segments, and who writes it.
//! * [`memory`]: size-sealed memfds and access to memory that another process changes at any time.
//! * [`ring`]: the control ring, one producer (a process of the guest) and one consumer (the engine).
//! * [`inspect`]: the trait by which functions see payloads, and their verdicts.
//! * [`engine`]: kernel sockets on one side, guests on the other; one copy into the engine's own memory
//!   before the first function is the trust boundary.
//! * [`guest`]: the guest's side, which the socket library (`crates/sock`) puts behind the calls of libc.
//!
//! Not done: io_uring, functions in processes of their own.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod clock;
pub mod datagram;
pub mod descriptor;
pub mod engine;
pub mod guest;
pub mod inspect;
pub mod layout;
pub mod limits;
// Memory shared with other processes; the argument is at the top of the file.
#[allow(unsafe_code)]
pub mod memory;
pub mod reason;
pub mod ring;
// Socket options by number, which no safe wrapper has.
#[allow(unsafe_code)]
mod sys;
