// SPDX-License-Identifier: Apache-2.0
//! The command socket: a Unix stream socket whose messages are JSON objects, in the protocol of Suricata's
//! own tool (`suricatasc`) and of programs made for it.
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
//! Each message of version 0.2 ends with a line end, none of version 0.1 does: a message is complete when its
//! object is. So [`Messages`] looks for the end of the object, and line ends are the blanks that they are in
//! JSON; a client may send its object over several lines.
//!
//! Source: the chapter "Interacting via Unix Socket" of Suricata's user guide, and the messages of its
//! clients.

mod commands;
mod messages;
mod reply;
mod request;

pub use commands::{COMMANDS, CommandArgument, CommandSpec, Form, command};
pub use messages::{Broken, Messages};
pub use reply::{BadReply, ControlReply};
pub use request::{ControlRequest, Malformed, Version, hello, request, version};

/// Most bytes of a message to the program.
pub const MESSAGE_MAX: usize = 64 * 1024;
/// Most bytes of an answer that a client accepts.
pub const ANSWER_MAX: usize = 64 * 1024 * 1024;
