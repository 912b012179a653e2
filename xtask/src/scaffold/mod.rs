// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask new KIND NAME`: writes the skeleton of an extension with its tests.
//!
//! A skeleton does something small that is true, compiles, and has tests that pass. The recipe on the kind's
//! page of the book lists the files that it touches ([`recipe`]); others are not written. `cargo xtask new
//! --check` writes one skeleton of each kind into a copy of the repository and tests them ([`check`]).

pub mod check;
mod edit;
mod kinds;
pub mod recipe;

pub use kinds::{KINDS, Kind, Taken};

use std::collections::BTreeMap;

/// Words that no module can have as its name: Rust's keywords, also those that are only reserved.
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn",
    "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop",
    "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static",
    "struct", "super", "trait", "true", "try", "type", "typeof", "union", "unsafe", "unsized", "use",
    "virtual", "where", "while", "yield",
];

/// The longest name: it is part of the names of types, files and settings.
const LONGEST: usize = 32;

/// A change of the repository.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// A new file.
    File {
        /// Its path.
        path: &'static str,
        /// Its text.
        text: &'static str,
    },
    /// A line in a file, above the first line that begins with a text. rustfmt sorts modules and imports.
    Line {
        /// The file.
        path: &'static str,
        /// The beginning of the line below.
        above: &'static str,
        /// The line.
        text: &'static str,
    },
    /// A line as [`Change::Line`], unless the file has a text already.
    Row {
        /// The file.
        path: &'static str,
        /// The beginning of the line below.
        above: &'static str,
        /// The line.
        text: &'static str,
        /// The text that makes it needless.
        unless: &'static str,
    },
    /// An entry at the end of a list in brackets.
    Entry {
        /// The file.
        path: &'static str,
        /// The text before the list's bracket.
        list: &'static str,
        /// The entry.
        text: &'static str,
    },
}

impl Change {
    /// The file that it writes or changes.
    #[must_use]
    pub const fn path(&self) -> &'static str {
        match self {
            Change::File { path, .. }
            | Change::Line { path, .. }
            | Change::Row { path, .. }
            | Change::Entry { path, .. } => path,
        }
    }
}

/// A name for an extension, in the forms that skeletons need.
#[derive(Clone, Debug)]
pub struct Name {
    snake: String,
    camel: String,
}

impl Name {
    /// Checks a name.
    ///
    /// # Errors
    /// It is not snake case, too long, or a keyword of Rust: the reason, and what to do.
    pub fn new(text: &str) -> Result<Self, String> {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let is_snake = text.bytes().all(allowed)
            && text.starts_with(|first: char| first.is_ascii_lowercase())
            && !text.contains("__")
            && !text.ends_with('_');
        if !is_snake {
            return Err(format!(
                "`{text}` is not snake case, as names of files and modules are; write small letters, digits and single underscores, beginning with a letter"
            ));
        }
        if text.len() > LONGEST {
            return Err(format!("`{text}` has {} letters; write at most {LONGEST}", text.len()));
        }
        if KEYWORDS.contains(&text) {
            return Err(format!(
                "`{text}` is a keyword of Rust, which no module can have as its name; take another name"
            ));
        }
        let camel = text.split('_').map(|word| {
            let (first, rest) = word.split_at(1);
            first.to_ascii_uppercase() + rest
        });
        Ok(Name { snake: text.to_owned(), camel: camel.collect() })
    }

    /// A text of a skeleton with this name in its places.
    #[must_use]
    pub fn fill(&self, text: &str) -> String {
        text.replace("{{name}}", &self.snake)
            .replace("{{kebab}}", &self.snake.replace('_', "-"))
            .replace("{{NAME}}", &self.snake.to_ascii_uppercase())
            .replace("{{Name}}", &self.camel)
    }
}

/// Finds a kind by its name.
///
/// # Errors
/// There is none: the message lists those that there are.
pub fn kind(name: &str) -> Result<&'static Kind, String> {
    KINDS.iter().find(|kind| kind.name == name).ok_or_else(|| {
        let names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        format!("there is no kind `{name}` of skeletons; there are {}", names.join(", "))
    })
}

/// The files of a repository, by their paths.
pub type Files = BTreeMap<String, String>;

/// The new texts of the files that a skeleton adds or changes.
///
/// # Errors
/// The name is taken, a place for a line is missing, or the recipe does not list a file.
pub fn plan(kind: &Kind, name: &Name, files: &Files) -> Result<Files, String> {
    is_free(kind, name, files)?;
    let recipe = recipe::of(kind, name, files)?;
    let mut changed = Files::new();
    for change in kind.changes {
        let path = name.fill(change.path());
        if !recipe.contains(&path) {
            return Err(format!(
                "the recipe on {} does not list `{path}`, which this skeleton changes; correct one of the two",
                kind.page
            ));
        }
        let text = match change {
            Change::File { text, .. } => name.fill(text),
            Change::Row { unless, .. }
                if files.get(&path).is_some_and(|of| of.contains(&name.fill(unless))) =>
            {
                continue;
            }
            Change::Line { above, text, .. } | Change::Row { above, text, .. } => {
                let before = current(&changed, files, &path)?;
                edit::line(before, above, &name.fill(text))
                    .ok_or_else(|| missing(&path, above, &name.fill(text)))?
            }
            Change::Entry { list, text, .. } => {
                let before = current(&changed, files, &path)?;
                edit::entry(before, list, &name.fill(text))
                    .ok_or_else(|| missing(&path, list, &name.fill(text)))?
            }
        };
        changed.insert(path, text);
    }
    for (path, text) in changed.iter_mut().filter(|(path, _)| path.ends_with(".rs")) {
        *text = edit::formatted(text).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(changed)
}

/// The text of a file so far.
fn current<'f>(changed: &'f Files, files: &'f Files, path: &str) -> Result<&'f str, String> {
    let text = changed.get(path).or_else(|| files.get(path)).map(String::as_str);
    text.ok_or_else(|| format!("`{path}` is missing; run this in a whole clone of the repository"))
}

fn missing(path: &str, place: &str, text: &str) -> String {
    format!(
        "{path} has no `{place}` any more, where `{}` belongs; correct xtask/src/scaffold/kinds.rs",
        text.trim()
    )
}

/// Finds out whether the kind has no extension of this name yet.
fn is_free(kind: &Kind, name: &Name, files: &Files) -> Result<(), String> {
    let taken = |place: &str, why: &str| Err(format!("the {} `{}` {why} ({place})", kind.name, name.snake));
    for change in kind.changes {
        let path = name.fill(change.path());
        match change {
            Change::File { .. } => {
                let folder = format!("{}/", path.trim_end_matches(".rs"));
                if files.keys().any(|file| *file == path || file.starts_with(&folder)) {
                    return taken(&path, kinds::EXISTS);
                }
            }
            Change::Row { .. } => {}
            Change::Line { text, .. } | Change::Entry { text, .. } => {
                let line = name.fill(text);
                let is_there = |text: &String| text.lines().any(|there| there.trim() == line.trim());
                if files.get(&path).is_some_and(is_there) {
                    return taken(&path, kinds::EXISTS);
                }
            }
        }
    }
    for of in kind.taken {
        let text = name.fill(of.text);
        let is_there = |line: &str| line.split_once(of.line).is_some_and(|(_, rest)| rest.contains(&text));
        let has = |(path, all): &(&String, &String)| path.starts_with(of.below) && all.lines().any(is_there);
        if let Some((path, _)) = files.iter().find(has) {
            return taken(path, of.why);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_snake_case_and_no_keywords() {
        for good in ["a", "modbus", "line_proto", "l2tp"] {
            assert!(Name::new(good).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("", "not snake case"),
            ("Modbus", "not snake case"),
            ("mod-bus", "not snake case"),
            ("_a", "not snake case"),
            ("a_", "not snake case"),
            ("a__b", "not snake case"),
            ("2a", "not snake case"),
            ("ä", "not snake case"),
            ("../a", "not snake case"),
            ("match", "keyword of Rust"),
            ("gen", "keyword of Rust"),
            ("abcdefghijklmnopqrstuvwxyzabcdefg", "33 letters"),
        ] {
            assert!(Name::new(bad).unwrap_err().contains(why), "{bad}");
        }
    }

    #[test]
    fn a_name_has_its_forms() {
        let filled = Name::new("line_proto2").unwrap().fill("{{name}} {{Name}} {{NAME}} {{kebab}}");
        assert_eq!(filled, "line_proto2 LineProto2 LINE_PROTO2 line-proto2");
    }

    const KIND: Kind = Kind {
        name: "part",
        page: "docs/page.md",
        changes: &[
            Change::File { path: "src/{{name}}.rs", text: "pub struct {{Name}};\n" },
            Change::Line { path: "src/mod.rs", above: "mod b;", text: "mod {{name}};" },
            Change::Entry { path: "src/mod.rs", list: "const ALL: &[&str] = &", text: "\"{{name}}\"" },
        ],
        taken: &[kinds::taken("src/", "name: ", "\"{{name}}\"")],
        next: &[],
        tests: kinds::Tests::Lib("p"),
    };

    fn files(recipe: &str) -> Files {
        let page = format!("x\n<!-- cargo xtask new part -->\n{recipe}<!-- end of the files -->\n");
        let of = |(path, text): (&str, &str)| (path.to_owned(), text.to_owned());
        [
            ("docs/page.md", page.as_str()),
            ("src/mod.rs", "mod b;\n\nconst ALL: &[&str] = &[\"b\"];\n"),
            ("src/b.rs", "name: \"other\"\n"),
            ("src/folder/mod.rs", ""),
        ]
        .map(of)
        .into()
    }

    const RECIPE: &str =
        "| file | content |\n|---|---|\n| `src/NAME.rs` | it |\n| `src/mod.rs` | its lines |\n";

    #[test]
    fn a_plan_adds_a_file_and_its_lines() {
        let files = files(RECIPE);
        let changed = plan(&KIND, &Name::new("a_c").unwrap(), &files).unwrap();
        assert_eq!(changed.keys().collect::<Vec<_>>(), ["src/a_c.rs", "src/mod.rs"]);
        assert_eq!(changed["src/a_c.rs"], "pub struct AC;\n");
        assert_eq!(changed["src/mod.rs"], "mod a_c;\nmod b;\n\nconst ALL: &[&str] = &[\"b\", \"a_c\"];\n");
    }

    #[test]
    fn taken_names_missing_places_and_foreign_files_are_refused() {
        let refused = |name: &str, files: &Files| plan(&KIND, &Name::new(name).unwrap(), files).unwrap_err();
        let whole = files(RECIPE);
        assert_eq!(
            refused("b", &whole),
            "the part `b` exists already; take another name, or change that one (src/b.rs)"
        );
        assert!(refused("folder", &whole).contains("exists already"));
        assert!(refused("other", &whole).contains("(src/b.rs)"));
        let short = files("| `src/NAME.rs` | it |\n");
        assert!(refused("c", &short).contains("does not list `src/mod.rs`"));
        let mut without = files(RECIPE);
        without.insert("src/mod.rs".to_owned(), "mod b;\n".to_owned());
        assert!(refused("c", &without).contains("src/mod.rs has no `const ALL"));
        without.remove("docs/page.md");
        assert!(refused("c", &without).contains("docs/page.md"));
    }

    #[test]
    fn kinds_are_found_by_their_names() {
        assert_eq!(kind("level").map(|kind| kind.name), Ok("level"));
        let error = kind("levl").err().unwrap();
        assert!(error.contains("protocol, keyword, function, level, source, resource, event"), "{error}");
    }
}
