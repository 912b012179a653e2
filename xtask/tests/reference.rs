// SPDX-License-Identifier: Apache-2.0
//! The committed reference pages of YAML files are those of their schemas, and their examples are right. The
//! committed page of figures is that of the records.

use std::path::Path;
use xtask::records;
use xtask::reference::{PAGES, render};
use xtask::tidy::{Tree, arrows};

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference"))
}

#[test]
fn the_committed_pages_are_those_of_the_schemas() {
    for page in PAGES {
        let schema = std::fs::read_to_string(folder().join(page.schema)).unwrap();
        let text = render(page, &schema).unwrap();
        let path = folder().join(page.page);
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(text == committed, "{} is not that of its schema: `cargo xtask generate`", page.page);
    }
}

#[test]
fn the_examples_are_read_by_the_program() {
    let example = |page: &str| {
        let page = PAGES.iter().find(|one| one.page == page).unwrap();
        let (_, rest) = page.introduction.split_once("```yaml\n").unwrap();
        rest.split_once("```").unwrap().0.to_owned()
    };
    let policy = bartizan_config::policy::parse(
        "policy.yaml",
        &example("policy.md"),
        &["portscan", "pfw", "sfw", "ids"],
    );
    assert!(policy.is_ok(), "{policy:?}");
    let host = bartizan_config::host::parse("bartizan.yaml", &example("host.md"));
    assert!(host.is_ok(), "{host:?}");
}

#[test]
fn the_committed_table_of_layers_is_that_of_the_manifests() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../ARCHITECTURE.md"));
    let committed = std::fs::read_to_string(path).unwrap();
    let text =
        arrows::with_table(&Tree::of_repository().unwrap(), &committed).expect("the marks of the table");
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap();
    assert!(text == committed, "the table of layers in ARCHITECTURE.md: `cargo xtask generate`");
}

#[test]
fn the_committed_page_of_figures_is_that_of_the_records() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let text = records::render(&records::files(&root.join("benches/records")).unwrap()).unwrap();
    let path = root.join("docs/figures.md");
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    assert!(text == committed, "figures.md is not that of benches/records: `cargo xtask generate`");
}
