// SPDX-License-Identifier: Apache-2.0
//! The form of comments: their width, and how doc lines begin (CONTRIBUTING.md, "Language").

use super::{File, Finding, Tree};

/// Columns of a comment, indentation included.
const WIDEST: usize = 110;

/// Words that a doc line does not begin with: it says what the thing is, and a clause that begins so has no
/// noun for it.
const OPENINGS: &[&str] = &["What", "Who", "Whose", "Whom", "How", "Of", "The same"];

/// Doc lines that may begin so all the same, in the whole repository.
pub const OPENINGS_MOST: usize = 100;

/// Comments of sources and scripts are not wider than the code. Tables and words without a space are.
#[must_use]
pub fn check_width(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        let Some(marker) = marker(file) else { continue };
        let mut in_code = false;
        for (number, line) in file.lines() {
            let Some(text) = line.trim_start().strip_prefix(marker) else { continue };
            let text = text.trim_start_matches(['/', '!', '#']).trim_start();
            in_code ^= text.starts_with("```");
            let columns = line.chars().count();
            let is_exempt = in_code || text.starts_with('|') || line.ends_with('\\') || !text.contains(' ');
            if columns > WIDEST && !is_exempt {
                let message = format!("a comment of {columns} columns; wrap it (limit {WIDEST})");
                findings.push(Finding::new(&file.path, number, message));
            }
        }
    }
    findings
}

/// The beginning of a comment line in a file of this kind.
fn marker(file: &File) -> Option<&'static str> {
    match file.name().rsplit_once('.') {
        Some((_, "rs")) => Some("//"),
        Some((_, "py" | "sh" | "toml" | "yaml" | "yml")) => Some("#"),
        None if file.text.starts_with("#!") => Some("#"),
        _ => None,
    }
}

/// Doc lines begin with what the thing is or does: finds the others, once there are more than may be.
#[must_use]
pub fn check_openings(tree: &Tree) -> Vec<Finding> {
    let findings = openings(tree);
    if findings.len() > OPENINGS_MOST { findings } else { Vec::new() }
}

/// Each doc line that begins with a word of the list.
#[must_use]
pub fn openings(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        for (number, line) in file.lines() {
            let line = line.trim_start();
            let doc = line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! "));
            let opening = doc.and_then(|doc| OPENINGS.iter().find(|word| begins_with(doc, word)));
            if let Some(word) = opening {
                let message = format!("a doc line begins with `{word}`; say what the thing is or does");
                findings.push(Finding::new(&file.path, number, message));
            }
        }
    }
    findings
}

fn begins_with(text: &str, word: &str) -> bool {
    let rest = text.strip_prefix(word);
    rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A comment line of `columns` columns, behind `start`.
    fn line(start: &str, columns: usize) -> String {
        let mut line = format!("{start} a word");
        while line.len() < columns {
            line.push('x');
        }
        line
    }

    #[test]
    fn wide_comments_are_found_in_sources_and_scripts() {
        let of = |path: &str, text: &str| check_width(&Tree::of(&[(path, text)])).len();
        for (path, start, found) in [
            ("a.rs", "    ///", 1),
            ("a.rs", "//!", 1),
            ("a.py", "#", 1),
            ("Cargo.toml", "#", 1),
            ("a.md", "#", 0),
            ("a.rs", "/// |", 0),
            ("a.rs", "let x = 1; //", 0),
        ] {
            assert_eq!(of(path, &line(start, WIDEST + 1)), found, "{path} {start}");
            assert_eq!(of(path, &line(start, WIDEST)), 0, "{path} {start}");
        }
        assert_eq!(of("run", &format!("#!/bin/sh\n{}", line("#", 120))), 1);
        assert_eq!(of("a.rs", &format!("/// {}", "x".repeat(120))), 0, "a link cannot be wrapped");
        assert_eq!(of("a.rs", &format!("/// ```\n{}\n/// ```", line("///", 120))), 0, "nor code");
        assert_eq!(of("a.rs", &format!("/// ```\n/// ```\n{}", line("///", 120))), 1);
    }

    #[test]
    fn openings_are_counted_over_the_repository() {
        let doc = |opening: &str, lines: usize| {
            let text = format!("    /// {opening} it is.\n").repeat(lines);
            check_openings(&Tree::of(&[("a.rs", &*text)])).len()
        };
        assert_eq!(doc("What", OPENINGS_MOST), 0);
        assert_eq!(doc("What", OPENINGS_MOST + 1), OPENINGS_MOST + 1);
        assert_eq!(doc("The same", 200), 200);
        assert_eq!(doc("Whatever", 200), 0);
        assert_eq!(doc("Often", 200), 0);
    }
}
