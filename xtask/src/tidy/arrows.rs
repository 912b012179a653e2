// SPDX-License-Identifier: Apache-2.0
//! Arrows between crates: a crate may use those of lower layers only, and no neighbour of its own layer.

use super::rust::code;
use super::{Finding, Tree};
use std::collections::BTreeMap;

/// The layers from the top to the bottom. Some of these crates do not exist yet.
pub const LAYERS: &[(&str, &[&str])] = &[
    ("8", &["bartizan"]),
    ("7", &["runtime"]),
    ("6", &["controller", "agent"]),
    ("5", &["dataplane"]),
    ("4", &["functions", "stages"]),
    ("3", &["boundary", "detect", "rtl", "sock", "xdp"]),
    ("2", &["function", "offload", "ports", "toe"]),
    ("1", &["applayer", "flow", "classify", "config"]),
    ("0+", &["packet", "pattern", "rules", "events", "api", "channel"]),
    ("0", &["base"]),
];

/// Helpers of tests, which are in no layer: dev-dependencies of any crate.
const HELPERS: &[&str] = &["testkit", "testkit-device", "testkit-golden", "testkit-worker"];

/// The file with the layer table for people, and the two lines around it.
const TABLE: (&str, &str, &str) = ("ARCHITECTURE.md", "<!-- layers -->", "<!-- end of layers -->");

/// The layer of a crate by its folder: its place in [`LAYERS`], 0 at the top.
#[must_use]
pub fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|(_, crates)| crates.contains(&name))
}

/// Finds arrows upward or sideways, also of dev- and build-dependencies.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, manifest) in tree.crates() {
        let Some(own) = layer(name) else {
            let message =
                format!("crate `{name}` is in no layer; add it to LAYERS in xtask/src/tidy/arrows.rs");
            findings.push(Finding::new(&manifest.path, 0, message));
            continue;
        };
        for (line, used, tests) in dependencies(&manifest.text) {
            if tests && HELPERS.contains(&used.as_str()) {
                continue;
            }
            let message = match layer(&used) {
                None => format!("`{name}` uses `{used}`, which is in no layer"),
                Some(other) if other <= own => {
                    let how = if other == own { "sideways" } else { "upward" };
                    format!("`{name}` uses `{used}`: an arrow {how}; only crates on lower layers may be used")
                }
                Some(_) => continue,
            };
            findings.push(Finding::new(&manifest.path, line, message));
        }
    }
    findings
}

/// Checks the helpers of tests: `testkit` uses no other crate, so that the tests of every crate may use it,
/// and only tests in `tests/` use `testkit-worker` and `testkit-device`, which are linked with the same
/// library.
#[must_use]
pub fn check_helpers(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(manifest) = tree.get("testkit/Cargo.toml") {
        for (line, used, _) in dependencies(&manifest.text) {
            let message = format!("`testkit` uses `{used}`: then the unit tests of `{used}` cannot use it");
            findings.push(Finding::new(&manifest.path, line, message));
        }
    }
    for file in tree.rust().filter(|file| file.path.starts_with("crates/") && file.path.contains("/src/")) {
        let uses = |line: &str| {
            ["bartizan_testkit_worker", "bartizan_testkit_device"].iter().any(|helper| line.contains(helper))
        };
        for (index, _) in code(&file.text).lines().enumerate().filter(|(_, line)| uses(line)) {
            let message = "unit tests cannot use the worker or device of a helper: their types are others; move the test to `tests/`";
            findings.push(Finding::new(&file.path, index + 1, message));
        }
    }
    findings
}

/// The crates of this workspace that a manifest names in any of its dependency tables, with their lines, and
/// whether only its tests use them.
fn dependencies(manifest: &str) -> Vec<(usize, String, bool)> {
    let (mut inside, mut tests) = (false, false);
    let mut found = Vec::new();
    for (index, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if let Some(section) = line.strip_prefix('[') {
            inside = section.contains("dependencies");
            tests = section.starts_with("dev-dependencies");
            // A table of its own: [dependencies.bartizan-base].
            if let Some((_, name)) = section.trim_end_matches(']').split_once("dependencies.bartizan-") {
                found.push((index + 1, name.to_owned(), tests));
            }
        } else if inside && !line.starts_with('#') {
            let mut rest = line;
            while let Some((_, after)) = rest.split_once("bartizan-") {
                let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_');
                let (name, left) = after.split_at(end.unwrap_or(after.len()));
                found.push((index + 1, name.to_owned(), tests));
                rest = left;
            }
        }
    }
    found
}

/// The table in ARCHITECTURE.md names the crates that exist, each on its layer.
#[must_use]
pub fn check_table(tree: &Tree) -> Vec<Finding> {
    let Some(file) = tree.get(TABLE.0) else { return vec![Finding::new(TABLE.0, 0, "is missing")] };
    let mut expected: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (label, crates) in LAYERS {
        let there: Vec<&str> =
            crates.iter().copied().filter(|name| tree.crates().any(|(c, _)| c == *name)).collect();
        if !there.is_empty() {
            expected.insert(label, there);
        }
    }
    let mut findings = Vec::new();
    let mut inside = false;
    for (number, line) in file.lines() {
        inside = (inside || line.trim() == TABLE.1) && line.trim() != TABLE.2;
        let mut cells = line.trim().trim_matches('|').split('|').map(str::trim);
        let (Some(label), Some(crates)) = (cells.next(), cells.next()) else { continue };
        if !inside || label == "layer" || label.starts_with('-') {
            continue;
        }
        let mut named: Vec<&str> = crates.split('`').skip(1).step_by(2).collect();
        let mut there = expected.remove(label).unwrap_or_default();
        named.sort_unstable();
        there.sort_unstable();
        if named != there {
            let message = format!("layer {label} has {there:?} in the workspace and {named:?} in this table");
            findings.push(Finding::new(TABLE.0, number, message));
        }
    }
    for (label, crates) in expected {
        findings.push(Finding::new(
            TABLE.0,
            0,
            format!("the layer table has no line for layer {label}: {crates:?}"),
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downward_is_fine_and_upward_and_sideways_are_not() {
        let tree = Tree::of(&[
            (
                "crates/flow/Cargo.toml",
                "[dependencies]\nbartizan-base.workspace = true\nbartizan-applayer = { path = \"x\" }\n",
            ),
            ("crates/packet/Cargo.toml", "[dev-dependencies]\nbartizan-flow.workspace = true\n"),
            ("crates/stray/Cargo.toml", "[package]\nname = \"bartizan-stray\"\n"),
            ("crates/detect/Cargo.toml", "[dependencies.bartizan-dataplane]\npath = \"../dataplane\"\n"),
        ]);
        let said: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 4, "{said:?}");
        assert!(said[0].contains("flow/Cargo.toml:3") && said[0].contains("sideways"));
        assert!(said[1].contains("`packet` uses `flow`: an arrow upward"));
        assert!(said[2].contains("in no layer"));
        assert!(said[3].contains("`detect` uses `dataplane`: an arrow upward"));
    }

    #[test]
    fn helpers_of_tests_are_for_tests() {
        let worker = "#[cfg(test)]\nmod tests { use bartizan_testkit_worker::Stack; }\n";
        let tree = Tree::of(&[
            ("crates/base/Cargo.toml", "[dev-dependencies]\nbartizan-testkit.workspace = true\n"),
            ("crates/flow/Cargo.toml", "[dependencies]\nbartizan-testkit.workspace = true\n"),
            ("crates/flow/tests/a.rs", worker),
            ("crates/flow/src/lib.rs", worker),
            ("testkit/Cargo.toml", "[dependencies]\nbartizan-base.workspace = true\n"),
        ]);
        let said: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("flow/Cargo.toml:2") && said[0].contains("`testkit`, which is in no layer"));
        let said: Vec<String> = check_helpers(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].contains("testkit/Cargo.toml:2") && said[1].contains("crates/flow/src/lib.rs:2"));
    }

    #[test]
    fn the_table_must_agree() {
        let crates = [
            ("crates/base/Cargo.toml", ""),
            ("crates/flow/Cargo.toml", ""),
            ("crates/config/Cargo.toml", ""),
        ];
        let table = |text: &'static str| {
            let mut files = crates.to_vec();
            files.push(("ARCHITECTURE.md", text));
            check_table(&Tree::of(&files))
        };
        let right = "<!-- layers -->\n| layer | crates |\n|---|---|\n| 1 | `config`, `flow` |\n| 0 | `base` |\n<!-- end of layers -->\n";
        assert_eq!(table(right), []);
        assert_eq!(
            table("<!-- layers -->\n| 1 | `flow` |\n| 0 | `base` |\n<!-- end of layers -->\n").len(),
            1
        );
        assert_eq!(table("<!-- layers -->\n| 1 | `config` `flow` |\n<!-- end of layers -->\n").len(), 1);
    }
}
