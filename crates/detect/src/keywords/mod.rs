// SPDX-License-Identifier: Apache-2.0
//! The keywords: one file, or one family of small keywords of a kind, and one line each.
//!
//! Sticky buffers need no file: see [`sticky`].

mod app_layer_event;
mod app_layer_protocol;
mod checksum;
mod config;
mod dataset;
mod dns;
mod dsize;
mod events;
mod file;
mod http;
mod icmp;
mod ip_fields;
mod ip_proto;
mod iprep;
mod number;
mod path;
pub mod sticky;
mod tcp_fields;
mod tcp_flags;
#[cfg(test)]
pub(crate) mod testing;
mod tls;
mod ttl;
mod urilen;
pub(crate) mod validate;
mod vlan;

use crate::keyword::Keyword;
use bartizan_applayer::protocol::ProtocolId;
use bartizan_function::view::FlowView;
pub(crate) use path::from_hex;

/// Families in the order of the reference.
pub const FAMILIES: &[&[Keyword]] = &[
    ttl::KEYWORDS,
    ip_fields::KEYWORDS,
    ip_proto::KEYWORDS,
    tcp_fields::KEYWORDS,
    tcp_flags::KEYWORDS,
    icmp::KEYWORDS,
    dsize::KEYWORDS,
    vlan::KEYWORDS,
    checksum::KEYWORDS,
    events::KEYWORDS,
    app_layer_event::KEYWORDS,
    app_layer_protocol::KEYWORDS,
    http::KEYWORDS,
    urilen::KEYWORDS,
    dns::KEYWORDS,
    tls::KEYWORDS,
    file::KEYWORDS,
    dataset::KEYWORDS,
    iprep::KEYWORDS,
    config::KEYWORDS,
];

/// All keywords.
pub fn all() -> impl Iterator<Item = &'static Keyword> {
    FAMILIES.iter().flat_map(|family| family.iter())
}

/// Finds a keyword by name or alias.
#[must_use]
pub fn find(name: &str) -> Option<&'static Keyword> {
    all().find(|k| k.name == name || k.aliases.contains(&name))
}

/// The application protocol of a flow's transactions.
fn current_app(flow: &FlowView<'_>) -> Option<ProtocolId> {
    flow.app.and_then(|app| app.protocol().protocol().or(app.original()))
}

/// Keywords of Suricata 8 that this engine knows of and does not evaluate: rules with them are refused by name.
pub const UNSUPPORTED: &[&str] = &[];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_distinct_and_described() {
        let mut seen = HashSet::new();
        for keyword in all() {
            for name in core::iter::once(&keyword.name).chain(keyword.aliases) {
                assert!(seen.insert(*name), "{name} stands twice");
                assert!(find(name).is_some_and(|k| k.name == keyword.name));
            }
            assert!(keyword.summary.ends_with('.'), "{} has no sentence", keyword.name);
        }
    }
}
