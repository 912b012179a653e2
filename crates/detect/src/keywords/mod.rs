// SPDX-License-Identifier: Apache-2.0
//! The keywords: one file, or one family of small keywords of a kind, and one line each.
//!
//! Sticky buffers need no file: see [`sticky`].

mod app_layer_event;
mod app_layer_protocol;
mod base64;
mod bsize;
mod bytes;
mod checksum;
mod config;
mod content;
mod dataset;
mod dns;
mod dsize;
mod events;
mod file;
mod flow;
mod flowbits;
mod flowcounts;
mod flowint;
mod hostbits;
mod http;
mod icmp;
mod ip_fields;
mod ip_proto;
mod iprep;
mod isdataat;
mod meta;
mod modifiers;
mod number;
mod path;
mod pcre;
mod requires;
pub mod sticky;
mod tag;
mod tcp_fields;
mod tcp_flags;
#[cfg(test)]
pub(crate) mod testing;
mod text;
pub mod threshold;
mod tls;
mod transforms;
mod ttl;
mod unsupported;
mod urilen;
pub(crate) mod validate;
mod vlan;

use crate::keyword::Keyword;
use bartizan_applayer::protocol::ProtocolId;
use bartizan_function::view::FlowView;
pub(crate) use path::from_hex;
use std::collections::HashMap;
use std::sync::OnceLock;
pub use threshold::apply_thresholds;

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
    meta::KEYWORDS,
    content::KEYWORDS,
    modifiers::KEYWORDS,
    pcre::KEYWORDS,
    isdataat::KEYWORDS,
    bytes::KEYWORDS,
    bsize::KEYWORDS,
    base64::KEYWORDS,
    flow::KEYWORDS,
    flowbits::KEYWORDS,
    flowint::KEYWORDS,
    hostbits::KEYWORDS,
    flowcounts::KEYWORDS,
    threshold::KEYWORDS,
    tag::KEYWORDS,
    transforms::KEYWORDS,
    requires::KEYWORDS,
];

/// All keywords.
pub fn all() -> impl Iterator<Item = &'static Keyword> {
    FAMILIES.iter().flat_map(|family| family.iter())
}

/// Finds a keyword by name or alias, whatever its letter case.
#[must_use]
pub fn find(name: &str) -> Option<&'static Keyword> {
    static BY_NAME: OnceLock<HashMap<&'static str, &'static Keyword>> = OnceLock::new();
    let table = BY_NAME.get_or_init(|| {
        let names = |k: &'static Keyword| {
            core::iter::once(k.name).chain(k.aliases.iter().copied()).map(move |name| (name, k))
        };
        all().flat_map(names).collect()
    });
    table.get(name).or_else(|| table.get(name.to_ascii_lowercase().as_str())).copied()
}

/// The application protocol of a flow's transactions.
fn current_app(flow: &FlowView<'_>) -> Option<ProtocolId> {
    flow.app.current()
}

/// Keywords of Suricata 8 that this engine knows of and does not evaluate: rules with them are refused by name.
pub const UNSUPPORTED: &[&str] = unsupported::KEYWORDS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_keyword_is_known_once() {
        let mut seen = std::collections::HashSet::new();
        for keyword in all() {
            for name in core::iter::once(&keyword.name).chain(keyword.aliases) {
                assert!(seen.insert(*name), "`{name}` stands in the table twice");
                assert_eq!(find(name).map(|k| k.name), Some(keyword.name));
            }
            assert!(keyword.summary.ends_with(['.', ')']), "{}", keyword.name);
        }
        assert_eq!(find("CONTENT").map(|k| k.name), Some("content"));
        let mut names = std::collections::HashSet::new();
        for name in UNSUPPORTED {
            assert!(names.insert(name), "`{name}` is listed twice");
        }
    }
}
