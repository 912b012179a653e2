// SPDX-License-Identifier: Apache-2.0
//! Committed files that are generated from tables in the code.

use std::path::{Path, PathBuf};

/// The path of a file of the repository; `file` is relative to its root.
#[must_use]
pub fn committed(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file)
}

/// Compares a committed file with the generated text. With `UPDATE_REFERENCE` in the environment (`cargo
/// xtask generate` sets it) the file is written first.
///
/// # Panics
/// The file differs from the text, or cannot be written.
pub fn check(file: &str, expected: &str) {
    let path = committed(file);
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        let written = std::fs::create_dir_all(path.parent().expect("a folder"))
            .and_then(|()| std::fs::write(&path, expected));
        written.unwrap_or_else(|error| panic!("{file}: {error}"));
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    if found == expected {
        return;
    }
    let pairs = found.lines().zip(expected.lines());
    let line = 1 + pairs.take_while(|(committed, generated)| committed == generated).count();
    panic!("{file}:{line} differs from what it is generated from; run `cargo xtask generate` and commit it");
}

/// Compares a section of a committed page, between `<!-- NAME -->` and `<!-- end of NAME -->`, with the
/// generated text, as [`check`] does.
///
/// # Panics
/// The section differs, or the page or its marks are missing.
pub fn check_section(file: &str, name: &str, expected: &str) {
    let found = std::fs::read_to_string(committed(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let (head, rest) = found.split_once(&begin).unwrap_or_else(|| panic!("{file} has no `{begin}`"));
    let (_, tail) = rest.split_once(&end).unwrap_or_else(|| panic!("{file} has no `{end}`"));
    check(file, &format!("{head}{begin}{expected}{end}{tail}"));
}
