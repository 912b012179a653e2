// SPDX-License-Identifier: Apache-2.0
//! Rules for every source file: licence and purpose on top, not too long, no paths of one machine.

use super::{Finding, Tree};

/// The first line of every Rust file.
const SPDX: &str = "// SPDX-License-Identifier: Apache-2.0";

/// The most lines of a function.
const LONGEST_FUNCTION: usize = 80;

/// The most lines of a file.
const LONGEST: usize = 900;

/// Longer files, each with the reason.
const LONGER: &[(&str, &str)] = &[];

/// Extensions of source files.
const SOURCES: &[&str] = &["rs", "py", "sh", "c", "h", "sv"];

/// Every Rust file begins with the licence and then states its purpose.
#[must_use]
pub fn check_headers(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let mut lines = file.text.lines();
        if lines.next() != Some(SPDX) {
            findings.push(Finding::new(&file.path, 1, format!("the first line must be `{SPDX}`")));
        }
        if !lines.find(|line| !line.trim().is_empty()).is_some_and(|line| line.starts_with("//! ")) {
            findings.push(Finding::new(&file.path, 2, "say with `//!` what this file is for"));
        }
    }
    findings
}

/// No source file is longer than the limit, so that newcomers find their way in it.
#[must_use]
pub fn check_length(tree: &Tree) -> Vec<Finding> {
    let sources = tree.files.iter().filter(|file| {
        file.name().rsplit_once('.').is_some_and(|(_, extension)| SOURCES.contains(&extension))
    });
    sources
        .map(|file| (file, file.text.lines().count()))
        .filter(|(file, lines)| *lines > LONGEST && !LONGER.iter().any(|(path, _)| *path == file.path))
        .map(|(file, lines)| {
            Finding::new(&file.path, 0, format!("{lines} lines; split it (limit {LONGEST})"))
        })
        .collect()
}

/// No function of the program is longer than the limit: rustfmt has put its last brace below its first word.
#[must_use]
pub fn check_functions(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let sources = tree.rust().filter(|file| file.path.contains("/src/") && !file.path.ends_with("tests.rs"));
    for file in sources {
        let most = LONGEST_FUNCTION;
        let lines: Vec<&str> = file.text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let words = line.trim_start();
            let indent = &line[..line.len() - words.len()];
            let before = words.split_once("fn ").map(|(before, _)| before);
            let begins = before.is_some_and(|before| {
                before.split_whitespace().all(|word| {
                    word.starts_with("pub") || ["const", "async", "unsafe", "extern", "in"].contains(&word)
                })
            });
            if !begins || line.ends_with([';', '}']) {
                continue;
            }
            let last = format!("{indent}}}");
            let Some(length) = lines.iter().skip(at).position(|line| line.starts_with(&last)) else {
                continue;
            };
            if length + 1 > most {
                let message = format!("a function of {} lines; split it (limit {most})", length + 1);
                findings.push(Finding::new(&file.path, at + 1, message));
            }
        }
    }
    findings
}

/// No source names the machine of its author: no absolute paths of work folders and homes.
#[must_use]
pub fn check_paths(tree: &Tree) -> Vec<Finding> {
    // Assembled here so that this file does not find itself.
    let wanted: Vec<String> =
        ["work", "root", "tmp/ref", "home/user", "Users"].iter().map(|dir| format!("/{dir}/")).collect();
    let mut findings = Vec::new();
    for file in &tree.files {
        for (number, line) in file.lines() {
            for path in wanted.iter().filter(|path| starts_a_path(line, path)) {
                findings.push(Finding::new(&file.path, number, format!("`{path}` is a path of one machine")));
            }
        }
    }
    findings
}

/// Whether the text is at the beginning of a path: not in `target/work/` and not in an address
/// `http://x/work/`.
fn starts_a_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_ascii_alphanumeric() || "._-/}%)".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        let tree = Tree::of(&[
            ("a.rs", "// SPDX-License-Identifier: Apache-2.0\n//! What.\n"),
            ("b.rs", "//! What.\n"),
            ("c.rs", "// SPDX-License-Identifier: Apache-2.0\n\nuse x;\n"),
        ]);
        assert_eq!(
            check_headers(&tree).iter().map(|f| (f.path.as_str(), f.line)).collect::<Vec<_>>(),
            [("b.rs", 1), ("b.rs", 2), ("c.rs", 2)]
        );
    }

    #[test]
    fn long_files_are_found() {
        let long = "x\n".repeat(901);
        let tree = Tree::of(&[("a.rs", long.as_str()), ("b.txt", long.as_str()), ("c.py", &long[..1800])]);
        assert_eq!(check_length(&tree).len(), 1);
    }

    #[test]
    fn long_functions_are_found() {
        let long = format!(
            "impl A {{\n    pub(crate) fn long(&self) {{\n{}    }}\n}}\n",
            "        x();\n".repeat(LONGEST_FUNCTION - 1)
        );
        let short = long.replacen("        x();\n", "", 1);
        let call = format!("// fn of(\nfn f() {{}}\n{}", "x\n".repeat(200));
        let of = |text: &str| check_functions(&Tree::of(&[("crates/a/src/a.rs", text)])).len();
        assert_eq!([of(&long), of(&short), of(&call)], [1, 0, 0]);
        assert_eq!(check_functions(&Tree::of(&[("crates/a/tests/a.rs", &*long)])), []);
    }

    #[test]
    fn machine_paths_are_found() {
        let here = ["/wo", "rk/main/x"].concat();
        let tree = Tree::of(&[("a.md", here.as_str()), ("b.md", "see target/work/x and http://h/work/x")]);
        assert_eq!(check_paths(&tree).len(), 1);
    }
}
