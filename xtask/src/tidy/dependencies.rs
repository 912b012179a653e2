// SPDX-License-Identifier: Apache-2.0
//! Unused dependencies: a crate that a manifest names and no file of its folder mentions.
//!
//! A line that has to stay all the same (features that builds share) comes after a comment that begins with
//! `# Not used.`.

use super::rust::code;
use super::{Finding, Tree};

/// Crates whose library has another name than the package.
const NAMES: &[(&str, &str)] = &[("md-5", "md5")];

/// Finds dependencies of a member of the workspace that its sources do not name.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let manifests: Vec<&str> = tree
        .files
        .iter()
        .map(|file| file.path.as_str())
        .filter(|path| path.ends_with("/Cargo.toml"))
        .collect();
    let mut findings = Vec::new();
    for path in &manifests {
        let (Some(manifest), Some(folder)) = (tree.get(path), path.strip_suffix("Cargo.toml")) else {
            continue;
        };
        // In a folder that contains other crates, only the crate's own files.
        let is_own = |file: &str| {
            let inner = |other: &&str| {
                other.strip_suffix("Cargo.toml").is_some_and(|other| {
                    other != folder && other.starts_with(folder) && file.starts_with(other)
                })
            };
            file.starts_with(folder) && !manifests.iter().any(inner)
        };
        let sources: Vec<(bool, String)> = tree
            .rust()
            .filter(|file| is_own(&file.path))
            .map(|file| {
                let below = file.path.strip_prefix(folder).unwrap_or_default();
                (below.starts_with("src/") || below == "build.rs", code(&file.text))
            })
            .collect();
        for (line, name, is_dev) in named(&manifest.text) {
            let library =
                NAMES.iter().find(|(package, _)| *package == name).map_or(name.as_str(), |(_, own)| own);
            let library = library.replace('-', "_");
            let is_used =
                |own: bool| sources.iter().any(|(src, text)| (*src || !own) && mentions(text, &library));
            if is_used(!is_dev) {
                continue;
            }
            let message = if !is_dev && is_used(false) {
                format!("only tests use `{name}`: move it to `[dev-dependencies]`")
            } else {
                format!("nobody uses `{name}`: take it out")
            };
            findings.push(Finding::new(&manifest.path, line, message));
        }
    }
    findings
}

/// Whether a text has a word.
fn mentions(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let before = text.get(..at).and_then(|text| text.chars().next_back());
        let after = text.get(at + word.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

/// The dependencies of a manifest: line, name, whether only tests have them.
fn named(manifest: &str) -> Vec<(usize, String, bool)> {
    let mut found = Vec::new();
    let (mut table, mut is_dev, mut stays) = (false, false, false);
    for (number, line) in (1..).zip(manifest.lines()) {
        let line = line.trim();
        if line.starts_with("# Not used.") {
            stays = true;
        } else if line.is_empty() {
            stays = false;
        } else if let Some(section) = line.strip_prefix('[') {
            table = section.ends_with("dependencies]") && !section.starts_with("workspace");
            is_dev = section.starts_with("dev-");
        } else if table && !stays && !line.starts_with('#') {
            let end = line.find(|c: char| !c.is_alphanumeric() && c != '-' && c != '_').unwrap_or(line.len());
            found.push((number, line.get(..end).unwrap_or_default().to_owned(), is_dev));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_is_named_by_a_source_of_its_own_crate() {
        let manifest = "[dependencies]\nused.workspace = true\nonly-tests = \"1\"\nno-one = { version = \"1\" }\nmd-5 = \"1\"\n\n[dev-dependencies]\nhelper = \"1\"\nidle = \"1\"\n";
        let files = Tree::of(&[
            ("crates/a/Cargo.toml", manifest),
            ("crates/a/src/lib.rs", "use used::x; // no_one\nuse md5::Md5;\nfn used_idle() {}"),
            ("crates/a/tests/t.rs", "use only_tests::y; use helper::z;"),
            ("crates/a/inner/Cargo.toml", "[dependencies]\n"),
            ("crates/a/inner/src/lib.rs", "use idle::a;"),
        ]);
        let found: Vec<(usize, String)> = check(&files).into_iter().map(|f| (f.line, f.message)).collect();
        assert_eq!(
            found,
            [
                (3, "only tests use `only-tests`: move it to `[dev-dependencies]`".to_owned()),
                (4, "nobody uses `no-one`: take it out".to_owned()),
                (9, "nobody uses `idle`: take it out".to_owned()),
            ]
        );
    }

    #[test]
    fn what_is_there_for_its_features_says_so() {
        let manifest =
            "# Not used. Builds share features.\n[dependencies]\nlog = \"1\"\n\n[dev-dependencies]\n";
        assert!(check(&Tree::of(&[("testkit/Cargo.toml", manifest), ("testkit/src/lib.rs", "")])).is_empty());
    }
}
