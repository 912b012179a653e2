// SPDX-License-Identifier: Apache-2.0
//! Registries are data: every file in `keywords/` and `protocols/` has its line in the table of that folder.

use super::{Finding, Tree};

/// A folder with a registry.
struct Table {
    folder: &'static str,
    /// The constant in `mod.rs` that lists the entries.
    name: &'static str,
    /// What the text of an entry has: files without it are what entries share.
    mark: &'static str,
}

const TABLES: &[Table] = &[
    Table { folder: "crates/applayer/src/protocols/", name: "TABLE", mark: ": ProtocolSpec" },
    Table { folder: "crates/detect/src/keywords/", name: "FAMILIES", mark: ": &[Keyword]" },
];

/// Every file (or folder) is in its table.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for table in TABLES {
        let path = format!("{}mod.rs", table.folder);
        let Some(file) = tree.get(&path) else {
            if tree.root.is_some() {
                findings.push(Finding::new(&path, 0, "is missing: it holds the table"));
            }
            continue;
        };
        let list = file.text.split_once(&format!("const {}:", table.name)).map_or("", |(_, rest)| rest);
        let list = list.split_once("];").map_or(list, |(list, _)| list);
        let mut entries: Vec<&str> = tree
            .rust()
            .filter(|file| file.text.contains(table.mark))
            .filter_map(|file| file.path.strip_prefix(table.folder))
            .map(|rest| rest.split('/').next().unwrap_or(rest))
            .map(|name| name.strip_suffix(".rs").unwrap_or(name))
            .filter(|name| *name != "mod")
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
}
