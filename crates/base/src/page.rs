// SPDX-License-Identifier: Apache-2.0
//! Text of generated pages.

/// Columns of a line of a page, tables aside.
const COLUMNS: usize = 155;

/// The text in lines of at most 155 columns, broken at spaces; each line after the first begins with
/// `indent`. A longer word has a line of its own.
#[must_use]
pub fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > COLUMNS {
            lines.push('\n');
            lines.push_str(indent);
            column = indent.chars().count();
        } else if column > 0 {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += length;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_at_spaces_and_nothing_is_lost() {
        let text = "a word of some length, ".repeat(30);
        let lines = wrapped(text.trim_end(), "  ");
        assert!(lines.lines().all(|line| line.chars().count() <= COLUMNS), "{lines}");
        assert!(lines.lines().count() > 4 && lines.lines().skip(1).all(|line| line.starts_with("  ")));
        assert_eq!(lines.replace("\n  ", " "), text.trim_end());
        assert_eq!(wrapped("short", "  "), "short");
        let long = "x".repeat(200);
        assert_eq!(wrapped(&format!("a {long} b"), ""), format!("a\n{long}\nb"));
    }
}
