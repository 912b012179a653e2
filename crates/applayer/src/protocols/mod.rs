// SPDX-License-Identifier: Apache-2.0
//! The protocols: one file and one line each.

pub mod dcerpc;
pub mod dns;
mod first_line;
pub mod ftp;
pub mod http;
pub mod http2;
pub mod quic;
pub mod recognised;
pub mod smb;
pub mod smtp;
pub mod ssh;
pub mod tftp;
pub mod tls;
pub mod websocket;

use crate::protocol::{NumberId, ProtocolId, ProtocolSpec};

/// All protocols. The position is the [`ProtocolId`]; probes of one port run in this order.
pub const TABLE: &[&ProtocolSpec] = &[
    &http::SPEC,
    &tls::SPEC,
    &dns::SPEC,
    &dns::MDNS,
    &tftp::SPEC,
    &http2::SPEC,
    &ssh::SPEC,
    &ftp::SPEC,
    &ftp::data::SPEC,
    &smtp::SPEC,
    &dcerpc::SPEC,
    &smb::SPEC,
    &websocket::SPEC,
    &recognised::POP3,
    &recognised::IMAP,
    &quic::SPEC,
    &http2::DOH2,
];

/// The entry of a protocol.
#[must_use]
pub fn spec(id: ProtocolId) -> Option<&'static ProtocolSpec> {
    TABLE.get(usize::from(id.0)).copied()
}

/// All protocols with their numbers.
pub fn all() -> impl Iterator<Item = (ProtocolId, &'static ProtocolSpec)> {
    TABLE.iter().enumerate().map(|(index, spec)| (ProtocolId(index as u8), *spec))
}

/// Finds a protocol by its name or an alias.
#[must_use]
pub fn by_name(name: &str) -> Option<(ProtocolId, &'static ProtocolSpec)> {
    all().find(|(_, spec)| spec.name == name || spec.aliases.contains(&name))
}

/// Whether a name names a family of protocols.
#[must_use]
pub fn is_family(name: &str) -> bool {
    TABLE.iter().any(|spec| spec.family == Some(name))
}

/// The protocols that a name in rules means: one, those of a family, or one and those that carry it.
pub fn called(name: &str) -> impl Iterator<Item = (ProtocolId, &'static ProtocolSpec)> {
    all().filter(move |(_, spec)| spec.is_called(name))
}

/// Whether a protocol is the first of a family with later members, which may begin within its connections.
#[must_use]
pub fn has_later_relative(id: ProtocolId) -> bool {
    let family = spec(id).and_then(|own| own.family.filter(|family| *family == own.name));
    family.is_some_and(|family| called(family).count() > 1)
}

/// The settings on which values of buffers are computed, each once, with their protocols.
#[must_use]
pub fn computing_settings() -> Vec<(&'static ProtocolSpec, &'static str)> {
    let mut all: Vec<(&'static ProtocolSpec, &'static str)> = Vec::new();
    for (_, spec) in self::all() {
        for setting in spec.buffers.iter().filter_map(|buffer| buffer.computed_by) {
            if !all.iter().any(|(of, known)| of.name == spec.name && *known == setting) {
                all.push((spec, setting));
            }
        }
    }
    all
}

/// The protocols that are only recognised: a policy of the settings decides about their flows.
pub fn unparsed() -> impl Iterator<Item = (ProtocolId, &'static ProtocolSpec)> {
    all().filter(|(_, spec)| !spec.is_parsed())
}

/// The protocols whose flows the settings can refuse: those that are only recognised, and later members of a
/// family.
pub fn refusable() -> impl Iterator<Item = (ProtocolId, &'static ProtocolSpec)> {
    all().filter(|(_, spec)| !spec.is_parsed() || spec.family.is_some_and(|family| family != spec.name))
}

/// Finds the protocol of a number by the number's name.
#[must_use]
pub fn by_number(name: &str) -> Option<(ProtocolId, &'static ProtocolSpec, NumberId)> {
    all().find_map(|(id, spec)| Some((id, spec, spec.number(name)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::GENERIC_BASE;
    use std::collections::BTreeSet;

    #[test]
    fn declarations_name_each_thing_once() {
        let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
        for (id, spec) in all() {
            for name in core::iter::once(&spec.name).chain(spec.aliases) {
                assert!(names.insert(*name), "{name} twice");
                assert_eq!(by_name(name).map(|found| found.0), Some(id), "{name}");
            }
            assert!(names.contains(spec.exact_name) && !is_family(spec.exact_name), "{}", spec.name);
            let ids: BTreeSet<_> = spec.numbers.iter().map(|number| number.id).collect();
            assert_eq!(ids.len(), spec.numbers.len(), "{}: a number twice", spec.name);
            for number in spec.numbers {
                assert!(numbers.insert(number.name), "{} twice", number.name);
                assert!(by_number(number.name).is_some_and(|found| (found.0, found.2) == (id, number.id)));
            }
            assert!(spec.encrypted.is_none_or(|number| ids.contains(&number)), "{}", spec.name);
            assert!(spec.absent >= GENERIC_BASE, "{}", spec.name);
        }
    }

    #[test]
    fn settings_and_policies_come_from_the_declarations() {
        let settings: Vec<_> = computing_settings().iter().map(|(spec, key)| (spec.name, *key)).collect();
        assert_eq!(settings, [("tls", "ja3-fingerprints"), ("ssh", "hassh")]);
        assert_eq!(refusable().map(|(_, spec)| spec.name).collect::<Vec<_>>(), ["http2", "pop3", "imap"]);
        assert_eq!(unparsed().map(|(_, spec)| spec.name).collect::<Vec<_>>(), ["pop3", "imap"]);
    }

    #[test]
    fn a_family_is_all_that_declare_it() {
        let called = |name| called(name).map(|(_, spec)| spec.name).collect::<Vec<_>>();
        assert_eq!(called("http"), ["http", "http2"]);
        assert_eq!((called("http1"), called("ssl"), called("smtp2")), (vec!["http"], vec!["tls"], vec![]));
        assert_eq!((called("dcerpc"), called("smb")), (vec!["dcerpc", "smb"], vec!["smb"]));
        assert_eq!((called("dns"), called("http2")), (vec!["dns", "doh2"], vec!["http2", "doh2"]));
        let has_later = |name| by_name(name).is_some_and(|(id, _)| has_later_relative(id));
        assert!(has_later("http") && !has_later("http2") && !has_later("tls"));
    }
}
