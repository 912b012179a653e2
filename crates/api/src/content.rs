// SPDX-License-Identifier: Apache-2.0
//! Content hashes of the files that a program has read: hosts with the same files have the same hashes,
//! whatever the folders.
//!
//! A file is identified by its name without folders and the SHA-256 of its bytes. The hash of a kind is the
//! SHA-256 over, for each of its files in the order of names: the length of the name (u32, network order),
//! the name, and the file's hash; a file that was read twice counts once. The hash over all kinds is computed
//! in the same way from the kinds' names and hashes.

use crate::southbound::{Hash, hash_part};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

/// A kind of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum ContentKind {
    /// Files that rules name, and files of reputations and locations.
    Lists,
    /// The policy file; on a controller's device the manifest of the controller's generation.
    Policy,
    /// Rule files.
    Rules,
    /// Host file, suricata.yaml, other files that they name, and settings from elsewhere.
    Settings,
}

impl ContentKind {
    /// All kinds, in the order of their names.
    pub const ALL: [ContentKind; 4] =
        [ContentKind::Lists, ContentKind::Policy, ContentKind::Rules, ContentKind::Settings];

    /// The kind's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ContentKind::Lists => "lists",
            ContentKind::Policy => "policy",
            ContentKind::Rules => "rules",
            ContentKind::Settings => "settings",
        }
    }
}

/// Files that were read, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents([BTreeSet<(String, Hash)>; 4]);

/// Suffixes of compressed files, whose decompressed content counts.
const COMPRESSED: [&str; 2] = [".gz", ".zst"];

impl Contents {
    /// Adds the content of a file, after decompression.
    pub fn add_file(&mut self, kind: ContentKind, path: &Path, bytes: &[u8]) {
        self.add_hash(kind, &file_name(path), Hash(Sha256::digest(bytes).into()));
    }

    /// Adds content that is not a file, under a name.
    pub fn add(&mut self, kind: ContentKind, name: &str, bytes: &[u8]) {
        self.add_hash(kind, name, Hash(Sha256::digest(bytes).into()));
    }

    /// Adds content whose hash is known.
    pub fn add_hash(&mut self, kind: ContentKind, name: &str, hash: Hash) {
        if let Some(files) = self.0.get_mut(kind as usize) {
            files.insert((name.to_owned(), hash));
        }
    }

    /// Adds the content of another collection.
    pub fn absorb(&mut self, other: &Contents) {
        for (own, more) in self.0.iter_mut().zip(&other.0) {
            own.extend(more.iter().cloned());
        }
    }

    /// Computes the hashes.
    #[must_use]
    pub fn hashes(&self) -> ContentHashes {
        let [lists, policy, rules, settings] = self.0.each_ref().map(hash_of);
        let mut all = Sha256::new();
        for (kind, hash) in ContentKind::ALL.into_iter().zip([lists, policy, rules, settings]) {
            hash_part(&mut all, kind.name().as_bytes());
            all.update(hash.0);
        }
        ContentHashes { all: Hash(all.finalize().into()), lists, policy, rules, settings }
    }
}

/// The name of a file without folders, and without the suffix of a compressed one.
#[must_use]
pub fn file_name(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let bare = COMPRESSED.iter().find_map(|ending| name.strip_suffix(ending));
    bare.map(str::to_owned).unwrap_or(name)
}

fn hash_of(files: &BTreeSet<(String, Hash)>) -> Hash {
    let mut hasher = Sha256::new();
    for (name, hash) in files {
        hash_part(&mut hasher, name.as_bytes());
        hasher.update(hash.0);
    }
    Hash(hasher.finalize().into())
}

/// Hashes of the content that a generation was built from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentHashes {
    /// Over all kinds.
    pub all: Hash,
    /// [`ContentKind::Lists`].
    pub lists: Hash,
    /// [`ContentKind::Policy`].
    pub policy: Hash,
    /// [`ContentKind::Rules`].
    pub rules: Hash,
    /// [`ContentKind::Settings`].
    pub settings: Hash,
}

/// Digits of a hash in a log line.
const SHORT: usize = 12;

/// Formats the hashes for a log line, with twelve digits each.
impl fmt::Display for ContentHashes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ContentHashes { all, lists, policy, rules, settings } = self;
        write!(
            f,
            "content {all:.SHORT$} (rules {rules:.SHORT$}, lists {lists:.SHORT$}, policy {policy:.SHORT$}, settings {settings:.SHORT$})"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(ContentKind, &str, &str)]) -> ContentHashes {
        let mut contents = Contents::default();
        for (kind, path, text) in files {
            contents.add_file(*kind, Path::new(path), text.as_bytes());
        }
        contents.hashes()
    }

    #[test]
    fn the_same_files_have_the_same_hashes_wherever_they_lie() {
        use ContentKind::{Policy, Rules};
        let here =
            of(&[(Rules, "/etc/a.rules", "one"), (Rules, "/etc/b.rules", "two"), (Policy, "p.yaml", "x")]);
        let there = of(&[
            (Policy, "/opt/p.yaml", "x"),
            (Rules, "b.rules.gz", "two"),
            (Rules, "a.rules", "one"),
            (Rules, "/opt/copy/a.rules", "one"),
        ]);
        assert_eq!(here, there);
        let names = of(&[(Rules, "b.rules", "one"), (Rules, "a.rules", "two"), (Policy, "p.yaml", "x")]);
        assert_ne!(here.rules, names.rules);
        assert_eq!(here.policy, names.policy);
    }

    #[test]
    fn a_byte_changes_the_hash_of_its_kind_and_that_of_all() {
        let before = of(&[(ContentKind::Rules, "a", "x"), (ContentKind::Lists, "l", "x")]);
        for kind in ContentKind::ALL {
            let mut files = vec![(ContentKind::Rules, "a", "x"), (ContentKind::Lists, "l", "x")];
            files.push((kind, "new", "#"));
            let after = of(&files);
            let pairs = |h: &ContentHashes| [h.lists, h.policy, h.rules, h.settings];
            let changed: Vec<bool> = pairs(&before).iter().zip(pairs(&after)).map(|(a, b)| *a != b).collect();
            let wanted: Vec<bool> = ContentKind::ALL.iter().map(|other| *other == kind).collect();
            assert_eq!(changed, wanted, "{}", kind.name());
            assert_ne!(before.all, after.all);
        }
    }

    #[test]
    fn hashes_are_those_that_the_page_says() {
        // printf '\0\0\0\007a.rules' ; printf abc | sha256sum
        let abc: [u8; 32] = Sha256::digest(b"abc").into();
        let rules = Sha256::digest([&[0, 0, 0, 7][..], b"a.rules", &abc].concat());
        let hashes = of(&[(ContentKind::Rules, "rules/a.rules.zst", "abc")]);
        assert_eq!(hashes.rules.0[..], rules[..]);
        let none: [u8; 32] = Sha256::digest(b"").into();
        assert_eq!(hashes.lists.0, none);
        let said = hashes.to_string();
        assert!(said.contains("lists e3b0c44298fc,"), "{said}");
        assert!(said.starts_with(&format!("content {} (rules ", &hashes.all.to_string()[..12])), "{said}");
    }
}
