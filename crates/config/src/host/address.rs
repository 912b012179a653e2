// SPDX-License-Identifier: Apache-2.0
//! Addresses with a port, as in host files.

use core::net::SocketAddr;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// As [`read_listen_address`], for an optional key.
pub(super) fn read_some_listen_address<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SocketAddr>, D::Error> {
    read_listen_address(deserializer).map(Some)
}

/// Deserializes an address with a port.
pub(super) fn read_listen_address<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<SocketAddr, D::Error> {
    listen_address(&String::deserialize(deserializer)?).map_err(Error::custom)
}

/// Parses an address with a port.
///
/// # Errors
/// The text is not an address with a port; the message shows the format.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("`{text}` is not an address with a port; write it like 127.0.0.1:9100 or '[::1]:9100'")
    })
}
