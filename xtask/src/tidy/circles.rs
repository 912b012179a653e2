// SPDX-License-Identifier: Apache-2.0
//! Files of a crate that use one another in a circle can only be read, changed and tested together: circles
//! of more than three files are refused.

use super::uses::{self, Graph};
use super::{Finding, Tree};
use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;

/// The largest circle that is allowed.
const LARGEST: usize = 3;

/// Files that call each other through one dispatch, and count as one: the beginning of their paths, and the
/// reason.
const ONE: &[(&str, &str)] = &[(
    "crates/packet/src/decode/",
    "a tunnel's content may be any other header: each decoder hands on to the dispatch, which calls them all",
)];

/// Files that use one another, directly or through others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Circle {
    /// Paths from the root of the repository; for files that count as one, the beginning of their paths.
    pub files: Vec<String>,
    /// Uses within the circle: user, line, used file, path.
    pub uses: Vec<(String, usize, String, String)>,
    /// The uses of a shortest circle, as positions in `uses`.
    pub round: Vec<usize>,
}

/// All circles of a crate, by the folder of its sources, the largest first.
#[must_use]
pub fn circles(tree: &Tree, sources: &str) -> Vec<Circle> {
    let graph = joined(uses::graph(tree, sources));
    let mut found: Vec<Circle> = components(&graph).into_iter().map(|files| circle(&graph, &files)).collect();
    found.sort_by_key(|circle| core::cmp::Reverse(circle.files.len()));
    found
}

/// Finds circles of more than `LARGEST` files.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for sources in uses::packages(tree) {
        for circle in circles(tree, &sources).into_iter().filter(|circle| circle.files.len() > LARGEST) {
            let first = circle.files.first().map_or(sources.as_str(), String::as_str);
            findings.push(Finding::new(first, 0, said(&circle, &sources)));
        }
    }
    findings
}

/// A circle as text: its files, and a shortest circle of uses.
fn said(circle: &Circle, sources: &str) -> String {
    let short = |path: &str| path.strip_prefix(sources).unwrap_or(path).to_owned();
    let files: Vec<String> = circle.files.iter().map(|file| short(file)).collect();
    let mut text = format!(
        "{} files use one another in a circle (at most {LARGEST} may): {}; for example",
        files.len(),
        files.join(", ")
    );
    for (user, line, used, path) in circle.round.iter().map(|at| &circle.uses[*at]) {
        let _ = write!(text, " {}:{line} uses {} (`{path}`);", short(user), short(used));
    }
    text + " move what both need to a file below them"
}

/// The graph in which the files of each [`ONE`] are one.
fn joined(graph: Graph) -> Graph {
    let one = |path: &String| match ONE.iter().find(|(begin, _)| path.starts_with(begin)) {
        Some((begin, _)) => (*begin).to_owned(),
        None => path.clone(),
    };
    let mut joined = Graph::default();
    let mut places = Vec::new();
    for path in graph.files.iter().map(one) {
        let place = joined.files.iter().position(|file| *file == path).unwrap_or(joined.files.len());
        if place == joined.files.len() {
            joined.files.push(path);
            joined.uses.push(Default::default());
        }
        places.push(place);
    }
    for (user, uses) in graph.uses.into_iter().enumerate() {
        for (used, how) in uses.into_iter().filter(|(used, _)| places[*used] != places[user]) {
            joined.uses[places[user]].entry(places[used]).or_insert(how);
        }
    }
    joined
}

/// Sets of more than one file in which each is reachable from each (Tarjan's algorithm).
fn components(graph: &Graph) -> Vec<Vec<usize>> {
    struct Walk<'g> {
        graph: &'g Graph,
        order: Vec<Option<usize>>,
        lowest: Vec<usize>,
        stack: Vec<usize>,
        on_stack: Vec<bool>,
        met: usize,
        found: Vec<Vec<usize>>,
    }
    impl Walk<'_> {
        fn visit(&mut self, file: usize) {
            self.order[file] = Some(self.met);
            self.lowest[file] = self.met;
            self.met += 1;
            self.stack.push(file);
            self.on_stack[file] = true;
            for used in self.graph.uses[file].keys().copied() {
                match self.order[used] {
                    None => {
                        self.visit(used);
                        self.lowest[file] = self.lowest[file].min(self.lowest[used]);
                    }
                    Some(order) if self.on_stack[used] => {
                        self.lowest[file] = self.lowest[file].min(order);
                    }
                    Some(_) => {}
                }
            }
            if Some(self.lowest[file]) == self.order[file] {
                let at = self.stack.iter().rposition(|other| *other == file).unwrap_or(0);
                let mut files = self.stack.split_off(at);
                files.iter().for_each(|file| self.on_stack[*file] = false);
                files.sort_unstable();
                if files.len() > 1 {
                    self.found.push(files);
                }
            }
        }
    }
    let files = graph.files.len();
    let mut walk = Walk {
        graph,
        order: vec![None; files],
        lowest: vec![0; files],
        stack: Vec::new(),
        on_stack: vec![false; files],
        met: 0,
        found: Vec::new(),
    };
    for file in 0..files {
        if walk.order[file].is_none() {
            walk.visit(file);
        }
    }
    walk.found
}

fn circle(graph: &Graph, files: &[usize]) -> Circle {
    let mut uses = Vec::new();
    let mut arrows = Vec::new();
    for user in files {
        for (used, how) in graph.uses[*user].iter().filter(|(used, _)| files.contains(used)) {
            let (from, to) = (graph.files[*user].clone(), graph.files[*used].clone());
            uses.push((from, how.line, to, how.path.clone()));
            arrows.push((*user, *used));
        }
    }
    let round = files.iter().map(|file| way_round(&arrows, *file)).min_by_key(Vec::len).unwrap_or_default();
    Circle { files: files.iter().map(|file| graph.files[*file].clone()).collect(), uses, round }
}

/// A shortest path from a file back to it, as positions of arrows.
fn way_round(arrows: &[(usize, usize)], start: usize) -> Vec<usize> {
    let mut waiting = VecDeque::from([(start, Vec::new())]);
    let mut seen = BTreeSet::new();
    while let Some((at, way)) = waiting.pop_front() {
        for (place, (_, to)) in arrows.iter().enumerate().filter(|(_, (from, _))| *from == at) {
            let mut way: Vec<usize> = way.clone();
            way.push(place);
            if *to == start {
                return way;
            }
            if seen.insert(*to) {
                waiting.push_back((*to, way));
            }
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four files in a circle: through a re-export, an imported module, `super` and a glob.
    const FOUR: &[(&str, &str)] = &[
        ("crates/x/Cargo.toml", ""),
        ("crates/x/src/lib.rs", "mod a; mod b; mod c; pub use a::{A, one};"),
        ("crates/x/src/a.rs", "use crate::b;\npub struct A;\npub fn one() { b::two() }\n"),
        ("crates/x/src/b/mod.rs", "mod d;\nuse d::*;\npub fn two() { four() }\n"),
        ("crates/x/src/b/d.rs", "pub fn four() { super::super::c::three() }\n"),
        ("crates/x/src/c.rs", "//! crate::b::two\nuse crate::A;\npub fn three() -> A { A }\n"),
    ];

    fn with(path: &str, text: &'static str) -> Tree {
        let files = FOUR.iter().map(|(p, t)| if *p == path { (*p, text) } else { (*p, *t) });
        Tree::of(&files.collect::<Vec<_>>())
    }

    #[test]
    fn a_circle_of_four_is_found_with_its_files_and_uses() {
        let findings = check(&Tree::of(FOUR));
        assert_eq!(findings.len(), 1, "{findings:?}");
        let message = &findings[0].message;
        for part in [
            "4 files",
            "a.rs, b/mod.rs, b/d.rs, c.rs",
            "a.rs:3 uses b/mod.rs (`b::two`)",
            "b/d.rs:1 uses c.rs (`super::super::c::three`)",
            "c.rs:2 uses a.rs (`crate::A`)",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert!(!message.contains("lib.rs"), "{message}");
    }

    #[test]
    fn three_are_let_go_and_tests_do_not_count() {
        let three = with("crates/x/src/b/d.rs", "pub fn four() {}\n");
        assert_eq!(check(&three), []);
        for tests in [
            "#[cfg(test)]\nmod tests { use crate::b::two; }\npub fn three() {}\n",
            "#[cfg(test)]\nuse crate::{b::two, A};\npub struct C { #[cfg(test)] a: crate::A, b: u8 }\npub fn three() {}\n",
            "#[cfg(test)]\n#[inline]\nfn f(a: crate::A, b: u8) -> u8 { crate::b::two(); b }\npub fn three() { \"crate::A\" }\n",
        ] {
            let findings = check(&with("crates/x/src/c.rs", tests));
            assert_eq!(findings, [], "{tests}");
        }
        let after = "#[cfg(test)]\nuse crate::b::two;\npub fn three() -> crate::A { crate::A }\n";
        assert_eq!(check(&with("crates/x/src/c.rs", after)).len(), 1);
    }

    #[test]
    fn decoders_behind_one_dispatch_count_as_one() {
        let all = "mod b; mod c; mod d; pub fn next() { b::f(); c::f(); d::f() }";
        let back = "use super::next;\npub fn f() { next() }";
        let decoders = |folder: &str, other: &'static str| {
            let files: Vec<(String, &str)> = vec![
                ("crates/packet/Cargo.toml".into(), ""),
                ("crates/packet/src/lib.rs".into(), "mod decode; mod defrag; mod view; mod way;"),
                (format!("crates/packet/src/{folder}/mod.rs"), all),
                (format!("crates/packet/src/{folder}/b.rs"), back),
                (format!("crates/packet/src/{folder}/c.rs"), other),
                (format!("crates/packet/src/{folder}/d.rs"), back),
                ("crates/packet/src/view.rs".into(), "pub fn g() { crate::way::g() }"),
                ("crates/packet/src/way.rs".into(), "pub fn g() { crate::decode::next() }"),
            ];
            let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
            check(&Tree::of(&files)).len()
        };
        assert_eq!((decoders("decode", back), decoders("defrag", back)), (0, 1));
        // Files outside count separately: here the decoders, as one, with two others.
        assert_eq!(decoders("decode", "pub fn f() { crate::view::g() }"), 0);
    }
}
