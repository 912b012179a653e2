// SPDX-License-Identifier: Apache-2.0
//! Bounds of the southbound protocol. Exceeding one is an error that the receiver counts and that ends the
//! connection.

/// Most bytes of a message after the general head. A policy is at most this large; a larger rule group is
/// sent in parts.
pub const MESSAGE_BYTES: usize = 1 << 20;

/// Most bytes of a decompressed body.
pub const INFLATED_BYTES: usize = 4 << 20;

/// Deepest nesting of objects and arrays in a body.
pub const JSON_DEPTH: usize = 16;

/// Most letters of a device's id, a policy's or a function's name.
pub const NAME_LETTERS: usize = 128;

/// Most objects (policies and rule groups) of a device.
pub const OBJECTS: usize = 65_536;

/// Most bytes of all objects of a device.
pub const OBJECT_BYTES: usize = 256 << 20;

/// Most entries of an inventory message.
pub const INVENTORY_PAGE: usize = 4_096;

/// Most rules of a group.
pub const GROUP_RULES: u32 = 262_144;

/// Most diagnostics of a refusal, which has the number of further ones.
pub const DIAGNOSTICS: usize = 64;

/// Most counters of a statistics message.
pub const COUNTERS: usize = 16_384;

/// Most levels of workers that both sides remember of a connection, for short acknowledgements.
pub const TOLD_LEVELS: usize = 4_096;

/// Most rules in a list of rules that are not evaluated, which has the total number.
pub const LEFT_OUT: usize = 8;

/// Most bytes of such a rule's name, and of its reason.
pub const LEFT_OUT_BYTES: usize = 256;

/// Most links of a device, and most ports.
pub const INTERFACES: usize = 1_024;

/// Most bytes of the name of a link or port.
pub const INTERFACE_BYTES: usize = 256;

/// Most alerts of a message: with events of the greatest length they fit into it, compressed or not.
pub const ALERTS: usize = 128;

/// Most bytes of an alert's event as JSON.
pub const EVENT_BYTES: usize = 4_096;
