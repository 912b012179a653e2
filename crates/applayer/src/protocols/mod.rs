// SPDX-License-Identifier: Apache-2.0
//! The protocols: one file and one line each.

pub mod dns;
pub mod http;
pub mod http2;
pub mod tftp;
pub mod tls;

use crate::protocol::{ProtocolId, ProtocolSpec};

/// All protocols. The position is the [`ProtocolId`]; the order is that in which probes of one port are asked.
pub const TABLE: &[&ProtocolSpec] =
    &[&http::SPEC, &tls::SPEC, &dns::SPEC, &dns::MDNS, &tftp::SPEC, &http2::SPEC];

/// The number of HTTP/2.
pub const HTTP2: ProtocolId = ProtocolId(5);

/// The entry of a protocol.
#[must_use]
pub fn spec(id: ProtocolId) -> Option<&'static ProtocolSpec> {
    TABLE.get(usize::from(id.0)).copied()
}

/// Finds a protocol by its name or an alias.
#[must_use]
pub fn by_name(name: &str) -> Option<(ProtocolId, &'static ProtocolSpec)> {
    TABLE
        .iter()
        .enumerate()
        .find(|(_, spec)| spec.name == name || spec.aliases.contains(&name))
        .map(|(index, spec)| (ProtocolId(index as u8), *spec))
}
