// SPDX-License-Identifier: Apache-2.0
//! The uses between the files of a crate: the graph that [`super::circles`] and [`super::folders`] check.
//!
//! A use is a path: in `use`, or where an item is named (`crate::a::B`, `super::f`, `module::f` of an
//! imported module). It leads to the file that defines the item; re-exports are followed, so that a `mod.rs`
//! that only declares and re-exports has no uses and no users. Code under `#[cfg(test)]` does not count.
//!
//! Not seen: methods (the path to their type is), names that macros make (the file of the macro's module
//! counts for them), modules whose file `#[path]` names.

use super::{File, Tree, rust::code};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The first use of a file by another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// The user's line.
    pub line: usize,
    /// The path as written, aliases left out.
    pub path: String,
}

/// The files of a crate and their uses of one another.
#[derive(Debug, Default)]
pub struct Graph {
    /// Paths from the root of the repository.
    pub files: Vec<String>,
    /// For each file its uses of others.
    pub uses: Vec<BTreeMap<usize, Use>>,
}

/// Folders of sources of all packages of the repository: `crates/flow/src/`.
#[must_use]
pub fn packages(tree: &Tree) -> Vec<String> {
    let manifests = tree.files.iter().filter_map(|file| file.path.strip_suffix("Cargo.toml"));
    manifests.map(|folder| format!("{folder}src/")).collect()
}

/// The graph of the crate in a folder of sources. Empty if there is none.
#[must_use]
pub fn graph(tree: &Tree, sources: &str) -> Graph {
    let mut crate_ = Crate { tree, files: Vec::new(), modules: Vec::new() };
    for root in ["lib.rs", "main.rs"] {
        if let Some(file) = tree.get(&format!("{sources}{root}")) {
            // A program beside a library is a crate of its own, in which no file uses the library's root.
            let module = crate_.add_module(None, crate_.files.len(), sources.to_owned());
            crate_.read(file, module);
        }
    }
    crate_.link()
}

/// A module: a file, or a part of one.
#[derive(Default)]
struct Module {
    parent: Option<usize>,
    file: usize,
    /// The folder of the files of its modules.
    folder: String,
    modules: HashMap<String, usize>,
    items: HashMap<String, usize>,
    /// The imports by `use`, by their name here.
    names: HashMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    /// Paths with their lines.
    paths: Vec<(Vec<String>, usize)>,
    /// Private imports of the module, and re-exports (which count if the file has the name from elsewhere).
    own: Vec<(Vec<String>, usize)>,
    shown: Vec<(String, Vec<String>, usize)>,
    /// Words of the code, `use` aside.
    words: BTreeSet<String>,
}

struct Crate<'t> {
    tree: &'t Tree,
    files: Vec<String>,
    modules: Vec<Module>,
}

/// The target of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Module(usize),
    /// An item of this file.
    Item(usize),
    /// Nothing in this crate.
    Nothing,
}

/// The longest chain of re-exports that is followed.
const DEPTH: usize = 16;

impl Crate<'_> {
    fn add_module(&mut self, parent: Option<usize>, file: usize, folder: String) -> usize {
        self.modules.push(Module { parent, file, folder, ..Module::default() });
        self.modules.len() - 1
    }

    fn root(&self, mut module: usize) -> usize {
        while let Some(parent) = self.modules[module].parent {
            module = parent;
        }
        module
    }

    /// Reads a file and those of its modules.
    fn read(&mut self, file: &File, module: usize) {
        self.files.push(file.path.clone());
        let text = code(&file.text);
        let tokens = tokens(&text);
        if attribute_of_file(&tokens) {
            return;
        }
        let mut reader = Reader { tokens: &tokens, at: 0 };
        let mut declared = Vec::new();
        self.block(&mut reader, module, &mut declared);
        for (parent, name) in declared {
            let folder = self.modules[parent].folder.clone();
            let places = [format!("{folder}{name}.rs"), format!("{folder}{name}/mod.rs")];
            let Some(found) = places.iter().find_map(|path| self.tree.get(path)) else { continue };
            let child = self.add_module(Some(parent), self.files.len(), format!("{folder}{name}/"));
            self.modules[parent].modules.insert(name, child);
            self.read(found, child);
        }
    }

    /// Reads a module up to the brace that closes it.
    fn block(&mut self, reader: &mut Reader<'_>, module: usize, declared: &mut Vec<(usize, String)>) {
        let mut depth = 0usize;
        let mut exported = false;
        while let Some(token) = reader.next() {
            match token.text {
                "{" | "(" | "[" => depth += 1,
                "}" if depth == 0 => return,
                "}" | ")" | "]" => depth = depth.saturating_sub(1),
                "#" => {
                    let attribute = reader.attribute();
                    exported |= attribute.contains(&"macro_export");
                    if is_for_tests(&attribute) {
                        reader.skip_item();
                    }
                }
                "mod" if reader.is_word(0) && reader.is(1, ";") => {
                    declared.push((module, reader.take().to_owned()));
                }
                "mod" if reader.is_word(0) && reader.is(1, "{") => {
                    let name = reader.take().to_owned();
                    reader.at += 1;
                    let (file, folder) = (self.modules[module].file, &self.modules[module].folder);
                    let child = self.add_module(Some(module), file, format!("{folder}{name}/"));
                    self.modules[module].modules.insert(name, child);
                    self.block(reader, child, declared);
                }
                "use" if !reader.is(0, "<") => {
                    let shown = reader.is_shown();
                    let mut found = Vec::new();
                    reader.use_tree(&mut Vec::new(), &mut found);
                    let module = &mut self.modules[module];
                    for (path, name) in found {
                        match name {
                            None => module.globs.push(path.clone()),
                            Some(name) => {
                                if shown {
                                    module.shown.push((name.clone(), path.clone(), token.line));
                                } else {
                                    module.own.push((path.clone(), token.line));
                                }
                                module.names.insert(name, path);
                            }
                        }
                    }
                }
                "macro_rules" if reader.is(0, "!") && reader.is_word(1) => {
                    reader.at += 1;
                    let name = reader.take().to_owned();
                    let file = self.modules[module].file;
                    let place = if exported { self.root(module) } else { module };
                    self.modules[place].items.insert(name, file);
                    exported = false;
                }
                "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "union"
                    if depth == 0 && reader.is_word(0) =>
                {
                    let at = usize::from(reader.is(0, "mut") || reader.is(0, "fn") || reader.is(0, "unsafe"));
                    if let Some(name) = reader.tokens.get(reader.at + at) {
                        let file = self.modules[module].file;
                        self.modules[module].items.insert(name.text.to_owned(), file);
                    }
                }
                word if is_word(word) => {
                    let path = reader.path(word);
                    let module = &mut self.modules[module];
                    module.words.extend(path.first().cloned());
                    if path.len() > 1 {
                        module.paths.push((path, token.line));
                    }
                }
                _ => {}
            }
        }
    }

    /// The meaning of a name within a module.
    fn name(&self, module: usize, name: &str, depth: usize) -> Found {
        let of = &self.modules[module];
        if let Some(child) = of.modules.get(name) {
            return Found::Module(*child);
        }
        if let Some(file) = of.items.get(name) {
            return Found::Item(*file);
        }
        if depth >= DEPTH {
            return Found::Nothing;
        }
        if let Some(path) = of.names.get(name) {
            return self.resolve(module, path, depth + 1);
        }
        for glob in &of.globs {
            if let Found::Module(other) = self.resolve(module, glob, depth + 1)
                && other != module
            {
                let found = self.name(other, name, depth + 1);
                if found != Found::Nothing {
                    return found;
                }
            }
        }
        Found::Nothing
    }

    /// The target of a path in a module.
    fn resolve(&self, module: usize, path: &[String], depth: usize) -> Found {
        let mut found = Found::Nothing;
        for (index, segment) in path.iter().enumerate() {
            found = match (index, segment.as_str(), found) {
                (0, "crate", _) => Found::Module(self.root(module)),
                (0, "self", _) => Found::Module(module),
                (0, "super", _) => match self.modules[module].parent {
                    Some(parent) => Found::Module(parent),
                    None => return Found::Nothing,
                },
                (0, name, _) => self.name(module, name, depth),
                (_, "super", Found::Module(now)) => match self.modules[now].parent {
                    Some(parent) => Found::Module(parent),
                    None => return Found::Nothing,
                },
                (_, "self", now) => now,
                (_, name, Found::Module(now)) => match self.name(now, name, depth) {
                    // An item that a macro made, or an external one: it counts for the module.
                    Found::Nothing if !self.modules[now].names.contains_key(name) => {
                        Found::Item(self.modules[now].file)
                    }
                    other => other,
                },
                (_, _, other) => return other,
            };
        }
        found
    }

    fn link(self) -> Graph {
        let mut uses = vec![BTreeMap::new(); self.files.len()];
        // Names that a `pub use` re-exports count if the file itself has them elsewhere, too.
        let mut words: Vec<BTreeSet<&str>> = vec![BTreeSet::new(); self.files.len()];
        for module in &self.modules {
            words[module.file].extend(module.words.iter().map(String::as_str));
        }
        for (index, module) in self.modules.iter().enumerate() {
            let shown = module.shown.iter().filter(|(name, ..)| words[module.file].contains(name.as_str()));
            let shown = shown.map(|(_, path, line)| (path, line));
            let own = module.own.iter().chain(&module.paths).map(|(path, line)| (path, line));
            for (path, line) in own.chain(shown) {
                if let Found::Item(file) = self.resolve(index, path, 0) {
                    add(&mut uses, module.file, file, *line, path.join("::"));
                }
            }
            for glob in &module.globs {
                match self.resolve(index, glob, 0) {
                    Found::Item(file) => add(&mut uses, module.file, file, 0, glob.join("::")),
                    Found::Module(other) => {
                        for word in &module.words {
                            let known = module.items.contains_key(word) || module.names.contains_key(word);
                            if let (false, Found::Item(file)) = (known, self.name(other, word, 0)) {
                                add(&mut uses, module.file, file, 0, format!("{}::{word}", glob.join("::")));
                            }
                        }
                    }
                    Found::Nothing => {}
                }
            }
        }
        Graph { files: self.files, uses }
    }
}

fn add(uses: &mut [BTreeMap<usize, Use>], user: usize, used: usize, line: usize, path: String) {
    if user != used {
        uses[user].entry(used).or_insert(Use { line, path });
    }
}

/// A word or a sign; `::` is one sign.
#[derive(Clone, Copy)]
struct Token<'t> {
    text: &'t str,
    line: usize,
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let length = if is_word(rest) {
                rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            let (text, behind) = rest.split_at(length);
            if !first.is_whitespace() {
                found.push(Token { text, line: index + 1 });
            }
            rest = behind;
        }
    }
    found
}

/// Whether a text begins as a name.
fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// `#[cfg(test)]`, `#[cfg(all(test, ...))]`.
fn is_for_tests(attribute: &[&str]) -> bool {
    matches!(attribute, ["cfg", "(", "test", ..] | ["cfg", "(", "all", "(", "test", ..])
}

/// Whether the whole file is for tests (`#![cfg(test)]`).
fn attribute_of_file(tokens: &[Token<'_>]) -> bool {
    let texts: Vec<&str> = tokens.iter().take(32).map(|token| token.text).collect();
    texts.windows(6).any(|window| window == ["#", "!", "[", "cfg", "(", "test"])
}

struct Reader<'r> {
    tokens: &'r [Token<'r>],
    at: usize,
}

impl<'r> Reader<'r> {
    fn next(&mut self) -> Option<Token<'r>> {
        let token = self.tokens.get(self.at).copied();
        self.at += 1;
        token
    }

    fn text(&self, ahead: usize) -> &'r str {
        self.tokens.get(self.at + ahead).map_or("", |token| token.text)
    }

    fn is(&self, ahead: usize, text: &str) -> bool {
        self.text(ahead) == text
    }

    fn is_word(&self, ahead: usize) -> bool {
        is_word(self.text(ahead))
    }

    fn take(&mut self) -> &'r str {
        self.next().map_or("", |token| token.text)
    }

    /// After `use`: whether it is `pub use` or `pub(...) use`.
    fn is_shown(&self) -> bool {
        let before = |back: usize| self.at.checked_sub(back).map_or("", |at| self.tokens[at].text);
        before(2) == "pub" || before(2) == ")"
    }

    /// After `#`: the words and signs between the brackets.
    fn attribute(&mut self) -> Vec<&'r str> {
        if self.is(0, "!") {
            self.at += 1;
        }
        if !self.is(0, "[") {
            return Vec::new();
        }
        let (mut depth, mut inside) = (0usize, Vec::new());
        while let Some(token) = self.next() {
            match token.text {
                "[" => depth += 1,
                "]" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                break;
            }
            inside.push(token.text);
        }
        inside.split_off(1.min(inside.len()))
    }

    /// After `#[cfg(test)]`: skips the attributes that follow and the item (or field) itself.
    fn skip_item(&mut self) {
        while self.is(0, "#") {
            self.at += 1;
            self.attribute();
        }
        let (mut depth, mut ends_at_brace, mut is_item) = (0usize, true, false);
        while let Some(token) = self.next() {
            match token.text {
                "use" | "const" | "static" | "type" | "let" if depth == 0 && !is_item => {
                    (ends_at_brace, is_item) = (false, true);
                }
                "fn" | "mod" | "impl" | "struct" | "enum" | "trait" | "macro_rules" if depth == 0 => {
                    (ends_at_brace, is_item) = (true, true);
                }
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" if depth == 0 => {
                    self.at -= 1;
                    return;
                }
                "}" if depth == 1 && ends_at_brace => return,
                "}" | ")" | "]" => depth -= 1,
                ";" if depth == 0 => return,
                "," if depth == 0 && !is_item => return,
                _ => {}
            }
        }
    }

    /// After the first word of a path: reads all of its words.
    fn path(&mut self, first: &str) -> Vec<String> {
        let before = self.at.checked_sub(2).map_or("", |at| self.tokens[at].text);
        let mut path = vec![first.to_owned()];
        while self.is(0, "::") && self.is_word(1) {
            self.at += 1;
            path.push(self.take().to_owned());
        }
        // A method or field, or the rest of another path.
        if matches!(before, "." | "::") {
            path.clear();
        }
        path
    }

    /// After `use`, or within its braces: paths with the names that they get, none for `*`.
    fn use_tree(&mut self, before: &mut Vec<String>, found: &mut Vec<(Vec<String>, Option<String>)>) {
        let length = before.len();
        let mut ended = false;
        while let Some(token) = self.next() {
            match token.text {
                "::" => {}
                "{" => {
                    while !self.is(0, "}") && self.at < self.tokens.len() {
                        self.use_tree(before, found);
                    }
                    self.at += 1;
                    ended = true;
                }
                "*" => {
                    found.push((before.clone(), None));
                    ended = true;
                }
                "as" => {
                    found.push((before.clone(), Some(self.take().to_owned())));
                    ended = true;
                }
                "}" => {
                    self.at -= 1;
                    break;
                }
                "," | ";" => break,
                word => before.push(word.to_owned()),
            }
        }
        if !ended && before.len() > length {
            if before.last().is_some_and(|last| last == "self") && before.len() > 1 {
                before.pop();
            }
            found.push((before.clone(), before.last().cloned()));
        }
        before.truncate(length);
    }
}
