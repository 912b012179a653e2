// SPDX-License-Identifier: Apache-2.0
//! Names of types: nouns of the field, each for one thing (CONTRIBUTING.md, "Language").

use super::{Finding, Tree};
use crate::tidy::rust::{code, tests_begin};
use std::collections::{BTreeMap, BTreeSet};

/// Names that say nothing of what a type is: participles, pronouns, adverbs, household words.
const WORDS: &[&str] = &[
    "Around", "Berth", "Course", "Crew", "Did", "Enough", "Fallen", "Fate", "Guests", "Hands", "InHand",
    "Known", "Left", "Made", "Occasion", "Office", "Pass", "Past", "Said", "Scene", "Seen", "Shelf",
    "Showing", "Sight", "Standing", "Stands", "Stays", "Took", "Visit", "Way", "Whence", "Work",
];

/// Types of the crates that may have one name.
const SHARED_MOST: usize = 2;

/// Public names that may be in two crates.
pub const TWINS_MOST: usize = 40;

/// A type that a crate declares, its tests aside.
struct Type<'t> {
    name: &'t str,
    path: &'t str,
    line: usize,
    is_public: bool,
}

impl Type<'_> {
    fn krate(&self) -> &str {
        self.path.split('/').nth(1).unwrap_or(self.path)
    }
}

/// The type names of the crates that a rule is about.
#[derive(Debug, Default)]
pub struct TypeNames {
    /// Names of the list that a type has.
    pub listed: Vec<String>,
    /// Names of three types or more.
    pub shared: Vec<String>,
    /// Public names in two crates.
    pub in_two_crates: Vec<String>,
    /// Public names in three crates or more.
    pub in_three_crates: Vec<String>,
}

/// No type has a name of the list, and none shares its name with two others.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let types = types(tree);
    let mut findings = Vec::new();
    for (name, all) in by_name(&types) {
        let message = if WORDS.contains(&name) {
            format!("`{name}` does not say what the type is; use a noun of the field")
        } else if all.len() > SHARED_MOST {
            format!("{} types are called `{name}`; name each by what it is of", all.len())
        } else {
            continue;
        };
        findings.extend(all.iter().map(|one| Finding::new(one.path, one.line, message.clone())));
    }
    let twins = type_names(tree).in_two_crates;
    if twins.len() > TWINS_MOST {
        let message = format!(
            "{} public names are in two crates (limit {TWINS_MOST}): {}",
            twins.len(),
            twins.join(", ")
        );
        findings.push(Finding::new("crates", 0, message));
    }
    findings
}

/// The type names that [`check`] is about, each list sorted.
#[must_use]
pub fn type_names(tree: &Tree) -> TypeNames {
    let types = types(tree);
    let mut names = TypeNames::default();
    for (name, all) in by_name(&types) {
        let crates: BTreeSet<&str> = all.iter().filter(|one| one.is_public).map(|one| one.krate()).collect();
        let lists = [
            (WORDS.contains(&name), &mut names.listed),
            (all.len() > SHARED_MOST, &mut names.shared),
            (crates.len() == 2, &mut names.in_two_crates),
            (crates.len() > 2, &mut names.in_three_crates),
        ];
        for (_, list) in lists.into_iter().filter(|(is_in, _)| *is_in) {
            list.push(name.to_owned());
        }
    }
    names
}

fn by_name<'a, 't>(types: &'a [Type<'t>]) -> BTreeMap<&'t str, Vec<&'a Type<'t>>> {
    let mut by_name: BTreeMap<&str, Vec<&Type<'_>>> = BTreeMap::new();
    types.iter().for_each(|one| by_name.entry(one.name).or_default().push(one));
    by_name
}

fn types(tree: &Tree) -> Vec<Type<'_>> {
    let mut types = Vec::new();
    let sources = tree.rust().filter(|file| file.path.starts_with("crates/") && file.path.contains("/src/"));
    for file in sources {
        let blanked = code(&file.text);
        let end = tests_begin(&file.text);
        for (at, line) in blanked.lines().enumerate().take_while(|(at, _)| at + 1 < end) {
            let Some((start, length, is_public)) = declared(line) else { continue };
            // Blanking keeps columns.
            let name = file.text.lines().nth(at).and_then(|line| line.get(start..start + length));
            types.extend(name.map(|name| Type { name, path: &file.path, line: at + 1, is_public }));
        }
    }
    types
}

/// The place and length of the name of the type that a line of code declares, and whether it is public.
fn declared(line: &str) -> Option<(usize, usize, bool)> {
    let text = line.trim_start();
    let indent = line.len() - text.len();
    let (rest, is_public) = match text.strip_prefix("pub") {
        Some(rest) if rest.starts_with(' ') => (rest.trim_start(), true),
        Some(rest) if rest.starts_with('(') => (rest.split_once(')')?.1.trim_start(), false),
        _ => (text, false),
    };
    // An indented `type` is that of a trait or of an implementation.
    let words: &[&str] = if indent == 0 {
        &["struct", "enum", "trait", "union", "type"]
    } else {
        &["struct", "enum", "trait"]
    };
    let after = words.iter().find_map(|word| rest.strip_prefix(word)?.strip_prefix(' '))?;
    let length = after.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(after.len());
    (length > 0).then_some((line.len() - after.len(), length, is_public))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_read() {
        let of = |line: &str| {
            declared(line).map(|(start, length, public)| (line[start..start + length].to_owned(), public))
        };
        let some = |name: &str, public| Some((name.to_owned(), public));
        assert_eq!(of("pub struct Flow<'f> {"), some("Flow", true));
        assert_eq!(of("    pub(super) enum Flow;"), some("Flow", false));
        assert_eq!(of("type Flow = u8;"), some("Flow", false));
        assert_eq!(of("    type Flow = u8;"), None, "of an implementation");
        assert_eq!(of("let structure = 1;"), None);
        assert_eq!(of("pub fn structs() {"), None);
    }

    #[test]
    fn words_and_shared_names_are_found() {
        let one = "pub struct Place;\n";
        let lines = |files: &[(&str, &str)]| check(&Tree::of(files)).len();
        assert_eq!(lines(&[("crates/a/src/a.rs", "struct Fate;\n")]), 1);
        assert_eq!(lines(&[("crates/a/src/a.rs", "#[cfg(test)]\nmod tests {\n    struct Fate;\n}\n")]), 0);
        assert_eq!(lines(&[("crates/a/src/a.rs", "// struct Fate;\n")]), 0);
        let two = [("crates/a/src/a.rs", one), ("crates/b/src/a.rs", one)];
        assert_eq!(lines(&two), 0);
        assert_eq!(lines(&[two[0], two[1], ("crates/b/src/b.rs", "struct Place;\n")]), 3);
        assert_eq!(lines(&[two[0], two[1], ("testkit/src/b.rs", one)]), 0);
    }

    #[test]
    fn public_names_of_two_crates_are_counted() {
        let text: String = (0..=TWINS_MOST).map(|number| format!("pub struct Twin{number};\n")).collect();
        let of =
            |text: &str| check(&Tree::of(&[("crates/a/src/a.rs", text), ("crates/b/src/a.rs", text)])).len();
        assert_eq!(of(&text), 1);
        assert_eq!(of(text.split_once('\n').unwrap().1), 0);
    }
}
