// SPDX-License-Identifier: Apache-2.0
//! JA3 and JA3S: MD5 over a text of the numbers in a hello.
//!
//! Source: the description at <https://github.com/salesforce/ja3> (BSD-3-Clause). Client: version, cipher
//! suites, extensions, groups, point formats; server: version, cipher suite, extensions. GREASE is left out;
//! decimal numbers, `-` between values, `,` between fields.

use super::version::is_grease;
use crate::memory::Held as _;
use md5::{Digest as _, Md5};

/// A JA3 text under construction, and its hash once the hello was parsed to its end.
#[derive(Debug, Default)]
pub(crate) struct Ja3 {
    text: String,
    hash: Option<String>,
    /// The current field has a value already.
    started: bool,
    /// Values of GREASE are written as well, as Suricata does for QUIC.
    grease: bool,
}

impl Ja3 {
    /// An empty text whose fields keep values of GREASE.
    pub(crate) fn with_grease() -> Self {
        Ja3 { grease: true, ..Ja3::default() }
    }

    /// Bytes of memory held outside of the structure itself.
    pub(crate) fn held(&self) -> usize {
        self.text.held().saturating_add(self.hash.held())
    }

    /// Limit of a text, in bytes (repeated hellos that break off before their end add to it).
    const MAX: usize = 1 << 19;

    /// Begins the text with the version, unless an earlier hello did.
    pub(crate) fn begin(&mut self, version: u16) {
        if self.text.is_empty() {
            self.text = version.to_string();
        }
    }

    /// Whether values are still added: only the first complete hello counts.
    pub(crate) fn open(&self) -> bool {
        self.hash.is_none() && self.text.len() < Self::MAX
    }

    /// Adds a field.
    pub(crate) fn field(&mut self, values: impl Iterator<Item = u16>) {
        if !self.open() {
            return;
        }
        self.text.push(',');
        self.started = false;
        let grease = self.grease;
        for value in values.filter(|v| grease || !is_grease(*v)) {
            if self.started {
                self.text.push('-');
            }
            self.started = true;
            self.text.push_str(&value.to_string());
        }
    }

    /// Completes the hello.
    pub(crate) fn finish(&mut self) {
        if self.hash.is_none() && !self.text.is_empty() {
            let digest = Md5::digest(self.text.as_bytes());
            self.hash = Some(digest.iter().map(|b| format!("{b:02x}")).collect());
        }
    }

    /// The text, if there is one.
    pub(crate) fn text(&self) -> Option<&str> {
        (!self.text.is_empty()).then_some(self.text.as_str())
    }

    /// The hash, if the hello was complete.
    pub(crate) fn hash(&self) -> Option<&str> {
        self.hash.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_example() {
        // The example of the description:
        // 769,47-53-5-10-49161-49162-49171-49172-50-56-19-4,0-10-11,23-24-25,0
        let mut ja3 = Ja3::default();
        ja3.begin(769);
        ja3.field([0x1a1a, 47, 53, 5, 10, 49161, 49162, 49171, 49172, 50, 56, 19, 4].into_iter());
        ja3.field([0, 10, 11].into_iter());
        ja3.field([23, 24, 25].into_iter());
        ja3.field([0].into_iter());
        ja3.finish();
        assert_eq!(ja3.hash(), Some("ada70206e40642a3e4461f35503241d5"));
        ja3.field([1].into_iter());
        assert_eq!(ja3.text(), Some("769,47-53-5-10-49161-49162-49171-49172-50-56-19-4,0-10-11,23-24-25,0"));
    }

    #[test]
    fn empty_fields_keep_their_commas() {
        let mut ja3 = Ja3::default();
        ja3.begin(769);
        ja3.field([4, 5, 10, 9, 100, 98, 3, 6, 19, 18, 99].into_iter());
        for _ in 0..3 {
            ja3.field([].into_iter());
        }
        ja3.finish();
        // The second example of the description.
        assert_eq!(ja3.hash(), Some("de350869b8c85de67a350c8d186f11e6"));
    }
}
