// SPDX-License-Identifier: Apache-2.0
//! The form of the pages of the book: the width of their lines, and the size of the two that everybody reads
//! first.

use super::{Finding, Tree};

/// Columns of a line of a page, tables and code aside.
const WIDEST: usize = 160;

/// Pages with a limit of words.
const WORDS_MOST: &[(&str, usize)] = &[("README.md", 900), ("docs/STATUS.md", 700)];

/// Lines of pages outside of tables and code are not wider than the limit, and the limited pages are short.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_page = |path: &str| path == "README.md" || (path.starts_with("docs/") && path.ends_with(".md"));
    for file in tree.files.iter().filter(|file| is_page(&file.path)) {
        let mut in_code = false;
        for (number, line) in file.lines() {
            in_code ^= line.trim_start().starts_with("```");
            let columns = line.chars().count();
            if columns > WIDEST && !in_code && !line.trim_start().starts_with('|') {
                let message = format!("a line of {columns} columns; wrap it (limit {WIDEST})");
                findings.push(Finding::new(&file.path, number, message));
            }
        }
    }
    for (path, most) in WORDS_MOST {
        let words = tree.get(path).map_or(0, |file| file.text.split_whitespace().count());
        if words > *most {
            let message = format!("{words} words; move details to other pages (limit {most})");
            findings.push(Finding::new(path, 0, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_lines_are_found_outside_of_tables_and_code() {
        let of = |path: &str, text: &str| check(&Tree::of(&[(path, text)])).len();
        let wide = "x".repeat(WIDEST + 1);
        assert_eq!(of("docs/a.md", &wide), 1);
        assert_eq!(of("docs/a.md", &wide[1..]), 0);
        assert_eq!(of("README.md", &wide), 1);
        assert_eq!(of("hw/README.md", &wide), 0, "not a page of the book");
        assert_eq!(of("docs/a.md", &format!("| {wide} |")), 0);
        assert_eq!(of("docs/a.md", &format!("```\n{wide}\n```\n{wide}")), 1);
    }

    #[test]
    fn long_pages_are_found() {
        for (path, most) in WORDS_MOST {
            let words = "a word ".repeat(most / 2);
            assert_eq!(check(&Tree::of(&[(path, &words.replace(' ', "\n"))])), []);
            assert_eq!(check(&Tree::of(&[(path, &format!("{words} more").replace(' ', "\n"))])).len(), 1);
        }
    }
}
