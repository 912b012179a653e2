// SPDX-License-Identifier: Apache-2.0
//! The counts of the language rules as one table (`cargo xtask tidy --counts`): each with its limit, also
//! where the limit holds and the checks are silent.

use super::{Tree, comments, dependencies, files, functions, names, parameters};
use std::fmt::Write;

/// A count, its limit, and the names that it counts where a reader wants them listed.
#[derive(Debug)]
pub struct Count {
    /// The counted things.
    pub title: &'static str,
    /// Their number.
    pub number: usize,
    /// The largest number that may be.
    pub limit: usize,
    /// Names to list below the table.
    pub names: Vec<String>,
}

impl Count {
    fn of(title: &'static str, number: usize, limit: usize) -> Self {
        Self { title, number, limit, names: Vec::new() }
    }

    fn of_names(title: &'static str, names: Vec<String>, limit: usize) -> Self {
        Self { title, number: names.len(), limit, names }
    }

    /// Whether the limit holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.number <= self.limit
    }
}

/// All counts of a tree, in the order of the table.
#[must_use]
pub fn counts(tree: &Tree) -> Vec<Count> {
    let names = names::type_names(tree);
    vec![
        Count::of_names("public type names in two crates", names.in_two_crates, names::TWINS_MOST),
        Count::of_names("public type names in three crates or more", names.in_three_crates, 0),
        Count::of_names("names of three types or more", names.shared, 0),
        Count::of_names("type names of the list of household words", names.listed, 0),
        Count::of_names(
            "function names that begin with a household word",
            functions::household_names(tree),
            0,
        ),
        Count::of(
            "doc lines that begin with What, Who, How, Of, The same",
            comments::openings(tree).len(),
            comments::OPENINGS_MOST,
        ),
        Count::of("comments wider than 110 columns", comments::check_width(tree).len(), 0),
        Count::of(
            "parameters that are tuples",
            parameters::tuple_parameters(tree).len(),
            parameters::TUPLES_MOST,
        ),
        Count::of("functions of more than 80 lines", files::check_functions(tree).len(), 0),
        Count::of("unused dependencies", dependencies::check(tree).len(), 0),
    ]
}

/// The counts as a table for people, with the listed names below it.
#[must_use]
pub fn table(counts: &[Count]) -> String {
    let width = counts.iter().map(|count| count.title.len()).max().unwrap_or_default();
    let mut text = format!("{:width$}  count  limit\n", "");
    for count in counts {
        let mark = if count.holds() { "" } else { "  too many" };
        let _ = writeln!(text, "{:width$}  {:>5}  {:>5}{mark}", count.title, count.number, count.limit);
    }
    for count in counts.iter().filter(|count| !count.names.is_empty()) {
        let _ = writeln!(text, "\n{}: {}", count.title, count.names.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree with one of each counted thing.
    fn faulty() -> Tree {
        let long = format!("fn long() {{\n{}}}\n", "    x();\n".repeat(80));
        let one = format!(
            "pub struct Twin;\npub struct Triple;\nstruct Fate;\n/// What it is.\nfn tell(a: (u8, u8)) {{}}\n{long}// {}\n",
            "a word ".repeat(20)
        );
        Tree::of(&[
            ("crates/a/Cargo.toml", "[dependencies]\nidle = \"1\"\n"),
            ("crates/a/src/a.rs", &one),
            ("crates/b/src/b.rs", "pub struct Twin;\npub struct Triple;\n"),
            ("crates/c/src/c.rs", "pub struct Triple;\n"),
        ])
    }

    #[test]
    fn each_counted_thing_is_counted_once() {
        let counts = counts(&faulty());
        assert!(counts.iter().all(|count| count.number == 1), "{counts:?}");
        assert_eq!(super::counts(&Tree::of(&[])).iter().map(|count| count.number).sum::<usize>(), 0);
    }

    #[test]
    fn the_table_names_what_is_too_many_and_lists_the_names() {
        let counts = counts(&faulty());
        let text = table(&counts);
        let broken = text.lines().filter(|line| line.ends_with("too many")).count();
        assert_eq!(broken, counts.iter().filter(|count| !count.holds()).count());
        assert_eq!(broken, 7, "three counts may be above zero: {text}");
        assert!(text.contains("public type names in two crates: Twin\n"), "{text}");
        assert!(text.contains("names of three types or more: Triple\n"), "{text}");
    }
}
