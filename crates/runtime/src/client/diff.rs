// SPDX-License-Identifier: Apache-2.0
//! Differences between two texts, line by line.

use super::yaml;
use serde_json::Value;

/// Most pairs of lines that are compared; of longer texts all lines of both are shown.
pub const PAIRS_MAX: usize = 4_000_000;
/// Equal lines shown before and after a difference.
const AROUND: usize = 2;

/// The lines of the difference, each after `-`, `+` or a space; of equal lines only those near a difference.
pub fn lines(before: &str, after: &str) -> Vec<String> {
    let (a, b): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let marked = match a.len().saturating_mul(b.len()) {
        0..=PAIRS_MAX => marked(&a, &b),
        _ => a.iter().map(|line| ('-', *line)).chain(b.iter().map(|line| ('+', *line))).collect(),
    };
    let near = |at: usize| {
        let from = at.saturating_sub(AROUND);
        marked.iter().skip(from).take(at + AROUND + 1 - from).any(|(mark, _)| *mark != ' ')
    };
    let (mut shown, mut left_out) = (Vec::new(), false);
    for (at, (mark, line)) in marked.iter().enumerate() {
        if near(at) {
            if left_out && !shown.is_empty() {
                shown.push("  ...".to_owned());
            }
            left_out = false;
            shown.push(format!("{mark} {line}"));
        } else {
            left_out = true;
        }
    }
    shown
}

/// The differences of two documents as lines of YAML.
pub fn documents(before: Option<&Value>, after: Option<&Value>) -> Vec<String> {
    let written = |value: Option<&Value>| value.map(yaml::text).unwrap_or_default();
    lines(&written(before), &written(after))
}

/// Marks the lines of both texts by their longest common subsequence.
fn marked<'t>(a: &[&'t str], b: &[&'t str]) -> Vec<(char, &'t str)> {
    // Length of the common part from a line of each text on.
    let width = b.len() + 1;
    let mut common = vec![0u32; (a.len() + 1) * width];
    let at = |common: &[u32], i: usize, j: usize| common.get(i * width + j).copied().unwrap_or(0);
    for (i, x) in a.iter().enumerate().rev() {
        for (j, y) in b.iter().enumerate().rev() {
            let longest = match x == y {
                true => at(&common, i + 1, j + 1) + 1,
                false => at(&common, i + 1, j).max(at(&common, i, j + 1)),
            };
            if let Some(cell) = common.get_mut(i * width + j) {
                *cell = longest;
            }
        }
    }
    let (mut i, mut j, mut all) = (0, 0, Vec::new());
    loop {
        match (a.get(i), b.get(j)) {
            (None, None) => return all,
            (Some(x), Some(y)) if x == y => {
                all.push((' ', *x));
                (i, j) = (i + 1, j + 1);
            }
            (Some(x), y) if y.is_none() || at(&common, i + 1, j) >= at(&common, i, j + 1) => {
                all.push(('-', *x));
                i += 1;
            }
            (_, Some(y)) => {
                all.push(('+', *y));
                j += 1;
            }
            (Some(_), None) => return all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_and_what_stands_near_is_shown() {
        assert_eq!(lines("a\nb\nc\n", "a\nx\nc\n"), ["  a", "- b", "+ x", "  c"]);
        assert_eq!(lines("", "a\n"), ["+ a"]);
        assert_eq!(lines("a\n", ""), ["- a"]);
        assert!(lines("a\nb\n", "a\nb\n").is_empty());
        let long: String = (0..30).map(|n| format!("{n}\n")).collect();
        let changed = long.replace("10\n", "ten\n").replace("25\n", "");
        assert_eq!(
            lines(&long, &changed),
            ["  8", "  9", "- 10", "+ ten", "  11", "  12", "  ...", "  23", "  24", "- 25", "  26", "  27"]
        );
    }
}
