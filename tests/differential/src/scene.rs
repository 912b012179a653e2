// SPDX-License-Identifier: Apache-2.0
//! A scene: what is said, and what rules can look at in it.

use crate::pair::Packet;
use crate::talk::{Message, Way};

/// Bytes that a rule can look at.
#[derive(Clone, Debug)]
pub struct Target {
    /// The protocol of the rule's head.
    pub proto: &'static str,
    /// The sticky buffer; none for the payload.
    pub buffer: &'static str,
    /// About what the buffer holds.
    pub data: Vec<u8>,
    /// Said by the client.
    pub to_server: bool,
}

/// A conversation to be looked at.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Who says what.
    pub messages: Vec<Message>,
    /// How it travels.
    pub way: Way,
    /// What can be looked at.
    pub targets: Vec<Target>,
    /// Packets of no connection, spread among those of the messages.
    pub beside: Vec<Packet>,
}
