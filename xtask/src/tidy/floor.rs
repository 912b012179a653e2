// SPDX-License-Identifier: Apache-2.0
//! The floor of the compatibility suite only rises: a case that once had to agree has to for ever.
//!
//! The history has the former contents of the list. Without git, or in a shallow clone, only the present ones
//! are checked.

use super::{Finding, Tree};
use std::collections::BTreeSet;
use std::process::Command;

const FLOOR: &str = "tests/compat/floor.list";

/// Finds cases that some commit removed from the floor and that are not in it now.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let (Some(root), Some(floor)) = (&tree.root, tree.get(FLOOR)) else { return Vec::new() };
    let log = Command::new("git").current_dir(root).args(["log", "--format=", "-p", "--", FLOOR]).output();
    let log = log.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    lost(&floor.text, &log)
}

fn lost(floor: &str, log: &str) -> Vec<Finding> {
    let is_case = |line: &str| !line.trim().is_empty() && !line.starts_with('#');
    let now: BTreeSet<&str> = floor.lines().filter(|line| is_case(line)).collect();
    let taken: BTreeSet<&str> = log
        .lines()
        .filter(|line| !line.starts_with("---"))
        .filter_map(|line| line.strip_prefix('-'))
        .filter(|line| is_case(line) && !now.contains(line))
        .collect();
    taken
        .into_iter()
        .map(|case| Finding::new(FLOOR, 0, format!("case `{case}` was taken out; a floor only rises")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_that_left_is_found() {
        let log = "--- a/tests/compat/floor.list\n+++ b/tests/compat/floor.list\n-# old heading\n-dns-1\n-dns-2\n+dns-2\n";
        assert_eq!(lost("# heading\ndns-2\n", log).len(), 1);
        assert_eq!(lost("# heading\ndns-1\ndns-2\n", log), []);
    }
}
