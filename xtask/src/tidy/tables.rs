// SPDX-License-Identifier: Apache-2.0
//! Registries are data: every file in `keywords/` and `protocols/`, and every file with a security function,
//! has its line in its table.

use super::{Finding, Tree};

/// A folder with a registry.
struct Table {
    folder: &'static str,
    /// The file in it that has the table.
    file: &'static str,
    /// The beginning of the table: it ends with the list.
    begin: &'static str,
    /// Name of the table, for people.
    name: &'static str,
    /// The mark in the text of an entry; files without it are shared by entries.
    mark: &'static str,
    /// Files with an entry made elsewhere.
    elsewhere: &'static [&'static str],
}

const TABLES: &[Table] = &[
    Table {
        folder: "crates/applayer/src/protocols/",
        file: "mod.rs",
        begin: "const TABLE:",
        name: "TABLE",
        mark: ": ProtocolSpec",
        elsewhere: &[],
    },
    Table {
        folder: "crates/detect/src/keywords/",
        file: "mod.rs",
        begin: "const FAMILIES:",
        name: "FAMILIES",
        mark: ": &[Keyword]",
        elsewhere: &[],
    },
    Table {
        folder: "crates/functions/src/",
        file: "registry.rs",
        begin: "pub fn kinds(",
        name: "`kinds`",
        mark: "impl FunctionKind for ",
        // The program makes it: its rules need the settings.
        elsewhere: &["ids_kind"],
    },
];

/// Every file (or folder) is in its table.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for table in TABLES {
        let path = format!("{}{}", table.folder, table.file);
        let Some(file) = tree.get(&path) else {
            if tree.root.is_some() {
                findings.push(Finding::new(&path, 0, "is missing: it holds the table"));
            }
            continue;
        };
        let list = file.text.split_once(table.begin).map_or("", |(_, rest)| rest);
        let list = list.split_once("];").or_else(|| list.split_once("]\n}")).map_or(list, |(list, _)| list);
        let mut entries: Vec<&str> = tree
            .rust()
            .filter(|file| file.text.contains(table.mark))
            .filter_map(|file| file.path.strip_prefix(table.folder))
            .map(|rest| rest.split('/').next().unwrap_or(rest))
            .map(|name| name.strip_suffix(".rs").unwrap_or(name))
            .filter(|name| *name != "mod" && !table.elsewhere.contains(name) && !name.ends_with("_tests"))
            .collect();
        entries.dedup();
        for name in entries.into_iter().filter(|name| !list.contains(&format!("{name}::"))) {
            let message = format!("`{name}` has no line in {}; add `{name}::...` to it", table.name);
            findings.push(Finding::new(&path, 0, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_line_is_found() {
        let tree = Tree::of(&[
            ("crates/applayer/src/protocols/dns/mod.rs", "pub static SPEC: ProtocolSpec ="),
            ("crates/applayer/src/protocols/dns/name.rs", ""),
            (
                "crates/applayer/src/protocols/mod.rs",
                "mod dns;\nmod tls;\nconst TABLE: &[&S] = &[&tls::SPEC];\n// dns::\n",
            ),
            ("crates/applayer/src/protocols/tls.rs", "static SPEC: ProtocolSpec"),
            ("crates/applayer/src/protocols/shared.rs", "fn f() {}"),
        ]);
        let said: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            ["crates/applayer/src/protocols/mod.rs: `dns` has no line in TABLE; add `dns::...` to it"]
        );
    }

    #[test]
    fn a_function_that_nobody_makes_is_found() {
        let kind = "impl FunctionKind for A {}";
        let tree = Tree::of(&[
            ("crates/functions/src/classes.rs", "pub trait FunctionKind {}"),
            ("crates/functions/src/gate.rs", kind),
            ("crates/functions/src/gate_tests.rs", kind),
            ("crates/functions/src/ids_kind.rs", kind),
            ("crates/functions/src/rates.rs", kind),
            (
                "crates/functions/src/registry.rs",
                "use crate::{gate, rates};\npub fn kinds() -> Vec<A> {\n    vec![\n        Arc::new(gate::GateKind),\n    ]\n}\n// rates::\n",
            ),
        ]);
        let said: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            ["crates/functions/src/registry.rs: `rates` has no line in `kinds`; add `rates::...` to it"]
        );
    }
}
