// SPDX-License-Identifier: Apache-2.0
//! Edits of text: lines and entries of lists, in their places, as rustfmt writes them.

use std::io::Write;
use std::process::{Command, Stdio};

/// The text with a line above the first line that begins with `above`. `None`: there is no such line.
pub(super) fn line(text: &str, above: &str, line: &str) -> Option<String> {
    let mut start = 0;
    for there in text.split_inclusive('\n') {
        if there.starts_with(above) {
            let (before, after) = text.split_at(start);
            return Some(format!("{before}{line}\n{after}"));
        }
        start += there.len();
    }
    None
}

/// The text with an entry at the end of the list whose bracket comes after `list`. `None`: there is none.
pub(super) fn entry(text: &str, list: &str, entry: &str) -> Option<String> {
    let begin = text.find(list)? + list.len();
    let open = begin + text.get(begin..)?.find('[')?;
    let mut depth = 0usize;
    for (at, byte) in text.bytes().enumerate().skip(open) {
        match byte {
            b'[' => depth += 1,
            b']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            let (before, after) = (text.get(..at)?.trim_end(), text.get(at..)?);
            let comma = if before.ends_with([',', '[']) { "" } else { "," };
            return Some(format!("{before}{comma} {entry}{after}"));
        }
    }
    None
}

/// The text of a Rust file as rustfmt writes it, by the settings of the repository.
///
/// # Errors
/// rustfmt is not there, or refuses the text.
pub(super) fn formatted(text: &str) -> Result<String, String> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let mut rustfmt = Command::new("rustfmt")
        .args(["--edition", "2024"])
        .current_dir(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| {
            format!("cannot start rustfmt: {error}; `rustup component add rustfmt` installs it")
        })?;
    if let Some(mut input) = rustfmt.stdin.take() {
        input.write_all(text.as_bytes()).map_err(|error| format!("rustfmt does not read: {error}"))?;
    }
    let output = rustfmt.wait_with_output().map_err(|error| format!("rustfmt: {error}"))?;
    if !output.status.success() {
        return Err(format!("rustfmt refuses the text: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("rustfmt: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_above_the_first_that_begins_so() {
        assert_eq!(
            line("a\nmod b;\nmod c;\n", "mod ", "mod x;").as_deref(),
            Some("a\nmod x;\nmod b;\nmod c;\n")
        );
        assert_eq!(line("a\n", "mod ", "mod x;"), None);
    }

    #[test]
    fn an_entry_comes_at_the_end_of_its_list() {
        for (text, expected) in [
            ("let a: &[u8] = &[];", "let a: &[u8] = &[ 9];"),
            ("let a: &[u8] = &[1];", "let a: &[u8] = &[1, 9];"),
            ("let a: &[u8] = &[\n  [1][0],\n];\n[2]", "let a: &[u8] = &[\n  [1][0], 9];\n[2]"),
        ] {
            assert_eq!(entry(text, "let a: &[u8] = &", "9").as_deref(), Some(expected));
        }
        assert_eq!(entry("let b = [];", "let a", "9"), None);
        assert_eq!(entry("let a = [1", "let a", "9"), None);
    }
}
