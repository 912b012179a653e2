// SPDX-License-Identifier: Apache-2.0
//! Bounds of the southbound protocol. What passes one is an error that the receiver counts, and the
//! connection ends.

/// Bytes of a message behind the general head. A policy is at most this large; a larger rule group goes in
/// parts.
pub const MESSAGE_BYTES: usize = 1 << 20;

/// Bytes of a body behind its compression.
pub const INFLATED_BYTES: usize = 4 << 20;

/// Levels of objects and arrays in a body.
pub const JSON_DEPTH: usize = 16;

/// Letters of a device's id, a policy's or a function's name.
pub const NAME_LETTERS: usize = 128;

/// Objects (policies and rule groups) that a device holds.
pub const OBJECTS: usize = 65_536;

/// Bytes of all objects that a device holds.
pub const OBJECT_BYTES: usize = 256 << 20;

/// Entries of one inventory message.
pub const INVENTORY_PAGE: usize = 4_096;

/// Rules of one group.
pub const GROUP_RULES: u32 = 262_144;

/// Diagnostics of a refusal; further ones are counted in it.
pub const DIAGNOSTICS: usize = 64;

/// Counters of one statistics message.
pub const COUNTERS: usize = 16_384;

/// Levels of workers that both sides remember of a connection, for acknowledgements in short.
pub const TOLD_LEVELS: usize = 4_096;

/// Rules that are left out somewhere and told by name; further ones are counted.
pub const LEFT_OUT: usize = 8;

/// Bytes of such a name, and of its reason.
pub const LEFT_OUT_BYTES: usize = 256;

/// Links that a device names, and ports.
pub const INTERFACES: usize = 1_024;

/// Bytes of such a name.
pub const INTERFACE_BYTES: usize = 256;

/// Alerts of one alert message: with events of the greatest length they fit into a message, compressed or
/// not.
pub const ALERTS: usize = 128;

/// Bytes of an alert's event as JSON.
pub const EVENT_BYTES: usize = 4_096;
