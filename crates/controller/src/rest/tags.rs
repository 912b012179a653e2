// SPDX-License-Identifier: Apache-2.0
//! Entity tags: the version that a client has read, and whether it is still current.
//!
//! The tag of a document is the generation that wrote it, followed by the digest of its status if that is
//! shown too: `"17"`, `"17.2fd4e1c67a2d28fc"`. A change replaces the document and not its status, so
//! `If-Match` of a change compares the generation alone.
//!
//! Source: RFC 9110, sections 8.8.3 (tags), 13.1 (preconditions).

use crate::store::hex;
use serde::Serialize;
use sha2::{Digest, Sha256};

/// The comparison of two tags (RFC 9110, section 8.8.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Weak tags never match.
    Strong,
    /// The prefix `W/` is ignored.
    Weak,
}

/// The tag of a document without status, by the generation that wrote it.
#[must_use]
pub fn of_generation(generation: u64) -> String {
    format!("\"{generation}\"")
}

/// The tag of a document with its status.
#[must_use]
pub fn of_document(generation: u64, status: Option<&impl Serialize>) -> String {
    match status {
        Some(status) => {
            format!("\"{generation}.{}\"", digest(&serde_json::to_vec(status).unwrap_or_default()))
        }
        None => of_generation(generation),
    }
}

/// The tag of a reply without a generation, from its content.
#[must_use]
pub fn of_content(bytes: &[u8]) -> String {
    format!("\"{}\"", digest(bytes))
}

fn digest(bytes: &[u8]) -> String {
    let mut text = hex(&Sha256::digest(bytes));
    text.truncate(16);
    text
}

/// Whether a field with a list of tags contains one; `*` contains all.
#[must_use]
pub fn names(field: &str, tag: &str, comparison: Comparison) -> bool {
    listed(field, comparison).any(|listed| listed == "*" || listed == tag)
}

/// Whether a field contains a tag of a document's generation, with any status.
#[must_use]
pub fn names_generation(field: &str, generation: u64, comparison: Comparison) -> bool {
    let number = generation.to_string();
    let is_of = |tag: &str| {
        let inside = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).unwrap_or_default();
        inside.split_once('.').map_or(inside, |(generation, _)| generation) == number
    };
    listed(field, comparison).any(|listed| listed == "*" || is_of(listed))
}

/// No tag of this server contains a comma, so splitting is safe.
fn listed(field: &str, comparison: Comparison) -> impl Iterator<Item = &str> {
    field.split(',').map(str::trim).map(move |tag| match comparison {
        Comparison::Strong => tag,
        Comparison::Weak => tag.strip_prefix("W/").unwrap_or(tag),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Comparison::{Strong, Weak};

    #[test]
    fn tags_are_compared_as_http_says() {
        let tag = of_generation(17);
        for (field, strong, weak) in [
            ("\"17\"", true, true),
            ("*", true, true),
            ("W/\"17\"", false, true),
            ("\"1\", W/\"17\"", false, true),
            ("\"1\" ,\"17\"", true, true),
            ("17", false, false),
            ("", false, false),
            ("\"170\"", false, false),
        ] {
            assert_eq!((names(field, &tag, Strong), names(field, &tag, Weak)), (strong, weak), "{field}");
            assert_eq!(names_generation(field, 17, Strong), strong, "{field}");
        }
    }

    #[test]
    fn a_status_changes_the_tag_and_not_the_generation() {
        let (one, two) = (of_document(17, Some(&"new")), of_document(17, Some(&"running")));
        assert_ne!(one, two);
        assert_eq!(of_document(17, None::<&String>), of_generation(17));
        assert!(names_generation(&one, 17, Strong) && names_generation(&two, 17, Strong));
        assert!(!names(&one, &two, Weak) && !names_generation(&one, 1, Strong));
    }
}
