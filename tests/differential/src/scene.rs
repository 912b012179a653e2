// SPDX-License-Identifier: Apache-2.0
//! A scene: a conversation, and the bytes that rules can match in it.

use crate::pair::Packet;
use crate::talk::{Message, Way};

/// Bytes that a rule can match.
#[derive(Clone, Debug)]
pub struct Target {
    /// The protocol of the rule's head.
    pub proto: &'static str,
    /// The sticky buffer; empty for the payload.
    pub buffer: &'static str,
    /// The approximate content of the buffer.
    pub data: Vec<u8>,
    /// Sent by the client.
    pub to_server: bool,
}

/// A conversation for rules to inspect.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The messages in order.
    pub messages: Vec<Message>,
    /// Transport parameters of the messages.
    pub way: Way,
    /// Bytes that rules can match.
    pub targets: Vec<Target>,
    /// Packets outside any connection, spread among those of the messages.
    pub beside: Vec<Packet>,
}
