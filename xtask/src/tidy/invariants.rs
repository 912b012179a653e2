// SPDX-License-Identifier: Apache-2.0
//! Each "Architecture invariant:" of ARCHITECTURE.md names the check that keeps it, which exists.
//!
//! The form is one line each: the invariant, then `Test:`, `Lint:` or `Tidy:` with names between back quotes;
//! an invariant without a check has `Not yet:` and what is missing.

use super::{CHECKS, Finding, Tree};

const FILE: &str = "ARCHITECTURE.md";
const MARK: &str = "Architecture invariant:";

/// Finds invariants without a check, and checks that do not exist.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let Some(file) = tree.get(FILE) else { return vec![Finding::new(FILE, 0, "is missing")] };
    let mut findings = Vec::new();
    let mut count = 0;
    for (number, line) in file.lines().filter(|(_, line)| line.contains(MARK) && !line.contains('"')) {
        count += 1;
        let mut keepers = 0;
        for (kind, exists) in KINDS {
            let Some((_, rest)) = line.split_once(kind) else { continue };
            // Up to the next kind.
            let rest = KINDS.iter().fold(rest, |rest, (other, _)| rest.split(other).next().unwrap_or(rest));
            let rest = rest.split("Not yet:").next().unwrap_or(rest);
            for name in rest.split('`').skip(1).step_by(2) {
                keepers += 1;
                if !exists(tree, name) {
                    findings.push(Finding::new(FILE, number, format!("{kind} `{name}` does not exist")));
                }
            }
        }
        if keepers == 0 && !line.contains("Not yet:") {
            findings.push(Finding::new(
                FILE,
                number,
                "name the test or lint that keeps this, or say `Not yet:` and why",
            ));
        }
    }
    if count == 0 {
        findings.push(Finding::new(FILE, 0, format!("has no line with `{MARK}`")));
    }
    findings
}

type Exists = fn(&Tree, &str) -> bool;

const KINDS: &[(&str, Exists)] = &[("Test:", is_test), ("Lint:", is_lint), ("Tidy:", is_check)];

/// Whether there is a test of this name: a function with `#[test]` above it, in a macro or not, or a file
/// below a `tests` folder.
fn is_test(tree: &Tree, name: &str) -> bool {
    if name.contains('/') {
        return tree.exists(name);
    }
    let function = format!("fn {name}(");
    tree.rust().any(|file| file.text.contains(&function) && file.text.contains("#[test]"))
}

fn is_lint(tree: &Tree, name: &str) -> bool {
    let bare = name.trim_start_matches("clippy::");
    tree.get("Cargo.toml")
        .is_some_and(|file| file.text.lines().any(|line| line.starts_with(&format!("{bare} = \"deny\""))))
        || tree.rust().any(|file| {
            file.path.ends_with("/lib.rs") && file.text.contains("#![deny(") && file.text.contains(name)
        })
}

fn is_check(_: &Tree, name: &str) -> bool {
    CHECKS.iter().any(|(check, _)| *check == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keepers_must_exist() {
        let text = "\
Architecture invariant: a. Test: `keeps_a`, `tests/x`. Lint: `unsafe_code`. Tidy: `clocks`.
Architecture invariant: b. Test: `keeps_b`. Lint: `clippy::panic`, `nothing`.
Architecture invariant: c.
Architecture invariant: d. Not yet: there is no such thing (`e`).
";
        let tree = Tree::of(&[
            ("ARCHITECTURE.md", text),
            ("Cargo.toml", "[workspace.lints.rust]\nunsafe_code = \"deny\"\n"),
            ("crates/a/src/lib.rs", "#![deny(clippy::panic)]\n#[test]\nfn keeps_a() {}\n"),
            ("tests/x/y", ""),
        ]);
        let said: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].contains("keeps_b") && said[1].contains("nothing") && said[2].contains(":3:"));
    }
}
