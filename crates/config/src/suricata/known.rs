// SPDX-License-Identifier: Apache-2.0
//! The possible keys of a suricata.yaml, to distinguish misspelt keys from keys without effect here.
//!
//! The table has one pattern per line (its header names the source); names that users choose (variables,
//! servers) are `*`.

use super::check::is_like;
use crate::policy::nearest;

const TABLE: &str = include_str!("known.keys");

fn patterns() -> impl Iterator<Item = &'static str> {
    TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The patterns of all settings that are known, in the order of the table.
pub fn known_settings() -> impl Iterator<Item = &'static str> {
    patterns()
}

/// Whether Suricata or this program has a setting with this key.
#[must_use]
pub fn is_known(key: &str) -> bool {
    patterns().any(|pattern| is_like(key, pattern))
}

/// The setting nearest to an unknown key: the same number of parts, each with at most one typing error.
#[must_use]
pub fn nearest_known(key: &str) -> Option<String> {
    let parts: Vec<&str> = key.split('.').collect();
    let alike = |candidate: &String| {
        candidate.split('.').count() == parts.len()
            && candidate.split('.').zip(&parts).all(|(a, b)| nearest(b, [a]).is_some())
    };
    let candidates: Vec<String> = patterns().map(|pattern| filled(pattern, &parts)).filter(alike).collect();
    nearest(key, candidates.iter().map(String::as_str)).map(str::to_owned)
}

/// A pattern with its wildcards replaced by the parts of a key.
fn filled(pattern: &str, parts: &[&str]) -> String {
    let mut whole: Vec<&str> = Vec::new();
    for (at, part) in pattern.split('.').enumerate() {
        match part {
            "**" => whole.extend(parts.get(at..).unwrap_or_default()),
            "*" => whole.extend(parts.get(at)),
            part => whole.push(part),
        }
    }
    whole.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_ships_is_known() {
        let unknown: Vec<_> = crate::suricata::shipped()
            .iter()
            .filter(|(key, _)| !is_known(key))
            .map(|(k, _)| k.to_owned())
            .collect();
        assert_eq!(unknown, Vec::<String>::new());
    }

    #[test]
    fn what_is_misspelt_is_told_with_what_was_meant() {
        for (key, near) in [
            ("streem.midstream", Some("stream.midstream")),
            ("stream.reasembly.depth", Some("stream.reassembly.depth")),
            ("outputs.3.eve-log.comunity-id", Some("outputs.3.eve-log.community-id")),
            ("outputs.1.eve-log.types.0.alert.paylod", Some("outputs.1.eve-log.types.0.alert.payload")),
            ("outputs.1.eve-log.types.7.htpp.enabled", Some("outputs.1.eve-log.types.7.http.enabled")),
            ("af-paket.0.interface", Some("af-packet.0.interface")),
            ("vars.adress-groups.MY_NET", Some("vars.address-groups.MY_NET")),
            ("nonsense.key", None),
            ("stream.zebra", None),
        ] {
            assert!(!is_known(key), "{key}");
            assert_eq!(nearest_known(key).as_deref(), near, "{key}");
        }
        assert!(is_known("vars.address-groups.MY_NET") && is_known("stats.interval"));
    }
}
