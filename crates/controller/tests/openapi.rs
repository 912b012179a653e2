// SPDX-License-Identifier: Apache-2.0
//! The committed OpenAPI document is that of the routes and types. `cargo xtask generate` writes it.

use bartizan_controller::{resources, rest::openapi};
use std::path::Path;

#[test]
fn the_committed_document_is_that_of_the_routes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/openapi.json");
    let document = openapi::document(&resources::routes());
    let expected = serde_json::to_string_pretty(&document).unwrap() + "\n";
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&path, expected).unwrap();
        return;
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == expected,
        "docs/reference/openapi.json is not that of the code: run `cargo xtask generate`"
    );
}

#[test]
fn operations_have_names_of_their_own_and_every_reference_is_defined() {
    let document = openapi::document(&resources::routes());
    let mut names: Vec<_> = resources::routes().into_iter().map(|route| route.operation).collect();
    names.sort();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
    let text = document.to_string();
    for part in text.split("\"$ref\":\"#").skip(1) {
        let pointer = part.split('"').next().unwrap();
        assert!(document.pointer(pointer).is_some(), "{pointer} is not defined");
    }
}
