// SPDX-License-Identifier: Apache-2.0
//! Names of functions: verbs of the field (CONTRIBUTING.md, "Language"). A plain getter may be a noun.

use super::{Finding, Tree};
use crate::tidy::rust::{code, tests_begin};

/// First words that say nothing of what a function does: household verbs, participles, pronouns.
const WORDS: &[&str] = &[
    "ask",
    "asked",
    "asks",
    "bury",
    "came",
    "chomp",
    "come",
    "comes",
    "converse",
    "eat",
    "fate",
    "fates",
    "give",
    "gives",
    "go",
    "goes",
    "going",
    "greet",
    "happened",
    "hear",
    "heard",
    "hears",
    "heed",
    "hush",
    "insist",
    "lend",
    "let",
    "lets",
    "look",
    "looked",
    "looking",
    "looks",
    "meanwhile",
    "meet",
    "nap",
    "news",
    "obey",
    "obeys",
    "owe",
    "owes",
    "said",
    "saw",
    "say",
    "says",
    "scene",
    "settle",
    "settled",
    "settles",
    "shown",
    "stand",
    "stands",
    "story",
    "talk",
    "tell",
    "tells",
    "tend",
    "throw",
    "told",
    "took",
    "unsettle",
    "unshown",
    "untold",
    "veil",
    "vouch",
    "whence",
    "who",
];

/// First words of two parts, each a household verb only together.
const PHRASES: &[&str] = &["hand_on", "hand_out", "lay_down", "put_away", "put_down", "take_home", "take_up"];

/// No function of the crates, their tests aside, has a name that begins with a household word.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, line, name) in functions(tree).into_iter().filter(|(_, _, name)| is_household(name)) {
        let message = format!("`{name}` does not say what the function does; use a verb of the field");
        findings.push(Finding::new(path, line, message));
    }
    findings
}

/// The names that [`check`] finds, sorted, each once for each function.
#[must_use]
pub fn household_names(tree: &Tree) -> Vec<String> {
    let mut names: Vec<String> = functions(tree).into_iter().map(|(_, _, name)| name.to_owned()).collect();
    names.retain(|name| is_household(name));
    names.sort();
    names
}

fn is_household(name: &str) -> bool {
    let begins = |phrase: &&str| {
        name.strip_prefix(*phrase).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    };
    WORDS.contains(&name.split('_').next().unwrap_or(name)) || PHRASES.iter().any(begins)
}

/// Path, line and name of each function that the crates declare outside of tests.
fn functions(tree: &Tree) -> Vec<(&str, usize, &str)> {
    let mut functions = Vec::new();
    let sources = tree.rust().filter(|file| file.path.starts_with("crates/") && file.path.contains("/src/"));
    for file in sources.filter(|file| !is_test(&file.path)) {
        let blanked = code(&file.text);
        let end = tests_begin(&file.text);
        let lines = blanked.lines().zip(file.text.lines()).enumerate();
        for (at, (blank, line)) in lines.take_while(|(at, _)| at + 1 < end) {
            let Some((start, length)) = declared(blank) else { continue };
            // Blanking keeps columns.
            let name = line.get(start..start + length);
            functions.extend(name.map(|name| (file.path.as_str(), at + 1, name)));
        }
    }
    functions
}

/// Whether a source file has tests only.
fn is_test(path: &str) -> bool {
    path.ends_with("tests.rs") || path.contains("/tests/")
}

/// The place and length of the name of the function that a line of code declares.
fn declared(line: &str) -> Option<(usize, usize)> {
    let at = line
        .find("fn ")
        .filter(|at| line.get(..*at).is_some_and(|before| before.is_empty() || before.ends_with(' ')))?;
    let start = at + "fn ".len();
    let name = line.get(start..)?;
    let length = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    (length > 0).then_some((start, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_read() {
        let of = |line: &str| declared(line).map(|(start, length)| line[start..start + length].to_owned());
        assert_eq!(of("    pub const fn settle(&mut self) {").as_deref(), Some("settle"));
        assert_eq!(of("fn tell<T>(value: T)").as_deref(), Some("tell"));
        assert_eq!(of("    each: fn (u8),"), None);
        assert_eq!(of("    let often = 1;"), None);
    }

    #[test]
    fn household_words_and_phrases_are_found() {
        let found = |text: &str| check(&Tree::of(&[("crates/a/src/a.rs", text)])).len();
        assert_eq!(found("pub fn tell() {}\nfn settle_tokens() {}\nfn take_up_session() {}\n"), 3);
        assert_eq!(found("fn telling() {}\nfn take() {}\nfn take_upper() {}\nfn settlement() {}\n"), 0);
        assert_eq!(found("// fn tell() {}\n"), 0);
        assert_eq!(found("#[cfg(test)]\nmod tests {\n    fn told() {}\n}\n"), 0);
        assert_eq!(check(&Tree::of(&[("crates/a/src/a_tests.rs", "fn told() {}\n")])).len(), 0);
        assert_eq!(check(&Tree::of(&[("testkit/src/a.rs", "fn told() {}\n")])).len(), 0);
    }
}
