// SPDX-License-Identifier: Apache-2.0
//! Arrows between crates: a crate may use those of lower layers only, and no neighbour of its own layer.

use super::rust::code;
use super::{Finding, Tree};
use std::collections::BTreeMap;

/// The names of the layers, from the top to the bottom. A crate names its own in its manifest:
///
/// ```toml
/// [package.metadata.bartizan]
/// layer = "3"
/// ```
pub const LAYERS: [&str; 10] = ["8", "7", "6", "5", "4", "3", "2", "1", "0+", "0"];

/// Helpers of tests, which are in no layer: dev-dependencies of any crate.
const HELPERS: &[&str] = &["testkit", "testkit-device", "testkit-golden", "testkit-worker"];

/// The file with the layer table for people, and the two lines around it.
const TABLE: (&str, &str, &str) = ("ARCHITECTURE.md", "<!-- layers -->", "<!-- end of layers -->");

/// The layer that a manifest names: its place in [`LAYERS`], 0 at the top.
#[must_use]
pub fn layer_in(manifest: &str) -> Option<usize> {
    let (_, own) = manifest.split_once("[package.metadata.bartizan]")?;
    let own = own.split_once("\n[").map_or(own, |(own, _)| own);
    let label = value(own, "layer")?;
    LAYERS.iter().position(|layer| *layer == label)
}

/// The layer of a crate by its folder.
#[must_use]
pub fn layer(tree: &Tree, name: &str) -> Option<usize> {
    layer_in(&tree.get(&format!("crates/{name}/Cargo.toml"))?.text)
}

/// The text of a key in a part of a manifest.
fn value<'t>(part: &'t str, key: &str) -> Option<&'t str> {
    part.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == key).then(|| value.trim().trim_matches('"'))
    })
}

/// Finds arrows upward or sideways, also of dev- and build-dependencies.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, manifest) in tree.crates() {
        let Some(own) = layer_in(&manifest.text) else {
            let message = format!(
                "crate `{name}` is in no layer; name one of {} as `layer` in [package.metadata.bartizan]",
                LAYERS.join(", ")
            );
            findings.push(Finding::new(&manifest.path, 0, message));
            continue;
        };
        for (line, used, tests) in dependencies(&manifest.text) {
            if tests && HELPERS.contains(&used.as_str()) {
                continue;
            }
            let message = match layer(tree, &used) {
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

/// The rows of the table of layers: each crate with its layer and the description in its manifest.
#[must_use]
pub fn table(tree: &Tree) -> String {
    let mut rows: BTreeMap<(usize, &str), &str> = BTreeMap::new();
    for (name, manifest) in tree.crates() {
        if let Some(layer) = layer_in(&manifest.text) {
            rows.insert((layer, name), value(&manifest.text, "description").unwrap_or_default());
        }
    }
    let mut text = String::from("| layer | crate | content |\n|---|---|---|\n");
    for ((layer, name), about) in rows {
        let label = LAYERS.get(layer).copied().unwrap_or_default();
        text.push_str(&format!("| {label} | `{name}` | {about} |\n"));
    }
    text
}

/// The text with the table of layers between its two marks; `None`: the marks are missing.
#[must_use]
pub fn with_table(tree: &Tree, text: &str) -> Option<String> {
    let (before, rest) = text.split_once(TABLE.1)?;
    let (_, after) = rest.split_once(TABLE.2)?;
    Some(format!("{before}{}\n{}{}{after}", TABLE.1, table(tree), TABLE.2))
}

/// The table in ARCHITECTURE.md is that of the manifests.
#[must_use]
pub fn check_table(tree: &Tree) -> Vec<Finding> {
    let Some(file) = tree.get(TABLE.0) else { return vec![Finding::new(TABLE.0, 0, "is missing")] };
    match with_table(tree, &file.text) {
        Some(text) if text == file.text => Vec::new(),
        Some(_) => {
            let message =
                "the table of layers is not that of the manifests: `cargo xtask generate` writes it";
            vec![Finding::new(TABLE.0, 0, message)]
        }
        None => vec![Finding::new(TABLE.0, 0, format!("has no `{}` and `{}`", TABLE.1, TABLE.2))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A manifest on a layer, with this rest.
    macro_rules! on {
        ($layer:literal, $rest:literal) => {
            concat!(
                "[package]\ndescription = \"Of ",
                $layer,
                "\"\n[package.metadata.bartizan]\nlayer = \"",
                $layer,
                "\"\n",
                $rest
            )
        };
    }

    #[test]
    fn downward_is_fine_and_upward_and_sideways_are_not() {
        let tree = Tree::of(&[
            (
                "crates/flow/Cargo.toml",
                on!(
                    "1",
                    "[dependencies]\nbartizan-base.workspace = true\nbartizan-applayer = { path = \"x\" }\n"
                ),
            ),
            ("crates/packet/Cargo.toml", on!("0+", "[dev-dependencies]\nbartizan-flow.workspace = true\n")),
            ("crates/stray/Cargo.toml", "[package]\nname = \"bartizan-stray\"\n"),
            ("crates/wrong/Cargo.toml", on!("9", "")),
            (
                "crates/detect/Cargo.toml",
                on!("3", "[dependencies.bartizan-dataplane]\npath = \"../dataplane\"\n"),
            ),
            ("crates/base/Cargo.toml", on!("0", "")),
            ("crates/applayer/Cargo.toml", on!("1", "")),
            ("crates/dataplane/Cargo.toml", on!("5", "")),
        ]);
        let said: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 5, "{said:?}");
        assert!(said[0].contains("flow/Cargo.toml:7") && said[0].contains("sideways"), "{said:?}");
        assert!(said[1].contains("`packet` uses `flow`: an arrow upward"));
        assert!(said[2].contains("`stray` is in no layer") && said[3].contains("`wrong` is in no layer"));
        assert!(said[4].contains("`detect` uses `dataplane`: an arrow upward"));
    }

    #[test]
    fn helpers_of_tests_are_for_tests() {
        let worker = "#[cfg(test)]\nmod tests { use bartizan_testkit_worker::Stack; }\n";
        let tree = Tree::of(&[
            ("crates/base/Cargo.toml", on!("0", "[dev-dependencies]\nbartizan-testkit.workspace = true\n")),
            ("crates/flow/Cargo.toml", on!("1", "[dependencies]\nbartizan-testkit.workspace = true\n")),
            ("crates/flow/tests/a.rs", worker),
            ("crates/flow/src/lib.rs", worker),
            ("testkit/Cargo.toml", "[dependencies]\nbartizan-base.workspace = true\n"),
        ]);
        let said: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("flow/Cargo.toml:6") && said[0].contains("`testkit`, which is in no layer"));
        let said: Vec<String> = check_helpers(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].contains("testkit/Cargo.toml:2") && said[1].contains("crates/flow/src/lib.rs:2"));
    }

    #[test]
    fn the_table_is_that_of_the_manifests() {
        let found = |text: &'static str| {
            let (base, flow) =
                (("crates/base/Cargo.toml", on!("0", "")), ("crates/flow/Cargo.toml", on!("1", "")));
            check_table(&Tree::of(&[base, flow, ("ARCHITECTURE.md", text)])).len()
        };
        let right = "a\n<!-- layers -->\n| layer | crate | content |\n|---|---|---|\n| 1 | `flow` | Of 1 |\n| 0 | `base` | Of 0 |\n<!-- end of layers -->\nb\n";
        assert_eq!(found(right), 0);
        assert_eq!(found("<!-- layers -->\n| 0 | `base` | Of 0 |\n<!-- end of layers -->\n"), 1);
        assert_eq!(found("| 0 | `base` | Of 0 |\n"), 1);
    }
}
