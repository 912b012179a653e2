// SPDX-License-Identifier: Apache-2.0
//! Requirements for every crate: the workspace's lints, the no-panic header, content.

use super::rust::{code, tests_begin};
use super::{Finding, Tree};

/// Crates without foreign bytes on the packet path: they may unwrap, with care.
const NO_FOREIGN_BYTES: &[&str] = &["config", "bartizan", "controller"];

/// The four lints of the no-panic header.
const NO_PANIC: &[&str] =
    &["clippy::unwrap_used", "clippy::expect_used", "clippy::panic", "clippy::indexing_slicing"];

/// Every crate opts in to the workspace's lints.
#[must_use]
pub fn check_lints(tree: &Tree) -> Vec<Finding> {
    tree.files
        .iter()
        .filter(|file| {
            (file.path.starts_with("crates/") || file.path == "xtask/Cargo.toml")
                && file.name() == "Cargo.toml"
        })
        .filter(|file| !opts_in(&file.text))
        .map(|file| Finding::new(&file.path, 0, "add `[lints]` with `workspace = true`"))
        .collect()
}

fn opts_in(manifest: &str) -> bool {
    let mut inside = false;
    manifest.lines().map(str::trim).any(|line| {
        if line.starts_with('[') {
            inside = line == "[lints]";
        }
        inside && line.replace(' ', "") == "workspace=true"
    })
}

/// Crates with foreign bytes deny what can panic, and only tests may allow it again.
#[must_use]
pub fn check_no_panic(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, _) in tree.crates().filter(|(name, _)| !NO_FOREIGN_BYTES.contains(name)) {
        let path = format!("crates/{name}/src/lib.rs");
        let text = tree.get(&path).map(|file| code(&file.text)).unwrap_or_default();
        let denied =
            text.split("#![deny(").skip(1).filter_map(|rest| rest.split(')').next()).collect::<String>();
        for lint in NO_PANIC.iter().filter(|lint| !denied.contains(*lint)) {
            findings.push(Finding::new(
                &path,
                0,
                format!("add `#![deny({lint})]`: this crate sees foreign bytes"),
            ));
        }
        let folder = format!("crates/{name}/src/");
        for file in tree.rust().filter(|file| file.path.starts_with(&folder)) {
            let (text, tests) = (code(&file.text), tests_begin(&file.text));
            for (index, line) in text.lines().enumerate().filter(|(index, _)| index + 1 < tests) {
                if (line.contains("allow(") || line.contains("expect("))
                    && NO_PANIC.iter().any(|lint| line.contains(lint))
                {
                    findings.push(Finding::new(
                        &file.path,
                        index + 1,
                        "a no-panic lint is switched off outside tests",
                    ));
                }
            }
        }
    }
    findings
}

/// A crate exists only if it has content.
#[must_use]
pub fn check_empty(tree: &Tree) -> Vec<Finding> {
    tree.crates()
        .filter_map(|(name, manifest)| {
            let folder = format!("crates/{name}/src/");
            let content = tree
                .rust()
                .filter(|file| file.path.starts_with(&folder))
                .flat_map(|file| file.text.lines())
                .filter(|line| !line.trim().is_empty() && !line.starts_with("//") && !line.starts_with("#!"))
                .count();
            (content == 0).then(|| Finding::new(&manifest.path, 0, format!("crate `{name}` has no content")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]\npub mod a;\n";

    #[test]
    fn a_crate_without_lints_is_found() {
        let tree = Tree::of(&[
            ("crates/flow/Cargo.toml", "[lints]\nworkspace = true\n"),
            ("crates/base/Cargo.toml", "[dependencies]\nworkspace = true\n[lints]\n"),
        ]);
        assert_eq!(
            check_lints(&tree).iter().map(|f| f.path.as_str()).collect::<Vec<_>>(),
            ["crates/base/Cargo.toml"]
        );
    }

    #[test]
    fn the_header_is_wanted_and_may_not_be_taken_back() {
        let missing = Tree::of(&[
            ("crates/flow/Cargo.toml", ""),
            ("crates/flow/src/lib.rs", "#![deny(clippy::panic)]\n"),
        ]);
        assert_eq!(check_no_panic(&missing).len(), 3);
        let back = Tree::of(&[
            ("crates/flow/Cargo.toml", ""),
            ("crates/flow/src/lib.rs", HEADER),
            (
                "crates/flow/src/a.rs",
                "#[allow(clippy::unwrap_used)]\nfn f() {}\n#[cfg(test)]\n#[allow(clippy::panic)]\nmod t {}\n",
            ),
            ("crates/config/Cargo.toml", ""),
            ("crates/config/src/lib.rs", ""),
        ]);
        assert_eq!(check_no_panic(&back).iter().map(ToString::to_string).collect::<Vec<_>>().len(), 1);
    }

    #[test]
    fn an_empty_crate_is_found() {
        let tree = Tree::of(&[
            ("crates/flow/Cargo.toml", ""),
            ("crates/flow/src/lib.rs", "// x\n//! y\n#![deny(z)]\n"),
            ("crates/base/Cargo.toml", ""),
            ("crates/base/src/lib.rs", HEADER),
        ]);
        assert_eq!(check_empty(&tree).len(), 1);
    }
}
