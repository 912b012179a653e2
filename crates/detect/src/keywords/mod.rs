// SPDX-License-Identifier: Apache-2.0
//! The keywords: one file, or one family of small keywords of a kind, and one line each.

use crate::keyword::Keyword;

/// Families in the order of the reference.
pub const FAMILIES: &[&[Keyword]] = &[];

/// All keywords.
pub fn all() -> impl Iterator<Item = &'static Keyword> {
    FAMILIES.iter().flat_map(|family| family.iter())
}

/// Finds a keyword by name or alias.
#[must_use]
pub fn find(name: &str) -> Option<&'static Keyword> {
    all().find(|k| k.name == name || k.aliases.contains(&name))
}

/// Keywords of Suricata 8 that this engine knows of and does not evaluate: rules with them are refused by name.
pub const UNSUPPORTED: &[&str] = &[];
