// SPDX-License-Identifier: Apache-2.0
//! The command socket: a Unix stream socket on which messages are JSON objects, as Suricata's own tool
//! (`suricatasc`) and programs that were made for it speak.
//!
//! ```text
//!   client                                    program
//!   {"version": "0.2"}                 -->
//!                                      <--    {"return":"OK"}
//!   {"command": "uptime"}              -->
//!                                      <--    {"message":12,"return":"OK"}
//!   {"command": "iface-stat",
//!    "arguments": {"iface": "eth0"}}   -->
//!                                      <--    {"message":"...","return":"NOK"}
//! ```
//!
//! Each message of version 0.2 ends with a line end. In version 0.1 none does: a message is whole when its
//! object is. Which is why [`Messages`] looks for the end of the object and takes line ends for the blanks
//! that they are to JSON; a client may send its object in several lines.
//!
//! Source: the chapter "Interacting via Unix Socket" of Suricata's user guide, and what its clients send.

mod commands;
mod messages;
mod reply;
mod request;

pub use commands::{Argument, COMMANDS, CommandSpec, Form, command};
pub use messages::{Broken, Messages};
pub use reply::{BadReply, Reply};
pub use request::{Malformed, Request, Version, hello, request, version};

/// Bytes of one message to the program at most.
pub const MESSAGE_MAX: usize = 64 * 1024;
/// Bytes of one answer that a client takes at most.
pub const ANSWER_MAX: usize = 64 * 1024 * 1024;
