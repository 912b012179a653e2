// SPDX-License-Identifier: Apache-2.0
//! Each declaration of a specification has a reader: a field of a spec without one is a promise that nothing
//! keeps.
//!
//! A read is a field after an expression that holds the spec, or in a pattern that destructures it, outside
//! of tests and examples. The expressions that hold one are listed, since text alone has no types: a new
//! reader with another name adds a line.

use super::rust::{code, tests_begin};
use super::{Finding, Tree};

/// A structure whose fields are declarations.
struct Spec {
    path: &'static str,
    name: &'static str,
    /// Expressions that hold one, and the beginnings of the paths of their files.
    held: &'static [(&'static str, &'static str)],
}

const FUNCTION: &str = "crates/function/src/spec.rs";
const CONTEXT: &str = "crates/function/src/context.rs";
const ORDER: &str = "crates/agent/src/order.rs";
const PAGE: &str = "crates/functions/src/reference.rs";
const HOSTS: &str = "crates/function/src/hosts.rs";
const HEADERS: &str = "crates/function/src/header.rs";
const PROTOCOL: &str = "crates/applayer/src/protocol.rs";
const KEYWORD: &str = "crates/detect/src/compile/keyword.rs";

const SPECS: &[Spec] = &[
    Spec {
        path: FUNCTION,
        name: "FunctionSpec",
        held: &[("crates/", "spec()"), (ORDER, "a"), (ORDER, "b"), (ORDER, "spec"), (PAGE, "spec")],
    },
    Spec { path: FUNCTION, name: "HeaderHalf", held: &[("crates/", "half")] },
    Spec { path: FUNCTION, name: "HeaderField", held: &[("crates/", "header_field")] },
    Spec { path: FUNCTION, name: "FunctionCounter", held: &[("crates/", "counter_spec")] },
    Spec { path: CONTEXT, name: "ChainResults", held: &[("crates/", "notes"), (CONTEXT, "self")] },
    Spec { path: HOSTS, name: "HostSlot", held: &[(HOSTS, "slot")] },
    // Destructured by their readers.
    Spec { path: HEADERS, name: "HeaderRules", held: &[] },
    // The suite of its own tests, beside these files, does not count.
    Spec {
        path: PROTOCOL,
        name: "ProtocolSpec",
        held: &[
            ("crates/applayer/src/detection.rs", "spec"),
            ("crates/applayer/src/detection.rs", "spec(id)?"),
            ("crates/applayer/src/engine.rs", "spec"),
            ("crates/applayer/src/flow.rs", "spec"),
            ("crates/applayer/src/limits.rs", "spec"),
            (PROTOCOL, "self"),
            ("crates/applayer/src/protocols/mod.rs", "spec"),
            ("crates/detect/src/", "spec"),
            ("crates/stages/src/", "spec"),
            ("crates/dataplane/src/eve/", "spec"),
        ],
    },
    Spec {
        path: PROTOCOL,
        name: "RecordSpec",
        held: &[("crates/dataplane/src/eve/", "records"), ("crates/dataplane/src/eve/", "declared")],
    },
    Spec { path: PROTOCOL, name: "CounterSpec", held: &[("crates/", "counters")] },
    Spec { path: PROTOCOL, name: "MemoryCounters", held: &[("crates/dataplane/src/worker/", "memory")] },
    Spec {
        path: PROTOCOL,
        name: "BufferSpec",
        held: &[("crates/detect/src/", "spec"), ("crates/detect/src/", "buffer")],
    },
    Spec {
        path: KEYWORD,
        name: "Keyword",
        held: &[
            ("crates/detect/src/", "keyword"),
            ("crates/detect/src/keywords/mod.rs", "k"),
            ("crates/detect/src/keywords/mod.rs", "self"),
        ],
    },
];

/// Fields that only tests read, or nothing yet, each with the reason for its existence. A field with a reader
/// has to leave the list.
const UNREAD: &[(&str, &str, &str)] = &[(
    "ProtocolSpec",
    "has_trailing_bytes",
    "the shared tests of parsers and the fuzz targets leave out such cuts",
)];

/// Every field of a spec has a reader, or is on the list of those that have none yet.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    check_with(tree, UNREAD)
}

fn check_with(tree: &Tree, unread: &[(&str, &str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for spec in SPECS {
        let fields = tree.get(spec.path).map_or_else(Vec::new, |file| fields(&file.text, spec.name));
        if fields.is_empty() && tree.root.is_some() {
            let message = format!("`{}` is not there; say in xtask/src/tidy/specs.rs where it is", spec.name);
            findings.push(Finding::new(spec.path, 0, message));
        }
        let listed = |field: &str| unread.iter().any(|(of, name, _)| (*of, *name) == (spec.name, field));
        for (line, field) in &fields {
            let message = match (is_read(tree, spec, field), listed(field)) {
                (true, true) => "is read now: take it from UNREAD in xtask/src/tidy/specs.rs",
                (false, false) => "is read by nobody: take it away, or give it its reader",
                _ => continue,
            };
            findings.push(Finding::new(spec.path, *line, format!("`{}.{field}` {message}", spec.name)));
        }
        let gone =
            unread.iter().filter(|(of, name, _)| *of == spec.name && !fields.iter().any(|(_, f)| f == name));
        for (_, name, _) in gone.filter(|_| !fields.is_empty()) {
            let message = format!("`{}.{name}` is no field any more: take it from UNREAD", spec.name);
            findings.push(Finding::new(spec.path, 0, message));
        }
    }
    findings
}

/// The public fields of a structure, with their lines.
fn fields(text: &str, name: &str) -> Vec<(usize, String)> {
    let begins = |line: &str| {
        let rest = line.strip_prefix("pub struct ").and_then(|rest| rest.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with([' ', '<']))
    };
    let code = code(text);
    let lines = code.lines().enumerate().skip_while(|(_, line)| !begins(line)).skip(1);
    let field =
        |line: &str| line.trim().strip_prefix("pub ")?.split_once(':').map(|(field, _)| field.to_owned());
    lines
        .take_while(|(_, line)| !line.starts_with('}'))
        .filter_map(|(index, line)| Some((index + 1, field(line)?)))
        .collect()
}

fn is_read(tree: &Tree, spec: &Spec, field: &str) -> bool {
    tree.rust().filter(|file| !is_of_tests(&file.path) && file.text.contains(field)).any(|file| {
        if file.path.starts_with("crates/") && takes_apart(&file.text, spec.name, field) {
            return true;
        }
        let held =
            || spec.held.iter().filter(|(folder, _)| file.path.starts_with(folder)).map(|(_, held)| *held);
        held().any(|held| reads(&file.text, held, field))
    })
}

fn is_of_tests(path: &str) -> bool {
    let names = ["/tests/", "/tests.rs", "/examples/", "/benches/"];
    names.iter().any(|name| path.contains(name)) || path.ends_with("_tests.rs")
}

/// The code before the tests, in one line.
fn in_one_line(text: &str) -> String {
    let lines = code(text);
    let code: Vec<&str> =
        lines.lines().take(tests_begin(text).saturating_sub(1)).flat_map(str::split_whitespace).collect();
    code.join(" ")
}

/// Whether a pattern takes the field out of a structure: `let Name { field, .. } =`, `for Name { field: other
/// } in`, `Name { field } =>`.
fn takes_apart(text: &str, name: &str, field: &str) -> bool {
    if !text.contains(name) {
        return false;
    }
    let code = in_one_line(text);
    code.split(&format!("{name} {{")).skip(1).any(|rest| {
        let Some((fields, behind)) = rest.split_once('}') else { return false };
        let mut fields = fields.split(',').filter_map(|one| one.split(':').next());
        let behind = behind.trim_start_matches([')', ' ']);
        fields.any(|one| one.trim() == field)
            && ["= ", "=> ", "in "].iter().any(|word| behind.starts_with(word))
    })
}

/// Whether the code reads a field after an expression. Setting it is no read.
fn reads(text: &str, held: &str, field: &str) -> bool {
    // A long chain has line breaks before its dots.
    let code = in_one_line(text).replace(" .", ".");
    let wanted = format!("{held}.{field}");
    code.match_indices(&wanted).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let rest = &code[at + wanted.len()..];
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let is_set = rest.starts_with(" = ");
        !before.is_some_and(is_word) && !rest.starts_with(|c: char| is_word(c) || c == '(') && !is_set
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: &str = "/// Doc.\npub struct FunctionSpec {\n    /// Name.\n    pub name: &'static str,\n    /// Runs after.\n    pub runs_after: u8,\n}\npub struct Other {\n    pub x: u8,\n}\n";

    fn said(files: &[(&str, &str)], unread: &[(&str, &str, &str)]) -> Vec<String> {
        let mut files = files.to_vec();
        files.push((FUNCTION, SPEC));
        check_with(&Tree::of(&files), unread).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn a_field_without_a_reader_is_found() {
        let reader =
            "fn f() {\n    let a = kind\n        .spec()\n        .name;\n    // kind.spec().runs_after\n}\n";
        let found = said(&[("crates/x/src/a.rs", reader)], &[]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0]
                .starts_with("crates/function/src/spec.rs:6: `FunctionSpec.runs_after` is read by nobody")
        );
    }

    #[test]
    fn tests_and_setters_and_other_names_are_no_readers() {
        let name = ("crates/x/src/b.rs", "fn f() { s.spec().name.len() }");
        for (path, text) in [
            ("crates/x/tests/a.rs", "fn f() { s.spec().runs_after }"),
            ("crates/x/src/a.rs", "#[cfg(test)]\nmod tests { fn f() { s.spec().runs_after } }"),
            (
                "crates/x/src/a.rs",
                "fn f() { s.spec().runs_after = 1; s.spec().runs_after_all; s.my_spec().x; other.runs_after }",
            ),
            ("crates/x/src/a.rs", "fn f() { a.runs_after }"),
        ] {
            assert_eq!(said(&[name, (path, text)], &[]).len(), 1, "{text}");
        }
        assert_eq!(said(&[name, (ORDER, "fn f() { a.runs_after }")], &[]), [""; 0]);
    }

    #[test]
    fn a_pattern_that_takes_a_field_out_reads_it() {
        let name = ("crates/x/src/b.rs", "fn f() { s.spec().name }");
        for (text, reads) in [
            ("fn f() { let FunctionSpec { runs_after, .. } = *spec; }", true),
            ("fn f() { for FunctionSpec { name: _, runs_after: other } in list {} }", true),
            ("fn f() { if let Some(FunctionSpec { runs_after, .. }) = spec {} }", true),
            ("fn f() { let FunctionSpec { name, .. } = runs_after; }", false),
            ("fn f() { FunctionSpec { runs_after: 1, name } }", false),
            ("fn f() { let x = FunctionSpec { runs_after: 1, name }; }", false),
        ] {
            assert_eq!(said(&[name, ("crates/x/src/a.rs", text)], &[]).is_empty(), reads, "{text}");
        }
    }

    #[test]
    fn the_list_of_exceptions_is_exact() {
        let name = ("crates/x/src/b.rs", "fn f() { s.spec().name }");
        assert_eq!(said(&[name], &[("FunctionSpec", "runs_after", "later")]), [""; 0]);
        let read =
            said(&[name], &[("FunctionSpec", "runs_after", "later"), ("FunctionSpec", "name", "later")]);
        assert!(read.len() == 1 && read[0].contains("`FunctionSpec.name` is read now"), "{read:?}");
        let gone =
            said(&[name], &[("FunctionSpec", "runs_after", "later"), ("FunctionSpec", "old", "later")]);
        assert!(gone.len() == 1 && gone[0].contains("`FunctionSpec.old` is no field"), "{gone:?}");
    }
}
