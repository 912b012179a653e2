// SPDX-License-Identifier: Apache-2.0
//! The order of folders within a crate: a file uses its own folder and those below, none above.
//!
//! The order is written in the crate's `lib.rs`, as a numbered list in its `//!` docs, from the bottom to the
//! top, a sentence each: ``//! 1. `model`: what a rule is.`` A file beside `lib.rs` is named without its
//! ending.

use super::{Finding, Tree, uses};

/// Crates that must have an order.
const ORDERED: &[&str] = &["crates/dataplane/src/", "crates/detect/src/", "crates/stages/src/"];

/// Finds uses upward, and orders that differ from the folders.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    find(tree, ORDERED)
}

fn find(tree: &Tree, ordered: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for sources in uses::packages(tree) {
        let path = format!("{sources}lib.rs");
        let order = tree.get(&path).map(|file| order(&file.text)).unwrap_or_default();
        if order.is_empty() {
            if ordered.contains(&sources.as_str()) && tree.get(&path).is_some() {
                let message = "say the order of the folders in the `//!` docs: 1. `folder`: a sentence";
                findings.push(Finding::new(&path, 0, message));
            }
            continue;
        }
        let graph = uses::graph(tree, &sources);
        let name = |file: &str| {
            let inside = file.strip_prefix(&sources).unwrap_or(file);
            inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs").to_owned()
        };
        let place = |file: &str| order.iter().position(|folder| folder.name == name(file));
        for (file, used) in graph.files.iter().zip(&graph.uses).filter(|(file, _)| **file != path) {
            let Some(own) = place(file) else {
                let message = format!("`{}` has no place in the order of the folders in {path}", name(file));
                findings.push(Finding::new(file, 0, message));
                continue;
            };
            for (other, how) in used {
                let other = &graph.files[*other];
                // The root is above all.
                if place(other).is_none_or(|place| place > own) {
                    let message = format!(
                        "`{}` uses `{}` (`{}`), which stands above it in the order of {path}",
                        order[own].name,
                        name(other),
                        how.path
                    );
                    findings.push(Finding::new(file, how.line, message));
                }
            }
        }
        for folder in &order {
            if !graph.files.iter().any(|file| *file != path && name(file) == folder.name) {
                findings.push(Finding::new(&path, folder.line, format!("there is no `{}`", folder.name)));
            }
            if !folder.has_sentence {
                findings.push(Finding::new(&path, folder.line, "say in a sentence what belongs there"));
            }
        }
    }
    findings
}

/// A folder (or file) with its position.
struct Folder {
    name: String,
    line: usize,
    has_sentence: bool,
}

/// The numbered list in the docs of a file.
fn order(text: &str) -> Vec<Folder> {
    let lines =
        text.lines().enumerate().filter_map(|(index, line)| Some((index, line.strip_prefix("//! ")?)));
    let items = lines.filter_map(|(index, line)| {
        let (number, rest) = line.split_once(". `")?;
        let (name, rest) = rest.split_once('`')?;
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let sentence = rest.strip_prefix(": ").unwrap_or_default();
        let (name, has_sentence) = (name.trim_end_matches('/').to_owned(), sentence.contains(' '));
        is_number.then_some(Folder { name, line: index + 1, has_sentence })
    });
    items.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "//! X.\n//!\n//! 1. `model`: what a rule is.\n//! 2. `engine/`: runs it.\n//! 3. `pages`: tells of it.\n";

    fn said(root: &str, model: &str) -> Vec<String> {
        let root = format!("{root}pub mod model; pub mod engine; pub mod pages; pub use model::Rule;");
        let tree = Tree::of(&[
            ("crates/detect/Cargo.toml", ""),
            ("crates/detect/src/lib.rs", &root),
            ("crates/detect/src/model/mod.rs", model),
            ("crates/detect/src/engine/mod.rs", "mod run; pub fn f() { run::f() }"),
            ("crates/detect/src/engine/run.rs", "use crate::Rule; pub fn f() -> Rule { Rule }"),
            ("crates/detect/src/pages.rs", "pub fn f() { crate::engine::f() }"),
        ]);
        find(&tree, &["crates/detect/src/"]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn downward_is_fine_and_upward_is_not() {
        assert_eq!(said(ROOT, "pub struct Rule;"), Vec::<String>::new());
        let up = said(ROOT, "pub struct Rule;\nfn f() { crate::engine::f() }\n");
        assert_eq!(up.len(), 1);
        assert!(up[0].contains("model/mod.rs:2: `model` uses `engine` (`crate::engine::f`)"), "{up:?}");
    }

    #[test]
    fn every_file_has_a_place_and_every_place_a_file_and_a_sentence() {
        let rule = "pub struct Rule;";
        let missing = said("//! 1. `model`: what a rule is.\n//! 2. `engine`: runs it.\n", rule);
        assert_eq!(missing.len(), 1);
        assert!(missing[0].contains("pages.rs: `pages` has no place"));
        let more = said(&format!("{ROOT}//! 4. `more`: is not there.\n"), rule);
        assert_eq!(more.len(), 1);
        assert!(more[0].contains("lib.rs:6: there is no `more`"));
        let silent = said(&ROOT.replace(": tells of it.", ""), rule);
        assert_eq!(silent.len(), 1);
        assert!(silent[0].contains("lib.rs:5: say in a sentence"));
        assert!(said("//! X.\n", rule)[0].contains("lib.rs: say the order"));
    }
}
